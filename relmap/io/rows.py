"""Read and validate the rows of predictions; errors name the file, the row and the column."""

from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
import polars as pl

from relmap.decisions import FLOAT_TOLERANCE, FixedDecisions, decide
from relmap.errors import InputError, assignment, assignments, labels_to_paste, option
from relmap.io.column_layout import Layout, Reading
from relmap.io.columns import (
    MIN_ROWS_OF_UNIT,
    FileRows,
    advise_names,
    are_whole_numbers,
    describe_vocabularies,
    find_label_names,
    has_numeric_name,
    is_rating,
    join_names,
    looks_unjudged,
    parse_label,
    read_groups,
    read_labels,
    read_number_lists,
    read_numbers,
    read_probabilities,
    read_shares,
)

ArrayKind = Literal["logits", "probabilities"]
MIN_PROBABILITY = 1e-12  # replaces smaller probabilities, so that logarithms are finite
MAX_LOGIT = 1e12  # far above the logits of any model, and far below the overflow of a calibrator
MAX_WEIGHT = 1e12
ROUNDING_ERROR = 0.005  # maximum rounding error of a probability with two decimal places
MAX_SUM_ERROR = 0.05  # maximum difference from 1 of the sum of the probabilities of a row
MIN_ROWS_OF_SUM = 5  # fewer rows may have equal sums by chance
MAX_SHARED_SHARE = 0.1  # maximum share of rows with a label that decisions take, if decisions and labels are unrelated
SEPARATED = 0.99  # share of the pairs of rows that a probability of one label orders by decision


def read_rows(
    frame: pl.DataFrame,
    layout: Layout,
    rows: FileRows,
    *,
    names: Sequence[str] | None = None,
    n_labels: int | None = None,
) -> FixedDecisions:
    """Read and validate the rows of a frame.

    Args:
        frame: The rows.
        layout: Kind of the predictions, and the names of the columns.
        rows: File and line numbers of the rows, for messages.
        names: Names of the labels, or None.
        n_labels: Number of labels K. Without logits, `n_labels` or `names` is required.

    Returns:
        The validated rows.

    Raises:
        InputError: A value is invalid; the message names the file, row and column, the value and the remedy.
    """
    rows.reject_repeated_header(frame)
    if names:
        n_labels = len(names)
    logits = None
    confidence = None
    if layout.kind == "confidence_only":
        lowest = 1 / n_labels if n_labels else 0.0
        confidence = read_probabilities(frame[layout.columns[0]], rows, layout.reading, lowest=lowest)
        if layout.reading.percent and len(confidence) >= MIN_ROWS_OF_UNIT and is_rating(np.round(100 * confidence, 9)):
            raise InputError(
                f"{rows.file}: {layout.columns[0]} has whole numbers up to 10, which look like ratings, not percent; "
                f"give each value a number with {option('confidence_words')}"
            )
    elif layout.kind != "decision_only":
        logits = _read_logits(frame, layout, rows, names)
        if n_labels is not None and logits.shape[1] != n_labels:
            raise InputError(_describe_width(layout, rows, logits.shape[1], n_labels))
        n_labels = logits.shape[1]
    assert n_labels is not None
    advice = partial(_advise_names, frame, layout, rows, names, n_labels)
    decision = None
    if layout.decision is not None:
        decision = read_labels(frame[layout.decision], rows, names=names, n_labels=n_labels, advice=advice)
    label = None
    if layout.label is not None:
        label = read_labels(frame[layout.label], rows, names=names, n_labels=n_labels, advice=advice)
    if decision is None:
        assert logits is not None
        decision = decide(logits)
        if layout.kind == "score" and not layout.is_of_one_label:
            decision = _decide_by_borders(frame[layout.columns[0]], layout.reading.borders, rows)
        # a score at the border of two labels means the negative label, but `decide` returns label 0
        if layout.kind == "score" and layout.is_of_one_label:
            decision[logits[:, 0] == logits[:, 1]] = 1 - positive_label(layout.reading, names)
    elif label is not None:
        _reject_unrelated_labels(frame, layout, rows, decision, label, names)
    if confidence is not None and (label is not None or len(confidence) >= MIN_ROWS_OF_UNIT):
        _reject_one_label(layout, rows, decision, confidence, names, n_labels)
    return FixedDecisions(
        decision=decision,
        logits=logits,
        confidence=confidence,
        label=label,
        group=_read_groups(frame, layout, rows),
        weight=_read_weights(frame, layout, rows),
    )


