"""h-calibration equals slow computations of the definition."""

import numpy as np
import pytest
from scipy.special import softmax

from relmap.calibrators import hcalibration
from relmap.calibrators.hcalibration import (
    HCalibration,
    HCalibrationSettings,
    Pieces,
    TrainingEvents,
    _locate_segment,
    _mapping_loss,
    _moving_sum,
    _residual_loss,
    _stable_argsort,
    fit_hcal,
)
from relmap.calibrators.identity import floored_log_softmax
from relmap.calibrators.smart import SmartSettings, fit_smart
from tests import naive
from tests.fits import simulate_logits_and_labels

LOGITS = np.array([[2.0, -1.0, 0.5], [0.0, 3.0, 1.0], [-4.0, -1.5, -2.0], [1.0, 1.25, 5.0]])


def test_default_settings_equal_the_settings_of_the_authors():
    logits, labels = simulate_logits_and_labels(50, 3)
    hcal_settings = HCalibrationSettings(
        segments=50, window=201, learning_rate=0.005, epochs=80, patience=18, batch=6000
    )
    smart_settings = SmartSettings(learning_rate=0.005, epochs=120, patience=28)
    assert (HCalibrationSettings(), SmartSettings()) == (hcal_settings, smart_settings)
    by_default = fit_hcal(logits, labels, seed=1)
    np.testing.assert_array_equal(by_default.factors, fit_hcal(logits, labels, seed=1, settings=hcal_settings).factors)
    default_network = fit_smart(logits, labels, seed=1)
    network = fit_smart(logits, labels, seed=1, settings=smart_settings)
    np.testing.assert_array_equal(default_network.parameters, network.parameters)


@pytest.mark.parametrize(
    ("surprisal", "segment"), [(0.0, 0), (1.999, 0), (2.001, 1), (2.0, 1), (99.9, 49), (100.0, 50), (500.0, 50)]
)
def test_events_belong_to_equal_segments_up_to_100(surprisal, segment):
    assert _locate_segment(np.array([surprisal]), 50).tolist() == [segment]


@pytest.mark.parametrize("half_window", [0, 1, 3, 20])
def test_moving_sum_equals_a_loop(half_window):
    values = np.array([5, -2, 7, 1, 0, -4, 3], dtype=np.int64)
    expected = [int(values[max(0, row - half_window) : row + half_window + 1].sum()) for row in range(7)]
    assert _moving_sum(values, half_window).tolist() == expected


def test_sort_is_stable_with_ties_and_close_values():
    generator = np.random.default_rng(0)
    values = generator.choice([0.0, 0.25, np.nextafter(0.25, 1), 0.5, 1e-300, 1.0], 200)
    np.testing.assert_array_equal(_stable_argsort(values), np.argsort(values, kind="stable"))
    close = 0.5 + generator.integers(0, 9, 300) * 2**-53
    np.testing.assert_array_equal(_stable_argsort(close), np.argsort(close, kind="stable"))
    assert _stable_argsort(np.array([0.3])).tolist() == [0]


def expected_residual_loss(p: np.ndarray, labels: np.ndarray, window: int) -> float:
    losses = []
    for excluded in range(p.shape[1]):
        events = []
        for row in range(len(p)):
            for label in range(p.shape[1]):
                if labels[row] != excluded:
                    residual = p[row, label] - (label == labels[row])
                    events.append((p[row, label], row, label, residual))
        if len(events) < 2 * p.shape[1]:
            continue
        residuals = [residual for *_, residual in sorted(events)]
        half = (window - 1) // 2
        sums = [sum(residuals[max(0, i - half) : i + half + 1]) for i in range(len(residuals))]
        losses.append(np.abs(sums).mean() / (2 * half + 1))
    return float(np.mean(losses)) if losses else 0.0


