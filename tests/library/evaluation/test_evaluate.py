"""Evaluation of made-up rows: metrics, reviews and accuracies compared with loops, and results by label."""

import numpy as np
import pytest
from scipy.special import expit, logit

from relmap.decisions import FixedDecisions
from relmap.evaluation.evaluate import EVALUATED_METRICS, accuracy_of_rows, compare_scores, evaluate_map
from relmap.evaluation.sample import EvaluationSample
from relmap.maps.score import ScoredDecisions
from relmap.metrics.spread import LabelCells
from tests import maps, naive
from tests.maps import make_map

PARAMS = maps.METRIC_SETTINGS.model_copy(update={"resamples": 40})
N_ROWS = 60


def make_sample(n_rows: int = N_ROWS, n_groups: int | None = None, *, weighted: bool = False) -> EvaluationSample:
    """Simulate rows; the reliability has ties and differs from the confidence by the label. No decision is label 1."""
    generator = np.random.default_rng(2)
    decision = generator.choice([0, 2], n_rows)
    confidence_logit = np.round(generator.normal(1, 1, n_rows), 1)
    reliability_logit = confidence_logit - 0.5 * decision
    correct = generator.random(n_rows) < expit(reliability_logit)
    group = None if n_groups is None else np.array([f"q{row % n_groups:02}" for row in range(n_rows)])
    weight = np.tile([1.0, 3.0], n_rows)[:n_rows] if weighted else None
    rows = FixedDecisions(
        decision=decision,
        confidence=expit(confidence_logit),
        label=np.where(correct, decision, (decision + 1) % 3),
        group=group,
        weight=weight,
    )
    scored = ScoredDecisions(confidence=rows.confidence, logit=reliability_logit)
    return EvaluationSample.from_rows(rows, scored, PARAMS)


def replicated_metrics(sample: EvaluationSample) -> dict[str, list[dict[str, float]]]:
    """Compute every metric of both scores by loops, for the rows and then for each resample."""
    copies = np.ones(len(sample), dtype=int)
    resampled = naive.Sample(copies, sample.cluster).resamples(PARAMS.resamples)
    replicates = [np.arange(len(sample)), *resampled]
    metrics = {}
    for score in ("confidence", "reliability"):
        metrics[score] = [
            naive.metrics(sample.logit[score][rows], sample.probability[score][rows], sample.correct[rows])
            for rows in replicates
        ]
    return metrics


@pytest.mark.parametrize(("n_groups", "weighted"), [(None, False), (20, True)])
def test_every_metric_has_the_interval_and_the_p_value_of_its_change(n_groups, weighted):
    sample = make_sample(n_groups=n_groups, weighted=weighted)
    compared = compare_scores(sample)
    expected = replicated_metrics(sample)
    reviews = {f"found_{round(100 * review['reviewed'])}": review for review in compared["reviews"]}
    assert [*reviews] == ["found_10", "found_30", "found_50", "found_90"]
    assert [*compared["metrics"]] == [*EVALUATED_METRICS]
    for name, numbers in (compared["metrics"] | reviews).items():
        of_confidence, of_reliability = expected.values()
        before = np.array([metrics[name] for metrics in of_confidence])
        after = np.array([metrics[name] for metrics in of_reliability])
        change = after - before
        low, high = naive.percentile_interval(change[1:])
        assert numbers["confidence"] == pytest.approx(before[0])
        assert numbers["reliability"] == pytest.approx(after[0])
        assert numbers["change"] == pytest.approx(change[0], abs=1e-7)
        assert (numbers["low"], numbers["high"]) == pytest.approx((low, high), abs=1e-7)
        assert numbers["p"] == pytest.approx(naive.p_value(change[1:]))


def test_reviews_find_the_errors_among_the_least_reliable_rows():
    """Of 15 rows, sorted by the reliability, the first four are wrong; by the confidence, they are the last."""
    order = np.arange(15)
    decision = np.zeros(15, dtype=np.int64)
    rows = FixedDecisions(decision=decision, confidence=expit(-order / 10.0), label=(order < 4).astype(np.int64))
    scored = ScoredDecisions(rows.confidence, order / 10.0)
    reviews = compare_scores(EvaluationSample.from_rows(rows, scored, PARAMS))["reviews"]
    assert [review["reviewed"] for review in reviews] == [0.1, 0.3, 0.5, 0.9]
    # 9, 7, 5 and 1 tenths of 15 are rounded up to 14, 11, 8 and 2 rows that are not reviewed
    assert [review["reviews"] for review in reviews] == [1, 4, 7, 13]
    found = [1000 * n / reviewed for n, reviewed in zip((1, 4, 4, 4), (1, 4, 7, 13), strict=True)]
    assert [review["reliability"] for review in reviews] == pytest.approx(found)
    assert [review["confidence"] for review in reviews] == pytest.approx([0, 0, 0, 2000 / 13])
    assert {review["at_random"] for review in reviews} == {4000 / 15}


def test_errors_found_are_unknown_if_no_row_is_reviewed():
    reviews = compare_scores(make_sample(1))["reviews"]
    assert [review["reviews"] for review in reviews] == [0, 0, 0, 0]
    assert [review["reliability"] for review in reviews] == [None] * 4


