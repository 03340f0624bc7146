"""Twins of the paper's sets: made-up data in the layouts of their repositories, with a residual of known size.

The readers never know. A twin has the official labels, class mix, splits and sizes of queries. The true P(y|x) of each
pair goes to `truth.parquet`, which no stage reads: only tests compare it with what was found. Of the sets whose
candidates the paper caps by label, it is the truth before the cap.
"""

import zlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from relmap.errors import InputError
from tasks.simulation.mslr_web10k import mslr_web10k
from tasks.simulation.texts import SHAPES, made_up

TWINS = {name: partial(made_up, shape) for name, shape in SHAPES.items()} | {"mslr_web10k": mslr_web10k}


def simulate(name: str, folder: Path, *, rows: int, residual: float, seed: int) -> None:
    """Write a twin of the repository of `name`, and `truth.parquet`, into `folder`, which has none of them yet.

    `rows` judged pairs in all files together. `residual` 0 makes a twin whose truth a linear model can be right
    about, 1 the default one. The same arguments give the same bytes.

    Raises:
        InputError: a set that has no twin.
    """
    if name not in TWINS:
        raise InputError(f"there is no simulated twin of {name!r}; there is one of {', '.join(TWINS)}")
    tables, pairs = TWINS[name](rows, residual, np.random.default_rng([seed, zlib.crc32(name.encode())]))
    write_repository(folder, tables)
    pairs.select("pair", "probabilities").write_parquet(folder / "truth.parquet")


def write_repository(folder: Path, tables: Mapping[tuple[str, str], pl.DataFrame]) -> None:
    """Write each table, (config, split) -> rows, and the card that `datasets` reads its layout from.

    They become `<config>/<split>-00000-of-00001.parquet` (`data/` for the config `default`) and README.md.
    """
    configs: dict[str, list[str]] = {}
    for (config, split), frame in tables.items():
        place = f"{'data' if config == 'default' else config}/{split}-00000-of-00001.parquet"
        frame.write_parquet(folder / place, mkdir=True)
        configs.setdefault(config, []).append(f"  - split: {split}\n    path: {place}\n")
    listed = "".join(f"- config_name: {name}\n  data_files:\n{''.join(files)}" for name, files in configs.items())
    card = f"---\nconfigs:\n{listed}---\nMade up: no row of it was ever judged by anybody.\n"
    (folder / "README.md").write_text(card, encoding="utf-8")
