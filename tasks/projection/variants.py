"""The variants of the ablation by name: what each makes of a fixed decision and its confidence (paper, section 3.5).

The one contract: `fit(Batch) -> list of B values`, one for each calibrator, each a frozen value that maps logit of the
confidence `(n,)`, decision `(n,)` and gap `(n,)` to logit of the reliability `(n,)` float64 and names its own
`violations()`. Everything ranks and compares by that logit: the reliability itself saturates. Only the surfaces read
the gap. A label with few projection-fit rows takes the shared curve in every label-wise variant, one with none the
identity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.special import expit

from tasks.projection.cells import Triple
from tasks.projection.curves import Confidence, Curves, Fallback, SharedCurve, fallbacks, with_fallbacks
from tasks.projection.exact import Exact, fit_exact
from tasks.projection.labelwise import WithFallbacks, fit_intercepts, fit_isotonic, fit_platt
from tasks.projection.lattice import LatticeSettings, Triples, fit_lattices, objective
from tasks.projection.rows import Rows, rows_under
from tasks.projection.surface import fit_surfaces
from tasks.protocol.results import Calibrator
from tasks.protocol.splits import ValidationRows


class Variant(Protocol):
    """A fitted variant."""

    def __call__(self, confidence_logit: np.ndarray, decision: np.ndarray, gap: np.ndarray | None = None) -> np.ndarray:
        """logit of the confidence, decision and gap, `(n,)` each, to logit of the reliability `(n,)`."""
        ...

    def violations(self) -> list[str]:
        """What is wrong with it, a sentence for each place; empty if nothing is."""
        ...


@dataclass(frozen=True, eq=False)
class Batch:
    """Everything that the variants of one protocol seed are fitted on; what several of them need is fitted once."""

    fit: Rows  # projection-fit
    n_labels: int  # K
    settings: LatticeSettings
    selection: Rows | None = None  # projection-selection, needed if `settings.selection` is `best`
    device: str = "cpu"
    surfaces: int | None = None  # how many of the first fits get a surface, which takes the longest; all by default

    @classmethod
    def under(
        cls,
        calibrators: Sequence[Calibrator],
        parts: ValidationRows,
        settings: LatticeSettings,
        device: str,
        surfaces: int | None = None,
    ) -> Batch:
        """The validation rows of one protocol seed under several calibrators."""
        selection = rows_under(calibrators, parts.projection_selection) if len(parts.projection_selection) else None
        fit = rows_under(calibrators, parts.projection_fit)
        return cls(fit, parts.projection_fit.n_labels, settings, selection, device, surfaces)

    @cached_property
    def rows(self) -> np.ndarray:
        """Rows behind each label, `(K,)`."""
        return np.bincount(self.fit.decision, minlength=self.n_labels)

    @cached_property
    def fallback(self) -> tuple[Fallback, ...]:
        """What each label stands on."""
        return fallbacks(self.rows, self.settings.minimum_rows)

    @cached_property
    def knots(self) -> np.ndarray:
        """Knots of each fit on the scale of its confidence, `(B, J)`: uniform, or quantiles of the confidences."""
        uniform = self.settings.places
        if self.settings.knots_at == "uniform" or not len(self.fit.decision):
            return np.tile(uniform, (len(self.fit.confidence_logit), 1))
        inner = np.quantile(expit(self.fit.confidence_logit), uniform[1:-1], axis=1).T
        step = 1e-9 * np.arange(1, len(uniform) - 1)  # quantiles that coincide would make an interval of no width
        inner = np.clip(inner, 1e-6, 1 - 1e-6) + step
        return np.pad(inner, ((0, 0), (1, 1)), constant_values=((0, 0), (0, 1)))

    def placed(self, confidence_logit: np.ndarray) -> np.ndarray:
        """Confidences `(B, m)` on the scale on which the knots are uniform."""
        confidence = expit(confidence_logit)
        if self.settings.knots_at == "uniform":
            return np.asarray(confidence)
        uniform = self.settings.places
        return np.stack([np.interp(c, knots, uniform) for c, knots in zip(confidence, self.knots, strict=True)])

    def triples(self, rows: Rows, *, shared: bool) -> list[Triple]:
        """Confidence, decision and correct of each fit, as the lattice takes them; all of one label if `shared`."""
        decision = np.zeros_like(rows.decision) if shared else rows.decision
        return [(confidence, decision, rows.correct) for confidence in self.placed(rows.confidence_logit)]

    @cached_property
    def shared(self) -> np.ndarray:
        """Values `(B, J)` of the curves that all labels share."""
        return lattices([self], shared=True)[0][:, 0]

    @cached_property
    def stand_in(self) -> np.ndarray:
        """`shared` where a label takes it; where none does nobody reads it, and it is not fitted for that."""
        return self.shared if "shared" in self.fallback else np.zeros_like(self.knots)

    @cached_property
    def adam(self) -> np.ndarray:
        """Values `(B, K, J)` of MRP as published."""
        return lattices([self], shared=False)[0]

    @cached_property
    def exact(self) -> Exact:
        """The convex optimum of the same problem."""
        return fit_exact(
            self.placed(self.fit.confidence_logit),
            self.fit.decision,
            self.fit.correct,
            n_labels=self.n_labels,
            settings=self.settings,
            device=self.device,
        )

    def shared_curves(self) -> list[SharedCurve]:
        """The shared curve of each fit; without any rows it is the identity."""
        rows = np.array([len(self.fit.decision)])
        fits = zip(self.knots, self.shared, strict=True)
        return [SharedCurve(with_fallbacks(knots, curve[None], rows, curve, least=1)) for knots, curve in fits]

    def curves(self, values: np.ndarray, stand_in: np.ndarray | None = None) -> list[Curves]:
        """Fitted `values (B, K, J)` with `stand_in (B, J)`, or the batch's own, where few rows lie behind a label."""
        fits = zip(self.knots, values, self.stand_in if stand_in is None else stand_in, strict=True)
        least = self.settings.minimum_rows
        return [with_fallbacks(knots, own, self.rows, shared, least) for knots, own, shared in fits]


