"""The correction of a score is monotone, hardly changes a calibrated score, and reduces a gap at the top."""

import dataclasses
import hashlib

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from relmap.fitting.correction import (
    LEVEL_DEVIATION,
    MIN_SLOPE,
    SLOPE_DEVIATIONS,
    _interval_distances,
    _PenalizedRegression,
    fit_correction,
)
from relmap.fitting.model_choice import DEPLOYABLE_VARIANTS
from relmap.maps.correction import Correction
from scipy.special import expit, logit

from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.fitting.folds import restore_fold_split
from relmap.fitting.labelled_rows import score_out_of_fold
from relmap.maps.map_file import load_map, save_map
from relmap.maps.reliability_map import FittedMap
from relmap.metrics.reliability import find_tie_groups, ranking_metrics
from tests import maps

LOGIT_VALUES = st.floats(-60, 60)
NEW_ROWS_SEED = 10**6  # differs from the seeds of the fits


@st.composite
def corrections(draw: st.DrawFn) -> Correction:
    """Draw corrections with two to nine knots and slopes between 0.01 and 100."""
    gaps = draw(st.lists(st.floats(1e-3, 5), min_size=1, max_size=8))
    slopes = draw(st.lists(st.floats(0.01, 100), min_size=len(gaps), max_size=len(gaps)))
    knots = draw(st.floats(-10, 10)) + np.cumsum([0, *gaps])
    rises = [gap * slope for gap, slope in zip(gaps, slopes, strict=True)]
    values = draw(st.floats(-10, 10)) + np.cumsum([0, *rises])
    end_slopes = draw(st.lists(st.floats(0.01, 100), min_size=2, max_size=2))
    return Correction(knots, values, first_slope=end_slopes[0], last_slope=end_slopes[1])


@given(corrections(), st.lists(LOGIT_VALUES, min_size=2, max_size=30), st.data())
@settings(max_examples=200, deadline=None)
def test_correction_is_monotone_and_strictly_increases_distinct_scores(correction, points, data):
    finite_points = np.concatenate([points, correction.knots])
    next_larger = np.nextafter(finite_points, np.inf)
    before = np.sort(np.concatenate([finite_points, next_larger, [-np.inf, np.inf]]))
    after = correction(before)

    assert (np.diff(after[1:-1]) >= 0).all()  # also between neighboring floats
    is_distinct = np.diff(before) > 1e-6
    assert (np.diff(after)[is_distinct] > 0).all()
    np.testing.assert_array_equal(correction(np.repeat(before, 2)), np.repeat(after, 2))
    np.testing.assert_allclose(correction(correction.knots), correction.values, rtol=0, atol=1e-12)
    assert (after[0], after[-1]) == (-np.inf, np.inf)


@given(corrections(), st.floats(0, 40))
@settings(max_examples=50, deadline=None)
def test_correction_is_linear_beyond_its_knots(correction, distance):
    points = np.array([correction.knots[0] - distance, correction.knots[-1] + distance])
    expected = [
        correction.values[0] - correction.first_slope * distance,
        correction.values[-1] + correction.last_slope * distance,
    ]
    np.testing.assert_allclose(correction(points), expected, rtol=1e-12, atol=1e-11)


