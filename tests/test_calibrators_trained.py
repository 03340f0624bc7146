"""h-cal and SMART: the calibrators that descend by small steps, and the losses they descend on."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from scipy.special import expit, log_softmax, softmax

from tasks.calibrators import FITTERS, SENSITIVITY
from tasks.calibrators.adam import Adam
from tasks.calibrators.hcalibration import SPAN, HCalibration, HCalibrationSettings, fit_hcal, fit_hcal_pooled
from tasks.calibrators.margin_losses import CENTRES, log_loss, soft_ece
from tasks.calibrators.margin_net import margin_nets, temperature_of
from tasks.calibrators.residuals import cluster_edges, event_loss, moving_average, residual_loss
from tasks.calibrators.smart import Smart, SmartSettings, fit_smart, fit_smart_on_first, fit_smart_soft_ece
from tasks.calibrators.temperature import Temperature, fit_temperature
from tasks.metrics.probability import ece, nll

TRAINED = {name: fitter for name, fitter in (FITTERS | SENSITIVITY).items() if name.startswith(("hcal", "smart"))}
each = pytest.mark.parametrize("name", TRAINED)


def simulated(n: int, n_labels: int, seed: int = 0, overconfidence: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits `(n, K)` that are `overconfidence` times too large, and labels drawn from the true ones."""
    rng = np.random.default_rng(seed)
    true_logits = rng.normal(size=(n, n_labels)) * 1.5
    labels = (true_logits + rng.gumbel(size=true_logits.shape)).argmax(axis=1)
    return overconfidence * true_logits, labels


