"""Columns of prediction files as arrays, checked: what cannot be read is refused by file and row.

`first` is the number, from 0, of a column's first row within its file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import polars as pl

from tasks.protocol.errors import BadInput

SHOWN = 10  # names in a message
LARGEST = 2**31
MOST_UNNAMED = 1000  # labels that are numbers; more are ids of something


def label_codes(
    column: pl.Series, file: str, *, names: Sequence[str] | None, n_labels: int, first: int = 0
) -> np.ndarray:
    """Labels as numbers 0..K-1, as false and true, or by name where names are known, to `(n,)` int64.

    BadInput names the row.
    """
    reject_missing(column, file, first)
    within = f"0..{n_labels - 1}" if n_labels < LARGEST else "0, 1, 2, ..."
    numbered = names is not None and all(re.fullmatch(r"-?[0-9]+", name) for name in names)  # 1 is then a name
    if column.dtype in (pl.String, pl.Categorical, pl.Enum) or (numbered and column.dtype.is_integer()):
        text = column.cast(pl.String)
        by_name = {name: code for code, name in enumerate(names or ())}
        known = {value: by_name.get(value, None if numbered else _integer(value)) for value in text.unique().to_list()}
        unknown = [value for value, code in known.items() if code is None]
        if unknown:
            row = int(text.is_in(unknown).arg_true()[0])
            told = f"the labels are {listed(names)}" if names else "labels have names if --labels of fit gives them"
            raise BadInput(f"{named(file, first + row)}: {column.name} is {text[row]!r}; {told}")
        codes = text.replace_strict(known, return_dtype=pl.Int64).to_numpy()
    elif column.dtype == pl.Boolean:
        codes = column.cast(pl.Int64).to_numpy()
    elif column.dtype.is_integer() or column.dtype.is_float():
        given = column.to_numpy()
        with np.errstate(invalid="ignore"):
            codes = given.astype(np.int64)
        if (codes != given).any():
            row = int(np.flatnonzero(codes != given)[0])
            raise BadInput(f"{named(file, first + row)}: {column.name} is {given[row]}, not one of {within}")
    else:
        raise BadInput(f"{file}: the column {column.name} is {column.dtype}; it must hold numbers 0..K-1 or names")
    outside = (codes < 0) | (codes >= n_labels)
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        raise BadInput(f"{named(file, first + row)}: {column.name} is {codes[row]}, not one of {within}")
    return np.asarray(codes)


def labels_in(frame: pl.DataFrame, columns: Sequence[str], file: str) -> int:
    """The number of labels that whole numbers in `columns` speak of, at least 2: the largest of them plus one."""
    most = max(
        (int(label_codes(frame[name], file, names=None, n_labels=LARGEST).max()) for name in columns if len(frame)),
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


def named(file: str, row: int) -> str:
    """How a row is called in a message."""
    return f"{file}, row {row} (from 0)"


def reject_missing(column: pl.Series, file: str, first: int = 0) -> None:
    """BadInput names the first row without a value."""
    missing = column.is_null()
    if missing.any():
        raise BadInput(
            f"{named(file, first + int(missing.arg_true()[0]))}: {column.name} is missing; drop or fill the row"
        )


def numbers(column: pl.Series, file: str, first: int = 0) -> np.ndarray:
    """A column as `(n,)` float64; text is read as numbers. BadInput names the row."""
    name = column.name
    reject_missing(column, file, first)
    if column.dtype == pl.String:
        read = column.str.strip_chars().cast(pl.Float64, strict=False)
        if read.null_count():
            row = int(read.is_null().arg_true()[0])
            raise BadInput(f"{named(file, first + row)}: {name} is {column[row]!r}, not a number")
        column = read
    if not (column.dtype.is_float() or column.dtype.is_integer() or column.dtype.is_decimal()):
        raise BadInput(f"{file}: the column {name} is {column.dtype}; it must hold numbers")
    return column.cast(pl.Float64).to_numpy()


def lists_of_numbers(column: pl.Series, file: str, first: int = 0) -> np.ndarray:
    """A column of lists, all as long, as `(n, K)` float64, K at least 2. BadInput names the row."""
    if isinstance(column.dtype, pl.Array):
        column = column.arr.to_list()
    if not isinstance(column.dtype, pl.List) or not column.dtype.inner.is_numeric():
        raise BadInput(
            f"{file}: the column {column.name} is {column.dtype}; it must hold lists of numbers, "
            f"or be cut into columns {column.name}_0, {column.name}_1, ..."
        )
    reject_missing(column, file, first)
    lengths = column.list.len()
    n_labels = int(lengths[0]) if len(column) else 2
    if (lengths != n_labels).any() or n_labels < 2:
        row = int((lengths != n_labels).arg_max() or 0)
        raise BadInput(
            f"{named(file, first + row)}: {column.name} has {lengths[row]} numbers, and row {first} has {n_labels}; "
            "every row needs one for each label, and there are two labels at least"
        )
    flat = column.explode(empty_as_null=False)
    if flat.null_count():
        row = int(flat.is_null().arg_true()[0]) // n_labels
        raise BadInput(f"{named(file, first + row)}: {column.name} holds a missing number; drop or fill the row")
    return flat.cast(pl.Float64).to_numpy().reshape(-1, n_labels)
