"""Simulated versions of the paper's data sets ("twins"), in the layouts of their repositories.

A twin is read in the same way as the released data set. It has the same labels, shares of the labels, splits and query
sizes, and a residual of known size. The true P(y|x) of each pair is written to `truth.parquet`. No stage reads this
file; only tests compare results with it. For data sets whose candidates are capped by label, it is the truth before the
cap.
"""

import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from relmap.errors import InputError
from tasks.settings.dataset_params import TwinParams
from tasks.simulation.mslr_web10k import simulate_mslr_web10k
from tasks.simulation.texts import TWIN_DESIGNS, Tables, simulate_texts

# rows, residual, other parameters, generator -> tables and truth
Simulation = Callable[[int, float, TwinParams, np.random.Generator], tuple[Tables, pl.DataFrame]]
TWINS: dict[str, Simulation] = {name: partial(simulate_texts, design) for name, design in TWIN_DESIGNS.items()}
TWINS["mslr_web10k"] = simulate_mslr_web10k


def simulate(name: str, folder: Path, *, rows: int, residual: float, twin: TwinParams, seed: int) -> None:
    """Write a twin of a repository and `truth.parquet` to a folder. The same arguments give the same bytes.

    Args:
        name: Key of a data set of the paper.
        folder: Folder without these files.
        rows: Number of labelled pairs in all files together.
        residual: Size of the label-dependent residual. With 0, a linear model can represent the truth; the default of
            params.yaml is 1.
        twin: Other parameters of the twin.
        seed: Seed.

    Raises:
        InputError: The data set has no twin.
    """
    if name not in TWINS:
        raise InputError(f"there is no simulated twin of {name!r}; there is one of {', '.join(TWINS)}")
    generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
    tables, pairs = TWINS[name](rows, residual, twin, generator)
    write_repository(folder, tables)
    pairs.select("pair", "probabilities").write_parquet(folder / "truth.parquet")


def write_repository(folder: Path, tables: Mapping[tuple[str, str], pl.DataFrame]) -> None:
    """Write tables as a repository that the library `datasets` can read.

    The files are `<config>/<split>-00000-of-00001.parquet` (`data/` for the configuration `default`) and the card
    README.md, which lists them.

    Args:
        folder: Folder of the repository.
        tables: (configuration, split) -> rows.
    """
    files_by_config: dict[str, list[str]] = {}
    for (config, split), frame in tables.items():
        subfolder = "data" if config == "default" else config
        path = f"{subfolder}/{split}-00000-of-00001.parquet"
        frame.write_parquet(folder / path, mkdir=True)
        files_by_config.setdefault(config, []).append(f"  - split: {split}\n    path: {path}\n")
    configs = ""
    for config, files in files_by_config.items():
        configs += f"- config_name: {config}\n  data_files:\n{''.join(files)}"
    card = f"---\nconfigs:\n{configs}---\nSimulated data: no person labelled these rows.\n"
    (folder / "README.md").write_text(card, encoding="utf-8")
