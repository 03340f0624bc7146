"""Evaluation of a map compared with independent computations; agreement of labels; rows to label next."""

import copy
import dataclasses
import json
import re
from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit, ndtri
from sklearn.metrics import cohen_kappa_score, precision_score, recall_score

from relmap.calibrators.identity import Identity
from relmap.decisions import FixedDecisions
from relmap.evaluation.agreement import PopulationSummary, measure_agreement
from relmap.evaluation.evaluate import EVALUATED_METRICS, evaluate_map
from relmap.evaluation.sample import EvaluationSample
from relmap.evaluation.sentences import (
    compare_log_loss,
    describe_comparison,
    describe_limits,
    describe_pooled_labels,
)
from relmap.maps.document import MapDocument
from relmap.maps.score import FittedMap, ScoredDecisions
from relmap.metrics.comparison import BETTER, NO_DIFFERENCE, WORSE, describe_metrics
from relmap.metrics.intervals import percentile_interval, two_sided_p
from relmap.metrics.probability import ece
from relmap.metrics.registry import compute_reliability_metrics
from relmap.metrics.resampling import draw_resamples
from relmap.metrics.spread import LabelCells
from relmap.routing.label import UNIFORM_SHARE, sample_systematically, sampling_probabilities
from relmap.routing.thresholds import sample_equally_likely_rows
from tasks.results.bootstrap import bootstrap_rows
from tasks.results.comparison import describe_comparison as describe_comparison_of_dataset
from tasks.results.comparison import summarize_datasets
from tasks.results.measurements import compute_metrics
from tasks.results.values import ProjectedDecisions, SeedResults
from tasks.tables.overview import overview_table
from tests import maps, report_data

MAP = maps.make_map("confidence", confidence_only=True)
MRP = maps.make_map("mrp", confidence_only=True)


def fit_helpful_map(shift: float = 1.5, n: int = 6000) -> MapDocument:
    """Fit a map with a line for each label, where the logit of label 1 is off by `shift`."""
    return maps.fit_map(
        maps.rows_of_frame(maps.make_predictions(n, shift=shift, seed=1)), "label_platt", "uncal"
    ).document


def evaluate_scores(document: MapDocument, rows: FixedDecisions, scored: ScoredDecisions) -> dict:
    return evaluate_map(document, EvaluationSample.from_rows(rows, scored))


def measure(rows: FixedDecisions, scored: ScoredDecisions, population: PopulationSummary | None = None) -> dict:
    return measure_agreement(MAP, EvaluationSample.from_rows(rows, scored, maps.METRIC_SETTINGS), population)


def evaluate_rows(document: MapDocument, rows: FixedDecisions) -> dict:
    return evaluate_scores(document, rows, FittedMap.from_document(document)(rows))


def make_rows(decision, correct, confidence, reliability_logit, group=None) -> tuple[FixedDecisions, ScoredDecisions]:
    """Return rows with the given correctness, and their scores."""
    decision = np.asarray(decision)
    correct = np.asarray(correct, dtype=bool)
    label = np.where(correct, decision, (decision + 1) % 3)
    rows = FixedDecisions(decision=decision, confidence=np.asarray(confidence, dtype=float), label=label, group=group)
    return rows, ScoredDecisions(rows.confidence, np.asarray(reliability_logit, dtype=float))


@pytest.fixture(scope="module")
def helpful_map() -> MapDocument:
    return fit_helpful_map()


@pytest.fixture(scope="module")
def grouped_rows() -> FixedDecisions:
    return maps.rows_of_frame(maps.make_predictions(3000), "group")


@pytest.fixture(scope="module")
def helpful_evaluation(helpful_map, grouped_rows) -> dict:
    return evaluate_rows(helpful_map, grouped_rows)


@pytest.fixture(scope="module")
def scores_and_probabilities(helpful_map, grouped_rows) -> dict:
    """Return the logit and the probability of each row, for the confidence and for the reliability."""
    scored = FittedMap.from_document(helpful_map)(grouped_rows)
    return {
        "confidence": (logit(scored.confidence), scored.confidence),
        "reliability": (scored.logit, scored.reliability),
    }


