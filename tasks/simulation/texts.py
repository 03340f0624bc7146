"""Twins of the five sets of texts, in the layouts of their repositories on the hub, and what their texts are made of.

Three kinds of words make a text. Evidence: a phrase for each of SLOTS properties, one out of CHOICES; nothing else in
a text says anything about its label. Stock phrases: what is said in a topic anyway, some very often and most rarely
(Zipf), of words that do the same. Names: two words that make a text unique.

A linear model over words and pairs of words must learn the evidence from some 5,000 rows: what its penalty shrinks away
leaves a residual that depends on the label even where the truth has none. Hence few choices, each of them frequent;
phrases in a fixed order, said twice; and stock phrases in place of single words, since a pair of words that never comes
back only helps to learn the training rows by heart.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from relmap.simulation.judgements import N_PHRASES, N_SLOTS, Difficulty, draw_queries, simulate_judgements

PHRASE = 3  # words in each
TOPICS = 12
STOCK = 60  # phrases of a topic
WORDS = 1500  # that stock phrases draw from

# Each begins with a consonant, so that three of them can be read in one way only.
SYLLABLES = {
    "us": "ba be bo da den di fa fin go ha hol ka ker la len li lo ma men mi na nor pa per ra ren ri sa sel ta ton va",
    "fr": "bé cha cœ da dou fé gne jou la lé lou mè mo na nê pa pé que ra ré rou sa sè ta té tou va vé voi ça",
}

Tables = dict[tuple[str, str], pl.DataFrame]  # (config, split) -> rows
Layout = Callable[[pl.DataFrame, np.random.Generator], tuple[Tables, pl.DataFrame]]


class Shape(NamedTuple):
    """What a twin has in common with the official data set.

    Where there are two labels, each query has candidates of both.

    Attributes:
        mix: Shares of the labels in the files; where candidates are capped, before the cap.
        difficulty: Strength of the evidence and size of the residual, chosen to match accuracy and label spread.
        sizes: Function of the number of rows that returns the fewest and the most candidates of a query.
        tongue: Key of SYLLABLES.
        layout: Function that writes the rows in the layout of the official repository.
    """

    mix: tuple[float, ...]
    difficulty: Difficulty
    sizes: Callable[[int], tuple[int, int]]
    tongue: str
    layout: Layout


def draw_words(tongue: str, count: int, generator: np.random.Generator) -> np.ndarray:
    """So many different words of three syllables, `(count,)` str."""
    syllables = np.array(SYLLABLES[tongue].split(), dtype=object)
    base = len(syllables)
    code = generator.choice(base**3, count, replace=False)
    return np.asarray(syllables[code // base**2] + syllables[code // base % base] + syllables[code % base])


def joined(words: np.ndarray) -> np.ndarray:
    """Texts `(..., m)` to texts `(...)`, a space between the m of each."""
    return np.asarray((words[..., :-1] + " ").sum(axis=-1) + words[..., -1])


def zipf(count: int, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Ranks 0..count-1 of the given shape, the r-th with weight 1/(r + 2)."""
    weight = np.cumsum(1 / np.arange(2, count + 2))
    return np.searchsorted(weight / weight[-1], generator.random(shape), side="right")


def name_texts(count: int, names: np.ndarray) -> np.ndarray:
    """So many texts of two names, no two alike."""
    first, second = np.divmod(np.arange(count), base := math.isqrt(count) + 1)
    return joined(np.column_stack([names[first], names[len(names) - base + second]]))


def made_up(shape: Shape, rows: int, residual: float, generator: np.random.Generator) -> tuple[Tables, pl.DataFrame]:
    """The tables of a twin, and its rows, each with its `pair` and `probabilities`, the truth.

    A title and a query are told apart by their names; a body says the evidence of its title once more.
    """
    judgements = simulate_judgements(rows, shape.mix, shape.difficulty, residual, generator)
    both = judgements.label if len(shape.mix) == 2 else None
    query = draw_queries(rows, shape.sizes(rows), generator, both)
    kinds = np.cumsum([PHRASE * N_SLOTS * N_PHRASES, WORDS, TOPICS])  # and names enough to tell so many texts apart
    drawn = draw_words(shape.tongue, kinds[-1] + 2 * math.isqrt(len(judgements.choice)) + 2, generator)
    signs, words, topics, names = np.split(drawn, kinds)
    stock = joined(words[zipf(WORDS, (TOPICS, STOCK, PHRASE), generator)])  # (TOPICS, STOCK)
    topic = generator.integers(TOPICS, size=int(query[-1]) + 1)
    about = topic[query[judgements.first]]
    evidence = joined(signs.reshape(N_SLOTS, N_PHRASES, PHRASE))[np.arange(N_SLOTS), judgements.choice]
    said = stock[about[:, None], zipf(STOCK, (len(about), 2), generator)]
    candidates = {
        "title": joined(np.column_stack([name_texts(len(about), names), evidence])),
        "body": joined(np.column_stack([evidence, said])),
        "word": topics[about],
    }
    queries = joined(np.column_stack([topics[topic], name_texts(len(topic), names)]))
    judged = pl.DataFrame(
        {
            **{name: texts[judgements.candidate] for name, texts in candidates.items()},
            "query_number": query,
            "query": queries[query],
            "candidate_number": judgements.candidate,
            "label": judgements.label,
            "probabilities": pl.Series(judgements.probabilities).arr.to_list(),
        }
    )
    return shape.layout(judged, generator)


