"""Registry of the calibrators: the paper's in the order of its tables, then its rivals.

To add one, write a file with `fit_<key>(logits, labels, *, seed)` for logits (n, K) and labels (n,), and add an entry
here. The fitted calibrator is frozen and maps logits (n, K) to log-probabilities (n, K), float64. Log-probabilities are
used because probabilities saturate: confidences that round to 1 cannot be ranked. Inputs are not modified.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from relmap.calibrators import diagonal, hcalibration, identity, matrix, smart, spline, structured, temperature
from relmap.decisions import Calibrator as FittedCalibrator
from relmap.errors import InputError
from relmap.io.serialization import Value

PAPER_FIGURE_CALIBRATOR = "smart"  # calibrator of the paper's figures of curves


@dataclass(frozen=True, kw_only=True)
class CalibratorSpec:
    """A calibration method.

    Attributes:
        key: Name in settings, tables and maps.
        title: Name in tables and figures.
        role: "paper" for calibrators in the paper's tables; "rival" for others, which treat labels separately.
        model_type: Class of the fitted calibrator.
        fit: Fits the calibrator to logits (n, K) and labels (n,), with a seed.
        published_fit: Fits it as the code of the paper's authors does, if `fit` differs; for the paper's tables only,
            since maps cannot contain the result.
        settings_type: Class of the settings, for calibrators that are trained iteratively, which takes long; None for
            the others.
        accepts_confidence: Whether the calibrator can be fitted to the confidence of the decision alone.
        summary: What it fits, in a sentence for the reference.
    """

    key: str
    title: str
    role: Literal["paper", "rival"]
    model_type: type[Value]
    fit: Callable[..., FittedCalibrator]
    published_fit: Callable[..., FittedCalibrator] | None = None
    settings_type: Callable[..., object] | None = None
    accepts_confidence: bool = False
    summary: str = ""


_CALIBRATORS = (
    CalibratorSpec(
        key="uncal",
        summary="No calibration. The confidence stays as it is.",
        title="Uncal.",
        role="paper",
        model_type=identity.Identity,
        fit=identity.fit_identity,
        accepts_confidence=True,
    ),
    CalibratorSpec(
        key="ts",
        summary="Temperature scaling: one factor for all logits.",
        title="TS",
        role="paper",
        model_type=temperature.Temperature,
        fit=temperature.fit_temperature,
    ),
    CalibratorSpec(
        key="diag",
        summary="An order-preserving function of the sorted logits.",
        title="DIAG",
        role="paper",
        model_type=diagonal.Diagonal,
        fit=diagonal.fit_diagonal,
    ),
    CalibratorSpec(
        key="spline",
        summary="A spline of the confidence of the decision.",
        title="Spline",
        role="paper",
        model_type=spline.Spline,
        fit=spline.fit_spline,
        published_fit=spline.fit_published_spline,
        accepts_confidence=True,
    ),
    CalibratorSpec(
        key="hcal",
        summary=(
            "h-calibration, a piecewise linear function of log probabilities that jumps between its "
            "pieces. It can worsen the calibration of two imbalanced labels; see below."
        ),
        title="h-cal",
        role="paper",
        model_type=hcalibration.HCalibration,
        fit=hcalibration.fit_hcal,
        settings_type=hcalibration.HCalibrationSettings,
    ),
    CalibratorSpec(
        key="smart",
        summary="SMART, a temperature that depends on the margin between the two most probable labels.",
        title="SMART",
        role="paper",
        model_type=smart.Smart,
        fit=smart.fit_smart,
        settings_type=smart.SmartSettings,
    ),
    CalibratorSpec(
        key="sms",
        summary=(
            "Structured matrix scaling: a shift and weights of all logits for each label, close to "
            "temperature scaling if there are few rows. The default of maps."
        ),
        title="structured matrix scaling",
        role="rival",
        model_type=structured.StructuredMatrix,
        fit=structured.fit_sms,
    ),
    CalibratorSpec(
        key="vector",
        summary="A factor and a shift for each label.",
        title="vector scaling",
        role="rival",
        model_type=matrix.Matrix,
        fit=matrix.fit_vector,
    ),
    CalibratorSpec(
        key="matrix",
        summary="Multinomial logistic regression on the logits (matrix scaling).",
        title="matrix scaling",
        role="rival",
        model_type=matrix.Matrix,
        fit=matrix.fit_matrix,
    ),
)
CALIBRATORS = {calibrator.key: calibrator for calibrator in _CALIBRATORS}


def calibrators_with_role(role: str) -> tuple[str, ...]:
    """List the calibrators with a role.

    Args:
        role: "paper" or "rival".

    Returns:
        Keys of the calibrators, in the order of the registry.
    """
    return tuple(key for key, calibrator in CALIBRATORS.items() if calibrator.role == role)


def fit_prefixes(
    name: str,
    logits: np.ndarray,
    labels: np.ndarray,
    n_rows: Sequence[int],
    *,
    seed: int,
    settings: Mapping[str, int] | None = None,
    published: bool = False,
) -> list[FittedCalibrator]:
    """Fit a calibrator to the first rows, for several numbers of rows.

    Args:
        name: Key of the calibrator.
        logits: Shape (n, K).
        labels: True labels 0..K-1, shape (n,).
        n_rows: Numbers of rows; numbers above n are replaced by n.
        seed: Seed of the fit.
        settings: Settings of the calibrator that differ from its defaults, by name.
        published: Whether to fit as the code of the paper's authors does, where that differs.

    Returns:
        The fitted calibrator for each number of rows; equal numbers share a calibrator.

    Raises:
        InputError: The calibrator lacks a setting that `settings` names.
    """
    calibrator = CALIBRATORS[name]
    options = {"settings": _build_settings(calibrator, settings)} if settings else {}
    limited = [min(n, len(labels)) for n in n_rows]
    fit = calibrator.published_fit if published and calibrator.published_fit else calibrator.fit
    fits = {n: fit(logits[:n], labels[:n], seed=seed, **options) for n in set(limited)}
    return [fits[n] for n in limited]


def _build_settings(calibrator: CalibratorSpec, settings: Mapping[str, int]) -> object:
    """Build the settings object of a calibrator; InputError if a name is unknown."""
    build = calibrator.settings_type or object  # `object` accepts no arguments, so that each name is unknown
    try:
        return build(**settings)
    except TypeError:
        names = ", ".join(settings)
        raise InputError(f"the calibrator {calibrator.key} has no setting {names}; correct or remove it") from None
