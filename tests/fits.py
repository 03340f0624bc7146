"""Made-up rows for every test of a calibrator or a projection, and the shapes in which the fits take them."""

import numpy as np
from scipy.special import log_softmax

from tasks.projection.batch import Batch
from tasks.projection.decisions import Decisions, LabelledDecisions
from tasks.projection.lattice import FitRows, LatticeSettings

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def simulated(B: int, m: int, K: int, seed: int = 0) -> Rows:
    """Confidence `(B, m)`, decision and correct `(m,)`; a higher label is correct less often at equal confidence."""
    rng = np.random.default_rng(seed)
    true = rng.uniform(0.3, 1.0, m)
    decision = rng.integers(0, K, m)
    correct = rng.random(m) < np.clip(true - 0.3 * decision / K, 0, 1)
    return true ** rng.uniform(0.5, 2.0, (B, 1)), decision, correct


def logits_and_labels(
    n: int, n_labels: int, seed: int = 0, overconfidence: float = 3.0, shift: np.ndarray | float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Logits `(n, K)`, too large by a factor, and labels drawn from the true ones plus `shift (K,)`."""
    rng = np.random.default_rng(seed)
    true_logits = rng.normal(size=(n, n_labels)) * 1.5
    labels = (true_logits + shift + rng.gumbel(size=true_logits.shape)).argmax(axis=1)
    return overconfidence * true_logits, labels


def fits(confidence: np.ndarray, decision: np.ndarray, correct: np.ndarray) -> list[FitRows]:
    """The rows of each fit; confidence is `(B, m)`, the others too or `(m,)`."""
    parts = [np.broadcast_to(part, np.shape(confidence)) for part in (confidence, decision, correct)]
    return list(zip(*parts, strict=True))


def labelled(confidence_logit: np.ndarray, decision: np.ndarray, correct: np.ndarray) -> LabelledDecisions:
    """Decisions `(m,)` under B calibrators of `confidence_logit (B, m)`; their other probabilities are anything."""
    anything = log_softmax(np.random.default_rng(9).normal(size=(len(decision), 9)), axis=1)
    return LabelledDecisions([Decisions(at, decision, anything, anything) for at in confidence_logit], correct)


def batch(rows: Rows, n_labels: int, settings: LatticeSettings | None = None, judge: Rows | None = None) -> Batch:
    """Confidence logits `(B, m)`, decision and correct `(m,)` as a batch; `judge` are its selection rows, if any."""
    selection = None if judge is None else labelled(*judge)
    return Batch(labelled(*rows), n_labels, settings or LatticeSettings(), selection)
