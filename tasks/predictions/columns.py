"""Columns of prediction files as arrays, checked: what cannot be read is refused by file and row."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from tasks.protocol.errors import BadInput

SHOWN = 10  # names in a message
LARGEST = 2**31
MOST_UNNAMED = 1000  # labels that are numbers; more are ids of something


class Rows(NamedTuple):
    """Rows of a file that follow one another, for messages."""

    file: str
    first: int = 0  # number of the first of them, from 0

    def refuse(self, wrong: np.ndarray | pl.Series, what: Callable[[int], str]) -> None:
        """BadInput names the first row where `wrong (n,)` holds, and says `what` of its place among these rows."""
        if wrong.any():
            row = int(np.asarray(wrong).argmax())
            raise BadInput(f"{self.file}, row {self.first + row} (from 0): {what(row)}")

    def refuse_missing(self, column: pl.Series) -> None:
        """BadInput names the first row without a value."""
        self.refuse(column.is_null(), lambda _: f"{column.name} is missing; drop or fill the row")


def label_codes(column: pl.Series, rows: Rows, *, names: Sequence[str] | None, n_labels: int) -> np.ndarray:
    """Labels as numbers 0..K-1, as false and true, or by name where names are known, to `(n,)` int64.

    BadInput names the row.
    """
    rows.refuse_missing(column)
    within = f"0..{n_labels - 1}" if n_labels < LARGEST else "0, 1, 2, ..."
    numbered = names is not None and all(re.fullmatch(r"-?[0-9]+", name) for name in names)  # 1 is then a name
    if column.dtype in (pl.String, pl.Categorical, pl.Enum) or (numbered and column.dtype.is_integer()):
        text = column.cast(pl.String)
        by_name = {name: code for code, name in enumerate(names or ())}
        known = {value: by_name.get(value, None if numbered else _integer(value)) for value in text.unique().to_list()}
        advice = f"the labels are {listed(names)}" if names else "labels have names if --labels of fit gives them"
        unknown = [value for value, code in known.items() if code is None]
        rows.refuse(
            text.is_in(pl.Series(unknown, dtype=pl.String)), lambda row: f"{column.name} is {text[row]!r}; {advice}"
        )
        codes = text.replace_strict(known, return_dtype=pl.Int64).to_numpy()
    elif column.dtype == pl.Boolean or column.dtype.is_integer() or column.dtype.is_float():
        given = column.to_numpy()
        with np.errstate(invalid="ignore"):
            codes = given.astype(np.int64)
        rows.refuse(codes != given, lambda row: f"{column.name} is {given[row]}, not one of {within}")
    else:
        raise BadInput(f"{rows.file}: the column {column.name} is {column.dtype}; it must hold numbers 0..K-1 or names")
    outside = (codes < 0) | (codes >= n_labels)
    rows.refuse(outside, lambda row: f"{column.name} is {codes[row]}, not one of {within}")
    return np.asarray(codes)


def labels_in(frame: pl.DataFrame, columns: Sequence[str], file: str) -> int:
    """The number of labels that whole numbers in `columns` speak of, at least 2: the largest of them plus one."""
    most = max(
        (
            int(label_codes(frame[name], Rows(file), names=None, n_labels=LARGEST).max())
            for name in columns
            if len(frame)
        ),
        default=0,
    )
    if most >= MOST_UNNAMED:
        raise BadInput(f"{file}: a label is {most}; labels are 0..K-1, or names that --labels gives in their order")
    return max(2, most + 1)


def _integer(text: str) -> int | None:
    return int(float(text)) if re.fullmatch(r"[0-9]{1,9}(\.0+)?", text) else None


def listed(names: Sequence[str]) -> str:
    """The first of them, for a message."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def numbers(column: pl.Series, rows: Rows) -> np.ndarray:
    """A column as `(n,)` float64; text is read as numbers. BadInput names the row."""
    name, given = column.name, column
    rows.refuse_missing(column)
    if column.dtype == pl.String:
        column = column.str.strip_chars().cast(pl.Float64, strict=False)
        rows.refuse(column.is_null(), lambda row: f"{name} is {given[row]!r}, not a number")
    if not (column.dtype.is_float() or column.dtype.is_integer() or column.dtype.is_decimal()):
        raise BadInput(f"{rows.file}: the column {name} is {column.dtype}; it must hold numbers")
    return column.cast(pl.Float64).to_numpy()


def lists_of_numbers(column: pl.Series, rows: Rows) -> np.ndarray:
    """A column of lists, all as long, as `(n, K)` float64, K at least 2. BadInput names the row."""
    name = column.name
    if isinstance(column.dtype, pl.Array):
        column = column.arr.to_list()
    if not isinstance(column.dtype, pl.List) or not column.dtype.inner.is_numeric():
        raise BadInput(
            f"{rows.file}: the column {name} is {column.dtype}; it must hold lists of numbers, "
            f"or be cut into columns {name}_0, {name}_1, ..."
        )
    rows.refuse_missing(column)
    lengths = column.list.len()
    n_labels = int(lengths[0]) if len(column) else 2
    rows.refuse(
        lengths != n_labels if n_labels > 1 else lengths >= 0,
        lambda row: (
            f"{name} has {lengths[row]} numbers, and row {rows.first} has {n_labels}; "
            "every row needs one for each label, and there are two labels at least"
        ),
    )
    flat = column.explode(empty_as_null=False)
    missing = np.asarray(flat.is_null().to_numpy().reshape(-1, n_labels).any(axis=1))
    rows.refuse(missing, lambda _: f"{name} holds a missing number; drop or fill the row")
    return flat.cast(pl.Float64).to_numpy().reshape(-1, n_labels)
