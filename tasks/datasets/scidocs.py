"""SciDocs: titles of papers, and of papers that were cited, read or viewed together with them."""

import polars as pl

from tasks.datasets import base, raw
from tasks.sources.hub import Repository

SEED = 20260622
LABELS = ("Non-relevant", "Relevant")


def sample_splits(read_split: raw.RepositoryReader) -> dict[str, pl.DataFrame]:
    """Retain at most five candidates of each label for each query, and split the pairs by query.

    Inferred: a query is a row of the file, so a title that occurs in two rows may be in two splits.

    Args:
        read_split: Function that reads a split of the repository.

    Returns:
        Rows of each split.
    """
    lists = read_split("test").table({"query": "text", "positive": "list of texts", "negative": "list of texts"})
    position = pl.int_range(pl.len()).over(raw.ROW_NUMBER)
    frames = []
    for label, column in enumerate(("negative", "positive")):
        candidates = lists.select("query", raw.ROW_NUMBER, candidate=column, label=pl.lit(label, dtype=pl.Int8))
        pair_id = pl.format("test:{}:{}:{}", raw.ROW_NUMBER, pl.lit(column), position)
        frames.append(candidates.explode("candidate").with_columns(pair=pair_id))
    pairs = pl.concat(frames).drop_nulls("candidate")  # a list may be empty
    pairs = pairs.rename({raw.ROW_NUMBER: "query-id"}).sort("query-id", maintain_order=True)
    return base.split_by_query(base.cap_candidates(pairs), SEED)


DATASET = base.Dataset(
    name="scidocs",
    title="SciDocs",
    domain="Scientific retrieval",
    task="Candidate document reranking",
    labels=LABELS,
    licence="CC BY 4.0",
    read=base.repository_reader(sample_splits, "query", {"query: ": "query", "candidate: ": "candidate"}),
    repository=Repository("mteb/scidocs-reranking"),
    drawn_splits=("train", "validation", "test"),
    predictor_seed=9101,
)
