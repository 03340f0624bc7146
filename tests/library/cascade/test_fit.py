"""Fits of cascades whose maps are made by hand in place of fits: what is chosen, measured, stored and described."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from scipy.special import expit, logit
from scipy.stats import binom

from relmap.cascade import fit
from relmap.cascade.apply import apply_cascade
from relmap.cascade.fit import fit_cascade, title_of, with_signals
from relmap.cascade.policy import NEVER, TIE_RANGE, CascadeChoice, CascadeRows, Costs, Plan, Policy, simulate_person
from relmap.cascade.settings import CascadeSettings
from relmap.errors import InputError
from relmap.io.column_layout import Reading
from relmap.io.frames import FramePredictions
from relmap.maps.options import FitOptions
from relmap.routing.group_tests import RowGroups
from tests.cascades import (
    AGREEMENT_WEIGHT,
    CONSTANT,
    OUT_OF_FOLD_SHIFT,
    SUPPORT_WEIGHT,
    judge_rows,
    make_step_map,
    replace_fits,
)
from tests.texts import numbers_in

NAMES = ("no", "yes")
SMALL = Reading(decision="small", confidence="sure")
LARGE = Reading(decision="large")
MODELS = {"small": SMALL, "large": LARGE}
COSTS = {"small": 1, "large": 10, "person": 100}
ONE_MODEL = {"small": SMALL}
ONE_COSTS = {"small": 1, "person": 100}


def simulate(n_rows: int, seed: int = 1) -> pl.DataFrame:
    """Simulate two judges of the same rows, of which only the small one states a confidence."""
    generator = np.random.default_rng(seed)
    judged = judge_rows(generator, n_rows, mean_skill=1.5)
    return pl.DataFrame(
        {
            "id": np.arange(n_rows),
            "query": np.arange(n_rows) // 4,
            "small": np.array(NAMES)[judged.small],
            "sure": expit(judged.skill),
            "large": np.array(NAMES)[judged.large],
            "label": np.array(NAMES)[judged.label],
        }
    )


ROWS = simulate(240)


def fit_rows(rows: pl.DataFrame, models=MODELS, costs=COSTS, *, labels=NAMES, group=None, ids=None, **settings):
    if not settings.keys() & {"target_accuracy", "budget"}:
        settings["target_accuracy"] = 0.9
    return fit_cascade(
        FramePredictions.from_frame(rows),
        models,
        costs,
        CascadeSettings(**settings),
        labels=labels,
        group=group,
        id_columns=ids,
    )


@pytest.fixture(scope="module")
def fitted() -> SimpleNamespace:
    """Fit a cascade of two models and a person, on more than half of the rows."""
    with pytest.MonkeyPatch.context() as patch:
        fits = replace_fits(patch)
        document, summary = fit_rows(ROWS, hold_out=0.4, person_accuracy=0.98, seed=3)
    used = set(fits.files[0].frame["id"])
    is_test = np.array([number not in used for number in range(len(ROWS))])
    return SimpleNamespace(document=document, summary=summary, numbers=summary.numbers, fits=fits, is_test=is_test)


def accuracy_of(model: str, rows: pl.DataFrame) -> float:
    return (rows[model] == rows["label"]).mean()


def measure_by_hand(document, is_test: np.ndarray, rows: pl.DataFrame = ROWS) -> SimpleNamespace:
    """Measure a cascade on the test rows with the routes that it gives them."""
    added, routes = apply_cascade(document, FramePredictions.from_frame(rows.drop("label")))
    person = simulate_person(len(rows), document.person_accuracy, document.seed)
    is_used = (added["cascade_route"] == "use").to_numpy()
    correct = np.where(is_used, (added["cascade_decision"] == rows["label"]).fill_null(False).to_numpy(), person)
    test_rows = rows.filter(pl.Series(is_test)).drop("label")
    _, routes = apply_cascade(document, FramePredictions.from_frame(test_rows))
    n_test = len(test_rows)
    shares = [*routes.decided.values()]
    asked = [routes.asked[step.name] for step in document.steps]
    if document.person_cost is not None:
        shares.append(routes.waiting.get("person", 0))
        asked.append(routes.waiting.get("person", 0))
    return SimpleNamespace(
        cost=routes.cost / n_test,
        accuracy=correct[is_test].mean(),
        shares=[share / n_test for share in shares],
        asked=[share / n_test for share in asked],
    )


# What is chosen and measured


def test_the_numbers_of_a_cascade_are_those_of_its_routes_on_the_test_rows(fitted):
    chosen = fitted.numbers["chosen"]
    expected = measure_by_hand(fitted.document, fitted.is_test)
    assert chosen["models"] == [step.name for step in fitted.document.steps] == ["small", "large"]
    assert chosen["thresholds"] == [step.threshold for step in fitted.document.steps]
    assert chosen["cost"] == pytest.approx(expected.cost)
    assert chosen["accuracy"] == pytest.approx(expected.accuracy)
    assert chosen["shares"] == pytest.approx(expected.shares)
    assert chosen["asked"] == pytest.approx(expected.asked)
    assert min(chosen["shares"]) > 0


def test_the_summary_states_the_settings_and_the_numbers_of_rows(fitted):
    numbers = fitted.numbers
    assert numbers["rows"] == 240
    assert numbers["test_rows"] == fitted.is_test.sum() == 96
    assert numbers["target_accuracy"] == numbers["lower_bound"] == 0.9
    assert numbers["budget"] is None
    assert numbers["confidence_level"] == 0.95
    assert numbers["person_accuracy"] == 0.98


def test_a_model_or_a_person_alone_is_measured_on_the_test_rows(fitted):
    test_rows = ROWS.filter(pl.Series(fitted.is_test))
    assert fitted.numbers["alone"] == {
        "small alone": {"cost": 1, "accuracy": pytest.approx(accuracy_of("small", test_rows))},
        "large alone": {"cost": 10, "accuracy": pytest.approx(accuracy_of("large", test_rows))},
        "a person alone": {"cost": 100, "accuracy": 0.98},
    }


def test_the_cascade_is_cheaper_than_random_routing(fitted):
    numbers = fitted.numbers
    assert numbers["chosen"]["cost"] < numbers["alternatives"]["random routing"]["cost"]
    assert numbers["curves"].keys() == {"the cascade", "random routing", "thresholds on the confidences"}
    for curve in numbers["curves"].values():
        assert len(curve) > 1
    chosen = {"cost": numbers["chosen"]["cost"], "accuracy": numbers["chosen"]["accuracy"]}
    assert chosen in numbers["curves"]["the cascade"]


def test_the_document_states_what_was_promised(fitted):
    document = fitted.document
    assert [step.cost for step in document.steps] == [1, 10]
    assert document.person_cost == 100
    assert document.person_accuracy == 0.98
    assert document.target_accuracy == document.lower_bound == 0.9
    assert document.budget is None
    assert document.confidence_level == 0.95
    assert document.seed == 3
    assert document.identity_columns == ("id",)
    assert document.label_names == NAMES
    assert not document.are_numbered


@pytest.mark.parametrize("confidence_level", [0.6, 0.95])
def test_the_chosen_thresholds_are_the_last_that_pass_their_test(confidence_level, fits):
    _, summary = fit_rows(ROWS, ONE_MODEL, ONE_COSTS, confidence_level=confidence_level)
    passed = []
    for point in summary.numbers["curves"]["the cascade"]:
        if binom.sf(round(120 * point["accuracy"]) - 1, 120, 0.9) > 1 - confidence_level:
            break
        passed.append(point["cost"])
    assert summary.numbers["chosen"]["cost"] == passed[-1]
    assert 0 < len(passed) < len(summary.numbers["curves"]["the cascade"])


def test_a_budget_gives_a_lower_bound_at_the_confidence_level(fits):
    bounds = []
    for level in (0.6, 0.95):
        document, summary = fit_rows(ROWS, ONE_MODEL, ONE_COSTS, budget=30, confidence_level=level)
        chosen = summary.numbers["chosen"]
        n_correct = round(120 * chosen["accuracy"])
        bounds.append(document.lower_bound)
        assert binom.sf(n_correct - 1, 120, document.lower_bound) == pytest.approx(1 - level)
        assert document.budget == 30
        assert document.target_accuracy is None
        assert summary.numbers["lower_bound"] == document.lower_bound
        expected = measure_by_hand(document, np.isin(ROWS["id"], fits.files[-1].frame["id"], invert=True))
        assert chosen["accuracy"] == pytest.approx(expected.accuracy)
        assert chosen["cost"] == pytest.approx(expected.cost)
    assert bounds[1] < bounds[0]


def test_without_a_person_the_last_model_decides_the_rest(fits):
    document, summary = fit_rows(ROWS, costs={"small": 1, "large": 10}, target_accuracy=0.7)
    assert document.steps[-1].threshold == 0
    assert document.person_cost is None
    assert len(summary.numbers["chosen"]["shares"]) == len(document.steps)
    assert set(summary.numbers["alone"]) == {"small alone", "large alone"}
    expected = measure_by_hand(document, np.isin(ROWS["id"], fits.files[-1].frame["id"], invert=True))
    assert summary.numbers["chosen"]["accuracy"] == pytest.approx(expected.accuracy)
    assert not any("person" in line for line in summary.lines)


def test_a_model_that_decides_no_row_has_no_threshold():
    plan = Plan(("small", "large"), Costs((1.0, 10.0), 100.0), None, None)
    never = Policy((NEVER, 0.5), 20.0, 0.9, (0.0, 0.75, 0.25))
    numbers = fit._policy_json(never, [plan])
    assert numbers["thresholds"] == [None, 0.5]
    assert numbers["asked"] == [1.0, 1.0, 0.25]
    steps = [
        SimpleNamespace(document=make_step_map(NAMES, SMALL)),
        SimpleNamespace(document=make_step_map(NAMES, LARGE, earlier=["small"], map_input="decision_only")),
    ]
    choice = CascadeChoice(never, 0.9, (never,))
    document = fit._build_document(steps, choice, plan, CascadeSettings(budget=30), ("id",), are_numbered=True)
    assert [step.threshold for step in document.steps] == [None, 0.5]
    assert document.are_numbered


def test_random_routing_does_not_depend_on_the_rows(fits):
    _, summary = fit_rows(ROWS, ONE_MODEL, ONE_COSTS)
    reversed_confidence = ROWS.with_columns(sure=1 - pl.col("sure"))
    _, other = fit_rows(reversed_confidence, ONE_MODEL, ONE_COSTS)
    name = "random routing"
    assert other.numbers["alternatives"][name] == summary.numbers["alternatives"][name]
    assert other.numbers["alternatives"] != summary.numbers["alternatives"]


def test_thresholds_on_the_confidences_are_those_of_the_map_if_the_map_is_the_confidence(fits):
    _, summary = fit_rows(ROWS, ONE_MODEL, ONE_COSTS)
    by_confidence = summary.numbers["alternatives"]["thresholds on the confidences"]
    assert by_confidence["cost"] == summary.numbers["chosen"]["cost"]
    assert by_confidence["thresholds"] == pytest.approx(summary.numbers["chosen"]["thresholds"])


def test_the_confidence_of_a_model_with_logits_is_the_probability_of_its_decision(fits):
    is_yes = pl.col("small") == "yes"
    # the decision is the likelier label, also where the confidence is below one half
    sure = 0.5 + pl.col("sure") / 2
    rows = ROWS.with_columns(sure=sure).with_columns(yes=pl.when(is_yes).then("sure").otherwise(1 - pl.col("sure")))
    logits = rows.with_columns(l_0=(1 - pl.col("yes")).log() + 3, l_1=pl.col("yes").log() + 3)
    _, expected = fit_rows(rows, ONE_MODEL, ONE_COSTS)
    _, summary = fit_rows(logits, {"small": Reading(logits="l")}, ONE_COSTS)
    assert summary.numbers["alone"] == expected.numbers["alone"]
    of_logits = summary.numbers["alternatives"]["thresholds on the confidences"]
    of_confidences = expected.numbers["alternatives"]["thresholds on the confidences"]
    assert of_logits["cost"] == pytest.approx(of_confidences["cost"])
    assert of_logits["thresholds"] == pytest.approx(of_confidences["thresholds"])


def test_models_without_confidences_have_no_thresholds_on_them(fits):
    _, summary = fit_rows(ROWS.drop("sure"), {"small": Reading(decision="small")}, ONE_COSTS)
    assert set(summary.numbers["alternatives"]) == {"random routing"}


def test_a_model_without_confidence_has_the_same_one_for_all_rows(fits):
    models = {"large": LARGE, "small": SMALL}
    costs = {"large": 1, "small": 1000, "person": 1000}
    _, summary = fit_rows(ROWS, models, costs)
    other = summary.numbers["alternatives"]["thresholds on the confidences"]
    assert other["models"] == ["large"]
    assert other["thresholds"] == pytest.approx([0.5], abs=1e-8)  # these rows are divided by lot
    assert 0 < other["shares"][0] < 1


# How maps are fitted


def test_each_choice_of_models_has_a_map_of_its_own(fitted):
    options = fitted.fits.options
    expected = FitOptions(labels=NAMES, seed=3, accept_label_order=True)  # the order was checked on all rows
    signals = ("agrees_with_small", "support_of_small")
    assert options == [expected, expected, replace(expected, signals=signals)]
    assert [file.reading for file in fitted.fits.files] == [SMALL, LARGE, LARGE]
    assert {file.path for file in fitted.fits.files} == {FramePredictions.from_frame(ROWS).path}
    for file in fitted.fits.files:
        assert file.frame["id"].to_list() == np.flatnonzero(~fitted.is_test).tolist()


def test_signals_of_the_fit_rows_are_out_of_fold(fitted):
    frame = fitted.fits.files[2].frame
    agrees = (frame["small"] == frame["large"]).to_numpy()
    assert frame["agrees_with_small"].to_list() == agrees.astype(float).tolist()
    support = np.where(agrees, 1, -1) * (logit(frame["sure"].to_numpy()) + OUT_OF_FOLD_SHIFT)
    np.testing.assert_allclose(frame["support_of_small"], support, rtol=1e-9)


def test_three_models_have_seven_maps(fits):
    models = MODELS | {"third": Reading(decision="third")}
    rows = simulate(60).with_columns(third=pl.Series(simulate(60, 2)["small"]))
    fit_rows(rows, models, COSTS | {"third": 20}, target_accuracy=0.5)
    of_small, of_large = ("agrees_with_small", "support_of_small"), ("agrees_with_large", "support_of_large")
    assert [options.signals for options in fits.options] == [
        (),
        (),
        (),
        of_small,
        of_small,
        of_large,
        (*of_small, *of_large),
    ]
    frame = fits.files[-1].frame
    small_agrees = (frame["small"] == frame["large"]).to_numpy()
    small_logit = logit(frame["sure"].to_numpy())
    # the large model's reliability, out of fold, after the small one
    large_logit = logit(CONSTANT) + AGREEMENT_WEIGHT * small_agrees + OUT_OF_FOLD_SHIFT
    large_logit += SUPPORT_WEIGHT * np.where(small_agrees, 1, -1) * (small_logit + OUT_OF_FOLD_SHIFT)
    agrees = (frame["third"] == frame["large"]).to_numpy()
    np.testing.assert_allclose(frame["support_of_large"], np.where(agrees, 1, -1) * large_logit, rtol=1e-9)


def test_groups_are_whole_and_reach_the_maps_and_the_test(fits):
    document, summary = fit_rows(ROWS, ONE_MODEL, ONE_COSTS, group="query", target_accuracy=0.6, seed=2)
    assert fits.options[0].group == "query"
    used = set(fits.files[0].frame["query"])
    assert len(used) == 30
    assert len(fits.files[0].frame) == summary.numbers["test_rows"] == 120
    assert any("new groups are independent" in line for line in summary.lines)
    assert document is not None
    _, of_rows = fit_rows(ROWS, ONE_MODEL, ONE_COSTS, target_accuracy=0.6)
    assert any("new rows are independent" in line for line in of_rows.lines)


def test_a_column_that_the_cascade_computes_is_refused(fits):
    with pytest.raises(InputError, match=r"column agrees_with_small,.*rename"):
        fit_rows(ROWS.with_columns(agrees_with_small=1))


def test_signals_are_bounded_log_odds_with_a_sign():
    frame = pl.DataFrame({"x": [1, 2, 3, 4]})
    decision = np.array([0, 0, 1, 1])
    small = (np.array([0, 1, 1, 0]), np.array([2.0, 3.0, 30.0, 40.0]))
    large = (np.array([0, 0, 0, 1]), np.array([-1.0, -np.inf, -20.0, np.inf]))
    signals = with_signals(frame, ["small", "large"], decision, [small, large])
    assert signals.columns == ["x", "agrees_with_small", "support_of_small", "agrees_with_large", "support_of_large"]
    assert signals["agrees_with_small"].to_list() == [1.0, 0.0, 1.0, 0.0]
    assert signals["support_of_small"].to_list() == [2.0, -3.0, 10.0, -10.0]
    assert signals["agrees_with_large"].to_list() == [1.0, 1.0, 0.0, 1.0]
    assert signals["support_of_large"].to_list() == [-1.0, -10.0, 10.0, 10.0]
    assert with_signals(frame, [], decision, []).equals(frame)
    with pytest.raises(InputError, match=r"column support_of_small,.*rename"):
        with_signals(frame.with_columns(support_of_small=0), ["small"], decision, [small])


# How rows are read


def test_labels_without_names_are_numbered(fits):
    numbers = ROWS.with_columns(pl.col("small", "large", "label").replace_strict({"no": 0, "yes": 1}))
    document, _ = fit_rows(numbers, labels=None)
    assert document.are_numbered
    assert document.label_names == ("0", "1")
    assert not fit_rows(ROWS)[0].are_numbered


def test_a_label_that_one_model_decides_alone_is_a_label(fits):
    numbers = ROWS.with_columns(pl.col("small", "large", "label").replace_strict({"no": 0, "yes": 1}))
    third = numbers.with_columns(small=pl.when(pl.col("id") % 20 == 0).then(2).otherwise("small"))
    document, _ = fit_rows(third, labels=None)
    assert document.label_names == ("0", "1", "2")


def test_names_of_two_labels_are_found_in_the_rows(fits):
    rows = ROWS.with_columns(p=pl.when(pl.col("small") == "yes").then("sure").otherwise(1 - pl.col("sure")))
    models = {"small": Reading(probability="p", positive="yes"), "large": LARGE}
    document, _ = fit_rows(rows, models, labels=None)
    assert document.label_names == NAMES
    assert not document.are_numbered


def test_rows_without_other_columns_are_identified_by_their_number(fits):
    rows = ROWS.drop("id", "query", "large")
    document, summary = fit_rows(rows, ONE_MODEL, ONE_COSTS)
    assert document.identity_columns == ()
    assert any("by their number" in line for line in summary.lines)
    _, routes = apply_cascade(document, FramePredictions.from_frame(rows))
    assert not routes.are_identified
    named, summary = fit_rows(ROWS, ONE_MODEL, ONE_COSTS, ids=["query", "id"])
    assert named.identity_columns == ("query", "id")
    assert any("by query, id:" in line for line in summary.lines)


def test_a_column_of_queries_without_groups_is_noted(fits):
    for rows, is_noted in ((ROWS, True), (ROWS.rename({"query": "text"}), False)):
        _, summary = fit_rows(rows, ONE_MODEL, ONE_COSTS)
        assert any("query" in note for note in summary.notes) == is_noted


@pytest.mark.parametrize(("n_correct", "is_noted"), [(119, True), (120, False), (121, False)])
def test_a_model_of_which_more_than_half_of_the_decisions_are_wrong_is_noted(n_correct, is_noted, fits):
    other = pl.when(pl.col("label") == "no").then(pl.lit("yes")).otherwise(pl.lit("no"))
    rows = ROWS.sample(fraction=1, shuffle=True, seed=1).with_row_index("rank")
    rows = rows.with_columns(large=pl.when(pl.col("rank") < n_correct).then("label").otherwise(other)).drop("rank")
    _, summary = fit_rows(rows, target_accuracy=0.6)
    notes = [note for note in summary.notes if note.startswith("More than half")]
    assert len(notes) == is_noted
    if is_noted:
        assert " large " in notes[0]
        assert numbers_in(notes[0]) == ["49.6%"]


def test_a_note_of_several_models_is_given_once(fits):
    rows = ROWS.with_columns(id=pl.col("id") // 2)  # ids that repeat
    _, summary = fit_rows(rows, target_accuracy=0.6)
    assert summary.notes
    assert len(set(summary.notes)) == len(summary.notes)


@pytest.mark.parametrize(
    ("costs", "noted"), [((10, 1), ["10", "1"]), ((1, 1), None), ((1, 10), None), ((1.5, 0.5), ["1.5", "0.5"])]
)
def test_a_model_before_a_cheaper_one_is_noted(costs, noted, fits):
    named = dict(zip(MODELS, costs, strict=True)) | {"person": 0.1}
    _, summary = fit_rows(ROWS, costs=named, target_accuracy=0.6)
    notes = [note for note in summary.notes if "is asked before" in note]
    assert len(notes) == (noted is not None)
    if noted:
        assert numbers_in(notes[0]) == noted
        assert notes[0].startswith("small, ")


def test_unlabelled_rows_are_dropped_for_all_models(fits):
    partly = ROWS.with_columns(label=pl.when(pl.col("id") % 10 > 0).then("label").otherwise(pl.lit("NA")))
    with pytest.raises(InputError, match="label"):
        fit_rows(partly)
    models = {name: replace(reading, drop_unlabelled=True) for name, reading in MODELS.items()}
    _, summary = fit_rows(partly, models)
    _, of_labelled = fit_rows(ROWS.filter(pl.col("id") % 10 > 0))
    assert summary.numbers == of_labelled.numbers
    (note,) = [note for note in summary.notes if "omitted" in note]
    assert numbers_in(note) == ["24", "240", "24"]
    assert fits.files[0].reading == SMALL
    only, _ = fit_rows(partly, {"small": models["small"]}, ONE_COSTS)
    assert only.steps[0].name == "small"


@pytest.mark.parametrize("code", ["-1", "NA", "not judged", None])
def test_codes_of_unjudged_rows_are_dropped_as_missing_labels_are(code, fits):
    is_judged = pl.col("id") % 10 > 0
    models = {"small": replace(SMALL, drop_unlabelled=True)}
    partly = ROWS.with_columns(label=pl.when(is_judged).then("label").otherwise(pl.lit(code)))
    _, summary = fit_rows(partly, models, ONE_COSTS)
    _, of_labelled = fit_rows(ROWS.filter(is_judged), ONE_MODEL, ONE_COSTS)
    assert summary.to_dict() == of_labelled.to_dict()
    assert numbers_in(summary.notes[0])[:2] == ["24", "240"]


def test_a_code_that_a_later_model_decides_is_a_label(fits):
    recode = {"no": "0", "yes": "1"}
    rows = ROWS.with_columns(pl.col("small", "large", "label").replace(recode))
    codes = rows.with_columns(pl.when(pl.col("id") % 10 == 0).then(pl.lit("-1")).otherwise("label").alias("label"))
    models = {name: replace(reading, drop_unlabelled=True) for name, reading in MODELS.items()}
    _, summary = fit_rows(codes, models, labels=("0", "1"))
    assert summary.numbers["rows"] == 216
    decided = codes.with_columns(large=pl.when(pl.col("id") % 10 == 0).then(pl.lit("-1")).otherwise("large"))
    with pytest.raises(InputError, match="'-1'"):
        fit_rows(decided, models, labels=("0", "1"))


@pytest.mark.parametrize(
    ("n_rows", "hold_out", "n_test"), [(40, 0.5, 20), (41, 0.5, 20), (100, 0.3, 30), (99, 0.6, 59)]
)
def test_the_test_rows_are_a_share_of_all_rows(n_rows, hold_out, n_test, fits):
    for seed in range(4):
        _, summary = fit_rows(simulate(n_rows), ONE_MODEL, ONE_COSTS, budget=200, hold_out=hold_out, seed=seed)
        assert summary.numbers["test_rows"] == n_test
        assert len(fits.files[-1].frame) == n_rows - n_test


@pytest.mark.parametrize(("n_rows", "hold_out"), [(39, 0.5), (38, 0.5), (60, 0.3), (60, 0.7)])
def test_at_least_twenty_rows_fit_and_test(n_rows, hold_out):
    with pytest.raises(InputError, match="rows are too few") as refusal:
        fit_rows(simulate(n_rows), ONE_MODEL, ONE_COSTS, hold_out=hold_out)
    assert numbers_in(str(refusal.value)) == [str(n_rows), str(n_rows), "20", "20"]


def test_groups_that_are_too_few_are_counted():
    with pytest.raises(InputError, match="groups are too few") as refusal:
        fit_rows(simulate(36), ONE_MODEL, ONE_COSTS, group="query")
    assert numbers_in(str(refusal.value)) == ["36", "9", "20", "20"]


# Errors


@pytest.mark.parametrize(
    ("models", "costs", "message"),
    [
        ({}, {}, r"there are 0 models; give 1 to 5"),
        (dict.fromkeys("abcdef", LARGE), {}, r"there are 6 models; give 1 to 5"),
        (dict.fromkeys("abcde", LARGE), {}, r"given for nothing; .*a, b, c, d, e"),
        ({"use": LARGE}, {"use": 1}, "called 'use'"),
        ({"person": LARGE}, {"person": 1}, "called 'person'"),
        ({"a-b": LARGE}, {"a-b": 1}, "called 'a-b'"),
        (MODELS, {"small": 1, "person": 3}, r"given for small, person; .*small, large, and optionally for person$"),
        (MODELS, COSTS | {"people": 1}, r"person; people is no model.*cost person$"),
        (MODELS, COSTS | {"small": -0.1}, r"cost of small is -0\.1;"),
        (MODELS, COSTS | {"person": float("inf")}, "cost of person is inf;"),
        (MODELS, COSTS | {"large": 1.1e30}, r"cost of large is 1\.1e\+30;"),
        (MODELS, COSTS | {"large": "3"}, "cost of large is '3';"),
        (MODELS, COSTS | {"large": None}, "cost of large is None;"),
    ],
)
def test_models_and_costs_are_checked(models, costs, message):
    with pytest.raises(InputError, match=message):
        fit_rows(ROWS, models, costs)


@pytest.mark.parametrize("costs", [{"small": 0, "person": 0.5}, {"small": 0.5, "person": 1e30}, {"small": 0}])
def test_costs_may_be_zero_small_or_large(costs, fits):
    _, summary = fit_rows(ROWS, ONE_MODEL, costs, target_accuracy=0.6)
    assert summary.numbers["alone"]["small alone"]["cost"] == costs["small"]
    assert ("a person alone" in summary.numbers["alone"]) == ("person" in costs)


def test_rows_with_sampling_weights_are_refused():
    with pytest.raises(InputError, match=r"inverse_probability: .*equal probabilities"):
        fit_rows(ROWS.with_columns(inverse_probability=1.0))


@pytest.mark.parametrize("agree", [True, False])
def test_models_must_agree_on_some_of_the_rows_that_fit_the_maps(agree, fitted, fits):
    other = pl.when(pl.col("small") == "no").then(pl.lit("yes")).otherwise(pl.lit("no"))
    is_test = pl.Series(fitted.is_test)
    always = ROWS.with_columns(large=pl.when(is_test == agree).then(other).otherwise("small"))
    with pytest.raises(InputError, match=f"^small and large have {'the same' if agree else 'different'}") as refusal:
        fit_rows(always, hold_out=0.4, seed=3)
    assert numbers_in(str(refusal.value)) == ["144"]
    # one fit row is enough
    row = int(np.flatnonzero(~fitted.is_test)[0])
    fit_rows(
        always.with_columns(large=pl.when(pl.col("id") == row).then(other if agree else "small").otherwise("large")),
        hold_out=0.4,
        seed=3,
        target_accuracy=0.6,
    )


# No cascade


def test_a_target_out_of_reach_gives_no_cascade_but_the_numbers(fits):
    document, summary = fit_rows(ROWS, {"small": SMALL}, {"small": 1}, target_accuracy=0.99, confidence_level=0.9)
    assert document is None
    assert summary.numbers["chosen"] is None
    assert summary.numbers["lower_bound"] is None
    assert summary.numbers["alternatives"] == {"random routing": None, "thresholds on the confidences": None}
    assert summary.numbers["curves"]["the cascade"]
    assert summary.lines[0].startswith("No thresholds: ")
    assert numbers_in(summary.lines[0])[1:] == ["120", "99%", "90%"]
    assert " 90% confidence" in summary.lines[0]


def test_a_budget_out_of_reach_gives_no_cascade(fits):
    document, summary = fit_rows(ROWS, {"small": SMALL}, {"small": 5}, budget=4)
    assert document is None
    assert numbers_in(summary.lines[0]) == ["5"]


def test_a_person_alone_is_no_cascade_where_it_is_cheaper(fits):
    document, summary = fit_rows(ROWS, ONE_MODEL, {"small": 3, "person": 2}, target_accuracy=0.95)
    assert document is None
    assert summary.numbers["chosen"]["models"] == []
    assert summary.numbers["chosen"]["thresholds"] == []
    assert summary.numbers["chosen"]["cost"] == 2
    assert numbers_in(summary.lines[0])[:2] == ["95%", "2"]
    assert any(line.startswith("  small alone") for line in summary.lines)


def test_a_person_alone_is_no_cascade_where_it_is_more_accurate_within_the_budget(fits):
    document, summary = fit_rows(ROWS, ONE_MODEL, {"small": 3, "person": 2}, budget=2.5)
    assert document is None
    assert "within the budget" in summary.lines[0]
    assert numbers_in(summary.lines[0]) == ["2"]


# Sentences


def test_a_cascade_is_described_with_its_numbers(fitted):
    chosen = fitted.numbers["chosen"]
    lines = fitted.summary.lines
    shares, asked = chosen["shares"], chosen["asked"]
    expected = [f"{shares[0]:.1%}", f"{asked[1]:.1%}", f"{shares[1]:.1%}", f"{shares[2]:.1%}", f"{chosen['cost']:.4g}"]
    assert numbers_in(lines[0]) == expected
    assert lines[0].count("is asked in") == 1
    assert numbers_in(lines[1]) == ["95%", "90%", "96", f"{chosen['accuracy']:.1%}"]
    counts = [str(round(96 * share)) for share in asked]
    total = f"{96 * chosen['cost']:,.8g}"
    terms = [counts[0], "1", counts[1], "10", counts[2], "100", total]
    assert numbers_in(lines[2]) == ["96", *terms]
    assert sum(int(count) * cost for count, cost in zip(counts, (1, 10, 100), strict=True)) == float(
        total.replace(",", "")
    )
    assert numbers_in(next(line for line in lines if line.startswith("A person is assumed"))) == ["98%"]
    assert not any(line.startswith(("Not asked", "The budget")) for line in lines)


def test_the_alternatives_are_listed_with_their_numbers(fitted):
    for name, other in {**fitted.numbers["alone"], **fitted.numbers["alternatives"]}.items():
        (line,) = [line for line in fitted.summary.lines if line.startswith(f"  {name}")]
        assert numbers_in(line) == [f"{other['cost']:.4g}", f"{other['accuracy']:.1%}"]


def make_choice(
    shares=(0.5, 0.3, 0.2), *, thresholds=(0.9, 0.8), cost=25.0, models=("small", "large"), person=100.0, groups=None
) -> tuple[CascadeChoice, list[Plan]]:
    """Make a choice of a plan for 100 test rows; the other plan asks all models."""
    every = Costs((1.0, 10.0), person)
    cheaper = Costs(tuple({"small": 1.0, "large": 10.0}[name] for name in models), person)
    rows = CascadeRows(np.zeros((100, len(models))), np.ones((100, len(shares)), dtype=bool), groups)
    plans = [Plan(("small", "large"), every, rows, rows), Plan(models, cheaper, rows, rows)]
    chosen = Policy(thresholds, cost, 0.95, shares, plan=1)
    return CascadeChoice(chosen, 0.912, (chosen,)), plans


@pytest.mark.parametrize(("budget", "is_exceeded"), [(24.9, True), (25.0, False), (25.1, False), (None, False)])
def test_a_cost_above_the_budget_is_explained(budget, is_exceeded):
    settings = CascadeSettings(target_accuracy=0.9) if budget is None else CascadeSettings(budget=budget)
    lines = fit._describe(*make_choice(), settings)
    about_budget = [number for number, line in enumerate(lines) if line.startswith("The budget")]
    assert about_budget == ([1] if is_exceeded else [])
    if is_exceeded:
        assert numbers_in(lines[1]) == ["24.9"]
    assert len(lines) == 4 + is_exceeded


@pytest.mark.parametrize("budget", [10.0, 15.0, 20.0, 30.0])
def test_the_budget_is_explained_if_the_test_rows_cost_more(budget, fits):
    _, summary = fit_rows(ROWS, ONE_MODEL, ONE_COSTS, budget=budget)
    is_explained = any(f"budget of {budget:g} " in line for line in summary.lines)
    assert is_explained == (summary.numbers["chosen"]["cost"] > budget)


@pytest.mark.parametrize(
    ("settings", "gain"),
    [(CascadeSettings(target_accuracy=0.9), "cheaper"), (CascadeSettings(budget=30), "more accurate")],
)
def test_a_model_that_is_not_asked_is_named(settings, gain):
    lines = fit._describe(*make_choice((0.6, 0.4), thresholds=(0.9,), models=("large",)), settings)
    assert [line for line in lines if line.startswith("Not asked: small;") and gain in line]
    assert numbers_in(lines[0]) == ["60.0%", "40.0%", "25"]
    assert not any(line.startswith("Not asked") for line in fit._describe(*make_choice(), settings))


def test_without_a_person_none_is_described():
    choice = make_choice((0.5, 0.5), thresholds=(0.9,), person=None)
    lines = fit._describe(*choice, CascadeSettings(target_accuracy=0.9))
    assert not any("person" in line for line in lines)
    assert numbers_in(lines[0]) == ["50.0%", "50.0%", "50.0%", "25"]
    assert numbers_in(lines[2]) == ["100", "100", "1", "50", "10", "2,500"]


def test_the_guarantee_names_the_level_the_bound_and_the_unit():
    lines = fit._describe(*make_choice(), CascadeSettings(target_accuracy=0.9, confidence_level=0.8))
    assert numbers_in(lines[1]) == ["80%", "91.2%", "100", "95.0%"]
    assert "new rows" in lines[1]
    groups = RowGroups.from_names(np.arange(100) // 2, 1)
    of_groups = fit._describe(*make_choice(groups=groups), CascadeSettings(target_accuracy=0.9))
    assert "new groups" in of_groups[1]


def test_a_person_has_an_article():
    assert title_of("person") == "a person"
    assert title_of("large") == "large"


def test_an_alternative_without_thresholds_is_listed():
    choice, _ = make_choice()
    missing = CascadeChoice(None, None, choice.frontier)
    lines = fit._describe_alternatives({"first": missing, "second": choice}, [("small alone", 1.0, 0.875)])
    assert [numbers_in(line) for line in lines] == [["1", "87.5%"], [], ["25", "95.0%"]]
    assert lines[1].startswith("  first: no")


# Decisions that are divided by lot


def describe_lots(reliability, tie, thresholds, *, decision=None, second=None) -> list[str]:
    """Describe the lots of test rows; the rows of the fit, which come first, must not matter."""
    n_rows = len(reliability)
    reliability = np.asarray(reliability, dtype=float)
    second = np.full(n_rows, 0.3) if second is None else np.asarray(second)
    decision = np.zeros(n_rows, dtype=int) if decision is None else np.asarray(decision)
    is_test = np.arange(n_rows + 5) >= 5
    models = []
    for values in (reliability, second):
        of_all = logit(np.r_[np.full(5, 0.99), values])
        models.append(SimpleNamespace(decision=np.r_[np.full(5, 2), decision], logit=of_all))
    score = np.column_stack([reliability + tie, second])
    tests = CascadeRows(score, np.ones((n_rows, 3), dtype=bool))
    plan = Plan(("small", "large"), Costs((1.0, 10.0), 100.0), tests, tests)
    chosen = Policy(tuple(thresholds), 1.0, 1.0, (1.0, 0.0, 0.0))
    return fit._describe_lots(chosen, plan, models, ("no", "yes", "maybe"), is_test)


def test_decisions_that_a_threshold_divides_are_described():
    reliability = np.r_[np.full(4, 0.7), np.full(6, 0.9), np.full(2, 0.5)]
    tie = np.r_[[1e-10, 2e-10, 3e-10, 9e-10], np.zeros(8)]
    decision = np.r_[[0, 1, 1, 0], np.full(8, 2)]
    (line,) = describe_lots(reliability, tie, (0.7 + 2.5e-10, 0.2), decision=decision)
    assert numbers_in(line) == ["4", "70.0%", "50%"]
    assert "no, yes of small " in line
    assert "go to large" in line


def test_only_rows_that_reach_a_model_are_divided_by_it():
    reliability = np.r_[np.full(6, 0.9), np.full(4, 0.5)]
    second = np.full(10, 0.8)
    lines = describe_lots(reliability, np.zeros(10), (0.7, 0.8 + 1e-10), second=second)
    assert len(lines) == 1
    assert numbers_in(lines[0]) == ["4", "80.0%", "100%"]
    assert "of large " in lines[0]
    assert "go to a person" in lines[0]


@pytest.mark.parametrize(("n_divided", "is_described"), [(0, False), (1, False), (2, True), (3, True)])
def test_few_divided_decisions_are_not_described(n_divided, is_described):
    reliability = np.r_[np.full(n_divided, 0.7), np.full(200 - n_divided, 0.9)]
    lines = describe_lots(reliability, np.zeros(200), (0.7 + 5e-10, 0.2))
    assert len(lines) == is_described


SAME = float(expit(logit(0.7)))


@pytest.mark.parametrize("threshold", [SAME, SAME + TIE_RANGE, SAME + 1.5e-9, NEVER, 0.6])
def test_a_threshold_between_reliabilities_divides_nothing(threshold):
    assert describe_lots(np.full(10, 0.7), np.zeros(10), (threshold, 0.2)) == []
