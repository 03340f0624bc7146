"""The contract of a released data set: its labels all occur, no row has another, and no pair comes twice."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from tasks.expectations.check import Check, expect, pass_gate

REMEDY = (
    "These raw files are not those that the data set declares, or its reader misreads them: delete its folder in "
    "data/raw and run the download stage again. Nothing was trained on them."
)


def check_contract(pairs: pl.DataFrame, *, n_labels: int, coordinates: Mapping[str, object]) -> dict[str, Any]:
    """Hold what a reader made of released files against what is declared; return the gate's record.

    Parameters
    ----------
    pairs: judged pairs as the reader returns them.
    n_labels: K; each of 0..K-1 must occur, and no other label.

    Raises
    ------
    GateFailed: names the data set and each count that is not as it must be.
    """
    known = pairs.filter(pl.col("label").is_between(0, n_labels - 1))["label"]
    rows = [
        ("labels that occur", n_labels, known.n_unique()),
        ("rows of no such label", 0, len(pairs) - len(known)),
        ("pairs that stand in one row", len(pairs), pairs["pair"].n_unique()),
    ]
    frame = pl.DataFrame(rows, schema=("count", "declared", "found"), orient="row")

    declared = expect("equal", "declared", "found", description="the released files hold what is declared of them")
    return pass_gate("contract", coordinates, [Check("contract", frame, [declared], "count")], REMEDY)