def test_metrics_equal_a_direct_computation_on_all_rows(scores_and_probabilities, grouped_rows, helpful_evaluation):
    for score_name, (score, probability) in scores_and_probabilities.items():
        expected = compute_reliability_metrics(score, grouped_rows.correct)
        expected["ece"] = ece(probability, grouped_rows.correct)
        computed = {name: helpful_evaluation["metrics"][name][score_name] for name in EVALUATED_METRICS}
        assert computed == pytest.approx(expected, rel=1e-12)
    assert helpful_evaluation["rows"] == 3000
    assert helpful_evaluation["groups"] == 300
    assert helpful_evaluation["accuracy"]["value"] == grouped_rows.correct.mean()
    assert helpful_evaluation["errors"] == (~grouped_rows.correct).sum()

    _, confidence = scores_and_probabilities["confidence"]
    cells = LabelCells.from_decisions(confidence, grouped_rows.decision, grouped_rows.correct)
    assert helpful_evaluation["label_spread"] == {"value": cells.spread(), "shuffled_p95": cells.shuffled_quantile(0)}
    for compared in helpful_evaluation["metrics"].values():
        assert compared["change"] == compared["reliability"] - compared["confidence"]
        assert compared["low"] < compared["change"] < compared["high"]


def test_errors_per_1000_reviews_count_the_least_reliable_rows(
    scores_and_probabilities, grouped_rows, helpful_evaluation
):
    for budget, n_automatic in zip(helpful_evaluation["reviews"], (2700, 2100, 1500, 300), strict=True):
        assert budget["reviews"] == 3000 - n_automatic == round(3000 * budget["reviewed"])
        assert budget["at_random"] == pytest.approx(1000 * (1 - grouped_rows.correct.mean()))
        for score_name, (score, _) in scores_and_probabilities.items():
            reviewed_rows = np.argsort(score)[: budget["reviews"]]
            errors = np.count_nonzero(~grouped_rows.correct[reviewed_rows])
            assert budget[score_name] == pytest.approx(1000 * errors / budget["reviews"], rel=1e-12)
        assert budget["change"] == pytest.approx(budget["reliability"] - budget["confidence"])


def test_labels_report_their_rows_and_fit(grouped_rows):
    document = maps.make_map("mrp", calibrator=Identity())
    scored = FittedMap.from_document(document)(grouped_rows)
    expected = [("irrelevant", 500, "none"), ("partial", 7, "shared"), ("exact", 0, "identity")]
    for label, row in enumerate(evaluate_scores(document, grouped_rows, scored)["labels"]):
        of_label = grouped_rows.decision == label
        assert row["rows"] == of_label.sum()
        assert row["mean_confidence"] == pytest.approx(scored.confidence[of_label].mean())
        assert row["mean_reliability"] == pytest.approx(scored.reliability[of_label].mean())
        assert row["correct"]["value"] == pytest.approx(grouped_rows.correct[of_label].mean())
        assert row["correct"]["low"] < row["correct"]["value"] < row["correct"]["high"]
        assert (row["name"], row["fit_rows"], row["fallback"]) == expected[label]
    row = evaluate_rows(maps.make_map("shared_1d", names=None), grouped_rows)["labels"][2]
    assert (row["name"], row["fit_rows"], row["fallback"]) == ("label 2", None, None)


