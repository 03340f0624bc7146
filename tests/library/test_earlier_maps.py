"""Maps written by earlier versions can be read and give the same scores."""

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from relmap.maps.map_file import load_map
from tests.maps import run_command

FOLDER = Path(__file__).parents[1] / "data" / "maps_c857e97"
MAPS = sorted(FOLDER.glob("*.json"))
TOLERANCE = 1e-12
# names at the commit c857e97, which wrote the maps
VARIANTS_C857E97 = {
    "confidence",
    "shared_1d",
    "label_intercept",
    "label_isotonic",
    "label_platt",
    "mrp",
    "mrp_exact",
    "label_vector",
    "label_signals",
}
CALIBRATORS_C857E97 = {"uncal", "ts", "diag", "vector", "matrix", "smart", "spline", "hcal", "constant"}


def test_stored_maps_cover_every_variant_and_calibrator():
    documents = [load_map(path) for path in MAPS]
    assert {document.projection.name for document in documents} >= VARIANTS_C857E97
    assert {document.calibrator.name for document in documents} >= CALIBRATORS_C857E97


@pytest.mark.parametrize("map_file", MAPS, ids=lambda path: path.stem)
def test_earlier_map_gives_the_same_scores(map_file, tmp_path):
    kind_of_predictions = map_file.stem.partition("_")[0]  # logits, confidence, decision or signals
    predictions = FOLDER / f"{kind_of_predictions}.csv"
    expected = pl.read_csv(map_file.with_suffix(".scores.csv"))
    out = tmp_path / "scored.csv"

    run_command("apply", "--map", map_file, "--predictions", predictions, "--out", out)

    scored = pl.read_csv(out).select(expected.columns)
    assert_frame_equal(scored, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
