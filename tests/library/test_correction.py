"""The correction of a score: it increases strictly, hardly changes a calibrated score, and closes a gap at the top."""

import dataclasses
import hashlib

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.special import expit, logit

from relmap.errors import InputError
from relmap.fitting.correction import (
    LEVEL_DEVIATION,
    MIN_SLOPE,
    SLOPE_DEVIATIONS,
    _interval_distances,
    _PenalizedRegression,
    fit_correction,
)
from relmap.fitting.folds import restore_fold_split
from relmap.fitting.labelled_rows import score_out_of_fold
from relmap.fitting.model_choice import DEPLOYABLE_VARIANTS
from relmap.io.rows import PredictedRows
from relmap.maps.correction import Correction
from relmap.maps.map_file import load_map, save_map
from relmap.maps.reliability_map import FittedMap
from relmap.metrics.reliability import find_tie_groups, ranking_metrics
from tests import maps

logits = st.floats(-60, 60)


@st.composite
def corrections(draw: st.DrawFn) -> Correction:
    """Corrections with two to nine knots, whose slopes lie between 0.01 and 100."""
    gaps = draw(st.lists(st.floats(1e-3, 5), min_size=1, max_size=8))
    slopes = draw(st.lists(st.floats(0.01, 100), min_size=len(gaps), max_size=len(gaps)))
    knots = draw(st.floats(-10, 10)) + np.cumsum([0, *gaps])
    values = draw(st.floats(-10, 10)) + np.cumsum([0, *(gap * slope for gap, slope in zip(gaps, slopes, strict=True))])
    ends = draw(st.lists(st.floats(0.01, 100), min_size=2, max_size=2))
    return Correction(knots, values, first_slope=ends[0], last_slope=ends[1])


@given(corrections(), st.lists(logits, min_size=2, max_size=30), st.data())
@settings(max_examples=200, deadline=None)
def test_a_correction_keeps_every_order(correction, points, data):
    near = [np.nextafter(point, np.inf) for point in (*points, *correction.knots)]
    before = np.sort([*points, *near, *correction.knots, -np.inf, np.inf])
    after = correction(before)
    assert (np.diff(after[1:-1]) >= 0).all()  # to the last bit
    assert (np.diff(after)[np.diff(before) > 1e-6] > 0).all()
    np.testing.assert_array_equal(correction(np.repeat(before, 2)), np.repeat(after, 2))
    np.testing.assert_allclose(correction(correction.knots), correction.values, rtol=0, atol=1e-12)
    assert (after[0], after[-1]) == (-np.inf, np.inf)


@given(corrections(), st.floats(0, 40))
@settings(max_examples=50, deadline=None)
def test_beyond_its_knots_a_correction_is_a_line(correction, distance):
    ends = np.array([correction.knots[0] - distance, correction.knots[-1] + distance])
    expected = [
        correction.values[0] - correction.first_slope * distance,
        correction.values[-1] + correction.last_slope * distance,
    ]
    np.testing.assert_allclose(correction(ends), expected, rtol=1e-12, atol=1e-11)


