"""A copy of the project's code with a params.yaml of its own, for tests that run its commands."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import yaml

ROOT = Path(__file__).resolve().parent.parent
OWN_PAIRS = {  # an entry of `datasets` for what `write_own_pairs` writes into mine.csv
    "reader": "files",
    "source": "files",
    "path": "mine.csv",
    "split": {"by": "row", "validation": 0.3, "test": 0.3},
    "options": {
        "labels": ["bad", "good"],
        "pairs": {"path": "mine.csv", "group": "query", "query": "query", "candidate": "title", "label": "grade"},
    },
}


def copy_project(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Copy code and settings into `folder`; `change` is called on what params.yaml holds."""
    for name in ("flows", "tasks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("dvc.yaml", ".dvcignore", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    change(params)
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))


def write_own_pairs(path: Path, seed: int = 0) -> None:
    """Judged pairs in which one word makes a candidate good, mostly."""
    generator = np.random.default_rng(seed)
    words = np.array(["lamp", "desk", "chair", "sofa", "rug"])
    picked = generator.integers(0, 5, 900)
    good = generator.random(900) < np.where(picked < 2, 0.8, 0.25)
    pl.DataFrame(
        {
            "query": [f"query {row % 90}" for row in range(900)],
            "title": [f"{words[word]} number {row}" for row, word in enumerate(picked)],
            "grade": np.where(good, "good", "bad"),
        }
    ).write_csv(path)
