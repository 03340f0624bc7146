"""SciDocs (Cohan et al., 2020; Thakur et al., 2021) as reranking of titles, two labels.

Raw: `{validation,test}.jsonl.gz`, a row `{"query": title, "positive": [titles], "negative": [titles]}`. There is no
train split: validation rows are divided into train and validation. Several tasks were merged into one file, so a
query title comes back in other rows and in the other file; its group is therefore the title, not the row. That is
the layout `mteb`; `mteb2` is the same in MTEB's second layout. `beir` is one of the tasks alone, with abstracts; it
leaves every split to be drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from tasks.datasets.base import Dataset, Judged
from tasks.datasets.beir import read_beir
from tasks.datasets.lists import LABELS, ListOptions, exploded, list_counts, list_pairs, load_lists
from tasks.datasets.options import checked
from tasks.datasets.raw import located_one
from tasks.datasets.retrieval import read_retrieval
from tasks.sources.origin import Origin, Published, RawFile

TERMS = "Use, change and pass on, with attribution."
ORIGINS: dict[str, Origin] = {
    "mteb": Origin(
        homepage="https://huggingface.co/datasets/mteb/scidocs-reranking",
        revision="d3c5e1fc0b855ab6097bf1cda04dd73947d7caab",
        repository="mteb/scidocs-reranking",
        licence="CC BY 4.0",
        terms=TERMS,
        files=(RawFile(path="validation.jsonl.gz"), RawFile(path="test.jsonl.gz")),
        published=(
            Published("test queries", 3_978, verified=True),
            Published("test distinct queries", 3_293, verified=False),
            Published("test pairs", 118_600, verified=True),
            Published("test positives", 19_599, verified=True),
        ),
    ),
    "beir": Origin(
        homepage="https://github.com/beir-cellar/beir",
        revision="scidocs.zip, MD5 38121350fc3a4d2f48850f6aff52e4a9",
        licence="CC BY-SA 4.0",
        terms="Use, change and pass on, with attribution and under the same licence.",
        files=tuple(RawFile(path=f"scidocs/{name}") for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")),
        archive=RawFile(
            path="scidocs.zip",
            url="https://public.ukp.informatik.tu-darmstadt.de/thakur/BEIR/datasets/scidocs.zip",
            size=142_471_588,
            md5="38121350fc3a4d2f48850f6aff52e4a9",  # its SHA-256 is not known
        ),
        published=(
            Published("queries", 1_000, verified=True),
            Published("documents", 25_657, verified=True),
            Published("pairs", 29_928, verified=True),
            Published("positives", 4_928, verified=True),
            Published("negatives", 25_000, verified=True),
        ),
    ),
    "mteb2": Origin(
        homepage="https://huggingface.co/datasets/mteb/SciDocsRR",
        revision="39b8377811871075eed9de3b8a7e21aaa6acb3d8",
        repository="mteb/SciDocsRR",
        licence="CC BY 4.0",
        terms=TERMS,
        files=tuple(RawFile(path=f"{folder}/*.parquet") for folder in ("corpus", "queries", "data", "top_ranked")),
        published=(
            Published("test queries", 3_978, verified=True),
            Published("test pairs", 118_600, verified=True),
            Published("test positives", 19_599, verified=True),
        ),
    ),
}
SPLITS = {"validation": None, "test": "test"}


class ScidocsOptions(ListOptions):
    """As for every reranking set, and the layout."""

    layout: Literal["mteb", "beir", "mteb2"] = "mteb"


def read(folder: Path, options: Mapping[str, Any]) -> Judged:
    """One row for each judged title, with `beir` and its abstract; only test rows of the other layouts have a split."""
    chosen = checked(ScidocsOptions, options, "scidocs")
    if chosen.layout == "beir":
        return read_beir(folder, "scidocs", chosen)
    if chosen.layout == "mteb2":
        return read_retrieval(folder, "scidocs", chosen, SPLITS)
    parts, counts = [], dict[str, int]()
    for part, split in SPLITS.items():
        rows = load_lists(located_one(folder, f"{part}.jsonl.gz"))
        counts |= list_counts(rows, part)
        parts.append(exploded(rows, part, split))
    return list_pairs(parts, "scidocs", chosen, counts)


SCIDOCS = Dataset(
    name="scidocs",
    title="SciDocs",
    domain="Scientific retrieval",
    task="Candidate document reranking",
    labels=LABELS,
    bibkey="cohan2020specter",
    origins=ORIGINS,
    origin_option="layout",
    read=read,
    options=ScidocsOptions().model_dump(),
)