@pytest.mark.parametrize("window", [1, 2, 3, 4, 7, 201])
@pytest.mark.parametrize("n_rows", [1, 4, 12])
def test_residual_loss_equals_loops_for_each_window(n_rows, window):
    """The window has an odd number of events, and zeros outside of them; a label that one row lacks is not counted."""
    logits, labels = simulate_logits_and_labels(n_rows, 3, seed=2)
    p = softmax(logits, axis=1)
    value, gradient = _residual_loss(p, labels, window, with_gradient=True)
    assert value == pytest.approx(expected_residual_loss(p, labels, window), rel=1e-9)
    without_gradient, zeros = _residual_loss(p, labels, window, with_gradient=False)
    assert without_gradient == value
    np.testing.assert_array_equal(zeros, np.zeros((n_rows, 3)))
    assert gradient.shape == (n_rows, 3)
    assert gradient.any() == (n_rows > 1)


def test_residual_loss_with_absent_labels_is_the_mean_over_the_others():
    logits, _ = simulate_logits_and_labels(9, 4, seed=2)
    p = softmax(logits, axis=1)
    for labels in (np.zeros(9, dtype=int), np.arange(9) % 2):
        value, _ = _residual_loss(p, labels, 5, with_gradient=False)
        assert value == pytest.approx(expected_residual_loss(p, labels, 5), rel=1e-9)


def hcal_by_hand(logits: np.ndarray, labels: np.ndarray, seed: int, settings: HCalibrationSettings) -> np.ndarray:
    """Return the slopes after the epoch of the lowest loss; the start is not a candidate."""
    surprisal = -np.log(softmax(logits, axis=1) + 1e-12)
    segment = np.minimum((surprisal * settings.segments / 100).astype(int), settings.segments)
    generator = np.random.default_rng(seed)
    adam = naive.Adam(settings.learning_rate)
    n_rows = len(labels)
    slopes = np.ones(settings.segments + 1)
    path = []
    losses = []
    for _ in range(settings.epochs):
        order = np.arange(n_rows)
        if n_rows > settings.batch:
            order = generator.permutation(n_rows)
        for start in range(0, n_rows, settings.batch):
            rows = order[start : start + settings.batch]
            batch = TrainingEvents(surprisal[rows], segment[rows], labels[rows])
            slopes = slopes + adam.step(_mapping_loss(slopes, batch, settings.window)[1])
        path.append(slopes)
        all_rows = TrainingEvents(surprisal, segment, labels)
        losses.append(_mapping_loss(slopes, all_rows, settings.window)[0])
        if len(losses) - 1 - int(np.argmin(losses)) == settings.patience:
            break
    return np.abs(path[int(np.argmin(losses))])


@pytest.mark.parametrize("batch", [10, 39, 40, 100])
@pytest.mark.parametrize("learning_rate", [0.01, 0.5])
def test_hcal_factors_equal_a_plain_loop(batch, learning_rate):
    logits, labels = simulate_logits_and_labels(40, 3)
    settings = HCalibrationSettings(30, 11, learning_rate, epochs=12, patience=2, batch=batch)
    expected = hcal_by_hand(logits, labels, 5, settings)
    fitted = fit_hcal(logits, labels, seed=5, settings=settings)
    np.testing.assert_allclose(np.append(fitted.first_slope, fitted.factors), expected, rtol=1e-6)
    assert not np.allclose(expected, 1)


def map_by_hand(value: float, slopes: np.ndarray) -> float:
    """Map one value of -log p: the distance from the cumulative offset is multiplied by the slope of the segment."""
    width = 100 / (len(slopes) - 1)
    magnitudes = np.abs(slopes)
    if value >= 100:
        return width * (magnitudes.sum() - 1)
    segment = int(value / width)
    offset = width * (magnitudes[: segment + 1].sum() - 1)
    return offset + magnitudes[segment + 1] * (value - offset)


