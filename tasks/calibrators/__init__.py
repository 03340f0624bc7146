"""The calibrators by name: the paper's in its order of rows, then rivals that its tables never hold.

The one contract: `fit_<name>(logits (n, K), labels (n,), *, seed) -> value`, a frozen value that maps logits
`(n, K)` to log-probabilities `(n, K)` float64. Logarithms, because probabilities saturate: a confidence that rounds
to 1 no longer ranks. Fitting is a function, the fitted thing never changes, and neither touches its input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from tasks.calibrators.diagonal import fit_diagonal
from tasks.calibrators.hcalibration import HCalibrationSettings, fit_hcal
from tasks.calibrators.identity import fit_identity
from tasks.calibrators.matrix import fit_matrix
from tasks.calibrators.smart import SmartSettings, fit_smart
from tasks.calibrators.spline import fit_spline
from tasks.calibrators.temperature import fit_temperature
from tasks.calibrators.vector import fit_vector
from tasks.protocol.errors import BadInput


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

CALIBRATORS = FITTERS | RIVALS  # every name that may be asked for; the paper's tables hold FITTERS only


SETTINGS: dict[str, Callable[..., object]] = {"hcal": HCalibrationSettings, "smart": SmartSettings}


def settings_of(name: str, chosen: Mapping[str, int]) -> dict[str, object]:
    """What `fit_<name>` takes beside its rows where settings are `chosen`; BadInput where it has no such setting."""
    if not chosen:
        return {}
    try:
        return {"settings": SETTINGS[name](**chosen)}
    except (KeyError, TypeError):
        raise BadInput(
            f"calibrator_settings: {name} has no settings {', '.join(chosen)}; correct params.yaml"
        ) from None


def fit_on_first(
    name: str,
    logits: np.ndarray,
    labels: np.ndarray,
    rows: Sequence[int],
    *,
    seed: int,
    chosen: Mapping[str, int] | None = None,
) -> list[Calibrator]:
    """The calibrator `name` on the first `rows[i]` of these rows, for each i; on all of them where that is more.

    Equal numbers share one value.
    """
    settings = settings_of(name, chosen or {})
    distinct = {min(n, len(labels)) for n in rows}
    found = {n: CALIBRATORS[name](logits[:n], labels[:n], seed=seed, **settings) for n in distinct}
    return [found[min(n, len(labels))] for n in rows]
