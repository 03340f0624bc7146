"""Amazon ESCI (Reddy et al., 2022): the Shopping Queries Dataset, four labels.

Raw: `shopping_queries_dataset_{examples,products}.parquet`. A product id is unique within a locale only, so the two
are joined on locale and id together; on the id alone rows would multiply.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import polars as pl

from tasks.datasets.base import Dataset, RawFile
from tasks.datasets.options import Options, checked
from tasks.datasets.pairs import joined_text, kept_pairs
from tasks.datasets.raw import ROW, forbid, label_codes, located_one, read_parquet

REVISION = "7916cdf6ab75a462e77f20ab40428a10923998d5"
FOLDER = "shopping_queries_dataset"
EXAMPLES = f"{FOLDER}_examples.parquet"
PRODUCTS = f"{FOLDER}_products.parquet"
CODES = {"E": 0, "S": 1, "C": 2, "I": 3}
KEY = ["product_locale", "product_id"]

TextField = Literal["product_title", "product_bullet_point", "product_brand", "product_color", "product_description"]
VERSIONS = {
    "large": pl.lit(True),  # every row is in the large version
    "small": pl.col("small_version") == 1,
    "large_only": pl.col("small_version") == 0,
}


class EsciOptions(Options):
    """Which judgements are read, and which columns of a product make up the candidate text."""

    version: Literal["large", "small", "large_only"] = "large"
    locale: Literal["us", "es", "jp", "all"] = "us"
    text_fields: tuple[TextField, ...] = ("product_title", "product_bullet_point")


def read(folder: Path, options: Mapping[str, Any]) -> pl.DataFrame:
    """One row for each judgement, in file order; `pair` is its example_id, `group` its query_id.

    Rows of the official train split have no split yet. A judgement whose product has no text, or is not in the
    products file at all, counts as a pair without text.
    """
    chosen = checked(EsciOptions, options, "amazon_esci")
    wanted = pl.lit(True) if chosen.locale == "all" else pl.col("product_locale") == chosen.locale
    examples = read_examples(located_one(folder, EXAMPLES), wanted & VERSIONS[chosen.version])
    products = read_products(located_one(folder, PRODUCTS), wanted, chosen.text_fields)
    pairs = examples.join(products, on=KEY, how="left", maintain_order="left")
    return kept_pairs(pairs, "amazon_esci")


def read_examples(path: Path, wanted: pl.Expr) -> pl.DataFrame:
    """The judgements for which `wanted` holds: `pair, split, group, query, label` and KEY."""
    texts = dict.fromkeys(("query", *KEY, "esci_label", "split"), "text")
    integers = dict.fromkeys(("example_id", "query_id", "small_version"), "integer")
    frame = read_parquet(path, {**texts, **integers}, lambda lazy: lazy.filter(wanted))
    twice = pl.col("example_id").is_null() | pl.col("example_id").is_duplicated()
    forbid(frame, twice, path, "example_id", "every judgement needs an id of its own")
    forbid(frame, pl.col("query").is_null(), path, "query", "every judgement needs a query")
    known = pl.col("split").is_in(["train", "test"]).fill_null(False)
    forbid(frame, ~known, path, "split", "it must be train or test")
    return frame.select(
        pl.col("example_id").cast(pl.String).alias("pair"),
        pl.when(pl.col("split") == "test").then(pl.col("split")).alias("split"),
        pl.col("query_id").cast(pl.String).alias("group"),
        "query",
        label_codes(frame, "esci_label", CODES, path).alias("label"),
        *KEY,
    )


def read_products(path: Path, wanted: pl.Expr, text_fields: tuple[str, ...]) -> pl.DataFrame:
    """The products for which `wanted` holds: KEY and `candidate`, the only text that leaves the file."""
    columns = dict.fromkeys((*KEY, *text_fields), "text")
    text = joined_text(list(text_fields)).alias("candidate")
    frame = read_parquet(path, columns, lambda lazy: lazy.filter(wanted).select(ROW, *KEY, text))
    forbid(frame, pl.struct(KEY).is_duplicated(), path, "product_id", "a product must stand there once for each locale")
    return frame.select(*KEY, "candidate")


AMAZON_ESCI = Dataset(
    name="amazon_esci",
    title="Amazon ESCI",
    domain="E-commerce search",
    task="Query-product relevance classification",
    labels=("Exact", "Substitute", "Complement", "Irrelevant"),
    licence="Apache-2.0",
    bibkey="reddy2022shopping",
    homepage="https://github.com/amazon-science/esci-data",
    revision=REVISION,
    files=tuple(
        RawFile(
            path=f"{FOLDER}/{name}",
            url=f"https://media.githubusercontent.com/media/amazon-science/esci-data/{REVISION}/{FOLDER}/{name}",
            size=size,
            sha256=sha256,
        )
        for name, size, sha256 in (
            (EXAMPLES, 51_286_808, "4a735b693b4a424a6fc67f5be6e4c811495c488bbf66d02a602d308b2744263a"),
            (PRODUCTS, 1_108_857_465, "25124442d064d64b26f74082d6fa09438d679efc0c183cf28d19064a2b65a265"),
        )
    ),
    read=read,
    options=EsciOptions().model_dump(),
)
