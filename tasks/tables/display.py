"""Tables as people read them, in Markdown and LaTeX: rounded, with a dash for undefined numbers.

LaTeX tables need the package booktabs; tables that fill pages also need longtable.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from relmap.metrics.registry import HIGHER, LOWER, METRICS, NEITHER, Metric
from tasks.results.values import AVERAGE, display_name
from tasks.tables.runs import BOOSTED, PAPER_DATASETS, Table

OWN_HEADING = "Own data sets"
SIMULATED_NOTE = (
    "Rows marked simulated are results on simulated data. They show that the pipeline works. They do not show how the "
    "method performs on the real data set of the same name."
)
# kind of a column -> LaTeX header
COLUMN_KINDS = {"conf": "Conf.", "base": "Base", "mrp": "MRP", "mrc": "MRC", "delta": "Δ"}
TEMPLATES = Environment(  # noqa: S701 - Markdown and LaTeX; `render_latex` escapes for the latter
    loader=FileSystemLoader(Path(__file__).parent),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    variable_start_string="<<",
    variable_end_string=">>",
)
TEMPLATES.filters["cell"] = lambda text: text.replace("|", r"\|").replace("\n", " ")  # of a Markdown table
ARROWS = {HIGHER: r"\uparrow", LOWER: r"\downarrow", NEITHER: ""}  # in the direction of improvement
METRIC_SYMBOLS = {"nll_correct": r"\mathrm{NLL}_{\mathrm{correct}}"}
SHORT_TITLES = {"ece": "Fixed ECE", "top_ece": "Top ECE", "brier": "Brier"}  # as in the paper
MAX_ROWS_ON_PAGE = 45  # longer tables use longtable
WRAPPED_COLUMNS = ("reason", "tolerance_from", "chosen_to_match", "labels", "task")
LATEX_CHARACTERS = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "Δ": r"$\Delta$",
    "<": "$<$",
    ">": "$>$",
}


class Cell(NamedTuple):
    """A formatted cell.

    Attributes:
        text: Text of the cell.
        improved: Whether the value is a change of a metric that is an improvement.
    """

    text: str
    improved: bool = False


class MetricColumn(NamedTuple):
    """Metric and kind of a column.

    Attributes:
        metric: Metric of the column; None for other columns.
        kind: Key of COLUMN_KINDS; the name of the column if it has no metric.
    """

    metric: Metric | None
    kind: str


@dataclass(frozen=True)
class FormattedTable:
    """A table with formatted cells. It has all rows of the CSV file.

    Attributes:
        key: Name of its files.
        caption: Caption.
        note: What readers must know to interpret the numbers.
        columns: Names of the columns.
        sections: Heading -> rows. The rows of the paper's data sets have the heading "".
        n_rows: Number of rows of all sections.
    """

    key: str
    caption: str
    note: str
    columns: list[str]
    sections: dict[str, list[list[Cell]]]
    n_rows: int

    @property
    def texts(self) -> list[list[str]]:
        """Texts of the cells of all rows."""
        texts = []
        for rows in self.sections.values():
            for row in rows:
                texts.append([cell.text for cell in row])
        return texts

    def markdown(self) -> str:
        """Return the table in Markdown: caption, rows and note; improvements are bold."""
        return TEMPLATES.get_template("table.md.jinja").render(table=self).rstrip() + "\n"


def format_table(table: Table, frame: pl.DataFrame) -> FormattedTable:
    """Format the rows of a table.

    The source becomes a part of the name of a data set, and a standard deviation is appended to its mean. Own data sets
    have their own section.

    Args:
        table: Table.
        frame: Its rows.

    Returns:
        The formatted table.
    """
    names_without_heading = [*PAPER_DATASETS, BOOSTED, AVERAGE, "all"]
    is_own = ~pl.col("dataset").is_in(names_without_heading) if "dataset" in frame.columns else pl.lit(value=False)
    sections = {}
    for heading, rows in (("", frame.filter(~is_own)), (OWN_HEADING, frame.filter(is_own))):
        if len(rows):
            sections[heading] = [_format_row(table, row) for row in rows.iter_rows(named=True)]
    is_simulated = any("simulated" in (source or "") for source in frame["source"])
    return FormattedTable(
        key=table.key,
        caption=table.caption,
        note=f"{table.note} {SIMULATED_NOTE if is_simulated else ''}".strip(),
        columns=[name for name in frame.columns if name != "source" and not name.endswith("_std")],
        sections=sections or {"": []},
        n_rows=len(frame),
    )


def format_value(value: object, digits: int = 3, *, signed: bool = False) -> str:
    """Format the value of a cell.

    Args:
        value: Value.
        digits: Number of decimals.
        signed: Whether positive numbers have a sign.

    Returns:
        A rounded number, "yes" or "no", the text itself, or a dash if the value is undefined.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if math.isnan(value):
            return "–"
        rounded = round(value, digits) + 0.0  # no -0.000
        sign = "+" if signed and rounded else ""
        return f"{rounded:{sign}.{digits}f}"
    return "–" if value is None or value == "" else str(value)


def parse_metric_column(column: str) -> MetricColumn:
    """Find the metric of a column by its name, such as `aurc_mrp` or `delta_selacc_50`.

    Args:
        column: Name of the column.

    Returns:
        Metric and kind; no metric for other columns.
    """
    if column.startswith("delta_"):
        name = column.removeprefix("delta_")
        kind = "delta"
    else:
        name, _, kind = column.rpartition("_")
    metric = METRICS.get(name.removeprefix("fixed_"))  # the column `fixed_ece_mrp` has the metric `ece`
    if metric is None or kind not in COLUMN_KINDS:
        return MetricColumn(None, column)
    return MetricColumn(metric, kind)


