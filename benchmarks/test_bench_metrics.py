"""Benchmarks of the metrics of a reliability estimate and of their bootstrap."""

import numpy as np
import pytest
from scipy.special import expit

from relmap.metrics import resampling
from relmap.metrics.probability import ece
from relmap.metrics.registry import compute_reliability_metrics
from relmap.metrics.reliability import average_precision_by_threshold
from relmap.metrics.resampling import MAX_CLUSTERS, draw_resamples

pytestmark = pytest.mark.filterwarnings("default")  # other libraries emit warnings
BINS = 15


def simulate(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulate logits and correctness, shape (n,) each. In a million rows, each logit occurs about a hundred times."""
    generator = np.random.default_rng(0)
    logit = np.round(generator.normal(1.0, 1.5, rows), 3)
    return logit, generator.random(rows) < expit(logit)


def compute_every_metric(logit: np.ndarray, correct: np.ndarray) -> dict[str, float]:
    return {**compute_reliability_metrics(logit, correct), "ece": ece(expit(logit), correct, BINS)}


def risk_coverage_area(confidence: np.ndarray, correct: np.ndarray) -> float:
    """Compute AURC with the formula of torch-uncertainty, which cannot be imported without torchvision.

    Rows with equal confidence are ranked in an arbitrary order.
    """
    import torch

    scores = torch.from_numpy(confidence)
    errors = torch.from_numpy(~correct).double()
    ordered = errors[scores.argsort(descending=True)]
    ranks = torch.arange(1, len(ordered) + 1)
    area = torch.trapezoid(ordered.cumsum(dim=-1) / ranks, ranks / len(ranks))
    return float(area / (1 - 1 / len(ranks)))


def test_every_metric_of_one_run(comparison, rows):
    import torch
    from sklearn.calibration import calibration_curve
    from sklearn.metrics import average_precision_score
    from torchmetrics.functional import classification

    logit, correct = simulate(rows)
    tenth = logit[: rows // 10], correct[: rows // 10]

    def scikit_learn() -> tuple[float, np.ndarray, np.ndarray]:
        precision = average_precision_score(~correct, -logit)
        return precision, *calibration_curve(correct, expit(logit), n_bins=BINS)

    labels = correct.astype(np.int64)
    confidence, labels_tensor, errors_tensor = map(torch.from_numpy, (expit(logit), labels, 1 - labels))

    def torchmetrics() -> tuple[float, float]:
        precision = classification.binary_average_precision(1 - confidence, errors_tensor)
        return float(precision), float(classification.binary_calibration_error(confidence, labels_tensor, n_bins=BINS))

    comparison.add_alternative("scikit-learn: AUPR and calibration curve alone", scikit_learn)
    comparison.add_alternative("torchmetrics: AUPR and ECE alone", torchmetrics)
    comparison.add_alternative("AURC alone, as in torch-uncertainty", lambda: risk_coverage_area(expit(logit), correct))
    comparison.add_growth(lambda: compute_every_metric(*tenth))
    comparison.add_floor(lambda: np.sort(logit))
    metrics, (precision, share, mean_confidence), torch_metrics, area, *_ = comparison.run(
        "every metric of one run, ties exact", rows, lambda: compute_every_metric(logit, correct)
    )

    np.testing.assert_allclose(average_precision_by_threshold(logit, correct), precision, rtol=1e-10)

    in_bin = np.histogram(expit(logit), np.linspace(0, 1, BINS + 1))[0]
    np.testing.assert_allclose(
        metrics["ece"], (np.abs(share - mean_confidence) * in_bin[in_bin > 0]).sum() / rows, atol=1e-12
    )
    np.testing.assert_allclose((precision, metrics["ece"]), torch_metrics, atol=1e-4)  # float32
    # the alternative uses the trapezoidal rule, and ranks ties in an arbitrary order
    np.testing.assert_allclose(metrics["aurc"], area, atol=100 / rows)


def test_bootstrap(comparison, size, monkeypatch):
    rows = size(40_000, 10_000)
    resamples = size(1000, 60)
    n_timed = size(20, 3)
    logit, correct = simulate(rows)
    query = np.arange(rows) // 10
    tenth = slice(0, rows // 10)

    def one_at_a_time() -> list[dict[str, float]]:
        """Compute the metrics of the first resamples of `bootstrap_metrics`, one at a time."""
        generator = np.random.default_rng(0)  # the generator of `draw_resamples` with the same seed
        cluster = draw_resamples(query, resamples=1, seed=0).cluster
        rows_by_cluster = np.argsort(cluster, kind="stable").reshape(MAX_CLUSTERS, -1)
        metrics = []
        for _ in range(n_timed):
            sampled_clusters = generator.integers(MAX_CLUSTERS, size=MAX_CLUSTERS)
            resample = rows_by_cluster[sampled_clusters].ravel()
            metrics.append(compute_reliability_metrics(logit[resample], correct[resample]))
        return metrics

    def bootstrap_metrics(part: slice = slice(None)) -> dict[str, np.ndarray]:
        draws = draw_resamples(query[part], resamples=resamples, seed=0)
        return compute_reliability_metrics(logit[part], correct[part], draws=draws)

    weights = np.ones((resamples, rows), dtype=np.uint8)
    comparison.add_alternative(
        f"one at a time ({n_timed} of them, times {resamples // n_timed})",
        one_at_a_time,
        times=resamples / n_timed,
    )
    comparison.add_growth(lambda: bootstrap_metrics(tenth))
    comparison.add_floor(lambda: weights.sum(axis=1))  # every weight is read once
    _, reference, _ = comparison.run(
        "1,000 clustered resamples of every ranking metric", rows, bootstrap_metrics, rounds=3
    )

    monkeypatch.setattr(resampling, "MAX_TIE_GROUPS", rows)  # no groups are merged, so that both are exact
    for name, replicates in bootstrap_metrics().items():
        np.testing.assert_allclose(replicates[:n_timed], [metrics[name] for metrics in reference], rtol=1e-10)
