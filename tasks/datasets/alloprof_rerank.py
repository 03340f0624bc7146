"""Alloprof-Rerank (Lefebvre-Brossard et al., 2023): French school questions and help pages, candidates by BM25.

Raw: `queries/{train,test}-*.parquet`, a row `query, positive (list of doc_id), negative (list of doc_id)`, and
`documents/*.parquet`, a row `doc_id, text`, one pool for both splits: documents cross splits, questions do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from tasks.datasets.base import Dataset, RawFile
from tasks.datasets.lists import COLUMNS, LABELS, ListOptions, exploded, list_pairs, refuse_nulls
from tasks.datasets.options import checked
from tasks.datasets.raw import forbid, located, read_parquet
from tasks.protocol.errors import BadInput

REVISION = "65393d0d7a08a10b4e348135e824f385d420b0fd"
SPLITS = {"train": None, "test": "test"}


def read(folder: Path, options: Mapping[str, Any]) -> pl.DataFrame:
    """One row for each listed document; questions of the train file have no split yet."""
    chosen = checked(ListOptions, options, "alloprof_rerank")
    documents = pl.concat([read_documents(path) for path in located(folder, "documents/*.parquet")])
    parts = []
    for part, split in SPLITS.items():
        for shard, path in enumerate(located(folder, f"queries/{part}-*.parquet")):
            pairs = exploded(refuse_nulls(read_parquet(path, COLUMNS), path), f"{part}-{shard}", split)
            parts.append(with_texts(pairs, documents, path))
    return list_pairs(parts, "alloprof_rerank", chosen)


def read_documents(path: Path) -> pl.DataFrame:
    """The pool: `doc_id, text`, each id once."""
    frame = read_parquet(path, {"doc_id": "text", "text": "text"})
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
    licence="CC BY-NC-SA 4.0",  # the strictest of several statements that contradict each other
    bibkey="lefebvre2023alloprof",
    homepage="https://huggingface.co/datasets/lyon-nlp/mteb-fr-reranking-alloprof-s2p",
    revision=REVISION,
    files=tuple(
        RawFile(path=path, url=f"hf://datasets/lyon-nlp/mteb-fr-reranking-alloprof-s2p@{REVISION}/{path}")
        for path in ("documents/*.parquet", "queries/train-*.parquet", "queries/test-*.parquet")
    ),
    read=read,
    options=ListOptions().model_dump(),
)