def _format_row(table: Table, row: Mapping[str, Any]) -> list[Cell]:
    name_column = "dataset" if "dataset" in row else next(iter(row))
    low = row.get("low")
    high = row.get("high")
    interval_covers_zero = low is not None and high is not None and low <= 0 <= high
    cells = []
    for column, value in row.items():
        if column == name_column:
            cells.append(Cell(display_name(value, row["source"] or "")))
        elif column != "source" and not column.endswith("_std"):
            cell = _format_number(column, value, row.get(f"{column}_std"), _digits_of(column, table))
            cells.append(cell._replace(improved=False) if interval_covers_zero else cell)
    return cells


def _digits_of(column: str, table: Table) -> int:
    if "_per_1000_" in column:
        return 0
    if column.endswith(("_pct", "_pp")):
        return 1
    return table.digits


def _format_number(column: str, value: object, deviation: float | None, digits: int) -> Cell:
    """Format a value, a number with its standard deviation; mark a change that is an improvement."""
    text = format_value(value, digits, signed="delta" in column or column == "difference")
    metric, kind = parse_metric_column(column)
    improved = False
    if metric is not None and kind == "delta":
        improved = text.startswith("-" if metric.direction < 0 else "+")
    if deviation is not None and text != "–":
        text += f" ± {format_value(deviation, digits)}"
    return Cell(text, improved)


def escape_latex(text: str) -> str:
    """Escape plain text for LaTeX; a leading hyphen before a digit becomes a minus.

    Args:
        text: Plain text.

    Returns:
        LaTeX source.
    """
    escaped = "".join(LATEX_CHARACTERS.get(character, character) for character in text)
    return re.sub(r"^-(?=\d)", "$-$", escaped)


def render_latex(table: FormattedTable, schema: pl.Schema) -> str:
    """Render a table in LaTeX with caption and label; improvements are bold.

    Args:
        table: Formatted table.
        schema: Columns and types of its rows.

    Returns:
        LaTeX source.
    """
    alignments = [_alignment(name, schema[name]) for name in table.columns]
    return TEMPLATES.get_template("table.tex.jinja").render(
        table=table,
        long=table.n_rows > MAX_ROWS_ON_PAGE,
        alignments="".join(alignments),
        caption=escape_latex(f"{table.caption} {table.note}".strip()),
        header=_latex_header(table.columns),
        sections=[(heading, _latex_rows(rows, table.columns)) for heading, rows in table.sections.items()],
    )


def _alignment(column: str, data_type: pl.DataType) -> str:
    if column in WRAPPED_COLUMNS:
        return "p{3cm}"
    return "r" if data_type.is_numeric() else "l"


def _latex_header(columns: Sequence[str]) -> list[str]:
    """Return one line with the names of the columns, or two lines if columns belong to metrics.

    With two lines, the first has the titles of the metrics, each over its columns. A column `delta_<metric>` has no
    title there, since each of them belongs to a different metric.
    """
    meanings = []
    for column in columns:
        is_change_column = column.startswith("delta_")
        meanings.append(MetricColumn(None, column) if is_change_column else parse_metric_column(column))
    names = [kind if metric is None else COLUMN_KINDS[kind] for metric, kind in meanings]
    second_line = _latex_line(escape_latex(name) for name in names)
    if all(meaning.metric is None for meaning in meanings):
        return [second_line]
    spanning_cells = []
    for metric, members in groupby(meanings, key=lambda meaning: meaning.metric):
        width = len(list(members))
        if metric is None:
            spanning_cells += [""] * width
        else:
            spanning_cells.append(f"\\multicolumn{{{width}}}{{c}}{{{_latex_title(metric)}}}")
    return [_latex_line(spanning_cells), second_line]


def _latex_title(metric: Metric) -> str:
    """Return the title of a metric as in the paper, with an arrow in the direction of improvement if it has one."""
    arrow = ARROWS[metric.direction]
    if metric.key in METRIC_SYMBOLS:
        return f"${METRIC_SYMBOLS[metric.key]}{arrow}$"
    title = escape_latex(SHORT_TITLES.get(metric.key, metric.title))
    return f"{title}${arrow}$" if arrow else title


def _latex_rows(rows: Sequence[Sequence[Cell]], columns: Sequence[str]) -> list[str]:
    """Return the lines of rows; data sets are separated by rules if one of them has several rows."""
    name_index = columns.index("dataset") if "dataset" in columns else 0
    blocks = [list(block) for _, block in groupby(rows, lambda row: row[name_index].text)]
    needs_rules = any(len(block) > 1 for block in blocks)
    lines = []
    for index, block in enumerate(blocks):
        if needs_rules and index > 0:
            lines.append(r"\midrule")
        for row in block:
            lines.append(_latex_line([_latex_cell(cell) for cell in row]))
    return lines


def _latex_cell(cell: Cell) -> str:
    escaped = escape_latex(cell.text)
    return rf"\textbf{{{escaped}}}" if cell.improved else escaped


def _latex_line(cells: Iterable[str]) -> str:
    return f"{' & '.join(cells)} \\\\"
