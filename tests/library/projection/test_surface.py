"""Fitted surfaces (reliability by confidence and gap, for each label) equal a fit with gradients and Adam of torch."""

import numpy as np
import torch
from scipy.special import expit
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from relmap.calibrators.identity import Identity
from relmap.decisions import LabelledDecisions, ProtocolDecisions, decide
from relmap.projection.mrp import initial_curve
from relmap.projection.surface import SurfaceRows, fit_surfaces
from relmap.settings import ProjectionParams
from tests.fits import interpolation_weights, simulate_logits_and_labels
from tests.torch_fits import minimize_with_adam

N_GAP_KNOTS = 6


def simulate_calibrated_rows(n_rows: int, n_labels: int) -> SurfaceRows:
    """Simulate decisions of a model that is calibrated."""
    logits, labels = simulate_logits_and_labels(n_rows, n_labels, overconfidence=1)
    rows = LabelledDecisions.from_calibrators(
        [Identity()], ProtocolDecisions(decision=decide(logits), logits=logits, label=labels, group=np.arange(n_rows))
    )
    calibrated = rows.by_calibrator[0]
    return SurfaceRows(expit(calibrated.confidence_logit), calibrated.gap, rows.decision, rows.correct)


def inverse_softplus(value: float) -> float:
    return float(np.log(np.expm1(value)))


def compute_values(theta: torch.Tensor) -> torch.Tensor:
    """Convert parameters to values at the knots, both of shape (label, knot of the confidence, knot of the gap).

    Values are cumulative sums of increments: softplus(theta), but theta itself for the start value at the first knots.
    """
    is_start = torch.zeros_like(theta, dtype=torch.bool)
    is_start[:, 0, 0] = True
    increments = torch.where(is_start, theta, softplus(theta))
    return increments.cumsum(dim=1).cumsum(dim=2)


def test_surface_fit_equals_adam_of_torch():
    rows = simulate_calibrated_rows(200, 3)
    settings = ProjectionParams(epochs=100)

    low, high = np.quantile(rows.gap, [0.01, 0.99])  # positions of the first and the last knot of the gap
    relative_gap = np.clip((rows.gap - low) / (high - low), 0, 1)
    confidence_weights = interpolation_weights(rows.confidence, settings.knots)
    gap_weights = interpolation_weights(relative_gap, N_GAP_KNOTS)
    weights = torch.from_numpy(np.einsum("mj,mg->mjg", confidence_weights, gap_weights))
    target = torch.from_numpy(rows.correct.astype(np.float64))

    def objective(theta: torch.Tensor) -> torch.Tensor:
        values = compute_values(theta)
        reliability_logit = (weights * values[rows.decision]).sum(dim=(1, 2))
        penalty = sum(values.diff(n=2, dim=axis).square().mean() for axis in (1, 2))
        return binary_cross_entropy_with_logits(reliability_logit, target) + settings.smoothness * penalty

    start = np.full((3, settings.knots, N_GAP_KNOTS), inverse_softplus(1e-3))  # increments of the product
    start[:, 0] = inverse_softplus(1e-2)  # increments along the gap
    start[:, :, 0] = initial_curve(settings.knots)  # start value, and parameters of the increments along the confidence
    expected = compute_values(minimize_with_adam(start, objective, settings))

    fitted = fit_surfaces(*rows, n_labels=3, settings=settings)
    np.testing.assert_allclose(fitted.values, expected, rtol=0, atol=1e-7)
