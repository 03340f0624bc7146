"""Intervals of the pipeline by their definition: means over seeds and calibrators of clusters drawn one by one."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit, log_softmax, logit

from relmap.decisions import FixedDecisions
from tasks.records.measured import bounded, measured
from tasks.records.results import Projected, ProjectedDecisions
from tests import maps, naive
from tests.naive import Sample

N, RESAMPLES = 90, 30
SEEDS = (1, 2)
RANKED = ("nll_correct", "aupr_error", "aurc", "augrc", "selacc_10", "selacc_50", "selacc_70", "selacc_90")
PARAMS = maps.RULES.model_copy(update={"resamples": RESAMPLES})


def projected_rows(calibrator: str, seed: int, test: FixedDecisions) -> ProjectedDecisions:
    """Decisions under a calibrator; every calibrator, seed and variant differs from the others."""
    generator = np.random.default_rng([len(calibrator), seed])
    logs = log_softmax(test.logits / (1 + 0.2 * seed + 0.1 * len(calibrator)), axis=1)
    confidence = logit(np.exp(logs[np.arange(N), test.decision]))
    simplex = SimpleNamespace(log_probabilities=logs[:, ::-1], feasible=test.correct, solved=test.correct)
    scores = {"confidence": confidence, "mrp": np.round(0.7 * confidence + generator.normal(size=N), 1)}
    return ProjectedDecisions(calibrator, test.decision, logs, scores, {}, simplex, 0, 0, ())


def by_hand(rows: ProjectedDecisions, test: FixedDecisions, at: np.ndarray) -> dict[tuple[str, str], float]:
    """Metrics of the rows `at` by variant and name."""
    correct = test.correct[at]
    values = {("confidence", "accuracy"): correct.mean()}
    for variant, score in rows.reliability_logits.items():
        measured_values = naive.metrics(score[at], expit(score[at]), correct)
        values |= {(variant, name): measured_values[name] for name in RANKED}
    for variant, logs in (("confidence", rows.log_probabilities), ("mrc", rows.simplex.log_probabilities)):
        confidence = np.exp(logs[np.arange(N), rows.decision])[at]
        values[variant, "ece"] = naive.calibration_error(confidence, correct)
        values[variant, "nll"] = -logs[at, test.labels[at]].mean()
    return values


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("calibrators", [("ts", "uncal"), ("ts", "matrix")], ids=str)
def test_intervals_are_those_of_repeated_clusters(calibrators, grouped):
    generator = np.random.default_rng(3)
    frame = maps.checked(maps.predictions(N, shift=2.0, seed=6))
    number = generator.integers(0, 25, N) if grouped else np.arange(N)
    group = np.array([f"q{each:03}" for each in number])
    test = FixedDecisions(frame.logits, frame.label, frame.decision, group)
    ran = dict.fromkeys((*calibrators, "matrix"))  # matrix scaling is compared even where it is no calibrator
    seeds = [Projected(seed, [projected_rows(name, seed, test) for name in ran], (), (), []) for seed in SEEDS]
    sample = Sample.of(np.ones(N, dtype=int), group)
    replicates = [sample.rows, *sample.resamples(RESAMPLES)]
    expected = {
        name: [[by_hand(seed.rows[place], test, at) for at in replicates] for seed in seeds]
        for place, name in enumerate(ran)
    }

    def of(name: str, variant: str, metric: str) -> np.ndarray:
        """The value and the replicates of a mean over seeds, and over calibrators where it is the average."""
        names = calibrators if name == "average" else (name,)
        runs = [[each[variant, metric] for each in seed] for one in names for seed in expected[one]]
        return np.mean(runs, axis=0)

    values = {}
    for place, name in enumerate(ran):
        measures = [dict_of(measured(seed.rows[place], test.labels, PARAMS)) for seed in seeds]
        values |= {(name, *key): np.mean([each[key] for each in measures]) for key in measures[0]}
    table = bounded(seeds, test, values, calibrators, PARAMS)
    known = {(metric, variant) for variant, metric in expected["ts"][0][0]}
    compared = set()
    for row in table:
        name, metric, quantity = row["calibrator"], row["metric"], row["quantity"]
        after = next((variant for variant in ("mrp", "mrc") if (metric, variant) in known), None)
        if quantity == "beside_mrp":
            change = of("matrix", "confidence", "nll_correct") - of("ts", "mrp", "nll_correct")
        elif (metric, "confidence") not in known or (quantity != "before" and after is None):
            continue
        else:
            before = of(name, "confidence", metric)
            change = before if quantity == "before" else of(name, after, metric)
            change = change - before if quantity == "delta" else change
        low, high = naive.percentile_interval(change[1:])
        wanted = [change[0], np.nanstd(change[1:], ddof=1), low, high]
        if np.isnan(low):
            wanted[1] = np.nan
        shown = [row[key] for key in ("value", "standard_error", "low", "high")]
        np.testing.assert_allclose(shown, wanted, atol=1e-9, err_msg=f"{name} {metric} {quantity}")
        if quantity in ("delta", "beside_mrp"):
            # a replicate without a change may be rounded to either side of zero
            n_zero = np.count_nonzero(np.abs(change[1:]) < 1e-12)
            tolerance = 1e-9 + 2 * n_zero / (RESAMPLES + 1)
            assert row["p"] == pytest.approx(naive.p_value(change[1:]), abs=tolerance, nan_ok=True)
        assert row["groups"] == len(set(group.tolist()))
        compared.add((name, quantity))
    assert {quantity for _, quantity in compared} == {"before", "after", "delta", "beside_mrp"}
    assert {name for name, _ in compared} == {*calibrators, "matrix", "average"}


def dict_of(measurements) -> dict[tuple[str, str], float]:
    return {(variant, metric): value for variant, metric, value in measurements}
