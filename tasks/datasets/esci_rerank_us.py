"""ESCI-Rerank-US: the Shopping Queries Dataset (Reddy et al., 2022) as binary reranking.

Raw, in MTEB's first layout: `us/{train,test}-*.parquet`, a row `query, positive (list of texts), negative (list of
texts)`. How the four labels became two is not documented there. Many queries have candidates of one kind only; as in
MTEB's second layout they are left out unless `require_both` is false. That layout (`v2`) may hold test queries alone;
then all of them are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import polars as pl

from tasks.datasets.base import Dataset, Judged
from tasks.datasets.lists import LABELS, ListOptions, exploded, list_counts, list_pairs, load_lists
from tasks.datasets.options import checked
from tasks.datasets.raw import located
from tasks.datasets.retrieval import read_retrieval
from tasks.sources.origin import Origin, Published, RawFile

TERMS = "Use, change and pass on, with the licence and its notices."
ORIGINS: dict[str, Origin] = {
    "v1": Origin(
        homepage="https://huggingface.co/datasets/mteb/esci",
        revision="237f74be0503482b4e8bc1b83778c7a87ea93fd8",
        repository="mteb/esci",
        licence="Apache-2.0",
        terms=TERMS,
        files=(RawFile(path="us/train-*.parquet"), RawFile(path="us/test-*.parquet")),
        published=(
            Published("train queries", 70_925, verified=True),
            Published("test queries", 21_296, verified=True),
            Published("test pairs", 214_838, verified=True),
            Published("test positives", 189_375, verified=True),
            Published("test negatives", 25_463, verified=True),
            # found in the second layout, which is said to be what is left of this one
            Published("test queries with both kinds", 6_694, verified=False),
            Published("test pairs of queries with both kinds", 87_202, verified=False),
            Published("test positives of queries with both kinds", 63_235, verified=False),
        ),
    ),
    "v2": Origin(
        homepage="https://huggingface.co/datasets/mteb/ESCIReranking",
        revision="dc2cfaf4fcbf238806a02ae8607786e88112463e",
        repository="mteb/ESCIReranking",
        licence="Apache-2.0",
        terms=TERMS,
        files=tuple(RawFile(path=f"us-{kind}/*.parquet") for kind in ("corpus", "queries", "qrels", "top_ranked")),
        published=(
            Published("test queries", 6_694, verified=True),
            Published("test pairs", 87_202, verified=True),
            Published("test positives", 63_235, verified=True),
            Published("test negatives", 23_967, verified=True),
            Published("test distinct texts", 75_084, verified=False),
        ),
    ),
}
SPLITS = {"train": None, "test": "test"}


class EsciRerankOptions(ListOptions):
    """As for every reranking set, but queries need both kinds of candidates; and the layout."""

    require_both: bool = True
    layout: Literal["v1", "v2"] = "v1"


def read(folder: Path, options: Mapping[str, Any]) -> Judged:
    """One row for each judged product text; rows of the train files have no split yet."""
    chosen = checked(EsciRerankOptions, options, "esci_rerank_us")
    if chosen.layout == "v2":
        return read_retrieval(folder, "esci_rerank_us", chosen, SPLITS, prefix="us-")
    parts, counts = [], dict[str, int]()
    for part, split in SPLITS.items():
        shards = [load_lists(path) for path in located(folder, f"us/{part}-*.parquet")]
        counts |= list_counts(pl.concat(shards), part)
        parts += [exploded(rows, f"{part}-{shard}", split) for shard, rows in enumerate(shards)]
    return list_pairs(parts, "esci_rerank_us", chosen, counts)


ESCI_RERANK_US = Dataset(
    name="esci_rerank_us",
    title="ESCI-Rerank-US",
    domain="E-commerce reranking",
    task="Query-product candidate reranking",
    labels=LABELS,
    bibkey="reddy2022shopping",
    origins=ORIGINS,
    origin_option="layout",
    read=read,
    options=EsciRerankOptions().model_dump(),
)
