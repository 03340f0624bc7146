"""ESCI-Rerank-US: products of a shop to be reranked, relevant or not."""

import polars as pl

from tasks.datasets import base, raw
from tasks.sources.hub import Repository

SEED = 20260624
LABELS = ("Non-relevant", "Relevant")


def draw(rows: raw.OpenedRepository) -> dict[str, pl.DataFrame]:
    """At most five positive and as many negative candidates of a query, 60 / 20 / 20 % by query."""
    ids = dict.fromkeys(("query-id", "corpus-id"), "text or number")
    ranked = rows("test", "us-top_ranked").table({"query-id": ids["query-id"], "corpus-ids": "list of texts"})
    qrels = rows("test", "us-qrels").table(ids | {"score": "integer"})
    positive = qrels.filter(pl.col("score") > 0).select(*ids, label=pl.lit(1, dtype=pl.Int8)).unique()
    candidates = ranked.select("query-id", pl.col("corpus-ids").alias("corpus-id")).explode("corpus-id")
    pairs = candidates.unique(maintain_order=True).join(positive, on=list(ids), how="left", maintain_order="left")
    texts = base.with_texts(pairs.with_columns(pl.col("label").fill_null(0)), rows, "us-")
    return base.by_query(base.capped(texts), SEED)


DATASET = base.Dataset(
    name="esci_rerank_us",
    title="ESCI-Rerank-US",
    domain="E-commerce reranking",
    task="Query-product candidate reranking",
    labels=LABELS,
    licence="Apache-2.0",
    read=base.from_repository(draw, "query-id", {"query: ": "query", "product: ": "document"}),
    repository=Repository("mteb/ESCIReranking"),
    split_by="group",
    drawn=("train", "validation", "test"),
    member_seed=11101,
    terms=100_000,
)
