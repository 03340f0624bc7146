"""Choice of the model of a map: the deployed variant and its reason for each recommendation, and the learning curve."""

from dataclasses import replace

import numpy as np
import pytest
from relmap.fitting.model_choice import (
    CONFIDENCE,
    MeanDifference,
    ModelChoice,
    advise_variant,
    available_variants,
    choose_model,
    compare_candidates,
    describe_selection,
    lowest_loss_candidate,
    select_candidate,
)
from relmap.metrics.advice import KEEP, MIN_ERRORS, MIXED, SAFE, UNKNOWN, USE, Advice, advise_map
from scipy.stats import t as student

from relmap.decisions import FixedDecisions
from relmap.evaluation.evaluate import compare_scores
from relmap.evaluation.sample import EvaluationSample
from relmap.fitting import model_choice
from relmap.fitting.cross_fit import CrossFitResult, FitOptions, cross_fit, fit_paper_protocol
from relmap.fitting.folds import FoldSplit
from relmap.maps.document import Gain, Source
from relmap.metrics.reliability import find_tie_groups, ranking_metrics
from relmap.projection.variants import AUTO_VARIANTS, PIPELINE_VARIANTS, VARIANTS
from tests import maps

N_ROWS = 100
SETTINGS = maps.SETTINGS.model_copy(
    update={
        "metrics": maps.SETTINGS.metrics.model_copy(update={"resamples": 40}),
        "learning_curve_rows": (26, 10, 28, 60),
    }
)
# Folds of 20, 37 and 33 rows: the smallest training set has 53 rows, of which 26 are less than half and 28 are more
NUMBERS = np.random.default_rng(5).permutation(90)
SPLIT = FoldSplit(folds=tuple(np.split(NUMBERS, [20, 57])), held_out=np.arange(90, 100))
SMALLEST_TRAINING_SET = 53
SOURCE = maps.SOURCE.model_copy(update={"seed": 4})
FEW_VARIANTS = ("confidence", "label_intercept", "label_platt")


def make_rows() -> FixedDecisions:
    rows = maps.rows_of_frame(maps.make_predictions(N_ROWS, shift=2.5, per_group=4), "group")
    return replace(rows, weight=np.random.default_rng(3).uniform(0.2, 5, N_ROWS))


ROWS = make_rows()


@pytest.fixture(scope="module")
def result() -> CrossFitResult:
    return cross_fit(ROWS, SPLIT, FitOptions(3, "ts", FEW_VARIANTS, SETTINGS, seed=4))


@pytest.fixture
def few_variants(monkeypatch) -> None:
    """Let `auto` choose among three variants that are fitted quickly."""
    monkeypatch.setattr(model_choice, "available_variants", lambda *_: FEW_VARIANTS)


def choose(
    variant: str = "auto", *, rows: FixedDecisions = ROWS, source: Source = SOURCE, calibrator: str = "ts"
) -> ModelChoice:
    return choose_model(rows, SPLIT, 3, calibrator, variant, SETTINGS, source)


def losses_of(result: CrossFitResult) -> dict[str, np.ndarray]:
    return {variant: result.out_of_fold_losses(variant) for variant in result.full_fit.variants}


def expected_gain(n_rows: int, variant: str, result: CrossFitResult) -> Gain:
    difference = result.out_of_fold_losses(variant) - result.out_of_fold_losses(CONFIDENCE)
    mean = MeanDifference.from_differences(difference, result.rows.group, result.rows.weight)
    copies = result.rows.copies
    areas = []
    for name in (variant, CONFIDENCE):
        logit = result.out_of_fold_scores(name).logit
        ties = find_tie_groups(logit[copies], result.rows.correct[copies])
        areas.append(float(ranking_metrics(ties)["aurc"][0]))
    return Gain(
        rows=n_rows,
        nll_correct=mean.mean,
        nll_correct_standard_error=mean.standard_error,
        aurc=areas[0] - areas[1],
    )


