"""The variants of the ablation by name: what each makes of a fixed decision and its confidence (paper, section 3.5).

The one contract: `fit(Batch) -> list of B values`, one for each calibrator, each a frozen value that maps logit of the
confidence `(n,)`, decision `(n,)` and gap `(n,)` to logit of the reliability `(n,)` float64 and names its own
`violations()`. Everything ranks and compares by that logit: the reliability itself saturates. Only the surfaces read
the gap. Where the settings ask for it, a label with few projection-fit rows takes the shared curve in every label-wise
variant but that one, and a label with none the identity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import expit

from tasks.projection.batch import Batch, lattices
from tasks.projection.curves import Confidence, Curves, SharedCurve
from tasks.projection.label_maps import Intercepts
from tasks.projection.labelwise import WithFallbacks, fit_intercepts, fit_isotonic, fit_platt
from tasks.projection.lattice import objective
from tasks.projection.surface import Surfaces, fit_surfaces


class Variant(Protocol):
    """A fitted variant."""

    def __call__(self, confidence_logit: np.ndarray, decision: np.ndarray, gap: np.ndarray | None = None) -> np.ndarray:
        """logit of the confidence, decision and gap, `(n,)` each, to logit of the reliability `(n,)`."""
        ...

    def violations(self) -> list[str]:
        """What is wrong with it, a sentence for each place; empty if nothing is."""
        ...


def fit_confidence(batch: Batch) -> list[Confidence]:
    """No projection at all."""
    return [Confidence() for _ in batch.fit.confidence_logit]


def fit_shared(batch: Batch) -> list[SharedCurve]:
    """One curve for all labels, however few rows there are."""
    return batch.shared_curves()


def fit_labelwise(batch: Batch) -> list[Curves]:
    """MRP as published."""
    return batch.curves(batch.adam)


def fit_optimum(batch: Batch) -> list[Curves]:
    """MRP at its convex optimum."""
    return batch.curves(batch.exact.values)


def fit_surface(batch: Batch) -> list[Surfaces]:
    """Reliability as a surface of confidence and gap; a label without rows keeps its start."""
    rows, first = batch.fit, slice(batch.surfaces)
    fits = zip(expit(rows.confidence_logit[first]), rows.gap[first], strict=True)
    settings, labels = batch.settings, batch.n_labels
    return [fit_surfaces(*one, rows.decision, rows.correct, n_labels=labels, settings=settings) for one in fits]


def fit_shifts(batch: Batch) -> list[Intercepts]:
    """A shift of the logit for each label, its penalty chosen on projection-selection where that is there."""
    return fit_intercepts(batch.fit, batch.selection, n_labels=batch.n_labels)


def of_rows(fit: Callable[..., list]) -> Callable[[Batch], list]:
    """A fit that takes the projection-fit rows alone."""

    def fit_of_rows(batch: Batch) -> list:
        rows = batch.fit
        return fit(rows.confidence_logit, rows.decision, rows.correct, n_labels=batch.n_labels)

    return fit_of_rows


def with_stand_in(fit: Callable[[Batch], list]) -> Callable[[Batch], list[WithFallbacks]]:
    """Add the fallbacks to the fit of a label-wise variant that has none of its own."""

    def fit_with_fallbacks(batch: Batch) -> list[WithFallbacks]:
        own = fit(batch)
        shared = [
            SharedCurve(Curves(batch.settings.places, v[None], batch.rows.sum(keepdims=True), ("none",)))
            for v in batch.stand_in
        ]
        return [
            WithFallbacks(value, curve, batch.fallback, batch.rows) for value, curve in zip(own, shared, strict=True)
        ]

    return fit_with_fallbacks


VARIANTS: dict[str, Callable[[Batch], list]] = {
    "confidence": fit_confidence,
    "shared_1d": fit_shared,
    "label_intercept": with_stand_in(fit_shifts),
    "label_isotonic": with_stand_in(of_rows(fit_isotonic)),
    "label_platt": with_stand_in(of_rows(fit_platt)),
    "mrp": fit_labelwise,
    "label_2d": fit_surface,
    "mrp_exact": fit_optimum,
}


def project_batch(batch: Batch, names: tuple[str, ...] = tuple(VARIANTS)) -> dict[str, list[Variant]]:
    """Fit the variants `names` for B calibrators at once: name to B fitted values, in the order of the calibrators.

    Surfaces are as many as the batch asks for.
    """
    return {name: VARIANTS[name](batch) for name in names}


def project_together(batches: Sequence[Batch]) -> list[list[Curves]]:
    """MRP as published for several batches, as `lattices` takes them, which may differ in their rows."""
    rare = [batch for batch in batches if "shared" in batch.fallback]
    shared = iter(lattices(rare, shared=True))
    stand_ins = [next(shared)[:, 0] if "shared" in batch.fallback else None for batch in batches]
    fits = zip(batches, lattices(batches, shared=False), stand_ins, strict=True)
    return [batch.curves(values, stand_in) for batch, values, stand_in in fits]


@dataclass(frozen=True, eq=False)
class Optimality:
    """How far Adam as published stays above the lowest value of MRP's objective, and what proves that value."""

    excess: np.ndarray  # (B,) objective of Adam's curves less that of the optimum's
    kkt: np.ndarray  # (B,) largest KKT residual over labels


def optimality(batch: Batch) -> Optimality:
    """Adam's objective beside the optimum, on the projection-fit rows; labels before their fallbacks."""
    rows, smoothness = batch.fit, batch.settings.smoothness
    placed = expit(rows.confidence_logit)
    adam, lowest = (
        objective(values, placed, rows.decision, rows.correct, smoothness)
        for values in (batch.adam, batch.exact.values)
    )
    return Optimality(adam - lowest, batch.exact.kkt.max(axis=1))
