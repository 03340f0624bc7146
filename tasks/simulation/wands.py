"""A twin of WANDS: `dataset/{query,product,label}.csv`, separated by tabs, quoted where a field holds a quote.

The official set has 480 queries of 486 products each. Fewer rows first mean fewer products of a query, down to 30,
and only then fewer queries: a split by query needs many of them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from tasks.simulation.judgements import judge, queries_by_size
from tasks.simulation.language import TOPICS, Language, body_texts, make_language, query_texts, title_texts
from tasks.simulation.relevance import probability_lists

LABELS = ("Irrelevant", "Partial", "Exact")
MIX = (0.2622, 0.6281, 0.1097)
QUERIES = 480
FEWEST = 30  # products of a query, on average


def write(folder: Path, rows: int, residual: float, generator: np.random.Generator) -> pl.DataFrame:
    """Write the raw files; returns the truth, `pair, probabilities`."""
    judgements = judge(rows, MIX, residual, generator)
    size = max(FEWEST, rows // QUERIES)
    query = queries_by_size(rows, (size // 2, size + size // 2), generator)
    queries = int(query[-1]) + 1
    language = make_language("us", len(judgements.choice), generator)
    topic = generator.integers(TOPICS, size=queries)
    frames = {
        "query": query_rows(topic, language),
        "product": product_rows(judgements.choice, topic[query[judgements.first]], language, generator),
        "label": pl.DataFrame(
            {
                "id": with_gaps(rows),
                "query_id": with_gaps(queries)[query],
                "product_id": judgements.candidate,
                "label": pl.Series(LABELS).gather(judgements.label),
            }
        ),
    }
    (folder / "dataset").mkdir()
    for name, frame in frames.items():
        frame.write_csv(folder / "dataset" / f"{name}.csv", separator="\t")
    pair = frames["label"]["id"].cast(pl.String).alias("pair")
    return pl.DataFrame([pair, probability_lists(judgements.probabilities)])


def query_rows(topic: np.ndarray, language: Language) -> pl.DataFrame:
    """query.csv, one row for each query; a few have no class."""
    return pl.DataFrame(
        {
            "query_id": with_gaps(len(topic)),
            "query": query_texts(topic, language),
            "query_class": pl.Series(language.topics).gather(topic),
        }
    ).with_columns(but_every(80, "query_class"))


def product_rows(
    choice: np.ndarray, topic: np.ndarray, language: Language, generator: np.random.Generator
) -> pl.DataFrame:
    """product.csv: candidates of this choice `(m, SLOTS)` and topic `(m,)`, then ten that nobody judges."""
    choice, topic = np.vstack([choice, choice[:10]]), np.append(topic, topic[:10])
    known = pl.Series(language.topics).gather(topic)
    number = pl.int_range(len(topic))
    return pl.select(
        number.alias("product_id"),
        title_texts(choice, language).alias("product_name"),
        pl.format("{}|{}", known, known.reverse()).alias("product_class"),
        pl.format("home / {}", known).alias("category hierarchy"),
        body_texts(choice, topic, language, generator).alias("product_description"),
        pl.format('width : {}"|colour:{}', number % 90 + 10, known).alias("product_features"),
        (number % 50 + 0.0).alias("rating_count"),
        (number % 9 / 2 + 0.5).alias("average_rating"),
        (number % 40 + 0.0).alias("review_count"),
    ).with_columns(
        but_every(15, "product_class"),
        but_every(28, "category hierarchy"),
        but_every(7, "product_description"),
        but_every(5, "rating_count", "average_rating", "review_count"),
    )


def with_gaps(count: int) -> np.ndarray:
    """So many ids from 0 that leave out every 60th number."""
    return np.arange(count) + np.arange(count) // 59


def but_every(step: int, *columns: str) -> pl.Expr:
    """The columns, null in the last of every `step` rows."""
    return pl.when(pl.int_range(pl.len()) % step != step - 1).then(pl.col(*columns))
