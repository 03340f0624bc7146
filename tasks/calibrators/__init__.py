"""The calibrators by name, in the paper's order of rows.

The one contract: `fit_<name>(logits (n, K), labels (n,), *, seed) -> value`, a frozen value that maps logits
`(n, K)` to log-probabilities `(n, K)` float64. Logarithms, because probabilities saturate: a confidence that rounds
to 1 no longer ranks. Fitting is a function, the fitted thing never changes, and neither touches its input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from tasks.calibrators.identity import fit_identity
from tasks.calibrators.temperature import fit_temperature


class Calibrator(Protocol):
    """A fitted calibrator."""

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Logits `(n, K)` to log-probabilities `(n, K)` float64."""
        ...


FITTERS: dict[str, Callable[..., Calibrator]] = {
    "uncal": fit_identity,
    "ts": fit_temperature,
}
