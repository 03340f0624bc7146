"""The loss of h-calibration (Huang et al., 2025) and its slope: how far residuals are from averaging to zero.

An event is "label k is true" for one row and one label; its residual is its probability minus 1 if it is true.
Everything here is in the order of rising probability. NumPy, since the slope is as short as the loss: an average of
the signs of averages.
"""

from __future__ import annotations

import numpy as np


def residual_loss(
    probabilities: np.ndarray,
    *,
    labels: np.ndarray,
    order: np.ndarray,
    left_out: tuple[int | None, ...],
    window: int,
    clusters: int,
    lloyd_steps: int,
) -> tuple[float, np.ndarray]:
    """Probabilities `(n, K)`, labels `(n,)` and the order of the n K events to the loss and its slope `(n, K)`.

    The mean of `event_loss` over `left_out`: each time over all events of the rows whose label is not that one (all
    rows for None). A time without rows does not count. Rows are not normalised again.
    """
    n_labels = probabilities.shape[1]
    true = np.arange(n_labels) == labels[:, None]
    probability = probabilities.ravel()[order]
    residual = probability - true.ravel()[order]
    label = labels[order // n_labels]  # of the event's row
    losses, slope = [], np.zeros(len(order))
    for left in left_out:
        kept = slice(None) if left is None else np.flatnonzero(label != left)
        if len(probability[kept]) == 0:
            continue
        edges = cluster_edges(probability[kept], clusters, lloyd_steps)
        loss, part = event_loss(residual[kept], edges, window)
        losses.append(loss)
        slope[kept] += part
    unsorted = np.empty_like(slope)
    unsorted[order] = slope / len(losses)
    return float(np.mean(losses)), unsorted.reshape(probabilities.shape)


def event_loss(residual: np.ndarray, edges: np.ndarray, window: int) -> tuple[float, np.ndarray]:
    """Residuals `(N,)` and the edges of clusters to the loss and its slope in each residual, `(N,)`.

    The absolute moving average, averaged within each cluster and then over the clusters that have events. Clusters
    are held still, as published. A window of more than a fifth of the events is shortened to that.
    """
    window = max(1, min(window, len(residual) // 5))
    average = moving_average(residual, window)
    rows = edges[1:] - edges[:-1]
    rows = rows[rows > 0]
    weight = np.repeat(1 / (len(rows) * rows), rows)
    return float((weight * np.abs(average)).sum()), moving_average(weight * np.sign(average), window)


def moving_average(values: np.ndarray, window: int) -> np.ndarray:
    """Values `(N,)` to the sums of those at most (window - 1) // 2 places away, over their full number, `(N,)`.

    Beyond either end there are zeros. It is its own transpose, which makes it the slope of itself.
    """
    half = (window - 1) // 2
    total = np.empty(len(values) + 2 * half + 1)
    total[: half + 1] = 0
    np.cumsum(values, out=total[half + 1 : half + 1 + len(values)])
    total[half + 1 + len(values) :] = total[half + len(values)]
    return (total[2 * half + 1 :] - total[: len(values)]) / (2 * half + 1)


def cluster_edges(values: np.ndarray, clusters: int, lloyd_steps: int) -> np.ndarray:
    """Rising `values (N,)` to the edges `(clusters + 1,)` of their k-means clusters, each a slice; some may be empty.

    Lloyd's steps from centres at evenly spaced quantiles. In one dimension a cluster ends half-way to the next
    centre, so a step is a binary search and differences of a running sum.
    """
    centres = values[((np.arange(clusters) + 0.5) / clusters * len(values)).astype(int)]
    total = np.zeros(len(values) + 1)
    np.cumsum(values, out=total[1:])
    edges = np.zeros(clusters + 1, dtype=np.int64)
    edges[-1] = len(values)
    for _ in range(lloyd_steps):
        edges[1:-1] = values.searchsorted((centres[1:] + centres[:-1]) / 2)
        rows, sums = edges[1:] - edges[:-1], total[edges]
        np.divide(sums[1:] - sums[:-1], rows, out=centres, where=rows > 0)
    return edges