def expected_gains(variant: str, result: CrossFitResult, *, corrected: bool) -> tuple[Gain, ...]:
    """Compute the gains of fits to 10 and to 26 rows, both with right and wrong decisions, and of the full fit."""
    gains = []
    options = FitOptions(3, "ts", (CONFIDENCE, variant), SETTINGS, seed=4)
    for n_rows in (10, 26):
        limited = cross_fit(ROWS, SPLIT, options, max_training_rows=n_rows)
        if corrected:
            limited = limited.with_correction(variant, n_rows)
        gains.append(expected_gain(n_rows, variant, limited))
    return (*gains, expected_gain(90, variant, result))


def test_candidates_have_the_standard_error_of_groups_and_weights(result):
    losses = losses_of(result)
    confidence, *others = compare_candidates(losses, result.rows)
    assert (confidence.variant, confidence.change, confidence.low, confidence.high) == (CONFIDENCE, 0, 0, 0)
    weight = result.rows.weight
    for candidate in others:
        difference = losses[candidate.variant] - losses[CONFIDENCE]
        mean = (weight * difference).sum() / weight.sum()
        names = np.unique(result.rows.group)
        sums = [(weight * (difference - mean))[result.rows.group == name].sum() for name in names]
        n_groups = len(names)
        standard_error = np.sqrt(n_groups / (n_groups - 1) * np.square(sums).sum()) / weight.sum()
        half_width = student(n_groups - 1).ppf(0.975) * 1.3 * standard_error
        assert candidate.change == pytest.approx(mean)
        assert (candidate.low, candidate.high) == pytest.approx((mean - half_width, mean + half_width))


def test_the_preferred_variant_is_selected_among_equal_ones(result):
    losses = {"confidence": np.full(90, 2.0), "mrp": np.full(90, 1.5), "label_vector": np.full(90, 1.5)}
    candidates = compare_candidates(losses, result.rows)
    assert lowest_loss_candidate(candidates).variant == "mrp"
    assert select_candidate(candidates, losses, result.rows).variant == "label_vector"


def test_smallest_training_set_limits_the_learning_curve():
    sizes = [len(SPLIT.training_rows(fold)) for fold in range(3)]
    assert min(sizes) == SMALLEST_TRAINING_SET
    assert SMALLEST_TRAINING_SET // 2 == 26


@pytest.mark.parametrize("variant", ["label_platt", "confidence"])
def test_a_requested_variant_is_compared_with_the_confidence_only(result, variant):
    model = choose(variant)
    variants = tuple(dict.fromkeys((CONFIDENCE, variant)))
    losses = {name: loss for name, loss in losses_of(result).items() if name in variants}
    assert model.choice.candidates == compare_candidates(losses, result.rows)
    assert (model.variant, model.choice.asked) == (variant, variant)
    assert model.choice.reason == f"{VARIANTS[variant].description}, as requested"
    assert dict(model.result.corrections) == {}
    if variant == CONFIDENCE:
        assert model.advice == Advice(KEEP, "as requested")
        assert model.choice.gains == ()
    else:
        order = np.argsort(SPLIT.fit_rows)
        expected = advise_variant(variant, result, model.choice.candidates, order, SETTINGS.metrics)
        assert model.advice == expected
        assert model.choice.gains == expected_gains(variant, result, corrected=False)


@pytest.mark.usefixtures("few_variants")
@pytest.mark.parametrize("answer", [USE, SAFE])
def test_auto_deploys_the_selected_variant_if_it_is_recommended(result, answer, monkeypatch):
    monkeypatch.setattr(model_choice, "advise_variant", lambda *_: Advice(answer, "made up"))
    model = choose()
    losses = losses_of(result)
    candidates = compare_candidates(losses, result.rows)
    selected = select_candidate(candidates, losses, result.rows)
    assert selected.variant != CONFIDENCE
    corrected = result.with_correction(selected.variant)
    losses[selected.variant] = corrected.out_of_fold_losses(selected.variant)
    assert model.choice.candidates == compare_candidates(losses, result.rows)
    assert model.choice.candidates != candidates
    best = lowest_loss_candidate(candidates)
    assert model.choice.reason == describe_selection(selected, best, 90, "ts", is_corrected=True)
    assert (model.variant, model.choice.asked, model.advice) == (selected.variant, "auto", Advice(answer, "made up"))
    assert tuple(model.result.corrections) == (selected.variant,)
    assert model.choice.gains == expected_gains(selected.variant, corrected, corrected=True)


