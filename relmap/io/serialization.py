"""Fitted models as values: frozen dataclasses whose annotations state the type, bounds and shape of each field.

From the same annotations, pydantic derives the JSON of a value, the schema of the JSON, and its validation.
"""

from dataclasses import dataclass, field
from inspect import get_annotations
from typing import Annotated, Any, ClassVar, Literal, dataclass_transform, get_type_hints

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

Number = Annotated[float, Field(ge=-1e9, le=1e9)]
Positive = Annotated[float, Field(gt=0, le=1e9)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=2**53)]


class Axes:
    """Axes of a field of type `np.ndarray` or `tuple`, given in its annotation.

    In JSON an array is nested lists, none of which is empty.

    Args:
        *axes: Length of each axis, or its name, such as "K" for labels or "J" for knots. Axes of the same name must
        have
            the same length in all fields of a value; "J-1" is one shorter than "J".
        of: Type of the numbers of an array with their bounds, such as `Number` or `Share`.
    """

    def __init__(self, *axes: str | int, of: object = Number) -> None:
        self.axes = axes
        self.of = of

    def read_only(self, values: ArrayLike) -> np.ndarray:
        """Copy values to a read-only array.

        Args:
            values: An array or nested lists.

        Returns:
            The copy; int64 for counts, else float64.

        Raises:
            ValueError: Lists on one axis differ in length.
        """
        dtype = np.int64 if self.of is Count else np.float64
        try:
            array: np.ndarray = np.array(values, dtype=dtype)
        except ValueError:
            raise ValueError("lists differ in length") from None
        array.flags.writeable = False
        return array

    def expected_shape(self, shape: tuple[int, ...], lengths: dict[str, int]) -> tuple[int, ...]:
        """Compute the shape that a field should have.

        Args:
            shape: Shape of the field.
            lengths: Length of each named axis. A name that is missing is added, with the length that it has in `shape`.

        Returns:
            The expected shape.
        """
        expected = []
        for axis, length in zip(self.axes, shape, strict=False):
            if isinstance(axis, int):
                expected.append(axis)
                continue
            offset = 1 if axis.endswith("-1") else 0
            named_length = lengths.setdefault(axis.removesuffix("-1"), length + offset)
            expected.append(named_length - offset)
        return tuple(expected)

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Build pydantic's schema: nested lists of bounded numbers for an array, the default for another type."""
        if source is not np.ndarray:
            return handler(source)
        lists: Any = self.of
        for axis in reversed(self.axes):
            length = axis if isinstance(axis, int) else None
            lists = Annotated[list[lists], Field(min_length=length or 1, max_length=length)]
        bounded = core_schema.no_info_before_validator_function(_to_lists, handler.generate_schema(lists))
        serializer = core_schema.plain_serializer_function_ser_schema(_to_lists)
        return core_schema.no_info_after_validator_function(self.read_only, bounded, serialization=serializer)


def _to_lists(values: object) -> object:
    return values.tolist() if isinstance(values, np.ndarray) else values


@dataclass_transform(frozen_default=True)
class Value:
    """Fitted model: a frozen dataclass whose arrays are read-only copies of the arguments.

    A class with the keyword `kind` can be part of a map. In the JSON of the map, the field `kind` identifies the class.
    """

    _axes: ClassVar[dict[str, Axes]]  # axes of each field whose annotation states them
    _arrays: ClassVar[list[str]]  # names of the fields that are arrays

    def __init_subclass__(cls, kind: str | None = None) -> None:
        if kind is not None:
            cls.__annotations__ = {"kind": Literal[kind]} | get_annotations(cls)
            cls.kind = field(default=kind, kw_only=True)  # type: ignore[attr-defined]
        hints = get_type_hints(cls, include_extras=True)
        cls._axes = {}
        cls._arrays = []
        for name, hint in hints.items():
            axes = _first_annotation(hint)
            if isinstance(axes, Axes):
                cls._axes[name] = axes
                if hint.__origin__ is np.ndarray:
                    cls._arrays.append(name)
        dataclass(frozen=True, eq=not cls._axes)(cls)  # no __eq__ with arrays, whose comparison gives no bool

    def __post_init__(self) -> None:
        for name in self._arrays:
            object.__setattr__(self, name, self._axes[name].read_only(getattr(self, name)))

    def violations(self, n_labels: int | None = None) -> list[str]:
        """Find violations of the shapes of the fields, and if there are none, of their content.

        Args:
            n_labels: Number of labels K; None if it is unknown.

        Returns:
            One sentence for each violation; empty if the value is valid.
        """
        lengths = {} if n_labels is None else {"K": n_labels}
        violations = []
        for name, axes in self._axes.items():
            values = getattr(self, name)
            shape = values.shape if isinstance(values, np.ndarray) else (len(values),)
            expected = axes.expected_shape(shape, lengths)
            if shape != expected:
                violations.append(f"{name} has shape {shape} instead of {expected}")
        return violations or self._content_violations()

    def _content_violations(self) -> list[str]:
        """Find violations other than of shapes and bounds; return a sentence for each, which names the location."""
        return []


def _first_annotation(hint: object) -> object:
    """Return the first metadata of an annotated type; None without any."""
    return getattr(hint, "__metadata__", (None,))[0]
