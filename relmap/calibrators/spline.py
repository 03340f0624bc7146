"""Spline: a smooth map of the confidence of the decision to its probability of being correct.

As in the code of the paper's authors, the map is a logistic regression on cubic B-splines of the confidence; both are
scikit-learn's. It differs from the method of Gupta et al. (2020), after which the paper names it.

There are two forms of it. `Spline`, for maps, gives the decision the mapped confidence. `PublishedSpline`, for the
tables of the paper, floors the remaining probability as the authors do.
"""

from typing import Annotated

import numpy as np
import scipy

from relmap.calibrators.identity import floored_log_softmax, log_softmax
from relmap.decisions import decide
from relmap.io.serialization import Axes, Share, Value

N_KNOTS = 8
MIN_PROBABILITY = 1e-6  # confidences of exactly 0 or 1 could not be ranked
PUBLISHED_FLOOR = 1e-8  # of the mapped confidence, of 1 minus the confidence, and of the other labels


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
        logit = self.evaluate(confidence)
        return np.asarray(np.clip(scipy.special.expit(logit), MIN_PROBABILITY, 1 - MIN_PROBABILITY))

    def evaluate(self, confidence: np.ndarray) -> np.ndarray:
        """Evaluate the map.

        Args:
            confidence: Uncalibrated confidence in [0, 1], shape (n,).

        Returns:
            Logit of the calibrated confidence, shape (n,).
        """
        clipped = np.clip(confidence, self.knots[0], self.knots[-1])
        interval = np.clip(np.searchsorted(self.knots, clipped, side="right") - 1, 0, len(self.knots) - 2)
        left = self.knots[interval]
        position = (clipped - left) / (self.knots[interval + 1] - left)
        constant, linear, quadratic, cubic = self.coefficients[interval].T
        return np.asarray(constant + position * (linear + position * (quadratic + position * cubic)))

    def _content_violations(self) -> list[str]:
        return [] if (np.diff(self.knots) > 0).all() else ["the knots of the spline do not increase"]


class PublishedSpline(Value):
    """The spline with the floors of the code of the paper's authors.

    The probabilities p of the labels start from float32 log(p + 1e-12). With the confidence c and its mapped value m,
    the decision gets m and every other label p (1 - m) / max(1 - c, 1e-8), but at least 1e-8. All are then normalized.
    Where 1 - c is below 1e-8, the result is therefore near 1 whatever m is.

    Attributes:
        curve: Map of the confidence.
    """

    curve: Spline

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Calibrate logits.

        Args:
            logits: Shape (n, K).

        Returns:
            Log-probabilities, shape (n, K), float64.
        """
        decision = decide(logits)[:, None]
        probabilities = _published_probabilities(logits)
        confidence = np.take_along_axis(probabilities, decision, axis=1)
        mapped = self.calibrate_confidence(confidence)
        calibrated = probabilities * (1 - mapped) / np.maximum(1 - confidence, PUBLISHED_FLOOR)
        np.put_along_axis(calibrated, decision, mapped, axis=1)
        return log_softmax(np.log(np.maximum(calibrated, PUBLISHED_FLOOR)))

    def calibrate_confidence(self, confidence: np.ndarray) -> np.ndarray:
        """Calibrate confidences.

        Args:
            confidence: Uncalibrated confidence in [0, 1], of any shape.

        Returns:
            Mapped confidence in [1e-8, 1 - 1e-8], of the same shape.
        """
        mapped = scipy.special.expit(self.curve.evaluate(confidence.ravel()).reshape(confidence.shape))
        return np.asarray(np.clip(mapped, PUBLISHED_FLOOR, 1 - PUBLISHED_FLOOR))


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


def fit_published_spline(logits: np.ndarray, labels: np.ndarray, *, seed: int) -> PublishedSpline:  # noqa: ARG001
    """Fit the spline as the code of the paper's authors does.

    Unlike `fit_spline`, it has fewer knots if there are fewer distinct confidences, and its constant is 1 if all rows
    are correct and 0 if all are wrong, both before the floor.

    Args:
        logits: Shape (n, K).
        labels: True labels 0..K-1, shape (n,).
        seed: Unused.

    Returns:
        The fitted calibrator.
    """
    correct = decide(logits) == np.asarray(labels)
    if correct.all() or not correct.any():
        rate = 1 - PUBLISHED_FLOOR if correct.all() else PUBLISHED_FLOOR
        return PublishedSpline(_constant_spline(rate))
    confidence = _published_probabilities(logits).max(axis=1)
    n_knots = min(N_KNOTS, len(np.unique(confidence)))
    if n_knots < 2:
        return PublishedSpline(_constant_spline(correct.mean()))
    return PublishedSpline(_fit_curve(confidence, correct, n_knots))


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
    confidence = np.asarray(confidence, dtype=np.float64)
    correct = np.asarray(correct, dtype=bool)
    if np.ptp(confidence) < 1e-9 or correct.all() or not correct.any():
        return _constant_spline((correct.sum() + 0.5) / (len(correct) + 1))
    return _fit_curve(confidence, correct, N_KNOTS)


def _constant_spline(rate: float) -> Spline:
    return Spline(np.array([0.0, 1.0]), np.array([[scipy.special.logit(rate), 0.0, 0.0, 0.0]]))


def _fit_curve(confidence: np.ndarray, correct: np.ndarray, n_knots: int) -> Spline:
    """Fit a curve with uniform knots from the lowest to the highest confidence."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - takes a second to import; only fits need it
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import SplineTransformer, StandardScaler  # noqa: PLC0415

    basis = SplineTransformer(n_knots, degree=3, knots="uniform", extrapolation="constant", include_bias=False)
    # with scikit-learn's default stopping rule, as for the published numbers, the fit ends before the optimum
    model = make_pipeline(basis, StandardScaler(with_mean=False), LogisticRegression(C=1.0, max_iter=1000))
    model.fit(confidence[:, None], correct)
    knots = np.linspace(confidence.min(), confidence.max(), n_knots)
    positions = np.arange(4) / 3  # four points determine a cubic
    points = knots[:-1] + positions[:, None] * np.diff(knots)
    logits = model.decision_function(points.reshape(-1, 1)).reshape(points.shape)
    return Spline(knots, np.linalg.solve(np.vander(positions, increasing=True), logits).T)


def _confidence_of(logits: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(log_softmax(logits).max(axis=1)))


def _published_probabilities(logits: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(log_softmax(floored_log_softmax(logits).astype(np.float32))))
