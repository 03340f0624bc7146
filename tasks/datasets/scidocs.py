"""SciDocs (Cohan et al., 2020; Thakur et al., 2021) as reranking of titles, two labels.

Raw: `{validation,test}.jsonl.gz`, a row `{"query": title, "positive": [titles], "negative": [titles]}`. There is no
train split: validation rows are divided into train and validation. Several tasks were merged into one file, so a
query title comes back in other rows and in the other file; its group is therefore the title, not the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from tasks.datasets.base import Dataset, RawFile
from tasks.datasets.lists import COLUMNS, LABELS, ListOptions, exploded, list_pairs, refuse_nulls
from tasks.datasets.options import checked
from tasks.datasets.raw import located_one, read_json_lines

REVISION = "d3c5e1fc0b855ab6097bf1cda04dd73947d7caab"
SPLITS = {"validation": None, "test": "test"}


def read(folder: Path, options: Mapping[str, Any]) -> pl.DataFrame:
    """One row for each listed title; rows of validation.jsonl.gz have no split yet."""
    chosen = checked(ListOptions, options, "scidocs")
    parts = []
    for part, split in SPLITS.items():
        path = located_one(folder, f"{part}.jsonl.gz")
        parts.append(exploded(refuse_nulls(read_json_lines(path, COLUMNS), path), part, split))
    return list_pairs(parts, "scidocs", chosen)


SCIDOCS = Dataset(
    name="scidocs",
    title="SciDocs",
    domain="Scientific retrieval",
    task="Candidate document reranking",
    labels=LABELS,
    licence="CC BY 4.0",
    bibkey="cohan2020specter",
    homepage="https://huggingface.co/datasets/mteb/scidocs-reranking",
    revision=REVISION,
    files=tuple(
        RawFile(path=f"{part}.jsonl.gz", url=f"hf://datasets/mteb/scidocs-reranking@{REVISION}/{part}.jsonl.gz")
        for part in SPLITS
    ),
    read=read,
    options=ListOptions().model_dump(),
)
