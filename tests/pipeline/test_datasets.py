"""The six data sets of the paper: sampling, texts of pairs, and errors."""

import errno
import logging
import os
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
    base,
    esci_rerank_us,
    mslr_web10k,
    scidocs,
    wands,
)
from tasks.datasets.base import (
    LabelledPairs,
    cap_candidates,
    describe_differences,
    draw_documents,
    draw_samples,
    split_by_query,
)
from tasks.datasets.raw import (
    ROW_NUMBER,
    RepositoryRows,
    _explain_machine_error,
    forbid_rows,
    import_hub_library,
)
from tasks.simulation import simulate, write_repository


def read(folder: Path, name: str, tables: dict[tuple[str, str], pl.DataFrame]) -> pl.DataFrame:
    """Write a repository with tables, and read it as the data set `name`."""
    write_repository(folder, tables)
    return DATASETS[name].read(folder).pairs


@pytest.mark.parametrize(("sizes", "ends"), [((100, 30), (100, 130)), ((60_000, 15_000), (400, 500))])
def test_samples_follow_the_shuffle_of_the_library_and_shrink_in_proportion(sizes, ends):
    expected = datasets.Dataset.from_dict({"row": list(range(500))}).shuffle(seed=20260515)["row"]
    first, second = draw_samples(pl.DataFrame({"row": range(500)}), 20260515, *sizes)
    assert first["row"].to_list() == expected[: ends[0]]
    assert second["row"].to_list() == expected[ends[0] : ends[1]]


def test_queries_are_split_60_20_20_and_stay_whole():
    """The 100 queries have three rows each, in a mixed order."""
    frame = pl.DataFrame({"query-id": [f"q{7 * row % 100:03}" for row in range(300)]})
    splits = split_by_query(frame, 7)
    expected_queries = np.split(np.random.default_rng(7).permutation(100), [60, 80])
    for (split, rows), queries in zip(splits.items(), expected_queries, strict=True):
        assert set(rows["query-id"]) == {f"q{query:03}" for query in queries}, split
        assert len(rows) == 3 * len(queries)


def test_candidates_are_capped_at_five_and_negatives_at_the_positives():
    labels_and_retained_labels = {
        "8 positives, 9 negatives": ([1] * 8 + [0] * 9, [1] * 5 + [0] * 5),
        "2 positives, 3 negatives": ([0, 1, 0, 1, 0], [0, 1, 0, 1]),
        "no positive": ([0, 0], []),
        "3 positives, 1 negative": ([1, 1, 1, 0], [1, 1, 1, 0]),
    }
    labels = [labels for labels, _ in labels_and_retained_labels.values()]
    frame = pl.DataFrame({"query-id": [*labels_and_retained_labels], "label": labels}).explode("label")
    capped = cap_candidates(frame)
    for query, (_, retained) in labels_and_retained_labels.items():
        assert capped.filter(pl.col("query-id") == query)["label"].to_list() == retained


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
            indices = np.sort(generator.choice(sizes[query], n_remaining, replace=False))
        expected += [(f"train:{query + 1}:{index}", f"q{query}", query % 2, [query, index]) for index in indices]
        n_remaining -= len(indices)
        if not fits_completely:
            break
    assert sample.select("pair", "group", "label", pl.col("features").arr.to_list()).rows() == expected


WRONG_DOCUMENTS = {  # labels and features of the documents of two queries, message after the path
    "fewer features than labels": (
        [[0, 1], [1, 1]],
        [[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]],
        "row 1, column 'features': found 1; there must be as many as labels",
    ),
    "another width": (
        [[0], [1, 1]],
        [[[1.0, 2.0]], [[3.0], [5.0, 6.0]]],
        "row 2, column 'features': found 1; there must be 2",
    ),
    "no features": (
        [[0], [1, 1]],
        [[[1.0, 2.0]], [[3.0, 4.0], None]],
        "row 2, column 'features': found None; there must be 2",
    ),
    "a label too high": (
        [[0], [1, 2]],
        [[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]],
        "row 2, column 'labels': found 2; it must be one of no, yes",
    ),
    "no label": (
        [[0], [None, 1]],
        [[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]],
        "row 2, column 'labels': found None; it must be one of no, yes",
    ),
    "a negative label": (
        [[-1], [0, 1]],
        [[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]],
        "row 1, column 'labels': found -1; it must be one of no, yes",
    ),
}


