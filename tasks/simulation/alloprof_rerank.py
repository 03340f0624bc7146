"""A twin of Alloprof-Rerank: `documents/test-*.parquet` and, in `queries/`, lists of their ids; French.

The official pool is small, and each of its documents is a candidate of many questions. Here a document is a candidate
of one or two: a model would learn by heart what it sees again and again, and its confidence there would say nothing.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from tasks.simulation.judgements import judge, last_queries, queries_with_both
from tasks.simulation.language import TOPICS, body_texts, make_language, query_texts, title_texts
from tasks.simulation.lists import judged_pairs, lists_and_truth

MIX = (0.8812, 0.1188)
SIZES = (8, 8)  # candidates of a question, before it goes on until it has a positive one: then about 11
TEST_SHARE = 0.2  # of the questions


def write(folder: Path, rows: int, residual: float, generator: np.random.Generator) -> pl.DataFrame:
    """Write the raw files; returns the truth, `pair, probabilities`."""
    judgements = judge(rows, MIX, residual, generator)
    query = queries_with_both(judgements.label, SIZES, generator)
    queries = int(query[-1]) + 1
    language = make_language("fr", len(judgements.choice), generator)
    topic = generator.integers(TOPICS, size=queries)
    title = title_texts(judgements.choice, language)
    body = body_texts(judgements.choice, topic[query[judgements.first]], language, generator)
    documents = pl.select(
        doc_id=pl.format("document-{}", pl.int_range(len(title))),
        text=pl.format("{}\n{}.", title, body),
    )
    for name in ("documents", "queries"):
        (folder / name).mkdir()
    documents.write_parquet(folder / "documents/test-00000-of-00001.parquet")
    pairs = judged_pairs(judgements, query, query_texts(topic, language)[query], documents["doc_id"])
    in_test = last_queries(query, TEST_SHARE)
    truths = []
    for part, rows_of in (("train", ~in_test), ("test", in_test)):
        lists, truth = lists_and_truth(pairs.filter(rows_of), f"{part}-0")
        lists.write_parquet(folder / f"queries/{part}-00000-of-00001.parquet")
        truths.append(truth)
    return pl.concat(truths)
