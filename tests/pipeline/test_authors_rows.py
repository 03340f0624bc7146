"""Compare sampled rows, texts and base predictors with those of the authors' release, in the folder REAL_DATA.

The inputs are random words and numbers in the layouts of the repositories. Rows, orders and texts must be identical.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from relmap.projection.rows import split_validation
from relmap.settings import DEFAULTS
from tasks.datasets import DATASETS, amazon_esci, mslr_web10k, sampling, wands
from tasks.datasets.base import Dataset
from tasks.predictors import fit_predictor
from tasks.simulation import write_repository

PREP_FOLDER = Path(os.environ.get("REAL_DATA", "nowhere")) / "authors_prep"
pytestmark = [
    pytest.mark.real_data,
    pytest.mark.skipif(not PREP_FOLDER.is_dir(), reason="REAL_DATA has no authors_prep"),
]
Tables = dict[tuple[str, str], pl.DataFrame]
SPLITS = ("train", "validation", "test")


def read_expected(name: str) -> dict[str, Any]:
    return json.loads((PREP_FOLDER / f"{name}_expected.json").read_text())


def read_tables(name: str) -> Tables:
    """Read the input of a data set as (configuration, split) -> rows."""
    if name == "scidocs":
        return {("default", "test"): pl.read_ndjson(PREP_FOLDER / "scidocs_input.jsonl")}
    json_path = PREP_FOLDER / f"{name}_input.json"
    if json_path.exists():
        tables = json.loads(json_path.read_text())
        return {
            (config, "test"): pl.DataFrame(rows, infer_schema_length=None, strict=False)
            for config, rows in tables.items()
        }
    frame = pl.read_parquet(PREP_FOLDER / f"{name}_input.parquet")
    return {("default", str(split)): part.drop("split") for (split,), part in frame.group_by("split")}


def reduce_sizes(monkeypatch: pytest.MonkeyPatch, name: str, caps: dict[str, int]) -> None:
    """Set the numbers of rows that a data set samples."""
    if name == "amazon_esci":
        monkeypatch.setattr(amazon_esci, "MAX_TRAIN_AND_VALIDATION_ROWS", caps["train"] + caps["validation"])
        monkeypatch.setattr(amazon_esci, "MAX_VALIDATION_ROWS", caps["validation"])
        monkeypatch.setattr(amazon_esci, "MAX_TEST_ROWS", caps["test"])
    elif name == "wands":
        monkeypatch.setattr(wands, "SIZES", {split: caps[split] for split in ("train", "dev", "test")})
    else:
        monkeypatch.setattr(mslr_web10k, "SIZES", {split: caps[split] for split in SPLITS})
        monkeypatch.setattr(mslr_web10k, "N_FEATURES", 6)


def authors_ids(name: str, pairs: pl.DataFrame) -> list[Any]:
    """Return the identifiers of rows as the authors' expected rows name them."""
    if name in ("amazon_esci", "wands"):
        return [int(pair.split(":")[1]) - 1 for pair in pairs["pair"]]
    if name == "mslr_web10k":
        return pairs["features"].arr.get(0).cast(pl.Int64).to_list()
    if name == "scidocs":
        ids = []
        for pair in pairs["pair"]:
            _, row, side, position = pair.split(":")
            ids.append(f"{int(row) - 1}:{side}:{position}")
        return ids
    return pairs["pair"].to_list()


def split_ids(name: str, pairs: pl.DataFrame) -> dict[str, list[Any]]:
    return {split: authors_ids(name, pairs.filter(pl.col("split") == split)) for split in SPLITS}


NAMES = ("amazon_esci", "wands", "mslr_web10k", "scidocs", "esci_rerank_us", "alloprof_rerank")


def read_run(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, run: int) -> pl.DataFrame:
    expected = read_expected(name)
    if "caps" in expected:
        reduce_sizes(monkeypatch, name, expected["caps"])
    write_repository(folder, read_tables(name))
    return reader(DATASETS[name])(folder, run).pairs


def reader(dataset: Dataset):
    assert dataset.read_run is not None
    return dataset.read_run


