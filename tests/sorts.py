"""How much is sorted: counted work, which no busy machine makes look like more."""

import numpy as np
import pytest


def sorted_values(patch: pytest.MonkeyPatch) -> list[int]:
    """A list that will hold how many values each `np.unique` sorts from here on; any other sort fails the test."""
    counted: list[int] = []
    unique = np.unique

    def counting(values: np.ndarray, **asked: bool) -> object:
        assert asked == {"return_counts": True}, "to say which row stands where, the rows have to be sorted"
        counted.append(len(values))
        return unique(values, **asked)

    def another_sort(*_: object, **__: object) -> None:
        pytest.fail("one sort is enough")

    patch.setattr(np, "unique", counting)
    for name in ("sort", "argsort", "lexsort", "partition", "argpartition"):
        patch.setattr(np, name, another_sort)
    return counted
