"""A twin of SciDocs as MTEB reranks it: `{validation,test}.jsonl.gz`, lists of titles; there is no train file.

As in the official files, some titles stand in two rows, since tasks were merged; never in both files, though, since
the reader would leave out the rows that are not of the test file.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import polars as pl

from tasks.simulation.judgements import judge, last_queries, queries_with_both
from tasks.simulation.language import TOPICS, body_texts, make_language, query_texts, side_by_side, title_texts
from tasks.simulation.lists import judged_pairs, lists_and_truth

MIX = (0.8347, 0.1653)
SIZES = (26, 33)  # candidates of a row: about 30
TEST_SHARE = 0.5  # of the rows
REPEATED = 0.17  # rows whose title is that of the row before


def write(folder: Path, rows: int, residual: float, generator: np.random.Generator) -> pl.DataFrame:
    """Write the raw files; returns the truth, `pair, probabilities`."""
    judgements = judge(rows, MIX, residual, generator)
    line = queries_with_both(judgements.label, SIZES, generator)
    in_test = last_queries(line, TEST_SHARE)
    repeats = generator.random(int(line[-1]) + 1) < REPEATED
    repeats[[0, line[in_test.argmax()]]] = False
    title = np.cumsum(~repeats) - 1
    language = make_language("us", len(judgements.choice), generator)
    topic = generator.integers(TOPICS, size=int(title[-1]) + 1)
    query = title[line]
    body = body_texts(judgements.choice, topic[query[judgements.first]], language, generator)
    texts = side_by_side([title_texts(judgements.choice, language), body])
    pairs = judged_pairs(judgements, line, query_texts(topic, language)[query], texts)
    truths = []
    for part, rows_of in (("validation", ~in_test), ("test", in_test)):
        lists, truth = lists_and_truth(pairs.filter(rows_of), part)
        with gzip.GzipFile(folder / f"{part}.jsonl.gz", "wb", compresslevel=6, mtime=0) as packed:
            packed.write(lists.write_ndjson().encode())
        truths.append(truth)
    return pl.concat(truths)
