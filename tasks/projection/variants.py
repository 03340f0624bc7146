"""The variants of the ablation, each a value of this registry: what it makes of fixed decisions (paper, section 3.5).

A new one is a file with `fit(Batch) -> list of B values`, one for each calibrator, and a line here. A value is frozen,
maps `Decisions` to logit of the reliability `(n,)` float64 and names its own `violations()`. Everything ranks and
compares by that logit: the reliability itself saturates. Where the settings ask for it, a label with few
projection-fit rows takes the shared curve in every label-wise variant but that one, and a label with none the
identity. Nothing here imports torch: who reads a map does without.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from scipy.special import expit

from tasks.projection.curves import Confidence, Curves, SharedCurve
from tasks.projection.labelwise import WithFallbacks, fit_intercepts, fit_isotonic, fit_platt
from tasks.projection.surface import Surfaces, fit_surfaces

if TYPE_CHECKING:
    from tasks.projection.batch import Batch


@dataclass(frozen=True)
class Variant:
    """A way to make a reliability of a fixed decision: what it is called, what it is for, and how it is fitted."""

    key: str  # under which its results are filed
    title: str
    role: Literal["paper", "rival", "sensitivity"]  # the paper's tables hold the first
    fit: Callable[["Batch"], list[Any]]  # B fitted values
    in_words: str = ""  # as a map's page says what it is; empty where a map cannot hold it
    automatic: bool = False  # whether `auto` chooses from it; the registry has these from simple to complex
    of_the_logit: bool = False  # whether it can do nothing with a confidence of exactly 0 or 1
    line: str = ""  # the name of its colour where rankings are drawn as lines; empty where it is not drawn

    @property
    def value(self) -> type:
        """What `fit` returns for each calibrator, as it says itself."""
        return cast("type", get_args(self.fit.__annotations__["return"])[0])


def fit_confidence(batch: "Batch") -> list[Confidence]:
    """No projection at all."""
    return [Confidence() for _ in batch.fit.under]


def fit_shared(batch: "Batch") -> list[SharedCurve]:
    """One curve for all labels, however few rows there are."""
    return batch.shared_curves()


def fit_mrp(batch: "Batch") -> list[Curves]:
    """MRP as published."""
    return batch.curves(batch.adam)


def fit_optimum(batch: "Batch") -> list[Curves]:
    """MRP at its convex optimum."""
    return batch.curves(batch.exact.values)


def fit_surface(batch: "Batch") -> list[Surfaces]:
    """Reliability as a surface of confidence and gap; a label without rows keeps its start."""
    rows = batch.fit.decision, batch.fit.correct
    return [
        fit_surfaces(expit(under.confidence_logit), under.gap, *rows, n_labels=batch.n_labels, settings=batch.settings)
        for under in batch.fit.under[: batch.surfaces]
    ]


def guarded(fit: Callable[["Batch"], list]) -> Callable[["Batch"], list[WithFallbacks]]:
    """Add the fallbacks to the fit of a label-wise variant that has none of its own."""

    def fit_with_fallbacks(batch: "Batch") -> list[WithFallbacks]:
        knots, rows = batch.settings.places, batch.rows.sum(keepdims=True)
        shared = (SharedCurve(Curves(knots, values[None], rows, ("none",))) for values in batch.stand_in)
        fits = zip(fit(batch), shared, strict=True)
        return [WithFallbacks(own, curve, batch.fallback, batch.rows) for own, curve in fits]

    return fit_with_fallbacks


VARIANTS = {
    variant.key: variant
    for variant in (
        Variant(
            "confidence",
            "confidence",
            "paper",
            fit_confidence,
            "the calibrated confidence itself",
            True,
            line="confidence",
        ),
        Variant("shared_1d", "shared 1D", "paper", fit_shared, "one curve for all labels", True),
        Variant(
            "label_intercept", "label intercept", "paper", guarded(fit_intercepts), "a shift for each label", True, True
        ),
        Variant(
            "label_isotonic",
            "label isotonic",
            "paper",
            guarded(fit_isotonic),
            "isotonic steps for each label",
            line="isotonic",
        ),
        Variant(
            "label_platt",
            "label Platt",
            "rival",
            guarded(fit_platt),
            "a Platt line for each label",
            True,
            True,
            "platt",
        ),
        Variant("mrp", "MRP", "paper", fit_mrp, "a monotone curve for each label (MRP)", True, line="mrp"),
        Variant("label_2d", "label-wise 2D", "paper", fit_surface),
        Variant(
            "mrp_exact",
            "MRP, optimum",
            "sensitivity",
            fit_optimum,
            "a monotone curve for each label (MRP at its convex optimum)",
        ),
    )
}


def variants_for(*roles: str) -> tuple[str, ...]:
    """The keys of the variants that are for one of `roles`, in order."""
    return tuple(key for key, variant in VARIANTS.items() if variant.role in roles)


SIMPLEST_FIRST = tuple(key for key, variant in VARIANTS.items() if variant.automatic)  # what `auto` chooses from
DEPLOYABLE = (
    *SIMPLEST_FIRST,
    *(key for key, v in VARIANTS.items() if v.in_words and not v.automatic),
)  # maps hold them


def project_batch(batch: "Batch", names: tuple[str, ...] = tuple(VARIANTS)) -> dict[str, list[Any]]:
    """Fit the variants `names` for B calibrators at once: name to B fitted values, in the order of the calibrators.

    Surfaces are as many as the batch asks for.
    """
    return {name: VARIANTS[name].fit(batch) for name in names}
