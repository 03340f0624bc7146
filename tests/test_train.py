"""Training reads the raw files once and leaves fixed decisions, or says what is missing."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from tasks import download, train
from tasks.datasets import DATASETS
from tasks.predictors import load_predictor
from tasks.protocol.decisions import decide
from tasks.protocol.errors import BadInput
from tasks.protocol.splits import SPLITS
from tasks.protocol.store import base_folder, read_base, read_json, read_pairs
from tests.project_copy import OWN_PAIRS, ROOT, write_own_pairs

PAIRS = OWN_PAIRS["options"]["pairs"] | {"split": "split"}
OWN = OWN_PAIRS | {"split": {"by": "row"}, "options": {"labels": ["bad", "good"], "pairs": PAIRS}}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Bring one data set into a project folder of its own and train on it; returns that function."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, entry: dict[str, Any], **train_section: object) -> Path:
        params = yaml.safe_load((ROOT / "params.yaml").read_text())
        params["datasets"] = {name: params["datasets"].get(name, {}) | entry}
        params["train"] |= train_section
        Path("params.yaml").write_text(yaml.safe_dump(params))
        download.main(name)
        train.main(name)
        return base_folder(name)

    return run


def own_pairs(*splits: str) -> dict[str, Any]:
    """Write judged pairs, one in turn of each split; returns their entry in params.yaml."""
    write_own_pairs(Path("mine.csv"))
    frame = pl.read_csv("mine.csv")
    frame.with_columns(split=pl.Series(np.resize(splits, len(frame)))).write_csv("mine.csv")
    return OWN


def test_decisions_are_the_argmax_of_the_saved_predictors_logits_and_what_was_trained_on_is_counted(run):
    folder = run("mine", own_pairs(*SPLITS))
    base = read_base("mine")
    pairs = pl.read_csv("mine.csv")
    frame = pairs.filter(split="test").select(text=pl.format("query: {}\ncandidate: {}", "query", "title"))
    assert (base.test.logits == load_predictor(folder)(frame)).all()
    assert (base.test.decision == decide(base.test.logits)).all()
    assert base.seed0_accuracy == base.test.correct.mean()
    assert base.drawn == ()
    facts = read_json(folder / "base.json")
    assert facts["rows"] == {"train": 300, "validation": 300, "test": 300}
    assert sum(facts["class_counts"]["train"]) == 300
    assert facts["class_counts"]["train"][1] == len(pairs.filter(split="train", grade="good"))
    assert (facts["source"], facts["labels"]) == ("files", ["bad", "good"])


def test_the_same_rows_give_the_same_bytes(run):
    folder = run("mine", own_pairs(*SPLITS))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert before.keys() == {"base.json", "logits.parquet", "pairs.parquet", "predictor.json", "predictor.npz"}
    train.main("mine")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("missing", SPLITS)
def test_an_empty_split_is_named_and_nothing_is_written(run, missing):
    with pytest.raises(BadInput, match=f"no pair is in the split {missing}"):
        run("mine", own_pairs(*(split for split in SPLITS if split != missing)))
    assert not base_folder("mine").exists()


def test_other_base_predictors_are_trained_beside_the_first_for_what_a_choice_is_worth_and_for_members_and_runs(run):
    folder = run("wands", {"rows": 1000}, members=2, runs=2)
    first = pl.read_parquet(folder / "logits.parquet")
    runs = [f"members/run_{run}_member_{member}" for run in range(2) for member in range(2)]
    choices = [f"sensitivity/{name}" for name in ("member_1", "member_2", "multinomial", "unweighted")]
    written = sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.glob("*/*.parquet"))
    assert written == runs + choices
    frames = {place: pl.read_parquet(folder / f"{place}.parquet") for place in written}
    same = {place: {other for other in written if frames[place].equals(frames[other])} - {place} for place in written}
    assert same.pop(runs[1]) == {choices[0]}
    assert same.pop(choices[0]) == {runs[1]}
    assert not any(same.values())  # every other one differs from all
    assert frames[runs[0]].equals(first.select(frames[runs[0]].columns))
    assert load_predictor(folder).header["seed"] == DATASETS["wands"].member_seed  # the first, not the last
    for frame in frames.values():
        assert frame.schema == first.schema
        assert frame.select("split", "group", "label").equals(first.select("split", "group", "label"))


def test_saved_logits_take_the_place_of_training(run):
    generator = np.random.default_rng(0)
    arrays = {f"{part}_logits": generator.normal(size=(2, 40, 3)).astype(np.float32) for part in ("val", "test")}
    np.savez("mine.npz", val_labels=np.arange(40) % 3, test_labels=np.arange(40) % 3, **arrays)
    entry = {"reader": "logits", "source": "files", "path": "mine.npz", "options": {"labels": ["a", "b", "c"]}}
    folder = run("mine", entry)
    base = read_base("mine")
    assert (base.test.logits == arrays["test_logits"][0]).all()
    assert (base.test.decision == decide(arrays["test_logits"][0].astype(np.float64))).all()
    written = {path.name for path in (folder / "members").iterdir()}
    assert written == {"run_0_member_0.parquet", "run_0_member_1.parquet"}
    assert read_pairs("mine").columns == ["pair", "split", "group", "label", "logits_finite"]
    assert not (folder / "predictor.json").exists()
    with pytest.raises(BadInput, match=r"mine\.npz has 3 logits in each row, but options name 2 labels"):
        run("mine", entry | {"options": {"labels": ["a", "b"]}})
