"""Find or validate thresholds on the reliability, at or above which decisions are used without a review.

The guarantees need neither a model nor large samples, only labelled rows that were not used to fit the map, and that
are independent and from the same distribution as new rows. Rows of one group are dependent: then groups must be
independent, every row is used, and p-values and bounds are those of `relmap.routing.group_tests`.

For a target accuracy, thresholds are chosen by Learn then Test (Angelopoulos et al., 2021). Each threshold of a grid,
which depends only on the map, is a hypothesis: "the accuracy of the decisions at or above it is below the target". Its
p-value without groups is exact (binomial; Clopper and Pearson, 1934). The fallback procedure (Wiens, 2003) tests the
hypotheses in order, from high thresholds to low ones.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from relmap.decisions import FixedDecisions
from relmap.errors import InputError, describe_validation_errors, option
from relmap.io.atomic import check_file
from relmap.io.columns import join_names
from relmap.io.serialization import Count, Share
from relmap.maps.document import MapDocument
from relmap.maps.options import MAX_HOLD_OUT
from relmap.metrics.intervals import binomial_lower_bound, binomial_p_value
from relmap.metrics.probability import reject_nan
from relmap.routing.group_tests import GroupRates, RowGroups, min_groups_to_reject

MIN_THRESHOLD_DECIMALS = 4
MAX_THRESHOLD_DECIMALS = 9
TIE_TOLERANCE = 1e-9  # minimum distance of a threshold from a reliability, whose last bits differ between SQL engines
MAX_LISTED_LABELS = 5
MIN_SUGGESTED_PERCENT = 30  # of the rows or groups to hold out
SUGGESTED_STEP = 5


@dataclass(frozen=True, kw_only=True)
class ThresholdEstimate:
    """A threshold on the reliability, and the accuracy of the decisions at or above it.

    Attributes:
        label: Decided label 0..K-1; None for all decisions.
        threshold: Minimum reliability in [0, 1]; 0 selects every decision. None without a valid threshold.
        n_rows: Number of labelled rows, at least 1.
        n_automatic: Number of rows at or above the threshold.
        accuracy: Accuracy of these rows; None without such rows.
        lower_bound: Lower confidence bound of the accuracy; None if it was not computed.
        reason: Why there is no threshold or no accuracy, as text; None if there are both.
    """

    label: int | None
    threshold: float | None = None
    n_rows: int
    n_automatic: int = 0
    accuracy: float | None = None
    lower_bound: float | None = None
    reason: str | None = None

    @property
    def coverage(self) -> float:
        """Share of automatic rows, in [0, 1]."""
        return self.n_automatic / self.n_rows

    def describe_rows(self) -> str:
        """Describe the automatic rows.

        Returns:
            The threshold, the number of rows and their accuracy, as a phrase.
        """
        limit = f"with a reliability of at least {self.threshold}" if self.threshold else "of any reliability"
        return f"{limit} ({self.n_automatic:,} of {self.n_rows:,} labelled rows, {self.accuracy:.1%} of them correct)"

    def as_json(self) -> dict[str, str | float | None]:
        """Convert the numbers for JSON; the label is omitted if this is the estimate for all decisions."""
        numbers: dict[str, str | float | None] = {}
        if self.label is not None:
            numbers["label"] = self.label
        numbers["cut"] = self.threshold
        numbers["rows"] = self.n_rows
        numbers["automatic"] = self.n_automatic
        numbers["accuracy"] = self.accuracy
        numbers["lower_bound"] = self.lower_bound
        numbers["why"] = self.reason
        numbers["coverage"] = self.coverage
        return numbers


@dataclass(frozen=True)
class ReliabilityThresholds:
    """A threshold for all decisions, and one for each decided label.

    The estimate for all decisions holds with the stated confidence. Separately, the estimates for all labels hold
    simultaneously with this confidence. At most one of `target`, `requested_coverage` and `chosen_threshold` is given.
    With `only_label`, there is a single estimate, for the decisions of this label, which holds with this confidence.

    Attributes:
        target: Guaranteed accuracy.
        requested_coverage: Share of automatic rows, as text.
        confidence: Confidence of the bounds, in (0, 1).
        overall: Estimate for all decisions.
        labels: Estimate for each decided label.
        advice: Sentences on what would give a threshold, if there is none for all decisions.
        chosen_threshold: Threshold that was chosen without these rows.
        n_groups: Number of groups; None for independent rows.
        only_label: The label whose decisions alone have a target; `labels` then has its estimate only.
    """

    target: float | None
    requested_coverage: str | None
    confidence: float
    overall: ThresholdEstimate
    labels: tuple[ThresholdEstimate, ...]
    advice: tuple[str, ...] = ()
    chosen_threshold: float | None = None
    n_groups: int | None = None
    only_label: int | None = None

    @property
    def has_threshold(self) -> bool:
        """Whether there is a threshold for all decisions, or for the only label."""
        estimate = self.overall if self.only_label is None else self.labels[0]
        return estimate.threshold is not None

    def as_json(self) -> dict[str, Any]:
        """Convert the thresholds for JSON; missing numbers are None."""
        return {
            "target_accuracy": self.target,
            "asked_coverage": self.requested_coverage,
            "asked_cut": self.chosen_threshold,
            "only_label": self.only_label,
            "confidence": self.confidence,
            "groups": self.n_groups,
            "overall": self.overall.as_json(),
            "labels": [estimate.as_json() for estimate in self.labels],
        }

    def describe(self, names: Sequence[str] | None = None, *, is_guaranteed: bool = True) -> list[str]:
        """Describe the thresholds and their guarantees.

        Args:
            names: Names of the labels 0..K-1; None for their numbers.
            is_guaranteed: Whether the map was fitted without these rows; otherwise the bounds are estimates.

        Returns:
            At most thirteen lines. Only the labels with the most rows are described.
        """
        if self.only_label is not None:
            only_name = names[self.only_label] if names else str(self.only_label)
            return self._describe_only_label(only_name, is_guaranteed=is_guaranteed)
        lines = [
            *self._describe_overall(is_guaranteed=is_guaranteed),
            self._describe_label_guarantee(is_guaranteed=is_guaranteed),
        ]
        most_frequent = sorted(self.labels, key=lambda estimate: -estimate.n_rows)[:MAX_LISTED_LABELS]
        for estimate in sorted(most_frequent, key=lambda estimate: estimate.label or 0):
            name = names[estimate.label or 0] if names else estimate.label
            lines.append(f"  {name}: {self._describe_label(estimate, is_guaranteed=is_guaranteed)}")
        n_omitted = len(self.labels) - len(most_frequent)
        if n_omitted:
            lines.append(f"  labels not shown: {n_omitted}")
        return lines

    def _describe_overall(self, *, is_guaranteed: bool) -> list[str]:
        overall = self.overall
        if overall.threshold is not None:
            return [
                f"Use {overall.coverage:.1%} of decisions as they are: those {overall.describe_rows()}."
                f"{self._describe_ties()}",
                *self._describe_guarantee(overall, is_guaranteed=is_guaranteed),
            ]
        if self.chosen_threshold is not None:
            return [f"The accuracy at the threshold {self.chosen_threshold} is unknown: {overall.reason}."]
        return [f"No threshold for all decisions: {overall.reason}.", *self.advice]

    def _describe_guarantee(self, estimate: ThresholdEstimate, *, is_guaranteed: bool) -> list[str]:
        """State the guarantee; on fit rows, only the estimate of the lower bound, if it is not the target."""
        if not is_guaranteed:
            if self.target is not None:
                return []
            return [f"Estimate of the lower bound of their accuracy: {self._format_bound(estimate)}."]
        unit = "rows" if self.n_groups is None else "groups"
        return [
            f"With {100 * self.confidence:g}% confidence, at least {self._format_bound(estimate)} of such decisions "
            f"are correct, if new {unit} are independent and from the same distribution."
        ]

    def _describe_only_label(self, name: str, *, is_guaranteed: bool) -> list[str]:
        """Describe the threshold of the only label that has a target."""
        (estimate,) = self.labels
        if estimate.threshold is None:
            return [f"No threshold for the decisions {name}: {estimate.reason}.", *self.advice]
        return [
            f"Use {estimate.coverage:.1%} of the decisions {name} as they are: those {estimate.describe_rows()}.",
            *self._describe_guarantee(estimate, is_guaranteed=is_guaranteed),
            f"Decisions for other labels have no threshold: `apply` with {option('cuts')} sends them to review.",
        ]

    def _describe_ties(self) -> str:
        """Explain why a requested coverage is not reached; empty if it is reached up to one row."""
        if self.requested_coverage is None:
            return ""
        n_requested = math.floor(Fraction(self.requested_coverage) * self.overall.n_rows)
        if self.overall.n_automatic >= n_requested:
            return ""
        return (
            f" The requested {100 * float(self.requested_coverage):g}% are not reached, because rows with the same "
            "reliability are selected together or not at all."
        )

    def _describe_label_guarantee(self, *, is_guaranteed: bool) -> str:
        """Introduce the lines of the labels, and state their guarantee."""
        together = ""
        if is_guaranteed:
            together = f"; with {100 * self.confidence:g}% confidence, all of these hold together"
        if self.target is None:
            return f"The same threshold for each label{together}:"
        label_thresholds = [estimate.threshold for estimate in self.labels]
        applied = ""
        if _uses_label_thresholds(self.overall.threshold, label_thresholds):
            applied = f" (`apply` uses these with {option('cuts')})"
        return f"A threshold for each label{applied}{together}:"

    def _describe_label(self, estimate: ThresholdEstimate, *, is_guaranteed: bool) -> str:
        if estimate.threshold is not None:
            found = f"{estimate.coverage:.1%} of its decisions, {estimate.describe_rows()}"
            if not is_guaranteed and self.target is not None:
                return found
            kind = "accuracy at least" if is_guaranteed else "estimated lower bound"
            return f"{found}; {kind} {self._format_bound(estimate)}"
        if self.chosen_threshold is not None:
            return str(estimate.reason)
        return f"no threshold; {estimate.reason}"

    def _format_bound(self, estimate: ThresholdEstimate) -> str:
        """Format the guaranteed accuracy in percent."""
        if self.target is not None:
            return f"{100 * self.target:g}%"
        assert estimate.lower_bound is not None
        return f"{math.floor(1000 * estimate.lower_bound) / 10:g}%"  # rounded down, so that the bound stays valid


class _StoredEstimate(BaseModel):
    """The fields of an estimate that `apply` reads."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)
    label: Count | None = None
    cut: Share | None


