"""A linear map of logits whose result for a row does not depend on the other rows."""

import numpy as np


def transform_rows(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute `rows @ weights.T`, adding the products of a row in a fixed order.

    A product of matrices by BLAS rounds differently for different numbers of rows, so the same row could be on
    different sides of a threshold when it is scored alone and in a file.

    Args:
        rows: Shape (n, K), float64.
        weights: Shape (L, K), float64.

    Returns:
        Shape (n, L), float64, stored column by column.
    """
    columns = np.ascontiguousarray(np.transpose(rows))
    transformed = np.zeros((len(weights), len(rows)))
    for label, weights_of_label in enumerate(weights.tolist()):
        total = transformed[label]  # a view: adding to it changes `transformed`
        for weight, column in zip(weights_of_label, columns, strict=True):
            if weight != 0:
                total += weight * column
    return transformed.T
