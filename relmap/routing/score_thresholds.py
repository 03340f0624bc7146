"""Thresholds on a raw score, or on the probability of one label, with guaranteed precision, recall or NPV.

A quarter of the rows (or groups) fixes the candidate thresholds. The others test them, so that the guarantee holds for
the threshold that is chosen: Learn then Test (Angelopoulos et al., 2021) with the fallback procedure (Wiens, 2003).
Independent rows give exact binomial p-values. Groups give p-values by betting (Waudby-Smith and Ramdas, 2024) on group
means. Every row of a group counts. A rate is then the mean over groups of the rate in a group (macro average), over
groups where it is defined. No bound on the size of groups is assumed, which the rate of pooled rows would need.
"""

import math
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import polars as pl
import scipy

from relmap.errors import InputError
from relmap.io.columns import TRUTH, listed, numbers, shares, unlabelled
from relmap.io.files import Predictions, columns_of, notes_on, rows_of
from relmap.io.reading import WEIGHT
from relmap.options import assignment, option
from relmap.routing.thresholds import MORE_ROWS, rejected_in_turn

PLANNING_SHARE = 0.25
N_CANDIDATES = 100
MIN_UNITS = 8  # independent rows or groups
N_BETS = 24
N_CURVE_POINTS = 400
SIGNIFICANT_DIGITS = 6
Metric = Literal["precision", "recall", "npv"]
NAMES: dict[Metric, str] = {"precision": "precision", "recall": "recall", "npv": "negative predictive value"}
MEANINGS: dict[Metric, str] = {
    "precision": "of the rows at or above it are positive",
    "recall": "of the positive rows are at or above it",
    "npv": "of the rows below it are negative",
}