class _StoredThresholds(BaseModel):
    """The fields of a file of thresholds that `apply` reads."""

    map_fingerprint: str
    asked_coverage: str | None = None
    asked_cut: Share | None = None
    overall: _StoredEstimate
    labels: list[_StoredEstimate]


def read_label_thresholds(document: MapDocument, cuts: Path | Mapping[str, Any]) -> np.ndarray:
    """Read the threshold of each label from the output of `thresholds`.

    The labels get their own thresholds if every decided label has one, or if the output has no threshold for all
    decisions. Otherwise each label gets the threshold for all decisions, as it does if `thresholds` was called with a
    coverage, a threshold or costs.

    Args:
        document: The map.
        cuts: File that `thresholds` wrote, or its content.

    Returns:
        Minimum reliability of automatic rows of each label, shape (K,); infinite for a label without a threshold.

    Raises:
        InputError: The file cannot be read, belongs to another map or other labels, or has no threshold.
    """
    source = str(cuts) if isinstance(cuts, Path) else "the value of cuts"
    stored = _load_stored_thresholds(cuts, source)
    if stored.map_fingerprint != document.fingerprint:
        raise InputError(f"{source} has the thresholds of another map; run `thresholds` again with this map")
    n_labels = document.n_labels
    labels = [estimate.label for estimate in stored.labels]
    if not set(labels) <= set(range(n_labels)) or len(set(labels)) < len(labels):
        raise InputError(
            f"{source} has the labels {labels}; the labels of the map are 0 to {n_labels - 1}, each once; run "
            "`thresholds` again"
        )
    label_thresholds = {}
    if stored.asked_coverage is None and stored.asked_cut is None:
        label_thresholds = {estimate.label: estimate.cut for estimate in stored.labels}
    overall = stored.overall.cut
    if overall is None and all(threshold is None for threshold in label_thresholds.values()):
        raise InputError(f"{source} has no threshold; run `thresholds` with a lower accuracy or more rows")
    if not _uses_label_thresholds(overall, [*label_thresholds.values()]):
        return np.full(n_labels, overall)
    thresholds = np.full(n_labels, math.inf)
    for label, threshold in label_thresholds.items():
        if label is not None and threshold is not None:
            thresholds[label] = threshold
    return thresholds


