"""The knobs of a reader: a frozen model in which no unknown name and no wrong value goes unnoticed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from tasks.protocol.errors import BadInput, mistakes


class Options(BaseModel):
    """Base of every reader's options."""

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)


Model = TypeVar("Model", bound=Options)


def checked(model: type[Model], given: Mapping[str, Any], dataset: str) -> Model:
    """`given`, as it stands in params.yaml, as a `model`; BadInput names each wrong option and what stood there."""
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        places = mistakes(error, "options")
        known = ", ".join(model.model_fields)
        raise BadInput(
            f"options of {dataset}: {len(places)} mistake(s); known options: {known}\n  " + "\n  ".join(places)
        ) from None
