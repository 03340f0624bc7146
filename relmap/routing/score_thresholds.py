"""Thresholds on a raw score, or on the probability of one label, with guaranteed precision, recall or NPV.

The candidate thresholds are computed from a quarter of the rows (or groups) and tested on the other rows, so that the
guarantee holds for the threshold that is chosen: Learn then Test (Angelopoulos et al., 2021) with the fallback
procedure (Wiens, 2003). Without groups, rows are independent and p-values are exact (binomial).

With groups, all rows of a group are used. A rate, such as the precision, is computed in each group where it is defined,
and averaged over these groups (macro average). Its p-values are computed by betting (Waudby-Smith and Ramdas, 2024).
This needs no bound on the size of groups; the rate of pooled rows would need one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from relmap.errors import InputError, assignment, option
from relmap.io.columns import (
    BOOLEAN_LABELS,
    UNJUDGED_NUMBER,
    FileRows,
    advise_unjudged,
    join_names,
    label_texts,
    looks_unjudged,
    read_numbers,
    read_probabilities,
    reject_missing_labels,
    show_text,
)
from relmap.io.files import Predictions, read_columns, reading_notes, rows_in_file
from relmap.io.reading import WEIGHT_COLUMN, normalize_name, require_column
from relmap.io.unlabelled import find_omitted_rows
from relmap.metrics.intervals import binomial_p_value
from relmap.routing.group_tests import betting_p_value
from relmap.routing.thresholds import SAMPLE_SIZE_FACTORS, reject_in_order

PLANNING_SHARE = 0.25  # share of the rows or groups from which the candidates are computed
N_CANDIDATES = 100
MIN_UNITS = 8  # independent rows or groups
N_CURVE_POINTS = 400
SIGNIFICANT_DIGITS = 6  # of a threshold
MAX_LISTED_LABELS = 6
Metric = Literal["precision", "recall", "npv"]
METRIC_NAMES: dict[Metric, str] = {"precision": "precision", "recall": "recall", "npv": "negative predictive value"}
METRIC_MEANINGS: dict[Metric, str] = {  # with the threshold in place of the braces
    "precision": "of the rows at or above {:g} are positive",
    "recall": "of the positive rows are at or above {:g}",
    "npv": "of the rows below {:g} are negative",
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

    def to_dict(self) -> dict[str, object]:
        """Convert the thresholds for JSON."""
        return {
            "confidence": self.confidence,
            "rows": self.rows,
            "groups": self.groups,
            "positives": self.positives,
            "thresholds": [asdict(result) for result in self.thresholds],
            "review": None if self.review is None else list(self.review),
            "review_rows": self.review_rows,
            "curve": self.curve.to_dict(as_series=False),
        }

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
                meaning = METRIC_MEANINGS[result.metric].format(result.threshold)
                guarantees.append(f"at least {100 * result.target:g}% {meaning}")
        if guarantees:
            lines.append(self._describe_guarantees(guarantees))
        if self.groups is not None:
            lines.append(
                f"All rows of the {self.groups:,} groups are used. A rate is the mean of the rates of groups "
                "(macro average), so large groups count as much as small groups. "
                "Groups where a rate is undefined do not count in it."
            )
        if self.review is not None:
            lines.append(self._describe_review(*self.review))
        return lines

    def _describe_threshold(self, result: ScoreThreshold) -> list[str]:
        name = METRIC_NAMES[result.metric]
        target = f"{name} of {100 * result.target:g}%"
        if result.threshold is None:
            return [f"No threshold for a {target}.", *result.advice]
        side = "below it" if result.metric == "npv" else "at or above it"
        return [
            f"Threshold {result.threshold:g} for a {target}: {result.covered:,} of {self.rows:,} labelled rows "
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
        if low == high:
            return f"No row needs a review: {high:g} separates negative from positive rows."
        return (
            f"Review scores from {low:g} to below {high:g}: {self.review_rows:,} of {self.rows:,} labelled rows "
            f"({self.review_rows / self.rows:.1%}). Treat lower scores as negative and higher scores as positive."
        )


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
    score = np.asarray(score, dtype=np.float64)
    positive = np.asarray(positive)
    requested: dict[Metric, float | None] = {"precision": precision, "recall": recall, "npv": npv}
    targets = {metric: target for metric, target in requested.items() if target is not None}
    _check_input(score, positive, groups, targets, confidence_level)
    rows = _LabelledScores(score, positive, _unit_codes(score, groups), is_grouped=groups is not None)
    split = _split_rows(rows, seed)
    candidates = _candidate_thresholds(split.planning.score)
    level = (1 - confidence_level) / len(targets)
    accepted: dict[Metric, np.ndarray] = {}
    advice: dict[Metric, tuple[str, ...]] = {}
    for metric, target in targets.items():
        level_shares = _level_shares(metric, target, candidates, split.planning)
        test = _CandidateTest(metric, candidates, split.test)
        accepted[metric] = test.find_accepted(target, level, level_shares)
        if not accepted[metric].any():
            advice[metric] = _advise(test, target, level, level_shares, rows)
    chosen = {metric: float(candidates[index]) for metric, index in _choose(accepted).items()}
    thresholds = [
        _measure_threshold(rows, metric, target, chosen.get(metric), advice.get(metric, ()))
        for metric, target in targets.items()
    ]
    review = _review_band(chosen, "npv" if "npv" in targets else "recall")
    n_review_rows = 0
    if review is not None:
        n_review_rows = int(((score >= review[0]) & (score < review[1])).sum())
    return ScoreThresholds(
        confidence=confidence_level,
        rows=len(score),
        groups=rows.n_units if rows.is_grouped else None,
        positives=int(positive.sum()),
        thresholds=tuple(thresholds),
        review=review,
        review_rows=n_review_rows,
        curve=_precision_recall_curve(score, positive),
    )


class ScoreRows(NamedTuple):
    """Labelled rows with a score, as read from a file.

    Attributes:
        score: Shape (n,), float64.
        positive: Whether each row is positive, shape (n,), bool.
        groups: Group of each row, shape (n,), text; None without groups.
        notes: Sentences for the user.
    """

    score: np.ndarray
    positive: np.ndarray
    groups: np.ndarray | None
    notes: list[str]


def read_score(file: Predictions, *, positive: str, group: str | None = None) -> ScoreRows:
    """Read the score, whether each row is positive, and its group.

    Args:
        file: Labelled predictions; its reading names the column of the score or of the probability.
        positive: Name of the positive label; there must be exactly one other label.
        group: Column of groups, or None.

    Returns:
        The rows, and notes for the user.

    Raises:
        InputError: A column is missing, a value cannot be read, the rows have sampling weights, or no row has the
            positive label.
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
    notes = reading_notes(file)
    advice = f"drop or label the row, or give {assignment('drop_unlabelled', True)}"
    if reading.drop_unlabelled:
        omitted = find_omitted_rows(frame, label, [positive], n_labels=2, scores=[score_column], words=reading.words)
        notes += omitted.notes
        frame = frame.filter(~omitted.is_omitted)
        rows = rows.without(omitted.is_omitted.to_numpy())
    reject_missing_labels(frame[label], rows, [positive], advice, can_name_labels=False)
    score = (
        read_numbers(frame[score_column], rows)
        if reading.score
        else read_probabilities(frame[score_column], rows, reading)
    )
    rows.reject(~np.isfinite(score), lambda row: f"{score_column} is {score[row]}; it must be finite")
    is_positive = _read_two_labels(frame[label], positive, rows)
    groups = None
    if group is not None:
        rows.reject_missing(frame[group])
        groups = frame[group].cast(pl.String).to_numpy()
    return ScoreRows(score=score, positive=is_positive, groups=groups, notes=notes)


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
        for candidate in self.candidates:
            rate = _rate_at(self.metric, self.rows, float(candidate))
            if self.rows.is_grouped:
                payoff = rate.by_unit(self.rows.unit) - target
                values.append(betting_p_value(np.tile(payoff, factor), target))
            else:
                n_rows = factor * int(rate.counted.sum())
                n_errors = n_rows - factor * int((rate.counted & rate.successful).sum())
                values.append(float(binomial_p_value(n_errors, n_rows, target)) if n_rows else 1.0)
        return np.array(values)


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
    n_planning = max(2, round(PLANNING_SHARE * n_units))
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


