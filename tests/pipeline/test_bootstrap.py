"""Intervals of the pipeline, compared with an independent bootstrap that resamples clusters one by one."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, log_softmax, logit

from relmap.decisions import ProtocolDecisions
from tasks.results import bootstrap as pipeline_bootstrap
from tasks.results.bootstrap import IntervalRow, bootstrap_rows
from tasks.results.measurements import compute_metrics
from tasks.results.values import ProjectedDecisions, SeedResults
from tests import maps, naive
from tests.naive import Sample

N_ROWS = 90
N_RESAMPLES = 30
SEEDS = (1, 2)
RANKING_METRICS = (
    "nll_correct",
    "aupr_error",
    "aurc",
    "augrc",
    "selacc_10",
    "selacc_50",
    "selacc_70",
    "selacc_90",
)
PARAMS = maps.METRIC_SETTINGS.model_copy(update={"resamples": N_RESAMPLES})
VariantMetrics = dict[tuple[str, str], float]  # by variant and metric


def make_projection(calibrator: str, seed: int, test: ProtocolDecisions) -> ProjectedDecisions:
    """Make test rows of one calibrator; values differ between calibrators, seeds and variants."""
    generator = np.random.default_rng([len(calibrator), seed])
    temperature = 1 + 0.2 * seed + 0.1 * len(calibrator)
    log_probabilities = log_softmax(test.logits / temperature, axis=1)
    confidence = logit(np.exp(log_probabilities[np.arange(N_ROWS), test.decision]))
    reliability = np.round(0.7 * confidence + generator.normal(size=N_ROWS), 1)
    return ProjectedDecisions(
        calibrator=calibrator,
        decision=test.decision,
        log_probabilities=log_probabilities,
        reliability_logits={"confidence": confidence, "mrp": reliability},
        lattices={},
        simplex=SimpleNamespace(
            log_probabilities=log_probabilities[:, ::-1], feasible=test.correct, solved=test.correct
        ),
        objective_excess=0,
        kkt_residual=0,
        violations=(),
    )


def naive_metrics(projection: ProjectedDecisions, test: ProtocolDecisions, rows: np.ndarray) -> VariantMetrics:
    """Compute metrics of some rows by their definitions."""
    correct = test.correct[rows]
    values = {("confidence", "accuracy"): correct.mean()}
    for variant, score in projection.reliability_logits.items():
        metrics = naive.metrics(score[rows], expit(score[rows]), correct)
        for metric in RANKING_METRICS:
            values[variant, metric] = metrics[metric]
    for variant, log_probabilities in (
        ("confidence", projection.log_probabilities),
        ("mrc", projection.simplex.log_probabilities),
    ):
        confidence = np.exp(log_probabilities[np.arange(N_ROWS), projection.decision])[rows]
        values[variant, "ece"] = naive.calibration_error(confidence, correct)
        values[variant, "nll"] = -log_probabilities[rows, test.label[rows]].mean()
    return values


@dataclass(frozen=True)
class NaiveBootstrap:
    """Metrics of all rows, then of each resample, by calibrator and seed."""

    metrics: dict[str, list[list[VariantMetrics]]]
    averaged: tuple[str, ...]

    def estimate(self, calibrator: str, variant: str, metric: str) -> np.ndarray:
        """Return a mean over seeds, and over calibrators for "average": the value, then the replicates."""
        calibrators = self.averaged if calibrator == "average" else (calibrator,)
        estimates = []
        for name in calibrators:
            for resamples in self.metrics[name]:
                estimates.append([values[variant, metric] for values in resamples])
        return np.mean(estimates, axis=0)

    def has(self, variant: str, metric: str) -> bool:
        return (variant, metric) in self.metrics["ts"][0][0]

    def quantity(self, row: IntervalRow) -> np.ndarray | None:
        """Return the quantity of a row of intervals; None if its metric has no independent definition here."""
        calibrator = row["calibrator"]
        metric = row["metric"]
        if row["quantity"] == "versus_mrp":
            return self.estimate("matrix", "confidence", metric) - self.estimate("ts", "mrp", metric)
        if not self.has("confidence", metric):
            return None
        before = self.estimate(calibrator, "confidence", metric)
        if row["quantity"] == "before":
            return before
        for variant in ("mrp", "mrc"):
            if self.has(variant, metric):
                after = self.estimate(calibrator, variant, metric)
                return after - before if row["quantity"] == "delta" else after
        return None


def mean_values(results: list[SeedResults], test: ProtocolDecisions) -> dict[tuple[str, str, str], float]:
    """Average the metrics of all rows over seeds, by calibrator, variant and metric."""
    values: dict[tuple[str, str, str], list[float]] = {}
    for seed_results in results:
        for projection in seed_results.projections:
            for variant, metric, value in compute_metrics(projection, test.label, PARAMS):
                values.setdefault((projection.calibrator, variant, metric), []).append(value)
    return {key: np.mean(of_seeds) for key, of_seeds in values.items()}


def make_test_rows(*, grouped: bool) -> ProtocolDecisions:
    rows = maps.rows_of_frame(maps.make_predictions(N_ROWS, shift=2.0, seed=6))
    group_number = np.random.default_rng(3).integers(0, 25, N_ROWS) if grouped else np.arange(N_ROWS)
    group = np.array([f"q{number:03}" for number in group_number])
    return ProtocolDecisions(decision=rows.decision, logits=rows.logits, label=rows.label, group=group)


@pytest.mark.parametrize(("calibrators", "grouped"), [(("ts", "uncal"), True), (("ts", "matrix"), False)], ids=str)
def test_intervals_agree_with_a_naive_bootstrap(calibrators, grouped):
    test = make_test_rows(grouped=grouped)
    ran = list(dict.fromkeys((*calibrators, "matrix")))  # matrix scaling is compared even if it is a rival only
    results = []
    for seed in SEEDS:
        projections = [make_projection(calibrator, seed, test) for calibrator in ran]
        results.append(SeedResults(seed, projections, rows_per_label=(), fallbacks=(), gate_records=[]))
    sample = Sample.from_groups(np.ones(N_ROWS, dtype=int), test.group)
    resamples = [sample.rows, *sample.resamples(N_RESAMPLES)]
    metrics: dict[str, list[list[VariantMetrics]]] = {}
    for index, calibrator in enumerate(ran):
        metrics[calibrator] = []
        for seed_results in results:
            projected = seed_results.projections[index]
            metrics[calibrator].append([naive_metrics(projected, test, rows) for rows in resamples])
    bootstrap = NaiveBootstrap(metrics, averaged=calibrators)

    table = bootstrap_rows(results, test, mean_values(results, test), calibrators, PARAMS)

    compared = []
    for row in table:
        expected = bootstrap.quantity(row)
        if expected is not None:
            assert_interval(row, expected[0], expected[1:])
            assert row["groups"] == len(set(test.group.tolist()))
            compared.append(row)
    assert {row["quantity"] for row in compared} == {"before", "after", "delta", "versus_mrp"}
    assert {row["calibrator"] for row in compared} == {*calibrators, "matrix", "average"}


@pytest.mark.parametrize("calibrators", [("uncal",), ("uncal", "matrix")])
def test_matrix_scaling_is_compared_only_with_a_temperature_in_the_tables(calibrators):
    test = make_test_rows(grouped=False)
    projections = [make_projection(calibrator, 1, test) for calibrator in ("uncal", "ts", "matrix")]
    results = [SeedResults(1, projections, rows_per_label=(), fallbacks=(), gate_records=[])]
    table = bootstrap_rows(results, test, mean_values(results, test), calibrators, PARAMS)
    assert "versus_mrp" not in {row["quantity"] for row in table}


def test_a_temperature_alone_is_compared_with_nothing():
    test = make_test_rows(grouped=False)
    results = [SeedResults(1, [make_projection("ts", 1, test)], rows_per_label=(), fallbacks=(), gate_records=[])]
    table = bootstrap_rows(results, test, mean_values(results, test), ("ts",), PARAMS)
    assert {row["quantity"] for row in table} == {"before", "after", "delta"}
    for row in table:
        assert np.isnan(row["p"]) == (row["quantity"] != "delta"), row


@pytest.mark.parametrize(("n_groups", "has_intervals"), [(9, False), (10, True)])
def test_ten_groups_are_enough_for_intervals(n_groups, has_intervals):
    test = make_test_rows(grouped=False)
    test = replace(test, group=np.array([f"q{row % n_groups}" for row in range(N_ROWS)]))
    results = [SeedResults(1, [make_projection("ts", 1, test)], rows_per_label=(), fallbacks=(), gate_records=[])]
    table = bootstrap_rows(results, test, mean_values(results, test), ("ts",), PARAMS)
    (row,) = [row for row in table if (row["calibrator"], row["metric"], row["quantity"]) == ("ts", "aurc", "delta")]
    assert np.isfinite(row["low"]) == has_intervals
    assert row["groups"] == n_groups


def assert_interval(row: IntervalRow, value: float, replicates: np.ndarray) -> None:
    """Compare a row of intervals with a value and its replicates."""
    low, high = naive.percentile_interval(replicates)
    standard_error = np.nan if np.isnan(low) else np.nanstd(replicates, ddof=1)
    actual = [row["value"], row["standard_error"], row["low"], row["high"]]
    np.testing.assert_allclose(actual, [value, standard_error, low, high], atol=1e-9, err_msg=str(row))
    if row["quantity"] in ("delta", "versus_mrp"):
        # a replicate without a change may be rounded to either side of zero
        n_zero = np.count_nonzero(np.abs(replicates) < 1e-12)
        tolerance = 1e-9 + 2 * n_zero / (N_RESAMPLES + 1)
        assert row["p"] == pytest.approx(naive.p_value(replicates), abs=tolerance, nan_ok=True)


@pytest.mark.parametrize(
    ("calibrators", "expected"),
    [
        (("ts", "uncal"), [("ts", True), ("uncal", True), ("matrix", False)]),
        (("ts", "matrix"), [("ts", True), ("matrix", True)]),
        (("uncal",), [("uncal", True)]),
    ],
)
def test_each_calibrator_is_resampled_once_and_a_rival_for_its_log_loss_only(calibrators, expected, monkeypatch):
    test = make_test_rows(grouped=False)
    projections = [make_projection(calibrator, 1, test) for calibrator in ("uncal", "ts", "matrix")]
    results = [SeedResults(1, projections, rows_per_label=(), fallbacks=(), gate_records=[])]
    draw_replicates = pipeline_bootstrap._draw_replicates
    drawn = []

    def record(*arguments: Any) -> Any:
        drawn.append((arguments[2], arguments[-1] == pipeline_bootstrap.RESAMPLED_METRICS))
        return draw_replicates(*arguments)

    monkeypatch.setattr(pipeline_bootstrap, "_draw_replicates", record)
    bootstrap_rows(results, test, mean_values(results, test), calibrators, PARAMS)
    assert drawn == expected
