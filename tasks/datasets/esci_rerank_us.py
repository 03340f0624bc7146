"""ESCI-Rerank-US: the Shopping Queries Dataset (Reddy et al., 2022) as binary reranking, in MTEB's first layout.

Raw: `us/{train,test}-*.parquet`, a row `query, positive (list of texts), negative (list of texts)`. How the four labels
became two is not documented there. Many queries have candidates of one kind only; as in MTEB's second layout they
are left out unless `require_both` is false.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from tasks.datasets.base import Dataset, RawFile
from tasks.datasets.lists import COLUMNS, LABELS, ListOptions, exploded, list_pairs, refuse_nulls
from tasks.datasets.options import checked
from tasks.datasets.raw import located, read_parquet

REVISION = "237f74be0503482b4e8bc1b83778c7a87ea93fd8"
SPLITS = {"train": None, "test": "test"}


class EsciRerankOptions(ListOptions):
    """As for every reranking set, but queries need both kinds of candidates."""

    require_both: bool = True


def read(folder: Path, options: Mapping[str, Any]) -> pl.DataFrame:
    """One row for each listed product text; rows of the train files have no split yet."""
    chosen = checked(EsciRerankOptions, options, "esci_rerank_us")
    parts = []
    for part, split in SPLITS.items():
        for shard, path in enumerate(located(folder, f"us/{part}-*.parquet")):
            parts.append(exploded(refuse_nulls(read_parquet(path, COLUMNS), path), f"{part}-{shard}", split))
    return list_pairs(parts, "esci_rerank_us", chosen)


ESCI_RERANK_US = Dataset(
    name="esci_rerank_us",
    title="ESCI-Rerank-US",
    domain="E-commerce reranking",
    task="Query-product candidate reranking",
    labels=LABELS,
    licence="Apache-2.0",
    bibkey="reddy2022shopping",
    homepage="https://huggingface.co/datasets/mteb/esci",
    revision=REVISION,
    files=tuple(
        RawFile(path=f"us/{part}-*.parquet", url=f"hf://datasets/mteb/esci@{REVISION}/us/{part}-*.parquet")
        for part in SPLITS
    ),
    read=read,
    options=EsciRerankOptions().model_dump(),
)
