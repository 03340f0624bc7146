"""What a fitted map gains on new rows, with and without differences between labels: in 3 or in 200 simulations."""

from collections.abc import Iterator

import numpy as np
import pytest
from scipy.special import logit

from relmap.evaluation.assessment import describe_fit
from relmap.maps.score import FittedMap
from relmap.metrics.comparison import BETTER, Comparison
from relmap.metrics.reliability import correctness_log_loss
from tests.maps import SETTINGS, fit_map, make_predictions, rows_of_frame

SMALLEST = SETTINGS.metrics.smallest_reliability


def simulate_changes(n_sets: int, shift: float, n: int) -> Iterator[tuple[Comparison, float]]:
    """Yield the comparison of each simulated data set, and the change of the log loss on 10,000 new rows."""
    for seed in range(n_sets):
        n_labels = (2, 3, 5)[seed % 3]
        rows = rows_of_frame(make_predictions(n, n_labels, shift=shift, seed=seed), n_labels=n_labels)
        fresh = rows_of_frame(make_predictions(10_000, n_labels, shift=shift, seed=(10**6 + seed)), n_labels=n_labels)
        result = fit_map(rows, names=None)
        numbers = describe_fit(result).numbers["log_loss"]
        scored = FittedMap.from_document(result.document).score_for_comparison(fresh)
        losses = (correctness_log_loss(t, fresh.correct, SMALLEST) for t in (scored.logit, logit(scored.confidence)))
        change = float(np.subtract(*losses).mean())
        yield Comparison(numbers["change"], numbers["low"], numbers["high"]), change


@pytest.mark.parametrize("n_sets", [3, pytest.param(200, marks=pytest.mark.study)])
@pytest.mark.parametrize("n", [300, 1000])
def test_a_map_without_label_spread_is_rarely_called_better_and_costs_little(n_sets, n):
    comparisons, changes = zip(*simulate_changes(n_sets, 0.0, n), strict=True)
    assert np.mean([comparison.word == BETTER for comparison in comparisons]) <= 0.05
    assert np.mean(changes) <= (0.002 if n_sets == 200 else 0.004)


@pytest.mark.parametrize("n_sets", [3, pytest.param(200, marks=pytest.mark.study)])
def test_a_map_with_label_spread_gains_within_its_interval(n_sets):
    pairs = list(simulate_changes(n_sets, 1.5, 600))
    assert np.mean([change for _, change in pairs]) < -0.03
    is_covered = [comparison.low <= change <= comparison.high for comparison, change in pairs]
    assert np.mean(is_covered) >= (0.85 if n_sets == 200 else 0.5)
