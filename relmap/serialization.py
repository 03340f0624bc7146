"""Fitted things are values: frozen dataclasses whose annotations say what each field may hold, and of which shape.

pydantic reads the same annotations: from them come the JSON of a value, its schema, and what is refused.
"""

from dataclasses import dataclass, field
from inspect import get_annotations
from typing import Annotated, Any, ClassVar, Literal, dataclass_transform, get_type_hints

import numpy as np
from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

Number = Annotated[float, Field(ge=-1e9, le=1e9)]
Positive = Annotated[float, Field(gt=0, le=1e9)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=2**53)]


class Axes:
    """The axes of a field, the annotation beside its type `np.ndarray` or `tuple`.

    An axis is a length, or a name that stands for one length within a value: `K` labels, `J` knots, `J-1` between.
    The numbers of an array are `of` a bounded type. In JSON an array is nested lists, none of them empty.
    """

    def __init__(self, *axes: str | int, of: Any = Number) -> None:
        self.axes, self.of = axes, of

    def read_only(self, values: Any) -> np.ndarray:
        """Return a read-only copy of `values`, an array or nested lists: int64 if they count, or float64."""
        try:
            array: np.ndarray = np.array(values, dtype=np.int64 if self.of is Count else np.float64)
        except ValueError:
            raise ValueError("its lists differ in length") from None
        array.flags.writeable = False
        return array

    def due(self, shape: tuple[int, ...], lengths: dict[str, int]) -> tuple[int, ...]:
        """Return the shape that a field of `shape` should have; a name new to `lengths` takes its length there."""

        def of(axis: str, length: int) -> int:
            fewer = axis.endswith("-1")
            return lengths.setdefault(axis.removesuffix("-1"), length + fewer) - fewer

        both = zip(self.axes, shape, strict=False)
        return tuple(of(axis, length) if isinstance(axis, str) else axis for axis, length in both)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Nested lists of bounded numbers, as they stand in JSON, for an array; what pydantic has for another type."""
        if source is not np.ndarray:
            return handler(source)
        lists = self.of
        for axis in reversed(self.axes):
            length = axis if isinstance(axis, int) else None
            lists = Annotated[list[lists], Field(min_length=length or 1, max_length=length)]  # type: ignore[valid-type]
        bounded = core_schema.no_info_before_validator_function(_plain, handler.generate_schema(lists))
        written = core_schema.plain_serializer_function_ser_schema(_plain)
        return core_schema.no_info_after_validator_function(self.read_only, bounded, serialization=written)


def _plain(values: Any) -> Any:
    return values.tolist() if isinstance(values, np.ndarray) else values


@dataclass_transform(frozen_default=True)
class Value:
    """A fitted thing: a frozen dataclass. Its arrays are read-only copies of what it was made of.

    One that may stand in a map has a field `kind`, by which that tells it from others, and names it with its bases.
    """

    _axes: ClassVar[dict[str, Axes]]  # of each field that has any
    _arrays: ClassVar[list[str]]

    def __init_subclass__(cls, kind: str | None = None) -> None:
        if kind is not None:
            cls.__annotations__ = {"kind": Literal[kind]} | get_annotations(cls)
            cls.kind = field(default=kind, kw_only=True)  # type: ignore[attr-defined]
        hints = get_type_hints(cls, include_extras=True)
        shaped = {name: hint for name, hint in hints.items() if isinstance(_note(hint), Axes)}
        cls._axes = {name: _note(hint) for name, hint in shaped.items()}
        cls._arrays = [name for name, hint in shaped.items() if hint.__origin__ is np.ndarray]
        dataclass(frozen=True, eq=not shaped)(cls)  # arrays are not equal or unequal as a whole

    def __post_init__(self) -> None:
        for name in self._arrays:
            object.__setattr__(self, name, self._axes[name].read_only(getattr(self, name)))

    def violations(self, n_labels: int | None = None) -> list[str]:
        """Return what is wrong with it, a sentence each, for K labels where that is known; empty if nothing is."""
        lengths, wrong = ({} if n_labels is None else {"K": n_labels}), []
        for name, axes in self._axes.items():
            given = getattr(self, name)
            shape = given.shape if isinstance(given, np.ndarray) else (len(given),)
            if shape != (due := axes.due(shape, lengths)):
                wrong.append(f"{name} is of shape {shape}, where {due} is due")
        return wrong or self._content_violations()

    def _content_violations(self) -> list[str]:
        """What is wrong beyond shapes and bounds, a sentence each, a place in each."""
        return []


def _note(hint: Any) -> Any:
    """What stands beside the type in an annotation; None where nothing does."""
    return getattr(hint, "__metadata__", (None,))[0]
