"""Label-wise 2D: the gap, and surfaces that fall along neither axis."""

import numpy as np
import pytest
import torch
from scipy.special import expit, log_softmax, logit

from tasks.projection import surface
from tasks.projection.decisions import Decisions
from tasks.projection.lattice import LatticeSettings, first_curve


def with_gap(decisions: Decisions, gap: np.ndarray) -> Decisions:
    """The same decisions with a gap that is already known."""
    decisions.__dict__["gap"] = gap
    return decisions


def gap_of(log_probabilities: np.ndarray, logits: np.ndarray, decision: np.ndarray) -> np.ndarray:
    return Decisions(np.zeros(len(decision)), decision, log_probabilities, logits).gap


def simulated(m: int, K: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Confidence, gap, decision and correct of m rows, `(m,)` each, of a calibrated multinomial model."""
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.normal(size=(m, K))
    log_probabilities = log_softmax(logits, axis=1)
    decision = logits.argmax(axis=1)
    truth = (np.exp(log_probabilities).cumsum(axis=1) > rng.random((m, 1))).argmax(axis=1)
    confidence = np.exp(log_probabilities.max(axis=1))
    return confidence, gap_of(log_probabilities, logits, decision), decision, truth == decision


# The gap


def test_the_gap_of_two_rows_by_hand():
    probabilities = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    logits = np.array([[3.0, 1.0, 2.0], [3.0, 3.0, 1.0]])  # runners-up: label 2, then label 1
    gap = gap_of(np.log(probabilities), logits, np.array([0, 0]))
    np.testing.assert_allclose(gap, logit([0.5, 0.1]) - logit([0.2, 0.2]), rtol=1e-12)


def test_saturated_probabilities_are_cut():
    with np.errstate(divide="ignore"):
        log_probabilities = np.log(np.array([[1.0, 0.0], [0.0, 1.0]]))
    gap = gap_of(log_probabilities, np.array([[9.0, 0.0], [9.0, 0.0]]), np.array([0, 0]))
    np.testing.assert_allclose(gap, [2 * logit(1 - 1e-6), -2 * logit(1 - 1e-6)], rtol=1e-9)


def test_with_two_labels_the_gap_is_twice_the_logit_of_the_confidence():
    confidence, gap, _, _ = simulated(500, 2)
    np.testing.assert_allclose(gap, 2 * logit(confidence), rtol=1e-9, atol=1e-12)


# The surfaces


def test_a_cell_worked_by_hand():
    # corners 0, 1 along the gap at confidence 0, and 2, 5 at confidence 1/2: a quarter up, half right
    values = np.array([[[0.0, 1.0], [2.0, 5.0], [6.0, 9.0]]])
    of = surface.Surfaces(np.array([0, 0.5, 1]), np.array([-1.0, 3.0]), values)

    def read(gap: float) -> np.ndarray:
        seen = Decisions(logit(np.array([0.25])), np.zeros(1, dtype=int))
        return of(with_gap(seen, np.array([gap])))

    assert read(0.0) == pytest.approx((0.25 + 2.75) / 2)
    assert read(99.0) == pytest.approx(3)  # beyond the outer knot it stays


def plainest_fit(confidence, gap, decision, correct, n_labels: int, chosen: LatticeSettings) -> np.ndarray:
    """The authors' surfaces with nothing of ours but the start: dense hat weights, torch's own Adam and gradient."""
    low, high = np.quantile(gap, [0.01, 0.99])
    within = np.clip((gap - low) / (high - low), 0, 1)
    sizes = chosen.knots, 6
    hats = [
        (1 - (torch.from_numpy(u)[:, None] * (size - 1) - torch.arange(size)).abs()).clamp(min=0)
        for u, size in zip((confidence, within), sizes, strict=True)
    ]
    theta = np.full((n_labels, *sizes), np.log(np.expm1(1e-3)))
    theta[:, 0], theta[:, :, 0] = np.log(np.expm1(1e-2)), first_curve(chosen.knots)
    theta, d, z = torch.from_numpy(theta).requires_grad_(), torch.from_numpy(decision), torch.from_numpy(correct)
    adam = torch.optim.Adam([theta], lr=chosen.learning_rate)

    def values() -> torch.Tensor:
        rises = torch.nn.functional.softplus(theta)
        rises = torch.cat([torch.cat([theta[:, :1, :1], rises[:, :1, 1:]], dim=2), rises[:, 1:]], dim=1)
        return rises.cumsum(dim=1).cumsum(dim=2)

    for _ in range(chosen.epochs):
        adam.zero_grad()
        t = torch.einsum("mj,mg,mjg->m", hats[0], hats[1], values()[d])
        bends = sum(values().diff(n=2, dim=axis).square().mean() for axis in (1, 2))
        loss = torch.nn.functional.binary_cross_entropy_with_logits(t, z.double()) + chosen.smoothness * bends
        loss.backward()
        adam.step()
    return values().detach().numpy()


def test_torchs_own_adam_takes_the_same_steps():
    rows = simulated(600, 3)
    fitted = surface.fit_surfaces(*rows, n_labels=3, settings=LatticeSettings())
    np.testing.assert_allclose(fitted.values, plainest_fit(*rows, 3, LatticeSettings()), rtol=0, atol=1e-7)


def test_fitted_surfaces_fall_nowhere_are_found_again_and_do_not_feel_the_order():
    rng = np.random.default_rng(0)
    confidence, gap, decision = rng.uniform(size=2000), rng.normal(size=2000), rng.integers(3, size=2000)
    right = rng.uniform(size=2000) < expit(4 * confidence - 2 + gap)
    fitted = surface.fit_surfaces(confidence, gap, decision, right, n_labels=3, settings=LatticeSettings())
    assert fitted.violations() == []
    said = fitted(with_gap(Decisions(logit(confidence), decision), gap))
    assert np.abs(expit(said) - expit(4 * confidence - 2 + gap)).mean() < 0.08
    order = rng.permutation(2000)
    again = surface.fit_surfaces(
        confidence[order], gap[order], decision[order], right[order], n_labels=3, settings=LatticeSettings()
    )
    assert (again.values == fitted.values).all()
