"""MRP's lattice (paper, sections 3.4 and 4.3): its objective, its initial curve, and the rows of a fit by cell.

This module uses NumPy only. `adam_lattice` fits as published and `exact` finds the convex optimum; both sum smooth
functions over many rows. A cell is one interval between knots of one label of one fit. Within a cell, the logit t of
a row's reliability is linear in the row's weight w of the upper knot. So all sums are sums of f(t(w)) for functions f
as smooth as the logistic function, whose poles have an imaginary part of at least pi. If t rises by at most
MAX_NODE_RISE over a cell, the polynomial through 48 Chebyshev nodes equals f up to rounding (Trefethen, 2013, theorem
8.2: the error decreases as 2.24^-n or faster). The sum of the polynomial over the rows is a weighted sum of its values
at the nodes, and the weights of the nodes, called masses, are the same for all curves. Therefore the rows are read only
once, and each iteration of a fit evaluates 48 nodes for each cell.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy

from relmap.projection.curves import locate_interval


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
