"""The contract of an official data set: its labels, its features, and the counts that are published about it.

A count that was read in an official copy stops the run where it is not met; one that was only recalled is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl

from tasks.expectations.check import check, expectation_types, pass_gate
from tasks.protocol.errors import BadInput
from tasks.sources.origin import Published

REMEDY = (
    "These raw files are not the official ones that the data set is pinned to, or its reader misreads them: delete its "
    "folder in data/raw and run the download stage again. Nothing was trained on them."
)


def check_contract(
    pairs: pl.DataFrame,
    counts: Mapping[str, int],
    *,
    published: Sequence[Published],
    n_labels: int,
    features: int,
    coordinates: Mapping[str, object],
) -> dict[str, Any]:
    """Hold what a reader made of official files against what is declared and published; return the gate's record.

    Parameters
    ----------
    pairs: judged pairs as the reader returns them; `features` where there are any.
    counts: what the reader counted in the raw files, under the names of `published`.
    n_labels: K; each of 0..K-1 must occur, and no other label.
    features: width of the ready-made features; 0 for texts.

    Raises
    ------
    GateFailed: names the data set and each count that is not as it must be.
    BadInput: the reader has not counted what is published.
    """
    uncounted = [one.what for one in published if one.what not in counts]
    if uncounted:
        raise BadInput(f"{coordinates['dataset']}: its reader does not count {', '.join(uncounted)}")
    width = pairs["features"].dtype.shape[0] if "features" in pairs.columns else 0  # type: ignore[attr-defined]
    known = pairs.filter(pl.col("label").is_between(0, n_labels - 1))["label"]
    declared = [
        ("labels that occur", n_labels, known.n_unique()),
        ("rows of no such label", 0, len(pairs) - len(known)),
        ("features of a row", features, width),
    ]
    rows = [(what, expected, found, True) for what, expected, found in declared]
    rows += [(one.what, one.value, counts[one.what], one.verified) for one in published]
    frame = pl.DataFrame(rows, schema=("count", "published", "found", "verified"), orient="row")
    return pass_gate("contract", coordinates, _checks(frame, coordinates))


def _checks(frame: pl.DataFrame, coordinates: Mapping[str, object]) -> Iterator[dict[str, Any]]:
    sure, recalled = frame.filter("verified"), frame.filter(~pl.col("verified"))
    checked = partial(check, named_by="count", coordinates=coordinates, remedy=REMEDY)
    yield checked(sure, _of_counts("critical"), gate="contract")
    if not recalled.is_empty():
        yield checked(recalled, _of_counts("warning"), gate="contract: recalled")


def _of_counts(severity: str) -> list[Any]:
    sentence = "the official files hold what is published about them"
    return [
        expectation_types().ExpectColumnPairValuesToBeEqual(
            column_A="published", column_B="found", severity=severity, description=sentence
        )
    ]
