"""The guarantee of thresholds on a score, over 1,000 draws, beside the bound that people compute by hand."""

import numpy as np
import pytest
from scipy.special import betaincinv, expit
from sklearn.metrics import precision_recall_curve

from relmap.routing.score_thresholds import find_score_thresholds

pytestmark = pytest.mark.study

DRAWS = 1000
TARGET = 0.9
CONFIDENCE = 0.95
ROWS = 1500
GROUPED = 10  # rows of a group
SLOPE = 2.0


def draw(generator: np.random.Generator, n: int, deviation: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw scores, labels and groups; labels of a group share an effect with this standard deviation, in logits."""
    group = np.arange(n) // GROUPED
    score = generator.normal(size=n)
    effect = generator.normal(0, deviation, group.max() + 1)[group]
    return score, generator.random(n) < expit(SLOPE * score + effect), group


def precision(score: np.ndarray, positive: np.ndarray, group: np.ndarray | None, threshold: float) -> float:
    """The precision at or above a threshold; with groups the mean over groups that have such rows."""
    chosen = score >= threshold
    if group is None:
        return float(positive[chosen].mean())
    rows = np.bincount(group[chosen])
    hits = np.bincount(group[chosen], positive[chosen], len(rows))
    return float((hits[rows > 0] / rows[rows > 0]).mean())


def by_hand(score: np.ndarray, positive: np.ndarray) -> float | None:
    """The lowest threshold whose binomial lower bound reaches the target, which ignores the search and the groups."""
    found, _, thresholds = precision_recall_curve(positive, score)
    rows = len(score) - np.searchsorted(np.sort(score), thresholds)
    hits = np.rint(found[:-1] * rows)
    low = np.nan_to_num(betaincinv(hits, rows - hits + 1, 1 - CONFIDENCE))
    reached = np.flatnonzero(low >= TARGET)
    return float(thresholds[reached[0]]) if len(reached) else None


@pytest.mark.parametrize("deviation", [0.0, 1.0], ids=["independent rows", "groups"])
def test_the_target_is_missed_in_at_most_5_percent_of_draws(deviation):
    generator = np.random.default_rng(0)
    grouped = deviation > 0
    everyone = draw(generator, 1_000_000, deviation)
    population = everyone if grouped else (*everyone[:2], None)
    missed = {"ours": 0, "by hand": 0}
    found = dict.fromkeys(missed, 0)
    covered = dict.fromkeys(missed, 0.0)
    for seed in range(DRAWS):
        score, positive, group = draw(generator, ROWS, deviation)
        made = find_score_thresholds(
            score,
            positive,
            groups=group if grouped else None,
            precision=TARGET,
            recall=None,
            npv=None,
            confidence=CONFIDENCE,
            seed=seed,
        )
        for name, threshold in (("ours", made.thresholds[0].threshold), ("by hand", by_hand(score, positive))):
            if threshold is None:
                continue
            found[name] += 1
            covered[name] += float((score >= threshold).mean())
            missed[name] += precision(*population, threshold) < TARGET
    for name, misses in missed.items():
        print(
            f"{name}: missed {misses / DRAWS:.1%}, found {found[name] / DRAWS:.1%}, "
            f"covers {covered[name] / max(found[name], 1):.1%} of the rows where found"
        )
    noise = 2 * np.sqrt(0.05 * 0.95 / DRAWS)
    assert missed["ours"] / DRAWS <= 0.05 + noise
    assert missed["by hand"] >= missed["ours"]