def _describe_width(layout: Layout, rows: FileRows, n_numbers: int, n_labels: int) -> str:
    """Describe predictions for another number of labels than there are."""
    if layout.kind == "score" and not layout.is_of_one_label:
        return (
            f"{option('border')} has {n_numbers - 1} borders, for {n_numbers} labels, but there are {n_labels} labels; "
            "give a border for each label but the lowest"
        )
    found = f"the {layout.kind} of one of two labels" if layout.is_of_one_label else f"{n_numbers} {layout.kind}"
    each = "" if layout.is_of_one_label else " in each row"
    return f"{rows.file} has {found}{each}, but there are {n_labels} labels; give one number for each"


def _reject_unrelated_labels(
    frame: pl.DataFrame,
    layout: Layout,
    rows: FileRows,
    decision: np.ndarray,
    label: np.ndarray,
    names: Sequence[str] | None,
) -> None:
    """Reject decisions and labels that hardly share a value, since they use different words.

    Numbers that share a single value are accepted if they are given as the names of the labels.

    Raises:
        InputError: The values hardly overlap; the message has both sets.
    """
    if len(label) < MIN_ROWS_OF_UNIT or len(np.union1d(decision, label)) < 3:  # one label may be always wrong
        return
    is_decided = np.isin(label, decision)
    is_labelled = np.isin(decision, label)
    shares_few_rows = max(is_decided.mean(), is_labelled.mean()) <= MAX_SHARED_SHARE
    shares_one_value = len(np.intersect1d(decision, label)) < 2 and not has_numeric_name(names)
    n_exclusive = min((~is_decided).sum(), (~is_labelled).sum())
    if not shares_few_rows and not (shares_one_value and n_exclusive >= MIN_ROWS_OF_UNIT):
        return
    assert layout.decision is not None
    assert layout.label is not None
    finding = f"only {(decision == label).sum():,} of {len(label):,} decisions are correct"
    remedy = ""
    if not is_decided.any():
        finding = "no decision could be correct"
    elif names is None:
        shown = [str(number) for number in np.union1d(decision, label)]
        remedy = f"; if equal numbers mean the same, give {labels_to_paste(shown)}"
    vocabularies = describe_vocabularies(frame, layout.decision, layout.label)
    raise InputError(f"{rows.file}: {finding}{vocabularies}{remedy}")


def _reject_one_label(
    layout: Layout,
    rows: FileRows,
    decision: np.ndarray,
    confidence: np.ndarray,
    names: Sequence[str] | None,
    n_labels: int,
) -> None:
    """Reject a confidence that may be the probability of the same label in each row, and not of the decision.

    A confidence below 1/K is rejected unless an option says that the column is the confidence of the decision. If the
    column also separates the rows that decide for one label from the others, it is rejected in any case.

    Raises:
        InputError: The column may be the probability of one label.
    """
    is_low = confidence < 1 / n_labels - ROUNDING_ERROR
    if not is_low.any():
        return
    reading = layout.reading
    column = layout.columns[0]
    positive = int(decision[confidence.argmax()])
    is_positive = decision == positive
    is_separated = len(decision) >= MIN_ROWS_OF_UNIT and (
        _separates(confidence, is_positive) or (n_labels == 2 and _decides_by_half(confidence, is_positive))
    )
    if not is_separated and (reading.confidence is not None or reading.words):
        return
    name = names[positive] if names else str(positive)
    remedy = f"give the probability of the decided label, or the probabilities of all labels: {option('probabilities')}"
    if n_labels == 2:
        remedy = f"read it with {assignments({'probability': column, 'positive': name})}"
    choice = ""
    if not is_separated:
        choice = f". If it is the confidence of the decision in each row, give {assignment('confidence', column)}"
    raise InputError(
        f"{rows.file}: in {is_low.sum():,} of {len(confidence):,} rows {column} is below 1/{n_labels}, the confidence "
        f"of random decisions. If it is the probability of the same label in each row, {remedy}{choice}"
    )


