"""Descriptions of a map: by its fit, and by labelled rows that it has scored."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from relmap.decisions import FixedDecisions
from relmap.evaluation.agreement import (
    PopulationSummary,
    describe_agreement,
    format_share,
    measure_agreement,
)
from relmap.evaluation.drift import FIT_AGAIN, DriftResult, detect_drift
from relmap.evaluation.evaluate import evaluate_map
from relmap.evaluation.sample import EvaluationSample
from relmap.evaluation.sentences import (
    compare_log_loss,
    describe_comparison,
    describe_label_spread,
    describe_limits,
    describe_lower_accuracy,
    describe_models,
    describe_pooled_labels,
    describe_training_doubts,
    find_errors,
)
from relmap.evaluation.summary import Evaluation, FitSummary
from relmap.evaluation.top_calibration import describe_top_calibration, measure_top_calibration, top_calibration_as_json
from relmap.io.files import Predictions
from relmap.maps.document import MapDocument
from relmap.maps.fit_rows import RowOrigin, read_and_score_rows
from relmap.maps.score import ScoredDecisions
from relmap.metrics.comparison import describe_metrics
from relmap.settings import DEFAULTS

if TYPE_CHECKING:
    from relmap.maps.fit import MapFit  # whose module imports every model

OUT_OF_FOLD_ORIGINS = ("out_of_fold", "partly_out_of_fold")
MAX_CHANGES = 3
NO_DRIFT_TEST = "Drift is not tested, because the map was fitted on these rows. Evaluate later rows to test it."
NO_DRIFT_TEST_OF_PROTOCOL = (
    "Drift is not tested, because these rows are the reference of the test. Evaluate later rows to test it."
)


def describe_fit(fit: "MapFit") -> FitSummary:
    """Describe a fitted map by its out-of-fold predictions.

    Args:
        fit: The fit.

    Returns:
        Sentences, at most seven, and numbers; the notes are on how the rows were read, on labels with few rows, and on
        doubts about the rows.
    """
    document = fit.document
    sample = EvaluationSample.from_rows(fit.rows, fit.scored, fit.settings.metrics)
    evaluation = evaluate_map(document, sample)
    accuracy = evaluation["accuracy"]["value"]
    where = f"out of fold on {len(fit.rows):,} rows"
    lines = [
        *describe_comparison(evaluation, document, where),
        " ".join([f"Accuracy of the decisions: {100 * accuracy:.1f}%.", *fit.label_warnings]),
        describe_models(document),
    ]
    details = describe_metrics(evaluation["metrics"])
    if document.input != "decision_only":
        held_out = document.held_out
        details.append(describe_label_spread(held_out.label_spread, held_out.label_spread_shuffled))
    details += describe_limits(evaluation, document)
    comparison = compare_log_loss(evaluation)
    numbers = {
        "comparison": comparison.word,
        "variant": document.projection.name,
        "calibrator": document.calibrator.name,
        "baseline": None if document.baseline is None else document.baseline.name,
        "accuracy": accuracy,
        "log_loss": evaluation["metrics"]["nll_correct"],
        "errors_found": find_errors(evaluation)._asdict(),
        "rows": evaluation["rows"],
        "errors": evaluation["errors"],
        "groups": evaluation["groups"],
    }
    notes = [*fit.notes, *describe_pooled_labels(document), *describe_training_doubts(evaluation)]
    return FitSummary(
        lines=tuple(lines), notes=tuple(notes), numbers=numbers, details=tuple(details), comparison=evaluation
    )


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
        if population is None:  # the accuracy of these rows has one interval everywhere
            agreement["accuracy"] = evaluation["accuracy"]
            for agreed, decided in zip(agreement["labels"], evaluation["labels"], strict=True):
                agreed["precision"] = decided["correct"]
        top = measure_top_calibration(self.sample)
        drift = self._test_drift()
        origin = "out of fold on" if self.origin in OUT_OF_FOLD_ORIGINS else "on these"
        sentences = describe_comparison(evaluation, document, f"{origin} {len(self.rows):,} rows")
        drift_lines = [self._no_drift_test] if drift is None else drift.describe(document.shown_names)
        top_lines = describe_top_calibration(top)
        accuracy_line = (
            f"Accuracy of the decisions: {format_share(agreement['accuracy'])} on {agreement['rows']:,} rows."
        )
        doubts = describe_lower_accuracy(document, evaluation) if self.origin == "new" else []
        if drift is not None and not drift.holds:  # what the map promises no longer matters
            changes = drift_lines[: len(drift.changed)][:MAX_CHANGES]
            lines = [*changes, FIT_AGAIN, *drift.describe_untested(document.shown_names), *doubts, accuracy_line]
        else:
            untested = [] if drift is None else drift.describe_untested(document.shown_names)
            drift_line = " ".join([drift_lines[0], *untested])
            lines = [*sentences, drift_line, top_lines[0], *doubts, accuracy_line]
        all_lines = "\n".join(lines)
        details = [
            *[line for line in (*sentences, *top_lines, *drift_lines) if line not in all_lines],
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

    @property
    def _no_drift_test(self) -> str:
        """Reason why drift is not tested."""
        return NO_DRIFT_TEST_OF_PROTOCOL if self.origin == "held_out" else NO_DRIFT_TEST

    def _test_drift(self) -> DriftResult | None:
        """Test for drift on the rows that are not fit rows; None without such rows."""
        is_reference = self.origin == "held_out" and self.document.source.protocol is not None
        if self.origin == "out_of_fold" or is_reference:
            return None
        new_rows = self.rows.take(~self.fitted)
        reliability = self.scored.reliability[~self.fitted]
        return detect_drift(self.document, reliability, new_rows.decision, new_rows.correct, new_rows.group)
