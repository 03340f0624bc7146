"""Spline (Gupta et al., 2020): the confidence of the decision, corrected by the slope of its summed error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax

from tasks.calibrators.temperature import Temperature, fit_temperature
from tasks.protocol.decisions import decide

KNOTS = np.linspace(0, 1, 6)  # of the natural cubic spline over percentiles, as published
MINIMUM_ROWS = 30  # six knots on fewer rows leave [0, 1] far behind
CLIP = 1e-6  # the map is not bounded by itself, and a confidence of 0 or 1 would rank no more


@dataclass(frozen=True, eq=False)
class Spline:
    """A map of the confidence of the fixed decision; neither monotone nor, before clipping, within [0, 1].

    The other labels share what is left in proportion to their uncalibrated probabilities, so the decision may lose
    its place at the top of the row. It stays the decision.
    """

    confidence: np.ndarray  # (m,) float64, rising, the distinct confidences of the fit
    calibrated: np.ndarray  # (m,) float64, the value at each; linear between them, constant beyond

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Logits `(n, K)` to log-probabilities `(n, K)` float64; those of the decisions lie in [1e-6, 1 - 1e-6]."""
        logits = np.asarray(logits, dtype=np.float64)
        decision = decide(logits)[:, None]
        mapped = self.of_confidence(confidence_of(logits))[:, None]
        others = logits.copy()
        np.put_along_axis(others, decision, -np.inf, axis=1)
        calibrated = log_softmax(others, axis=1) + np.log1p(-mapped)
        np.put_along_axis(calibrated, decision, np.log(mapped), axis=1)
        return np.asarray(calibrated)

    def of_confidence(self, confidence: np.ndarray) -> np.ndarray:
        """Uncalibrated confidence `(n,)` in [0, 1] to the calibrated one `(n,)`, in [1e-6, 1 - 1e-6]."""
        return np.clip(np.interp(confidence, self.confidence, self.calibrated), CLIP, 1 - CLIP)


def fit_spline(logits: np.ndarray, labels: np.ndarray, *, seed: int) -> Spline | Temperature:
    """Logits `(n, K)` and labels `(n,)` 0..K-1 to the least-squares spline; below 30 rows, to a temperature.

    It is fitted on the confidence of the decision alone, see `fit_spline_of_confidence`.
    """
    if len(labels) < MINIMUM_ROWS:
        return fit_temperature(logits, labels, seed=seed)
    return fit_spline_of_confidence(confidence_of(logits), decide(logits) == np.asarray(labels))


def fit_spline_of_confidence(confidence: np.ndarray, correct: np.ndarray) -> Spline:
    """Confidence `(n,)` in [0, 1] and correct `(n,)` bool of 30 rows or more to the least-squares spline.

    With rows in the order of their confidence, the sums of `correct - confidence` up to each percentile are fitted
    by a spline; its slope at a percentile is what the confidence there lacks. Rows of equal confidence each get the
    mean of what they would get over all orders among them (as everything is linear, the mean of `correct` does
    that). The published code swaps the two weights when it interpolates between rows; here they are in place.
    """
    distinct, place, rows = np.unique(confidence, return_inverse=True, return_counts=True)
    share = np.bincount(place, correct) / rows
    lacking = smoothed_slope(np.repeat(share - distinct, rows).cumsum() / len(confidence))
    first = rows.cumsum() - rows
    return Spline(distinct, distinct + np.add.reduceat(lacking, first) / rows)


def confidence_of(logits: np.ndarray) -> np.ndarray:
    """Logits `(n, K)` to the uncalibrated confidence `(n,)` of the decision."""
    logits = np.asarray(logits, dtype=np.float64)
    return np.asarray(np.exp(log_softmax(logits, axis=1).max(axis=1)))


def smoothed_slope(sums: np.ndarray) -> np.ndarray:
    """Values `(n,)` at n evenly spaced places of [0, 1] to the slope `(n,)` of their least-squares natural spline."""
    from scipy.interpolate import CubicSpline  # noqa: PLC0415 - takes half a second, and only fits need it

    places = np.linspace(0, 1, len(sums))
    basis = CubicSpline(KNOTS, np.eye(len(KNOTS)), bc_type="natural")  # a column for a value of 1 at each knot
    values, *_ = np.linalg.lstsq(basis(places), sums, rcond=None)
    return np.asarray(basis(places, 1) @ values)
