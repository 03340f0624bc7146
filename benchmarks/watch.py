"""Study of `relmap watch`: how often it raises a false alarm, and how often it finds a shift of new rows.

`python -m benchmarks.watch` measures a table of `docs/evidence`. A map is fitted on 1,000 rows of a simulated model of
three labels; then it watches new rows without a shift, or with one of three shifts.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.records import RESULTS, Record, last_commit, read_records, today, write_records
from relmap import ReliabilityMap
from relmap.evaluation.watch import watch_file
from relmap.io.frames import FramePredictions

MEASURED_CODE = ("relmap/evaluation/watch.py", "benchmarks/watch.py")
FIT_ROWS = 1000
N_ROWS = (300, 1_000, 5_000)
GROUP_ROWS = 10
N_MAPS = 20
SHIFTS: Mapping[str, Mapping[str, float]] = {
    "none": {},
    "first label more frequent": {"offset": 0.6},
    "more confident": {"scale": 1.2},
    "less confident": {"scale": 0.83},
}


def simulate(n_rows: int, seed: int, *, has_groups: bool, offset: float = 0.0, scale: float = 1.0) -> pl.DataFrame:
    """Simulate logits of three labels, with labels that they predict.

    Args:
        n_rows: Number of rows.
        seed: Seed.
        has_groups: Whether the rows of ten-row groups share half of the variance of their logits.
        offset: What is added to the logit of the first label.
        scale: What logits are multiplied by.

    Returns:
        The rows.
    """
    generator = np.random.default_rng(seed)
    noise = generator.normal(size=(n_rows, 3))
    if has_groups:
        of_groups = generator.normal(size=(n_rows // GROUP_ROWS, 3))
        noise = (noise + np.repeat(of_groups, GROUP_ROWS, axis=0)) / np.sqrt(2)
    logits = (2 * noise + [1 + offset, 0, -1]) * scale
    label = (logits - [0, 0.6, 1.2] + generator.gumbel(size=(n_rows, 3))).argmax(axis=1)
    return pl.DataFrame({"logits": logits.tolist(), "label": label, "query": np.arange(n_rows) // GROUP_ROWS})


def measure(samples: int) -> list[list[str]]:
    """Count alarms.

    Args:
        samples: Samples of new rows for each cell, divided among `N_MAPS` maps.

    Returns:
        Rows of the table.
    """
    rows = []
    for has_groups in (False, True):
        groups = "query" if has_groups else None
        models = []
        for number in range(N_MAPS):
            fit_rows = simulate(FIT_ROWS, 10_000 + number, has_groups=has_groups)
            models.append(ReliabilityMap().fit(fit_rows, groups=groups).document_)
        for name, shift in SHIFTS.items():
            for n_rows in N_ROWS:
                alarms = 0
                for sample in range(samples):
                    new = simulate(n_rows, 20_000 + sample, has_groups=has_groups, **shift).drop("label")
                    result = watch_file(models[sample % N_MAPS], FramePredictions(new, sha256=""), groups)
                    alarms += bool(result.changed)
                rows.append([name, "yes" if has_groups else "no", f"{n_rows:,}", f"{100 * alarms / samples:.1f}%"])
                print(*rows[-1], sep=" | ", flush=True)
    return rows


def main() -> None:
    """Measure the table, and write it as a record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.watch", description=__doc__)
    parser.add_argument("--samples", type=int, default=1000, help="samples of new rows for each cell")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of records; other records in it are kept")
    arguments = parser.parse_args()
    rows = measure(arguments.samples)
    record = Record(
        commit=last_commit(*MEASURED_CODE),
        date=today(),
        command=f"python -m benchmarks.watch --samples {arguments.samples}",
        columns=["shift", "groups of 10", "new rows", "alarms"],
        rows=rows,
        values={"samples": f"{arguments.samples:,}", "fit-rows": f"{FIT_ROWS:,}"},
    )
    write_records(read_records(arguments.out) | {"watch": record}, arguments.out)


if __name__ == "__main__":
    main()