@pytest.mark.parametrize(("labels", "features", "message"), WRONG_DOCUMENTS.values(), ids=WRONG_DOCUMENTS)
def test_a_wrong_document_is_reported_with_its_query(labels, features, message):
    columns = {"query": ["a", "b"], "labels": labels, "features": features}
    rows = RepositoryRows(Path("raw/x/train"), datasets.Dataset.from_dict(columns))
    with pytest.raises(InputError) as error:
        draw_documents(rows, ("no", "yes"), 2, 9, seed=0)
    assert str(error.value) == f"raw/x/train, {message}"


def test_all_documents_are_drawn_if_there_are_few_and_nonfinite_features_are_zero():
    sample = draw_documents(make_query_rows([[np.nan, 1.0], [np.inf, -np.inf]]), ("0", "1"), 2, 9, seed=0)
    assert sample["features"].to_list() == [[0, 1], [0, 0]]


FURNITURE = {  # column -> value, and the expected line, if any
    "product_name": ("Oak desk", "product_name: Oak desk"),
    "product_class": (" ", None),
    "category hierarchy": ("Home / Desks", "category: Home / Desks"),
    "product_description": ("Of oak.", "description: Of oak."),
    "product_features": ("width : 9", "features: width : 9"),
}
ESCI = {"product_title": ("Oak desk", "product_title: Oak desk"), "text": ("Of oak.", "Of oak.")}
TEXTS = [("amazon_esci", ESCI), ("amazon_esci", {"title": ESCI["product_title"]}), ("wands", FURNITURE)]


@pytest.mark.parametrize(("name", "columns"), TEXTS)
def test_texts_are_concatenated_without_blank_fields(tmp_path, name, columns):
    texts = {column: text for column, (text, _) in columns.items()}
    table = pl.DataFrame([{"query": "desk", "label": 2} | texts])
    frame = read(tmp_path, name, {("default", split): table for split in ("train", "dev", "test")})
    lines = [line for _, line in columns.values() if line]
    assert frame["text"].unique().to_list() == ["\n".join(["query: desk", *lines])]


def test_reranking_candidates_without_a_text_are_omitted(tmp_path):
    queries = [f"q{query}" for query in range(10)]
    tables = {
        "us-queries": pl.DataFrame({"id": queries, "text": [f"ask {query}" for query in queries]}),
        "us-corpus": pl.DataFrame({"id": ["a", "b", "c"], "title": ["A", None, "C"], "text": ["of a", "of b", ""]}),
        "us-qrels": pl.DataFrame({"query-id": sorted(queries * 2), "corpus-id": [*("ab" * 10)], "score": [1, 0] * 10}),
        "us-top_ranked": pl.DataFrame({"query-id": queries, "corpus-ids": [["c", "b", "a"]] * 10}),
    }
    sample = read(tmp_path, "esci_rerank_us", {(config, "test"): frame for config, frame in tables.items()})
    assert sample.filter(pl.col("group") == "q0").select("pair", "label", "text").rows() == [
        ("q0:b", 0, "query: ask q0\nproduct: of b"),
        ("q0:a", 1, "query: ask q0\nproduct: A\nof a"),
    ]
    queries_by_split = dict(sample.group_by("split").agg(pl.col("group").n_unique()).rows())
    assert queries_by_split == {"train": 6, "validation": 2, "test": 2}


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
    "a missing column": ("wands", "data/train", no_query, ": split train cannot be read: .*cast"),
    "a label too many": (
        "wands",
        "data/test",
        set_second_row("label", 3),
        f"/test, row 2, column 'label': found 3; .* {NAMES}",
    ),
    "a score of two": (
        "alloprof_rerank",
        "data/test",
        set_second_row("score", 2),
        "/default/test, row 2, .*'score': found 2",
    ),
    "an id twice": ("esci_rerank_us", "us-queries/test", repeated, "/us-queries/test, row 1, column '_id'"),
    "a grade of five": ("mslr_web10k", "data/train", graded, r"/train, row \d+, .*'labels': found 5 .*; .* 0, 1, 2"),
    "a feature too few": ("mslr_web10k", "data/train", shorter, "/train, row .*'features': found 135 .* must be 136"),
    "a cut file": ("scidocs", "data/test", truncate, ".*test-00000-of-00001.parquet is not a complete parquet file"),
    "no such split": ("scidocs", "data/test", Path.unlink, ": split test cannot be read"),
}


