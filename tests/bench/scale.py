"""What training computes, from raw files to logits, in one process; prints what each step took, as JSON.

`python scale.py amazon_esci FOLDER`: the steps of `tasks/train.py` without a store.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tasks.datasets import DATASETS
from tasks.predictors import fit_predictor


class Steps:
    """Seconds and rows of each step, and the highest memory of the process until its end."""

    def __init__(self) -> None:
        self.took: list[dict[str, Any]] = []
        self.start = time.perf_counter()

    def done(self, step: str, rows: int) -> None:
        seconds = time.perf_counter() - self.start
        self.took.append({"step": step, "rows": rows, "seconds": seconds, "peak_gib": highest_memory()})
        self.start = time.perf_counter()


def highest_memory() -> float:
    """Of this process until now, in GiB; what `getrusage` says may be its parent's."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 2**20


def raw_to_logits(name: str, folder: Path) -> list[dict[str, Any]]:
    steps, dataset = Steps(), DATASETS[name]
    pairs = dataset.read(folder).pairs
    steps.done("read", len(pairs))
    parts = {split: pairs.filter(pl.col("split") == split) for split in ("train", "validation", "test")}
    steps.done("split", len(pairs))
    predictor = fit_predictor(
        "linear",
        parts["train"],
        parts["validation"],
        n_labels=dataset.n_labels,
        class_weight="balanced",
        seed=dataset.member_seed,
        settings={},
    )
    steps.done("fit", len(parts["train"]))
    for split in ("validation", "test"):
        if not np.isfinite(predictor(parts[split])).all():
            raise ValueError(f"logits of {split} are not finite")
        steps.done(f"logits of {split}", len(parts[split]))
    return steps.took


if __name__ == "__main__":
    print(json.dumps(raw_to_logits(sys.argv[1], Path(sys.argv[2]))))
