"""Amazon ESCI, the US part: judged products of a shop, in four grades."""

from __future__ import annotations

from pathlib import Path

from tasks.datasets.base import Dataset, Judged
from tasks.datasets.drawing import judged, lines, shuffled
from tasks.datasets.repository import opened_repository
from tasks.sources.hub import Repository

SEED = 20260515
LABELS = ("Irrelevant", "Complement", "Substitute", "Exact")


def read(folder: Path) -> Judged:
    """60,000 train and 15,000 validation rows of its train split, 40,000 of its test split."""
    with opened_repository(folder) as rows:
        released = {split: rows(split) for split in ("train", "test")}
        there = released["train"].columns
        title = "product_title" if "product_title" in there else "title"
        columns = ["query", title, *(["text"] if "text" in there else [])]
        kinds = {**dict.fromkeys(columns, "text"), "label": "integer"}
        frames = {split: some.frame(kinds, LABELS) for split, some in released.items()}
    train, validation = shuffled(frames["train"], SEED, 60_000, 15_000)
    (test,) = shuffled(frames["test"], SEED + 1, 40_000)
    named = {"query: ": "query", "product_title: ": title} | ({"": "text"} if "text" in there else {})
    return judged({"train": train, "validation": validation, "test": test}, group="query", text=lines(named))


AMAZON_ESCI = Dataset(
    name="amazon_esci",
    title="Amazon ESCI",
    domain="E-commerce search",
    task="Query-product relevance classification",
    labels=LABELS,
    licence="Apache-2.0",
    read=read,
    repository=Repository("shuttie/esci-us-small"),
    drawn=("train", "validation"),
    member_seed=3001,
)