@pytest.mark.parametrize("group", [None, "group"])
def test_weighted_rows_count_like_repeated_rows(helpful_map, group):
    weight = np.arange(400) % 4 + 0.5  # the mean is 2; a row with weight 2 is repeated 100 times
    frame = maps.make_predictions(400)
    times = np.rint(100 * weight / 2).astype(int)
    row_names = np.array([f"{row:03}" for row in range(400)])
    names = frame["group"].to_numpy() if group else row_names
    rows = maps.rows_of_frame(frame, group)
    weighted = evaluate_rows(helpful_map, dataclasses.replace(rows, weight=weight))
    repeated = evaluate_rows(helpful_map, dataclasses.replace(rows, group=names).take(np.arange(400).repeat(times)))

    assert (weighted["rows"], weighted["groups"], weighted["weighted"]) == (400, 40 if group else 400, True)
    for key in ("accuracy", "metrics"):
        assert flatten(weighted[key]) == pytest.approx(flatten(repeated[key]), abs=1e-9)
    for weighted_label, repeated_label in zip(weighted["labels"], repeated["labels"], strict=True):
        weighted_share = weighted_label["correct"]
        repeated_share = repeated_label["correct"]
        assert weighted_share["value"] == repeated_share["value"]
        # the interval with weights is wider, because copies of a row add no information
        assert weighted_share["low"] <= repeated_share["low"] < repeated_share["high"] <= weighted_share["high"]
    assert "weighted" in describe_limits(weighted, helpful_map)[-1]


@pytest.mark.parametrize("n_correct", [20, 25])
def test_share_has_a_wilson_interval(n_correct):
    """Check the definition: each bound differs from the share by 1.96 standard errors of the bound."""
    rows = make_rows([0] * 25, np.arange(25) < n_correct, [0.8] * 25, [1.0] * 25)
    evaluation = evaluate_scores(MAP, *rows)
    for share in (evaluation["accuracy"], evaluation["labels"][0]["correct"]):
        assert share["value"] == n_correct / 25
        for bound in (share["low"], share["high"]):
            squared_distance = (share["value"] - bound) ** 2
            assert squared_distance == pytest.approx(ndtri(0.975) ** 2 * bound * (1 - bound) / 25, abs=1e-12)


@given(correct=st.lists(st.booleans(), min_size=10, max_size=30), copies=st.integers(1, 4))
@example(correct=[True] * 20, copies=5)
@settings(max_examples=8, deadline=None)
def test_copies_of_a_row_in_its_group_add_no_information(correct, copies):
    n = len(correct)
    row_of_copy = np.arange(n).repeat(copies)
    n_copies = len(row_of_copy)
    single = evaluate_scores(MAP, *make_rows(np.arange(n) % 3, correct, [0.5] * n, np.zeros(n)))
    copied_rows = make_rows(
        decision=row_of_copy % 3,
        correct=np.array(correct)[row_of_copy],
        confidence=[0.5] * n_copies,
        reliability_logit=np.zeros(n_copies),
        group=row_of_copy.astype(str),
    )
    copied = evaluate_scores(MAP, *copied_rows)
    assert copied["accuracy"] == pytest.approx(single["accuracy"], abs=1e-9)
    for by_group, by_row in zip(copied["labels"], single["labels"], strict=True):
        assert by_group["correct"] == pytest.approx(by_row["correct"], abs=1e-9)


def test_negative_correlation_within_groups_does_not_narrow_the_interval():
    columns = ([0] * 40, [True, False] * 20, [0.5] * 40, np.zeros(40))
    groups_of_two = np.arange(20).astype(str).repeat(2)
    ungrouped = evaluate_scores(MAP, *make_rows(*columns))
    paired = evaluate_scores(MAP, *make_rows(*columns, groups_of_two))
    assert paired["accuracy"] == pytest.approx(ungrouped["accuracy"])


def test_intervals_equal_the_paired_bootstrap(scores_and_probabilities, grouped_rows, helpful_evaluation):
    draws = draw_resamples(grouped_rows.group, resamples=1000, seed=0)
    metrics = {}
    for name, (logits, probability) in scores_and_probabilities.items():
        metrics[name] = compute_reliability_metrics(logits, grouped_rows.correct, draws=draws)
        metrics[name]["ece"] = draws.ece(probability, grouped_rows.correct)
    confidence = metrics["confidence"]
    reliability = metrics["reliability"]
    for name in EVALUATED_METRICS:
        change = reliability[name] - confidence[name]
        compared = helpful_evaluation["metrics"][name]
        interval = percentile_interval(change)
        assert (compared["low"], compared["high"]) == pytest.approx((interval.low, interval.high), rel=1e-9)
        assert compared["p"] == two_sided_p(change)


