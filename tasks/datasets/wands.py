"""WANDS (Chen et al., 2022): Wayfair's product search, three graded labels, no official split.

Raw: `dataset/{query,product,label}.csv`, separated by tabs in spite of their name and quoted by RFC 4180: a quote
(an inch mark, here) inside a field is doubled, so the quote character must stay on.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import polars as pl

from tasks.datasets.base import Dataset, Judged
from tasks.datasets.options import Options, checked
from tasks.datasets.pairs import joined_text, kept_pairs
from tasks.datasets.raw import forbid, label_codes, located_one, read_table
from tasks.protocol.errors import BadInput
from tasks.sources.origin import Origin, Published, RawFile

REVISION = "3b74dcf4ba29ab8ff3e6a50b5b09fc627cb882b5"
ORIGINS: dict[str, Origin] = {
    "github": Origin(
        homepage="https://github.com/wayfair/WANDS",
        revision=REVISION,
        licence="MIT",
        terms="Use, change and pass on, with the copyright notice.",
        files=tuple(
            RawFile(
                path=f"dataset/{name}.csv",
                url=f"https://raw.githubusercontent.com/wayfair/WANDS/{REVISION}/dataset/{name}.csv",
                size=size,
            )
            for name, size in (("query", 19_942), ("product", None), ("label", None))
        ),
        published=(
            Published("queries", 480, verified=True),
            Published("products", 42_994, verified=True),
            Published("rows", 233_448, verified=True),
            Published("rows of Irrelevant", 61_201, verified=False),
            Published("rows of Partial", 146_633, verified=False),
            Published("rows of Exact", 25_614, verified=False),
        ),
    )
}
LABELS = ("Irrelevant", "Partial", "Exact")

TextField = Literal[
    "product_name", "product_class", "category hierarchy", "product_description", "product_features"
]  # one of them has a space in its name


class WandsOptions(Options):
    """Which columns of a product make up the candidate text."""

    text_fields: tuple[TextField, ...] = ("product_name", "product_description")


def read(folder: Path, options: Mapping[str, Any]) -> Judged:
    """One row for each label, in the order of label.csv; `pair` is its id, `group` the query's id."""
    chosen = checked(WandsOptions, options, "wands")
    label = read_labels(located_one(folder, "label.csv"))
    query = read_queries(located_one(folder, "query.csv"))
    product = read_products(located_one(folder, "product.csv"), chosen.text_fields)
    for key, other in (("query_id", query), ("product_id", product)):
        strangers = label.join(other, on=key, how="anti", maintain_order="left")
        if not strangers.is_empty():
            raise BadInput(
                f"{folder}: label.csv names {key} {strangers[key][0]!r} ({len(strangers)} labels), which the other file"
                " does not hold; the three files must be whole and of one revision"
            )
    pairs = label.join(query, on="query_id", how="left", maintain_order="left").join(
        product, on="product_id", how="left", maintain_order="left"
    )
    open_split = pl.lit(None, dtype=pl.String).alias("split")
    pairs = pairs.select(open_split, "pair", "query", "candidate", "label", group="query_id")
    counts = {"queries": len(query), "products": len(product), "rows": len(label)}
    counts |= {f"rows of {name}": int((label["label"] == code).sum()) for code, name in enumerate(LABELS)}
    kept, dropped = kept_pairs(pairs, "wands")
    return Judged(kept, counts, dropped)


def read_labels(path: Path) -> pl.DataFrame:
    """label.csv: `pair, query_id, product_id, label` (0..2)."""
    frame = read_table(path, ("id", "query_id", "product_id", "label"), "\t")
    forbid(
        frame, pl.col("id").is_null() | pl.col("id").is_duplicated(), path, "id", "every label needs an id of its own"
    )
    code = label_codes(frame, "label", {name: place for place, name in enumerate(LABELS)}, path)
    return frame.select("query_id", "product_id", pair="id", label=code)


def read_queries(path: Path) -> pl.DataFrame:
    """query.csv: `query_id, query`."""
    frame = read_table(path, ("query_id", "query"), "\t")
    forbid(frame, pl.col("query_id").is_duplicated(), path, "query_id", "a query must stand there once")
    forbid(frame, pl.col("query").is_null(), path, "query", "every query needs a text")
    return frame.select("query_id", "query")


def read_products(path: Path, text_fields: tuple[str, ...]) -> pl.DataFrame:
    """product.csv: `product_id, candidate`."""
    frame = read_table(path, ("product_id", *text_fields), "\t")
    forbid(frame, pl.col("product_id").is_duplicated(), path, "product_id", "a product must stand there once")
    return frame.select("product_id", candidate=joined_text(text_fields))


WANDS = Dataset(
    name="wands",
    title="WANDS",
    domain="E-commerce search",
    task="Product search relevance prediction",
    labels=LABELS,
    bibkey="chen2022wands",
    origins=ORIGINS,
    read=read,
    options=WandsOptions().model_dump(),
)
