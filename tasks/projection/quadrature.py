"""Sums over the many rows of a cell by a few nodes, exact to rounding.

Within a cell the logit t of a row's reliability is a line in its weight w, so all that a fit sums over rows is f(t(w))
for f as smooth as the logistic function, whose poles lie pi away from the reals. Where t rises by no more than GENTLE
from one end of the cell to the other, the polynomial through 48 Chebyshev nodes is f to rounding (Trefethen, 2013,
theorem 8.2: the error falls as 2.24^-n or faster), and its sum over the rows is the same few masses times f at the
nodes, whatever the curve. So the rows are read once, and each step of a fit costs 48 nodes a cell.
"""

import numpy as np

NODES = 48
GENTLE = 7.0
_ANGLES = np.pi * (np.arange(NODES) + 0.5) / NODES
_CHEBYSHEV = (1 + np.cos(_ANGLES)) / 2  # in [0, 1]
_TO_MASSES = 2 / NODES * np.cos(np.outer(np.arange(NODES), _ANGLES))  # from the sums of the polynomials
_TO_MASSES[0] /= 2


def nodes(weight: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights `(R,)` in [0, 1] of the rows of C cells, cell after cell, to places and masses of nodes, `(C, N)` both.

    The masses of a cell sum to its number of rows; some may be negative. A cell of no more rows than nodes has a node
    at each row, however steep the curve; spare nodes have no mass. No sum runs over two cells.
    """
    many = lengths > NODES
    places, masses = np.zeros((2, len(lengths), NODES))
    if many.any():
        moments, starts = np.empty((NODES, many.sum())), np.cumsum(lengths[many]) - lengths[many]
        x = 2 * weight[np.repeat(many, lengths)] - 1
        twice = 2 * x
        before, now = np.ones_like(x), x
        for sums in moments:  # of each polynomial over the rows, by its recurrence
            np.add.reduceat(before, starts, out=sums)
            before, now = now, np.subtract(twice * now, before, out=before)
        places[many], masses[many] = _CHEBYSHEV, np.einsum("kc,kn->cn", moments, _TO_MASSES)
    own = ~many[:, None] & (np.arange(NODES) < lengths[:, None])
    places[own], masses[own] = weight[np.repeat(~many, lengths)], 1
    return places, masses
