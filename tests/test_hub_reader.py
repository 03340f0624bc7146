"""One's own judged pairs in a repository of the hub, as it lies in the raw folder."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tasks.datasets import dataset_named
from tasks.datasets.base import SCHEMA, Judged
from tasks.protocol.errors import BadInput
from tasks.sources.hub import Repository

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LABELS = ["irrelevant", "partial", "exact"]
OPTIONS = {
    **{"id": "shop/judged", "revision": COMMIT, "labels": LABELS},
    **{"splits": {"train": "drawn", "dev": "validation", "test": "test"}},
    **{"group": "q", "query": "q", "candidate": ["name", "about"], "label": "grade"},
}
ROWS = pl.DataFrame(
    {
        "n": [1, 2, 3],
        "q": ["oak desk", "oak desk", "lampe à gaz"],
        "name": ["Desk", 'Lamp 5" high', "Lamp, gas"],
        "about": ["of oak", None, "bright"],
        "grade": ["exact", "irrelevant", "partial"],
        "rank": [0.5, 0.1, 0.2],
    }
)
PARTS = ("train", "dev", "test")


def content(ending: str, frame: pl.DataFrame = ROWS) -> bytes:
    if ending.endswith(".gz"):
        return gzip.compress(content(ending.removesuffix(".gz"), frame))
    buffer = io.BytesIO()
    {".parquet": frame.write_parquet, ".csv": frame.write_csv, ".jsonl": frame.write_ndjson}[ending](buffer)
    return buffer.getvalue()


def repository(folder: Path, files: dict[str, bytes], card: str = "") -> Path:
    """A raw folder with these files, a card, and our own note of what was downloaded."""
    own = {"README.md": f"---\n{card}---\n# Judged\n".encode(), "source.json": b'{"dataset": "shop", "files": []}'}
    for name, written in {**own, **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(written)
    return folder


def read(folder: Path, **changes: Any) -> Judged:
    return dataset_named("shop", "hub", {**OPTIONS, **changes}).read(folder)


def named_by_splits(ending: str = ".parquet", frame: pl.DataFrame = ROWS) -> dict[str, bytes]:
    return {f"data/{part}-00000-of-00001{ending}": content(ending, frame) for part in PARTS}


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl", ".csv.gz", ".jsonl.gz"])
def test_every_format_gives_the_same_pairs(tmp_path: Path, ending: str):
    found = read(repository(tmp_path, named_by_splits(ending)))
    assert dict(found.pairs.schema) == SCHEMA
    assert found.pairs.rows() == [
        row
        for part, split in zip(PARTS, (None, "validation", "test"), strict=True)
        for row in (
            (f"{part}:1", split, "oak desk", 2, "query: oak desk\ncandidate: Desk of oak"),
            (f"{part}:2", split, "oak desk", 0, 'query: oak desk\ncandidate: Lamp 5" high'),
            (f"{part}:3", split, "lampe à gaz", 1, "query: lampe à gaz\ncandidate: Lamp, gas bright"),
        )
    ]


def test_the_data_set_is_what_its_options_say():
    dataset = dataset_named("shop", "hub", {**OPTIONS, "title": "Our shop"})
    assert (dataset.name, dataset.title, dataset.labels) == ("shop", "Our shop", tuple(LABELS))
    assert dataset.repository == Repository("shop/judged", COMMIT)
    assert not [pattern for pattern in dataset.repository.files if pattern.endswith(".py")]
    chosen = dataset_named("shop", "hub", {**OPTIONS, "files": ["en/*"], "revision": None})
    assert chosen.repository == Repository("shop/judged", None, ("en/*",))


def test_the_card_says_which_files_are_which_configuration(tmp_path: Path):
    card = (
        "configs:\n"
        "- config_name: en\n  data_files:\n  - split: train\n    path: one/*\n"
        "- config_name: fr\n  data_files:\n  - split: train\n    path: two/*\n"
    )
    files = {"one/a.parquet": content(".parquet"), "two/b.parquet": content(".parquet", ROWS[2:])}
    folder = repository(tmp_path, files, card)
    splits = {"train": "drawn"}
    assert len(read(folder, config="en", splits=splits).pairs) == 3
    assert read(folder, config="fr", splits=splits).pairs["group"].to_list() == ["lampe à gaz"]
    with pytest.raises(BadInput, match=r"Config name is missing.*\['en', 'fr'\]"):
        read(folder, splits=splits)
    with pytest.raises(BadInput, match=r"BuilderConfig 'de' not found.*\['en', 'fr'\]"):
        read(folder, config="de", splits=splits)


def test_our_own_note_beside_the_files_is_no_data(tmp_path: Path):
    folder = repository(tmp_path, {"pairs.jsonl": content(".jsonl")})  # names no split: all files are `train`
    assert len(read(folder, splits={"train": "drawn"}).pairs) == 3


def class_card(names: list[str]) -> str:
    columns = {"q": "string", "name": "string", "about": "string"}
    features: list[dict[str, Any]] = [{"name": name, "dtype": kind} for name, kind in columns.items()]
    classes = {"class_label": {"names": {str(code): name for code, name in enumerate(names)}}}
    features.append({"name": "grade", "dtype": classes})
    sizes = [{"name": "train", "num_bytes": 1, "num_examples": 99}]  # of the whole set, not of the files taken
    return f"dataset_info: {json.dumps({'features': features, 'splits': sizes})}\n"


def test_classes_of_the_card_are_names_in_an_order_of_their_own(tmp_path: Path):
    frame = ROWS.select("q", "name", "about", grade=pl.Series([0, 2, 1]))
    folder = repository(tmp_path, named_by_splits(frame=frame), class_card(["exact", "partial", "irrelevant"]))
    assert read(folder, splits={"train": "train"}).pairs["label"].to_list() == [2, 0, 1]


def test_classes_of_the_card_that_are_not_those_of_the_options_are_named(tmp_path: Path):
    frame = ROWS.select("q", "name", "about", grade=pl.Series([0, 2, 1]))
    folder = repository(tmp_path, named_by_splits(frame=frame), class_card(["bad", "good", "best"]))
    with pytest.raises(BadInput, match=r"column 'grade' names its labels bad, good, best, but .* irrelevant, partial"):
        read(folder)


def test_numbers_are_labels_and_ids_too(tmp_path: Path):
    frame = ROWS.with_columns(grade=pl.Series([2, 0, 1]))
    pairs = read(repository(tmp_path, named_by_splits(frame=frame)), pair="n", splits={"test": "test"}).pairs
    assert pairs["label"].to_list() == [2, 0, 1]
    assert pairs["pair"].to_list() == ["1", "2", "3"]


def test_pairs_without_text_go_only_when_asked(tmp_path: Path):
    frame = ROWS.with_columns(name=pl.lit(""))  # the second row has no text then
    folder = repository(tmp_path, named_by_splits(frame=frame))
    with pytest.raises(BadInput, match=r"train, row 2, column 'name, about': found ''; .*drop_empty"):
        read(folder)
    found = read(folder, drop_empty=True)
    assert (len(found.pairs), found.dropped) == (6, {"without text": 3})


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
PAGE = b"<!doctype html><title>Sign in</title>"
BAD_FOLDERS: dict[str, tuple[dict[str, bytes], dict[str, Any], str]] = {  # files, options, what is said
    "a script alone": ({"judged.py": b"raise SystemExit\n"}, {}, r"split train cannot be read"),
    "no data": ({}, {}, r"split train cannot be read: .*doesn't contain any data files"),
    "a pointer": ({"train.parquet": POINTER}, {}, r"train\.parquet is a Git LFS pointer"),
    "a page": ({"train.csv": PAGE}, {}, r"train\.csv is a web page"),
    "an empty file": ({"train.jsonl": b""}, {}, r"train\.jsonl is empty"),
    "a cut file": ({"train.parquet": content(".parquet")[:-9]}, {}, r"train\.parquet is not a whole parquet file"),
    "a cut line": ({"train.jsonl": content(".jsonl")[:-9]}, {}, r"split train cannot be read: .*JSON"),
    "no such split": ({"train.parquet": content(".parquet")}, {}, r"split dev cannot be read: Unknown split .dev."),
    "no such column": (
        named_by_splits(),
        {"label": "stars"},
        r"train has no column 'stars'; it has n, q, name, about, grade, rank",
    ),
    "a number for a text": (named_by_splits(), {"query": "n"}, r"train, column 'n' is Int64, not text"),
    "an unknown label": (named_by_splits(), {"labels": ["exact", "partial"]}, r"train, row 2, .*found 'irrelevant'"),
    "an id twice": (named_by_splits(), {"pair": "n"}, r"the pair id '1' is given more than once"),
    "a null group": (
        named_by_splits(frame=ROWS.with_columns(n=pl.Series([1, None, 3]))),
        {"group": "n"},
        r"train, row 2, column 'n': found None; every row needs one",
    ),
}


@pytest.mark.parametrize("bad", BAD_FOLDERS)
def test_a_bad_folder_is_named(tmp_path: Path, bad: str):
    files, changes, says = BAD_FOLDERS[bad]
    with pytest.raises(BadInput, match=rf"(?s){says}"):
        read(repository(tmp_path, files), **changes)


BAD_OPTIONS = {
    "a branch": ({"revision": "main"}, r"revision: .*40 hexadecimal digits.*`History`.*found 'main'"),
    "a short commit": ({"revision": COMMIT[:7]}, r"40 hexadecimal digits"),
    "an address for an id": ({"id": "https://huggingface.co/datasets/a/b"}, r"id: String should match"),
    "a split of another name": ({"splits": {"dev": "valid"}}, r"splits\.dev: "),
    "no splits": ({"splits": {}}, r"splits: "),
    "labels that are equal": ({"labels": ["a", "a"]}, r"labels must differ"),
    "an unknown name": ({"path": "a.csv"}, r"path: Extra inputs"),
}


@pytest.mark.parametrize("bad", BAD_OPTIONS)
def test_bad_options_are_named(bad: str):
    changes, says = BAD_OPTIONS[bad]
    with pytest.raises(BadInput, match=rf"(?s)options of shop: .*{says}"):
        dataset_named("shop", "hub", {**OPTIONS, **changes})
