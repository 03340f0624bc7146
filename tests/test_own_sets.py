"""One's own judged pairs: tables of texts and svmlight features, in files or in a repository of the hub."""

import gzip
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from tasks.datasets import dataset_named
from tasks.datasets.base import SCHEMA, Judged
from tasks.protocol.errors import BadInput
from tasks.sources.hub import DATA_FILES, Repository

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


def written(folder: Path, **files: list[dict[str, Any]] | bytes | str) -> Path:
    """`folder` with these files, in which a `_` stands for a dot of the name."""
    for name, given in ((key.replace("_", "."), value) for key, value in files.items()):
        content = bytes_of(name, given) if isinstance(given, list) else given
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def read(folder: Path, options: dict[str, Any]) -> pl.DataFrame:
    return dataset_named("mine", "files", options).read(folder).pairs


def pairs(path: Any, **changes: Any) -> dict[str, Any]:
    """Options for tables with the columns of ROWS; a change to None takes the entry away."""
    entries = {"path": path, **COLUMNS, **changes}
    return {"labels": LABELS, "pairs": {key: value for key, value in entries.items() if value is not None}}


def graded(*grades: Any) -> list[dict[str, Any]]:
    """As many of ROWS, with these grades."""
    return [row | {"grade": grade} for row, grade in zip(ROWS, grades, strict=False)]


@pytest.mark.parametrize(
    "name", ["a.csv", "a.tsv", "a.jsonl", "a.ndjson", "a.parquet", "a.csv.gz", "a.tsv.gz", "a.jsonl.gz", "a.parquet.gz"]
)
def test_every_format_gives_the_same_pairs(tmp_path, name):
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
    dataset = dataset_named("shop", "files", pairs("a.csv") | {"title": "Our shop", "licence": "ours"})
    assert (dataset.name, dataset.title, dataset.licence) == ("shop", "Our shop", "ours")
    assert (dataset.labels, dataset.repository) == (tuple(LABELS), None)
    with pytest.raises(BadInput, match="no reader 'shop'"):
        dataset_named("shop", "shop", {})
    for options, files in (
        (pairs({"drawn": ["x/a.csv", "b.csv"], "test": "c.csv"}), ("x/a.csv", "b.csv", "c.csv")),
        (pairs("a.csv", query="q", queries=LOOKUP), ("a.csv", "q.csv")),
        ({"labels": [0, 1], "features": {"path": "a.txt", "width": 3}}, ("a.txt",)),
    ):
        assert dataset_named("mine", "files", options).files == files
    of_the_hub = dataset_named("shop", "hub", hub_options(title="Our shop"))
    assert (of_the_hub.title, of_the_hub.labels) == ("Our shop", tuple(LABELS))
    assert of_the_hub.repository == Repository("shop/judged", COMMIT)
    assert not [pattern for pattern in DATA_FILES if pattern.endswith(".py")]
    chosen = dataset_named("shop", "hub", hub_options(files=["en/*"], revision=None))
    assert chosen.repository == Repository("shop/judged", None, ("en/*",))


@pytest.mark.parametrize("values", [["exact", "irrelevant"], [2, 0], [2.0, 0.0], ["2", "0"]])
def test_labels_are_names_or_their_numbers(tmp_path, values):
    assert read(written(tmp_path, a_parquet=graded(*values)), pairs("a.parquet"))["label"].to_list() == [2, 0]


@pytest.mark.parametrize(("later", "codes"), [([3, 1], [0, 1, 2, 0]), ([0, 2], [1, 2, 0, 2])])
def test_numbers_are_names_or_codes_in_all_files_alike(tmp_path, later, codes):
    """Labels named 1 to 3; the first file alone would do for both."""
    folder = written(tmp_path, a_jsonl=graded(1, 2), b_jsonl=graded(*later))
    frame = read(folder, pairs(["a.jsonl", "b.jsonl"]) | {"labels": [1, 2, 3]})
    assert frame["label"].to_list() == codes
    assert frame["pair"].to_list() == ["a.jsonl:1", "a.jsonl:2", "b.jsonl:1", "b.jsonl:2"]


def test_files_can_be_splits_some_rows_wait_to_be_drawn_and_a_blank_line_is_no_row(tmp_path):
    content = HEADER + b"x,y,z,exact\n\nx,y,z,partial\n\n"
    frame = read(
        written(tmp_path, a_csv=content, b_csv=content, c_csv=content),
        pairs({"drawn": ["a.csv", "b.csv"], "test": "c.csv"}),
    )
    assert frame["split"].to_list() == [None] * 4 + ["test"] * 2
    assert frame["label"].to_list() == [2, 1] * 3