@pytest.mark.parametrize("confidence_only", [False, True])
def test_confidence_map_has_no_change(confidence_only):
    """The confidences include 0.6, a bin edge, and 1.0, which has no finite logit."""
    frame = maps.make_confidence_predictions(2000) if confidence_only else maps.make_predictions(2000)
    evaluation = evaluate_rows(maps.make_map("confidence", confidence_only=confidence_only), maps.rows_of_frame(frame))
    assert evaluation["resamples"] == 1000
    for compared in (*evaluation["metrics"].values(), *evaluation["reviews"]):
        assert compared["confidence"] == compared["reliability"]
        assert compared["change"] == compared["low"] == compared["high"] == 0
        assert compared["p"] == 1


def flatten(value: object) -> list:
    """Return the scalars of a JSON value in their order."""
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, list):
        parts = value
    else:
        return [value]
    scalars = []
    for part in parts:
        scalars += flatten(part)
    return scalars


def test_fewer_than_ten_groups_have_no_intervals(helpful_map):
    rows = maps.rows_of_frame(maps.make_predictions(90, per_group=10), "group")
    evaluation = evaluate_rows(helpful_map, rows)
    assert evaluation["groups"] == 9
    assert evaluation["resamples"] == 0
    for compared in (*evaluation["metrics"].values(), *evaluation["reviews"], evaluation["accuracy"]):
        assert compared["low"] is None
        assert compared["high"] is None
        assert compared.get("p") is None

    of_independent_rows = evaluate_rows(helpful_map, maps.rows_of_frame(maps.make_predictions(90)))
    assert of_independent_rows["metrics"]["aurc"]["low"] is not None


FRAME = maps.make_confidence_predictions(200)
CONFIDENCE = FRAME["confidence"].to_numpy()
DECISION = FRAME["decision"].to_numpy()
CORRECT = (FRAME["label"] == FRAME["decision"]).to_numpy()
LOGITS_WITH_INFINITE = np.r_[np.full(20, np.inf), np.full(20, -np.inf), np.linspace(-2, 2, 160)]
UNUSUAL_ROWS = {  # decision, correct, confidence, logit of the reliability
    "one row": ([0], [True], [0.5], [0.0]),
    "two rows": ([0, 1], [True, False], [0.5, 0.5], [0.0, 1.0]),
    "no errors": (DECISION, np.ones(200), CONFIDENCE, LOGITS_WITH_INFINITE),
    "one error": (DECISION, np.arange(200) > 0, CONFIDENCE, LOGITS_WITH_INFINITE),
    "one label": (np.ones(200, dtype=int), CORRECT, CONFIDENCE, LOGITS_WITH_INFINITE),
    "ties and certainty": (DECISION, CORRECT, np.where(CONFIDENCE < 0.5, 0.0, CONFIDENCE), LOGITS_WITH_INFINITE),
}


@pytest.mark.parametrize("variant", ["mrp", "shared_1d", "confidence"])
@pytest.mark.parametrize("kind", UNUSUAL_ROWS)
def test_evaluation_of_any_rows_is_json_with_a_comparison(kind, variant):
    document = maps.make_map(variant, confidence_only=True)
    evaluation = evaluate_scores(document, *make_rows(*UNUSUAL_ROWS[kind]))
    assert json.loads(json.dumps(evaluation, allow_nan=False)) == evaluation

    lines = describe_comparison(evaluation, document, "on these rows")
    assert 1 <= len(lines) <= 5
    assert not any(re.search("nan|None", line) for line in [*lines, *describe_metrics(evaluation["metrics"])])
    if variant == "confidence":
        assert "keeps your confidence" in lines[0]
    if kind in ("one row", "two rows", "no errors", "one error"):
        assert lines[-1].startswith("Uncertain: ")


