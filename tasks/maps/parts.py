"""What every part of `map.json` has in common."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator

Number = Annotated[float, Field(ge=-1e9, le=1e9)]
Positive = Annotated[float, Field(gt=0, le=1e9)]
Share = Annotated[float, Field(ge=0, le=1)]
Rows = Annotated[int, Field(ge=0)]
Numbers = tuple[float, ...]


class Part(BaseModel):
    """A part of a map: never changed after reading, and no name in it goes unnoticed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _shows_as_it_is(cls, value: Any) -> Any:
        """No text holds a line break, or what moves a terminal's cursor or turns the direction of reading."""
        texts = [value] if isinstance(value, str) else value if isinstance(value, tuple | dict) else ()
        if not all(one.isprintable() for one in texts if isinstance(one, str)):
            raise ValueError("a text holds characters that cannot be shown")
        return value


def plain(array: np.ndarray) -> Numbers:
    """An array `(n,)` as Python's own numbers."""
    return tuple(array.tolist())
