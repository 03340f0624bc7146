"""Spline: a smooth map of the confidence of the decision to its probability of being correct.

As in the paper's code, the map is a logistic regression on cubic B-splines of the confidence; both are scikit-learn's.
It differs from the method of Gupta et al. (2020), after which the paper names it.
"""

from typing import Annotated

import numpy as np
import scipy

from relmap.calibrators.identity import log_softmax
from relmap.decisions import decide
from relmap.serialization import Axes, Share, Value

N_KNOTS = 8
MIN_PROBABILITY = 1e-6  # confidences of exactly 0 or 1 could not be ranked


class Spline(Value, kind="spline"):
    """A map of the confidence of the fixed decision: cubic between neighboring knots, constant outside.

    The map may fall as the confidence rises. The other labels share the remaining probability in proportion to their
    uncalibrated probabilities, so another label may become more probable than the decision. The decision does not
    change.

    Attributes:
        knots: Increasing confidences of the knots, shape (J,).
        coefficients: Coefficients of the logit by powers 0..3 of the position in [0, 1] between two knots, shape
            (J - 1, 4).
    """

    knots: Annotated[np.ndarray, Axes("J", of=Share)]
    coefficients: Annotated[np.ndarray, Axes("J-1", 4)]

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Calibrate logits.

        Args:
            logits: Shape (n, K).

        Returns:
            Log-probabilities, shape (n, K), float64; the probabilities of the decisions lie in [1e-6, 1 - 1e-6].
        """
        decision = decide(logits)[:, None]
        other_logits = np.array(logits, dtype=np.float64)
        np.put_along_axis(other_logits, decision, -np.inf, axis=1)
        confidence = self.calibrate_confidence(_confidence_of(logits))[:, None]
        calibrated = log_softmax(other_logits) + np.log1p(-confidence)
        np.put_along_axis(calibrated, decision, np.log(confidence), axis=1)
        return np.asarray(calibrated)

    def calibrate_confidence(self, confidence: np.ndarray) -> np.ndarray:
        """Calibrate confidences.

        Args:
            confidence: Uncalibrated confidence in [0, 1], shape (n,).

        Returns:
            Calibrated confidence in [1e-6, 1 - 1e-6], shape (n,).
        """
        clipped = np.clip(confidence, self.knots[0], self.knots[-1])
        interval = np.clip(np.searchsorted(self.knots, clipped, side="right") - 1, 0, len(self.knots) - 2)
        left = self.knots[interval]
        position = (clipped - left) / (self.knots[interval + 1] - left)
        constant, linear, quadratic, cubic = self.coefficients[interval].T
        logit = constant + position * (linear + position * (quadratic + position * cubic))
        return np.asarray(np.clip(scipy.special.expit(logit), MIN_PROBABILITY, 1 - MIN_PROBABILITY))

    def _content_violations(self) -> list[str]:
        return [] if (np.diff(self.knots) > 0).all() else ["the knots of the spline do not increase"]


def fit_spline(logits: np.ndarray, labels: np.ndarray, *, seed: int) -> Spline:  # noqa: ARG001 - deterministic
    """Fit the spline to the confidence of the decisions.

    Args:
        logits: Shape (n, K).
        labels: True labels 0..K-1, shape (n,).
        seed: Unused.

    Returns:
        The fitted calibrator.
    """
    return fit_spline_of_confidence(_confidence_of(logits), decide(logits) == np.asarray(labels))


def fit_spline_of_confidence(confidence: np.ndarray, correct: np.ndarray) -> Spline:
    """Fit the spline by logistic regression with a ridge (C = 1).

    Eight uniform knots span the confidences; each column of the basis is scaled to unit standard deviation. If all rows
    are correct, all are wrong or all have one confidence, the map is the constant (correct + 1/2) / (n + 1).

    Args:
        confidence: Confidence in [0, 1], shape (n,).
        correct: Whether the decision is correct, shape (n,), bool.

    Returns:
        The fitted calibrator.
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - takes a second to import; only fits need it
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import SplineTransformer, StandardScaler  # noqa: PLC0415

    confidence = np.asarray(confidence, dtype=np.float64)
    correct = np.asarray(correct, dtype=bool)
    if np.ptp(confidence) < 1e-9 or correct.all() or not correct.any():
        rate = (correct.sum() + 0.5) / (len(correct) + 1)
        return Spline(np.array([0.0, 1.0]), np.array([[scipy.special.logit(rate), 0.0, 0.0, 0.0]]))
    basis = SplineTransformer(N_KNOTS, degree=3, knots="uniform", extrapolation="constant", include_bias=False)
    # with scikit-learn's default stopping rule, as for the published numbers, the fit ends before the optimum
    model = make_pipeline(basis, StandardScaler(with_mean=False), LogisticRegression(C=1.0, max_iter=1000))
    model.fit(confidence[:, None], correct)
    knots = np.linspace(confidence.min(), confidence.max(), N_KNOTS)
    positions = np.arange(4) / 3  # four points determine a cubic
    points = knots[:-1] + positions[:, None] * np.diff(knots)
    logits = model.decision_function(points.reshape(-1, 1)).reshape(points.shape)
    return Spline(knots, np.linalg.solve(np.vander(positions, increasing=True), logits).T)


def _confidence_of(logits: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(log_softmax(logits).max(axis=1)))
