"""Alloprof-Rerank (Lefebvre-Brossard et al., 2023): French school questions and help pages, candidates by BM25.

Raw: `queries/{train,test}-*.parquet`, a row `query, positive (list of doc_id), negative (list of doc_id)`, and
`documents/*.parquet`, a row `doc_id, text`, one pool for both splits: documents cross splits, questions do not. This
is generation B; C holds its test questions alone, in MTEB's second layout, and leaves every split to be drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import polars as pl

from tasks.datasets.base import Dataset, Judged
from tasks.datasets.lists import LABELS, ListOptions, distinct_texts, exploded, list_counts, list_pairs, load_lists
from tasks.datasets.loading import load_file
from tasks.datasets.options import checked
from tasks.datasets.raw import forbid, located
from tasks.datasets.retrieval import read_retrieval
from tasks.protocol.errors import BadInput
from tasks.sources.origin import Origin, Published, RawFile

TERMS = (
    "Its pages contradict one another (MIT, Apache-2.0, CC BY-NC-SA 4.0), so take the strictest: study it, make no"
    " commercial use of it, and do not pass the files on."
)
TEST = (  # the same questions in both generations
    Published("test queries", 2_316, verified=True),
    Published("test pairs", 25_039, verified=True),
    Published("test positives", 2_975, verified=True),
    Published("test negatives", 22_064, verified=True),
    Published("test distinct texts", 2_288, verified=False),  # counted by MTEB, whose way to count is imitated
)
ORIGINS: dict[str, Origin] = {
    "b": Origin(
        homepage="https://huggingface.co/datasets/lyon-nlp/mteb-fr-reranking-alloprof-s2p",
        revision="65393d0d7a08a10b4e348135e824f385d420b0fd",
        repository="lyon-nlp/mteb-fr-reranking-alloprof-s2p",
        licence="CC BY-NC-SA 4.0",  # the strictest of several statements that contradict each other
        terms=TERMS,
        files=(
            RawFile(path="documents/*.parquet"),
            RawFile(path="queries/train-*.parquet"),
            RawFile(path="queries/test-*.parquet"),
        ),
        published=(
            *TEST,
            Published("train queries", 9_264, verified=True),
            Published("documents", 2_556, verified=False),  # read as 2.56k
        ),
    ),
    "c": Origin(
        homepage="https://huggingface.co/datasets/mteb/AlloprofReranking",
        revision="a7d2d793f2e5ba55139bb10088c2e8ee2df2ce02",
        repository="mteb/AlloprofReranking",
        licence="CC BY-NC-SA 4.0",
        terms=TERMS,
        files=tuple(RawFile(path=f"{folder}/*.parquet") for folder in ("corpus", "queries", "data", "top_ranked")),
        published=TEST,
    ),
}
SPLITS = {"train": None, "test": "test"}


class AlloprofOptions(ListOptions):
    """As for every reranking set, and the generation of the set."""

    layout: Literal["b", "c"] = "b"


def read(folder: Path, options: Mapping[str, Any]) -> Judged:
    """One row for each judged document; only questions of the test file of generation B have a split already."""
    chosen = checked(AlloprofOptions, options, "alloprof_rerank")
    if chosen.layout == "c":
        return read_retrieval(folder, "alloprof_rerank", chosen, {"test": None})
    documents = pl.concat([read_documents(path) for path in located(folder, "documents/*.parquet")])
    parts, counts = [], {"documents": len(documents)}
    for part, split in SPLITS.items():
        shards = {path: load_lists(path) for path in located(folder, f"queries/{part}-*.parquet")}
        counts |= list_counts(pl.concat(shards.values()), part)
        pairs = [
            with_texts(exploded(rows, f"{part}-{shard}", split), documents, path)
            for shard, (path, rows) in enumerate(shards.items())
        ]
        counts[f"{part} distinct texts"] = distinct_texts(pl.concat(pairs)["candidate"])
        parts += pairs
    return list_pairs(parts, "alloprof_rerank", chosen, counts)


def read_documents(path: Path) -> pl.DataFrame:
    """The pool: `doc_id, text`, each id once."""
    frame = load_file(path, {"doc_id": "text", "text": "text"})
    forbid(frame, pl.col("doc_id").is_duplicated(), path, "doc_id", "a document must stand there once")
    return frame.select("doc_id", "text")


def with_texts(pairs: pl.DataFrame, documents: pl.DataFrame, path: Path) -> pl.DataFrame:
    """`pairs` with the document's text for its id; BadInput names the first id that no document has."""
    strangers = pairs.join(documents, left_on="candidate", right_on="doc_id", how="anti", maintain_order="left")
    if not strangers.is_empty():
        raise BadInput(
            f"{path}, pair {strangers['pair'][0]}: no document has the id {strangers['candidate'][0]!r}"
            f" ({len(strangers)} such pairs); `queries` and `documents` must be whole and of one revision"
        )
    texts = pairs.join(documents, left_on="candidate", right_on="doc_id", how="left", maintain_order="left")
    return texts.with_columns(candidate="text").drop("text")


ALLOPROF_RERANK = Dataset(
    name="alloprof_rerank",
    title="Alloprof-Rerank",
    domain="QA retrieval",
    task="Question-document relevance reranking",
    labels=LABELS,
    bibkey="lefebvre2023alloprof",
    origins=ORIGINS,
    origin_option="layout",
    read=read,
    options=AlloprofOptions().model_dump(),
)
