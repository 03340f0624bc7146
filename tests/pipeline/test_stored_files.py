"""Paths of files under `data/`, the errors of damaged files, and text that is read as UTF-8 in every locale."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from relmap.decisions import ProtocolDecisions
from relmap.errors import InputError
from tasks.provenance.dvc_stages import read_dvc_stage, stage_names
from tasks.provenance.hashing import imported_modules
from tasks.records import store
from tasks.settings.params import load_params
from tests.tiny_project import create_project


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_each_data_set_has_its_own_folders_and_files():
    assert {
        "raw files": str(store.raw_folder("wands")),
        "base predictor": str(store.base_folder("wands")),
        "results": str(store.runs_folder("wands")),
        "explored results": str(store.explored_folder("wands")),
        "metrics": str(store.metrics_file("wands")),
        "failed gates": str(store.failed_gates_file("wands")),
        "report": str(store.REPORT),
    } == {
        "raw files": "data/raw/wands",
        "base predictor": "data/base/wands",
        "results": "data/runs/wands",
        "explored results": "data/explored/wands",
        "metrics": "data/metrics/wands.json",
        "failed gates": "data/.state/gates/wands.json",
        "report": "data/report",
    }


REBUILD = "delete .*`dvc repro`"
READERS = {  # reader -> a valid file, its content, bytes that it cannot read, and the format in the message
    store.read_text: ("größe\n".encode(), "größe\n", b"\xff", "text"),
    store.read_csv: ("größe\n1\n".encode(), pl.DataFrame({"größe": [1]}), b"", "text"),
    store.read_json: ('{"a": "größe"}'.encode(), {"a": "größe"}, b'{"a"', "complete JSON"),
}


@pytest.mark.parametrize("read", READERS)
def test_a_missing_or_damaged_file_is_named_with_its_remedy(read: Callable[[Path], Any]):
    path = Path("x")
    valid, content, damaged, expected_format = READERS[read]
    path.write_bytes(valid)
    read_content = read(path)
    assert read_content.equals(content) if isinstance(content, pl.DataFrame) else read_content == content
    path.unlink()
    with pytest.raises(InputError) as error:
        read(path)
    assert re.fullmatch("x .*missing; .*`dvc repro`.*`dvc checkout`", str(error.value))
    if read is not store.read_csv:
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=rf"^x .* {expected_format} \(.+\); {REBUILD}$"):
            read(path)


def test_another_type_than_an_object_is_named():
    Path("x").write_text("[1]")
    with pytest.raises(InputError, match=rf"^x .*list,.*object; {REBUILD}$"):
        store.read_json(Path("x"))


def write_base(logits: list[list[float]]) -> Path:
    """Write test rows with some logits and three labels, and return the path of the logits."""
    n_rows = len(logits)
    decisions = ProtocolDecisions(
        decision=np.zeros(n_rows, dtype=np.int64),
        logits=np.zeros((n_rows, 3)),
        label=np.zeros(n_rows, dtype=np.int64),
        group=np.array(["q"] * n_rows),
    )
    facts = {"labels": ["a", "b", "c"], "split_by": "row", "drawn": [], "source": "hub", "accuracy": {"test": 1}}
    store.write_logits("wands", {"validation": decisions, "test": decisions}, facts)
    path = store.base_folder("wands") / "logits.parquet"
    zeros = [[0.0, 0.0, 0.0]] * n_rows
    pl.read_parquet(path).with_columns(logits=pl.Series([*zeros, *logits])).write_parquet(path)
    return path


ZEROS = [0.0, 0.0, 0.0]
INVALID_LOGITS = {
    "of two rows of other lengths the first": (
        [ZEROS, ZEROS, [1.0, 2.0], [1.0]],
        "row 2 .*2 logits, .*K = 3",
    ),
    "a longer row": ([ZEROS, [1.0, 2.0, 3.0, 4.0]], "row 1 .*4 logits, .*K = 3"),
    "of two rows with infinities the first": (
        [ZEROS, [1.0, 2.0, float("inf")], [float("-inf"), 2.0, 3.0]],
        r"row 1 .*logits \[1\.0, 2\.0, inf\]; .*finite",
    ),
}


@pytest.mark.parametrize(("logits", "message"), INVALID_LOGITS.values(), ids=INVALID_LOGITS)
def test_the_first_row_with_invalid_logits_is_named(logits, message):
    path = write_base(logits)
    with pytest.raises(InputError, match=f"^{path}: test {message}$"):
        store.read_base("wands")


def test_saved_decisions_have_small_integers_and_lists_of_logits():
    path = write_base([ZEROS, ZEROS])
    assert pl.read_parquet(path).schema == {
        "split": pl.String,
        "group": pl.String,
        "label": pl.Int8,
        "decision": pl.Int8,
        "logits": pl.List(pl.Float64),
    }


def test_a_split_without_rows_is_named():
    path = write_base([ZEROS])
    pl.read_parquet(path).filter(split="test").write_parquet(path)
    with pytest.raises(InputError, match=rf"^{path} .*validation .*`split`.*wands.*params\.yaml$"):
        store.read_base("wands")


@pytest.fixture
def ascii_locale(monkeypatch) -> None:
    """Make ASCII the encoding of all text files that are opened without an encoding."""
    monkeypatch.setattr(io, "text_encoding", lambda encoding, _level=2: encoding or "ascii")
    Path("text").write_bytes("größe".encode())
    with pytest.raises(UnicodeDecodeError):
        Path("text").read_text()


@pytest.mark.usefixtures("ascii_locale")
def test_files_of_a_project_are_read_as_utf_8_in_every_locale():
    create_project(Path())
    for path in (Path("params.yaml"), Path("dvc.yaml")):
        path.write_bytes("# größe\n".encode() + path.read_bytes())
    assert load_params().dataset("wands").source == "simulated"
    assert read_dvc_stage("train@wands").outputs == (Path("data/base/wands"),)

    Path("module.py").write_bytes("import größe\n".encode())
    assert imported_modules(Path("module.py")) == {"größe"}

    for read, (valid, content, _, _) in READERS.items():
        if read is not store.read_csv:
            Path("x").write_bytes(valid)
            assert read(Path("x")) == content


def test_a_stage_needs_its_declaration_and_valid_params():
    with pytest.raises(InputError, match=r"^dvc\.yaml .*missing;.*root folder$"):
        read_dvc_stage("report")
    create_project(Path())
    params = Path("params.yaml").read_text()
    Path("params.yaml").write_text(params.replace("lanes:", "lane:"))
    with pytest.raises(InputError, match=r"params\.yaml has 2 mistake\(s\)"):
        read_dvc_stage("report")
    Path("params.yaml").unlink()
    with pytest.raises(InputError, match=r"^params\.yaml .*missing;.*root folder$"):
        stage_names()
