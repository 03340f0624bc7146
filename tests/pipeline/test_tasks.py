"""Tasks of the pipeline, called as plain functions."""

import re
import shutil
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from scipy.special import expit, softmax

import relmap
from relmap.decisions import CalibratedDecisions, ProtocolDecisions, clip_logits, confidence_logit, decide
from relmap.metrics.probability import accuracy
from relmap.metrics.registry import ProbabilityView, ReliabilityView, compute_compared_metrics, metrics_for_views
from relmap.metrics.spread import LabelCells
from relmap.projection.registry import PIPELINE_VARIANTS, fit_variants
from relmap.projection.rows import FitBatch, ValidationRows, measure_optimality_gap, select_validation_rows
from relmap.projection.simplex import MAX_ALPHA
from tasks import report, validate, write
from tasks.calibrate import _describe_code, calibrate, fit_key
from tasks.expectations.check import GateFailed
from tasks.measure import bootstrap_intervals, compare_calibrators, measure, measure_alternatives
from tasks.project import project
from tasks.records.store import (
    base_folder,
    read_base,
    read_json,
    read_members,
    runs_folder,
    write_decisions,
    write_logits,
)
from tasks.results.measurements import average_members
from tasks.results.values import (
    METRICS_SCHEMA,
    RIVALS_SCHEMA,
    SENSITIVITY_SCHEMA,
    CalibratorFit,
    ProjectedDecisions,
    SeedResults,
)
from tasks.settings.params import Params
from tasks.tables import TABLES
from tasks.tables.display import SIMULATED_NOTE
from tasks.validate import check_inputs, check_invariants
from tasks.write import build_scores, build_simplex_rows, list_lattices, sample_rows, summarize_optimality
from tests.report_data import EMPTY_RUNS, make_results, write_files

ROOT = Path(__file__).resolve().parents[2]
ROW_COUNTS = (100, 300, 5000)
CALIBRATORS = ("uncal", "ts")
KEY_COLUMNS = ["calibrator", "variant", "metric"]
RELIABILITY_METRICS = {metric.key for metric in metrics_for_views(ReliabilityView)}
PROBABILITY_METRICS = {metric.key for metric in metrics_for_views(ProbabilityView)}
SPREAD_METRICS = {"label_spread", "label_spread_null_p95"}
SURFACES = {"label_2d"}
VALUE_AND_INTERVAL = ("value", "low", "high")  # columns


def use_for_all_parts(decisions: ProtocolDecisions) -> ValidationRows:
    return ValidationRows(1, *[decisions] * 4)


def agrees_with(metrics: pl.DataFrame, others: pl.DataFrame) -> bool:
    """Check that each row of `others` has the value of the same calibrator, variant and metric in `metrics`."""
    joined = others.join(metrics, on=KEY_COLUMNS, how="left", suffix="_expected")
    return (joined["value"] == joined["value_expected"]).all(ignore_nulls=False)


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


def write_base(decisions: ProtocolDecisions) -> None:
    """Write the same decisions as validation and test rows of a base predictor."""
    facts = {
        "labels": ["a", "b", "c"],
        "split_by": "group",
        "drawn": [],
        "source": "simulated",
        "accuracy": {"test": accuracy(decisions.decision, decisions.label)},
    }
    write_logits("wands", {"validation": decisions, "test": decisions}, facts)


