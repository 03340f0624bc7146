"""A calibrator for predictions that have only decisions: it returns their estimated accuracy as the confidence."""

from typing import Annotated

from pydantic import Field

from relmap.serialization import Value


class Constant(Value, kind="constant"):
    """The same confidence for every decision.

    Attributes:
        share: Estimated share of correct decisions.
    """

    share: Annotated[float, Field(gt=0, lt=1)]


def fit_constant(correct: float, rows: int) -> Constant:
    """Estimate the accuracy by Laplace's rule, (correct + 1) / (rows + 2), which is never 0 or 1.

    Args:
        correct: Number of correct decisions; not whole if the rows are weighted.
        rows: Number of rows.

    Returns:
        The constant confidence.
    """
    return Constant((correct + 1) / (rows + 2))
