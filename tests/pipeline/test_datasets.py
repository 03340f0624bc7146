"""The six data sets of the paper: sampling, texts of pairs, and errors."""

import errno
import logging
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import datasets
import numpy as np
import polars as pl
import pytest

from relmap.errors import InputError
from tasks.datasets import (
    DATASETS,
    alloprof_rerank,
    amazon_esci,
    esci_rerank_us,
    mslr_web10k,
    sampling,
    scidocs,
    wands,
)
from tasks.datasets.base import LabelledPairs, describe_differences
from tasks.datasets.raw import (
    ROW_NUMBER,
    RepositoryRows,
    _explain_machine_error,
    forbid_rows,
    import_hub_library,
)
from tasks.datasets.sampling import draw_candidates, draw_documents, draw_rows, split_by_query, split_queries
from tasks.settings.params import load_params
from tasks.simulation import simulate, write_repository


def read(folder: Path, name: str, tables: dict[tuple[str, str], pl.DataFrame]) -> pl.DataFrame:
    """Write a repository with tables, and read it as the data set `name`."""
    write_repository(folder, tables)
    return DATASETS[name].read(folder).pairs


@pytest.mark.parametrize(("size", "n_drawn"), [(100, 100), (500, 500), (60_000, 500), (None, 500)])
def test_a_sample_is_the_beginning_of_the_shuffle_of_the_library(size, n_drawn):
    shuffled = datasets.Dataset.from_dict({"row": list(range(500))}).shuffle(seed=20260515)["row"]
    drawn = draw_rows(pl.DataFrame({"row": range(500)}), 20260515, size)
    assert drawn["row"].to_list() == shuffled[:n_drawn]


def test_queries_are_split_60_20_20_and_stay_whole():
    """The 100 queries have three rows each, in a mixed order."""
    frame = pl.DataFrame({"query-id": [f"q{7 * row % 100:03}" for row in range(300)]})
    splits = split_by_query(frame, frame["query-id"], 7)
    expected_queries = np.split(np.random.default_rng(7).permutation(100), [60, 80])
    for (split, rows), queries in zip(splits.items(), expected_queries, strict=True):
        assert set(rows["query-id"]) == {f"q{query:03}" for query in queries}, split
        assert len(rows) == 3 * len(queries)


@pytest.mark.parametrize(
    ("n_queries", "sizes"),
    [
        (1, [1, 0, 0]),
        (2, [1, 1, 0]),
        (3, [2, 1, 0]),
        (8, [5, 2, 1]),
        (2316, [1390, 463, 463]),
        (3978, [2387, 796, 795]),
    ],
)
def test_the_shares_of_train_and_validation_are_rounded_and_at_least_one_query(n_queries, sizes):
    queries = pl.Series([f"q{number:04}" for number in range(n_queries)] * 2)
    parts = split_queries(queries, 5)
    assert [len(part) for part in parts.values()] == sizes
    order = np.random.default_rng(5).permutation(n_queries)
    assert parts["train"].to_list() == [f"q{number:04}" for number in sorted(order[: sizes[0]])]


def test_queries_without_a_pair_take_part_in_the_split():
    queries = pl.Series([*"abcdefghij"])
    pairs = pl.DataFrame({"query-id": [*"ba"]})
    parts = split_by_query(pairs, queries, 3)
    for split, own_queries in split_queries(queries, 3).items():
        assert parts[split]["query-id"].to_list() == [query for query in "ba" if query in own_queries]


def shuffled_candidates(labels: dict[str, list[int]], seed: int) -> list[str]:
    """Draw candidates with plain lists; a candidate is named `<query><position>`."""
    generator = np.random.default_rng(seed)
    drawn = []
    for query in sorted(labels):
        sides = []
        for label in (1, 0):
            sides.append([f"{query}{position}" for position, own in enumerate(labels[query]) if own == label])
        if all(sides):
            for side in sides:
                generator.shuffle(side)
            positive = sides[0][:5]
            drawn += [*positive, *sides[1][: len(positive)]]
    return [drawn[position] for position in generator.permutation(len(drawn))]


