"""Files of our own: whole or not at all, and a spoilt one is named with what to do."""

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tasks.protocol import store
from tasks.protocol.errors import BadInput
from tasks.protocol.store import base_folder, read_base, write_json, write_logits, write_whole


@pytest.fixture
def base(tmp_path, monkeypatch, decisions) -> Path:
    """The folder of a written base predictor, in a project folder of its own."""
    monkeypatch.chdir(tmp_path)
    facts = {"labels": ["a", "b", "c"], "split_by": "group", "drawn": [], "source": "simulated"}
    parts = {"validation": decisions.take(slice(600)), "test": decisions.take(slice(500))}
    write_logits("wands", parts, facts | {"accuracy": {"test": 0.5}})
    return base_folder("wands")


def change(**columns: object) -> Callable[[Path], None]:
    """Writes columns of saved logits anew."""
    return lambda path: pl.read_parquet(path).with_columns(**columns).write_parquet(path)


def first_logits(*logits: float) -> Callable[[Path], None]:
    """Writes others in the first row."""
    return change(logits=pl.when(pl.int_range(pl.len()) == 0).then(list(logits)).otherwise("logits"))


def test_what_was_written_is_read_to_the_last_bit(base, decisions):
    read = read_base("wands")
    for name in ("logits", "labels", "decision", "group"):
        assert (getattr(read.validation, name) == getattr(decisions, name)[:600]).all()
    assert len(read.test) == 500
    assert read.labels == ("a", "b", "c")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("file", "spoil", "words"),
    [
        ("logits.parquet", Path.unlink, "is missing; `dvc repro` makes it"),
        ("logits.parquet", cut, "is not a whole parquet file"),
        ("base.json", Path.unlink, "is missing; `dvc repro` makes it"),
        ("base.json", cut, "is not whole JSON"),
        ("base.json", lambda path: path.write_text("[]"), "holds list, not an object"),
        ("logits.parquet", first_logits(0.0, np.nan, 1.0), ": validation row 0 has logits"),
        ("logits.parquet", first_logits(0.0, np.inf, 1.0), ".* every logit must be finite"),
        ("logits.parquet", first_logits(0.0, 1.0), ": validation row 0 has 2 logits, not K = 3"),
        ("logits.parquet", change(split=pl.lit("validation")), "has no test rows"),
    ],
)
def test_a_spoilt_file_is_named_with_what_is_wrong(base, file, spoil, words):
    spoil(base / file)
    with pytest.raises(BadInput, match=f"data/base/wands/{file} ?{words}"):
        read_base("wands")


def test_a_write_that_fails_leaves_nothing_behind(tmp_path):
    def fail(partial: Path) -> None:
        partial.write_text("half")
        raise OSError("disk full")

    (tmp_path / "kept").write_text("old")
    with pytest.raises(OSError, match="disk full"):
        write_whole(tmp_path / "kept", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_text() == "old"


def test_nan_is_null_in_json(tmp_path):
    write_json(tmp_path / "x.json", {"a": float("nan"), "b": [1.0, float("nan")]})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": None, "b": [1.0, None]}
    with pytest.raises(ValueError, match="not JSON compliant"):  # an infinity is no hole
        write_json(tmp_path / "x.json", {"a": float("inf")})


def test_what_a_killed_process_left_beside_a_file_goes_and_what_a_living_one_writes_stays(tmp_path):
    for name in (".x.csv.11.partial", ".x.csv.12.partial", ".y.csv.13.partial", ".x.csv.mine.partial"):
        (tmp_path / name).touch()
    (tmp_path / ".x.csv.14.ranks.partial").mkdir()
    (tmp_path / ".x.csv.14.ranks.partial/by_logit.parquet").touch()
    with (tmp_path / ".x.csv.12.partial").open() as living:
        fcntl.flock(living, fcntl.LOCK_EX)
        write_whole(tmp_path / "x.csv", lambda partial: partial.write_text("whole"))
    found = {path.name for path in tmp_path.iterdir()}
    assert found == {"x.csv", ".x.csv.12.partial", ".y.csv.13.partial", ".x.csv.mine.partial"}


def test_nothing_is_written_over_what_is_no_file_or_what_is_read_under_another_name(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", Path("/dev/null"), tmp_path):
        with pytest.raises(BadInput, match="name a file"):
            store.check_place(place)
    (tmp_path / "read").write_text("rows")
    (tmp_path / "link").symlink_to("read")
    with pytest.raises(BadInput, match="a file that is read here"):
        store.check_place(tmp_path / "link", tmp_path / "read")
