"""What a data set is: a value that says what it holds and how its raw files become judged pairs.

And how the paper's are drawn from their repositories, each by NumPy's default generator under a stated seed. Where a
repository holds fewer rows than a draw asks for (a twin, a cut mirror), what it holds is shared out in the same
proportion, so that no draw takes from another's rows.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from tasks.datasets.raw import ROW, OpenedRepository, RepositoryRows, forbid, opened_repository
from tasks.records.splits import SPLITS
from tasks.sources.hub import Repository

# The frame that every reader returns: one row for each judged pair, in a fixed order.
SCHEMA = {
    "pair": pl.String,  # names the pair within its data set; never a feature
    "split": pl.String,  # train, validation or test; null where it is still to be drawn
    "group": pl.String,  # the query
    "label": pl.Int8,  # 0..K-1, in the order of Dataset.labels
    "text": pl.String,  # or `features`, pl.Array(pl.Float32, width)
}
Draw = Callable[[OpenedRepository], Mapping[str, pl.DataFrame]]  # a repository to its rows of each split
MOST = 5  # candidates of a label that a query gives at most, where they are capped


class Judged(NamedTuple):
    """What a reader makes of its raw files."""

    pairs: pl.DataFrame  # of SCHEMA, or with `features`, or with `logits`, pl.Array(pl.Float64, K)
    dropped: Mapping[str, int] = MappingProxyType({})  # pairs left out, by the rule that left them out
    members: tuple[pl.DataFrame, ...] = ()  # the same pairs with the logits of each member, where these are saved


class Dataset(NamedTuple):
    """A data set as a declared value; the one thing it does is to read its own raw files.

    `read(folder)` raises InputError where a file is missing, cut or holds something else.
    """

    name: str  # the key used everywhere: DVC, Prefect, params.yaml, paths
    title: str  # as the paper writes it
    domain: str
    task: str
    labels: tuple[str, ...]  # index = label
    licence: str
    read: Callable[[Path], Judged]
    repository: Repository | None = None  # on the hub
    files: tuple[str, ...] = ()  # one's own, in the folder that params.yaml names
    split_by: Literal["row", "group"] = "row"  # group: no query is in two splits
    drawn: tuple[str, ...] = ()  # splits that `read` draws from one pool
    member_seed: int = 0  # of the first base predictor
    passes: int | None = None  # of the linear base predictor over the rows; None: as that of other sets
    terms: int | None = None  # most words and word pairs that count; None: as in other sets
    check_columns: Callable[[Path], None] | None = None  # of the files in a folder, by their headers alone


def what_differs(before: Judged, now: Judged) -> str:
    """How many rows `now` are others than `before`, in words; their order and their names count for nothing."""
    rows = [Counter(of.pairs.select(pl.exclude("pair")).hash_rows()) for of in (now, before)]
    new, gone, size = (rows[0] - rows[1]).total(), (rows[1] - rows[0]).total(), f"{len(now.pairs):,}"
    if new == gone:
        return f"{new:,} of {size} rows differ" if new else "no row differs in what is read of it"
    return f"{new:,} of {size} rows are new, and {gone:,} of before are gone"


def from_repository(draw: Draw, group: str, text: Mapping[str, str] | None = None) -> Callable[[Path], Judged]:
    """What reads a folder with a repository: the rows of SCHEMA that `draw` gives for train, validation and test.

    `group` names the column of queries, `text` says what stands before which column; without it rows have `features`.
    """
    inputs = joined_text(text.items()).alias("text") if text else pl.col("features")

    def read(folder: Path) -> Judged:
        with opened_repository(folder) as rows:
            frames = [
                frame.select("pair", pl.lit(split).alias("split"), pl.col(group).alias("group"), "label", inputs)
                for split, frame in draw(rows).items()
            ]
        return Judged(pl.concat(frames))

    return read


def shuffled(frame: pl.DataFrame, seed: int, *sizes: int) -> list[pl.DataFrame]:
    """The first `sizes` rows, one piece after the other, in the order of `datasets.Dataset.shuffle(seed)`."""
    ends = np.cumsum(sizes)
    if ends[-1] > len(frame):
        ends = np.floor(ends * len(frame) / ends[-1] + 0.5).astype(int)
    order = np.random.default_rng(seed).permutation(len(frame))
    return [frame[piece] for piece in np.split(order[: ends[-1]], ends[:-1])]


def by_query(frame: pl.DataFrame, seed: int) -> dict[str, pl.DataFrame]:
    """`frame` in three splits: its queries (column `query-id`) in the order of their ids, shuffled, 60 / 20 / 20 %.

    Inferred: the shares are rounded down, the rest is test.
    """
    queries = frame["query-id"].unique().sort()
    cut = [len(queries) * tenths // 10 for tenths in (6, 8)]
    drawn = np.split(np.random.default_rng(seed).permutation(len(queries)), cut)
    return {
        split: frame.filter(pl.col("query-id").is_in(queries[places].implode()))
        for split, places in zip(SPLITS, drawn, strict=True)
    }


def capped(frame: pl.DataFrame) -> pl.DataFrame:
    """At most MOST positive pairs of each `query-id`, and as many negative ones as positive ones, at most.

    Inferred: the first ones, in the order of the file; so a query without a positive one leaves nothing.
    """
    place = pl.int_range(pl.len()).over("query-id", "label")
    positives = pl.min_horizontal(pl.col("label").cast(pl.Int64).sum().over("query-id"), MOST)
    return frame.filter(place < positives)


def documents(rows: RepositoryRows, labels: tuple[str, ...], width: int, size: int, seed: int) -> pl.DataFrame:
    """`pair, group, label, features` of `size` documents of queries drawn one after the other; non-finite is 0.

    A row is a query with `features` (n x width) and `labels` (n). The last query is drawn down to fit; inferred: by the
    same generator, its documents left in their order.
    """
    lists = {"query": "text or number", "labels": "list of integers", "features": "list of lists of numbers"}
    n_labels, count = pl.col("labels").list.len(), pl.col("features").list.len().alias("count")
    generator = np.random.default_rng(seed)
    counts = rows.table({"labels": lists["labels"]}).select(n_labels).to_series().to_numpy()
    order = generator.permutation(len(counts))
    ends = np.cumsum(counts[order])
    whole = int(np.searchsorted(ends, size, side="right"))  # so many queries fit
    frame = rows._replace(data=rows.data.select(order[: whole + 1])).table(lists)
    frame = frame.with_columns(pl.Series(ROW, order[: whole + 1] + 1))
    uneven, advice = pl.col("count") != n_labels, "there must be as many as labels"
    forbid(frame.with_columns(count), uneven, rows.path, "count", advice, called="features")
    frame = frame.with_columns(place=pl.int_ranges(n_labels)).explode("labels", "features", "place")
    if whole < len(order):
        fits = int(ends[whole - 1]) if whole else 0
        drawn = np.sort(generator.choice(len(frame) - fits, size - fits, replace=False))
        frame = frame[np.concatenate([np.arange(fits), fits + drawn])]
    wrong, advice = (pl.col("count") != width).fill_null(True), f"there must be {width}"
    forbid(frame.with_columns(count), wrong, rows.path, "count", advice, called="features")
    known = pl.col("labels").is_between(0, len(labels) - 1).fill_null(False)
    forbid(frame, ~known, rows.path, "labels", f"it must be one of {', '.join(labels)}")
    features = frame["features"].list.to_array(width).to_numpy().astype(np.float32)
    return frame.select(
        pair=pl.format("{}:{}:{}", pl.lit(rows.path.name), ROW, "place"),
        group=pl.col("query"),
        label=pl.col("labels").cast(pl.Int8),
        features=pl.Series(np.nan_to_num(features, copy=False, nan=0, posinf=0, neginf=0)),
    )


def with_texts(pairs: pl.DataFrame, rows: OpenedRepository, prefix: str = "") -> pl.DataFrame:
    """`pairs` (`query-id`, `corpus-id`) that have both texts, with `pair`, `query` and `document`."""
    pairs = pairs.with_columns(pair=pl.format("{}:{}", "query-id", "corpus-id"))
    for side, config, name in (("query-id", "queries", "query"), ("corpus-id", "corpus", "document")):
        texts = rows("test", prefix + config).texts_by_id().rename({"text": name})
        pairs = pairs.join(texts, left_on=side, right_on="id", how="inner", maintain_order="left")
    return pairs


def joined_text(columns: Iterable[tuple[str, str]], separator: str = "\n") -> pl.Expr:
    """One text of several columns (what stands before, column), a line each; inferred: a blank one leaves no trace."""
    texts = [
        pl.when(pl.col(column).str.strip_chars() != "").then(pl.lit(before) + pl.col(column))
        for before, column in columns
    ]
    return pl.concat_str(texts, separator=separator, ignore_nulls=True)
