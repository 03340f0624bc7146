"""Predictions as people have them: which columns say what was predicted, and the rows behind them, checked.

What cannot be read is refused by file and row. Four layouts: `logits` or `probabilities` (a list of K numbers in one
column, or columns `logits_0` ... `logits_K-1`), or, where a system gives no more, `decision` and `confidence`, or the
`decision` alone. A column `decision` beside logits is the fixed decision; without it that is the first argmax. `label`
is the truth, where it is known. A `Reading` gives columns other names, or two labels the probability or score of one.
"""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from tasks.predictions.reading import AS_NAMED, USUAL, Reading, to_paste
from tasks.predictions.text import SeparatedText
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
MOST_PASTED = 50  # names of labels in an option
TRUTH = {"false": "0", "true": "1"}

Kind = Literal["logits", "probabilities", "probability", "score", "confidence_only", "decision_only"]
KINDS = {  # what a map reads -> the columns that hold it, in words
    "logits": "logits or probabilities (a list in one column, or columns logits_0, logits_1, ...)",
    "confidence_only": "decision and confidence",
    "decision_only": "decision",
}
FITTING = {  # the same -> options that name such columns
    "logits": ("--probabilities", "--probability", "--border 0 --score"),
    "confidence_only": ("--decision", "--confidence-column"),
    "decision_only": ("--decision",),
    None: tuple(option for option in USUAL if option != "--label"),
}


class FileRows(NamedTuple):
    """Rows of a file that follow one another, for messages."""

    file: str
    first: int = 0  # number of the first of them, from 0
    text: SeparatedText | None = None  # the file, if it has lines
    kept: np.ndarray | None = None  # numbers of the rows, where others between them are left away

    def refuse(self, wrong: np.ndarray | pl.Series, what: Callable[[int], str]) -> None:
        """BadInput names the first row where `wrong (n,)` holds, says `what` of its place, and how many there are."""
        if wrong.any():
            row, many = int(np.asarray(wrong).argmax()), int(wrong.sum())
            more = f" ({many:,} of {len(wrong):,} rows are so)" if many > 1 else ""
            raise BadInput(f"{self.file}, {self.place(row)}: {what(row)}{more}")

    def refuse_missing(self, column: pl.Series, advice: str = "drop or fill the row") -> None:
        """BadInput names the first row without a value."""
        self.refuse(column.is_null(), lambda _: f"{column.name} is missing; {advice}")

    def place(self, row: int) -> str:
        """Where row `row` of these stands in the file: its line, or its number."""
        number = self.first + row if self.kept is None else int(self.kept[row])
        return f"row {number} (from 0)" if self.text is None else self.text.place(number)

    def without(self, missing: np.ndarray) -> "FileRows":
        """These rows but for those where `missing (n,)` holds."""
        return self._replace(kept=self.first + np.flatnonzero(~missing))


