"""Alloprof-Rerank: questions of French-speaking pupils, and pages that may answer them."""

import polars as pl

from tasks.datasets import base, raw, sampling
from tasks.sources.hub import Repository

SEED = 20260624
LABELS = ("Non-relevant", "Relevant")


def sample_splits(read_split: raw.RepositoryReader, run: int = 0) -> dict[str, pl.DataFrame]:
    """Take all labelled pairs with both texts, split them by query, and shuffle the rows of each split.

    Pairs with a negative score are omitted. Their queries still count when queries are split.

    Args:
        read_split: Reader of the repository.
        run: Training run.

    Returns:
        Rows of each split.
    """
    kinds = {"query-id": "text or number", "corpus-id": "text or number", "score": "integer"}
    rows = read_split("test", "default")
    judgements = rows.table(kinds)
    is_negative = (pl.col("score") < 0).fill_null(False)
    labelled = rows.check_labels(judgements.filter(~is_negative), LABELS, label="score")
    queries = read_split("test", "queries").texts_by_id()
    documents = read_split("test", "corpus").texts_by_id()
    pairs = sampling.join_texts(labelled, queries, documents)
    seed = SEED + sampling.RUN_SEED_STEP * run
    samples = {}
    for number, (split, part) in enumerate(
        sampling.split_by_query(pairs, judgements["query-id"], seed).items(), start=1
    ):
        samples[split] = sampling.draw_rows(part, seed + number)
    return samples


TEXT = sampling.prefixed_lines({"query: ": pl.col("query"), "document: ": pl.col("document")})
READ = sampling.repository_reader(sample_splits, "query-id", TEXT)
DATASET = base.Dataset(
    name="alloprof_rerank",
    title="Alloprof-Rerank",
    domain="QA retrieval",
    task="Question-document relevance reranking",
    labels=LABELS,
    licence="CC BY-NC-SA 4.0",  # the strictest of several contradicting statements
    read=READ,
    read_run=READ,
    repository=Repository("mteb/AlloprofReranking"),
    split_by="group",
    drawn_splits=("train", "validation", "test"),
    repeats_pairs=True,
    predictor_seed=10101,
    max_training_passes=60,
)
