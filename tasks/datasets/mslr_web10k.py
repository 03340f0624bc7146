"""MSLR-WEB10K: documents of a web search with 136 features and five labels."""

import polars as pl

from tasks.datasets import base, raw, sampling
from tasks.sources.hub import Repository

SEED = 20260620
SIZES = {"train": 250_000, "validation": 80_000, "test": 100_000}  # documents
LABELS = ("0", "1", "2", "3", "4")
N_FEATURES = 136


def sample_splits(read_split: raw.RepositoryReader, run: int = 0) -> dict[str, pl.DataFrame]:
    """Draw documents from each released split.

    Args:
        read_split: Reader of the repository.
        run: Training run.

    Returns:
        Rows of each split.
    """
    seed = SEED + sampling.RUN_SEED_STEP * run
    samples = {}
    for number, (split, size) in enumerate(SIZES.items()):
        samples[split] = sampling.draw_documents(read_split(split), LABELS, N_FEATURES, size, seed + number)
    return samples


READ = sampling.repository_reader(sample_splits, "group")
DATASET = base.Dataset(
    name="mslr_web10k",
    title="MSLR-WEB10K",
    domain="Web search",
    task="Learning-to-rank relevance prediction",
    labels=LABELS,
    licence="Microsoft Research terms, for research",
    read=READ,
    read_run=READ,
    repository=Repository("philipphager/MSLR-WEB10k"),
    split_by="group",
    predictor_seed=7101,
    boosted_seed=9101,
)
