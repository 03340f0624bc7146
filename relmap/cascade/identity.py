"""Identify rows by their columns, so that every call divides rows with the same reliability in the same way."""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, DecimalException

import polars as pl

from relmap.cascade.document import ADDED_COLUMNS
from relmap.errors import InputError, assignment
from relmap.io.column_layout import NUMBER, Reading, find_layout, require_column
from relmap.io.columns import join_names, label_texts
from relmap.io.frames import FramePredictions
from relmap.maps.labelled_rows import DEFAULT_ID_COLUMN

PLAIN_NUMBER = r"^(0|-?[1-9][0-9]*)$"
MAX_NUMBER_CHARACTERS = 40  # longer texts of digits are compared as text
DATE_WITH_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(\.\d*?)?0*")


def find_identity_columns(
    rows: FramePredictions, models: Mapping[str, Reading], id_columns: Sequence[str] | None
) -> tuple[str, ...]:
    """Find the columns that identify a row.

    Args:
        rows: Labelled rows.
        models: How the columns of each model are read.
        id_columns: Columns that the user names; None for the column `id` or, without it, all columns that are neither
            labels nor predictions, such as query and document.

    Returns:
        The columns; none if there are only labels and predictions.

    Raises:
        InputError: A column does not exist.
    """
    names = rows.frame.columns
    if id_columns is not None:
        for column in id_columns:
            require_column(names, str(rows.path), "id", column)
        return tuple(id_columns)
    if DEFAULT_ID_COLUMN in names:
        return (DEFAULT_ID_COLUMN,)
    used = {*ADDED_COLUMNS}
    for reading in models.values():
        used.update(find_layout(names, str(rows.path), labelled=True, reading=reading).all_columns)
    return tuple(sorted(column for column in names if column not in used))


def describe_identity(columns: Sequence[str]) -> str:
    """Describe how rows are identified.

    Args:
        columns: The columns.

    Returns:
        A sentence.
    """
    if not columns:
        return (
            "Rows are identified by their number, since they have no other columns: give all rows to every call of "
            "`cascade apply`, in the same order."
        )
    other = "" if [*columns] == [DEFAULT_ID_COLUMN] else f" ({assignment('id', 'COLUMN,COLUMN')} names others)"
    return f"Rows are identified by {join_names(columns)}: keep this in the rows of every call{other}."


def identify_rows(rows: FramePredictions, columns: Sequence[str]) -> Sequence[object]:
    """Return a value that identifies each row, whatever the types of the columns.

    Args:
        rows: n rows.
        columns: Columns that identify a row.

    Returns:
        A text or a tuple of texts for each row; the numbers of the rows if there are no such columns.

    Raises:
        InputError: A column is missing.
    """
    frame = rows.frame
    if not columns:
        return range(len(frame))
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        remaining = [column for column in columns if column not in missing]
        example = assignment("id", ",".join(remaining) or "COLUMN")
        raise InputError(
            f"{rows.path} has no column {join_names(missing)}, and the cascade identifies rows by {join_names(columns)}"
            f"; add it, or fit the cascade again with the columns that all files have, such as {example}"
        )
    texts = [canonical_texts(frame[column]) for column in columns]
    return texts[0].to_list() if len(texts) == 1 else pl.DataFrame(texts).rows()


def canonical_texts(column: pl.Series) -> pl.Series:
    """Convert values to texts, in which 7, 7.0 and "7" are the same, and so are true and "True".

    Args:
        column: A column of any type.

    Returns:
        The texts; empty for missing values.
    """
    if column.dtype.is_nested() or column.dtype in (pl.Object, pl.Binary, pl.Duration):
        text = pl.Series(column.name, [str(value) for value in column.to_list()], dtype=pl.String)
    else:
        text = label_texts(column.fill_nan(None) if column.dtype.is_float() else column)
    text = text.fill_null("").str.strip_chars()
    others = text.unique()
    others = others.filter(~others.str.contains(PLAIN_NUMBER))  # plain numbers can be millions of texts
    return text.replace({value: _canonical_text(value) for value in others})


def _canonical_text(text: str) -> str:
    if len(text) <= MAX_NUMBER_CHARACTERS and NUMBER.fullmatch(text):
        try:
            return _plain_number(Decimal(text))
        except DecimalException:  # an exponent out of range
            return text
    if text.lower() in ("true", "false"):
        return text.lower()
    date = DATE_WITH_TIME.fullmatch(text)
    if date is None:
        return text
    time = f"{date[2]}{(date[3] or '').rstrip('.')}"
    return date[1] if time == "00:00:00" else f"{date[1]} {time}"


def _plain_number(number: Decimal) -> str:
    """Write a number with neither zeros at its end nor an exponent, unless this would be long."""
    if number == 0:
        return "0"
    if abs(number.adjusted()) > MAX_NUMBER_CHARACTERS:
        return str(number.normalize())
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
