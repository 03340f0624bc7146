"""How much is sorted: counted work, which no busy machine makes look like more."""

import numpy as np
import pytest

SORTS = ("unique", "sort", "argsort", "lexsort", "partition", "argpartition")


def counted_sorts(patch: pytest.MonkeyPatch, allowed: str) -> list[int]:
    """A list that will hold how many values each sort `allowed` takes from here on; any other sort fails the test.

    So does `np.unique` where it has to say which row stands where: for that, rows and not values are sorted.
    """
    counted: list[int] = []
    original = getattr(np, allowed)

    def counting(values: np.ndarray, **options: bool) -> object:
        assert options in ({}, {"return_counts": True})
        counted.append(len(values))
        return original(values, **options)

    def another_sort(*_: object, **__: object) -> None:
        pytest.fail("one sort is enough")

    for name in SORTS:
        patch.setattr(np, name, counting if name == allowed else another_sort)
    return counted
