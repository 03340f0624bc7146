"""What is published about each data set, beside what its raw files hold; and the pairs that the rules left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from tasks.protocol.keys import BOOSTED
from tasks.tables.runs import NUMBER, TEXT, WHOLE, Columns, Runs, finished, in_order

SCHEMA: Columns = {
    "dataset": TEXT,
    "count": TEXT,
    "published": WHOLE,
    "evidence": TEXT,
    "found": WHOLE,
    "share": NUMBER,
    "holds": pl.Boolean,
    "source": TEXT,
}
DROPPED = "pairs left out: {}"


def counts_table(runs: Runs) -> pl.DataFrame:
    """A row for each published count, then for each rule that leaves pairs out.

    `evidence`: verified counts were read in an official copy and stop a run that does not meet them; recalled ones are
    a warning. `share` is found over published: what of the official size a twin has. `holds` is empty for a twin.
    """
    rows = [row for fact in runs.facts if fact["dataset"] != BOOSTED for row in _rows(fact)]
    return finished(in_order(runs, pl.DataFrame(rows, schema=SCHEMA), own=True, by=("dataset",)))


def _rows(fact: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    place = {"dataset": fact["dataset"], "source": fact["source"]}
    for one in fact.get("published", []):
        found = fact["counts"][one["what"]]
        yield place | {
            "count": one["what"],
            "published": one["value"],
            "evidence": "verified" if one["verified"] else "recalled",
            "found": found,
            "share": found / one["value"] if one["value"] else None,
            "holds": found == one["value"] if fact["source"] == "official" else None,
        }
    for rule, found in fact.get("dropped", {}).items():
        yield place | {"count": DROPPED.format(rule), "found": found}