@dataclass(frozen=True, kw_only=True)
class ScoreThreshold:
    """A threshold for one target, and what the labelled rows show there.

    Attributes:
        metric: precision, recall or npv (negative predictive value).
        target: The guaranteed rate, in (0, 1).
        threshold: In units of the score, or None without a threshold. Rows at or above it count as positive.
        covered: Number of labelled rows at or above the threshold (precision, recall) or below it (npv).
        observed: The rate on all labelled rows; with groups, the mean of the rates of groups.
        advice: Why there is no threshold, and what would give one.
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
        confidence: Probability, over samples of labelled rows, that all thresholds keep their targets.
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
        """Return plain numbers and words, ready for JSON."""
        return {
            "confidence": self.confidence,
            "rows": self.rows,
            "groups": self.groups,
            "positives": self.positives,
            "thresholds": [asdict(each) for each in self.thresholds],
            "review": None if self.review is None else list(self.review),
            "review_rows": self.review_rows,
            "curve": self.curve.to_dict(as_series=False),
        }

    def in_words(self) -> list[str]:
        """Return the thresholds, their guarantee and the review band in sentences."""
        lines = []
        for found in self.thresholds:
            name = NAMES[found.metric]
            target = f"{name} of {100 * found.target:g}%"
            if found.threshold is None:
                lines.append(f"No threshold for a {target}.")
                lines += found.advice
                continue
            side = "below it" if found.metric == "npv" else "at or above it"
            lines.append(
                f"Threshold {found.threshold:g} for a {target}: {found.covered:,} of {self.rows:,} labelled rows "
                f"({found.covered / self.rows:.1%}) are {side}. Observed {name}: {found.observed:.1%}."
            )
        valid = [found for found in self.thresholds if found.threshold is not None]
        if valid:
            claims = "; ".join(f"at least {100 * each.target:g}% {MEANINGS[each.metric]}" for each in valid)
            together = "all of these hold: " if len(valid) > 1 else ""
            drawn = "groups" if self.groups is not None else "rows"
            lines.append(
                f"With {100 * self.confidence:g}% confidence {together}{claims}, if new {drawn} are like these and "
                "drawn independently."
            )
        if self.groups is not None:
            lines.append(
                f"All rows of the {self.groups:,} groups are used. A rate is the mean of the rates of groups "
                "(macro average), so large groups count as much as small groups. "
                "Groups where a rate is undefined do not count in it."
            )
        if self.review is not None:
            low, high = self.review
            lines.append(
                f"Review scores from {low:g} to below {high:g}: {self.review_rows:,} of {self.rows:,} labelled rows "
                f"({self.review_rows / self.rows:.1%}). Treat lower scores as negative and higher scores as positive."
                if low < high
                else f"No row needs a review: {high:g} separates negative from positive rows."
            )
        return lines


def find_score_thresholds(
    score: np.ndarray,
    positive: np.ndarray,
    *,
    groups: np.ndarray | None = None,
    precision: float | None = None,
    recall: float | None = None,
    npv: float | None = None,
    confidence: float = 0.95,
    seed: int = 1,
) -> ScoreThresholds:
    """Find thresholds on a score with guaranteed precision, recall or negative predictive value.

    A precision and a recall that are asked for together share one threshold if one has both; then both results have
    the same threshold. Otherwise each has its own.

    Args:
        score: Scores, shape (n,), finite; higher is more likely positive.
        positive: Whether each row is positive, shape (n,), bool.
        groups: Group of each row, shape (n,), or None for independent rows.
        precision: Target in (0, 1), or None.
        recall: Target in (0, 1), or None.
        npv: Target in (0, 1), or None.
        confidence: Probability, in (0, 1), that all guarantees hold together.
        seed: Seed of the split between planning and testing.

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
    targets: dict[Metric, float | None] = {"precision": precision, "recall": recall, "npv": npv}
    given = {metric: target for metric, target in targets.items() if target is not None}
    _check_input(score, positive, groups, given, confidence)
    code = np.arange(len(score)) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    n_units = int(code.max()) + 1
    if n_units < MIN_UNITS:
        what = "rows" if groups is None else "groups"
        raise InputError(f"{n_units} labelled {what} are too few for a threshold; give at least {MIN_UNITS}")
    order = np.random.default_rng(seed).permutation(n_units)
    n_planning = max(2, round(PLANNING_SHARE * n_units))
    rank = np.empty(n_units, dtype=np.int64)
    rank[order] = np.arange(n_units)
    is_planning = rank[code] < n_planning
    candidates = _candidates(score[is_planning])
    test = ~is_planning
    level = (1 - confidence) / len(given)
    accepted: dict[Metric, np.ndarray] = {}
    advice: dict[Metric, tuple[str, ...]] = {}
    for metric, target in given.items():
        shares_of_level = _shares(metric, target, candidates, score[is_planning], positive[is_planning])
        unit = rank[code[test]] - n_planning
        trial = _Trial(metric, candidates, score[test], positive[test], unit, groups is not None)
        accepted[metric] = trial.accepted(target, level, shares_of_level)
        if not accepted[metric].any():
            unit_name = "rows" if groups is None else "groups"
            advice[metric] = _advice(trial, target, level, shares_of_level, unit_name, n_units)
    chosen = _choose(accepted)
    found = []
    for metric, target in given.items():
        if metric not in chosen:
            why = advice.get(metric, ())
            found.append(ScoreThreshold(metric=metric, target=target, threshold=None, advice=why))
            continue
        threshold = float(candidates[chosen[metric]])
        selected = score < threshold if metric == "npv" else score >= threshold
        found.append(
            ScoreThreshold(
                metric=metric,
                target=target,
                threshold=threshold,
                covered=int(selected.sum()),
                observed=_observed(metric, score, positive, threshold, code, groups is not None),
            )
        )
    low_metric: Metric = "npv" if "npv" in given else "recall"
    review, review_rows = None, 0
    if "precision" in chosen and low_metric in chosen:
        high = float(candidates[chosen["precision"]])
        low = min(float(candidates[chosen[low_metric]]), high)
        review = (low, high)
        review_rows = int(((score >= low) & (score < high)).sum())
    return ScoreThresholds(
        confidence=confidence,
        rows=len(score),
        groups=None if groups is None else n_units,
        positives=int(positive.sum()),
        thresholds=tuple(found),
        review=review,
        review_rows=review_rows,
        curve=_curve(score, positive),
    )


def read_score(
    file: Predictions, *, positive: str, group: str | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, list[str]]:
    """Read the score, whether each row is positive, and its group.

    Args:
        file: Labelled predictions; its reading names the column of the score or of the probability.
        positive: The label that counts as positive, as text.
        group: Column of groups, or None.

    Returns:
        Scores (n,) float64, positive (n,) bool, groups (n,) text or None, and notes for the user.

    Raises:
        InputError: A missing column, a value that cannot be read, sampling weights, or an unknown positive label.
    """
    reading, path = file.reading, file.path
    column = reading.score or reading.probability
    if column is None:
        raise InputError(
            f"name the column of the score: {assignment('score', 'COLUMN')}, or {assignment('probability', 'COLUMN')}"
        )
    if WEIGHT in file.schema.names:
        raise InputError(
            f"{path} has sampling weights in {WEIGHT}: thresholds on a score need rows that were all as likely to be "
            f"drawn. Give such rows, without the column {WEIGHT}"
        )
    label = reading.label or "label"
    names = [column, label] if group is None else [column, label, group]
    if len(set(names)) < len(names):
        raise InputError(f"{path}: score, label and group must be different columns; they are {listed(names)}")
    frame, rows = columns_of(file, names), rows_of(file)
    notes = notes_on(file)
    if reading.drop_unlabelled:
        missing = unlabelled(frame[label])
        frame, rows = frame.filter(~pl.Series(missing)), rows.without(missing)
        notes = [*notes, f"{int(missing.sum()):,} rows without a label are dropped."]
    without_label = f"{label} is missing; drop or label the row, or give {assignment('drop_unlabelled', True)}"
    rows.refuse(unlabelled(frame[label]), lambda _: without_label)
    score = numbers(frame[column], rows) if reading.score else shares(frame[column], rows, reading)
    rows.refuse(~np.isfinite(score), lambda row: f"{column} is {score[row]}; it must be finite")
    is_positive = _is_label(frame[label], positive)
    if not is_positive.any():
        seen = [str(value) for value in frame[label].unique().sort().head(6)]
        raise InputError(
            f"{path}: no row has the label {positive!r} of {option('positive')}; {label} has {listed(seen)}"
        )
    groups = None
    if group is not None:
        rows.refuse_missing(frame[group])
        groups = frame[group].cast(pl.String).to_numpy()
    return score, is_positive, groups, notes


