"""Registry of the variants of the ablation: models of the reliability of fixed decisions (paper, section 3.5).

To add one, write a file with a function that maps a `FitBatch` to B fitted models, one for each calibrator, and add an
entry here. A model is frozen, maps `CalibratedDecisions` to the logit of the reliability, shape (n,), and has a method
`violations()`. All rankings and comparisons use that logit, because the reliability itself saturates at 1.

If the setting `minimum_rows` is above 0, a label with fewer projection-fit rows uses the shared curve in the label-wise
variants, and a label without rows the identity. This module does not import torch, so that maps can be read without it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from relmap.io.serialization import Value
from relmap.projection.labelwise import (
    Labelwise,
    WithFallbacks,
    fit_intercepts,
    fit_isotonic,
    fit_platt,
)
from relmap.projection.mrp import Confidence, Curves, ReliabilityModel, SharedCurve, build_curves_with_fallbacks
from relmap.projection.pooled import ShrunkCurves, SignalAdjusted, fit_mrp_pooled
from relmap.projection.surface import Surfaces, fit_surfaces

if TYPE_CHECKING:
    from relmap.projection.rows import FitBatch

DEFAULT_VARIANT = "mrp_pooled"  # of maps
FitFunction = Callable[["FitBatch"], Sequence[ReliabilityModel]]


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A model of the reliability of fixed decisions.

    Attributes:
        key: Name in settings, tables and maps.
        title: Name in tables and figures.
        role: "paper" if the paper's tables have it; "rival" or "sensitivity" otherwise.
        model_types: Classes of the models that `fit` returns, and of those that signals make of them.
        fit: Fits B models.
        description: Description on the page of a map; empty if a map cannot contain the variant.
        color: Name of the variant's color in figures of rankings; empty if it is not plotted.
    """

    key: str
    title: str
    role: Literal["paper", "rival", "sensitivity"]
    model_types: tuple[type[Value], ...]
    fit: FitFunction
    description: str = ""
    color: str = ""


def _fit_confidence(batch: "FitBatch") -> list[Confidence]:
    return [Confidence() for _ in range(batch.n_fits)]


def _fit_shared(batch: "FitBatch") -> list[SharedCurve]:
    """Fit one curve for all labels; the curve is the identity if there are no rows."""
    n_rows = np.array([len(batch.fit_rows.decision)])
    return [
        SharedCurve(build_curves_with_fallbacks(batch.knots, curve[None], n_rows, curve, minimum_rows=1))
        for curve in batch.shared_values
    ]


def _fit_mrp(batch: "FitBatch") -> list[Curves]:
    return batch.to_curves(batch.adam_values)


def _fit_optimum(batch: "FitBatch") -> list[Curves]:
    return batch.to_curves(batch.exact_fit.values)


def _fit_surface(batch: "FitBatch") -> list[Surfaces]:
    """Fit the reliability as a surface of confidence and gap."""
    return [
        fit_surfaces(
            decisions.confidence,
            decisions.gap,
            batch.fit_rows.decision,
            batch.fit_rows.correct,
            n_labels=batch.n_labels,
            settings=batch.settings,
        )
        for decisions in batch.fit_rows.by_calibrator[: batch.n_surfaces]
    ]


def add_label_fallbacks(models: Sequence[Labelwise], batch: "FitBatch") -> list[WithFallbacks]:
    """Add the fallbacks of labels with few rows to label-wise models.

    Args:
        models: Model of each of the B fits.
        batch: The batch on which they were fitted.

    Returns:
        The models with fallbacks.
    """
    n_rows = batch.rows_per_label
    with_fallbacks = []
    for model, values in zip(models, batch.fallback_values, strict=True):
        shared = SharedCurve(Curves(batch.knots, values[None], n_rows.sum(keepdims=True), ("none",)))
        with_fallbacks.append(WithFallbacks(model, shared, batch.fallback, n_rows))
    return with_fallbacks


