"""A twin of ESCI-Rerank-US in MTEB's first layout: `us/{train,test}-*.parquet`, lists of product texts.

The official files also hold many queries with candidates of one kind only, which are left out when they are read;
here every query has both, and the class mix is that of the queries that have.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from tasks.simulation.judgements import judge, last_queries, queries_with_both
from tasks.simulation.language import TOPICS, body_texts, make_language, query_texts, side_by_side, title_texts
from tasks.simulation.lists import judged_pairs, lists_and_truth

MIX = (0.2748, 0.7252)
SIZES = (4, 21)  # candidates of a query: about 13
TEST_SHARE = 0.231  # of the queries


def write(folder: Path, rows: int, residual: float, generator: np.random.Generator) -> pl.DataFrame:
    """Write the raw files; returns the truth, `pair, probabilities`."""
    judgements = judge(rows, MIX, residual, generator)
    query = queries_with_both(judgements.label, SIZES, generator)
    queries = int(query[-1]) + 1
    language = make_language("us", len(judgements.choice), generator)
    topic = generator.integers(TOPICS, size=queries)
    body = body_texts(judgements.choice, topic[query[judgements.first]], language, generator)
    texts = side_by_side([title_texts(judgements.choice, language), body])
    pairs = judged_pairs(judgements, query, query_texts(topic, language)[query], texts)
    (folder / "us").mkdir()
    in_test = last_queries(query, TEST_SHARE)
    truths = []
    for part, rows_of in (("train", ~in_test), ("test", in_test)):
        lists, truth = lists_and_truth(pairs.filter(rows_of), f"{part}-0")
        lists.write_parquet(folder / "us" / f"{part}-00000-of-00001.parquet")
        truths.append(truth)
    return pl.concat(truths)
