"""The calibrators, each a value of this registry: the paper's in its order of rows, then its rivals.

A new one is a file with `fit_<key>(logits (n, K), labels (n,), *, seed) -> value` and a line here. The value is frozen
and maps logits `(n, K)` to log-probabilities `(n, K)` float64. Logarithms, because probabilities saturate: a
confidence that rounds to 1 no longer ranks. Neither the fit nor the value touches its input.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, cast

import numpy as np

from relmap.calibrators import diagonal, hcalibration, identity, matrix, smart, spline, temperature
from relmap.decisions import Calibrator as FittedCalibrator
from relmap.errors import InputError


class CalibratorSpec(NamedTuple):
    """A way to calibrate: what it is called, what it is for, and how it is fitted."""

    key: str  # under which its results are filed
    title: str
    role: Literal["paper", "rival"]  # the paper's tables hold the first; a rival sees each label apart
    fit: Callable[..., FittedCalibrator]
    settings: Callable[..., object] | None = None  # what may be chosen; it is then trained step by step, and takes long
    of_confidence: bool = False  # can be had from the confidence of the decision alone

    @property
    def value(self) -> type:
        """Return what `fit` returns, as it says itself; a map can hold it."""
        return cast("type", self.fit.__annotations__["return"])


CALIBRATORS = {
    calibrator.key: calibrator
    for calibrator in (
        CalibratorSpec("uncal", "Uncal.", "paper", identity.fit_identity, of_confidence=True),
        CalibratorSpec("ts", "TS", "paper", temperature.fit_temperature),
        CalibratorSpec("diag", "DIAG", "paper", diagonal.fit_diagonal),
        CalibratorSpec("spline", "Spline", "paper", spline.fit_spline, of_confidence=True),
        CalibratorSpec("hcal", "h-cal", "paper", hcalibration.fit_hcal, hcalibration.HCalibrationSettings),
        CalibratorSpec("smart", "SMART", "paper", smart.fit_smart, smart.SmartSettings),
        CalibratorSpec("vector", "vector scaling", "rival", matrix.fit_vector),
        CalibratorSpec("matrix", "matrix scaling", "rival", matrix.fit_matrix),
    )
}


PAPER_FIGURE_CALIBRATOR = "smart"  # under which it shows its curves


def calibrators_with_role(role: str) -> tuple[str, ...]:
    """Return the keys of the calibrators that are for `role`, in order."""
    return tuple(key for key, calibrator in CALIBRATORS.items() if calibrator.role == role)


def fit_prefixes(
    name: str,
    logits: np.ndarray,
    labels: np.ndarray,
    rows: Sequence[int],
    *,
    seed: int,
    chosen: Mapping[str, int] | None = None,
) -> list[FittedCalibrator]:
    """Return the calibrator `name` on the first `rows[i]` of these rows, for each i; on all of them where that is more.

    Equal numbers share one value.

    Raises:
        InputError: the calibrator has no setting that is `chosen`.
    """
    calibrator, settings = CALIBRATORS[name], {}
    if chosen:
        try:
            settings["settings"] = (calibrator.settings or object)(**chosen)  # an object takes none
        except TypeError:
            names = ", ".join(chosen)
            raise InputError(f"calibrator_settings: {name} has no settings {names}; correct params.yaml") from None
    distinct = {min(n, len(labels)) for n in rows}
    fits = {n: calibrator.fit(logits[:n], labels[:n], seed=seed, **settings) for n in distinct}
    return [fits[min(n, len(labels))] for n in rows]
