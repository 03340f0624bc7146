"""The scale of logits, in which a ridge means the same for every predictor."""

from __future__ import annotations

import numpy as np


def typical_spread(logits: np.ndarray) -> float:
    """Logits `(n, K)` to the median over rows of largest minus smallest, > 0; 1 where no row tells its labels apart.

    The median, so that a few saturated rows do not set the scale; rows of equal logits do not count.
    """
    spread = np.ptp(np.asarray(logits, dtype=np.float64), axis=1)
    return float(np.median(spread[spread > 0])) if spread.any() else 1.0
