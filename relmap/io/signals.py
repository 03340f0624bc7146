"""Signals: further columns that may be related to the correctness of a decision, such as the length of a query.

A column of numbers is one signal, clipped to its range in the fit rows and standardized. A column of text is one signal
for each value that occurs in the fit rows: 1 for rows with the value, else 0. All of these signals are 0 for rows with
another value.

Two more signals can be computed if rows have groups. `group_rank` is the rank of a row in its group by predicted
relevance: 1 is the most relevant row, and tied rows share their mean rank. `group_gap` is the predicted relevance of
the most relevant row of the group minus that of the row.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, NamedTuple

import numpy as np
import polars as pl
import scipy
from pydantic import Field

from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.io.columns import FileRows, join_names, read_numbers
from relmap.io.serialization import Number, Positive, Value

MAX_TEXT_VALUES = 50  # a column with more values is likely an identifier
GROUP_SIGNALS = ("group_rank", "group_gap")
RESERVED_COLUMNS = ("label", "reliability", "review_rank", "route")  # the true label, and what `apply` adds
MAX_NUMBER = 1e9
MIN_RELATIVE_DEVIATION = 1e-9  # standard deviation / largest absolute value; a smaller one is a rounding error
BOOLEAN_WORDS = {"true", "false"}  # compared in lower case: file formats spell booleans differently


class NumberSignal(Value, kind="number"):
    """A column of numbers: (x - mean) / deviation, with x clipped to [lowest, highest].

    Attributes:
        name: Name of the column.
        mean: Mean of the numbers in the fit rows.
        deviation: Standard deviation in the fit rows.
        lowest: Smallest number in the fit rows.
        highest: Largest number in the fit rows.
    """

    name: str
    mean: Number
    deviation: Positive
    lowest: Number
    highest: Number

    def __call__(self, column: pl.Series, rows: FileRows) -> np.ndarray:
        """Compute the signal.

        Args:
            column: The column.
            rows: Rows of the column, for error messages.

        Returns:
            Shape (n, 1), float64.

        Raises:
            InputError: A value is not a number.
        """
        values = np.clip(read_numbers(column, rows), self.lowest, self.highest)
        return np.asarray(values - self.mean)[:, None] / self.deviation


class TextSignal(Value, kind="text"):
    """A column of text: one indicator for each of its values.

    Attributes:
        name: Name of the column.
        values: Values in the fit rows.
    """

    name: str
    values: Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_TEXT_VALUES)]

    def __call__(self, column: pl.Series, rows: FileRows) -> np.ndarray:
        """Compute the indicators.

        Args:
            column: The column.
            rows: Rows of the column, for error messages.

        Returns:
            Shape (n, V) for V values of text, float64, 0 or 1.

        Raises:
            InputError: A value is missing.
        """
        rows.reject_missing(column)
        text = column.cast(pl.String)
        if BOOLEAN_WORDS.issuperset(self.values):
            text = text.str.to_lowercase()
        return np.column_stack([(text == value).to_numpy() for value in self.values]).astype(np.float64)


Signal = Annotated[NumberSignal | TextSignal, Field(discriminator="kind")]


class SignalRows(NamedTuple):
    """Signals, and rows with the values of the signals.

    Attributes:
        signals: The signals.
        rows: The rows.
    """

    signals: tuple[NumberSignal | TextSignal, ...]
    rows: FixedDecisions


def read_signals(
    signals: Sequence[str] | Sequence[NumberSignal | TextSignal],
    frame: pl.DataFrame,
    rows: FixedDecisions,
    n_labels: int,
    file_rows: FileRows,
    *,
    learn_on: np.ndarray | None = None,
    computed: dict[str, np.ndarray] | None = None,
) -> SignalRows:
    """Compute signals and add them to rows.

    Args:
        signals: In a fit, names of the signals to learn; otherwise, the learned signals of a map.
        frame: All columns of the rows.
        rows: Predictions and labels of the same rows.
        n_labels: Number of labels K.
        file_rows: File and line numbers of the rows, for error messages.
        learn_on: Indices of the rows on which signals are learned; None for all.
        computed: Values of `group_rank` and `group_gap`, computed from complete groups. None to compute them here,
            which requires that the groups of `rows` are complete.

    Returns:
        The signals, and the rows with the values of the signals.

    Raises:
        InputError: A column is missing, has other content, or is constant in the rows of a fit.
    """
    if not signals:
        return SignalRows((), rows)
    names = [_name_of(signal) for signal in signals]
    group_values = computed
    if group_values is None and not set(names).isdisjoint(GROUP_SIGNALS):
        if rows.group is None:
            raise InputError("group_rank and group_gap need groups; name the column of the groups")
        group_values = group_signals(rows.group, relevance(rows, n_labels))
    learned_signals: list[NumberSignal | TextSignal] = []
    values = []
    for name, signal in zip(names, signals, strict=True):
        column = _find_column(name, frame, group_values, file_rows.file)
        learned = _learn_signal(column, file_rows, learn_on) if isinstance(signal, str) else signal
        learned_signals.append(learned)
        values.append(learned(column, file_rows))
    return SignalRows(tuple(learned_signals), replace(rows, signals=np.concatenate(values, axis=1)))


def _find_column(name: str, frame: pl.DataFrame, group_values: dict[str, np.ndarray] | None, file: str) -> pl.Series:
    """Return the column of a signal."""
    is_group_signal = name in GROUP_SIGNALS
    if name in RESERVED_COLUMNS or (is_group_signal and name in frame.columns):
        raise InputError(f"{file}: the column {name} cannot be a signal, because the name is reserved; rename it")
    if is_group_signal:
        assert group_values is not None
        return pl.Series(name, group_values[name])
    if name not in frame.columns:
        raise InputError(f"{file} has no column {name}, which signals names; it has {', '.join(frame.columns)}")
    return frame[name]


def group_signals(group: np.ndarray, score: np.ndarray) -> dict[str, np.ndarray]:
    """Compute the signals that compare a row with the other rows of its group.

    Args:
        group: Group of each row, shape (n,).
        score: Predicted relevance of each row, shape (n,).

    Returns:
        `group_rank` and `group_gap`, each of shape (n,), float64.
    """
    frame = pl.DataFrame({"group": group, "score": score})
    score_column = pl.col("score")
    computed = frame.select(
        group_rank=score_column.rank("average", descending=True).over("group"),
        group_gap=(score_column.max() - score_column).over("group"),
    )
    return {name: computed[name].to_numpy() for name in GROUP_SIGNALS}


def relevance(rows: FixedDecisions, n_labels: int) -> np.ndarray:
    """Compute the predicted relevance of rows, for labels in increasing order of relevance.

    Args:
        rows: The rows.
        n_labels: Number of labels K.

    Returns:
        Mean label number, weighted by the probabilities of the labels, shape (n,), float64. Without logits: the
        probability of label 1 if there are two labels and a confidence, else the number of the decided label.
    """
    if rows.logits is not None:
        probabilities = scipy.special.softmax(rows.logits, axis=1)
        # a sum in each row and not a matrix product, whose rounding could break ties of equal rows
        return np.asarray((probabilities * np.arange(n_labels)).sum(axis=1))
    if rows.confidence is None or n_labels > 2:
        return rows.decision.astype(np.float64)
    return np.where(rows.decision == 1, rows.confidence, 1 - rows.confidence)


def _name_of(signal: str | NumberSignal | TextSignal) -> str:
    return signal if isinstance(signal, str) else signal.name


def _learn_signal(column: pl.Series, rows: FileRows, learn_on: np.ndarray | None) -> NumberSignal | TextSignal:
    """Learn a signal from the rows `learn_on` of a column; no row may have a missing value."""
    rows.reject_missing(column)
    fit_column = column if learn_on is None else column.gather(learn_on)
    if fit_column.n_unique() < 2:
        raise InputError(_describe_constant(column.name, rows))
    if _is_text(fit_column):
        return _learn_text_signal(fit_column, rows)
    values = read_numbers(column, rows)
    if learn_on is not None:
        values = values[learn_on]
    is_in_range = np.abs(values) <= MAX_NUMBER  # false for NaN
    if not is_in_range.all():
        raise InputError(
            f"{rows.file}: the signal {column.name} is not within ±{MAX_NUMBER:g} in every row; scale or shift it"
        )
    scale = max(np.abs(values).max(), MIN_RELATIVE_DEVIATION)
    if values.std() <= MIN_RELATIVE_DEVIATION * scale:
        raise InputError(_describe_constant(column.name, rows))
    return NumberSignal(
        name=column.name,
        mean=float(values.mean()),
        deviation=float(values.std()),
        lowest=float(values.min()),
        highest=float(values.max()),
    )


def _learn_text_signal(column: pl.Series, rows: FileRows) -> TextSignal:
    values = sorted(column.cast(pl.String).unique())
    if BOOLEAN_WORDS.issuperset(value.lower() for value in values):
        values = sorted({value.lower() for value in values})
    if len(values) > MAX_TEXT_VALUES:
        raise InputError(
            f"{rows.file}: the signal {column.name} has {len(values)} values ({join_names(values)}), more than "
            f"{MAX_TEXT_VALUES}; omit it"
        )
    return TextSignal(name=column.name, values=tuple(values))


def _describe_constant(name: str, rows: FileRows) -> str:
    return f"{rows.file}: the signal {name} is the same in every row and has no information; omit it"


def _is_text(column: pl.Series) -> bool:
    """Return whether a column has booleans, or text that is not only numbers."""
    if column.dtype not in (pl.String, pl.Categorical, pl.Enum, pl.Boolean):
        return False
    return column.cast(pl.String).str.strip_chars().cast(pl.Float64, strict=False).has_nulls()
