"""Files of our own: whole or not at all, and a spoilt one is named with what to do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tasks.protocol import store
from tasks.protocol.errors import BadInput
from tasks.protocol.store import base_folder, read_base, write_json, write_logits, write_whole

FACTS = {
    "labels": ["a", "b", "c"],
    "split_by": "group",
    "drawn": [],
    "source": "simulated",
    "accuracy": {"test": 0.5},
}


@pytest.fixture
def base(tmp_path, monkeypatch, decisions) -> Path:
    """The folder of a written base predictor, in a project folder of its own."""
    monkeypatch.chdir(tmp_path)
    write_logits("wands", {"validation": decisions, "test": decisions.take(np.arange(500))}, FACTS)
    return base_folder("wands")


def change(path: Path, column: str, values: pl.Expr) -> None:
    """Write a column of the saved logits anew."""
    pl.read_parquet(path / "logits.parquet").with_columns(values.alias(column)).write_parquet(path / "logits.parquet")


def test_what_was_written_is_read_to_the_last_bit(base, decisions):
    read = read_base("wands")
    assert (read.validation.logits == decisions.logits).all()
    assert (read.validation.labels == decisions.labels).all()
    assert (read.validation.decision == decisions.decision).all()
    assert (read.validation.group == decisions.group).all()
    assert len(read.test) == 500
    assert read.labels == ("a", "b", "c")


def test_groups_are_permuted_only_where_the_set_is_split_by_group(base):
    assert read_base("wands").validation_groups() is not None
    write_json(base / "base.json", FACTS | {"split_by": "row"})
    assert read_base("wands").validation_groups() is None


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


first = pl.int_range(pl.len()) == 0
SPOILT = {
    "logits that are missing": (lambda base: (base / "logits.parquet").unlink(), "logits.parquet is missing"),
    "logits that are cut off": (lambda base: cut(base / "logits.parquet"), "not a whole parquet file"),
    "facts that are missing": (lambda base: (base / "base.json").unlink(), "base.json is missing"),
    "facts that are cut off": (lambda base: cut(base / "base.json"), "not whole JSON"),
    "facts of another kind": (lambda base: (base / "base.json").write_text("[]"), "not an object"),
    "a logit that is NaN": (
        lambda base: change(base, "logits", pl.when(first).then([0.0, float("nan"), 1.0]).otherwise("logits")),
        "validation row 0 has logits",
    ),
    "a logit that is infinite": (
        lambda base: change(base, "logits", pl.when(first).then([0.0, float("inf"), 1.0]).otherwise("logits")),
        "every logit must be finite",
    ),
    "a row with too few logits": (
        lambda base: change(base, "logits", pl.when(first).then([0.0, 1.0]).otherwise("logits")),
        "has 2 logits, not K = 3",
    ),
    "an empty split": (
        lambda base: change(base, "split", pl.lit("validation")),
        "has no test rows",
    ),
}


@pytest.mark.parametrize(("spoil", "told"), SPOILT.values(), ids=SPOILT)
def test_a_spoilt_file_is_named_with_what_is_wrong(base, spoil, told):
    spoil(base)
    with pytest.raises(BadInput, match="data/base/wands") as error:
        read_base("wands")
    assert told in str(error.value)


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


@pytest.mark.parametrize("read", [store.read_text, store.read_json, store.read_csv, store.read_parquet])
def test_a_file_of_ours_that_is_missing_is_told_with_what_brings_it_back(tmp_path, read):
    with pytest.raises(BadInput, match="headline is missing; `dvc repro` makes it"):
        read(tmp_path / "headline")