def fit_shifts_with_fallbacks(batch: "FitBatch") -> list[WithFallbacks]:
    """Fit a shift for each label with enough rows.

    Args:
        batch: Batch of B fits.

    Returns:
        Shifts with fallbacks of each fit.
    """
    return add_label_fallbacks(fit_intercepts(batch), batch)


def fit_isotonic_with_fallbacks(batch: "FitBatch") -> list[WithFallbacks]:
    """Fit isotonic steps for each label with enough rows.

    Args:
        batch: Batch of B fits.

    Returns:
        Steps with fallbacks of each fit.
    """
    return add_label_fallbacks(fit_isotonic(batch), batch)


def fit_platt_with_fallbacks(batch: "FitBatch") -> list[WithFallbacks]:
    """Fit a line for each label with enough rows.

    Args:
        batch: Batch of B fits.

    Returns:
        Lines with fallbacks of each fit.
    """
    return add_label_fallbacks(fit_platt(batch), batch)


_VARIANTS = (
    Variant(
        key="confidence",
        title="confidence",
        role="paper",
        model_types=(Confidence,),
        fit=_fit_confidence,
        description="the calibrated confidence itself",
        color="confidence",
    ),
    Variant(
        key="shared_1d",
        title="shared 1D",
        role="paper",
        model_types=(SharedCurve,),
        fit=_fit_shared,
        description="one curve for all labels",
    ),
    Variant(
        key="label_intercept",
        title="label intercept",
        role="paper",
        model_types=(WithFallbacks,),
        fit=fit_shifts_with_fallbacks,
        description="a shift of the logit for each label",
    ),
    Variant(
        key="label_isotonic",
        title="label isotonic",
        role="paper",
        model_types=(WithFallbacks,),
        fit=fit_isotonic_with_fallbacks,
        description="isotonic steps for each label",
        color="isotonic",
    ),
    Variant(
        key="label_platt",
        title="label Platt",
        role="rival",
        model_types=(WithFallbacks,),
        fit=fit_platt_with_fallbacks,
        description="a Platt line for each label",
        color="platt",
    ),
    Variant(
        key="mrp",
        title="MRP",
        role="paper",
        model_types=(Curves,),
        fit=_fit_mrp,
        description="a monotone curve for each label (MRP as published)",
        color="mrp",
    ),
    Variant(
        key="label_2d",
        title="label-wise 2D",
        role="paper",
        model_types=(Surfaces,),
        fit=_fit_surface,
    ),
    Variant(
        key="mrp_exact",
        title="MRP, optimum",
        role="sensitivity",
        model_types=(Curves,),
        fit=_fit_optimum,
        description="a monotone curve for each label (MRP at its convex optimum)",
    ),
    Variant(
        key="mrp_pooled",
        title="MRP, pooled",
        role="rival",
        model_types=(ShrunkCurves, SignalAdjusted),
        fit=fit_mrp_pooled,
        description="a monotone curve for each label, partially pooled with the other labels (MRP)",
    ),
)
VARIANTS = {variant.key: variant for variant in _VARIANTS}


def variants_with_role(*roles: str) -> tuple[str, ...]:
    """List the variants with one of several roles.

    Args:
        *roles: Roles to include.

    Returns:
        Keys of the variants, in the order of the registry.
    """
    return tuple(key for key, variant in VARIANTS.items() if variant.role in roles)


PIPELINE_VARIANTS = tuple(VARIANTS)
DEPLOYABLE_VARIANTS = tuple(key for key, variant in VARIANTS.items() if variant.description)  # a map can contain them


def fit_variants(
    batch: "FitBatch", names: tuple[str, ...] = PIPELINE_VARIANTS
) -> dict[str, Sequence[ReliabilityModel]]:
    """Fit variants for B calibrators.

    Args:
        batch: Batch of B fits.
        names: Keys of the variants.

    Returns:
        Models of each variant in the order of the calibrators; surfaces only for the first `batch.n_surfaces`
        calibrators.
    """
    return {name: VARIANTS[name].fit(batch) for name in names}
