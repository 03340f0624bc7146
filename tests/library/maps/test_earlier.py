"""Maps written by earlier versions can be read, and have the same scores and fingerprints to the last bit."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from relmap import InputError
from relmap.decisions import CalibratedDecisions
from relmap.maps.document import load_map, save_map
from relmap.maps.earlier import Corrected, LinesWithSignals, WholeVector
from relmap.maps.sql import sql_expression
from relmap.projection.labelwise import Lines
from relmap.projection.pooled import ShrunkCurves
from tests.maps import run_command

DATA = Path(__file__).parents[2] / "data"
PREDICTIONS = DATA / "maps_c857e97"  # the rows that all maps have scored
MAPS = sorted(DATA.glob("maps_*/*.json"))
# names at the commit c857e97, which wrote most of the maps; its pooled curves are now called mrp_pooled
VARIANTS_C857E97 = {
    "confidence",
    "shared_1d",
    "label_intercept",
    "label_isotonic",
    "label_platt",
    "mrp_pooled",
    "mrp_exact",
    "label_vector",
    "label_signals",
}
CALIBRATORS_C857E97 = {"uncal", "ts", "diag", "vector", "matrix", "smart", "spline", "hcal", "constant"}
# maps whose sums of products were added in another order on the machine that wrote them
SUMS_OF_PRODUCTS = {"logits_auto", "logits_label_vector", "logits_mrp_matrix", "logits_mrp_smart"}
SAME_NUMPY = np.lib.NumpyVersion(np.__version__) >= "2.3.0"  # before, the exponential differs in its last bit
TOLERANCE = 3e-16
CORRECTION = {
    "knots": [-2.0, -0.5, 0.1, 1.0],
    "values": [-2.6, -0.4, 0.2, 0.3],
    "first_slope": 1.7,
    "last_slope": 0.05,
}
CORRECTED_MODELS = {  # map -> type of its model
    "signals_label_signals": LinesWithSignals,
    "logits_label_vector": WholeVector,
    "logits_mrp": ShrunkCurves,
    "logits_label_platt": Lines,
}


def write_corrected(name: str, folder: Path, **change: object) -> Path:
    """Write a stored map with a correction, of the map and of its folds, and return its path."""
    content = json.loads((PREDICTIONS / f"{name}.json").read_text())
    correction = CORRECTION | change
    content["correction"] = correction
    content["folds"] = [fold | {"correction": correction} for fold in content["folds"]]
    path = folder / "map.json"
    path.write_text(json.dumps(content))
    return path


every_map = pytest.mark.parametrize("map_file", MAPS, ids=lambda path: f"{path.parent.name}-{path.stem}")


def test_stored_maps_cover_every_variant_and_calibrator():
    documents = [load_map(path) for path in MAPS]
    assert {document.projection.name for document in documents} >= VARIANTS_C857E97
    assert {document.calibrator.name for document in documents} >= CALIBRATORS_C857E97
    assert {document.earlier_version for document in documents} == {3}
    assert any(isinstance(document.projection.fitted, Corrected) for document in documents)


@every_map
def test_an_earlier_map_gives_the_same_scores(map_file, tmp_path):
    kind_of_predictions = map_file.stem.partition("_")[0]  # logits, confidence, decision or signals
    predictions = PREDICTIONS / f"{kind_of_predictions}.csv"
    expected = pl.read_csv(map_file.with_suffix(".scores.csv"))
    out = tmp_path / "scored.csv"

    run_command("apply", "--map", map_file, "--predictions", predictions, "--out", out)

    scored = pl.read_csv(out).select(expected.columns)
    in_another_order = map_file.stem in SUMS_OF_PRODUCTS and map_file.parent == PREDICTIONS
    if in_another_order or not SAME_NUMPY:
        assert_frame_equal(scored, expected, rel_tol=0, abs_tol=TOLERANCE)
    else:
        assert_frame_equal(scored, expected, check_exact=True)


@every_map
def test_an_earlier_map_keeps_its_fingerprint_also_if_it_is_saved_again(map_file, tmp_path):
    lines = map_file.with_name("fingerprints.txt").read_text().splitlines()
    expected = next(line.split()[0] for line in lines if line.split()[1] == map_file.stem)
    document = load_map(map_file)
    save_map(document, tmp_path / "map.json")
    again = load_map(tmp_path / "map.json")
    assert document.fingerprint == again.fingerprint == expected
    assert again.model_dump_json() == document.model_dump_json()


@pytest.mark.parametrize(("name", "model_type"), CORRECTED_MODELS.items())
def test_a_correction_of_an_earlier_map_applies_to_the_score_of_its_model(name, model_type, tmp_path):
    plain = load_map(PREDICTIONS / f"{name}.json")
    corrected = load_map(write_corrected(name, tmp_path))
    assert isinstance(corrected.projection.fitted.base, model_type)
    assert {type(fold.projection) for fold in corrected.folds} == {Corrected}
    assert corrected.fingerprint != plain.fingerprint
    generator = np.random.default_rng(0)
    decisions = CalibratedDecisions(
        confidence_logit=generator.normal(size=50) * 2,
        decision=generator.integers(0, 3, 50),
        logits=generator.normal(size=(50, 3)) * 2,
        signals=generator.normal(size=(50, 3)),
    )
    before = plain.projection.fitted(decisions)
    expected = np.interp(before, CORRECTION["knots"], CORRECTION["values"])
    expected += CORRECTION["first_slope"] * np.minimum(before - CORRECTION["knots"][0], 0)
    expected += CORRECTION["last_slope"] * np.maximum(before - CORRECTION["knots"][-1], 0)
    np.testing.assert_allclose(corrected.projection.fitted(decisions), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"knots": [-2.0, -2.0, 0.1, 1.0]}, r"knots .*correction.*-2\.0, -2\.0"),
        ({"values": [0.3, 0.2, 0.1, 0.0]}, r"values .*correction.*0\.3, 0\.2"),
        ({"last_slope": 0}, "last_slope"),
    ],
)
def test_an_invalid_correction_is_rejected(change, message, tmp_path):
    with pytest.raises(InputError, match=message):
        load_map(write_corrected("logits_mrp", tmp_path, **change))


@pytest.mark.parametrize("name", ["logits_label_vector", "signals_label_signals"])
def test_models_of_earlier_maps_have_no_sql(name):
    with pytest.raises(InputError):
        sql_expression(load_map(PREDICTIONS / f"{name}.json"), "duckdb")