def test_candidates_are_shuffled_capped_at_five_and_negatives_at_the_positives():
    labels = {
        "a": [1] * 8 + [0] * 9,
        "b": [0, 1, 0, 1, 0],
        "c": [0, 0],
        "d": [1, 1, 1, 0],
        "e": [1],
    }
    expected = shuffled_candidates(labels, seed=4)
    assert {name[0] for name in expected} == {"a", "b", "d"}
    assert [sum(name[0] == query for name in expected) for query in "abd"] == [10, 4, 4]
    frame = pl.DataFrame({"query-id": [*labels], "label": [*labels.values()]}).explode("label")
    position = pl.int_range(pl.len()).over("query-id")
    frame = frame.with_columns(name=pl.format("{}{}", "query-id", position))
    reordered = frame.sort("query-id", descending=True, maintain_order=True)
    for pairs in (frame, reordered):
        assert draw_candidates(pairs, seed=4)["name"].to_list() == expected


def test_no_candidates_are_drawn_if_no_query_has_both_labels():
    assert draw_candidates(pl.DataFrame({"query-id": [1, 2], "label": [0, 1]}), seed=1).is_empty()


def make_query_rows(*features: list[list[float]]) -> RepositoryRows:
    """Return queries whose documents have the given features."""
    labels = [[query % 2] * len(own) for query, own in enumerate(features)]
    columns = {"query": [f"q{query}" for query in range(len(features))], "labels": labels, "features": [*features]}
    return RepositoryRows(Path("raw/x/train"), datasets.Dataset.from_dict(columns))


@pytest.mark.parametrize("size", [1, 2, 10, 14, 20, 21, 22])
def test_documents_of_random_queries_are_drawn_and_the_last_query_is_sampled(size):
    sizes = [3, 5, 2, 7, 4]
    features = []
    for query, n_documents in enumerate(sizes):
        features.append([[query, index] for index in range(n_documents)])
    sample = draw_documents(make_query_rows(*features), ("0", "1"), 2, size, seed=3)
    generator = np.random.default_rng(3)
    expected = []
    n_remaining = size
    for query in generator.permutation(5):
        fits_completely = sizes[query] <= n_remaining
        indices = range(sizes[query])
        if not fits_completely:
            indices = generator.choice(sizes[query], n_remaining, replace=False)
        expected += [(f"train:{query + 1}:{index}", f"q{query}", query % 2, [query, index]) for index in indices]
        n_remaining -= len(indices)
        if not fits_completely:
            break
    assert sample.select("pair", "group", "label", pl.col("features").arr.to_list()).rows() == expected


WRONG_DOCUMENTS = {  # labels and features of the documents of two queries, pattern of the message after the path
    "fewer features than labels": (
        [[0, 1], [1, 1]],
        [[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]],
        "row 1, .*'features': .* 1; .* labels$",
    ),
    "another width": (
        [[0], [1, 1]],
        [[[1.0, 2.0]], [[3.0], [5.0, 6.0]]],
        "row 2, .*'features': .* 1; .* 2$",
    ),
    "no features": (
        [[0], [1, 1]],
        [[[1.0, 2.0]], [[3.0, 4.0], None]],
        "row 2, .*'features': .* None; .* 2$",
    ),
    "a label too high": (
        [[0], [1, 2]],
        [[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]],
        "row 2, .*'labels': .* 2; .* no, yes$",
    ),
    "no label": (
        [[0], [None, 1]],
        [[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]],
        "row 2, .*'labels': .* None; .* no, yes$",
    ),
    "a negative label": (
        [[-1], [0, 1]],
        [[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]],
        "row 1, .*'labels': .* -1; .* no, yes$",
    ),
}


@pytest.mark.parametrize(("labels", "features", "message"), WRONG_DOCUMENTS.values(), ids=WRONG_DOCUMENTS)
def test_a_wrong_document_is_reported_with_its_query(labels, features, message):
    columns = {"query": ["a", "b"], "labels": labels, "features": features}
    rows = RepositoryRows(Path("raw/x/train"), datasets.Dataset.from_dict(columns))
    with pytest.raises(InputError, match=f"^raw/x/train, {message}"):
        draw_documents(rows, ("no", "yes"), 2, 9, seed=0)


def test_a_query_without_documents_is_omitted():
    rows = make_query_rows([[0.0, 0.0]], [], [[2.0, 0.0], [2.0, 1.0]], [])
    for size in (1, 2, 3, 9):
        sample = draw_documents(rows, ("0", "1"), 2, size, seed=1)
        assert len(sample) == min(size, 3)
        assert set(sample["group"]) <= {"q0", "q2"}


