"""Predictions in separate columns of a frame: a column for each label, which the user names."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl

from relmap.errors import InputError
from relmap.io.columns import join_names
from relmap.io.frames import detach, read_array
from relmap.io.rows import ArrayKind

if TYPE_CHECKING:
    from relmap.io.frames import InputData

PREDICTION_COLUMNS = ("logits", "probabilities", "decision", "confidence")


def has_predictions(names: Sequence[str]) -> bool:
    """Return whether a frame has columns that are read as predictions by default.

    Args:
        names: Columns of the frame.

    Returns:
        Whether there are any.
    """
    return any(name in PREDICTION_COLUMNS or re.fullmatch(r"(logits|probabilities)_[0-9]+", name) for name in names)


def check_width(data: "InputData", n_labels: int | None, names: Sequence[str] | None) -> None:
    """Check that an array has a number for each label.

    Args:
        data: Predictions in memory; other types than arrays of numbers are reported later.
        n_labels: Number of labels K; None if it is not known yet.
        names: Names of the labels, or None.

    Raises:
        InputError: The array has another number of columns.
    """
    try:
        shape: tuple[int, ...] = np.shape(detach(data))
    except (TypeError, ValueError, RuntimeError):  # rows of several lengths, or no numbers
        return
    if n_labels is None or len(shape) not in (1, 2):
        return
    width = 2 if len(shape) == 1 else int(shape[-1])
    if width != n_labels:
        found = "one number in each row" if len(shape) == 1 else f"{width} columns"
        raise InputError(
            f"X has {found}, but there are {n_labels} labels{_list_in_parentheses(names)}; give a column for each label"
        )


def numbered_columns(
    frame: pl.DataFrame, columns: Sequence[str], kind: str, n_labels: int | None, names: Sequence[str] | None
) -> pl.DataFrame:
    """Rename the columns of the labels to `probabilities_0`, `probabilities_1`, ..., as they are named in a file.

    Args:
        frame: The rows.
        columns: Names of the columns, in the order of the labels.
        kind: `logits` or `probabilities`.
        n_labels: Number of labels K; None if it is not known yet.
        names: Names of the labels, or None.

    Returns:
        The frame; other columns are unchanged, except that those with one of the new names are dropped.

    Raises:
        InputError: A column is missing, or there are not K of them.
    """
    missing = [name for name in columns if name not in frame.columns]
    if n_labels is not None and len(columns) - len(missing) != n_labels:
        lacks = f"; it lacks {join_names(missing)}" if missing else ""
        labels = f"{n_labels} labels{_list_in_parentheses(names)}"
        raise InputError(
            f"X has {len(columns) - len(missing)} columns of {kind}, but there are {labels}{lacks}; give a column for "
            "each label"
        )
    if missing:
        raise InputError(
            f"X has no column {join_names(missing)}, which {kind} names; it has {join_names(frame.columns)}"
        )
    if len(set(columns)) < max(len(columns), 2):
        raise InputError(f"{kind} is {[*columns]!r}; give a column for each of two labels or more, each once")
    new_names = {name: f"{kind}_{label}" for label, name in enumerate(columns)}
    replaced = [name for name in new_names.values() if name in frame.columns and name not in new_names]
    return frame.drop(replaced).rename(new_names)


def infer_column_kind(
    frame: pl.DataFrame, columns: Sequence[str], kind: ArrayKind | Literal["auto"] | None
) -> ArrayKind:
    """Infer whether columns hold probabilities or logits.

    Args:
        frame: The rows.
        columns: A column for each label.
        kind: What the columns contain. With None or `auto`, they contain logits if any number lies outside [0, 1], and
            otherwise probabilities.

    Returns:
        `logits` or `probabilities`.

    Raises:
        InputError: All numbers lie in [0, 1], but those of a row do not sum to 1.
    """
    if kind is not None and kind != "auto":
        return kind
    present = [name for name in columns if name in frame.columns]
    if len(present) < len(columns) or not all(frame[name].dtype.is_numeric() for name in present):
        return "probabilities"  # any kind: missing columns and columns of text are reported later
    return read_array(frame.select(present).fill_null(np.nan).to_numpy(), "auto").kind


def _list_in_parentheses(names: Sequence[str] | None) -> str:
    return "" if names is None else f" ({join_names(names)})"
