"""From raw rows to judged pairs of text: which pairs are kept, and in which columns.

The rules, the same for every official set:

- A pair without a text is dropped: a query and a candidate of nothing but white space can teach nothing.
- A pair that may still become train or validation is dropped where its group has test rows: nobody learns from a
  query on which he is tested.

And in the sets that give lists, where a candidate is its text and nothing else:

- A text that is both positive and negative for one query is dropped on both sides: it comes from joining on the text
  alone.
- A pair that repeats another (same group, candidate and label) is kept once, the first time.

Graded sets keep such pairs: there two products of one text were judged apart, whether alike or not.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import polars as pl

from tasks.datasets.base import TEXT_SCHEMA
from tasks.protocol.errors import BadInput

logger = logging.getLogger(__name__)


def joined_text(columns: Sequence[str]) -> pl.Expr:
    """The texts of several columns in one, a space between them; what is null or empty leaves no trace."""
    texts = [pl.when(pl.col(column).str.strip_chars() != "").then(pl.col(column)) for column in columns]
    return pl.concat_str(texts, separator=" ", ignore_nulls=True)


def normalised(column: str) -> pl.Expr:
    """A text without the differences that make no other query: case, white space, Unicode spelling."""
    text = pl.col(column).str.normalize("NFKC").str.to_lowercase()
    return text.str.replace_all(r"\s+", " ").str.strip_chars()


def kept_pairs(frame: pl.DataFrame, name: str, *, lists: bool = False) -> tuple[pl.DataFrame, dict[str, int]]:
    """The pairs of `frame`, which has the columns of TEXT_SCHEMA, that pass the rules above, in their order.

    `lists`: the labels are two lists of texts for each query. How many pairs each rule dropped is returned beside
    them, and goes to the log.
    """
    rules = {
        "without text": has_text("query") & has_text("candidate"),
        "of a query that is tested": pl.col("split").is_not_null() | ~(pl.col("split") == "test").any().over("group"),
    }
    if lists:
        text = pl.col("candidate").hash()  # stands for the text within this call: equal texts, equal hashes
        rules |= {
            "both positive and negative": pl.col("label").n_unique().over("group", text) == 1,
            "repeated": pl.struct("group", "label", text).is_first_distinct(),
        }
    dropped = {}
    pairs = len(frame)
    for rule, keeps in rules.items():
        before = len(frame)
        frame = frame.filter(keeps)
        dropped[rule] = before - len(frame)
    counts = ", ".join(f"{count} {rule}" for rule, count in dropped.items())
    logger.info("%s: %d of %d pairs kept; dropped: %s", name, len(frame), pairs, counts, extra={"dropped": dropped})
    if frame.is_empty():
        raise BadInput(f"{name}: none of {pairs} pairs is left ({counts}); the raw files do not belong together")
    return frame.select(pl.col(column).cast(dtype) for column, dtype in TEXT_SCHEMA.items()), dropped


def has_text(column: str) -> pl.Expr:
    """Is there anything but white space in `column`?"""
    return (pl.col(column).str.strip_chars() != "").fill_null(False)