def test_all_documents_are_drawn_if_there_are_few_and_nonfinite_features_are_zero():
    sample = draw_documents(make_query_rows([[np.nan, 1.0], [np.inf, -np.inf]]), ("0", "1"), 2, 9, seed=0)
    assert sample["features"].to_list() == [[0, 1], [0, 0]]


FURNITURE = {  # column -> value, and the expected line
    "product_name": (" Oak desk\t", "product_name: Oak desk"),
    "product_class": (" ", "product_class: "),
    "category hierarchy": (None, "category: "),
    "product_description": ("Of oak.", "description: Of oak."),
    "product_features": (None, "features:"),
}
ESCI = {"product_title": (" Oak desk ", "product_title: Oak desk"), "text": (" Of oak. ", "Of oak.")}
ONLY_TITLE = {"title": (" Oak desk ", "product_title: Oak desk")}
SECOND_TITLE = {
    "product_title": (" ", ""),
    "title": ("Oak desk", "product_title: Oak desk"),
    "text": ("Of oak.", "Of oak."),
}
NO_TITLE = {"product_title": (None, "product_title: "), "text": ("Of oak.", "Of oak.")}
NOTHING = {"product_title": ("\x1f", "product_title:"), "text": (None, "")}
TEXTS = [
    ("wands", FURNITURE),
    *(("amazon_esci", columns) for columns in (ESCI, ONLY_TITLE, SECOND_TITLE, NO_TITLE, NOTHING)),
]


@pytest.mark.parametrize(("name", "columns"), TEXTS)
def test_blank_fields_keep_their_prefix_and_the_end_of_a_text_is_stripped(tmp_path, name, columns):
    texts = {column: text for column, (text, _) in columns.items()}
    schema = {"query": pl.String, "label": pl.Int64} | dict.fromkeys(texts, pl.String)
    table = pl.DataFrame([{"query": " desk ", "label": 2} | texts] * 2, schema)
    frame = read(tmp_path, name, {("default", split): table for split in ("train", "dev", "test")})
    lines = [line for _, line in columns.values() if line]
    assert frame["text"].unique().to_list() == ["\n".join(["query: desk", *lines])]


def make_reranking_tables(n_queries: int = 10) -> dict[str, pl.DataFrame]:
    queries = [f"q{query}" for query in range(n_queries)]
    return {
        "us-queries": pl.DataFrame({"id": queries, "text": [f" ask {query} " for query in range(n_queries)]}),
        "us-corpus": pl.DataFrame({"id": ["a", "b", "c"], "title": ["A ", None, " "], "text": ["of a", " of b", ""]}),
        "us-qrels": pl.DataFrame(
            {"query-id": sorted(queries * 2), "corpus-id": [*("ab" * n_queries)], "score": [1, 0] * n_queries}
        ),
        "us-top_ranked": pl.DataFrame({"query-id": queries, "corpus-ids": [["c", "b", "x", "a", "a"]] * n_queries}),
    }


def read_reranking(folder: Path, tables: dict[str, pl.DataFrame]) -> pl.DataFrame:
    return read(folder, "esci_rerank_us", {(config, "test"): frame for config, frame in tables.items()})


def test_reranking_candidates_keep_repetitions_and_blank_texts_and_lose_unknown_ids(tmp_path):
    sample = read_reranking(tmp_path, make_reranking_tables())
    rows = sample.filter(pl.col("group") == "q0").select("pair", "label", "text").rows()
    assert sorted(rows) == [
        ("q0:a", 1, "query: ask 0\nproduct: A\nof a"),
        ("q0:a", 1, "query: ask 0\nproduct: A\nof a"),
        ("q0:b", 0, "query: ask 0\nproduct: of b"),
        ("q0:c", 0, "query: ask 0\nproduct: "),
    ]
    queries_by_split = dict(sample.group_by("split").agg(pl.col("group").n_unique()).rows())
    assert queries_by_split == {"train": 6, "validation": 2, "test": 2}


