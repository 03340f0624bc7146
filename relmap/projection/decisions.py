"""Inputs of the variants: fixed decisions with calibrated confidences."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy

from relmap.decisions import Calibrator, ProtocolDecisions, clip_log_probabilities, clip_logits, confidence_logit

MIN_GAP_PROBABILITY = 1e-6  # probabilities are clipped to this and 1 minus this, so that the gap is finite


@dataclass(frozen=True, eq=False)
class CalibratedDecisions:
    """n fixed decisions with their confidences under one calibrator.

    Each variant needs the first two attributes; some also need one or two of the others.

    Attributes:
        confidence_logit: Logit of the confidence of each decision, shape (n,), float64; may be infinite.
        decision: Decided label 0..K-1, shape (n,).
        log_probabilities: Log-probabilities of the calibrator, shape (n, K).
        logits: Uncalibrated logits, shape (n, K).
        signals: Further features of each decision, each scaled by its spread, shape (n, S).
    """

    confidence_logit: np.ndarray
    decision: np.ndarray
    log_probabilities: np.ndarray | None = None
    logits: np.ndarray | None = None
    signals: np.ndarray | None = None

    @classmethod
    def from_calibrator(cls, calibrator: Calibrator, fixed: ProtocolDecisions) -> "CalibratedDecisions":
        """Calibrate fixed decisions.

        Args:
            calibrator: Maps logits (n, K) to log-probabilities (n, K).
            fixed: n fixed decisions.

        Returns:
            The decisions with their log-probabilities under the calibrator and their logits.
        """
        log_probabilities = calibrator(fixed.logits)
        confidence = confidence_logit(log_probabilities, fixed.decision)
        return cls(confidence, fixed.decision, log_probabilities, fixed.logits)

    def clip(self, smallest_probability: float) -> "CalibratedDecisions":
        """Clip confidences and probabilities to [smallest_probability, 1 - smallest_probability].

        Rows beyond the bounds tie. The probabilities of a row are not normalized again.

        Args:
            smallest_probability: Smallest probability; 0 changes nothing.

        Returns:
            The same decisions with clipped confidences and probabilities.
        """
        log_probabilities = self.log_probabilities
        if log_probabilities is not None:
            log_probabilities = clip_log_probabilities(log_probabilities, smallest_probability)
        return replace(
            self,
            confidence_logit=clip_logits(self.confidence_logit, smallest_probability),
            log_probabilities=log_probabilities,
        )

    @cached_property
    def confidence(self) -> np.ndarray:
        """Probability of each decision, shape (n,), in [0, 1]."""
        return np.asarray(scipy.special.expit(self.confidence_logit))

    @cached_property
    def gap(self) -> np.ndarray:
        """Logit of the probability of the decision minus that of the runner-up, shape (n,).

        The runner-up is the other label with the largest uncalibrated logit (the first of equals). It is the same for
        all calibrators. If the calibrator ranks the runner-up above the decision, the gap is negative. For K = 2 the
        gap is twice the logit of the confidence.

        Raises:
            ValueError: There are no log-probabilities or no logits.
        """
        if self.log_probabilities is None or self.logits is None:
            raise ValueError("the gap needs the log-probabilities and the logits in addition to the confidence")
        row = np.arange(len(self.decision))
        other_logits = np.array(self.logits, dtype=np.float64)
        other_logits[row, self.decision] = -np.inf
        runner_up = other_logits.argmax(axis=1)
        log_p = self.log_probabilities[row, [self.decision, runner_up]]
        log_p = np.clip(log_p, np.log(MIN_GAP_PROBABILITY), np.log1p(-MIN_GAP_PROBABILITY))
        decision_logit, runner_up_logit = log_p - np.log(-np.expm1(log_p))
        return np.asarray(decision_logit - runner_up_logit)


class LabelledDecisions(NamedTuple):
    """The same m fixed decisions under B calibrators, with their correctness.

    Attributes:
        by_calibrator: The decisions under each of the B calibrators.
        correct: Whether each decision is correct, shape (m,), bool.
        label: True labels 0..K-1, shape (m,); required by variants that are fitted to all logits.
    """

    by_calibrator: Sequence[CalibratedDecisions]
    correct: np.ndarray
    label: np.ndarray | None = None

    @classmethod
    def from_calibrators(
        cls, calibrators: Sequence[Calibrator], fixed: ProtocolDecisions, smallest_probability: float = 0.0
    ) -> "LabelledDecisions":
        """Calibrate labelled fixed decisions with each of several calibrators.

        Args:
            calibrators: B calibrators.
            fixed: m fixed decisions.
            smallest_probability: Bound to which calibrated probabilities are clipped.

        Returns:
            The decisions under each calibrator.
        """
        by_calibrator = []
        for calibrator in calibrators:
            decisions = CalibratedDecisions.from_calibrator(calibrator, fixed)
            by_calibrator.append(decisions.clip(smallest_probability))
        return cls(by_calibrator, fixed.correct, fixed.label)

    @property
    def decision(self) -> np.ndarray:
        """Decided labels 0..K-1, shape (m,)."""
        return self.by_calibrator[0].decision