def expected_runs(name: str) -> dict[str, Any]:
    expected = read_expected(name)
    if name == "amazon_esci":
        return {"0": {**expected["rows"], "train_labels": expected["labels_train"]}}
    return expected["runs"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("run", [0, 1])
def test_rows_labels_and_their_order_are_those_of_the_release(name, run, tmp_path, monkeypatch):
    runs = expected_runs(name)
    if str(run) not in runs:
        pytest.skip("the release makes one run of this data set")
    pairs = read_run(monkeypatch, tmp_path, name, run)
    expected = runs[str(run)]
    assert split_ids(name, pairs) == {split: expected[split] for split in SPLITS}
    for split in SPLITS:
        if f"{split}_labels" in expected:
            labels = pairs.filter(pl.col("split") == split)["label"].to_list()
            assert labels == expected[f"{split}_labels"]


def test_a_short_repository_of_amazon_keeps_its_validation_rows(tmp_path, monkeypatch):
    expected = read_expected("amazon_esci")["short_repository"]
    reduce_sizes(monkeypatch, "amazon_esci", expected["caps"])
    write_repository(tmp_path, read_tables("amazon_esci"))
    pairs = DATASETS["amazon_esci"].read(tmp_path).pairs
    assert split_ids("amazon_esci", pairs) == expected["rows"]


def test_all_documents_of_mslr_are_in_random_order_of_their_queries_if_there_are_few(tmp_path, monkeypatch):
    expected = read_expected("mslr_web10k")
    reduce_sizes(monkeypatch, "mslr_web10k", expected["caps"] | {"test": 100_000})
    write_repository(tmp_path, read_tables("mslr_web10k"))
    pairs = DATASETS["mslr_web10k"].read(tmp_path).pairs
    assert split_ids("mslr_web10k", pairs)["test"] == expected["test_when_cap_exceeds_repository"]
    assert np.isfinite(pairs["features"].to_numpy()).all()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "mslr_web10k"])
def test_texts_are_those_of_the_release(name, tmp_path, monkeypatch):
    expected = read_expected(name)
    if "caps" in expected:
        everything = dict.fromkeys(expected["caps"], 10_000) | {"validation": 1}
        reduce_sizes(monkeypatch, name, everything)
    write_repository(tmp_path, read_tables(name))
    pairs = DATASETS[name].read(tmp_path).pairs
    texts = expected.get("texts_of_train_file_rows", expected.get("texts_of_edge_rows"))
    released = pairs
    if "texts_of_train_file_rows" in expected:
        released = pairs.filter(pl.col("pair").str.starts_with("train:"))
    row_names = [str(name) for name in authors_ids(name, released)]
    text_of_row = dict(zip(row_names, released["text"], strict=True))
    assert {row_name: text_of_row[row_name] for row_name in texts} == texts
    if "first_train_texts" in expected:
        assert pairs["text"][: len(expected["first_train_texts"])].to_list() == expected["first_train_texts"]


def test_validation_rows_are_split_into_the_parts_of_the_release():
    expected = read_expected("protocol")
    for n_rows, sizes in expected["sizes_by_n"].items():
        parts = split_validation(int(n_rows), 1, DEFAULTS.protocol.model_copy(update={"projection_cap": 10**9}))
        assert [len(part) for part in parts] == sizes
    for name, rows in expected["rows"].items():
        seed, cap = (int(number) for number in re.findall(r"(?:seed|cap)(\d+)", name))
        parts = split_validation(47, seed, DEFAULTS.protocol.model_copy(update={"projection_cap": cap}))
        assert [part.tolist() for part in parts] == rows


def test_queries_are_split_into_the_sizes_of_the_release():
    for n_queries, sizes in read_expected("scidocs")["split_sizes_by_n_queries"].items():
        parts = sampling.split_queries(pl.Series(range(int(n_queries))), seed=3)
        assert [len(part) for part in parts.values()] == sizes


PREDICTORS = {  # data set, predictor, class weights, seed, split, options -> key of the expected logits
    "esci_validation_logits_seed3001": ("amazon_esci", "linear", "balanced", 3001, "validation", {}),
    "esci_validation_logits_seed3002": ("amazon_esci", "linear", "balanced", 3002, "validation", {}),
    "alloprof_validation_logits_seed10101": (
        "alloprof_rerank",
        "linear",
        "balanced",
        10101,
        "validation",
        {"passes": 60},
    ),
    "mslr_test_logits_seed7101": ("mslr_web10k", "linear", "balanced", 7101, "test", {}),
    "lightgbm_unweighted_test_logits_seed9101": ("mslr_web10k", "boosted", "none", 9101, "test", {}),
    "lightgbm_balanced_test_logits_seed9101": ("mslr_web10k", "boosted", "balanced", 9101, "test", {}),
}


@pytest.mark.parametrize("key", PREDICTORS)
def test_logits_of_base_predictors_are_those_of_the_release(key, tmp_path, monkeypatch):
    """Linear predictors differ by rounding of one float32 at most; LightGBM sums gradients in another order."""
    name, predictor, class_weight, seed, split, settings = PREDICTORS[key]
    pairs = read_run(monkeypatch, tmp_path, name, run=0)
    parts = {part: pairs.filter(pl.col("split") == part) for part in SPLITS}
    fitted = fit_predictor(
        predictor,
        parts["train"],
        parts["validation"],
        n_labels=len(DATASETS[name].labels),
        class_weight=class_weight,
        seed=seed,
        settings=settings,
    )
    expected = np.load(PREP_FOLDER / "predictors_expected.npz")[key]
    np.testing.assert_allclose(fitted(parts[split]), expected, rtol=1e-5, atol=1e-5)
