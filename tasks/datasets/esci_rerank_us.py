"""ESCI-Rerank-US: candidate products to rerank for shopping queries, relevant or not."""

import polars as pl

from tasks.datasets import base, raw, sampling
from tasks.sources.hub import Repository

SEED = 20260624
LABELS = ("Non-relevant", "Relevant")


def sample_splits(read_split: raw.RepositoryReader, run: int = 0) -> dict[str, pl.DataFrame]:
    """Draw at most five candidates of each label for each query, and split the pairs by query.

    Candidates keep their order and repetitions; those that are not in the corpus, and queries without a text, are
    omitted. If a query is listed twice, its last list counts.

    Args:
        read_split: Reader of the repository.
        run: Training run.

    Returns:
        Rows of each split.
    """
    ids = ["query-id", "corpus-id"]
    ranked = read_split("test", "us-top_ranked").table({"query-id": "text or number", "corpus-ids": "list of texts"})
    ranked = ranked.unique("query-id", keep="last", maintain_order=True)
    judgements = read_split("test", "us-qrels").table({**dict.fromkeys(ids, "text or number"), "score": "integer"})
    positive = judgements.filter(pl.col("score") > 0).select(*ids, label=pl.lit(1, dtype=pl.Int8)).unique()
    candidates = ranked.select("query-id", pl.col("corpus-ids").alias("corpus-id")).explode("corpus-id")
    pairs = candidates.join(positive, on=ids, how="left", maintain_order="left")
    pairs = pairs.with_columns(pl.col("label").fill_null(0))
    queries = read_split("test", "us-queries").texts_by_id(with_title=False)
    documents = read_split("test", "us-corpus").texts_by_id()
    pairs = sampling.join_texts(pairs, queries.filter(pl.col("text") != ""), documents)
    seed = SEED + sampling.RUN_SEED_STEP * run
    samples = {}
    for number, (split, part) in enumerate(sampling.split_by_query(pairs, ranked["query-id"], seed).items(), start=1):
        samples[split] = sampling.draw_candidates(part, seed + number)
    return samples


TEXT = sampling.prefixed_lines({"query: ": pl.col("query"), "product: ": pl.col("document")})
READ = sampling.repository_reader(sample_splits, "query-id", TEXT)
DATASET = base.Dataset(
    name="esci_rerank_us",
    title="ESCI-Rerank-US",
    domain="E-commerce reranking",
    task="Query-product candidate reranking",
    labels=LABELS,
    licence="Apache-2.0",
    read=READ,
    read_run=READ,
    repository=Repository("mteb/ESCIReranking"),
    split_by="group",
    drawn_splits=("train", "validation", "test"),
    repeats_pairs=True,
    predictor_seed=11101,
    max_terms=100_000,
)