@pytest.fixture(autouse=True)
def _base(decisions, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_base(decisions)


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


def test_the_label_spread_uses_the_mean_probabilities_of_the_members_of_a_model_run(
    decisions, results, metrics, params
):
    write_members(decisions)
    run_of_two, _ = read_members("wands")
    tests = [member.test for member in run_of_two]
    mean_of_members = average_members(tests)
    mean_validation = use_for_all_parts(average_members([member.validation for member in run_of_two]))
    temperatures = [calibrate.fn(use_for_all_parts(member.validation), "ts", 1) for member in run_of_two]
    spread_fits = [[calibrate.fn(mean_validation, "uncal", 1)], temperatures]

    measured = measure.fn(results, decisions.label, params.metrics, tests, spread_fits)

    calibrated = [np.exp(fit.model(test.logits)) for fit, test in zip(temperatures, tests, strict=True)]
    probabilities = {"uncal": softmax(mean_of_members.logits, axis=1), "ts": np.mean(calibrated, axis=0)}
    for calibrator, of_calibrator in probabilities.items():
        decision = decide(of_calibrator)
        confidence = of_calibrator.max(axis=1)
        expected = LabelCells.from_decisions(confidence, decision, decision == decisions.label).spread()
        spread = measured.filter(metric="label_spread", calibrator=calibrator)["value"].item()
        assert spread == pytest.approx(expected, abs=1e-6)
    is_spread = pl.col("metric").is_in(SPREAD_METRICS)
    assert measured.filter(~is_spread).equals(metrics.filter(~is_spread))
    assert not measured.filter(is_spread).equals(metrics.filter(is_spread))


def test_a_model_run_of_one_member_has_the_metrics_of_that_member(decisions, results, metrics, fits, params):
    write_members(decisions)
    _, (member,) = read_members("wands")
    measured = measure.fn(results, decisions.label, params.metrics, [member.test], [[fit] for fit in fits])
    np.testing.assert_allclose(measured["value"], metrics["value"], rtol=0, atol=1e-9)


@pytest.fixture(scope="module")
def parts_without_selection(parts) -> ValidationRows:
    return parts._replace(projection_selection=parts.projection_selection.take(slice(0)))


@pytest.fixture(scope="module")
def other_base(decisions) -> ProtocolDecisions:
    """Decisions of another base predictor, on other rows."""
    logits = np.round(-decisions.logits[::-1], 1)
    return replace(decisions, logits=logits, decision=decide(logits), group=decisions.group[::-1])


@pytest.fixture(scope="module")
def measured(results, fits, parts_without_selection, decisions, other_base, params, tmp_path_factory) -> pl.DataFrame:
    """Measurements of all alternatives, of which one base predictor has saved logits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("alternatives"))
        write_base(decisions)
        saved = {"validation": other_base, "test": other_base}
        write_decisions(base_folder("wands") / "sensitivity/member_1.parquet", saved)
        return measure_alternatives.fn(results, fits, parts_without_selection, read_base("wands"), params, "cpu")


def test_only_the_metrics_that_an_alternative_setting_affects_are_measured(measured, params):
    without_saved_logits = {"unweighted", "multinomial", "member_2"}
    assert set(measured["option"]) == set(params.sensitivity.alternatives) - without_saved_logits
    refits = ["temperature_without_leak", "groups_kept_whole", "thirds", "no_clip", "member_1"]
    assert {option: set(rows["metric"]) for (option,), rows in measured.group_by("option")} == {
        **{option: {"accuracy", "nll_correct", "aupr_error", "aurc"} for option in refits},
        "nll_clip_1e-3": {"nll_correct"},
        "nll_clip_1e-12": {"nll_correct"},
        "ece_25_bins": {"ece", "top_ece"},
        "class_clip_1e-12": {*PROBABILITY_METRICS, *SPREAD_METRICS},
        "aupr_threshold": {"aupr_error"},
        "mrc_off_top_uniform": PROBABILITY_METRICS,
    }
    assert set(measured.filter(option="mrc_off_top_uniform")["variant"]) == {"mrc"}
    nll_of_refits = measured.filter(
        pl.col("option").is_in(refits), metric="nll_correct", variant="mrp", calibrator="ts"
    )
    assert nll_of_refits["value"].n_unique() == 5


@pytest.mark.parametrize("option", ["temperature_without_leak", "groups_kept_whole", "thirds", "member_1"])
@pytest.mark.parametrize("calibrator", CALIBRATORS)
def test_an_alternative_with_new_fits_has_the_metrics_of_these_fits(
    option, calibrator, measured, decisions, other_base, params
):
    base = other_base if option == "member_1" else decisions
    protocol = params.with_alternative(option).protocol
    rows = select_validation_rows(base, 1, protocol)
    model = calibrate.fn(rows, calibrator, 1).model
    batch = FitBatch.from_validation_rows(
        [model], rows, params.projection, "cpu", smallest_probability=params.protocol.clip
    )
    calibrated = CalibratedDecisions.from_calibrator(model, base).clip(params.protocol.clip)
    logits = {"confidence": calibrated.confidence_logit}
    for variant, (fitted,) in fit_variants(batch, ("label_intercept", "mrp")).items():
        logits[variant] = clip_logits(fitted(calibrated), params.protocol.clip)
    expected = {("confidence", "accuracy"): base.correct.mean()}
    for variant, metric, value in compute_compared_metrics(logits, base.correct, params.metrics):
        expected[variant, metric] = value
    rows_of_option = measured.filter(option=option, calibrator=calibrator).select("variant", "metric", "value").rows()
    computed = {(variant, metric): value for variant, metric, value in rows_of_option}
    assert computed == pytest.approx(expected, rel=1e-9)


def test_an_alternative_setting_changes_only_the_values_that_it_affects(measured, metrics):
    # isotonic steps are the only reliabilities of exactly 0 or 1
    assert agrees_with(metrics, measured.filter(pl.col("variant") != "label_isotonic", option="nll_clip_1e-12"))
    assert not agrees_with(metrics, measured.filter(option="ece_25_bins", variant="confidence", metric="ece"))


def test_without_alternative_settings_nothing_is_measured(results, fits, parts, params):
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
    assert np.abs(deltas.select(*VALUE_AND_INTERVAL).to_numpy()).max() < 1e-12
    assert rows.filter(quantity="versus_mrp").is_empty()
    for calibrator in CALIBRATORS:
        losses = pl.concat(metrics).filter(calibrator=calibrator, variant="confidence", metric="aurc")["value"]
        before = rows.filter(calibrator=calibrator, metric="aurc", quantity="before")["value"].item()
        assert losses.n_unique() == 2
        assert before == pytest.approx(losses.mean())


def test_opposite_changes_of_two_calibrators_average_to_zero(results, decisions, params):
    first = results.projections[0]
    projections = [first, swap_confidence_and_mrp(first, "ts"), replace(first, calibrator="matrix")]
    opposite = replace(results, projections=projections)
    metrics = [measure.fn(opposite, decisions.label, params.metrics)]

    rows = bootstrap_intervals.fn([opposite], metrics, decisions, params.calibrators, params.metrics)

    deltas = rows.filter(pl.col("metric").is_in(RELIABILITY_METRICS), calibrator="average", quantity="delta")
    assert np.abs(deltas.select(*VALUE_AND_INTERVAL).to_numpy()).max() < 1e-12
    # the confidence of "matrix" is the reliability of "ts"
    assert rows.filter(quantity="versus_mrp").select(*VALUE_AND_INTERVAL).rows() == [(0, 0, 0)]


@pytest.fixture(scope="module")
def extreme_params(params, decisions) -> Params:
    """Settings under which clipped probabilities and small cells determine the metrics."""
    changes = {
        "smallest_probability": 0.4,
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

    for metric, upper_bound in (("nll", -np.log(0.4)), ("nll_correct", -np.log(0.4)), ("label_spread", -np.inf)):
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


def test_scores_have_all_test_rows_and_variants_but_only_the_calibrators_of_the_tables(results, decisions):
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
    uncalibrated = np.array(rows["uncalibrated"].to_list())
    np.testing.assert_allclose(uncalibrated, softmax(decisions.logits[rows["row"]], axis=1), atol=1e-12)
    np.testing.assert_allclose(base.sum(axis=1), 1, rtol=0, atol=1e-12)
    np.testing.assert_allclose(mrc.sum(axis=1), 1, rtol=0, atol=1e-12)
    difference = np.abs(mrc[np.arange(2000), rows["decision"]] - rows["reliability"].to_numpy())
    is_exact = (rows["solved"] & rows["feasible"] & (rows["alpha"] < MAX_ALPHA)).to_numpy()
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
    first, second = with_fallbacks.describe_fallbacks(("bad", "fair", "good"))
    assert re.fullmatch("seed 1: fair with 3 .*shared curve", first)
    assert re.fullmatch("seed 1: good with 0 .*keeps its confidence", second)


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
        ("relmap/io/serialization.py", {"ts", "uncal"}),
        ("relmap/projection/pooled.py", set()),
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


@pytest.mark.parametrize(
    ("calibrator", "libraries"),
    [("uncal", ["numpy"]), ("diag", ["numpy", "scipy"]), ("spline", ["numpy", "scipy", "sklearn"])],
)
def test_the_code_of_a_calibrator_includes_the_versions_of_its_numerical_libraries(calibrator, libraries, monkeypatch):
    monkeypatch.chdir(ROOT)
    fingerprint, *versions = _describe_code(calibrator)
    distributions = {"sklearn": "scikit-learn"}
    expected = [f"{name}{version(distributions.get(name, name))}" for name in libraries]
    assert versions == expected
    assert len(fingerprint) == 64


def test_the_key_of_a_fit_starts_with_calibrator_and_seed_and_has_32_digits(decisions, monkeypatch):
    monkeypatch.chdir(ROOT)
    key = key_of_fit(decisions, seed=7)
    assert re.fullmatch("ts-7-[0-9a-f]{32}", key)


def test_with_row_counts_the_key_of_a_fit_depends_on_the_first_rows_too(decisions, monkeypatch):
    monkeypatch.chdir(ROOT)
    parts = use_for_all_parts(decisions)
    shorter = parts._replace(calibrator_fit=decisions.take(slice(2000)))
    relabelled = replace(decisions, label=(decisions.label + 1) % 3)
    other_labels = parts._replace(calibrator_fit=relabelled)
    assert key_of_fit(decisions, parts=shorter) == key_of_fit(decisions)  # the temperature has rows of its own
    keys = {key_of_fit(decisions, parts=each, row_counts=(100,)) for each in (parts, shorter, other_labels)}
    assert len(keys) == 3


@pytest.fixture
def unequal_parts(decisions) -> ValidationRows:
    """Validation rows whose parts have different rows and numbers of rows."""
    return ValidationRows(
        seed=5,
        temperature_fit=decisions.take(slice(0, 900)),
        calibrator_fit=decisions.take(slice(900, 1300)),
        projection_fit=decisions.take(slice(1300, 1550)),
        projection_selection=decisions.take(slice(1550, 1700)),
    )


FitCall = tuple[str, int, list[int], int, object, bool]


@pytest.fixture
def fit_calls(monkeypatch) -> list[FitCall]:
    """Record the calls of `fit_prefixes`, which then returns the name and the number of rows of each model."""
    calls: list[FitCall] = []

    def record(
        name: str,
        logits: np.ndarray,
        labels: np.ndarray,
        n_rows: list[int],
        *,
        seed: int,
        settings: object,
        published: bool,
    ):
        assert len(logits) == len(labels)
        calls.append((name, len(labels), list(n_rows), seed, settings, published))
        return [f"{name} on {n} of {len(labels)}" for n in n_rows]

    monkeypatch.setattr("tasks.calibrate.fit_prefixes", record)
    return calls


def test_a_calibrator_and_its_fits_on_fewer_rows_are_fitted_in_one_call(unequal_parts, fit_calls):
    fit = calibrate.fn(unequal_parts, "smart", 5, (100, 300), {"epochs": 4})
    assert fit_calls == [("smart", 400, [400, 100, 300], 5, {"epochs": 4}, True)]
    models = {100: "smart on 100 of 400", 300: "smart on 300 of 400"}
    assert fit == CalibratorFit("smart", 5, 400, "smart on 400 of 400", models)


def test_a_temperature_has_its_own_rows_but_its_fits_on_fewer_rows_use_the_calibrator_fit_rows(
    unequal_parts, fit_calls
):
    fit = calibrate.fn(unequal_parts, "ts", 5, (100, 300), {"steps": 4})
    assert fit_calls == [
        ("ts", 900, [900], 5, {"steps": 4}, True),
        ("ts", 400, [100, 300], 5, {"steps": 4}, True),
    ]
    assert fit == CalibratorFit("ts", 5, 900, "ts on 900 of 900", {100: "ts on 100 of 400", 300: "ts on 300 of 400"})


def test_fits_on_fewer_rows_use_the_first_rows_of_each_part_and_report_the_available_number(
    unequal_parts, decisions, params
):
    fits = [calibrate.fn(unequal_parts, calibrator, 5, (100, 300)) for calibrator in CALIBRATORS]
    both_parts = unequal_parts.interleaved_fit_rows
    fits_on_both_parts = [calibrate.fn(both_parts, "matrix", 5, (200, 600))]

    rows = compare_calibrators.fn(fits, fits_on_both_parts, (100, 300), unequal_parts, decisions, params, "cpu")

    assert set(rows["seed"]) == {5}
    counts = ["rows", "calibrator_fit_rows", "projection_fit_rows", "calibrator", "variant"]
    assert rows.select(counts).unique(maintain_order=True).rows() == [
        (100, 100, 100, "uncal", "confidence"),
        (100, 100, 100, "uncal", "mrp"),
        (100, 100, 100, "ts", "confidence"),
        (100, 100, 100, "ts", "mrp"),
        (300, 300, 250, "uncal", "confidence"),
        (300, 300, 250, "uncal", "mrp"),
        (300, 300, 250, "ts", "confidence"),
        (300, 300, 250, "ts", "mrp"),
        (100, 200, 0, "matrix", "confidence"),
        (300, 500, 0, "matrix", "confidence"),
    ]
    for calibrator, model in (
        ("ts", fits[1].models_by_row_count[300]),
        ("matrix", fits_on_both_parts[0].models_by_row_count[600]),
    ):
        log_probabilities = model(decisions.logits)
        reliability = confidence_logit(log_probabilities, decisions.decision)
        expected = {
            metric: value
            for _, metric, value in compute_compared_metrics(
                {"confidence": reliability}, decisions.correct, params.metrics
            )
        }
        measured = rows.filter(calibrator=calibrator, variant="confidence", rows=300).select("metric", "value").rows()
        assert dict(measured) == expected


def test_alternative_settings_are_measured_for_the_calibrators_of_the_tables_only(
    results, fits, parts_without_selection, other_base, measured, params
):
    matrix = calibrate.fn(parts_without_selection, "matrix", 1)
    first, second = results.projections
    with_rival = replace(results, projections=[first, replace(second, calibrator="matrix"), second])
    fits_with_rival = [fits[0], matrix, fits[1]]
    saved = {"validation": other_base, "test": other_base}
    write_decisions(base_folder("wands") / "sensitivity/member_1.parquet", saved)
    base = read_base("wands")
    with_rival_measured = measure_alternatives.fn(
        with_rival, fits_with_rival, parts_without_selection, base, params, "cpu"
    )
    assert with_rival_measured.equals(measured)


def test_an_alternative_number_of_knots_is_measured_for_the_reliability_only_and_changes_it(
    results, fits, parts_without_selection, metrics, params
):
    alternatives = {
        "three_knots": params.sensitivity.alternatives["thirds"].model_copy(
            update={"protocol": {}, "projection": {"knots": 3}}
        )
    }
    sensitivity = params.sensitivity.model_copy(update={"alternatives": alternatives})
    changed = params.model_copy(update={"sensitivity": sensitivity})
    measured = measure_alternatives.fn(results, fits, parts_without_selection, read_base("wands"), changed, "cpu")
    assert set(measured["variant"]) - {"confidence"} == {"mrp"}
    assert set(measured.filter(variant="mrp")["metric"]) == RELIABILITY_METRICS
    assert not agrees_with(metrics, measured.filter(variant="mrp", metric="nll_correct"))


def test_the_gate_of_inputs_uses_the_facts_of_the_base_predictor(decisions, monkeypatch):
    calls = []
    monkeypatch.setattr(validate, "check_pairs", lambda frame, **options: calls.append((frame, options)))
    pairs = pl.DataFrame({"pair": ["a"]})
    pairs.write_parquet(base_folder("wands") / "pairs.parquet")
    options = {"n_labels": 3, "groups_stay_together": True, "coordinates": {"dataset": "wands"}, "drawn": ()}
    options["repeats_pairs"] = False
    check_inputs.fn("wands")

    facts = read_json(base_folder("wands") / "base.json") | {"split_by": "row", "drawn": ["train", "test"]}
    write_logits("wands", {"validation": decisions, "test": decisions}, facts)
    check_inputs.fn("wands")

    assert all(frame.equals(pairs) for frame, _ in calls)
    assert [given for _, given in calls] == [
        options,
        options | {"groups_stay_together": False, "drawn": ("train", "test")},
    ]


def test_the_gate_of_results_receives_the_labels_the_bins_and_the_coordinates(results, fits, monkeypatch):
    calls = []
    monkeypatch.setattr(validate, "check_unchanged", lambda runs, **options: calls.append((runs, options)))
    earlier = replace(results, gate_records=["earlier"])
    checked = check_invariants.fn(earlier, fits, "wands", 7)
    ((runs, options),) = calls
    base = read_base("wands")
    assert checked.gate_records == ["earlier", None]
    assert (options.pop("labels") == base.test.label).all()
    assert options == {
        "seed0_accuracy": base.seed0_accuracy,
        "ece_bins": 7,
        "coordinates": {"dataset": "wands", "seed": 1},
    }
    assert [run.after.calibrator for run in runs] == ["uncal", "ts"]
    for run, fit in zip(runs, fits, strict=True):
        np.testing.assert_array_equal(run.log_probabilities, fit.model(base.test.logits))
        np.testing.assert_array_equal(run.decision, decide(base.test.logits))


@pytest.mark.parametrize(("n_rows", "max_rows"), [(4, 5), (5, 5), (6, 5)])
def test_rows_are_sampled_only_if_there_are_more_than_the_maximum(n_rows, max_rows):
    sample = sample_rows(n_rows, max_rows)
    assert len(sample) == min(n_rows, max_rows)
    if n_rows > max_rows:
        expected = np.random.default_rng(0).choice(n_rows, max_rows, replace=False)
        assert sample.tolist() == sorted(expected)
    else:
        assert sample.tolist() == list(range(n_rows))


def test_scores_of_sampled_rows_agree_with_the_decisions(results, decisions, monkeypatch):
    monkeypatch.setattr(write, "MAX_SCORED_ROWS", 40)
    second_seed = replace(results, seed=2)
    scores = build_scores([results, second_seed], decisions, CALIBRATORS)
    rows = sample_rows(len(decisions), 40)
    keys = scores.select("calibrator", "seed").unique(maintain_order=True).rows()
    assert keys == [("uncal", 1), ("ts", 1), ("uncal", 2), ("ts", 2)]
    for projection in results.projections:
        part = scores.filter(calibrator=projection.calibrator, seed=2)
        assert part["row"].to_list() == rows.tolist()
        assert part["group"].to_list() == decisions.group[rows].tolist()
        assert part["label"].to_list() == decisions.label[rows].tolist()
        assert part["decision"].to_list() == decisions.decision[rows].tolist()
        for variant, logit in projection.reliability_logits.items():
            np.testing.assert_array_equal(part[f"logit_{variant}"], logit[rows])
        np.testing.assert_allclose(part["confidence"], expit(projection.reliability_logits["confidence"][rows]))
        np.testing.assert_array_equal(part["reliability"], expit(projection.reliability_logits["mrp"][rows]))


def test_rows_of_the_simplex_come_from_the_first_seed(results, decisions, monkeypatch):
    monkeypatch.setattr(write, "MAX_SIMPLEX_ROWS", 40)
    rows = sample_rows(len(decisions), 40)
    frame = build_simplex_rows([results, replace(results, seed=2)], decisions, CALIBRATORS)
    projection = results.projections[1]
    assert set(frame["seed"]) == {1}
    columns = ["row", "label", "decision", "calibrator", "seed", "reliability"]
    assert frame.columns == [*columns, "alpha", "feasible", "solved", "uncalibrated", "base", "mrc"]
    for name in ("alpha", "feasible", "solved"):
        assert frame[name].to_list() == getattr(projection.simplex, name)[rows].tolist()
    np.testing.assert_array_equal(frame["base"].to_list(), np.exp(projection.log_probabilities[rows]))
    np.testing.assert_array_equal(frame["mrc"].to_list(), np.exp(projection.simplex.log_probabilities[rows]))


@pytest.mark.parametrize(("names", "expected"), [(("smart", "ts"), "smart"), (("diag", "ts"), "ts")])
def test_rows_of_the_simplex_are_those_of_the_calibrator_of_the_figures_or_the_last(
    names, expected, results, decisions, monkeypatch
):
    monkeypatch.setattr(write, "MAX_SIMPLEX_ROWS", 40)
    projections = [
        replace(projection, calibrator=name) for projection, name in zip(results.projections, names, strict=True)
    ]
    frame = build_simplex_rows([replace(results, projections=projections)], decisions, names)
    assert set(frame["calibrator"]) == {expected}
    expected_alpha = projections[names.index(expected)].simplex.alpha[sample_rows(len(decisions), 40)]
    assert frame["alpha"].to_list() == expected_alpha.tolist()


def test_the_largest_distance_from_the_optimum_is_that_over_calibrators_and_seeds(results):
    first, second = results.projections
    distances = [(0.25, 1e-9), (0.5, 3e-9), (0.75, 2e-9), (0.125, 1e-10)]
    projections = [
        replace(projection, objective_excess=excess, kkt_residual=residual)
        for projection, (excess, residual) in zip((first, second, first, second), distances, strict=True)
    ]
    seeds = [replace(results, projections=projections[:2]), replace(results, seed=2, projections=projections[2:])]
    values = {"mrp": [0.5, 0.25, 0.75, 0.5], "mrp_exact": [0.25, 1.0, 0.5, 0.5], "shared": [9.0] * 4}
    rows = []
    for variant, numbers in values.items():
        keys = [("uncal", 1), ("ts", 1), ("uncal", 2), ("ts", 2)]
        rows += [(*key, variant, "aurc", value) for key, value in zip(keys, numbers, strict=True)]
    metrics = pl.DataFrame(rows, schema=METRICS_SCHEMA, orient="row")
    assert summarize_optimality(seeds, metrics) == {
        "adam_objective_above_it": 0.75,
        "kkt_residual": 3e-9,
        "largest_difference": {"aurc": 0.75},
    }


@pytest.fixture
def written_run(results, metrics, decisions, params, tmp_path, monkeypatch) -> Path:
    """Write the results of a run of one seed, in which one label has a fallback, and return the folder."""
    monkeypatch.setattr(write, "MAX_SCORED_ROWS", 40)
    with_fallback = replace(
        results, gate_records=[{"gate": "unchanged"}], rows_per_label=(900, 3, 70), fallbacks=("none", "shared", "none")
    )
    frames = {
        "metrics": [metrics.head(100), metrics.slice(100)],
        "rivals": [pl.DataFrame(schema=RIVALS_SCHEMA)],
        "sensitivity": [pl.DataFrame(schema=SENSITIVITY_SCHEMA)],
        "intervals": [pl.DataFrame({"metric": ["aurc"], "value": [0.5]})],
    }
    folder = tmp_path / "run"
    gathered = {"gates": [{"gate": "pairs"}], "projected": [with_fallback], **frames}
    returned = write.write_runs.fn(read_base("wands"), gathered, params, {"device": "cpu"}, folder)
    assert returned.equals(pl.concat(frames["metrics"]))
    return folder


def test_the_files_of_a_run_name_its_data_set_and_have_all_rows(written_run, metrics, results):
    facts = {"dataset": "wands", "source": "simulated"}
    row_counts = {"metrics": len(metrics), "rivals": 0, "sensitivity": 0, "intervals": 1, "simplex": 2000}
    for name, n_rows in row_counts.items():
        frame = pl.read_parquet(written_run / f"{name}.parquet")
        assert (frame.columns[:2], len(frame)) == (["dataset", "source"], n_rows)
        assert frame.select("dataset", "source").unique().rows() == ([("wands", "simulated")] if n_rows else [])
    scores = pl.read_parquet(written_run / "scores.parquet")
    assert (len(scores), set(scores["source"]), "dataset" in scores.columns) == (80, {"simulated"}, False)
    assert read_json(written_run / "gates.json") == facts | {"gates": [{"gate": "pairs"}, {"gate": "unchanged"}]}
    curves = read_json(written_run / "curves.json")
    assert (curves["dataset"], curves["source"]) == ("wands", "simulated")
    assert curves["lattices"]
    run = read_json(written_run / "run.json")
    assert (run["test_rows"], run["scored_rows"], run["device"]) == (3000, 40, "cpu")
    (fallback,) = run["fallbacks"]
    assert re.fullmatch("seed 1: b with 3 .*shared curve", fallback)
    assert {"dataset", "source", "optimum", "versions"} < set(run)
    largest = max(rows.kkt_residual for rows in results.projections)
    assert run["optimum"]["kkt_residual"] == largest
    assert run["versions"]["numpy"] == version("numpy")


def test_confidence_and_mrp_are_shown_side_by_side_with_their_change(monkeypatch, tmp_path):
    artifacts = {}
    for kind in ("table", "link"):
        monkeypatch.setattr(
            write,
            f"create_{kind}_artifact",
            lambda content, *, key, **options: artifacts.update({key: (content, options)}),
        )
    rows = [
        ("ts", 1, "confidence", "aurc", 0.25),
        ("ts", 2, "confidence", "aurc", 0.75),
        ("ts", 1, "mrp", "aurc", 0.125),
        ("ts", 2, "mrp", "aurc", 0.1250049),
        ("ts", 1, "mrp_exact", "aurc", 9.0),
        ("ts", 1, "mrp", "ece", 9.0),
    ]
    base = read_base("wands")._replace(name="my_shop")
    folder = tmp_path / "files"
    write.show_metrics.fn(base, pl.DataFrame(rows, schema=METRICS_SCHEMA, orient="row"), folder)
    shown, options = artifacts.pop("metrics-my-shop")
    assert shown == [{"calibrator": "ts", "metric": "aurc", "confidence": 0.5, "mrp": 0.125, "change": -0.375}]
    assert options.keys() == {"description"}
    assert re.fullmatch(rf"my_shop \(simulated\): .* {re.escape(str(folder))}/", options["description"])
    assert artifacts == {
        "files-my-shop": (
            folder.as_uri(),
            {"link_text": f"{folder}/", "description": "my_shop (simulated): files"},
        ),
    }


def test_the_comparison_uses_the_calibrators_of_the_tables_and_writes_its_numbers_on_request(params):
    shop = make_results("shop", calibrators=("uncal", "ts", "matrix"), seeds=(1, 2, 3))
    write_files(shop)
    base = read_base("wands")._replace(name="shop")
    path = Path("numbers.json")
    sentences = write.compare.fn(base, params, runs_folder("shop"), None)
    assert not path.exists()
    assert write.compare.fn(base, params, runs_folder("shop"), path) == sentences
    assert re.match(r"Means over 2 calibrators [^.]*\b3 [^.]*seeds\.", sentences[-1])
    accuracies = shop.metrics.filter(metric="accuracy", variant="confidence", calibrator="ts")["value"]
    assert read_json(path)["accuracy"] == pytest.approx(accuracies.mean())


def test_the_results_of_all_finished_data_sets_are_loaded_in_the_order_of_the_params(params):
    shops = [make_results("shop"), make_results("market", rows=300), make_results("fair", rows=240)]
    for shop in shops:
        write_files(shop)
    entries = {name: SimpleNamespace(calibrators=()) for name in ("market", "wands", "shop", "fair")}
    entries["shop"] = SimpleNamespace(calibrators=("ts",))
    changed = params.model_copy(update={"datasets": entries})

    runs = report.load_runs.fn(changed, ["wands"])

    ordered = [shops[1], shops[0], shops[2]]
    for name in ("metrics", "intervals", "rivals"):
        assert getattr(runs, name).equals(pl.concat([getattr(shop, name) for shop in ordered]))
    assert [fact["dataset"] for fact in runs.facts] == ["market", "shop", "fair"]
    assert (runs.missing, runs.calibrators) == (("wands",), CALIBRATORS)
    assert runs.calibrators_by_dataset == {"shop": ("ts",)}


@pytest.mark.parametrize(("n_rows", "remark"), [(2, ""), (3, r" .*\b2 of 3 rows\.")])
def test_a_table_is_written_in_three_formats_and_shown_up_to_a_maximum_of_rows(n_rows, remark, monkeypatch, tmp_path):
    monkeypatch.setattr(report, "MAX_ARTIFACT_ROWS", 2)
    shown = []
    monkeypatch.setattr(report, "create_table_artifact", lambda rows, **options: shown.append((rows, options)))
    facts = [fact | {"dataset": f"shop_{index}"} for index, fact in enumerate([make_results().facts] * n_rows)]
    runs = replace(EMPTY_RUNS, facts=tuple(facts))

    frame = report.write_table.fn("datasets", runs, tmp_path)

    assert frame["dataset"].to_list() == [f"shop_{index}" for index in range(n_rows)]
    assert pl.read_csv(tmp_path / "datasets.csv").shape == frame.shape
    markdown = (tmp_path / "datasets.md").read_text()
    latex = (tmp_path / "datasets.tex").read_text()
    assert all(f"shop_{index} (simulated)" in markdown for index in range(n_rows))
    assert all(rf"shop\_{index} (simulated)" in latex for index in range(n_rows))
    ((rows, options),) = shown
    assert [row["dataset"] for row in rows] == ["shop_0 (simulated)", "shop_1 (simulated)"]
    assert rows[0]["labels"] == "no/maybe/yes"
    assert options["key"] == "datasets"
    assert options["description"].startswith(TABLES["datasets"].caption)
    assert re.search(rf"{re.escape(SIMULATED_NOTE)}{remark}$", options["description"])


def test_results_of_a_seed_have_the_rows_of_the_projection_and_the_fallbacks_of_labels(
    unequal_parts, decisions, params
):
    fits = [calibrate.fn(unequal_parts, calibrator, 5) for calibrator in CALIBRATORS]
    counts = np.bincount(unequal_parts.projection_fit.decision, minlength=3)
    rarest = int(counts.argmin())
    projection = params.projection.model_copy(update={"minimum_rows": int(counts.min()) + 1})
    changed = params.model_copy(update={"projection": projection})

    seed_results = project.fn(fits, unequal_parts, decisions, changed, "cpu")

    assert seed_results.seed == 5
    assert seed_results.rows_per_label == tuple(counts.tolist())
    assert seed_results.fallbacks == tuple("shared" if label == rarest else "none" for label in range(3))
    assert seed_results.gate_records == []
    assert [rows.calibrator for rows in seed_results.projections] == ["uncal", "ts"]
    for rows, fit in zip(seed_results.projections, fits, strict=True):
        np.testing.assert_array_equal(rows.log_probabilities, fit.model(decisions.logits))
        np.testing.assert_array_equal(rows.decision, decisions.decision)
        assert not np.shares_memory(rows.decision, decisions.decision)
        assert rows.violations == ()


def test_each_calibrator_of_a_seed_has_its_own_distance_from_the_optimum(results, fits, decisions, params):
    batch = FitBatch.from_validation_rows(
        [fit.model for fit in fits], use_for_all_parts(decisions), params.projection, "cpu"
    )
    gap = measure_optimality_gap(batch)
    assert [rows.objective_excess for rows in results.projections] == pytest.approx(gap.excess.tolist())
    assert gap.excess[0] != gap.excess[1]
    assert [rows.kkt_residual for rows in results.projections] == pytest.approx(gap.kkt_residual.tolist())


def test_surfaces_are_fitted_for_the_calibrators_of_the_tables_only(fits, parts, decisions, params):
    only_first = params.model_copy(update={"calibrators": ("uncal",)})
    first, second = project.fn(fits, parts, decisions, only_first, "cpu").projections
    assert set(first.reliability_logits) == set(PIPELINE_VARIANTS)
    assert set(first.reliability_logits) - set(second.reliability_logits) == SURFACES


def test_unsolved_rows_have_the_power_from_the_settings(fits, parts, decisions, params):
    other_simplex = params.simplex.model_copy(update={"off_top_alpha": 0.25})
    changed = params.model_copy(update={"simplex": other_simplex})
    simplex = project.fn(fits, parts, decisions, changed, "cpu").projections[1].simplex
    assert set(simplex.alpha[~simplex.solved]) <= {0.25}


@pytest.fixture(scope="module")
def saturated(decisions) -> ProtocolDecisions:
    """Decisions of an overconfident base predictor, most of whose confidences are beyond the clip."""
    return replace(decisions, logits=100 * decisions.logits)


@pytest.mark.parametrize(("clip", "largest_logit"), [(1e-6, np.log(1e6 - 1)), (1e-3, np.log(999)), (0.0, np.inf)])
def test_everything_is_fitted_and_ranked_with_clipped_probabilities(saturated, params, clip, largest_logit):
    protocol = params.protocol.model_copy(update={"clip": clip})
    clipped_params = params.model_copy(update={"calibrators": ("uncal",), "protocol": protocol})
    rows = use_for_all_parts(saturated)
    fit = calibrate.fn(rows, "uncal", 1)

    (projection,) = project.fn([fit], rows, saturated, clipped_params, "cpu").projections

    confidence = projection.reliability_logits["confidence"]
    unclipped = confidence_logit(projection.log_probabilities, saturated.decision)
    assert unclipped.max() > 100  # the probabilities of the calibrator are stored without a clip
    np.testing.assert_allclose(confidence, np.clip(unclipped, -largest_logit, largest_logit), rtol=1e-12)
    for logits in projection.reliability_logits.values():
        assert np.abs(logits).max() <= largest_logit * (1 + 1e-12)
    batch = FitBatch.from_validation_rows([fit.model], rows, params.projection, "cpu", smallest_probability=clip)
    clipped = CalibratedDecisions.from_calibrator(fit.model, saturated).clip(clip)
    (shifts,) = fit_variants(batch, ("label_intercept",))["label_intercept"]
    np.testing.assert_array_equal(projection.reliability_logits["label_intercept"], clip_logits(shifts(clipped), clip))


def test_the_alternative_without_a_clip_shows_what_the_clip_is_worth(saturated, params):
    write_base(saturated)
    uncalibrated = params.model_copy(
        update={
            "calibrators": ("uncal",),
            "sensitivity": params.sensitivity.model_copy(update={"calibrators": ("uncal",)}),
        }
    )
    rows = use_for_all_parts(saturated)
    fits = [calibrate.fn(rows, "uncal", 1)]
    results = project.fn(fits, rows, saturated, uncalibrated, "cpu")
    metrics = measure.fn(results, saturated.label, uncalibrated.metrics)

    alternatives = measure_alternatives.fn(results, fits, rows, read_base("wands"), uncalibrated, "cpu")

    key = {"variant": "label_intercept", "metric": "nll_correct"}
    without_clip = alternatives.filter(option="no_clip", **key)["value"].item()
    assert without_clip > 2 * metrics.filter(**key)["value"].item()
