"""Score predictions with a fitted reliability map."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import scipy

from relmap.calibrators.identity import Identity
from relmap.calibrators.spline import Spline
from relmap.decisions import FixedDecisions, confidence_logit
from relmap.maps.constant import Constant
from relmap.maps.document import Calibrator, MapDocument, Variant
from relmap.projection.curves import Confidence
from relmap.projection.decisions import CalibratedDecisions

CHUNK_ROWS = 2**15  # scored together, so that intermediate results fit in a cache


@dataclass(frozen=True, eq=False)
class ScoredDecisions:
    """Scores of n fixed decisions.

    Attributes:
        confidence: Calibrated confidence, shape (n,), float64, in [0, 1].
        logit: Logit of the reliability, shape (n,), float64; may be infinite. Decisions are ranked by it.
    """

    confidence: np.ndarray
    logit: np.ndarray

    @property
    def reliability(self) -> np.ndarray:
        """Probability that each decision is correct, shape (n,), float64, in [0, 1]."""
        return np.asarray(scipy.special.expit(self.logit))

    def take(self, rows: np.ndarray) -> "ScoredDecisions":
        """Select rows.

        Args:
            rows: Row numbers, shape (m,), or a mask.

        Returns:
            The selected rows, in that order.
        """
        return ScoredDecisions(confidence=self.confidence[rows], logit=self.logit[rows])


@dataclass(frozen=True, eq=False)
class FittedMap:
    """Fitted models of a reliability map.

    Attributes:
        calibrator: Calibrator of the confidence.
        projection: Model of the reliability.
        baseline: Calibrator of the confidence that the map is compared with; None if it is `calibrator`.
    """

    calibrator: Calibrator
    projection: Variant = field(default_factory=Confidence)
    baseline: Calibrator | None = None

    @classmethod
    def from_document(cls, document: MapDocument) -> "FittedMap":
        """Create a map from the models of a document.

        Args:
            document: Content of `map.json`.

        Returns:
            The fitted map.
        """
        baseline = None if document.baseline is None else document.baseline.fitted
        return cls(document.calibrator.fitted, document.projection.fitted, baseline)

    def __call__(self, rows: FixedDecisions) -> ScoredDecisions:
        """Score rows.

        The logit of the confidence is computed from the confidence after it was rounded to float64. Projections that
        read only decision and confidence therefore give the same reliability if they are applied to the written
        columns, also in SQL.

        Args:
            rows: n validated rows.

        Returns:
            Confidence and reliability.
        """
        confidences = [np.empty(0)]
        logits = [np.empty(0)]
        for chunk in _chunks(rows):
            confidence = calibrated_confidence(self.calibrator, chunk)
            decisions = CalibratedDecisions(
                confidence_logit=scipy.special.logit(confidence),
                decision=chunk.decision,
                logits=chunk.logits,
                signals=chunk.signals,
            )
            confidences.append(confidence)
            logits.append(np.asarray(self.projection(decisions)))
        return ScoredDecisions(confidence=np.concatenate(confidences), logit=np.concatenate(logits))

    def score_for_comparison(self, rows: FixedDecisions) -> ScoredDecisions:
        """Score rows, with the confidence that the map is compared with.

        Args:
            rows: n validated rows.

        Returns:
            Confidence under the baseline, and reliability.
        """
        scored = self(rows)
        if self.baseline is None:
            return scored
        confidences = [np.empty(0), *(calibrated_confidence(self.baseline, chunk) for chunk in _chunks(rows))]
        return ScoredDecisions(confidence=np.concatenate(confidences), logit=scored.logit)


def _chunks(rows: FixedDecisions) -> Iterator[FixedDecisions]:
    """Yield consecutive rows that are scored together."""
    for start in range(0, len(rows), CHUNK_ROWS):
        yield rows.take(slice(start, start + CHUNK_ROWS))


def score_parts(rows: FixedDecisions, parts: Iterable[tuple[FittedMap, np.ndarray]]) -> ScoredDecisions:
    """Score rows for a comparison with several maps, each part of the rows with one of them.

    If the rows have only decisions, their confidence is the mean of the constants of the maps. The constants themselves
    would rank the rows by fold, and wrongly: a fold with more errors raises the constant of its own rows.

    Args:
        rows: n validated rows.
        parts: Maps, each with the numbers of its rows, or a mask of shape (n,). Together they contain every row.

    Returns:
        Confidence under the baseline, and reliability, of all rows.
    """
    confidence = np.empty(len(rows))
    logit = np.empty(len(rows))
    is_constant = True
    for reliability_map, part in parts:
        scored = reliability_map.score_for_comparison(rows.take(part))
        confidence[part] = scored.confidence
        logit[part] = scored.logit
        is_constant = is_constant and isinstance(reliability_map.calibrator, Constant)
    if is_constant and len(rows):
        confidence[:] = confidence.mean()
    return ScoredDecisions(confidence=confidence, logit=logit)


def calibrated_confidence(calibrator: Calibrator, rows: FixedDecisions) -> np.ndarray:
    """Compute the calibrated confidence of the fixed decisions.

    Args:
        calibrator: A fitted calibrator; the identity returns a given confidence without rounding.
        rows: n validated rows.

    Returns:
        Shape (n,), float64, in [0, 1].
    """
    if rows.confidence is not None and isinstance(calibrator, Identity):
        return rows.confidence
    return np.asarray(scipy.special.expit(calibrated_logit(calibrator, rows)))


def calibrated_logit(calibrator: Calibrator, rows: FixedDecisions) -> np.ndarray:
    """Compute the logit of the calibrated confidence of the fixed decisions.

    Args:
        calibrator: A fitted calibrator.
        rows: n validated rows.

    Returns:
        Shape (n,), float64; may be infinite.
    """
    if isinstance(calibrator, Constant):
        return np.full(len(rows), scipy.special.logit(calibrator.share))
    if rows.logits is None:
        assert rows.confidence is not None
        assert isinstance(calibrator, Identity | Spline)
        confidence = rows.confidence
        if isinstance(calibrator, Spline):
            confidence = calibrator.calibrate_confidence(confidence)
        return np.asarray(scipy.special.logit(confidence))
    # with columns that are contiguous in memory, calibrators sum over labels a third faster
    column_major_logits = np.asfortranarray(rows.logits)
    return confidence_logit(calibrator(column_major_logits), rows.decision)