def lopsided(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Binary logits, six times too large, of rows that mostly belong to label 0: p is not spread symmetrically."""
    rng = np.random.default_rng(seed)
    gap = rng.normal(-0.8, 0.7, n)
    return np.column_stack([np.zeros(n), 6 * gap]), (gap > rng.logistic(size=n)).astype(int)


def calibration_error(log_probabilities: np.ndarray, logits: np.ndarray, labels: np.ndarray) -> float:
    decision = logits.argmax(axis=1)
    return ece(np.exp(log_probabilities[np.arange(len(labels)), decision]), decision == labels)


# Both


@each
@pytest.mark.parametrize("n_labels", [2, 3, 4, 5])
def test_every_row_keeps_its_decision_and_order(name, n_labels):
    short = HCalibrationSettings(steps=120) if name.startswith("hcal") else SmartSettings(epochs=400)
    logits, labels = simulated(1500, n_labels)
    calibrated = TRAINED[name](logits, labels, seed=1, settings=short)(logits)
    np.testing.assert_array_equal(calibrated.argmax(axis=1), logits.argmax(axis=1))
    np.testing.assert_array_equal(calibrated.argsort(axis=1), logits.argsort(axis=1))


@each
def test_two_labels_get_one_map_of_the_confidence(name):
    short = HCalibrationSettings(steps=120) if name.startswith("hcal") else SmartSettings(epochs=400)
    logits, labels = simulated(1500, 2)
    calibrator = TRAINED[name](logits, labels, seed=1, settings=short)
    margin = np.linspace(0, 12, 200)
    zero = np.zeros_like(margin)
    there, back = calibrator(np.column_stack([margin, zero])), calibrator(np.column_stack([zero, margin]))
    np.testing.assert_allclose(there, back[:, ::-1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(calibrator(np.column_stack([margin + 5, zero + 5])), there, rtol=0, atol=1e-12)
    if name != "smart_soft_ece":
        assert (np.diff(there[:, 0]) > -1e-12).all()


@each
def test_one_label_only_is_enough(name):
    short = HCalibrationSettings(steps=30) if name.startswith("hcal") else SmartSettings(epochs=30)
    logits, _ = simulated(300, 3)
    calibrated = TRAINED[name](logits, np.ones(300, dtype=int), seed=1, settings=short)(logits)
    assert np.isfinite(calibrated).all()


@each
def test_a_fit_reads_no_more_of_the_seed_than_it_says(name):
    short = HCalibrationSettings(steps=30, rows=400) if name.startswith("hcal") else SmartSettings(epochs=30)
    logits, labels = simulated(600, 3)
    bits = [TRAINED[name](logits, labels, seed=seed, settings=short)(logits) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(bits[0], bits[1])
    assert (bits[0] != bits[2]).any()


def test_adam_steps_by_hand():
    # a first step is the learning rate against the sign of the slope; then first = 0.9 * 0.2 - 0.1 * 1 = 0.08 and
    # second = 0.999 * 0.004 + 0.001 = 0.004996, divided by 1 - 0.9^2 = 0.19 and 1 - 0.999^2 = 0.001999
    adam = Adam(0.005)
    np.testing.assert_allclose(adam.step(np.array([2.0, -1e3, 0.0])), [-0.005, 0.005, 0], rtol=0, atol=1e-10)
    second = adam.step(np.array([-1.0, -1e3, 0.0]))
    np.testing.assert_allclose(second[0], -0.005 * (0.08 / 0.19) / np.sqrt(0.004996 / 0.001999), rtol=1e-7)
    np.testing.assert_allclose(second[1:], [0.005, 0], rtol=0, atol=1e-10)


# The loss of h-calibration


def naive_edges(values: np.ndarray, clusters: int, lloyd_steps: int) -> np.ndarray:
    """k-means by distances, from the same centres; a tie between two centres goes to the upper one."""
    centres = np.array([values[int((i + 0.5) / clusters * len(values))] for i in range(clusters)])
    for _ in range(lloyd_steps):
        distance = np.abs(values[:, None] - centres)
        nearest = clusters - 1 - distance[:, ::-1].argmin(axis=1)
        for cluster in range(clusters):
            if (nearest == cluster).any():
                centres[cluster] = values[nearest == cluster].mean()
    return np.searchsorted(nearest, np.arange(clusters + 1))


@pytest.mark.parametrize("n", [3, 40, 700])
@pytest.mark.parametrize("lloyd_steps", [1, 8])
def test_clusters_are_those_of_a_naive_k_means(n, lloyd_steps):
    values = np.sort(np.random.default_rng(n).beta(0.4, 0.9, n))
    np.testing.assert_array_equal(cluster_edges(values, 15, lloyd_steps), naive_edges(values, 15, lloyd_steps))


def test_clusters_of_equal_values_are_one_cluster():
    assert np.count_nonzero(np.diff(cluster_edges(np.full(50, 0.3), 15, 8))) == 1


def test_a_moving_average_by_hand():
    # (1 + 2) / 3, (1 + 2 + 6) / 3, (2 + 6 + 3) / 3, (6 + 3) / 3
    np.testing.assert_allclose(moving_average(np.array([1.0, 2.0, 6.0, 3.0]), 3), [1, 3, 11 / 3, 3], atol=1e-15)


@given(n=st.integers(1, 60), window=st.integers(1, 150), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=50, derandomize=True)
def test_a_moving_average_is_its_own_transpose(n, window, seed):
    one, other = np.random.default_rng(seed).normal(size=(2, n))
    here, there = one @ moving_average(other, window), other @ moving_average(one, window)
    np.testing.assert_allclose(here, there, rtol=0, atol=1e-12)


def naive_loss(probabilities: np.ndarray, labels: np.ndarray, left_out: tuple, window: int, clusters: int) -> float:
    losses = []
    for left in left_out:
        events = sorted(
            (p, p - (k == label))
            for row, label in zip(probabilities, labels, strict=True)
            for k, p in enumerate(row)
            if label != left
        )
        if not events:
            continue
        half = (max(1, min(window, len(events) // 5)) - 1) // 2
        away = [
            abs(sum(residual for _, residual in events[max(0, i - half) : i + half + 1])) / (2 * half + 1)
            for i in range(len(events))
        ]
        edges = naive_edges(np.array([p for p, _ in events]), clusters, 8)
        means = [np.mean(away[a:b]) for a, b in itertools.pairwise(edges) if b > a]
        losses.append(np.mean(means))
    return float(np.mean(losses))


def drawn(n: int, n_labels: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    logits, labels = simulated(n, n_labels, seed)
    return softmax(logits, axis=1), labels


@pytest.mark.parametrize("n_labels", [2, 4])
@pytest.mark.parametrize("left_out", [(None,), (0, 1, 2, 3)])
def test_the_loss_is_that_of_a_naive_double_loop(n_labels, left_out):
    probabilities, labels = drawn(60, n_labels)
    order = probabilities.ravel().argsort()
    loss, _ = residual_loss(
        probabilities, labels=labels, order=order, left_out=left_out, window=11, clusters=5, lloyd_steps=8
    )
    np.testing.assert_allclose(loss, naive_loss(probabilities, labels, left_out, 11, 5), rtol=1e-12)


@pytest.mark.parametrize("left_out", [(None,), (0, 1, 2)])
def test_the_slope_of_the_loss_is_that_of_finite_differences(left_out):
    probabilities, labels = drawn(50, 3)
    order = probabilities.ravel().argsort()

    def loss(flat: np.ndarray) -> float:
        return naive_loss(flat.reshape(50, 3), labels, left_out, 9, 4)

    _, slope = residual_loss(
        probabilities, labels=labels, order=order, left_out=left_out, window=9, clusters=4, lloyd_steps=8
    )
    np.testing.assert_allclose(slope.ravel(), approx_fprime(probabilities.ravel(), loss, 1e-9), atol=1e-5)


def test_residuals_that_cancel_cost_nothing_and_those_that_do_not_cost_their_mean():
    edges = np.array([0, 20])
    assert event_loss(np.tile([0.5, -0.5], 10), edges, 1)[0] == pytest.approx(0.5)
    assert event_loss(np.full(20, 0.25), edges, 1)[0] == pytest.approx(0.25)
    assert event_loss(np.tile([0.5, 0.0, -0.5], 40)[:100], np.array([0, 100]), 3)[0] < 0.01


# h-cal


def test_slopes_of_one_are_the_identity():
    logits, _ = simulated(200, 4, overconfidence=30.0)
    np.testing.assert_allclose(HCalibration(np.ones(10))(logits), log_softmax(logits, axis=1), rtol=0, atol=1e-11)


def test_equal_slopes_are_an_inverse_temperature():
    logits, _ = simulated(200, 4, overconfidence=30.0)
    np.testing.assert_allclose(HCalibration(np.full(7, 0.3))(logits), Temperature(0.3)(logits), rtol=0, atol=1e-11)


def test_the_curve_of_a_hand_worked_example():
    # -log p is 0 and 60 but for exp(-60); slopes 0.05 to 50 and 0.2 beyond: 50 * 0.05 + 10 * 0.2 = 4.5
    calibrated = HCalibration(np.array([0.05, 0.2]))(np.array([[60.0, 0.0]]))
    np.testing.assert_allclose(calibrated[0, 0] - calibrated[0, 1], 4.5, rtol=1e-12)


@given(
    slopes=st.lists(st.floats(1e-3, 50), min_size=1, max_size=20),
    seed=st.integers(0, 1000),
    scale=st.sampled_from([1, 40, 1e3]),
)
@settings(deadline=None, max_examples=50, derandomize=True)
def test_no_curve_swaps_two_labels_and_none_jumps(slopes, seed, scale):
    curve = HCalibration(np.array(slopes))
    rng = np.random.default_rng(seed)
    step = SPAN / len(slopes)
    near_knots = rng.integers(0, len(slopes) + 2, (50, 1)) * step + np.array([-1e-6, -1e-13, 0, 1e-13, 1e-6])
    for logits in (rng.normal(size=(50, 4)) * scale, np.column_stack([np.zeros(50), -near_knots])):
        order = logits.argsort(axis=1)
        ordered = np.take_along_axis(curve(logits), order, axis=1)
        assert (np.diff(ordered, axis=1) >= 0).all()
    jump = np.ptp(curve(np.column_stack([np.zeros(50), -near_knots]))[:, 1:], axis=1)
    assert (jump[near_knots[:, 2] > 0] <= 1e-3).all()


@pytest.mark.parametrize("n_labels", [2, 5])
@pytest.mark.parametrize("overconfidence", [0.5, 3.0])
def test_hcal_lowers_the_calibration_error_and_its_own_loss(n_labels, overconfidence):
    logits, labels = simulated(1500, n_labels, overconfidence=overconfidence)
    before, after = log_softmax(logits, axis=1), fit_hcal(logits, labels, seed=1)(logits)
    assert calibration_error(after, logits, labels) < 0.5 * calibration_error(before, logits, labels)
    left_out = tuple(range(n_labels))
    losses = [
        residual_loss(
            np.exp(log_p),
            labels=labels,
            order=np.exp(log_p).ravel().argsort(),
            left_out=left_out,
            window=201,
            clusters=15,
            lloyd_steps=8,
        )[0]
        for log_p in (before, after)
    ]
    assert losses[1] < losses[0]


@pytest.mark.parametrize("n_labels", [2, 4])
def test_pooled_hcal_ends_near_temperature_scaling(n_labels):
    logits, labels = simulated(2000, n_labels)
    calibrator, reference = fit_hcal_pooled(logits, labels, seed=1), fit_temperature(logits, labels, seed=1)
    assert calibrator.slopes[0] == pytest.approx(reference.beta, rel=0.1)
    assert nll(calibrator(logits), labels) <= nll(reference(logits), labels) + 2e-3


def test_leaving_one_of_two_labels_out_corrects_too_little_where_p_is_lopsided():
    logits, labels = lopsided(2500)
    uncalibrated = calibration_error(log_softmax(logits, axis=1), logits, labels)
    pooled = calibration_error(fit_hcal_pooled(logits, labels, seed=1)(logits), logits, labels)
    one_left_out = calibration_error(fit_hcal(logits, labels, seed=1)(logits), logits, labels)
    assert pooled < 0.2 * uncalibrated
    assert 2 * pooled < one_left_out < uncalibrated


def test_rows_beyond_those_that_are_read_still_choose_the_curve():
    logits, labels = simulated(900, 3)
    few = HCalibrationSettings(rows=300, steps=150)
    calibrated = fit_hcal(logits, labels, seed=1, settings=few)(logits)
    assert calibration_error(calibrated, logits, labels) < calibration_error(
        log_softmax(logits, axis=1), logits, labels
    )


def test_logits_that_are_calibrated_already_stay_nearly_as_they_are():
    logits, labels = simulated(3000, 3, overconfidence=1.0)
    assert abs(fit_hcal(logits, labels, seed=1).slopes[0] - 1) < 0.15


# SMART


def naive_net(parameters: np.ndarray, margin: np.ndarray) -> np.ndarray:
    weight, bias, output = np.split(parameters[:-1], 3)
    hidden = np.maximum(margin[:, None] * weight + bias, 0)
    return np.log1p(np.exp(hidden @ output + parameters[-1])) + 0.1


@given(hidden=st.integers(1, 20), fits=st.integers(1, 4), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=40, derandomize=True)
def test_nets_between_their_kinks_are_the_nets(hidden, fits, seed):
    rng = np.random.default_rng(seed)
    rows = rng.integers(1, 30, fits)
    parameters = rng.normal(size=(fits, 3 * hidden + 1))
    margins = [np.sort(rng.normal(size=n)) for n in rows]
    temperature, backwards = margin_nets(parameters, np.concatenate(margins), rows)
    slope = rng.normal(size=rows.sum())
    ends = rows.cumsum()[:-1]
    for of_fit, margin, t, s, found in zip(
        parameters, margins, np.split(temperature, ends), np.split(slope, ends), backwards(slope), strict=True
    ):
        np.testing.assert_allclose(t, naive_net(of_fit, margin), rtol=1e-12)
        np.testing.assert_allclose(temperature_of(of_fit, margin[::-1]), t[::-1], rtol=1e-12)
        numeric = approx_fprime(of_fit, lambda at, s=s, margin=margin: s @ naive_net(at, margin), 1e-7)
        np.testing.assert_allclose(found, numeric, rtol=1e-4, atol=1e-4 * np.abs(numeric).max())


@pytest.mark.parametrize("bias", [-800.0, -40.0, 0.0, 39.9, 40.1, 800.0])
def test_a_temperature_is_finite_however_far_its_net_goes(bias):
    parameters = np.array([[1.0, 0.0, 0.0, bias]])  # one hidden unit that says nothing
    temperature, backwards = margin_nets(parameters, np.array([0.5]), np.array([1]))
    np.testing.assert_allclose(temperature, np.logaddexp(0, bias) + 0.1, rtol=1e-15)
    np.testing.assert_allclose(backwards(np.ones(1))[0, -1], expit(bias), rtol=1e-14, atol=1e-300)


def losses_of(logits: np.ndarray, labels: np.ndarray, rows: list[int]) -> dict:
    top = logits.max(axis=1)
    below = np.array([np.delete(row, row.argmax()) for row in logits]).T - top
    of_label = logits[np.arange(len(labels)), labels] - top
    of_fits = {"below": below, "rows": np.array(rows)}
    return {
        "log_loss": partial(log_loss, of_label=of_label, **of_fits),
        "soft_ece": partial(soft_ece, correct=logits.argmax(axis=1) == labels, **of_fits),
    }


@pytest.mark.parametrize("name", ["log_loss", "soft_ece"])
@pytest.mark.parametrize("n_labels", [2, 5])
def test_slopes_in_the_temperature_are_those_of_finite_differences(name, n_labels):
    logits, labels = simulated(40, n_labels)
    loss = losses_of(logits, labels, [25, 1, 14])[name]
    temperature = np.random.default_rng(1).uniform(0.5, 6, 40)
    numeric = approx_fprime(temperature, lambda t: loss(t)[0].sum(), 1e-7)
    np.testing.assert_allclose(loss(temperature)[1], numeric, rtol=0, atol=3e-7)


def test_the_losses_are_those_that_their_definitions_give():
    logits, labels = simulated(80, 3)
    temperature = np.random.default_rng(1).uniform(0.5, 6, 80)
    losses = losses_of(logits, labels, [50, 30])
    log_p = log_softmax(logits / temperature[:, None], axis=1)
    confidence, correct = np.exp(log_p.max(axis=1)), logits.argmax(axis=1) == labels
    for fit, own in enumerate([slice(0, 50), slice(50, 80)]):
        assert losses["log_loss"](temperature)[0][fit] == pytest.approx(nll(log_p[own], labels[own]), rel=1e-12)
        weight = np.exp(-((confidence[own, None] - CENTRES) ** 2) / (2 * 0.05**2))
        weight /= weight.sum(axis=1, keepdims=True)
        gap = (weight * (confidence - correct)[own, None]).sum(axis=0) / weight.sum(axis=0)
        expected = (weight.mean(axis=0) * np.sqrt(gap**2 + 1e-6)).sum()
        assert losses["soft_ece"](temperature)[0][fit] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("n_labels", [2, 5])
@pytest.mark.parametrize("overconfidence", [0.3, 4.0])
def test_smart_fits_no_worse_than_one_temperature_does(n_labels, overconfidence):
    logits, labels = simulated(1000, n_labels, overconfidence=overconfidence)
    ours = nll(fit_smart(logits, labels, seed=1)(logits), labels)
    assert ours <= nll(fit_temperature(logits, labels, seed=1)(logits), labels) + 1e-3
    assert ours < nll(log_softmax(logits, axis=1), labels) - 0.01


def test_smart_gains_where_the_temperature_depends_on_the_margin():
    true_logits, labels = simulated(2000, 2, overconfidence=1.0)
    margin = np.abs(true_logits[:, 0] - true_logits[:, 1])
    logits = true_logits * np.where(margin > 1.5, 6.0, 1.0)[:, None]
    ours = nll(fit_smart(logits, labels, seed=1)(logits), labels)
    assert ours < nll(fit_temperature(logits, labels, seed=1)(logits), labels) - 0.01


def test_the_best_epoch_counts_however_wild_the_steps():
    logits, labels = simulated(300, 3)
    wild = [SmartSettings(epochs=epochs, learning_rate=1.0) for epochs in range(25)]
    losses = [nll(fit_smart(logits, labels, seed=1, settings=steps)(logits), labels) for steps in wild]
    assert (np.diff(losses) <= 1e-12).all()
    assert losses[-1] < losses[0] - 0.1


def test_seeds_of_smart_agree_under_log_loss():
    logits, labels = simulated(1000, 2)
    one, other = (fit_smart(logits, labels, seed=seed)(logits) for seed in (1, 2))
    assert abs(nll(one, labels) - nll(other, labels)) < 2e-3


def test_soft_ece_calibrates_the_rows_it_was_fitted_on():
    logits, labels = simulated(1000, 3)
    calibrated = fit_smart_soft_ece(logits, labels, seed=1, settings=SmartSettings(epochs=1000))(logits)
    assert calibration_error(calibrated, logits, labels) < 0.03
    assert calibration_error(log_softmax(logits, axis=1), logits, labels) > 0.15


@pytest.mark.parametrize("fitter", [fit_smart, fit_smart_soft_ece])
def test_few_rows_or_equal_margins_take_one_temperature(fitter):
    logits, labels = simulated(99, 3)
    assert fitter(logits, labels, seed=1) == fit_temperature(logits, labels, seed=1)
    rng = np.random.default_rng(0)
    equal = np.array([rng.permutation([1.7, 0.3, -0.4]) for _ in range(400)])
    labels = rng.integers(0, 3, 400)
    assert isinstance(fitter(equal, labels, seed=1), Temperature)


def test_too_few_rows_take_one_temperature_beside_fits_that_do_not():
    logits, labels = simulated(300, 3)
    short = SmartSettings(epochs=20)
    few, enough = fit_smart_on_first(logits, labels, [99, 100], seed=1, settings=short)
    assert few == fit_temperature(logits[:99], labels[:99], seed=1)
    assert isinstance(enough, Smart)


def test_ties_at_the_top_are_a_margin_of_zero():
    logits, labels = simulated(300, 3)
    logits[:150, 1] = logits[:150, 0]
    calibrated = fit_smart(logits, labels, seed=1, settings=SmartSettings(epochs=50))(logits)
    np.testing.assert_array_equal(calibrated[:150, 0], calibrated[:150, 1])


def test_the_order_of_the_rows_does_not_matter_to_smart():
    logits, labels = simulated(400, 3)
    short, shuffled = SmartSettings(epochs=100), np.random.default_rng(0).permutation(400)
    here = fit_smart(logits, labels, seed=1, settings=short)
    there = fit_smart(logits[shuffled], labels[shuffled], seed=1, settings=short)
    assert isinstance(here, Smart)
    np.testing.assert_allclose(here(logits), there(logits), rtol=0, atol=1e-9)
