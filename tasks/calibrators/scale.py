"""The scale of logits: in which a ridge means the same for every predictor, and from which the authors start."""

import numpy as np
from scipy.special import log_softmax


def typical_spread(logits: np.ndarray) -> float:
    """Map logits `(n, K)` to the median over rows of largest minus smallest, > 0; 1 if no row tells its labels apart.

    The median, so that a few saturated rows do not set the scale; rows of equal logits do not count.
    """
    spread = np.ptp(np.asarray(logits, dtype=np.float64), axis=1)
    return float(np.median(spread[spread > 0])) if spread.any() else 1.0


def floored(logits: np.ndarray) -> np.ndarray:
    """Map logits `(n, K)` to log(p + 1e-12) `(n, K)` float64 in [-27.6, 0]: no label is further from the top than that.

    What the paper's DIAG, h-cal and SMART start from, as their authors have it; there in float32.
    """
    return np.asarray(np.logaddexp(log_softmax(np.asarray(logits, dtype=np.float64), axis=1), np.log(1e-12)))
