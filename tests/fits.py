"""Simulated rows for the tests of calibrators and projections."""

import numpy as np
from scipy.special import expit, ndtri

from relmap.decisions import CalibratedDecisions, LabelledDecisions
from relmap.projection.mrp import FitRows
from relmap.projection.rows import FitBatch
from relmap.settings import ProjectionParams

SimulatedRows = tuple[np.ndarray, np.ndarray, np.ndarray]


def simulate_rows(n_fits: int, n_rows: int, n_labels: int, seed: int = 0, spread: float = 0.3) -> SimulatedRows:
    """Simulate decisions that are correct less often for later labels at equal confidence.

    Returns:
        Confidence, shape (n_fits, n_rows); decision and correctness, shape (n_rows,).
    """
    generator = np.random.default_rng(seed)
    probability = generator.uniform(0.3, 1.0, n_rows)
    decision = generator.integers(0, n_labels, n_rows)
    correct = generator.random(n_rows) < np.clip(probability - spread * decision / n_labels, 0, 1)
    confidence = probability ** generator.uniform(0.5, 2.0, (n_fits, 1))
    return confidence, decision, correct


def simulate_logits_and_labels(
    n_rows: int, n_labels: int, seed: int = 0, overconfidence: float = 3.0, shift: np.ndarray | float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Simulate overconfident logits.

    Args:
        n_rows: Number of rows.
        n_labels: Number of labels.
        seed: Seed of the simulation.
        overconfidence: Factor of the returned logits.
        shift: Added to the logits that the labels are drawn from, shape (n_labels,).

    Returns:
        Logits, shape (n_rows, n_labels), and labels, shape (n_rows,).
    """
    generator = np.random.default_rng(seed)
    true_logits = generator.normal(size=(n_rows, n_labels)) * 1.5
    labels = (true_logits + shift + generator.gumbel(size=true_logits.shape)).argmax(axis=1)
    return overconfidence * true_logits, labels


def simulate_reliability_logits(n_rows: int, seed: int = 0, levels: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Simulate reliability logits, rounded to about `levels` values if given, and correctness drawn from them."""
    generator = np.random.default_rng(seed)
    reliability_logit = generator.normal(size=n_rows)
    if levels is not None:
        reliability_logit = np.round(reliability_logit * levels / 6)
    return reliability_logit, generator.random(n_rows) < expit(reliability_logit)


def make_fit_rows(confidence: np.ndarray, decision: np.ndarray, correct: np.ndarray) -> list[FitRows]:
    """Make the rows of each fit; confidence has shape (n_fits, n_rows), the other arrays the same or (n_rows,)."""
    columns = [np.broadcast_to(array, np.shape(confidence)) for array in (confidence, decision, correct)]
    return [FitRows(*rows) for rows in zip(*columns, strict=True)]


def make_batch(
    rows: SimulatedRows,
    n_labels: int,
    settings: ProjectionParams | None = None,
    selection_rows: SimulatedRows | None = None,
) -> FitBatch:
    """Make a batch of fits.

    Args:
        rows: Confidence logits, shape (n_fits, n_rows); decision and correctness, shape (n_rows,).
        n_labels: Number of labels.
        settings: Settings of the projection.
        selection_rows: Rows that select between models, if any.
    """
    selection = None if selection_rows is None else _label_rows(selection_rows)
    return FitBatch(_label_rows(rows), n_labels, settings or ProjectionParams(), selection)


def _label_rows(rows: SimulatedRows) -> LabelledDecisions:
    confidence_logits, decision, correct = rows
    arbitrary = np.log(np.random.default_rng(9).dirichlet(np.ones(9), len(decision)))
    by_calibrator = [CalibratedDecisions(logit, decision, arbitrary, arbitrary) for logit in confidence_logits]
    return LabelledDecisions(by_calibrator, correct)


def make_decisions(
    confidence_logit: np.ndarray, decision: np.ndarray | int, gap: np.ndarray | None = None
) -> CalibratedDecisions:
    """Make decisions under one calibrator.

    Args:
        confidence_logit: Logit of the confidence, shape (n_rows,).
        decision: Decision of each row, or of all rows.
        gap: Logit gap that the log-probabilities have, shape (n_rows,); None to have no log-probabilities.
    """
    decision = np.broadcast_to(decision, confidence_logit.shape)
    if gap is None:
        return CalibratedDecisions(confidence_logit, decision)
    n_labels = decision.max(initial=1) + 1
    row = np.arange(len(confidence_logit))
    runner_up = (decision + 1) % n_labels
    logits = np.zeros((len(row), n_labels))
    log_probabilities = np.full_like(logits, -np.log(2))
    logits[row, runner_up] = 1
    log_probabilities[row, decision] = -np.logaddexp(0, -gap)
    return CalibratedDecisions(confidence_logit, decision, log_probabilities, logits)


def interpolation_weights(positions: np.ndarray, n_knots: int) -> np.ndarray:
    """Compute the weight of each uniform knot at positions in [0, 1], shape (n_rows, n_knots)."""
    return np.clip(1 - np.abs(positions[:, None] * (n_knots - 1) - np.arange(n_knots)), 0, None)


def simulate_stream(generator, n, *, per_group=1, accuracy_loss=0.0, center=2.5):
    """Simulate slightly miscalibrated rows: reliability, decision, correct and group; groups are correlated."""
    decision = generator.integers(0, 3, n)
    logit = center + 1.5 * generator.normal(size=n)
    p_correct = expit(0.9 * logit + 0.1 * (decision - 1)) - accuracy_loss * (decision == 1)
    group = np.arange(n) // per_group
    noise = np.sqrt(0.3) * generator.normal(size=n)[group] + np.sqrt(0.7) * generator.normal(size=n)
    return expit(logit), decision, noise < ndtri(np.maximum(p_correct, 0)), None if per_group == 1 else group
