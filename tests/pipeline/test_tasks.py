"""Tasks of the pipeline, called as plain functions."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import expit, softmax

import relmap
from relmap.decisions import ProtocolDecisions, decide
from relmap.metrics.probability import accuracy
from relmap.metrics.registry import ProbabilityView, ReliabilityView, metrics_for_views
from relmap.metrics.spread import LabelCells
from relmap.projection.variants import PIPELINE_VARIANTS
from relmap.splits import ValidationRows
from tasks.calibrate import _describe_code, calibrate, fit_key
from tasks.expectations.check import GateFailed
from tasks.measure import bootstrap_intervals, compare_calibrators, measure, measure_alternatives
from tasks.project import project
from tasks.records.results import CalibratorFit, ProjectedDecisions, SeedResults
from tasks.records.store import base_folder, read_base, read_members, write_decisions, write_logits
from tasks.settings.params import Params
from tasks.validate import check_invariants
from tasks.write import build_scores, build_simplex_rows, list_lattices, sample_rows, summarize_optimality

ROOT = Path(__file__).resolve().parents[2]
ROW_COUNTS = (100, 300, 5000)
CALIBRATORS = ("uncal", "ts")
KEY_COLUMNS = ["calibrator", "variant", "metric"]
RELIABILITY_METRICS = {metric.key for metric in metrics_for_views(ReliabilityView)}
PROBABILITY_METRICS = {metric.key for metric in metrics_for_views(ProbabilityView)}
SPREAD_METRICS = {"label_spread", "label_spread_null_p95"}


def use_for_all_parts(decisions: ProtocolDecisions) -> ValidationRows:
    return ValidationRows(1, *[decisions] * 4)


def agrees_with(metrics: pl.DataFrame, others: pl.DataFrame) -> bool:
    """Whether each row of `others` has the value of the same calibrator, variant and metric in `metrics`."""
    joined = others.join(metrics, on=KEY_COLUMNS, how="left", suffix="_expected")
    return (joined["value"] == joined["value_expected"]).all(ignore_nulls=False)


def interval_end_columns() -> list[str]:
    return ["value", "low", "high"]


@pytest.fixture(scope="module")
def params(quick_params) -> Params:
    return quick_params.model_copy(update={"calibrators": CALIBRATORS})


@pytest.fixture(scope="module")
def parts(decisions) -> ValidationRows:
    return use_for_all_parts(decisions)


@pytest.fixture(scope="module")
def fits(parts) -> list[CalibratorFit]:
    return [calibrate.fn(parts, calibrator, 1, ROW_COUNTS) for calibrator in CALIBRATORS]


@pytest.fixture(scope="module")
def results(decisions, fits, parts, params) -> SeedResults:
    return project.fn(fits, parts, decisions, params, "cpu")


@pytest.fixture(scope="module")
def metrics(results, decisions, params) -> pl.DataFrame:
    return measure.fn(results, decisions.label, params.metrics)


@pytest.fixture(autouse=True)
def _base(decisions, tmp_path, monkeypatch):
    """Write the same decisions as validation and test rows of a base predictor."""
    monkeypatch.chdir(tmp_path)
    facts = {
        "labels": ["a", "b", "c"],
        "split_by": "group",
        "drawn": [],
        "source": "simulated",
        "accuracy": {"test": accuracy(decisions.decision, decisions.label)},
    }
    write_logits("wands", {"validation": decisions, "test": decisions}, facts)


def test_unchanged_results_pass_the_gate(results, fits):
    checked = check_invariants.fn(results, fits, "wands", 15)
    assert checked.projections == results.projections
    assert [record["success"] for record in checked.gate_records] == [True]


def test_one_changed_decision_fails_the_gate(results, fits):
    first, second = results.projections
    decision = second.decision.copy()
    decision[7] = (decision[7] + 1) % 3
    changed = replace(results, projections=[first, replace(second, decision=decision)])
    with pytest.raises(GateFailed, match=r"(?s)wands.*row 7 of ts"):
        check_invariants.fn(changed, fits, "wands", 15)


def test_every_metric_of_every_variant_is_measured_once(metrics):
    expected = dict.fromkeys(PIPELINE_VARIANTS, RELIABILITY_METRICS)
    expected["confidence"] = {*RELIABILITY_METRICS, *PROBABILITY_METRICS, *SPREAD_METRICS, "accuracy"}
    expected["mrc"] = {*PROBABILITY_METRICS, "infeasible_share", "solved_share"}
    assert set(metrics["calibrator"]) == set(CALIBRATORS)
    assert {variant: set(rows["metric"]) for (variant,), rows in metrics.group_by("variant")} == expected
    assert not metrics.select(KEY_COLUMNS).is_duplicated().any()


def test_a_variant_of_the_logits_is_the_same_under_every_calibrator(results):
    first, second = results.projections
    np.testing.assert_array_equal(first.reliability_logits["label_vector"], second.reliability_logits["label_vector"])


def test_the_infeasible_share_counts_reliabilities_below_one_over_k(results, metrics):
    expected = [np.mean(expit(rows.reliability_logits["mrp"]) < 1 / 3) for rows in results.projections]
    assert metrics.filter(metric="infeasible_share")["value"].to_list() == expected


def write_members(decisions: ProtocolDecisions) -> None:
    """Write a model run of two members, the second with noise, and a run of one member."""
    noise = np.random.default_rng(1).normal(size=decisions.logits.shape)
    noisy = replace(decisions, logits=decisions.logits + noise, decision=decide(decisions.logits + noise))
    for name, member in (
        ("run_0_member_0", decisions),
        ("run_0_member_1", noisy),
        ("run_1_member_0", decisions),
    ):
        write_decisions(base_folder("wands") / f"members/{name}.parquet", {"validation": member, "test": member})


def test_the_label_spread_of_a_model_run_is_that_of_the_mean_probabilities_of_its_members(
    decisions, results, metrics, params
):
    write_members(decisions)
    run_of_two, _ = read_members("wands")
    tests = [member.test for member in run_of_two]
    fits_of_members = [
        [calibrate.fn(use_for_all_parts(member.validation), calibrator, 1) for calibrator in CALIBRATORS]
        for member in run_of_two
    ]

    measured = measure.fn(results, decisions.label, params.metrics, tests, fits_of_members)

    decision = decide(sum(softmax(test.logits, axis=1) for test in tests))
    correct = decision == decisions.label
    for index, calibrator in enumerate(CALIBRATORS):
        probabilities = [
            np.exp(fits[index].model(test.logits)) for fits, test in zip(fits_of_members, tests, strict=True)
        ]
        confidence = np.mean(probabilities, axis=0)[np.arange(len(decision)), decision]
        expected = LabelCells.from_decisions(confidence, decision, correct).spread()
        spread = measured.filter(metric="label_spread", calibrator=calibrator)["value"].item()
        assert spread == pytest.approx(expected, abs=1e-12)
    is_spread = pl.col("metric").is_in(SPREAD_METRICS)
    assert measured.filter(~is_spread).equals(metrics.filter(~is_spread))
    assert not measured.filter(is_spread).equals(metrics.filter(is_spread))


def test_a_model_run_of_one_member_has_the_metrics_of_that_member(decisions, results, metrics, fits, params):
    write_members(decisions)
    _, (member,) = read_members("wands")
    measured = measure.fn(results, decisions.label, params.metrics, [member.test], [fits])
    np.testing.assert_allclose(measured["value"], metrics["value"], rtol=0, atol=1e-12)


@pytest.fixture(scope="module")
def parts_without_selection(parts) -> ValidationRows:
    return parts._replace(projection_selection=parts.projection_selection.take(slice(0)))


def test_an_alternative_measures_the_metrics_that_it_affects(results, fits, parts_without_selection, params):
    measured = measure_alternatives.fn(results, fits, parts_without_selection, read_base("wands"), params, "cpu")

    without_saved_logits = {"unweighted", "multinomial", "member_1", "member_2"}
    assert set(measured["option"]) == set(params.sensitivity.alternatives) - without_saved_logits
    refits = ["temperature_without_leak", "groups_kept_whole", "thirds"]
    assert {option: set(rows["metric"]) for (option,), rows in measured.group_by("option")} == {
        **{option: {"accuracy", "nll_correct", "aupr_error", "aurc"} for option in refits},
        "nll_clip_1e-3": {"nll_correct"},
        "nll_clip_1e-12": {"nll_correct"},
        "ece_25_bins": {"ece", "top_ece"},
        "mrc_no_floor": {"nll"},
        "aupr_threshold": {"aupr_error"},
        "mrc_off_top_uniform": PROBABILITY_METRICS,
    }
    assert set(measured.filter(option="mrc_off_top_uniform")["variant"]) == {"mrc"}
    nll_of_refits = measured.filter(
        pl.col("option").is_in(refits), metric="nll_correct", variant="mrp", calibrator="ts"
    )
    assert nll_of_refits["value"].n_unique() == 3


def test_an_alternative_changes_only_values_that_its_setting_affects(
    results, fits, parts_without_selection, metrics, params
):
    measured = measure_alternatives.fn(results, fits, parts_without_selection, read_base("wands"), params, "cpu")
    # isotonic steps are the only reliabilities of exactly 0 or 1
    assert agrees_with(metrics, measured.filter(pl.col("variant") != "label_isotonic", option="nll_clip_1e-12"))
    assert not agrees_with(metrics, measured.filter(option="ece_25_bins", variant="confidence", metric="ece"))


def test_without_alternatives_nothing_is_measured(results, fits, parts, params):
    sensitivity = params.sensitivity.model_copy(update={"alternatives": {}})
    without_alternatives = params.model_copy(update={"sensitivity": sensitivity})
    measured = measure_alternatives.fn(results, fits, parts, read_base("wands"), without_alternatives, "cpu")
    assert measured.is_empty()


def test_calibrators_are_compared_on_the_requested_or_available_numbers_of_rows(
    fits, parts, decisions, params, metrics
):
    doubled = tuple(2 * row_count for row_count in ROW_COUNTS)
    fits_on_both_parts = [calibrate.fn(parts.interleaved_fit_rows, "matrix", 1, doubled)]

    rows = compare_calibrators.fn(fits, fits_on_both_parts, ROW_COUNTS, parts, decisions, params, "cpu")

    counts = ["rows", "calibrator_fit_rows", "projection_fit_rows"]
    with_mrp = rows.filter(variant="mrp").select(counts).unique(maintain_order=True)
    assert with_mrp.rows() == [(100, 100, 100), (300, 300, 300), (5000, 3000, 3000)]
    on_both_parts = rows.filter(calibrator="matrix").select(counts).unique(maintain_order=True)
    assert on_both_parts.rows() == [(100, 200, 0), (300, 600, 0), (5000, 6000, 0)]
    assert rows.filter(calibrator="matrix", metric="aurc")["value"].is_unique().all()
    assert agrees_with(metrics, rows.filter(pl.col("calibrator") != "matrix", rows=ROW_COUNTS[-1]))


def test_a_fit_on_the_first_rows_is_the_fit_on_these_rows_alone(fits, decisions):
    first_rows = use_for_all_parts(decisions.take(slice(ROW_COUNTS[0])))
    expected = calibrate.fn(first_rows, "ts", 1).model
    model = fits[1].models_by_row_count[ROW_COUNTS[0]]
    np.testing.assert_array_equal(model(decisions.logits), expected(decisions.logits))


def test_changes_have_intervals_for_each_calibrator_and_on_average(results, decisions, params, metrics):
    rows = bootstrap_intervals.fn([results], [metrics], decisions, params.calibrators, params.metrics)
    assert set(rows["calibrator"]) == {*CALIBRATORS, "average"}
    deltas = rows.filter(quantity="delta")
    assert ((deltas["low"] <= deltas["value"]) & (deltas["value"] <= deltas["high"])).mean() > 0.9
    assert deltas["p"].is_between(0, 1).all()
    aurc_before = metrics.filter(variant="confidence", metric="aurc")["value"]
    aurc_after = metrics.filter(variant="mrp", metric="aurc")["value"]
    changes = aurc_after - aurc_before
    expected = [*changes, changes.mean()]
    np.testing.assert_allclose(deltas.filter(metric="aurc")["value"], expected, rtol=0, atol=1e-15)


def test_with_nine_groups_there_are_values_but_no_intervals(results, decisions, params, metrics):
    nine_groups = np.array([f"q{row % 9}" for row in range(len(decisions))])
    test = replace(decisions, group=nine_groups)
    rows = bootstrap_intervals.fn([results], [metrics], test, params.calibrators, params.metrics)
    assert set(rows["groups"]) == {9}
    assert rows["value"].is_not_nan().all()
    assert np.isnan(rows.select("standard_error", "low", "high", "p").to_numpy()).all()


def swap_confidence_and_mrp(decisions: ProjectedDecisions, calibrator: str) -> ProjectedDecisions:
    """Exchange confidence and reliability, so that every change has the opposite sign."""
    logits = decisions.reliability_logits
    swapped = {"confidence": logits["mrp"], "mrp": logits["confidence"]}
    return replace(decisions, calibrator=calibrator, reliability_logits=swapped)


def test_opposite_changes_of_two_seeds_average_to_zero(results, decisions, params):
    projections = [swap_confidence_and_mrp(rows, rows.calibrator) for rows in results.projections]
    seeds = [results, replace(results, seed=2, projections=projections)]
    metrics = [measure.fn(seed, decisions.label, params.metrics) for seed in seeds]

    rows = bootstrap_intervals.fn(seeds, metrics, decisions, params.calibrators, params.metrics)

    deltas = rows.filter(pl.col("metric").is_in(RELIABILITY_METRICS), quantity="delta")
    assert np.abs(deltas.select(interval_end_columns()).to_numpy()).max() < 1e-12
    assert rows.filter(quantity="versus_mrp").is_empty()


def test_opposite_changes_of_two_calibrators_average_to_zero(results, decisions, params):
    first = results.projections[0]
    projections = [first, swap_confidence_and_mrp(first, "ts"), replace(first, calibrator="matrix")]
    opposite = replace(results, projections=projections)
    metrics = [measure.fn(opposite, decisions.label, params.metrics)]

    rows = bootstrap_intervals.fn([opposite], metrics, decisions, params.calibrators, params.metrics)

    deltas = rows.filter(pl.col("metric").is_in(RELIABILITY_METRICS), calibrator="average", quantity="delta")
    assert np.abs(deltas.select(interval_end_columns()).to_numpy()).max() < 1e-12
    # the confidence of "matrix" is the reliability of "ts"
    assert rows.filter(quantity="versus_mrp").select(interval_end_columns()).rows() == [(0, 0, 0)]


@pytest.fixture(scope="module")
def extreme_params(params, decisions) -> Params:
    """Settings under which clipped probabilities and small cells determine the metrics."""
    changes = {
        "smallest_probability": 0.5,
        "smallest_reliability": 0.4,
        "spread_minimum_cell": len(decisions),
        "ties": "threshold",
    }
    return params.model_copy(update={"metrics": params.metrics.model_copy(update=changes)})


def test_the_settings_of_metrics_apply_to_values_and_intervals(results, decisions, extreme_params):
    certain = {"mrp": np.full(len(decisions), np.inf)}
    projections = [replace(rows, reliability_logits=rows.reliability_logits | certain) for rows in results.projections]
    certain_results = replace(results, projections=projections)
    settings = extreme_params.metrics

    metrics = measure.fn(certain_results, decisions.label, settings)
    intervals = bootstrap_intervals.fn([certain_results], [metrics], decisions, extreme_params.calibrators, settings)

    for metric, upper_bound in (("nll", np.log(2)), ("nll_correct", -np.log(0.4)), ("label_spread", -np.inf)):
        for values in (metrics.filter(metric=metric)["value"], intervals.filter(metric=metric)["high"]):
            assert values.fill_nan(-np.inf).max() <= upper_bound
    assert metrics.filter(metric="label_spread_null_p95")["value"].is_nan().all()
    assert intervals.filter(metric="aupr_error")["low"].is_nan().all()  # the bootstrap supports expected ties only
    assert intervals.filter(metric="aurc")["low"].is_not_nan().all()


def test_the_settings_of_metrics_apply_to_the_comparison_of_calibrators(
    results, fits, parts, decisions, extreme_params
):
    metrics = measure.fn(results, decisions.label, extreme_params.metrics)
    all_rows = compare_calibrators.fn(fits, [], ROW_COUNTS[-1:], parts, decisions, extreme_params, "cpu")
    assert agrees_with(metrics, all_rows.filter(variant="confidence"))


def test_scores_have_every_test_row_and_variant_of_the_calibrators_of_the_tables(results, decisions):
    rows = build_scores([results], decisions, ("ts",))
    assert set(rows["calibrator"]) == {"ts"}
    assert {f"logit_{variant}" for variant in PIPELINE_VARIANTS} < set(rows.columns)
    assert rows["row"].to_list() == list(range(len(decisions)))


def test_a_sample_of_rows_is_increasing_and_reproducible():
    sample = sample_rows(1200, 500)
    assert len(sample) == 500
    assert np.diff(sample).min() > 0
    assert (sample == sample_rows(1200, 500)).all()


def test_simplex_rows_are_probability_vectors_with_the_reliability_of_the_decision(results, decisions):
    rows = build_simplex_rows([results], decisions, CALIBRATORS)
    assert len(rows) == 2000
    assert set(rows["calibrator"]) == {"ts"}
    base = np.array(rows["base"].to_list())
    mrc = np.array(rows["mrc"].to_list())
    np.testing.assert_allclose(base.sum(axis=1), 1, rtol=0, atol=1e-12)
    np.testing.assert_allclose(mrc.sum(axis=1), 1, rtol=0, atol=1e-12)
    difference = np.abs(mrc[np.arange(2000), rows["decision"]] - rows["reliability"].to_numpy())
    is_exact = (rows["solved"] & rows["feasible"]).to_numpy()
    assert difference[is_exact].max() < 1e-6


def test_simplex_rows_use_the_calibrator_of_the_papers_figures_if_it_ran(results, decisions):
    first, second = results.projections
    with_smart = replace(results, projections=[replace(first, calibrator="smart"), second])
    assert set(build_simplex_rows([with_smart], decisions, ("smart", "ts"))["calibrator"]) == {"smart"}


def test_the_distance_from_the_optimum_is_summarized(results, metrics):
    summary = summarize_optimality([results], metrics)
    assert 0 < summary["adam_objective_above_it"] < 1
    assert summary["kkt_residual"] < 1e-8
    for metric in RELIABILITY_METRICS:
        mrp = metrics.filter(variant="mrp", metric=metric)["value"]
        optimum = metrics.filter(variant="mrp_exact", metric=metric)["value"]
        assert summary["largest_difference"][metric] == (mrp - optimum).abs().max()


def test_labels_with_few_rows_are_described_with_their_fallback(results):
    with_fallbacks = replace(results, rows_per_label=(900, 3, 0), fallbacks=("none", "shared", "identity"))
    assert with_fallbacks.describe_fallbacks(("bad", "fair", "good")) == [
        "seed 1: fair with 3 projection-fit rows takes the shared curve",
        "seed 1: good with 0 projection-fit rows keeps its confidence",
    ]


def test_every_lattice_has_its_labels_and_their_numbers_of_rows(results, decisions):
    row_counts = dict(zip("abc", np.bincount(decisions.decision).tolist(), strict=True))
    lattices = list_lattices([results], tuple(row_counts))
    expected = {(rows.calibrator, variant) for rows in results.projections for variant in rows.lattices}
    assert {(lattice["calibrator"], lattice["variant"]) for lattice in lattices} == expected
    for lattice in lattices:
        counts = {curve["label"]: curve["rows"] for curve in lattice["curves"]}
        assert counts == (row_counts if len(counts) > 1 else {"every label": len(decisions)})


def key_of_fit(decisions: ProtocolDecisions, **changes: object) -> str:
    arguments = {
        "parts": use_for_all_parts(decisions),
        "calibrator": "ts",
        "seed": 1,
        "row_counts": (),
        "settings": None,
    }
    return fit_key(None, arguments | changes)


def test_the_key_of_a_fit_depends_on_its_rows_and_settings_but_not_on_groups(decisions, monkeypatch):
    monkeypatch.chdir(ROOT)  # the code is a part of the key
    other_labels = decisions.label.copy()
    other_labels[0] = (other_labels[0] + 1) % 3
    other_logits = decisions.logits.copy()
    other_logits[0, 0] = np.nextafter(other_logits[0, 0], np.inf)

    keys = [
        key_of_fit(decisions),
        key_of_fit(replace(decisions, label=other_labels)),
        key_of_fit(replace(decisions, logits=other_logits)),
        key_of_fit(decisions, seed=2),
        key_of_fit(decisions, calibrator="uncal"),
        key_of_fit(decisions, row_counts=(100,)),
        key_of_fit(decisions, settings={"epochs": 3}),
    ]

    assert len(set(keys)) == len(keys)
    assert key_of_fit(replace(decisions, group=decisions.group[::-1])) == keys[0]


def keys_with_current_code(decisions: ProtocolDecisions) -> dict[str, str]:
    _describe_code.cache_clear()
    return {calibrator: key_of_fit(decisions, calibrator=calibrator) for calibrator in ("ts", "uncal")}


@pytest.mark.parametrize(
    ("changed_file", "expected"),
    [
        ("relmap/calibrators/temperature.py", {"ts"}),
        ("relmap/serialization.py", {"ts", "uncal"}),
        ("relmap/projection/pooling.py", set()),
    ],
)
def test_the_key_of_a_fit_depends_on_the_code_that_the_calibrator_imports(
    changed_file, expected, decisions, tmp_path, monkeypatch
):
    shutil.copytree(Path(relmap.__file__).parent, tmp_path / "relmap")
    monkeypatch.chdir(tmp_path)
    before = keys_with_current_code(decisions)

    with (tmp_path / changed_file).open("a") as file:
        file.write("\nADDED = 1\n")
    after = keys_with_current_code(decisions)
    _describe_code.cache_clear()

    changed = {calibrator for calibrator in after if after[calibrator] != before[calibrator]}
    assert changed == expected
