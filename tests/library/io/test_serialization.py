"""Serialized values: shapes, bounds and read-only arrays."""

import re
from typing import Annotated

import numpy as np
import pytest
from pydantic import Field, TypeAdapter, ValidationError

from relmap.io.serialization import Axes, Count, Share, Value


class Shapes(Value):
    """Value whose arrays share lengths."""

    knots: Annotated[np.ndarray, Axes("J")]
    heights: Annotated[np.ndarray, Axes("K", "J-1")]
    counts: Annotated[np.ndarray, Axes("K", of=Count)]
    names: Annotated[tuple[str, ...], Axes(2)]


def make_shapes(**fields: object) -> Shapes:
    values = {"knots": [0, 0.5, 1], "heights": [[1, 2], [3, 4]], "counts": [5, 6], "names": ("a", "b")}
    return Shapes(**values | fields)


def test_arrays_of_a_value_are_read_only_copies_with_their_type():
    given = np.array([0.0, 0.5, 1.0])
    value = make_shapes(knots=given)
    given[0] = 9
    assert value.knots.tolist() == [0, 0.5, 1]
    assert (value.heights.dtype, value.counts.dtype) == (np.float64, np.int64)
    for array in (value.knots, value.heights, value.counts):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(ValueError, match=r"lists .*length"):
        make_shapes(heights=[[1, 2], [3]])


@pytest.mark.parametrize(
    ("fields", "n_labels", "violations"),
    [
        ({}, None, []),
        ({}, 2, []),
        ({}, 3, [("heights", "(2, 2)", "(3, 2)"), ("counts", "(2,)", "(3,)")]),
        ({"knots": [0, 1]}, None, [("heights", "(2, 2)", "(2, 1)")]),
        ({"counts": [5]}, None, [("counts", "(1,)", "(2,)")]),
        ({"names": ("a",)}, None, [("names", "(1,)", "(2,)")]),
        ({"knots": [[0, 0.5, 1]]}, None, [("knots", "(1, 3)", "(1,)")]),
    ],
)
def test_shapes_that_disagree_are_violations(fields, n_labels, violations):
    """A violation names the field, its shape and the one that it needs."""
    found = make_shapes(**fields).violations(n_labels)
    facts = [re.fullmatch(r"(\w+) .*?(\(.*\)) .*(\(.*\))", violation).groups() for violation in found]
    assert facts[: len(violations)] == violations
    assert bool(found) == bool(violations)


def test_a_length_that_is_one_less_fixes_the_named_length():
    axes = Axes("J-1")
    lengths = {}
    assert axes.expected_shape((4,), lengths) == (4,)
    assert lengths == {"J": 5}
    assert Axes("J").expected_shape((4,), lengths) == (5,)
    assert axes.expected_shape((9,), lengths) == (4,)
    assert Axes(3, "K").expected_shape((7, 2), {}) == (3, 2)


def test_arrays_in_json_are_nested_lists_that_are_not_empty():
    adapter = TypeAdapter(Annotated[np.ndarray, Axes("K", 2, of=Share)])
    array = adapter.validate_python([[0.5, 1.0], [0.25, 0.0]])
    assert array.shape == (2, 2)
    assert adapter.dump_json(array) == b"[[0.5,1.0],[0.25,0.0]]"
    assert adapter.validate_python(array).tolist() == array.tolist()
    for invalid in ([], [[0.5]], [[0.5, 0.5, 0.5]], [[0.5, 1.5]], [[]]):
        with pytest.raises(ValidationError):
            adapter.validate_python(invalid)


@pytest.mark.parametrize(("bounded", "valid", "invalid"), [(Share, 1.0, 1.001), (Share, 0.0, -0.001), (Count, 0, -1)])
def test_bounded_numbers_include_their_limits(bounded, valid, invalid):
    adapter = TypeAdapter(bounded)
    assert adapter.validate_python(valid) == valid
    with pytest.raises(ValidationError):
        adapter.validate_python(invalid)


def test_values_with_axes_are_compared_by_identity_and_others_by_content():
    class Level(Value):
        share: Annotated[float, Field(ge=0)]

    assert Level(0.5) == Level(0.5)
    assert make_shapes() != make_shapes()
