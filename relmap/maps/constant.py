"""The confidence of decisions that come without one: how often all of them are right."""

from typing import Annotated

from pydantic import Field

from relmap.serialization import Value


class Constant(Value, kind="constant"):
    """The same confidence for every decision."""

    share: Annotated[float, Field(gt=0, lt=1)]


def fit_constant(correct: float, rows: int) -> Constant:
    """The share of `correct` among `rows`, with one more of each assumed, so that it is not 0 or 1 (Laplace's rule)."""
    return Constant((correct + 1) / (rows + 2))
