"""How tables read where people look: rounded, a dash for what is undefined, simulated sets named as such."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import polars as pl

from tasks.protocol.keys import AVERAGE, BOOSTED, PAPER_DATASETS
from tasks.tables.layouts import LAYOUTS, SIMULATED
from tasks.tables.runs import FAILED

OWN = "Own data sets"
LOWER_IS_BETTER = "nll|aurc|augrc|ece|brier"


class Shown(NamedTuple):
    """A cell as people read it."""

    text: str
    improved: bool = False


class Section(NamedTuple):
    """Rows under one heading: the paper's data sets have none."""

    heading: str
    rows: list[list[Shown]]


def display_name(name: str, source: str) -> str:
    """`wands (simulated)` for a twin, `wands (failed)` for a hole, the plain key for everything else."""
    return f"{name} ({source})" if "simulated" in source or source == FAILED else name


def cell(value: object, digits: int = 3, *, signed: bool = False) -> str:
    """A number with `digits` decimals, a dash where it is undefined, anything else as it is."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        rounded = round(value, digits) + 0.0  # no -0.000
        return "–" if math.isnan(value) else f"{rounded:{'+' if signed and rounded else ''}.{digits}f}"
    return "–" if value is None or value == "" else str(value)


def columns_shown(table: pl.DataFrame) -> list[str]:
    """Columns that people see: `source` moves into the name, a deviation behind its mean."""
    return [name for name in table.columns if name != "source" and not name.endswith("_std")]


def sections(name: str, table: pl.DataFrame) -> list[Section]:
    """The rows of the table `name` as people read them; one's own data sets stand in a section of their own."""
    known = {*PAPER_DATASETS, BOOSTED, AVERAGE, "all"}
    own = pl.col("dataset").is_in(known).not_() if "dataset" in table.columns else pl.lit(value=False)
    parts = (("", table.filter(~own)), (OWN, table.filter(own)))
    found = [Section(heading, [list(_row(name, row)) for row in rows.iter_rows(named=True)]) for heading, rows in parts]
    return [section for section in found if section.rows] or [Section("", [])]


def _row(table: str, row: Mapping[str, Any]) -> Iterator[Shown]:
    named = "dataset" if "dataset" in row else next(iter(row))
    for column, value in row.items():
        if column == named:
            yield Shown(display_name(value, row["source"] or ""))
        elif column != "source" and not column.endswith("_std"):
            cell_shown = _shown(table, column, value, row.get(f"{column}_std"))
            yield cell_shown._replace(improved=cell_shown.improved and not _spans_zero(row))


def _spans_zero(row: Mapping[str, Any]) -> bool:
    """Has the row an interval that covers no change? Then nothing in it is an improvement."""
    low, high = row.get("low"), row.get("high")
    return low is not None and high is not None and low <= 0 <= high


def _shown(table: str, column: str, value: object, std: float | None) -> Shown:
    digits = 0 if "_per_1000_" in column else 1 if re.search("_(pct|pp)$", column) else LAYOUTS[table].digits
    change = "delta" in column
    text = cell(value, digits, signed=change or column == "difference")
    deviation = "" if std is None or text == "–" else f" ± {cell(std, digits)}"
    of_a_metric = re.search("_delta$|^delta_", column) is not None
    improved = of_a_metric and text[0] == ("-" if re.search(LOWER_IS_BETTER, column) else "+")
    return Shown(text + deviation, improved)


def displayed(name: str, table: pl.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table `name` as people read them, without marks or sections."""
    rows = [[shown.text for shown in row] for section in sections(name, table) for row in section.rows]
    return columns_shown(table), rows


def note(name: str, table: pl.DataFrame) -> str:
    """What stands below the table: what its numbers do not say."""
    simulated = any("simulated" in (source or "") for source in table["source"])
    return " ".join(text for text in (LAYOUTS[name].note, SIMULATED if simulated else "") if text)


def markdown(name: str, table: pl.DataFrame) -> str:
    """The table `name` in Markdown: caption, rows, note."""
    header = columns_shown(table)
    blocks = [f"**{LAYOUTS[name].caption}**"]
    for section in sections(name, table):
        rows = [[f"**{text}**" if improved else text for text, improved in row] for row in section.rows]
        blocks += [f"**{section.heading}**"] if section.heading else []
        blocks.append("\n".join(f"| {' | '.join(line)} |" for line in [header, ["---"] * len(header), *rows]))
    return "\n\n".join(block for block in [*blocks, note(name, table)] if block) + "\n"