@pytest.mark.usefixtures("few_variants")
@pytest.mark.parametrize("answer", [KEEP, MIXED, UNKNOWN])
def test_auto_keeps_the_confidence_if_the_variant_is_not_recommended(result, answer, monkeypatch):
    monkeypatch.setattr(model_choice, "advise_variant", lambda *_: Advice(answer, "it is worse", ("Do this.",)))
    model = choose()
    losses = losses_of(result)
    selected = select_candidate(compare_candidates(losses, result.rows), losses, result.rows).variant
    assert (model.variant, model.advice) == (CONFIDENCE, Advice(KEEP, "it is worse"))
    assert model.choice.reason == (
        f"your confidence, calibrated by ts, instead of {VARIANTS[selected].description}: it is worse"
    )
    corrected = result.with_correction(selected)
    losses[selected] = corrected.out_of_fold_losses(selected)
    candidates = compare_candidates(losses, result.rows)
    best = lowest_loss_candidate(candidates[1:]).variant
    assert model.choice.candidates == candidates
    assert model.choice.gains == expected_gains(best, corrected, corrected=False)


@pytest.mark.usefixtures("few_variants")
def test_auto_keeps_a_confidence_of_the_lowest_loss(monkeypatch):
    monkeypatch.setattr(model_choice, "select_candidate", lambda candidates, *_: candidates[0])
    model = choose()
    assert (model.variant, model.advice) == (CONFIDENCE, Advice(KEEP, "it has the lowest log loss"))
    best = lowest_loss_candidate(model.choice.candidates)
    assert model.choice.reason == describe_selection(model.choice.candidates[0], best, 90, "ts", is_corrected=False)
    assert dict(model.result.corrections) == {}


@pytest.mark.usefixtures("few_variants")
@pytest.mark.parametrize(("n_errors", "is_kept"), [(MIN_ERRORS - 1, True), (MIN_ERRORS, False)])
def test_auto_keeps_the_confidence_with_too_few_errors(n_errors, is_kept):
    label = ROWS.decision.copy()
    wrong = SPLIT.fit_rows[np.linspace(0, 89, n_errors).astype(int)]
    label[wrong] = (label[wrong] + 1) % 3
    label[SPLIT.held_out] = (ROWS.decision[SPLIT.held_out] + 1) % 3
    model = choose(rows=replace(ROWS, label=label, weight=None))
    clause = "9 of 90 decisions are wrong, and at least 10 are needed"
    reason = f"your confidence, calibrated by ts: {clause}"
    assert (model.choice.reason == reason) == is_kept
    if is_kept:
        assert (model.variant, model.advice) == (CONFIDENCE, Advice(KEEP, clause))
        assert dict(model.result.corrections) == {}


def test_candidates_of_auto_are_the_available_variants(monkeypatch):
    recorded = []

    def record(_, __, options: FitOptions) -> CrossFitResult:
        recorded.append(options)
        raise InterruptedError  # the options are known, so no fit is needed

    monkeypatch.setattr(model_choice, "cross_fit", record)
    monkeypatch.setattr(model_choice, "fit_paper_protocol", record)
    requests = [("auto", SOURCE), ("mrp", SOURCE), ("auto", paper_source()), ("label_signals", paper_source())]
    for variant, source in requests:
        with pytest.raises(InterruptedError):
            choose(variant, source=source, calibrator="diag")
    available = available_variants(ROWS, 3)
    assert [options.variants for options in recorded] == [
        available,
        (CONFIDENCE, "mrp"),
        tuple(name for name in available if name in PIPELINE_VARIANTS),
        (CONFIDENCE,),
    ]
    assert set(available) <= set(AUTO_VARIANTS)
    assert recorded[0] == FitOptions(3, "diag", available, SETTINGS, seed=4)


def paper_source() -> Source:
    return SOURCE.model_copy(update={"protocol": SETTINGS.protocol})