def test_queries_and_candidates_are_looked_up_by_id(tmp_path):
    judged = [{"qid": qid, "doc": f"d-{doc}", "label": label} for qid, doc, label in ((4, 2, 0), (5, 1, 1), (4, 1, 1))]
    queries = [{"_id": 4, "text": "of wings"}, {"_id": 5, "text": "of heat"}, {"_id": 6, "text": "unused"}]
    documents = [{"id": "d-1", "title": "Wings", "text": ""}, {"id": "d-2", "title": None, "text": "Warmth."}]
    options = {
        "labels": ["no", "yes"],
        "pairs": {
            **{"path": "p.tsv.gz", "group": "qid", "query": "qid", "candidate": "doc", "label": "label"},
            "queries": {"path": "q.csv", "id": "_id", "text": "text"},
            "candidates": {"path": "d.jsonl.gz", "id": "id", "text": ["title", "text"]},
        },
    }
    frame = read(written(tmp_path, p_tsv_gz=judged, q_csv=queries, d_jsonl_gz=documents), options)
    assert frame.select("group", "label", "text").rows() == [
        ("4", 0, "query: of wings\ncandidate: Warmth."),
        ("5", 1, "query: of heat\ncandidate: Wings"),
        ("4", 1, "query: of wings\ncandidate: Wings"),
    ]


@pytest.mark.parametrize("name", ["a.txt", "a.svmlight.gz"])
def test_features_keep_groups_that_are_no_integers(tmp_path, name):
    text = b"0 qid:test_0 1:0.5 3:2\n2 qid:test_0 2:-1\n1 qid:b-1 1:1 2:1 3:1\n"
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    frame = read(tmp_path, {"labels": ["a", "b", "c"], "features": {"path": {"train": name}, "width": 3}})
    assert frame.select("pair", "split", "group", "label").rows() == [
        (f"{name}:1", "train", "test_0", 0),
        (f"{name}:2", "train", "test_0", 2),
        (f"{name}:3", "train", "b-1", 1),
    ]
    np.testing.assert_array_equal(frame["features"].to_numpy(), [[0.5, 0, 2], [0, -1, 0], [1, 1, 1]])


def test_labels_of_minus_one_and_one_are_names(tmp_path):
    folder = written(tmp_path, a_txt="-1 qid:1 1:1\n+1.0 qid:1 1:2\n1 qid:1 1:3\n")
    assert read(folder, {"labels": [-1, 1], "features": {"path": "a.txt", "width": 1}})["label"].to_list() == [0, 1, 1]


# Bad input -------------------------------------------------------------------------------------------------------


def changed(row: int, **values: Any) -> list[dict[str, Any]]:
    return [{**one, **values} if place == row else one for place, one in enumerate(ROWS, start=1)]


BAD_FILES = {  # file, its bytes or rows, options, what is said of it
    "an unknown label": ("a.csv", changed(3, grade="so so"), {}, r", row 3, column 'grade': found 'so so'"),
    "a null label": ("a.csv", changed(2, grade=None), {}, r", row 2, column 'grade': found None"),
    "a null group": ("a.jsonl", changed(2, q=None), {}, r", row 2, column 'q': found None"),
    "a null text": ("a.csv", changed(1, name=None, about=None), {}, r", row 1, column 'name, about'"),
    "a missing column": ("a.csv", ROWS, {"label": "rating"}, r" has no column 'rating'; it has n, q, name"),
    "numbers for a text": ("a.jsonl", ROWS, {"query": "n"}, r", column 'n' is Int64, not text"),
    "a list for a label": ("a.jsonl", changed(1, grade=[1])[:1], {}, r", column 'grade' is List"),
    "an unknown split": ("a.csv", ROWS, {"split": "part"}, r", row 3, column 'part': found 'dev'"),
    "a null id": ("a.csv", changed(4, n=None), {"pair": "n"}, r", row 4, column 'n': found None"),
    "a cut gzip file": ("a.csv.gz", bytes_of("a.csv.gz", ROWS)[:-9], {}, r" is a cut or corrupt gzip"),
    "a cut parquet file": ("a.parquet", bytes_of("a.parquet", ROWS)[:-9], {}, r" is not a whole parquet"),
    "a cut JSON line": ("a.jsonl", bytes_of("a.jsonl", ROWS)[:-9], {}, r", line 4 is not one JSON object"),
    "a JSON array": ("a.jsonl", json.dumps(ROWS).encode(), {}, r", line 1 is not one JSON object"),
    "an open quote": ("a.csv", HEADER + b'x,"y,z,exact\n', {}, r" is not a whole table"),
    "a header alone": ("a.csv", HEADER, {}, r" holds no row"),
    "a page": ("a.jsonl", b"\n<html><title>Sign in</title></html>", {}, r" is a web page"),
    "no text at all": ("a.csv", HEADER + b"\xff\xfe,y,z,exact\n", {}, r" is not a whole table"),
}


