"""MSLR-WEB10K: documents of a web search as 136 features, in five grades."""

from __future__ import annotations

from pathlib import Path

from tasks.datasets.base import Dataset, Judged
from tasks.datasets.drawing import documents, judged
from tasks.datasets.repository import opened_repository
from tasks.sources.hub import Repository

SEED = 20260620
SIZES = {"train": 250_000, "validation": 80_000, "test": 100_000}  # documents
LABELS = ("0", "1", "2", "3", "4")
FEATURES = 136


def read(folder: Path) -> Judged:
    """250,000 train, 80,000 validation and 100,000 test documents, each of its own released split."""
    with opened_repository(folder) as rows:
        drawn = {
            split: documents(rows(split), LABELS, FEATURES, size, SEED + place)
            for place, (split, size) in enumerate(SIZES.items())
        }
    return judged(drawn, group="group")


MSLR_WEB10K = Dataset(
    name="mslr_web10k",
    title="MSLR-WEB10K",
    domain="Web search",
    task="Learning-to-rank relevance prediction",
    labels=LABELS,
    licence="Microsoft Research terms, for research",
    read=read,
    repository=Repository("philipphager/MSLR-WEB10k"),
    split_by="group",
    member_seed=7101,
)
