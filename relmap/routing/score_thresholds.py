"""Thresholds on a raw score, or on the probability of one label, with guaranteed precision, recall or NPV.

The candidate thresholds are computed from a quarter of the rows (or groups) and tested on the other rows, so that the
guarantee holds for the threshold that is chosen: Learn then Test (Angelopoulos et al., 2021) with the fallback
procedure (Wiens, 2003). Without groups, rows are independent and p-values are exact (binomial).

With groups, all rows of a group are used. A rate, such as the precision, is computed in each group where it is defined,
and averaged over these groups (macro average). Its p-values are computed by betting (Waudby-Smith and Ramdas, 2024).
This needs no bound on the size of groups; the rate of pooled rows would need one.

With grades, such as 0 to 3, there is a border below each grade but the lowest, and a row is positive at a border if its
grade is above it. All thresholds of all borders hold together: each is tested at an equal share of the error level.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from relmap.errors import InputError, assignment, labels_to_paste, option
from relmap.io.column_layout import WEIGHT_COLUMN, Reading, normalize_name, require_column
from relmap.io.columns import (
    BOOLEAN_LABELS,
    MIN_ROWS_OF_UNIT,
    UNJUDGED_NUMBER,
    FileRows,
    advise_scalar,
    advise_unjudged,
    are_whole_numbers,
    find_grade_names,
    find_label_names,
    is_missing_label,
    join_names,
    label_texts,
    looks_unjudged,
    read_groups,
    read_labels,
    read_numbers,
    read_probabilities,
    reject_missing_labels,
    show_text,
)
from relmap.io.files import Predictions, read_columns, reading_notes, rows_in_file
from relmap.io.frames import FramePredictions
from relmap.io.unlabelled import find_omitted_rows
from relmap.metrics.intervals import binomial_p_value
from relmap.routing.group_tests import betting_p_value
from relmap.routing.thresholds import SAMPLE_SIZE_FACTORS, reject_in_order

PLANNING_SHARE = 0.25  # share of the rows or groups from which the candidates are computed
N_CANDIDATES = 100
MIN_UNITS = 8  # independent rows or groups
N_CURVE_POINTS = 400
SIGNIFICANT_DIGITS = 6  # of a threshold
MIN_SHARE_OF_PAIRS = 0.6  # of rows of two grades, where the lower grade has the higher score, that are noted
MIN_Z_VALUE = 5.0  # large, since rows of a group depend on each other
Metric = Literal["precision", "recall", "npv"]
METRIC_NAMES: dict[Metric, str] = {"precision": "precision", "recall": "recall", "npv": "negative predictive value"}
GROUPS_WITHOUT_RATE: dict[Metric, str] = {
    "precision": "a row at or above the threshold",
    "recall": "a positive row",
    "npv": "a row below the threshold",
}
METRIC_MEANINGS: dict[Metric, str] = {  # with the threshold in place of the braces
    "precision": "of the rows at or above {} are positive",
    "recall": "of the positive rows are at or above {}",
    "npv": "of the rows below {} are negative",
}


@dataclass(frozen=True, kw_only=True)
class ScoreThreshold:
    """A threshold for one target, and its observed rate on the labelled rows.

    Attributes:
        metric: precision, recall or npv (negative predictive value).
        target: The guaranteed rate, in (0, 1).
        threshold: The threshold, in units of the score; None if none was found. Rows at or above it count as positive.
        covered: Number of labelled rows at or above the threshold (precision, recall) or below it (npv).
        observed: The rate on all labelled rows; with groups, the mean of the rates of groups.
        advice: If there is no threshold, sentences on targets or numbers of rows with which there would be one.
    """

    metric: Metric
    target: float
    threshold: float | None
    covered: int = 0
    observed: float | None = None
    advice: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ScoreThresholds:
    """Thresholds that hold together with the stated confidence.

    Attributes:
        confidence: Probability, over samples of labelled rows, that all thresholds reach their targets.
        rows: Number of labelled rows.
        groups: Number of groups, or None for independent rows.
        positives: Number of positive rows.
        thresholds: One for each target.
        review: Lower and upper end of the review band, `lower <= score < upper`, or None.
        review_rows: Number of labelled rows in the review band.
        curve: Columns recall, precision and threshold: the precision-recall curve of all labelled rows.
    """

    confidence: float
    rows: int
    groups: int | None
    positives: int
    thresholds: tuple[ScoreThreshold, ...]
    review: tuple[float, float] | None
    review_rows: int
    curve: pl.DataFrame

    def to_dict(self, *, with_curves: bool = True) -> dict[str, object]:
        """Convert the thresholds for JSON.

        Args:
            with_curves: Whether to include the precision-recall curve.

        Returns:
            The content.
        """
        content: dict[str, object] = {
            "confidence": self.confidence,
            "rows": self.rows,
            "groups": self.groups,
            "positives": self.positives,
            "thresholds": [asdict(result) for result in self.thresholds],
            "review": None if self.review is None else list(self.review),
            "review_rows": self.review_rows,
        }
        if with_curves:
            content["curve"] = self.curve.to_dict(as_series=False)
        return content

    def describe(self) -> list[str]:
        """Describe the thresholds, their guarantee and the review band.

        Returns:
            Sentences.
        """
        lines = []
        for result in self.thresholds:
            lines += self._describe_threshold(result)
        guarantees = []
        for result in self.thresholds:
            if result.threshold is not None:
                meaning = METRIC_MEANINGS[result.metric].format(format_threshold(result.threshold))
                guarantees.append(f"at least {100 * result.target:g}% {meaning}")
        if guarantees:
            lines.append(self._describe_guarantees(guarantees))
        if self.groups is not None:
            lines.append(_describe_groups(self.groups, [result.metric for result in self.thresholds]))
        if self.review is not None:
            lines.append(self._describe_review(*self.review))
        return lines

    def chosen(self, *metrics: Metric) -> list[float]:
        """Return the thresholds that were found for some metrics.

        Args:
            metrics: The metrics.

        Returns:
            The thresholds.
        """
        found = []
        for result in self.thresholds:
            if result.metric in metrics and result.threshold is not None:
                found.append(result.threshold)
        return found

    def describe_border(self, grade: str) -> list[str]:
        """Describe the thresholds of one border between grades, without their guarantee.

        Args:
            grade: The lowest grade of positive rows.

        Returns:
            Sentences.
        """
        lines = []
        for result in self.thresholds:
            first, *others = self._describe_threshold(result)
            lines += [f"At least {grade}: {first[0].lower()}{first[1:]}", *others]
        if self.review is not None and self.review[0] < self.review[1]:
            low, high = self.review
            lines.append(
                f"At least {grade}: review scores from {low:g} to below {high:g} ({self.review_rows:,} of "
                f"{self.rows:,} rows)."
            )
        return lines

    def _describe_threshold(self, result: ScoreThreshold) -> list[str]:
        name = METRIC_NAMES[result.metric]
        target = f"{name} of {100 * result.target:g}%"
        if result.threshold is None:
            return [f"No threshold for a {target}.", *result.advice]
        side = "below it" if result.metric == "npv" else "at or above it"
        return [
            f"Threshold {format_threshold(result.threshold)} for a {target}: "
            f"{result.covered:,} of {self.rows:,} rows "
            f"({result.covered / self.rows:.1%}) are {side}. Observed {name}: {result.observed:.1%}."
        ]

    def _describe_guarantees(self, guarantees: Sequence[str]) -> str:
        together = "all of these hold: " if len(guarantees) > 1 else ""
        units = "groups" if self.groups is not None else "rows"
        return (
            f"With {100 * self.confidence:g}% confidence {together}{'; '.join(guarantees)}, if new {units} are "
            "independent and from the same distribution."
        )

    def _describe_review(self, low: float, high: float) -> str:
        low_text = format_threshold(low)
        high_text = format_threshold(high)
        if low == high:
            return f"No row needs a review: {high_text} separates negative from positive rows."
        return (
            f"Review scores from {low_text} to below {high_text}: {self.review_rows:,} of {self.rows:,} rows "
            f"({self.review_rows / self.rows:.1%}). Treat lower scores as negative and higher scores as positive."
        )


def _describe_groups(n_groups: int, metrics: Sequence[Metric]) -> str:
    n_planning = _count_planning_units(n_groups)
    uncounted = " ".join(
        f"Groups without {GROUPS_WITHOUT_RATE[metric]} do not count in the {METRIC_NAMES[metric]}."
        for metric in dict.fromkeys(metrics)
    )
    return (
        f"{n_planning:,} of the {n_groups:,} groups propose thresholds, and the other {n_groups - n_planning:,} test "
        f"them ({option('seed')} changes which). A rate is the mean of the rates of groups (macro average), so large "
        f"groups count as much as small groups. {uncounted}"
    )


def _count_planning_units(n_units: int) -> int:
    """Return the number of rows or groups from which the candidates are computed."""
    return max(2, round(PLANNING_SHARE * n_units))


@dataclass(frozen=True, kw_only=True)
class GradeThresholds:
    """Thresholds at each border between grades, which hold together with the stated confidence.

    Attributes:
        grades: Names of the grades, in ascending order.
        borders: Thresholds for "at least this grade", for each grade but the lowest. Thresholds for the same metric
            never decrease.
    """

    grades: tuple[str, ...]
    borders: tuple[ScoreThresholds, ...]

    def to_dict(self, *, with_curves: bool = True) -> dict[str, object]:
        """Convert the thresholds for JSON.

        Args:
            with_curves: Whether to include the precision-recall curve of each border.

        Returns:
            The content.
        """
        borders = []
        for grade, border in zip(self.grades[1:], self.borders, strict=True):
            content = border.to_dict(with_curves=with_curves)
            for shared in ("confidence", "rows", "groups"):
                del content[shared]
            borders.append({"at_least": grade, **content})
        first = self.borders[0]
        return {
            "grades": [*self.grades],
            "confidence": first.confidence,
            "rows": first.rows,
            "groups": first.groups,
            "borders": borders,
        }

    def chosen(self, *metrics: Metric) -> list[float]:
        """Return the thresholds of all borders that were found for some metrics.

        Args:
            metrics: The metrics.

        Returns:
            The thresholds.
        """
        return [threshold for border in self.borders for threshold in border.chosen(*metrics)]

    def describe(self) -> list[str]:
        """Describe the thresholds of all borders, and their guarantee.

        Returns:
            Sentences.
        """
        lines = []
        for grade, border in zip(self.grades[1:], self.borders, strict=True):
            lines += border.describe_border(grade)
        first = self.borders[0]
        if any(result.threshold is not None for border in self.borders for result in border.thresholds):
            units = "groups" if first.groups is not None else "rows"
            lines.append(
                f"With {100 * first.confidence:g}% confidence, all these thresholds reach their targets together, if "
                f"new {units} are independent and from the same distribution."
            )
        if first.groups is not None:
            lines.append(_describe_groups(first.groups, [result.metric for result in first.thresholds]))
        return lines


def find_score_thresholds(
    score: np.ndarray,
    positive: np.ndarray,
    *,
    groups: np.ndarray | None = None,
    precision: float | None = None,
    recall: float | None = None,
    npv: float | None = None,
    confidence_level: float = 0.95,
    seed: int = 1,
) -> ScoreThresholds:
    """Find thresholds on a score with guaranteed precision, recall or negative predictive value.

    If a precision and a recall are requested, and one threshold guarantees both, the two results have this threshold.
    Otherwise each result has its own threshold.

    Args:
        score: Scores, shape (n,), finite; higher is more likely positive.
        positive: Whether each row is positive, shape (n,), bool.
        groups: Group of each row, shape (n,), or None for independent rows.
        precision: Target in (0, 1), or None.
        recall: Target in (0, 1), or None.
        npv: Target in (0, 1), or None.
        confidence_level: Probability, in (0, 1), that all guarantees hold together.
        seed: Seed of the random split into rows that fix the candidates and rows that test them.

    Returns:
        The thresholds, the review band and the precision-recall curve.

    Raises:
        InputError: No target, a target outside (0, 1), fewer than eight rows or groups, rows of one kind only, or
            arrays of other shapes.

    References:
        Angelopoulos et al. (2021), Learn then Test. Waudby-Smith and Ramdas (2024), Estimating means of bounded random
        variables by betting.
    """
    targets = _given_targets(precision, recall, npv)
    score = np.asarray(score, dtype=np.float64)
    positive = np.asarray(positive)
    _check_input(score, positive, groups, targets, confidence_level)
    rows = _LabelledScores(score, positive, _unit_codes(score, groups), is_grouped=groups is not None)
    border = _BorderTests.from_rows(rows, targets, 1 - confidence_level, seed)
    (found,) = _ThresholdSearch([border]).find_thresholds(confidence_level)
    return found


def find_grade_thresholds(
    score: np.ndarray,
    grade: np.ndarray,
    names: Sequence[str],
    *,
    groups: np.ndarray | None = None,
    precision: float | None = None,
    recall: float | None = None,
    npv: float | None = None,
    confidence_level: float = 0.95,
    seed: int = 1,
) -> GradeThresholds:
    """Find thresholds on a score for each border between grades, all of which hold together.

    The borders share the error level equally. A threshold that is accepted at one border is also accepted where this
    follows: the precision of "at least 1" is never below that of "at least 2", the negative predictive value of
    "at least 2" is never below that of "at least 1", and a lower threshold never has a lower recall. So the thresholds
    for one metric never decrease with the grade.

    Args:
        score: Scores, shape (n,), finite; higher means a higher grade.
        grade: Grade 0..K-1 of each row, shape (n,), int.
        names: Names of the grades, in ascending order.
        groups: Group of each row, shape (n,), or None for independent rows.
        precision: Target in (0, 1), or None.
        recall: Target in (0, 1), or None.
        npv: Target in (0, 1), or None.
        confidence_level: Probability, in (0, 1), that all guarantees of all borders hold together.
        seed: Seed of the random split into rows that fix the candidates and rows that test them.

    Returns:
        The thresholds of each border.

    Raises:
        InputError: As for `find_score_thresholds`; or a border has no row above it, or none below it.
    """
    targets = _given_targets(precision, recall, npv)
    score = np.asarray(score, dtype=np.float64)
    units = None
    borders = []
    for k in range(1, len(names)):
        positive = np.asarray(grade) >= k
        if positive.all() or not positive.any():
            found = f"no row has a grade {'below' if positive.all() else 'of at least'} {names[k]}"
            raise InputError(f"{found}; omit grades without rows at the ends of {option('labels')}")
        _check_input(score, positive, groups, targets, confidence_level)
        units = _unit_codes(score, groups) if units is None else units
        rows = _LabelledScores(score, positive, units, is_grouped=groups is not None)
        borders.append(_BorderTests.from_rows(rows, targets, (1 - confidence_level) / (len(names) - 1), seed))
    thresholds = _ThresholdSearch(borders).find_thresholds(confidence_level)
    return GradeThresholds(grades=tuple(names), borders=tuple(thresholds))


def _given_targets(precision: float | None, recall: float | None, npv: float | None) -> dict[Metric, float]:
    requested: dict[Metric, float | None] = {"precision": precision, "recall": recall, "npv": npv}
    return {metric: target for metric, target in requested.items() if target is not None}


def _accept_implied(accepted: Sequence[dict[Metric, np.ndarray]]) -> None:
    """Accept thresholds at a border that follow from those of another one; see `find_grade_thresholds`.

    Args:
        accepted: Which candidates are accepted for each metric, shape (C,), for each border in ascending order. The
            accepted candidates for the recall are the lowest ones. Changed in place.
    """
    for lower, higher in zip(accepted[-2::-1], accepted[:0:-1], strict=True):
        if "precision" in lower:
            lower["precision"] = lower["precision"] | higher["precision"]
    for lower, higher in pairwise(accepted):
        if "npv" in lower:
            higher["npv"] = higher["npv"] | lower["npv"]
    with_recall = [border for border in accepted if "recall" in border and border["recall"].any()]
    for lower, higher in zip(with_recall[-2::-1], with_recall[:0:-1], strict=True):
        lower["recall"] = lower["recall"] & higher["recall"]


class ScoreRows(NamedTuple):
    """Labelled rows with a score, as read from a file.

    Attributes:
        score: Shape (n,), float64.
        grade: Label of each row: 1 for the positive label, else 0; or the grade 0..K-1. Shape (n,), int.
        names: Names of the grades, in ascending order; None for a positive label.
        groups: Group of each row, shape (n,), text; None without groups.
        notes: Sentences for the user.
    """

    score: np.ndarray
    grade: np.ndarray
    names: tuple[str, ...] | None
    groups: np.ndarray | None
    notes: list[str]


def read_score(file: Predictions, *, labels: Sequence[str] | None = None, group: str | None = None) -> ScoreRows:
    """Read the score, the label and the group of each row.

    Args:
        file: Labelled predictions; its reading names the column of the score or of the probability. If the reading
            names a positive label, there must be exactly one other label.
        labels: Names of the grades, in ascending order. Without them and without a positive label, the grades are the
            whole numbers in the file, at least three of them.
        group: Column of groups, or None.

    Returns:
        The rows, and notes for the user.

    Raises:
        InputError: A column is missing, a value cannot be read, the rows have sampling weights, no row has the positive
            label, or the positive label or the order of the grades is not known.
    """
    reading = file.reading
    score_column = reading.score or reading.probability
    if score_column is None:
        raise InputError(
            f"name the column of the score: {assignment('score', 'COLUMN')}, or {assignment('probability', 'COLUMN')}"
        )
    if WEIGHT_COLUMN in file.schema.names:
        raise InputError(
            f"{file.path} has sampling weights in {WEIGHT_COLUMN}: thresholds on a score need rows that were sampled "
            f"with equal probabilities. Give such rows, without the column {WEIGHT_COLUMN}"
        )
    label = reading.label or "label"
    columns = [score_column, label] if group is None else [score_column, label, group]
    if len(set(columns)) < len(columns):
        raise InputError(
            f"{file.path}: score, label and group must be different columns; they are {join_names(columns)}"
        )
    names = file.schema.names
    file_name = str(file.path)
    require_column(names, file_name, "score" if reading.score else "probability", score_column)
    require_column(names, file_name, "label", label)
    if group is not None:
        require_column(names, file_name, "group", group)
    frame = read_columns(file, columns)
    rows = rows_in_file(file)
    rows.reject_repeated_header(frame)
    names = _find_names(frame[label], reading, labels, rows)
    known_names = [reading.positive] if reading.positive is not None else names
    notes = reading_notes(file)
    if frame[label].dtype.is_nested():
        raise InputError(f"{file.path}: the column {label} is {frame[label].dtype}{advise_scalar(frame[label])}")
    advice = _advise_missing_label(frame[label], reading.positive)
    if reading.drop_unlabelled:
        n_labels = 2 if names is None else len(names)
        omitted = find_omitted_rows(
            frame, label, known_names, n_labels=n_labels, scores=[score_column], words=reading.words
        )
        notes += omitted.notes
        frame = frame.filter(~omitted.is_omitted)
        rows = rows.without(omitted.is_omitted.to_numpy())
    reject_missing_labels(frame[label], rows, known_names, advice, can_name_labels=False)
    score = (
        read_numbers(frame[score_column], rows)
        if reading.score
        else read_probabilities(frame[score_column], rows, reading)
    )
    rows.reject(~np.isfinite(score), lambda row: f"{score_column} is {score[row]}; it must be finite")
    if names is None:
        assert reading.positive is not None
        grade = _read_two_labels(frame[label], reading.positive, rows).astype(np.int64)
    else:
        grade = read_labels(frame[label], rows, names=names, n_labels=len(names), advice=str)
    is_run = isinstance(file, FramePredictions) and file.is_run
    notes += _describe_reversed_scores(score, grade, names, can_rename=labels is not None or not is_run)
    if labels is not None and are_whole_numbers(labels) and list(labels) != sorted(labels, key=int):
        notes.append(f"As {option('labels')} says, {labels[0]} is the lowest grade and {labels[-1]} the highest.")
    groups = None
    if group is not None:
        groups = read_groups(frame[group], rows)
    return ScoreRows(score=score, grade=grade, names=names, groups=groups, notes=notes)


def _advise_missing_label(label: pl.Series, positive: str | None) -> str:
    """Say what to do with a row whose label is missing, or looks so."""
    if positive is not None and label.dtype in (pl.String, pl.Categorical, pl.Enum):
        texts = label_texts(label).drop_nulls().unique()
        others = texts.filter(texts != positive)
        if len(others) == 1 and is_missing_label(others).all():  # without it, there is no second label
            names = labels_to_paste([others[0], positive])
            return f"drop or label the row, or if this is the other label, give {names} instead of {option('positive')}"
    return f"drop or label the row, or give {assignment('drop_unlabelled', True)}"


def _describe_reversed_scores(
    score: np.ndarray, grade: np.ndarray, names: Sequence[str] | None, *, can_rename: bool
) -> list[str]:
    """Note neighboring grades whose scores are in the opposite order, as if grades or scores were reversed.

    Args:
        score: Score of each row, shape (n,).
        grade: Grade of each row, shape (n,), 0..K-1.
        names: Names of the grades; None for a negative and a positive label.
        can_rename: Whether other names of the labels may be the remedy, which they are not for a run.

    Returns:
        A sentence on the first such grades; empty if there are none, or too few rows to know.
    """
    present = np.unique(grade)
    for lower, higher in pairwise(present):
        lower_scores = score[grade == lower]
        higher_scores = score[grade == higher]
        if min(len(lower_scores), len(higher_scores)) < MIN_ROWS_OF_UNIT:
            continue
        if not _are_clearly_higher(lower_scores, higher_scores):
            continue
        medians = f"median {np.median(lower_scores):.4g} and {np.median(higher_scores):.4g}"
        remedy = "If a lower score is better, change the sign of the score."
        if names is None:
            check = f"Check {option('positive')}. " if can_rename else ""
            return [f"Rows that are not positive have higher scores than those that are ({medians}). {check}{remedy}"]
        check = f"Check that {option('labels')} has the grades in ascending order. " if can_rename else ""
        return [f"Rows of {names[lower]} have higher scores than those of {names[higher]} ({medians}). {check}{remedy}"]
    return []


def _are_clearly_higher(values: np.ndarray, others: np.ndarray) -> bool:
    """Return whether values are clearly higher than others, by the normal approximation of the Mann-Whitney test."""
    n_values = len(values)
    n_pairs = n_values * len(others)
    ranks = pl.Series(np.concatenate([values, others])).rank("average").to_numpy()
    n_higher = ranks[:n_values].sum() - n_values * (n_values + 1) / 2  # pairs with the higher value first
    standard_error = math.sqrt(n_pairs * (len(ranks) + 1) / 12)
    return bool(n_higher / n_pairs > MIN_SHARE_OF_PAIRS and n_higher - n_pairs / 2 > MIN_Z_VALUE * standard_error)


def _find_names(
    column: pl.Series, reading: Reading, labels: Sequence[str] | None, rows: FileRows
) -> tuple[str, ...] | None:
    """Return the names of the grades in ascending order; None if the reading names a positive label."""
    if reading.positive is not None:
        if labels is not None:
            raise InputError(
                f"{option('positive')} and {option('labels')} exclude each other: give {option('labels')} for a "
                f"threshold at each border between grades, or {option('positive')} for one label"
            )
        return None
    if labels is not None:
        return tuple(labels)
    names = [] if column.dtype.is_nested() else find_label_names(pl.DataFrame([column]), [column.name])
    if len(names) > 2 and are_whole_numbers(names):
        grades = find_grade_names(column, rows)
        if len(grades) > 2:
            return grades
    found = f"; {column.name} has {join_names(names)}" if names else ""
    if len(names) > 2:
        found += "".join(advise_unjudged(name) for name in names)
    raise InputError(
        f"{rows.file}: name the label that counts as positive: {assignment('positive', 'LABEL')}; or for a threshold "
        "at each border between grades, name the grades in ascending order: "
        f"{assignment('labels', 'LOWEST,...,HIGHEST')}{found}"
    )


@dataclass(frozen=True, eq=False)
class _LabelledScores:
    """Labelled rows with a score, numbered by independent unit.

    Attributes:
        score: Shape (n,), float64.
        positive: Whether each row is positive, shape (n,), bool.
        unit: Number of the independent unit (row or group) of each row, from 0, shape (n,), int.
        is_grouped: Whether the units are groups.
    """

    score: np.ndarray
    positive: np.ndarray
    unit: np.ndarray
    is_grouped: bool

    @property
    def n_units(self) -> int:
        """Number of independent rows or groups."""
        return int(self.unit.max()) + 1

    @property
    def unit_name(self) -> str:
        """Plural noun for the units."""
        return "groups" if self.is_grouped else "rows"


class _Split(NamedTuple):
    """Rows that fix the candidates, and rows that test them; units are numbered in random order."""

    planning: _LabelledScores
    test: _LabelledScores


@dataclass(frozen=True, eq=False)
class _BorderTests:
    """Tests of all metrics at one border, whose rows above it are positive.

    Attributes:
        rows: All rows.
        split: The rows that fix the candidates, and those that test them.
        candidates: Increasing thresholds, shape (C,).
        targets: Target of each metric.
        level: Error level of each metric.
    """

    rows: _LabelledScores
    split: _Split
    candidates: np.ndarray
    targets: Mapping[Metric, float]
    level: float

    @classmethod
    def from_rows(
        cls, rows: _LabelledScores, targets: Mapping[Metric, float], level: float, seed: int
    ) -> "_BorderTests":
        """Split the rows; the metrics share the level equally."""
        split = _split_rows(rows, seed)
        return cls(rows, split, _candidate_thresholds(split.planning.score), targets, level / len(targets))

    def find_accepted(self, metric: Metric, target: float, factor: int = 1) -> np.ndarray:
        """Return which candidates guarantee a target, shape (C,), bool; `factor` repeats all rows."""
        level_shares = _level_shares(metric, target, self.candidates, self.split.planning, factor)
        return self._tests[metric].find_accepted(target, self.level, level_shares, factor)

    @functools.cached_property
    def _tests(self) -> "dict[Metric, _CandidateTest]":
        return {metric: _CandidateTest(metric, self.candidates, self.split.test) for metric in self.targets}

    def measure(
        self,
        accepted: Mapping[Metric, np.ndarray],
        advice: Mapping[Metric, tuple[str, ...]],
        confidence_level: float,
    ) -> ScoreThresholds:
        """Choose thresholds from the accepted candidates, and measure them on all rows."""
        chosen = {metric: float(self.candidates[index]) for metric, index in _choose(accepted).items()}
        thresholds = []
        for metric, target in self.targets.items():
            thresholds.append(_measure_threshold(self.rows, metric, target, chosen.get(metric), advice.get(metric, ())))
        review = _review_band(chosen, "npv" if "npv" in self.targets else "recall")
        score = self.rows.score
        n_review_rows = 0
        if review is not None:
            n_review_rows = int(((score >= review[0]) & (score < review[1])).sum())
        return ScoreThresholds(
            confidence=confidence_level,
            rows=len(score),
            groups=self.rows.n_units if self.rows.is_grouped else None,
            positives=int(self.rows.positive.sum()),
            thresholds=tuple(thresholds),
            review=review,
            review_rows=n_review_rows,
            curve=_precision_recall_curve(score, self.rows.positive),
        )


class _ThresholdSearch:
    """Search for thresholds at all borders, and for targets and sample sizes with which there would be one.

    Args:
        borders: Tests of each border, in ascending order; one for a positive label.
    """

    def __init__(self, borders: Sequence[_BorderTests]) -> None:
        self._borders = borders
        self._targets = borders[0].targets
        self._find_at = functools.cache(self._find_accepted)
        self._accepted = [
            {metric: self._find_at(k, metric, target) for metric, target in self._targets.items()}
            for k in range(len(borders))
        ]
        _accept_implied(self._accepted)

    def find_thresholds(self, confidence_level: float) -> list[ScoreThresholds]:
        """Return the thresholds of each border, with advice where there is none."""
        found = []
        for k, border in enumerate(self._borders):
            accepted = self._accepted[k]
            advice = {}
            for metric, target in self._targets.items():
                if not accepted[metric].any():
                    advice[metric] = _advise(metric, target, border.rows, functools.partial(self._exists, k, metric))
            found.append(border.measure(accepted, advice, confidence_level))
        return found

    def _find_accepted(self, k: int, metric: Metric, target: float, factor: int = 1) -> np.ndarray:
        return self._borders[k].find_accepted(metric, target, factor)

    def _exists(self, k: int, metric: Metric, target: float, factor: int = 1) -> bool:
        """Return whether border `k` would have a threshold with another target of this metric, or repeated rows."""
        borders_that_imply: dict[Metric, Sequence[int]] = {
            "precision": range(k, len(self._borders)),
            "recall": [k],
            "npv": range(k + 1),
        }
        accepted = [self._find_at(border, metric, target, factor) for border in borders_that_imply[metric]]
        return metric in _choose({**self._accepted[k], metric: np.any(accepted, axis=0)})


@dataclass(frozen=True, eq=False)
class _CandidateTest:
    """Test of candidate thresholds for one metric.

    Attributes:
        metric: The metric.
        candidates: Increasing thresholds, shape (C,).
        rows: Test rows.
    """

    metric: Metric
    candidates: np.ndarray
    rows: _LabelledScores

    def find_accepted(self, target: float, level: float, level_shares: np.ndarray, factor: int = 1) -> np.ndarray:
        """Return which candidates guarantee the target, shape (C,), bool; `factor` repeats the test rows."""
        p_values = self.p_values(target, factor)
        # order of the tests: decreasing thresholds for the precision and increasing ones for npv, so that few rows are
        # selected first; increasing ones for the recall, which is 1 at the lowest threshold
        order = slice(None, None, -1) if self.metric == "precision" else slice(None)
        rejected_at = reject_in_order(p_values[order], level * level_shares[order])
        return np.asarray(rejected_at[order] > 0)

    def p_values(self, target: float, factor: int = 1) -> np.ndarray:
        """Return the p-value of each candidate for the hypothesis that its rate is at most the target, shape (C,)."""
        values = []
        for outcomes in self._outcomes:
            if self.rows.is_grouped:
                values.append(betting_p_value(np.tile(outcomes - target, factor), target))
            else:
                n_rows = factor * len(outcomes)
                n_errors = n_rows - factor * int(outcomes.sum())
                values.append(float(binomial_p_value(n_errors, n_rows, target)) if n_rows else 1.0)
        return np.array(values)

    @functools.cached_property
    def _outcomes(self) -> list[np.ndarray]:
        """For each candidate, the rate of each group where it is defined, or whether each counted row is successful."""
        outcomes = []
        for candidate in self.candidates:
            rate = _rate_at(self.metric, self.rows, float(candidate))
            if self.rows.is_grouped:
                outcomes.append(rate.by_unit(self.rows.unit))
            else:
                outcomes.append(rate.successful[rate.counted])
        return outcomes


class _Rate(NamedTuple):
    """Rows in the denominator of a rate; those that are also successful are in the numerator. Shape (n,), bool."""

    counted: np.ndarray
    successful: np.ndarray

    def by_unit(self, unit: np.ndarray) -> np.ndarray:
        """Return the rate of each unit where it is defined, in the order of the units."""
        n_counted = np.bincount(unit, self.counted)
        n_successful = np.bincount(unit, self.counted & self.successful)
        is_defined = n_counted > 0
        return np.asarray(n_successful[is_defined] / n_counted[is_defined])


def _rate_at(metric: Metric, rows: _LabelledScores, threshold: float) -> _Rate:
    """Select the rows in denominator and numerator of a rate at a threshold."""
    is_above = rows.score >= threshold
    if metric == "precision":
        return _Rate(counted=is_above, successful=rows.positive)
    if metric == "recall":
        return _Rate(counted=rows.positive, successful=is_above)
    return _Rate(counted=~is_above, successful=~rows.positive)


def _unit_codes(score: np.ndarray, groups: np.ndarray | None) -> np.ndarray:
    """Return the number of each row, or of its group if there are groups, shape (n,); groups are numbered by name."""
    if groups is None:
        return np.arange(len(score))
    _, codes = np.unique(np.asarray(groups), return_inverse=True)
    return np.asarray(codes)


def _split_rows(rows: _LabelledScores, seed: int) -> _Split:
    """Split the units at random: a quarter of them for the candidates, the others for the tests.

    Returns:
        The split.

    Raises:
        InputError: There are too few units.
    """
    n_units = rows.n_units
    if n_units < MIN_UNITS:
        raise InputError(f"{n_units} labelled {rows.unit_name} are too few for a threshold; give at least {MIN_UNITS}")
    order = np.random.default_rng(seed).permutation(n_units)
    n_planning = _count_planning_units(n_units)
    rank = np.empty(n_units, dtype=np.int64)
    rank[order] = np.arange(n_units)
    unit_rank = rank[rows.unit]
    is_planning = unit_rank < n_planning
    is_test = ~is_planning
    return _Split(
        planning=_LabelledScores(
            rows.score[is_planning], rows.positive[is_planning], unit_rank[is_planning], rows.is_grouped
        ),
        test=_LabelledScores(
            rows.score[is_test], rows.positive[is_test], unit_rank[is_test] - n_planning, rows.is_grouped
        ),
    )


def _measure_threshold(
    rows: _LabelledScores, metric: Metric, target: float, threshold: float | None, advice: tuple[str, ...]
) -> ScoreThreshold:
    """Compute the observed rate and the number of covered rows at a threshold."""
    if threshold is None:
        return ScoreThreshold(metric=metric, target=target, threshold=None, advice=advice)
    selected = rows.score < threshold if metric == "npv" else rows.score >= threshold
    return ScoreThreshold(
        metric=metric,
        target=target,
        threshold=threshold,
        covered=int(selected.sum()),
        observed=_observed_rate(metric, rows, threshold),
    )


def _review_band(chosen: Mapping[Metric, float], low_metric: Metric) -> tuple[float, float] | None:
    """Return the ends of the scores between the threshold of `low_metric` and that of the precision.

    Returns:
        Lower and upper end; None if one of the two metrics has no threshold.
    """
    if "precision" not in chosen or low_metric not in chosen:
        return None
    high = chosen["precision"]
    return min(chosen[low_metric], high), high


def _level_shares(
    metric: Metric, target: float, candidates: np.ndarray, planning: _LabelledScores, factor: int
) -> np.ndarray:
    """Return the share of the error level that each candidate starts with, shape (C,); `factor` repeats the rows.

    Recall decreases with the threshold, so the whole level starts at the lowest candidate. Precision and NPV may
    increase and decrease: half of the level starts at the candidate with the most evidence on the planning rows, and
    half is divided equally among ten evenly spaced candidates. The evidence is the number of successful rows minus the
    expected number at the target, divided by sqrt(n + 1) for n rows.
    """
    shares = np.zeros(len(candidates))
    if metric == "recall":
        shares[0] = 1
        return shares
    evidence = np.zeros(len(candidates))
    for i, candidate in enumerate(candidates):
        rate = _rate_at(metric, planning, float(candidate))
        n_rows = factor * rate.counted.sum()
        n_successful = factor * (rate.counted & rate.successful).sum()
        evidence[i] = (n_successful + target - target * (n_rows + 1)) / math.sqrt(n_rows + 1)
    starts = np.unique(np.linspace(0, len(candidates) - 1, min(10, len(candidates))).astype(int))
    shares[starts] = 0.5 / len(starts)
    shares[evidence.argmax()] += 0.5
    return shares


def _candidate_thresholds(score: np.ndarray) -> np.ndarray:
    """Return at most 100 increasing thresholds: quantiles of the planning scores, to six significant digits.

    They are not rounded if this would make half of them equal, as if scores differ little from a large number.
    """
    quantiles = np.unique(np.quantile(score, np.linspace(0, 1, N_CANDIDATES), method="inverted_cdf"))
    rounded = np.unique([float(f"{value:.{SIGNIFICANT_DIGITS}g}") for value in quantiles])
    return quantiles if len(rounded) < len(quantiles) / 2 else rounded


def format_threshold(threshold: float) -> str:
    """Write a threshold with six significant digits, or with all if it has more.

    Args:
        threshold: The threshold.

    Returns:
        The number as text.
    """
    short = f"{threshold:g}"
    return short if float(short) == threshold else repr(threshold)


def _choose(accepted: Mapping[Metric, np.ndarray]) -> dict[Metric, int]:
    """Return the index of the chosen candidate of each metric that has an accepted one.

    The precision gets its lowest accepted threshold; recall and NPV get their highest. If a threshold is accepted for
    both precision and recall, both get the lowest such threshold. The threshold of the NPV is not above that of the
    precision, so that no row counts as negative and as positive.
    """
    chosen: dict[Metric, int] = {}
    indices = {metric: np.flatnonzero(is_accepted) for metric, is_accepted in accepted.items()}
    none_accepted = np.empty(0, dtype=np.int64)
    precision_indices = indices.get("precision", none_accepted)
    recall_indices = indices.get("recall", none_accepted)
    if len(precision_indices):
        chosen["precision"] = int(precision_indices[0])
    if len(recall_indices):
        chosen["recall"] = int(recall_indices[-1])
    common_indices = np.intersect1d(precision_indices, recall_indices)
    if len(common_indices):
        chosen["precision"] = int(common_indices[0])
        chosen["recall"] = int(common_indices[0])
    npv_indices = indices.get("npv", none_accepted)
    if "precision" in chosen:
        npv_indices = npv_indices[npv_indices <= chosen["precision"]]
    if len(npv_indices):
        chosen["npv"] = int(npv_indices[-1])
    return chosen


def _advise(
    metric: Metric, target: float, rows: _LabelledScores, exists: Callable[[float, int], bool]
) -> tuple[str, ...]:
    """State the highest target that has a threshold, and the number of rows or groups that would suffice.

    Args:
        metric: The metric.
        target: The requested target, which has no threshold.
        rows: All rows.
        exists: Function of a target and a factor: whether there is a threshold with this factor times as many rows.

    Returns:
        Sentences.
    """
    advice = []
    # from the top: the share of the level of each candidate depends on the target, so that a target can have a
    # threshold although a lower one has none
    for percent in range(99, 0, -1):
        if exists(percent / 100, 1):
            advice.append(f"The highest {METRIC_NAMES[metric]} for which these rows have a threshold is {percent}%.")
            break
    for factor in SAMPLE_SIZE_FACTORS:
        if exists(target, factor):
            advice.append(
                f"As a rough estimate, {factor * rows.n_units:,} {rows.unit_name} like these would suffice; there are "
                f"{rows.n_units:,}."
            )
            return tuple(advice)
    advice.append(f"Even {SAMPLE_SIZE_FACTORS[-1]} times as many {rows.unit_name} like these would not suffice.")
    return tuple(advice)


def _observed_rate(metric: Metric, rows: _LabelledScores, threshold: float) -> float | None:
    """Return the rate at a threshold, or with groups its mean over groups; None if it is undefined."""
    rate = _rate_at(metric, rows, threshold)
    if not rate.counted.any():
        return None
    if rows.is_grouped:
        return float(rate.by_unit(rows.unit).mean())
    return float(rate.successful[rate.counted].mean())


def _precision_recall_curve(score: np.ndarray, positive: np.ndarray) -> pl.DataFrame:
    """Return the precision-recall curve of all rows, ignoring groups, at each distinct score but at most at 400."""
    order = np.argsort(-score, kind="stable")
    true_positives = np.cumsum(positive[order])
    n_selected = np.arange(1, len(score) + 1)
    last_of_score = np.flatnonzero(np.r_[np.diff(score[order]) != 0, True])
    if len(last_of_score) > N_CURVE_POINTS:
        last_of_score = last_of_score[np.linspace(0, len(last_of_score) - 1, N_CURVE_POINTS).astype(int)]
    return pl.DataFrame(
        {
            "threshold": score[order][last_of_score],
            "recall": true_positives[last_of_score] / true_positives[-1],
            "precision": true_positives[last_of_score] / n_selected[last_of_score],
        }
    )


def _label_names(column: pl.Series) -> pl.Series:
    """Spell each label in one form, in which 1, 1.0 and true are the same, and false is 0."""
    texts = label_texts(column)
    name_by_text = {}
    for text in texts.unique().drop_nulls():
        name = normalize_name(text)
        name_by_text[text] = BOOLEAN_LABELS.get(name, name)
    return texts.replace(name_by_text)


def _positive_name(positive: str) -> str:
    name = normalize_name(positive)
    return BOOLEAN_LABELS.get(name, name)


def _are_unjudged(column: pl.Series, positive: str) -> pl.Series:
    """Return whether each label looks as if its row was not judged, if there are more than two labels."""
    names = _label_names(column)
    others = [name for name in names.unique().drop_nulls() if name != _positive_name(positive)]
    unjudged = [name for name in others if looks_unjudged(name)]
    if len(others) < 2 and all(UNJUDGED_NUMBER.fullmatch(name) for name in others):
        unjudged = []  # such as the labels -1 and 1
    return names.is_in(unjudged)


def _read_two_labels(column: pl.Series, positive: str, rows: FileRows) -> np.ndarray:
    """Return whether each row has the positive label; exactly one other label is allowed.

    Returns:
        Shape (n,), bool.

    Raises:
        InputError: No row has the positive label, or there are several other labels, of which some may mean that the
            row was not judged.
    """
    names = _label_names(column)
    is_positive = names == _positive_name(positive)
    counts = names.value_counts(sort=True).rows()
    shown = join_names([f"{name} ({count:,})" for name, count in counts])
    if not is_positive.any():
        raise InputError(
            f"{rows.file}: no row has the label {positive!r} of {option('positive')}; {column.name} has {shown}"
        )
    unjudged = _are_unjudged(column, positive)
    judged = [name for name, _ in counts if name != _positive_name(positive) and not looks_unjudged(name)]
    negative = judged[0] if judged else None
    texts = label_texts(column)

    def describe(row: int) -> str:
        remedy = "; write each label as one of two, or omit the row"
        if unjudged[row]:
            omit = assignment("drop_unlabelled", True)
            remedy = f"{advise_unjudged(texts[row])}; {omit} omits such rows"
        return (
            f"{column.name} is {show_text(texts[row])}, but a threshold needs exactly two labels; {column.name} has "
            f"{shown}{remedy}"
        )

    is_other = unjudged if len(judged) < 2 else ~is_positive & (names != negative)
    rows.reject(is_other, describe)
    return is_positive.to_numpy()


def _check_input(
    score: np.ndarray,
    positive: np.ndarray,
    groups: np.ndarray | None,
    targets: dict[Metric, float],
    confidence_level: float,
) -> None:
    """Raise InputError for arrays, targets or a confidence level that cannot be used."""
    if not targets:
        raise InputError("give a target: a precision, a recall or an npv, such as 0.95")
    for name, value in (*targets.items(), ("confidence_level", confidence_level)):
        if not 0 < value < 1:
            raise InputError(f"{name} is {value}; give a number above 0 and below 1, such as 0.95")
    if score.ndim != 1 or positive.shape != score.shape or positive.dtype != np.bool_:
        raise InputError(f"score and positive must be (n,), positive bool; they are {score.shape} and {positive.shape}")
    if groups is not None and np.shape(groups) != score.shape:
        raise InputError(f"groups must have the shape of score, {score.shape}; it is {np.shape(groups)}")
    if not np.isfinite(score).all():
        raise InputError("score has values that are not finite; drop or fill these rows")
    if positive.all() or not positive.any():
        raise InputError("all rows are of one kind; give positive and negative rows")
