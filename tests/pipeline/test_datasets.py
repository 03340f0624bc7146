"""The six data sets of the paper: sampling, texts of pairs, and errors."""

import logging
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import polars as pl
import pytest

from relmap.errors import InputError
from tasks.datasets import DATASETS, find_declared_dataset
from tasks.datasets.base import cap_candidates, draw_documents, draw_samples, split_by_query
from tasks.datasets.raw import ROW_NUMBER, RepositoryRows, import_hub_library
from tasks.settings.dataset_params import DatasetParams
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
    frame = pl.DataFrame({"query-id": [f"q{7 * row % 100:03}" for row in range(300)]})
    sample = np.split(np.random.default_rng(7).permutation(100), [60, 80])
    for (split, part), queries in zip(split_by_query(frame, 7).items(), sample, strict=True):
        assert set(part["query-id"]) == {f"q{query:03}" for query in queries}, split
        assert len(part) == 3 * len(queries)


def test_candidates_are_capped_at_five_and_negatives_at_the_positives():
    labels = {"many": [1] * 8 + [0] * 9, "few": [0, 1, 0, 1, 0], "none": [0, 0], "short": [1, 1, 1, 0]}
    frame = pl.DataFrame({"query-id": [*labels], "label": [*labels.values()]}).explode("label")
    kept = {query: cap_candidates(frame).filter(pl.col("query-id") == query)["label"].to_list() for query in labels}
    assert kept == {"many": [1] * 5 + [0] * 5, "few": [0, 1, 0, 1], "none": [], "short": [1, 1, 1, 0]}


def query_rows(*features: list[list[float]]) -> RepositoryRows:
    """Return queries whose documents have the given features."""
    labels = [[query % 2] * len(own) for query, own in enumerate(features)]
    columns = {"query": [f"q{query}" for query in range(len(features))], "labels": labels, "features": [*features]}
    return RepositoryRows(Path("raw/x/train"), datasets.Dataset.from_dict(columns))


def test_documents_of_random_queries_are_drawn_and_the_last_query_is_sampled():
    sizes = [3, 5, 2, 7, 4]
    features = [[[query, place] for place in range(size)] for query, size in enumerate(sizes)]
    sample = draw_documents(query_rows(*features), ("0", "1"), 2, 10, seed=3)
    generator = np.random.default_rng(3)
    expected = []
    n_remaining = 10
    for query in generator.permutation(5):
        fits_completely = sizes[query] <= n_remaining
        places = range(sizes[query])
        if not fits_completely:
            places = np.sort(generator.choice(sizes[query], n_remaining, replace=False))
        expected += [(f"train:{query + 1}:{place}", f"q{query}", [query, place]) for place in places]
        n_remaining -= len(places)
        if not fits_completely:
            break
    assert sample.select("pair", "group", pl.col("features").arr.to_list()).rows() == expected


def test_all_documents_are_drawn_if_there_are_few_and_nonfinite_features_are_zero():
    sample = draw_documents(query_rows([[np.nan, 1.0], [np.inf, -np.inf]]), ("0", "1"), 2, 9, seed=0)
    assert sample["features"].to_list() == [[0, 1], [0, 0]]


def test_the_library_of_the_hub_reports_nothing_to_its_makers(monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_UPDATE_DOWNLOAD_COUNTS", True)
    datasets.enable_progress_bars()
    datasets.logging.set_verbosity_info()
    imported = import_hub_library()
    assert imported is datasets
    assert not datasets.config.HF_UPDATE_DOWNLOAD_COUNTS
    assert datasets.are_progress_bars_disabled()
    assert datasets.logging.get_verbosity() == logging.CRITICAL


@pytest.mark.parametrize(
    ("n_files", "listed"),
    [(0, "nothing"), (1, "f00"), (10, ", ".join(f"f{k:02}" for k in range(10))), (12, "f00, .*, f09 and 2 more")],
)
def test_a_missing_file_is_reported_with_the_content_of_the_nearest_folder(tmp_path, n_files, listed):
    for number in range(n_files):
        (tmp_path / f"f{number:02}").touch()
    (tmp_path / ".hidden").touch()
    entry = DatasetParams.model_validate(
        {
            "reader": "files",
            "source": "files",
            "path": str(tmp_path / "shop/pairs.csv"),
            "split": {"by": "row", "validation": 0.3, "test": 0.3},
            "options": {
                "labels": ["bad", "good"],
                "pairs": {"path": "pairs.csv", "group": "query", "query": "query", "candidate": "title", "label": "g"},
            },
        }
    )
    with pytest.raises(InputError, match=f"shop/pairs.csv does not exist.* {tmp_path} has {listed}$"):
        find_declared_dataset("shop", entry)


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
    row = {"query": "desk", "label": 2} | {column: text for column, (text, _) in columns.items()}
    frame = read(tmp_path, name, {("default", split): pl.DataFrame([row]) for split in ("train", "dev", "test")})
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
