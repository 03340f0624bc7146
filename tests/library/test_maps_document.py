"""`map.json`: what is written is read back, and what is not sound is refused by its place, never misread."""

import json
import os
from functools import reduce
from operator import getitem
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relmap.calibrators.registry import CALIBRATORS
from relmap.calibrators.temperature import Temperature
from relmap.errors import InputError
from relmap.io.rows import PredictedRows
from relmap.maps.map_file import SCHEMA_FILE, json_schema, load_map, save_map
from relmap.maps.reliability_map import FittedMap
from tests import maps

VARIANTS = sorted(maps.make_variants())
SCHEMA = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text()))


def edited(path: Path, place: tuple[str | int, ...], value: object) -> Path:
    """The same file with another value at one place."""
    content = json.loads(path.read_text())
    reduce(getitem, place[:-1], content)[place[-1]] = value
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def saved(tmp_path) -> Path:
    """A sound map with the curves of three labels."""
    save_map(maps.make_map("mrp"), tmp_path / "map.json")
    return tmp_path / "map.json"


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_map_that_is_written_is_as_the_schema_says_and_read_back_as_it_was(variant, decisions, saved):
    document = maps.make_map(variant)
    save_map(document, saved)
    SCHEMA.validate(json.loads(saved.read_text()))
    read = load_map(saved)
    assert read.model_dump_json() == document.model_dump_json()
    rows = PredictedRows(decisions.logits, None, decisions.decision, None, None)
    made = FittedMap(Temperature(0.8), maps.make_variants()[variant])(rows)
    np.testing.assert_array_equal(FittedMap.from_document(read)(rows).logit, made.logit)


def test_a_map_with_a_correction_is_as_the_schema_says_and_an_incomplete_correction_is_not(saved):
    fitted = maps.make_variants()["mrp, shrunk"].line
    save_map(maps.add_correction(maps.make_map("label_platt", fitted)), saved)
    document = json.loads(saved.read_text())
    SCHEMA.validate(document)
    del document["correction"]["last_slope"]
    with pytest.raises(jsonschema.ValidationError, match="is not valid"):
        SCHEMA.validate(document)


def test_the_schema_in_the_repository_is_that_of_the_code():
    assert json.loads(SCHEMA_FILE.read_text()) == json_schema(), "write json_schema() to relmap/maps/map.schema.json"


@pytest.mark.parametrize("name", CALIBRATORS)
def test_a_calibrator_that_is_read_back_says_the_same_bit_for_bit(name, decisions, saved):
    fitted = CALIBRATORS[name].fit(decisions.logits[:200], decisions.labels[:200], seed=1)
    save_map(maps.make_map("confidence", calibrator=fitted), saved)
    read = load_map(saved).calibrator.fitted
    np.testing.assert_array_equal(read(decisions.logits), fitted(decisions.logits))


def test_a_map_is_readable_with_a_curve_on_one_line_and_names_in_any_script(saved):
    names = ("ungenügend", '[1, "zwei"]', "完全")
    save_map(maps.make_map("mrp", names=names), saved)
    curve = json.dumps(maps.make_map("mrp").projection.fitted.values[0].tolist())
    assert f"  {curve},\n" in saved.read_text()
    assert '  "n_labels": 3,' in saved.read_text().splitlines()
    assert load_map(saved).label_names == names


