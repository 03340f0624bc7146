"""Fixed decisions: labels that are decided once and never changed (paper, section 3.1), and their confidences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Literal, NamedTuple, Self

import numpy as np
import polars as pl
import scipy

Calibrator = Callable[[np.ndarray], np.ndarray]  # logits (n, K) to log-probabilities (n, K)
MapInput = Literal["logits", "confidence_only", "decision_only"]

FLOAT_TOLERANCE = 1e-9
MAX_COPIES = 10**6  # about the number of copies of all rows together, unless COPIES_PER_ROW limits it
COPIES_PER_ROW = (10, 100)  # minimum and maximum of the mean number of copies of a row


@dataclass(frozen=True, eq=False, kw_only=True)
class FixedDecisions:
    """Fixed decisions of n rows over K labels, and the other values of the rows that are known.

    Decisions are stored and never recomputed from probabilities, whose argmax can change where a softmax saturates.

    Attributes:
        decision: Decided labels 0..K-1, shape (n,), int64.
        logits: Finite logits or log-probabilities of the base predictor, shape (n, K), float64; None if unknown.
        confidence: Confidence of the decisions, shape (n,), float64, in [0, 1]; None unless it is given without logits.
        label: True labels 0..K-1, shape (n,), int64; None for unlabelled rows.
        group: Group of each row, such as its query, shape (n,), str; None without groups.
        signals: Values of the signals, shape (n, S), float64; None without signals.
        weight: Number of rows that each row represents, shape (n,), float64, above 0; None if all are equal.
    """

    decision: np.ndarray
    logits: np.ndarray | None = None
    confidence: np.ndarray | None = None
    label: np.ndarray | None = None
    group: np.ndarray | None = None
    signals: np.ndarray | None = None
    weight: np.ndarray | None = None

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Concatenate rows.

        Args:
            parts: Fixed decisions over the same labels.

        Returns:
            The rows of all parts, in their order. A value is None if a part does not have it.
        """
        return cls(
            decision=np.concatenate([part.decision for part in parts]),
            logits=_concatenate([part.logits for part in parts]),
            confidence=_concatenate([part.confidence for part in parts]),
            label=_concatenate([part.label for part in parts]),
            group=_concatenate([part.group for part in parts]),
            signals=_concatenate([part.signals for part in parts]),
            weight=_concatenate([part.weight for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.decision)

    @property
    def n_labels(self) -> int:
        """Number of labels K, which is the number of logits of a row; includes labels that are never decided."""
        assert self.logits is not None
        return int(self.logits.shape[1])

    @property
    def correct(self) -> np.ndarray:
        """Whether each decision is the true label (the event Z), shape (n,), bool."""
        assert self.label is not None
        return np.asarray(self.decision == self.label)

    @property
    def kind(self) -> MapInput:
        """Kind of input, in addition to the decision, of a map that is fitted on these rows."""
        if self.logits is not None:
            return "logits"
        return "decision_only" if self.confidence is None else "confidence_only"

    @property
    def copies(self) -> np.ndarray:
        """Increasing row numbers, each repeated in proportion to its weight, shape (m,).

        Each row has at least one copy. Numbers of copies are rounded up or down at random, so that the rounding causes
        no bias.
        """
        if self.weight is None:
            return np.arange(len(self))
        copies_per_row = np.clip(MAX_COPIES / len(self), *COPIES_PER_ROW)
        expected = self.weight / self.weight.mean() * copies_per_row + FLOAT_TOLERANCE
        n_copies = np.floor(expected + np.random.default_rng(0).random(len(self)))
        return np.repeat(np.arange(len(self)), np.maximum(n_copies, 1).astype(np.int64))

    def take(self, rows: np.ndarray | slice) -> Self:
        """Select rows.

        Args:
            rows: Row numbers, a mask, or a slice.

        Returns:
            The selected rows, in that order.
        """
        return type(self)(
            decision=self.decision[rows],
            logits=None if self.logits is None else self.logits[rows],
            confidence=None if self.confidence is None else self.confidence[rows],
            label=None if self.label is None else self.label[rows],
            group=None if self.group is None else self.group[rows],
            signals=None if self.signals is None else self.signals[rows],
            weight=None if self.weight is None else self.weight[rows],
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class ProtocolDecisions(FixedDecisions):
    """Fixed decisions with logits, true labels and groups, which the paper's protocol needs.

    It has the attributes of `FixedDecisions`; `field()` makes these three attributes required.
    """

    logits: np.ndarray = field()
    label: np.ndarray = field()
    group: np.ndarray = field()


def _concatenate(arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Concatenate arrays; return None if one of them is None."""
    known = [array for array in arrays if array is not None]
    return np.concatenate(known) if len(known) == len(arrays) else None


def number_groups(group: np.ndarray) -> np.ndarray:
    """Number groups in the order of their names. polars sorts text several times as fast as NumPy.

    Args:
        group: Group of each row, shape (n,), str or int; at least one row.

    Returns:
        Numbers 0..G-1 of the G groups, shape (n,), int64.
    """
    return pl.Series(group).rank("dense").to_numpy().astype(np.int64) - 1


def decide(logits: np.ndarray) -> np.ndarray:
    """Decide for the label with the largest logit in float64; if several are the largest, for the first of them.

    Args:
        logits: Shape (n, K).

    Returns:
        Decided labels, shape (n,), int64.
    """
    return np.asarray(np.argmax(np.asarray(logits, dtype=np.float64), axis=1))


def clip_log_probabilities(log_probabilities: np.ndarray, smallest: float) -> np.ndarray:
    """Clip each probability to [smallest, 1 - smallest], without normalizing again.

    Args:
        log_probabilities: Of any shape.
        smallest: Smallest probability, below 0.5; 0 changes nothing.

    Returns:
        Clipped log-probabilities, of the same shape.
    """
    if smallest == 0:
        return log_probabilities
    return np.asarray(np.clip(log_probabilities, np.log(smallest), np.log1p(-smallest)))


def clip_logits(logits: np.ndarray, smallest: float) -> np.ndarray:
    """Clip logits of probabilities to those of [smallest, 1 - smallest].

    Args:
        logits: Of any shape; may be infinite.
        smallest: Smallest probability, below 0.5; 0 changes nothing.

    Returns:
        Clipped logits, of the same shape.
    """
    if smallest == 0:
        return logits
    largest_logit = np.log1p(-smallest) - np.log(smallest)
    return np.asarray(np.clip(logits, -largest_logit, largest_logit))


def confidence_logit(log_probabilities: np.ndarray, decision: np.ndarray) -> np.ndarray:
    """Compute the logit of the confidence, log p_d - log of the sum of the other probabilities.

    p_d is the probability of the decided label d. The logit differs between rows for which p_d rounds to 1. A
    probability of exactly 0 or 1 gives an infinite logit.

    Args:
        log_probabilities: Shape (n, K).
        decision: Decided labels 0..K-1, shape (n,).

    Returns:
        Logits, shape (n,).
    """
    # labels on the first axis, so that a sum over labels is a fast sum of whole arrays
    by_label = np.ascontiguousarray(np.transpose(log_probabilities))
    decided = by_label[decision, np.arange(len(decision))]
    others = np.where(np.arange(len(by_label) - 1)[:, None] < decision, by_label[:-1], by_label[1:])
    largest = others.max(axis=0)
    largest[np.isneginf(largest)] = 0
    others -= largest
    with np.errstate(divide="ignore"):
        log_sum = np.log(reduce(np.add, map(np.exp, others))) + largest
    return np.asarray(decided - log_sum)


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
    """

    by_calibrator: Sequence[CalibratedDecisions]
    correct: np.ndarray

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
        return cls(by_calibrator, fixed.correct)

    @property
    def decision(self) -> np.ndarray:
        """Decided labels 0..K-1, shape (m,)."""
        return self.by_calibrator[0].decision