def test_aupr_is_unknown_without_errors():
    evaluation = evaluate_scores(MRP, *make_rows(*UNUSUAL_ROWS["no errors"]))
    assert evaluation["metrics"]["aupr_error"]["confidence"] is None
    assert [budget["reliability"] for budget in evaluation["reviews"]] == [0, 0, 0, 0]
    assert evaluation["accuracy"]["low"] < 1
    assert evaluation["accuracy"]["value"] == 1
    assert evaluation["accuracy"]["high"] == 1


def test_helpful_map_is_better_with_its_numbers(helpful_map, helpful_evaluation):
    lines = describe_comparison(helpful_evaluation, helpful_map, "on new rows")
    budget = helpful_evaluation["reviews"][1]
    nll = helpful_evaluation["metrics"]["nll_correct"]

    numbers = f"{nll['change']:+.4f} (95% interval {nll['low']:+.4f} to {nll['high']:+.4f})"
    assert re.fullmatch(rf"Better .*your confidence: .*log loss .*{re.escape(numbers)}, on new rows\.", lines[0])
    by_reliability = f"find {budget['reliability']:.0f} errors"
    by_confidence = f"1,000 .*confident 30% find {budget['confidence']:.0f}"
    interval = re.escape(f"95% interval {budget['low']:+.0f} to {budget['high']:+.0f})")
    assert re.search(rf"{by_reliability}; {by_confidence}\b.*{interval}", lines[1])
    assert numbers in describe_metrics(helpful_evaluation["metrics"])[0]
    (limits,) = describe_limits(helpful_evaluation, helpful_map)
    assert re.search(r"\b3,000 rows, calibrator uncal\..* groups, .*not cover", limits)


def test_labels_with_few_rows_are_named():
    rows = np.array([100, 300, 7])
    fallback = ("none", "none", "shared")
    variant = dataclasses.replace(maps.make_variants()["label_platt"], rows=rows, fallback=fallback)
    document = maps.make_map("label_platt", variant, calibrator=Identity())
    (sentence,) = describe_pooled_labels(document)
    assert re.search(r": exact \(7 rows\) .*common curve\.$", sentence)


DIRECTIONS = {"nll_correct": -1, "aupr_error": 1, "aurc": -1}  # sign of a change that is an improvement
WORDS = {-1: WORSE, 0: NO_DIFFERENCE, 1: BETTER}


@pytest.mark.parametrize("signs", list(product((-1, 0, 1), repeat=3)))
def test_the_interval_of_the_log_loss_alone_decides_the_comparison(helpful_map, helpful_evaluation, signs):
    """Signs are -1 (worse), 0 or 1 (better) for the log loss and the two ranking metrics."""
    changed = copy.deepcopy(helpful_evaluation)
    for metric, sign in zip(DIRECTIONS, signs, strict=True):
        middle = 2 * DIRECTIONS[metric] * sign
        p_value = 0.5 if sign else 0.002
        changed["metrics"][metric] |= {"low": float(middle - 1), "high": float(middle + 1), "p": p_value}
    word = WORDS[signs[0]]
    lines = describe_comparison(changed, helpful_map, "on these rows")
    assert compare_log_loss(changed).word == word
    assert lines[0].lower().startswith(word)
    assert any("variant confidence" in line for line in lines) == (word == WORSE)


SHIFT = np.array([-2.0, 0.0, 2.0])  # of the confidence of each label


class Scenario(NamedTuple):
    """Simulated scores: the logits of confidence and reliability are computed from true logit, label and noise."""

    compute_logits: Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
    rows_per_group: int


