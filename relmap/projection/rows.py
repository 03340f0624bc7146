"""Rows that calibrators and variants are fitted on: the paper's split of the validation rows, and batches of fits."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from relmap.decisions import Calibrator, LabelledDecisions, ProtocolDecisions
from relmap.errors import needs_extra
from relmap.projection.mrp import (
    Curves,
    Fallback,
    FitRows,
    build_curves_with_fallbacks,
    choose_fallbacks,
    mrp_objective,
    uniform_knots,
)
from relmap.projection.mrp_exact import ExactFit, fit_exact
from relmap.projection.surface import SurfaceRows, Surfaces, fit_surfaces
from relmap.settings import ProjectionParams, ProtocolParams

BASE_SEED = 2026  # seeds of the authors' code
SEED_FACTOR = 1009
PROJECTION_FIT_SEED = 11
PROJECTION_SELECTION_SEED = 23


class ValidationRows(NamedTuple):
    """Validation rows of one protocol seed, by purpose.

    Attributes:
        seed: Protocol seed.
        temperature_fit: Rows on which TS is fitted; in the paper all validation rows, so that the temperature leaks
            information on the other parts.
        calibrator_fit: Rows on which the other calibrators are fitted.
        projection_fit: Rows on which the projections are fitted.
        projection_selection: Rows that choose the penalty of label-wise shifts.
    """

    seed: int
    temperature_fit: ProtocolDecisions
    calibrator_fit: ProtocolDecisions
    projection_fit: ProtocolDecisions
    projection_selection: ProtocolDecisions

    def rows_for_calibrator(self, calibrator: str) -> ProtocolDecisions:
        """Return the rows on which a calibrator is fitted.

        Args:
            calibrator: Key of the calibrator.

        Returns:
            `temperature_fit` for "ts", else `calibrator_fit`.
        """
        return self.temperature_fit if calibrator == "ts" else self.calibrator_fit

    @property
    def interleaved_fit_rows(self) -> "ValidationRows":
        """Rows whose `calibrator_fit` alternates between as many calibrator-fit rows as projection-fit rows."""
        n_pairs = min(len(self.calibrator_fit), len(self.projection_fit))
        pairs = slice(n_pairs)
        combined = ProtocolDecisions.concatenate([self.calibrator_fit.take(pairs), self.projection_fit.take(pairs)])
        alternating_order = np.arange(2 * n_pairs).reshape(2, n_pairs).T.ravel()
        return self._replace(calibrator_fit=combined.take(alternating_order))

    def limit_fit_rows(self, n_rows: int) -> "ValidationRows":
        """Limit the calibrator-fit and the projection-fit rows.

        Args:
            n_rows: Maximum number of calibrator-fit rows, and of projection-fit rows; the first rows are retained.

        Returns:
            The limited rows.
        """
        return self._replace(
            calibrator_fit=self.calibrator_fit.take(slice(n_rows)),
            projection_fit=self.projection_fit.take(slice(n_rows)),
        )


def group_row_numbers(group: np.ndarray) -> list[np.ndarray]:
    """List the row numbers of each group.

    Args:
        group: Group of each row, shape (n,).

    Returns:
        Increasing row numbers of each group. Groups are in the order of their first rows, and not of their names.
    """
    _, first_row, name_code = np.unique(group, return_index=True, return_inverse=True)
    rank_of_code = np.argsort(np.argsort(first_row))
    code = rank_of_code[name_code]
    rows_by_code = np.argsort(code, kind="stable")
    return np.split(rows_by_code, np.cumsum(np.bincount(code))[:-1])


def expand_units(parts: Sequence[np.ndarray], units: Sequence[np.ndarray] | None) -> list[np.ndarray]:
    """Convert numbers of units to row numbers.

    Args:
        parts: Numbers of the units of each part; a unit is a row or a group of rows.
        units: Row numbers of each unit; None if units are rows.

    Returns:
        Row numbers of each part.
    """
    if units is None:
        return list(parts)
    no_rows = np.empty(0, dtype=np.int64)
    expanded = []
    for part in parts:
        rows = [units[unit] for unit in part]
        expanded.append(np.concatenate([no_rows, *rows]))
    return expanded


class ValidationParts(NamedTuple):
    """Row numbers of the disjoint parts of the validation rows.

    Attributes:
        calibrator_fit: Rows that calibrators are fitted on.
        projection_fit: Rows that projections are fitted on.
        projection_selection: Rows that the epoch or the penalty of a projection is selected on.
    """

    calibrator_fit: np.ndarray
    projection_fit: np.ndarray
    projection_selection: np.ndarray


def split_validation(n: int, seed: int, params: ProtocolParams, group: np.ndarray | None = None) -> ValidationParts:
    """Split validation rows into calibrator-fit, projection-fit and projection-selection rows.

    Rows are permuted and split as in the code of the paper's authors, so that each row is in the same part as there.
    The size of the first part is rounded half to even. The second part has its share of the rows that then remain,
    rounded half to even, and the third part has all others. If a projection part has more rows than the cap, a random
    sample of them is retained, in increasing order. With `params.split` "group" the groups are permuted instead of the
    rows, and no group is in two parts.

    Args:
        n: Number of rows.
        seed: Protocol seed.
        params: Shares, cap and kind of the split.
        group: Group of each row, shape (n,).

    Returns:
        The three parts.
    """
    base_seed = BASE_SEED + SEED_FACTOR * seed
    units = group_row_numbers(group) if params.split == "group" and group is not None else None
    n_units = n if units is None else len(units)
    order = np.random.default_rng(base_seed).permutation(n_units)
    first_end = round(params.parts[0] * n_units)
    share_of_rest = params.parts[1] / (params.parts[1] + params.parts[2])
    n_rest = n_units - first_end
    second_end = first_end + max(0, min(round(share_of_rest * n_rest), n_rest - 1))
    parts = ValidationParts(*expand_units(np.split(order, [first_end, second_end]), units))
    cap = params.projection_cap
    return ValidationParts(
        calibrator_fit=parts.calibrator_fit,
        projection_fit=_cap_rows(parts.projection_fit, cap, base_seed + PROJECTION_FIT_SEED),
        projection_selection=_cap_rows(parts.projection_selection, cap, base_seed + PROJECTION_SELECTION_SEED),
    )


def _cap_rows(rows: np.ndarray, cap: int, seed: int) -> np.ndarray:
    """Reduce rows to a random sample in file order if there are more than `cap`."""
    if len(rows) <= cap:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, cap, replace=False))


def select_validation_rows(validation: ProtocolDecisions, seed: int, params: ProtocolParams) -> ValidationRows:
    """Split validation rows under a protocol seed.

    Args:
        validation: n validation rows.
        seed: Protocol seed.
        params: Settings of the protocol.

    Returns:
        The rows by purpose.
    """
    parts = split_validation(len(validation), seed, params, validation.group)
    calibrator_fit = validation.take(parts.calibrator_fit)
    return ValidationRows(
        seed=seed,
        temperature_fit=validation if params.temperature_rows == "validation" else calibrator_fit,
        calibrator_fit=calibrator_fit,
        projection_fit=validation.take(parts.projection_fit),
        projection_selection=validation.take(parts.projection_selection),
    )


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
        confidence_is_given: Whether the confidences were given, and not computed from logits. Labels are then more
            likely to differ, in the prior of pooled lines.
        n_surfaces: Surfaces, the slowest models, are fitted for this number of calibrators, the first ones; None for
            all calibrators.
    """

    fit_rows: LabelledDecisions
    n_labels: int
    settings: ProjectionParams
    selection_rows: LabelledDecisions | None = None
    device: str = "cpu"
    confidence_is_given: bool = False
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

    @cached_property
    def surfaces(self) -> list[Surfaces]:
        """Surfaces of the first `n_surfaces` fits.

        On the device "cpu", SciPy fits them one after the other. On any other device, torch fits them together.
        """
        decision = self.fit_rows.decision
        correct = self.fit_rows.correct
        fits = []
        for decisions in self.fit_rows.by_calibrator[: self.n_surfaces]:
            fits.append(SurfaceRows(decisions.confidence, decisions.gap, decision, correct))
        if self.device == "cpu":
            return [fit_surfaces(*rows, n_labels=self.n_labels, settings=self.settings) for rows in fits]
        with needs_extra("pipeline"):
            from relmap.projection.lattices_torch import fit_surface_batch  # noqa: PLC0415 - imports torch
        return fit_surface_batch(fits, n_labels=self.n_labels, settings=self.settings, device=self.device)

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
        from relmap.projection.lattices_torch import fit_lattices  # noqa: PLC0415 - imports torch, which takes seconds

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
