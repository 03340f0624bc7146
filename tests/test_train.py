"""Training reads the raw files once and leaves fixed decisions, or says what is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml

from tasks import download, train
from tasks.predictors import load_predictor
from tasks.protocol.decisions import decide
from tasks.protocol.errors import BadInput
from tasks.protocol.store import base_folder, read_base, read_json

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Write judged pairs whose split stands in a column, and params.yaml for them; returns that function."""
    monkeypatch.chdir(tmp_path)
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["datasets"] = {
        "mine": {
            "reader": "files",
            "source": "files",
            "path": "mine.csv",
            "split": {"by": "row"},
            "options": {
                "labels": ["bad", "good"],
                "pairs": {"path": "mine.csv", "group": "q", "query": "q", "candidate": "c", "label": "y", "split": "s"},
            },
        }
    }
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))

    def write(splits: list[str]) -> None:
        good = np.arange(60) % 3 > 0
        pl.DataFrame(
            {
                "q": [f"lamp {row % 7}" for row in range(60)],
                "c": [f"{'red' if one else 'blue'} lamp {row}" for row, one in enumerate(good)],
                "y": np.where(good, "good", "bad"),
                "s": [splits[row // 3 % len(splits)] for row in range(60)],
            }
        ).write_csv("mine.csv")
        download.main("mine")

    return write


def test_decisions_are_the_argmax_of_the_saved_predictors_logits(project):
    project(["train", "validation", "test"])
    train.main("mine")
    base = read_base("mine")
    frame = pl.read_csv("mine.csv").filter(pl.col("s") == "test").rename({"q": "query", "c": "candidate"})
    assert (base.test.logits == load_predictor(base_folder("mine"))(frame)).all()
    assert (base.test.decision == decide(base.test.logits)).all()
    assert base.seed0_accuracy == base.test.correct.mean()
    assert base.drawn == ()


def test_what_was_trained_on_is_counted(project):
    project(["train", "validation", "test"])
    train.main("mine")
    facts = read_json(base_folder("mine") / "base.json")
    assert facts["rows"] == {"train": 21, "validation": 21, "test": 18}
    assert facts["class_counts"]["train"] == [7, 14]
    assert (facts["source"], facts["labels"]) == ("files", ["bad", "good"])


def test_the_same_rows_give_the_same_bytes(project):
    project(["train", "validation", "test"])
    train.main("mine")
    before = {path.name: path.read_bytes() for path in base_folder("mine").iterdir()}
    train.main("mine")
    assert {path.name: path.read_bytes() for path in base_folder("mine").iterdir()} == before


@pytest.mark.parametrize("missing", ["train", "validation", "test"])
def test_an_empty_split_is_named_and_nothing_is_written(project, missing):
    project([split for split in ("train", "validation", "test") if split != missing])
    with pytest.raises(BadInput, match=f"no pair is in the split {missing}"):
        train.main("mine")
    assert not base_folder("mine").exists()
