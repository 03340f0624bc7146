"""The metrics of one reliability, and their bootstrap."""

import numpy as np
import pytest
from scipy.special import expit

from relmap.metrics.probability import ece
from relmap.metrics.registry import compute_reliability_metrics
from relmap.metrics.reliability import average_precision_by_threshold
from relmap.metrics.resampling import MAX_CLUSTERS, draw_resamples

pytestmark = [pytest.mark.bench, pytest.mark.filterwarnings("default")]  # peers warn of what is theirs
BINS = 15


def made_up(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits `(n,)`, each of which about a hundred of a million rows share, and correct `(n,)`."""
    generator = np.random.default_rng(0)
    logit = np.round(generator.normal(1.0, 1.5, rows), 3)
    return logit, generator.random(rows) < expit(logit)


def every_metric(logit: np.ndarray, correct: np.ndarray) -> dict[str, float]:
    return {**compute_reliability_metrics(logit, correct), "ece": ece(expit(logit), correct, BINS)}


def risk_coverage_area(confidence: np.ndarray, correct: np.ndarray) -> float:
    """What torch-uncertainty's AURC does, in torch as there, tied rows as they come; itself, it needs torchvision."""
    import torch

    scores, errors = torch.from_numpy(confidence), torch.from_numpy(~correct).double()
    ordered = errors[scores.argsort(descending=True)]
    places = torch.arange(1, len(ordered) + 1)
    area = torch.trapezoid(ordered.cumsum(dim=-1) / places, places / len(places))
    return float(area / (1 - 1 / len(places)))


def test_every_metric_of_one_run(race, rows):
    import torch
    from sklearn.calibration import calibration_curve
    from sklearn.metrics import average_precision_score
    from torchmetrics.functional import classification

    logit, correct = made_up(rows)
    tenth = logit[: rows // 10], correct[: rows // 10]

    def scikit_learn() -> tuple[float, np.ndarray, np.ndarray]:
        precision = average_precision_score(~correct, -logit)
        return precision, *calibration_curve(correct, expit(logit), n_bins=BINS)

    labels = correct.astype(np.int64)
    confidence, right, wrong = map(torch.from_numpy, (expit(logit), labels, 1 - labels))

    def torchmetrics() -> tuple[float, float]:
        precision = classification.binary_average_precision(1 - confidence, wrong)
        return float(precision), float(classification.binary_calibration_error(confidence, right, n_bins=BINS))

    race.beside("scikit-learn: AUPR and calibration curve alone", scikit_learn, aim=1)
    race.beside("torchmetrics: AUPR and ECE alone", torchmetrics, aim=1)
    race.beside("AURC alone, as torch-uncertainty has it", lambda: risk_coverage_area(expit(logit), correct), aim=1)
    race.beside("numpy: argsort of the keys", lambda: np.argsort(logit), aim=0.5)
    race.growth(lambda: every_metric(*tenth))
    race.floor(lambda: np.sort(logit))
    ours, (precision, share, said), theirs, area, *_ = race.run(
        "every metric of one run, ties exact", rows, lambda: every_metric(logit, correct)
    )
    np.testing.assert_allclose(average_precision_by_threshold(logit, correct), precision, rtol=1e-10)
    in_bin = np.histogram(expit(logit), np.linspace(0, 1, BINS + 1))[0]
    np.testing.assert_allclose(ours["ece"], (np.abs(share - said) * in_bin[in_bin > 0]).sum() / rows, atol=1e-12)
    np.testing.assert_allclose((precision, ours["ece"]), theirs, atol=1e-4)  # float32
    np.testing.assert_allclose(ours["aurc"], area, atol=100 / rows)  # a trapezoid, and ties in one of their orders


def test_bootstrap(race):
    rows, resamples, timed = 40_000, 1000, 20
    logit, correct = made_up(rows)
    query = np.arange(rows) // 10
    tenth = slice(0, rows // 10)

    def one_at_a_time() -> list[dict[str, float]]:
        """The same draws, each written out as rows."""
        generator, cluster = np.random.default_rng(0), draw_resamples(query, resamples=1, seed=0).cluster
        together = np.argsort(cluster, kind="stable").reshape(MAX_CLUSTERS, -1)
        draws = (together[generator.integers(len(together), size=len(together))].ravel() for _ in range(timed))
        return [compute_reliability_metrics(logit[drawn], correct[drawn]) for drawn in draws]

    def ours(part: slice = slice(None)) -> dict[str, np.ndarray]:
        draws = draw_resamples(query[part], resamples=resamples, seed=0)
        return compute_reliability_metrics(logit[part], correct[part], draws=draws)

    weights = np.ones((resamples, rows), dtype=np.uint8)
    race.beside(f"one at a time ({timed} of them, times {resamples // timed})", one_at_a_time, aim=50, times=50)
    race.growth(lambda: ours(tenth))
    race.floor(lambda: weights.sum(axis=1))  # every weight is read once
    measured, theirs, _ = race.run("1,000 clustered resamples of every metric that ranks", rows, ours, rounds=3)
    for name, replicates in measured.items():
        np.testing.assert_allclose(replicates[:timed], [each[name] for each in theirs], rtol=1e-10)
