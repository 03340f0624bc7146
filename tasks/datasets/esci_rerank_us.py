"""ESCI-Rerank-US: products of a shop to be reranked, relevant or not."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from tasks.datasets.base import Dataset, Judged
from tasks.datasets.drawing import by_query, capped, judged, lines, with_texts
from tasks.datasets.repository import opened_repository
from tasks.sources.hub import Repository

SEED = 20260624
LABELS = ("Non-relevant", "Relevant")


def read(folder: Path) -> Judged:
    """At most five positive and as many negative candidates of a query, 60 / 20 / 20 % by query."""
    ids = dict.fromkeys(("query-id", "corpus-id"), "text or number")
    with opened_repository(folder) as rows:
        ranked = rows("test", "us-top_ranked").table({"query-id": ids["query-id"], "corpus-ids": "list of texts"})
        qrels = rows("test", "us-qrels").table(ids | {"score": "integer"})
        queries, corpus = (rows("test", f"us-{config}").texts_by_id() for config in ("queries", "corpus"))
    positive = qrels.filter(pl.col("score") > 0).select("query-id", "corpus-id", label=pl.lit(1, dtype=pl.Int8))
    candidates = (
        ranked.select("query-id", pl.col("corpus-ids").alias("corpus-id"))
        .explode("corpus-id")
        .unique(maintain_order=True)
    )
    pairs = candidates.join(positive.unique(), on=["query-id", "corpus-id"], how="left", maintain_order="left")
    pairs = with_texts(pairs.with_columns(pl.col("label").fill_null(0)), queries, corpus)
    text = lines({"query: ": "query", "product: ": "document"})
    return judged(by_query(capped(pairs), SEED), group="query-id", text=text)


ESCI_RERANK_US = Dataset(
    name="esci_rerank_us",
    title="ESCI-Rerank-US",
    domain="E-commerce reranking",
    task="Query-product candidate reranking",
    labels=LABELS,
    licence="Apache-2.0",
    read=read,
    repository=Repository("mteb/ESCIReranking"),
    split_by="group",
    drawn=("train", "validation", "test"),
    member_seed=11101,
    terms=100_000,
)
