"""The scale of logits from which the authors start."""

import numpy as np
from scipy.special import log_softmax


def floored(logits: np.ndarray) -> np.ndarray:
    """Map logits `(n, K)` to log(p + 1e-12) `(n, K)` float64 in [-27.6, 0]: no label is further from the top than that.

    What the paper's DIAG, h-cal and SMART start from, as their authors have it; there in float32.
    """
    return np.asarray(np.logaddexp(log_softmax(np.asarray(logits, dtype=np.float64), axis=1), np.log(1e-12)))