CALIBRATOR, PROJECTION = ("calibrator", "fitted"), ("projection", "fitted")
CELL = {"label": 3, "half": "upper", "rows": 9, "mean_reliability": 0.5, "mean_residual": 0.0, "variance": 0.1}
NETWORK = {"kind": "smart", "mean": 0.0, "deviation": 1.0, "parameters": [0.0] * 7}
SPLINE = {"kind": "spline", "knots": [0.5, 0.6], "coefficients": [[0.0] * 4]}
SHIFTS = {"kind": "intercepts", "alpha": [0.0, 13.0, 0.0]}
CURVE = {"kind": "lattice", "knots": [0.0, 1.0], "values": [[0.0, 1.0]], "rows": [9], "fallback": ["none"]}
SHARED = {"kind": "shared", "curves": CURVE}
BESIDE = {"kind": "labelwise", "shared": SHARED, "fallback": ["none"] * 3, "rows": [3, 3, 3]}
STEPS = {"kind": "isotonic", "confidence": [[0.5]] * 3, "reliability": [[0.5], [0.5, 0.6], [0.5]]}
REFUSED = {
    "a curve that falls": ((*PROJECTION, "values", 0, 7), -999.0, "falls"),
    "a knot that does not rise": ((*PROJECTION, "knots", 3), 0.2, "knots do not rise"),
    "a value too many": ((*PROJECTION, "values", 1), [0.0] * 9, "lattice.values: Value error, its lists differ"),
    "an unknown field": ((*PROJECTION, "surprise"), 1, "lattice.surprise"),
    "a shift too far": (PROJECTION, BESIDE | {"own": SHIFTS}, "alpha.1"),
    "steps without their reliability": (PROJECTION, BESIDE | {"own": STEPS}, "label 1 has 1 thresholds and 2 values"),
    "a spline of equal confidences": (CALIBRATOR, SPLINE | {"knots": [0.5, 0.5]}, "do not rise"),
    "a name twice": (("label_names",), ["a", "a", "b"], "2 are distinct"),
    "another number of labels": (("n_labels",), 4, "than 0..3"),
    "a group that steers the terminal": (("source", "group"), "\x9b2J", "source.group"),
    "another format": (("format",), "pmml", "not a reliability map"),
    "an older version": (("version",), 1, "version 1 of the map format, and this program reads version 3; fit"),
    "logits that are not there": (("input",), "confidence_only", "needs logits"),
    "quantiles that fall": (("held_out", "quantiles", 50), 0.0, "quantiles decrease"),
    "halves of other labels": (("held_out", "halves"), [0.5], "other labels"),
    "a cell of no label": (("held_out", "cells"), [CELL], "other labels"),
    "a network cut off": (CALIBRATOR, NETWORK, "7 parameters, which is not H^2 + 4 H + 1"),
}


@pytest.mark.parametrize(("place", "value", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_sound_is_refused_by_its_place(saved, place, value, message):
    with pytest.raises(InputError, match=r"map\.json") as refused:
        load_map(edited(saved, place, value))
    assert message in str(refused.value)


WHOLE = maps.make_map("label_platt").model_dump_json()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *(
            (lambda path, text=text: path.write_text(text), r"map\.json is no")
            for text in ("", "[]", "null", "42", '"map"', "[" * 100_000, "\x00", "{}", WHOLE[:-1], WHOLE[:999])
        ),
        *(
            (lambda path, number=number: path.write_text(WHOLE.replace('"beta":0.8', f'"beta":{number}')), "beta|JSON")
            for number in ("NaN", "-Infinity", "1e999")
        ),
        (lambda path: path.write_text(" " * 2**26 + "{}"), "a reliability map is far smaller"),
        (os.mkfifo, r"map\.json is a pipe or a device"),
        (lambda _: None, "does not exist"),
    ],
)
def test_what_is_no_map_is_refused_and_a_pipe_keeps_nobody_waiting(make, message, tmp_path):
    make(tmp_path / "map.json")
    with pytest.raises(InputError, match=message):
        load_map(tmp_path / "map.json")


PLAIN = st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats() | st.text(max_size=5)
SPOILT = PLAIN | st.just({}) | st.lists(st.floats(-2, 2), max_size=9)


def places(content: object, place: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place within a JSON value."""
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return [place, *(deeper for key, value in inner for deeper in places(value, (*place, key)))][0 if place else 1 :]


@settings(max_examples=50, deadline=None)
@given(variant=st.sampled_from(VARIANTS), value=SPOILT, data=st.data())
def test_a_spoilt_map_is_refused_or_still_a_sound_one(tmp_path_factory, variant, value, data):
    path = tmp_path_factory.getbasetemp() / "spoilt.json"
    save_map(maps.make_map(variant), path)
    edited(path, data.draw(st.sampled_from(places(json.loads(path.read_text())))), value)
    try:
        document = load_map(path)
    except InputError:
        return  # refused in words; anything else that is raised fails this test
    assert SCHEMA.is_valid(json.loads(path.read_text()))
    rows = PredictedRows(np.linspace(-5, 5, 300).reshape(-1, 3), None, np.arange(100) % 3, None, None)
    if document.input == "logits" and document.n_labels == 3:
        scored = FittedMap.from_document(document)(rows)
        assert ((scored.reliability >= 0) & (scored.reliability <= 1)).all()
        assert document.projection.fitted.violations(3) == []
