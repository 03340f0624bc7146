"""What the default costs where there is nothing to learn: one temperature calibrates the logits.

The probabilities of the labels are known, so that the log loss of a reliability is its exact expectation over the
labels of the test rows.
"""

import time

import numpy as np
import scipy

from benchmarks.evidence.methods import LabelledRows, predict_with_pooled_methods
from benchmarks.evidence.summary import CaseResult, Measurement

KEY = "nothing_to_learn"
TITLE = "3 labels, calibrated by one temperature"
SIZES = (100, 300, 1_000)
N_LABELS = 3
LOGIT_DEVIATION = 2.0
INVERSE_TEMPERATURE = 0.6
N_TEST_ROWS = 5_000
TEST_SEED = 0  # samples have the seeds 1, 2, ...
TRUE_PROBABILITIES = "true probabilities"


def measure_nothing_to_learn(n_samples: int) -> CaseResult:
    """Fit the pooled methods on simulated samples, and compute the expected log loss on the same test rows.

    Args:
        n_samples: Number of samples of each size. A smaller sample is a part of the larger ones.

    Returns:
        The expected log loss of each sample, size and method, and of the true probabilities.
    """
    started = time.process_time()
    test = simulate(N_TEST_ROWS, TEST_SEED)
    probability = true_probabilities(test)
    measurements: list[Measurement] = []
    for sample in range(n_samples):
        rows = simulate(max(SIZES), sample + 1)
        for size in SIZES:
            reliabilities = predict_with_pooled_methods(rows.take(np.arange(size)), test, seed=sample + 1)
            reliabilities[TRUE_PROBABILITIES] = probability
            for method, reliability in reliabilities.items():
                metrics = {"log loss": expected_log_loss(reliability, probability)}
                measurements.append(Measurement(size, sample, method, metrics))
    return CaseResult(
        key=KEY,
        title=TITLE,
        base="none",
        kind="nothing to learn",
        n_test_rows=N_TEST_ROWS,
        measurements=measurements,
        cpu_seconds=time.process_time() - started,
    )


def simulate(n_rows: int, seed: int) -> LabelledRows:
    """Simulate normal logits, and labels whose probabilities are the softmax of the logits over the temperature."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, LOGIT_DEVIATION, (n_rows, N_LABELS))
    noise = generator.gumbel(size=logits.shape)
    label = (INVERSE_TEMPERATURE * logits + noise).argmax(axis=1)
    return LabelledRows(label, logits.argmax(axis=1), logits, signals=None, group=None, n_labels=N_LABELS)


def true_probabilities(rows: LabelledRows) -> np.ndarray:
    """Return the probability that each decision is correct, shape (n,)."""
    probability = scipy.special.softmax(INVERSE_TEMPERATURE * rows.logits, axis=1)
    return np.asarray(probability[np.arange(len(rows.label)), rows.decision])


def expected_log_loss(reliability: np.ndarray, probability: np.ndarray) -> float:
    """Return the mean log loss of a reliability if decisions are correct with the given probability."""
    losses = -probability * np.log(reliability) - (1 - probability) * np.log1p(-reliability)
    return float(losses.mean())
