"""The readers of the six official sets, on raw folders of the official layout that are written here."""

from __future__ import annotations

import gzip
import io
import logging
import math
import os
import random
import re
import shutil
import tempfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from samples.official import PAGE, POINTER, WRITERS, svmlight_line
from sklearn.datasets import load_svmlight_file

from tasks.datasets import DATASETS
from tasks.datasets.base import TEXT_SCHEMA, Judged
from tasks.datasets.lists import ListOptions, exploded, list_pairs
from tasks.datasets.mslr_web10k import read_part
from tasks.datasets.svmlight import read_svmlight
from tasks.datasets.wands import read_queries
from tasks.protocol.errors import BadInput
from tasks.protocol.splits import draw_splits
from tasks.sources.origin import Origin, Published, RawFile

REAL = Path(os.environ.get("REAL_DATA", ""))
real_data = pytest.mark.skipif("REAL_DATA" not in os.environ, reason="REAL_DATA names no folder")


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One raw folder for each data set; never changed."""
    folder = tmp_path_factory.mktemp("raw")
    for name, write in WRITERS.items():
        write(folder / name)
    return folder


def read(raw: Path, name: str, **options: Any) -> pl.DataFrame:
    return DATASETS[name].read(raw / name, options).pairs


# What holds for all six ------------------------------------------------------------------------------------------


def test_the_data_sets_are_those_of_the_paper_in_its_order():
    assert list(DATASETS) == list(WRITERS)
    assert [dataset.n_labels for dataset in DATASETS.values()] == [4, 5, 2, 2, 3, 2]


@pytest.mark.parametrize("name", WRITERS)
def test_a_data_set_says_where_it_comes_from(name: str):
    dataset = DATASETS[name]
    assert dataset.name == name
    for text in (dataset.title, dataset.domain, dataset.task, dataset.bibkey):
        assert text
    for origin in dataset.origins.values():
        assert all((origin.licence, origin.terms.endswith("."), origin.revision, origin.files, origin.published))
        assert origin.homepage.startswith("https://")
        assert len({file.path for file in origin.files}) == len(origin.files)
        # a file has an address of its own, or lies in the one repository or archive
        homes = [origin.repository, origin.archive] + [file.url for file in origin.files]
        assert sum(map(bool, homes)) == (len(origin.files) if origin.files[0].url else 1)
        assert origin.repository is None or re.fullmatch("[0-9a-f]{40}", origin.revision)
        for file in (*origin.files, *([origin.archive] if origin.archive else [])):
            assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)


@pytest.mark.parametrize("name", WRITERS)
def test_the_options_choose_among_the_origins(name: str):
    dataset = DATASETS[name]
    assert dataset.origin({}) is next(iter(dataset.origins.values()))  # the one that is used by default comes first
    if dataset.origin_option:
        for key, origin in dataset.origins.items():
            assert dataset.origin({dataset.origin_option: key}) is origin


@pytest.mark.parametrize("name", WRITERS)
def test_origins_are_plain_values(name: str):
    origins = DATASETS[name].origins
    names = {"Origin": Origin, "RawFile": RawFile, "Published": Published}
    assert eval(repr(dict(origins)), names) == origins  # a test may put others in their place


@pytest.mark.parametrize("name", WRITERS)
def test_every_reader_gives_the_declared_frame(raw: Path, name: str):
    dataset, frame = DATASETS[name], read(raw, name)
    if dataset.features:
        assert frame.columns == ["pair", "split", "group", "features", "label"]
        assert frame.schema["features"] == pl.Array(pl.Float32, dataset.features)
        assert {column: frame.schema[column] for column in frame.columns if column != "features"} == {
            column: TEXT_SCHEMA[column] for column in ("pair", "split", "group", "label")
        }
    else:
        assert dict(frame.schema) == TEXT_SCHEMA
        assert frame["candidate"].str.strip_chars().str.len_chars().min() > 0
    assert not frame["pair"].has_nulls()
    assert frame["pair"].is_unique().all()
    assert frame["label"].is_between(0, dataset.n_labels - 1).all()
    assert frame["split"].is_in(["train", "validation", "test"]).all()
    assert frame.equals(read(raw, name))


@pytest.mark.parametrize("name", WRITERS)
def test_no_group_is_both_tested_and_learnt_from(raw: Path, name: str):
    frame = draw_splits(read(raw, name), by="group", shares={"train": 0.6, "validation": 0.4}, seed=0)
    assert frame.group_by("group").agg(pl.col("split").n_unique())["split"].max() == 1


@pytest.mark.parametrize("name", WRITERS)
def test_an_unknown_option_is_refused_by_name(raw: Path, name: str):
    with pytest.raises(BadInput, match=rf"(?s){name}.*versoin.*nonsense"):
        read(raw, name, versoin="nonsense")


@pytest.mark.parametrize("name", WRITERS)
def test_defaults_are_declared(raw: Path, name: str):
    assert read(raw, name, **DATASETS[name].options).equals(read(raw, name))


# Each of them ----------------------------------------------------------------------------------------------------


def test_esci_is_joined_on_locale_and_id(raw: Path):
    frame = read(raw, "amazon_esci", locale="all")
    assert frame["pair"].to_list() == ["0", "1", "3", "4", "5", "6", "7", "8", "9"]  # 2 has no product
    by_pair = dict(zip(frame["pair"], frame["candidate"], strict=True))
    assert by_pair["0"] == "Lamp bright"
    assert by_pair["5"] == "Lámpara"
    assert frame["label"].to_list() == [0, 1, 2, 0, 0, 3, 0, 0, 1]
    assert frame["split"].to_list() == [None, None, "test", "test", None, "test", None, None, None]
    assert frame["query"][0] == " !desk lamp"


@pytest.mark.parametrize(
    ("options", "pairs"),
    [
        ({}, "0134789"),
        ({"version": "small"}, "01"),
        ({"version": "large_only"}, "34789"),
        ({"version": "large_only", "locale": "jp"}, "6"),
        ({"version": "small", "locale": "es"}, "5"),
    ],
)
def test_esci_options_choose_the_judgements(raw: Path, options: dict[str, str], pairs: str):
    assert read(raw, "amazon_esci", **options)["pair"].to_list() == list(pairs)


def test_esci_text_fields_are_joined_as_far_as_they_exist(raw: Path):
    fields = ["product_brand", "product_title", "product_color", "product_bullet_point"]
    frame = read(raw, "amazon_esci", text_fields=fields)
    assert frame["candidate"].to_list() == [
        "Lamp red bright",
        "Weaver Rug",
        "Lamp red bright",
        "Joiner Oak chair brown four legs",
        "Weaver Rug",
        "Rug",
        "Rug",
    ]


def test_esci_files_are_those_that_pandas_and_arrow_leave(raw: Path):
    examples, products = (pq.read_schema(raw / "amazon_esci" / name) for name in (EXAMPLES, PRODUCTS))
    assert examples.names[-1] == "__index_level_0__"
    assert examples.field("query").type == pa.large_string()
    assert products.field("product_title").type == pa.string()


def test_a_query_in_both_splits_of_esci_is_only_tested_and_that_is_said(raw: Path, caplog: pytest.LogCaptureFixture):
    dropped = DATASETS["amazon_esci"].read(raw / "amazon_esci", {}).dropped
    assert dropped == {"without text": 1, "of a query that is tested": 1}
    (said,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert said.message == "amazon_esci: 1 pairs of the train split are of a query that is tested, left out"
    caplog.clear()
    read(raw, "amazon_esci", version="small")
    assert not caplog.records


@pytest.mark.parametrize(
    ("name", "group", "text", "labels"), [("amazon_esci", "14", "Rug", [0, 0, 1]), ("wands", "2", "vase", [1, 2, 2])]
)
def test_graded_products_of_one_text_were_judged_apart(raw: Path, name: str, group: str, text: str, labels: list[int]):
    assert read(raw, name).filter(group=group, candidate=text)["label"].sort().to_list() == labels


def test_mslr_keeps_its_three_files_apart(raw: Path):
    frame = read(raw, "mslr_web10k")
    assert frame["pair"].to_list() == [
        *("train:1", "train:3", "train:4", "train:5", "train:6"),
        *("vali:1", "vali:3", "test:1", "test:3"),
    ]
    assert frame["split"].to_list() == ["train"] * 5 + ["validation"] * 2 + ["test"] * 2
    assert frame["group"].to_list() == ["16", "16", "16", "7", "7", "30", "31", "40", "40"]
    assert frame["label"].to_list() == [0, 2, 4, 0, 1, 0, 3, 1, 4]


def test_mslr_features_are_those_of_scikit_learn(raw: Path):
    path = raw / "mslr_web10k" / "MSLR-WEB10K" / "Fold1" / "train.txt"
    reference, _ = load_svmlight_file(str(path), n_features=136, zero_based=False)
    features = read(raw, "mslr_web10k").filter(split="train")["features"].to_numpy()
    np.testing.assert_array_equal(features, reference.toarray().astype(np.float32))


def test_another_fold_is_another_file(raw: Path):
    with pytest.raises(BadInput, match=r"no Fold2/train\.txt"):
        read(raw, "mslr_web10k", fold=2)


def test_alloprof_ids_become_texts_and_an_id_in_both_lists_goes(raw: Path):
    frame = read(raw, "alloprof_rerank")
    first = frame.filter(group="qu'est-ce que 0 ?").sort("pair")
    assert first["pair"].to_list() == ["train-0:0:negative:1", "train-0:0:negative:2", "train-0:0:positive:0"]
    assert first["label"].to_list() == [0, 0, 1]
    assert first["candidate"][2] == "Leçon 0\nles égalités\n"
    assert not frame["candidate"].str.contains(r"^d\d").any()  # ids never become a text
    assert set(frame.filter(pl.col("candidate").str.len_chars() > 20_000)["split"]) == {None, "test"}  # shared
    assert frame.group_by("split").len().sort("split")["len"].to_list() == [3 + 11 * 12, 5 * 11]


def test_queries_with_one_kind_of_candidates_go_unless_asked_for(raw: Path):
    both = read(raw, "esci_rerank_us")
    assert both["group"].unique().sort().to_list() == [
        *("blank a", "blank b", "blank c", "lamp a", "lamp b", "lamp c", "many of c")
    ]
    everything = read(raw, "esci_rerank_us", require_both=False)
    assert {"only good a", "only bad c"} <= set(everything["group"])
    assert not everything["group"].str.ends_with(" d").any()  # another locale


def test_dropped_pairs_are_counted(raw: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO):
        read(raw, "esci_rerank_us")
    # three rows `blank`: one empty text, one text in both lists, one text twice
    assert caplog.records[0].dropped == {
        "without text": 3,
        "both positive and negative": 6,
        "repeated": 3,
        "of a query that is tested": 0,
    }


@pytest.mark.parametrize("name", ["alloprof_rerank", "esci_rerank_us", "scidocs"])
def test_caps_hold_for_each_query_and_keep_a_part_of_what_larger_caps_keep(raw: Path, name: str):
    def capped(positive: int | None, negative: int | None) -> pl.DataFrame:
        return read(raw, name, cap_positive=positive, cap_negative=negative)

    small, large = capped(2, 3), capped(4, None)
    counts = small.group_by("group", "label").len()
    assert counts.filter(label=1)["len"].max() == 2
    assert counts.filter(label=0)["len"].max() == 3
    assert set(small["pair"]) <= set(large["pair"]) <= set(read(raw, name)["pair"])
    assert set(small["group"]) == set(read(raw, name)["group"])


KINDS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=4).filter(
    lambda sizes: any(map(sum, sizes))
)
RATIOS = st.integers(1, 50).map(lambda tenths: tenths / 10)
CAPS = st.none() | st.integers(1, 12)


def with_ratio(sizes: list[tuple[int, int]], **options: Any) -> Judged:
    """Queries with so many positives and negatives each, through the rules of the list sets."""
    lists = [
        (f"q{query}", *([f"{kind} {query} {place}" for place in range(size)] for kind, size in both.items()))
        for query, both in enumerate({"good": positives, "bad": negatives} for positives, negatives in sizes)
    ]
    schema = {"query": pl.String, "positive": pl.List(pl.String), "negative": pl.List(pl.String)}
    rows = pl.DataFrame(lists, schema=schema, orient="row").with_row_index("(row)", offset=1)
    return list_pairs([exploded(rows, "train", None)], "made_up", ListOptions(**options), {})


@settings(deadline=None, max_examples=60)
@example(sizes=[(25, 60)], ratio=2.2, more=0.1, positive=None, negative=None)  # a product of floats is above 55
@given(sizes=KINDS, ratio=RATIOS, more=RATIOS, positive=CAPS, negative=CAPS)
def test_negatives_are_so_many_for_each_positive_that_is_kept(
    sizes: list[tuple[int, int]], ratio: float, more: float, positive: int | None, negative: int | None
):
    caps = {"cap_positive": positive, "cap_negative": negative}
    found = with_ratio(sizes, negatives_per_positive=ratio, **caps)
    for query, (positives, negatives) in enumerate(sizes):
        labels = found.pairs.filter(group=f"q{query}")["label"]
        kept = min(positives, positive or positives)
        most = math.ceil(kept * Fraction(str(ratio)))  # of exact numbers
        assert (labels == 1).sum() == kept
        assert (labels == 0).sum() == min(negatives, negative or negatives, most)
    assert len(found.pairs) + sum(found.dropped.values()) == sum(map(sum, sizes))
    assert found.dropped["over a cap"] == sum(found.dropped.values())
    larger = with_ratio(sizes, negatives_per_positive=ratio + more, **caps).pairs
    assert set(found.pairs["pair"]) <= set(larger["pair"]) <= set(with_ratio(sizes, **caps).pairs["pair"])
    assert found.pairs["pair"].to_list() == [pair for pair in larger["pair"] if pair in set(found.pairs["pair"])]


def test_many_positives_are_counted_right():
    labels = with_ratio([(300, 1200)], negatives_per_positive=2).pairs["label"]
    assert labels.value_counts().sort("label")["count"].to_list() == [600, 300]


@pytest.mark.parametrize("wrong", [0, -1, math.inf, math.nan, "many"])
def test_a_ratio_that_is_none_is_refused(raw: Path, wrong: Any):
    with pytest.raises(BadInput, match="negatives_per_positive"):
        read(raw, "scidocs", negatives_per_positive=wrong)


@pytest.mark.parametrize("name", ["alloprof_rerank", "esci_rerank_us", "scidocs"])
def test_the_order_of_candidates_does_not_tell_the_label(raw: Path, name: str):
    frame = read(raw, name)
    for descending in (True, False):
        in_order = frame.group_by("group").agg(pl.col("label").is_sorted(descending=descending))
        assert not in_order["label"].all()


def test_wands_survives_inch_marks_tabs_and_accents(raw: Path):
    frame = read(raw, "wands")
    assert frame["pair"].to_list() == ["0", "1", "5", "6", "9", "11", "13"]
    assert frame["query"].to_list() == ['48" desk'] * 2 + ["décor"] * 5
    assert frame["candidate"][0] == 'desk 48 " wide made of "oak"\tand\nsteel'
    assert frame["candidate"][1] == "vase"
    assert frame["label"].to_list() == [2, 0, 2, 0, 1, 2, 1]
    assert frame["split"].null_count() == 7


def test_wands_reads_the_column_with_a_space_in_its_name(raw: Path):
    frame = read(raw, "wands", text_fields=["product_name", "category hierarchy", "product_features"])
    assert frame["candidate"][0] == 'desk 48 " wide Office / Desks width : 48'


def test_scidocs_groups_by_title_and_forgets_titles_that_are_tested(raw: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO):
        frame = read(raw, "scidocs")
    assert frame["group"].unique(maintain_order=True).to_list() == [
        "on graphs",
        "on trees",
        "shared title",
        "on lattices",
    ]
    assert frame.filter(group="shared title")["split"].unique().to_list() == ["test"]
    assert caplog.records[0].dropped["of a query that is tested"] == 30
    # titles 0 to 29 and 3 to 32, the first five of each positive: 5, 6 and 7 are judged both ways
    graphs = frame.filter(group="on graphs")
    assert sorted(set(range(33)) - {int(text.split()[1]) for text in graphs["candidate"]}) == [5, 6, 7]
    assert graphs.filter(label=1)["candidate"].sort().to_list() == [f"Study {i} of matters" for i in range(5)]


# svmlight --------------------------------------------------------------------------------------------------------


def test_sparse_lines_comments_and_other_groups_are_understood(tmp_path: Path):
    path = tmp_path / "some.svmlight"
    path.write_text("1 qid:a_7 2:0.5 4:-1e3 #docid = GX-1 inc = 1\n\n0 qid:b\n2   qid:b 1:3\t\n".replace("\t", " "))
    frame = read_svmlight(path, 4)
    assert frame["(row)"].to_list() == [1, 3, 4]
    assert frame["group"].to_list() == ["a_7", "b", "b"]
    np.testing.assert_array_equal(frame["features"].to_numpy(), [[0, 0.5, 0, -1000], [0, 0, 0, 0], [3, 0, 0, 0]])


def test_a_dense_file_and_its_shuffled_features_are_read_alike(tmp_path: Path):
    features = np.random.default_rng(1).normal(size=(40, 6)).round(4)
    shuffled = random.Random(0)
    dense, loose = tmp_path / "dense.txt", tmp_path / "loose.txt"
    lines = [svmlight_line(i % 3, f"q{i // 5}", row) for i, row in enumerate(features)]
    dense.write_text("\n".join(lines) + "\n")
    mixed = []
    for line in lines:
        label, group, *tokens = line.split()
        shuffled.shuffle(tokens)
        mixed.append(" ".join([label, group, *tokens]))
    loose.write_bytes(gzip.compress("\r\n".join(mixed).encode()))
    assert read_svmlight(dense, 6).equals(read_svmlight(loose, 6))


@pytest.mark.parametrize(
    ("odd", "features"),
    [
        (" 1 qid:b 1:3 2:4", [3, 4]),
        ("   1 qid:b 1:3 2:4", [3, 4]),
        ("1 qid:b 1:3 2:4  ", [3, 4]),
        ("1 qid:b 2:4", [0, 4]),
        ("1 qid:b 2:4 1:3 # a comment 5:1", [3, 4]),
        ("1\tqid:b\t1:3\t2:4", [3, 4]),
        ("1 qid:b", [0, 0]),
    ],
)
def test_an_odd_line_among_dense_ones_is_not_lost(tmp_path: Path, odd: str, features: list[int]):
    path = tmp_path / "some.txt"
    path.write_text(f"0 qid:a 1:1 2:2 \n\n{odd}\n2 qid:c 1:5 2:6\n")
    frame = read_svmlight(path, 2)
    assert frame.drop("features").rows() == [(1, "0", "a"), (3, "1", "b"), (4, "2", "c")]
    np.testing.assert_array_equal(frame["features"].to_numpy(), [[1, 2], features, [5, 6]])


ROWS = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.integers(0, 10**6),
        st.dictionaries(st.integers(1, 5), st.integers(-(10**7), 10**7).map(lambda n: n / 1000), max_size=5),
    ),
    min_size=1,
    max_size=8,
)


@settings(deadline=None, max_examples=40)
@given(rows=ROWS, dense=st.booleans(), newline=st.sampled_from(["\n", "\r\n", " \n"]))
def test_any_lines_are_read_as_scikit_learn_reads_them(rows: list, dense: bool, newline: str):
    lines = []
    for label, group, given_features in rows:
        places = range(1, 6) if dense else sorted(given_features)
        lines.append(
            f"{label} qid:{group} " + " ".join(f"{place}:{given_features.get(place, 0)!r}" for place in places)
        )
    content = newline.join([*lines, ""]).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines.txt"
        path.write_bytes(content)
        frame = read_svmlight(path, 5)
    features, labels, groups = load_svmlight_file(io.BytesIO(content), n_features=5, query_id=True, zero_based=False)
    np.testing.assert_array_equal(frame["features"].to_numpy(), features.toarray().astype(np.float32))
    assert frame["label"].cast(pl.Int64).to_list() == labels.tolist()
    assert frame["group"].cast(pl.Int64).to_list() == groups.tolist()


# Bad input -------------------------------------------------------------------------------------------------------

EXAMPLES = "shopping_queries_dataset/shopping_queries_dataset_examples.parquet"
PRODUCTS = "shopping_queries_dataset/shopping_queries_dataset_products.parquet"
FOLD = "MSLR-WEB10K/Fold1"
QUERIES = "queries/train-00000-of-00001.parquet"
DOCUMENTS = "documents/test-00000-of-00001.parquet"
US = "us/test-00000-of-00001.parquet"

Change = Callable[[bytes], bytes]


def instead(content: bytes) -> Change:
    return lambda _: content


def replaced(old: str, new: str) -> Change:
    return lambda content: content.replace(old.encode(), new.encode(), 1)


def in_gzip(change: Change) -> Change:
    return lambda content: gzip.compress(change(gzip.decompress(content)))


def in_parquet(change: Callable[[pl.DataFrame], pl.DataFrame]) -> Change:
    def rewrite(content: bytes) -> bytes:
        buffer = io.BytesIO()
        change(pl.read_parquet(content)).write_parquet(buffer)
        return buffer.getvalue()

    return rewrite


def with_first(column: str, value: Any) -> Change:
    """The parquet file with another value in the first row of `column`."""
    first = pl.int_range(pl.len()) == 0
    return in_parquet(
        lambda frame: frame.with_columns(pl.when(first).then(pl.lit(value)).otherwise(column).alias(column))
    )


BROKEN = {  # what is broken: data set, file, the change, what the message must say
    "an empty file": ("wands", "dataset/query.csv", instead(b""), r"query\.csv is empty"),
    "an empty gzip file": ("scidocs", "test.jsonl.gz", in_gzip(instead(b"")), r"test\.jsonl\.gz is empty"),
    "a cut gzip file": ("scidocs", "test.jsonl.gz", lambda c: c[:-20], r"test\.jsonl\.gz is a cut or corrupt gzip"),
    "no gzip file": ("scidocs", "test.jsonl.gz", gzip.decompress, r"named \.gz but begins with"),
    "parquet without its end": (
        "amazon_esci",
        PRODUCTS,
        lambda c: c[:-12],
        r"products\.parquet is not a whole parquet",
    ),
    "parquet of noise": ("amazon_esci", EXAMPLES, lambda c: c[:4] + bytes(len(c) - 8) + c[-4:], r"not a whole parquet"),
    "a pointer for parquet": ("amazon_esci", EXAMPLES, instead(POINTER), r"examples\.parquet is a Git LFS pointer"),
    "a pointer for a table": ("wands", "dataset/product.csv", instead(POINTER), r"product\.csv is a Git LFS pointer"),
    "a pointer for lines": ("scidocs", "test.jsonl.gz", instead(POINTER), r"test\.jsonl\.gz is a Git LFS pointer"),
    "a pointer for svmlight": ("mslr_web10k", f"{FOLD}/vali.txt", instead(POINTER), r"vali\.txt is a Git LFS pointer"),
    "a page for parquet": ("esci_rerank_us", US, instead(PAGE), r"00001\.parquet is a web page"),
    "a page for svmlight": ("mslr_web10k", f"{FOLD}/test.txt", instead(PAGE), r"test\.txt is a web page"),
    "a missing column": (
        "wands",
        "dataset/label.csv",
        replaced("product_id", "sku"),
        r"no column 'product_id'; it has id",
    ),
    "a missing parquet column": (
        "amazon_esci",
        EXAMPLES,
        in_parquet(lambda frame: frame.drop("split")),
        r"no column 'split'; it has example_id",
    ),
    "a wrong type": (
        "amazon_esci",
        EXAMPLES,
        in_parquet(lambda frame: frame.with_columns(query=pl.lit(3))),
        r"column 'query' is Int32, not text",
    ),
    "texts where lists must be": (
        "alloprof_rerank",
        QUERIES,
        in_parquet(lambda frame: frame.with_columns(positive=pl.lit("d1"))),
        r"column 'positive' is String, not list of texts",
    ),
    "a table that is cut in a quoted field": (
        "wands",
        "dataset/product.csv",
        lambda c: c[:-40],
        r"not a whole table|names",
    ),
    "an unknown label": (
        "wands",
        "dataset/label.csv",
        replaced("Partial", "Partly"),
        r"row 5, column 'label': found 'Partly'",
    ),
    "a label that is cut": ("wands", "dataset/label.csv", lambda c: c[:-4], r"row 7, column 'label': found 'Part'"),
    "a null label": (
        "amazon_esci",
        EXAMPLES,
        with_first("esci_label", None),
        r"row 1, column 'esci_label': found None",
    ),
    "a grade of 5": (
        "mslr_web10k",
        f"{FOLD}/test.txt",
        replaced("4 qid", "5 qid"),
        r"row 3, column 'label': found '5'",
    ),
    "an unknown split": ("amazon_esci", EXAMPLES, with_first("split", "dev"), r"row 1, column 'split': found 'dev'"),
    "a repeated judgement": (
        "amazon_esci",
        EXAMPLES,
        with_first("example_id", 7),
        r"row 1, column 'example_id': found 7",
    ),
    "a repeated label id": ("wands", "dataset/label.csv", replaced("\n9\t", "\n5\t"), r"row 3, column 'id': found '5'"),
    "a repeated product": ("wands", "dataset/product.csv", replaced("\n2\t", "\n1\t"), r"'product_id': found '1'"),
    "a repeated document": ("alloprof_rerank", DOCUMENTS, with_first("doc_id", "d7"), r"'doc_id': found 'd7'"),
    "a label of an unknown product": ("wands", "dataset/label.csv", replaced("\t3\t", "\t30\t"), r"product_id '30'"),
    "an unknown document": ("alloprof_rerank", DOCUMENTS, with_first("doc_id", "d99"), r"train-0:0:positive:0.*'d0'"),
    "a null query": ("scidocs", "test.jsonl.gz", in_gzip(replaced('"shared Title"', "null")), r"row 1, column 'query'"),
    "a null list": ("esci_rerank_us", US, with_first("negative", None), r"row 1, column 'negative': found None"),
    "lines that are no JSON": (
        "scidocs",
        "test.jsonl.gz",
        in_gzip(replaced('\n{"query"', "\n{query")),
        r"line 2 is not",
    ),
    "a feature of NaN": ("mslr_web10k", f"{FOLD}/train.txt", replaced(" 7:", " 7:nan 8:"), r"line 1: found '7:nan"),
    "a feature of infinity": (
        "mslr_web10k",
        f"{FOLD}/train.txt",
        replaced(" 135:", " 135:1e39 136:"),
        r"'135:1e39'; its value",
    ),
    "a feature too many": ("mslr_web10k", f"{FOLD}/train.txt", replaced(" 136:", " 137:"), r"line 1: found '137:"),
    "a feature given twice": (
        "mslr_web10k",
        f"{FOLD}/train.txt",
        replaced(" 136:", " 135:"),
        r"line 1: feature 135 .* than once",
    ),
    "a line without a group": ("mslr_web10k", f"{FOLD}/train.txt", replaced("qid:7 ", ""), r"line 5: found '1:.*qid"),
    "a line that is cut": (
        "mslr_web10k",
        f"{FOLD}/test.txt",
        lambda c: c[: c.rindex(b":") + 1],
        r"line 3: found '136:'",
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_bad_input_is_named(raw: Path, tmp_path: Path, broken: str):
    name, file, change, says = BROKEN[broken]
    shutil.copytree(raw / name, tmp_path / name)
    path = tmp_path / name / file
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(BadInput, match=rf"(?s){says}"):
        read(tmp_path, name)


@pytest.mark.parametrize("name", WRITERS)
def test_each_declared_file_is_missed(raw: Path, tmp_path: Path, name: str):
    shutil.copytree(raw / name, tmp_path / name)
    for pattern in [file.path for file in DATASETS[name].origin({}).files]:
        assert any((raw / name).rglob(pattern))
        taken = {path: path.read_bytes() for path in (tmp_path / name).rglob(pattern)}
        for path in taken:
            path.unlink()
        with pytest.raises(BadInput, match=rf"holds no {re.escape(Path(pattern).name)[:4]}|holds no .*/"):
            read(tmp_path, name)
        for path, content in taken.items():
            path.write_bytes(content)
    assert read(tmp_path, name).equals(read(raw, name))


# Real rows, where they are at hand -------------------------------------------------------------------------------


@real_data
@pytest.mark.real_data
def test_real_mslr_lines_are_read():
    frame = read_part(REAL / "mslr_slice" / "qid4.svmlight.gz", "train", "train")
    assert frame["label"].value_counts().sort("label")["count"].to_list() == [59, 26, 17, 1]
    assert frame["group"].unique().to_list() == ["4"]
    assert frame["features"].arr.len().unique().to_list() == [136]


@real_data
@pytest.mark.real_data
def test_real_wands_queries_are_read():
    frame = read_queries(REAL / "fragments" / "raw" / "wands" / "query.csv.gz")
    assert len(frame) == 480
    assert frame["query_id"].cast(pl.Int64).max() == 487
    assert frame["query"].str.contains('"').any()
    assert not frame["query"].str.starts_with('"').all()
