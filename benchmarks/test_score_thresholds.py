"""Guarantee of score thresholds in 1,000 simulations, compared with a pointwise binomial bound."""

import numpy as np
import pytest
from scipy.special import betaincinv, expit
from sklearn.metrics import precision_recall_curve

from relmap.routing.score_thresholds import find_score_thresholds

pytestmark = pytest.mark.study

N_SIMULATIONS = 1000
TARGET = 0.9
CONFIDENCE = 0.95
ROWS = 1500
ROWS_PER_GROUP = 10
SLOPE = 2.0


def simulate(generator: np.random.Generator, n: int, deviation: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw scores, labels and groups; labels of a group share an effect with this standard deviation, in logits."""
    group = np.arange(n) // ROWS_PER_GROUP
    score = generator.normal(size=n)
    effect = generator.normal(0, deviation, group.max() + 1)[group]
    return score, generator.random(n) < expit(SLOPE * score + effect), group


def true_precision(score: np.ndarray, positive: np.ndarray, group: np.ndarray | None, threshold: float) -> float:
    """Return the precision at or above a threshold; with groups, its mean over groups with such rows."""
    selected = score >= threshold
    if group is None:
        return float(positive[selected].mean())
    n_rows = np.bincount(group[selected])
    n_positive = np.bincount(group[selected], positive[selected], len(n_rows))
    return float((n_positive[n_rows > 0] / n_rows[n_rows > 0]).mean())


def binomial_threshold(score: np.ndarray, positive: np.ndarray) -> float | None:
    """Return the lowest threshold with a sufficient binomial bound; it ignores the search and the groups."""
    precision_values, _, thresholds = precision_recall_curve(positive, score)
    n_rows = len(score) - np.searchsorted(np.sort(score), thresholds)
    n_positive = np.rint(precision_values[:-1] * n_rows)
    lower_bound = np.nan_to_num(betaincinv(n_positive, n_rows - n_positive + 1, 1 - CONFIDENCE))
    reached = np.flatnonzero(lower_bound >= TARGET)
    return float(thresholds[reached[0]]) if len(reached) else None


@pytest.mark.parametrize("deviation", [0.0, 1.0], ids=["independent rows", "groups"])
def test_precision_target_is_missed_in_at_most_5_percent_of_samples(deviation):
    generator = np.random.default_rng(0)
    has_groups = deviation > 0
    full_population = simulate(generator, 1_000_000, deviation)
    population = full_population if has_groups else (*full_population[:2], None)
    missed = {"learn then test": 0, "pointwise binomial bound": 0}
    found = dict.fromkeys(missed, 0)
    covered = dict.fromkeys(missed, 0.0)
    for seed in range(N_SIMULATIONS):
        score, positive, group = simulate(generator, ROWS, deviation)
        result = find_score_thresholds(
            score,
            positive,
            groups=group if has_groups else None,
            precision=TARGET,
            recall=None,
            npv=None,
            confidence_level=CONFIDENCE,
            seed=seed,
        )
        for name, threshold in (
            ("learn then test", result.thresholds[0].threshold),
            ("pointwise binomial bound", binomial_threshold(score, positive)),
        ):
            if threshold is None:
                continue
            found[name] += 1
            covered[name] += float((score >= threshold).mean())
            missed[name] += true_precision(*population, threshold) < TARGET
    for name, misses in missed.items():
        print(
            f"{name}: missed {misses / N_SIMULATIONS:.1%}, found {found[name] / N_SIMULATIONS:.1%}, "
            f"covers {covered[name] / max(found[name], 1):.1%} of the rows where found"
        )
    noise = 2 * np.sqrt(0.05 * 0.95 / N_SIMULATIONS)

    assert missed["learn then test"] / N_SIMULATIONS <= 0.05 + noise
    assert missed["pointwise binomial bound"] >= missed["learn then test"]
