"""Parts of the pooled lines: searches, limits of logits, weights of curves."""

from types import SimpleNamespace

import numpy as np
import pytest

from relmap.decisions import CalibratedDecisions
from relmap.projection import pooled as pooling
from relmap.projection.labelwise import Lines
from relmap.projection.mrp import Curves
from relmap.projection.pooled import (
    MAX_SEARCH_ROUNDS,
    SIGNAL_DEVIATION,
    PooledRows,
    Prior,
    ShrunkCurves,
    SignalAdjusted,
    fit_pooled_line,
    search_prior,
)


def test_standard_deviations_are_listed_by_feature():
    prior = Prior(shared=0.1, intercept=0.2, slope=0.3)
    assert prior.shared_deviations(5).tolist() == [0.1, 0.1, *[SIGNAL_DEVIATION] * 3]
    assert prior.label_deviations(5).tolist() == [0.2, 0.3, 0.0, 0.0, 0.0]
    assert prior.shared_deviations(2).tolist() == [0.1, 0.1]
    assert prior.label_deviations(2).tolist() == [0.2, 0.3]


def pooled_rows(*arguments: object) -> PooledRows:
    """Return the rows that `fit_pooled_line` fits."""
    recorded = []

    def record(rows: PooledRows) -> np.ndarray:
        recorded.append(rows)
        return np.zeros((rows.n_labels, rows.features.shape[1]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pooling, "search_prior", lambda *_, **__: None)
        patch.setattr(pooling, "_average_over_priors", record)
        fit_pooled_line(*arguments)
    return recorded[0]


@pytest.mark.parametrize(
    ("logits", "limit"),
    [
        ([3.0, -50.0], 40.0),
        ([np.inf, 3.0, -5.0], 5 + np.log(2)),
        ([-np.inf, 3.0, 2.5], 3 + np.log(2)),
        ([np.inf, 1.5, -1.0], 2 + np.log(2)),
        ([np.inf, -np.inf], 2 + np.log(2)),
        ([np.inf, 39.0], 39 + np.log(2)),
        ([np.inf, 39.5], 40.0),
    ],
)
def test_infinite_logits_are_replaced_by_log_2_more_than_the_largest_finite_one(logits, limit):
    rows = pooled_rows(np.array(logits), np.zeros(len(logits), dtype=np.int64), np.arange(len(logits)) % 2 == 0, 1)
    np.testing.assert_allclose(np.sort(rows.offset), np.sort(np.clip(logits, -limit, limit)))


def test_features_of_pooled_lines_are_standardized_and_sorted_with_their_rows():
    generator = np.random.default_rng(2)
    logits = np.round(generator.normal(2, 3, 60))
    decision = generator.integers(0, 3, 60)
    correct = generator.random(60) < 0.5
    signals = generator.normal(size=(60, 2))
    rows = pooled_rows(logits, decision, correct, 4, signals)
    standardized = (logits - logits.mean()) / logits.std()
    expected = sorted(zip(decision, logits, correct, signals[:, 1], signals[:, 0], standardized, strict=True))
    columns = [rows.label, rows.offset, rows.correct, rows.features[:, 3], rows.features[:, 2], rows.features[:, 1]]
    np.testing.assert_allclose(np.array(columns).T, np.array(expected, dtype=float))
    assert (rows.features[:, 0] == 1).all()
    assert rows.n_labels == 4


@pytest.mark.parametrize(("spread", "scale"), [(0.0, 0.01), (0.004, 0.01), (0.02, 0.02)])
def test_a_small_spread_of_the_logits_is_not_stretched(spread, scale):
    logits = 1.5 + spread * np.tile([-1.0, 1.0], 10)
    rows = pooled_rows(logits, np.zeros(20, dtype=np.int64), np.arange(20) % 3 > 0, 1)
    np.testing.assert_allclose(rows.features[:, 1], (rows.offset - 1.5) / scale, atol=1e-9)


@pytest.mark.parametrize(
    ("n_rows", "max_rows", "selected"),
    [(10, 4, [0, 3, 6, 9]), (10, 10, range(10)), (10, 11, range(10)), (11, 3, [0, 5, 10]), (1, 1000, [0])],
)
def test_the_first_search_uses_evenly_spaced_rows(n_rows, max_rows, selected):
    numbers = np.arange(float(n_rows))
    rows = PooledRows(numbers, numbers[:, None] + 100, numbers.astype(int), numbers > 2, n_labels=77)
    found = pooling._evenly_spaced_rows(rows, max_rows)
    assert found.offset.tolist() == [*selected]
    assert found.features[:, 0].tolist() == [100 + number for number in selected]
    assert found.label.tolist() == [*selected]
    assert found.correct.tolist() == [number > 2 for number in selected]
    assert found.n_labels == 77


class RecordedFits:
    """Rows whose log evidence rises with each level, and the priors that were fitted."""

    log_odds = 3.0

    def __init__(self) -> None:
        self.fits: dict[Prior, SimpleNamespace] = {}
        self.starts: list[tuple[Prior, Prior]] = []

    def fit(self, prior: Prior, start: Prior) -> SimpleNamespace:
        self.starts.append((prior, start))
        return SimpleNamespace(log_evidence=100 * (prior.shared + prior.intercept))


@pytest.mark.parametrize(("reach", "expected"), [(1, 1.0), (2, 4.0), (6, 4.0)])
def test_a_search_moves_each_part_by_its_reach_in_at_most_four_rounds(reach, expected):
    rows = RecordedFits()
    found = search_prior(Prior(), rows, reach)
    assert MAX_SEARCH_ROUNDS == 4
    assert found == Prior(shared=expected, intercept=expected)
    assert len(rows.starts) == len(rows.fits)
    assert set(rows.fits) == {prior for prior, _ in rows.starts}
    for prior, start in rows.starts:
        assert sum(getattr(prior, part) != getattr(start, part) for part in vars(prior)) <= 1


def test_signals_are_added_with_the_weights_that_labels_share():
    lines = Lines(np.array([1.0, 2.0]), np.array([0.5, -0.5]), farthest=3.0)
    curves = Curves(np.array([0.0, 1.0]), np.zeros((2, 2)), np.array([9, 9]), ("none", "none"))
    model = SignalAdjusted(ShrunkCurves(lines, curves, np.zeros(2)), np.array([1.0, 3.0]))
    decisions = CalibratedDecisions(
        np.array([2.0, 9.0, -1.0]), np.array([0, 1, 1]), signals=np.array([[1.0, 2.0], [0.5, 1.5], [0.0, 4.0]])
    )
    # the line of label 1 is evaluated at 3, the farthest logit, in place of 9
    np.testing.assert_allclose(model(decisions), [2.5 + 1 + 6, 5.5 + 0.5 + 4.5, -2.5 + 12])
