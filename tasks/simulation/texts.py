"""Twins of the five text data sets of the paper, in the layouts of their repositories on the hub.

A text consists of three kinds of words:

- Evidence: one phrase for each of N_SLOTS properties. Nothing else in a text depends on its label.
- Stock phrases of a topic. Some are very frequent and most are rare (Zipf), as are their words.
- Names: two words that make a text unique.

A linear model over words and word pairs must learn the evidence from some thousand rows. Its penalty shrinks the
coefficients of rare phrases. Phrases have a fixed order and occur twice, and texts have stock phrases instead of single
words, since a word pair that never occurs again only helps to memorize the training rows.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from relmap.simulation.judgements import N_SLOTS, Difficulty, Judgements, draw_queries, simulate_judgements
from tasks.settings.dataset_params import TwinParams

WORDS_PER_PHRASE = 3
N_TOPICS = 12
N_STOCK_PHRASES = 60  # of each topic
N_STOCK_WORDS = 1500

# Each syllable begins with a consonant, so that a word has only one division into syllables.
SYLLABLES = {
    "us": "ba be bo da den di fa fin go ha hol ka ker la len li lo ma men mi na nor pa per ra ren ri sa sel ta ton va",
    "fr": "bé cha cœ da dou fé gne jou la lé lou mè mo na nê pa pé que ra ré rou sa sè ta té tou va vé voi ça",
}

WANDS_SPLIT_ENDS_IN_TENTHS = (6, 8)  # 60% train, 20% dev, 20% test
ESCI_TEST_SHARE = 0.2  # share of the queries; in the release, there are more test than validation rows
SCIDOCS_REPEATED_SHARE = 0.17  # share of the queries that have the same title as the previous query

Tables = dict[tuple[str, str], pl.DataFrame]  # (configuration, split) -> rows


class TwinTables(NamedTuple):
    """Simulated tables and their rows.

    Attributes:
        tables: (configuration, split) -> rows.
        pairs: All rows, with `pair` and the true `probabilities`.
    """

    tables: Tables
    pairs: pl.DataFrame


Layout = Callable[[pl.DataFrame, np.random.Generator], TwinTables]


class TwinDesign(NamedTuple):
    """Properties that a twin shares with the released data set.

    With two labels, each query has candidates of both.

    Attributes:
        query_sizes: Function of the number of rows that returns the fewest and the most candidates of a query.
        language: Key of SYLLABLES.
        layout: Function that writes rows in the layout of the released repository.
    """

    query_sizes: Callable[[int], tuple[int, int]]
    language: str
    layout: Layout


class Vocabulary(NamedTuple):
    """Words of a twin.

    Attributes:
        evidence: Words of the phrases that depend on the label.
        stock: Words of the stock phrases.
        topics: One word for each topic.
        names: Words of names.
    """

    evidence: np.ndarray
    stock: np.ndarray
    topics: np.ndarray
    names: np.ndarray


def draw_words(language: str, count: int, generator: np.random.Generator) -> np.ndarray:
    """Draw distinct words of three syllables.

    Args:
        language: Key of SYLLABLES.
        count: Number of words.
        generator: Random generator.

    Returns:
        Words, shape (count,).
    """
    syllables = np.array(SYLLABLES[language].split(), dtype=object)
    base = len(syllables)
    code = generator.choice(base**3, count, replace=False)
    return np.asarray(syllables[code // base**2] + syllables[code // base % base] + syllables[code % base])


def join_words(words: np.ndarray) -> np.ndarray:
    """Join words along the last axis.

    Args:
        words: Shape (..., m).

    Returns:
        Texts, shape (...), with spaces between words.
    """
    return np.asarray((words[..., :-1] + " ").sum(axis=-1) + words[..., -1])


def draw_zipf_ranks(count: int, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Draw ranks from a Zipf distribution: P(r) is proportional to 1 / (r + 2).

    Args:
        count: Number of ranks.
        shape: Shape of the result.
        generator: Random generator.

    Returns:
        Ranks in 0..count-1.
    """
    weight = np.cumsum(1 / np.arange(2, count + 2))
    return np.searchsorted(weight / weight[-1], generator.random(shape), side="right")


