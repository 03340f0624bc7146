"""The variants of the ablation, each a value of this registry: what it makes of fixed decisions (paper, section 3.5).

A new one is a file with `fit(Batch) -> list of B values`, one for each calibrator, and a line here. A value is frozen,
maps `Decisions` to logit of the reliability `(n,)` float64 and names its own `violations()`. Everything ranks and
compares by that logit: the reliability itself saturates. Where the settings ask for it, a label with few
projection-fit rows takes the shared curve in every label-wise variant but that one, and a label with none the
identity. A map for one's own predictions is fitted by `pooled` where a variant has it: the same kind of curve, in which
labels lean on one another (`pooling.py`). Nothing here imports torch: who reads a map does without.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_args

import numpy as np

from relmap.projection.curves import Confidence, Curves, SharedCurve, choose_fallbacks, curves_with_fallbacks
from relmap.projection.labelwise import MAX_LOGIT, Lines, WithFallbacks, fit_intercepts, fit_isotonic, fit_platt
from relmap.projection.pooling import PooledLineFitter, ShrunkCurves, WithSignals
from relmap.projection.surface import Surfaces, fit_surfaces
from relmap.projection.whole_vector import WholeVector, fit_whole_vector

if TYPE_CHECKING:
    from relmap.projection.batch import FitBatch


class Variant(NamedTuple):
    """A way to make a reliability of a fixed decision: what it is called, what it is for, and how it is fitted."""

    key: str  # under which its results are filed
    title: str
    role: Literal["paper", "rival", "sensitivity"]  # the paper's tables hold the first
    fit: Callable[["FitBatch"], list[Any]] | None  # B fitted values; None where only a map has it
    in_words: str = ""  # as a map's page says what it is; empty where a map cannot hold it
    pooled: Callable[["FitBatch"], list[Any]] | None = None  # as a map has it, not `fit`; `auto` chooses from these
    reads: Literal["confidence", "logits", "signals"] = "confidence"  # what it needs of a decision, beside the decision
    line: str = ""  # the name of its colour where rankings are drawn as lines; empty where it is not drawn

    @property
    def values(self) -> set[type]:
        """What its fits return for each calibrator, as they say themselves."""
        return {cast("type", get_args(fit.__annotations__["return"])[0]) for fit in (self.fit, self.pooled) if fit}


def _unfitted(batch: "FitBatch") -> list[Confidence]:
    return [Confidence() for _ in batch.fit.under]


def _fit_shared(batch: "FitBatch") -> list[SharedCurve]:
    """One curve for all labels, however few rows there are; without any it is the identity."""
    rows = np.array([len(batch.fit.decision)])
    return [
        SharedCurve(curves_with_fallbacks(batch.knots, curve[None], rows, curve, least=1)) for curve in batch.shared
    ]


def _fit_mrp(batch: "FitBatch") -> list[Curves]:
    return batch.curves(batch.adam)


def _fit_optimum(batch: "FitBatch") -> list[Curves]:
    return batch.curves(batch.exact.values)


def _fit_surface(batch: "FitBatch") -> list[Surfaces]:
    """Reliability as a surface of confidence and gap; a label without rows keeps its start."""
    rows = batch.fit.decision, batch.fit.correct
    return [
        fit_surfaces(under.confidence, under.gap, *rows, n_labels=batch.n_labels, settings=batch.settings)
        for under in batch.fit.under[: batch.surfaces]
    ]


def _score(batch: "FitBatch") -> list[WholeVector]:
    """A class-wise recalibration read as a score: the same one whatever the calibrator."""
    logits, label = batch.fit.under[0].logits, batch.fit.label
    if logits is None or label is None:
        raise ValueError("the whole vector needs logits and labels")
    return [fit_whole_vector(logits, label)] * len(batch.fit.under)


def make_pooled_fit(*free: str) -> Callable[["FitBatch"], list[Lines]]:
    """The fit of pooled lines in which `free` parts of the prior are not left out."""

    def fit(batch: "FitBatch") -> list[Lines]:
        return cast("list[Lines]", [rows.lines(*free) for rows in batch.pooled])

    return fit


fit_pooled_shifts, fit_pooled_lines = (
    make_pooled_fit("shared", "intercept"),
    make_pooled_fit("shared", "intercept", "slope"),
)


def fit_pooled_curves(batch: "FitBatch") -> list[ShrunkCurves]:
    """MRP at its optimum, shrunk to the label's pooled line: the more, the fewer rows it has."""
    share = batch.rows / (batch.rows + CURVE_WEIGHT_ROWS)
    knots, own = batch.knots, choose_fallbacks(batch.rows, least=0)
    # where confidences all but coincide an optimum lies beyond what a reliability of float64 tells from 0 or 1
    values = np.clip(batch.exact.values, -MAX_LOGIT, MAX_LOGIT)
    fits = zip(fit_pooled_lines(batch), values, strict=True)
    return [ShrunkCurves(line, Curves(knots, values, batch.rows, own), share) for line, values in fits]


