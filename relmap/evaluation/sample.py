"""Labelled rows with their confidence and reliability: the input of metrics and intervals."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from relmap.decisions import FixedDecisions, number_groups
from relmap.errors import InputError
from relmap.maps.score import ScoredDecisions
from relmap.metrics.intervals import Estimate, finite_or_none
from relmap.metrics.resampling import BOOTSTRAP_SEED, MIN_BOOTSTRAP_GROUPS, Resamples, draw_resamples
from relmap.settings import METRIC_DEFAULTS, MetricParams

SCORES = ("confidence", "reliability")  # the two scores compared on the same decisions

JsonNumbers = dict[str, float | None]  # numbers by name; None if undefined


@dataclass(frozen=True, eq=False)
class EvaluationSample:
    """Fixed decisions of labelled rows, each with two scores: its confidence and its reliability.

    Rows with sampling weights are repeated: `FixedDecisions.copies` defines how often. All copies of a row are in one
    cluster. Arrays have one entry for each of the n copies; `rows` and `scored` have each row once.

    Attributes:
        rows: The rows.
        scored: Confidence and reliability of the rows.
        params: Settings of the metrics.
        row_number: Index in `rows` of each copy, shape (n,), int64.
        correct: Whether the decision is correct, shape (n,), bool.
        decision: Decided label 0..K-1, shape (n,), int64.
        cluster: Number of the group of each copy, 0..C-1, shape (n,), int64; without groups, each row is a group.
        logit: Logit of each score, by its name, shape (n,), float64; may be infinite.
        probability: Each score as a probability, by its name, shape (n,), in [0, 1].
    """

    rows: FixedDecisions
    scored: ScoredDecisions
    params: MetricParams
    row_number: np.ndarray
    correct: np.ndarray
    decision: np.ndarray
    cluster: np.ndarray
    logit: dict[str, np.ndarray]
    probability: dict[str, np.ndarray]

    @classmethod
    def from_rows(
        cls, rows: FixedDecisions, scored: ScoredDecisions, params: MetricParams = METRIC_DEFAULTS
    ) -> "EvaluationSample":
        """Create a sample in which each row is repeated in proportion to its weight.

        Args:
            rows: Labelled rows; rows without groups are treated as independent.
            scored: Confidence and reliability of the rows.
            params: Settings of the metrics.

        Returns:
            The sample.

        Raises:
            InputError: There is no row.
        """
        if not len(rows):
            raise InputError("there are no rows to evaluate; give predictions with their labels")
        confidence_logit = scipy.special.logit(scored.confidence)
        # where the map leaves the confidence unchanged, the reliability is sigmoid(logit(confidence)), whose rounding
        # error could move the row to another bin of the ECE
        is_unchanged = confidence_logit == scored.logit
        reliability = np.where(is_unchanged, scored.confidence, scored.reliability)
        cluster = np.arange(len(rows)) if rows.group is None else number_groups(rows.group)
        row_number = rows.copies
        return cls(
            rows=rows,
            scored=scored,
            params=params,
            row_number=row_number,
            correct=rows.correct[row_number],
            decision=rows.decision[row_number],
            cluster=cluster[row_number],
            logit={"confidence": confidence_logit[row_number], "reliability": scored.logit[row_number]},
            probability={"confidence": scored.confidence[row_number], "reliability": reliability[row_number]},
        )

    def __len__(self) -> int:
        return len(self.correct)

    @property
    def n_clusters(self) -> int:
        """Number of groups, or of rows if there are no groups."""
        return int(self.cluster.max()) + 1

    @cached_property
    def resamples(self) -> Resamples | None:
        """Bootstrap resamples that all intervals share; None if there are fewer than ten groups."""
        if self.n_clusters < MIN_BOOTSTRAP_GROUPS:
            return None
        return draw_resamples(self.cluster, resamples=self.params.resamples, seed=BOOTSTRAP_SEED)

    def mean_with_interval(self, values: np.ndarray) -> JsonNumbers:
        """Compute the mean of values and its 95% interval.

        Args:
            values: One value for each copy, shape (n,).

        Returns:
            Numbers for JSON: `value`, `standard_error`, `low` and `high`; the last three are None for fewer than ten
            groups.
        """
        replicates = None if self.resamples is None else self.resamples.mean(values)
        estimate = Estimate(float(np.mean(values)), replicates)
        interval = estimate.interval
        return {
            "value": finite_or_none(estimate.value),
            "standard_error": finite_or_none(interval.standard_error),
            "low": finite_or_none(interval.low),
            "high": finite_or_none(interval.high),
        }