SCENARIOS = {  # by the word of the comparison, and whether it is uncertain
    (BETTER, True): Scenario(
        lambda true_logit, label, _: (true_logit + SHIFT[label], true_logit),
        rows_per_group=40,
    ),
    (NO_DIFFERENCE, False): Scenario(
        lambda true_logit, _, noise: (true_logit, true_logit + noise / 1000), rows_per_group=4
    ),
    (WORSE, False): Scenario(lambda true_logit, _, noise: (true_logit, true_logit + 2 * noise), rows_per_group=4),
    (BETTER, False): Scenario(lambda true_logit, *_: (3 * true_logit, true_logit), rows_per_group=4),
}


def make_projected(decision, log_probabilities, confidence_logit, mrp_logit) -> ProjectedDecisions:
    """Return decisions of calibrator `ts` with the given confidence and reliability."""
    every_row = np.ones(len(decision), dtype=bool)
    simplex = SimpleNamespace(log_probabilities=log_probabilities, feasible=every_row, solved=every_row)
    return ProjectedDecisions(
        calibrator="ts",
        decision=decision,
        log_probabilities=log_probabilities,
        reliability_logits={"confidence": confidence_logit, "mrp": mrp_logit},
        lattices={},
        simplex=simplex,
        objective_excess=0,
        kkt_residual=0,
        violations=(),
    )


def make_dataset_results(n: int, metric_values: dict, interval_rows: list):
    """Return results of a simulated data set `shop` with the given metrics and intervals."""
    metric_rows = [("shop", "simulated", name, 1, *rest, value) for (name, *rest), value in metric_values.items()]
    dataset = pl.select(dataset=pl.lit("shop"), source=pl.lit("simulated"))
    return dataclasses.replace(
        report_data.make_results(rows=n),
        metrics=report_data.make_frame("metrics", *metric_rows),
        intervals=dataset.join(pl.DataFrame(interval_rows), how="cross"),
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("expected", "scenario"), SCENARIOS.items(), ids=map(str, SCENARIOS))
def test_report_and_commands_give_the_same_comparison(expected, scenario, seed):
    generator = np.random.default_rng(seed)
    n = 1200
    decision = generator.integers(0, 3, n)
    true_logit = generator.normal(0.5, 1.5, n)
    noise = generator.normal(size=n)
    correct = generator.random(n) < expit(true_logit)
    confidence_logit, mrp_logit = scenario.compute_logits(true_logit, decision, noise)
    group = np.array([f"q{row // scenario.rows_per_group}" for row in range(n)])
    rows, scored = make_rows(decision, correct, expit(confidence_logit), mrp_logit, group)
    sample = EvaluationSample.from_rows(rows, scored, maps.METRIC_SETTINGS)
    evaluation = evaluate_map(MRP, sample)
    map_lines = describe_comparison(evaluation, MRP, "on these rows")

    is_decided = np.eye(3)[decision] > 0
    other_probability = expit(-confidence_logit) / 2  # of each of the two other labels
    log_probabilities = np.log(np.where(is_decided, expit(confidence_logit)[:, None], other_probability[:, None]))
    projected = make_projected(decision, log_probabilities, confidence_logit, mrp_logit)
    values = {("ts", *key): value for *key, value in compute_metrics(projected, rows.label, maps.METRIC_SETTINGS)}
    test = FixedDecisions(decision=decision, logits=log_probabilities, label=rows.label, group=rows.group)
    interval_rows = bootstrap_rows(
        [SeedResults(1, [projected], (), (), [])], test, values, ("ts",), maps.METRIC_SETTINGS
    )
    results = make_dataset_results(n, values, interval_rows)
    (row,) = summarize_datasets(results.metrics, results.intervals, [results.facts]).to_dicts()
    (report_row,) = overview_table(report_data.combine_runs([results])).to_dicts()
    stage_lines = describe_comparison_of_dataset(row, results.intervals)

    word, is_uncertain = expected
    assert compare_log_loss(evaluation).word == report_row["comparison"] == word
    assert map_lines[0].lower().startswith(word)
    assert stage_lines[0].lower().startswith(word)
    uncertainty = [line for line in map_lines if line.startswith("Uncertain")]
    assert [line for line in stage_lines if line.startswith("Uncertain")] == uncertainty
    assert bool(uncertainty) == ("Uncertain" in report_row["remarks"]) == is_uncertain
    assert [line for line in stage_lines if line.startswith("1,000")] == [
        line for line in map_lines if line.startswith("1,000")
    ]


