"""The calibrators by name: the paper's in its order of rows, then rivals that its tables never hold.

The one contract: `fit_<name>(logits (n, K), labels (n,), *, seed) -> value`, a frozen value that maps logits
`(n, K)` to log-probabilities `(n, K)` float64. Logarithms, because probabilities saturate: a confidence that rounds
to 1 no longer ranks. Fitting is a function, the fitted thing never changes, and neither touches its input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from tasks.calibrators.diagonal import fit_diagonal
from tasks.calibrators.hcalibration import fit_hcal, fit_hcal_pooled
from tasks.calibrators.identity import fit_identity
from tasks.calibrators.matrix import fit_matrix
from tasks.calibrators.smart import fit_smart, fit_smart_on_first, fit_smart_soft_ece, fit_smart_soft_ece_on_first
from tasks.calibrators.spline import fit_spline
from tasks.calibrators.temperature import fit_temperature
from tasks.calibrators.vector import fit_vector


class Calibrator(Protocol):
    """A fitted calibrator."""

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Logits `(n, K)` to log-probabilities `(n, K)` float64."""
        ...


FITTERS: dict[str, Callable[..., Calibrator]] = {
    "uncal": fit_identity,
    "ts": fit_temperature,
    "diag": fit_diagonal,
    "spline": fit_spline,
    "hcal": fit_hcal,
    "smart": fit_smart,
}

# Class-wise calibrators: they can remove a label-wise residual themselves, but not without changing decisions.
RIVALS: dict[str, Callable[..., Calibrator]] = {
    "vector": fit_vector,
    "matrix": fit_matrix,
}

# The same calibrators with the other of two defensible objectives.
SENSITIVITY: dict[str, Callable[..., Calibrator]] = {
    "hcal_pooled": fit_hcal_pooled,
    "smart_soft_ece": fit_smart_soft_ece,
}

CALIBRATORS = FITTERS | RIVALS | SENSITIVITY  # every name that may be asked for; the paper's tables hold FITTERS only

# Fits on several numbers of first rows at once, where that is quicker than one by one; the answers are the same.
TOGETHER: dict[str, Callable[..., Sequence[Calibrator]]] = {
    "smart": fit_smart_on_first,
    "smart_soft_ece": fit_smart_soft_ece_on_first,
}


def fit_on_first(
    name: str, logits: np.ndarray, labels: np.ndarray, rows: Sequence[int], *, seed: int
) -> list[Calibrator]:
    """The calibrator `name` on the first `rows[i]` of these rows, for each i; on all of them where that is more.

    Each is, bit for bit, what `CALIBRATORS[name]` makes of those rows alone. Equal numbers share one value.
    """
    distinct = sorted({min(n, len(labels)) for n in rows})
    if name in TOGETHER:
        values = TOGETHER[name](logits, labels, distinct, seed=seed)
    else:
        values = [CALIBRATORS[name](logits[:n], labels[:n], seed=seed) for n in distinct]
    found = dict(zip(distinct, values, strict=True))
    return [found[min(n, len(labels))] for n in rows]
