"""A twin of Amazon ESCI: `shopping_queries_dataset_{examples,products}.parquet` and `_sources.csv`, three locales.

A product id is unique within a locale only, as in the official files: here the same ids come back in each.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from tasks.simulation.judgements import judge, last_queries, queries_by_size
from tasks.simulation.language import TOPICS, Language, body_texts, make_language, query_texts, title_texts
from tasks.simulation.relevance import probability_lists

LABELS = ("E", "S", "C", "I")
MIX = (0.6517, 0.2191, 0.0289, 0.1003)
SIZES = (8, 32)  # products of a query: 20 on average
TEST_SHARE = 0.243  # of the queries
SMALL_SHARE = 0.427  # of the queries: those of the small version
LOCALES = {"us": 0.6939, "es": 0.1360, "jp": 0.1701}  # shares of the rows, in the order of the query ids
FOLDER = "shopping_queries_dataset"


def write(folder: Path, rows: int, residual: float, generator: np.random.Generator) -> pl.DataFrame:
    """Write the raw files; returns the truth, `pair, probabilities`."""
    ends = np.rint(np.cumsum([0, *LOCALES.values()]) * rows).astype(int)
    examples, products, queries = [], [], 0
    for locale, count in zip(LOCALES, np.diff(ends).tolist(), strict=True):
        judged, sold = judged_in(locale, count, queries, residual, generator)
        queries = judged["query_id"][-1] + 1
        examples.append(judged)
        products.append(sold)
    rows_of_all = pl.concat(examples).with_row_index("example_id").cast({"example_id": pl.Int64})
    home = folder / FOLDER
    home.mkdir()
    rows_of_all.drop("probabilities").write_parquet(home / f"{FOLDER}_examples.parquet")
    pl.concat(products).write_parquet(home / f"{FOLDER}_products.parquet")
    sources = pl.select(query_id=pl.int_range(queries), source=pl.lit("other"))
    sources.write_csv(home / f"{FOLDER}_sources.csv")
    return rows_of_all.select(pair=pl.col("example_id").cast(pl.String), probabilities="probabilities")


def judged_in(
    locale: str, rows: int, first_query: int, residual: float, generator: np.random.Generator
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The examples (with the truth) and the products of one locale; some queries begin with a space and a `!`."""
    judgements = judge(rows, MIX, residual, generator)
    query = queries_by_size(rows, SIZES, generator)
    queries = int(query[-1]) + 1
    language = make_language(locale, len(judgements.choice), generator)
    topic = generator.integers(TOPICS, size=queries)
    text = query_texts(topic, language)
    odd = pl.Series(np.arange(queries) % 40 == 0)
    small = generator.random(queries) < SMALL_SHARE
    examples = pl.DataFrame(
        {
            "query": (" !" + text).zip_with(odd, text).gather(query),
            "query_id": query + first_query,
            "product_id": product_ids(len(judgements.choice)).gather(judgements.candidate),
            "product_locale": pl.Series([locale]).new_from_index(0, rows),
            "esci_label": pl.Series(LABELS).gather(judgements.label),
            "small_version": small[query].astype(np.int64),
            "large_version": np.ones(rows, dtype=np.int64),
            "split": pl.Series(["train", "test"]).gather(last_queries(query, TEST_SHARE).astype(int)),
            "probabilities": probability_lists(judgements.probabilities),
        }
    )
    return examples, product_rows(locale, judgements.choice, topic[query[judgements.first]], language, generator)


def product_rows(
    locale: str, choice: np.ndarray, topic: np.ndarray, language: Language, generator: np.random.Generator
) -> pl.DataFrame:
    """The products of this choice `(m, SLOTS)` and topic `(m,)`, then ten that nobody judges; many lack a text."""
    choice, topic = np.vstack([choice, choice[:10]]), np.append(topic, topic[:10])
    word = pl.Series(language.topics).gather(topic)
    return pl.select(
        product_id=product_ids(len(topic)),
        product_title=title_texts(choice, language),
        product_description=body_texts(choice, topic, language, generator),
        product_bullet_point=body_texts(choice, topic, language, generator),
        product_brand=word,
        product_color=word.reverse(),
        product_locale=pl.lit(locale),
    ).with_columns(
        but_every(2, "product_description"),
        but_every(20, "product_bullet_point"),
        but_every(12, "product_brand"),
        but_every(3, "product_color"),
    )


def product_ids(count: int) -> pl.Series:
    """So many ids in the manner of the shop: B and nine digits."""
    return pl.select(pl.format("B{}", pl.int_range(count).cast(pl.String).str.zfill(9))).to_series()


def but_every(step: int, column: str) -> pl.Expr:
    """The column, null in the last of every `step` rows."""
    return pl.when(pl.int_range(pl.len()) % step != step - 1).then(column)
