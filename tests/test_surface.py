"""Label-wise 2D: the gap, and surfaces that fall along neither axis."""

import numpy as np
import pytest
import torch
from fits import descended, hats, logits_and_labels, seen
from scipy.special import expit, logit
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from tasks.calibrators.identity import Identity
from tasks.projection.decisions import Decisions, LabelledDecisions
from tasks.projection.lattice import first_curve
from tasks.projection.surface import Surfaces, fit_surfaces
from tasks.protocol.decisions import FixedDecisions, decide
from tasks.protocol.params import ProjectionParams


def simulated(m: int, K: int) -> tuple[np.ndarray, ...]:
    """Confidence, gap, decision and correct of m rows, `(m,)` each, of a calibrated multinomial model."""
    logits, labels = logits_and_labels(m, K, overconfidence=1)
    rows = LabelledDecisions.of([Identity()], FixedDecisions(logits, labels, decide(logits), np.arange(m)))
    return expit(rows.under[0].confidence_logit), rows.under[0].gap, rows.decision, rows.correct


@pytest.mark.parametrize(
    ("probabilities", "logits", "expected"),
    [
        ([0.5, 0.3, 0.2], [3.0, 1.0, 2.0], logit(0.5) - logit(0.2)),
        ([0.1, 0.2, 0.7], [3.0, 3.0, 1.0], logit(0.1) - logit(0.2)),  # of equals the first is the runner-up
        ([0.8, 0.2], [2.0, 1.0], 2 * logit(0.8)),  # of two labels
        ([1.0, 0.0], [9.0, 0.0], 2 * logit(1 - 1e-6)),
        ([0.0, 1.0], [9.0, 0.0], -2 * logit(1 - 1e-6)),
    ],
)
def test_the_gap_is_that_to_the_runner_up_of_the_logits_and_saturated_probabilities_are_cut(
    probabilities, logits, expected
):
    with np.errstate(divide="ignore"):
        gap = Decisions(np.zeros(1), np.zeros(1, dtype=int), np.log([probabilities]), np.array([logits])).gap
    np.testing.assert_allclose(gap, expected, rtol=1e-9)


@pytest.mark.parametrize(("gap", "expected"), [(0.0, (0.25 + 2.75) / 2), (9.0, 3)], ids=["between", "beyond"])
def test_a_cell_worked_by_hand(gap, expected):
    # corners 0, 1 along the gap at confidence 0, and 2, 5 at confidence 1/2: a quarter up, half right
    surfaces = Surfaces(np.array([0, 0.5, 1]), np.array([-1.0, 3.0]), np.array([[[0.0, 1.0], [2.0, 5.0], [6.0, 9.0]]]))
    assert surfaces(seen(logit(np.array([0.25])), 0, np.array([gap]))) == pytest.approx(expected)


def test_torchs_own_adam_takes_the_same_steps():
    confidence, gap, decision, correct = rows = simulated(200, 3)
    chosen, z = ProjectionParams(epochs=100), torch.from_numpy(correct.astype(np.float64))
    low, high = np.quantile(gap, [0.01, 0.99])
    along_gap = hats(np.clip((gap - low) / (high - low), 0, 1), 6)
    weights = torch.from_numpy(hats(confidence, chosen.knots)[:, :, None] * along_gap[:, None])

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
    start[:, 0], start[:, :, 0] = np.log(np.expm1(1e-2)), first_curve(chosen.knots)
    fitted = fit_surfaces(*rows, n_labels=3, settings=chosen)
    np.testing.assert_allclose(fitted.values, values_of(descended(start, objective, chosen)), rtol=0, atol=1e-7)


def test_fitted_surfaces_fall_nowhere_are_found_again_and_do_not_feel_the_order():
    rng = np.random.default_rng(0)
    confidence, gap, decision = rng.uniform(size=1000), rng.normal(size=1000), rng.integers(3, size=1000)
    rows = confidence, gap, decision, rng.uniform(size=1000) < expit(4 * confidence - 2 + gap)
    fitted = fit_surfaces(*rows, n_labels=3, settings=ProjectionParams())
    assert fitted.violations() == []
    reliability = expit(fitted(seen(logit(confidence), decision, gap)))
    assert np.abs(reliability - expit(4 * confidence - 2 + gap)).mean() < 0.08
    at = np.linspace(-45, 45, 4001)
    assert (np.diff(fitted(seen(at, 1, np.full(4001, 1.5)))) >= 0).all()
    order = rng.permutation(1000)
    again = fit_surfaces(*(part[order] for part in rows), n_labels=3, settings=ProjectionParams())
    assert (again.values == fitted.values).all()