@pytest.mark.parametrize(("name", "content", "changes", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_named(tmp_path, name, content, changes, message):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else bytes_of(name, content))
    with pytest.raises(BadInput, match=name + message):
        read(tmp_path, pairs(name, **changes))


def test_a_missing_file_and_a_repeated_id_are_named(tmp_path):
    with pytest.raises(BadInput, match=r"a\.csv is missing"):
        read(tmp_path, pairs("a.csv"))
    with pytest.raises(BadInput, match=f"{tmp_path}: the pair id '2' is given more than once"):
        read(written(tmp_path, a_csv=changed(4, n=2)), pairs("a.csv", pair="n"))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("x", "of x")], r"row 2, column 'q': found 'y'; no row of the table"),
        ([("x", "of x"), ("x", "of y")], r"q\.csv, row 1, column 'id': found 'x'"),
        ([("x", "of x"), ("y", None)], r"row 2, column 'q': found ''"),
    ],
)
def test_a_bad_table_of_queries_is_named(tmp_path, rows, message):
    queries, judged = [{"id": key, "text": text} for key, text in rows], changed(1, q="x")[:1] + changed(2, q="y")[1:2]
    with pytest.raises(BadInput, match=message):
        read(written(tmp_path, q_csv=queries, a_csv=judged), pairs("a.csv", queries=LOOKUP))


FEATURES = {"path": "a.txt", "width": 2}
BAD_LINES = {
    "a NaN": ("0 qid:1 1:nan 2:1", r"'feature': found '1:nan'; its value must be a finite number"),
    "an infinity": ("0 qid:1 1:1 2:inf", r"'feature': found '2:inf'; its value"),
    "a feature too many": ("0 qid:1 3:1", r"'feature': found '3:1'; .*1\.\.2"),
    "a feature counted from 0": ("0 qid:1 0:1", r"'feature': found '0:1'; .*1\.\.2"),
    "a number alone": ("0 qid:1 4 2:1", r"'feature': found '4'; .*1\.\.2"),
    "a word alone": ("0 qid:1 1:1 two", r"'feature': found 'two'; .*<place>:<number>"),
    "another word for the group": ("0 query:1 1:1 2:1", r"'group': found 'query:1'; there must be `qid:<group>`"),
    "a label alone": ("0", r"'group': found None; there must be `qid:<group>`"),
    "an unknown label": ("3 qid:1 1:1 2:1", r"'label': found '3'; it must be one of"),
    "a feature twice": ("0 qid:1 2:1 2:1", r"'feature': found '2:1' .*; this feature is given more than once"),
}


