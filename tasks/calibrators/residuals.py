"""The loss of h-calibration (Huang et al., 2025) and its gradient: how far residuals are from averaging to zero.

An event is "label k is true" for one row and one label; its residual is its probability minus 1 if it is true.
Everything here is in the order of rising probability. NumPy, since the gradient is as short as the loss: an average of
the signs of averages.
"""

import numpy as np


def residual_loss(probabilities: np.ndarray, *, labels: np.ndarray, window: int) -> tuple[float, np.ndarray]:
    """Probabilities `(n, K)` and labels `(n,)` to the loss and its gradient `(n, K)`.

    The mean of `event_loss` over the K labels: each time over all events of the rows whose label is not that one. A
    time without rows does not count. Rows are not normalised again.
    """
    n_labels = probabilities.shape[1]
    residual = probabilities - (np.arange(n_labels) == labels[:, None])
    order = rising_order(probabilities.ravel())
    residual = residual.ravel()[order]
    label = np.repeat(labels.astype(np.int32), n_labels)[order]  # of the event's row
    losses, gradient = [], np.zeros(len(order))
    for without in range(n_labels):
        kept = np.flatnonzero(label != without)
        if len(kept):
            loss, part = event_loss(residual[kept], window)
            losses.append(loss)
            gradient[kept] += part
    unsorted = np.empty_like(gradient)
    unsorted[order] = gradient / len(losses)
    return float(np.mean(losses)), unsorted.reshape(probabilities.shape)


def rising_order(values: np.ndarray) -> np.ndarray:
    """The stable order `(N,)` of values `(N,)`: by the unstable sort, which is quicker, where few values are equal."""
    order = np.argsort(values)
    ranked = values[order]
    equal = ranked[1:] == ranked[:-1]
    if np.count_nonzero(equal) > len(values) // 8:
        return np.argsort(values, kind="stable")
    tied = np.append(False, equal) | np.append(equal, False)
    order[tied] = order[tied][np.lexsort((order[tied], ranked[tied]))]
    return order


def event_loss(residual: np.ndarray, window: int) -> tuple[float, np.ndarray]:
    """Residuals `(N,)` to the mean absolute moving average and its gradient in each residual, `(N,)`.

    The published clusters of similar probabilities, which count the same, change nothing that can be seen, and are
    left out. A window of more than a fifth of the events is shortened to that.
    """
    window = max(1, min(window, len(residual) // 5))
    average = moving_average(residual, window)
    return float(np.abs(average).mean()), moving_average(np.sign(average) / len(average), window)


def moving_average(values: np.ndarray, window: int) -> np.ndarray:
    """Values `(N,)` to the sums of those at most (window - 1) // 2 places away, over their full number, `(N,)`.

    Beyond either end there are zeros. It is its own transpose, which makes it the gradient of itself.
    """
    half = (window - 1) // 2
    total = np.empty(len(values) + 2 * half + 1)
    total[: half + 1] = 0
    np.cumsum(values, out=total[half + 1 : half + 1 + len(values)])
    total[half + 1 + len(values) :] = total[half + len(values)]
    return (total[2 * half + 1 :] - total[: len(values)]) / (2 * half + 1)
