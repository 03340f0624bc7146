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
from tasks.protocol.store import base_folder, read_base, read_json, read_pairs

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
    frame = pl.read_csv("mine.csv").filter(pl.col("s") == "test")
    frame = frame.select(text=pl.format("query: {}\ncandidate: {}", "q", "c"))
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
    assert before.keys() == {"base.json", "logits.parquet", "pairs.parquet", "predictor.json", "predictor.npz"}
    train.main("mine")
    assert {path.name: path.read_bytes() for path in base_folder("mine").iterdir()} == before


@pytest.mark.parametrize("missing", ["train", "validation", "test"])
def test_an_empty_split_is_named_and_nothing_is_written(project, missing):
    project([split for split in ("train", "validation", "test") if split != missing])
    with pytest.raises(BadInput, match=f"no pair is in the split {missing}"):
        train.main("mine")
    assert not base_folder("mine").exists()


def paper(**train_section: object) -> None:
    """Ask for a small twin of WANDS with these base predictors, train them."""
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["datasets"] = {"wands": params["datasets"]["wands"] | {"rows": 1500}}
    params["train"] |= train_section
    Path("params.yaml").write_text(yaml.safe_dump(params))
    download.main("wands")
    train.main("wands")


def logits(place: str) -> np.ndarray:
    return np.array(pl.read_parquet(base_folder("wands") / place)["logits"].to_list())


def test_other_base_predictors_are_trained_to_show_what_a_choice_is_worth(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paper()
    names = ("unweighted", "multinomial", "member_1", "member_2")
    assert {path.stem for path in (base_folder("wands") / "sensitivity").iterdir()} == set(names)
    assert not (base_folder("wands") / "members").exists()
    first = pl.read_parquet(base_folder("wands") / "logits.parquet")
    found = [logits("logits.parquet"), *(logits(f"sensitivity/{name}.parquet") for name in names)]
    for place, one in enumerate(found):
        assert not any((one == other).all() for other in found[:place])
    other = pl.read_parquet(base_folder("wands") / "sensitivity/member_1.parquet")
    assert other.schema == first.schema
    assert other.select("split", "group", "label").equals(first.select("split", "group", "label"))


def test_members_and_runs_are_written_beside_the_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paper(members=2, runs=2, alternatives=["member_1"])
    names = [f"run_{run}_member_{member}" for run in range(2) for member in range(2)]
    assert sorted(path.stem for path in (base_folder("wands") / "members").iterdir()) == names
    assert (logits("logits.parquet") == logits("members/run_0_member_0.parquet")).all()
    assert (logits("sensitivity/member_1.parquet") == logits("members/run_0_member_1.parquet")).all()
    assert not (logits("members/run_1_member_0.parquet") == logits("members/run_0_member_0.parquet")).all()


def test_saved_logits_take_the_place_of_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    arrays = {f"{part}_logits": generator.normal(size=(2, 40, 3)).astype(np.float32) for part in ("val", "test")}
    np.savez(tmp_path / "mine.npz", val_labels=np.arange(40) % 3, test_labels=np.arange(40) % 3, **arrays)
    entry = {"reader": "logits", "source": "files", "path": "mine.npz", "options": {"labels": ["a", "b", "c"]}}
    params = yaml.safe_load((ROOT / "params.yaml").read_text()) | {"datasets": {"mine": entry}}
    Path("params.yaml").write_text(yaml.safe_dump(params))
    download.main("mine")
    train.main("mine")
    base = read_base("mine")
    assert (base.test.logits == arrays["test_logits"][0]).all()
    assert (base.test.decision == decide(arrays["test_logits"][0].astype(np.float64))).all()
    assert {path.name for path in (base_folder("mine") / "members").iterdir()} == {
        "run_0_member_0.parquet",
        "run_0_member_1.parquet",
    }
    assert read_pairs("mine").columns == ["pair", "split", "group", "label", "logits_finite"]
    assert not (base_folder("mine") / "predictor.json").exists()
    entry["options"] = {"labels": ["a", "b"]}
    Path("params.yaml").write_text(yaml.safe_dump(params))
    with pytest.raises(BadInput, match=r"mine\.npz has 3 logits in each row, but options name 2 labels"):
        train.main("mine")