def _pooled_signals(batch: "FitBatch") -> list[WithSignals]:
    """Pooled lines, and what signals add to them: for all labels, and for each."""
    free = ("shared", "intercept", "slope", "signals", "signals_by_label")
    rows, at = (batch.fit.decision, batch.fit.correct, batch.n_labels), batch.fit.under
    fits = [PooledLineFitter(each.confidence_logit, *rows, each.signals).lines(*free) for each in at]
    return cast("list[WithSignals]", fits)


def add_label_fallbacks(fit: Callable[["FitBatch"], list]) -> Callable[["FitBatch"], list[WithFallbacks]]:
    """Add the fallbacks to the fit of a label-wise variant that has none of its own."""

    def fit_with_fallbacks(batch: "FitBatch") -> list[WithFallbacks]:
        knots, rows = batch.knots, batch.rows.sum(keepdims=True)
        shared = (SharedCurve(Curves(knots, values[None], rows, ("none",))) for values in batch.stand_in)
        fits = zip(fit(batch), shared, strict=True)
        return [WithFallbacks(own, curve, batch.fallback, batch.rows) for own, curve in fits]

    return fit_with_fallbacks


fit_shifts_with_fallbacks, fit_isotonic_with_fallbacks, fit_platt_with_fallbacks = (
    add_label_fallbacks(fit) for fit in (fit_intercepts, fit_isotonic, fit_platt)
)
CURVE_WEIGHT_ROWS = 1000.0  # rows of a label at which its curve counts as much as its line

_VARIANTS = (
    Variant(
        "confidence", "confidence", "paper", _unfitted, "the calibrated confidence itself", _unfitted, line="confidence"
    ),
    Variant("shared_1d", "shared 1D", "paper", _fit_shared, "one curve for all labels", make_pooled_fit("shared")),
    Variant(
        "label_intercept",
        "label intercept",
        "paper",
        fit_shifts_with_fallbacks,
        "a shift for each label",
        fit_pooled_shifts,
    ),
    Variant(
        "label_isotonic",
        "label isotonic",
        "paper",
        fit_isotonic_with_fallbacks,
        "isotonic steps for each label",
        line="isotonic",
    ),
    Variant(
        "label_platt",
        "label Platt",
        "rival",
        fit_platt_with_fallbacks,
        "a Platt line for each label",
        fit_pooled_lines,
        line="platt",
    ),
    Variant("mrp", "MRP", "paper", _fit_mrp, "a monotone curve for each label (MRP)", fit_pooled_curves, line="mrp"),
    Variant("label_2d", "label-wise 2D", "paper", _fit_surface),
    Variant(
        "mrp_exact",
        "MRP, optimum",
        "sensitivity",
        _fit_optimum,
        "a monotone curve for each label (MRP at its convex optimum)",
    ),
    Variant(
        "label_vector", "whole vector", "rival", _score, "a score of the whole vector of logits", _score, reads="logits"
    ),
    Variant(
        "label_signals",
        "label and signals",
        "rival",
        None,
        "a Platt line for each label, with signals",
        _pooled_signals,
        reads="signals",
    ),
)
VARIANTS = {variant.key: variant for variant in _VARIANTS}


def variants_with_role(*roles: str) -> tuple[str, ...]:
    """The keys of the variants that are for one of `roles`, in order."""
    return tuple(key for key, variant in VARIANTS.items() if variant.role in roles and variant.fit)


PIPELINE_VARIANTS = tuple(key for key, variant in VARIANTS.items() if variant.fit)  # what the pipeline fits
AUTO_VARIANTS = tuple(key for key, variant in VARIANTS.items() if variant.pooled)  # what `auto` chooses from
DEPLOYABLE_VARIANTS = tuple(
    sorted((key for key, v in VARIANTS.items() if v.in_words), key=lambda key: key not in AUTO_VARIANTS)
)


def fit_variants(
    batch: "FitBatch", names: tuple[str, ...] = PIPELINE_VARIANTS, *, lean: bool = False
) -> dict[str, list[Any]]:
    """Fit the variants `names` for B calibrators at once: name to B fitted values, in the order of the calibrators.

    Surfaces are as many as the batch asks for. A map for one's own predictions lets labels `lean` on one another, where
    a variant knows how.
    """
    fits = {name: (lean and VARIANTS[name].pooled) or VARIANTS[name].fit for name in names}
    return {name: fit(batch) for name, fit in fits.items() if fit}
