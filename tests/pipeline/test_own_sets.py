"""A user's own data sets: tables of texts, svmlight features, repositories of the hub and saved logits."""

import gzip
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from relmap.errors import InputError
from tasks.datasets import find_dataset, find_declared_dataset
from tasks.datasets.base import SCHEMA, LabelledPairs
from tasks.datasets.files import check_columns
from tasks.datasets.logits import MAX_LABELS, read_saved_logits
from tasks.datasets.own import PairTables
from tasks.settings.dataset_params import DatasetParams
from tasks.sources.hub import Repository

ROWS = [
    {"n": 1, "q": "oak desk", "name": "Desk", "about": "of oak", "grade": "exact", "part": "train"},
    {"n": 2, "q": "oak desk", "name": 'Lamp 5" high', "about": None, "grade": "irrelevant", "part": "train"},
    {"n": 3, "q": "lampe à gaz", "name": "Lamp, gas", "about": "bright\tone", "grade": "partial", "part": "dev"},
    {"n": 7, "q": "red rug", "name": "Rug", "about": "red", "grade": "exact", "part": "test"},
]
LABELS = ["irrelevant", "partial", "exact"]
LOOKUP = {"path": "q.csv", "id": "id", "text": "text"}
COLUMNS = {"group": "q", "query": "q", "candidate": ["name", "about"], "label": "grade"}
HEADER = b"q,name,about,grade\n"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
SPLITS = {"train": "drawn", "dev": "validation", "test": "test"}
Content = list[dict[str, Any]] | bytes


def encode_rows(name: str, rows: list[dict[str, Any]]) -> bytes:
    """Return rows in the format of a file name."""
    if name.endswith(".gz"):
        return gzip.compress(encode_rows(name.removesuffix(".gz"), rows))
    if name.endswith(".json"):
        return json.dumps(rows).encode()
    if name.endswith((".jsonl", ".ndjson")):
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    frame = pl.DataFrame(rows)
    buffer = io.BytesIO()
    if name.endswith(".parquet"):
        frame.write_parquet(buffer)
    else:
        frame.write_csv(buffer, separator="\t" if name.endswith(".tsv") else ",")
    return buffer.getvalue()


