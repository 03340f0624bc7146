"""Maps written by earlier versions can be read and give the same scores."""

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.maps import run

FOLDER = Path(__file__).parents[1] / "data" / "maps_c857e97"
MAPS = sorted(FOLDER.glob("*.json"))
TOLERANCE = 1e-12


def test_the_folder_holds_maps():
    assert len(MAPS) >= 24


@pytest.mark.parametrize("map_file", MAPS, ids=lambda path: path.stem)
def test_an_earlier_map_gives_the_same_scores(map_file, tmp_path):
    predictions = FOLDER / f"{map_file.stem.partition('_')[0]}.csv"
    expected = pl.read_csv(map_file.with_suffix(".scores.csv"))
    out = tmp_path / "scored.csv"

    run("apply", "--map", map_file, "--predictions", predictions, "--out", out)

    scored = pl.read_csv(out).select(expected.columns)
    assert_frame_equal(scored, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
