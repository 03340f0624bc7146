"""The library agrees with results of the authors' released functions on artificial rows in the folder REAL_DATA."""

import pytest

from tests.authors_prep import COMPARISONS, FOLDER, compare

pytestmark = [
    pytest.mark.real_data,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="REAL_DATA has no authors_prep"),
]


@pytest.mark.parametrize("part", COMPARISONS)
def test_every_item_agrees_within_its_tolerance(part):
    comparisons = list(COMPARISONS[part]())
    assert comparisons
    assert [comparison for comparison in comparisons if not comparison.agrees] == []


def test_other_shapes_missing_numbers_and_large_deviations_do_not_agree():
    assert compare("equal", [1.0, float("nan")], [1.0, float("nan")]).agrees
    assert not compare("shape", [1.0], [1.0, 2.0]).agrees
    assert not compare("missing", [float("nan")], [1.0]).agrees
    assert not compare("large", [1.1], [1.0], tolerance=0.05).agrees
