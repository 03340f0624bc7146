"""SciDocs: titles of papers, and of papers that were cited, read or viewed together with them."""

import polars as pl

from tasks.datasets import base, raw, sampling
from tasks.sources.hub import Repository

SEED = 20260622
LABELS = ("Non-relevant", "Relevant")


def sample_splits(read_split: raw.RepositoryReader, run: int = 0) -> dict[str, pl.DataFrame]:
    """Draw at most five candidates of each label for each query, and split the pairs by query.

    A query is a row of the file, so a title that occurs in two rows may be in two splits. Blank candidates are omitted.

    Args:
        read_split: Function that reads a split of the repository.
        run: Training run.

    Returns:
        Rows of each split.
    """
    lists = read_split("test").table({"query": "text", "positive": "list of texts", "negative": "list of texts"})
    position = pl.int_range(pl.len()).over(raw.ROW_NUMBER)
    frames = []
    for label, column in enumerate(("negative", "positive")):
        candidates = lists.select("query", raw.ROW_NUMBER, candidate=column, label=pl.lit(label, dtype=pl.Int8))
        pair_id = pl.format("test:{}:{}:{}", raw.ROW_NUMBER, pl.lit(column), position)
        frames.append(candidates.explode("candidate").with_columns(pair=pair_id))
    pairs = pl.concat(frames).filter(sampling.stripped("candidate") != "")  # an empty list has no candidate
    pairs = pairs.rename({raw.ROW_NUMBER: "query-id"})
    seed = SEED + sampling.RUN_SEED_STEP * run
    samples = {}
    for number, (split, part) in enumerate(
        sampling.split_by_query(pairs, lists[raw.ROW_NUMBER], seed).items(), start=1
    ):
        samples[split] = sampling.draw_candidates(part, seed + number)
    return samples


TEXT = sampling.prefixed_lines({"query: ": pl.col("query").fill_null(""), "candidate: ": pl.col("candidate")})
READ = sampling.repository_reader(sample_splits, "query", TEXT)
DATASET = base.Dataset(
    name="scidocs",
    title="SciDocs",
    domain="Scientific retrieval",
    task="Candidate document reranking",
    labels=LABELS,
    licence="CC BY 4.0",
    read=READ,
    read_run=READ,
    repository=Repository("mteb/scidocs-reranking"),
    drawn_splits=("train", "validation", "test"),
    predictor_seed=9101,
)