def test_a_reranking_query_without_text_is_omitted_and_its_last_list_counts(tmp_path):
    tables = make_reranking_tables()
    texts = pl.Series(["", " ", *tables["us-queries"]["text"][2:]])
    tables["us-queries"] = tables["us-queries"].with_columns(text=texts)[:9]
    again = pl.DataFrame({"query-id": ["q2"], "corpus-ids": [["b", "a"]]})
    tables["us-top_ranked"] = pl.concat([tables["us-top_ranked"], again])
    sample = read_reranking(tmp_path, tables)
    assert set(sample["group"]) == {f"q{query}" for query in range(2, 9)}
    assert sorted(sample.filter(pl.col("group") == "q2")["pair"]) == ["q2:a", "q2:b"]


def change_frame(change: Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[[Path], object]:
    return lambda path: change(pl.read_parquet(path)).write_parquet(path)


def set_second_row(column: str, value: object) -> Callable[[Path], object]:
    second = pl.when(pl.int_range(pl.len()) == 1).then(pl.lit(value)).otherwise(column)
    return change_frame(lambda frame: frame.with_columns(second.alias(column)))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


NAMES = r"0 \(Irrelevant\), 1 \(Partial\), 2 \(Exact\)"
no_query = change_frame(lambda frame: frame.drop("query"))
repeated = change_frame(lambda frame: pl.concat([frame, frame[:1]]))
graded = change_frame(lambda frame: frame.with_columns(pl.col("labels").list.eval(pl.element() + 5)))
shorter = change_frame(lambda frame: frame.with_columns(pl.col("features").list.eval(pl.element().list.head(135))))
WRONG_FILES = {  # data set, file, change, expected message
    "a missing column": ("wands", "data/train", no_query, ": split train .*cast"),
    "a label too many": (
        "wands",
        "data/test",
        set_second_row("label", 3),
        f"/test, row 2, .*'label': .* 3; .* {NAMES}",
    ),
    "a score of two": (
        "alloprof_rerank",
        "data/test",
        set_second_row("score", 2),
        "/default/test, row 2, .*'score': found 2",
    ),
    "an id twice": ("esci_rerank_us", "us-queries/test", repeated, "/us-queries/test, row 1, column '_id'"),
    "a grade of five": ("mslr_web10k", "data/train", graded, r"/train, row \d+, .*'labels': found 5 .*; .* 0, 1, 2"),
    "a feature too few": ("mslr_web10k", "data/train", shorter, "/train, row .*'features': .* 135 .* 136"),
    "a cut file": ("scidocs", "data/test", truncate, ".*test-00000-of-00001.parquet .*complete parquet"),
    "no such split": ("scidocs", "data/test", Path.unlink, ": split test .*read"),
}


@pytest.mark.parametrize(("name", "file", "change", "message"), WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_wrong_file_is_reported_in_one_line(tmp_path, name, file, change, message):
    twin = load_params(Path(__file__).resolve().parents[2] / "params.yaml").dataset(name).twin
    simulate(name, tmp_path / name, rows=300, residual=1.0, twin=twin, seed=0)
    change(tmp_path / name / f"{file}-00000-of-00001.parquet")
    with pytest.raises(InputError, match=name + message) as error:
        DATASETS[name].read(tmp_path / name)
    assert all(part not in str(error.value) for part in ("\n", ROW_NUMBER))


ALL_SPLITS = ("train", "validation", "test")


def describe_declaration(module: ModuleType) -> tuple[object, ...]:
    """Return number of labels, split, drawn splits, seeds, passes, terms and revision of the data set of a module."""
    data = module.DATASET
    assert data.read is data.read_run
    return (
        len(data.labels),
        data.split_by,
        data.drawn_splits,
        (data.predictor_seed, data.boosted_seed),
        data.max_training_passes,
        data.max_terms,
        data.repeats_pairs,
        data.repository.revision,
    )


def released_split(folder: str, **columns: list[object]) -> RepositoryRows:
    return RepositoryRows(Path("raw") / folder, datasets.Dataset.from_dict(columns))


@pytest.fixture
def drawn(monkeypatch) -> list[tuple[int, int | None]]:
    """Record the seed and the size of each drawn sample."""
    calls: list[tuple[int, int | None]] = []

    def record(frame: pl.DataFrame, seed: int, size: int | None = None) -> pl.DataFrame:
        calls.append((seed, size))
        return draw_rows(frame, seed, size)

    monkeypatch.setattr(sampling, "draw_rows", record)
    return calls


@pytest.mark.parametrize("run", [0, 2])
def test_rows_of_wands_are_drawn_from_each_released_split_with_a_seed_of_its_own(drawn, run):
    def read_split(split: str) -> RepositoryRows:
        texts = {column: [split, split] for column in wands.FIELDS.values()}
        return released_split(split, **texts, label=[0, 2])

    samples = wands.sample_splits(read_split, run)
    assert {split: set(frame["query"]) for split, frame in samples.items()} == {
        "train": {"train"},
        "validation": {"dev"},
        "test": {"test"},
    }
    first = 20260623 + 1009 * run
    assert drawn == [(first, 90_000), (first + 1, 25_000), (first + 2, 40_000)]
    commit = "f60bd9f0bb488ab25ef990c8ebd61434754340f5"
    assert describe_declaration(wands) == (3, "row", ALL_SPLITS, (10101, 0), None, 100_000, False, commit)


@pytest.mark.parametrize("run", [0, 2])
def test_rows_of_amazon_are_drawn_from_two_released_splits(drawn, run):
    def read_split(split: str) -> RepositoryRows:
        return released_split(split, query=[split] * 5, title=["x"] * 5, text=["y"] * 5, label=[0, 1, 2, 3, 3])

    amazon_esci.sample_splits(read_split, run)
    first = 20260515 + 1009 * run
    assert drawn == [(first, 75_000), (first + 1, 40_000)]
    declared = (4, "row", ("train", "validation"), (3001, 0), None, None, False, None)
    assert describe_declaration(amazon_esci) == declared


@pytest.mark.parametrize(("n_rows", "sizes"), [(9, (3, 2)), (5, (3, 2)), (4, (2, 2)), (2, (0, 2)), (1, (0, 1))])
def test_the_last_drawn_rows_of_amazon_are_validation_and_only_train_is_smaller(n_rows, sizes, monkeypatch):
    monkeypatch.setattr(amazon_esci, "MAX_TRAIN_AND_VALIDATION_ROWS", 5)
    monkeypatch.setattr(amazon_esci, "MAX_VALIDATION_ROWS", 2)

    def read_split(split: str) -> RepositoryRows:
        rows = [str(row) for row in range(n_rows)]
        return released_split(split, query=rows, title=rows, label=[0] * n_rows)

    samples = amazon_esci.sample_splits(read_split)
    order = [str(row) for row in np.random.default_rng(20260515).permutation(n_rows)[:5]]
    assert (len(samples["train"]), len(samples["validation"])) == sizes
    assert [*samples["train"]["query"], *samples["validation"]["query"]] == order


@pytest.mark.parametrize("run", [0, 2])
def test_documents_of_mslr_are_drawn_with_a_seed_for_each_split(monkeypatch, run):
    calls = []
    monkeypatch.setattr(sampling, "draw_documents", lambda *arguments: calls.append(arguments))
    mslr_web10k.sample_splits(lambda split: split, run)
    labels = ("0", "1", "2", "3", "4")
    first = 20260620 + 1009 * run
    assert calls == [
        ("train", labels, 136, 250_000, first),
        ("validation", labels, 136, 80_000, first + 1),
        ("test", labels, 136, 100_000, first + 2),
    ]
    assert describe_declaration(mslr_web10k) == (5, "group", (), (7101, 9101), None, None, False, None)


@pytest.fixture
def split_seeds(monkeypatch) -> list[int]:
    """Record the seed of each split by query."""
    seeds = []

    def record(pairs: pl.DataFrame, queries: pl.Series, seed: int) -> object:
        seeds.append(seed)
        return split_by_query(pairs, queries, seed)

    monkeypatch.setattr(sampling, "split_by_query", record)
    return seeds


@pytest.mark.parametrize("run", [0, 1])
def test_rows_of_alloprof_are_split_by_query_and_each_split_is_shuffled(drawn, split_seeds, run):
    def read_split(split: str, config: str) -> RepositoryRows:
        assert split == "test"
        if config == "default":
            ids = [f"q{row % 10}" for row in range(30)]
            scores = [row % 2 for row in range(30)]
            scores[20:] = [-1] * 10
            return released_split(config, **{"query-id": ids, "corpus-id": [*"aab"] * 10, "score": scores})
        titles = ["t", *[" "] * 10]
        return released_split(config, id=[*(f"q{query}" for query in range(10)), "a"], title=titles, text=["x"] * 11)

    samples = alloprof_rerank.sample_splits(read_split, run)
    pairs = pl.concat(samples.values())
    assert sorted(pairs["pair"]) == sorted(f"q{row % 10}:a" for row in range(20) if row % 3 < 2)
    assert dict(pairs.select("query-id", "query").unique().rows())["q0"] == "t\nx"
    first = 20260624 + 1009 * run
    assert split_seeds == [first]
    assert drawn == [(first + 1, None), (first + 2, None), (first + 3, None)]
    assert describe_declaration(alloprof_rerank) == (2, "group", ALL_SPLITS, (10101, 0), 60, None, True, None)


def read_scidocs(columns: dict[str, list[object]], run: int = 0) -> pl.DataFrame:
    samples = scidocs.sample_splits(lambda split: released_split(split, **columns), run)
    return pl.concat(frame.with_columns(split=pl.lit(split)) for split, frame in samples.items())


def test_blank_candidates_of_scidocs_are_omitted_and_keep_the_places_of_the_others():
    columns = {
        "query": [f"query {row}" for row in range(5)],
        "positive": [["p"], ["p"], [" "], ["", "p "], ["p"]],
        "negative": [[], ["n"], ["n"], ["n"], ["\x1c", "n", "m"]],
    }
    pairs = read_scidocs(columns).sort("pair")
    assert pairs.filter(pl.col("query-id") != 5).select("query-id", "pair", "label", "candidate").rows() == [
        (2, "test:2:negative:0", 0, "n"),
        (2, "test:2:positive:0", 1, "p"),
        (4, "test:4:negative:0", 0, "n"),
        (4, "test:4:positive:1", 1, "p "),
    ]
    assert set(pairs.filter(pl.col("query-id") == 5)["pair"]) < {f"test:5:{place}" for place in PLACES_OF_QUERY_5}
    assert describe_declaration(scidocs) == (2, "row", ALL_SPLITS, (9101, 0), None, None, False, None)


PLACES_OF_QUERY_5 = ("positive:0", "negative:1", "negative:2")


@pytest.mark.parametrize("run", [0, 1])
def test_rows_of_scidocs_are_split_before_queries_are_dropped_and_drawn_for_each_split(run):
    lists = {row: ([f"p{row}.{i}" for i in range(row % 4)], [f"n{row}.{i}" for i in range(7)]) for row in range(1, 31)}
    columns = {"query": ["same title"] * 30, "positive": [own[0] for own in lists.values()]}
    columns["negative"] = [own[1] for own in lists.values()]
    pairs = read_scidocs(columns, run)
    seed = 20260622 + 1009 * run
    for number, (split, queries) in enumerate(split_queries(pl.Series([*lists]), seed).items(), start=1):
        part = pairs.filter(pl.col("split") == split)
        generator = np.random.default_rng(seed + number)
        expected = []
        for query in queries:
            positive, negative = (list(side) for side in lists[query])
            if positive:
                generator.shuffle(positive)
                generator.shuffle(negative)
                expected += [*positive, *negative[: len(positive)]]
        assert part["candidate"].to_list() == [expected[row] for row in generator.permutation(len(expected))]


def test_texts_of_scidocs_are_not_stripped(tmp_path):
    table = pl.DataFrame({"query": [" q ", None], "positive": [[" p "]] * 2, "negative": [["n"]] * 2})
    pairs = read(tmp_path, "scidocs", {("default", "test"): table})
    texts = ["query:  q \ncandidate:  p ", "query: \ncandidate:  p "]
    assert set(pairs.filter(pl.col("label") == 1)["text"]) == set(texts)
    assert pairs["group"].null_count() == 0


def test_only_judgements_above_zero_are_positive(monkeypatch, split_seeds):
    monkeypatch.setattr(sampling, "draw_candidates", lambda pairs, seed: pairs.with_columns(seed=pl.lit(seed)))

    def read_split(_split: str, config: str) -> RepositoryRows:
        if config == "us-top_ranked":
            lists = [["c", "a", "b", "d", "a"], ["a", "b"]]
            return released_split(config, **{"query-id": ["q", "r"], "corpus-ids": lists})
        if config == "us-qrels":
            ids = {"query-id": [*"qqqqqqr"], "corpus-id": [*"abcddab"]}
            return released_split(config, **ids, score=[2, 0, 1, -1, -1, 1, 3])
        return released_split(config, _id=[*"abcdqr"], text=["x"] * 6)

    pairs = pl.concat(esci_rerank_us.sample_splits(read_split, run=1).values()).sort("query-id", maintain_order=True)
    rows = pairs.select("query-id", "corpus-id", "label").rows()
    first = [("q", "c", 1), ("q", "a", 1), ("q", "b", 0), ("q", "d", 0), ("q", "a", 1)]
    assert rows == [*first, ("r", "a", 0), ("r", "b", 1)]
    assert split_seeds == [20260624 + 1009]
    assert set(pairs["seed"]) == {20260624 + 1009 + 1, 20260624 + 1009 + 2}
    assert describe_declaration(esci_rerank_us) == (2, "group", ALL_SPLITS, (11101, 0), None, 100_000, True, None)


def make_pairs(*rows: tuple[str, str]) -> LabelledPairs:
    pairs = pl.DataFrame(rows, schema=["pair", "text"], orient="row")
    return LabelledPairs(pairs)


@pytest.mark.parametrize(
    ("after", "pattern"),
    [
        ([("p9", "b"), ("p8", "a"), ("p7", "a")], r"\D*files differ\D*"),
        ([("p1", "a"), ("p2", "b"), ("p3", "c")], "1 of 3 rows differ"),
        ([("p1", "a"), ("p2", "a")], "0 of 2 .*new, .* 1 .*removed"),
        ([("p1", text) for text in "aabcd"], "2 of 5 .*new, .* 0 .*removed"),
    ],
)
def test_changed_rows_are_counted_without_regard_to_order_and_identifiers(after, pattern):
    before = make_pairs(("p1", "a"), ("p2", "a"), ("p3", "b"))
    assert re.fullmatch(pattern, describe_differences(before, make_pairs(*after)))


def test_the_library_of_the_hub_is_silent_and_reports_no_downloads(monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_UPDATE_DOWNLOAD_COUNTS", True)
    datasets.enable_progress_bars()
    datasets.logging.set_verbosity_info()
    assert import_hub_library() is datasets
    assert datasets.config.HF_UPDATE_DOWNLOAD_COUNTS is False
    assert datasets.are_progress_bars_disabled()
    assert datasets.logging.get_verbosity() == logging.CRITICAL


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EACCES])
def test_a_full_disk_is_explained_with_the_temporary_folder(code):
    error = OSError(code, "write failed")
    explained = _explain_machine_error(error)
    if code == errno.EACCES:
        assert explained is error
    else:
        assert explained.errno == code
        assert re.match(rf"{re.escape(os.strerror(code))} .*\bTMPDIR\b", explained.strerror)
        assert explained.filename == tempfile.gettempdir()


def test_texts_by_id_are_stripped_with_the_title_on_a_line_of_its_own():
    columns = {"_id": ["a", "b", "c", "d", "e"], "id": [5, 4, 3, 2, 1], "title": [" A", "", None, "D", " "]}
    rows = released_split("x", **columns, text=["of a\x1d", "of b", " of c", " ", None])
    assert rows.texts_by_id().rows() == [("a", "A\nof a"), ("b", "of b"), ("c", "of c"), ("d", "D"), ("e", "")]
    texts = rows.texts_by_id(with_title=False)["text"].to_list()
    assert texts == ["of a", "of b", "of c", "", ""]


@pytest.mark.parametrize(("n_wrong", "others"), [(1, ""), (2, r" \(and 1 .*\)"), (3, r" \(and 2 .*\)")])
def test_the_first_wrong_row_is_named_and_the_others_are_counted(n_wrong, others):
    frame = pl.DataFrame({ROW_NUMBER: [4, 7, 9, 12], "x": [5, 6, 7, 8]})
    with pytest.raises(InputError) as error:
        forbid_rows(frame, pl.col("x") > 8 - n_wrong, Path("a.csv"), "x", "write less", name_in_file="y")
    row, value = {1: (12, 8), 2: (9, 7), 3: (7, 6)}[n_wrong]
    assert re.fullmatch(rf"a\.csv, row {row}, .*'y': .* {value}{others}; write less", str(error.value))
    forbid_rows(frame, pl.col("x") > 8, Path("a.csv"), "x", "write less")
