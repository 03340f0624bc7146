"""The file `map.json`: it loads unchanged, and invalid files are rejected with the place of the error."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import jsonschema
import numpy as np
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from relmap.calibrators.registry import CALIBRATORS
from relmap.calibrators.temperature import Temperature
from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.maps.document import SCHEMA_FILE, MapDocument, json_schema, load_map, save_map
from relmap.maps.score import FittedMap
from tests import maps

VARIANTS = sorted(maps.make_variants())
SCHEMA = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text()))


def edit_file(path: Path, keys: tuple[str | int, ...], value: object) -> Path:
    """Replace the value at one place of a JSON file."""
    content = json.loads(path.read_text())
    parent = content
    for key in keys[:-1]:
        parent = parent[key]
    parent[keys[-1]] = value
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def saved(tmp_path) -> Path:
    """Save a valid map with the curves of three labels."""
    save_map(maps.make_map("mrp"), tmp_path / "map.json")
    return tmp_path / "map.json"


@pytest.mark.parametrize("variant", VARIANTS)
def test_saved_map_validates_against_the_schema_and_loads_unchanged(variant, decisions, saved):
    document = maps.make_map(variant)
    save_map(document, saved)
    SCHEMA.validate(json.loads(saved.read_text()))
    loaded = load_map(saved)

    assert loaded.model_dump_json() == document.model_dump_json()

    rows = FixedDecisions(decision=decisions.decision, logits=decisions.logits)
    expected = FittedMap(Temperature(0.8), maps.make_variants()[variant])(rows)
    np.testing.assert_array_equal(FittedMap.from_document(loaded)(rows).logit, expected.logit)


@pytest.mark.skipif(Version(pydantic.VERSION) < Version("2.12"), reason="pydantic writes schemas in another form")
def test_committed_schema_matches_the_code():
    assert json.loads(SCHEMA_FILE.read_text()) == json_schema(), "write json_schema() to relmap/maps/map.schema.json"


@pytest.mark.parametrize("name", CALIBRATORS)
def test_loaded_calibrator_gives_identical_outputs(name, decisions, saved):
    fitted = CALIBRATORS[name].fit(decisions.logits[:200], decisions.label[:200], seed=1)
    save_map(maps.make_map("confidence", calibrator=fitted), saved)
    loaded = load_map(saved).calibrator.fitted
    np.testing.assert_array_equal(loaded(decisions.logits), fitted(decisions.logits))


def test_map_file_has_curves_on_one_line_and_names_in_any_script(saved):
    names = ("ungenügend", '[1, "zwei"]', "完全")
    save_map(maps.make_map("mrp", names=names), saved)
    curve = json.dumps(maps.make_map("mrp").projection.fitted.values[0].tolist())
    assert f"  {curve},\n" in saved.read_text()
    assert '  "n_labels": 3,' in saved.read_text().splitlines()
    assert load_map(saved).label_names == names


CALIBRATOR = ("calibrator", "fitted")
PROJECTION = ("projection", "fitted")
CELL = {"label": 3, "half": "upper", "rows": 9, "mean_reliability": 0.5, "mean_residual": 0.0, "variance": 0.1}
NETWORK = {"kind": "smart", "mean": 0.0, "deviation": 1.0, "parameters": [0.0] * 7}
SPLINE = {"kind": "spline", "knots": [0.5, 0.6], "coefficients": [[0.0] * 4]}
SHIFTS = {"kind": "intercepts", "alpha": [0.0, 31.0, 0.0]}
CURVE = {"kind": "lattice", "knots": [0.0, 1.0], "values": [[0.0, 1.0]], "rows": [9], "fallback": ["none"]}
SHARED = {"kind": "shared", "curves": CURVE}
LABELWISE = {"kind": "labelwise", "shared": SHARED, "fallback": ["none"] * 3, "rows": [3, 3, 3]}
STEPS = {"kind": "isotonic", "confidence": [[0.5]] * 3, "reliability": [[0.5], [0.5, 0.6], [0.5]]}
INVALID_MAPS = {
    "a curve that falls": ((*PROJECTION, "values", 0, 7), -999.0, "falls"),
    "a knot that does not increase": ((*PROJECTION, "knots", 3), 0.2, "knots .*not increase"),
    "a value too many": ((*PROJECTION, "values", 1), [0.0] * 9, r"lattice\.values: .*lists differ"),
    "an unknown field": ((*PROJECTION, "surprise"), 1, r"lattice\.surprise"),
    "a shift too far": (PROJECTION, LABELWISE | {"own": SHIFTS}, r"alpha\.1"),
    "steps without their reliability": (
        PROJECTION,
        LABELWISE | {"own": STEPS},
        "label 1 .*1 thresholds .*2 values",
    ),
    "a spline of equal confidences": (CALIBRATOR, SPLINE | {"knots": [0.5, 0.5]}, "do not increase"),
    "a name twice": (("label_names",), ["a", "a", "b"], "2 are distinct"),
    "another number of labels": (("n_labels",), 4, r"than 0\.\.3"),
    "a group that steers the terminal": (("source", "group"), "\x9b2J", r"source\.group"),
    "another format": (("format",), "pmml", "reliability map: .*format"),
    "an older version": (("version",), 1, "version 1 .*versions 3 and 4"),
    "logits that are not there": (("input",), "confidence_only", "needs logits"),
    "quantiles that fall": (("held_out", "quantiles", 50), 0.0, "quantiles decrease"),
    "halves of other labels": (("held_out", "halves"), [0.5], "other labels"),
    "a cell of no label": (("held_out", "cells"), [CELL], "other labels"),
    "a network cut off": (CALIBRATOR, NETWORK, r"7 parameters.* H\^2 \+ 4 H \+ 1"),
}


@pytest.mark.parametrize(("keys", "value", "message"), INVALID_MAPS.values(), ids=INVALID_MAPS)
def test_invalid_map_is_rejected_with_the_place_of_the_error(saved, keys, value, message):
    with pytest.raises(InputError, match=r"map\.json") as raised:
        load_map(edit_file(saved, keys, value))
    assert re.search(message, str(raised.value))


VALID_JSON = maps.make_map("label_platt").model_dump_json()


def writer(text: str) -> Callable[[Path], int]:
    """Return a function that writes the text to a file."""
    return lambda path: path.write_text(text)


def do_nothing(_: Path) -> None:
    """Create no file."""


NO_MAPS = ["", "[]", "null", "42", '"map"', "[" * 100_000, "\x00", "{}", VALID_JSON[:-1], VALID_JSON[:999]]
INVALID_NUMBERS = [VALID_JSON.replace('"beta":0.8', f'"beta":{number}') for number in ("NaN", "-Infinity", "1e999")]


@pytest.mark.parametrize(
    ("write_file", "message"),
    [
        *((writer(text), r"map\.json is no") for text in NO_MAPS),
        *((writer(text), "beta|JSON") for text in INVALID_NUMBERS),
        (writer(" " * 2**26 + "{}"), r"map\.json has 67,108,866 bytes"),
        (os.mkfifo, r"map\.json .*pipe"),
        (do_nothing, "does not exist"),
    ],
)
def test_file_that_is_not_a_map_is_rejected_without_blocking(write_file, message, tmp_path):
    write_file(tmp_path / "map.json")
    with pytest.raises(InputError, match=message):
        load_map(tmp_path / "map.json")


SCALARS = st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats() | st.text(max_size=5)
CORRUPT_VALUES = SCALARS | st.just({}) | st.lists(st.floats(-2, 2), max_size=9)


def list_locations(content: object, location: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """List the path of every value within a JSON value."""
    if isinstance(content, dict):
        children = list(content.items())
    elif isinstance(content, list):
        children = list(enumerate(content))
    else:
        children = []
    locations = [location] if location else []
    for key, value in children:
        locations += list_locations(value, (*location, key))
    return locations


@settings(max_examples=50, deadline=None)
@given(variant=st.sampled_from(VARIANTS), value=CORRUPT_VALUES, data=st.data())
def test_corrupted_map_is_rejected_or_still_valid(tmp_path_factory, variant, value, data):
    path = tmp_path_factory.getbasetemp() / "corrupted.json"
    save_map(maps.make_map(variant), path)
    edit_file(path, data.draw(st.sampled_from(list_locations(json.loads(path.read_text())))), value)
    try:
        document = load_map(path)
    except InputError:
        return  # rejected; any other error fails this test

    assert SCHEMA.is_valid(json.loads(path.read_text()))

    rows = FixedDecisions(decision=np.arange(100) % 3, logits=np.linspace(-5, 5, 300).reshape(-1, 3))
    if document.input == "logits" and document.n_labels == 3:
        scored = FittedMap.from_document(document)(rows)
        assert ((scored.reliability >= 0) & (scored.reliability <= 1)).all()
        assert document.projection.fitted.violations(3) == []


def test_parts_of_a_map_cannot_be_changed():
    document = maps.make_map()
    for part in (document, document.held_out):
        name = next(iter(type(part).model_fields))
        with pytest.raises(pydantic.ValidationError, match="frozen"):
            setattr(part, name, getattr(part, name))


@pytest.mark.parametrize(("n_folds", "types"), [(1, 1), (51, 1), (3, 2)])
def test_a_map_has_2_to_50_folds_of_one_type(n_folds, types):
    document = maps.fit_map(maps.rows_of_frame(maps.make_predictions(200)), "label_intercept").document
    other = maps.fit_map(maps.rows_of_frame(maps.make_predictions(200)), "confidence").document
    folds = [document.folds[0]] * n_folds
    if types == 2:
        folds[-1] = other.folds[0]
    with pytest.raises(pydantic.ValidationError, match=rf" {n_folds} folds .*{types} types.* 2 .* 50 "):
        MapDocument(**dict(document) | {"folds": tuple(folds)})


def test_a_file_of_more_than_64_mebibytes_is_rejected_as_too_large(tmp_path):
    path = tmp_path / "map.json"
    with path.open("wb") as file:
        file.truncate(2**26 + 1)
    with pytest.raises(InputError, match=r"map\.json .*67,108,865 bytes.*`relmap fit`"):
        load_map(path)
    with path.open("wb") as file:
        file.truncate(2**26)
    with pytest.raises(InputError, match="JSON"):
        load_map(path)
