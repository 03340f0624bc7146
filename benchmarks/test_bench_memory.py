"""Ten times the rows take at most eleven times the memory.

`python -m benchmarks.test_bench_memory DIVISOR NAME …` prints a line of JSON for each operation, with its rows
divided by DIVISOR and with a tenth of these: seconds, and MiB beyond what was there before it, its input included. Each
is measured in a process of its own, where it is done with few rows first, so that what it imports then is not counted.
"""

import ctypes
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks import test_bench_metrics, test_bench_predictors, test_bench_projection
from benchmarks.conftest import MILLION, ROOT, simulate_predictions
from relmap import cli as rerank
from relmap.calibrators.hcalibration import fit_hcal
from relmap.calibrators.smart import fit_smart
from relmap.calibrators.temperature import fit_temperature
from relmap.metrics.registry import compute_reliability_metrics
from relmap.metrics.resampling import draw_resamples
from relmap.projection.lattices_torch import fit_lattices
from relmap.projection.mrp_exact import fit_exact
from relmap.routing.apply import apply_map
from relmap.settings import ProjectionParams
from tests import fits, maps

FITS = 108
K = 5
TINY = 200  # of the rows of each operation, the part that a quick run reads

Operation = Callable[[], object]


def metrics(rows: int, _folder: Path) -> Operation:
    inputs = test_bench_metrics.simulate(rows)
    return lambda: test_bench_metrics.compute_every_metric(*inputs)


def bootstrap(rows: int, _folder: Path) -> Operation:
    logit, correct = test_bench_metrics.simulate(rows)
    query = np.arange(rows) // 10
    return lambda: compute_reliability_metrics(logit, correct, draws=draw_resamples(query, resamples=1000, seed=0))


def lattices(fit: Callable[..., object], rows: int, _folder: Path) -> Operation:
    inputs = fits.make_fit_rows(*fits.simulate_rows(FITS, rows // FITS, K))
    return lambda: fit(inputs, n_labels=K, settings=ProjectionParams())


def isotonic(rows: int, _folder: Path) -> Operation:
    (confidence_logit,), decision, correct = fits.simulate_rows(1, rows, K)
    return lambda: test_bench_projection.fit_isotonic_of_labels(confidence_logit, decision, correct)


def calibrator(fit: Callable[..., object], rows: int, _folder: Path) -> Operation:
    logits, labels = fits.simulate_logits_and_labels(rows, K)
    return lambda: fit(logits, labels, seed=0)


def apply(rows: int, folder: Path) -> Operation:
    file = folder / f"{rows}.parquet"
    document = maps.make_map("mrp", n_labels=K)
    simulate_predictions(rows, K, 0).write_parquet(file)
    return lambda: apply_map(document, file, folder / "scored.parquet")


def fit_and_evaluate(rows: int, folder: Path) -> Operation:
    labelled_rows = str(folder / f"{rows}.known")
    new_rows = str(folder / f"{rows}.new")
    fitted = str(folder / f"{rows}.map")
    verdict = str(folder / f"{rows}.verdict")
    for seed, file in enumerate((labelled_rows, new_rows)):
        simulate_predictions(rows, K, seed).write_parquet(f"{file}.parquet")
    fit = ["fit", "--predictions", f"{labelled_rows}.parquet", "--out", f"{fitted}.json"]
    evaluate = [
        "evaluate",
        "--map",
        f"{fitted}.json",
        "--predictions",
        f"{new_rows}.parquet",
        "--out",
        f"{verdict}.json",
    ]

    def operation() -> None:
        with redirect_stdout(StringIO()):
            for command in (fit, evaluate):
                rerank.app([*command, "--group", "group", "--force"], standalone_mode=False)

    return operation


def fit_texts(rows: int, _folder: Path) -> Operation:
    frame = test_bench_predictors.simulate_texts(rows)
    return lambda: test_bench_predictors.fit(frame)


# By operation: its number of rows, and the function that prepares its inputs
OPERATIONS: dict[str, tuple[int, Callable[[int, Path], Operation]]] = {
    "every metric of one run, ties exact": (MILLION, metrics),
    "1,000 clustered resamples of every ranking metric": (40_000, bootstrap),
    "mrp_exact": (FITS * 8000, partial(lattices, fit_exact)),
    "mrp, Adam as published": (FITS * 8000, partial(lattices, fit_lattices)),
    "isotonic of each label": (MILLION, isotonic),
    "temperature": (80_000, partial(calibrator, fit_temperature)),
    "SMART": (40_000, partial(calibrator, fit_smart)),
    "h-cal": (40_000, partial(calibrator, fit_hcal)),
    "apply a map, file to file": (MILLION, apply),
    "fit, then evaluate": (MILLION, fit_and_evaluate),
    "texts to a classifier": (MILLION // 8, fit_texts),
}


def measure_peak(operation: Operation) -> tuple[float, float]:
    """Return the seconds of a call, and its peak memory in MiB beyond the memory in use now."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the highest from here on
    before = _mib("VmRSS")
    start = time.perf_counter()
    operation()
    return time.perf_counter() - start, _mib("VmHWM") - before


def _mib(name: str) -> float:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[name].split()[0]) / 1024


def measure(prepare: Callable[[int, Path], Operation], rows: int) -> tuple[float, float]:
    """Measure an operation in a child process that has all imports and has done nothing yet."""
    with get_context("fork").Pool(1) as child:
        return child.apply(_measure, (prepare, rows))


def _measure(prepare: Callable[[int, Path], Operation], rows: int) -> tuple[float, float]:
    with TemporaryDirectory() as folder:
        prepare(min(rows, max(rows // 100, 1000)), Path(folder))()
        return measure_peak(prepare(rows, Path(folder)))


def measurements(divisor: int, *names: str) -> Iterator[dict[str, Any]]:
    """Return what a new process prints for the operations."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SOURCE_DATE_EPOCH": "0"}
    command = [sys.executable, "-m", "benchmarks.test_bench_memory", str(divisor), *names]
    completed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return map(json.loads, completed.stdout.splitlines())


def test_memory_of_every_operation(comparison, size):
    for measured in measurements(size(1, TINY), *OPERATIONS):
        comparison.record_memory(**measured)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        n_rows, prepare = OPERATIONS[name]
        n_rows //= int(sys.argv[1])
        whole = measure(prepare, n_rows)
        tenth = measure(prepare, n_rows // 10)
        print(json.dumps({"operation": name, "rows": n_rows, "whole": whole, "tenth": tenth}), flush=True)