def lattices(batches: Sequence[Batch], *, shared: bool) -> list[np.ndarray]:
    """Of each batch the values `(B, K, J)`, or `(B, 1, J)` of what all labels share: one descent for all.

    The batches have their settings, number of labels and device in common.
    """
    if not batches:
        return []
    first = batches[0]
    fits = [one for batch in batches for one in batch.triples(batch.fit, shared=shared)]
    judges = [one for batch in batches if batch.selection for one in batch.triples(batch.selection, shared=shared)]
    values = fit_lattices(
        *_in_columns(fits),
        n_labels=1 if shared else first.n_labels,
        settings=first.settings,
        selection=_in_columns(judges) if judges else None,
        device=first.device,
    )
    return np.split(values, np.cumsum([len(batch.fit.confidence_logit) for batch in batches])[:-1])


def _in_columns(fits: Sequence[Triple]) -> Triples:
    confidence, decision, correct = zip(*fits, strict=True)
    return confidence, decision, correct


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


def fit_surface(batch: Batch) -> list[Variant]:
    """Reliability as a surface of confidence and gap."""
    rows, first = batch.fit, slice(batch.surfaces)
    return list(
        fit_surfaces(
            expit(rows.confidence_logit[first]),
            rows.gap[first],
            rows.decision,
            rows.correct,
            n_labels=batch.n_labels,
            settings=batch.settings,
            shared=batch.stand_in[first],
            knots=batch.knots[first],
        )
    )


def with_stand_in(fit: Callable[..., list]) -> Callable[[Batch], list[WithFallbacks]]:
    """Add the fallbacks to the fit of a label-wise variant that has none of its own."""

    def fit_with_fallbacks(batch: Batch) -> list[WithFallbacks]:
        rows = batch.fit
        own = fit(rows.confidence_logit, rows.decision, rows.correct, n_labels=batch.n_labels)
        shared = [
            SharedCurve(Curves(k, v[None], np.ones(1), ("none",)))
            for k, v in zip(batch.knots, batch.stand_in, strict=True)
        ]
        return [
            WithFallbacks(value, curve, batch.fallback, batch.rows) for value, curve in zip(own, shared, strict=True)
        ]

    return fit_with_fallbacks


VARIANTS: dict[str, Callable[[Batch], list]] = {
    "confidence": fit_confidence,
    "shared_1d": fit_shared,
    "label_intercept": with_stand_in(fit_intercepts),
    "label_isotonic": with_stand_in(fit_isotonic),
    "label_platt": with_stand_in(fit_platt),
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
    ridged: np.ndarray  # (B, K) bool, labels whose optimum exists thanks to the ridge alone


def optimality(batch: Batch) -> Optimality:
    """Adam's objective beside the optimum, on the projection-fit rows; labels before their fallbacks."""
    rows, smoothness = batch.fit, batch.settings.smoothness
    placed = batch.placed(rows.confidence_logit)
    adam, lowest = (
        objective(values, placed, rows.decision, rows.correct, smoothness)
        for values in (batch.adam, batch.exact.values)
    )
    return Optimality(adam - lowest, batch.exact.kkt.max(axis=1), batch.exact.ridged)