@pytest.mark.parametrize("n_groups", [None, 9, 10, 20])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_sizes_of_the_sample_count_rows_once(n_groups, weighted):
    sample = make_sample(n_groups=n_groups, weighted=weighted)
    compared = compare_scores(sample)
    assert (compared["rows"], compared["errors"]) == (N_ROWS, (~sample.rows.correct).sum())
    assert (compared["groups"], compared["grouped"]) == (n_groups or N_ROWS, n_groups is not None)
    assert compared["weighted"] == weighted
    assert compared["resamples"] == (0 if n_groups == 9 else 40)
    errors = (~sample.rows.correct)[sample.row_number]
    assert compared["reviews"][0]["at_random"] == pytest.approx(1000 * errors.mean())
    has_interval = compared["metrics"]["nll_correct"]["low"] is not None
    assert has_interval == (n_groups != 9)
    assert (compared["metrics"]["ece"]["p"] is not None) == has_interval


@pytest.mark.parametrize("n_groups", [None, 9, 20])
@pytest.mark.parametrize("weighted", [False, True])
def test_accuracies_have_wilson_intervals_at_the_effective_number_of_rows(n_groups, weighted):
    sample = make_sample(n_groups=n_groups, weighted=weighted)
    evaluation = evaluate_map(make_map(), sample)
    copies = np.bincount(sample.row_number, minlength=N_ROWS)
    naive_sample = naive.Sample.from_groups(copies, sample.rows.group)
    is_sure = sample.rows.confidence > 0.7
    shares = [(evaluation["accuracy"], np.ones(N_ROWS, dtype=bool))]
    shares.append((accuracy_of_rows(sample, is_sure[sample.row_number]), is_sure))
    for label in (0, 2):
        shares.append((evaluation["labels"][label]["correct"], sample.rows.decision == label))
    for share, chosen in shares:
        value, low, high = naive_sample.wilson(sample.rows.correct, chosen)
        assert share["value"] == pytest.approx(value)
        if np.isnan(low):
            assert (share["low"], share["high"]) == (None, None)
        else:
            assert (share["low"], share["high"]) == pytest.approx((low, high))


def test_an_accuracy_of_no_row_is_unknown_and_ten_groups_are_enough():
    sample = make_sample()
    unknown = {"value": None, "low": None, "high": None}
    assert accuracy_of_rows(sample, np.zeros(N_ROWS, dtype=bool)) == unknown
    for n_rows, has_interval in ((9, False), (10, True)):
        share = accuracy_of_rows(sample, np.arange(N_ROWS) < n_rows)
        assert share["value"] == pytest.approx(sample.correct[:n_rows].mean())
        assert (share["low"] is not None) == has_interval == (share["high"] is not None)


@pytest.mark.parametrize("weighted", [False, True])
def test_labels_have_their_rows_means_and_curves(weighted):
    sample = make_sample(weighted=weighted)
    first, second, third = evaluate_map(make_map("mrp"), sample)["labels"]
    for label, numbers in ((0, first), (2, third)):
        copies = sample.decision == label
        assert (numbers["label"], numbers["name"]) == (label, maps.LABEL_NAMES[label])
        assert numbers["rows"] == (sample.rows.decision == label).sum()
        assert numbers["mean_confidence"] == pytest.approx(sample.probability["confidence"][copies].mean())
        assert numbers["mean_reliability"] == pytest.approx(sample.probability["reliability"][copies].mean())
    assert second == {
        "label": 1,
        "name": "partial",
        "rows": 0,
        "fit_rows": 7,
        "fallback": "shared",
        "mean_confidence": None,
        "mean_reliability": None,
        "correct": {"value": None, "low": None, "high": None},
    }
    assert (first["fit_rows"], first["fallback"]) == (500, "none")
    for numbers in evaluate_map(make_map("shared_1d"), sample)["labels"]:
        assert (numbers["fit_rows"], numbers["fallback"]) == (None, None)


def test_a_single_row_of_a_label_has_its_own_means():
    rows = FixedDecisions(decision=np.array([1, 0, 0]), confidence=np.array([0.3, 0.5, 0.7]), label=np.array([1, 0, 1]))
    sample = EvaluationSample.from_rows(rows, ScoredDecisions(rows.confidence, logit([0.6, 0.2, 0.4])), PARAMS)
    labels = evaluate_map(make_map(), sample)["labels"]
    assert (labels[1]["mean_confidence"], labels[1]["mean_reliability"]) == pytest.approx((0.3, 0.6))
    assert (labels[0]["mean_confidence"], labels[0]["mean_reliability"]) == pytest.approx((0.6, 0.3))


def test_the_label_spread_is_that_of_the_confidence_of_the_rows():
    sample = make_sample(900, weighted=True)
    cells = LabelCells.from_decisions(sample.rows.confidence, sample.rows.decision, sample.rows.correct, PARAMS)
    spread = evaluate_map(make_map(), sample)["label_spread"]
    assert spread == {"value": cells.spread(), "shuffled_p95": cells.shuffled_quantile(0)}
    assert spread["value"] > 0
    assert evaluate_map(make_map(), make_sample(12))["label_spread"] == {"value": None, "shuffled_p95": None}
