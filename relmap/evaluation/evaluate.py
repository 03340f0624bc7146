"""Evaluation of a reliability map on labelled rows: the reliability compared with the confidence.

Both are scores of the same fixed decisions. All intervals come from one paired bootstrap over groups
(`relmap.metrics.resampling`), given the fitted map. Rows that were sampled with known probabilities are weighted by the
inverse of their probability.
"""

from typing import Any

import numpy as np

from relmap.evaluation.sample import SCORES, EvaluationSample, JsonNumbers
from relmap.maps.document import MapDocument
from relmap.metrics.intervals import Estimate, effective_rows, errors_found_per_1000, finite_or_none, wilson_interval
from relmap.metrics.probability import ece
from relmap.metrics.registry import MetricValue, ReliabilityView, compute_reliability_metrics, metrics_for_views
from relmap.metrics.reliability import count_retained_rows
from relmap.metrics.resampling import BOOTSTRAP_SEED, MIN_BOOTSTRAP_GROUPS, Resamples
from relmap.metrics.spread import LabelCells

EVALUATED_METRICS = (*(metric.key for metric in metrics_for_views(ReliabilityView)), "ece")
RETAINED_TENTHS = {10: 9, 30: 7, 50: 5, 90: 1}  # percent of the rows that are reviewed -> tenths that are not

MetricsByScore = dict[str, dict[str, MetricValue]]  # by score and metric: floats, or replicates, shape (R,)


def evaluate_map(document: MapDocument, sample: EvaluationSample) -> dict[str, Any]:
    """Compute every metric of the confidence and of the reliability, with intervals of the change.

    Args:
        document: The map.
        sample: Labelled rows that the map has scored.

    Returns:
        Numbers for JSON: those of `compare_scores`, the accuracy, results by label, and the label spread. Undefined
        numbers are None, as are intervals for fewer than ten groups. Sampling weights are used, except for numbers of
        rows and of errors, and for the label spread.
    """
    label_cells = LabelCells.from_decisions(
        sample.scored.confidence, sample.rows.decision, sample.rows.correct, sample.params
    )
    all_rows = np.zeros(len(sample), dtype=np.int64)
    return compare_scores(sample) | {
        "accuracy": _accuracy_by_cell(sample, all_rows, n_cells=1)[0],
        "labels": _evaluate_labels(document, sample),
        "label_spread": {
            "value": finite_or_none(label_cells.spread()),
            "shuffled_p95": finite_or_none(label_cells.shuffled_quantile(BOOTSTRAP_SEED)),
        },
    }


def compare_scores(sample: EvaluationSample) -> dict[str, Any]:
    """Compare the reliability with the confidence.

    Args:
        sample: Labelled rows with both scores.

    Returns:
        Numbers for JSON: sizes of the sample, each metric, and errors found by reviews of the least reliable rows.
    """
    values = _measure_scores(sample)
    replicates = None if sample.resamples is None else _measure_scores(sample, sample.resamples)
    n_rows = len(sample.rows)
    errors_per_1000_random_reviews = float(1000 * np.mean(~sample.correct))
    reviews = []
    for percent, tenths in RETAINED_TENTHS.items():
        review: JsonNumbers = {
            "reviewed": percent / 100,
            "reviews": int(n_rows - count_retained_rows(n_rows, tenths)),
            "at_random": errors_per_1000_random_reviews,
        }
        reviews.append(review | _compare_metric(f"found_{percent}", values, replicates))
    return {
        "rows": n_rows,
        "errors": int(np.count_nonzero(~sample.rows.correct)),
        "groups": sample.n_clusters,
        "grouped": sample.rows.group is not None,
        "weighted": sample.rows.weight is not None,
        "resamples": 0 if sample.resamples is None else sample.resamples.resamples,
        "metrics": {name: _compare_metric(name, values, replicates) for name in EVALUATED_METRICS},
        "reviews": reviews,
    }


def _compare_metric(name: str, values: MetricsByScore, replicates: MetricsByScore | None) -> JsonNumbers:
    """Compare one metric of the reliability with that of the confidence."""
    estimates = {}
    for score in SCORES:
        score_replicates = None if replicates is None else np.asarray(replicates[score][name])
        estimates[score] = Estimate(float(values[score][name]), score_replicates)
    change = estimates["reliability"] - estimates["confidence"]
    interval = change.interval
    return {
        "confidence": finite_or_none(estimates["confidence"].value),
        "reliability": finite_or_none(estimates["reliability"].value),
        "change": finite_or_none(change.value),
        "low": finite_or_none(interval.low),
        "high": finite_or_none(interval.high),
        "p": finite_or_none(change.p_value),
    }


def _measure_scores(sample: EvaluationSample, resamples: Resamples | None = None) -> MetricsByScore:
    """Compute every metric of both scores, for all rows or for each of R resamples.

    The metric `found_30` is the number of errors found per 1,000 reviews if the 30% of the rows with the lowest score
    are reviewed.

    Returns:
        Metrics by score and name: floats, or replicates, shape (R,).
    """
    metrics_by_score: MetricsByScore = {}
    for score in SCORES:
        metrics = compute_reliability_metrics(sample.logit[score], sample.correct, sample.params, resamples)
        compute_ece = ece if resamples is None else resamples.ece
        metrics["ece"] = compute_ece(sample.probability[score], sample.correct, sample.params.ece_bins)
        for percent, tenths in RETAINED_TENTHS.items():
            retained_accuracy = metrics[f"selacc_{tenths}0"]
            metrics[f"found_{percent}"] = _errors_found(sample, tenths, retained_accuracy, resamples)
        metrics_by_score[score] = metrics
    return metrics_by_score


