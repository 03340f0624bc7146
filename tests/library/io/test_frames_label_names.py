"""Text of label names that are given as numbers."""

import numpy as np
import pytest

from relmap.io.frames import label_names


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([-(2.0**53), 0.0], [str(-(2.0**53)), "0.0"]),
        ([1 - 2.0**53, 0.0], [str(1 - 2**53), "0"]),
        ([-1.0, 2.0], ["-1", "2"]),
        (np.array([7, "x"], dtype=object), ["7", "x"]),
        ([[None, "b"], ["a", None]], [[None, "b"], ["a", None]]),
    ],
)
def test_only_whole_numbers_that_floats_represent_exactly_have_names_without_decimals(labels, names):
    assert label_names(labels).tolist() == names
