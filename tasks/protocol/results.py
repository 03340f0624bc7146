"""What the tasks of one run hand to one another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Calibrator = Callable[[np.ndarray], np.ndarray]  # logits (n, K) to log-probabilities (n, K)


@dataclass(frozen=True)
class Calibrated:
    """One fitted calibrator of one protocol seed; `value` is the frozen thing that `fit_<name>` returned."""

    calibrator: str
    seed: int
    value: Calibrator


@dataclass(frozen=True)
class ProjectedDecisions:
    """The test rows under one calibrator, with the reliability of every variant; all arrays share the rows."""

    calibrator: str
    decision: np.ndarray  # (n,) as fixed by the base predictor
    log_probabilities: np.ndarray  # (n, K) of the calibrator
    reliability_logits: dict[str, np.ndarray]  # variant -> (n,) logit of the probability that the decision is correct
    lattices: dict[str, Any]  # variant -> its fitted curves, for those that are lattices


@dataclass(frozen=True)
class Projected:
    """Everything that one protocol seed projected."""

    seed: int
    rows: list[ProjectedDecisions]
    gates: list[dict[str, Any]]  # the records of the gates that it has passed