@dataclass(frozen=True)
class Layout:
    """Which columns of a file hold what; `label`, `group` and `weight` are None where they are not read."""

    kind: Kind  # confidence_only: a decision and a confidence, no more; probability and score: of one of two labels
    columns: tuple[str, ...]  # the numbers: one column of lists, K columns of one number each, the confidence, or none
    decision: str | None
    label: str | None
    group: str | None
    weight: str | None = None
    reading: Reading = AS_NAMED

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
    names: Sequence[str],
    file: str,
    *,
    labelled: bool,
    group: str | None = None,
    reads: str | None = None,
    reading: Reading = AS_NAMED,
) -> Layout:
    """What the columns `names` of `file` hold; `labelled` asks for the truth, `group` names the column of groups.

    `reads`, a key of `KINDS`, is what a map reads; without it the first of them is taken that is there.

    Raises:
        BadInput: no layout, two at once, a gap in `logits_0` ..., or a column that is asked for and not there.
    """
    reading.check(names, file, labelled=labelled)
    decision, label = reading.decision or "decision", reading.label or "label"
    there = _layouts(names, file, reading)
    layouts = there["logits"]
    if len(layouts) > 1 and reads in (None, "logits"):
        both = " and ".join(columns[0] for _, columns in layouts)
        raise BadInput(f"{file} gives its predictions twice: {both}; drop one")
    layouts = there[reads] if reads else next(filter(None, there.values()), [])
    if not layouts:
        needed = KINDS[reads] if reads else f"{KINDS['logits']}, or decision and confidence, or decision alone"
        like = "" if reads is None else ", as the rows had that the map was fitted on"
        apart = any(re.search(r"^ | $", name) for name in names)
        options = (*FITTING[reads], *(["--label"] if labelled else []))
        hint = "; are they separated by commas, without spaces?" if apart else to_paste(names, options)
        raise BadInput(f"{file} has the columns {', '.join(names) or '(none)'}; it needs {needed}{like}{hint}")
    for wanted, why in ((group, "--group names it"), (label if labelled else None, "it holds the truth")):
        if wanted is not None and wanted not in names:
            hint = to_paste(names, ["--label"]) if wanted == label else ""
            raise BadInput(f"{file} has no column {wanted}, and {why}; it has {', '.join(names)}{hint}")
    if group is not None and group in (*layouts[0][1], decision, label):
        raise BadInput(f"{file}: --group names {group}, which holds something else; name the column of the groups")
    weight = WEIGHT if labelled and WEIGHT in names else None
    return Layout(
        *layouts[0], decision if decision in names else None, label if labelled else None, group, weight, reading
    )


def _layouts(names: Sequence[str], file: str, reading: Reading) -> dict[str | None, list[tuple[Kind, tuple[str, ...]]]]:
    """Each key of `KINDS`, and the columns that may be read so."""
    layouts: list[tuple[Kind, tuple[str, ...]]] = []
    own: dict[Kind, str | None] = {"logits": reading.logits, "probabilities": reading.probabilities}
    for kind, name in [(kind, name) for kind, name in own.items() if name] or [(kind, kind) for kind in own]:
        if name in names:
            layouts.append((kind, (name,)))
        ends = (other.removeprefix(f"{name}_") for other in names if other.startswith(f"{name}_"))
        numbers = sorted(int(end) for end in ends if re.fullmatch(r"0|[1-9]\d*", end))
        split = tuple(f"{name}_{number}" for number in numbers)
        if len(split) == 1 or numbers != list(range(len(split))):
            how = "they must be numbered 0, 1, ... with none left out, one for each label"
            raise BadInput(f"{file} has the columns {', '.join(split)}; {how}")
        if split:
            layouts.append((kind, split))
    if reading.probability is not None:
        layouts = [("probability", (reading.probability,))]
    elif reading.score is not None:
        layouts = [("score", (reading.score,))]
    decided, confidence = (reading.decision or "decision") in names, reading.confidence_column or "confidence"
    return {
        "logits": layouts if reading.confidence_column is None else [],
        "confidence_only": [("confidence_only", (confidence,))] if decided and confidence in names else [],
        "decision_only": [("decision_only", ())] if decided else [],
    }


