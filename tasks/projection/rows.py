"""What a projection is fitted on and reads: fixed decisions under several calibrators at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.protocol.decisions import FixedDecisions, confidence_logit
from tasks.protocol.results import Calibrator


@dataclass(frozen=True, eq=False)
class Rows:
    """The same m fixed decisions under B calibrators."""

    confidence_logit: np.ndarray  # (B, m)
    gap: np.ndarray  # (B, m) between the decision and the runner-up, on the logit scale
    decision: np.ndarray  # (m,) 0..K-1
    correct: np.ndarray  # (m,) bool


def rows_under(calibrators: Sequence[Calibrator], decisions: FixedDecisions) -> Rows:
    """The confidences and gaps that `calibrators` give to fixed `decisions`."""
    confidence, gap = [], []
    for calibrator in calibrators:
        log_probabilities = calibrator(decisions.logits)
        confidence.append(confidence_logit(log_probabilities, decisions.decision))
        gap.append(decision_gap(log_probabilities, decisions.logits, decisions.decision))
    return Rows(np.stack(confidence), np.stack(gap), decisions.decision, decisions.correct)


def decision_gap(log_probabilities: np.ndarray, logits: np.ndarray, decision: np.ndarray) -> np.ndarray:
    """The gap g: logit of the decision's probability less that of the runner-up, `(n, K)`, `(n, K)`, `(n,)` to `(n,)`.

    The runner-up is the first best other label of the uncalibrated `logits`, whatever the calibrator made of it; so
    the gap of a calibrator that moves the decision from the top can be negative. For K = 2 it is 2 logit c.
    """
    row = np.arange(len(decision))
    others = np.array(logits, dtype=np.float64)
    others[row, decision] = -np.inf
    runner_up = others.argmax(axis=1)
    both = np.clip(log_probabilities[row, [decision, runner_up]], np.log(1e-6), np.log1p(-1e-6))
    chosen, other = both - np.log(-np.expm1(both))
    return np.asarray(chosen - other)
