"""The verbs, called as plain functions: gates close on what was changed, keys see what a fit depends on."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import expit, softmax

import relmap
from relmap.decisions import FixedDecisions, decide
from relmap.metrics.probability import accuracy
from relmap.metrics.registry import ProbabilityView, ReliabilityView, metrics_for_views
from relmap.metrics.spread import LabelCells
from relmap.projection.variants import PIPELINE_VARIANTS
from relmap.splits import ValidationRows
from tasks.calibrate import _code_of, calibrate, fit_key
from tasks.expectations.check import GateFailed
from tasks.measure import baselines, bootstrap_intervals, measure, sensitivity
from tasks.project import project
from tasks.records.results import Calibrated, Projected, ProjectedDecisions
from tasks.records.store import base_folder, read_base, read_members, write_decisions, write_logits
from tasks.settings.params import Params
from tasks.validate import check_invariants
from tasks.write import curves, optimum, sampled, scores, simplex

FEW = (100, 300, 5000)
RELIABILITY, OF_PROBABILITIES = (
    {metric.key for metric in metrics_for_views(view)} for view in (ReliabilityView, ProbabilityView)
)
NAMES = ("uncal", "ts")
KEYS = ["calibrator", "variant", "metric"]


def all_parts(decisions: FixedDecisions) -> ValidationRows:
    return ValidationRows(1, *[decisions] * 4)


def same_as(measured: pl.DataFrame, others: pl.DataFrame) -> bool:
    """Whether every row of `others` has the value that its place has in `measured`."""
    both = others.join(measured, on=KEYS, how="left", suffix="_measured")
    return (both["value"] == both["value_measured"]).all(ignore_nulls=False)


@pytest.fixture(scope="module")
def params(quick_params) -> Params:
    return quick_params.model_copy(update={"calibrators": NAMES})


@pytest.fixture(scope="module")
def parts(decisions) -> ValidationRows:
    return all_parts(decisions)


@pytest.fixture(scope="module")
def calibrated(parts) -> list[Calibrated]:
    return [calibrate.fn(parts, name, 1, FEW) for name in NAMES]


@pytest.fixture(scope="module")
def projected(decisions, calibrated, parts, params) -> Projected:
    return project.fn(calibrated, parts, decisions, params, "cpu")


@pytest.fixture(scope="module")
def measured(projected, decisions, params) -> pl.DataFrame:
    return measure.fn(projected, decisions.labels, params.metrics)


@pytest.fixture(autouse=True)
def _base(decisions, tmp_path, monkeypatch):
    """The same decisions as validation and as saved test rows."""
    monkeypatch.chdir(tmp_path)
    facts = {"labels": ["a", "b", "c"], "split_by": "group", "drawn": [], "source": "simulated"}
    right = {"accuracy": {"test": accuracy(decisions.decision, decisions.labels)}}
    write_logits("wands", {"validation": decisions, "test": decisions}, facts | right)


def test_a_gate_lets_through_what_nothing_touched_and_names_one_changed_row(projected, calibrated):
    passed = check_invariants.fn(projected, calibrated, "wands", 15)
    assert passed.rows == projected.rows
    assert [gate["success"] for gate in passed.gates] == [True]
    first, second = projected.rows
    decision = second.decision.copy()
    decision[7] = (decision[7] + 1) % 3
    changed = replace(projected, rows=[first, replace(second, decision=decision)])
    with pytest.raises(GateFailed, match=r"(?s)wands.*row 7 of ts"):
        check_invariants.fn(changed, calibrated, "wands", 15)


def test_a_seed_is_measured_in_every_metric_and_variant(projected, measured):
    assert set(measured["calibrator"]) == set(NAMES)
    of_calibrators = {*OF_PROBABILITIES, "accuracy", "label_spread", "label_spread_null_p95"}
    of_mrc = {*OF_PROBABILITIES, "infeasible_share", "solved_share"}
    others = {"confidence": RELIABILITY | of_calibrators, "mrc": of_mrc}
    metrics = {variant: set(rows["metric"]) for (variant,), rows in measured.group_by("variant")}
    assert metrics == dict.fromkeys(PIPELINE_VARIANTS, RELIABILITY) | others
    assert not measured.select(KEYS).is_duplicated().any()
    np.testing.assert_array_equal(*(rows.reliability_logits["label_vector"] for rows in projected.rows[:2]))
    below = [np.mean(expit(rows.reliability_logits["mrp"]) < 1 / 3) for rows in projected.rows]
    assert measured.filter(metric="infeasible_share")["value"].to_list() == below


def test_the_label_spread_of_a_run_is_that_of_its_members_mean_probabilities(
    decisions, projected, measured, calibrated, params
):
    noisy = decisions.logits + np.random.default_rng(1).normal(size=decisions.logits.shape)
    for run, member, logits in ((0, 0, decisions.logits), (0, 1, noisy), (1, 0, decisions.logits)):
        both = dict.fromkeys(("validation", "test"), replace(decisions, logits=logits, decision=decide(logits)))
        write_decisions(base_folder("wands") / f"members/run_{run}_member_{member}.parquet", both)
    run, alone = read_members("wands")
    tests, labels = [member.test for member in run], decisions.labels
    fits = [[calibrate.fn(all_parts(member.validation), name, 1) for name in NAMES] for member in run]
    of_members = measure.fn(projected, labels, params.metrics, tests, fits)
    decision = decide(sum(softmax(test.logits, axis=1) for test in tests))
    for place, name in enumerate(NAMES):
        mean = sum(np.exp(fit[place].value(test.logits)) for fit, test in zip(fits, tests, strict=True)) / 2
        confidence = mean[np.arange(len(labels)), decision]
        value = of_members.filter(metric="label_spread", calibrator=name)["value"].item()
        assert value == pytest.approx(
            LabelCells.from_decisions(confidence, decision, decision == labels).spread(), abs=1e-12
        )
    spreads = pl.col("metric").is_in(["label_spread", "label_spread_null_p95"])
    assert of_members.filter(~spreads).equals(measured.filter(~spreads))
    assert not of_members.filter(spreads).equals(measured.filter(spreads))
    of_one = measure.fn(projected, labels, params.metrics, [alone[0].test], [calibrated])
    np.testing.assert_allclose(of_one["value"], measured["value"], rtol=0, atol=1e-12)


def test_an_alternative_measures_what_it_bears_on_beside_the_default(projected, calibrated, parts, measured, params):
    unselected = parts._replace(projection_selection=parts.projection_selection.take(slice(0)))
    varied = sensitivity.fn(projected, calibrated, unselected, read_base("wands"), params, "cpu")
    no_file_for = {"unweighted", "multinomial", "member_1", "member_2"}
    assert set(varied["option"]) == set(params.sensitivity.alternatives) - no_file_for
    refits = ["temperature_without_leak", "groups_kept_whole", "thirds"]
    assert {option: set(rows["metric"]) for (option,), rows in varied.group_by("option")} == {
        **{option: {"accuracy", "nll_correct", "aupr_error", "aurc"} for option in refits},
        **{f"nll_clip_1e-{digits}": {"nll_correct"} for digits in (3, 12)},
        "ece_25_bins": {"ece", "top_ece"},
        "mrc_no_floor": {"nll"},
        "aupr_threshold": {"aupr_error"},
        "mrc_off_top_uniform": OF_PROBABILITIES,
    }
    assert set(varied.filter(option="mrc_off_top_uniform")["variant"]) == {"mrc"}
    of_refits = varied.filter(pl.col("option").is_in(refits), metric="nll_correct", variant="mrp", calibrator="ts")
    assert of_refits["value"].n_unique() == 3
    # only isotonic steps are ever exactly 0 or 1
    assert same_as(measured, varied.filter(pl.col("variant") != "label_isotonic", option="nll_clip_1e-12"))
    assert not same_as(measured, varied.filter(option="ece_25_bins", variant="confidence", metric="ece"))
    none = params.model_copy(update={"sensitivity": params.sensitivity.model_copy(update={"alternatives": {}})})
    assert sensitivity.fn(projected, calibrated, parts, read_base("wands"), none, "cpu").equals(varied.clear())


def test_calibrators_are_compared_on_as_many_rows_as_asked_for_or_there(calibrated, parts, decisions, params, measured):
    both = [calibrate.fn(parts.interleaved_fit_rows, "matrix", 1, tuple(2 * rows for rows in FEW))]
    rows = baselines.fn(calibrated, both, FEW, parts, decisions, params, "cpu")
    counts = ["rows", "calibrator_fit_rows", "projection_fit_rows"]
    with_mrp = rows.filter(variant="mrp").select(counts).unique(maintain_order=True)
    assert with_mrp.rows() == [(100, 100, 100), (300, 300, 300), (5000, 3000, 3000)]
    alone = rows.filter(calibrator="matrix").select(counts).unique(maintain_order=True)
    assert alone.rows() == [(100, 200, 0), (300, 600, 0), (5000, 6000, 0)]
    assert rows.filter(calibrator="matrix", metric="aurc")["value"].is_unique().all()
    assert same_as(measured, rows.filter(pl.col("calibrator") != "matrix", rows=FEW[-1]))
    alone = calibrate.fn(all_parts(decisions.take(slice(FEW[0]))), "ts", 1).value
    np.testing.assert_array_equal(calibrated[1].few[FEW[0]](decisions.logits), alone(decisions.logits))


def test_a_delta_is_bounded_by_calibrator_and_on_average_unless_groups_are_few(projected, decisions, params, measured):
    nine = replace(decisions, group=np.array([f"q{row % 9}" for row in range(len(decisions))]))
    choices = params.calibrators, params.metrics
    rows, few = (bootstrap_intervals.fn([projected], [measured], of, *choices) for of in (decisions, nine))
    assert set(few["groups"]) == {9}
    assert few["value"].is_not_nan().all()
    assert np.isnan(few.select("standard_error", "low", "high", "p").to_numpy()).all()
    assert set(rows["calibrator"]) == {*NAMES, "average"}
    deltas = rows.filter(quantity="delta")
    assert ((deltas["low"] <= deltas["value"]) & (deltas["value"] <= deltas["high"])).mean() > 0.9
    assert deltas["p"].is_between(0, 1).all()
    confidence, mrp = (measured.filter(variant=name, metric="aurc")["value"] for name in ("confidence", "mrp"))
    expected = [*(mrp - confidence), (mrp - confidence).mean()]
    np.testing.assert_allclose(deltas.filter(metric="aurc")["value"], expected, rtol=0, atol=1e-15)


def test_intervals_are_those_of_means_over_seeds_and_calibrators(projected, decisions, params):
    def swapped(rows: ProjectedDecisions, name: str) -> ProjectedDecisions:
        by = rows.reliability_logits
        return replace(rows, calibrator=name, reliability_logits={"confidence": by["mrp"], "mrp": by["confidence"]})

    first = projected.rows[0]
    mirrored = replace(projected, seed=2, rows=[swapped(rows, rows.calibrator) for rows in projected.rows])
    opposed = replace(projected, rows=[first, swapped(first, "ts"), replace(first, calibrator="matrix")])
    for seeds, calibrators in (([projected, mirrored], [*NAMES, "average"]), ([opposed], ["average"])):
        measured = [measure.fn(seed, decisions.labels, params.metrics) for seed in seeds]
        rows = bootstrap_intervals.fn(seeds, measured, decisions, params.calibrators, params.metrics)
        deltas = rows.filter(pl.col("calibrator").is_in(calibrators), quantity="delta")
        ranked = deltas.filter(pl.col("metric").is_in(RELIABILITY)).select(ends := ["value", "low", "high"]).to_numpy()
        beside = rows.filter(quantity="beside_mrp").select(ends).rows()  # of the confidence that MRP says too
        assert beside == ([(0, 0, 0)] if seeds == [opposed] else [])
        assert np.abs(ranked).max() < 1e-12


def test_the_choices_of_metrics_hold_for_values_and_intervals(projected, calibrated, parts, decisions, params):
    least = {"smallest_probability": 0.5, "smallest_reliability": 0.4, "spread_minimum_cell": len(decisions)}
    metrics = params.metrics.model_copy(update=least | {"ties": "threshold"})
    certain = {"mrp": np.full(len(decisions), np.inf)}
    sure = [replace(rows, reliability_logits=rows.reliability_logits | certain) for rows in projected.rows]
    measured = measure.fn(replace(projected, rows=sure), decisions.labels, metrics)
    bounds = bootstrap_intervals.fn([replace(projected, rows=sure)], [measured], decisions, params.calibrators, metrics)
    for metric, most in (("nll", np.log(2)), ("nll_correct", -np.log(0.4)), ("label_spread", -np.inf)):
        for values in (measured.filter(metric=metric)["value"], bounds.filter(metric=metric)["high"]):
            assert values.fill_nan(-np.inf).max() <= most
    assert measured.filter(metric="label_spread_null_p95")["value"].is_nan().all()
    assert bounds.filter(metric="aupr_error")["low"].is_nan().all()  # the bootstrap has one reading of ties
    assert bounds.filter(metric="aurc")["low"].is_not_nan().all()
    other = params.model_copy(update={"metrics": metrics})
    whole = baselines.fn(calibrated, [], FEW[-1:], parts, decisions, other, "cpu")
    assert same_as(measured, whole.filter(variant="confidence"))


def test_kept_are_the_calibrators_of_the_tables_every_variant_and_samples_that_sum_to_one(projected, decisions):
    rows = scores([projected], decisions, ("ts",))
    assert set(rows["calibrator"]) == {"ts"}
    assert {f"logit_{name}" for name in PIPELINE_VARIANTS} < set(rows.columns)
    assert rows["row"].to_list() == list(range(len(decisions)))
    large = sampled(1200, 500)
    assert (len(large), np.diff(large).min() > 0) == (500, True)
    assert (large == sampled(1200, 500)).all()
    rows = simplex([projected], decisions, NAMES)
    assert (len(rows), set(rows["calibrator"])) == (2000, {"ts"})
    base, mrc = (np.array(rows[name].to_list()) for name in ("base", "mrc"))
    np.testing.assert_allclose([base.sum(axis=1), mrc.sum(axis=1)], 1, rtol=0, atol=1e-12)
    solved = (rows["solved"] & rows["feasible"]).to_numpy()
    assert np.abs(mrc[np.arange(2000), rows["decision"]] - rows["reliability"].to_numpy())[solved].max() < 1e-6
    headlined = replace(projected, rows=[replace(projected.rows[0], calibrator="smart"), projected.rows[1]])
    assert set(simplex([headlined], decisions, ("smart", "ts"))["calibrator"]) == {"smart"}


def test_a_run_says_how_far_adam_is_from_the_optimum_and_which_labels_fall_back(projected, measured):
    facts = optimum([projected], measured)
    assert 0 < facts["adam_objective_above_it"] < 1
    assert facts["kkt_residual"] < 1e-8
    for metric in RELIABILITY:
        mrp, exact = (measured.filter(variant=name, metric=metric)["value"] for name in ("mrp", "mrp_exact"))
        assert facts["largest_difference"][metric] == (mrp - exact).abs().max()
    fallen = replace(projected, label_rows=(900, 3, 0), fallback=("none", "shared", "identity"))
    assert fallen.fallbacks(("bad", "fair", "good")) == [
        "seed 1: fair with 3 projection-fit rows takes the shared curve",
        "seed 1: good with 0 projection-fit rows keeps its confidence",
    ]


def test_every_curve_that_is_kept_names_its_label_and_the_rows_behind_it(projected, decisions):
    behind = dict(zip("abc", np.bincount(decisions.decision).tolist(), strict=True))
    kept = curves([projected], tuple(behind))
    assert {(lattice["calibrator"], lattice["variant"]) for lattice in kept} == {
        (rows.calibrator, variant) for rows in projected.rows for variant in rows.lattices
    }
    for lattice in kept:
        rows = {curve["label"]: curve["rows"] for curve in lattice["curves"]}
        assert rows == (behind if len(rows) > 1 else {"every label": len(decisions)})


def test_a_fit_is_found_again_for_the_same_rows_alone(decisions, monkeypatch):
    monkeypatch.chdir(Path(__file__).resolve().parents[2])  # where the code is

    def key(fit: FixedDecisions = decisions, **others: object) -> str:
        arguments = {"parts": all_parts(fit), "calibrator": "ts", "seed": 1, "few": (), "chosen": None}
        return fit_key(None, arguments | others)

    assert key() == key(replace(decisions, group=decisions.group[::-1]))
    labels, logits = decisions.labels.copy(), decisions.logits.copy()
    labels[0] = (labels[0] + 1) % 3
    logits[0, 0] = np.nextafter(logits[0, 0], np.inf)
    other_rows = key(replace(decisions, labels=labels)), key(replace(decisions, logits=logits))
    other_fits = key(seed=2), key(calibrator="uncal"), key(few=(100,)), key(chosen={"epochs": 3})
    assert len({key(), *other_fits, *other_rows}) == 7


@pytest.mark.parametrize(
    ("changed", "calibrators"),
    [
        ("relmap/calibrators/temperature.py", {"ts"}),
        ("relmap/serialization.py", {"ts", "uncal"}),
        ("relmap/projection/pooling.py", set()),
    ],
)
def test_a_fit_is_found_again_for_the_same_code_of_the_library_alone(
    changed, calibrators, decisions, tmp_path, monkeypatch
):
    def keys() -> dict[str, str]:
        _code_of.cache_clear()
        arguments = {"parts": all_parts(decisions), "seed": 1, "few": (), "chosen": None}
        return {name: fit_key(None, arguments | {"calibrator": name}) for name in ("ts", "uncal")}

    shutil.copytree(Path(relmap.__file__).parent, tmp_path / "relmap")
    monkeypatch.chdir(tmp_path)
    before = keys()
    (tmp_path / changed).write_text((tmp_path / changed).read_text() + "\nADDED = 1\n")
    after = keys()
    _code_of.cache_clear()
    assert {name for name in after if after[name] != before[name]} == calibrators
