"""What no metric may swallow: a NaN that comes in must not look like a metric that is undefined."""

import numpy as np


def reject_nan(values: np.ndarray, name: str) -> None:
    """Raise ValueError with the first row of `values`, `(n,)` or `(n, K)`, that holds a NaN."""
    bad = np.isnan(values)
    if bad.any():
        raise ValueError(f"the {name} of row {np.argwhere(bad)[0, 0]} is NaN")
