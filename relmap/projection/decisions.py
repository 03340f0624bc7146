"""What a variant reads, and what it is fitted on: fixed decisions under one calibrator, or under several at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy

from relmap.decisions import Calibrator, FixedDecisions, confidence_logit


@dataclass(frozen=True, eq=False)
class CalibratedDecisions:
    """The same n fixed decisions under one calibrator; a reliability map, and its SQL, know the first two parts."""

    confidence_logit: np.ndarray  # (n,) float64
    decision: np.ndarray  # (n,) 0..K-1
    log_probabilities: np.ndarray | None = None  # (n, K) of the calibrator
    logits: np.ndarray | None = None  # (n, K) uncalibrated
    signals: np.ndarray | None = None  # (n, S), what else is known of each decision, in units of its spread

    @classmethod
    def under(cls, calibrator: Calibrator, fixed: FixedDecisions) -> "CalibratedDecisions":
        """The `fixed` decisions with the whole vector that `calibrator` gives to each."""
        log_probabilities = calibrator(fixed.logits)
        confidence = confidence_logit(log_probabilities, fixed.decision)
        return cls(confidence, fixed.decision, log_probabilities, fixed.logits)

    @cached_property
    def confidence(self) -> np.ndarray:
        """The probability of each decision, `(n,)` in [0, 1]."""
        return np.asarray(scipy.special.expit(self.confidence_logit))

    @cached_property
    def gap(self) -> np.ndarray:
        """The gap g `(n,)`: logit of the decision's probability less that of the runner-up.

        The runner-up is the first best other label of the uncalibrated logits, whatever the calibrator made of it; so
        the gap of a calibrator that moves the decision from the top can be negative. For K = 2 it is 2 logit c.

        Raises:
            ValueError: there are no log-probabilities or no logits.
        """
        if self.log_probabilities is None or self.logits is None:
            raise ValueError("the gap needs the log-probabilities and the logits beside the confidence")
        row = np.arange(len(self.decision))
        others = np.array(self.logits, dtype=np.float64)
        others[row, self.decision] = -np.inf
        runner_up = others.argmax(axis=1)
        both = np.clip(self.log_probabilities[row, [self.decision, runner_up]], np.log(1e-6), np.log1p(-1e-6))
        chosen, other = both - np.log(-np.expm1(both))
        return np.asarray(chosen - other)


class LabelledDecisions(NamedTuple):
    """The same m fixed decisions under B calibrators, and which of them are correct."""

    under: Sequence[CalibratedDecisions]  # B of them
    correct: np.ndarray  # (m,) bool
    label: np.ndarray | None = None  # (m,) the truth, 0..K-1; what reads the whole vector is fitted to it

    @classmethod
    def of(cls, calibrators: Sequence[Calibrator], fixed: FixedDecisions) -> "LabelledDecisions":
        """The `fixed` decisions under each of `calibrators`."""
        return cls(
            [CalibratedDecisions.under(calibrator, fixed) for calibrator in calibrators], fixed.correct, fixed.labels
        )

    @property
    def decision(self) -> np.ndarray:
        """The decisions `(m,)`, 0..K-1."""
        return self.under[0].decision
