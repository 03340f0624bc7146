"""MSLR-WEB10K: documents of a web search as 136 features, in five grades."""

import polars as pl

from tasks.datasets import base, raw
from tasks.sources.hub import Repository

SEED = 20260620
SIZES = {"train": 250_000, "validation": 80_000, "test": 100_000}  # documents
LABELS = ("0", "1", "2", "3", "4")
FEATURES = 136


def draw(rows: raw.OpenedRepository) -> dict[str, pl.DataFrame]:
    """250,000 train, 80,000 validation and 100,000 test documents, each of its own released split."""
    return {
        split: base.documents(rows(split), LABELS, FEATURES, size, SEED + place)
        for place, (split, size) in enumerate(SIZES.items())
    }


DATASET = base.Dataset(
    name="mslr_web10k",
    title="MSLR-WEB10K",
    domain="Web search",
    task="Learning-to-rank relevance prediction",
    labels=LABELS,
    licence="Microsoft Research terms, for research",
    read=base.from_repository(draw, "group"),
    repository=Repository("philipphager/MSLR-WEB10k"),
    split_by="group",
    member_seed=7101,
)
