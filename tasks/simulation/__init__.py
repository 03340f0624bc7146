"""Twins of the paper's sets: made-up data in the layouts of their repositories, with a residual of known size.

The readers never know. A twin has the official labels, class mix, splits and sizes of queries. The true P(y|x) of each
pair goes to `truth.parquet`, which no stage reads: only tests compare it with what was found. Of the sets whose
candidates the paper caps by label, it is the truth before the cap.
"""

from __future__ import annotations

import zlib
from functools import partial
from pathlib import Path

import numpy as np

from tasks.protocol.errors import BadInput
from tasks.simulation import mslr_web10k, texts

TWINS = {name: partial(texts.write, name) for name in texts.SHAPES} | {"mslr_web10k": mslr_web10k.write}


def simulate(name: str, folder: Path, *, rows: int, residual: float, seed: int) -> None:
    """Write a twin of the repository of `name`, and `truth.parquet`, into `folder`, which has none of them yet.

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
