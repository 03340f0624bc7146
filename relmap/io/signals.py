"""Signals: columns beside the prediction that may say how sure a decision is, such as the length of a query.

A column of numbers is one signal, standardised and cut to the range it had at the fit. A column of text is one for
each of its values, 1 where it holds; a value that the fit has not seen is none of them. Two more are computed where
rows have groups: `group_rank`, the place of a row in its group by how relevant it is said to be (1 is first, equal ones
share the mean of their places), and `group_gap`, how far it lies below the first.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
import polars as pl
import scipy
from pydantic import Field

from relmap.errors import InputError
from relmap.io.columns import FileRows, listed, numbers
from relmap.io.rows import PredictedRows
from relmap.serialization import Number, Positive, Value

MOST_VALUES = 50  # of a column of text; more are names of something
COMPUTED = ("group_rank", "group_gap")
TAKEN = ("label", "reliability", "review_rank", "route")  # the truth, and what `apply` adds
LARGEST = 1e9
LEAST_DEVIATION = 1e-9  # beside the largest value; what differs by less is rounding
TRUTH = {"true", "false"}  # as formats write them, in small letters or not


class NumberSignal(Value, kind="number"):
    """A column of numbers: (x - mean) / deviation, with x cut to [lowest, highest]."""

    name: str
    mean: Number
    deviation: Positive
    lowest: Number
    highest: Number

    def __call__(self, column: pl.Series, rows: FileRows) -> np.ndarray:
        """The column as `(n, 1)`."""
        given = numbers(column, rows)
        values = np.clip(given, self.lowest, self.highest)
        return np.asarray(values - self.mean)[:, None] / self.deviation


class TextSignal(Value, kind="text"):
    """A column of text: whether it is the first of its `values`, the second, and so on."""

    name: str
    values: Annotated[tuple[str, ...], Field(min_length=1, max_length=MOST_VALUES)]

    def __call__(self, column: pl.Series, rows: FileRows) -> np.ndarray:
        """The column as `(n, V)`, 0 or 1."""
        rows.refuse_missing(column)
        text = column.cast(pl.String)
        text = text.str.to_lowercase() if TRUTH.issuperset(self.values) else text
        return np.column_stack([(text == value).to_numpy() for value in self.values]).astype(np.float64)


Signal = Annotated[NumberSignal | TextSignal, Field(discriminator="kind")]


def read_signals(
    asked: Sequence[str] | Sequence[NumberSignal | TextSignal],
    frame: pl.DataFrame,
    rows: PredictedRows,
    n_labels: int,
    at: FileRows,
    *,
    learn_on: np.ndarray | None = None,
    computed: dict[str, np.ndarray] | None = None,
) -> tuple[tuple[NumberSignal | TextSignal, ...], PredictedRows]:
    """Signals by name, as a fit asks for them, or as it has known them, to how they are known and `rows` with them.

    `rows` are those of `frame`, which are the rows `at` of their file. How a signal is read is learned on its rows
    `learn_on`, by default all. `computed` are the signals of groups, where those of `rows` are not whole.

    Raises:
        InputError: a column that is missing, holds what is no signal, or (at the fit) is the same in every row.
    """
    if not asked:
        return (), rows
    known, values, file = [], [], at.file
    if computed is None and any(_name(signal) in COMPUTED for signal in asked):
        if rows.group is None:
            raise InputError("group_rank and group_gap need groups; name the column of the groups")
        computed = group_signals(rows.group, relevance(rows, n_labels))
    for each in asked:
        name = _name(each)
        if name in TAKEN or (name in COMPUTED and name in frame.columns):
            raise InputError(f"{file}: the column {name} is no signal, since we give that name to something; rename it")
        if name in COMPUTED:
            assert computed is not None
            column = pl.Series(name, computed[name])
        elif name in frame.columns:
            column = frame[name]
        else:
            raise InputError(f"{file} has no column {name}, which signals names; it has {', '.join(frame.columns)}")
        signal = _learned(column, at, learn_on) if isinstance(each, str) else each
        known.append(signal)
        values.append(signal(column, at))
    return tuple(known), replace(rows, signals=np.concatenate(values, axis=1))


def group_signals(group: np.ndarray, score: np.ndarray) -> dict[str, np.ndarray]:
    """`group_rank` and `group_gap` `(n,)` float64 of rows with their groups and how relevant they are, `(n,)`."""
    frame, by = pl.DataFrame({"group": group, "score": score}), pl.col("score")
    computed = frame.select(
        group_rank=by.rank("average", descending=True).over("group"), group_gap=(by.max() - by).over("group")
    )
    return {name: computed[name].to_numpy() for name in COMPUTED}


def relevance(rows: PredictedRows, n_labels: int) -> np.ndarray:
    """How relevant each row is said to be, `(n,)`: the mean label of its probabilities, or else of what is known."""
    if rows.logits is not None:  # summed row by row: equal rows tie, whatever stands beside them
        return np.asarray((scipy.special.softmax(rows.logits, axis=1) * np.arange(n_labels)).sum(axis=1))
    if rows.confidence is None or n_labels > 2:
        return rows.decision.astype(np.float64)
    return np.where(rows.decision == 1, rows.confidence, 1 - rows.confidence)


def _name(signal: str | NumberSignal | TextSignal) -> str:
    return signal if isinstance(signal, str) else signal.name


def _learned(whole: pl.Series, rows: FileRows, learn_on: np.ndarray | None) -> NumberSignal | TextSignal:
    """Learn how a column is read from its rows `learn_on`; a missing value is refused in any row, by its number."""
    rows.refuse_missing(whole)
    name, column = whole.name, whole if learn_on is None else whole.gather(learn_on)
    same = f"{rows.file}: the signal {name} is the same in every row, so it tells nothing; leave it away"
    if column.n_unique() < 2:
        raise InputError(same)
    text = column.dtype in (pl.String, pl.Categorical, pl.Enum) or column.dtype == pl.Boolean
    if text and column.cast(pl.String).str.strip_chars().cast(pl.Float64, strict=False).has_nulls():
        levels = sorted(column.cast(pl.String).unique())
        levels = sorted({value.lower() for value in levels}) if TRUTH.issuperset(map(str.lower, levels)) else levels
        if len(levels) > MOST_VALUES:
            shown = listed(levels)
            many = f"has {len(levels)} values ({shown}), more than {MOST_VALUES}"
            raise InputError(f"{rows.file}: the signal {name} {many}; leave it out")
        return TextSignal(name, tuple(levels))
    values = numbers(whole, rows)
    values = values if learn_on is None else values[learn_on]
    if not (np.abs(values) <= LARGEST).all():
        raise InputError(
            f"{rows.file}: the signal {name} is not within {LARGEST:g} in every row; scale it, or shift it"
        )
    if not values.std() > LEAST_DEVIATION * max(np.abs(values).max(), LEAST_DEVIATION):
        raise InputError(same)
    return NumberSignal(name, float(values.mean()), float(values.std()), float(values.min()), float(values.max()))