def _load_stored_thresholds(cuts: Path | Mapping[str, Any], source: str) -> _StoredThresholds:
    content: object = cuts
    try:
        if isinstance(cuts, Path):
            check_file(cuts)
            content = json.loads(cuts.read_text(encoding="utf-8"))
        return _StoredThresholds.model_validate(content)
    except (OSError, ValueError, RecursionError) as error:  # no file, not UTF-8, not JSON, or other content
        if isinstance(content, Mapping) and "map_fingerprint" not in content and {"thresholds", "borders"} & {*content}:
            raise InputError(
                f"{source} has thresholds on a score, not on a reliability; {_describe_score_thresholds(content)}give "
                f"the output of `thresholds` with {option('map_file')}"
            ) from None
        reason = describe_validation_errors(error, "cuts")[0] if isinstance(error, ValidationError) else error
        raise InputError(f"{source} is not an output of `thresholds` ({reason}); run `thresholds` again") from None


class _StoredScoreThreshold(BaseModel):
    """The fields of a threshold on a score that a message repeats."""

    model_config = ConfigDict(allow_inf_nan=False)
    metric: str
    threshold: float | None


class _StoredBorder(BaseModel):
    """Thresholds on a score for one grade and those above it."""

    at_least: str = ""
    thresholds: list[_StoredScoreThreshold]


def _describe_score_thresholds(content: Mapping[str, object]) -> str:
    """Say which rows a file of thresholds on a score selects, followed by "or"; empty if it selects none."""
    listed = content.get("borders", [content])
    if not isinstance(listed, list):
        return ""
    try:
        borders = [_StoredBorder.model_validate(border) for border in listed]
    except ValidationError:
        return ""
    limits = []
    for border in borders:
        for found in border.thresholds:
            if found.metric == "precision" and found.threshold is not None:
                grade = f" for grade {border.at_least} and above" if border.at_least else ""
                limits.append(f"{found.threshold:g}{grade}")
    return f"keep rows with a score of at least {join_names(limits)} instead, or " if limits else ""


def _uses_label_thresholds(overall: float | None, label_thresholds: Sequence[float | None]) -> bool:
    """Return whether labels get their own thresholds: if each has one, or if some have and all decisions have none."""
    has_any = any(threshold is not None for threshold in label_thresholds)
    return has_any and (overall is None or None not in label_thresholds)


def round_threshold(reliability: float, observed: np.ndarray, *, up: bool = False) -> float:
    """Round a reliability to a threshold with few decimal places that ties with no observed reliability.

    The threshold has four decimal places. It has up to nine if fewer would give a tie, or if the reliability is so
    close to 0 or 1 that its distance from this end would have fewer than three significant digits.

    Args:
        reliability: Number to round, in [0, 1].
        observed: Reliabilities that the threshold must not tie with, shape (n,).
        up: Whether to round up, to a threshold above `reliability`. By default, the threshold is below.

    Returns:
        The threshold, at least 0.
    """
    distance_to_end = max(min(reliability, 1 - reliability), 10.0 ** (2 - MAX_THRESHOLD_DECIMALS))
    threshold = 0.0
    min_decimals = max(MIN_THRESHOLD_DECIMALS, 2 - math.floor(math.log10(distance_to_end)))
    for n_decimals in range(min_decimals, MAX_THRESHOLD_DECIMALS + 1):
        scale = 10**n_decimals
        if up:
            threshold = math.ceil((reliability + TIE_TOLERANCE) * scale) / scale
        else:
            threshold = max(math.floor((reliability - TIE_TOLERANCE) * scale), 0) / scale
        if not (np.abs(observed - threshold) < TIE_TOLERANCE / 2).any():
            break
    return threshold