def _separates(values: np.ndarray, is_positive: np.ndarray) -> bool:
    """Return whether almost all values of positive rows are above those of the other rows."""
    others = np.sort(values[~is_positive])
    positives = values[is_positive]
    if not len(others) or not len(positives):
        return False
    n_below = np.searchsorted(others, positives, side="left") + np.searchsorted(others, positives, side="right")
    return bool(n_below.mean() / (2 * len(others)) >= SEPARATED)


def _decides_by_half(values: np.ndarray, is_positive: np.ndarray) -> bool:
    """Return whether positive rows have values above 1/2 and the other rows values below; rows at 1/2 may be either."""
    is_clear = values != 0.5
    if not (is_positive & is_clear).any() or not (~is_positive & is_clear).any():
        return False
    return bool(((values > 0.5) == is_positive)[is_clear].mean() >= SEPARATED)


def _read_logits(frame: pl.DataFrame, layout: Layout, rows: FileRows, names: Sequence[str] | None) -> np.ndarray:
    """Read logits or log-probabilities, shape (n, K)."""
    if layout.is_of_one_label:
        return _read_binary_logits(frame, layout, rows, names)
    if layout.kind == "score":
        borders = layout.reading.borders
        return ordinal_log_probabilities(_read_distances(frame[layout.columns[0]], borders, rows), borders)
    matrix = _read_matrix(frame, layout, rows)
    if layout.kind == "probabilities":
        return _log_probabilities(matrix, rows, percent=layout.reading.percent)
    if layout.reading.logits is None:
        doubt = _describe_constant_sum(matrix, layout)
        if doubt:
            choice = f"If they are logits, give {assignment('logits', 'logits')}"
            raise InputError(f"{rows.file}: {doubt}. {choice}")
    return matrix


def _read_groups(frame: pl.DataFrame, layout: Layout, rows: FileRows) -> np.ndarray | None:
    if layout.group is None:
        return None
    return read_groups(frame[layout.group], rows)


def _read_weights(frame: pl.DataFrame, layout: Layout, rows: FileRows) -> np.ndarray | None:
    if layout.weight is None:
        return None
    column = frame[layout.weight]
    rows.reject_missing(column, "give 1 to a row that was not sampled, such as an older one; or omit the row")
    weight = read_numbers(column, rows)
    is_invalid = ~((weight > 0) & (weight <= MAX_WEIGHT))
    expected = "it must be above 0 and at most 1e12: 1 / the probability with which the row was sampled"
    rows.reject(is_invalid, lambda row: f"{layout.weight} is {weight[row]}; {expected}")
    return weight


def find_two_label_names(frame: pl.DataFrame, layout: Layout, rows: FileRows) -> tuple[str, str] | None:
    """Find the names of the two labels if a column contains the probability or the score of one of them.

    Args:
        frame: The labelled rows.
        layout: Names of the columns; the kind of the predictions is `probability` or `score`.
        rows: File and line numbers of the rows, for messages.

    Returns:
        The other label, then the label of the column. None if the labels are 0 and 1, or false and true. None also if
        they are two other whole numbers and no label is given as positive; the column then refers to the larger number.

    Raises:
        InputError: No label is given as positive, or not one of these labels, or there are not two labels.
    """
    names = find_label_names(frame, [layout.decision, layout.label])
    if all(parse_label(name, None) in (0, 1) for name in names):
        return None
    message_start = f"{rows.file}: {layout.columns[0]} is the {layout.kind} of one of two labels"
    if len(names) != 2:
        raise InputError(
            f"{message_start}, but {layout.label} has {len(names)} labels ({join_names(names)}); keep rows of two "
            "labels"
        )
    positive = layout.reading.positive
    if positive is None:
        if are_whole_numbers(names):
            return None
        choices = " or ".join(assignment("positive", name) for name in names)
        raise InputError(f"{message_start}, {names[0]} and {names[1]}; name its label: {choices}")
    code = parse_label(positive, names)
    if code is None:
        raise InputError(f"{option('positive')} is {positive!r}; the labels are {join_names(names)}")
    return (names[1], names[0]) if code == 0 else (names[0], names[1])


