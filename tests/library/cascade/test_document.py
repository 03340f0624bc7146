"""A cascade as a document: its parts fit together, and files of it are read as they were written."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from relmap.cascade import document as cascade_document
from relmap.cascade.document import CascadeDocument, CascadeStep, load_cascade, save_cascade, signal_names
from relmap.errors import InputError
from relmap.io.signals import NumberSignal
from relmap.maps.document import MapDocument, Projection
from relmap.projection.pooled import SignalAdjusted
from tests.cascades import CASCADE_FIELDS
from tests.maps import LABEL_NAMES, make_map, make_variants


def map_after(*earlier_models: str, names: tuple[str, ...] | None = LABEL_NAMES) -> MapDocument:
    """Make a map that reads the decisions of these models before its own."""
    document = make_map(names=names)
    if not earlier_models:
        return document
    signals = []
    for model in earlier_models:
        for name in (f"agrees_with_{model}", f"support_of_{model}"):
            signals.append(NumberSignal(name=name, mean=0.0, deviation=1.0, lowest=-1.0, highest=1.0))
    fitted = SignalAdjusted(make_variants()["mrp_pooled"], np.zeros(len(signals)))
    projection = Projection(name="mrp_pooled", rows=507, rows_by_label=(500, 7, 0), fitted=fitted)
    return document.model_copy(update={"projection": projection, "signals": tuple(signals)})


def make_step(name: str, *earlier_models: str, **fields: object) -> CascadeStep:
    values = {"cost": 1.0, "threshold": 0.8, "map": map_after(*earlier_models)} | fields
    return CascadeStep(name=name, **values)


STEPS = (make_step("small"), make_step("large", "small", cost=10.0, threshold=None))


def make_cascade(**fields: object) -> CascadeDocument:
    values = CASCADE_FIELDS | {"steps": STEPS, "identity_columns": ("query", "passage")}
    return CascadeDocument(**(values | fields))


def write_changed(path: Path, change: Mapping[str, object]) -> Path:
    """Write the file of a cascade with changed fields."""
    path.write_text(json.dumps(make_cascade().model_dump(mode="json") | change))
    return path


# Parts


def test_a_cascade_has_the_labels_of_its_maps():
    assert make_cascade().label_names == LABEL_NAMES
    assert make_cascade(steps=STEPS[:1]).label_names == LABEL_NAMES


def test_labels_have_names_unless_it_is_stated():
    assert not make_cascade().are_numbered
    assert make_cascade(are_numbered=True).are_numbered


def test_a_map_reads_two_signals_of_each_model_before_it():
    assert signal_names([]) == ()
    assert signal_names(["a", "b"]) == ("agrees_with_a", "support_of_a", "agrees_with_b", "support_of_b")


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (STEPS[::-1], "map of large .*models before"),
        ((STEPS[0], make_step("large", "medium")), "map of large .*models before"),
        ((STEPS[0], make_step("large")), "map of large .*models before"),
        ((make_step("a"), make_step("b", "a"), make_step("c", "b", "a")), "map of c .*models before"),
        ((STEPS[0], make_step("small", "small")), "small, small .*different names"),
        ((make_step("a", map=map_after(names=None)),), "no names of labels"),
        ((STEPS[0], make_step("b", map=map_after("small", names=("x", "y", "z")))), "different labels"),
        ((STEPS[0], make_step("b", map=map_after("small", names=LABEL_NAMES[::-1]))), "different labels"),
        ((), "at least 1 item"),
    ],
)
def test_maps_that_do_not_fit_together_are_refused(steps, message):
    with pytest.raises(ValidationError, match=message):
        make_cascade(steps=steps)


def test_five_models_are_a_cascade_and_six_are_none():
    steps = [make_step(name, *"abcdef"[:place]) for place, name in enumerate("abcdef")]
    assert len(make_cascade(steps=tuple(steps[:5])).steps) == 5
    with pytest.raises(ValidationError, match="at most 5 items"):
        make_cascade(steps=tuple(steps))


@pytest.mark.parametrize(
    ("field", "limits", "invalid"),
    [
        ("person_cost", (0, 1e30, None), (-1e-300, 1.1e30, float("inf"), float("nan"))),
        ("budget", (0, 1e30, None), (-1e-300, 1.1e30, float("inf"), float("nan"))),
        ("person_accuracy", (0, 1), (-0.1, 1.1, None)),
        ("target_accuracy", (0, 1, None), (-0.1, 1.1)),
        ("confidence_level", (0, 1), (-0.1, 1.1, None)),
        ("lower_bound", (0, 1), (-0.1, 1.1, None)),
        ("seed", (0, 2**53), (-1, 2**53 + 1, 1.5)),
        ("version", (1,), (0, 2, "1")),
        ("format", ("relmap-cascade",), ("mrp-reliability-map",)),
        ("identity_columns", ((), ("a",)), (None, "a", ("a\n",))),
    ],
)
def test_numbers_of_a_cascade_have_limits(field, limits, invalid):
    for value in limits:
        assert getattr(make_cascade(**{field: value}), field) == value
    for value in invalid:
        with pytest.raises(ValidationError, match=field):
            make_cascade(**{field: value})


@pytest.mark.parametrize(
    ("field", "limits", "invalid"),
    [
        ("name", ("a", "a" * 100), ("", "a" * 101)),
        ("cost", (0, 1e30), (-1e-300, 1.1e30, None)),
        ("threshold", (None, 0, 1, 1 + 1e-9), (-1e-9, 1.0001, 2.0)),
    ],
)
def test_numbers_of_a_step_have_limits(field, limits, invalid):
    values = {"name": "a", "cost": 1.0, "threshold": 0.8, "map": map_after()}
    for value in limits:
        assert getattr(CascadeStep(**(values | {field: value})), field) == value
    for value in invalid:
        with pytest.raises(ValidationError, match=field):
            CascadeStep(**(values | {field: value}))


# Files


def test_a_file_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "cascade.json"
    save_cascade(make_cascade(), path)
    assert load_cascade(path).model_dump_json() == make_cascade().model_dump_json()


def test_a_file_has_one_line_for_each_entry(tmp_path):
    path = tmp_path / "cascade.json"
    save_cascade(make_cascade(), path)
    lines = path.read_text().split("\n")
    assert lines[0] == "{"
    assert lines[1] == ' "format": "relmap-cascade",'
    assert lines[-2:] == ["}", ""]


@pytest.mark.parametrize("text", ["{}", "[]", "null", '"relmap-cascade"', '{"format": "mrp-reliability-map"}'])
def test_files_of_other_content_are_refused(text, tmp_path):
    path = tmp_path / "cascade.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"cascade\.json is not a cascade; .*`relmap cascade fit`"):
        load_cascade(path)


def test_an_incomplete_file_is_refused(tmp_path):
    path = tmp_path / "cascade.json"
    path.write_text("{")
    with pytest.raises(InputError, match=r"cascade\.json is not a complete JSON.*fit the cascade again"):
        load_cascade(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"cascade\.json.*exist.*`relmap cascade fit`"):
        load_cascade(tmp_path / "cascade.json")


def test_a_huge_file_is_refused(tmp_path):
    path = tmp_path / "cascade.json"
    with path.open("wb") as file:
        file.truncate(2**28 + 1)  # no disk space is used
    with pytest.raises(InputError, match=r"cascade\.json has 268,435,457 bytes; a cascade is far smaller"):
        load_cascade(path)


def test_a_file_at_the_limit_of_its_size_is_read(tmp_path, monkeypatch):
    path = write_changed(tmp_path / "cascade.json", {})
    monkeypatch.setattr(cascade_document, "MAX_FILE_BYTES", path.stat().st_size)
    assert load_cascade(path).seed == 1


@pytest.mark.parametrize(
    "change",
    [{"steps": []}, {"person_accuracy": 2}, {"version": 9}, {"lower_bound": "high"}, {"other": 1}, {"seed": None}],
)
def test_a_damaged_file_is_refused_with_the_field(change, tmp_path):
    (field,) = change
    with pytest.raises(InputError, match=rf"cascade\.json is not a valid cascade; .*: {field}: "):
        load_cascade(write_changed(tmp_path / "cascade.json", change))


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        ({"id_column": None, "name_columns": ["query", "passage"]}, ("query", "passage")),
        ({"id_column": None, "name_columns": ["id", "query"]}, ("id",)),
        ({"id_column": "key", "name_columns": ["query"]}, ("key",)),
        ({"id_column": "key", "name_columns": ["id", "query"]}, ("key",)),
        ({"id_column": "key"}, ("key",)),
        ({"id_column": None}, ()),
    ],
)
def test_a_cascade_of_an_earlier_version_is_read(earlier, expected, tmp_path):
    content = make_cascade().model_dump(mode="json")
    del content["identity_columns"], content["are_numbered"]
    (tmp_path / "cascade.json").write_text(json.dumps(content | earlier))
    read = load_cascade(tmp_path / "cascade.json")
    assert read.model_dump_json() == make_cascade(identity_columns=expected).model_dump_json()
