"""MRP's lattice (paper, sections 3.4 and 4.3): fitted curves, the objective, the initial curve, and rows by cell.

This module uses NumPy only, so that maps can be read without torch. `lattices_torch` fits as published and `mrp_exact`
finds the convex optimum; both sum smooth functions over many rows. A cell is one interval between knots of one label of
one fit. Within a cell, the logit t of a row's reliability is linear in the row's weight w of the upper knot. So all
sums are sums of f(t(w)) for functions f as smooth as the logistic function, whose poles have an imaginary part of at
least pi. If t rises by at most MAX_NODE_RISE over a cell, the polynomial through 48 Chebyshev nodes equals f up to
rounding (Trefethen, 2013, theorem 8.2: the error decreases as 2.24^-n or faster). The sum of the polynomial over the
rows is a weighted sum of its values at the nodes, and the weights of the nodes, called masses, are the same for all
curves. Therefore the rows are read only once, and each iteration of a fit evaluates 48 nodes for each cell.
"""

import getpass
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Protocol

import numpy as np
import scipy
from pydantic import Field

from relmap.decisions import CalibratedDecisions
from relmap.errors import InputError, needs_extra
from relmap.io.serialization import Axes, Count, Share, Value

if TYPE_CHECKING:
    from relmap.projection.rows import FitBatch

# Model that a label uses: "none" for its own model, "shared" for the model shared by all labels, "identity" for
# reliability = confidence
Fallback = Literal["none", "shared", "identity"]
Fallbacks = Annotated[tuple[Fallback, ...], Axes("K")]
Logit = Annotated[float, Field(ge=-1000, le=1000)]  # bounded, so that differences of a curve cannot overflow


class ReliabilityModel(Protocol):
    """A fitted variant: maps decisions to the logit of their reliability."""

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """Return the logit of the reliability, shape (n,), float64."""

    def violations(self, n_labels: int | None = None) -> list[str]:
        """Return one sentence for each way in which the model is invalid."""


class Curves(Value, kind="lattice"):
    """One monotone curve for each label; the logit of the reliability is linear between knots (paper, section 3.4).

    Equal confidences of one label get equal reliabilities. The reliability never falls as the confidence rises, not
    even by rounding.

    Attributes:
        knots: Confidences of the knots, 0 = u_1 < ... < u_J = 1, shape (J,).
        values: Logit of the reliability at each knot, nondecreasing in each row, shape (K, J).
        rows: Number of projection-fit rows of each label, shape (K,).
        fallback: Model that each label uses.
    """

    knots: Annotated[np.ndarray, Axes("J", of=Share)]
    values: Annotated[np.ndarray, Axes("K", "J", of=Logit)]
    rows: Annotated[np.ndarray, Axes("K", of=Count)]
    fallback: Fallbacks

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """Score decisions by confidence and label.

        Args:
            decisions: n decisions.

        Returns:
            Logit of the reliability, shape (n,), float64.
        """
        interval, weight = locate_interval(decisions.confidence, self.knots)
        values = self.values.ravel()
        left = decisions.decision * len(self.knots) + interval
        reliability_logit = interpolate(values[left], values[left + 1], weight)
        if "identity" not in self.fallback:
            return reliability_logit
        uses_identity = np.array([kind == "identity" for kind in self.fallback])
        return np.where(uses_identity[decisions.decision], decisions.confidence_logit, reliability_logit)

    def _content_violations(self) -> list[str]:
        violations = []
        if self.knots[0] != 0 or self.knots[-1] != 1 or not (np.diff(self.knots) > 0).all():
            violations.append(f"the knots do not increase from 0 to 1: {self.knots.tolist()}")
        for label, knot in np.argwhere(~np.isfinite(self.values)):
            violations.append(f"the curve of label {label} has the value {self.values[label, knot]} at knot {knot}")
        for label, knot in np.argwhere(self.values[:, 1:] < self.values[:, :-1]):
            before = self.values[label, knot]
            after = self.values[label, knot + 1]
            violations.append(
                f"the curve of label {label} falls from {before} at knot {knot} to {after} at knot {knot + 1}"
            )
        return violations


