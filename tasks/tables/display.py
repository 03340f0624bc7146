"""How tables read where people look: rounded, a dash for what is undefined, simulated sets named as such."""

from __future__ import annotations

import math

import polars as pl


def display_name(dataset: str, source: str) -> str:
    """`wands (simulated)` for a twin, `wands (failed)` for a hole, the plain key for everything else."""
    return f"{dataset} ({source})" if source in ("simulated", "failed") else dataset


def cell(value: object, digits: int = 3) -> str:
    """A number with `digits` decimals, a dash where it is undefined, anything else as it is."""
    if isinstance(value, float):
        return "–" if math.isnan(value) else f"{value:.{digits}f}"
    return "–" if value is None else str(value)


def displayed(table: pl.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a results table as people read them; the `source` column moves into the name."""
    header = [name for name in table.columns if name != "source"]
    rows = [
        [display_name(row["dataset"], row["source"]) if name == "dataset" else cell(row[name]) for name in header]
        for row in table.iter_rows(named=True)
    ]
    return header, rows


def markdown(table: pl.DataFrame) -> str:
    """A results table as a Markdown table."""
    header, rows = displayed(table)
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