@pytest.mark.parametrize(("name", "file", "change", "message"), WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_wrong_file_is_reported_in_one_line(tmp_path, name, file, change, message):
    simulate(name, tmp_path / name, rows=300, residual=1.0, seed=0)
    change(tmp_path / name / f"{file}-00000-of-00001.parquet")
    with pytest.raises(InputError, match=name + message) as error:
        DATASETS[name].read(tmp_path / name)
    assert all(part not in str(error.value) for part in ("\n", ROW_NUMBER))


ALL_SPLITS = ("train", "validation", "test")


def describe_declaration(module: ModuleType) -> tuple[object, ...]:
    """Return number of labels, split, drawn splits, seed, passes, terms and revision of the data set of a module."""
    data = module.DATASET
    revision = data.repository.revision
    return (
        len(data.labels),
        data.split_by,
        data.drawn_splits,
        data.predictor_seed,
        data.max_training_passes,
        data.max_terms,
        revision,
    )


def released_split(folder: str, **columns: list[object]) -> RepositoryRows:
    return RepositoryRows(Path("raw") / folder, datasets.Dataset.from_dict(columns))


@pytest.fixture
def drawn(monkeypatch) -> list[tuple[int, ...]]:
    """Record the seed and the sizes of each drawn sample."""
    calls: list[tuple[int, ...]] = []

    def record(frame: pl.DataFrame, seed: int, *sizes: int) -> list[pl.DataFrame]:
        calls.append((seed, *sizes))
        return draw_samples(frame, seed, *sizes)

    monkeypatch.setattr(base, "draw_samples", record)
    return calls


def test_rows_of_wands_are_drawn_from_each_released_split_with_a_seed_of_its_own(drawn):
    def read_split(split: str) -> RepositoryRows:
        texts = {column: [split, split] for column in wands.TEXT.values()}
        return released_split(split, **texts, label=[0, 2])

    samples = wands.sample_splits(read_split)
    assert {split: set(frame["query"]) for split, frame in samples.items()} == {
        "train": {"train"},
        "validation": {"dev"},
        "test": {"test"},
    }
    assert drawn == [(20260623, 90_000), (20260624, 25_000), (20260625, 40_000)]
    commit = "f60bd9f0bb488ab25ef990c8ebd61434754340f5"
    assert describe_declaration(wands) == (3, "row", ALL_SPLITS, 10101, None, 100_000, commit)


def test_rows_of_amazon_are_drawn_from_two_released_splits(drawn):
    def read_split(split: str) -> RepositoryRows:
        return released_split(split, query=[split] * 5, title=["x"] * 5, text=["y"] * 5, label=[0, 1, 2, 3, 3])

    samples = amazon_esci.sample_splits(read_split)
    assert {split: (len(frame), set(frame["query"])) for split, frame in samples.items()} == {
        "train": (4, {"train"}),
        "validation": (1, {"train"}),
        "test": (5, {"test"}),
    }
    assert drawn == [(20260515, 60_000, 15_000), (20260516, 40_000)]
    assert describe_declaration(amazon_esci) == (4, "row", ("train", "validation"), 3001, None, None, None)


def test_documents_of_mslr_are_drawn_with_a_seed_for_each_split(monkeypatch):
    calls = []
    monkeypatch.setattr(base, "draw_documents", lambda *arguments: calls.append(arguments))
    mslr_web10k.sample_splits(lambda split: split)
    labels = ("0", "1", "2", "3", "4")
    assert calls == [
        ("train", labels, 136, 250_000, 20260620),
        ("validation", labels, 136, 80_000, 20260621),
        ("test", labels, 136, 100_000, 20260622),
    ]
    assert describe_declaration(mslr_web10k) == (5, "group", (), 7101, None, None, None)


def test_rows_of_alloprof_are_split_by_query_and_each_split_is_shuffled(drawn, monkeypatch):
    def read_split(split: str, config: str) -> RepositoryRows:
        assert split == "test"
        if config == "default":
            ids = [f"q{row % 10}" for row in range(30)]
            scores = [row % 2 for row in range(30)]
            return released_split(config, **{"query-id": ids, "corpus-id": ["a"] * 30, "score": scores})
        return released_split(config, id=[*(f"q{query}" for query in range(10)), "a"], text=["x"] * 11)

    seeds = []

    def recorded_split(frame: pl.DataFrame, seed: int) -> object:
        seeds.append(seed)
        return split_by_query(frame, seed)

    monkeypatch.setattr(base, "split_by_query", recorded_split)
    samples = alloprof_rerank.sample_splits(read_split)
    assert {split: len(frame) for split, frame in samples.items()} == {"train": 18, "validation": 6, "test": 6}
    assert seeds == [20260624]
    assert drawn == [(20260625, 18), (20260626, 6), (20260627, 6)]
    assert describe_declaration(alloprof_rerank) == (2, "group", ALL_SPLITS, 10101, 60, None, None)


def test_an_empty_list_of_candidates_gives_no_pair():
    columns = {"query": [f"query {row}" for row in range(5)], "positive": [["p"]] * 5}
    lists = [[], ["n"], [], ["n"], ["n"]]
    samples = scidocs.sample_splits(lambda split: released_split(split, **columns, negative=lists))
    pairs = pl.concat(samples.values()).sort("query-id", maintain_order=True)
    assert pairs.select("query-id", "candidate").rows() == [
        (1, "p"),
        (2, "n"),
        (2, "p"),
        (3, "p"),
        (4, "n"),
        (4, "p"),
        (5, "n"),
        (5, "p"),
    ]


def test_candidates_of_scidocs_are_negative_before_positive_and_identified_by_their_place():
    columns = {
        "query": [f"query {row}" for row in range(10)],
        "positive": [["p0", "p1"] for _ in range(10)],
        "negative": [["n0"], *(["n0", "n1", "n2"] for _ in range(9))],
    }
    samples = scidocs.sample_splits(lambda split: released_split(split, **columns))
    assert {split: frame["query"].n_unique() for split, frame in samples.items()} == {
        "train": 6,
        "validation": 2,
        "test": 2,
    }
    rows = pl.concat(samples.values()).filter(pl.col("query-id").is_in([1, 2])).sort("query-id", maintain_order=True)
    assert rows.select("pair", "label", "candidate").rows() == [
        ("test:1:negative:0", 0, "n0"),
        ("test:1:positive:0", 1, "p0"),
        ("test:1:positive:1", 1, "p1"),
        ("test:2:negative:0", 0, "n0"),
        ("test:2:negative:1", 0, "n1"),
        ("test:2:positive:0", 1, "p0"),
        ("test:2:positive:1", 1, "p1"),
    ]
    assert describe_declaration(scidocs) == (2, "row", ALL_SPLITS, 9101, None, None, None)


@pytest.mark.parametrize(("module", "seed"), [(scidocs, 20260622), (esci_rerank_us, 20260624)])
def test_pairs_are_split_by_query_with_the_seed_of_the_data_set(module, seed, monkeypatch):
    seeds = []
    monkeypatch.setattr(base, "cap_candidates", lambda frame: frame)
    monkeypatch.setattr(base, "split_by_query", lambda _, seed: seeds.append(seed))
    monkeypatch.setattr(base, "join_texts", lambda pairs, *_: pairs)
    columns = {"query-id": ["q"], "corpus-ids": [["a"]], "corpus-id": ["a"], "score": [1]}
    texts = {"query": ["q"], "positive": [["a"]], "negative": [["b"]]}
    module.sample_splits(lambda split, _config=None: released_split(split, **columns, **texts))
    assert seeds == [seed]


def test_only_judgements_above_zero_are_positive_and_a_candidate_counts_once(monkeypatch):
    monkeypatch.setattr(base, "join_texts", lambda pairs, *_: pairs)
    monkeypatch.setattr(base, "cap_candidates", lambda frame: frame)
    monkeypatch.setattr(base, "split_by_query", lambda frame, _: frame)

    def read_split(_split: str, config: str) -> RepositoryRows:
        if config == "us-top_ranked":
            lists = [["c", "a", "b", "d", "a"], ["a", "b"]]
            return released_split(config, **{"query-id": ["q", "r"], "corpus-ids": lists})
        ids = {"query-id": [*"qqqqqqr"], "corpus-id": [*"abcddab"]}
        return released_split(config, **ids, score=[2, 0, 1, -1, -1, 1, 3])

    rows = esci_rerank_us.sample_splits(read_split).select("query-id", "corpus-id", "label").rows()
    assert rows == [("q", "c", 1), ("q", "a", 1), ("q", "b", 0), ("q", "d", 0), ("r", "a", 0), ("r", "b", 1)]
    assert describe_declaration(esci_rerank_us) == (2, "group", ALL_SPLITS, 11101, None, 100_000, None)


def test_no_row_of_a_split_by_query_is_lost_and_shares_are_rounded_down():
    frame = pl.DataFrame({"query-id": [*"abcdefghi", "a"]})
    parts = split_by_query(frame, 5)
    order = np.random.default_rng(5).permutation(9)
    expected = {"train": order[:5], "validation": order[5:7], "test": order[7:]}
    for split, positions in expected.items():
        assert set(parts[split]["query-id"]) == {"abcdefghi"[position] for position in positions}
    assert sum(len(part) for part in parts.values()) == 10


@pytest.mark.parametrize(("sizes", "lengths"), [((6, 4), (6, 4)), ((7, 4), (6, 4)), ((6, 3), (6, 3)), ((9, 6), (6, 4))])
def test_samples_are_reduced_only_if_there_are_too_few_rows(sizes, lengths):
    samples = draw_samples(pl.DataFrame({"row": range(10)}), 1, *sizes)
    assert tuple(len(sample) for sample in samples) == lengths


def make_pairs(*rows: tuple[str, str]) -> LabelledPairs:
    pairs = pl.DataFrame(rows, schema=["pair", "text"], orient="row")
    return LabelledPairs(pairs)


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ([("p9", "b"), ("p8", "a"), ("p7", "a")], "the files differ, but the rows read from them do not"),
        ([("p1", "a"), ("p2", "b"), ("p3", "c")], "1 of 3 rows differ"),
        ([("p1", "a"), ("p2", "a")], "0 of 2 rows are new, and 1 earlier rows were removed"),
        ([("p1", text) for text in "aabcd"], "2 of 5 rows are new, and 0 earlier rows were removed"),
    ],
)
def test_changed_rows_are_counted_without_regard_to_order_and_identifiers(after, message):
    before = make_pairs(("p1", "a"), ("p2", "a"), ("p3", "b"))
    assert describe_differences(before, make_pairs(*after)) == message


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
        assert f"{os.strerror(code)} in the folder for temporary files, which TMPDIR sets" in str(explained)
        assert explained.filename == tempfile.gettempdir()


