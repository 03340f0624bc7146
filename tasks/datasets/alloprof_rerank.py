"""Alloprof-Rerank: questions of pupils and pages that may answer them, in French."""

import polars as pl

from tasks.datasets import base, raw
from tasks.sources.hub import Repository

SEED = 20260624
LABELS = ("Non-relevant", "Relevant")


def draw(rows: raw.OpenedRepository) -> dict[str, pl.DataFrame]:
    """Every judged pair that has both texts, 60 / 20 / 20 % by query, the rows of each split in an order of its own."""
    kinds = dict.fromkeys(("query-id", "corpus-id"), "text or number") | {"score": "integer"}
    qrels = rows("test", "default").frame(kinds, LABELS, label="score")
    parts = base.by_query(base.with_texts(qrels, rows), SEED).items()
    return {
        split: base.shuffled(frame, SEED + place, len(frame))[0] for place, (split, frame) in enumerate(parts, start=1)
    }


DATASET = base.Dataset(
    name="alloprof_rerank",
    title="Alloprof-Rerank",
    domain="QA retrieval",
    task="Question-document relevance reranking",
    labels=LABELS,
    licence="CC BY-NC-SA 4.0",  # the strictest of several statements that contradict each other
    read=base.from_repository(draw, "query-id", {"query: ": "query", "document: ": "document"}),
    repository=Repository("mteb/AlloprofReranking"),
    split_by="group",
    drawn=("train", "validation", "test"),
    member_seed=10101,
    passes=60,
)
