"""Amazon ESCI (Reddy et al., 2022): the Shopping Queries Dataset, four labels.

Raw: `shopping_queries_dataset_{examples,products}.parquet`. A product id is unique within a locale only, so the two
are joined on locale and id together; on the id alone rows would multiply.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import polars as pl

from tasks.datasets.base import Dataset, Judged
from tasks.datasets.options import Options, checked
from tasks.datasets.pairs import joined_text, kept_pairs
from tasks.datasets.raw import ROW, forbid, label_codes, located_one, read_parquet
from tasks.sources.origin import Origin, Published, RawFile

logger = logging.getLogger(__name__)

REVISION = "7916cdf6ab75a462e77f20ab40428a10923998d5"
FOLDER = "shopping_queries_dataset"
EXAMPLES = f"{FOLDER}_examples.parquet"
PRODUCTS = f"{FOLDER}_products.parquet"
CODES = {"E": 0, "S": 1, "C": 2, "I": 3}
KEY = ["product_locale", "product_id"]

# queries and rows of the small train, small test, large train and large test part of each locale
SIZES = {
    "us": ((20_888, 419_653), (8_956, 181_701), (74_888, 1_393_063), (22_458, 425_762)),
    "es": ((5_632, 152_891), (2_417, 65_883), (11_336, 263_063), (3_844, 93_347)),
    "jp": ((7_284, 209_094), (3_123, 88_789), (13_460, 327_146), (4_667, 118_907)),
}
PARTS = tuple((version, split) for version in ("small", "large") for split in ("train", "test"))
ORIGINS: dict[str, Origin] = {
    "github": Origin(
        homepage="https://github.com/amazon-science/esci-data",
        revision=REVISION,
        licence="Apache-2.0",
        terms="Use, change and pass on, with the licence and its notices.",
        files=tuple(
            RawFile(
                path=f"{FOLDER}/{name}",
                url=f"https://github.com/amazon-science/esci-data/raw/{REVISION}/{FOLDER}/{name}",
                size=size,
                sha256=sha256,
            )
            for name, size, sha256 in (
                (EXAMPLES, 51_286_808, "4a735b693b4a424a6fc67f5be6e4c811495c488bbf66d02a602d308b2744263a"),
                (PRODUCTS, 1_108_857_465, "25124442d064d64b26f74082d6fa09438d679efc0c183cf28d19064a2b65a265"),
            )
        ),
        published=(
            Published("rows", 2_621_288, verified=True),
            Published("products", 1_814_924, verified=False),
            Published("rows of E", 1_708_158, verified=False),
            Published("rows of S", 574_313, verified=False),
            Published("rows of C", 75_652, verified=False),
            Published("rows of I", 263_165, verified=False),
            *(
                Published(f"{locale} {version} {split} {what}", count, verified=True)
                for locale, sizes in SIZES.items()
                for (version, split), size in zip(PARTS, sizes, strict=True)
                for what, count in zip(("queries", "rows"), size, strict=True)
            ),
        ),
    )
}

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


def read(folder: Path, options: Mapping[str, Any]) -> Judged:
    """One row for each judgement, in file order; `pair` is its example_id, `group` its query_id.

    Rows of the official train split have no split yet. A judgement whose product has no text, or is not in the
    products file at all, counts as a pair without text.
    """
    chosen = checked(EsciOptions, options, "amazon_esci")
    wanted = pl.lit(True) if chosen.locale == "all" else pl.col("product_locale") == chosen.locale
    path, products_path = (located_one(folder, name) for name in (EXAMPLES, PRODUCTS))
    examples = read_examples(path, wanted & VERSIONS[chosen.version])
    products = read_products(products_path, wanted, chosen.text_fields)
    pairs, dropped = kept_pairs(examples.join(products, on=KEY, how="left", maintain_order="left"), "amazon_esci")
    if straddling := dropped["of a query that is tested"]:  # its own table counts one query of the us in both splits
        logger.warning("amazon_esci: %d pairs of the train split are of a query that is tested, left out", straddling)
    rows = read_parquet(products_path, {"product_id": "text"}, lambda lazy: lazy.select(pl.len()))
    return Judged(pairs, count_examples(path) | {"products": rows.item()}, dropped)


def count_examples(path: Path) -> dict[str, int]:
    """Rows and queries of each locale, version and split, and rows of each label, whatever the options ask for."""
    columns = {**dict.fromkeys(("product_locale", "split", "esci_label"), "text"), "query_id": "integer"}
    flags = {"small": "small_version", "large": "large_version"}
    cells = read_parquet(
        path,
        columns | dict.fromkeys(flags.values(), "integer"),
        lambda lazy: lazy.group_by(*columns, *flags.values()).len(),
    )
    counts = {"rows": int(cells["len"].sum())}
    counts |= {f"rows of {label}": int(cells.filter(esci_label=label)["len"].sum()) for label in CODES}
    for locale in SIZES:
        for version, split in PARTS:
            part = cells.filter(pl.col(flags[version]) == 1, product_locale=locale, split=split)
            counts[f"{locale} {version} {split} queries"] = part["query_id"].n_unique()
            counts[f"{locale} {version} {split} rows"] = int(part["len"].sum())
    return counts


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
    text = joined_text(text_fields).alias("candidate")
    frame = read_parquet(path, columns, lambda lazy: lazy.filter(wanted).select(ROW, *KEY, text))
    forbid(frame, pl.struct(KEY).is_duplicated(), path, "product_id", "a product must stand there once for each locale")
    return frame.select(*KEY, "candidate")


AMAZON_ESCI = Dataset(
    name="amazon_esci",
    title="Amazon ESCI",
    domain="E-commerce search",
    task="Query-product relevance classification",
    labels=("Exact", "Substitute", "Complement", "Irrelevant"),
    bibkey="reddy2022shopping",
    origins=ORIGINS,
    read=read,
    options=EsciOptions().model_dump(),
)
