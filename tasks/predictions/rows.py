"""Predictions as people have them: which columns say what was predicted, and the rows behind them, checked.

What cannot be read is refused by file and row. Four layouts: `logits` or `probabilities` (a list of K numbers in one
column, or columns `logits_0` ... `logits_K-1`), or, where a system gives no more, `decision` and `confidence`, or the
`decision` alone. A column `decision` beside logits is the fixed decision; without it that is the first argmax. `label`
is the truth, where it is known.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from tasks.protocol.decisions import decide
from tasks.protocol.errors import BadInput

SMALLEST_PROBABILITY = 1e-12  # what a probability of 0 counts as: its logarithm is finite
LARGEST_LOGIT = 1e12  # far beyond any model's, far below where a calibrator would overflow
ROUNDED = 0.005  # a probability of two digits is off by so much at most
MOST_OFF = 0.05  # from 1, of the sum of a row of probabilities
SHOWN = 10  # names in a message
LARGEST = 2**31
WEIGHT = "inverse_probability"  # the column of weights, as `label` writes it
MOST_COPIES = 10**6  # of all rows together, where that leaves ten of each
MOST_UNNAMED = 1000  # labels that are numbers; more are ids of something

Kind = Literal["logits", "probabilities", "confidence_only", "decision_only"]
KINDS = {  # what a map reads -> the columns that hold it, in words
    "logits": "logits or probabilities (a list in one column, or columns logits_0, logits_1, ...)",
    "confidence_only": "decision and confidence",
    "decision_only": "decision",
}


class FileRows(NamedTuple):
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


@dataclass(frozen=True)
class Layout:
    """Which columns of a file hold what; `label`, `group` and `weight` are None where they are not read."""

    kind: Kind  # confidence_only: a decision and a confidence, no more
    columns: tuple[str, ...]  # the numbers: one column of lists, K columns of one number each, the confidence, or none
    decision: str | None
    label: str | None
    group: str | None
    weight: str | None = None

    @property
    def read(self) -> list[str]:
        """Every column that is read."""
        return [
            *self.columns,
            *(name for name in (self.decision, self.label, self.group, self.weight) if name is not None),
        ]


@dataclass(frozen=True, eq=False)
class PredictedRows:
    """`n` checked rows; all arrays share the rows."""

    logits: np.ndarray | None  # (n, K) float64 finite; log-probabilities where those were given; None if only stated
    confidence: np.ndarray | None  # (n,) float64 in [0, 1]: the stated confidence, where there are no logits
    decision: np.ndarray  # (n,) int64, the fixed decision, 0..K-1
    label: np.ndarray | None  # (n,) int64, the truth, 0..K-1
    group: np.ndarray | None  # (n,) str
    signals: np.ndarray | None = None  # (n, S) float64, what else is known of each row
    weight: np.ndarray | None = None  # (n,) float64 above 0, how many rows each stands for; None where all are alike

    def __len__(self) -> int:
        return len(self.decision)

    @property
    def n_labels(self) -> int:
        """K, as the logits have it."""
        assert self.logits is not None
        return int(self.logits.shape[1])

    @property
    def correct(self) -> np.ndarray:
        """The event Z, `(n,)` bool."""
        assert self.label is not None
        return np.asarray(self.decision == self.label)

    @property
    def kind(self) -> Literal["logits", "confidence_only", "decision_only"]:
        """What a map of these rows reads beside the decision."""
        if self.logits is None:
            return "decision_only" if self.confidence is None else "confidence_only"
        return "logits"

    @property
    def copies(self) -> np.ndarray:
        """Numbers of rows `(m,)`, rising, each as often as its weight says, in whole numbers of a common unit."""
        if self.weight is None:
            return np.arange(len(self))
        times = self.weight / self.weight.mean() * np.clip(MOST_COPIES / len(self), 10, 100) + 1e-9
        times = np.floor(times + np.random.default_rng(0).random(len(self)))  # right on the average
        return np.repeat(np.arange(len(self)), np.maximum(times, 1).astype(np.int64))

    def with_signals(self, signals: np.ndarray | None) -> "PredictedRows":
        """The same rows with signals `(n, S)`."""
        return replace(self, signals=signals)

    def take(self, rows: np.ndarray | slice) -> "PredictedRows":
        """The same value for `rows` (int or bool index, or a slice) only, in that order."""
        return PredictedRows(*(None if part is None else part[rows] for part in vars(self).values()))  # type: ignore[arg-type]


def find_layout(
    names: Sequence[str], file: str, *, labelled: bool, group: str | None = None, reads: str | None = None
) -> Layout:
    """What the columns `names` of `file` hold; `labelled` asks for the truth, `group` names the column of groups.

    `reads`, a key of `KINDS`, is what a map reads; without it the first of them is taken that is there.

    Raises:
        BadInput: no layout, two at once, a gap in `logits_0` ..., or a column that is asked for and not there.
    """
    layouts: list[tuple[Kind, tuple[str, ...]]] = []
    for kind in ("logits", "probabilities"):
        if kind in names:
            layouts.append((kind, (kind,)))
        numbers = sorted(int(name[len(kind) + 1 :]) for name in names if re.fullmatch(rf"{kind}_(0|[1-9]\d*)", name))
        split = tuple(f"{kind}_{number}" for number in numbers)
        if len(split) == 1 or numbers != list(range(len(split))):
            asked = "they must be numbered 0, 1, ... with none left out, one for each label"
            raise BadInput(f"{file} has the columns {', '.join(split)}; {asked}")
        if split:
            layouts.append((kind, split))
    if len(layouts) > 1 and reads in (None, "logits"):
        both = " and ".join(columns[0] for _, columns in layouts)
        raise BadInput(f"{file} gives its predictions twice: {both}; drop one")
    there: dict[str, list[tuple[Kind, tuple[str, ...]]]] = {
        "logits": layouts,
        "confidence_only": [("confidence_only", ("confidence",))] if {"decision", "confidence"} <= set(names) else [],
        "decision_only": [("decision_only", ())] if "decision" in names else [],
    }
    layouts = there[reads] if reads else next(filter(None, there.values()), [])
    if not layouts:
        needed = KINDS[reads] if reads else f"{KINDS['logits']}, or decision and confidence, or decision alone"
        like = "" if reads is None else ", as the rows had that the map was fitted on"
        apart = any(re.search(r"[;\t]|^ | $", name) for name in names)
        hint = "; are they separated by commas, without spaces?" if apart else ""
        raise BadInput(f"{file} has the columns {', '.join(names) or '(none)'}; it needs {needed}{like}{hint}")
    for wanted, why in ((group, "--group names it"), ("label" if labelled else None, "it holds the truth")):
        if wanted is not None and wanted not in names:
            raise BadInput(f"{file} has no column {wanted}, and {why}; it has {', '.join(names)}")
    decision = "decision" if "decision" in names else None
    if group is not None and group in (*layouts[0][1], "decision", "label"):
        raise BadInput(f"{file}: --group names {group}, which holds something else; name the column of the groups")
    weight = WEIGHT if labelled and WEIGHT in names else None
    return Layout(*layouts[0], decision, "label" if labelled else None, group, weight)


def checked_rows(
    frame: pl.DataFrame,
    layout: Layout,
    file: str,
    *,
    names: Sequence[str] | None = None,
    n_labels: int | None = None,
    first: int = 0,
) -> PredictedRows:
    """The rows of `frame`, the first of which is row `first` (from 0) of `file`.

    `names` are those of the labels, index = label, and `n_labels` is K; for a confidence alone one must be known.

    Raises:
        BadInput: the file, the row and the column, what was found and what to do.
    """
    n_labels = len(names) if names else n_labels
    rows, logits, confidence_only = FileRows(file, first), None, None
    if layout.kind == "confidence_only":
        confidence_only = confidence = numbers(frame["confidence"], rows)
        outside = ~((confidence >= 0) & (confidence <= 1))
        rows.refuse(outside, lambda row: f"confidence is {confidence[row]}; it must lie in [0, 1]")
    elif layout.kind != "decision_only":
        logits = _matrix(frame, layout, rows)
        if n_labels is not None and logits.shape[1] != n_labels:
            raise BadInput(f"{file} has {logits.shape[1]} {layout.kind} a row, where there are {n_labels} labels")
        n_labels = logits.shape[1]
        if layout.kind == "probabilities":
            logits = _log_probabilities(logits, rows)
    assert n_labels is not None
    decision, label = (
        None if name is None else label_codes(frame[name], rows, names=names, n_labels=n_labels)
        for name in (layout.decision, layout.label)
    )
    if decision is None:
        assert logits is not None
        decision = decide(logits)
    group = None
    if layout.group is not None:
        groups = frame[layout.group]
        rows.refuse_missing(groups.fill_nan(None) if groups.dtype.is_float() else groups)
        if groups.dtype.is_nested():
            raise BadInput(f"{file}: --group names {layout.group}, which holds lists; name a column of numbers or text")
        group = groups.cast(pl.String).to_numpy()
    weight = None
    if layout.weight is not None:
        weight = numbers(frame[layout.weight], rows)
        wrong = ~((weight > 0) & (weight <= LARGEST_LOGIT))
        what = "it must be above 0, as one over the probability with which the row was drawn, and no larger than 1e12"
        rows.refuse(wrong, lambda row: f"{layout.weight} is {weight[row]}; {what}")
    return PredictedRows(logits, confidence_only, decision, label, group, None, weight)


def _matrix(frame: pl.DataFrame, layout: Layout, rows: FileRows) -> np.ndarray:
    """The numbers of each row, `(n, K)` float64, none so large that a calibrator could overflow."""
    if len(layout.columns) > 1:
        matrix = np.column_stack([numbers(frame[name], rows) for name in layout.columns])
    else:
        matrix = lists_of_numbers(frame[layout.columns[0]], rows)
    wrong = ~(np.abs(matrix) <= LARGEST_LOGIT)  # NaN too

    def what(row: int) -> str:
        label = int(wrong[row].argmax())
        return f"{layout.kind} {label} is {matrix[row, label]}; every one must be finite, within {LARGEST_LOGIT:g}"

    rows.refuse(wrong.any(axis=1), what)
    return np.ascontiguousarray(matrix)


def _log_probabilities(probabilities: np.ndarray, rows: FileRows) -> np.ndarray:
    """The logarithms of probabilities `(n, K)`; BadInput names the first row that are none."""
    total = probabilities.sum(axis=1)
    tolerance = min(MOST_OFF, ROUNDED * probabilities.shape[1]) + 1e-9
    rows.refuse(
        (np.abs(total - 1) > tolerance) | (probabilities < 0).any(axis=1),
        lambda row: (
            f"the probabilities {probabilities[row].tolist()} sum to {total[row]:.6g}; they must lie in [0, 1] and sum "
            f"to 1, within {tolerance:.2g} for rounding; are these logits?"
        ),
    )
    return np.log(np.maximum(probabilities, SMALLEST_PROBABILITY))


def label_codes(column: pl.Series, rows: FileRows, *, names: Sequence[str] | None, n_labels: int) -> np.ndarray:
    """Labels as numbers 0..K-1, as false and true, or by name where names are known, to `(n,)` int64.

    BadInput names the row.
    """
    rows.refuse_missing(column)
    within = f"0..{n_labels - 1}" if n_labels < LARGEST else "0, 1, 2, ..."
    numbered = names is not None and all(re.fullmatch(r"-?[0-9]+", name) for name in names)  # 1 is then a name
    if column.dtype in (pl.String, pl.Categorical, pl.Enum) or (numbered and column.dtype.is_integer()):
        text = column.cast(pl.String)
        by_name = {name: code for code, name in enumerate(names or ())}
        code_of = {value: by_name.get(value, None if numbered else _integer(value)) for value in text.unique()}
        advice = f"the labels are {listed(names)}" if names else "labels have names if --labels of fit gives them"
        by_row = text.replace_strict(code_of, return_dtype=pl.Int64)
        rows.refuse(by_row.is_null(), lambda row: f"{column.name} is {text[row]!r}; {advice}")
        codes = by_row.to_numpy()
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
    codes = [label_codes(frame[name], FileRows(file), names=None, n_labels=LARGEST) for name in columns]
    most = int(np.concatenate(codes).max(initial=0))
    if most >= MOST_UNNAMED:
        raise BadInput(f"{file}: a label is {most}; labels are 0..K-1, or names that --labels gives in their order")
    return max(2, most + 1)


def _integer(text: str) -> int | None:
    return int(float(text)) if re.fullmatch(r"[0-9]{1,9}(\.0+)?", text) else None


def listed(names: Sequence[str]) -> str:
    """The first of them, for a message."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def numbers(column: pl.Series, rows: FileRows) -> np.ndarray:
    """A column as `(n,)` float64; text is read as numbers. BadInput names the row."""
    name, given = column.name, column
    rows.refuse_missing(column)
    if column.dtype == pl.String:
        column = column.str.strip_chars().cast(pl.Float64, strict=False)
        rows.refuse(column.is_null(), lambda row: f"{name} is {given[row]!r}, not a number")
    if not (column.dtype.is_float() or column.dtype.is_integer() or column.dtype.is_decimal()):
        raise BadInput(f"{rows.file}: the column {name} is {column.dtype}; it must hold numbers")
    return column.cast(pl.Float64).to_numpy()


def lists_of_numbers(column: pl.Series, rows: FileRows) -> np.ndarray:
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
