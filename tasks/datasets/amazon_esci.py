"""Amazon ESCI, US part: products labelled for shopping queries, with four labels."""

import polars as pl

from tasks.datasets import base, raw
from tasks.sources.hub import Repository

SEED = 20260515
LABELS = ("Irrelevant", "Complement", "Substitute", "Exact")


def sample_splits(read_split: raw.RepositoryReader) -> dict[str, pl.DataFrame]:
    """Draw 60,000 train and 15,000 validation rows of the released train split, and 40,000 rows of its test split.

    Args:
        read_split: Reader of the repository.

    Returns:
        Rows of each split.
    """
    train, validation = base.draw_samples(_read_products(read_split("train")), SEED, 60_000, 15_000)
    (test,) = base.draw_samples(_read_products(read_split("test")), SEED + 1, 40_000)
    return {"train": train, "validation": validation, "test": test}


def _read_products(rows: raw.RepositoryRows) -> pl.DataFrame:
    """Read `query`, `title`, `text` and `label`; some releases have another name for the title, or no text."""
    columns = rows.data.column_names
    title = "product_title" if "product_title" in columns else "title"
    kinds = {"query": "text", title: "text", "label": "integer"}
    if "text" not in columns:
        return rows.labelled_table(kinds, LABELS).with_columns(title=title, text=pl.lit(None, dtype=pl.String))
    return rows.labelled_table({**kinds, "text": "text"}, LABELS).with_columns(title=title)


DATASET = base.Dataset(
    name="amazon_esci",
    title="Amazon ESCI",
    domain="E-commerce search",
    task="Query-product relevance classification",
    labels=LABELS,
    licence="Apache-2.0",
    read=base.repository_reader(sample_splits, "query", {"query: ": "query", "product_title: ": "title", "": "text"}),
    repository=Repository("shuttie/esci-us-small"),
    drawn_splits=("train", "validation"),
    predictor_seed=3001,
)
