"""Simulated rows for the tests of calibrators and projections."""

import numpy as np
from scipy.special import expit

from relmap.projection.batch import FitBatch
from relmap.projection.decisions import CalibratedDecisions, LabelledDecisions
from relmap.projection.lattice import FitRows
from relmap.settings import ProjectionParams

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def simulated(B: int, m: int, K: int, seed: int = 0, spread: float = 0.3) -> Rows:
    """Confidence `(B, m)`, decision and correct `(m,)`; a higher label is correct less often at equal confidence."""
    rng = np.random.default_rng(seed)
    true = rng.uniform(0.3, 1.0, m)
    decision = rng.integers(0, K, m)
    correct = rng.random(m) < np.clip(true - spread * decision / K, 0, 1)
    return true ** rng.uniform(0.5, 2.0, (B, 1)), decision, correct


def logits_and_labels(
    n: int, n_labels: int, seed: int = 0, overconfidence: float = 3.0, shift: np.ndarray | float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Logits `(n, K)`, too large by a factor, and labels drawn from the true ones plus `shift (K,)`."""
    rng = np.random.default_rng(seed)
    true_logits = rng.normal(size=(n, n_labels)) * 1.5
    labels = (true_logits + shift + rng.gumbel(size=true_logits.shape)).argmax(axis=1)
    return overconfidence * true_logits, labels


def scored(n: int, seed: int = 0, levels: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Reliability logits, of so many levels if given, and correctness drawn from them."""
    generator = np.random.default_rng(seed)
    t = generator.normal(size=n)
    if levels is not None:
        t = np.round(t * levels / 6)
    return t, generator.random(n) < expit(t)


def fits(confidence: np.ndarray, decision: np.ndarray, correct: np.ndarray) -> list[FitRows]:
    """The rows of each fit; confidence is `(B, m)`, the others too or `(m,)`."""
    parts = [np.broadcast_to(part, np.shape(confidence)) for part in (confidence, decision, correct)]
    return [FitRows(*columns) for columns in zip(*parts, strict=True)]


def batch(rows: Rows, n_labels: int, settings: ProjectionParams | None = None, judge: Rows | None = None) -> FitBatch:
    """Confidence logits `(B, m)`, decision and correct `(m,)` as a batch; `judge` are its selection rows, if any."""

    def labelled(confidence_logit: np.ndarray, decision: np.ndarray, correct: np.ndarray) -> LabelledDecisions:
        anything = np.log(np.random.default_rng(9).dirichlet(np.ones(9), len(decision)))
        label = np.where(correct, decision, (decision + 1) % n_labels)
        by_calibrator = [CalibratedDecisions(at, decision, anything, anything) for at in confidence_logit]
        return LabelledDecisions(by_calibrator, correct, label)

    selection = None if judge is None else labelled(*judge)
    return FitBatch(labelled(*rows), n_labels, settings or ProjectionParams(), selection)


def seen(at: np.ndarray, decision: np.ndarray | int, gap: np.ndarray | None = None) -> CalibratedDecisions:
    """Decisions, or one for all, under one calibrator; with log-probabilities of the given gap, or with none."""
    decision = np.broadcast_to(decision, at.shape)
    if gap is None:
        return CalibratedDecisions(at, decision)
    row, runner_up = np.arange(len(at)), (decision + 1) % (decision.max(initial=1) + 1)
    logits = np.zeros((len(at), decision.max(initial=1) + 1))
    log_probabilities = np.full_like(logits, -np.log(2))
    logits[row, runner_up] = 1
    log_probabilities[row, decision] = -np.logaddexp(0, -gap)
    return CalibratedDecisions(at, decision, log_probabilities, logits)


def hats(places: np.ndarray, knots: int) -> np.ndarray:
    """Places `(m,)` in [0, 1] to their weight at each of the uniform knots, `(m, J)`."""
    return np.clip(1 - np.abs(places[:, None] * (knots - 1) - np.arange(knots)), 0, None)
