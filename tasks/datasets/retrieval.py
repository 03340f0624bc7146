"""MTEB's second layout of the reranking sets: texts, judgements and candidate lists, each in a folder of its own.

`<prefix>corpus/`, `<prefix>queries/`, the judgements in `data/` (or `<prefix>qrels/`) and `<prefix>top_ranked/`, each
with `<split>-*.parquet`. The pairs are those that were judged: what a candidate list has beyond them has no label, and
is counted as dropped; a judged pair that stands in no candidate list is a pair like any other. The id of a document
says its label (`apositive_…`), so ids are looked up and forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from tasks.datasets.base import Judged
from tasks.datasets.lists import ListOptions, distinct_texts, list_pairs
from tasks.datasets.loading import load_file
from tasks.datasets.pairs import joined_text, normalised
from tasks.datasets.raw import ROW, forbid, located, parquet_columns

JUDGED = {"query-id": "text", "corpus-id": "text", "score": "integer"}
RANKED = {"query-id": "text", "corpus-ids": "list of texts"}


def read_retrieval(
    folder: Path, name: str, options: ListOptions, splits: Mapping[str, str | None], prefix: str = ""
) -> Judged:
    """The judged pairs of the parts that `splits` names (part -> split, or None where it is still to be drawn).

    A set may have no train part at all; where the test part stands alone nothing could be learnt, so the split of its
    queries is left open too.
    """
    homes = places(folder, prefix)
    trained = any(True for place in homes.values() for _ in folder.rglob(f"{place}/train-*.parquet"))
    there = {part: split for part, split in splits.items() if part != "train" or trained}
    if list(there) == ["test"]:
        there = {"test": None}
    parts, counts, unjudged = [], dict[str, int](), 0
    for part, split in there.items():
        files = {kind: located(folder, f"{place}/{part}-*.parquet") for kind, place in homes.items()}
        judged = pl.concat([read_judgements(path) for path in files["judged"]]).with_columns(
            pl.int_range(1, pl.len() + 1).alias(ROW)
        )
        texts = {kind: pl.concat([read_texts(path) for path in files[kind]]) for kind in ("queries", "corpus")}
        found = with_texts(judged, texts["queries"], texts["corpus"], files["judged"][0].parent)
        counts |= judged_counts(found, f"{part} ")
        unjudged += sum(beyond(judged, path) for path in files["ranked"])
        parts.append(judged_pairs(found, part, split))
    kept = list_pairs(parts, name, options, counts)
    return Judged(kept.pairs, kept.counts, {**kept.dropped, "a candidate that was not judged": unjudged})


def places(folder: Path, prefix: str) -> dict[str, str]:
    """The folder of each kind of file below `folder`; a set without prefix may have its judgements in `data`."""
    return {
        "judged": "data" if prefix == "" and any(folder.rglob("data/*.parquet")) else f"{prefix}qrels",
        "queries": f"{prefix}queries",
        "corpus": f"{prefix}corpus",
        "ranked": f"{prefix}top_ranked",
    }


def read_judgements(path: Path) -> pl.DataFrame:
    """JUDGED of a file, each score 0 or 1."""
    frame = load_file(path, JUDGED)
    forbid(frame, ~pl.col("score").is_in([0, 1]).fill_null(False), path, "score", "it must be 0 or 1")
    return frame


def read_texts(path: Path) -> pl.DataFrame:
    """`id, text` of a file of queries or documents; the id may be called `_id`, and a title stands before the text."""
    named = parquet_columns(path)
    wanted = ["_id" if "_id" in named else "id", "text", *(["title"] if "title" in named else [])]
    return id_and_text(load_file(path, dict.fromkeys(wanted, "text")), path)


def beyond(judged: pl.DataFrame, path: Path) -> int:
    """How many candidates the lists of a file name that were not judged for their query."""
    ranked = load_file(path, RANKED).explode("corpus-ids", empty_as_null=False)
    return len(ranked.join(judged, left_on=["query-id", "corpus-ids"], right_on=["query-id", "corpus-id"], how="anti"))


def id_and_text(frame: pl.DataFrame, path: Path) -> pl.DataFrame:
    """`id, text` of the rows of a table of texts; BadInput where an id is null or comes twice."""
    name = "_id" if "_id" in frame.columns else "id"
    wrong = pl.col(name).is_null() | pl.col(name).is_duplicated()
    forbid(frame, wrong, path, name, "every text needs an id of its own")
    titled = [column for column in ("title", "text") if column in frame.columns]
    return frame.select(id=name, text=joined_text(titled))


def with_texts(judged: pl.DataFrame, queries: pl.DataFrame, corpus: pl.DataFrame, place: Path) -> pl.DataFrame:
    """`judged` with the columns `query` and `candidate`; BadInput names the first id that has no text."""
    for column, texts in (("query-id", queries), ("corpus-id", corpus)):
        advice = "no text has this id; the files must be whole and of one revision"
        forbid(judged, ~pl.col(column).is_in(texts["id"].implode()).fill_null(False), place, column, advice)
    asked = judged.join(queries.rename({"text": "query"}), left_on="query-id", right_on="id", maintain_order="left")
    return asked.join(corpus.rename({"text": "candidate"}), left_on="corpus-id", right_on="id", maintain_order="left")


def judged_counts(found: pl.DataFrame, part: str = "") -> dict[str, int]:
    """What `found`, from `with_texts`, holds before any rule or option; `part` begins the names."""
    positives = int(found["score"].sum())
    return {
        f"{part}queries": found["query-id"].n_unique(),
        f"{part}pairs": len(found),
        f"{part}positives": positives,
        f"{part}negatives": len(found) - positives,
        f"{part}distinct texts": distinct_texts(found["candidate"]),
    }


def judged_pairs(found: pl.DataFrame, part: str, split: str | None) -> pl.DataFrame:
    """`found`, from `with_texts`, in the columns of TEXT_SCHEMA, the rows of a query together; named `<part>:<row>`."""
    return found.sort(pl.col(ROW).min().over("query-id"), maintain_order=True).select(
        pl.format("{}:{}", pl.lit(part), pl.col(ROW) - 1).alias("pair"),
        pl.lit(split, dtype=pl.String).alias("split"),
        normalised("query").alias("group"),
        "query",
        "candidate",
        pl.col("score").cast(pl.Int8).alias("label"),
    )