def released(parts: Mapping[str, pl.DataFrame], columns: Mapping[str, Any]) -> tuple[Tables, pl.DataFrame]:
    """A table with `columns` of each split, and the rows of all, each named `<split>:<row>`, from 1."""
    pair = {split: pl.format("{}:{}", pl.lit(split), pl.int_range(1, pl.len() + 1)) for split in parts}
    pairs = pl.concat(frame.with_columns(pair=pair[split]) for split, frame in parts.items())
    return {("default", split): part.select(**columns) for split, part in parts.items()}, pairs


def amazon_esci(rows: pl.DataFrame, _: np.random.Generator) -> tuple[Tables, pl.DataFrame]:
    """`train` and `test` of `query, product_title, text, label`; about half of the products have no text."""
    queries = int(rows["query_number"][-1]) + 1
    tested = pl.col("query_number") >= queries - round(0.302 * queries)
    text = pl.when(pl.col("candidate_number") % 2 == 0).then("body")
    columns = {"query": "query", "text": text, "label": "label", "product_title": "title"}
    return released({"train": rows.filter(~tested), "test": rows.filter(tested)}, columns)


def wands(rows: pl.DataFrame, generator: np.random.Generator) -> tuple[Tables, pl.DataFrame]:
    """`train`, `dev` and `test`, 60 / 20 / 20 % of the rows, so that queries straddle; some fields are null."""
    cut = [len(rows) * tenths // 10 for tenths in (6, 8)]
    drawn = np.split(generator.permutation(len(rows)), cut)
    parts = {split: rows[np.sort(places)] for split, places in zip(("train", "dev", "test"), drawn, strict=True)}

    def but_every(step: int, column: pl.Expr) -> pl.Expr:
        return pl.when(pl.col("candidate_number") % step != 0).then(column)

    columns = {
        **{"query_id": "query_number", "product_id": "candidate_number", "label": "label", "query": "query"},
        "product_name": "title",
        "product_class": but_every(15, pl.format("{}|{}", "word", pl.col("word").str.to_uppercase())),
        "category hierarchy": but_every(28, pl.format("home / {}", "word")),
        "product_description": but_every(7, pl.col("body")),
        "product_features": pl.format('width : {}"|colour:{}', pl.col("candidate_number") % 90 + 10, "word"),
    }
    return released(parts, columns)


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


def sizes_of_wands(rows: int) -> tuple[int, int]:
    """Return the fewest and the most products of a query of WANDS.

    The official 480 queries have 486 products on average. With fewer rows each query has fewer products, but at least
    30 on average; with still fewer rows there are fewer queries.
    """
    mean = max(30, rows // 480)
    return mean // 2, mean * 3 // 2


SHAPES = {
    "amazon_esci": Shape(
        mix=(0.1004, 0.0289, 0.2191, 0.6516),
        difficulty=Difficulty(strength=0.4, log_sharpness=2.7),
        sizes=lambda _: (8, 32),
        tongue="us",
        layout=amazon_esci,
    ),
    "alloprof_rerank": Shape(
        mix=(0.8812, 0.1188),
        difficulty=Difficulty(strength=0.97, log_sharpness=0.2),
        sizes=lambda _: (8, 8),
        tongue="fr",
        layout=retrieval(""),
    ),
    "esci_rerank_us": Shape(
        # The released lists hold .7252 relevant candidates. Their irrelevant ones are concentrated in some queries, so
        # the cap leaves about .64 relevant ones (inferred from the paper's numbers). In a twin the labels of a query
        # are independent, and it takes a larger share before the cap to have the same share after it.
        mix=(0.22, 0.78),
        difficulty=Difficulty(strength=0.39, log_sharpness=0.3),
        sizes=lambda _: (4, 21),
        tongue="us",
        layout=retrieval("us-"),
    ),
    "wands": Shape(
        mix=(0.2622, 0.6281, 0.1097),
        difficulty=Difficulty(strength=1.88, log_sharpness=0.5),
        sizes=sizes_of_wands,
        tongue="us",
        layout=wands,
    ),
    "scidocs": Shape(
        mix=(0.8347, 0.1653),
        difficulty=Difficulty(strength=0.67, log_sharpness=-1.0),
        sizes=lambda _: (26, 33),
        tongue="us",
        layout=scidocs,
    ),
}
