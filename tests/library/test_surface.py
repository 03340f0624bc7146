"""Fitted surfaces compared with Adam and gradients of torch."""

import numpy as np
import torch
from scipy.special import expit
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from relmap.calibrators.identity import Identity
from relmap.decisions import ProtocolDecisions, decide
from relmap.projection.decisions import LabelledDecisions
from relmap.projection.lattice import initial_curve
from relmap.projection.surface import fit_surfaces
from relmap.settings import ProjectionParams
from tests.fits import interpolation_weights, simulate_logits_and_labels
from tests.torch_fits import minimize_with_adam


def calibrated(m: int, K: int) -> tuple[np.ndarray, ...]:
    """Simulate confidence, gap, decision and correct of m rows, each of shape (m,), of a calibrated model."""
    logits, labels = simulate_logits_and_labels(m, K, overconfidence=1)
    rows = LabelledDecisions.from_calibrators(
        [Identity()], ProtocolDecisions(decision=decide(logits), logits=logits, label=labels, group=np.arange(m))
    )
    return expit(rows.by_calibrator[0].confidence_logit), rows.by_calibrator[0].gap, rows.decision, rows.correct


def test_surface_fit_equals_adam_of_torch():
    rows = calibrated(200, 3)
    confidence, gap, decision, correct = rows
    chosen = ProjectionParams(epochs=100)
    z = torch.from_numpy(correct.astype(np.float64))
    low, high = np.quantile(gap, [0.01, 0.99])
    along_gap = interpolation_weights(np.clip((gap - low) / (high - low), 0, 1), 6)
    weights = torch.from_numpy(interpolation_weights(confidence, chosen.knots)[:, :, None] * along_gap[:, None])

    def values_of(theta: torch.Tensor) -> torch.Tensor:
        rises = softplus(theta)
        rises = torch.cat([torch.cat([theta[:, :1, :1], rises[:, :1, 1:]], dim=2), rises[:, 1:]], dim=1)
        return rises.cumsum(dim=1).cumsum(dim=2)

    def objective(theta: torch.Tensor) -> torch.Tensor:
        values = values_of(theta)
        bends = sum(values.diff(n=2, dim=axis).square().mean() for axis in (1, 2))
        loss = binary_cross_entropy_with_logits((weights * values[decision]).sum(dim=(1, 2)), z)
        return loss + chosen.smoothness * bends

    start = np.full((3, chosen.knots, 6), np.log(np.expm1(1e-3)))
    start[:, 0] = np.log(np.expm1(1e-2))
    start[:, :, 0] = initial_curve(chosen.knots)
    fitted = fit_surfaces(*rows, n_labels=3, settings=chosen)

    np.testing.assert_allclose(
        fitted.values, values_of(minimize_with_adam(start, objective, chosen)), rtol=0, atol=1e-7
    )
