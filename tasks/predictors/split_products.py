"""A sparse matrix that multiplies on all cores, to the same last bit whatever their number."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy.sparse import csc_array, csr_array

from tasks.predictors.threads import in_threads

ROWS_AT_ONCE = 80_000  # few enough for their sums to stay in the cache
ENTRIES_AT_ONCE = 2_000_000  # of some columns, on average; fewer are not worth a thread
MOST_PARTS = 8  # of the columns, for each reads all the slopes


class SplitProducts(csr_array):
    """A matrix `(n, F)` whose rows are sorted, kept twice more: in parts of some rows each, and of some columns each.

    A number of a product is summed up within one part, in the order in which a csr_array sums it up: `matrix @ weights`
    over the columns, `slopes @ matrix` over the rows. Scikit-learn takes both in every step of a fit with three labels
    or more. Whatever else one does with it is done as with a csr_array.
    """

    @cached_property
    def some_rows(self) -> list[csc_array]:
        """Column by column, so that one addition need not wait for the one before: they belong to different rows."""
        starts = range(0, self.shape[0], ROWS_AT_ONCE)
        return in_threads(lambda start: csr_array(self[start : start + ROWS_AT_ONCE]).tocsc(), starts)

    @cached_property
    def some_columns(self) -> list[csr_array]:
        """Row by row, as they are."""
        parts = min(MOST_PARTS, 1 + self.nnz // ENTRIES_AT_ONCE)
        ends = np.linspace(0, self.shape[1], parts + 1).astype(int).tolist()
        return in_threads(lambda part: csr_array(self[:, ends[part] : ends[part + 1]]), range(parts))

    # Dense operands only: SciPy's types promise more.
    def __matmul__(self, weights: np.ndarray) -> np.ndarray:  # type: ignore[override]
        """Weights `(F, P)` or `(F,)` to `(n, P)` or `(n,)`."""
        return np.concatenate(in_threads(lambda rows: rows @ weights, self.some_rows))

    def __rmatmul__(self, slopes: np.ndarray) -> np.ndarray:  # type: ignore[override]
        """Slopes `(P, n)` or `(n,)` to `(P, F)` or `(F,)`."""
        return np.concatenate(in_threads(lambda columns: slopes @ columns, self.some_columns), axis=-1)
