"""The verbs, called as plain functions: gates close on what was changed, keys see what a fit depends on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import expit, softmax

from tasks.calibrate import calibrate, fit_key
from tasks.compare import compare
from tasks.expectations.check import GateFailed
from tasks.measure import bound, measure
from tasks.metrics.probability import accuracy
from tasks.metrics.spread import label_spread
from tasks.project import project
from tasks.projection.variants import VARIANTS
from tasks.protocol.decisions import decide
from tasks.protocol.params import Params, load_params
from tasks.protocol.results import Calibrated, Projected, ProjectedDecisions
from tasks.protocol.splits import ValidationRows
from tasks.protocol.store import base_folder, read_base, read_members, write_decisions, write_logits
from tasks.tables.runs import BOOSTED
from tasks.validate import known, unchanged
from tasks.vary import vary
from tasks.write import optimum, sampled, scores, simplex

FEW = (100, 300, 5000)
RELIABILITY = {"nll_correct", "aupr_error", "aurc", "augrc", "selacc_10", "selacc_50", "selacc_70", "selacc_90"}


@pytest.fixture(scope="module")
def params() -> Params:
    """Those of the project, with less to compute."""
    read = load_params(Path(__file__).resolve().parent.parent / "params.yaml")
    less = {"projection": {"epochs": 30}, "metrics": {"spread_permutations": 20, "resamples": 300}}
    sections = {name: getattr(read, name).model_copy(update=values) for name, values in less.items()}
    return read.model_copy(update={"calibrators": ("uncal", "ts"), **sections})


@pytest.fixture
def calibrated(decisions) -> list[Calibrated]:
    return [calibrate.fn(all_parts(decisions), name, 1, FEW) for name in ("uncal", "ts")]


@pytest.fixture
def parts(decisions) -> ValidationRows:
    return all_parts(decisions)


OTHER_BASES = {"unweighted", "multinomial", "member_1", "member_2"}  # which no file is there for


def all_parts(decisions) -> ValidationRows:
    return ValidationRows(1, decisions, decisions, decisions, decisions)


@pytest.fixture
def projected(decisions, calibrated, parts, params, tmp_path, monkeypatch) -> Projected:
    """What one seed projects, with the same decisions as validation and as saved test rows."""
    monkeypatch.chdir(tmp_path)
    facts = {
        "labels": ["a", "b", "c"],
        "split_by": "group",
        "drawn": [],
        "source": "simulated",
        "accuracy": {"test": accuracy(decisions.decision, decisions.labels)},
    }
    write_logits("wands", {"validation": decisions, "test": decisions}, facts)
    rows = len(decisions)
    pl.DataFrame(
        {
            "pair": [str(row) for row in range(rows)],
            "split": [("train", "validation", "test")[int(group[1:]) % 3] for group in decisions.group],
            "group": decisions.group.tolist(),
            "label": pl.Series(decisions.labels, dtype=pl.Int8),
            "text_length": [9] * rows,
        }
    ).write_parquet(base_folder("wands") / "pairs.parquet")
    return project.fn(calibrated, parts, decisions, params, "cpu")


def changed(projected: Projected, **arrays: np.ndarray) -> Projected:
    """What was projected, with something of the second calibrator changed on the way."""
    first, second = projected.rows
    return replace(projected, rows=[first, replace(second, **arrays)])


def test_what_nothing_touched_is_let_through_and_recorded(projected, calibrated):
    passed = unchanged.fn(projected, calibrated, "wands", 15)
    assert passed.rows == projected.rows
    assert passed.gates
    assert all(gate["success"] for gate in passed.gates)


def a_flipped_decision(rows: ProjectedDecisions) -> dict[str, np.ndarray]:
    decision = rows.decision.copy()
    decision[7] = (decision[7] + 1) % 3
    return {"decision": decision}


def a_nudged_probability(rows: ProjectedDecisions) -> dict[str, np.ndarray]:
    nudged = rows.log_probabilities.copy()
    nudged[7, 0] += 1e-12
    return {"log_probabilities": nudged}


def a_reliability_that_is_no_number(rows: ProjectedDecisions) -> dict[str, dict[str, np.ndarray]]:
    spoilt = rows.reliability_logits["mrp"].copy()
    spoilt[7] = np.nan
    return {"reliability_logits": rows.reliability_logits | {"mrp": spoilt}}


@pytest.mark.parametrize("change", [a_flipped_decision, a_nudged_probability, a_reliability_that_is_no_number])
def test_a_gate_closes_on_one_changed_row_and_names_where(projected, calibrated, change):
    with pytest.raises(GateFailed) as error:
        unchanged.fn(changed(projected, **change(projected.rows[1])), calibrated, "wands", 15)
    assert "wands" in str(error.value)
    assert "ts" in str(error.value)
    assert "7" in str(error.value)


def test_known_pairs_pass_and_a_group_in_two_splits_does_not(projected):
    assert known.fn("wands")["success"]
    path = base_folder("wands") / "pairs.parquet"
    pairs = pl.read_parquet(path)
    moved = pl.when(pl.col("pair") == "3").then(pl.lit("test")).otherwise("split").alias("split")
    pairs.with_columns(moved).write_parquet(path)
    with pytest.raises(GateFailed, match="q0"):
        known.fn("wands")


def test_a_seed_is_measured_in_every_metric_and_variant(projected, decisions, params):
    rows = measure.fn(projected, decisions.labels, params.metrics)
    assert set(rows["variant"]) == {*VARIANTS, "mrp_exact", "mrc"}
    assert set(rows["calibrator"]) == {"uncal", "ts"}
    of_calibrators = {"accuracy", "ece", "top_ece", "nll", "brier", "label_spread", "label_spread_null_p95"}
    assert set(rows.filter(pl.col("variant") == "mrp")["metric"]) == RELIABILITY
    assert set(rows.filter(pl.col("variant") == "confidence")["metric"]) == RELIABILITY | of_calibrators
    of_mrc = {"ece", "top_ece", "nll", "brier", "infeasible_share", "solved_share"}
    assert set(rows.filter(pl.col("variant") == "mrc")["metric"]) == of_mrc
    assert not rows.select("calibrator", "variant", "metric").is_duplicated().any()
    below = [np.mean(expit(one.reliability_logits["mrp"]) < 1 / 3) for one in projected.rows]
    assert rows.filter(pl.col("metric") == "infeasible_share")["value"].to_list() == below


def test_an_alternative_measures_what_it_bears_on_and_nothing_else(projected, calibrated, parts, decisions, params):
    rows = vary.fn(projected, calibrated, parts, read_base("wands"), params, "cpu")
    assert set(rows["option"]) == set(params.sensitivity.alternatives) - OTHER_BASES
    measured = {option: set(of["metric"]) for (option,), of in rows.group_by("option")}
    refitted = {"accuracy", "nll_correct", "aupr_error", "aurc"}
    assert measured["temperature_without_leak"] == measured["groups_kept_whole"] == measured["thirds"] == refitted
    assert measured["ece_25_bins"] == {"ece", "top_ece"}
    assert measured["mrc_no_floor"] == {"nll"}
    assert measured["nll_clip_1e-3"] == {"nll_correct"}
    assert measured["aupr_threshold"] == {"aupr_error"}
    assert measured["mrc_off_top_uniform"] == {"ece", "top_ece", "nll", "brier"}


def test_an_alternative_stands_beside_the_default_it_was_measured_like(projected, calibrated, parts, decisions, params):
    keys = ["calibrator", "seed", "variant", "metric"]
    varied = vary.fn(projected, calibrated, parts, read_base("wands"), params, "cpu")
    both = varied.join(measure.fn(projected, decisions.labels, params.metrics), on=keys, how="left", suffix="_default")
    assert both["value_default"].null_count() == 0
    where = (pl.col("option") == "nll_clip_1e-12") & (pl.col("variant") != "label_isotonic")
    unmoved = both.filter(where)  # only isotonic steps are ever exactly 0 or 1
    assert (unmoved["value"] == unmoved["value_default"]).all()
    moved = both.filter((pl.col("option") == "ece_25_bins") & (pl.col("variant") == "confidence"))
    assert (moved["value"] != moved["value_default"]).all()


def test_calibrators_are_compared_on_as_many_rows_as_asked_for_or_there(calibrated, parts, decisions, params):
    both = [calibrate.fn(parts.on_both, "matrix", 1, tuple(2 * rows for rows in FEW))]
    rows = compare.fn(calibrated, both, FEW, parts, decisions, params, "cpu")
    counts = ["rows", "calibrator_fit_rows", "projection_fit_rows"]
    with_mrp = rows.filter(pl.col("variant") == "mrp").select(counts).unique(maintain_order=True)
    assert with_mrp.rows() == [(100, 100, 100), (300, 300, 300), (5000, 3000, 3000)]
    alone = rows.filter(pl.col("calibrator") == "matrix").select(counts).unique(maintain_order=True)
    assert alone.rows() == [(100, 200, 0), (300, 600, 0), (5000, 6000, 0)]


def test_on_all_rows_the_comparison_is_the_measurement(projected, calibrated, parts, decisions, params):
    rows = compare.fn(calibrated, [], FEW, parts, decisions, params, "cpu").filter(pl.col("rows") == FEW[-1])
    measured = measure.fn(projected, decisions.labels, params.metrics)
    both = rows.join(measured, on=["calibrator", "variant", "metric"], how="left", suffix="_measured")
    assert (both["value"] == both["value_measured"]).all()


def test_a_fit_on_few_rows_sees_those_alone(decisions):
    few = calibrate.fn(all_parts(decisions), "ts", 1, (100, 5000))
    alone = calibrate.fn(all_parts(decisions.take(slice(100))), "ts", 1)
    np.testing.assert_allclose(few.few[100](decisions.logits), alone.value(decisions.logits), rtol=0, atol=1e-10)
    np.testing.assert_array_equal(few.few[5000](decisions.logits), few.value(decisions.logits))


def test_a_delta_is_bounded_around_its_value_for_each_calibrator_and_their_average(projected, decisions, params):
    measured = [measure.fn(projected, decisions.labels, params.metrics)]
    rows = bound.fn([projected], measured, decisions, params.calibrators, params.metrics)
    assert set(rows["calibrator"]) == {"uncal", "ts", "average"}
    deltas = rows.filter(pl.col("quantity") == "delta")
    assert ((deltas["low"] <= deltas["value"]) & (deltas["value"] <= deltas["high"])).mean() > 0.9
    assert deltas["p"].is_between(0, 1).all()
    mrp, confidence = (
        measured[0].filter((pl.col("variant") == name) & (pl.col("metric") == "aurc"))["value"].to_numpy()
        for name in ("mrp", "confidence")
    )
    aurc = deltas.filter(pl.col("metric") == "aurc")
    assert np.allclose(aurc["value"], [*(mrp - confidence), (mrp - confidence).mean()], rtol=0, atol=1e-15)


def test_intervals_are_those_of_means_over_seeds_and_calibrators(projected, decisions, params):
    def swapped(rows: ProjectedDecisions, name: str) -> ProjectedDecisions:
        by = rows.reliability_logits
        return replace(rows, calibrator=name, reliability_logits={"confidence": by["mrp"], "mrp": by["confidence"]})

    first = projected.rows[0]
    mirrored = replace(projected, seed=2, rows=[swapped(rows, rows.calibrator) for rows in projected.rows])
    opposed = replace(projected, rows=[first, swapped(first, "ts")])
    for seeds, calibrators in (([projected, mirrored], ["uncal", "ts", "average"]), ([opposed], ["average"])):
        measured = [measure.fn(seed, decisions.labels, params.metrics) for seed in seeds]
        rows = bound.fn(seeds, measured, decisions, params.calibrators, params.metrics)
        deltas = rows.filter(pl.col("quantity") == "delta", pl.col("calibrator").is_in(calibrators))
        ranked = deltas.filter(pl.col("metric").is_in(RELIABILITY)).select("value", "low", "high").to_numpy()
        assert np.abs(ranked).max() < 1e-12


def test_the_label_spread_of_a_run_is_that_of_its_members_mean_probabilities(decisions, projected, calibrated, params):
    noisy = decisions.logits + np.random.default_rng(1).normal(size=decisions.logits.shape)
    for run, member, logits in ((0, 0, decisions.logits), (0, 1, noisy), (1, 0, decisions.logits)):
        both = dict.fromkeys(("validation", "test"), replace(decisions, logits=logits, decision=decide(logits)))
        write_decisions(base_folder("wands") / f"members/run_{run}_member_{member}.parquet", both)
    run, alone = read_members("wands")
    tests, cuts = [one.test for one in run], [all_parts(one.validation) for one in run]
    fits = [[calibrate.fn(cut, name, 1) for name in ("uncal", "ts")] for cut in cuts]
    labels = decisions.labels
    found, plain = (
        measure.fn(projected, labels, params.metrics, tests, fits),
        measure.fn(projected, labels, params.metrics),
    )
    decision = decide(sum(softmax(one.logits, axis=1) for one in tests))
    for place, name in enumerate(("uncal", "ts")):
        mean = sum(np.exp(fit[place].value(one.logits)) for fit, one in zip(fits, tests, strict=True)) / 2
        confidence = mean[np.arange(len(labels)), decision]
        value = found.filter(metric="label_spread", calibrator=name)["value"].item()
        assert value == pytest.approx(label_spread(confidence, decision, decision == labels), abs=1e-12)
    spreads = pl.col("metric").is_in(["label_spread", "label_spread_null_p95"])
    assert found.filter(~spreads).equals(plain.filter(~spreads))
    assert not found.filter(spreads).equals(plain.filter(spreads))
    of_one = measure.fn(projected, labels, params.metrics, [alone[0].test], [calibrated])
    np.testing.assert_allclose(of_one["value"], plain["value"], rtol=0, atol=1e-12)


def test_floors_and_the_least_of_a_cell_hold_for_values_and_intervals(projected, decisions, params):
    chosen = {"smallest_probability": 0.5, "smallest_reliability": 0.4, "spread_minimum_cell": len(decisions)}
    metrics, certain = params.metrics.model_copy(update=chosen), {"mrp": np.full(len(decisions), np.inf)}
    sure = [replace(one, reliability_logits=one.reliability_logits | certain) for one in projected.rows]
    measured = measure.fn(replace(projected, rows=sure), decisions.labels, metrics)
    bounds = bound.fn([replace(projected, rows=sure)], [measured], decisions, params.calibrators, metrics)
    for metric, most in (("nll", np.log(2)), ("nll_correct", -np.log(0.4)), ("label_spread", -np.inf)):
        found = [
            frame.filter(metric=metric)[name].fill_nan(-np.inf)
            for frame, name in ((measured, "value"), (bounds, "high"))
        ]
        assert max(one.max() for one in found) <= most
    assert measured.filter(metric="label_spread_null_p95")["value"].is_nan().all()


def test_scores_hold_the_calibrators_of_the_tables_and_every_variant(projected, decisions):
    found = scores([projected], decisions, ("ts",))
    assert set(found["calibrator"]) == {"ts"}
    assert {f"logit_{name}" for name in VARIANTS} < set(found.columns)
    assert found["row"].to_list() == list(range(len(decisions)))


def test_the_simplex_sample_keeps_rows_that_sum_to_one(projected, decisions):
    found = simplex([projected], decisions, ("uncal", "ts"))
    assert len(found) == 2000
    for name in ("base", "mrc"):
        assert np.allclose(np.array(found[name].to_list()).sum(axis=1), 1, rtol=0, atol=1e-12)
    solved = found.filter(pl.col("solved") & pl.col("feasible"))
    top = np.array(solved["mrc"].to_list())[np.arange(len(solved)), solved["decision"]]
    assert np.abs(top - solved["reliability"].to_numpy()).max() < 1e-6
    first, second = projected.rows
    headlined = replace(projected, rows=[replace(first, calibrator="smart"), second])
    assert set(simplex([headlined], decisions, ("smart", "ts"))["calibrator"]) == {"smart"}


def test_a_run_says_how_far_adam_is_from_the_optimum(projected, decisions, params):
    measured = measure.fn(projected, decisions.labels, params.metrics)
    found = optimum([projected], measured)
    assert 0 < found["adam_objective_above_it"] < 1
    assert found["kkt_residual"] < 1e-8
    assert set(found["largest_difference"]) == RELIABILITY
    aurc = measured.filter(metric="aurc").pivot("variant", index="calibrator", values="value")
    assert found["largest_difference"]["aurc"] == max(abs(aurc["mrp"] - aurc["mrp_exact"]))


def test_a_label_that_falls_back_is_named(projected):
    fallen = replace(projected, label_rows=(900, 3, 0), fallback=("none", "shared", "identity"))
    assert fallen.fallbacks(("bad", "fair", "good")) == [
        "seed 1: fair with 3 projection-fit rows takes the shared curve",
        "seed 1: good with 0 projection-fit rows keeps its confidence",
    ]


def key(fit, calibrator="ts", seed=1, few=()) -> str:
    return fit_key(None, {"parts": all_parts(fit), "calibrator": calibrator, "seed": seed, "few": few, "chosen": None})


def test_a_fit_is_found_again_for_the_same_rows_alone(decisions):
    assert key(decisions) == key(replace(decisions, group=decisions.group[::-1]))
    labels = decisions.labels.copy()
    labels[0] = (labels[0] + 1) % 3
    logits = decisions.logits.copy()
    logits[0, 0] = np.nextafter(logits[0, 0], np.inf)
    keys = {
        key(decisions),
        key(decisions, seed=2),
        key(decisions, calibrator="uncal"),
        key(decisions, few=(100,)),
        key(replace(decisions, labels=labels)),
        key(replace(decisions, logits=logits)),
    }
    assert len(keys) == 6


def test_a_large_test_set_is_sampled_under_a_fixed_seed_and_a_small_one_is_not():
    assert (sampled(500, 50_000) == np.arange(500)).all()
    large = sampled(120_000, 50_000)
    assert len(np.unique(large)) == 50_000
    assert (np.diff(large) > 0).all()
    assert (large == sampled(120_000, 50_000)).all()


def test_alternatives_that_cannot_be_tried_are_left_out_and_none_at_all_is_a_table_too(
    projected, calibrated, parts, decisions, params
):
    unselected = parts._replace(projection_selection=decisions.take(slice(0)))
    options = set(vary.fn(projected, calibrated, unselected, read_base("wands"), params, "cpu")["option"])
    assert options == set(params.sensitivity.alternatives) - OTHER_BASES
    without = params.model_copy(update={"sensitivity": params.sensitivity.model_copy(update={"alternatives": {}})})
    empty = vary.fn(projected, calibrated, parts, read_base("wands"), without, "cpu")
    assert empty.schema == vary.fn(projected, calibrated, parts, read_base("wands"), params, "cpu").schema
    assert empty.is_empty()


def test_with_few_groups_there_is_no_interval(projected, decisions, params):
    measured = [measure.fn(projected, decisions.labels, params.metrics)]
    few = replace(decisions, group=np.array([f"q{row % 9}" for row in range(len(decisions))]))
    rows = bound.fn([projected], measured, few, params.calibrators, params.metrics)
    assert set(rows["groups"]) == {9}
    assert rows["value"].is_not_nan().all()
    assert np.isnan(rows.select("standard_error", "low", "high", "p").to_numpy()).all()


def test_another_reading_of_ties_holds_for_every_value_and_has_no_interval(
    projected, calibrated, parts, decisions, params
):
    metrics = params.metrics.model_copy(update={"ties": "threshold"})
    measured = measure.fn(projected, decisions.labels, metrics)
    rows = bound.fn([projected], [measured], decisions, params.calibrators, metrics)
    of_errors = rows.filter(pl.col("metric") == "aupr_error")
    assert of_errors["low"].is_nan().all()
    assert rows.filter(pl.col("metric") == "aurc")["low"].is_not_nan().all()
    other = params.model_copy(update={"metrics": metrics})
    whole = compare.fn(calibrated, [], FEW, parts, decisions, other, "cpu").filter(pl.col("rows") == FEW[-1])
    both = whole.join(measured, on=["calibrator", "variant", "metric"], how="left", suffix="_measured")
    assert (both["value"] == both["value_measured"]).all()


def test_a_data_set_may_name_calibrators_of_its_own(params):
    assert params.dataset(BOOSTED).calibrators == ("uncal",)
    assert params.dataset("mslr_web10k").calibrators is None