def test_texts_by_id_have_the_title_on_a_line_of_its_own_and_no_blank_text():
    columns = {"_id": ["a", "b", "c", "d"], "id": [4, 3, 2, 1], "title": ["A", "", None, "D"]}
    rows = released_split("x", **columns, text=["of a", "of b", "of c", " "])
    assert rows.texts_by_id().rows() == [("a", "A\nof a"), ("b", "of b"), ("c", "of c")]


@pytest.mark.parametrize(("n_wrong", "others"), [(1, ""), (2, " (and 1 more rows)"), (3, " (and 2 more rows)")])
def test_the_first_wrong_row_is_named_and_the_others_are_counted(n_wrong, others):
    frame = pl.DataFrame({ROW_NUMBER: [4, 7, 9, 12], "x": [5, 6, 7, 8]})
    with pytest.raises(InputError) as error:
        forbid_rows(frame, pl.col("x") > 8 - n_wrong, Path("a.csv"), "x", "write less", name_in_file="y")
    row, value = {1: (12, 8), 2: (9, 7), 3: (7, 6)}[n_wrong]
    assert str(error.value) == f"a.csv, row {row}, column 'y': found {value}{others}; write less"
    forbid_rows(frame, pl.col("x") > 8, Path("a.csv"), "x", "write less")


def test_the_candidates_of_a_query_keep_their_order_in_a_large_file():
    n_queries = 3000
    candidates = [[f"{query} a", f"{query} b"] for query in range(n_queries)]
    columns = {"query": ["x"] * n_queries, "positive": candidates, "negative": candidates}
    samples = scidocs.sample_splits(lambda split: released_split(split, **columns))
    test = samples["test"]
    n_test = n_queries // 5
    columns_and_places = test["pair"].str.split(":").list.tail(2).list.join(" ")
    assert columns_and_places.to_list() == ["negative 0", "negative 1", "positive 0", "positive 1"] * n_test
