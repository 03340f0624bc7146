"""The confidence of decisions that come without one: how often all of them are right."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from tasks.protocol.values import Value


@dataclass(frozen=True)
class Constant(Value):
    """The same confidence for every decision."""

    kind: Literal["constant"] = field(default="constant", kw_only=True)
    share: Annotated[float, Field(gt=0, lt=1)]


def fit_constant(correct: float, rows: int) -> Constant:
    """The share of `correct` among `rows`, with one more of each assumed, so that it is not 0 or 1 (Laplace's rule)."""
    return Constant((correct + 1) / (rows + 2))
