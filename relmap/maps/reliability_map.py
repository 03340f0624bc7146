"""A reliability map at work: predictions in, the confidence and the reliability of each fixed decision out."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import scipy

from relmap.calibrators.identity import Identity
from relmap.calibrators.spline import Spline
from relmap.decisions import confidence_logit
from relmap.io.rows import PredictedRows
from relmap.maps.constant import Constant
from relmap.maps.correction import Correction
from relmap.maps.document import Calibrator, MapDocument, Variant
from relmap.projection.curves import Confidence
from relmap.projection.decisions import CalibratedDecisions

AT_ONCE = 2**15  # rows that are scored together: what is computed on the way fits in a cache


@dataclass(frozen=True, eq=False)
class Scored:
    """What a map says of `n` fixed decisions."""

    confidence: np.ndarray  # (n,) float64 in [0, 1], calibrated
    logit: np.ndarray  # (n,) float64, logit of the reliability, infinite ones too; rank by this

    @property
    def reliability(self) -> np.ndarray:
        """The probability that the decision is correct, `(n,)` float64 in [0, 1]."""
        return np.asarray(scipy.special.expit(self.logit))

    def take(self, rows: np.ndarray) -> "Scored":
        """Return the rows of these numbers `(m,)`, in this order."""
        return Scored(self.confidence[rows], self.logit[rows])


@dataclass(frozen=True, eq=False)
class FittedMap:
    """A fitted calibrator and a fitted variant, and the correction of its score, if it has one."""

    calibrator: Calibrator
    projection: Variant = field(default_factory=Confidence)
    correction: Correction | None = None

    @classmethod
    def of(cls, document: MapDocument) -> "FittedMap":
        """The map that `map.json` describes."""
        return cls(document.calibrator.fitted, document.projection.fitted, document.correction)

    def __call__(self, rows: PredictedRows) -> Scored:
        """Confidence and reliability of checked rows.

        A reliability that reads the confidence reads it as float64 holds it, so whoever has the columns decision and
        confidence gets the same one, in SQL too.
        """
        confidences, logits = [np.empty(0)], [np.empty(0)]
        for first in range(0, len(rows), AT_ONCE):
            piece = rows.take(slice(first, first + AT_ONCE))
            confidences.append(calibrated_confidence(self.calibrator, piece))
            seen = CalibratedDecisions(
                scipy.special.logit(confidences[-1]), piece.decision, None, piece.logits, piece.signals
            )
            logit = np.asarray(self.projection(seen))
            logits.append(logit if self.correction is None else self.correction(logit))
        return Scored(np.concatenate(confidences), np.concatenate(logits))


def scored_in_parts(rows: PredictedRows, parts: Iterable[tuple[FittedMap, np.ndarray]]) -> Scored:
    """What several maps say of `rows`, each of a part of them, by row numbers `(m,)`, or `(n,)` bool."""
    confidence, logits = np.empty(len(rows)), np.empty(len(rows))
    for reliability_map, part in parts:
        scored = reliability_map(rows.take(part))
        confidence[part], logits[part] = scored.confidence, scored.logit
    return Scored(confidence, logits)


def calibrated_confidence(calibrator: Calibrator, rows: PredictedRows) -> np.ndarray:
    """The calibrated confidence of the fixed decisions, `(n,)` float64 in [0, 1]; a stated one as it is, if uncal."""
    if rows.confidence is not None and isinstance(calibrator, Identity):
        return rows.confidence
    return np.asarray(scipy.special.expit(calibrated_logit(calibrator, rows)))


def calibrated_logit(calibrator: Calibrator, rows: PredictedRows) -> np.ndarray:
    """logit of the calibrated confidence of the fixed decisions, `(n,)` float64, infinite ones too."""
    if isinstance(calibrator, Constant):
        return np.full(len(rows), scipy.special.logit(calibrator.share))
    if rows.logits is None:
        assert rows.confidence is not None
        assert isinstance(calibrator, Identity | Spline)
        confidence_only = (
            calibrator.calibrate_confidence(rows.confidence) if isinstance(calibrator, Spline) else rows.confidence
        )
        return np.asarray(scipy.special.logit(confidence_only))
    by_label = np.asfortranarray(rows.logits)  # its sums over labels are sums of whole columns: a third quicker
    return confidence_logit(calibrator(by_label), rows.decision)