def _errors_found(
    sample: EvaluationSample, tenths: int, retained_accuracy: MetricValue, resamples: Resamples | None
) -> MetricValue:
    """Return the errors found per 1,000 reviews if all rows are reviewed but the retained ones.

    Args:
        sample: Labelled rows.
        tenths: Tenths of the rows that are retained, those with the highest score.
        retained_accuracy: Accuracy of the retained rows.
        resamples: Resamples for which the number is computed; None for all rows.
    """
    is_wrong = ~sample.correct
    n_rows: int | np.ndarray = len(sample)
    n_errors: int | np.ndarray = int(np.count_nonzero(is_wrong))
    if resamples is not None:
        n_rows = resamples.rows.astype(int)
        n_errors = resamples.sums(is_wrong)[0]
    n_retained = count_retained_rows(n_rows, tenths)
    retained_errors = np.round(n_retained * (1 - retained_accuracy), 9)  # without rounding errors of the accuracy
    with np.errstate(invalid="ignore"):  # 0 / 0 if there are so few rows that none is reviewed
        found: MetricValue = errors_found_per_1000(n_errors, retained_errors, np.float64(n_rows - n_retained))
    return found


def _evaluate_labels(document: MapDocument, sample: EvaluationSample) -> list[dict[str, Any]]:
    """Compute the accuracy and the mean of each score for the decisions of each label."""
    n_labels = document.n_labels
    accuracy = _accuracy_by_cell(sample, sample.decision, n_labels)
    n_rows = np.bincount(sample.rows.decision, minlength=n_labels).tolist()
    n_copies = np.bincount(sample.decision, minlength=n_labels)
    divisor = np.where(n_copies, n_copies, np.nan)
    mean_score = {}
    for score in SCORES:
        mean_score[score] = np.bincount(sample.decision, sample.probability[score], n_labels) / divisor
    fallback = document.projection.fallback
    labels = []
    for label in range(n_labels):
        labels.append(
            {
                "label": label,
                "name": document.shown_names[label],
                "rows": n_rows[label],
                "fit_rows": document.projection.rows_by_label[label] if fallback else None,
                "fallback": fallback[label] if fallback else None,
                "mean_confidence": finite_or_none(mean_score["confidence"][label]),
                "mean_reliability": finite_or_none(mean_score["reliability"][label]),
                "correct": accuracy[label],
            }
        )
    return labels


def accuracy_of_rows(sample: EvaluationSample, is_selected: np.ndarray) -> JsonNumbers:
    """Compute the accuracy of selected rows, with Wilson's interval at the effective number of rows.

    Args:
        sample: Labelled rows, n copies.
        is_selected: Whether each copy is selected, shape (n,), bool.

    Returns:
        `value`, `low` and `high`; None if undefined.
    """
    return _accuracy_by_cell(sample, is_selected.astype(np.int64), n_cells=2)[1]


def _accuracy_by_cell(sample: EvaluationSample, cell: np.ndarray, n_cells: int) -> list[JsonNumbers]:
    """Compute the share of correct rows in each cell, with Wilson's interval at the effective number of rows.

    The effective number of rows is the number of independent rows whose share of correct rows would have the same
    variance as the share of these rows, which are clustered by group (Kish, 1965). If all rows are correct, or all are
    wrong, each group counts as one row.

    Args:
        sample: Labelled rows, n copies.
        cell: Cell of each copy, 0..n_cells-1, shape (n,).
        n_cells: Number of cells.

    Returns:
        Value and interval of each cell; intervals are None for cells with fewer than ten groups.
    """
    n_clusters = sample.n_clusters
    # a pair is a cell and a group that has copies in this cell
    pair, pair_of_copy = np.unique(cell * n_clusters + sample.cluster, return_inverse=True)
    cell_of_pair = pair // n_clusters
    rows_of_pair = np.bincount(pair_of_copy)
    correct_of_pair = np.bincount(pair_of_copy, sample.correct)
    total = np.bincount(cell_of_pair, rows_of_pair, n_cells)
    with np.errstate(invalid="ignore"):
        share = np.bincount(cell_of_pair, correct_of_pair, n_cells) / total
    residual_of_pair = correct_of_pair - share[cell_of_pair] * rows_of_pair
    copies_of_row = np.bincount(sample.row_number)
    effective = effective_rows(
        share,
        total,
        squared_residuals=np.bincount(cell_of_pair, residual_of_pair**2, n_cells),
        squared_rows=np.bincount(cell_of_pair, rows_of_pair.astype(float) ** 2, n_cells),
        squared_copies=np.bincount(cell, copies_of_row[sample.row_number], n_cells),
    )
    low, high = wilson_interval(share, effective)
    has_enough_groups = np.bincount(cell_of_pair, minlength=n_cells) >= MIN_BOOTSTRAP_GROUPS
    accuracy = []
    for k in range(n_cells):
        accuracy.append(
            {
                "value": finite_or_none(share[k]),
                "low": finite_or_none(low[k]) if has_enough_groups[k] else None,
                "high": finite_or_none(high[k]) if has_enough_groups[k] else None,
            }
        )
    return accuracy
