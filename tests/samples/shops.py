"""Raw folders of Amazon ESCI, WANDS and MSLR-WEB10K: graded judgements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from samples.made_up import asked, features_of, in_test, texts_schema

ESCI = "shopping_queries_dataset"


def write_esci(folder: Path, queries: int = 0) -> None:
    home = folder / ESCI
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
        ("red rug", 14, "A6", "us", "E", 0, "train"),  # the same text, judged alike
        ("red rug", 14, "A7", "us", "S", 0, "train"),  # and otherwise
        ("oak chair", 11, "A2", "us", "I", 0, "train"),  # of a query that is tested
    ]
    products = [
        # product_id, title, description, bullet, brand, color, locale
        ("A1", "Lamp", None, "bright", None, "red", "us"),
        ("A1", "Lámpara", None, None, None, None, "es"),
        ("A2", "Rug", "soft", "", "Weaver", None, "us"),
        ("A3", "Oak chair", None, "four legs", "Joiner", "brown", "us"),
        ("A5", "畳", None, None, None, None, "jp"),
        ("A6", "Rug", None, None, None, None, "us"),
        ("A7", "Rug", None, None, None, None, "us"),
        ("A9", "Never asked for", "<b>bold</b>", None, None, None, "us"),
    ]
    for number, one in enumerate(asked(queries, labels=4)):
        split = "test" if in_test(number) else "train"
        for place, (text, label) in enumerate(one.candidates):
            sold = f"B{number:05}{place:04}"
            examples.append((one.text, 100 + number, sold, "us", "ESCI"[label], number // 3 % 2, split))
            products.append((sold, text, None, None, None, None, "us"))
    names = ["query", "query_id", "product_id", "product_locale", "esci_label", "small_version", "split"]
    frame = pl.DataFrame(examples, schema=names, orient="row").with_row_index("example_id")
    frame = frame.with_columns(pl.col("example_id").cast(pl.Int64), large_version=pl.lit(1, pl.Int64))
    order = ["example_id", *names[:6], "large_version", "split"]
    left_by_pandas = frame.select(order).to_pandas().to_parquet
    left_by_pandas(home / f"{ESCI}_examples.parquet", index=True)  # a column more, and large strings
    fields = ("id", "title", "description", "bullet_point", "brand", "color", "locale")
    columns = dict(zip((f"product_{name}" for name in fields), zip(*products, strict=True), strict=True))
    schema = pa.schema([(name, pa.string()) for name in columns])
    pq.write_table(pa.table(columns, schema=schema), home / f"{ESCI}_products.parquet")
    sources = frame.select(pl.col("query_id").unique().sort(), source=pl.lit("other"))
    sources.write_csv(home / f"{ESCI}_sources.csv")


def svmlight_line(label: int, group: str, features: np.ndarray) -> str:
    return f"{label} qid:{group} " + " ".join(f"{place}:{value:g}" for place, value in enumerate(features, 1)) + " "


def write_mslr(folder: Path, queries: int = 0, fold: int = 1, inside: str = "") -> None:
    """`inside`: a folder that the folds lie in, as in some copies of the archive."""
    home = folder / inside / f"Fold{fold}"
    home.mkdir(parents=True)
    features = np.random.default_rng(0).normal(0, 100, (9, 136)).round(3)
    features[5] = 0  # a row that says nothing, the only one of its query
    quirks = {
        "train": [(0, "16"), (2, "16"), (4, "16"), (0, "7"), (1, "7")],
        "vali": [(0, "30"), (3, "31")],  # no grade 4
        "test": [(1, "40"), (4, "40")],
    }
    lines: dict[str, list[str]] = {}
    at = 0
    for part, rows in quirks.items():
        lines[part] = [svmlight_line(label, group, features[at + i]) for i, (label, group) in enumerate(rows)]
        at += len(rows)
    more = asked(queries, labels=5)
    for number, (one, rows) in enumerate(zip(more, np.split(features_of(more, 136), max(queries, 1)), strict=False)):
        part = ("train", "vali", "test", "train", "vali")[number % 5]
        lines[part] += [
            svmlight_line(label, f"{100 + 15 * number}", row)
            for (_, label), row in zip(one.candidates, rows, strict=True)
        ]
    for part, newline in zip(quirks, ("\n", "\r\n", "\n"), strict=True):
        first, *others = lines[part]
        (home / f"{part}.txt").write_bytes((newline.join([first, "", *others]) + newline).encode())


def write_wands(folder: Path, queries: int = 0) -> None:
    home = folder / "dataset"
    home.mkdir(parents=True)
    asked_for = [(0, '48" desk', "Desks"), (2, "décor", None)]
    products = [
        # product_id, name, class, hierarchy, description, features, rating count
        (0, 'desk 48 " wide', "Desks", "Office / Desks", 'made of "oak"\tand\nsteel', "width : 48", 3.0),
        (1, "vase", "Décor|Vases", None, None, "colour:blue|height : 5", None),
        (2, "unused", None, None, "nobody asked", "", None),
        (3, "vase", None, None, "blue", "", None),
        (4, "vase", None, None, None, "", None),  # two of one text
        (5, "vase", None, None, None, "", None),
    ]
    labels = [(0, 0, 0, "Exact"), (1, 0, 1, "Irrelevant"), (5, 2, 1, "Exact"), (6, 2, 0, "Irrelevant")]
    labels += [(9, 2, 3, "Partial"), (11, 2, 4, "Exact"), (13, 2, 5, "Partial")]
    for number, one in enumerate(asked(queries, labels=3)):
        asked_for.append((10 + 2 * number, one.text, None))
        for text, label in one.candidates:
            product = len(products)
            products.append((product, text, None, None, None, "", None))
            labels.append((10 + 2 * product, 10 + 2 * number, product, ("Irrelevant", "Partial", "Exact")[label]))
    columns = ("name", "class", "hierarchy", "description", "features")
    schema = {"product_id": pl.Int64, **texts_schema(*(f"product_{name}" for name in columns))}
    product = pl.DataFrame(products, schema={**schema, "rating_count": pl.Float64}, orient="row")
    product = product.rename({"product_hierarchy": "category hierarchy"}).with_columns(
        average_rating=pl.col("rating_count") * 1.5, review_count=pl.col("rating_count") - 1
    )
    tables = {
        "query": pl.DataFrame(asked_for, schema=["query_id", "query", "query_class"], orient="row"),
        "product": product,
        "label": pl.DataFrame(labels, schema=["id", "query_id", "product_id", "label"], orient="row"),
    }
    for name, frame in tables.items():
        frame.write_csv(home / f"{name}.csv", separator="\t")
