"""Small raw folders of the six official sets: the layout is theirs, the content made up here."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl


def write_esci(folder: Path) -> None:
    home = folder / "shopping_queries_dataset"
    home.mkdir(parents=True)
    examples = [
        # query, query_id, product_id, locale, label, small, split
        (" !desk lamp", 10, "A1", "us", "E", 1, "train"),
        (" !desk lamp", 10, "A2", "us", "S", 1, "train"),
        (" !desk lamp", 10, "A4", "us", "I", 1, "train"),  # no such product
        ("oak chair", 11, "A1", "us", "C", 0, "test"),
        ("oak chair", 11, "A3", "us", "E", 0, "test"),
        ("silla", 12, "A1", "es", "E", 1, "train"),
        ("tatami", 13, "A5", "jp", "I", 0, "test"),
        ("red rug", 14, "A2", "us", "E", 0, "train"),
    ]
    products = [
        # product_id, title, description, bullet, brand, color, locale
        ("A1", "Lamp", None, "bright", None, "red", "us"),
        ("A1", "Lámpara", None, None, None, None, "es"),
        ("A2", "Rug", "soft", "", "Weaver", None, "us"),
        ("A3", "Oak chair", None, "four legs", "Joiner", "brown", "us"),
        ("A5", "畳", None, None, None, None, "jp"),
        ("A9", "Never asked for", None, None, None, None, "us"),
    ]
    names = ["query", "query_id", "product_id", "product_locale", "esci_label", "small_version", "split"]
    frame = pl.DataFrame(examples, schema=names, orient="row").with_row_index("example_id")
    frame = frame.with_columns(pl.col("example_id").cast(pl.Int64), large_version=pl.lit(1, pl.Int64))
    frame.write_parquet(home / "shopping_queries_dataset_examples.parquet")
    fields = ["title", "description", "bullet_point", "brand", "color", "locale"]
    schema = {f"product_{name}": pl.String for name in ("id", *fields)}
    pl.DataFrame(products, schema=schema, orient="row").write_parquet(
        home / "shopping_queries_dataset_products.parquet"
    )


def svmlight_line(label: int, group: str, features: np.ndarray) -> str:
    return f"{label} qid:{group} " + " ".join(f"{place}:{value:g}" for place, value in enumerate(features, 1)) + " "


def write_mslr(folder: Path) -> None:
    home = folder / "MSLR-WEB10K" / "Fold1"  # one folder deeper, as some copies are
    home.mkdir(parents=True)
    features = np.random.default_rng(0).normal(0, 100, (9, 136)).round(3)
    rows = [[(0, "16"), (2, "16"), (4, "16"), (0, "7"), (1, "7")], [(0, "30"), (3, "31")], [(1, "40"), (4, "40")]]
    at = 0
    for part, newline, lines in zip(("train", "vali", "test"), ("\n", "\r\n", "\n"), rows, strict=True):
        text = [svmlight_line(label, group, features[at + i]) for i, (label, group) in enumerate(lines)]
        at += len(lines)
        (home / f"{part}.txt").write_bytes((newline.join([text[0], "", *text[1:]]) + newline).encode())


def write_lists(path: Path, rows: list[tuple[str, list[str], list[str]]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = pl.List(pl.String)
    schema = {"query": pl.String, "positive": texts, "negative": texts}
    pl.DataFrame(rows, schema=schema, orient="row").write_parquet(path)


def write_alloprof(folder: Path) -> None:
    (folder / "documents").mkdir(parents=True)
    texts = {f"d{i}": f"Leçon {i}\nles égalités\n" + "x² " * i for i in range(30)}
    pl.DataFrame({"doc_id": list(texts), "text": list(texts.values())}).write_parquet(
        folder / "documents" / "test-00000-of-00001.parquet"
    )
    ids = list(texts)
    train = [(f"Qu'est-ce que {i} ?", ids[i : i + 2], ids[i + 2 : i + 12]) for i in range(12)]
    train[0] = (train[0][0], ["d0", "d1"], ["d1", "d2", "d3"])  # d1 is in both lists
    write_lists(folder / "queries" / "train-00000-of-00001.parquet", train)
    test = [(f"Pourquoi {i} ?", ids[i : i + 1], ids[i + 1 : i + 11]) for i in range(5)]
    write_lists(folder / "queries" / "test-00000-of-00001.parquet", test)


def write_esci_rerank(folder: Path) -> None:
    def rows(part: str) -> list[tuple[str, list[str], list[str]]]:
        return [
            (f"lamp {part}", [f"good {i}" for i in range(9)], [f"bad {i}" for i in range(4)]),
            (f"only good {part}", ["fine", "finer"], []),
            (f"only bad {part}", [], ["poor"]),
            (f"blank {part}", ["text", "", "both"], ["other", "other", "both"]),
        ]

    write_lists(folder / "us" / "train-00000-of-00002.parquet", rows("a"))
    write_lists(folder / "us" / "train-00001-of-00002.parquet", rows("b"))
    write_lists(folder / "us" / "test-00000-of-00001.parquet", rows("c"))
    write_lists(folder / "es" / "test-00000-of-00001.parquet", rows("d"))


def write_wands(folder: Path) -> None:
    home = folder / "dataset"
    home.mkdir(parents=True)
    query = pl.DataFrame({"query_id": [0, 2], "query": ['48" desk', "décor"], "query_class": ["Desks", None]})
    product = pl.DataFrame(
        {
            "product_id": [0, 1, 2, 3],
            "product_name": ['desk 48 " wide', "vase", "unused", "vase"],
            "product_class": ["Desks", "Décor|Vases", None, None],
            "category hierarchy": ["Office / Desks", None, None, None],
            "product_description": ['made of "oak"\tand\nsteel', None, "nobody asked", "blue"],
            "product_features": ["width : 48", "colour:blue|height : 5", "", ""],
            "rating_count": [3.0, None, None, None],
        }
    )
    label = pl.DataFrame(
        {
            "id": [0, 1, 5, 6, 9],
            "query_id": [0, 0, 2, 2, 2],
            "product_id": [0, 1, 1, 0, 3],
            "label": ["Exact", "Irrelevant", "Exact", "Irrelevant", "Partial"],
        }
    )
    for name, frame in (("query", query), ("product", product), ("label", label)):
        frame.write_csv(home / f"{name}.csv", separator="\t")


def write_json_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def write_scidocs(folder: Path) -> None:
    def row(title: str, first: int) -> dict[str, Any]:
        titles = [f"Study {i} of matters" for i in range(first, first + 30)]
        return {"query": title, "positive": titles[:5], "negative": titles[5:]}

    validation = [row("On Graphs", 0), row("on  graphs", 3), row("Shared title", 50), row("On trees", 100)]
    test = [row("shared Title", 60), row("On lattices", 200)]
    write_json_lines(folder / "validation.jsonl.gz", validation)
    write_json_lines(folder / "test.jsonl.gz", test)


WRITERS: dict[str, Callable[[Path], None]] = {
    "amazon_esci": write_esci,
    "mslr_web10k": write_mslr,
    "alloprof_rerank": write_alloprof,
    "esci_rerank_us": write_esci_rerank,
    "wands": write_wands,
    "scidocs": write_scidocs,
}