def test_the_paper_protocol_has_no_gains_and_no_correction():
    source = paper_source()
    model = choose("label_intercept", source=source)
    options = FitOptions(3, "ts", (CONFIDENCE, "label_intercept"), SETTINGS, seed=4)
    expected = fit_paper_protocol(ROWS, source, options)
    assert model.choice.candidates == compare_candidates(losses_of(expected), expected.rows)
    order = np.arange(len(expected.rows))
    advice = advise_variant("label_intercept", expected, model.choice.candidates, order, SETTINGS.metrics)
    assert (model.advice, model.choice.gains, dict(model.result.corrections)) == (advice, (), {})


@pytest.mark.usefixtures("few_variants")
def test_auto_does_not_correct_under_the_paper_protocol():
    model = choose(source=paper_source(), rows=replace(ROWS, weight=None))
    assert dict(model.result.corrections) == {}
    assert model.choice.gains == ()


def test_fits_of_the_learning_curve_have_the_seed_of_the_map(monkeypatch):
    seeds = []

    def recorded_cross_fit(*arguments: object, **options: object) -> CrossFitResult:
        seeds.append(arguments[2].seed)
        return cross_fit(*arguments, **options)

    monkeypatch.setattr(model_choice, "cross_fit", recorded_cross_fit)
    choose("label_platt")
    assert seeds == [4, 4, 4]  # all rows, and the two smaller numbers of rows


def test_recommendation_uses_rows_in_the_given_order_and_the_interval_of_the_candidates(result, monkeypatch):
    recorded = []

    def recorded_advice(changes: object, **numbers: object) -> Advice:
        recorded.append((changes, numbers))
        return Advice(USE, "")

    monkeypatch.setattr(model_choice, "advise_map", recorded_advice)
    candidates = compare_candidates(losses_of(result), result.rows)
    order = np.argsort(SPLIT.fit_rows)
    params = SETTINGS.metrics.model_copy(update={"smallest_relevant_change": 0.0123})
    advise_variant("label_platt", result, candidates, order, params)
    ((changes, numbers),) = recorded
    scored = result.out_of_fold_scores("label_platt").take(order)
    expected = compare_scores(EvaluationSample.from_rows(result.rows.take(order), scored, params))
    assert numbers == {
        "rows": 90,
        "errors": int((~result.rows.correct).sum()),
        "groups": expected["groups"],
        "smallest": 0.0123,
    }
    assert (changes["nll_correct"]["low"], changes["nll_correct"]["high"]) == (candidates[2].low, candidates[2].high)
    assert changes["nll_correct"]["low"] != expected["metrics"]["nll_correct"]["low"]
    for name, values in expected["metrics"].items():
        assert changes[name]["change"] == pytest.approx(values["change"], nan_ok=True)
        if name != "nll_correct":
            assert changes[name] == values


def test_learning_curve_omits_sizes_whose_decisions_are_all_right_or_all_wrong():
    """The first 10 training rows of the first fold are all right, so a fit to them would be constant."""
    for value in (True, False):
        label = ROWS.label.copy()
        first = SPLIT.training_rows(0)[:10]
        label[first] = ROWS.decision[first] if value else (ROWS.decision[first] + 1) % 3
        changed = replace(ROWS, label=label, weight=None)
        gains = choose("label_intercept", rows=changed).choice.gains
        assert [gain.rows for gain in gains] == [26, 90]


def test_advice_of_a_fit_equals_the_advice_of_the_evaluation(result):
    candidates = compare_candidates(losses_of(result), result.rows)
    order = np.arange(90)
    advice = advise_variant("label_platt", result, candidates, order, SETTINGS.metrics)
    sample = EvaluationSample.from_rows(result.rows, result.out_of_fold_scores("label_platt"), SETTINGS.metrics)
    comparison = compare_scores(sample)
    comparison["metrics"]["nll_correct"] |= {"low": candidates[2].low, "high": candidates[2].high}
    assert advice == advise_map(
        comparison["metrics"],
        rows=90,
        errors=comparison["errors"],
        groups=comparison["groups"],
        smallest=SETTINGS.metrics.smallest_relevant_change,
    )
