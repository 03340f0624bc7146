"""Raw folders of the reranking sets in the layouts of lists: Alloprof B, ESCI-Rerank v1, SciDocs of MTEB."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
from samples.made_up import as_lists, asked, split_of

Rows = list[tuple[str, list[str], list[str]]]  # query, positive, negative


def write_lists(path: Path, rows: Rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = pl.List(pl.String)
    schema = {"query": pl.String, "positive": texts, "negative": texts}
    pl.DataFrame(rows, schema=schema, orient="row").write_parquet(path)


def write_card(folder: Path, configs: dict[str, dict[str, str]]) -> None:
    """README.md that says which files are which split of which configuration; no sizes, which a library would check."""
    lines = ["---", "configs:"]
    for config, splits in configs.items():
        lines += [f"- config_name: {config}", "  data_files:"]
        lines += [line for split, path in splits.items() for line in (f"  - split: {split}", f"    path: {path}")]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]))


def write_json_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode())


def alloprof_rows(queries: int) -> tuple[dict[str, str], Rows, Rows]:
    """The documents by id; questions to learn from and of the test, with ids in their lists."""
    texts = {f"d{i}": f"Leçon {i}\nles égalités\n" + "x² " * i for i in range(30)}
    texts["d29"] = "Une très longue leçon.\n" * 1000  # more than 20,000 characters
    ids = list(texts)
    train = [(f"Qu'est-ce que {i} ?", ids[i : i + 2], ids[i + 2 : i + 12]) for i in range(12)]
    train[0] = (train[0][0], ["d0", "d1"], ["d1", "d2", "d3"])  # d1 is in both lists
    test = [(f"Pourquoi {i} ?", ids[i : i + 1], ids[i + 1 : i + 11]) for i in range(5)]
    train[-1][2][-1] = test[-1][2][-1] = "d29"
    for part, more in zip((train, test), split_of(asked(queries, labels=2)), strict=True):
        for query, *lists in as_lists(more):
            named = [{f"d{len(texts) + place}": text for place, text in enumerate(one)} for one in lists[:1]]
            texts |= named[0]
            named.append({f"d{len(texts) + place}": text for place, text in enumerate(lists[1])})
            texts |= named[1]
            part.append((query, list(named[0]), list(named[1])))
    return texts, train, test


def write_alloprof(folder: Path, queries: int = 0) -> None:
    texts, train, test = alloprof_rows(queries)
    parts = {"train": "queries/train-*", "test": "queries/test-*"}
    write_card(folder, {"documents": {"test": "documents/test-*"}, "queries": parts})
    (folder / "documents").mkdir()
    documents = pl.DataFrame({"doc_id": list(texts), "text": list(texts.values())})
    documents.write_parquet(folder / "documents" / "test-00000-of-00001.parquet")
    for part, rows in (("train", train), ("test", test)):
        write_lists(folder / "queries" / f"{part}-00000-of-00001.parquet", rows)


def esci_rerank_rows(part: str) -> Rows:
    return [
        (f"lamp {part}", [f"good {i}" for i in range(9)], [f"bad {i}" for i in range(4)]),
        (f"only good {part}", ["fine", "finer"], []),
        (f"only bad {part}", [], ["poor"]),
        (f"blank {part}", ["text", "", "both"], ["other", "other", "both"]),
    ]


def esci_rerank_parts(queries: int) -> tuple[Rows, Rows]:
    """The first rows of train, and all of test."""
    train, test = (as_lists(part) for part in split_of(asked(queries, labels=2)))
    long = ("many of c", [f"good {i}" for i in range(30)], [f"bad {i}" for i in range(15)])
    return esci_rerank_rows("a") + train, [*esci_rerank_rows("c"), long, *test]


def write_esci_rerank(folder: Path, queries: int = 0) -> None:
    locales = ("us", "es", "jp")
    write_card(folder, {name: {part: f"{name}/{part}-*" for part in ("train", "test")} for name in locales})
    train, test = esci_rerank_parts(queries)
    write_lists(folder / "us" / "train-00000-of-00002.parquet", train)
    write_lists(folder / "us" / "train-00001-of-00002.parquet", esci_rerank_rows("b"))
    write_lists(folder / "us" / "test-00000-of-00001.parquet", test)
    write_lists(folder / "es" / "test-00000-of-00001.parquet", esci_rerank_rows("d"))


def scidocs_rows(queries: int) -> tuple[Rows, Rows]:
    """The rows of validation and of test."""

    def row(title: str, first: int) -> tuple[str, list[str], list[str]]:
        titles = [f"Study {i} of matters" for i in range(first, first + 30)]
        return title, titles[:5], titles[5:]

    validation = [row("On Graphs", 0), row("on  graphs", 3), row("Shared title", 50), row("On trees", 100)]
    test = [row("shared Title", 60), row("On lattices", 200)]
    learnt, tested = (as_lists(part) for part in split_of(asked(queries, labels=2)))
    return validation + learnt, test + tested


def write_scidocs(folder: Path, queries: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text("---\nlanguage:\n- en\n---\n")
    for part, rows in zip(("validation", "test"), scidocs_rows(queries), strict=True):
        named = [dict(zip(("query", "positive", "negative"), row, strict=True)) for row in rows]
        write_json_lines(folder / f"{part}.jsonl.gz", named)
