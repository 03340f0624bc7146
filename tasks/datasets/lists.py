"""The format of the reranking sets: a row is a query with a list of positive and a list of negative candidates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
from pydantic import Field

from tasks.datasets.base import Judged
from tasks.datasets.loading import load_file
from tasks.datasets.options import Options
from tasks.datasets.pairs import kept_pairs, normalised
from tasks.datasets.raw import ROW, forbid

LABELS = ("Non-relevant", "Relevant")
LISTS = ("negative", "positive")  # index = label
COLUMNS = {"query": "text", "positive": "list of texts", "negative": "list of texts"}

Count = Annotated[int, Field(ge=1)]
Ratio = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ListOptions(Options):
    """How much of each query's lists is used."""

    cap_positive: Count | None = None  # positive candidates per query that are kept at most
    cap_negative: Count | None = None
    negatives_per_positive: Ratio | None = None  # negatives for each positive of a query at most, after the caps
    require_both: bool = False  # drop queries that have no positive or no negative candidate left


def load_lists(path: Path) -> pl.DataFrame:
    """ROW and COLUMNS of a file; BadInput where a query or one of its lists is null (a list may be empty)."""
    rows = load_file(path, COLUMNS)
    for column in COLUMNS:
        forbid(
            rows, pl.col(column).is_null(), path, column, "every row needs a query and two lists; an empty one is []"
        )
    return rows


def list_counts(rows: pl.DataFrame, part: str) -> dict[str, int]:
    """What `rows` of COLUMNS hold, before any rule or option."""
    sizes = rows.select(pl.col(column).list.len() for column in LISTS)
    both = sizes.filter(pl.min_horizontal(LISTS) > 0)
    negatives, positives = (int(sizes[column].sum()) for column in LISTS)
    negatives_of_both, positives_of_both = (int(both[column].sum()) for column in LISTS)
    return {
        f"{part} queries": len(rows),
        f"{part} distinct queries": rows["query"].n_unique(),
        f"{part} pairs": positives + negatives,
        f"{part} positives": positives,
        f"{part} negatives": negatives,
        f"{part} queries with both kinds": len(both),
        f"{part} pairs of queries with both kinds": positives_of_both + negatives_of_both,
        f"{part} positives of queries with both kinds": positives_of_both,
    }


def distinct_texts(texts: pl.Series) -> int:
    """How many texts differ as MTEB counts them: white space at their ends makes no other text."""
    return texts.str.strip_chars().n_unique()


def exploded(rows: pl.DataFrame, part: str, split: str | None) -> pl.DataFrame:
    """Rows of ROW and COLUMNS to one row for each listed candidate, in the columns of TEXT_SCHEMA.

    A pair is named `<part>:<row>:<list>:<place>`, both counted from 0; `group` is the normalised query text.
    """
    return (
        rows.unpivot(LISTS, index=[ROW, "query"], variable_name="list", value_name="candidate")
        .filter(pl.col("candidate").list.len() > 0)
        .with_columns(place=pl.int_ranges(pl.col("candidate").list.len()))
        .explode("candidate", "place")
        .sort(ROW, maintain_order=True)
        .select(
            pl.format("{}:{}:{}:{}", pl.lit(part), pl.col(ROW) - 1, "list", "place").alias("pair"),
            pl.lit(split, dtype=pl.String).alias("split"),
            normalised("query").alias("group"),
            "query",
            "candidate",
            (pl.col("list") == "positive").cast(pl.Int8).alias("label"),
        )
    )


def list_pairs(parts: Iterable[pl.DataFrame], name: str, options: ListOptions, counts: Mapping[str, int]) -> Judged:
    """The pairs of all `parts` (in the columns of TEXT_SCHEMA) that pass the rules and the caps.

    The sources put positives first, so the pairs of a query are shuffled: neither a model that reads rows in order
    nor a ranking that breaks ties by order may profit. The same draw chooses what a cap keeps.
    """
    frame, dropped = kept_pairs(pl.concat(parts), name, lists=True)
    draw = np.random.default_rng(0).random(len(frame))
    query = pl.col("group").rle_id()  # rows of one query stand together
    frame = frame.with_columns(draw=draw, query_place=query).sort("query_place", "draw").drop("query_place")
    kept = len(frame)
    frame = under_caps(frame, options)
    capped = len(frame)
    if options.require_both:
        frame = frame.filter(pl.col("label").n_unique().over("group") == len(LISTS))
    left_out = {"over a cap": kept - capped, "of a query with one kind of candidates": capped - len(frame)}
    return Judged(frame.drop("draw"), counts, dropped | left_out)


def under_caps(frame: pl.DataFrame, options: ListOptions) -> pl.DataFrame:
    """The rows of `frame`, which has a `draw`, that the caps keep: of each query and kind those that were drawn first.

    So a smaller cap keeps a part of what a larger one keeps. `negatives_per_positive` is of the positives that
    `cap_positive` keeps, rounded up to whole negatives; a query without positives keeps no candidate then.
    """
    rank = pl.col("draw").rank("ordinal").over("group", "label")
    for label, cap in enumerate((options.cap_negative, options.cap_positive)):
        if cap is not None:
            frame = frame.filter((pl.col("label") != label) | (rank <= cap))
    if options.negatives_per_positive is not None:
        before = (rank - 1) / pl.col("label").sum().over("group")  # 55 / 25 is 2.2, but 2.2 * 25 is above 55
        frame = frame.filter((pl.col("label") == 1) | (before < options.negatives_per_positive))
    return frame
