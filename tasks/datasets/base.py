"""Data sets as declared values, and the sampling of the paper's data sets from their repositories.

Samples are drawn with NumPy's default generator and a fixed seed. If a repository has fewer rows than the paper draws
(a simulated or truncated one), the rows are divided in the same proportion, so that no two samples share rows.
"Inferred" marks what neither the paper nor its data sets define.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from tasks.datasets.raw import ROW_NUMBER, RepositoryReader, RepositoryRows, forbid_rows, open_repository
from tasks.records.splits import SPLITS
from tasks.sources.hub import Repository

# Columns of the frame that every reader returns: one row for each labelled pair, in a fixed order.
SCHEMA = {
    "pair": pl.String,  # identifier of the pair in its data set; never a feature
    "split": pl.String,  # train, validation or test; null if it is drawn later
    "group": pl.String,  # the query
    "label": pl.Int8,  # 0..K-1, in the order of Dataset.labels
    "text": pl.String,  # or `features`, pl.Array(pl.Float32, width)
}
SampleSplits = Callable[[RepositoryReader], Mapping[str, pl.DataFrame]]  # repository -> rows of each split
MAX_CANDIDATES_PER_LABEL = 5  # of one query, in data sets whose candidates are capped
SPLIT_ENDS_IN_TENTHS = (6, 8)  # 60% train, 20% validation, 20% test


@dataclass(frozen=True)
class LabelledPairs:
    """Labelled pairs that a reader made from raw files.

    Attributes:
        pairs: Frame with the columns of SCHEMA; instead of `text` it may have `features`, or `logits` of type
            pl.Array(pl.Float64, K).
        dropped: Number of omitted pairs, by the rule that omits them.
        members: For saved logits, the same pairs with the logits of each ensemble member.
    """

    pairs: pl.DataFrame
    dropped: Mapping[str, int] = field(default_factory=dict)
    members: tuple[pl.DataFrame, ...] = ()


class Dataset(NamedTuple):
    """Declaration of a data set.

    Attributes:
        name: Key in DVC, Prefect, params.yaml and paths.
        title: Name in the paper.
        domain: Application domain.
        task: Prediction task.
        labels: Names of the labels; the index is the label.
        licence: Licence of the data.
        read: Function that reads a folder of raw files. It raises InputError if a file is missing or incomplete, or has
            unexpected content.
        repository: Repository on the Hugging Face hub.
        files: Names of a user's own files, in the folder that params.yaml names.
        split_by: `group` if no query is in two splits.
        drawn_splits: Splits that `read` samples at random from one set of rows; files define the others.
        predictor_seed: Seed of the first base predictor.
        max_training_passes: Maximum passes of the linear base predictor over the training rows; None for the default.
        max_terms: Maximum number of words and word pairs; None for the default.
        check_columns: Function that checks the columns of the files in a folder by their headers only.
    """

    name: str
    title: str
    domain: str
    task: str
    labels: tuple[str, ...]
    licence: str
    read: Callable[[Path], LabelledPairs]
    repository: Repository | None = None
    files: tuple[str, ...] = ()
    split_by: Literal["row", "group"] = "row"
    drawn_splits: tuple[str, ...] = ()
    predictor_seed: int = 0
    max_training_passes: int | None = None
    max_terms: int | None = None
    check_columns: Callable[[Path], None] | None = None


def describe_differences(before: LabelledPairs, after: LabelledPairs) -> str:
    """Describe how many rows differ between two versions of a data set, regardless of order and pair identifiers.

    Args:
        before: Previous version.
        after: New version.

    Returns:
        A clause for a message.
    """
    rows_before = _count_rows(before)
    rows_after = _count_rows(after)
    n_added = (rows_after - rows_before).total()
    n_removed = (rows_before - rows_after).total()
    n_rows = f"{len(after.pairs):,}"
    if n_added != n_removed:
        return f"{n_added:,} of {n_rows} rows are new, and {n_removed:,} earlier rows were removed"
    if n_added:
        return f"{n_added:,} of {n_rows} rows differ"
    return "the files differ, but the rows read from them do not"


def _count_rows(labelled: LabelledPairs) -> Counter[int]:
    return Counter(labelled.pairs.select(pl.exclude("pair")).hash_rows())


def repository_reader(
    sample: SampleSplits, group: str, text: Mapping[str, str] | None = None
) -> Callable[[Path], LabelledPairs]:
    """Build the reader of a data set from a repository.

    Args:
        sample: Function that samples the rows of train, validation and test.
        group: Column of queries.
        text: Prefix -> column of the texts that are concatenated. None if rows have `features`.

    Returns:
        Function that reads a folder with the repository.
    """
    inputs = concatenate_texts(text.items()).alias("text") if text else pl.col("features")

    def read(folder: Path) -> LabelledPairs:
        frames = []
        with open_repository(folder) as read_split:
            for split, frame in sample(read_split).items():
                columns = ["pair", pl.lit(split).alias("split"), pl.col(group).alias("group"), "label", inputs]
                frames.append(frame.select(columns))
        return LabelledPairs(pl.concat(frames))

    return read


def draw_samples(frame: pl.DataFrame, seed: int, *sizes: int) -> list[pl.DataFrame]:
    """Draw disjoint random samples of rows, in the order of the method `shuffle(seed)` of Hugging Face datasets.

    Args:
        frame: Rows to sample.
        seed: Seed of the permutation.
        sizes: Number of rows of each sample. If there are too few rows, the samples are reduced in proportion.

    Returns:
        One frame for each size.
    """
    ends = np.cumsum(sizes)
    if ends[-1] > len(frame):
        ends = np.floor(ends * len(frame) / ends[-1] + 0.5).astype(int)
    order = np.random.default_rng(seed).permutation(len(frame))
    return [frame[rows] for rows in np.split(order[: ends[-1]], ends[:-1])]


def split_by_query(frame: pl.DataFrame, seed: int) -> dict[str, pl.DataFrame]:
    """Split rows by query: 60% train, 20% validation and 20% test.

    Queries are sorted by their identifiers and then shuffled. Inferred: shares are rounded down, and the remaining
    queries are test.

    Args:
        frame: Rows with the column `query-id`.
        seed: Seed of the permutation.

    Returns:
        Rows of each split.
    """
    queries = frame["query-id"].unique().sort()
    ends = [len(queries) * tenths // 10 for tenths in SPLIT_ENDS_IN_TENTHS]
    positions_by_split = np.split(np.random.default_rng(seed).permutation(len(queries)), ends)
    parts = {}
    for split, positions in zip(SPLITS, positions_by_split, strict=True):
        parts[split] = frame.filter(pl.col("query-id").is_in(queries[positions].implode()))
    return parts


def cap_candidates(frame: pl.DataFrame) -> pl.DataFrame:
    """Keep at most five pairs of each label for each query, and at most as many negative as positive pairs.

    Inferred: the first pairs in the order of the file are kept. A query without a positive pair is removed.

    Args:
        frame: Rows with `query-id` and the binary `label`.

    Returns:
        The rows that are kept, in their order.
    """
    rank = pl.int_range(pl.len()).over("query-id", "label")
    n_positive = pl.col("label").cast(pl.Int64).sum().over("query-id")
    return frame.filter(rank < pl.min_horizontal(n_positive, MAX_CANDIDATES_PER_LABEL))


def draw_documents(rows: RepositoryRows, labels: tuple[str, ...], width: int, size: int, seed: int) -> pl.DataFrame:
    """Draw documents of whole queries, in random order of the queries.

    The documents of the last query are sampled to reach the exact size. Inferred: the same generator samples them, and
    they keep their order. Non-finite features become 0.

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
    documents_per_query = labels_of_queries.select(pl.col("labels").list.len()).to_series().to_numpy()
    order = generator.permutation(len(documents_per_query))
    ends = np.cumsum(documents_per_query[order])
    n_whole_queries = int(np.searchsorted(ends, size, side="right"))
    documents = _read_documents(rows, order[: n_whole_queries + 1])  # with the query that is sampled, if there is one
    if n_whole_queries < len(order):
        n_whole_documents = int(ends[n_whole_queries - 1]) if n_whole_queries else 0
        n_last_query_documents = len(documents) - n_whole_documents
        sample = np.sort(generator.choice(n_last_query_documents, size - n_whole_documents, replace=False))
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


