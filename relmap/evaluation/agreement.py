"""Agreement of decisions with true labels: accuracy, precision and recall of each label, and Cohen's kappa.

If the file from which the labelled rows were sampled is given, accuracy and precision are estimated for all its rows,
by prediction-powered inference with the variance-minimizing weight (Angelopoulos, Duchi and Zrnic, 2023): the accuracy
of the labelled rows, plus a multiple of the difference in mean reliability between all rows and the labelled ones. The
estimates are valid for any map; a map without information leaves their intervals unchanged. Recall and kappa use the
frequencies of the decisions in the file.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy

from relmap.errors import InputError, option
from relmap.evaluation.sample import EvaluationSample, JsonNumbers
from relmap.io.files import Predictions, reading_notes
from relmap.maps.document import MapDocument
from relmap.maps.score import Progress, score_file
from relmap.metrics.intervals import (
    UNKNOWN_INTERVAL,
    finite_or_none,
    format_interval,
    percentile_interval,
    share_confidence_interval,
)
from relmap.metrics.resampling import MIN_BOOTSTRAP_GROUPS

MAX_LISTED_LABELS = 5


@dataclass(frozen=True, eq=False)
class PopulationSummary:
    """Decisions and reliability of all rows from which the labelled ones were sampled.

    Attributes:
        decision_counts: Number of rows of each decision, shape (K,).
        mean_reliability: Mean reliability of the rows of each decision, shape (K,); 0 for decisions without rows.
        notes: Sentences on how the file was read.
    """

    decision_counts: np.ndarray
    mean_reliability: np.ndarray
    notes: tuple[str, ...] = ()

    @classmethod
    def from_file(cls, document: MapDocument, predictions: Predictions, progress: Progress) -> "PopulationSummary":
        """Score all rows of a file.

        Args:
            document: The map.
            predictions: The file.
            progress: Called with the number of rows that are done.

        Returns:
            The summary.

        Raises:
            InputError: The file has no rows, or cannot be read.
        """
        _, scores = score_file(document, predictions, progress)
        if scores.is_empty():
            raise InputError(
                f"{predictions.path} has no rows; {option('unlabelled')} must name the file from which the labelled "
                "rows were sampled"
            )
        summary = cls.from_scores(scores["decision"].to_numpy(), scores["logit"].to_numpy(), document.n_labels)
        return replace(summary, notes=tuple(reading_notes(predictions)))

    @classmethod
    def from_scores(cls, decision: np.ndarray, logit: np.ndarray, n_labels: int) -> "PopulationSummary":
        """Summarize scored rows.

        Args:
            decision: Decided label 0..K-1 of each row, shape (N,).
            logit: Logit of the reliability of each row, shape (N,).
            n_labels: Number of labels K.

        Returns:
            The summary.
        """
        counts = np.bincount(decision, minlength=n_labels)
        sums = np.bincount(decision, scipy.special.expit(logit), n_labels)
        return cls(decision_counts=counts, mean_reliability=sums / np.maximum(counts, 1))

    def pool_decisions(self) -> "PopulationSummary":
        """Return the summary of all decisions together, as if there were one label."""
        mean = np.average(self.mean_reliability, weights=self.decision_counts)
        return PopulationSummary(
            decision_counts=self.decision_counts.sum(keepdims=True), mean_reliability=np.array([mean])
        )


def measure_agreement(
    document: MapDocument, sample: EvaluationSample, population: PopulationSummary | None = None
) -> dict[str, Any]:
    """Estimate accuracy, Cohen's kappa, and precision and recall of each label, with 95% intervals.

    Args:
        document: The map.
        sample: Labelled rows.
        population: All rows from which they were sampled; None to describe the labelled rows only.

    Returns:
        Numbers for JSON. Undefined numbers are None, as are intervals for fewer than ten groups.
    """
    assert sample.rows.label is not None
    label = sample.rows.label[sample.row_number]
    sums = _ResampledSums(sample)
    n_correct = sums.by_cell(sample.correct, sample.decision, document.n_labels)
    n_labelled = sums.by_cell(np.ones(len(label)), sample.decision, document.n_labels)
    reliability_sum = sums.by_cell(sample.probability["reliability"], sample.decision, document.n_labels)
    total_correct = n_correct.sum(axis=0, keepdims=True)
    total_labelled = n_labelled.sum(axis=0, keepdims=True)
    total_reliability = reliability_sum.sum(axis=0, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = _estimate_accuracy(n_correct, n_labelled, reliability_sum, population)
        pooled_population = None if population is None else population.pool_decisions()
        accuracy = _estimate_accuracy(total_correct, total_labelled, total_reliability, pooled_population)
        if population is None:
            decision_share = n_labelled / total_labelled
        else:
            decision_share = (population.decision_counts / population.decision_counts.sum())[:, None]
        label_share = _estimate_label_shares(sums, label, decision_share, n_labelled)
        # if a decision of the file has no labelled rows, the accuracy of its rows is unknown: estimates with it are NaN
        correct_share = np.where(decision_share > 0, decision_share * n_correct / n_labelled, 0)
        chance_agreement = (decision_share * label_share).sum(axis=0)
        kappa = (correct_share.sum(axis=0) - chance_agreement) / (1 - chance_agreement)
        recall = correct_share / label_share
    n_groups_by_decision = _count_groups(sample, sample.decision, document.n_labels)
    n_groups_by_label = _count_groups(sample, label, document.n_labels)
    labels = []
    for k, name in enumerate(document.shown_names):
        labels.append(
            {
                "name": name,
                "precision": _estimate_with_interval(precision[k], n_groups_by_decision[k]),
                "recall": _estimate_with_interval(recall[k], n_groups_by_label[k]),
            }
        )
    return {
        "rows": len(sample.rows) if population is None else int(population.decision_counts.sum()),
        "accuracy": _estimate_with_interval(accuracy[0], sample.n_clusters),
        "kappa": _estimate_with_interval(kappa, sample.n_clusters),
        "labels": labels,
    }


def describe_agreement(agreement: dict[str, Any]) -> list[str]:
    """Describe the agreement of decisions with true labels.

    Args:
        agreement: Numbers of `measure_agreement`.

    Returns:
        One line for each estimate.
    """
    lines = []
    kappa = agreement["kappa"]
    if kappa["value"] is not None:
        interval = format_interval(kappa["low"], kappa["high"], ".2f")
        lines.append(f"Cohen's kappa, the agreement with true labels beyond chance: {kappa['value']:z.2f}{interval}.")
    for label in agreement["labels"][:MAX_LISTED_LABELS]:
        precision = format_share(label["precision"])
        recall = format_share(label["recall"])
        lines.append(f"  {label['name']}: precision {precision}, recall {recall}.")
    n_omitted = len(agreement["labels"]) - MAX_LISTED_LABELS
    if n_omitted > 0:
        lines.append(f"  labels not shown: {n_omitted}")
    return lines


def format_share(estimate: JsonNumbers) -> str:
    """Format a share in percent, with its interval.

    Args:
        estimate: `value`, `low` and `high` in [0, 1]; None if unknown.

    Returns:
        Text such as "81.2% (78.0 to 84.1%)".
    """
    value = estimate["value"]
    low = estimate["low"]
    high = estimate["high"]
    if value is None:
        return "unknown"
    if low is None or high is None:
        return f"{100 * value:.1f}%"
    return f"{100 * value:.1f}% ({100 * low:.1f} to {100 * high:.1f}%)"


@dataclass(frozen=True, eq=False)
class _ResampledSums:
    """Sums over the rows of a sample, and over each of its R resamples."""

    sample: EvaluationSample

    def by_cell(self, values: np.ndarray, cell: np.ndarray, n_cells: int) -> np.ndarray:
        """Sum values by cell, such as the decision, shape (n_cells, 1 + R); column 0 has the sums over all rows."""
        sums = np.bincount(cell, values, n_cells)[:, None]
        if self.sample.resamples is None:
            return sums
        return np.hstack([sums, self.sample.resamples.sums(values, cell, n_cells)])


def _estimate_label_shares(
    sums: _ResampledSums, label: np.ndarray, decision_share: np.ndarray, n_labelled: np.ndarray
) -> np.ndarray:
    """Estimate the share of each true label, P(label) = sum_d P(decision d) P(label | decision d), shape (K, 1 + R)."""
    label_share = np.zeros_like(n_labelled)
    for decision in np.flatnonzero(decision_share[:, 0] > 0):
        has_decision = sums.sample.decision == decision
        label_counts = sums.by_cell(has_decision, label, len(n_labelled))
        joint_share = decision_share[decision] * label_counts / n_labelled[decision]
        label_share += np.where(decision_share[decision] > 0, joint_share, 0)
    return label_share


def _count_groups(sample: EvaluationSample, cell: np.ndarray, n_cells: int) -> np.ndarray:
    """For each cell, count the groups that have a row in it, shape (n_cells,)."""
    pair = np.sort(cell * sample.n_clusters + sample.cluster)  # np.unique takes ten times as long
    is_first = np.diff(pair, prepend=-1) > 0
    return np.bincount(pair[is_first] // sample.n_clusters, minlength=n_cells)


def _estimate_accuracy(
    n_correct: np.ndarray, n_labelled: np.ndarray, reliability_sum: np.ndarray, population: PopulationSummary | None
) -> np.ndarray:
    """Estimate the accuracy of each cell, with prediction-powered inference if the population is known.

    With the accuracy a and the mean reliability r of the labelled rows, and the mean reliability m of the population,
    the estimate is a + w (m - r). The weight w = -cov(a, m - r) / var(m - r) minimizes the variance; it is limited to
    [0, 1].

    Args:
        n_correct: Number of correct labelled rows in each cell, shape (cells, 1 + R): for all rows and R resamples.
        n_labelled: Number of labelled rows, same shape.
        reliability_sum: Sum of the reliabilities of the labelled rows, same shape.
        population: Mean reliability of all rows of each cell; None to return the accuracy of the labelled rows.

    Returns:
        Estimate from the labelled rows and from each resample of them, shape (cells, 1 + R).
    """
    accuracy = np.asarray(n_correct / n_labelled)
    if population is None or accuracy.shape[1] == 1:
        return accuracy
    difference = population.mean_reliability[:, None] - reliability_sum / n_labelled
    # NaN in a resample without labelled rows of the cell; 0 keeps it from making the weight NaN
    replicates = np.nan_to_num(np.stack([accuracy, difference])[:, :, 1:])
    centered = replicates - replicates.mean(axis=2, keepdims=True)
    covariance = (centered[0] * centered[1]).sum(axis=1)
    variance = (centered[1] ** 2).sum(axis=1)
    weight = np.clip(-covariance / np.where(variance > 0, variance, np.inf), 0, 1)
    weight = weight * (population.decision_counts > 0)
    return np.asarray(np.clip(accuracy + weight[:, None] * difference, 0, 1))


def _estimate_with_interval(value_and_replicates: np.ndarray, n_groups: int) -> JsonNumbers:
    """Return a value and its 95% interval.

    If all resamples give 0 or all give 1, as for rows that are all correct, the interval is the exact binomial interval
    in which each group counts as one independent row.

    Args:
        value_and_replicates: The value and its R bootstrap replicates, shape (1 + R,).
        n_groups: Number of groups.
    """
    value = float(value_and_replicates[0])
    has_interval = n_groups >= MIN_BOOTSTRAP_GROUPS
    interval = percentile_interval(value_and_replicates[1:]) if has_interval else UNKNOWN_INTERVAL
    low = interval.low
    high = interval.high
    if low == high and value in (0, 1):
        exact_low, exact_high = share_confidence_interval(np.array([value * n_groups]), np.array([n_groups]))
        low = float(exact_low[0])
        high = float(exact_high[0])
    return {"value": finite_or_none(value), "low": finite_or_none(low), "high": finite_or_none(high)}
