"""Registry of the variants of the ablation: models of the reliability of fixed decisions (paper, section 3.5).

To add one, write a file with a function that maps a `FitBatch` to B fitted models, one for each calibrator, and add an
entry here. A model is frozen, maps `CalibratedDecisions` to the logit of the reliability, shape (n,), and has a method
`violations()`. All rankings and comparisons use that logit, because the reliability itself saturates at 1.

If the setting `minimum_rows` is above 0, a label with fewer projection-fit rows uses the shared curve in the label-wise
variants, and a label without rows the identity. For maps of users' own predictions, `fit_pooled` replaces `fit` if the
variant has it; it fits a model with partial pooling over labels (`pooling.py`). This module does not import torch, so
that maps can be read without it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from relmap.projection.curves import (
    Confidence,
    Curves,
    ReliabilityModel,
    SharedCurve,
    build_curves_with_fallbacks,
    choose_fallbacks,
)
from relmap.projection.labelwise import (
    MAX_LOGIT,
    Labelwise,
    Lines,
    WithFallbacks,
    fit_intercepts,
    fit_isotonic,
    fit_platt,
)
from relmap.projection.pooling import PooledLineFitter, ShrunkCurves, WithSignals
from relmap.projection.surface import Surfaces, fit_surfaces
from relmap.projection.whole_vector import WholeVector, fit_whole_vector
from relmap.serialization import Value

if TYPE_CHECKING:
    from relmap.projection.batch import FitBatch

CURVE_WEIGHT_ROWS = 1000.0  # number of rows of a label at which its curve and its line have equal weight
FitFunction = Callable[["FitBatch"], Sequence[ReliabilityModel]]


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A model of the reliability of fixed decisions.

    Attributes:
        key: Name in settings, tables and maps.
        title: Name in tables and figures.
        role: "paper" if the paper's tables have it; "rival" or "sensitivity" otherwise.
        model_types: Classes of the models that `fit` and `fit_pooled` return.
        fit: Fits B models; None if the variant exists for maps only.
        fit_pooled: Fits B models for a map, instead of `fit`; "auto" chooses among variants with this function.
        description: Description on the page of a map; empty if a map cannot contain the variant.
        required_input: What the model needs in addition to the decision.
        color: Name of the variant's color in figures of rankings; empty if it is not plotted.
    """

    key: str
    title: str
    role: Literal["paper", "rival", "sensitivity"]
    model_types: tuple[type[Value], ...]
    fit: FitFunction | None = None
    fit_pooled: FitFunction | None = None
    description: str = ""
    required_input: Literal["confidence", "logits", "signals"] = "confidence"
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


def _fit_whole_vector(batch: "FitBatch") -> list[WholeVector]:
    """Fit one model of the uncalibrated logits, which is the same for all calibrators."""
    logits = batch.fit_rows.by_calibrator[0].logits
    label = batch.fit_rows.label
    if logits is None or label is None:
        raise ValueError("the all-logits model needs logits and labels")
    return [fit_whole_vector(logits, label)] * batch.n_fits


def _fit_pooled_shared_line(batch: "FitBatch") -> list[Lines]:
    return _fit_lines(batch.line_fitters, "shared")


def fit_pooled_shifts(batch: "FitBatch") -> list[Lines]:
    """Fit pooled lines that differ between labels by shifts only.

    Args:
        batch: Batch of B fits.

    Returns:
        Lines of each fit.
    """
    return _fit_lines(batch.line_fitters, "shared", "intercept")


def fit_pooled_lines(batch: "FitBatch") -> list[Lines]:
    """Fit pooled lines.

    Args:
        batch: Batch of B fits.

    Returns:
        Lines of each fit.
    """
    return _fit_lines(batch.line_fitters, "shared", "intercept", "slope")


def _fit_lines(fitters: Iterable[PooledLineFitter], *free_parts: str) -> list[Lines]:
    """Fit pooled lines without signals."""
    return cast("list[Lines]", [fitter.fit_lines(*free_parts) for fitter in fitters])


def fit_pooled_curves(batch: "FitBatch") -> list[ShrunkCurves]:
    """Fit MRP at its optimum, shrunk to pooled lines.

    The curve of a label with n rows has the weight n / (n + CURVE_WEIGHT_ROWS).

    Args:
        batch: Batch of B fits.

    Returns:
        Shrunk curves of each fit.
    """
    n_rows = batch.rows_per_label
    share = n_rows / (n_rows + CURVE_WEIGHT_ROWS)
    fallback = choose_fallbacks(n_rows, minimum_rows=0)
    # where confidences nearly coincide, an optimum can exceed the logits that a float64 reliability distinguishes
    clipped = np.clip(batch.exact_fit.values, -MAX_LOGIT, MAX_LOGIT)
    return [
        ShrunkCurves(line, Curves(batch.knots, values, n_rows, fallback), share)
        for line, values in zip(fit_pooled_lines(batch), clipped, strict=True)
    ]


