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

from relmap.io.serialization import Value
from relmap.projection.labelwise import (
    WithFallbacks,
    fit_isotonic_with_fallbacks,
    fit_platt_with_fallbacks,
    fit_shifts_with_fallbacks,
)
from relmap.projection.mrp import (
    Confidence,
    Curves,
    ReliabilityModel,
    SharedCurve,
    fit_confidence,
    fit_mrp,
    fit_optimum,
    fit_shared,
)
from relmap.projection.pooled import ShrunkCurves, SignalAdjusted, fit_mrp_pooled
from relmap.projection.surface import Surfaces, fit_label_surfaces

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
        summary: What it is, in a sentence for the reference.
    """

    key: str
    title: str
    role: Literal["paper", "rival", "sensitivity"]
    model_types: tuple[type[Value], ...]
    fit: FitFunction
    description: str = ""
    color: str = ""
    summary: str = ""


_VARIANTS = (
    Variant(
        key="confidence",
        summary="The calibrated confidence itself.",
        title="confidence",
        role="paper",
        model_types=(Confidence,),
        fit=fit_confidence,
        description="the calibrated confidence itself",
        color="confidence",
    ),
    Variant(
        key="shared_1d",
        summary="One curve for all labels.",
        title="shared 1D",
        role="paper",
        model_types=(SharedCurve,),
        fit=fit_shared,
        description="one curve for all labels",
    ),
    Variant(
        key="label_intercept",
        summary="A shift of the logit for each label.",
        title="label intercept",
        role="paper",
        model_types=(WithFallbacks,),
        fit=fit_shifts_with_fallbacks,
        description="a shift of the logit for each label",
    ),
    Variant(
        key="label_isotonic",
        summary="Isotonic regression for each label.",
        title="label isotonic",
        role="paper",
        model_types=(WithFallbacks,),
        fit=fit_isotonic_with_fallbacks,
        description="isotonic steps for each label",
        color="isotonic",
    ),
    Variant(
        key="label_platt",
        summary="A Platt line (shift and slope) for each label.",
        title="label Platt",
        role="rival",
        model_types=(WithFallbacks,),
        fit=fit_platt_with_fallbacks,
        description="a Platt line for each label",
        color="platt",
    ),
    Variant(
        key="mrp",
        summary="Label-wise Monotone Reliability Projection, a monotone curve for each label.",
        title="MRP",
        role="paper",
        model_types=(Curves,),
        fit=fit_mrp,
        description="a monotone curve for each label (MRP as published)",
        color="mrp",
    ),
    Variant(
        key="label_2d",
        summary="A surface for each label over the confidence and the gap to the runner-up.",
        title="label-wise 2D",
        role="paper",
        model_types=(Surfaces,),
        fit=fit_label_surfaces,
    ),
    Variant(
        key="mrp_exact",
        summary="MRP at the optimum of its convex objective.",
        title="MRP, optimum",
        role="sensitivity",
        model_types=(Curves,),
        fit=fit_optimum,
        description="a monotone curve for each label (MRP at its convex optimum)",
    ),
    Variant(
        key="mrp_pooled",
        summary=("A monotone curve for each label, partially pooled with the other labels. The default of maps."),
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