START_INTERVAL = 5  # percent of coverage between two starting points of the fallback procedure
SAMPLE_SIZE_FACTORS = (2, 3, 4, 6, 8, 12, 16, 24, 32)  # multiples of the number of rows that the advice considers
MIN_ADVISED_PERCENT = 50  # lowest target accuracy that the advice considers


class EquallyLikelyRows(NamedTuple):
    """A sample of rows that had equal probabilities of being selected.

    Attributes:
        row_number: Increasing row numbers, shape (m,).
        notes: Sentences on how the rows were sampled.
    """

    row_number: np.ndarray
    notes: list[str]


class ThresholdGrid(NamedTuple):
    """Candidate thresholds in test order.

    Attributes:
        thresholds: Decreasing thresholds, the last one 0, shape (C,).
        level_shares: Share of the error level that each threshold starts with, shape (C,); the sum is 1.
    """

    thresholds: np.ndarray
    level_shares: np.ndarray


def find_accuracy_thresholds(
    document: MapDocument,
    reliability: np.ndarray,
    decision: np.ndarray,
    correct: np.ndarray,
    *,
    target: float,
    confidence: float = 0.95,
    groups: RowGroups | None = None,
    only_label: int | None = None,
) -> ReliabilityThresholds:
    """Find the thresholds of largest coverage that guarantee an accuracy.

    The probability that the accuracy of all selected decisions is below the target is at most 1 - confidence. The same
    holds for the probability that the accuracy of any label is below the target: the labels with enough rows share the
    error level 1 - confidence equally. Which labels have enough rows depends only on the decisions. Given the
    decisions, the rows of a label are still independent. With groups, this is not so, and all labels of the map share
    the error level.

    The guarantee of the chosen threshold is the target. `lower_bound` is the lower bound at the level at which the
    threshold was accepted (Clopper and Pearson; with groups, `GroupRates.lower_bound`). It can be above the target, but
    such a bound is valid only for a threshold that was chosen beforehand.

    With `only_label`, the decisions for this label are tested at the whole error level, and no others. So its
    threshold is never higher than with all labels.

    Args:
        document: The map.
        reliability: Reliability of labelled rows, shape (n,), in [0, 1].
        decision: Decided labels, shape (n,), int.
        correct: Whether each decision is correct, shape (n,), bool.
        target: Accuracy to guarantee, in (0, 1).
        confidence: Confidence of the guarantee, in (0, 1).
        groups: Groups of the rows; None for independent rows.
        only_label: Label 0..K-1 whose decisions alone get a threshold; None for all decisions and each label.

    Returns:
        A threshold for all decisions and for each decided label, or the reason why there is none.

    Raises:
        InputError: `target` or `confidence` is out of range, or there is no row, or none whose decision is the only
            label.
    """
    _check_input(reliability, confidence)
    if not 0 < target < 1:
        raise InputError(f"no threshold guarantees an accuracy of {target}; give one above 0 and below 1, such as 0.95")
    if only_label is not None:
        is_of_label = decision == only_label
        if not is_of_label.any():
            name = document.shown_names[only_label]
            raise InputError(f"no decision of the labelled rows is {name}; give rows with such decisions")
        found = find_accuracy_thresholds(
            document,
            reliability[is_of_label],
            decision[is_of_label],
            correct[is_of_label],
            target=target,
            confidence=confidence,
            groups=None if groups is None else groups.take(is_of_label),
        )
        reason = f"only decisions {document.shown_names[only_label]} have a target"
        return replace(
            found,
            overall=ThresholdEstimate(label=None, n_rows=len(reliability), reason=reason),
            labels=(replace(found.overall, label=only_label),),
            n_groups=None if groups is None else groups.n_groups,
            only_label=only_label,
        )
    grid = threshold_grid(document, target)
    counts = _count_rows(grid.thresholds, reliability, decision, correct, groups)
    levels = _levels_of_labels(counts, target, 1 - confidence, document.n_labels)
    estimates = []
    for k, label in enumerate(counts.labels):
        p_values = counts.p_values(k, target)
        search = _ThresholdSearch(
            counts=counts,
            index=k,
            label=label,
            target=target,
            level=float(levels.stated[k]),
            thresholds=grid.thresholds,
            p_values=p_values,
            accepted_at=reject_in_order(p_values, levels.tested[k] * grid.level_shares),
        )
        estimates.append(search.best_estimate())
    overall = estimates[0]
    advice: tuple[str, ...] = ()
    if overall.threshold is None:
        advice = _advise(document, counts, target, 1 - confidence)
    return ReliabilityThresholds(
        target=target,
        requested_coverage=None,
        confidence=confidence,
        overall=overall,
        labels=tuple(estimates[1:]),
        advice=advice,
        n_groups=counts.n_groups,
    )


