"""Alloprof-Rerank: questions of pupils and pages that may answer them, in French."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tasks.datasets.base import Dataset, Judged
from tasks.datasets.drawing import by_query, judged, lines, with_texts
from tasks.datasets.repository import opened_repository
from tasks.sources.hub import Repository

SEED = 20260624
LABELS = ("Non-relevant", "Relevant")


def read(folder: Path) -> Judged:
    """Every judged pair that has both texts, 60 / 20 / 20 % by query, the rows of each split in an order of its own."""
    with opened_repository(folder) as rows:
        kinds = dict.fromkeys(("query-id", "corpus-id"), "text or number") | {"score": "integer"}
        qrels = rows("test", "default").frame(kinds, LABELS, label="score")
        queries, corpus = (rows("test", config).texts_by_id() for config in ("queries", "corpus"))
    parts = by_query(with_texts(qrels, queries, corpus), SEED)
    for place, (split, frame) in enumerate(parts.items(), start=1):
        parts[split] = frame[np.random.default_rng(SEED + place).permutation(len(frame))]
    return judged(parts, group="query-id", text=lines({"query: ": "query", "document: ": "document"}))


ALLOPROF_RERANK = Dataset(
    name="alloprof_rerank",
    title="Alloprof-Rerank",
    domain="QA retrieval",
    task="Question-document relevance reranking",
    labels=LABELS,
    licence="CC BY-NC-SA 4.0",  # the strictest of several statements that contradict each other
    read=read,
    repository=Repository("mteb/AlloprofReranking"),
    split_by="group",
    drawn=("train", "validation", "test"),
    member_seed=10101,
    passes=60,
)
