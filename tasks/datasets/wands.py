"""WANDS: graded products for queries of a furniture shop, split by row, so that a query is in several splits."""

import polars as pl

from tasks.datasets import base, raw, sampling
from tasks.sources.hub import Repository

SEED = 20260623
SIZES = {"train": 90_000, "dev": 25_000, "test": 40_000}  # rows of the released splits
SPLIT_NAMES = {"train": "train", "dev": "validation", "test": "test"}  # released name -> name in this project
LABELS = ("Irrelevant", "Partial", "Exact")
FIELDS = {  # prefix in the text of a pair -> column
    "query: ": "query",
    "product_name: ": "product_name",
    "product_class: ": "product_class",
    "category: ": "category hierarchy",
    "description: ": "product_description",
    "features: ": "product_features",
}


def sample_splits(read_split: raw.RepositoryReader, run: int = 0) -> dict[str, pl.DataFrame]:
    """Draw rows from each released split.

    Args:
        read_split: Reader of the repository.
        run: Training run.

    Returns:
        Rows of each split.
    """
    kinds = {**dict.fromkeys(FIELDS.values(), "text"), "label": "integer"}
    seed = SEED + sampling.RUN_SEED_STEP * run
    samples = {}
    for number, (split, size) in enumerate(SIZES.items()):
        frame = read_split(split).labelled_table(kinds, LABELS)
        samples[SPLIT_NAMES[split]] = sampling.draw_rows(frame, seed + number, size)
    return samples


TEXT = sampling.prefixed_lines({prefix: sampling.stripped(column) for prefix, column in FIELDS.items()})
READ = sampling.repository_reader(sample_splits, "query", TEXT.str.strip_chars_end(raw.WHITE_SPACE))
DATASET = base.Dataset(
    name="wands",
    title="WANDS",
    domain="E-commerce search",
    task="Product search relevance prediction",
    labels=LABELS,
    licence="MIT",
    read=READ,
    read_run=READ,
    repository=Repository("napsternxg/wands", revision="f60bd9f0bb488ab25ef990c8ebd61434754340f5"),
    drawn_splits=("train", "validation", "test"),  # the authors of WANDS split single rows at random
    predictor_seed=10101,
    max_terms=100_000,
)
