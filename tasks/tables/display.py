"""How tables read where people look: rounded, a dash for what is undefined, simulated sets named as such.

In LaTeX they are ready to paste: that needs the package booktabs, and longtable for those that fill pages.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from relmap.metrics.registry import METRICS, Metric
from tasks.records.results import AVERAGE, display_name
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
SYMBOLS = {"nll_correct": r"\mathrm{NLL}_{\mathrm{correct}}"}
HEADS = {"ece": "Fixed ECE", "top_ece": "Top ECE", "brier": "Brier"}  # where the paper's are shorter than titles
PAGE = 45  # rows; a longer table is a longtable
WIDE = ("reason", "tolerance_from", "chosen_to_match", "labels", "task")  # columns of text that must wrap
SPECIAL = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "Δ": r"$\Delta$",
    "<": "$<$",
    ">": "$>$",
}


class Shown(NamedTuple):
    """A cell as people read it."""

    text: str
    improved: bool = False


class ShownTable(NamedTuple):
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


def escaped(text: str) -> str:
    """Return plain text as LaTeX prints it, a leading minus as a minus."""
    return re.sub(r"^-(?=\d)", "$-$", "".join(SPECIAL.get(sign, sign) for sign in text))


def latex(table: ShownTable, schema: pl.Schema) -> str:
    """Return a table with columns of `schema` as a LaTeX table with caption and label; improvements are bold."""
    kinds = ("p{3cm}" if name in WIDE else "r" if schema[name].is_numeric() else "l" for name in table.columns)
    return TEMPLATES.get_template("table.tex.jinja").render(
        table=table,
        long=table.rows > PAGE,
        kinds="".join(kinds),
        caption=escaped(f"{table.caption} {table.note}".strip()),
        header=_header(table.columns),
        sections=[(heading, _lines(rows, table.columns)) for heading, rows in table.sections.items()],
    )


def _header(columns: list[str]) -> list[str]:
    """One line, or two where columns belong together: the metric above confidence, MRP and change."""
    parts = [(None, name) if name.startswith("delta_") else metric_of(name) for name in columns]
    below = _line(escaped(MEMBERS[member] if metric else member) for metric, member in parts)
    if not any(metric for metric, _ in parts):
        return [below]
    above = []
    for metric, members in groupby(parts, key=lambda part: part[0]):
        width = len(list(members))
        above += [f"\\multicolumn{{{width}}}{{c}}{{{_head(metric)}}}"] if metric else [""] * width
    return [_line(above), below]


def _head(metric: Metric) -> str:
    """What a metric is called in the paper, and an arrow to where it is better."""
    symbol, arrow = SYMBOLS.get(metric.key), r"\downarrow" if metric.direction < 0 else r"\uparrow"
    return f"${symbol}{arrow}$" if symbol else f"{escaped(HEADS.get(metric.key, metric.title))}${arrow}$"


def _lines(rows: list[list[Shown]], columns: list[str]) -> list[str]:
    """Rows, with a rule wherever the data set changes in a table of several rows for each."""
    place = columns.index("dataset") if "dataset" in columns else 0
    blocks = [
        [_line(rf"\textbf{{{escaped(text)}}}" if improved else escaped(text) for text, improved in row) for row in rows]
        for _, rows in groupby(rows, lambda row: row[place].text)
    ]
    parted = [r"\midrule"] if any(len(lines) > 1 for lines in blocks) else []
    return [line for lines in blocks for line in (lines if lines is blocks[0] else parted + lines)]


def _line(cells: Iterable[str]) -> str:
    return f"{' & '.join(cells)} \\\\"