class SharedCurve(Value, kind="shared"):
    """One curve for all labels.

    Attributes:
        curves: The curve, as `Curves` with K = 1.
    """

    curves: Curves

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """Score decisions by confidence, independently of their label.

        Args:
            decisions: n decisions.

        Returns:
            Logit of the reliability, shape (n,), float64.
        """
        return self.curves(replace(decisions, decision=np.zeros_like(decisions.decision)))

    def _content_violations(self) -> list[str]:
        return self.curves.violations(1)


class Confidence(Value, kind="confidence"):
    """No projection: the reliability is the calibrated confidence."""

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """Return the confidence as the reliability.

        Args:
            decisions: n decisions.

        Returns:
            Logit of the confidence, shape (n,), float64.
        """
        return np.array(decisions.confidence_logit, dtype=np.float64)


def locate_interval(confidence: np.ndarray, knots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the interval between knots in which each confidence lies.

    Args:
        confidence: Values in [knots[0], knots[-1]], any shape.
        knots: Strictly increasing knots, shape (J,).

    Returns:
        Index 0..J-2 of the interval, and the weight in [0, 1] of its right knot; both of the shape of `confidence`.
    """
    interval = np.searchsorted(knots[1:-1], confidence, side="right")
    weight = (confidence - knots[interval]) / np.diff(knots)[interval]
    return interval, weight


def interpolate(left: np.ndarray, right: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Interpolate linearly, such that rounding cannot make the result fall as the weight rises.

    Args:
        left: Values at weight 0.
        right: Values at weight 1, at least `left`.
        weight: Weights in [0, 1], of the same shape.

    Returns:
        Interpolated values, nondecreasing in the weight and at most `right`.
    """
    # a weighted mean of both ends can fall by rounding as the weight rises, and can exceed the right end
    return np.asarray(np.minimum(left + weight * (right - left), right))


def choose_fallbacks(rows: np.ndarray, minimum_rows: int) -> tuple[Fallback, ...]:
    """Choose the model that each label uses.

    Args:
        rows: Number of rows of each label, shape (K,).
        minimum_rows: Labels with fewer rows use the shared curve, labels without rows the identity. With 0, as in the
            paper, every label uses its own model.

    Returns:
        Model of each of the K labels.
    """
    chosen: list[Fallback] = []
    for n_rows in rows:
        if n_rows >= minimum_rows:
            chosen.append("none")
        elif n_rows == 0:
            chosen.append("identity")
        else:
            chosen.append("shared")
    return tuple(chosen)


def build_curves_with_fallbacks(
    knots: np.ndarray, values: np.ndarray, rows: np.ndarray, shared: np.ndarray, minimum_rows: int
) -> Curves:
    """Build curves in which labels with few rows use the shared curve or the identity.

    Args:
        knots: Knots in [0, 1], shape (J,).
        values: Fitted logits at the knots, shape (K, J).
        rows: Number of rows of each label, shape (K,).
        shared: Logits of the shared curve at the knots, shape (J,).
        minimum_rows: As in `choose_fallbacks`.

    Returns:
        The curves. A label that uses the identity has the clipped logits of the knots as its values, for plots.
    """
    fallback = choose_fallbacks(rows, minimum_rows)
    identity = scipy.special.logit(np.clip(knots, 1e-6, 1 - 1e-6))
    values_by_kind = {"shared": shared, "identity": identity}
    chosen = [values_by_kind.get(kind, own) for kind, own in zip(fallback, values, strict=True)]
    return Curves(knots, np.stack(chosen), rows, fallback)


def fit_confidence(batch: "FitBatch") -> list[Confidence]:
    """Return the calibrated confidence itself as the reliability.

    Args:
        batch: Batch of B fits.

    Returns:
        Model of each fit.
    """
    return [Confidence() for _ in range(batch.n_fits)]


def fit_shared(batch: "FitBatch") -> list[SharedCurve]:
    """Fit one curve for all labels; the curve is the identity if there are no rows.

    Args:
        batch: Batch of B fits.

    Returns:
        Model of each fit.
    """
    n_rows = np.array([len(batch.fit_rows.decision)])
    return [
        SharedCurve(build_curves_with_fallbacks(batch.knots, curve[None], n_rows, curve, minimum_rows=1))
        for curve in batch.shared_values
    ]


def fit_mrp(batch: "FitBatch") -> list[Curves]:
    """Fit MRP as published.

    Args:
        batch: Batch of B fits.

    Returns:
        Model of each fit.
    """
    return batch.to_curves(batch.adam_values)


def fit_optimum(batch: "FitBatch") -> list[Curves]:
    """Fit MRP at the optimum of its convex objective.

    Args:
        batch: Batch of B fits.

    Returns:
        Model of each fit.
    """
    return batch.to_curves(batch.exact_fit.values)


class FitRows(NamedTuple):
    """Rows of one fit.

    Attributes:
        confidence: Confidence in [0, 1], shape (m,).
        decision: Decided label 0..K-1, shape (m,).
        correct: Whether the decision is correct, shape (m,), bool or 0 and 1.
    """

    confidence: np.ndarray
    decision: np.ndarray
    correct: np.ndarray


N_NODES = 48
MAX_NODE_RISE = 7.0
_ANGLES = np.pi * (np.arange(N_NODES) + 0.5) / N_NODES
_CHEBYSHEV_NODES = (1 + np.cos(_ANGLES)) / 2  # in [0, 1]
# converts moments, the sums of the Chebyshev polynomials over the rows, to the masses of the nodes
_MOMENTS_TO_MASSES = 2 / N_NODES * np.cos(np.outer(np.arange(N_NODES), _ANGLES))
_MOMENTS_TO_MASSES[0] /= 2


def uniform_knots(n_knots: int) -> np.ndarray:
    """Place knots uniformly on [0, 1].

    Args:
        n_knots: Number of knots J.

    Returns:
        Knots, shape (J,).
    """
    return np.linspace(0.0, 1.0, n_knots)


def mrp_objective(
    values: np.ndarray, confidence: np.ndarray, decision: np.ndarray, correct: np.ndarray, smoothness: float
) -> float:
    """Evaluate MRP's objective (paper, section 3.4).

    It is the mean log loss of `correct` plus `smoothness` times the mean squared second difference of the values.

    Args:
        values: Logits at uniform knots, shape (K, J).
        confidence: Confidence in [0, 1], shape (m,).
        decision: Decided label 0..K-1, shape (m,).
        correct: Whether the decision is correct, shape (m,).
        smoothness: Weight rho of the second differences, at least 0.

    Returns:
        Objective in nats.
    """
    interval, weight = locate_interval(confidence, uniform_knots(values.shape[1]))
    logit = (1 - weight) * values[decision, interval] + weight * values[decision, interval + 1]
    log_loss = np.logaddexp(0, logit) - np.asarray(correct, dtype=np.float64) * logit
    return float(log_loss.mean() + smoothness * (np.diff(values, n=2, axis=1) ** 2).mean())


def initial_curve(n_knots: int) -> np.ndarray:
    """Return the initial parameters of a curve for Adam, as in the authors' code.

    The reliability of the curve at the knots rises linearly from 0.03 to 0.97.

    Args:
        n_knots: Number of knots J.

    Returns:
        Value at the first knot, then the increments before the softplus; shape (J,).
    """
    values = scipy.special.logit(np.linspace(0.03, 0.97, n_knots))
    increments = np.diff(values)
    return np.append(values[0], np.log(np.expm1(increments)))


class SortedCells(NamedTuple):
    """R rows of B fits, sorted by fit, label and interval, so that the rows of a cell are contiguous.

    There are C = B K (J - 1) cells and N nodes for each cell.

    Attributes:
        n_rows: Number of rows of each fit, at least 1, shape (B,), int64.
        confidence: Confidence of each row, shape (R,), float64.
        correct: Whether the row is correct, shape (R,), bool.
        weight: Weight in [0, 1] of the upper knot of the row's interval, shape (R,), float64.
        rows_per_cell: Number of rows of each cell, shape (C,), int64.
        correct_weight: Sum over the correct rows of their weights at each knot, shape (B K, J), float64.
        nodes: Weight of the upper knot at the nodes of each cell, shape (C, N), float64.
        masses: Masses of the nodes, shape (C, N), float64.
    """

    n_rows: np.ndarray
    confidence: np.ndarray
    correct: np.ndarray
    weight: np.ndarray
    rows_per_cell: np.ndarray
    correct_weight: np.ndarray
    nodes: np.ndarray
    masses: np.ndarray


def sort_into_cells(fits: Sequence[FitRows], n_labels: int, knots: np.ndarray) -> SortedCells:
    """Sort the rows of several fits into cells.

    Args:
        fits: Rows of each of B fits; their order does not change any sum.
        n_labels: Number of labels K.
        knots: Knots in [0, 1], shape (J,).

    Returns:
        The sorted rows, and the nodes of each cell.
    """
    sorted_fits = [_sort_fit(fit, n_labels, knots) for fit in fits]
    return SortedCells(
        n_rows=np.concatenate([cells.n_rows for cells in sorted_fits]),
        confidence=np.concatenate([cells.confidence for cells in sorted_fits]),
        correct=np.concatenate([cells.correct for cells in sorted_fits]),
        weight=np.concatenate([cells.weight for cells in sorted_fits]),
        rows_per_cell=np.concatenate([cells.rows_per_cell for cells in sorted_fits]),
        correct_weight=np.concatenate([cells.correct_weight for cells in sorted_fits]),
        nodes=np.concatenate([cells.nodes for cells in sorted_fits]),
        masses=np.concatenate([cells.masses for cells in sorted_fits]),
    )


def _sort_fit(fit: FitRows, n_labels: int, knots: np.ndarray) -> SortedCells:
    """Sort the rows of one fit into cells, and by confidence within a cell."""
    by_confidence = np.argsort(fit.confidence)
    confidence = fit.confidence[by_confidence]
    decision = fit.decision[by_confidence]
    correct = fit.correct[by_confidence]
    n_intervals = len(knots) - 1
    n_cells = n_labels * n_intervals
    interval, weight = locate_interval(confidence, knots)
    cell = decision * n_intervals + interval
    narrow_cell = cell.astype(np.min_scalar_type(n_cells))  # NumPy sorts narrow integers by radix
    by_cell = np.argsort(narrow_cell, kind="stable")
    cell = cell[by_cell]
    weight = weight[by_cell]
    correct = correct[by_cell] != 0
    rows_per_cell = np.bincount(cell, minlength=n_cells)
    nodes, masses = compute_nodes(weight, rows_per_cell)
    return SortedCells(
        n_rows=np.array([max(len(confidence), 1)]),
        confidence=confidence[by_cell],
        correct=correct,
        weight=weight,
        rows_per_cell=rows_per_cell,
        correct_weight=_sum_correct_weights(cell[correct], weight[correct], n_labels, n_intervals),
        nodes=nodes,
        masses=masses,
    )


def _sum_correct_weights(cell: np.ndarray, weight: np.ndarray, n_labels: int, n_intervals: int) -> np.ndarray:
    """Sum the weights of the correct rows at each knot, shape (K, J)."""
    n_knots = n_intervals + 1
    left_knot = cell + cell // n_intervals  # a label has one more knot than intervals
    sums = np.bincount(left_knot, 1 - weight, n_labels * n_knots)
    sums = sums + np.bincount(left_knot + 1, weight, n_labels * n_knots)
    return sums.reshape(n_labels, n_knots).astype(np.float64)  # bincount returns integers if there are no rows


def compute_nodes(weight: np.ndarray, rows_per_cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute nodes and masses that replace the rows of each cell in sums of smooth functions.

    A cell with at most N rows has a node at each row, which is exact for any function; its spare nodes have mass 0.
    Other cells have the N Chebyshev nodes. Cells are independent.

    Args:
        weight: Weights in [0, 1] of the rows of C cells, cell after cell, shape (R,).
        rows_per_cell: Number of rows of each cell, shape (C,).

    Returns:
        Nodes in [0, 1] and masses, both of shape (C, N). The masses of a cell sum to its number of rows; some may be
        negative.
    """
    is_large = rows_per_cell > N_NODES
    nodes = np.zeros((len(rows_per_cell), N_NODES))
    masses = np.zeros((len(rows_per_cell), N_NODES))
    if is_large.any():
        moments = _chebyshev_moments(weight[np.repeat(is_large, rows_per_cell)], rows_per_cell[is_large])
        nodes[is_large] = _CHEBYSHEV_NODES
        masses[is_large] = np.einsum("kc,kn->cn", moments, _MOMENTS_TO_MASSES)
    is_row = ~is_large[:, None] & (np.arange(N_NODES) < rows_per_cell[:, None])
    nodes[is_row] = weight[np.repeat(~is_large, rows_per_cell)]
    masses[is_row] = 1
    return nodes, masses


def _chebyshev_moments(weight: np.ndarray, rows_per_cell: np.ndarray) -> np.ndarray:
    """Sum the Chebyshev polynomials T_0 .. T_{N-1} over the rows of each cell.

    The polynomials follow the recurrence T_{k+2}(x) = 2 x T_{k+1}(x) - T_k(x) with x = 2 weight - 1.

    Returns:
        Moments, shape (N, C).
    """
    moments = np.empty((N_NODES, len(rows_per_cell)))
    starts = np.cumsum(rows_per_cell) - rows_per_cell
    x = 2 * weight - 1
    twice_x = 2 * x
    polynomial = np.ones_like(x)  # T_k
    next_polynomial = x  # T_{k+1}
    for moment in moments:
        np.add.reduceat(polynomial, starts, out=moment)
        second_next = np.subtract(twice_x * next_polynomial, polynomial, out=polynomial)  # in the memory of T_k
        polynomial = next_polynomial
        next_polynomial = second_next
    return moments


def select_device(requested: str | None, *, setting: str = "device") -> str:
    """Select the device of the projection.

    Args:
        requested: Name of a torch device; None for CUDA if it is available, else the CPU.
        setting: Name of the setting that requests it, for the error message.

    Returns:
        Name of an available device.

    Raises:
        InputError: The requested device is not available.
    """
    import torch  # noqa: PLC0415 - takes two seconds to import, and the CPU path does not need it

    if requested is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=requested)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"{setting} is {requested!r}, which this machine does not have ({error}); set it to cpu or unset it"
        ) from None
    return requested


def lock_device(device: str) -> AbstractContextManager[object]:
    """Lock an accelerator against other processes of the same user.

    Args:
        device: Name of a torch device; the CPU is not locked.

    Returns:
        Context manager that holds the lock.

    Raises:
        InputError: The package filelock is not installed.
    """
    if device == "cpu":
        return nullcontext()
    with needs_extra("pipeline"):
        from filelock import FileLock  # noqa: PLC0415 - optional dependency
    lock_file = Path(tempfile.gettempdir()) / f"mrp-{getpass.getuser()}-{device.replace(':', '-')}.lock"
    return FileLock(lock_file)
