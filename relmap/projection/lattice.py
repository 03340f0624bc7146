"""MRP's lattice (paper, sections 3.4 and 4.3): its objective, its start, and the rows of a fit in cells.

NumPy only: `adam_lattice` descends as published, `exact` to the convex optimum. Both sum over the many rows of a cell
by a few nodes, exact to rounding: within a cell the logit t of a row's reliability is a line in its weight w, so all
that a fit sums over rows is f(t(w)) for f as smooth as the logistic function, whose poles lie pi away from the reals.
Where t rises by no more than GENTLE from one end of the cell to the other, the polynomial through 48 Chebyshev nodes is
f to rounding (Trefethen, 2013, theorem 8.2: the error falls as 2.24^-n or faster), and its sum over the rows is the
same few masses times f at the nodes, whatever the curve. So the rows are read once, and each step of a fit costs 48
nodes a cell.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy

from relmap.projection.curves import locate_interval

FitRows = tuple[np.ndarray, np.ndarray, np.ndarray]  # confidence in [0, 1], decision 0..K-1 and correct, (m,) each
N_NODES = 48
MAX_NODE_RISE = 7.0
_ANGLES = np.pi * (np.arange(N_NODES) + 0.5) / N_NODES
_CHEBYSHEV = (1 + np.cos(_ANGLES)) / 2  # in [0, 1]
_TO_MASSES = 2 / N_NODES * np.cos(np.outer(np.arange(N_NODES), _ANGLES))  # from the sums of the polynomials
_TO_MASSES[0] /= 2


def uniform_knots(knots: int) -> np.ndarray:
    """Where so many knots lie, `(J,)` in [0, 1]."""
    return np.linspace(0.0, 1.0, knots)


def mrp_objective(
    values: np.ndarray, confidence: np.ndarray, decision: np.ndarray, correct: np.ndarray, smoothness: float
) -> float:
    """What a fit minimises: the mean log loss of `correct` plus rho times the mean squared second difference.

    `values (K, J)` on uniform knots; confidence, decision and correct `(m,)`.
    """
    interval, weight = locate_interval(confidence, uniform_knots(values.shape[1]))
    t = (1 - weight) * values[decision, interval] + weight * values[decision, interval + 1]
    loss = np.logaddexp(0, t) - np.asarray(correct, dtype=np.float64) * t
    return float(loss.mean() + smoothness * (np.diff(values, n=2, axis=1) ** 2).mean())


def initial_curve(knots: int) -> np.ndarray:
    """Where every curve starts, `(J,)`: b, then eta: the logit of the line from .03 to .97 over the knots."""
    start = scipy.special.logit(np.linspace(0.03, 0.97, knots))
    return np.append(start[0], np.log(np.expm1(np.diff(start))))


class SortedCells(NamedTuple):
    """The R rows of B fits by fit, label and confidence, so that a cell (fit, label, interval) lies in one piece."""

    counts: np.ndarray  # (B,) int64, the rows of each fit, at least 1
    confidence: np.ndarray  # (R,) float64
    correct: np.ndarray  # (R,) bool
    weight: np.ndarray  # (R,) float64, weight of the upper knot of each row's interval
    lengths: np.ndarray  # (B K (J - 1),) int64, rows of each cell
    hits: np.ndarray  # (B K, J) float64, sum over the correct rows of their weights at the knots
    places: np.ndarray  # (B K (J - 1), N) float64, weights at the nodes of each cell
    masses: np.ndarray  # (B K (J - 1), N) float64, of the nodes


def sort_into_cells(fits: Sequence[FitRows], n_labels: int, knots: np.ndarray) -> SortedCells:
    """The rows of B fits by cell; the same rows in any order give the same sums."""
    counts = np.array([max(len(confidence), 1) for confidence, _, _ in fits])
    parts = zip(*(_sorted(fit, n_labels, knots) for fit in fits), strict=True)
    return SortedCells(counts, *(np.concatenate(part) for part in parts))


def _sorted(fit: FitRows, n_labels: int, knots: np.ndarray) -> tuple[np.ndarray, ...]:
    order = np.argsort(fit[0])
    confidence, decision, correct = (np.asarray(part)[order] for part in fit)
    interval, weight = locate_interval(confidence, knots)
    cell = decision * (len(knots) - 1) + interval
    cells = n_labels * (len(knots) - 1)
    order = np.argsort(cell.astype(np.min_scalar_type(cells)), kind="stable")  # narrow numbers are sorted by radix
    cell, weight, confidence, correct = cell[order], weight[order], confidence[order], correct[order] != 0
    # only the correct rows are summed: those of equal confidence are equal, in whatever order they came
    at, hit = cell[correct] + cell[correct] // (len(knots) - 1), weight[correct]  # a curve has J knots, J - 1 intervals
    hits = np.bincount(at, 1 - hit, n_labels * len(knots)) + np.bincount(at + 1, hit, n_labels * len(knots))
    lengths = np.bincount(cell, minlength=cells)
    hits = hits.reshape(n_labels, -1).astype(np.float64)  # bincount counts in int where nothing is
    return confidence, correct, weight, lengths, hits, *compute_nodes(weight, lengths)


def compute_nodes(weight: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights `(R,)` in [0, 1] of the rows of C cells, cell after cell, to places and masses of nodes, `(C, N)` both.

    The masses of a cell sum to its number of rows; some may be negative. A cell of no more rows than nodes has a node
    at each row, however steep the curve; spare nodes have no mass. No sum runs over two cells.
    """
    many = lengths > N_NODES
    places, masses = np.zeros((2, len(lengths), N_NODES))
    if many.any():
        moments, starts = np.empty((N_NODES, many.sum())), np.cumsum(lengths[many]) - lengths[many]
        x = 2 * weight[np.repeat(many, lengths)] - 1
        twice = 2 * x
        before, now = np.ones_like(x), x
        for sums in moments:  # of each polynomial over the rows, by its recurrence
            np.add.reduceat(before, starts, out=sums)
            before, now = now, np.subtract(twice * now, before, out=before)
        places[many], masses[many] = _CHEBYSHEV, np.einsum("kc,kn->cn", moments, _TO_MASSES)
    own = ~many[:, None] & (np.arange(N_NODES) < lengths[:, None])
    places[own], masses[own] = weight[np.repeat(~many, lengths)], 1
    return places, masses