@dataclass(frozen=True, eq=False)
class _Trial:
    """Labelled rows that test candidate thresholds for one metric."""

    metric: Metric
    candidates: np.ndarray  # (C,) rising
    score: np.ndarray
    positive: np.ndarray
    unit: np.ndarray  # (n,) int, number of the independent unit, in random order
    grouped: bool

    def accepted(self, target: float, level: float, shares: np.ndarray, times: int = 1) -> np.ndarray:
        """Return the candidates with a guarantee, (C,) bool; `times` repeats the rows, to plan a larger sample."""
        p_values = self.p_values(target, times)
        # few selected rows come first: high thresholds for the precision, low ones for npv; recall starts where it is 1
        forward = slice(None, None, -1) if self.metric == "precision" else slice(None)
        rejected = rejected_in_turn(p_values[forward], level * shares[forward])
        return np.asarray(rejected[forward] > 0)

    def p_values(self, target: float, times: int = 1) -> np.ndarray:
        """Return p-values (C,) of the hypotheses that the rate is at most the target."""
        values = []
        for candidate in self.candidates:
            counted, good = _counted(self.metric, self.score, self.positive, float(candidate))
            if not self.grouped:
                n = times * int(counted.sum())
                errors = n - times * int((counted & good).sum())
                values.append(float(scipy.special.bdtr(errors, n, 1 - target)) if n else 1.0)
                continue
            size = np.bincount(self.unit, counted)
            right = np.bincount(self.unit, counted & good)
            payoff = right[size > 0] / size[size > 0] - target
            values.append(betting_p_value(np.tile(payoff, times), target))
        return np.array(values)


def betting_p_value(payoff: np.ndarray, lowest: float) -> float:
    """Return a p-value of the hypothesis that independent payoffs have a mean of at most 0.

    The capital of a bettor, the mean over fixed bets b of prod(1 + b * payoff), is a nonnegative supermartingale under
    the hypothesis. By Ville's inequality its maximum exceeds 1/p with a probability of at most p.

    Args:
        payoff: Shape (g,), each at least `-lowest`, in an order that does not depend on the values.
        lowest: Above 0.

    Returns:
        The p-value, in (0, 1].
    """
    bets = np.geomspace(0.01, 0.98, N_BETS) / lowest
    log_capital = np.cumsum(np.log1p(payoff[:, None] * bets), axis=0)
    log_mixture = scipy.special.logsumexp(log_capital, axis=1) - math.log(N_BETS)
    return float(np.exp(-max(0.0, log_mixture.max(initial=0.0))))


