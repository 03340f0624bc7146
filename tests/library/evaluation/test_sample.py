"""Samples that metrics are computed from: copies, clusters, scores and resamples of made-up rows."""

import dataclasses

import numpy as np
import pytest
from scipy.special import expit, logit

from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.evaluation.sample import EvaluationSample
from relmap.maps.score import ScoredDecisions
from relmap.metrics.resampling import draw_resamples
from relmap.settings import METRIC_DEFAULTS
from tests import maps

PARAMS = maps.METRIC_SETTINGS.model_copy(update={"resamples": 30})


def make_sample(
    n_rows: int = 12, group: list[str] | None = None, weight: list[float] | None = None
) -> EvaluationSample:
    """Make rows whose reliability is the square of the confidence; every third one is wrong."""
    row = np.arange(n_rows)
    decision = row % 2
    confidence = np.linspace(0.4, 0.9, n_rows)
    rows = FixedDecisions(
        decision=decision,
        confidence=confidence,
        label=np.where(row % 3 == 2, 1 - decision, decision),
        group=None if group is None else np.array(group),
        weight=None if weight is None else np.array(weight),
    )
    return EvaluationSample.from_rows(rows, ScoredDecisions(confidence, logit(confidence**2)), PARAMS)


def test_rows_without_weights_and_groups_are_their_own_copies_and_clusters():
    sample = make_sample()
    assert len(sample) == sample.n_clusters == 12
    assert sample.row_number.tolist() == sample.cluster.tolist() == list(range(12))
    assert sample.correct.tolist() == [row % 3 != 2 for row in range(12)]
    assert sample.decision.tolist() == [0, 1] * 6
    confidence = np.linspace(0.4, 0.9, 12)
    np.testing.assert_allclose(sample.probability["confidence"], confidence)
    np.testing.assert_allclose(sample.probability["reliability"], confidence**2)
    np.testing.assert_allclose(sample.logit["confidence"], logit(confidence))
    np.testing.assert_allclose(sample.logit["reliability"], logit(confidence**2))


def test_groups_are_numbered_in_the_order_of_their_names():
    sample = make_sample(5, group=["c", "a", "b", "a", "c"])
    assert sample.cluster.tolist() == [2, 0, 1, 0, 2]
    assert (sample.n_clusters, len(sample)) == (3, 5)
    assert sample.cluster.dtype == np.int64


def test_copies_of_a_row_have_its_values_and_its_cluster():
    sample = make_sample(3, group=["b", "a", "b"], weight=[1.0, 3.0, 2.0])
    assert sorted(set(sample.row_number.tolist())) == [0, 1, 2]
    counts = np.bincount(sample.row_number)
    np.testing.assert_allclose(counts / counts.sum(), [1 / 6, 3 / 6, 2 / 6], atol=0.01)
    assert sample.cluster.tolist() == [(1, 0, 1)[row] for row in sample.row_number]
    assert sample.correct.tolist() == [row != 2 for row in sample.row_number]
    for name, values in (("confidence", sample.scored.confidence), ("reliability", sample.scored.reliability)):
        np.testing.assert_allclose(sample.probability[name], values[sample.row_number])
    np.testing.assert_allclose(sample.logit["reliability"], sample.scored.logit[sample.row_number])


def test_an_unchanged_confidence_is_its_reliability_bit_for_bit():
    confidence = np.array([0.6, 0.3, 0.1, 0.7])
    is_rounded = expit(logit(confidence)) != confidence
    assert is_rounded.any()
    rows = FixedDecisions(
        decision=np.zeros(4, dtype=np.int64), confidence=confidence, label=np.zeros(4, dtype=np.int64)
    )
    unchanged = EvaluationSample.from_rows(rows, ScoredDecisions(confidence, logit(confidence)))
    assert unchanged.probability["reliability"].tolist() == confidence.tolist()
    changed = EvaluationSample.from_rows(rows, ScoredDecisions(confidence, logit(confidence) + 1))
    np.testing.assert_allclose(changed.probability["reliability"], expit(logit(confidence) + 1))
    assert changed.params == METRIC_DEFAULTS


def test_no_row_cannot_be_evaluated():
    with pytest.raises(InputError, match=r"no rows .*labels"):
        make_sample(0)


@pytest.mark.parametrize(("n_rows", "has_resamples"), [(9, False), (10, True)])
def test_ten_groups_are_enough_for_an_interval(n_rows, has_resamples):
    sample = make_sample(n_rows)
    assert (sample.resamples is not None) == has_resamples
    values = np.arange(n_rows) ** 2.0
    numbers = sample.mean_with_interval(values)
    assert numbers["value"] == values.mean()
    ends = [numbers["standard_error"], numbers["low"], numbers["high"]]
    if has_resamples:
        means = draw_resamples(sample.cluster, resamples=30, seed=0).mean(values)
        assert ends == pytest.approx([means.std(ddof=1), *np.quantile(means, [0.025, 0.975])])
        assert sample.resamples is sample.resamples
    else:
        assert ends == [None] * 3


def test_a_sample_is_immutable_and_compared_by_identity():
    sample = make_sample()
    with pytest.raises(dataclasses.FrozenInstanceError):
        sample.params = METRIC_DEFAULTS
    assert sample != dataclasses.replace(sample)
    assert len({sample, dataclasses.replace(sample)}) == 2
