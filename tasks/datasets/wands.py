"""WANDS: judged products of a furniture shop, split by row, so that a query is in several splits."""

import polars as pl

from tasks.datasets import base, raw
from tasks.sources.hub import Repository

SEED = 20260623
SIZES = {"train": 90_000, "dev": 25_000, "test": 40_000}
LABELS = ("Irrelevant", "Partial", "Exact")
TEXT = {
    "query: ": "query",
    "product_name: ": "product_name",
    "product_class: ": "product_class",
    "category: ": "category hierarchy",
    "description: ": "product_description",
    "features: ": "product_features",
}


def draw(rows: raw.OpenedRepository) -> dict[str, pl.DataFrame]:
    """90,000 train, 25,000 validation and 40,000 test rows, each of its own released split."""
    kinds = {**dict.fromkeys(TEXT.values(), "text"), "label": "integer"}
    return {
        {"dev": "validation"}.get(split, split): base.shuffled(rows(split).frame(kinds, LABELS), SEED + place, size)[0]
        for place, (split, size) in enumerate(SIZES.items())
    }


DATASET = base.Dataset(
    name="wands",
    title="WANDS",
    domain="E-commerce search",
    task="Product search relevance prediction",
    labels=LABELS,
    licence="MIT",
    read=base.from_repository(draw, "query", TEXT),
    repository=Repository("napsternxg/wands", revision="f60bd9f0bb488ab25ef990c8ebd61434754340f5"),
    drawn=("train", "validation", "test"),  # by row, by those who released it
    member_seed=10101,
    terms=100_000,
)
