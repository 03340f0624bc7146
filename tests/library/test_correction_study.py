"""Compare `auto` with and without its correction, MRP, Platt and isotonic on simulated base models.

The top is the tenth of the test rows with the highest score. The top gap is its mean reliability minus its accuracy.
"""

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from relmap.fitting.model_choice import compare_candidates, select_candidate
from relmap.maps.correction import Correction
from scipy.special import expit
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from relmap.decisions import FixedDecisions
from relmap.fitting.cross_fit import CrossFitResult, FitOptions, cross_fit
from relmap.fitting.folds import split_folds
from relmap.maps.reliability_map import FittedMap
from relmap.metrics.probability import ece
from relmap.metrics.registry import compute_reliability_metrics
from relmap.metrics.reliability import count_retained_rows
from relmap.projection.variants import AUTO_VARIANTS
from relmap.settings import DEFAULTS
from tests import maps

pytestmark = pytest.mark.study

CANDIDATES = tuple(variant for variant in AUTO_VARIANTS if variant != "label_signals")  # the rows have no signals
COMPARED_VARIANTS = ("mrp", "label_platt", "label_isotonic")
METRICS = ("log loss", "AURC", "ECE", "top gap")
N_DATASETS = 2  # simulated for each base model and number of labels
NOISE_SHARE = 0.08  # share of labels that are replaced at random
N_BASE_ROWS = 2000  # to train the base model
MAX_FIT_ROWS = 3000
N_TEST_ROWS = 6000
BASE_MODELS: dict[str, Callable[[], object]] = {
    "linear": lambda: LogisticRegression(max_iter=300, class_weight="balanced"),
    "boosted": lambda: HistGradientBoostingClassifier(max_iter=40, class_weight="balanced"),
}


def measure(score: np.ndarray, rows: FixedDecisions) -> tuple[float, ...]:
    """Return the METRICS of a score, in logits, on labelled rows."""
    metrics = compute_reliability_metrics(score, rows.correct)
    n_top = count_retained_rows(len(rows), tenths=1)
    top = np.argsort(-score, kind="stable")[:n_top]
    top_gap = float(expit(score[top]).mean() - rows.correct[top].mean())
    return metrics["nll_correct"], metrics["aurc"], ece(expit(score), rows.correct), top_gap


def fit_correction(result: CrossFitResult, variant: str) -> Correction | None:
    """Fit the correction of the deployed variant; None for the confidence, or if there are too few distinct values."""
    if variant == "confidence":
        return None
    corrections = result.with_correction(variant).corrections
    return corrections[variant].full if variant in corrections else None


def compare(rows: FixedDecisions, test: FixedDecisions, n_labels: int) -> dict[str, tuple[float, ...]]:
    """Fit every method to rows and measure it on test rows; `before` is `auto` without its correction."""
    split = split_folds(len(rows), rows.group, 1, hold_out=0.0)
    variants = (*CANDIDATES, "label_isotonic")
    options = FitOptions(n_labels=n_labels, calibrator="ts", variants=variants, settings=DEFAULTS, seed=1)
    result = cross_fit(rows, split, options)
    losses = {name: result.out_of_fold_losses(name) for name in CANDIDATES}
    candidates = compare_candidates(losses, result.rows)
    chosen = select_candidate(candidates, losses, result.rows).variant
    correction = fit_correction(result, chosen)
    deployed = result.full_fit
    measured = {
        name: measure(FittedMap(deployed.calibrator, deployed.variants[name])(test).logit, test)
        for name in COMPARED_VARIANTS
    }
    before = FittedMap(deployed.calibrator, deployed.variants[chosen])(test).logit
    after = FittedMap(deployed.calibrator, deployed.variants[chosen], correction)(test).logit
    return {"before": measure(before, test), "auto": measure(after, test), **measured}


def simulate(model: str, n_labels: int, noise: float, seed: int) -> pl.DataFrame:
    """Simulate logits of a base model and labels; a share of the labels is random, also in its training rows."""
    generator = np.random.default_rng(seed)
    n_others = n_labels - 1
    inputs, label = make_classification(
        N_BASE_ROWS + MAX_FIT_ROWS + N_TEST_ROWS,
        n_features=12,
        n_informative=6,
        n_classes=n_labels,
        weights=[0.55] + n_others * [0.45 / n_others],
        flip_y=0.0,
        class_sep=0.8,
        random_state=seed,
    )
    replaced = generator.random(len(label)) < noise
    label = np.where(replaced, generator.integers(0, n_labels, len(label)), label)
    base = BASE_MODELS[model]().fit(inputs[:N_BASE_ROWS], label[:N_BASE_ROWS])
    logits = np.log(np.clip(base.predict_proba(inputs[N_BASE_ROWS:]), 1e-12, None))
    return pl.DataFrame({"logits": logits.tolist(), "label": label[N_BASE_ROWS:]})


def average(results: list[dict[str, tuple[float, ...]]]) -> dict[str, dict[str, float]]:
    """Return the mean of each metric over data sets, by method and metric."""
    means = {}
    for method in results[0]:
        values = np.mean([result[method] for result in results], axis=0)
        means[method] = dict(zip(METRICS, values, strict=True))
    return means


def print_means(means: dict[str, dict[str, float]]) -> None:
    for method, values in means.items():
        print(f"{method:<15}", *(f"{metric} {value:+.4f}" for metric, value in values.items()))


@pytest.mark.parametrize("noise", [0.0, NOISE_SHARE], ids=["clean", "noise"])
@pytest.mark.parametrize("n_rows", [300, 1000, MAX_FIT_ROWS])
def test_correction_reduces_the_top_gap_without_increasing_the_log_loss(n_rows, noise):
    results = []
    for model in BASE_MODELS:
        for n_labels in (3, 4):
            for seed in range(N_DATASETS):
                frame = simulate(model, n_labels, noise, seed)
                rows = maps.rows_of_frame(frame[:n_rows], n_labels=n_labels)
                test = maps.rows_of_frame(frame[MAX_FIT_ROWS:], n_labels=n_labels)
                results.append(compare(rows, test, n_labels))
    means = average(results)
    print_means(means)
    before = means["before"]
    after = means["auto"]

    assert after["log loss"] - before["log loss"] <= 0.001
    assert after["AURC"] == pytest.approx(before["AURC"], abs=1e-6)  # the ranking does not change
    if noise:
        assert abs(after["top gap"]) <= 0.75 * abs(before["top gap"])
    assert after["log loss"] < means["label_isotonic"]["log loss"]