def simulate_rows(n: int, seed: int = 0, wrong_by: float = 0.0) -> tuple[FixedDecisions, ScoredDecisions]:
    """Simulate rows of three labels, and a reliability that is off by `wrong_by` logits."""
    generator = np.random.default_rng(seed)
    decision = generator.choice(3, n, p=[0.6, 0.3, 0.1])
    true_logit = generator.normal(1, 1.5, n)
    correct = generator.random(n) < expit(true_logit)
    return make_rows(decision, correct, expit(true_logit), true_logit + wrong_by)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.0, 0.2, 0.5, 0.999, 1.0]), st.integers(0, 3)), min_size=1), st.data())
def test_sampling_probabilities_sum_to_the_sample_size(rows, data):
    reliability = np.array([row[0] for row in rows])
    decision = np.array([row[1] for row in rows])
    n_sampled = data.draw(st.integers(1, len(rows)))
    probability = sampling_probabilities(reliability, decision, n_sampled)

    assert ((probability > 0) & (probability <= 1)).all()
    assert probability.sum() == pytest.approx(n_sampled)
    assert probability.min() >= UNIFORM_SHARE * n_sampled / len(rows) * (1 - 1e-9)
    assert len(np.unique(sample_systematically(probability, n_sampled, seed=0))) == n_sampled


def test_unreliable_and_rare_rows_are_sampled_more_often():
    reliability = np.array([0.5, 0.9, 0.9, 0.9])
    decision = np.array([0, 0, 0, 1])
    unreliable, reliable, _, rare = sampling_probabilities(reliability, decision, 1)

    assert unreliable > reliable
    assert rare > reliable

    uniform_part = UNIFORM_SHARE / 4
    assert (unreliable - uniform_part) / (reliable - uniform_part) == pytest.approx(np.sqrt(0.25 / 0.09))
    assert (rare - uniform_part) / (reliable - uniform_part) == pytest.approx(np.sqrt(3))


def test_sampling_frequencies_equal_the_probabilities():
    probability = sampling_probabilities(np.linspace(0.5, 0.99, 30), np.arange(30) % 3, 10)
    n_runs = 4000
    n_sampled = np.bincount(
        np.concatenate([sample_systematically(probability, 10, seed) for seed in range(n_runs)]), minlength=30
    )

    assert n_sampled / n_runs == pytest.approx(probability, abs=5 * np.sqrt(0.25 / n_runs))


def test_retained_rows_of_a_weighted_sample_are_equally_likely():
    probability = sampling_probabilities(np.linspace(0.5, 0.99, 30), np.arange(30) % 3, 10)
    n_runs = 4000
    rows = FixedDecisions(decision=np.zeros(30, dtype=int), weight=1 / probability)
    retained = np.concatenate([sample_equally_likely_rows(rows, seed)[0] for seed in range(n_runs)])
    frequency = np.bincount(retained, minlength=30) / n_runs * probability  # of being sampled and then retained

    assert frequency == pytest.approx(np.full(30, probability.min()), abs=5 * np.sqrt(0.25 / n_runs))


def test_precision_recall_and_kappa_agree_with_scikit_learn():
    rows, scored = simulate_rows(400)
    agreement = measure(rows, scored)
    for name, reference in (("precision", precision_score), ("recall", recall_score)):
        values = [label[name]["value"] for label in agreement["labels"]]
        assert values == pytest.approx(reference(rows.label, rows.decision, average=None).tolist())
    assert agreement["kappa"]["value"] == pytest.approx(cohen_kappa_score(rows.label, rows.decision))
    assert agreement["rows"] == 400
    assert agreement["accuracy"]["value"] == pytest.approx(rows.correct.mean())

    of_nine_rows = measure(rows.take(slice(9)), ScoredDecisions(scored.confidence[:9], scored.logit[:9]))
    assert of_nine_rows["kappa"]["low"] is None
    assert of_nine_rows["accuracy"]["high"] is None


