"""Spline: a smooth map of the confidence of the decision to its chance of being right.

As the paper's authors ran it: logistic regression on cubic B-splines of the confidence, both scikit-learn's. It is
not the recalibration of Gupta et al. (2020), after which the paper names it.
"""

from typing import Annotated

import numpy as np
import scipy

from relmap.calibrators.identity import log_softmax
from relmap.decisions import decide
from relmap.serialization import Axes, Share, Value

N_KNOTS = 8
MIN_PROBABILITY = 1e-6  # a confidence of 0 or 1 would rank no more


class Spline(Value, kind="spline"):
    """A map of the confidence of the fixed decision: a cubic between neighbouring knots, constant beyond the outer.

    It need not rise. The other labels share what is left in proportion to their uncalibrated probabilities, so the
    decision may lose its place at the top of the row. It stays the decision.
    """

    knots: Annotated[np.ndarray, Axes("J", of=Share)]  # rising
    coefficients: Annotated[np.ndarray, Axes("J-1", 4)]  # logit by powers 0..3 of the place, 0..1, between two knots

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Map logits `(n, K)` to log-probabilities `(n, K)` float64; those of the decisions lie in [1e-6, 1 - 1e-6]."""
        decision, others = decide(logits)[:, None], np.array(logits, dtype=np.float64)
        mapped = self.of_confidence(_confidence_of(logits))[:, None]
        np.put_along_axis(others, decision, -np.inf, axis=1)
        calibrated = log_softmax(others) + np.log1p(-mapped)
        np.put_along_axis(calibrated, decision, np.log(mapped), axis=1)
        return np.asarray(calibrated)

    def of_confidence(self, confidence: np.ndarray) -> np.ndarray:
        """Map uncalibrated confidence `(n,)` in [0, 1] to the calibrated one `(n,)`, in [1e-6, 1 - 1e-6]."""
        within = np.clip(confidence, self.knots[0], self.knots[-1])
        interval = np.clip(np.searchsorted(self.knots, within, side="right") - 1, 0, len(self.knots) - 2)
        left = self.knots[interval]
        place = (within - left) / (self.knots[interval + 1] - left)
        constant, first, second, third = self.coefficients[interval].T
        height = constant + place * (first + place * (second + place * third))
        return np.clip(scipy.special.expit(height), MIN_PROBABILITY, 1 - MIN_PROBABILITY)

    def _content_violations(self) -> list[str]:
        return [] if (np.diff(self.knots) > 0).all() else ["the knots of the spline do not rise"]


def fit_spline(logits: np.ndarray, labels: np.ndarray, *, seed: int) -> Spline:  # noqa: ARG001 - exact
    """Map logits `(n, K)` and labels `(n,)` 0..K-1 to the spline, fitted on the confidence of the decision alone."""
    return fit_spline_of_confidence(_confidence_of(logits), decide(logits) == np.asarray(labels))


def fit_spline_of_confidence(confidence: np.ndarray, correct: np.ndarray) -> Spline:
    """Map confidence `(n,)` in [0, 1] and correct `(n,)` bool to the spline of ridged logistic regression (C = 1).

    Eight uniform knots span the confidences; each column of the basis is scaled to unit deviation. Where the rows are
    all right, all wrong or all of one confidence, the map is constant, at (right + 1/2) / (n + 1).
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - takes a second, and only fits need it
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import SplineTransformer, StandardScaler  # noqa: PLC0415

    confidence, correct = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=bool)
    if np.ptp(confidence) < 1e-9 or correct.all() or not correct.any():
        rate = (correct.sum() + 0.5) / (len(correct) + 1)
        return Spline(np.array([0.0, 1.0]), np.array([[scipy.special.logit(rate), 0.0, 0.0, 0.0]]))
    basis = SplineTransformer(N_KNOTS, degree=3, knots="uniform", extrapolation="constant", include_bias=False)
    # its stopping rule is scikit-learn's own, short of the optimum: the published numbers stop there too
    model = make_pipeline(basis, StandardScaler(with_mean=False), LogisticRegression(C=1.0, max_iter=1000))
    model.fit(confidence[:, None], correct)
    knots = np.linspace(confidence.min(), confidence.max(), N_KNOTS)
    places = np.arange(4) / 3  # four points of a cubic are the cubic
    points = knots[:-1] + places[:, None] * np.diff(knots)
    heights = model.decision_function(points.reshape(-1, 1)).reshape(points.shape)
    return Spline(knots, np.linalg.solve(np.vander(places, increasing=True), heights).T)


def _confidence_of(logits: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(log_softmax(logits).max(axis=1)))
