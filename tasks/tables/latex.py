"""Tables in LaTeX, ready to paste: needs the package booktabs, and longtable for those that fill pages."""

import re
from collections.abc import Iterable
from itertools import groupby

import polars as pl

from tasks.metrics.registry import Metric
from tasks.tables.display import MEMBERS, TEMPLATES, Shown, ShownTable, metric_of

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
