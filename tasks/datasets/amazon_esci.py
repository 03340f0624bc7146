"""Amazon ESCI, the US part: judged products of a shop, in four grades."""

import polars as pl

from tasks.datasets import base, raw
from tasks.sources.hub import Repository

SEED = 20260515
LABELS = ("Irrelevant", "Complement", "Substitute", "Exact")


def draw(rows: raw.OpenedRepository) -> dict[str, pl.DataFrame]:
    """60,000 train and 15,000 validation rows of its train split, 40,000 of its test split."""
    frames = {}
    for split in ("train", "test"):
        released = rows(split)
        columns = released.data.column_names
        title = "product_title" if "product_title" in columns else "title"
        texts = ["query", title, *({"text"} & set(columns))]
        frame = released.frame({**dict.fromkeys(texts, "text"), "label": "integer"}, LABELS)
        text = pl.col("text") if "text" in texts else pl.lit(None, dtype=pl.String)
        frames[split] = frame.with_columns(title=title, text=text)
    train, validation = base.shuffled(frames["train"], SEED, 60_000, 15_000)
    (test,) = base.shuffled(frames["test"], SEED + 1, 40_000)
    return {"train": train, "validation": validation, "test": test}


DATASET = base.Dataset(
    name="amazon_esci",
    title="Amazon ESCI",
    domain="E-commerce search",
    task="Query-product relevance classification",
    labels=LABELS,
    licence="Apache-2.0",
    read=base.from_repository(draw, "query", {"query: ": "query", "product_title: ": "title", "": "text"}),
    repository=Repository("shuttie/esci-us-small"),
    drawn=("train", "validation"),
    member_seed=3001,
)