class _LabelLevels(NamedTuple):
    """Error levels of all decisions, then of each label, shape (L + 1,).

    Attributes:
        stated: Level of the label if it is tested.
        tested: Level of the label; 0 for a label that is not tested.
    """

    stated: np.ndarray
    tested: np.ndarray


def _levels_of_labels(counts: "_RowCounts", target: float, level: float, n_labels: int) -> _LabelLevels:
    """Divide the error level equally among the labels with enough rows; with groups, among all labels of the map.

    Args:
        counts: Numbers of rows of each decided label.
        target: Accuracy to guarantee.
        level: Error level.
        n_labels: Number of labels of the map.

    Returns:
        The levels.
    """
    if counts.groups is not None:
        levels = np.r_[level, np.full(len(counts.labels) - 1, level / n_labels)]
        return _LabelLevels(stated=levels, tested=levels)
    has_enough_rows = counts.rows[1:, -1] >= min_rows_to_reject(target, level)
    label_level = level / max(1, int(has_enough_rows.sum()))
    levels = np.r_[level, np.full(len(has_enough_rows), label_level)]
    return _LabelLevels(stated=levels, tested=levels * np.r_[True, has_enough_rows])


def _advise(document: MapDocument, counts: "_RowCounts", target: float, level: float) -> tuple[str, ...]:
    """Suggest a lower accuracy, or more rows, for which there would be a threshold.

    Returns:
        Sentences.
    """

    def has_threshold(accuracy: float, factor: int) -> bool:
        # the first accepted threshold inherits no level, so only thresholds with a level of their own are tested
        shares = threshold_grid(document, accuracy).level_shares
        starts = np.flatnonzero(shares)
        for start in starts[np.argsort(-shares[starts])]:  # the threshold with the most evidence first
            if counts.p_values(0, accuracy, factor, np.array([start]))[0] <= level * shares[start]:
                return True
        return False

    unit = "rows" if counts.groups is None else "groups"
    advice = []
    for percent in range(math.ceil(100 * target) - 1, MIN_ADVISED_PERCENT - 1, -1):
        if has_threshold(percent / 100, 1):
            accepted_at = reject_in_order(
                counts.p_values(0, percent / 100), level * threshold_grid(document, percent / 100).level_shares
            )
            coverage = counts.rows[0][accepted_at > 0].max() / counts.rows[0, -1]
            n_units = len(counts.decision) if counts.n_groups is None else counts.n_groups
            advice.append(
                f"With these {n_units:,} {unit}, the highest accuracy that can be shown is {percent / 100:.0%}, "
                f"which uses {coverage:.1%} of decisions as they are."
            )
            break
    for factor in SAMPLE_SIZE_FACTORS:
        if has_threshold(target, factor):
            advice.append(f"As a rough estimate, {factor} times as many {unit} like these would suffice.")
            break
    return tuple(advice)


def find_coverage_threshold(
    reliability: np.ndarray,
    decision: np.ndarray,
    correct: np.ndarray,
    *,
    coverage: str,
    confidence: float = 0.95,
    groups: RowGroups | None = None,
) -> ReliabilityThresholds:
    """Find the threshold that selects a share of the rows, and bound the accuracy of the selected decisions.

    The lower bounds of Clopper and Pearson hold for all labels simultaneously, and separately for all decisions. They
    are exact: the threshold depends only on the largest reliability that is not selected. Given this reliability and
    the set of rows above the threshold, these rows are independent samples from the distribution above the threshold,
    even if there are ties. This would not be true for a threshold at the reliability of a selected row.

    With groups, the share is that of all rows, and the bounds are those of `GroupRates.lower_bound`. They are not exact
    then, because the threshold depends on the same groups, but valid for many groups.

    Args:
        reliability: Reliability of labelled rows, shape (n,), in [0, 1].
        decision: Decided labels, shape (n,), int.
        correct: Whether each decision is correct, shape (n,), bool.
        coverage: Maximal share of selected rows, a decimal number in (0, 1]; text, so that the share is exact.
        confidence: Confidence of the lower bounds, in (0, 1).
        groups: Groups of the rows; None for independent rows.

    Returns:
        The threshold, with accuracy and lower bound of all decisions and of each decided label.

    Raises:
        InputError: `coverage` is out of range or less than one row, `confidence` is out of range, or there is no row.
    """
    _check_input(reliability, confidence)
    if not re.fullmatch(r"0?\.\d{1,15}|1(\.0{1,15})?", coverage) or not Fraction(coverage):
        raise InputError(f"the coverage is {coverage!r}; give a number above 0 and at most 1, such as 0.7")
    n_rows = len(reliability)
    n_reviewed = n_rows - math.floor(Fraction(coverage) * n_rows)
    if n_reviewed == n_rows:
        raise InputError(
            f"a coverage of {coverage} is less than one of {n_rows:,} labelled rows; give a larger one or more rows"
        )
    threshold = 0.0
    if n_reviewed:
        largest_reviewed = np.partition(reliability, n_reviewed - 1)[n_reviewed - 1]
        threshold = round_threshold(largest_reviewed, reliability, up=True)
    counts = _count_rows(np.array([threshold, 0.0]), reliability, decision, correct, groups)
    requirement = "a reliability above the threshold; rows with equal reliability are selected together or not at all"
    estimates = _estimates_at_threshold(counts, threshold, confidence, requirement)
    return ReliabilityThresholds(
        target=None,
        requested_coverage=coverage,
        confidence=confidence,
        overall=estimates[0],
        labels=tuple(estimates[1:]),
        n_groups=counts.n_groups,
    )


