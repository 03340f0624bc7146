"""A manifest and hashes see every change that matters and nothing else; nothing in a manifest can change unseen."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.protocol.errors import BadInput
from tasks.provenance.declared import declared
from tasks.provenance.hashing import code_fingerprint, reached_files, sha256_of_arrays
from tasks.provenance.manifest import changes, manifest_now, read_manifest
from tests.tiny_project import edit_params, run

NAME = "train@wands"
PATH = Path("data/manifests/wands/train.json")


def test_it_names_every_file_and_parameter_that_the_stage_declares(manifest):
    assert set(manifest.inputs) == {"data/raw/wands/rows.csv"}
    assert set(manifest.code) == {"tasks/train.py", "tasks/trained/model.py"}
    assert set(manifest.outputs) == {"data/base/wands/table.csv", "data/base/wands/deep/model.json"}
    assert set(manifest.parameters) == {"train", "datasets.wands"}
    assert {"python", "torch", "numpy", "polars", "lightgbm", "scikit-learn"} <= set(manifest.versions)


CHANGES = {
    "a bit": lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x0b"),  # of the end of its last line
    "one byte more": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "one byte less": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "another name": lambda path: path.rename(path.with_name("other")),
    "away": Path.unlink,
    "one file more": lambda path: shutil.copy(path, path.with_name(f"more{path.suffix}")),
    "one empty file more": lambda path: path.with_name("__init__.py").touch(),
    "a hidden file more": lambda path: path.with_name(f".hidden{path.suffix}").touch(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_is_seen(manifest, change):
    for place, kind in (("data/raw/wands", "inputs"), ("tasks/trained", "code"), ("data/base/wands", "outputs")):
        change(next(Path(place).glob("*.*")))
        assert getattr(manifest_now(declared(NAME)), kind) != getattr(manifest, kind)


def test_the_same_bytes_through_a_link_are_the_same(manifest):
    for folder in ("data/raw/wands", "data/base/wands"):  # as on another disk
        Path(folder).rename(Path(folder).with_suffix(".elsewhere"))
        Path(folder).symlink_to(Path(folder).with_suffix(".elsewhere").absolute(), target_is_directory=True)
    assert manifest_now(declared(NAME)) == manifest


def test_what_running_leaves_behind_is_no_change(manifest):
    for folder in map(Path, ("tasks/trained", "data/raw/wands", "data/base/wands")):
        for left in ("__pycache__/model.cpython-311.pyc", ".mypy_cache/x.json", ".model.py.77.partial", "model.pyc"):
            (folder / left).parent.mkdir(exist_ok=True)
            (folder / left).write_bytes(b"x")
    Path("tasks/trained/notes.md").write_text("no code")
    assert manifest_now(declared(NAME)) == manifest


def test_the_same_run_writes_the_same_bytes_whenever_and_wherever_it_is(manifest, trained_project):
    before = PATH.read_text()
    for file in Path().rglob("*"):
        os.utime(file, (0, 0))
    assert run(NAME) == manifest
    assert PATH.read_text() == before
    assert not re.search(r"20\d\d-\d\d-\d\d", before)
    assert str(trained_project) not in before


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1, exclude_max=True), st.integers(0, 7))
def test_every_flipped_bit_and_every_cut_is_seen(trained_project, tmp_path_factory, place, bit):
    path, content = tmp_path_factory.getbasetemp() / PATH.name, (trained_project / PATH).read_bytes()
    at = int(place * (len(content) - 1))  # the last byte is a line's end
    for spoilt in (content[:at], content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]):
        path.write_bytes(spoilt)
        with pytest.raises(BadInput, match=r"train\.json"):
            read_manifest(path)


@pytest.mark.parametrize("other", ["[]", "{}", '{"sha256": null}', "null", '{"format": 2}'])
def test_what_is_no_manifest_is_told(tmp_path, other):
    (tmp_path / PATH.name).write_text(other)
    with pytest.raises(BadInput, match=r"train\.json"):
        read_manifest(tmp_path / PATH.name)


OWN = {"numbers": {0: "bad", True: "yes", 1.5: "x"}, "list": [1, [2.5, None]], "text": "wörter ✓", "n": [1e-4, 10**20]}


def test_parameters_are_the_same_after_reading_whatever_their_kind(manifest):
    edit_params(lambda params: params["datasets"]["wands"].update(settings=OWN))
    after = run(NAME)
    assert read_manifest(PATH) == after
    assert changes(after, manifest_now(declared(NAME))) == []
    assert changes(manifest, after) != []


@pytest.fixture
def code(tmp_path):
    """A registry of two members, one of which imports a third file inside a function."""
    files = {
        "pack/__init__.py": "from pack import one, two\n",
        "pack/one.py": "def f():\n    from base import three\n    return three\n",
        "pack/two.py": "X = 1\n",
        "base/__init__.py": "",
        "base/three.py": "import numpy\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_hash_of_arrays_sees_shape_type_and_every_value_and_not_the_order_of_memory():
    array = np.arange(6.0).reshape(2, 3)
    others = array.reshape(3, 2), array.astype(np.float32), array + np.array([[0, 0, 0], [0, 0, 1e-12]])
    assert len({sha256_of_arrays(other) for other in (array, *others)}) == 4
    assert sha256_of_arrays(np.asfortranarray(array)) == sha256_of_arrays(array)


def test_imports_inside_functions_and_packages_are_reached(code):
    reached = {path.as_posix() for path in reached_files(Path("pack/one.py"), code)}
    assert reached == {"pack/one.py", "pack/__init__.py", "pack/two.py", "base/three.py", "base/__init__.py"}


def test_a_member_depends_on_what_it_imports_and_where_that_stands_and_not_on_its_siblings(code):
    member, imported = code / "pack/one.py", code / "base/three.py"
    before = code_fingerprint(Path("pack/one.py"), code)
    (code / "pack/two.py").write_text("X = 2\n")
    assert code_fingerprint(Path("pack/one.py"), code) == before
    member.write_text(imported.read_text() + member.read_text())  # a line that moves to another file
    imported.write_text("")
    moved = code_fingerprint(Path("pack/one.py"), code)
    imported.write_text("import scipy\n")
    assert len({before, moved, code_fingerprint(Path("pack/one.py"), code)}) == 3