def join_texts(pairs: pl.DataFrame, read_split: RepositoryReader, prefix: str = "") -> pl.DataFrame:
    """Join the texts of queries and documents, and remove pairs of which one text is missing.

    Args:
        pairs: Frame with `query-id` and `corpus-id`.
        read_split: Reader of the repository.
        prefix: Prefix of the configurations `queries` and `corpus`.

    Returns:
        The pairs with `pair`, `query` and `document`.
    """
    pairs = pairs.with_columns(pair=pl.format("{}:{}", "query-id", "corpus-id"))
    for key, config, column in (("query-id", "queries", "query"), ("corpus-id", "corpus", "document")):
        texts = read_split("test", prefix + config).texts_by_id().rename({"text": column})
        pairs = pairs.join(texts, left_on=key, right_on="id", maintain_order="left")
    return pairs


def concatenate_texts(columns: Iterable[tuple[str, str]], separator: str = "\n") -> pl.Expr:
    """Concatenate text columns.

    Inferred: a blank text is omitted with its prefix.

    Args:
        columns: Prefix and name of each column.
        separator: Text between two columns.

    Returns:
        Expression of the concatenated text.
    """
    texts = []
    for prefix, column in columns:
        is_not_blank = pl.col(column).str.strip_chars() != ""
        texts.append(pl.when(is_not_blank).then(pl.lit(prefix) + pl.col(column)))
    return pl.concat_str(texts, separator=separator, ignore_nulls=True)