def bound_accuracy(
    reliability: np.ndarray,
    decision: np.ndarray,
    correct: np.ndarray,
    *,
    threshold: float,
    confidence: float = 0.95,
    groups: RowGroups | None = None,
) -> ReliabilityThresholds:
    """Bound the accuracy of the decisions at or above a threshold that was chosen without these rows.

    The threshold is fixed before the rows are sampled, so the number of correct rows at or above it is binomial given
    their number, and the lower bounds of Clopper and Pearson (1934) are exact. With groups, the bounds are those of
    `GroupRates.lower_bound`. The bounds of the labels hold simultaneously, each at an equal share of the level;
    separately, the bound for all decisions holds at the whole level.

    Args:
        reliability: Reliability of labelled rows, shape (n,), in [0, 1].
        decision: Decided labels, shape (n,).
        correct: Whether each decision is correct, shape (n,).
        threshold: Minimum reliability of automatic rows, in [0, 1].
        confidence: Confidence of the lower bounds, in (0, 1).
        groups: Groups of the rows; None for independent rows.

    Returns:
        Automatic rows, accuracy and lower bound of all decisions and of each decided label. Without automatic rows
        there is no accuracy, and the reason is given.

    Raises:
        InputError: The threshold or the confidence is out of range, or there is no row.
    """
    _check_input(reliability, confidence)
    if not 0 <= threshold <= 1:
        raise InputError(f"the cut is {threshold}; it must be a reliability in [0, 1]")
    counts = _count_rows(np.array([threshold, 0.0]), reliability, decision, correct, groups)
    estimates = _estimates_at_threshold(counts, threshold, confidence, f"a reliability of at least {threshold}")
    return ReliabilityThresholds(
        target=None,
        requested_coverage=None,
        confidence=confidence,
        overall=estimates[0],
        labels=tuple(estimates[1:]),
        chosen_threshold=threshold,
        n_groups=counts.n_groups,
    )


def sample_equally_likely_rows(rows: FixedDecisions, seed: int) -> EquallyLikelyRows:
    """Sample rows so that all had equal probabilities of being selected, where the tests allow no weights.

    The binomial distribution does not allow weights. So rows that were sampled with unequal probabilities are retained
    with a probability proportional to their weight. The tests of groups use weights, so all rows with groups are
    retained.

    Args:
        rows: Labelled rows.
        seed: Seed of the random sample.

    Returns:
        Row numbers and notes.
    """
    if rows.weight is None or rows.group is not None:
        return EquallyLikelyRows(np.arange(len(rows)), [])
    generator = np.random.default_rng(seed)
    row_number = np.flatnonzero(generator.random(len(rows)) * rows.weight.max() < rows.weight)
    note = (
        f"A random sample of {len(row_number):,} labelled rows is used, to compensate for their unequal sampling "
        "probabilities."
    )
    return EquallyLikelyRows(row_number, [note])


def suggest_hold_out(n_units: int, target: float, level: float, *, is_grouped: bool) -> float | None:
    """Suggest a share of the rows or groups to hold out, so that a target accuracy can be shown on them.

    Args:
        n_units: Number of rows, or of groups.
        target: Accuracy, in (0, 1).
        level: Error level, in (0, 1). About half of it is that of the most promising threshold.
        is_grouped: Whether rows are in groups.

    Returns:
        The smallest multiple of 0.05, at least 0.3, with which a threshold is found if all held-out decisions are
        correct; None if there is none up to `MAX_HOLD_OUT`.
    """
    n_needed = min_groups_to_reject(target, level / 2) if is_grouped else min_rows_to_reject(target, level / 2)
    for percent in range(MIN_SUGGESTED_PERCENT, round(100 * MAX_HOLD_OUT) + 1, SUGGESTED_STEP):
        if round(percent / 100 * n_units) >= n_needed:
            return percent / 100
    return None


def min_rows_to_reject(target: float, level: float) -> int:
    """Compute the minimum number of rows that show an accuracy above a target if all of them are correct.

    Args:
        target: Accuracy, in (0, 1).
        level: Level of the binomial test, in (0, 1).

    Returns:
        The smallest n with target^n <= level.
    """
    return math.ceil(math.log(level) / math.log(target))