def _advise_names(
    frame: pl.DataFrame, layout: Layout, rows: FileRows, names: Sequence[str] | None, n_labels: int
) -> str:
    if rows.has_map_labels or (names is not None and layout.label is None):
        return ""
    by_position = layout.columns if layout.kind in ("logits", "probabilities") else ()
    return advise_names(frame, layout.decision, layout.label, n_labels, by_position)


def _read_matrix(frame: pl.DataFrame, layout: Layout, rows: FileRows) -> np.ndarray:
    """Read one number for each label, shape (n, K), float64."""
    if len(layout.columns) > 1:
        if layout.kind == "probabilities":
            columns = [read_shares(frame[name], rows, layout.reading).values for name in layout.columns]
        else:
            columns = [read_numbers(frame[name], rows) for name in layout.columns]
        return _check_finite(np.column_stack(columns), layout.kind, rows)
    percent = layout.kind == "probabilities" and layout.reading.percent
    matrix = read_number_lists(frame[layout.columns[0]], rows, percent=percent)
    return _check_finite(matrix, layout.kind, rows)


def find_constant_sum(matrix: np.ndarray) -> float | None:
    """Find the sum of rows that look like probabilities, in any unit, and not like logits.

    Args:
        matrix: Shape (n, K).

    Returns:
        The sum of every row, exactly 1 or 100 if it is so within rounding; None if a number is negative, if rows have
        different sums, or if there are too few rows to know.
    """
    if not len(matrix) or (matrix < 0).any():
        return None
    totals = matrix.sum(axis=1)
    constant = float(np.median(totals))
    for unit in (1, 100):
        if abs(constant - unit) <= unit * MAX_SUM_ERROR:
            constant = unit
    tolerance = min(MAX_SUM_ERROR, ROUNDING_ERROR * matrix.shape[1]) * constant + FLOAT_TOLERANCE
    if not constant or (np.abs(totals - constant) > tolerance).any():
        return None
    if len(matrix) < MIN_ROWS_OF_SUM and constant != 100:
        return None
    return constant


def _describe_constant_sum(matrix: np.ndarray, layout: Layout) -> str:
    """Describe logits that look like probabilities, without the final point; empty for others."""
    constant = find_constant_sum(matrix)
    if constant is None:
        return ""
    name = layout.columns[0] if len(layout.columns) == 1 else layout.columns[0].removesuffix("_0")
    if "," in (layout.reading.logits or ""):
        name = str(layout.reading.logits)
    start = f"every row of {name} sums to {constant:.6g} without a negative number, so these look like"
    remedy = assignment("probabilities", name)
    if constant == 100:
        return f"{start} percentages. If so, read them with {assignments({'probabilities': name, 'percent': True})}"
    if constant == 1:
        return f"{start} probabilities. If so, read them with {remedy}"
    return f"{start} shares. If so, divide each row by its sum, and read the result with {remedy}"