def map_values(values: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    return Pieces.from_slopes(slopes).map(values, _locate_segment(values, len(slopes) - 1))


def test_mapping_equals_a_plain_computation_for_slopes_of_either_sign():
    generator = np.random.default_rng(4)
    slopes = generator.uniform(-0.2, 2, 51)
    values = np.concatenate([np.linspace(0, 130, 400), 2.0 * np.arange(51)])
    expected = [map_by_hand(value, slopes) for value in values]
    np.testing.assert_allclose(map_values(values, slopes), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(map_values(values, -slopes), map_values(values, slopes))


def test_mapping_with_slopes_of_1_is_the_identity_up_to_100():
    values = np.array([0.0, 1.5, 2.0, 57.3, 99.9, 100.0, 250.0])
    np.testing.assert_allclose(map_values(values, np.ones(51)), [0, 1.5, 2, 57.3, 99.9, 100, 100], rtol=1e-12)


def test_mapping_jumps_between_segments_where_the_offset_is_not_their_start():
    only_first_segment = np.ones(51)
    only_first_segment[1] = 1.2
    below = np.nextafter(2.0, 0)
    # the first segment has the offset 0, and the second one the offset 2 (1 + 1.2 - 1) = 2.4, but a slope of 1
    mapped = map_values(np.array([1.0, below, 2.0, 3.0]), only_first_segment)
    np.testing.assert_allclose(mapped, [1.2, 2.4, 2.0, 3.0])
    shifted_only = np.ones(51)
    shifted_only[0] = 1.2  # has no segment, and changes nothing where the slopes are 1
    np.testing.assert_allclose(map_values(np.array([1.0, 99.0, 100.0]), shifted_only), [1.0, 99.0, 100.4])


def test_loss_of_slopes_is_that_of_the_softmax_of_the_mapped_values():
    logits, labels = simulate_logits_and_labels(20, 3)
    surprisal = -floored_log_softmax(logits)
    segment = _locate_segment(surprisal, 40)
    slopes = np.linspace(0.7, 2.2, 41)
    p = softmax(-map_values(surprisal, slopes), axis=1)
    events = TrainingEvents(surprisal, segment, labels)
    value, _ = _mapping_loss(slopes, events, 5)
    assert value == pytest.approx(1e5 * _residual_loss(p, labels, 5, with_gradient=False)[0], rel=1e-9)
    same, zeros = _mapping_loss(slopes, events, 5, with_gradient=False)
    assert same == value
    np.testing.assert_array_equal(zeros, np.zeros(41))
    np.testing.assert_allclose(HCalibration(slopes[1:], slopes[0])(logits), np.log(p), atol=1e-9)
    rows = np.array([3, 0, 7])
    selected = events.select(rows)
    for array, original in zip(selected, events, strict=True):
        np.testing.assert_array_equal(array, original[rows])


HCAL_PATIENCE_CASES = [  # the first loss is that of the start, which is not a candidate
    ([5.0, 4.0, 6.0, 6.0, 3.0], 2, 9, 1, 4),
    ([1.0, 5.0, 5.0, 5.0, 1.0], 2, 9, 1, 4),
    ([9.0, 5.0, 5 - 5e-8, 6.0, 6.0, 1.0], 2, 9, 2, 5),
    ([9.0, 4.0, 3.0, 2.0, 1.0, 0.0], 9, 4, 4, 5),
]


@pytest.mark.parametrize(("losses", "patience", "epochs", "n_steps", "n_losses"), HCAL_PATIENCE_CASES)
def test_hcal_ends_after_its_patience_and_returns_the_slopes_of_the_lowest_loss(
    losses, patience, epochs, n_steps, n_losses, monkeypatch
):
    remaining = iter(losses)
    monkeypatch.setattr(hcalibration, "_mapping_loss", lambda *_, **__: (next(remaining), np.full(8, 2.0)))
    fit_settings = HCalibrationSettings(segments=7, learning_rate=0.1, epochs=epochs, patience=patience)
    fitted = fit_hcal(LOGITS, np.array([0, 1, 1, 2]), seed=3, settings=fit_settings)
    np.testing.assert_allclose(fitted.factors, 1 - 0.1 * n_steps, atol=1e-6)
    assert fitted.first_slope == pytest.approx(1 - 0.1 * n_steps, abs=1e-6)
    assert len(list(remaining)) == len(losses) - n_losses


def test_one_row_has_no_deviation_of_margins_and_no_loss_of_residuals():
    one_row = (LOGITS[:1], np.array([0]))
    assert fit_smart(*one_row, seed=1, settings=SmartSettings(epochs=1)).deviation == 1e-8
    unchanged = fit_hcal(*one_row, seed=1, settings=HCalibrationSettings(epochs=1))
    np.testing.assert_array_equal(unchanged.factors, np.ones(50))
