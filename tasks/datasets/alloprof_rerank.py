"""Alloprof-Rerank: questions of French-speaking pupils, and pages that may answer them."""

import polars as pl

from tasks.datasets import base, raw
from tasks.sources.hub import Repository

SEED = 20260624
LABELS = ("Non-relevant", "Relevant")


def sample_splits(read_split: raw.RepositoryReader) -> dict[str, pl.DataFrame]:
    """Take all labelled pairs with both texts, split them by query, and shuffle the rows of each split.

    Args:
        read_split: Reader of the repository.

    Returns:
        Rows of each split.
    """
    kinds = {"query-id": "text or number", "corpus-id": "text or number", "score": "integer"}
    judgements = read_split("test", "default").labelled_table(kinds, LABELS, label="score")
    parts = base.split_by_query(base.join_texts(judgements, read_split), SEED)
    shuffled = {}
    for number, (split, frame) in enumerate(parts.items(), start=1):
        samples = base.draw_samples(frame, SEED + number, len(frame))  # one sample: all rows, in random order
        shuffled[split] = samples[0]
    return shuffled


DATASET = base.Dataset(
    name="alloprof_rerank",
    title="Alloprof-Rerank",
    domain="QA retrieval",
    task="Question-document relevance reranking",
    labels=LABELS,
    licence="CC BY-NC-SA 4.0",  # the strictest of several contradicting statements
    read=base.repository_reader(sample_splits, "query-id", {"query: ": "query", "document: ": "document"}),
    repository=Repository("mteb/AlloprofReranking"),
    split_by="group",
    drawn_splits=("train", "validation", "test"),
    predictor_seed=10101,
    max_training_passes=60,
)