@pytest.mark.parametrize("wrong_by", [0.0, -2.0])
def test_sampled_labels_estimate_the_accuracy_of_all_rows(wrong_by):
    """The map sets the sampling probabilities; intervals cover the true value even if the map is miscalibrated."""
    rows, scored = simulate_rows(4000, wrong_by=wrong_by)
    population = PopulationSummary.from_scores(rows.decision, scored.logit, 3)
    probability = sampling_probabilities(scored.reliability, rows.decision, 250)
    true_accuracy = rows.correct.mean()
    true_recall = recall_score(rows.label, rows.decision, average=None)[2]  # of label 2
    is_covered = []
    widths = []
    values = []
    for seed in range(60):
        index = sample_systematically(probability, 250, seed)
        sample = dataclasses.replace(rows.take(index), weight=1 / probability[index])
        sample_scores = ScoredDecisions(scored.confidence[index], scored.logit[index])
        with_population = measure(sample, sample_scores, population)
        without_population = measure(sample, sample_scores, None)
        accuracy = with_population["accuracy"]
        recall = with_population["labels"][2]["recall"]
        other_accuracy = without_population["accuracy"]
        is_covered.append(
            [
                accuracy["low"] <= true_accuracy <= accuracy["high"],
                recall["low"] <= true_recall <= recall["high"],
            ]
        )
        widths.append([accuracy["high"] - accuracy["low"], other_accuracy["high"] - other_accuracy["low"]])
        values.append(accuracy["value"])

    assert np.mean(is_covered, axis=0).min() >= 0.88
    assert np.mean(values) == pytest.approx(true_accuracy, abs=4 * np.std(values) / np.sqrt(60))
    mean_width, other_mean_width = np.mean(widths, axis=0)
    assert mean_width / other_mean_width < 0.97


def test_unobserved_quantities_have_no_estimate_and_perfect_accuracy_has_an_interval():
    rows, scored = make_rows([0] * 40, [True] * 40, [0.9] * 40, np.full(40, 2.0))
    population = PopulationSummary.from_scores(np.repeat([0, 1], 500), np.full(1000, 2.0), 3)
    agreement = measure(rows, scored, population)

    assert agreement["kappa"]["value"] is None
    assert agreement["labels"][0]["recall"]["value"] is None

    without_population = measure(rows, scored)
    assert without_population["accuracy"] == {"value": 1, "low": pytest.approx(0.025 ** (1 / 40)), "high": 1}

    # the population has no row with the decision of the labelled rows
    other_population = PopulationSummary.from_scores(np.ones(500, dtype=int), np.full(500, 2.0), 3)
    assert measure(rows, scored, other_population)["labels"][0]["precision"]["value"] == 1


def test_uninformative_map_does_not_change_the_accuracy_estimate():
    rows, scored = simulate_rows(300)
    uninformative = ScoredDecisions(scored.confidence, np.zeros(300))
    population = PopulationSummary.from_scores(np.arange(3000) % 3, np.zeros(3000), 3)
    with_population = measure(rows, uninformative, population)["accuracy"]
    without_population = measure(rows, uninformative, None)["accuracy"]
    assert with_population == pytest.approx(without_population)


def test_order_of_grouped_rows_does_not_matter(helpful_map, grouped_rows):
    order = np.random.default_rng(0).permutation(len(grouped_rows))
    in_order = evaluate_rows(helpful_map, grouped_rows)
    shuffled = evaluate_rows(helpful_map, grouped_rows.take(order))
    for first, second in zip(flatten(in_order), flatten(shuffled), strict=True):
        assert first == second or first == pytest.approx(second, rel=1e-9, abs=1e-12)