def combine_names(count: int, names: np.ndarray) -> np.ndarray:
    """Combine names to distinct texts of two words.

    Args:
        count: Number of texts.
        names: Words, at least 2 (isqrt(count) + 1).

    Returns:
        Texts, shape (count,).
    """
    base = math.isqrt(count) + 1
    first, second = np.divmod(np.arange(count), base)
    return join_words(np.column_stack([names[first], names[len(names) - base + second]]))


def simulate_texts(
    design: TwinDesign, rows: int, residual: float, twin: TwinParams, generator: np.random.Generator
) -> TwinTables:
    """Simulate the tables of a twin.

    Titles and queries are distinguished by their names. A body repeats the evidence of its title.

    Args:
        design: Properties of the released data set.
        rows: Number of labelled pairs.
        residual: Size of the residual.
        twin: Parameters of the twin.
        generator: Random generator.

    Returns:
        Tables in the layout of the repository, and the rows with their true probabilities.
    """
    difficulty = Difficulty(twin.strength, twin.log_sharpness, twin.noise)
    judgements = simulate_judgements(rows, twin.label_shares, difficulty, residual, generator, twin.phrases)
    labels_in_each_query = judgements.label if len(twin.label_shares) == 2 else None
    query = draw_queries(rows, design.query_sizes(rows), generator, labels_in_each_query)
    n_queries = int(query[-1]) + 1
    vocabulary = _draw_vocabulary(design.language, twin.phrases, len(judgements.choice), generator)
    stock_words = vocabulary.stock[
        draw_zipf_ranks(N_STOCK_WORDS, (N_TOPICS, N_STOCK_PHRASES, WORDS_PER_PHRASE), generator)
    ]
    topic_of_query = generator.integers(N_TOPICS, size=n_queries)
    topic = topic_of_query[query[judgements.first]]
    candidates = _write_candidates(judgements, topic, vocabulary, join_words(stock_words), twin, generator)
    queries = join_words(
        np.column_stack([vocabulary.topics[topic_of_query], combine_names(n_queries, vocabulary.names)])
    )
    columns = {name: texts[judgements.candidate] for name, texts in candidates.items()}
    pairs = pl.DataFrame(
        {
            **columns,
            "query_number": query,
            "query": queries[query],
            "candidate_number": judgements.candidate,
            "label": judgements.label,
            "probabilities": pl.Series(judgements.probabilities).arr.to_list(),
        }
    )
    return design.layout(pairs, generator)


def _draw_vocabulary(language: str, n_phrases: int, n_candidates: int, generator: np.random.Generator) -> Vocabulary:
    n_evidence_words = WORDS_PER_PHRASE * N_SLOTS * n_phrases
    n_names = 2 * math.isqrt(n_candidates) + 2  # enough to distinguish all candidates
    ends = np.cumsum([n_evidence_words, N_STOCK_WORDS, N_TOPICS])
    evidence, stock, topics, names = np.split(draw_words(language, ends[-1] + n_names, generator), ends)
    return Vocabulary(evidence, stock, topics, names)


