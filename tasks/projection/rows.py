"""What a projection is fitted on and reads: fixed decisions under several calibrators at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.projection.surface import decision_gap
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