def simulate_scores(seed: int, n: int, ceiling: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Simulate logits of a score that is calibrated up to a ceiling of the accuracy, and correctness."""
    generator = np.random.default_rng(seed)
    score = 1.0 + 1.8 * generator.normal(size=n)
    return score, generator.random(n) < np.minimum(expit(score), ceiling)


def expected_loss(score: np.ndarray, true_score: np.ndarray) -> float:
    """Compute the expected log loss of a score if the decisions are correct with the probability expit(true_score)."""
    losses = expit(true_score) * np.log(expit(score)) + expit(-true_score) * np.log(expit(-score))
    return float(-losses.mean())


def test_correction_hardly_changes_a_calibrated_score():
    changes = []
    loss_increases = []
    new_scores, _ = simulate_scores(NEW_ROWS_SEED, 20_000)
    for seed in range(40):
        corrected = fit_correction(*simulate_scores(seed, 300))(new_scores)
        changes.append(np.abs(expit(corrected) - expit(new_scores)).mean())
        loss_increases.append(expected_loss(corrected, new_scores) - expected_loss(new_scores, new_scores))

    assert np.mean(changes) < 0.025
    assert 0 < np.mean(loss_increases) < 0.003


@pytest.mark.parametrize(("n", "remaining_share"), [(300, 0.7), (1000, 0.4), (4000, 0.25)])
def test_correction_reduces_the_gap_under_an_accuracy_ceiling(n, remaining_share):
    new_scores, correct = simulate_scores(NEW_ROWS_SEED, 50_000, ceiling=0.8)
    top = np.argsort(-new_scores)[:5000]  # the most reliable tenth
    gap_before = (expit(new_scores) - correct)[top].mean()
    gaps = []
    for seed in range(12):
        correction = fit_correction(*simulate_scores(seed, n, ceiling=0.8))
        reliability = expit(correction(new_scores))
        gaps.append((reliability - correct)[top].mean())

    assert gap_before > 0.12
    assert abs(np.mean(gaps)) < remaining_share * gap_before


@given(st.integers(0, 10**6), st.integers(60, 400), st.floats(0.6, 1))
@settings(max_examples=25, deadline=None)
def test_correction_does_not_depend_on_row_order_and_respects_the_minimum_slope(seed, n, ceiling):
    score, correct = simulate_scores(seed, n, ceiling)
    weight = np.random.default_rng(seed).uniform(0.5, 5, n)
    order = np.random.default_rng(seed + 1).permutation(n)
    correction = fit_correction(score, correct, weight)
    reordered = fit_correction(score[order], correct[order], weight[order])
    np.testing.assert_array_equal(correction.knots, reordered.knots)
    np.testing.assert_array_equal(correction.values, reordered.values)

    slopes = [correction.first_slope, *(np.diff(correction.values) / np.diff(correction.knots)), correction.last_slope]
    assert min(slopes) >= MIN_SLOPE - 1e-9


def test_equal_weights_have_no_effect_and_rows_of_tiny_weight_are_ignored():
    score, correct = simulate_scores(3, 2000)
    is_random = np.arange(2000) % 2 == 1
    coin_tosses = np.random.default_rng(0).random(2000) < 0.5
    correct = np.where(is_random, coin_tosses, correct)
    equal_weights = fit_correction(score, correct, np.full(2000, 7.0))
    np.testing.assert_allclose(equal_weights.values, fit_correction(score, correct).values, rtol=0, atol=1e-6)

    tiny_weights = fit_correction(score, correct, np.where(is_random, 1e-9, 1.0))
    without_random = fit_correction(score[~is_random], correct[~is_random])
    grid = np.linspace(-2, 4, 50)
    # The knots of the two corrections differ a little
    np.testing.assert_allclose(tiny_weights(grid), without_random(grid), rtol=0, atol=0.15)
    assert np.abs(equal_weights(grid) - without_random(grid)).max() > 0.5


@pytest.mark.parametrize("ceiling", [1.0, 0.7])
@pytest.mark.parametrize("deviation", SLOPE_DEVIATIONS)
def test_penalized_fit_equals_the_bounded_optimum_of_scipy(ceiling, deviation):
    score, correct = simulate_scores(5, 500, ceiling)
    knots = np.quantile(score, [0.05, 0.5, 0.95])
    features = np.column_stack([np.ones(500), _interval_distances(score, knots)])
    rows = _PenalizedRegression(score, features, correct, np.ones(500))
    ridge = np.array([LEVEL_DEVIATION**-2, *[deviation**-2] * 4])
    bounds = [(None, None), *[(MIN_SLOPE - 1, None)] * 4]
    expected = scipy.optimize.minimize(
        lambda coefficients: rows._loss(coefficients, ridge),
        np.zeros(5),
        bounds=bounds,
        method="L-BFGS-B",
        options={"ftol": 1e-15},
    )
    fit = rows.fit(deviation, start=np.zeros(5))

    assert rows._loss(fit.coefficients, ridge) <= expected.fun + 1e-8
    np.testing.assert_allclose(fit.coefficients, expected.x, rtol=0, atol=1e-3)


def test_constant_score_has_no_correction_and_a_binary_score_has_one():
    correct = np.arange(200) % 3 > 0
    assert fit_correction(np.zeros(200), correct) is None
    assert (np.diff(fit_correction(np.repeat([0.0, 1.0], 100), correct)(np.array([0.0, 1.0]))) > 0).all()


@pytest.fixture(scope="module")
def rows() -> FixedDecisions:
    return maps.rows_of_frame(maps.make_predictions(1200), "group")


@pytest.fixture(scope="module")
def corrected(rows):
    return maps.fit_map(rows)


def test_auto_corrects_the_score_without_changing_ranking_metrics(rows, corrected):
    document = corrected.document
    uncorrected = FittedMap(document.calibrator.fitted, document.projection.fitted)(rows).logit
    corrected_logit = FittedMap.from_document(document)(rows).logit
    np.testing.assert_array_equal(corrected_logit, document.correction(uncorrected))

    before = ranking_metrics(find_tie_groups(uncorrected, rows.correct))
    after = ranking_metrics(find_tie_groups(corrected_logit, rows.correct))
    for name, value in before.items():
        assert after[name] == pytest.approx(value, abs=1e-12)
    assert "A monotone correction of the score" in " ".join(corrected.describe())


def test_each_fold_has_its_own_correction_for_out_of_fold_scores(rows, corrected):
    document = corrected.document
    scored = score_out_of_fold(document, rows, restore_fold_split(document, rows))
    assert document.held_out.quantiles[50] == pytest.approx(np.median(expit(scored.logit)))
    assert len({fold.correction.values.tobytes() for fold in document.folds}) == 5

    chosen = next(
        candidate for candidate in document.choice.candidates if candidate.variant == document.projection.name
    )
    assert document.choice.gains[-1].nll_correct == pytest.approx(chosen.change)


@pytest.mark.parametrize("variant", [name for name in DEPLOYABLE_VARIANTS if name != "label_signals"])
def test_variant_requested_by_name_has_no_correction(variant):
    document = maps.fit_map(maps.rows_of_frame(maps.make_predictions(300)), variant).document
    assert document.correction is None
    assert {fold.correction for fold in document.folds} == {None}


def test_confidence_paper_protocol_and_constant_confidence_have_no_correction():
    confidence_map = maps.fit_map(maps.rows_of_frame(maps.make_predictions(70, shift=0.0)), "confidence").document
    paper_map = maps.fit_map(maps.rows_of_frame(maps.make_predictions(300)), protocol=maps.SETTINGS.protocol).document
    generator = np.random.default_rng(0)
    decision = generator.integers(0, 3, 600)
    label = np.where(generator.random(600) < 0.3 + 0.3 * decision, decision, (decision + 1) % 3)
    constant_map = maps.fit_map(FixedDecisions(decision=decision, label=label), calibrator="constant").document

    assert constant_map.projection.name == "label_intercept"
    assert [document.correction for document in (confidence_map, paper_map, constant_map)] == [None, None, None]


def test_saved_map_restores_its_correction_exactly(rows, corrected, tmp_path):
    save_map(corrected.document, tmp_path / "map.json")
    restored = load_map(tmp_path / "map.json")

    np.testing.assert_array_equal(
        FittedMap.from_document(restored)(rows).logit, FittedMap.from_document(corrected.document)(rows).logit
    )
    assert restored.fingerprint == corrected.document.fingerprint


def test_map_without_correction_has_the_fingerprint_of_earlier_versions():
    document = maps.make_map("label_platt")
    fields = {"input", "n_labels", "label_names", "calibrator", "projection", "signals"}
    assert document.fingerprint == hashlib.sha256(document.model_dump_json(include=fields).encode()).hexdigest()

    steeper = dataclasses.replace(maps.CORRECTION, last_slope=0.06)
    uncorrected = maps.make_map("label_platt", maps.make_variants()["mrp, shrunk"].line)
    fingerprints = {
        map_document.fingerprint
        for map_document in (uncorrected, maps.add_correction(uncorrected), maps.add_correction(uncorrected, steeper))
    }
    assert len(fingerprints) == 3


PLATT = maps.make_map("label_platt", maps.make_variants()["mrp, shrunk"].line)
INVALID_CORRECTIONS = {
    "values that fall": ([0, 1, 2], [0, 2, 1], 1.0, "values of a correction do not increase"),
    "equal values": ([0, 1], [0, 0], 1.0, "values of a correction do not increase"),
    "equal knots": ([0, 0], [0, 1], 1.0, "knots of a correction do not increase"),
    "one knot": ([0], [0], 1.0, "it needs two"),
    "lengths": ([0, 1, 2], [0, 1], 1.0, "has shape"),
    "a flat end": ([0, 1], [0, 1], 0.0, "last_slope"),
}


@pytest.mark.parametrize(("knots", "values", "slope", "message"), INVALID_CORRECTIONS.values(), ids=INVALID_CORRECTIONS)
def test_correction_that_does_not_increase_is_rejected(knots, values, slope, message):
    correction = Correction(np.array(knots), np.array(values), first_slope=1.0, last_slope=slope)
    with pytest.raises(ValidationError, match=message):
        maps.add_correction(PLATT, correction)


def test_correction_of_unsupported_variant_or_without_fold_corrections_is_rejected(corrected, tmp_path):
    with pytest.raises(ValidationError, match="does not apply to the variant confidence"):
        maps.add_correction(maps.make_map("confidence"))

    map_without_correction = corrected.document.model_copy(update={"correction": None})
    save_map(map_without_correction, tmp_path / "map.json")
    with pytest.raises(InputError, match="must all have a correction"):
        load_map(tmp_path / "map.json")


def test_reported_out_of_fold_loss_is_not_optimistic():
    """The corrections of the folds share rows with the fits, which must not make the reported loss too low."""
    reported_losses = []
    losses_on_new_rows = []
    for seed in range(8):
        document = maps.fit_map(maps.rows_of_frame(maps.make_predictions(600, seed=seed))).document
        new_rows = maps.rows_of_frame(maps.make_predictions(8000, seed=NEW_ROWS_SEED + seed))
        uncorrected = FittedMap(document.calibrator.fitted, document.projection.fitted)(new_rows).logit
        sign = np.where(new_rows.correct, -1, 1)
        losses_on_new_rows.append(np.logaddexp(0, sign * document.correction(uncorrected)).mean())
        chosen = next(
            candidate for candidate in document.choice.candidates if candidate.variant == document.projection.name
        )
        reported_losses.append(chosen.nll_correct)

    assert np.mean(reported_losses) > np.mean(losses_on_new_rows) - 0.015


def test_correction_uses_weights_with_groups(rows, corrected):
    weight = np.where(np.arange(len(rows)) % 3 == 0, 2.0, 0.5)
    document = maps.fit_map(dataclasses.replace(rows, weight=weight)).document
    assert document.correction is not None

    assert not np.array_equal(document.correction.values, corrected.document.correction.values)
    assert np.isfinite(logit(document.held_out.top[0].mean_reliability))


def test_correlated_groups_reduce_the_correction():
    """Each group has a random accuracy, so the score has no gap on new groups."""
    distances = {"groups": [], "rows": []}
    new_scores, _ = simulate_scores(NEW_ROWS_SEED, 5000)
    for seed in range(12):
        generator = np.random.default_rng(seed)
        group = np.repeat(np.arange(30), 30)
        score = 1.0 + 1.8 * (generator.normal(size=30)[group] + 0.3 * generator.normal(size=900))
        correct = generator.random(900) < expit(score + generator.normal(0, 1.2, 30)[group])
        for name, given_group in (("groups", group), ("rows", None)):
            corrected = fit_correction(score, correct, None, given_group)(new_scores)
            distances[name].append(np.abs(expit(corrected) - expit(new_scores)).mean())

    assert np.mean(distances["groups"]) < 0.6 * np.mean(distances["rows"])


def test_groups_of_independent_rows_hardly_change_the_correction():
    score, correct = simulate_scores(2, 2000, ceiling=0.8)
    grid = np.linspace(-2, 4, 50)
    without_groups = fit_correction(score, correct)(grid)
    groups_of_one = fit_correction(score, correct, None, np.arange(2000).astype(str))(grid)
    groups_of_ten = fit_correction(score, correct, None, np.repeat(np.arange(200), 10))(grid)

    np.testing.assert_allclose(groups_of_one, without_groups, rtol=0, atol=1e-3)
    np.testing.assert_allclose(groups_of_ten, without_groups, rtol=0, atol=0.1)
