"""Rows that the variants of one protocol seed are fitted on, and fitted models that several variants share."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from relmap.decisions import Calibrator
from relmap.errors import needs_extra
from relmap.projection.curves import Curves, Fallback, build_curves_with_fallbacks, choose_fallbacks
from relmap.projection.decisions import LabelledDecisions
from relmap.projection.exact import ExactFit, fit_exact
from relmap.projection.lattice import FitRows, mrp_objective, uniform_knots
from relmap.settings import ProjectionParams
from relmap.splits import ValidationRows


class LabelRows(NamedTuple):
    """Rows of one label, sorted by confidence.

    Attributes:
        confidence_logit: Logit of the confidence, nondecreasing, shape (r,), float64.
        correct: Whether the decision is correct, shape (r,), bool.
    """

    confidence_logit: np.ndarray
    correct: np.ndarray


@dataclass(frozen=True, eq=False)
class FitBatch:
    """Batch of B fits on the same rows, one for each calibrator.

    Models that several variants use are fitted once and cached.

    Attributes:
        fit_rows: Projection-fit rows under each calibrator.
        n_labels: Number of labels K.
        settings: Settings of the projection.
        selection_rows: Projection-selection rows, by which the penalty of label-wise shifts is chosen.
        device: Device on which curves are fitted.
        n_surfaces: Surfaces, the slowest models, are fitted for this number of calibrators, the first ones; None for
            all calibrators.
    """

    fit_rows: LabelledDecisions
    n_labels: int
    settings: ProjectionParams
    selection_rows: LabelledDecisions | None = None
    device: str = "cpu"
    n_surfaces: int | None = None

    @classmethod
    def from_validation_rows(
        cls,
        calibrators: Sequence[Calibrator],
        rows: ValidationRows,
        settings: ProjectionParams,
        device: str,
        *,
        smallest_probability: float = 0.0,
    ) -> "FitBatch":
        """Create a batch from the validation rows of one protocol seed and several calibrators.

        Args:
            calibrators: B calibrators.
            rows: Validation rows.
            settings: Settings of the projection.
            device: Device on which curves are fitted.
            smallest_probability: Bound to which calibrated probabilities are clipped; the paper's tables use 1e-6.

        Returns:
            The batch of B fits.
        """
        selection_rows = None
        if len(rows.projection_selection):
            selection_rows = LabelledDecisions.from_calibrators(
                calibrators, rows.projection_selection, smallest_probability
            )
        return cls(
            fit_rows=LabelledDecisions.from_calibrators(calibrators, rows.projection_fit, smallest_probability),
            n_labels=rows.projection_fit.n_labels,
            settings=settings,
            selection_rows=selection_rows,
            device=device,
        )

    @property
    def n_fits(self) -> int:
        """Number of fits B."""
        return len(self.fit_rows.by_calibrator)

    @property
    def knots(self) -> np.ndarray:
        """Knots of the lattices in [0, 1], shape (J,)."""
        return uniform_knots(self.settings.knots)

    @cached_property
    def rows_per_label(self) -> np.ndarray:
        """Number of rows of each label, shape (K,)."""
        return np.bincount(self.fit_rows.decision, minlength=self.n_labels)

    @cached_property
    def fallback(self) -> tuple[Fallback, ...]:
        """Fallback of each label; "none" for labels with enough rows."""
        return choose_fallbacks(self.rows_per_label, self.settings.minimum_rows)

    @cached_property
    def rows_by_label(self) -> list[list[LabelRows]]:
        """Rows of each label 0..K-1, for each fit."""
        correct = self.fit_rows.correct
        decision = self.fit_rows.decision
        fits = []
        for decisions in self.fit_rows.by_calibrator:
            logit = decisions.confidence_logit
            order = np.lexsort((correct, logit, decision))
            label_starts = np.searchsorted(decision[order], np.arange(1, self.n_labels))
            labels = []
            for rows in np.split(order, label_starts):
                confidence_logit = logit[rows].astype(np.float64)
                labels.append(LabelRows(confidence_logit, correct=correct[rows] != 0))
            fits.append(labels)
        return fits

    def lattice_rows(self, *, shared: bool = False) -> list[FitRows]:
        """Return the rows of each fit, in the form that fits of curves need.

        Args:
            shared: Whether all rows get label 0, for one curve that all labels share.

        Returns:
            Rows of each of the B fits.
        """
        decision = self.fit_rows.decision
        if shared:
            decision = np.zeros_like(decision)
        return [
            FitRows(decisions.confidence, decision, self.fit_rows.correct) for decisions in self.fit_rows.by_calibrator
        ]

    @cached_property
    def shared_values(self) -> np.ndarray:
        """Logits at the knots of the curve shared by all labels, shape (B, J)."""
        return fit_batch_lattices([self], shared=True)[0][:, 0]

    @cached_property
    def fallback_values(self) -> np.ndarray:
        """`shared_values` if any label uses them; otherwise zeros of the same shape, to avoid an unneeded fit."""
        if "shared" in self.fallback:
            return self.shared_values
        return np.zeros((self.n_fits, self.settings.knots))

    @cached_property
    def adam_values(self) -> np.ndarray:
        """Logits at the knots of MRP as published, shape (B, K, J)."""
        return fit_batch_lattices([self])[0]

    @cached_property
    def exact_fit(self) -> ExactFit:
        """Exact optimum of the convex problem of which `adam_values` are an approximate solution."""
        return fit_exact(self.lattice_rows(), n_labels=self.n_labels, settings=self.settings, device=self.device)

    def to_curves(self, values: np.ndarray) -> list[Curves]:
        """Convert fitted values to curves in which labels with few rows use a fallback.

        Args:
            values: Logits at the knots, shape (B, K, J).

        Returns:
            Curves of each of the B fits.
        """
        return [
            build_curves_with_fallbacks(
                self.knots, label_values, self.rows_per_label, shared_values, self.settings.minimum_rows
            )
            for label_values, shared_values in zip(values, self.fallback_values, strict=True)
        ]


def fit_batch_lattices(batches: Sequence[FitBatch], *, shared: bool = False) -> list[np.ndarray]:
    """Fit the published lattice for several batches in one run of Adam.

    Args:
        batches: Batches with the same settings, number of labels and device.
        shared: Whether to fit one curve for all labels.

    Returns:
        Logits at the knots for each batch, shape (B, K, J), or (B, 1, J) if `shared`.

    Raises:
        InputError: torch is not installed.
    """
    with needs_extra("pipeline"):
        from relmap.projection.adam_lattice import fit_lattices  # noqa: PLC0415 - imports torch, which takes seconds

    if not batches:
        return []
    first = batches[0]
    rows = []
    for batch in batches:
        rows.extend(batch.lattice_rows(shared=shared))
    values = fit_lattices(
        rows,
        n_labels=1 if shared else first.n_labels,
        settings=first.settings,
        device=first.device,
    )
    fits_per_batch = [batch.n_fits for batch in batches]
    starts = np.cumsum(fits_per_batch[:-1])  # of all batches but the first
    return np.split(values, starts)


def fit_mrp_batches(batches: Sequence[FitBatch]) -> list[list[Curves]]:
    """Fit MRP as published for several batches in one run of Adam.

    Args:
        batches: Batches with the same settings, number of labels and device; their rows may differ.

    Returns:
        Curves of the fits of each batch.

    Raises:
        InputError: torch is not installed.
    """
    fitted = fit_batch_lattices(batches)
    return [batch.to_curves(values) for batch, values in zip(batches, fitted, strict=True)]


class OptimalityGap(NamedTuple):
    """Distance of Adam's curves from the optimum, shape (B,) each.

    Attributes:
        excess: Objective of Adam's curves minus that of the optimum, on the projection-fit rows and without fallbacks.
        kkt_residual: Largest KKT residual of the optimum over labels.
    """

    excess: np.ndarray
    kkt_residual: np.ndarray


def measure_optimality_gap(batch: FitBatch) -> OptimalityGap:
    """Measure how far Adam's curves are from the optimum of MRP's objective.

    Args:
        batch: Batch of B fits.

    Returns:
        The excess of the objective, and the residual that certifies the optimum.
    """
    smoothness = batch.settings.smoothness
    excess = []
    for fit, rows in enumerate(batch.lattice_rows()):
        adam = batch.adam_values[fit]
        exact = batch.exact_fit.values[fit]
        adam_objective = mrp_objective(adam, rows.confidence, rows.decision, rows.correct, smoothness)
        exact_objective = mrp_objective(exact, rows.confidence, rows.decision, rows.correct, smoothness)
        excess.append(adam_objective - exact_objective)
    return OptimalityGap(np.array(excess), batch.exact_fit.kkt_residual.max(axis=1))
