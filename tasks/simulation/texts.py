"""Twins of the five sets of texts, in the layouts of their repositories on the hub."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from tasks.simulation.judgements import draw_queries, judge, probability_lists
from tasks.simulation.language import TOPICS, body_texts, make_language, query_texts, title_texts

Tables = dict[tuple[str, str], pl.DataFrame]  # (config, split) -> rows
Layout = Callable[[pl.DataFrame, np.random.Generator], tuple[Tables, pl.DataFrame]]


class Shape(NamedTuple):
    """What a twin takes over from the official set; where there are two labels, each query has candidates of both."""

    mix: tuple[float, ...]  # shares of the labels
    sizes: Callable[[int], tuple[int, int]]  # rows of the twin -> fewest and most candidates of a query
    tongue: str
    layout: Layout


def made_up(shape: Shape, rows: int, residual: float, generator: np.random.Generator) -> tuple[Tables, pl.DataFrame]:
    """The tables of a twin, and its rows, each with its `pair` and `probabilities`, the truth."""
    judgements = judge(rows, shape.mix, residual, generator)
    both = judgements.label if len(shape.mix) == 2 else None
    query = draw_queries(rows, shape.sizes(rows), generator, both)
    language = make_language(shape.tongue, len(judgements.choice), generator)
    topic = generator.integers(TOPICS, size=int(query[-1]) + 1)
    about = topic[query[judgements.first]]
    candidates = {
        "title": title_texts(judgements.choice, language),
        "body": body_texts(judgements.choice, about, language, generator),
        "word": language.topics[about],
    }
    judged = pl.DataFrame(
        {
            **{name: texts[judgements.candidate] for name, texts in candidates.items()},
            "query_number": query,
            "query": query_texts(topic, language)[query],
            "candidate_number": judgements.candidate,
            "label": judgements.label,
            "probabilities": probability_lists(judgements.probabilities),
        }
    )
    return shape.layout(judged, generator)


def numbered(parts: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """The rows of all splits, each named `<split>:<row>`, from 1."""
    return pl.concat(
        frame.with_columns(pair=pl.format("{}:{}", pl.lit(split), pl.int_range(1, pl.len() + 1)))
        for split, frame in parts.items()
    )


def amazon_esci(rows: pl.DataFrame, _: np.random.Generator) -> tuple[Tables, pl.DataFrame]:
    """`train` and `test` of `query, product_title, text, label`; about half of the products have no text."""
    queries = int(rows["query_number"][-1]) + 1
    tested = pl.col("query_number") >= queries - round(0.302 * queries)
    parts = {"train": rows.filter(~tested), "test": rows.filter(tested)}
    text = pl.when(pl.col("candidate_number") % 2 == 0).then("body").alias("text")
    tables = {
        ("default", split): part.select("query", text, "label", product_title="title") for split, part in parts.items()
    }
    return tables, numbered(parts)


def wands(rows: pl.DataFrame, generator: np.random.Generator) -> tuple[Tables, pl.DataFrame]:
    """`train`, `dev` and `test`, 60 / 20 / 20 % of the rows, so that queries straddle; some fields are null."""
    cut = [len(rows) * tenths // 10 for tenths in (6, 8)]
    drawn = np.split(generator.permutation(len(rows)), cut)
    parts = {split: rows[np.sort(places)] for split, places in zip(("train", "dev", "test"), drawn, strict=True)}

    def but_every(step: int, column: pl.Expr) -> pl.Expr:
        return pl.when(pl.col("candidate_number") % step != 0).then(column)

    columns: dict[str, str | pl.Expr] = {
        **{"query_id": "query_number", "product_id": "candidate_number", "label": "label", "query": "query"},
        "product_name": "title",
        "product_class": but_every(15, pl.format("{}|{}", "word", pl.col("word").str.to_uppercase())),
        "category hierarchy": but_every(28, pl.format("home / {}", "word")),
        "product_description": but_every(7, pl.col("body")),
        "product_features": pl.format('width : {}"|colour:{}', pl.col("candidate_number") % 90 + 10, "word"),
    }
    return {("default", split): part.select(**columns) for split, part in parts.items()}, numbered(parts)


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
        pl.col("query").first(), positive=text.filter(pl.col("label") == 1), negative=text.filter(pl.col("label") == 0)
    )
    side = pl.when(pl.col("label") == 1).then(pl.lit("positive")).otherwise(pl.lit("negative"))
    place = pl.int_range(pl.len()).over("query_number", "label")
    pairs = rows.with_columns(pair=pl.format("test:{}:{}:{}", pl.col("query_number") + 1, side, place))
    return {("default", "test"): lists.drop("query_number")}, pairs


def retrieval(prefix: str) -> Layout:
    """The layout of a reranking task: `corpus`, `queries`, qrels (`default`), and with a `prefix` `top_ranked`."""

    def layout(rows: pl.DataFrame, _: np.random.Generator) -> tuple[Tables, pl.DataFrame]:
        query = pl.format("query{}", pl.col("query_number").cast(pl.String).str.zfill(6)).alias("query-id")
        pairs = rows.with_columns(query, pl.format("document{}", "candidate_number").alias("corpus-id"))
        pairs = pairs.with_columns(pair=pl.format("{}:{}", "query-id", "corpus-id"))
        asked, candidates = (
            pairs.unique(side, keep="first", maintain_order=True) for side in ("query-id", "corpus-id")
        )
        tables = {
            "corpus": candidates.select(_id="corpus-id", title="title", text="body"),
            "queries": asked.select(_id="query-id", text="query"),
            "qrels" if prefix else "default": pairs.select("query-id", "corpus-id", score="label"),
        }
        if prefix:
            lists = pairs.group_by("query-id", maintain_order=True).agg(pl.col("corpus-id").alias("corpus-ids"))
            tables["top_ranked"] = lists
        return {(prefix + name, "test"): frame for name, frame in tables.items()}, pairs

    return layout


# Fewer rows of WANDS mean fewer products of a query (of some 486), down to 30, and only then fewer queries.
SHAPES = {
    "amazon_esci": Shape((0.1004, 0.0289, 0.2191, 0.6516), lambda _: (8, 32), "us", amazon_esci),
    "alloprof_rerank": Shape((0.8812, 0.1188), lambda _: (8, 8), "fr", retrieval("")),
    "esci_rerank_us": Shape((0.2748, 0.7252), lambda _: (4, 21), "us", retrieval("us-")),
    "wands": Shape(
        (0.2622, 0.6281, 0.1097), lambda rows: (max(30, rows // 480) // 2, max(30, rows // 480) * 3 // 2), "us", wands
    ),
    "scidocs": Shape((0.8347, 0.1653), lambda _: (26, 33), "us", scidocs),
}