def _counted(
    metric: Metric, score: np.ndarray, positive: np.ndarray, threshold: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows in the denominator of a rate, and the rows that are right, each (n,) bool."""
    above = score >= threshold
    if metric == "precision":
        return above, positive
    if metric == "recall":
        return positive, above
    return ~above, ~positive


def _shares(
    metric: Metric, target: float, candidates: np.ndarray, score: np.ndarray, positive: np.ndarray
) -> np.ndarray:
    """Return the share (C,) of the error level that each candidate starts with, from the planning rows.

    Recall falls with the threshold, so one sequence from the lowest candidate has the whole level. Precision and NPV
    may rise and fall: half starts at the candidate with the most evidence, half at every tenth candidate.
    """
    shares = np.zeros(len(candidates))
    if metric == "recall":
        shares[0] = 1
        return shares
    evidence = np.zeros(len(candidates))
    for i, candidate in enumerate(candidates):
        counted, good = _counted(metric, score, positive, float(candidate))
        n = counted.sum()
        evidence[i] = ((counted & good).sum() + target - target * (n + 1)) / math.sqrt(n + 1)
    starts = np.unique(np.linspace(0, len(candidates) - 1, min(10, len(candidates))).astype(int))
    shares[starts] = 0.5 / len(starts)
    shares[evidence.argmax()] += 0.5
    return shares


def _candidates(score: np.ndarray) -> np.ndarray:
    """Return at most 100 rising thresholds, quantiles of the planning scores with six significant digits."""
    quantiles = np.quantile(score, np.linspace(0, 1, N_CANDIDATES), method="inverted_cdf")
    return np.unique([float(f"{value:.{SIGNIFICANT_DIGITS}g}") for value in quantiles])


def _choose(accepted: dict[Metric, np.ndarray]) -> dict[Metric, int]:
    """Return the chosen candidate of each metric: the most rows covered, and no overlap of negative and positive."""
    chosen: dict[Metric, int] = {}
    places = {metric: np.flatnonzero(of_metric) for metric, of_metric in accepted.items()}
    if len(places.get("precision", ())):
        chosen["precision"] = int(places["precision"][0])
    if len(places.get("recall", ())):
        chosen["recall"] = int(places["recall"][-1])
    if "precision" in chosen and "recall" in chosen:
        both = np.intersect1d(places["precision"], places["recall"])
        if len(both):
            chosen["precision"] = chosen["recall"] = int(both[0])
    if len(places.get("npv", ())):
        below = places["npv"]
        if "precision" in chosen:
            below = below[below <= chosen["precision"]]
        if len(below):
            chosen["npv"] = int(below[-1])
    return chosen


def _advice(
    trial: _Trial, target: float, level: float, shares: np.ndarray, unit_name: str, n_units: int
) -> tuple[str, ...]:
    """Return the highest target with a threshold, and how many rows or groups would suffice."""

    def find(rate: float, times: int) -> bool:
        return bool(trial.accepted(rate, level, shares, times).any())

    lines = []
    percents = range(math.ceil(100 * target) - 1, 0, -1)
    highest = next((percent for percent in percents if find(percent / 100, 1)), None)
    if highest is not None:
        lines.append(f"The highest {NAMES[trial.metric]} for which these rows have a threshold is {highest}%.")
    times = next((times for times in MORE_ROWS if find(target, times)), None)
    if times is not None:
        lines.append(f"About {times * n_units:,} {unit_name} like these would suffice; there are {n_units:,}.")
    else:
        lines.append(f"Even {MORE_ROWS[-1]} times as many {unit_name} like these would not suffice.")
    return tuple(lines)


def _observed(
    metric: Metric, score: np.ndarray, positive: np.ndarray, threshold: float, unit: np.ndarray, grouped: bool
) -> float | None:
    """Return the rate at a threshold, with groups its mean over groups; None where it is undefined."""
    counted, good = _counted(metric, score, positive, threshold)
    if not counted.any():
        return None
    if not grouped:
        return float(good[counted].mean())
    size = np.bincount(unit, counted)
    right = np.bincount(unit, counted & good)
    return float((right[size > 0] / size[size > 0]).mean())


def _curve(score: np.ndarray, positive: np.ndarray) -> pl.DataFrame:
    """Return the precision-recall curve, of pooled rows, at most 400 points, one for each distinct score."""
    order = np.argsort(-score, kind="stable")
    true_positives = np.cumsum(positive[order])
    selected = np.arange(1, len(score) + 1)
    last = np.flatnonzero(np.r_[np.diff(score[order]) != 0, True])
    if len(last) > N_CURVE_POINTS:
        last = last[np.linspace(0, len(last) - 1, N_CURVE_POINTS).astype(int)]
    return pl.DataFrame(
        {
            "threshold": score[order][last],
            "recall": true_positives[last] / true_positives[-1],
            "precision": true_positives[last] / selected[last],
        }
    )


def _is_label(column: pl.Series, positive: str) -> np.ndarray:
    """Return where a column of labels has the label that a text names, (n,) bool; 1, 1.0 and true match as numbers."""
    text = positive.strip()
    matches = column.cast(pl.String).str.strip_chars() == text
    if column.dtype.is_numeric() or column.dtype in (pl.String, pl.Boolean):
        as_number = pl.Series([TRUTH.get(text.lower(), text)]).cast(pl.Float64, strict=False)[0]
        if as_number is not None:
            matches = matches | (column.cast(pl.Float64, strict=False) == as_number).fill_null(False)
    return matches.to_numpy()


def _check_input(
    score: np.ndarray,
    positive: np.ndarray,
    groups: np.ndarray | None,
    targets: dict[Metric, float],
    confidence: float,
) -> None:
    """Raise InputError for arrays, targets or a confidence that cannot be used."""
    if not targets:
        raise InputError("give a target: a precision, a recall or an npv, such as 0.95")
    for name, value in (*targets.items(), ("confidence", confidence)):
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
