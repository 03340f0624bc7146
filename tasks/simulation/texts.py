"""Twins of the five sets of texts, in the layouts of their repositories on the hub."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from tasks.simulation.card import Tables, write_repository
from tasks.simulation.judgements import judge, last_queries, queries_by_size, queries_with_both
from tasks.simulation.language import TOPICS, body_texts, make_language, query_texts, title_texts
from tasks.simulation.relevance import probability_lists

SPLITS_OF_WANDS = ("train", "dev", "test")


@dataclass(frozen=True)
class Shape:
    """What a twin takes over from the official set."""

    mix: tuple[float, ...]  # shares of the labels
    sizes: Callable[[int], tuple[int, int]]  # rows of the twin -> fewest and most candidates of a query
    both: bool  # each query has candidates of both labels
    tongue: str
    layout: Callable[[pl.DataFrame, np.random.Generator], tuple[Tables, pl.DataFrame]]


def write(name: str, folder: Path, rows: int, residual: float, generator: np.random.Generator) -> pl.DataFrame:
    """Write the files of a twin of `name`; returns the truth, `pair, probabilities`."""
    shape = SHAPES[name]
    tables, pairs = shape.layout(judged_texts(shape, rows, residual, generator), generator)
    write_repository(folder, tables)
    return pairs.select("pair", "probabilities")


def judged_texts(shape: Shape, rows: int, residual: float, generator: np.random.Generator) -> pl.DataFrame:
    """A row for each judgement, query by query: numbers and texts of query and candidate, label, probabilities."""
    judgements = judge(rows, shape.mix, residual, generator)
    sizes = shape.sizes(rows)
    query = (
        queries_with_both(judgements.label, sizes, generator) if shape.both else queries_by_size(rows, sizes, generator)
    )
    language = make_language(shape.tongue, len(judgements.choice), generator)
    topic = generator.integers(TOPICS, size=int(query[-1]) + 1)
    about = topic[query[judgements.first]]
    candidates = pl.DataFrame(
        {
            "title": title_texts(judgements.choice, language),
            "body": body_texts(judgements.choice, about, language, generator),
            "word": pl.Series(language.topics).gather(about),
        }
    )
    return candidates[judgements.candidate].with_columns(
        query_number=pl.Series(query),
        query=query_texts(topic, language).gather(query),
        candidate_number=pl.Series(judgements.candidate),
        label=pl.Series(judgements.label),
        probabilities=probability_lists(judgements.probabilities),
    )


def numbered(parts: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """The rows of all splits, each named `<split>:<row>`, from 1."""
    return pl.concat(
        frame.with_columns(pair=pl.format("{}:{}", pl.lit(split), pl.int_range(1, pl.len() + 1)))
        for split, frame in parts.items()
    )


def amazon_esci(rows: pl.DataFrame, _: np.random.Generator) -> tuple[Tables, pl.DataFrame]:
    """`train` and `test` of `query, product_title, text, label`; about half of the products have no text."""
    tested = pl.Series(last_queries(rows["query_number"].to_numpy(), 0.302))
    parts = {"train": rows.filter(~tested), "test": rows.filter(tested)}
    text = pl.when(pl.col("candidate_number") % 2 == 0).then("body").alias("text")
    tables = {
        ("default", split): some.select("query", text, "label", product_title="title") for split, some in parts.items()
    }
    return tables, numbered(parts)


def wands(rows: pl.DataFrame, generator: np.random.Generator) -> tuple[Tables, pl.DataFrame]:
    """`train`, `dev` and `test`, 60 / 20 / 20 % of the rows, so that queries straddle; some fields are null."""
    cut = [len(rows) * tenths // 10 for tenths in (6, 8)]
    drawn = np.split(generator.permutation(len(rows)), cut)
    parts = {split: rows[np.sort(places)] for split, places in zip(SPLITS_OF_WANDS, drawn, strict=True)}

    def but_every(step: int, column: pl.Expr) -> pl.Expr:
        return pl.when(pl.col("candidate_number") % step != 0).then(column)

    columns = {
        "query_id": pl.col("query_number"),
        "product_id": pl.col("candidate_number"),
        "label": pl.col("label"),
        "query": pl.col("query"),
        "product_name": pl.col("title"),
        "product_class": but_every(15, pl.format("{}|{}", "word", pl.col("word").str.to_uppercase())),
        "category hierarchy": but_every(28, pl.format("home / {}", "word")),
        "product_description": but_every(7, pl.col("body")),
        "product_features": pl.format('width : {}"|colour:{}', pl.col("candidate_number") % 90 + 10, "word"),
    }
    return {("default", split): some.select(**columns) for split, some in parts.items()}, numbered(parts)


def scidocs(rows: pl.DataFrame, generator: np.random.Generator) -> tuple[Tables, pl.DataFrame]:
    """`test`, a row for each query: `query, positive, negative`, lists of texts; some titles stand in two rows."""
    queries = int(rows["query_number"].max()) + 1  # type: ignore[arg-type]
    repeats = generator.random(queries) < 0.17
    repeats[0] = False
    first = np.maximum.accumulate(np.where(repeats, 0, np.arange(queries)))  # the row whose title it has
    titles = rows.unique("query_number", keep="first", maintain_order=True)["query"].gather(first)
    text = pl.format("{} {}", "title", "body")
    rows = rows.with_columns(query=titles.gather(rows["query_number"]))
    lists = rows.group_by("query_number", maintain_order=True).agg(
        pl.col("query").first(),
        positive=text.filter(pl.col("label") == 1),
        negative=text.filter(pl.col("label") == 0),
    )
    side = pl.when(pl.col("label") == 1).then(pl.lit("positive")).otherwise(pl.lit("negative"))
    place = pl.int_range(pl.len()).over("query_number", "label")
    pairs = rows.with_columns(pair=pl.format("test:{}:{}:{}", pl.col("query_number") + 1, side, place))
    return {("default", "test"): lists.drop("query_number")}, pairs


def retrieval(prefix: str, ranked: bool) -> Callable[[pl.DataFrame, np.random.Generator], tuple[Tables, pl.DataFrame]]:
    """The layout of a reranking task: `corpus`, `queries`, qrels (`default`), and where `ranked` `top_ranked`."""

    def layout(rows: pl.DataFrame, _: np.random.Generator) -> tuple[Tables, pl.DataFrame]:
        ids = {
            "query-id": pl.format("query{}", pl.col("query_number").cast(pl.String).str.zfill(6)),
            "corpus-id": pl.format("document{}", "candidate_number"),
        }
        pairs = rows.with_columns(**ids).with_columns(pair=pl.format("{}:{}", "query-id", "corpus-id"))
        asked, candidates = (pairs.filter(pl.col(each).is_first_distinct()) for each in ids)
        corpus = candidates.select(pl.col("corpus-id").alias("_id"), "title", text="body")
        queries = asked.select(pl.col("query-id").alias("_id"), text="query")
        qrels = pairs.select("query-id", "corpus-id", score="label")
        names = {"corpus": corpus, "queries": queries, "qrels" if prefix else "default": qrels}
        if ranked:
            names["top_ranked"] = pairs.group_by("query-id", maintain_order=True).agg(
                pl.col("corpus-id").alias("corpus-ids")
            )
        return {(prefix + name, "test"): frame for name, frame in names.items()}, pairs

    return layout


# Fewer rows of WANDS mean fewer products of a query (of some 486), down to 30, and only then fewer queries.
SHAPES = {
    "amazon_esci": Shape((0.1004, 0.0289, 0.2191, 0.6516), lambda _: (8, 32), False, "us", amazon_esci),
    "alloprof_rerank": Shape((0.8812, 0.1188), lambda _: (8, 8), True, "fr", retrieval("", ranked=False)),
    "esci_rerank_us": Shape((0.2748, 0.7252), lambda _: (4, 21), True, "us", retrieval("us-", ranked=True)),
    "wands": Shape(
        (0.2622, 0.6281, 0.1097),
        lambda rows: (max(30, rows // 480) // 2, max(30, rows // 480) * 3 // 2),
        False,
        "us",
        wands,
    ),
    "scidocs": Shape((0.8347, 0.1653), lambda _: (26, 33), True, "us", scidocs),
}