def _level_shares(metric: Metric, target: float, candidates: np.ndarray, planning: _LabelledScores) -> np.ndarray:
    """Return the share of the error level that each candidate starts with, shape (C,).

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
        n_rows = rate.counted.sum()
        n_successful = (rate.counted & rate.successful).sum()
        evidence[i] = (n_successful + target - target * (n_rows + 1)) / math.sqrt(n_rows + 1)
    starts = np.unique(np.linspace(0, len(candidates) - 1, min(10, len(candidates))).astype(int))
    shares[starts] = 0.5 / len(starts)
    shares[evidence.argmax()] += 0.5
    return shares


def _candidate_thresholds(score: np.ndarray) -> np.ndarray:
    """Return at most 100 increasing thresholds: quantiles of the planning scores, to six significant digits."""
    quantiles = np.quantile(score, np.linspace(0, 1, N_CANDIDATES), method="inverted_cdf")
    return np.unique([float(f"{value:.{SIGNIFICANT_DIGITS}g}") for value in quantiles])


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
    test: _CandidateTest, target: float, level: float, level_shares: np.ndarray, rows: _LabelledScores
) -> tuple[str, ...]:
    """Suggest the highest target that has a threshold, and the number of rows or groups that would suffice."""
    advice = []
    for percent in range(math.ceil(100 * target) - 1, 0, -1):
        if test.find_accepted(percent / 100, level, level_shares).any():
            name = METRIC_NAMES[test.metric]
            advice.append(f"The highest {name} for which these rows have a threshold is {percent}%.")
            break
    for factor in SAMPLE_SIZE_FACTORS:
        if test.find_accepted(target, level, level_shares, factor).any():
            advice.append(
                f"About {factor * rows.n_units:,} {rows.unit_name} like these would suffice; there are "
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
    return names.is_in(unjudged).fill_null(False)


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
    shown = [f"{name} ({count:,})" for name, count in counts[:MAX_LISTED_LABELS]]
    if not is_positive.any():
        raise InputError(
            f"{rows.file}: no row has the label {positive!r} of {option('positive')}; {column.name} has "
            f"{join_names(shown)}"
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
            f"{', '.join(shown)}{remedy}"
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
