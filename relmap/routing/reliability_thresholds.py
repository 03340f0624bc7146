"""Thresholds on the reliability: their accuracy on labelled rows, in words and as JSON, and how `apply` reads them."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from relmap.errors import InputError, describe_validation_errors
from relmap.io.atomic import check_file
from relmap.maps.document import MapDocument
from relmap.options import option
from relmap.serialization import Count, Share

MIN_THRESHOLD_DECIMALS = 4
MAX_THRESHOLD_DECIMALS = 9
TIE_TOLERANCE = 1e-9  # minimum distance of a threshold from a reliability, whose last bits differ between SQL engines
MAX_LISTED_LABELS = 5


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

    Attributes:
        target: Guaranteed accuracy.
        requested_coverage: Share of automatic rows, as text.
        confidence: Confidence of the bounds, in (0, 1).
        overall: Estimate for all decisions.
        labels: Estimate for each decided label.
        advice: Sentences on what would give a threshold, if there is none for all decisions.
        chosen_threshold: Threshold that was chosen without these rows.
        n_groups: Number of groups; None for independent rows.
    """

    target: float | None
    requested_coverage: str | None
    confidence: float
    overall: ThresholdEstimate
    labels: tuple[ThresholdEstimate, ...]
    advice: tuple[str, ...] = ()
    chosen_threshold: float | None = None
    n_groups: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Convert the thresholds for JSON; missing numbers are None."""
        return {
            "target_accuracy": self.target,
            "asked_coverage": self.requested_coverage,
            "asked_cut": self.chosen_threshold,
            "confidence": self.confidence,
            "groups": self.n_groups,
            "overall": self.overall.as_json(),
            "labels": [estimate.as_json() for estimate in self.labels],
        }

    def describe(self, names: Sequence[str] | None = None) -> list[str]:
        """Describe the thresholds and their guarantees.

        Args:
            names: Names of the labels 0..K-1; None for their numbers.

        Returns:
            At most thirteen lines. Only the labels with the most rows are described.
        """
        lines = [*self._describe_overall(), self._describe_label_guarantee()]
        most_frequent = sorted(self.labels, key=lambda estimate: -estimate.n_rows)[:MAX_LISTED_LABELS]
        for estimate in sorted(most_frequent, key=lambda estimate: estimate.label or 0):
            name = names[estimate.label or 0] if names else estimate.label
            lines.append(f"  {name}: {self._describe_label(estimate)}")
        n_omitted = len(self.labels) - len(most_frequent)
        if n_omitted:
            lines.append(f"  and {n_omitted} more labels")
        return lines

    def _describe_overall(self) -> list[str]:
        overall = self.overall
        unit = "rows" if self.n_groups is None else "groups"
        if overall.threshold is not None:
            return [
                f"Use {overall.coverage:.1%} of decisions as they are: those {overall.describe_rows()}.",
                f"With {100 * self.confidence:g}% confidence, at least {self._format_bound(overall)} of such decisions "
                f"are correct, if new {unit} are independent and from the same distribution.",
            ]
        if self.chosen_threshold is not None:
            return [f"The accuracy at the threshold {self.chosen_threshold} is unknown: {overall.reason}."]
        return [f"No threshold for all decisions: {overall.reason}.", *self.advice]

    def _describe_label_guarantee(self) -> str:
        """Introduce the lines of the labels, and state their guarantee."""
        together = f"with {100 * self.confidence:g}% confidence, all of these hold together"
        if self.target is None:
            return f"The same threshold for each label; {together}:"
        label_thresholds = [estimate.threshold for estimate in self.labels]
        applied = ""
        if _uses_label_thresholds(self.overall.threshold, label_thresholds):
            applied = f" (`apply` uses these with {option('cuts')})"
        return f"A threshold for each label{applied}; {together}:"

    def _describe_label(self, estimate: ThresholdEstimate) -> str:
        if estimate.threshold is not None:
            bound = self._format_bound(estimate)
            return f"{estimate.coverage:.1%} of its decisions, {estimate.describe_rows()}; accuracy at least {bound}"
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
    try:
        content: object = cuts
        if isinstance(cuts, Path):
            check_file(cuts)
            content = json.loads(cuts.read_text(encoding="utf-8"))
        return _StoredThresholds.model_validate(content)
    except (OSError, ValueError, RecursionError) as error:  # no file, not UTF-8, not JSON, or other content
        reason = describe_validation_errors(error, "cuts")[0] if isinstance(error, ValidationError) else error
        raise InputError(f"{source} is not an output of `thresholds` ({reason}); run `thresholds` again") from None


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
