"""Statistics computed by their definitions, for tests: repeated rows, resampled clusters, loops over groups.

Nothing here calls the code under test. A row of weight w is repeated, a group is a set of row numbers, and a tie counts
as the mean over random orders of the tied rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import expit
from scipy.stats import norm

MIN_RELIABILITY = 1e-6
N_ECE_BINS = 15
ROUNDING_TOLERANCE = 1e-9  # a difference of metrics that is zero can be computed as up to ±1e-9
MIN_CLUSTERS = 10  # for an interval of a share
AUTOMATIC_TENTHS = {10: 9, 30: 7, 50: 5, 90: 1}  # percentage of reviewed rows -> tenths of automatic rows


def log_losses(logit: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Return the log loss of each row, shape (n,), with reliabilities clipped to [1e-6, 1 - 1e-6]."""
    reliability = np.clip(expit(logit), MIN_RELIABILITY, 1 - MIN_RELIABILITY)
    return -np.log(np.where(correct, reliability, 1 - reliability))


def naive_ranks(logit: list[float]) -> list[int]:
    """Rank rows from 1 for the lowest logit; ties by row order."""
    order = sorted(range(len(logit)), key=lambda row: (logit[row], row))
    return [order.index(row) + 1 for row in range(len(logit))]


def expected_errors(logit: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Return the probability of an error at each rank, the most reliable row first, shape (n,)."""
    order = np.argsort(-logit, kind="stable")
    wrong = (~correct)[order].astype(float)
    for value in np.unique(logit):
        tied = logit[order] == value
        wrong[tied] = wrong[tied].mean()
    return wrong


def average_precision_of_errors(logit: np.ndarray, correct: np.ndarray) -> float:
    """Return the expected average precision of finding errors, the least reliable row first; NaN without errors.

    Tied rows are in random order. If k of n tied rows are errors, and the one at position i is an error, each of the i
    tied rows before it is an error with probability (k - 1) / (n - 1).
    """
    n_errors = int((~correct).sum())
    n_preceding = 0
    n_preceding_errors = 0
    total = 0.0
    for value in np.unique(logit):
        tied = logit == value
        n_tied = int(tied.sum())
        n_tied_errors = int((~correct[tied]).sum())
        position = np.arange(n_tied)
        other_error_rate = (n_tied_errors - 1) / (n_tied - 1) if n_tied > 1 else 0.0
        if n_tied_errors:
            expected_errors_found = n_preceding_errors + 1 + position * other_error_rate
            precision = n_tied_errors / n_tied * expected_errors_found / (n_preceding + position + 1)
            total += float(precision.sum())
        n_preceding += n_tied
        n_preceding_errors += n_tied_errors
    return total / n_errors if n_errors else np.nan


def calibration_error(confidence: np.ndarray, correct: np.ndarray) -> float:
    """Return the expected calibration error over 15 bins, each closed on the left."""
    edges = np.arange(1, N_ECE_BINS) / N_ECE_BINS
    total = 0.0
    for number in range(N_ECE_BINS):
        in_bin = np.searchsorted(edges, confidence, side="right") == number
        if in_bin.any():
            total += in_bin.mean() * abs(confidence[in_bin].mean() - correct[in_bin].mean())
    return total


def metrics(logit: np.ndarray, probability: np.ndarray, correct: np.ndarray) -> dict[str, float]:
    """Return every metric of a score by name.

    `found_30` is the number of errors in 1,000 reviews of the least reliable 30%.
    """
    n = len(correct)
    errors = np.cumsum(expected_errors(logit, correct))
    values = {
        "nll_correct": log_losses(logit, correct).mean(),
        "aupr_error": average_precision_of_errors(logit, correct),
        "aurc": (errors / np.arange(1, n + 1)).mean(),
        "augrc": (errors / n).mean(),
        "ece": calibration_error(probability, correct),
    }
    for tenths in (1, 5, 7, 9):
        n_automatic = max(1, -(-tenths * n // 10))
        values[f"selacc_{tenths}0"] = 1 - errors[n_automatic - 1] / n_automatic
    for percent, tenths in AUTOMATIC_TENTHS.items():
        n_automatic = max(1, -(-tenths * n // 10))
        n_reviewed = n - n_automatic
        n_found = errors[-1] - errors[n_automatic - 1]
        values[f"found_{percent}"] = 1000 * n_found / n_reviewed if n_reviewed else np.nan
    return values


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows with a whole number of copies each, in clusters.

    Attributes:
        copies: How often each row counts, shape (n,), int.
        cluster: Cluster of each row, shape (n,), 0..C-1, numbered in the order of their names.
    """

    copies: np.ndarray
    cluster: np.ndarray

    @classmethod
    def from_groups(cls, copies: np.ndarray, group: np.ndarray | None) -> "Sample":
        """Number the groups; without groups each row is a cluster."""
        if group is None:
            return cls(copies, np.arange(len(copies)))
        names = sorted(set(group.tolist()))
        return cls(copies, np.array([names.index(name) for name in group.tolist()]))

    @property
    def rows(self) -> np.ndarray:
        """Numbers of the rows, each as often as it counts."""
        return np.repeat(np.arange(len(self.copies)), self.copies)

    def resamples(self, n_resamples: int, seed: int = 0) -> Iterator[np.ndarray]:
        """Resample clusters with replacement, and yield the rows of each resample."""
        generator = np.random.default_rng(seed)
        members = [self.rows[self.cluster[self.rows] == cluster] for cluster in range(self.cluster.max() + 1)]
        for _ in range(n_resamples):
            sampled = generator.integers(len(members), size=len(members))
            yield np.concatenate([members[cluster] for cluster in sampled])

    def mean_with_standard_error(self, values: np.ndarray) -> tuple[float, float]:
        """Return the mean of a value of each row, and its cluster-robust standard error."""
        rows = self.rows
        mean = values[rows].mean()
        deviations = values[rows] - mean
        n_clusters = self.cluster.max() + 1
        sums = [deviations[self.cluster[rows] == cluster].sum() for cluster in range(n_clusters)]
        variance_of_sum = n_clusters / (n_clusters - 1) * np.square(sums).sum()
        return mean, float(np.sqrt(variance_of_sum) / len(rows))

    def wilson(self, correct: np.ndarray, chosen: np.ndarray) -> tuple[float, float, float]:
        """Return the share of correct rows among the chosen ones, and Wilson's interval at the effective sample size.

        The effective sample size is the number of independent rows that would estimate the share with the same
        variance as these clusters and copies. The interval is NaN with fewer than 10 clusters.
        """
        rows = self.rows[chosen[self.rows]]
        share = correct[rows].mean()
        clusters = np.unique(self.cluster[rows])
        total = len(rows)
        sizes = np.array([(self.cluster[rows] == cluster).sum() for cluster in clusters])
        n_correct = np.array([correct[rows][self.cluster[rows] == cluster].sum() for cluster in clusters])
        if 0 < share < 1:
            effective = share * (1 - share) * total**2 / np.square(n_correct - share * sizes).sum()
        else:
            effective = total**2 / np.square(sizes).sum()
        effective = min(effective, total**2 / np.square(self.copies[chosen].astype(float)).sum())
        if len(clusters) < MIN_CLUSTERS:
            return share, np.nan, np.nan
        z = norm.ppf(0.975)
        center = (share + z**2 / (2 * effective)) / (1 + z**2 / effective)
        half_width = z / (1 + z**2 / effective) * np.sqrt(share * (1 - share) / effective + z**2 / (4 * effective**2))
        return share, max(center - half_width, 0), min(center + half_width, 1)


def mean(values: np.ndarray) -> float:
    """Return the mean of values; NaN if there are none."""
    return float(values.mean()) if len(values) else np.nan


def percentile_interval(replicates: np.ndarray) -> tuple[float, float]:
    """Return the 95% interval of bootstrap replicates; NaN if more than 5% of them are not defined."""
    defined = replicates[~np.isnan(replicates)]
    if len(replicates) - len(defined) > 0.05 * len(replicates):
        return np.nan, np.nan
    return tuple(np.quantile(defined, [0.025, 0.975]))


def p_value(replicates: np.ndarray) -> float:
    """Return the two-sided p-value of the hypothesis that a difference is 0, from its bootstrap replicates.

    It is NaN if more than 5% of the replicates are not defined.
    """
    defined = replicates[~np.isnan(replicates)]
    if len(replicates) - len(defined) > 0.05 * len(replicates):
        return np.nan
    smaller = min((defined <= ROUNDING_TOLERANCE).sum(), (defined >= -ROUNDING_TOLERANCE).sum())
    return min(1.0, 2 * (smaller + 1) / (len(defined) + 1))


class Adam:
    """Adam with its published decay rates."""

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.first = 0.0
        self.second = 0.0
        self.count = 0

    def step(self, gradient: np.ndarray) -> np.ndarray:
        """Return the next step for a gradient."""
        self.count += 1
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.999 * self.second + 0.001 * gradient**2
        first = self.first / (1 - 0.9**self.count)
        second = self.second / (1 - 0.999**self.count)
        return -self.learning_rate * first / (np.sqrt(second) + 1e-8)
