"""Twins of the official sets: made-up data in the official raw formats, with a residual of known size.

The readers never know. A twin has the official labels, class mix, splits and sizes of queries. The true P(y|x) of each
pair goes to `truth.parquet`, which no stage reads: only tests compare it with what was found.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from tasks.protocol.errors import BadInput
from tasks.simulation import alloprof_rerank, amazon_esci, esci_rerank_us, mslr_web10k, scidocs, wands

TWINS: dict[str, Callable[[Path, int, float, np.random.Generator], pl.DataFrame]] = {
    "amazon_esci": amazon_esci.write,
    "mslr_web10k": mslr_web10k.write,
    "alloprof_rerank": alloprof_rerank.write,
    "esci_rerank_us": esci_rerank_us.write,
    "wands": wands.write,
    "scidocs": scidocs.write,
}


def simulate(name: str, folder: Path, *, rows: int, residual: float, seed: int) -> None:
    """Write the raw files of a twin of `name`, and `truth.parquet`, into `folder`, which has none of them yet.

    `rows` judged pairs in all files together. `residual` 0 makes a twin whose truth a linear model can be right
    about, 1 the default one. The same arguments give the same bytes.

    Raises
    ------
    BadInput: a set that has no twin.
    """
    if name not in TWINS:
        raise BadInput(f"there is no simulated twin of {name!r}; there is one of {', '.join(TWINS)}")
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
    truth = TWINS[name](folder, rows, residual, generator)
    truth.write_parquet(folder / "truth.parquet")
