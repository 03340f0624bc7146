"""Ten times the rows take at most eleven times the memory.

`python -m tests.bench.test_bench_memory NAME …` prints a line of JSON for each operation, with all rows and with a
tenth of them: seconds, and MiB beyond what was there before it, its input included. Each is measured in a process of
its own, where it is done with few rows first, so that what it imports then is not counted.
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
import pytest

from relmap import cli as rerank
from relmap.calibrators.hcalibration import fit_hcal
from relmap.calibrators.smart import fit_smart
from relmap.calibrators.temperature import fit_temperature
from relmap.metrics.registry import compute_reliability_metrics
from relmap.metrics.resampling import draw_resamples
from relmap.projection.adam_lattice import fit_lattices
from relmap.projection.exact import fit_exact
from relmap.routing.apply import apply_map
from relmap.settings import ProjectionParams
from tests import fits, maps
from tests.bench import test_bench_metrics, test_bench_predictors, test_bench_projection
from tests.bench.conftest import MILLION, ROOT, made_up_predictions

FITS, K = 108, 5

Ready = Callable[[], object]


def metrics(rows: int, _folder: Path) -> Ready:
    made = test_bench_metrics.made_up(rows)
    return lambda: test_bench_metrics.every_metric(*made)


def bootstrap(rows: int, _folder: Path) -> Ready:
    logit, correct = test_bench_metrics.made_up(rows)
    query = np.arange(rows) // 10
    return lambda: compute_reliability_metrics(logit, correct, draws=draw_resamples(query, resamples=1000, seed=0))


def lattices(fit: Callable[..., object], rows: int, _folder: Path) -> Ready:
    made = fits.make_fit_rows(*fits.simulate_rows(FITS, rows // FITS, K))
    return lambda: fit(made, n_labels=K, settings=ProjectionParams())


def isotonic(rows: int, _folder: Path) -> Ready:
    (at,), decision, correct = fits.simulate_rows(1, rows, K)
    return lambda: test_bench_projection.isotonic(at, decision, correct)


def calibrator(fit: Callable[..., object], rows: int, _folder: Path) -> Ready:
    logits, labels = fits.simulate_logits_and_labels(rows, K)
    return lambda: fit(logits, labels, seed=0)


def apply(rows: int, folder: Path) -> Ready:
    file, document = folder / f"{rows}.parquet", maps.make_map("mrp", n_labels=K)
    made_up_predictions(rows, K, 0).write_parquet(file)
    return lambda: apply_map(document, file, folder / "scored.parquet")


def fit_and_evaluate(rows: int, folder: Path) -> Ready:
    known, new, fitted, verdict = (str(folder / f"{rows}.{name}") for name in ("known", "new", "map", "verdict"))
    for seed, file in enumerate((known, new)):
        made_up_predictions(rows, K, seed).write_parquet(f"{file}.parquet")
    fit = ["fit", "--predictions", f"{known}.parquet", "--out", f"{fitted}.json"]
    judge = ["evaluate", "--map", f"{fitted}.json", "--predictions", f"{new}.parquet", "--out", f"{verdict}.json"]

    def ready() -> None:
        with redirect_stdout(StringIO()):
            for command in (fit, judge):
                rerank.app([*command, "--group", "group"], standalone_mode=False)

    return ready


def texts(rows: int, _folder: Path) -> Ready:
    made = test_bench_predictors.made_up_texts(rows)
    return lambda: test_bench_predictors.fit(made)


# Each operation, its rows, and what makes it ready.
OPERATIONS: dict[str, tuple[int, Callable[[int, Path], Ready]]] = {
    "every metric of one run, ties exact": (MILLION, metrics),
    "1,000 clustered resamples of every metric that ranks": (40_000, bootstrap),
    "mrp_exact": (FITS * 8000, partial(lattices, fit_exact)),
    "mrp, Adam as published": (FITS * 8000, partial(lattices, fit_lattices)),
    "isotonic of each label": (MILLION, isotonic),
    "temperature": (80_000, partial(calibrator, fit_temperature)),
    "SMART": (40_000, partial(calibrator, fit_smart)),
    "h-cal": (40_000, partial(calibrator, fit_hcal)),
    "apply a map, file to file": (MILLION, apply),
    "fit, then evaluate": (MILLION, fit_and_evaluate),
    "texts to a classifier": (MILLION // 8, texts),
}


def highest(ready: Ready) -> tuple[float, float]:
    """Seconds of a call, and MiB that it takes at its highest beyond what is there now."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the highest from here on
    before, start = _mib("VmRSS"), time.perf_counter()
    ready()
    return time.perf_counter() - start, _mib("VmHWM") - before


def _mib(name: str) -> float:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[name].split()[0]) / 1024


def measure(prepare: Callable[[int, Path], Ready], rows: int) -> tuple[float, float]:
    """The same with so many rows, in a child of this process, which has all imports and has done nothing yet."""
    with get_context("fork").Pool(1) as child:
        return child.apply(_measure, (prepare, rows))


def _measure(prepare: Callable[[int, Path], Ready], rows: int) -> tuple[float, float]:
    with TemporaryDirectory() as folder:
        prepare(max(rows // 100, 1000), Path(folder))()
        return highest(prepare(rows, Path(folder)))


def measurements(*names: str) -> Iterator[dict[str, Any]]:
    """What a process of its own prints of these operations."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SOURCE_DATE_EPOCH": "0"}
    command = [sys.executable, "-m", "tests.bench.test_bench_memory", *names]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return map(json.loads, done.stdout.splitlines())


@pytest.mark.bench
def test_memory_of_every_operation(race):
    for measured in measurements(*OPERATIONS):
        race.memory(**measured)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        asked, ready_of = OPERATIONS[name]
        whole, tenth = (measure(ready_of, rows) for rows in (asked, asked // 10))
        print(json.dumps({"operation": name, "rows": asked, "whole": whole, "tenth": tenth}), flush=True)