def rows_from_array(numbers: np.ndarray, kind: ArrayKind, name: str) -> FixedDecisions:
    """Validate an array of predictions without labels, and decide for the largest number of each row.

    If several numbers of a row are the largest, the decision is the first of these labels.

    Args:
        numbers: Shape (n, K), float64.
        kind: Kind of the numbers.
        name: Name of the array, for messages.

    Returns:
        The rows.

    Raises:
        InputError: A row is invalid; the message names the first one.
    """
    rows = FileRows(name)
    logits = _check_finite(numbers, kind, rows)
    if kind == "probabilities":
        logits = _log_probabilities(logits, rows)
    return FixedDecisions(decision=decide(logits), logits=logits)


def _check_finite(matrix: np.ndarray, kind: str, rows: FileRows) -> np.ndarray:
    """Check that all numbers are finite, and return them with rows that are contiguous in memory, shape (n, K)."""
    is_invalid = ~(np.abs(matrix) <= MAX_LOGIT)  # NaN too

    def describe(row: int) -> str:
        label = int(is_invalid[row].argmax())
        value = matrix[row, label]
        remedy = "; write -9999 instead, the logit of a probability of 0" if np.isneginf(value) else ""
        return f"{kind} {label} is {value}; every one must be finite, within ±{MAX_LOGIT:g}{remedy}"

    rows.reject(is_invalid.any(axis=1), describe)
    return np.ascontiguousarray(matrix)


def _read_binary_logits(frame: pl.DataFrame, layout: Layout, rows: FileRows, names: Sequence[str] | None) -> np.ndarray:
    """Compute the logits of two labels from the probability or the score of one, shape (n, 2)."""
    column = frame[layout.columns[0]]
    reading = layout.reading
    if layout.kind == "score":
        distance = _read_distances(column, reading.borders, rows)
        logits = np.column_stack([np.zeros(len(distance)), distance])
    else:
        probability = read_probabilities(column, rows, reading)
        both = np.column_stack([1 - probability, probability])
        logits = np.log(np.maximum(both, MIN_PROBABILITY))
    return logits if positive_label(reading, names) else np.ascontiguousarray(logits[:, ::-1])


def _decide_by_borders(column: pl.Series, borders: Sequence[float], rows: FileRows) -> np.ndarray:
    """Return the number of borders below the score, shape (n,)."""
    return np.asarray((_read_distances(column, borders, rows) > 0).sum(axis=1))


def _read_distances(column: pl.Series, borders: Sequence[float], rows: FileRows) -> np.ndarray:
    """Read the distance of a score from each border, positive above it, shape (n, number of borders)."""
    distance = read_numbers(column, rows)[:, None] - np.array(borders)
    rows.reject(
        ~(np.abs(distance) <= MAX_LOGIT).all(axis=1),
        lambda row: f"{column.name} is {column[row]}; it must be finite, within ±{MAX_LOGIT:g}",
    )
    return np.asarray(distance)


def ordinal_log_probabilities(distance: np.ndarray, borders: Sequence[float]) -> np.ndarray:
    """Compute log-probabilities of labels in ascending order from the distances of a score from their borders.

    The model is a cumulative logit model (proportional odds): the probability of a label above a border is
    expit(distance / s). The scale s is half of the mean distance between neighboring borders, so that the unit of the
    score does not matter.

    Args:
        distance: Distance of each score from each border, shape (n, K - 1).
        borders: At least two borders, not decreasing, shape (K - 1,).

    Returns:
        Shape (n, K), float64. A label between two equal borders has almost no probability.

    References:
        McCullagh (1980), Regression models for ordinal data.
    """
    scale = (borders[-1] - borders[0]) / (2 * (len(borders) - 1)) or 1.0
    scaled = distance / scale
    edge = np.zeros((len(distance), 1))
    log_above = np.hstack([edge, -np.logaddexp(0, -scaled)])  # of the lower border of each label
    log_below = np.hstack([-np.logaddexp(0, scaled), edge])  # of its upper border
    # expit(a) - expit(b) = expit(a) expit(-b) (1 - exp(b - a))
    difference = np.r_[1, -np.expm1(-np.diff(borders) / scale), 1]
    return np.asarray(log_above + log_below + np.log(np.maximum(difference, MIN_PROBABILITY)))