def checked_rows(
    frame: pl.DataFrame,
    layout: Layout,
    rows: FileRows,
    *,
    names: Sequence[str] | None = None,
    n_labels: int | None = None,
) -> PredictedRows:
    """The checked rows of `frame`, which are `rows` of their file.

    `names` are those of the labels, index = label, and `n_labels` is K; for a confidence alone one must be known.

    Raises:
        BadInput: the file, the row and the column, what was found and what to do.
    """
    n_labels = len(names) if names else n_labels
    file, logits, confidence_only = rows.file, None, None
    if layout.kind == "confidence_only":
        confidence_only = shares(frame[layout.columns[0]], rows, layout.reading)
    elif layout.kind != "decision_only":
        of_two = layout.kind in ("probability", "score")
        logits = _of_two_labels(frame, layout, rows, names) if of_two else _matrix(frame, layout, rows)
        if n_labels is not None and logits.shape[1] != n_labels:
            what = f"the {layout.kind} of one of two labels" if of_two else f"{logits.shape[1]} {layout.kind} a row"
            raise BadInput(f"{file} has {what}, where there are {n_labels} labels")
        n_labels = logits.shape[1]
        if layout.kind == "probabilities":
            logits = _log_probabilities(logits, rows)
    assert n_labels is not None
    advice = naming(frame, [layout.decision, layout.label], n_labels)
    decision, label = (
        None if name is None else label_codes(frame[name], rows, names=names, n_labels=n_labels, advice=advice)
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


def _of_two_labels(frame: pl.DataFrame, layout: Layout, rows: FileRows, names: Sequence[str] | None) -> np.ndarray:
    """The logits `(n, 2)` of two labels, of which a column gives the probability of one, or its score."""
    column, reading = frame[layout.columns[0]], layout.reading
    if layout.kind == "score":
        distance = numbers(column, rows) - (reading.border or 0)
        rows.refuse(
            ~(np.abs(distance) <= LARGEST_LOGIT),
            lambda row: f"{column.name} is {column[row]}; it must be finite, within {LARGEST_LOGIT:g}",
        )
        logits = np.column_stack([np.zeros(len(distance)), distance])
    else:
        share = shares(column, rows, reading)
        logits = np.log(np.maximum(np.column_stack([1 - share, share]), SMALLEST_PROBABILITY))
    place = 1 if reading.positive is None else _code(reading.positive, names)
    if place not in (0, 1):
        raise BadInput(f"--positive is {reading.positive!r}; the labels are {listed(names or ('0', '1'))}")
    return logits if place else np.ascontiguousarray(logits[:, ::-1])


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


def label_codes(
    column: pl.Series,
    rows: FileRows,
    *,
    names: Sequence[str] | None,
    n_labels: int,
    advice: Callable[[], str] = str,
) -> np.ndarray:
    """Labels as numbers 0..K-1, as false and true, or by name where names are known, to `(n,)` int64.

    A name may have spaces around it, or another case. BadInput names the row, and gives `advice`.
    """
    rows.refuse_missing(column)
    within = f"0..{n_labels - 1}" if n_labels < LARGEST else "0, 1, 2, ..."
    if column.dtype in (pl.String, pl.Categorical, pl.Enum) or (_are_numbers(names) and column.dtype.is_numeric()):
        text = column.cast(pl.String)
        code_of = {value: _code(value, names) for value in text.unique()}
        known = f"; the labels are {listed(names)}" if names else advice() or "; fit takes names of labels by --labels"
        by_row = text.replace_strict(code_of, return_dtype=pl.Int64)
        rows.refuse(by_row.is_null(), lambda row: f"{column.name} is {text[row]!r}{known}")
        codes = by_row.to_numpy()
    elif column.dtype == pl.Boolean or column.dtype.is_integer() or column.dtype.is_float():
        given = column.to_numpy()
        with np.errstate(invalid="ignore"):
            codes = given.astype(np.int64)
        rows.refuse(codes != given, lambda row: f"{column.name} is {given[row]}, not one of {within}")
    else:
        raise BadInput(f"{rows.file}: the column {column.name} is {column.dtype}; it must hold numbers 0..K-1 or names")
    outside = (codes < 0) | (codes >= n_labels)
    rows.refuse(outside, lambda row: f"{column.name} is {codes[row]}, not one of {within}{advice()}")
    return np.asarray(codes)


def _are_numbers(names: Sequence[str] | None) -> bool:
    """Whether 1 is the name of a label, rather than the second label."""
    return names is not None and all(re.fullmatch(r"-?[0-9]+", name) for name in names)


def _code(text: str, names: Sequence[str] | None) -> int | None:
    """The label of a name, as it stands or but for spaces and case, or of a number where names are none."""
    if names is not None and text in names:
        return names.index(text)
    plain = [_plain(name) for name in names or ()]
    if _plain(text) in plain:
        return plain.index(_plain(text)) if plain.count(_plain(text)) == 1 else None
    return None if _are_numbers(names) else _integer(TRUTH.get(_plain(text), text.strip()))


def _plain(name: str) -> str:
    """A name without spaces around it and in small letters; of a whole number without decimals."""
    return re.sub(r"^([+-]?[0-9]+)\.0+$", r"\1", name.strip().casefold())


def naming(frame: pl.DataFrame, columns: Sequence[str | None], n_labels: int) -> Callable[[], str]:
    """The end of a message: the option that takes what `columns` hold as the names of `n_labels` labels, if it can."""

    def advice() -> str:
        series = [frame[name] for name in columns if name is not None and not frame[name].dtype.is_nested()]
        texts = pl.concat([column.cast(pl.String, strict=False).drop_nulls() for column in series]).unique()
        spelt = {_plain(text): text.strip() for text in texts.sort()}
        if all(re.fullmatch(r"-?[0-9]{1,9}", name) for name in spelt):
            whole = sorted(map(int, spelt))
            shifted = range(1, n_labels + 1) if whole[0] == 1 and whole[-1] == n_labels else whole
            names = [str(number) for number in shifted]
        else:
            names = sorted(spelt.values())
        many = len(names) == n_labels or (n_labels == LARGEST and 2 <= len(names) <= MOST_PASTED)
        if not many or re.search(r'[,"]', "".join(names)):
            return ""
        return f"; name the labels to fit, in their order: --labels {shlex.quote(','.join(names))}"

    return advice


def unlabelled(label: pl.Series) -> np.ndarray:
    """Whether each row has no label, `(n,)` bool: nothing, blank text or NaN."""
    if label.dtype == pl.String:
        return (label.is_null() | (label.str.strip_chars() == "").fill_null(True)).to_numpy()
    return (label.fill_nan(None) if label.dtype.is_float() else label).is_null().to_numpy()


def questions(rows: PredictedRows, layout: Layout, names: Sequence[str] | None, n_labels: int) -> list[str]:
    """What is doubtful in how rows were read, a sentence each, with the option that reads them otherwise."""
    shown, column = names or [str(label) for label in range(n_labels)], layout.columns[0] if layout.columns else ""
    asked = []
    if rows.confidence is not None and (low := rows.confidence < 1 / n_labels - ROUNDED).any():
        question = f"In {low.sum():,} of {len(rows):,} rows {column} is below 1/{n_labels}, less than a guess"
        second = rows.confidence[rows.decision == 1].sum() * (rows.decision == 0).sum()
        positive = shown[int(second >= rows.confidence[rows.decision == 0].sum() * (rows.decision == 1).sum())]
        how = (
            f"Then read it with --probability {shlex.quote(column)} --positive {shlex.quote(positive)}."
            if n_labels == 2
            else "Then give the probability of the decided label, or those of all labels."
        )
        asked.append(f"{question}: is this the probability of a fixed label? {how}")
    if layout.kind == "logits":
        assert rows.logits is not None
        if (rows.logits >= 0).all() and (np.abs(rows.logits.sum(axis=1) - 1) <= MOST_OFF).all():
            name = column if len(layout.columns) == 1 else column.removesuffix("_0")
            asked.append(
                f"Every row of {name} sums to 1: these look like probabilities. Then read them with "
                f"--probabilities {shlex.quote(name)}."
            )
    return asked


def labels_in(frame: pl.DataFrame, columns: Sequence[str], rows: FileRows) -> int:
    """The number of labels that whole numbers in `columns` speak of, at least 2: the largest of them plus one."""
    advice = naming(frame, columns, LARGEST)
    codes = [label_codes(frame[name], rows, names=None, n_labels=LARGEST, advice=advice) for name in columns]
    most = int(np.concatenate(codes).max(initial=0))
    if most >= MOST_UNNAMED:
        raise BadInput(
            f"{rows.file}: a label is {most}; labels are 0..K-1, or names that --labels gives in their order"
        )
    return max(2, most + 1)


def _integer(text: str) -> int | None:
    return int(float(text)) if re.fullmatch(r"[0-9]{1,9}(\.0+)?", text) else None


def listed(names: Sequence[str]) -> str:
    """The first of them, for a message."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def numbers(column: pl.Series, rows: FileRows, advice: str = "") -> np.ndarray:
    """A column as `(n,)` float64; text is read as numbers. BadInput names the row."""
    name, given = column.name, column
    rows.refuse_missing(column)
    if column.dtype == pl.String:
        column = column.str.strip_chars()
        if rows.text is not None and rows.text.decimal_comma:
            column = column.str.replace(r"^([+-]?\d*),(\d+)", "$1.$2")
        column = column.cast(pl.Float64, strict=False)
        rows.refuse(column.is_null(), lambda row: f"{name} is {given[row]!r}, not a number{advice}")
    if not (column.dtype.is_float() or column.dtype.is_integer() or column.dtype.is_decimal()):
        raise BadInput(f"{rows.file}: the column {name} is {column.dtype}; it must hold numbers")
    return column.cast(pl.Float64).to_numpy()


def shares(column: pl.Series, rows: FileRows, reading: Reading) -> np.ndarray:
    """A column as `(n,)` float64 in [0, 1]: numbers, percent, or words that `reading` knows. BadInput names the row."""
    in_percent, advice = np.full(len(column), reading.percent), ""
    if column.dtype == pl.String:
        rows.refuse_missing(column)
        said, words = column.str.strip_chars().str.to_lowercase(), reading.words
        known = said.is_in(list(words)).to_numpy()
        in_percent = (in_percent | said.str.ends_with("%").to_numpy()) & ~known
        column = said.str.strip_chars_end("% ").replace({word: repr(share) for word, share in words.items()})
        if unknown := sorted(word for word in said.filter(~known).unique() if re.fullmatch(r"[^\W\d][^,=]*", word)):
            words_found = shlex.quote(",".join(f"{word}=?" for word in unknown[:SHOWN]))
            advice = f"; say what each word counts as, in [0, 1]: --confidence-words {words_found}"
    values = numbers(column, rows, advice)
    values = np.where(in_percent, values / 100, values)

    def what(row: int) -> str:
        hint = "; if it is in percent, say so with --percent" if 1 < values[row] <= 100 and not in_percent[row] else ""
        return f"{column.name} is {values[row]}; it must lie in [0, 1]{hint}"

    rows.refuse(~((values >= 0) & (values <= 1)), what)
    return values


def lists_of_numbers(column: pl.Series, rows: FileRows) -> np.ndarray:
    """A column of lists, all as long, as `(n, K)` float64, K at least 2. BadInput names the row."""
    name = column.name
    if column.dtype == pl.String:  # as pandas writes lists and arrays into csv
        rows.refuse_missing(column)
        text = column.str.strip_chars()
        whole = text.str.contains(r"^\[[\s\d.,eE+-]*\]$")
        rows.refuse(~whole, lambda row: f"{name} is {text[row]!r:.60}, no list of numbers such as [0.1, 0.9]")
        parts = text.str.strip_chars("[] \t\r\n").str.replace_all(r"[\s,]+", " ").str.split(" ")
        column = parts.cast(pl.List(pl.Float64), strict=False)
    elif isinstance(column.dtype, pl.Array):
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
            f"{name} has {lengths[row]} numbers, and {rows.place(0)} has {n_labels}; "
            "every row needs one for each label, and there are two labels at least"
        ),
    )
    flat = column.explode(empty_as_null=False)
    missing = np.asarray(flat.is_null().to_numpy().reshape(-1, n_labels).any(axis=1))
    rows.refuse(missing, lambda _: f"{name} holds a missing number; drop or fill the row")
    return flat.cast(pl.Float64).to_numpy().reshape(-1, n_labels)
