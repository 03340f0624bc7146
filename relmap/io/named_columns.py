"""Columns of a frame that hold one number for each label, given by name."""

import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import polars as pl

from relmap.errors import InputError
from relmap.io.columns import listed
from relmap.io.frames import Holds, frame_of

PREDICTIONS = ("logits", "probabilities", "decision", "confidence")


def has_predictions(names: Sequence[str]) -> bool:
    """Whether a frame has columns that are read as predictions without being named."""
    return any(name in PREDICTIONS or re.fullmatch(r"(logits|probabilities)_[0-9]+", name) for name in names)


def check_width(given: Any, n_labels: int | None, names: Sequence[str] | None) -> None:
    """Check that an array has a number for each label.

    Args:
        given: Predictions in memory; what is no array of numbers is reported later.
        n_labels: K; None if it is not known yet.
        names: Names of the labels, or None.

    Raises:
        InputError: The array has another number of columns.
    """
    try:
        shape = np.shape(given)
    except ValueError:  # rows of several lengths
        return
    if n_labels is None or len(shape) not in (1, 2):
        return
    width = 2 if len(shape) == 1 else shape[1]
    if width != n_labels:
        found = "one number a row" if len(shape) == 1 else f"{width} columns"
        raise InputError(f"X has {found}, and there are {n_labels} labels{_named(names)}; give a column for each label")


def numbered_columns(
    frame: pl.DataFrame, columns: Sequence[str], kind: str, n_labels: int | None, names: Sequence[str] | None
) -> pl.DataFrame:
    """Rename a column for each label to `probabilities_0`, ..., as a file has them.

    Args:
        frame: The rows.
        columns: Names of columns, in the order of the labels.
        kind: `logits` or `probabilities`.
        n_labels: K; None if it is not known yet.
        names: Names of the labels, or None.

    Returns:
        The frame, its other columns as they are.

    Raises:
        InputError: A column is missing, or there are not K of them.
    """
    missing = [name for name in columns if name not in frame.columns]
    if n_labels is not None and len(columns) - len(missing) != n_labels:
        lacks = f": it lacks {listed(missing)}" if missing else ""
        raise InputError(
            f"X has {len(columns) - len(missing)} columns of {kind}, and there are {n_labels} labels{_named(names)}"
            f"{lacks}; give a column for each label"
        )
    if missing:
        raise InputError(f"X has no column {listed(missing)}, which {kind} names; it has {listed(frame.columns)}")
    if len(set(columns)) < max(len(columns), 2):
        raise InputError(f"{kind} is {[*columns]!r}; give a column for each of two labels or more, each once")
    rename = {name: f"{kind}_{label}" for label, name in enumerate(columns)}
    taken = [name for name in rename.values() if name in frame.columns and name not in rename]
    return frame.drop(taken).rename(rename)


def kind_of_columns(frame: pl.DataFrame, columns: Sequence[str], holds: Holds | Literal["auto"] | None) -> Holds:
    """Tell whether columns hold probabilities or logits.

    Args:
        frame: The rows.
        columns: A column for each label; missing ones are reported later.
        holds: What they hold; None and `auto` for probabilities where no number is negative and rows sum to 1.

    Returns:
        `logits` or `probabilities`.

    Raises:
        InputError: All numbers lie in [0, 1], but those of a row do not sum to 1.
    """
    if holds in ("logits", "probabilities"):
        return holds
    present = [name for name in columns if name in frame.columns]
    if len(present) < len(columns) or not all(frame[name].dtype.is_numeric() for name in present):
        return "probabilities"
    read = frame_of(frame.select(present).fill_null(np.nan).to_numpy(), "auto").columns[0]
    return "logits" if read == "logits" else "probabilities"


def _named(names: Sequence[str] | None) -> str:
    return "" if names is None else f" ({listed(names)})"