def drawn(seed: int, n: int, ceiling: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits of a score that is calibrated up to a ceiling of the accuracy, and whether decisions are correct."""
    generator = np.random.default_rng(seed)
    score = 1.0 + 1.8 * generator.normal(size=n)
    return score, generator.random(n) < np.minimum(expit(score), ceiling)


def test_a_calibrated_score_of_few_rows_stays_nearly_as_it_is():
    moved, costs = [], []
    true, _ = drawn(10**6, 20_000)
    for seed in range(40):
        after = fit_correction(*drawn(seed, 300))(true)
        moved.append(np.abs(expit(after) - expit(true)).mean())
        losses = [-(expit(true) * np.log(expit(t)) + expit(-true) * np.log(expit(-t))).mean() for t in (after, true)]
        costs.append(losses[0] - losses[1])
    assert np.mean(moved) < 0.025
    assert 0 < np.mean(costs) < 0.003


@pytest.mark.parametrize(("n", "left"), [(300, 0.7), (1000, 0.4), (4000, 0.25)])
def test_a_ceiling_of_the_accuracy_is_learned(n, left):
    fresh, correct = drawn(10**6, 50_000, ceiling=0.8)
    top = np.argsort(-fresh)[:5000]
    before = (expit(fresh) - correct)[top].mean()
    gaps = [(expit(fit_correction(*drawn(seed, n, ceiling=0.8))(fresh)) - correct)[top].mean() for seed in range(12)]
    assert before > 0.12
    assert abs(np.mean(gaps)) < left * before


@given(st.integers(0, 10**6), st.integers(60, 400), st.floats(0.6, 1))
@settings(max_examples=25, deadline=None)
def test_a_fit_does_not_depend_on_the_order_of_the_rows_and_its_slope_is_above_the_limit(seed, n, ceiling):
    score, correct = drawn(seed, n, ceiling)
    weight = np.random.default_rng(seed).uniform(0.5, 5, n)
    order = np.random.default_rng(seed + 1).permutation(n)
    one, other = fit_correction(score, correct, weight), fit_correction(score[order], correct[order], weight[order])
    np.testing.assert_array_equal(one.knots, other.knots)
    np.testing.assert_array_equal(one.values, other.values)
    slopes = [one.first_slope, *(np.diff(one.values) / np.diff(one.knots)), one.last_slope]
    assert min(slopes) >= MIN_SLOPE - 1e-9


def test_rows_of_weight_count_as_often_as_they_stand_for_others():
    score, correct = drawn(3, 2000)
    wrong = np.arange(2000) % 2 == 1
    correct = np.where(wrong, np.random.default_rng(0).random(2000) < 0.5, correct)  # every other row is a coin toss
    equal = fit_correction(score, correct, np.full(2000, 7.0))
    np.testing.assert_allclose(equal.values, fit_correction(score, correct).values, rtol=0, atol=1e-6)
    light = fit_correction(score, correct, np.where(wrong, 1e-9, 1.0))
    alone = fit_correction(score[~wrong], correct[~wrong])
    grid = np.linspace(-2, 4, 50)
    np.testing.assert_allclose(light(grid), alone(grid), rtol=0, atol=0.15)  # their knots differ a little
    assert np.abs(equal(grid) - alone(grid)).max() > 0.5


@pytest.mark.parametrize("ceiling", [1.0, 0.7])
@pytest.mark.parametrize("deviation", SLOPE_DEVIATIONS)
def test_the_fit_is_the_optimum_that_scipy_finds_within_the_bounds(ceiling, deviation):
    score, correct = drawn(5, 500, ceiling)
    knots = np.quantile(score, [0.05, 0.5, 0.95])
    features = np.column_stack([np.ones(500), _interval_distances(score, knots)])
    rows = _PenalizedRegression(score, features, correct, np.ones(500))
    ridge = np.array([LEVEL_DEVIATION**-2, *[deviation**-2] * 4])
    bounds = [(None, None), *[(MIN_SLOPE - 1, None)] * 4]
    best = scipy.optimize.minimize(
        lambda b: rows._loss(b, ridge), np.zeros(5), bounds=bounds, method="L-BFGS-B", options={"ftol": 1e-15}
    )
    fit = rows.fit(deviation, start=np.zeros(5))
    assert rows._loss(fit.coefficients, ridge) <= best.fun + 1e-8
    np.testing.assert_allclose(fit.coefficients, best.x, rtol=0, atol=1e-3)


def test_a_constant_score_gets_no_correction_and_one_of_two_values_gets_one():
    correct = np.arange(200) % 3 > 0
    assert fit_correction(np.zeros(200), correct) is None
    assert (np.diff(fit_correction(np.repeat([0.0, 1.0], 100), correct)(np.array([0.0, 1.0]))) > 0).all()


@pytest.fixture(scope="module")
def rows() -> PredictedRows:
    return maps.checked(maps.predictions(1200), "group")


@pytest.fixture(scope="module")
def corrected(rows):
    return maps.learned(rows)


def test_auto_corrects_the_score_and_keeps_its_ranking(rows, corrected):
    document = corrected.document
    plain = FittedMap(document.calibrator.fitted, document.projection.fitted)(rows).logit
    scored = FittedMap.from_document(document)(rows).logit
    np.testing.assert_array_equal(scored, document.correction(plain))
    before, after = (ranking_metrics(find_tie_groups(score, rows.correct)) for score in (plain, scored))
    for name, value in before.items():
        assert after[name] == pytest.approx(value, abs=1e-12)
    assert "A monotone correction of the score" in " ".join(corrected.describe())


def test_the_fits_of_the_folds_have_corrections_and_what_is_held_out_is_scored_with_them(rows, corrected):
    document = corrected.document
    scored = score_out_of_fold(document, rows, restore_fold_split(document, rows))
    assert document.held_out.quantiles[50] == pytest.approx(np.median(expit(scored.logit)))
    assert len({fold.correction.values.tobytes() for fold in document.folds}) == 5
    chosen = next(each for each in document.choice.candidates if each.variant == document.projection.name)
    assert document.choice.gains[-1].nll_correct == pytest.approx(chosen.change)


@pytest.mark.parametrize("variant", [name for name in DEPLOYABLE_VARIANTS if name != "label_signals"])
def test_a_variant_that_is_chosen_by_name_gets_no_correction(variant):
    document = maps.learned(maps.checked(maps.predictions(300)), variant).document
    assert document.correction is None
    assert {fold.correction for fold in document.folds} == {None}


def test_a_confidence_that_is_kept_and_the_protocol_of_the_paper_get_no_correction():
    kept = maps.learned(maps.checked(maps.predictions(70, shift=0.0)), "confidence").document
    paper = maps.learned(maps.checked(maps.predictions(900)), protocol=maps.PARAMS.protocol).document
    generator = np.random.default_rng(0)
    decision = generator.integers(0, 3, 600)
    label = np.where(generator.random(600) < 0.3 + 0.3 * decision, decision, (decision + 1) % 3)
    judge = maps.learned(PredictedRows(None, None, decision, label, None), calibrator="constant").document
    assert judge.projection.name == "label_intercept"
    assert [document.correction for document in (kept, paper, judge)] == [None, None, None]


def test_a_map_is_read_back_with_its_correction_bit_for_bit(rows, corrected, tmp_path):
    save_map(corrected.document, tmp_path / "map.json")
    read = load_map(tmp_path / "map.json")
    np.testing.assert_array_equal(
        FittedMap.from_document(read)(rows).logit, FittedMap.from_document(corrected.document)(rows).logit
    )
    assert read.fingerprint == corrected.document.fingerprint


def test_the_fingerprint_of_a_map_without_a_correction_is_that_of_earlier_versions():
    made = maps.document("label_platt")
    parts = {"input", "n_labels", "label_names", "calibrator", "projection", "signals"}
    assert made.fingerprint == hashlib.sha256(made.model_dump_json(include=parts).encode()).hexdigest()
    steeper = dataclasses.replace(maps.CORRECTION, last_slope=0.06)
    plain = maps.document("label_platt", maps.variants()["mrp, shrunk"].line)
    prints = {each.fingerprint for each in (plain, maps.with_correction(plain), maps.with_correction(plain, steeper))}
    assert len(prints) == 3


PLATT = maps.document("label_platt", maps.variants()["mrp, shrunk"].line)
REFUSED = {
    "values that fall": ([0, 1, 2], [0, 2, 1], 1.0, "values of a correction do not increase"),
    "equal values": ([0, 1], [0, 0], 1.0, "values of a correction do not increase"),
    "equal knots": ([0, 0], [0, 1], 1.0, "knots of a correction do not increase"),
    "one knot": ([0], [0], 1.0, "it needs two"),
    "lengths": ([0, 1, 2], [0, 1], 1.0, "has shape"),
    "a flat end": ([0, 1], [0, 1], 0.0, "last_slope"),
}


@pytest.mark.parametrize(("knots", "values", "slope", "message"), REFUSED.values(), ids=REFUSED)
def test_a_correction_that_does_not_increase_is_refused(knots, values, slope, message):
    correction = Correction(np.array(knots), np.array(values), first_slope=1.0, last_slope=slope)
    with pytest.raises(ValidationError, match=message):
        maps.with_correction(PLATT, correction)


def test_a_correction_of_another_variant_or_of_the_map_alone_is_refused(corrected, tmp_path):
    with pytest.raises(ValidationError, match="does not apply to the variant confidence"):
        maps.with_correction(maps.document("confidence"))
    without = corrected.document.model_copy(update={"correction": None})
    save_map(without, tmp_path / "map.json")
    with pytest.raises(InputError, match="must all have a correction"):
        load_map(tmp_path / "map.json")


def test_out_of_fold_scores_with_a_correction_are_as_good_as_fresh_ones():
    """The corrections of the folds share rows with the fits; that must not flatter the loss that a map reports."""
    reported, found = [], []
    for seed in range(8):
        document = maps.learned(maps.checked(maps.predictions(600, seed=seed))).document
        fresh = maps.checked(maps.predictions(8000, seed=10**6 + seed))
        plain = FittedMap(document.calibrator.fitted, document.projection.fitted)(fresh).logit
        signed = np.where(fresh.correct, -1, 1)
        losses = [np.logaddexp(0, signed * score).mean() for score in (document.correction(plain), plain)]
        found.append(losses[0])
        chosen = next(each for each in document.choice.candidates if each.variant == document.projection.name)
        reported.append(chosen.nll_correct)
    assert np.mean(reported) > np.mean(found) - 0.015


def test_weights_and_groups_together_give_a_correction(rows):
    weight = np.where(np.arange(len(rows)) % 3 == 0, 2.0, 0.5)
    document = maps.learned(dataclasses.replace(rows, weight=weight)).document
    assert document.correction is not None
    unweighted = maps.learned(rows).document
    assert not np.array_equal(document.correction.values, unweighted.correction.values)
    assert np.isfinite(logit(document.held_out.top[0].mean_reliability))


def test_groups_whose_residuals_agree_count_as_fewer_rows_and_the_correction_follows_them_less():
    """Each group has an accuracy of its own, so that the score has no gap on new groups."""
    distances = {"groups": [], "rows": []}
    fresh, _ = drawn(10**6, 5000)
    for seed in range(12):
        generator = np.random.default_rng(seed)
        group = np.repeat(np.arange(30), 30)
        score = 1.0 + 1.8 * (generator.normal(size=30)[group] + 0.3 * generator.normal(size=900))
        correct = generator.random(900) < expit(score + generator.normal(0, 1.2, 30)[group])
        for name, given_group in (("groups", group), ("rows", None)):
            corrected = fit_correction(score, correct, None, given_group)(fresh)
            distances[name].append(np.abs(expit(corrected) - expit(fresh)).mean())
    assert np.mean(distances["groups"]) < 0.6 * np.mean(distances["rows"])


def test_groups_of_independent_rows_hardly_change_a_correction():
    score, correct = drawn(2, 2000, ceiling=0.8)
    grid = np.linspace(-2, 4, 50)
    plain = fit_correction(score, correct)(grid)
    single = fit_correction(score, correct, None, np.arange(2000).astype(str))(grid)
    tens = fit_correction(score, correct, None, np.repeat(np.arange(200), 10))(grid)
    np.testing.assert_allclose(single, plain, rtol=0, atol=1e-3)
    np.testing.assert_allclose(tens, plain, rtol=0, atol=0.1)