def _write_candidates(
    judgements: Judgements,
    topic: np.ndarray,
    vocabulary: Vocabulary,
    stock_phrases: np.ndarray,
    twin: TwinParams,
    generator: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Return `title`, `body` and topic `word` of each candidate, of shape (candidates,)."""
    phrases = join_words(vocabulary.evidence.reshape(N_SLOTS, twin.phrases, WORDS_PER_PHRASE))
    evidence = phrases[np.arange(N_SLOTS), judgements.choice]
    ranks = draw_zipf_ranks(N_STOCK_PHRASES, (len(topic), twin.stock_phrases), generator)
    stock = stock_phrases[topic[:, None], ranks]
    names = combine_names(len(topic), vocabulary.names)
    return {
        "title": join_words(np.column_stack([names, evidence])),
        "body": join_words(np.column_stack([evidence, stock])),
        "word": vocabulary.topics[topic],
    }


def select_columns(rows_by_split: Mapping[str, pl.DataFrame], columns: Mapping[str, str | pl.Expr]) -> TwinTables:
    """Make a table of each split, and name the rows `<split>:<row>`, counted from 1.

    Args:
        rows_by_split: Rows of each split.
        columns: Name in the table -> column or expression.

    Returns:
        The tables and the rows.
    """
    tables: Tables = {}
    named = []
    for split, rows in rows_by_split.items():
        tables["default", split] = rows.select(**columns)
        pair = pl.format("{}:{}", pl.lit(split), pl.int_range(1, pl.len() + 1))
        named.append(rows.with_columns(pair=pair))
    return TwinTables(tables, pl.concat(named))


def lay_out_amazon_esci(rows: pl.DataFrame, _generator: np.random.Generator) -> TwinTables:
    """Write the splits `train` and `test` of Amazon ESCI; about half of the products have no text.

    Args:
        rows: Labelled pairs.
        _generator: Unused.

    Returns:
        The tables and the rows.
    """
    n_queries = int(rows["query_number"][-1]) + 1
    is_test = pl.col("query_number") >= n_queries - round(ESCI_TEST_SHARE * n_queries)
    text = pl.when(pl.col("candidate_number") % 2 == 0).then("body")
    columns: dict[str, str | pl.Expr] = {"query": "query", "text": text, "label": "label", "product_title": "title"}
    return select_columns({"train": rows.filter(~is_test), "test": rows.filter(is_test)}, columns)


def lay_out_wands(rows: pl.DataFrame, generator: np.random.Generator) -> TwinTables:
    """Write the splits `train`, `dev` and `test` of WANDS, drawn by row; some fields are null.

    Args:
        rows: Labelled pairs.
        generator: Random generator.

    Returns:
        The tables and the rows.
    """
    ends = [len(rows) * tenths // 10 for tenths in WANDS_SPLIT_ENDS_IN_TENTHS]
    positions_by_split = np.split(generator.permutation(len(rows)), ends)
    rows_by_split = {}
    for split, positions in zip(("train", "dev", "test"), positions_by_split, strict=True):
        rows_by_split[split] = rows[np.sort(positions)]

    def null_for_every(step: int, column: pl.Expr) -> pl.Expr:
        return pl.when(pl.col("candidate_number") % step != 0).then(column)

    product_class = pl.format("{}|{}", "word", pl.col("word").str.to_uppercase())
    columns: dict[str, str | pl.Expr] = {
        "query_id": "query_number",
        "product_id": "candidate_number",
        "label": "label",
        "query": "query",
        "product_name": "title",
        "product_class": null_for_every(15, product_class),
        "category hierarchy": null_for_every(28, pl.format("home / {}", "word")),
        "product_description": null_for_every(7, pl.col("body")),
        "product_features": pl.format('width : {}"|colour:{}', pl.col("candidate_number") % 90 + 10, "word"),
    }
    return select_columns(rows_by_split, columns)


def lay_out_scidocs(rows: pl.DataFrame, generator: np.random.Generator) -> TwinTables:
    """Write the split `test` of SciDocs: a row for each query, with lists of texts. Some titles occur in two rows.

    Args:
        rows: Labelled pairs.
        generator: Random generator.

    Returns:
        The tables and the rows.
    """
    n_queries = int(rows["query_number"].max()) + 1  # type: ignore[arg-type]
    repeats = generator.random(n_queries) < SCIDOCS_REPEATED_SHARE
    repeats[0] = False
    query_of_title = np.maximum.accumulate(np.where(repeats, 0, np.arange(n_queries)))
    queries = rows.unique("query_number", keep="first", maintain_order=True)
    titles = queries["query"].gather(query_of_title)
    rows = rows.with_columns(query=titles.gather(rows["query_number"]))
    text = pl.format("{} {}", "title", "body")
    is_positive = pl.col("label") == 1
    lists = rows.group_by("query_number", maintain_order=True).agg(
        pl.col("query").first(), positive=text.filter(is_positive), negative=text.filter(pl.col("label") == 0)
    )
    side = pl.when(is_positive).then(pl.lit("positive")).otherwise(pl.lit("negative"))
    position = pl.int_range(pl.len()).over("query_number", "label")
    pairs = rows.with_columns(pair=pl.format("test:{}:{}:{}", pl.col("query_number") + 1, side, position))
    return TwinTables({("default", "test"): lists.drop("query_number")}, pairs)


def retrieval_layout(prefix: str) -> Layout:
    """Build the layout of a reranking task: `corpus`, `queries` and judgements in configurations of their own.

    Args:
        prefix: Prefix of the configurations. With a prefix the judgements are called `qrels` instead of `default`, and
            there are lists of candidates, `top_ranked`.

    Returns:
        Function that writes the tables.
    """

    def lay_out(rows: pl.DataFrame, _generator: np.random.Generator) -> TwinTables:
        query_id = pl.format("query{}", pl.col("query_number").cast(pl.String).str.zfill(6)).alias("query-id")
        document_id = pl.format("document{}", "candidate_number").alias("corpus-id")
        pairs = rows.with_columns(query_id, document_id)
        pairs = pairs.with_columns(pair=pl.format("{}:{}", "query-id", "corpus-id"))
        queries = pairs.unique("query-id", keep="first", maintain_order=True)
        documents = pairs.unique("corpus-id", keep="first", maintain_order=True)
        judgements_config = "qrels" if prefix else "default"
        tables = {
            (f"{prefix}corpus", "test"): documents.select(_id="corpus-id", title="title", text="body"),
            (f"{prefix}queries", "test"): queries.select(_id="query-id", text="query"),
            (prefix + judgements_config, "test"): pairs.select("query-id", "corpus-id", score="label"),
        }
        if prefix:
            candidates = pl.col("corpus-id").alias("corpus-ids")
            lists = pairs.group_by("query-id", maintain_order=True).agg(candidates)
            tables[f"{prefix}top_ranked", "test"] = lists
        return TwinTables(tables, pairs)

    return lay_out


def wands_query_sizes(rows: int) -> tuple[int, int]:
    """Return the fewest and the most products of a query of WANDS.

    The released 480 queries have 486 products on average. With fewer rows each query has fewer products, but at least
    30 on average; with still fewer rows there are fewer queries.

    Args:
        rows: Number of labelled pairs.

    Returns:
        Fewest and most products.
    """
    mean = max(30, rows // 480)
    return mean // 2, mean * 3 // 2


TWIN_DESIGNS = {
    "amazon_esci": TwinDesign(query_sizes=lambda _: (8, 32), language="us", layout=lay_out_amazon_esci),
    "alloprof_rerank": TwinDesign(query_sizes=lambda _: (8, 8), language="fr", layout=retrieval_layout("")),
    # In the released lists, 72.52% of the candidates are relevant. The irrelevant ones are concentrated in some
    # queries, so about 64% are relevant after the cap (inferred from the paper's numbers). In a twin the labels of a
    # query are independent, and a larger share before the cap gives the same share after it.
    "esci_rerank_us": TwinDesign(query_sizes=lambda _: (4, 21), language="us", layout=retrieval_layout("us-")),
    "wands": TwinDesign(query_sizes=wands_query_sizes, language="us", layout=lay_out_wands),
    "scidocs": TwinDesign(query_sizes=lambda _: (26, 33), language="us", layout=lay_out_scidocs),
}