def _fit_pooled_signals(batch: "FitBatch") -> list[WithSignals]:
    """Fit pooled lines with weights of signals, shared and by label."""
    fits = []
    for decisions in batch.fit_rows.by_calibrator:
        fitter = PooledLineFitter(
            decisions.confidence_logit,
            batch.fit_rows.decision,
            batch.fit_rows.correct,
            batch.n_labels,
            decisions.signals,
        )
        fits.append(fitter.fit_lines("shared", "intercept", "slope", "signals", "signals_by_label"))
    return cast("list[WithSignals]", fits)


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
        fit_pooled=_fit_confidence,
        description="the calibrated confidence itself",
        color="confidence",
    ),
    Variant(
        key="shared_1d",
        title="shared 1D",
        role="paper",
        model_types=(SharedCurve, Lines),
        fit=_fit_shared,
        fit_pooled=_fit_pooled_shared_line,
        description="one curve for all labels",
    ),
    Variant(
        key="label_intercept",
        title="label intercept",
        role="paper",
        model_types=(WithFallbacks, Lines),
        fit=fit_shifts_with_fallbacks,
        fit_pooled=fit_pooled_shifts,
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
        model_types=(WithFallbacks, Lines),
        fit=fit_platt_with_fallbacks,
        fit_pooled=fit_pooled_lines,
        description="a Platt line for each label",
        color="platt",
    ),
    Variant(
        key="mrp",
        title="MRP",
        role="paper",
        model_types=(Curves, ShrunkCurves),
        fit=_fit_mrp,
        fit_pooled=fit_pooled_curves,
        description="a monotone curve for each label (MRP)",
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
        key="label_vector",
        title="all logits",
        role="rival",
        model_types=(WholeVector,),
        fit=_fit_whole_vector,
        fit_pooled=_fit_whole_vector,
        description="a model of all logits",
        required_input="logits",
    ),
    Variant(
        key="label_signals",
        title="label and signals",
        role="rival",
        model_types=(WithSignals,),
        fit_pooled=_fit_pooled_signals,
        description="a Platt line for each label, with signals",
        required_input="signals",
    ),
)
VARIANTS = {variant.key: variant for variant in _VARIANTS}


def variants_with_role(*roles: str) -> tuple[str, ...]:
    """List the variants that the pipeline fits, by role.

    Args:
        *roles: Roles to include.

    Returns:
        Keys of the variants with one of these roles, in the order of the registry.
    """
    return tuple(key for key, variant in VARIANTS.items() if variant.role in roles and variant.fit)


def _list_deployable() -> tuple[str, ...]:
    """List the variants that a map can contain: first the candidates of "auto", then the others."""
    deployable = [key for key, variant in VARIANTS.items() if variant.description]
    automatic = [key for key in deployable if key in AUTO_VARIANTS]
    others = [key for key in deployable if key not in AUTO_VARIANTS]
    return (*automatic, *others)


PIPELINE_VARIANTS = tuple(key for key, variant in VARIANTS.items() if variant.fit)
AUTO_VARIANTS = tuple(key for key, variant in VARIANTS.items() if variant.fit_pooled)
DEPLOYABLE_VARIANTS = _list_deployable()


def fit_variants(
    batch: "FitBatch", names: tuple[str, ...] = PIPELINE_VARIANTS, *, pool_labels: bool = False
) -> dict[str, Sequence[ReliabilityModel]]:
    """Fit variants for B calibrators.

    Args:
        batch: Batch of B fits.
        names: Keys of the variants.
        pool_labels: Whether to fit models for a map, by `fit_pooled` for the variants that have it.

    Returns:
        Models of each variant in the order of the calibrators; surfaces only for the first `batch.n_surfaces`
        calibrators. Variants that only maps have are omitted unless `pool_labels`.
    """
    fitted = {}
    for name in names:
        variant = VARIANTS[name]
        fit = variant.fit_pooled if pool_labels and variant.fit_pooled else variant.fit
        if fit:
            fitted[name] = fit(batch)
    return fitted
