"""ESCI-Rerank-US: candidate products to rerank for shopping queries, relevant or not."""

import polars as pl

from tasks.datasets import base, raw
from tasks.sources.hub import Repository

SEED = 20260624
LABELS = ("Non-relevant", "Relevant")


def sample_splits(read_split: raw.RepositoryReader) -> dict[str, pl.DataFrame]:
    """Cap the candidates of each query at five of each label, and split the pairs by query.

    Args:
        read_split: Reader of the repository.

    Returns:
        Rows of each split.
    """
    ids = ["query-id", "corpus-id"]
    ranked = read_split("test", "us-top_ranked").table({"query-id": "text or number", "corpus-ids": "list of texts"})
    judgements = read_split("test", "us-qrels").table({**dict.fromkeys(ids, "text or number"), "score": "integer"})
    positive = judgements.filter(pl.col("score") > 0).select(*ids, label=pl.lit(1, dtype=pl.Int8)).unique()
    candidates = ranked.select("query-id", pl.col("corpus-ids").alias("corpus-id")).explode("corpus-id")
    pairs = candidates.unique(maintain_order=True).join(positive, on=ids, how="left", maintain_order="left")
    pairs = pairs.with_columns(pl.col("label").fill_null(0))
    with_texts = base.join_texts(pairs, read_split, "us-")
    return base.split_by_query(base.cap_candidates(with_texts), SEED)


DATASET = base.Dataset(
    name="esci_rerank_us",
    title="ESCI-Rerank-US",
    domain="E-commerce reranking",
    task="Query-product candidate reranking",
    labels=LABELS,
    licence="Apache-2.0",
    read=base.repository_reader(sample_splits, "query-id", {"query: ": "query", "product: ": "document"}),
    repository=Repository("mteb/ESCIReranking"),
    split_by="group",
    drawn_splits=("train", "validation", "test"),
    predictor_seed=11101,
    max_terms=100_000,
)