@pytest.mark.parametrize(("line", "message"), BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_of_features_is_named(tmp_path, line, message):
    folder = written(tmp_path, a_txt=f"0 qid:1 1:0.5 2:1 # first\n\n{line}\n1 qid:2 1:3 2:4\n")
    with pytest.raises(BadInput, match=rf"a\.txt, row 3, column {message}"):
        read(folder, {"labels": ["no", "yes"], "features": FEATURES})


def hub_options(**changes: Any) -> dict[str, Any]:
    return {"id": "shop/judged", "revision": COMMIT, "labels": LABELS, "splits": SPLITS, **COLUMNS, **changes}


COMMIT = "0123456789abcdef0123456789abcdef01234567"
SPLITS = {"train": "drawn", "dev": "validation", "test": "test"}
BAD_OPTIONS = {  # reader, options, what is said
    "an unknown name": ("files", pairs("a.csv", groups="q"), r"pairs\.groups: Extra inputs are not permitted"),
    "a missing name": ("files", pairs("a.csv", label=None), r"pairs\.label: Field required"),
    "one label": ("files", pairs("a.csv") | {"labels": ["yes"]}, r"labels: .*at least 2"),
    "labels that are equal": ("files", pairs("a.csv") | {"labels": ["a", "a"]}, "labels must differ"),
    "texts and features": ("files", pairs("a.csv") | {"features": FEATURES}, "give either"),
    "nothing to read": ("files", {"labels": LABELS}, "give either"),
    "an unknown format": ("files", pairs("a.xlsx"), r"'a\.xlsx' ends in none of"),
    "one base name twice": ("files", pairs(["x/a.csv", "y/a.csv"]), r"a\.csv is named twice"),
    "a split of another name": ("files", pairs("a.csv", split="part", splits={"dev": "valid"}), r"splits\.dev"),
    "splits without a column": ("files", pairs("a.csv", splits={"dev": "validation"}), "none is named"),
    "two ways to split": ("files", pairs({"train": "a.csv"}, split="part"), "not both"),
    "two columns of ids": ("files", pairs("a.csv", candidates=LOOKUP), "`candidate` must name one column"),
    "a branch": ("hub", hub_options(revision="main"), r"revision: .*40 hex.*`History`.*found 'main'"),
    "a short commit": ("hub", hub_options(revision=COMMIT[:7]), r"40 hexadecimal digits"),
    "an address for an id": ("hub", hub_options(id="https://huggingface.co/datasets/a/b"), r"id: String should match"),
    "no splits": ("hub", hub_options(splits={}), r"splits: "),
}


@pytest.mark.parametrize(("reader", "options", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_bad_options_are_named(reader, options, message):
    with pytest.raises(BadInput, match=rf"(?s)options of shop: .*{message}"):
        dataset_named("shop", reader, options)


# The same pairs in a repository of the hub, as it lies in the raw folder ------------------------------------------

JUDGED = [{key: row[key] for key in ("n", "q", "name", "about", "grade")} for row in ROWS[:3]]


def repository(folder: Path, files: dict[str, bytes], card: str = "") -> Path:
    """A raw folder with these files, a card, and our own note of what was downloaded."""
    own = {"README.md": f"---\n{card}---\n# Judged\n".encode(), "source.json": b'{"dataset": "shop", "files": []}'}
    for name, content in {**own, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def read_hub(folder: Path, **changes: Any) -> Judged:
    return dataset_named("shop", "hub", hub_options(**changes)).read(folder)


def by_splits(rows: list[dict[str, Any]] = JUDGED, ending: str = ".parquet") -> dict[str, bytes]:
    names = [f"data/{split}-00000-of-00001{ending}" for split in SPLITS]
    return {name: bytes_of(name, rows) for name in names}


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl", ".csv.gz", ".jsonl.gz"])
def test_a_repository_of_every_format_gives_the_pairs_of_the_files(tmp_path, ending):
    same = read(written(tmp_path, a_csv=JUDGED), pairs("a.csv")).drop("pair", "split")
    frame = read_hub(repository(tmp_path / "hub", by_splits(ending=ending))).pairs
    assert dict(frame.schema) == SCHEMA
    for place, (theirs, ours) in enumerate({"train": None, "dev": "validation", "test": "test"}.items()):
        part = frame[3 * place : 3 * place + 3]
        assert part.drop("pair", "split").equals(same)
        assert part["pair"].to_list() == [f"{theirs}:{row}" for row in (1, 2, 3)]
        assert part["split"].to_list() == [ours] * 3


def test_the_card_says_which_files_are_which_configuration(tmp_path):
    one = "- config_name: {}\n  data_files:\n  - split: train\n    path: {}/*\n"
    card = f"configs:\n{one.format('en', 'one')}{one.format('fr', 'two')}"
    files = {"one/a.parquet": bytes_of("a.parquet", JUDGED), "two/b.parquet": bytes_of("b.parquet", JUDGED[2:])}
    folder, splits = repository(tmp_path, files, card), {"train": "drawn"}
    assert len(read_hub(folder, config="en", splits=splits).pairs) == 3
    assert read_hub(folder, config="fr", splits=splits).pairs["group"].to_list() == ["lampe à gaz"]
    with pytest.raises(BadInput, match=r"Config name is missing.*\['en', 'fr'\]"):
        read_hub(folder, splits=splits)
    with pytest.raises(BadInput, match=r"BuilderConfig 'de' not found.*\['en', 'fr'\]"):
        read_hub(folder, config="de", splits=splits)


def test_our_own_note_beside_the_files_is_no_data(tmp_path):
    folder = repository(tmp_path, {"pairs.jsonl": bytes_of("a.jsonl", JUDGED)})  # no split: all files are `train`
    assert len(read_hub(folder, splits={"train": "drawn"}).pairs) == 3


def test_classes_of_the_card_are_names_in_an_order_of_their_own_and_are_those_of_the_options(tmp_path):
    def classes(*names: str) -> str:
        features: list[dict[str, Any]] = [{"name": name, "dtype": "string"} for name in ("q", "name", "about")]
        by_code = {str(code): name for code, name in enumerate(names)}
        features.append({"name": "grade", "dtype": {"class_label": {"names": by_code}}})
        sizes = [{"name": "train", "num_bytes": 1, "num_examples": 99}]  # of the whole set, not of the files taken
        return f"dataset_info: {json.dumps({'features': features, 'splits': sizes})}\n"

    files = by_splits([{key: row[key] for key in ("q", "name", "about", "grade")} for row in graded(0, 2, 1)])
    folder = repository(tmp_path / "a", files, classes("exact", "partial", "irrelevant"))
    assert read_hub(folder, splits={"train": "train"}).pairs["label"].to_list() == [2, 0, 1]
    with pytest.raises(BadInput, match=r"column 'grade' names its labels bad, good, best, but .* irrelevant, partial"):
        read_hub(repository(tmp_path / "b", files, classes("bad", "good", "best")))


def test_numbers_are_labels_and_ids_on_the_hub_too(tmp_path):
    frame = read_hub(repository(tmp_path, by_splits(graded(2, 0, 1))), pair="n", splits={"test": "test"}).pairs
    assert (frame["label"].to_list(), frame["pair"].to_list()) == ([2, 0, 1], ["1", "2", "3"])


def test_pairs_without_text_go_only_when_asked(tmp_path):
    folder = repository(tmp_path, by_splits([row | {"name": ""} for row in JUDGED]))  # the second has no text then
    with pytest.raises(BadInput, match=r"train, row 2, column 'name, about': found ''; .*drop_empty"):
        read_hub(folder)
    judged = read_hub(folder, drop_empty=True)
    assert (len(judged.pairs), judged.dropped) == (6, {"without text": 3})


WHOLE = bytes_of("a.parquet", JUDGED)
BAD_FOLDERS = {  # files, options, what is said
    "a script alone": ({"judged.py": b"raise SystemExit\n"}, {}, r"split train cannot be read"),
    "no data": ({}, {}, r"split train cannot be read: .*doesn't contain any data files"),
    "a cut file": ({"train.parquet": WHOLE[:-9]}, {}, r"train\.parquet is not a whole parquet file"),
    "a cut line": ({"train.jsonl": bytes_of("a.jsonl", JUDGED)[:-9]}, {}, r"split train cannot be read: .*JSON"),
    "no such split": ({"train.parquet": WHOLE}, {}, r"split dev cannot be read: Unknown split .dev."),
    "no such column": (by_splits(), {"label": "stars"}, r"train has no column 'stars'; it has n, q, name, about"),
    "a number for a text": (by_splits(), {"query": "n"}, r"train, column 'n' is Int64, not text"),
    "an id twice": (by_splits(), {"pair": "n"}, r"the pair id '1' is given more than once"),
}


@pytest.mark.parametrize(("files", "changes", "message"), BAD_FOLDERS.values(), ids=BAD_FOLDERS)
def test_a_bad_folder_is_named(tmp_path, files, changes, message):
    with pytest.raises(BadInput, match=rf"(?s){message}"):
        read_hub(repository(tmp_path, files), **changes)


# Real rows, where they are at hand -------------------------------------------------------------------------------

SETS = yaml.safe_load((Path(__file__).resolve().parent.parent / "flows/real_sets.yaml").read_text())
REAL = {  # set -> groups, rows of each label
    "home_depot_label3": (11_795, [5_120, 34_590, 34_357]),
    "home_depot_label5": (11_795, [5_115, 6_794, 11_730, 31_303, 19_125]),
    "mq2008": (784, [12_279, 2_001, 931]),
    "science": (353, [22_305, 5_521]),
    "wikiqa": (3_047, [27_785, 1_473]),
}


@pytest.mark.real_data
@pytest.mark.skipif("REAL_DATA" not in os.environ, reason="REAL_DATA names no folder")
@pytest.mark.parametrize(("name", "expected"), REAL.items(), ids=REAL)
def test_real_sets_are_read_whole(name, expected):
    path = Path(SETS[name]["path"].replace("REAL_DATA", os.environ["REAL_DATA"]))
    frame = read(path.parent if path.is_file() else path, SETS[name]["options"])
    labels = frame["label"].value_counts().sort("label")["count"].to_list()
    assert (frame["group"].n_unique(), labels) == expected
    assert frame["pair"].is_unique().all()