def reject_in_order(p_values: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Test hypotheses in order by the fallback procedure (Wiens, 2003).

    Each hypothesis is tested at its own level; if the previous hypothesis was rejected, the level at which it was
    tested is added. The probability of rejecting any true hypothesis is at most the sum of the own levels, for any
    dependence of the p-values.

    Args:
        p_values: p-values, in order along the last axis, shape (..., C).
        levels: Own level of each hypothesis, shape (..., C).

    Returns:
        Level at which each hypothesis was rejected, shape (..., C); 0 where it was not.
    """
    rejected_at = np.zeros_like(levels)
    inherited = np.zeros(levels.shape[:-1])
    for i in range(levels.shape[-1]):
        level = levels[..., i] + inherited
        inherited = np.where(p_values[..., i] <= level, level, 0)
        rejected_at[..., i] = inherited
    return rejected_at


def threshold_grid(document: MapDocument, target: float) -> ThresholdGrid:
    """Build the candidate thresholds of a map from the quantiles of its out-of-fold reliability.

    Half of the error level starts at the threshold whose expected accuracy under the map exceeds the target by the most
    standard errors, and half is divided equally among thresholds at every 5% of coverage. If no expected accuracy
    exceeds the target, the whole level is divided among the latter.

    Args:
        document: The map.
        target: Accuracy to guarantee, in (0, 1).

    Returns:
        Decreasing thresholds, and the share of the error level that starts at each.
    """
    quantiles = np.array(document.held_out.quantiles)[::-1]
    percent = np.arange(len(quantiles))
    is_start = (percent > 0) & (percent % START_INTERVAL == 0)
    shares = np.where(is_start, START_INTERVAL / 100, 0)
    evidence = (np.cumsum(quantiles) / (percent + 1) - target) * np.sqrt(percent)
    if evidence.max() > 0:
        shares = (shares + (percent == evidence.argmax())) / 2
    rounded = [round_threshold(quantile, quantiles) for quantile in quantiles[:-1]]
    increasing, position = np.unique(np.array([*rounded, 0.0]), return_inverse=True)
    return ThresholdGrid(thresholds=increasing[::-1], level_shares=np.bincount(position, weights=shares)[::-1])


@dataclass(frozen=True, eq=False)
class _RowCounts:
    """Numbers of rows and errors at or above each of C decreasing thresholds.

    Attributes:
        labels: None for all decisions, then the L decided labels.
        rows: Shape (L + 1, C), int64.
        errors: Shape (L + 1, C), int64.
        decision: Decided label of each row, shape (n,).
        correct: Whether each row is correct, shape (n,), bool.
        threshold_index: Index of the highest threshold that each row reaches, shape (n,).
        groups: Groups of the rows; None for independent rows.
    """

    labels: list[int | None]
    rows: np.ndarray
    errors: np.ndarray
    decision: np.ndarray
    correct: np.ndarray
    threshold_index: np.ndarray
    groups: RowGroups | None

    @property
    def n_groups(self) -> int | None:
        """Number of groups; None for independent rows."""
        return None if self.groups is None else self.groups.n_groups

    def units(self, k: int) -> np.ndarray:
        """Count the independent rows or groups at or above each threshold.

        Args:
            k: Index of the label in `labels`.

        Returns:
            Numbers of rows, or with groups of groups that have such rows, shape (C,).
        """
        if self.groups is None:
            return np.asarray(self.rows[k])
        n_thresholds = self.rows.shape[1]
        is_of_label = self._is_of_label(k)
        first_index = np.full(self.groups.n_groups, n_thresholds)
        np.minimum.at(first_index, self.groups.code[is_of_label], self.threshold_index[is_of_label])
        return np.cumsum(np.bincount(first_index, minlength=n_thresholds)[:n_thresholds])

    def p_values(self, k: int, target: float, factor: int = 1, columns: np.ndarray | None = None) -> np.ndarray:
        """Compute p-values of the hypotheses that the accuracy at or above thresholds is at most a target.

        Args:
            k: Index of the label in `labels`.
            target: Accuracy, in (0, 1).
            factor: How often rows or groups are repeated.
            columns: Indices of the thresholds, shape (c,); None for all.

        Returns:
            The p-values, shape (c,).
        """
        if columns is None:
            columns = np.arange(self.rows.shape[1])
        if self.groups is None:
            return binomial_p_value(factor * self.errors[k, columns], factor * self.rows[k, columns], target)
        return np.array([self._group_rates(k, int(column)).p_value(target, factor) for column in columns])

    def lower_bound(self, k: int, column: int, level: float) -> float:
        """Compute the lower bound of the accuracy at or above a threshold.

        Args:
            k: Index of the label in `labels`.
            column: Index of the threshold; there is a row at or above it.
            level: Error level, in (0, 1).

        Returns:
            The bound of Clopper and Pearson, or with groups that of `GroupRates`.
        """
        if self.groups is not None:
            return self._group_rates(k, column).lower_bound(level)
        n_errors = int(self.errors[k, column])
        return binomial_lower_bound(int(self.rows[k, column]) - n_errors, n_errors, level)

    def _group_rates(self, k: int, column: int) -> GroupRates:
        """Compute the accuracy of each group at or above a threshold."""
        assert self.groups is not None
        return self.groups.rates(self._is_of_label(k) & (self.threshold_index <= column), self.correct)

    def _is_of_label(self, k: int) -> np.ndarray:
        label = self.labels[k]
        return np.full(len(self.decision), True) if label is None else self.decision == label


def _count_rows(
    thresholds: np.ndarray,
    reliability: np.ndarray,
    decision: np.ndarray,
    correct: np.ndarray,
    groups: RowGroups | None,
) -> _RowCounts:
    """Count rows and errors at or above each threshold; the last threshold is 0."""
    labels, label_code = np.unique(decision, return_inverse=True)
    n_thresholds = len(thresholds)
    # index of the first, highest threshold that each row reaches
    threshold_index = n_thresholds - np.searchsorted(thresholds[::-1], reliability, side="right")
    cell = label_code * n_thresholds + threshold_index
    return _RowCounts(
        labels=[None, *labels.tolist()],
        rows=_cumulative_counts(cell, len(labels), n_thresholds),
        errors=_cumulative_counts(cell[~correct], len(labels), n_thresholds),
        decision=decision,
        correct=correct,
        threshold_index=threshold_index,
        groups=groups,
    )


def _cumulative_counts(cell: np.ndarray, n_labels: int, n_thresholds: int) -> np.ndarray:
    """Count the rows at or above each threshold, for all labels and for each label.

    Args:
        cell: Label * n_thresholds + index of the first threshold that the row reaches, shape (n,).
        n_labels: Number of labels.
        n_thresholds: Number of decreasing thresholds.

    Returns:
        Shape (n_labels + 1, n_thresholds); the first row is for all labels.
    """
    counts = np.bincount(cell, minlength=n_labels * n_thresholds).reshape(n_labels, n_thresholds)
    return np.asarray(np.concatenate([counts.sum(axis=0, keepdims=True), counts]).cumsum(axis=1))


@dataclass(frozen=True, eq=False)
class _ThresholdSearch:
    """Test results of the decisions of one label, or of all decisions, at C thresholds.

    Attributes:
        counts: Numbers of rows and errors at or above each threshold.
        index: Index of the label in `counts.labels`.
        label: The decided label; None for all.
        target: Accuracy to guarantee.
        level: Error level of the label.
        thresholds: Decreasing thresholds, shape (C,).
        p_values: p-value of each threshold, shape (C,).
        accepted_at: Level at which each threshold was accepted, shape (C,); 0 where it was not.
    """

    counts: _RowCounts
    index: int
    label: int | None
    target: float
    level: float
    thresholds: np.ndarray
    p_values: np.ndarray
    accepted_at: np.ndarray

    def best_estimate(self) -> ThresholdEstimate:
        """Return the accepted threshold of largest coverage, or the reason why there is none."""
        if not self.accepted_at.any():
            n_rows = int(self.counts.rows[self.index, -1])
            return ThresholdEstimate(label=self.label, n_rows=n_rows, reason=self._reason())
        best = int(np.flatnonzero(self.accepted_at)[-1])
        return _estimate_accuracy(
            self.counts, self.index, best, threshold=float(self.thresholds[best]), level=float(self.accepted_at[best])
        )

    def _reason(self) -> str:
        """Explain why no threshold was accepted."""
        rows = self.counts.rows[self.index]
        n_units = self.counts.units(self.index)
        if self.counts.groups is None:
            unit = "rows"
            n_needed = min_rows_to_reject(self.target, self.level)
        else:
            unit = "groups"
            n_needed = min_groups_to_reject(self.target, self.level)
        if n_units[-1] < n_needed:
            return f"{n_units[-1]:,} {unit} are too few; {n_needed:,} are needed even if all are correct"
        closest = int(np.where(n_units >= n_needed, self.p_values, np.inf).argmin())
        accuracy = 1 - self.counts.errors[self.index, closest] / rows[closest]
        shortfall = "less than" if accuracy < self.target else f"too few {unit} to guarantee"
        return (
            f"the best candidate is a reliability of at least {self.thresholds[closest]}, where {accuracy:.1%} of "
            f"{rows[closest]:,} rows are correct, {shortfall} {100 * self.target:g}%"
        )


def _estimates_at_threshold(
    counts: _RowCounts, threshold: float, confidence: float, requirement: str
) -> list[ThresholdEstimate]:
    """Estimate the accuracy at a threshold, for all decisions and for each label.

    Args:
        counts: Numbers of rows and errors at this threshold, and at 0.
        threshold: The threshold.
        confidence: Confidence of the lower bounds; the labels with automatic rows share the error level equally.
        requirement: End of the reason if there are no automatic rows: "none of the labelled rows has ...".

    Returns:
        An estimate for all decisions, then one for each label.
    """
    n_labels_with_rows = int((counts.rows[1:, 0] > 0).sum())
    label_level = (1 - confidence) / max(1, n_labels_with_rows)
    estimates = []
    for k, label in enumerate(counts.labels):
        n_rows = int(counts.rows[k, 1])
        n_automatic = int(counts.rows[k, 0])
        if n_automatic == 0:
            reason = f"none of {n_rows:,} labelled rows has {requirement}"
            estimates.append(ThresholdEstimate(label=label, n_rows=n_rows, reason=reason))
            continue
        level = 1 - confidence if label is None else label_level
        estimates.append(_estimate_accuracy(counts, k, 0, threshold=threshold, level=level))
    return estimates


def _estimate_accuracy(counts: _RowCounts, k: int, column: int, *, threshold: float, level: float) -> ThresholdEstimate:
    """Estimate the accuracy of automatic rows of the k-th label, with its lower bound."""
    n_automatic = int(counts.rows[k, column])
    return ThresholdEstimate(
        label=counts.labels[k],
        threshold=threshold,
        n_rows=int(counts.rows[k, -1]),
        n_automatic=n_automatic,
        accuracy=(n_automatic - int(counts.errors[k, column])) / n_automatic,
        lower_bound=counts.lower_bound(k, column, level),
    )


def _check_input(reliability: np.ndarray, confidence: float) -> None:
    reject_nan(reliability, "reliability")
    if not 0 < confidence < 1:
        raise InputError(f"the confidence is {confidence}; give a number above 0 and below 1, such as 0.95")
    if len(reliability) == 0:
        raise InputError("there are no labelled rows to find a threshold with; give predictions with their labels")
