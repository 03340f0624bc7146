"""One's own judged pairs: tables of texts and svmlight features."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tasks.datasets import dataset_named
from tasks.datasets.base import SCHEMA
from tasks.protocol.errors import BadInput

ROWS = [
    {"n": 1, "q": "oak desk", "name": "Desk", "about": "of oak", "grade": "exact", "part": "train"},
    {"n": 2, "q": "oak desk", "name": 'Lamp 5" high', "about": None, "grade": "irrelevant", "part": "train"},
    {"n": 3, "q": "lampe à gaz", "name": "Lamp, gas", "about": "bright\tone", "grade": "partial", "part": "dev"},
    {"n": 7, "q": "red rug", "name": "Rug", "about": "red", "grade": "exact", "part": "test"},
]
LABELS = ["irrelevant", "partial", "exact"]
COLUMNS = {"group": "q", "query": "q", "candidate": ["name", "about"], "label": "grade"}


def bytes_of(name: str, rows: list[dict[str, Any]]) -> bytes:
    """`rows` in the format that `name` ends in."""
    if name.endswith(".gz"):
        return gzip.compress(bytes_of(name.removesuffix(".gz"), rows))
    if name.endswith((".jsonl", ".ndjson")):
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    frame, buffer = pl.DataFrame(rows), io.BytesIO()
    if name.endswith(".parquet"):
        frame.write_parquet(buffer)
    else:
        frame.write_csv(buffer, separator="\t" if name.endswith(".tsv") else ",")
    return buffer.getvalue()


def read(folder: Path, options: dict[str, Any]) -> pl.DataFrame:
    return dataset_named("mine", "files", options).read(folder).pairs


def pairs(path: Any, **changes: Any) -> dict[str, Any]:
    """Options for tables with the columns of ROWS; a change to None takes the entry away."""
    entries = {"path": path, **COLUMNS, **changes}
    return {"labels": LABELS, "pairs": {key: value for key, value in entries.items() if value is not None}}


@pytest.mark.parametrize(
    "name", ["a.csv", "a.tsv", "a.jsonl", "a.ndjson", "a.parquet", "a.csv.gz", "a.tsv.gz", "a.jsonl.gz", "a.parquet.gz"]
)
def test_every_format_gives_the_same_pairs(tmp_path: Path, name: str):
    (tmp_path / name).write_bytes(bytes_of(name, ROWS))
    frame = read(tmp_path, pairs(f"somewhere/else/{name}", pair="n", split="part", splits={"dev": "validation"}))
    assert dict(frame.schema) == SCHEMA
    assert frame.rows() == [
        ("1", "train", "oak desk", 2, "query: oak desk\ncandidate: Desk of oak"),
        ("2", "train", "oak desk", 0, 'query: oak desk\ncandidate: Lamp 5" high'),
        ("3", "validation", "lampe à gaz", 1, "query: lampe à gaz\ncandidate: Lamp, gas bright\tone"),
        ("7", "test", "red rug", 2, "query: red rug\ncandidate: Rug red"),
    ]


def test_the_data_set_is_what_its_options_say():
    options = pairs("a.csv") | {"title": "Our shop", "licence": "ours"}
    dataset = dataset_named("shop", "files", options)
    assert (dataset.name, dataset.title, dataset.licence) == ("shop", "Our shop", "ours")
    assert (dataset.labels, dataset.repository) == (tuple(LABELS), None)
    assert dataset_named("shop", "files", options).files == dataset.files == ("a.csv",)
    with pytest.raises(BadInput, match="no reader 'shop'"):
        dataset_named("shop", "shop", options)


def test_paths_are_all_files_that_the_options_name():
    def paths(options: dict[str, Any]) -> list[str]:
        return list(dataset_named("mine", "files", options).files)

    assert paths(pairs({"drawn": ["x/a.csv", "b.csv"], "test": "c.csv"})) == ["x/a.csv", "b.csv", "c.csv"]
    looked_up = {"path": "d.jsonl", "id": "id", "text": "text"}
    assert paths(pairs("a.csv", query="q", queries=looked_up)) == ["a.csv", "d.jsonl"]
    assert paths({"labels": [0, 1], "features": {"path": "a.txt", "width": 3}}) == ["a.txt"]


@pytest.mark.parametrize("values", [["exact", "irrelevant"], [2, 0], [2.0, 0.0], ["2", "0"]])
def test_labels_are_names_or_their_numbers(tmp_path: Path, values: list[Any]):
    rows = [{**row, "grade": value} for row, value in zip(ROWS, values, strict=False)]
    (tmp_path / "a.parquet").write_bytes(bytes_of("a.parquet", rows))
    assert read(tmp_path, pairs("a.parquet"))["label"].to_list() == [2, 0]


@pytest.mark.parametrize(("later", "codes"), [([3, 1], [0, 1, 2, 0]), ([0, 2], [1, 2, 0, 2])])
def test_numbers_are_names_or_codes_in_all_files_alike(tmp_path: Path, later: list[int], codes: list[int]):
    """Labels named 1 to 3; the first file alone would do for both."""
    for name, grades in (("a.jsonl", [1, 2]), ("b.jsonl", later)):
        rows = [{**row, "grade": grade} for row, grade in zip(ROWS, grades, strict=False)]
        (tmp_path / name).write_bytes(bytes_of(name, rows))
    frame = read(tmp_path, pairs(["a.jsonl", "b.jsonl"]) | {"labels": [1, 2, 3]})
    assert frame["label"].to_list() == codes
    assert frame["pair"].to_list() == ["a.jsonl:1", "a.jsonl:2", "b.jsonl:1", "b.jsonl:2"]


def test_files_can_be_splits_and_some_rows_wait_to_be_drawn(tmp_path: Path):
    for name in ("a.csv", "b.csv", "c.csv"):
        (tmp_path / name).write_bytes(bytes_of(name, ROWS[:2]))
    frame = read(tmp_path, pairs({"drawn": ["a.csv", "b.csv"], "test": "c.csv"}))
    assert frame["split"].to_list() == [None] * 4 + ["test"] * 2


def test_queries_and_candidates_are_looked_up_by_id(tmp_path: Path):
    judged = [
        {"qid": 4, "doc": "d-2", "label": 0, "hint": "random"},
        {"qid": 5, "doc": "d-1", "label": 1, "hint": "judged"},
        {"qid": 4, "doc": "d-1", "label": 1, "hint": "judged"},
    ]
    queries = [{"_id": 4, "text": "of wings"}, {"_id": 5, "text": "of heat"}, {"_id": 6, "text": "unused"}]
    documents = [{"id": "d-1", "title": "Wings", "text": ""}, {"id": "d-2", "title": None, "text": "Warmth."}]
    for name, rows in (("p.tsv.gz", judged), ("q.csv", queries), ("d.jsonl.gz", documents)):
        (tmp_path / name).write_bytes(bytes_of(name, rows))
    options = {
        "labels": ["no", "yes"],
        "pairs": {
            **{"path": "p.tsv.gz", "group": "qid", "query": "qid", "candidate": "doc", "label": "label"},
            "queries": {"path": "q.csv", "id": "_id", "text": "text"},
            "candidates": {"path": "d.jsonl.gz", "id": "id", "text": ["title", "text"]},
        },
    }
    frame = read(tmp_path, options)
    asked = zip(["of wings", "of heat", "of wings"], ["Warmth.", "Wings", "Wings"], strict=True)
    assert frame["text"].to_list() == [f"query: {query}\ncandidate: {found}" for query, found in asked]
    assert frame["group"].to_list() == ["4", "5", "4"]
    assert frame["label"].to_list() == [0, 1, 1]


def test_pairs_without_text_go_only_when_asked(tmp_path: Path):
    (tmp_path / "a.jsonl").write_bytes(bytes_of("a.jsonl", [*ROWS, {**ROWS[0], "name": " ", "about": None}]))
    with pytest.raises(BadInput, match=r"a\.jsonl, row 5, column 'name, about': found ''; .*drop_empty"):
        read(tmp_path, pairs("a.jsonl"))
    assert len(read(tmp_path, pairs("a.jsonl", drop_empty=True))) == len(ROWS)


@pytest.mark.parametrize("name", ["a.txt", "a.svmlight.gz"])
def test_features_keep_groups_that_are_no_integers(tmp_path: Path, name: str):
    text = b"0 qid:test_0 1:0.5 3:2\n2 qid:test_0 2:-1\n1 qid:b-1 1:1 2:1 3:1\n"
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    frame = read(tmp_path, {"labels": ["a", "b", "c"], "features": {"path": {"train": name}, "width": 3}})
    assert frame["pair"].to_list() == [f"{name}:1", f"{name}:2", f"{name}:3"]
    assert frame["group"].to_list() == ["test_0", "test_0", "b-1"]
    assert frame["split"].to_list() == ["train"] * 3
    assert frame["label"].to_list() == [0, 2, 1]
    np.testing.assert_array_equal(frame["features"].to_numpy(), [[0.5, 0, 2], [0, -1, 0], [1, 1, 1]])


def test_labels_of_minus_one_and_one_are_names(tmp_path: Path):
    (tmp_path / "a.txt").write_text("-1 qid:1 1:1\n+1.0 qid:1 1:2\n1 qid:1 1:3\n")
    frame = read(tmp_path, {"labels": [-1, 1], "features": {"path": "a.txt", "width": 1}})
    assert frame["label"].to_list() == [0, 1, 1]


# Bad input -------------------------------------------------------------------------------------------------------


def changed(row: int, **values: Any) -> list[dict[str, Any]]:
    return [{**one, **values} if place == row else one for place, one in enumerate(ROWS, start=1)]


BAD_FILES: dict[str, tuple[str, bytes, dict[str, Any], str]] = {  # file, its bytes, options, what is said
    "an unknown label": (
        "a.csv",
        bytes_of("a.csv", changed(3, grade="so so")),
        {},
        r"row 3, column 'grade': found 'so so'",
    ),
    "a null label": ("a.csv", bytes_of("a.csv", changed(2, grade=None)), {}, r"row 2, column 'grade': found None"),
    "a null group": ("a.jsonl", bytes_of("a.jsonl", changed(2, q=None)), {}, r"row 2, column 'q': found None"),
    "a null text": ("a.csv", bytes_of("a.csv", changed(1, name=None, about=None)), {}, r"row 1, column 'name, about'"),
    "a missing column": (
        "a.csv",
        bytes_of("a.csv", ROWS),
        {"label": "rating"},
        r"no column 'rating'; it has n, q, name",
    ),
    "numbers for a text": ("a.jsonl", bytes_of("a.jsonl", ROWS), {"query": "n"}, r"column 'n' is Int64, not text"),
    "a list for a label": (
        "a.jsonl",
        b'{"q": "x", "name": "y", "about": "", "grade": [1]}\n',
        {},
        r"column 'grade' is List",
    ),
    "an unknown split": ("a.csv", bytes_of("a.csv", ROWS), {"split": "part"}, r"row 3, column 'part': found 'dev'"),
    "a repeated id": (
        "a.csv",
        bytes_of("a.csv", changed(4, n=2)),
        {"pair": "n"},
        r"the pair id '2' is given more than once",
    ),
    "a null id": ("a.csv", bytes_of("a.csv", changed(4, n=None)), {"pair": "n"}, r"row 4, column 'n': found None"),
    "a cut gzip file": ("a.csv.gz", bytes_of("a.csv.gz", ROWS)[:-9], {}, r"a\.csv\.gz is a cut or corrupt gzip"),
    "a cut parquet file": ("a.parquet", bytes_of("a.parquet", ROWS)[:-9], {}, r"a\.parquet is not a whole parquet"),
    "a cut JSON line": ("a.jsonl", bytes_of("a.jsonl", ROWS)[:-9], {}, r"a\.jsonl, line 4 is not one JSON object"),
    "a JSON array": ("a.jsonl", json.dumps(ROWS).encode(), {}, r"a\.jsonl, line 1 is not one JSON object"),
    "an open quote": ("a.csv", b'q,name,about,grade\nx,"y,z,exact\n', {}, r"a\.csv is not a whole table"),
    "a header alone": ("a.csv", b"q,name,about,grade\n", {}, r"a\.csv holds no row"),
    "an empty file": ("a.csv", b"", {}, r"a\.csv is empty"),
    "a pointer": (
        "a.csv",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        {},
        r"Git LFS pointer",
    ),
    "a page": ("a.jsonl", b"\n<html><title>Sign in</title></html>", {}, r"a\.jsonl is a web page"),
    "no text at all": ("a.csv", b"q,name,about,grade\n\xff\xfe,y,z,exact\n", {}, r"a\.csv is not a whole table"),
}


@pytest.mark.parametrize("bad", BAD_FILES)
def test_a_bad_file_is_named(tmp_path: Path, bad: str):
    name, content, changes, says = BAD_FILES[bad]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=says):
        read(tmp_path, pairs(name, **changes))


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(BadInput, match=r"a\.csv is missing"):
        read(tmp_path, pairs("a.csv"))


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"id": "x", "text": "of x"}], r"row 2, column 'q': found 'y'; no row of the table"),
        ([{"id": "x", "text": "of x"}, {"id": "x", "text": "of y"}], r"q\.csv, row 1, column 'id': found 'x'"),
        ([{"id": "x", "text": "of x"}, {"id": "y", "text": None}], r"row 2, column 'q': found ''"),
    ],
)
def test_a_bad_table_of_queries_is_named(tmp_path: Path, rows: list[dict[str, Any]], says: str):
    (tmp_path / "q.csv").write_bytes(bytes_of("q.csv", rows))
    (tmp_path / "a.csv").write_bytes(bytes_of("a.csv", [{**row, "q": q} for row, q in zip(ROWS, "xy", strict=False)]))
    with pytest.raises(BadInput, match=says):
        read(tmp_path, pairs("a.csv", queries={"path": "q.csv", "id": "id", "text": "text"}))


FEATURES = {"path": "a.txt", "width": 2}
BAD_LINES = {
    "a NaN": ("0 qid:1 1:nan 2:1", r"'feature': found '1:nan'; its value must be a finite number"),
    "an infinity": ("0 qid:1 1:1 2:inf", r"'feature': found '2:inf'; its value"),
    "a feature too many": ("0 qid:1 3:1", r"'feature': found '3:1'; .*1\.\.2"),
    "a feature counted from 0": ("0 qid:1 0:1", r"'feature': found '0:1'; .*1\.\.2"),
    "a number alone": ("0 qid:1 4 2:1", r"'feature': found '4'; .*1\.\.2"),
    "a word alone": ("0 qid:1 1:1 two", r"'feature': found 'two'; .*<place>:<number>"),
    "another word for the group": ("0 query:1 1:1 2:1", r"'group': found 'query:1'; there must be `qid:<group>`"),
    "no group": ("0 1:1 2:1", r"'group': found '1:1'; there must be `qid:<group>`"),
    "a label alone": ("0", r"'group': found None; there must be `qid:<group>`"),
    "an unknown label": ("3 qid:1 1:1 2:1", r"'label': found '3'; it must be one of"),
    "a feature twice": ("0 qid:1 2:1 2:1", r"'feature': found '2:1' .*; this feature is given more than once"),
}


@pytest.mark.parametrize("bad", BAD_LINES)
def test_a_bad_line_of_features_is_named(tmp_path: Path, bad: str):
    line, says = BAD_LINES[bad]
    (tmp_path / "a.txt").write_text(f"0 qid:1 1:0.5 2:1 # first\n\n{line}\n1 qid:2 1:3 2:4\n")
    with pytest.raises(BadInput, match=rf"a\.txt, row 3, column {says}"):
        read(tmp_path, {"labels": ["no", "yes"], "features": FEATURES})


BAD_OPTIONS: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "an unknown name": (lambda: pairs("a.csv", groups="q"), r"pairs\.groups: Extra inputs are not permitted"),
    "a missing name": (lambda: pairs("a.csv", label=None), r"pairs\.label: Field required"),
    "one label": (lambda: pairs("a.csv") | {"labels": ["yes"]}, r"labels: .*at least 2"),
    "labels that are equal": (lambda: pairs("a.csv") | {"labels": ["a", "a"]}, "labels must differ"),
    "texts and features": (lambda: pairs("a.csv") | {"features": FEATURES}, "give either"),
    "nothing to read": (lambda: {"labels": LABELS}, "give either"),
    "an unknown format": (lambda: pairs("a.xlsx"), r"'a\.xlsx' ends in none of"),
    "one base name twice": (lambda: pairs(["x/a.csv", "y/a.csv"]), r"a\.csv is named twice"),
    "a split of another name": (lambda: pairs("a.csv", split="part", splits={"dev": "valid"}), r"splits\.dev"),
    "splits without a column": (lambda: pairs("a.csv", splits={"dev": "validation"}), "none is named"),
    "two ways to split": (lambda: pairs({"train": "a.csv"}, split="part"), "not both"),
    "two columns of ids": (
        lambda: pairs("a.csv", candidates={"path": "d.csv", "id": "id", "text": "text"}),
        "`candidate` must name one column",
    ),
    "no width": (lambda: {"labels": LABELS, "features": {"path": "a.txt"}}, r"features\.width: Field required"),
}


@pytest.mark.parametrize("bad", BAD_OPTIONS)
def test_bad_options_are_named(bad: str):
    options, says = BAD_OPTIONS[bad]
    with pytest.raises(BadInput, match=rf"(?s)options of shop: .*{says}"):
        dataset_named("shop", "files", options())


# Real rows, where they are at hand -------------------------------------------------------------------------------

HOME_DEPOT = {"path": "data.jsonl.gz", "pair": "id", "group": "query", "query": "query", "candidate": "title"}
MQ2008 = [f"{part}.svmlight.gz" for part in ("train", "vali", "test")]
REAL: dict[str, tuple[str, dict[str, Any], int, list[int]]] = {  # folder, options, groups, rows of each label
    "home depot, three grades": (
        "home_depot",
        {"labels": LABELS, "pairs": {**HOME_DEPOT, "label": "label3"}},
        11_795,
        [5_120, 34_590, 34_357],
    ),
    "home depot, five grades": (
        "home_depot",
        {"labels": ["a", "b", "c", "d", "e"], "pairs": {**HOME_DEPOT, "label": "label5"}},
        11_795,
        [5_115, 6_794, 11_730, 31_303, 19_125],
    ),
    "mq2008": (
        "mq2008",
        {"labels": [0, 1, 2], "features": {"path": MQ2008, "width": 46}},
        784,
        [12_279, 2_001, 931],
    ),
    "science": (
        "science",
        {
            "labels": ["non-relevant", "relevant"],
            "pairs": {
                **{"path": "pairs.tsv.gz", "group": "qid", "query": "qid", "candidate": "doc_id", "label": "label"},
                "queries": {"path": "queries.jsonl.gz", "id": "qid", "text": "query"},
                "candidates": {"path": "docs.jsonl.gz", "id": "doc_id", "text": ["title", "doc"]},
                "drop_empty": True,  # nine pairs with two documents that have no text
            },
        },
        353,
        [22_305, 5_521],
    ),
    "wikiqa": (
        "wikiqa",
        {
            "labels": ["non-relevant", "relevant"],
            "pairs": {
                **{"path": "data.jsonl.gz", "group": "qid", "query": "query", "candidate": "doc", "label": "label"},
                **{"split": "split", "splits": {"dev": "validation"}},
            },
        },
        3_047,
        [27_785, 1_473],
    ),
}


@pytest.mark.real_data
@pytest.mark.skipif("REAL_DATA" not in os.environ, reason="REAL_DATA names no folder")
@pytest.mark.parametrize("name", REAL)
def test_real_sets_are_read_whole(name: str):
    folder, options, groups, counts = REAL[name]
    frame = read(Path(os.environ["REAL_DATA"]) / folder, options)
    assert frame["label"].value_counts().sort("label")["count"].to_list() == counts
    assert frame["group"].n_unique() == groups
    assert frame["pair"].is_unique().all()
    if name == "wikiqa":
        assert frame["split"].value_counts().sort("split")["count"].to_list() == [6_165, 20_360, 2_733]