def write_files(folder: Path, files: dict[str, Content]) -> Path:
    """Write files with bytes or rows, and return the folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else encode_rows(name, content))
    return folder


def read_pairs(folder: Path, options: dict[str, Any]) -> pl.DataFrame:
    return find_dataset("mine", "files", options).read(folder).pairs


def make_table_options(path: Any, **changes: Any) -> dict[str, Any]:
    """Return options for tables with the columns of ROWS; a change to None removes the entry."""
    entries = {"path": path, **COLUMNS, **changes}
    return {"labels": LABELS, "pairs": {key: value for key, value in entries.items() if value is not None}}


def make_hub_options(**changes: Any) -> dict[str, Any]:
    return {"id": "shop/labelled", "revision": COMMIT, "labels": LABELS, "splits": SPLITS, **COLUMNS, **changes}


def replace_labels(*grades: Any) -> list[dict[str, Any]]:
    """Return the first rows of ROWS with other labels."""
    return [row | {"grade": grade} for row, grade in zip(ROWS, grades, strict=False)]


@pytest.mark.parametrize(
    "name",
    [
        "a.csv",
        "a.tsv",
        "a.jsonl",
        "a.ndjson",
        "a.parquet",
        "a.csv.gz",
        "a.tsv.gz",
        "a.jsonl.gz",
        "a.parquet.gz",
        "a.json",
    ],
)
def test_every_format_gives_the_same_pairs(tmp_path, name):
    options = make_table_options(f"somewhere/else/{name}", pair="n", split="part", splits={"dev": "validation"})
    frame = read_pairs(write_files(tmp_path, {name: ROWS}), options)
    assert dict(frame.schema) == SCHEMA
    assert frame.rows() == [
        ("1", "train", "oak desk", 2, "query: oak desk\ncandidate: Desk of oak"),
        ("2", "train", "oak desk", 0, 'query: oak desk\ncandidate: Lamp 5" high'),
        ("3", "validation", "lampe à gaz", 1, "query: lampe à gaz\ncandidate: Lamp, gas bright\tone"),
        ("7", "test", "red rug", 2, "query: red rug\ncandidate: Rug red"),
    ]


@pytest.mark.parametrize(
    ("reader", "options", "source"),
    [
        ("files", make_table_options({"drawn": ["x/a.csv", "b.csv"], "test": "c.csv"}), ("x/a.csv", "b.csv", "c.csv")),
        ("files", {"labels": LABELS, "features": {"path": "a.txt", "width": 3}}, ("a.txt",)),
        ("hub", make_hub_options(), Repository("shop/labelled", COMMIT)),
        ("hub", make_hub_options(files=["en/*"], revision=None), Repository("shop/labelled", None, ("en/*",))),
    ],
)
def test_options_describe_the_data_set(reader, options, source):
    dataset = find_dataset("shop", reader, options | {"title": "Our shop", "licence": "ours"})
    assert (dataset.name, dataset.title, dataset.licence) == ("shop", "Our shop", "ours")
    assert (dataset.labels, dataset.files or dataset.repository) == (tuple(LABELS), source)


@pytest.mark.parametrize(
    ("labels", "files", "codes"),
    [
        *((LABELS, [values], [2, 0]) for values in (["exact", "irrelevant"], [2, 0], [2.0, 0.0], ["2", "0"])),
        ([1, 2, 3], [[1, 2], [3, 1]], [0, 1, 2, 0]),  # the first file alone would do for names and for numbers
        ([1, 2, 3], [[1, 2], [0, 2]], [1, 2, 0, 2]),
    ],
)
def test_labels_are_names_or_numbers_in_the_same_way_in_all_files(tmp_path, labels, files, codes):
    tables = {f"{index}.parquet": replace_labels(*values) for index, values in enumerate(files)}
    frame = read_pairs(write_files(tmp_path, tables), make_table_options([*tables]) | {"labels": labels})
    assert frame["label"].to_list() == codes
    expected_pairs = []
    for name in tables:
        expected_pairs += [f"{name}:1", f"{name}:2"]
    assert frame["pair"].to_list() == expected_pairs


def test_files_have_splits_and_blank_lines_are_skipped(tmp_path):
    files = dict.fromkeys(("a.csv", "b.csv", "c.csv"), HEADER + b"x,y,z,exact\n\nx,y,z,partial\n\n")
    frame = read_pairs(write_files(tmp_path, files), make_table_options({"drawn": ["a.csv", "b.csv"], "test": "c.csv"}))
    assert frame["split"].to_list() == [None] * 4 + ["test"] * 2
    assert frame["label"].to_list() == [2, 1] * 3


def test_queries_and_candidates_are_looked_up_by_id(tmp_path):
    labelled = [
        {"qid": qid, "doc": f"d-{doc}", "label": label} for qid, doc, label in ((4, 2, 0), (5, 1, 2), (4, 1, 2))
    ]
    queries = [{"_id": 4, "text": "of wings"}, {"_id": 5, "text": "of heat"}, {"_id": 6, "text": "unused"}]
    documents = [{"id": "d-1", "title": "Wings", "text": ""}, {"id": "d-2", "title": None, "text": "Warmth."}]
    tables = {
        "queries": {"path": "q.csv", "id": "_id", "text": "text"},
        "candidates": {"path": "d.jsonl.gz", "id": "id", "text": ["title", "text"]},
    }
    options = make_table_options("p.tsv.gz", group="qid", query="qid", candidate="doc", label="label", **tables)
    frame = read_pairs(
        write_files(tmp_path, {"p.tsv.gz": labelled, "q.csv": queries, "d.jsonl.gz": documents}), options
    )
    assert frame.select("group", "label", "text").rows() == [
        ("4", 0, "query: of wings\ncandidate: Warmth."),
        ("5", 2, "query: of heat\ncandidate: Wings"),
        ("4", 2, "query: of wings\ncandidate: Wings"),
    ]


@pytest.mark.parametrize("name", ["a.txt", "a.svmlight.gz"])
def test_features_accept_text_groups_and_signed_labels(tmp_path, name):
    text = b"-1 qid:test_0 1:0.5 3:2\n+1.0 qid:test_0 2:-1\n1 qid:b-1 1:1 2:1 3:1\n"
    folder = write_files(tmp_path, {name: gzip.compress(text) if name.endswith(".gz") else text})
    frame = read_pairs(folder, {"labels": [-1, 1], "features": {"path": {"train": name}, "width": 3}})
    assert frame.select("pair", "split", "group", "label").rows() == [
        (f"{name}:{row}", "train", group, label)
        for row, group, label in ((1, "test_0", 0), (2, "test_0", 1), (3, "b-1", 1))
    ]
    np.testing.assert_array_equal(frame["features"].to_numpy(), [[0.5, 0, 2], [0, -1, 0], [1, 1, 1]])


def change_row(row: int, **values: Any) -> list[dict[str, Any]]:
    return [*ROWS[: row - 1], ROWS[row - 1] | values, *ROWS[row:]]


WRONG_FILES = {  # file, its bytes or rows, options, expected message
    "a missing file": ("a.csv", None, {}, " is missing"),
    "an unknown label": ("a.csv", change_row(3, grade="so so"), {}, r", row 3, column 'grade': found 'so so'"),
    "a null group": ("a.jsonl", change_row(2, q=None), {}, r", row 2, column 'q': found None"),
    "a null text": ("a.csv", change_row(1, name=None, about=None), {}, r", row 1, column 'name, about'"),
    "a missing column": ("a.csv", ROWS, {"label": "rating"}, r" .*no column 'rating';[^,]* n, q, name"),
    "numbers for a text": ("a.jsonl", ROWS, {"query": "n"}, r", column 'n' is Int64, not text"),
    "a list for a label": ("a.jsonl", change_row(1, grade=[1])[:1], {}, r", column 'grade' is List"),
    "an unknown split": ("a.csv", ROWS, {"split": "part"}, r", row 3, column 'part': found 'dev'"),
    "a cut gzip file": ("a.csv.gz", encode_rows("a.csv.gz", ROWS)[:-9], {}, r" .*incomplete .*gzip"),
    "a cut parquet file": ("a.parquet", encode_rows("a.parquet", ROWS)[:-9], {}, r" .*not .*complete parquet"),
    "a cut JSON line": ("a.jsonl", encode_rows("a.jsonl", ROWS)[:-9], {}, r", line 4 .*JSON object"),
    "an open quote": ("a.csv", HEADER + b'x,"y,z,exact\n', {}, r" .*not .*complete csv file"),
    "a header alone": ("a.csv", HEADER, {}, r" has no rows"),
}


@pytest.mark.parametrize(("name", "content", "changes", "message"), WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_wrong_file_is_reported_with_its_place(tmp_path, name, content, changes, message):
    with pytest.raises(InputError, match=name + message):
        read_pairs(
            write_files(tmp_path, {} if content is None else {name: content}), make_table_options(name, **changes)
        )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"oak desk": "of x"}, r"row 3, .*'q'.*'lampe à gaz'.*lookup"),
        ({"oak desk": "of x", "oak desk ": "of y"}, r"q\.csv, row 1, .*'id': .*'oak desk'"),
        ({"oak desk": "of x", "lampe à gaz": None}, r"row 3, column 'q': found ''"),
        ({"oak desk": "of x", "": "of y"}, r"q\.csv, row 2, .*'id'.*None; .*unique"),
    ],
)
def test_a_wrong_lookup_table_is_reported_with_its_place(tmp_path, rows, message):
    queries = [{"id": key.strip() or None, "text": text} for key, text in rows.items()]
    with pytest.raises(InputError, match=message):
        read_pairs(
            write_files(tmp_path, {"q.csv": queries, "a.csv": ROWS[:3]}), make_table_options("a.csv", queries=LOOKUP)
        )


def test_a_pair_without_an_identifier_of_its_text_is_reported(tmp_path):
    folder = write_files(tmp_path, {"q.csv": [{"id": "Desk", "text": "x"}], "a.csv": change_row(1, name=None)[:2]})
    with pytest.raises(InputError, match=r"row 1, .*'name'.*None \(.* 1 .*\).*lookup"):
        read_pairs(folder, make_table_options("a.csv", candidate="name", candidates=LOOKUP))


FEATURES = {"path": "a.txt", "width": 2}
WRONG_LINES = {
    "a NaN": ("0 qid:1 1:nan 2:1", r"'feature': found '1:nan'; .*finite"),
    "a word for a value": ("0 qid:1 1:one", r"'feature': found '1:one'; .*finite"),
    "a feature counted from 0": ("0 qid:1 0:1", r"'feature': found '0:1'; .*1\.\.2"),
    "a feature too many": ("0 qid:1 3:1", r"'feature': found '3:1'; .*1\.\.2"),
    "a word alone": ("0 qid:1 1:1 two", r"'feature': found 'two'; .*<position>:<number>"),
    "another word for the group": ("0 query:1 1:1 2:1", r"'group': found 'query:1'; .*`qid:<group>`"),
    "a label alone": ("0", r"'group': found None; .*`qid:<group>`"),
    "an unknown label": ("3 qid:1 1:1 2:1", r"'label': found '3'; .*one of 0, 1"),
    "a feature twice": ("0 qid:1 2:1 2:1", r"'feature': found '2:1' .*; .*more than once"),
}


@pytest.mark.parametrize(("line", "message"), WRONG_LINES.values(), ids=WRONG_LINES)
def test_a_wrong_line_of_features_is_reported_with_its_place(tmp_path, line, message):
    folder = write_files(tmp_path, {"a.txt": f"0 qid:1 1:0.5 2:1 # first\n\n{line}\n1 qid:2 1:3 2:4\n".encode()})
    with pytest.raises(InputError, match=rf"a\.txt, row 3, .*{message}"):
        read_pairs(folder, {"labels": ["no", "yes"], "features": FEATURES})


WRONG_OPTIONS = {  # reader, options, expected message
    "an unknown name": ("files", make_table_options("a.csv", groups="q"), r"pairs\.groups: unknown name"),
    "a missing name": ("files", make_table_options("a.csv", label=None), r"pairs\.label: Field required"),
    "one label": ("files", make_table_options("a.csv") | {"labels": ["yes"]}, r"labels: .*at least 2"),
    "labels that are equal": ("files", make_table_options("a.csv") | {"labels": ["a", "a"]}, "labels must differ"),
    "texts and features": ("files", make_table_options("a.csv") | {"features": FEATURES}, "give either"),
    "nothing to read": ("files", {"labels": LABELS}, "give either"),
    "no file": ("files", make_table_options([]), r"pairs\.path"),
    "an empty name of a file": ("files", make_table_options(""), r"pairs\.path"),
    "an empty name of a column": ("files", make_table_options("a.csv", group=""), r"pairs\.group"),
    "no column of the query": ("files", make_table_options("a.csv", query=[]), r"pairs\.query"),
    "an empty label": ("files", make_table_options("a.csv") | {"labels": ["", "b"]}, r"labels\.0"),
    "no feature": ("files", {"labels": LABELS, "features": {"path": "a", "width": 0}}, r"features\.width"),
    "no pattern of files": ("hub", make_hub_options(files=[]), r"files: "),
    "a lookup table without text": (
        "files",
        make_table_options("a.csv", queries={"path": "q.csv", "id": "id", "text": []}),
        r"pairs\.queries\.text",
    ),
    "a lookup table of an unknown format": (
        "files",
        make_table_options("a.csv", queries=LOOKUP | {"path": "q.txt"}),
        r"'q\.txt' .*none of \.csv, \.tsv, \.jsonl, \.ndjson, \.parquet, \.json \(.*\.gz\)",
    ),
    "an unknown format": ("files", make_table_options("a.xlsx"), r"'a\.xlsx' .*none of"),
    "one base name twice": ("files", make_table_options(["x/a.csv", "y/a.csv"]), r"a\.csv is named twice"),
    "a split of another name": (
        "files",
        make_table_options("a.csv", split="part", splits={"dev": "valid"}),
        r"splits\.dev",
    ),
    "splits without a column": (
        "files",
        make_table_options("a.csv", splits={"dev": "validation"}),
        "`splits` .*`split`",
    ),
    "two ways to split": ("files", make_table_options({"train": "a.csv"}, split="part"), "give either"),
    "two columns of ids": (
        "files",
        make_table_options("a.csv", candidates=LOOKUP),
        "`candidate` .*exactly one column",
    ),
    "a branch": ("hub", make_hub_options(revision="main"), r"revision: .*40 hex.*`History`.*found 'main'"),
    "a short commit": ("hub", make_hub_options(revision=COMMIT[:7]), r"40 hexadecimal digits"),
    "an address for an id": (
        "hub",
        make_hub_options(id="https://huggingface.co/datasets/a/b"),
        r"id: String should match",
    ),
    "no splits": ("hub", make_hub_options(splits={}), r"splits: "),
}


def test_options_have_defaults():
    features = {"path": "a.txt", "width": 1}
    files = find_dataset("shop", "files", {"labels": ["no", "yes"], "features": features})
    hub = find_dataset("shop", "hub", make_hub_options())
    logits = find_dataset("shop", "logits", {"labels": ["no", "yes"]})
    for dataset in (files, hub, logits):
        assert (dataset.title, dataset.domain, dataset.task) == ("shop", "own data", "relevance prediction")
        assert (dataset.split_by, dataset.drawn_splits, dataset.predictor_seed) == ("row", (), 0)
        assert (dataset.max_training_passes, dataset.max_terms, dataset.check_columns) == (None, None, None)
    licences = [dataset.licence for dataset in (files, hub, logits)]
    assert [licences[0], licences[2]] == ["not stated", "not stated"]
    assert "card" in licences[1]
    assert [dataset.files for dataset in (files, hub, logits)] == [("a.txt",), (), ()]
    assert [dataset.repository for dataset in (files, hub, logits)] == [None, Repository("shop/labelled", COMMIT), None]


def test_identifiers_that_are_numbers_in_the_file_are_looked_up(tmp_path):
    labelled = [{"qid": 4, "doc": 7, "label": 0}, {"qid": 5, "doc": 8, "label": 2}]
    texts = [
        {"id": 4, "text": "four"},
        {"id": 5, "text": "five"},
        {"id": 7, "text": "seven"},
        {"id": 8, "text": "eight"},
    ]
    tables = {"queries": LOOKUP | {"path": "t.jsonl"}, "candidates": LOOKUP | {"path": "t.jsonl"}}
    folder = write_files(tmp_path, {"p.jsonl": labelled, "t.jsonl": texts, "t.parquet": texts})
    columns_of_ids = {"group": "qid", "query": "qid", "candidate": "doc", "label": "label"}
    with pytest.raises(InputError, match=r"t\.jsonl is named twice"):
        read_pairs(folder, make_table_options("p.jsonl", **columns_of_ids, **tables))
    tables["candidates"] |= {"path": "t.parquet"}
    frame = read_pairs(folder, make_table_options("p.jsonl", **columns_of_ids, **tables))
    assert frame["text"].to_list() == ["query: four\ncandidate: seven", "query: five\ncandidate: eight"]


@pytest.mark.parametrize(("reader", "options", "message"), WRONG_OPTIONS.values(), ids=WRONG_OPTIONS)
def test_wrong_options_are_reported(reader, options, message):
    with pytest.raises(InputError, match=rf"(?s)options .*shop: .*{message}"):
        find_dataset("shop", reader, options)


LABELLED_ROWS = pl.DataFrame(ROWS[:3]).select("n", "q", "name", "about", "grade").to_dicts()


def write_repository(folder: Path, files: dict[str, Content], card: str = "") -> Path:
    """Write a raw folder with files, a card, and the index of the download."""
    own = {"README.md": f"---\n{card}---\n# Judged\n".encode(), "source.json": b'{"dataset": "shop", "files": []}'}
    return write_files(folder, {**own, **files})


def read_hub(folder: Path, **changes: Any) -> LabelledPairs:
    return find_dataset("shop", "hub", make_hub_options(**changes)).read(folder)


def make_files_of_splits(rows: list[dict[str, Any]] = LABELLED_ROWS, ending: str = ".parquet") -> dict[str, Content]:
    return {f"data/{split}-00000-of-00001{ending}": rows for split in SPLITS}


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl", ".csv.gz", ".jsonl.gz"])
def test_a_repository_gives_the_same_pairs_as_files(tmp_path, ending):
    same = read_pairs(write_files(tmp_path, {"a.csv": LABELLED_ROWS}), make_table_options("a.csv")).drop(
        "pair", "split"
    )
    frame = read_hub(write_repository(tmp_path / "hub", make_files_of_splits(ending=ending))).pairs
    assert dict(frame.schema) == SCHEMA
    for index, (released_split, split) in enumerate({"train": None, "dev": "validation", "test": "test"}.items()):
        part = frame[3 * index : 3 * index + 3]
        assert part.drop("pair", "split").equals(same)
        assert part["pair"].to_list() == [f"{released_split}:{row}" for row in (1, 2, 3)]
        assert part["split"].to_list() == [split] * 3


def test_the_card_defines_the_configurations(tmp_path):
    entry = "- config_name: {0}\n  data_files:\n  - split: train\n    path: {0}/*\n"
    card = f"configs:\n{entry.format('en')}{entry.format('fr')}"
    folder = write_repository(tmp_path, {"en/a.parquet": LABELLED_ROWS, "fr/b.parquet": LABELLED_ROWS[2:]}, card)
    for config, groups in (("en", ["oak desk", "oak desk", "lampe à gaz"]), ("fr", ["lampe à gaz"])):
        frame = read_hub(folder, config=config, splits={"train": "drawn"}).pairs
        assert frame["group"].to_list() == groups
    for config, message in ((None, "Config name .*missing"), ("de", "BuilderConfig 'de' not found")):
        with pytest.raises(InputError, match=rf"{message}.*\['en', 'fr'\]"):
            read_hub(folder, config=config, splits={"train": "drawn"})


def test_class_names_of_the_card_must_match_the_options_in_any_order(tmp_path):
    def make_card(*names: str) -> str:
        by_code = {str(code): name for code, name in enumerate(names)}
        types = dict.fromkeys(("q", "name", "about"), "string") | {"grade": {"class_label": {"names": by_code}}}
        features = [{"name": name, "dtype": dtype} for name, dtype in types.items()]
        sizes = [{"name": "train", "num_bytes": 1, "num_examples": 99}]  # of the complete data set, not of these files
        return f"dataset_info: {json.dumps({'features': features, 'splits': sizes})}\n"

    rows = pl.DataFrame(replace_labels(0, 2, 1)).select("q", "name", "about", "grade")
    files = make_files_of_splits(rows.to_dicts())
    folder = write_repository(tmp_path / "a", files, make_card("exact", "partial", "irrelevant"))
    assert read_hub(folder, splits={"train": "train"}).pairs["label"].to_list() == [2, 0, 1]
    names = ("bad", "good", "best")
    with pytest.raises(InputError, match=f"'grade' .* {', '.join(names)}, .* {', '.join(LABELS)};") as error:
        read_hub(write_repository(tmp_path / "b", files, make_card(*names)))
    assert "`labels`" in str(error.value)


def test_a_repository_may_have_numbers_as_labels_and_ids(tmp_path):
    folder = write_repository(tmp_path, {"pairs.jsonl": replace_labels(2, 0, 1)})  # no split: all are `train`
    frame = read_hub(folder, pair="n", splits={"train": "train"}).pairs
    assert (frame["label"].to_list(), frame["pair"].to_list()) == ([2, 0, 1], ["1", "2", "3"])


def test_pairs_without_text_are_dropped_on_request_only(tmp_path):
    without_names = [row | {"name": ""} for row in LABELLED_ROWS]  # the second row has no text then
    folder = write_repository(tmp_path, make_files_of_splits(without_names))
    pairs_read = read_hub(folder, drop_empty=True)
    assert (len(pairs_read.pairs), pairs_read.dropped) == (6, {"without text": 3})
    with pytest.raises(InputError, match=r"train.*row 2,.*'name, about'.*''.*drop_empty"):
        read_hub(folder)


WRONG_REPOSITORIES = {  # files, options, expected message
    "a script alone": ({"labelled.py": b"raise SystemExit\n"}, {}, r"split train .*read"),
    "no data": ({}, {}, r"split train .*: .*data files"),
    "a cut line": (
        {"train.jsonl": encode_rows("a.jsonl", LABELLED_ROWS)[:-9]},
        {},
        r"split train .*: .*JSON",
    ),
    "no such split": ({"train.parquet": LABELLED_ROWS}, {}, r"split dev .*: Unknown split .dev."),
    "an id twice": (make_files_of_splits(), {"pair": "n"}, r"hub: .*'1' .*more than once"),
}


@pytest.mark.parametrize(("files", "changes", "message"), WRONG_REPOSITORIES.values(), ids=WRONG_REPOSITORIES)
def test_a_wrong_repository_is_reported(tmp_path, files, changes, message):
    with pytest.raises(InputError, match=rf"(?s){message}"):
        read_hub(write_repository(tmp_path / "hub", files), **changes)


N = {"val": 9, "test": 6}
K = 3


def make_arrays(members: int | None = 2) -> dict[str, np.ndarray]:
    """Return the arrays of a `.npz` file; without `members` the logits have two axes."""
    generator = np.random.default_rng(0)
    saved_data = {f"{part}_labels": np.arange(n) % K for part, n in N.items()}
    for part, n in N.items():
        saved_data[f"{part}_logits"] = generator.normal(size=(*([members] if members else []), n, K)).astype(np.float32)
    return saved_data


def make_columns(**other: object) -> pl.DataFrame:
    """Return the arrays of one member as a frame, with `other` columns replaced."""
    saved_data = {}
    for content in ("labels", "logits"):
        saved_data[content] = np.concatenate([make_arrays(None)[f"{part}_{content}"] for part in N])
    frame = pl.DataFrame({"split": ["validation"] * 9 + ["test"] * 6, "label": saved_data["labels"]})
    group = [f"q{row // 2}" for row in range(15)]
    return frame.with_columns(logits=pl.Series(saved_data["logits"].tolist()), group=pl.Series(group)).with_columns(
        **other
    )


def write_logits_file(folder: Path, saved_data: dict[str, np.ndarray] | pl.DataFrame) -> Path:
    """Write a parquet file with columns, or a `.npz` file with arrays."""
    path = folder / f"logits.{'parquet' if isinstance(saved_data, pl.DataFrame) else 'npz'}"
    if isinstance(saved_data, pl.DataFrame):
        saved_data.write_parquet(path)
    else:
        np.savez_compressed(path, **saved_data)
    return path


@pytest.mark.parametrize("members", [1, 3, None])
def test_saved_logits_of_each_member_are_read_unchanged(members, tmp_path):
    saved_data = make_arrays(members)
    frames = read_saved_logits(
        write_logits_file(tmp_path, {**saved_data, "temperatures": np.ones(members or 1), "other": np.ones(2)})
    )
    assert len(frames) == (members or 1)
    for member, frame in enumerate(frames):
        kinds = {"split": pl.String, "group": pl.String, "label": pl.Int8, "logits": pl.Array(pl.Float64, K)}
        assert frame.schema == kinds | {"pair": pl.String}
        assert frame["split"].to_list() == make_columns()["split"].to_list()
        assert frame["group"].to_list() == [str(row) for row in range(15)]
        assert frame["label"].to_list() == [*saved_data["val_labels"], *saved_data["test_labels"]]
        parts = [saved_data[f"{part}_logits"].reshape(-1, n, K)[member] for part, n in N.items()]
        np.testing.assert_array_equal(frame["logits"].to_list(), np.concatenate(parts).astype(np.float64))


def test_parquet_and_npz_files_give_the_same_rows(tmp_path):
    (expected,) = read_saved_logits(write_logits_file(tmp_path, make_arrays(None)))
    complete = make_columns()
    test_rows_first = pl.concat([complete[9:], complete[:9]])
    kinds = (pl.List(pl.Float32), pl.Array(pl.Float64, K), pl.Array(pl.Float32, K))
    frames_of_kinds = [make_columns(logits=pl.col("logits").cast(kind)) for kind in kinds]
    for saved_data in (complete, test_rows_first, *frames_of_kinds):
        (frame,) = read_saved_logits(write_logits_file(tmp_path, saved_data))
        assert_frame_equal(frame.drop("group"), expected.drop("group"))
        assert frame["group"].to_list() == complete["group"].to_list()


def test_without_groups_each_row_of_a_parquet_file_is_a_group(tmp_path):
    (frame,) = read_saved_logits(write_logits_file(tmp_path, make_columns().drop("group")))
    assert frame["group"].n_unique() == len(frame)


@pytest.mark.parametrize("kind", [np.int64, np.str_])
def test_query_ids_of_an_npz_file_are_the_groups(kind, tmp_path):
    query_ids = {f"{part}_query_ids": np.arange(n).astype(kind) for part, n in N.items()}
    for frame in read_saved_logits(write_logits_file(tmp_path, make_arrays() | query_ids)):
        assert frame["group"].to_list() == [str(row) for row in (*range(N["val"]), *range(N["test"]))]


INCOMPLETE_CONTENTS = {  # change of a complete file, expected message
    "cut": (lambda content: content[:-1], "not .*complete"),
    "the first bytes alone": (lambda content: content[:4] + bytes(80), "not .*complete"),
    "corrupt": (lambda content: content[:300] + bytes(50) + content[350:], "not .*complete .npz"),
    "a page": (lambda _: b"<!DOCTYPE html><title>Sign in</title>", "web page"),
}


@pytest.mark.parametrize(("change", "message"), INCOMPLETE_CONTENTS.values(), ids=INCOMPLETE_CONTENTS)
def test_an_incomplete_file_of_logits_is_reported(change, message, tmp_path):
    for saved_data in (make_arrays(), make_columns())[: 1 if message.endswith(".npz") else 2]:
        path = write_logits_file(tmp_path, saved_data)
        path.write_bytes(change(path.read_bytes()))
        with pytest.raises(InputError, match=f"{path} .*{message}"):
            read_saved_logits(path)


def change_arrays(change, *names: str) -> dict[str, np.ndarray]:
    saved_data = make_arrays()
    return saved_data | {name: change(saved_data[name]) for name in names}


def change_cell(name: str, index: object, value: object) -> dict[str, np.ndarray]:
    saved_data = make_arrays()
    saved_data[name][index] = value
    return saved_data


def change_row_4(column: str, value: object) -> pl.DataFrame:
    return make_columns(**{column: pl.when(pl.int_range(len(make_columns())) == 3).then(value).otherwise(column)})


WRONG_LOGITS = {  # arrays of a `.npz` file or columns of a parquet file, expected message
    "no logits": ({"val_labels": np.arange(9)}, "no array val_logits, test_logits, test_labels;[^,]* val_labels$"),
    "query ids of one split": ({**make_arrays(), "val_query_ids": np.arange(9)}, "has val_query_ids only"),
    "pickled": (change_arrays(lambda x: x.astype(object), "val_labels"), "array of objects"),
    "no numbers": (change_arrays(lambda x: x.astype(str), "val_logits"), "val_logits: found <U"),
    "another K": (
        change_arrays(lambda x: np.dstack([x, x]), "test_logits"),
        "val_logits has 3 .*, .*test_logits has 6 ",
    ),
    "one label": (change_arrays(lambda x: x[..., :1], "val_logits", "test_logits"), "val_logits: .*each row is 1;"),
    "too few labels": (
        change_arrays(lambda x: x[:-1], "val_labels"),
        r"val_labels: .*int64 .*\(8,\); .* 9 rows",
    ),
    "NaN": (change_cell("test_logits", (1, 4, 2), np.nan), "test_logits, row 4: .*nan .*label 2 .*member 1;"),
    "a label too high": (change_cell("val_labels", 5, 3), "val_labels, row 5: found 3; .* 0 to 2"),
    "a class missing": (change_arrays(lambda x: x % 2, "test_labels"), "test_labels: .*label 2;"),
    "an empty split": (
        change_arrays(lambda x: x[:, :0], "val_logits") | {"val_labels": np.arange(0)},
        "val_logits: .*no rows",
    ),
    "no column of logits": (make_columns().drop("logits"), "no column 'logits';[^,]* split, label, group$"),
    "another split": (
        change_row_4("split", pl.lit("train")),
        "row 4, column 'split': .*'train'; .*validation or test",
    ),
    "texts for logits": (make_columns(logits=pl.lit("1,2,3")), "column 'logits' is String"),
    "lists without numbers": (
        make_columns(logits=pl.col("logits").list.head(0)),
        "logits of validation: .* is 0;",
    ),
    "a shorter list": (
        change_row_4("logits", pl.col("logits").list.head(2)),
        "row 4, .*'logits': .* 2; .*first .* 3$",
    ),
    "no number in a list": (
        change_row_4("logits", pl.lit([1.0, None, 2.0])),
        "validation, row 4: .*nan .*label 1 ",
    ),
    **{
        f"no {name}": (change_row_4(name, None), f"row 4, column '{name}': .*None")
        for name in ("label", "logits", "group")
    },
}


@pytest.mark.parametrize(("saved_data", "message"), WRONG_LOGITS.values(), ids=WRONG_LOGITS)
def test_wrong_saved_logits_are_reported_with_their_place(saved_data, message, tmp_path):
    path = write_logits_file(tmp_path, saved_data)
    with pytest.raises(InputError, match=message) as refused:
        read_saved_logits(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


SHARES = {"by": "row", "validation": 0.3, "test": 0.3}


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet"])
def test_a_wrong_column_name_is_reported_before_any_stage_runs(name, tmp_path):
    write_files(tmp_path, {name: ROWS})
    wrong = {"labels": LABELS, "pairs": {"path": name, **COLUMNS, "label": "rating"}}
    entry = DatasetParams(source="files", path=str(tmp_path / name), reader="files", options=wrong, split=SHARES)
    with pytest.raises(InputError, match=rf"^mine: .*{name}.*'rating'.*params\.yaml"):
        find_declared_dataset("mine", entry)


def test_a_wrong_column_name_of_a_lookup_table_is_reported_before_any_stage_runs(tmp_path):
    write_files(tmp_path, {"a.csv": ROWS, "q.csv": [{"id": "oak desk", "words": "oak"}]})
    wrong = {"labels": LABELS, "pairs": {"path": "a.csv", **COLUMNS, "queries": LOOKUP}}
    entry = DatasetParams(source="files", path=str(tmp_path), reader="files", options=wrong, split=SHARES)
    with pytest.raises(InputError, match=r"q\.csv.*'text';[^,]* id, words"):
        find_declared_dataset("mine", entry)


ALL_COLUMNS = {"group": "q", "query": "q", "candidate": "name", "label": "grade", "pair": "n", "split": "part"}


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
@pytest.mark.parametrize("option", ALL_COLUMNS)
def test_each_column_of_the_options_is_looked_for_in_every_file(option, name, tmp_path):
    write_files(tmp_path, {f"x/{name}": ROWS, "b.tsv": [row | {"other": 1} for row in ROWS]})
    columns_of_options = ALL_COLUMNS | {option: "other"}
    source = PairTables(path=["b.tsv", f"x/{name}"], **columns_of_options)
    path = tmp_path / "x" / name
    with pytest.raises(InputError, match=f"^{path} [^,]*'other';[^,]* {', '.join(ROWS[0])}$"):
        check_columns(tmp_path, source)
    check_columns(tmp_path, PairTables(path=["b.tsv", f"x/{name}"], **ALL_COLUMNS))


@pytest.mark.parametrize("option", ["id", "text"])
def test_each_column_of_a_lookup_table_is_looked_for(option, tmp_path):
    row = {"id": 1, "text": "a"}
    write_files(tmp_path, {"a.csv": ROWS, "x/q.csv": [row]})
    lookup = LOOKUP | {"path": "x/q.csv", option: "other"}
    source = PairTables(path="a.csv", **ALL_COLUMNS | {"candidate": "n"}, candidates=lookup)
    with pytest.raises(InputError, match=f"^{tmp_path / 'x/q.csv'} [^,]*'other';[^,]* {', '.join(row)}$"):
        check_columns(tmp_path, source)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", None),
        ("a.parquet", b"PAR1 and no more"),
        ("a.csv", b""),
        ("a.csv.gz", encode_rows("a.csv.gz", [{"x": 1}])),
        ("a.jsonl", encode_rows("a.jsonl", [{"x": 1}])),
    ],
    ids=["missing", "damaged", "empty", "gzip", "json lines"],
)
def test_files_without_a_header_that_can_be_read_are_checked_later(name, content, tmp_path):
    write_files(tmp_path, {} if content is None else {name: content})
    source = PairTables(path=name, **COLUMNS)
    check_columns(tmp_path, source)


@pytest.mark.parametrize(
    ("n_files", "listed"),
    [
        (0, "nothing"),
        (1, "a.csv"),
        (10, ", ".join(f"{letter}.csv" for letter in "abcdefghij")),
        (11, ", ".join(f"{letter}.csv" for letter in "abcdefghij") + " and 1 more"),
        (13, ", ".join(f"{letter}.csv" for letter in "abcdefghij") + " and 3 more"),
    ],
)
def test_a_missing_file_is_reported_with_the_content_of_the_nearest_folder(n_files, listed, tmp_path):
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / ".hidden").touch()
    for letter in "abcdefghijklm"[:n_files]:
        (folder / f"{letter}.csv").touch()
    missing = folder / "of/year/pairs.csv"
    entry = DatasetParams(
        source="files", path=str(missing), reader="files", options=make_table_options("pairs.csv"), split=SHARES
    )
    with pytest.raises(InputError) as error:
        find_declared_dataset("mine", entry)
    message = str(error.value)
    assert message.startswith(f"mine: {missing} ")
    assert "params.yaml" in message
    assert message.endswith(f"{folder} has {listed}")


def test_a_single_file_must_be_the_one_that_the_options_name(tmp_path):
    write_files(tmp_path, {"a.csv": ROWS, "b.csv": ROWS})
    path = tmp_path / "a.csv"
    for names in (["b.csv"], ["a.csv", "b.csv"]):
        options = make_table_options(names)
        entry = DatasetParams(source="files", path=str(path), reader="files", options=options, split=SHARES)
        with pytest.raises(InputError) as error:
            find_declared_dataset("mine", entry)
        assert re.match(rf"mine: .*{path}, [^,.]* {', '.join(names)}; .*folder", str(error.value))


def test_a_folder_of_saved_logits_must_have_a_file_of_its_name(tmp_path):
    folder = tmp_path / "saved"
    folder.mkdir()
    options = {"labels": ["no", "yes"]}
    entry = DatasetParams(source="files", path=str(folder), reader="logits", options=options)
    with pytest.raises(InputError, match=f"^mine: {folder / 'saved'} .*exist") as error:
        find_declared_dataset("mine", entry)
    assert str(error.value).endswith(f"{folder} has nothing")


def test_an_unknown_reader_and_wrong_options_are_reported_with_the_known_ones():
    known = "amazon_esci, mslr_web10k, alloprof_rerank, esci_rerank_us, wands, scidocs, files, hub, logits"
    with pytest.raises(InputError, match=f"^mine: [^,]*'csv';[^,]* {known}$"):
        find_dataset("mine", "csv", {})
    assert find_dataset("mine", "wands", {}).name == "wands"
    with pytest.raises(InputError, match=r"^mine: .*reader 'mine';"):
        find_dataset("mine", None, {})
    with pytest.raises(InputError) as error:
        find_dataset("mine", "logits", {"labels": ["yes"], "groups": 3})
    first, *mistakes = str(error.value).split("\n  ")
    assert re.fullmatch(r"options of mine: 2 [^,]*: labels, title, domain, task, licence", first)
    assert len(mistakes) == 2


def test_all_files_that_the_options_name_must_be_in_the_folder(tmp_path):
    write_files(tmp_path, {"a.csv": ROWS})
    options = make_table_options(["a.csv", "b.csv"])
    entry = DatasetParams(source="files", path=str(tmp_path), reader="files", options=options, split=SHARES)
    with pytest.raises(InputError, match=f"^mine: {tmp_path / 'b.csv'} .*exist"):
        find_declared_dataset("mine", entry)
    write_files(tmp_path, {"b.csv": ROWS})
    assert find_declared_dataset("mine", entry).files == ("a.csv", "b.csv")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_numbers_in_tables_of_text_are_read_as_written(tmp_path, name):
    rows = [{"q": "007", "name": "1.50", "grade": "exact"}, {"q": "7", "name": "1e3", "grade": "partial"}]
    frame = read_pairs(write_files(tmp_path, {name: rows}), make_table_options(name, candidate="name"))
    assert frame["group"].to_list() == ["007", "7"]
    assert frame["text"].to_list() == ["query: 007\ncandidate: 1.50", "query: 7\ncandidate: 1e3"]


@pytest.mark.parametrize(("text", "n_rows"), [("# only\n \n# notes\n", 0), ("# one\n1 qid:a 1:2 # two\n", 1)])
def test_a_file_of_features_needs_a_line_that_is_no_comment(tmp_path, text, n_rows):
    folder = write_files(tmp_path, {"a.txt": text.encode()})
    options = {"labels": ["no", "yes"], "features": FEATURES}
    if n_rows:
        assert read_pairs(folder, options)["pair"].to_list() == ["a.txt:2"]
    else:
        with pytest.raises(InputError, match=r"a\.txt .*except comments"):
            read_pairs(folder, options)


def test_a_line_without_features_has_zeros(tmp_path):
    folder = write_files(tmp_path, {"a.txt": b"1 qid:a\n0 qid:a 2:7\n1 qid:b # 1:5\n"})
    frame = read_pairs(folder, {"labels": ["no", "yes"], "features": FEATURES})
    assert frame["features"].to_list() == [[0, 0], [0, 7], [0, 0]]


def test_splits_of_a_column_are_mapped_and_drawn_later_if_they_are_unknown(tmp_path):
    parts = ["train", "dev", None, "drawn", "pool", "test"]
    rows = [ROWS[0] | {"part": part} for part in parts]
    options = {"split": "part", "splits": {"dev": "validation", "pool": "drawn"}}
    frame = read_pairs(write_files(tmp_path, {"a.jsonl": rows}), make_table_options("a.jsonl", **options))
    assert frame["split"].to_list() == ["train", "validation", None, None, None, "test"]
    with pytest.raises(InputError) as error:
        read_pairs(
            write_files(tmp_path, {"a.jsonl": rows}),
            make_table_options("a.jsonl", split="part", splits={"pool": "drawn"}),
        )
    place_and_value = rf"{tmp_path}/a\.jsonl, row 2, .*'part': .*'dev';"
    allowed = "train, validation, test, drawn, pool"
    assert re.match(rf"{place_and_value} [^,]* {allowed}; .*`splits`", str(error.value))


@pytest.mark.parametrize("lines_per_batch", [1, 2, 3, 100])
def test_features_are_read_in_batches_of_lines(tmp_path, lines_per_batch, monkeypatch):
    monkeypatch.setattr("tasks.datasets.files.LINES_PER_BATCH", lines_per_batch)
    lines = [f"{row % 2} qid:q{row // 2} 1:{row} 2:{row / 4}" for row in range(5)]
    folder = write_files(tmp_path, {"a.txt": "\n".join(lines).encode()})
    frame = read_pairs(folder, {"labels": ["no", "yes"], "features": FEATURES})
    assert frame["features"].to_list() == [[row, row / 4] for row in range(5)]
    assert frame["pair"].to_list() == [f"a.txt:{row}" for row in range(1, 6)]
    assert frame["group"].to_list() == ["q0", "q0", "q1", "q1", "q2"]


def test_names_of_labels_are_preferred_to_numbers_that_match_as_many_rows(tmp_path):
    table = [{"q": "a", "name": "b", "grade": grade} for grade in (1, 2)]
    options = make_table_options("a.jsonl", candidate="name") | {"labels": ["2", "1", "x"]}
    frame = read_pairs(write_files(tmp_path, {"a.jsonl": table}), options)
    assert frame["label"].to_list() == [1, 0]


def test_a_repeated_pair_and_a_pair_without_identifier_are_reported(tmp_path):
    rows = [row | {"n": number} for row, number in zip(ROWS, (4, 5, 5, 6), strict=True)]
    folder = write_files(tmp_path, {"a.csv": rows, "b.csv": change_row(2, n=None)})
    with pytest.raises(InputError, match=f"^{tmp_path}: .*'5' .*once.*unique$"):
        read_pairs(folder, make_table_options("a.csv", pair="n"))
    with pytest.raises(InputError, match=r"b\.csv, row 2, .*'n'.*None"):
        read_pairs(folder, make_table_options("b.csv", pair="n"))


def test_dropped_pairs_are_counted_and_logged(tmp_path, caplog):
    caplog.set_level("INFO")
    rows = [row | {"name": name} for row, name in zip(ROWS, ("", "Lamp", " ", ""), strict=True)]
    rows = [row | {"about": None} for row in rows]
    folder = write_files(tmp_path, {"a.csv": rows})
    judged = find_dataset("mine", "files", make_table_options("a.csv", drop_empty=True)).read(folder)
    assert (judged.pairs["pair"].to_list(), judged.dropped) == (["a.csv:2"], {"without text": 3})
    (message,) = caplog.messages
    assert re.match(rf"{tmp_path}/a\.csv: 3 of 4 .*no text .*dropped", message)


def make_arrays_of_labels(n_labels: int) -> dict[str, np.ndarray]:
    """Return arrays with one row of each label in both splits."""
    labels = np.arange(n_labels)
    logits = np.zeros((n_labels, n_labels))
    return {"val_labels": labels, "test_labels": labels, "val_logits": logits, "test_logits": logits}


@pytest.mark.parametrize(("n_labels", "is_valid"), [(1, False), (2, True), (MAX_LABELS, True), (MAX_LABELS + 1, False)])
def test_the_number_of_logits_has_limits(n_labels, is_valid, tmp_path):
    path = write_logits_file(tmp_path, make_arrays_of_labels(n_labels))
    if is_valid:
        (frame,) = read_saved_logits(path)
        assert frame["label"].to_list() == [*range(n_labels), *range(n_labels)]
        return
    with pytest.raises(InputError) as error:
        read_saved_logits(path)
    assert re.match(rf"{path}, val_logits: .*row is {n_labels}; .* 2 to {MAX_LABELS},", str(error.value))


PLACES_AND_REMEDIES = {  # arrays or columns, pattern of the message after the path
    "members": (
        change_arrays(lambda x: np.concatenate([x, x]), "test_logits"),
        r", val_logits has 2 members, {path}, test_logits has 4 members;",
    ),
    "a negative label": (
        change_cell("test_labels", 2, -1),
        r", test_labels, row 2: .* -1; .*3 logits .* 0 to 2$",
    ),
    "two absent labels": (
        change_arrays(lambda x: x * 0, "val_labels"),
        r", val_labels: .*label 1, 2; .* 3 labels$",
    ),
    "labels with decimals": (
        change_arrays(lambda x: x + 0.5, "val_labels"),
        r", val_labels: .*float64 .*\(9,\); .*integers, .* 9 rows",
    ),
    "groups of another length": (
        {**make_arrays(), "val_query_ids": np.arange(9), "test_query_ids": np.arange(5)},
        r", test_query_ids: .*int64 .*\(5,\); .*integers or text, .* 6 rows",
    ),
    "five axes": (
        change_arrays(lambda x: x[None], "test_logits"),
        r", test_logits: .*float32 .*\(1, 2, 6, 3\); .*\(members, n, K\) or \(n, K\)$",
    ),
    "an infinite logit": (
        change_cell("val_logits", (1, 7, 0), -np.inf),
        r", val_logits, row 7: \w+ -inf .*label 0 .*member 1; .*finite$",
    ),
    "no arrays": (
        {"other": np.ones(1)},
        r" .*no array val_logits, val_labels, test_logits, test_labels;[^,]* other$",
    ),
    "a null split": (
        change_row_4("split", None),
        r", row 4, column 'split': .*None; .*validation or test$",
    ),
    "an infinite logit in a column": (
        change_row_4("logits", pl.lit([1.0, 2.0, np.inf])),
        r", logits of validation, row 4: \w+ inf .*label 2 .*member 0; .*finite$",
    ),
    "an unknown label in the second split": (
        make_columns(label=pl.when(pl.int_range(pl.len()) == 12).then(7).otherwise("label")),
        r", label of test, row 13: \w+ 7; .*3 logits .* 0 to 2$",
    ),
    "of two labels too high the first": (
        change_arrays(lambda x: x + np.array([0, 0, 0, 5, 0, 4]), "test_labels"),
        r", test_labels, row 3: \w+ 5; .*3 logits .* 0 to 2$",
    ),
    "of several logits that are not finite the first of the first member": (
        change_arrays(lambda x: np.where(np.arange(9)[:, None] > 6, [1, np.nan, np.inf], x), "val_logits"),
        r", val_logits, row 7: \w+ nan .*label 1 .*member 0; .*finite$",
    ),
    "labels in a column of a matrix": (
        change_arrays(lambda x: x[:, None], "val_labels"),
        r", val_labels: .*int64 .*\(9, 1\); .*integers, .* 9 rows",
    ),
    "groups with decimals": (
        {**make_arrays(), "val_query_ids": np.arange(9), "test_query_ids": np.arange(6) / 2},
        r", test_query_ids: .*float64 .*\(6,\); .*integers or text, .* 6 rows",
    ),
    "groups with decimals in a column": (
        make_columns(group=pl.int_range(pl.len()) / 2),
        r", group of validation: .*float64 .*\(9,\); .*integers or text, .* 9 rows",
    ),
    "one axis": (
        change_arrays(lambda x: x[0, 0], "val_logits"),
        r", val_logits: .*float32 .*\(3,\); .*\(members, n, K\) or \(n, K\)$",
    ),
    "truth values": (
        change_arrays(lambda x: x > 0, "test_logits"),
        r", test_logits: .*bool .*\(2, 6, 3\); .*\(members, n, K\) or \(n, K\)$",
    ),
    "no member": (
        change_arrays(lambda x: x[:0], "val_logits", "test_logits"),
        r", val_logits: .*no rows; .*validation and test",
    ),
    "no test rows": (
        make_columns()[:9],
        r", logits of test: .*no rows; .*validation and test",
    ),
    "members of one split only": (
        change_arrays(lambda x: x[0], "val_logits"),
        r", val_logits has 1 members, {path}, test_logits has 2 members;",
    ),
    "no rows": (
        make_columns()[:0],
        r", logits of validation: .*no rows; .*validation and test",
    ),
}


@pytest.mark.parametrize(("saved_data", "pattern"), PLACES_AND_REMEDIES.values(), ids=PLACES_AND_REMEDIES)
def test_messages_about_saved_logits_name_the_place_and_the_remedy(saved_data, pattern, tmp_path):
    path = write_logits_file(tmp_path, saved_data)
    with pytest.raises(InputError, match=f"^{path}{pattern.format(path=path)}"):
        read_saved_logits(path)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.float32, np.float64])
def test_saved_logits_labels_and_groups_may_have_any_numeric_type(kind, tmp_path):
    logits = np.array([[1, 0], [3, 2], [4, 9]])
    label_kind = np.uint8 if kind == np.uint8 else np.int64
    saved_data = {}
    for part in N:
        saved_data[f"{part}_logits"] = logits.astype(kind)
        saved_data[f"{part}_labels"] = np.array([0, 1, 1], dtype=label_kind)
        saved_data[f"{part}_query_ids"] = np.array([5, 5, 7], dtype=label_kind)
    (frame,) = read_saved_logits(write_logits_file(tmp_path, saved_data))
    assert frame["logits"].to_list() == [*logits.tolist(), *logits.tolist()]
    assert frame["label"].to_list() == [0, 1, 1, 0, 1, 1]
    assert frame["group"].to_list() == ["5", "5", "7", "5", "5", "7"]


def test_rows_of_saved_logits_are_named_by_split_and_row(tmp_path):
    (first, _) = read_saved_logits(write_logits_file(tmp_path, make_arrays(2)))
    expected = [f"validation:{row}" for row in range(1, 10)] + [f"test:{row}" for row in range(1, 7)]
    assert first["pair"].to_list() == expected


def test_other_endings_than_those_of_saved_logits_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"logits\.csv: .*\.npz .*\.parquet"):
        read_saved_logits(tmp_path / "logits.csv")


def test_class_names_and_options_must_be_the_same_set(tmp_path):
    class_label = {"class_label": {"names": {"0": "bad", "1": "good"}}}
    features = [{"name": name, "dtype": "string"} for name in ("q", "name")] + [{"name": "grade", "dtype": class_label}]
    card = f"dataset_info: {json.dumps({'features': features})}\n"
    rows = [{"q": "a", "name": "b", "grade": 1}]
    folder = write_repository(tmp_path, {"train.parquet": rows}, card)
    options = {"candidate": "name", "splits": {"train": "train"}}
    assert read_hub(folder, labels=["good", "bad"], **options).pairs["label"].to_list() == [0]
    with pytest.raises(InputError) as error:
        read_hub(folder, labels=["good", "bad", "best"], **options)
    names = r"names bad, good, .*`labels` has good, bad, best;"
    assert re.match(rf"{tmp_path}/train, .*'grade' .*{names} .*`labels`, .*irrelevant to exact$", str(error.value))
