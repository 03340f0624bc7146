"""Tables in LaTeX, ready to paste: needs the package booktabs, and longtable for those that fill pages."""

from __future__ import annotations

import re
from itertools import groupby

import polars as pl

from tasks.tables.display import Section, Shown, columns_shown, note, sections
from tasks.tables.layouts import LAYOUTS

PAGE = 45  # rows; a longer table is a longtable
WIDE = ("reason", "tolerance_from", "chosen_to_match", "labels", "task")  # columns of text that must wrap
SPECIAL = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "<": "$<$",
    ">": "$>$",
}
GROUPS = {
    "nll_correct": r"$\mathrm{NLL}_{\mathrm{correct}}\downarrow$",
    "aupr_error": r"AUPR-Error$\uparrow$",
    "aurc": r"AURC$\downarrow$",
    "fixed_ece": r"Fixed ECE$\downarrow$",
    "top_ece": r"Top ECE$\downarrow$",
    "nll": r"NLL$\downarrow$",
    "brier": r"Brier$\downarrow$",
}
MEMBERS = {"conf": "Conf.", "base": "Base", "mrp": "MRP", "mrc": "MRC", "delta": r"$\Delta$"}


def escaped(text: str) -> str:
    """Plain text as LaTeX prints it, a leading minus as a minus."""
    return re.sub(r"^-(?=\d)", "$-$", "".join(SPECIAL.get(sign, sign) for sign in text))


def latex(name: str, table: pl.DataFrame) -> str:
    """The table `name` as a LaTeX table with caption and label; improvements are bold."""
    columns = columns_shown(table)
    kinds = "".join(_kind(column, table.schema[column]) for column in columns)
    caption = f"\\caption{{{escaped(f'{LAYOUTS[name].caption} {note(name, table)}'.strip())}}}\\label{{tab:{name}}}"
    body = "\n\\midrule\n".join("\n".join(_lines(section, columns)) for section in sections(name, table))
    head = ["\\toprule", *_header(columns), "\\midrule"]
    if len(table) > PAGE:
        head = [f"{caption} \\\\", *head, "\\endhead"]
        inner = [f"\\begin{{longtable}}{{{kinds}}}", *head, body, "\\bottomrule", "\\end{longtable}"]
        opened = ["{\\scriptsize\\setlength{\\tabcolsep}{2pt}", *inner, "}"]
    else:
        inner = [f"\\begin{{tabular}}{{{kinds}}}", *head, body, "\\bottomrule", "\\end{tabular}"]
        around = "\\centering\\scriptsize\\setlength{\\tabcolsep}{3pt}"
        opened = ["\\begin{table*}[t]", around, caption, *inner, "\\end{table*}"]
    return "\n".join(["% needs booktabs" + (" and longtable" if len(table) > PAGE else ""), *opened]) + "\n"


def _kind(column: str, dtype: pl.DataType) -> str:
    if column in WIDE:
        return "p{3cm}"
    return "r" if dtype.is_numeric() else "l"


def _header(columns: list[str]) -> list[str]:
    """One line, or two where columns belong together: the metric above confidence, MRP and change."""
    parts = [_parts(column) for column in columns]
    if not any(group for group, _ in parts):
        return [_line([escaped(member) for _, member in parts])]
    above = []
    for group, members in groupby(parts, key=lambda part: part[0]):
        width = len(list(members))
        above += [f"\\multicolumn{{{width}}}{{c}}{{{GROUPS[group]}}}"] if group else [""] * width
    return [_line(above), _line([MEMBERS[member] if group else escaped(member) for group, member in parts])]


def _parts(column: str) -> tuple[str, str]:
    group, _, member = column.rpartition("_")
    return (group, member) if group in GROUPS and member in MEMBERS else ("", column)


def _lines(section: Section, columns: list[str]) -> list[str]:
    """Rows, with a rule wherever the data set changes in a table of several rows for each."""
    lines = [_heading(section.heading, len(columns))] if section.heading else []
    place = columns.index("dataset") if "dataset" in columns else 0
    blocks = [list(rows) for _, rows in groupby(section.rows, key=lambda row: row[place].text)]
    parted = any(len(rows) > 1 for rows in blocks)
    for number, rows in enumerate(blocks):
        lines += ["\\midrule"] if parted and number else []
        lines += [_line([_cell(shown) for shown in row]) for row in rows]
    return lines


def _heading(text: str, width: int) -> str:
    return f"\\multicolumn{{{width}}}{{l}}{{\\emph{{{text}}}}} \\\\"


def _cell(shown: Shown) -> str:
    return f"\\textbf{{{escaped(shown.text)}}}" if shown.improved else escaped(shown.text)


def _line(cells: list[str]) -> str:
    return f"{' & '.join(cells)} \\\\"
