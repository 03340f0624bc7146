"""Sampling of the paper's data sets from their repositories, as in the release of the paper's authors.

All random choices use NumPy's default generator with fixed seeds. The order of its permutation is the order of the
method `shuffle` of the library `datasets`. Each training run samples other rows: run r adds 1009 r to the seeds.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl

from tasks.datasets.base import LabelledPairs
from tasks.datasets.raw import ROW_NUMBER, WHITE_SPACE, RepositoryReader, RepositoryRows, forbid_rows, open_repository
from tasks.records.splits import SPLITS

RUN_SEED_STEP = 1009
MAX_CANDIDATES_PER_LABEL = 5  # of one query, in data sets whose candidates are capped
TRAIN_SHARE = 0.6  # of the queries; the shares of train and validation are rounded separately
VALIDATION_SHARE = 0.2


class SampleSplits(Protocol):
    """Function that samples the rows of train, validation and test from a repository."""

    def __call__(self, read_split: RepositoryReader, run: int = 0) -> Mapping[str, pl.DataFrame]:
        """Return the rows of each split of a training run, in their order."""
        ...


class RunReader(Protocol):
    """Function that reads the rows of a training run from a folder with a repository."""

    def __call__(self, folder: Path, run: int = 0) -> LabelledPairs:
        """Return the labelled pairs of the run."""
        ...


def repository_reader(sample: SampleSplits, group: str, text: pl.Expr | None = None) -> RunReader:
    """Build the reader of the runs of a data set from a repository.

    Args:
        sample: Function that samples the rows of train, validation and test.
        group: Column of queries.
        text: Expression of the text of a pair. None if rows have `features`.

    Returns:
        Function that reads the rows of a run from a folder with the repository.
    """
    inputs = pl.col("features") if text is None else text.alias("text")
    group_name = pl.col(group).cast(pl.String).fill_null("").alias("group")

    def read(folder: Path, run: int = 0) -> LabelledPairs:
        frames = []
        with open_repository(folder) as read_split:
            for split, frame in sample(read_split, run).items():
                frames.append(frame.select("pair", pl.lit(split).alias("split"), group_name, "label", inputs))
        return LabelledPairs(pl.concat(frames))

    return read


def draw_rows(frame: pl.DataFrame, seed: int, size: int | None = None) -> pl.DataFrame:
    """Draw a random sample of rows, in the order of the method `shuffle(seed)` of Hugging Face datasets.

    Args:
        frame: Rows to sample.
        seed: Seed of the permutation.
        size: Number of rows; None or a number above the number of rows for all rows.

    Returns:
        The first rows of the permutation.
    """
    order = np.random.default_rng(seed).permutation(len(frame))
    return frame[order[:size]]


def split_queries(queries: pl.Series, seed: int) -> dict[str, pl.Series]:
    """Split queries: 60% train, 20% validation and 20% test.

    The shares of train and of validation are rounded separately and are at least one query; test has the remaining
    queries.

    Args:
        queries: Identifiers of all queries; repeated identifiers count once.
        seed: Seed of the permutation of the sorted identifiers.

    Returns:
        Sorted identifiers of each split.
    """
    sorted_queries = queries.unique().sort()
    n_train = max(1, round(TRAIN_SHARE * len(sorted_queries)))
    n_validation = max(1, round(VALIDATION_SHARE * len(sorted_queries)))
    order = np.random.default_rng(seed).permutation(len(sorted_queries))
    positions_by_split = np.split(order, [n_train, n_train + n_validation])
    queries_by_split = {}
    for split, positions in zip(SPLITS, positions_by_split, strict=True):
        queries_by_split[split] = sorted_queries[np.sort(positions)]
    return queries_by_split


def split_by_query(pairs: pl.DataFrame, queries: pl.Series, seed: int) -> dict[str, pl.DataFrame]:
    """Split pairs by query.

    Args:
        pairs: Pairs with `query-id`.
        queries: Identifiers of all queries, including those without a pair.
        seed: Seed of the permutation of the queries.

    Returns:
        Pairs of each split, in their order.
    """
    parts = {}
    for split, own_queries in split_queries(queries, seed).items():
        parts[split] = pairs.filter(pl.col("query-id").is_in(own_queries.implode()))
    return parts


def draw_candidates(pairs: pl.DataFrame, seed: int) -> pl.DataFrame:
    """Draw at most five pairs of each label for each query, and at most as many negative as positive pairs.

    One generator is used for the queries in sorted order: it shuffles the positive pairs, then the negative pairs of a
    query, and at last all selected rows. A query without a positive or without a negative pair is omitted and uses no
    random numbers.

    Args:
        pairs: Pairs with `query-id` and the binary `label`.
        seed: Seed of the generator.

    Returns:
        The selected pairs, in random order.
    """
    generator = np.random.default_rng(seed)
    row = pl.int_range(pl.len())
    rows_by_query = (
        pairs.select("query-id", "label", row=row)
        .group_by("query-id")
        .agg(
            positive=pl.col("row").filter(pl.col("label") == 1),
            negative=pl.col("row").filter(pl.col("label") == 0),
        )
        .sort("query-id")
    )
    selected: list[int] = []
    for positive, negative in rows_by_query.select("positive", "negative").iter_rows():
        if not positive or not negative:
            continue
        drawn_positive = generator.permutation(positive)[:MAX_CANDIDATES_PER_LABEL]
        drawn_negative = generator.permutation(negative)[: len(drawn_positive)]
        selected += [*drawn_positive, *drawn_negative]
    order = generator.permutation(len(selected))
    return pairs[np.array(selected, dtype=np.int64)[order]]


def draw_documents(rows: RepositoryRows, labels: tuple[str, ...], width: int, size: int, seed: int) -> pl.DataFrame:
    """Draw documents of whole queries, in random order of the queries.

    The documents of the last query are sampled by the same generator to reach the exact size, and have the order in
    which they were drawn. Non-finite features become 0.

    Args:
        rows: Queries, each with `labels` of its n documents and their `features` (n x width).
        labels: Names of the labels.
        width: Number of features.
        size: Number of documents; all if there are fewer.
        seed: Seed of the generator.

    Returns:
        Frame with `pair`, `group`, `label` and `features`.
    """
    generator = np.random.default_rng(seed)
    labels_of_queries = rows.table({"labels": "list of integers"})
    n_documents = pl.col("labels").list.len().fill_null(0)
    documents_per_query = labels_of_queries.select(n_documents).to_series().to_numpy()
    order = generator.permutation(len(documents_per_query))
    ends = np.cumsum(documents_per_query[order])
    n_whole_queries = int(np.searchsorted(ends, size, side="right"))
    read_queries = order[: n_whole_queries + 1]  # with the query that is sampled, if there is one
    documents = _read_documents(rows, read_queries[documents_per_query[read_queries] > 0])
    if n_whole_queries < len(order):
        n_whole_documents = int(ends[n_whole_queries - 1]) if n_whole_queries else 0
        n_last_query_documents = len(documents) - n_whole_documents
        sample = generator.choice(n_last_query_documents, size - n_whole_documents, replace=False)
        documents = documents[np.concatenate([np.arange(n_whole_documents), n_whole_documents + sample])]
    _check_documents(documents, labels, width, rows.path)
    features = documents["features"].list.to_array(width).to_numpy().astype(np.float32)
    return documents.select(
        pair=pl.format("{}:{}:{}", pl.lit(rows.path.name), ROW_NUMBER, "position"),
        group=pl.col("query"),
        label=pl.col("labels").cast(pl.Int8),
        features=pl.Series(np.nan_to_num(features, copy=False, nan=0, posinf=0, neginf=0)),
    )


def _read_documents(rows: RepositoryRows, positions: np.ndarray) -> pl.DataFrame:
    """Read the queries at some positions, and return one row for each of their documents."""
    columns = {"query": "text or number", "labels": "list of integers", "features": "list of lists of numbers"}
    queries = rows.take(positions).table(columns).with_columns(pl.Series(ROW_NUMBER, positions + 1))
    n_labels = pl.col("labels").list.len()
    counts = queries.with_columns(pl.col("features").list.len().alias("count"))
    remedy = "there must be as many as labels"
    forbid_rows(counts, pl.col("count") != n_labels, rows.path, "count", remedy, name_in_file="features")
    return queries.with_columns(position=pl.int_ranges(n_labels)).explode("labels", "features", "position")


def _check_documents(documents: pl.DataFrame, labels: tuple[str, ...], width: int, path: Path) -> None:
    counts = documents.with_columns(pl.col("features").list.len().alias("count"))
    has_other_width = (pl.col("count") != width).fill_null(True)
    forbid_rows(counts, has_other_width, path, "count", f"there must be {width}", name_in_file="features")
    is_known = pl.col("labels").is_between(0, len(labels) - 1).fill_null(False)
    forbid_rows(documents, ~is_known, path, "labels", f"it must be one of {', '.join(labels)}")


def join_texts(pairs: pl.DataFrame, queries: pl.DataFrame, documents: pl.DataFrame) -> pl.DataFrame:
    """Join the texts of queries and documents; pairs with an unknown identifier are removed, blank texts are kept.

    Args:
        pairs: Pairs with `query-id` and `corpus-id`.
        queries: Texts with `id` and `text`.
        documents: Texts with `id` and `text`.

    Returns:
        The pairs in their order, with `pair`, `query` and `document`.
    """
    pairs = pairs.with_columns(pair=pl.format("{}:{}", "query-id", "corpus-id"))
    for key, column, texts in (("query-id", "query", queries), ("corpus-id", "document", documents)):
        named_texts = texts.rename({"text": column})
        pairs = pairs.join(named_texts, left_on=key, right_on="id", maintain_order="left")
    return pairs


def stripped(column: str) -> pl.Expr:
    """Return a text column without white space at its ends; a missing value is an empty text."""
    return pl.col(column).fill_null("").str.strip_chars(WHITE_SPACE)


def first_not_blank(columns: Sequence[str]) -> pl.Expr:
    """Return the first of some text columns that is not blank in the row, stripped; an empty text if all are blank."""
    texts = []
    for column in columns:
        text = stripped(column)
        texts.append(pl.when(text != "").then(text))
    return pl.coalesce(*texts, pl.lit(""))


def prefixed_lines(fields: Mapping[str, pl.Expr]) -> pl.Expr:
    """Write each field on a line of its own. A blank field keeps its line and its prefix.

    Args:
        fields: Prefix -> expression without nulls.

    Returns:
        Expression of the lines.
    """
    lines = [pl.lit(prefix) + field for prefix, field in fields.items()]
    return pl.concat_str(lines, separator="\n")
