"""How tables read where people look: rounded, a dash for what is undefined, simulated sets named as such."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tasks.metrics.registry import METRICS, Metric
from tasks.protocol.results import AVERAGE, display_name
from tasks.tables.runs import BOOSTED, PAPER_DATASETS, Table

OWN = "Own data sets"
SIMULATED = (
    "Rows marked simulated were measured on twins of our own making: they say that the pipeline works, "
    "nothing about the data set of that name."
)
MEMBERS = {"conf": "Conf.", "base": "Base", "mrp": "MRP", "mrc": "MRC", "delta": "Δ"}  # columns of a metric
TEMPLATES = Environment(  # noqa: S701 - Markdown and LaTeX; `latex` escapes for the latter
    loader=FileSystemLoader(Path(__file__).parent),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    variable_start_string="<<",
    variable_end_string=">>",
)


class Shown(NamedTuple):
    """A cell as people read it."""

    text: str
    improved: bool = False


@dataclass(frozen=True)
class ShownTable:
    """A table as people read it: rounded, with every row of its CSV."""

    key: str
    caption: str
    note: str
    columns: list[str]
    sections: dict[str, list[list[Shown]]]  # rows by their heading: the paper's data sets have none
    rows: int

    @property
    def texts(self) -> list[list[str]]:
        """Return the cells of all rows, without marks or sections."""
        return [[cell.text for cell in row] for rows in self.sections.values() for row in rows]

    def markdown(self) -> str:
        """Return the table in Markdown: caption, rows, note; improvements are bold."""
        return TEMPLATES.get_template("table.md.jinja").render(table=self).rstrip() + "\n"


def shown(table: Table, frame: pl.DataFrame) -> ShownTable:
    """Return the rows of a table as people read them; `source` moves into the name, a deviation behind its mean.

    One's own data sets stand in a section of their own.
    """
    of_paper = [*PAPER_DATASETS, BOOSTED, AVERAGE, "all"]
    own = ~pl.col("dataset").is_in(of_paper) if "dataset" in frame.columns else pl.lit(value=False)
    parts = {"": frame.filter(~own), OWN: frame.filter(own)}
    sections = {
        heading: [list(_row(table, row)) for row in rows.iter_rows(named=True)]
        for heading, rows in parts.items()
        if len(rows)
    }
    simulated = any("simulated" in (source or "") for source in frame["source"])
    columns = [name for name in frame.columns if name != "source" and not name.endswith("_std")]
    note = f"{table.note} {SIMULATED if simulated else ''}".strip()
    return ShownTable(table.key, table.caption, note, columns, sections or {"": []}, len(frame))


def cell(value: object, digits: int = 3, *, signed: bool = False) -> str:
    """Return a number with `digits` decimals, a dash where it is undefined, anything else as it is."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        rounded = round(value, digits) + 0.0  # no -0.000
        return "–" if math.isnan(value) else f"{rounded:{'+' if signed and rounded else ''}.{digits}f}"
    return "–" if value is None or value == "" else str(value)


def metric_of(column: str) -> tuple[Metric | None, str]:
    """Return the metric that a column is about and which of its MEMBERS it holds; None and the column for any other."""
    change = column.removeprefix("delta_")
    name, _, member = column.rpartition("_") if change == column else (change, "", "delta")
    metric = METRICS.get(name.removeprefix("fixed_"))
    return (metric, member) if metric and member in MEMBERS else (None, column)


def _row(table: Table, row: Mapping[str, Any]) -> Iterator[Shown]:
    named = "dataset" if "dataset" in row else next(iter(row))
    low, high = row.get("low"), row.get("high")
    unchanged = low is not None and high is not None and low <= 0 <= high  # then nothing in it is an improvement
    for column, value in row.items():
        if column == named:
            yield Shown(display_name(value, row["source"] or ""))
        elif column != "source" and not column.endswith("_std"):
            digits = 0 if "_per_1000_" in column else 1 if re.search("_(pct|pp)$", column) else table.digits
            text = cell(value, digits, signed="delta" in column or column == "difference")
            std = row.get(f"{column}_std")
            deviation = "" if std is None or text == "–" else f" ± {cell(std, digits)}"
            metric, member = metric_of(column)
            better = metric and text.startswith("-" if metric.direction < 0 else "+")
            yield Shown(text + deviation, bool(better) and member == "delta" and not unchanged)
