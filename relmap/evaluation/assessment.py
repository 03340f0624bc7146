"""Evaluation of a map on labelled rows, and thresholds that are found on them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from relmap.decisions import FixedDecisions
from relmap.errors import InputError, assignment
from relmap.evaluation.agreement import (
    PopulationSummary,
    describe_agreement,
    format_share,
    measure_agreement,
)
from relmap.evaluation.description import (
    compare_log_loss,
    describe_comparison,
    describe_limits,
    describe_lower_accuracy,
    describe_pooled_labels,
)
from relmap.evaluation.drift import DriftResult, detect_drift
from relmap.evaluation.evaluate import evaluate_map
from relmap.evaluation.sample import EvaluationSample
from relmap.evaluation.summary import Cuts, Evaluation
from relmap.evaluation.top_calibration import describe_top_calibration, measure_top_calibration, top_calibration_as_json
from relmap.io.files import Predictions
from relmap.maps.document import MapDocument
from relmap.maps.labelled_rows import (
    RowOrigin,
    read_and_score_rows,
)
from relmap.maps.score import ScoredDecisions
from relmap.metrics.comparison import describe_metrics
from relmap.routing.costs import estimate_costs
from relmap.routing.group_tests import RowGroups
from relmap.routing.thresholds import (
    ReliabilityThresholds,
    bound_accuracy,
    find_accuracy_thresholds,
    find_coverage_threshold,
    sample_equally_likely_rows,
)
from relmap.settings import DEFAULTS

SUGGESTED_HOLD_OUT = 0.3
OUT_OF_FOLD_ORIGINS = ("out_of_fold", "partly_out_of_fold")
MAX_DRIFT_LINES = 3
FIT_AGAIN = "Fit the map again on rows like these; until then its reliabilities are wrong."
MAX_THRESHOLD_LINES = 8  # further labels are details
NO_DRIFT_TEST = "Drift is not tested, because the map was fitted on these rows. Evaluate later rows to test it."
CHOSEN_WITHOUT_ROWS = "The bounds hold if the cut was chosen without looking at these rows."


@dataclass(frozen=True, eq=False)
class MapAssessment:
    """A map and labelled rows that it has scored.

    Fit rows have out-of-fold scores.

    Attributes:
        document: The map.
        rows: The n labelled rows.
        scored: Confidence and reliability of the rows.
        origin: Whether the rows are new, held out, out of fold or partly out of fold.
        notes: Sentences on how the rows were read and scored.
        fitted: Whether each row was used for the fit, shape (n,), bool.
    """

    document: MapDocument
    rows: FixedDecisions
    scored: ScoredDecisions
    origin: RowOrigin
    notes: list[str]
    fitted: np.ndarray

    @classmethod
    def from_predictions(cls, document: MapDocument, file: Predictions, group: str | None = None) -> "MapAssessment":
        """Read and score labelled predictions.

        Args:
            document: The map.
            file: Labelled predictions.
            group: Column of the groups; None for the column of the fit, if the predictions have it.

        Returns:
            The map with the scored rows.

        Raises:
            InputError: The rows cannot be read.
        """
        scored = read_and_score_rows(document, file, group=group)
        return cls(
            document=document,
            rows=scored.rows,
            scored=scored.scored,
            origin=scored.origin,
            notes=scored.notes,
            fitted=scored.fitted,
        )

    @cached_property
    def sample(self) -> EvaluationSample:
        """Rows with their confidence and reliability, for metrics and intervals."""
        return EvaluationSample.from_rows(self.rows, self.scored, DEFAULTS.metrics)

    def evaluate(
        self, population: PopulationSummary | None = None, *, comparison: Mapping[str, Any] | None = None
    ) -> Evaluation:
        """Compare the reliability with the confidence.

        Args:
            population: Summary of the file that these rows were sampled from, to estimate the accuracy on this file.
            comparison: Numbers of `evaluate_map` on these rows, if they are known; None to compute them.

        Returns:
            Comparison of reliability and confidence, calibration of the most reliable rows, agreement with the true
            labels, and drift.

        Raises:
            InputError: There are no labelled rows.
        """
        document = self.document
        evaluation = evaluate_map(document, self.sample) if comparison is None else comparison
        agreement = measure_agreement(document, self.sample, population)
        top = measure_top_calibration(self.sample)
        drift = self._test_drift()
        origin = "out of fold on" if self.origin in OUT_OF_FOLD_ORIGINS else "on these"
        sentences = describe_comparison(evaluation, document, f"{origin} {len(self.rows):,} rows")
        drift_lines = [NO_DRIFT_TEST] if drift is None else drift.describe(document.shown_names)
        top_lines = describe_top_calibration(top)
        accuracy_line = (
            f"Accuracy of the decisions: {format_share(agreement['accuracy'])} on {agreement['rows']:,} rows."
        )
        doubts = describe_lower_accuracy(document, evaluation) if self.origin == "new" else []
        if drift is not None and not drift.holds:  # what the map promises no longer matters
            lines = [*drift_lines[:MAX_DRIFT_LINES], FIT_AGAIN, *doubts, accuracy_line]
        else:
            lines = [*sentences, drift_lines[0], top_lines[0], *doubts, accuracy_line]
        details = [
            *[line for line in (*sentences, *top_lines, *drift_lines) if line not in lines],
            *describe_metrics(evaluation["metrics"]),
            *describe_agreement(agreement),
            *describe_pooled_labels(document),
            *describe_limits(evaluation, document),
        ]
        numbers = {
            **evaluation,
            "agreement": agreement,
            "drift": None if drift is None else drift.as_json(),
            "comparison": compare_log_loss(evaluation).word,
            "top": top_calibration_as_json(top),
            "fitted_rows": int(self.fitted.sum()),
        }
        population_notes = [] if population is None else population.notes
        return Evaluation(tuple(lines), (*self.notes, *population_notes), numbers, tuple(details))

    def _test_drift(self) -> DriftResult | None:
        """Test for drift on the rows that are not fit rows; None without such rows."""
        if self.origin not in ("new", "partly_out_of_fold"):
            return None
        new_rows = self.rows.take(~self.fitted)
        reliability = self.scored.reliability[~self.fitted]
        return detect_drift(self.document, reliability, new_rows.decision, new_rows.correct, new_rows.group)

    def choose_cut(
        self,
        *,
        target_accuracy: float | None = None,
        coverage: object = None,
        confidence_level: float = 0.95,
        cost_error: float | None = None,
        cost_review: float | None = None,
        cut: float | None = None,
    ) -> Cuts:
        """Find a cut on the reliability, or validate one that was chosen without these rows.

        On fit rows, cuts and bounds are estimates without a guarantee.

        Args:
            target_accuracy: Accuracy that automatic rows must have, in (0, 1).
            coverage: Share of the rows that is automatic, in (0, 1]; pass a string to avoid rounding.
            confidence_level: Confidence level of the guarantee, over random samples of labelled rows.
            cost_error: Cost of a wrong decision that is used. With `cost_review`, the result is the cut with the lowest
                expected cost according to the map, without a guarantee.
            cost_review: Cost of a review.
            cut: A cut to validate: the result has a lower bound of the accuracy of decisions at or above the cut.

        Returns:
            The cut.

        Raises:
            InputError: None or several of accuracy, coverage, costs and cut are given, or a value is out of range.
        """
        has_costs = cost_error is not None or cost_review is not None
        n_given = [target_accuracy is not None, coverage is not None, cut is not None, has_costs].count(True)
        if n_given != 1:
            raise InputError(
                "give exactly one of these: a target accuracy, a coverage, the costs of an error and of a review, a "
                "cut to validate"
            )
        map_identity = {"map_fingerprint": self.document.fingerprint}
        if has_costs:
            costs = estimate_costs(self.sample, cost_error, cost_review)
            return Cuts(tuple(costs.describe()), tuple(self.notes), map_identity | costs.as_json())
        seed = self.document.source.seed
        row_number, sampling_notes = sample_equally_likely_rows(self.rows, seed)
        groups = None
        if self.rows.group is not None:  # all rows are used
            groups = RowGroups.from_names(self.rows.group, seed, self.rows.weight)
            sampling_notes = [groups.describe()]
        thresholds = self._thresholds_on(row_number, groups, target_accuracy, coverage, cut, confidence_level)
        is_guaranteed = self.origin not in OUT_OF_FOLD_ORIGINS
        notes = [*self.notes, *sampling_notes]
        if not is_guaranteed:
            notes.append(_estimate_note())
        elif cut is not None:
            notes.append(CHOSEN_WITHOUT_ROWS)
        numbers = {
            "guaranteed": is_guaranteed,
            "fitted_rows": int(self.fitted.sum()),
            **map_identity,
            **thresholds.as_json(),
        }
        described = thresholds.describe(self.document.shown_names)
        return Cuts(
            lines=tuple(described[:MAX_THRESHOLD_LINES]),
            notes=tuple(notes),
            numbers=numbers,
            details=tuple(described[MAX_THRESHOLD_LINES:]),
        )

    def _thresholds_on(
        self,
        row_number: np.ndarray,
        groups: RowGroups | None,
        target_accuracy: float | None,
        coverage: object,
        cut: float | None,
        confidence_level: float,
    ) -> ReliabilityThresholds:
        """Find or validate thresholds on the rows with these numbers, which must be independent or in groups."""
        reliability = self.scored.reliability[row_number]
        decision = self.rows.decision[row_number]
        correct = self.rows.correct[row_number]
        if target_accuracy is not None:
            return find_accuracy_thresholds(
                self.document,
                reliability,
                decision,
                correct,
                target=target_accuracy,
                confidence=confidence_level,
                groups=groups,
            )
        if cut is not None:
            return bound_accuracy(
                reliability, decision, correct, threshold=cut, confidence=confidence_level, groups=groups
            )
        return find_coverage_threshold(
            reliability, decision, correct, coverage=str(coverage), confidence=confidence_level, groups=groups
        )


def _estimate_note() -> str:
    """Explain why cuts on fit rows have no guarantee, and how to get one."""
    return (
        "These are estimates without a guarantee, because the map was chosen and fitted on some of these rows. For a "
        "guarantee, give labelled rows that the fit did not use, or fit again with "
        f"{assignment('hold_out', SUGGESTED_HOLD_OUT)}."
    )
