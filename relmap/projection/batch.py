"""Everything that the variants of one protocol seed are fitted on, and the lattices that several of them share."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relmap.decisions import Calibrator
from relmap.errors import needs_extra
from relmap.projection.curves import Curves, Fallback, choose_fallbacks, curves_with_fallbacks
from relmap.projection.decisions import LabelledDecisions
from relmap.projection.exact import ExactFit, fit_exact
from relmap.projection.lattice import FitRows, mrp_objective, uniform_knots
from relmap.projection.pooling import PooledLineFitter
from relmap.settings import ProjectionParams
from relmap.splits import ValidationRows


@dataclass(frozen=True, eq=False)
class FitBatch:
    """Everything that the variants of one protocol seed are fitted on; what several of them need is fitted once."""

    fit: LabelledDecisions  # projection-fit
    n_labels: int  # K
    settings: ProjectionParams
    selection: LabelledDecisions | None = None  # projection-selection: chooses the penalty of label-only shifts
    device: str = "cpu"
    surfaces: int | None = None  # how many of the first fits get a surface, which takes the longest; all by default

    @classmethod
    def under(
        cls, calibrators: Sequence[Calibrator], parts: ValidationRows, settings: ProjectionParams, device: str
    ) -> "FitBatch":
        """The validation rows of one protocol seed under several calibrators."""
        fit, selection = parts.projection_fit, parts.projection_selection
        judge = LabelledDecisions.of(calibrators, selection) if len(selection) else None
        return cls(LabelledDecisions.of(calibrators, fit), fit.n_labels, settings, judge, device)

    @property
    def knots(self) -> np.ndarray:
        """Where the knots of the lattices lie, `(J,)` in [0, 1]."""
        return uniform_knots(self.settings.knots)

    @cached_property
    def rows(self) -> np.ndarray:
        """Rows behind each label, `(K,)`."""
        return np.bincount(self.fit.decision, minlength=self.n_labels)

    @cached_property
    def fallback(self) -> tuple[Fallback, ...]:
        """What each label stands on."""
        return choose_fallbacks(self.rows, self.settings.minimum_rows)

    @cached_property
    def by_label(self) -> list[list[tuple[np.ndarray, np.ndarray]]]:
        """Of each fit the rows of each label 0..K-1: rising logits of the confidence and correct, `(r,)` both."""
        correct, decision, fits = self.fit.correct, self.fit.decision, []
        for z in (under.confidence_logit for under in self.fit.under):
            order = np.lexsort((correct, z, decision))
            parts = np.split(order, np.searchsorted(decision[order], np.arange(1, self.n_labels)))
            fits.append([(z[rows].astype(np.float64), correct[rows] != 0) for rows in parts])
        return fits

    def fits(self, *, shared: bool = False) -> list[FitRows]:
        """The rows of each fit as a lattice takes them; all of one label if `shared`."""
        decision = np.zeros_like(self.fit.decision) if shared else self.fit.decision
        return [(under.confidence, decision, self.fit.correct) for under in self.fit.under]

    @cached_property
    def pooled(self) -> list[PooledLineFitter]:
        """The rows of each fit as pooled lines take them."""
        rows = self.fit.decision, self.fit.correct, self.n_labels
        return [PooledLineFitter(under.confidence_logit, *rows) for under in self.fit.under]

    @cached_property
    def shared(self) -> np.ndarray:
        """Values `(B, J)` of the curves that all labels share."""
        return fit_batch_lattices([self], shared=True)[0][:, 0]

    @cached_property
    def stand_in(self) -> np.ndarray:
        """`shared` where a label takes it; where none does nobody reads it, and it is not fitted for that."""
        return self.shared if "shared" in self.fallback else np.zeros((len(self.fit.under), self.settings.knots))

    @cached_property
    def adam(self) -> np.ndarray:
        """Values `(B, K, J)` of MRP as published."""
        return fit_batch_lattices([self])[0]

    @cached_property
    def exact(self) -> ExactFit:
        """The convex optimum of the same problem."""
        return fit_exact(self.fits(), n_labels=self.n_labels, settings=self.settings, device=self.device)

    def curves(self, values: np.ndarray) -> list[Curves]:
        """Fitted `values (B, K, J)` with `stand_in` where few rows lie behind a label."""
        fits, least = zip(values, self.stand_in, strict=True), self.settings.minimum_rows
        return [curves_with_fallbacks(self.knots, own, self.rows, shared, least) for own, shared in fits]


def fit_batch_lattices(batches: Sequence[FitBatch], *, shared: bool = False) -> list[np.ndarray]:
    """Of each batch the values `(B, K, J)`, or `(B, 1, J)` of what all labels share: one descent for all.

    The batches have their settings, number of labels and device in common.
    """
    with needs_extra("pipeline"):  # the lattice as published is fitted with torch
        from relmap.projection.adam_lattice import fit_lattices  # noqa: PLC0415 - imports torch, for two seconds

    if not batches:
        return []
    first = batches[0]
    values = fit_lattices(
        [rows for batch in batches for rows in batch.fits(shared=shared)],
        n_labels=1 if shared else first.n_labels,
        settings=first.settings,
        device=first.device,
    )
    return np.split(values, np.cumsum([len(batch.fit.under) for batch in batches])[:-1])


def fit_mrp_batches(batches: Sequence[FitBatch]) -> list[list[Curves]]:
    """MRP as published for several batches, as `lattices` takes them, which may differ in their rows."""
    return [batch.curves(values) for batch, values in zip(batches, fit_batch_lattices(batches), strict=True)]


def measure_optimality_gap(batch: FitBatch) -> tuple[np.ndarray, np.ndarray]:
    """How far Adam stays above the lowest value of MRP's objective, and what proves that value, `(B,)` both.

    The objective of Adam's curves less that of the optimum's on the projection-fit rows, labels before their
    fallbacks; and the largest KKT residual over labels.
    """
    fits, smoothness = batch.fits(), batch.settings.smoothness
    pairs = zip(batch.adam, batch.exact.values, fits, strict=True)
    excess = [
        mrp_objective(adam, *rows, smoothness) - mrp_objective(best, *rows, smoothness) for adam, best, rows in pairs
    ]
    return np.array(excess), batch.exact.kkt.max(axis=1)
