"""SciDocs: papers, and papers that were cited, read or viewed with them, by their titles."""

import polars as pl

from tasks.datasets import base, raw
from tasks.sources.hub import Repository

SEED = 20260622
LABELS = ("Non-relevant", "Relevant")


def draw(rows: raw.OpenedRepository) -> dict[str, pl.DataFrame]:
    """At most five positive and as many negative candidates of a query, 60 / 20 / 20 % by query.

    Inferred: a query is a row of the file, so a title that stands in two rows may be in two splits.
    """
    lists = rows("test").table({"query": "text", "positive": "list of texts", "negative": "list of texts"})
    pairs = pl.concat(
        lists.select("query", raw.ROW, candidate=side, label=pl.lit(label, dtype=pl.Int8))
        .explode("candidate")
        .with_columns(pair=pl.format("test:{}:{}:{}", raw.ROW, pl.lit(side), pl.int_range(pl.len()).over(raw.ROW)))
        for label, side in enumerate(("negative", "positive"))
    )
    there = pairs.drop_nulls("candidate").rename({raw.ROW: "query-id"})  # a list may be empty
    return base.by_query(base.capped(there.sort("query-id", maintain_order=True)), SEED)


DATASET = base.Dataset(
    name="scidocs",
    title="SciDocs",
    domain="Scientific retrieval",
    task="Candidate document reranking",
    labels=LABELS,
    licence="CC BY 4.0",
    read=base.from_repository(draw, "query", {"query: ": "query", "candidate: ": "candidate"}),
    repository=Repository("mteb/scidocs-reranking"),
    drawn=("train", "validation", "test"),
    member_seed=9101,
)
