"""Recovery of known reliability curves from simulated rows.

Fitted reliabilities should be within 0.02 of the truth in each knot interval with at least 1% of the rows of a label.
This cannot hold in every simulation: the standard error of a share of 1,000 rows is 0.016, and larger at the ends of a
curve. So the optimum may be wrong by four of its standard errors. Adam as published stops before the optimum, and may
be wrong by more than 0.02 for one row in twenty.
"""

from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import expit, logit

from relmap.decisions import CalibratedDecisions, LabelledDecisions
from relmap.projection.mrp import Curves, locate_interval, uniform_knots
from relmap.projection.registry import fit_variants
from relmap.projection.rows import FitBatch
from relmap.settings import ProjectionParams
from tests.fits import interpolation_weights

SETTINGS = ProjectionParams()
N_KNOTS = SETTINGS.knots
TOLERANCE = 0.02


class Simulated(NamedTuple):
    """Simulated rows with known reliability; arrays have shape (n,)."""

    n_labels: int
    confidence: np.ndarray
    decision: np.ndarray
    correct: np.ndarray
    truth: np.ndarray  # the true reliability

    def fit_reliability(self, name: str) -> np.ndarray:
        """Fit a variant and return its reliability of the same rows, shape (n,)."""
        confidence_logit = logit(self.confidence)
        batch = FitBatch(
            LabelledDecisions([CalibratedDecisions(confidence_logit, self.decision)], self.correct),
            self.n_labels,
            SETTINGS,
        )
        (fit,) = fit_variants(batch, (name,))[name]
        return expit(fit(CalibratedDecisions(confidence_logit, self.decision)))

    @property
    def cell(self) -> np.ndarray:
        """Return the number of the knot interval of each row, counted over all labels, shape (n,)."""
        return self.decision * (N_KNOTS - 1) + locate_interval(self.confidence, uniform_knots(N_KNOTS))[0]

    @property
    def is_in_frequent_cell(self) -> np.ndarray:
        """Return which rows are in knot intervals with at least 1% of the rows of their label, shape (n,), bool."""
        return np.bincount(self.cell)[self.cell] >= 0.01 * np.bincount(self.decision)[self.decision]

    def standard_error(self) -> np.ndarray:
        """Compute the standard error of each reliability at the optimum, shape (n,).

        The logit is linear in the knot values, whose covariance is the inverse of the Fisher information. The factor
        `variance` is the derivative of the reliability with respect to the logit.
        """
        weights = interpolation_weights(self.confidence, N_KNOTS)
        variance = self.truth * (1 - self.truth)
        errors = np.empty(len(weights))
        for label in range(self.n_labels):
            of_label = self.decision == label
            covariance = np.linalg.pinv((weights[of_label] * variance[of_label, None]).T @ weights[of_label])
            errors[of_label] = np.sqrt(((weights[of_label] @ covariance) * weights[of_label]).sum(axis=1))
        return variance * errors


def simulate_curves(n_labels: int, n_rows: int, seed: int) -> Simulated:
    """Simulate rows with random increasing curves that differ by label; confidences on [1 / n_labels, 1)."""
    generator = np.random.default_rng([seed, n_labels])
    rise_of_label = generator.uniform(0.4, 1.6, (n_labels, 1))
    rise = rise_of_label * generator.uniform(0.2, 1.2, (n_labels, N_KNOTS - 1))
    values = np.cumsum(np.hstack([np.zeros((n_labels, 1)), rise]), axis=1)
    mean_of_label = generator.uniform(-1, 1, (n_labels, 1))
    values += mean_of_label - values.mean(axis=1, keepdims=True)
    confidence = 1 / n_labels + (1 - 1 / n_labels) * generator.random(n_rows)
    decision = generator.integers(n_labels, size=n_rows)
    curves = Curves(uniform_knots(N_KNOTS), values, np.zeros(n_labels), ("none",) * n_labels)
    reliability = expit(curves(CalibratedDecisions(logit(confidence), decision)))
    correct = generator.random(n_rows) < reliability
    return Simulated(n_labels, confidence, decision, correct, reliability)


@pytest.fixture(scope="module", params=[(2, 0), (5, 0), (5, 1)], ids=lambda param: f"K={param[0]}-{param[1]}")
def rows(request):
    n_labels, seed = request.param
    return simulate_curves(n_labels, 200_000, seed)


def test_fitted_curves_recover_the_truth(rows):
    is_checked = rows.is_in_frequent_cell
    assert rows.standard_error()[is_checked].max() < 0.015  # else the test is not informative
    error = np.abs(rows.fit_reliability("mrp_exact") - rows.truth)
    assert (error <= np.maximum(TOLERANCE, 4 * rows.standard_error()))[is_checked].all()
    error = np.abs(rows.fit_reliability("mrp") - rows.truth)[is_checked]
    assert error.max() <= 0.05
    assert (error > TOLERANCE).mean() <= 0.05


CURVES_OUTSIDE_THE_FAMILY = [lambda c: c, lambda c: c**2, lambda c: 0.55 + 0.4 * expit(40 * (c - 0.93))]
CURVES_OUTSIDE_THE_FAMILY += [
    lambda c, a=a, b=b: expit(a * logit(c) + b) for a, b in ((1.5, -0.8), (0.6, 0), (0.5, -1))
]


@pytest.mark.parametrize(("name", "slack"), [("mrp", 0.01), ("mrp_exact", 0)])  # Adam stops before the optimum
def test_smooth_curve_outside_the_family_is_approximated(name, slack):
    """Without sampling noise, only the error of approximation remains."""
    confidence = 0.5 + (np.arange(20_000) + 0.5) / 40_000
    truth = np.stack([curve(confidence) for curve in CURVES_OUTSIDE_THE_FAMILY])
    correct = np.diff(np.floor(np.cumsum(truth, axis=1) + 0.5), prepend=0, axis=1) > 0
    decision = np.repeat(np.arange(len(CURVES_OUTSIDE_THE_FAMILY)), len(confidence))
    rows = Simulated(
        len(CURVES_OUTSIDE_THE_FAMILY),
        np.tile(confidence, len(CURVES_OUTSIDE_THE_FAMILY)),
        decision,
        correct.ravel(),
        truth.ravel(),
    )
    error = np.abs(rows.fit_reliability(name) - rows.truth).reshape(truth.shape)

    assert error.mean(axis=1).max() <= 0.0125 + slack
    assert error[:, confidence < 0.98].max() <= 0.055 + slack