def positive_label(reading: Reading, names: Sequence[str] | None) -> int:
    """Return the label, of two, that the probability or score refers to.

    Args:
        reading: Options of the file, of which `positive` names the label.
        names: Names of the two labels; None for 0 and 1.

    Returns:
        0 or 1; 1 if no label is named.

    Raises:
        InputError: There is no label of that name.
    """
    label = 1 if reading.positive is None else parse_label(reading.positive, names)
    if label not in (0, 1):
        labels = join_names(names or ("0", "1"))
        raise InputError(f"{option('positive')} is {reading.positive!r}; the labels are {labels}")
    return label


def _log_probabilities(probabilities: np.ndarray, rows: FileRows, *, percent: bool = False) -> np.ndarray:
    """Check that rows are probabilities, within rounding, and return their logarithms, shape (n, K)."""
    total = probabilities.sum(axis=1)
    tolerance = min(MAX_SUM_ERROR, ROUNDING_ERROR * probabilities.shape[1]) + FLOAT_TOLERANCE

    def describe(row: int) -> str:
        numbers = probabilities[row]
        return (
            f"the probabilities {numbers.tolist()} sum to {total[row]:.6g}; they must lie in [0, 1] and sum to 1, "
            f"within {tolerance:.2g} for rounding; {_advise_sum(numbers, total[row], percent=percent)}"
        )

    rows.reject((np.abs(total - 1) > tolerance) | (probabilities < 0).any(axis=1), describe)
    return np.asarray(np.log(np.maximum(probabilities, MIN_PROBABILITY)))


def _advise_sum(numbers: np.ndarray, total: float, *, percent: bool) -> str:
    """Suggest how to read or change numbers of a row that are no probabilities."""
    if (numbers <= 0).all():
        return "if these are log-probabilities, read them as logits"
    if (numbers < 0).any():
        return "are these logits?"
    if percent:
        return f"if they are not in percent, multiply them by 100, or omit {option('percent')}, which a map remembers"
    if abs(total - 100) <= 100 * MAX_SUM_ERROR:
        return f"if they are in percent, give {assignment('percent', True)}"
    return (
        "if some labels are not listed, divide each row by its sum; are these logits?"
        if total > 1
        else ("if some labels are not listed, divide each row by its sum")
    )


def describe_doubts(rows: FixedDecisions, layout: Layout, names: Sequence[str] | None, n_labels: int) -> list[str]:
    """Find signs that the rows were not read as intended.

    Args:
        rows: Labelled rows.
        layout: How the rows were read.
        names: Names of the labels, or None.
        n_labels: Number of labels K.

    Returns:
        A sentence for each sign, with the option that reads the rows as intended.
    """
    doubts = []
    assert rows.label is not None
    column = layout.columns[0] if layout.columns else ""
    for k, name in enumerate(names or ()):
        n_rows = int((rows.label == k).sum())
        if n_rows and looks_unjudged(name) and not (rows.decision == k).any():
            doubts.append(
                f"No decision is {name}, so all {n_rows:,} rows with this label count as wrong. If {name} means that "
                f"there is no label, omit these rows, and omit {name} in {option('labels')}."
            )
    if rows.confidence is not None:
        n_low = int((rows.confidence < 1 / n_labels - ROUNDING_ERROR).sum())
        if n_low:
            doubts.append(
                f"In {n_low:,} of {len(rows):,} rows {column} is below 1/{n_labels}, the confidence of random "
                "decisions."
            )
    if rows.logits is None and names is None and rows.decision.all() and rows.label.all():
        doubts.append(
            f"No row has the label 0. If the labels are 1 to {n_labels - 1}, name them: "
            f"{labels_to_paste([str(label) for label in range(1, n_labels)])}"
        )
    if layout.kind == "logits":
        assert rows.logits is not None
        doubt = _describe_constant_sum(rows.logits, layout)
        if doubt:
            doubts.append(f"{doubt[0].upper()}{doubt[1:]}.")
    return doubts
