"""Compare the projection on a GPU with the projection on the CPU: results, time and memory.

Needs Python 3.12, PyTorch, NumPy, SciPy, polars and pydantic, and no network. Run `python -m benchmarks.cuda` in the
folder of the project, with `--out FILE` for JSON. It exits with status 1 if a result differs. It takes at most five
minutes: a time that would be longer than `--limit` seconds is estimated from the next smaller number of fits.

Times include sorting the rows, transfers and waiting for the device. "cpu" is the path that `device="cpu"` takes: one
thread of torch, NumPy or SciPy.
"""

import argparse
import importlib.util
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from relmap.calibrators.registry import fit_prefixes
from relmap.decisions import CalibratedDecisions, ProtocolDecisions, decide
from relmap.projection.lattices_torch import fit_lattices, fit_surface_batch
from relmap.projection.mrp import FitRows
from relmap.projection.mrp_exact import fit_exact
from relmap.projection.registry import fit_variants
from relmap.projection.rows import FitBatch, select_validation_rows
from relmap.projection.surface import SurfaceRows, fit_surfaces
from relmap.settings import DEFAULTS, ProjectionParams

N_LABELS = 5
N_ROWS = 8_000  # the paper's largest number of projection-fit rows
N_FITS = (1, 18, 324, 5_000)  # the paper has 18 fits for a data set: six calibrators and three seeds
N_CHECKED = 18
TOLERANCE = 1e-6
LIMIT_S = 25.0
CALIBRATORS = ("uncal", "ts", "diag", "hcal", "smart")  # of the paper; "spline" needs scikit-learn
SETTINGS = ProjectionParams()


class FitData(NamedTuple):
    """Rows of B simulated fits: different confidences and gaps of the same decisions.

    Attributes:
        confidence: Shape (B, m).
        gap: Shape (B, m).
        decision: Shape (m,).
        correct: Shape (m,), bool.
    """

    confidence: np.ndarray
    gap: np.ndarray
    decision: np.ndarray
    correct: np.ndarray

    def curve_rows(self, n_fits: int) -> list[FitRows]:
        """Return the rows of the first fits, for curves."""
        return [FitRows(confidence, self.decision, self.correct) for confidence in self.confidence[:n_fits]]

    def surface_rows(self, n_fits: int) -> list[SurfaceRows]:
        """Return the rows of the first fits, for surfaces."""
        return [
            SurfaceRows(confidence, gap, self.decision, self.correct)
            for confidence, gap in zip(self.confidence[:n_fits], self.gap[:n_fits], strict=True)
        ]


def simulate_fits(n_fits: int, n_rows: int) -> FitData:
    """Simulate decisions that are correct less often for later labels at equal confidence."""
    generator = np.random.default_rng(0)
    probability = generator.uniform(0.3, 1.0, n_rows)
    decision = generator.integers(0, N_LABELS, n_rows)
    correct = generator.random(n_rows) < np.clip(probability - 0.3 * decision / N_LABELS, 0, 1)
    confidence = probability ** generator.uniform(0.5, 2.0, (n_fits, 1))
    gap = 4 * confidence
    gap += generator.normal(size=n_rows)
    return FitData(confidence, gap, decision, correct)


@dataclass(frozen=True)
class Operation:
    """A kind of fit.

    Attributes:
        name: Key of the variant.
        rows: Returns the rows of the first fits.
        fit: Fits rows on a device, and returns all fitted values as one array.
    """

    name: str
    rows: Callable[[FitData, int], Sequence[Any]]
    fit: Callable[[Sequence[Any], str], np.ndarray]


def fit_by_adam(rows: Sequence[FitRows], device: str) -> np.ndarray:
    """Fit MRP as published; return values of shape (B, K, J)."""
    return fit_lattices(rows, n_labels=N_LABELS, settings=SETTINGS, device=device)


def fit_optima(rows: Sequence[FitRows], device: str) -> np.ndarray:
    """Fit MRP at its optimum; return values of shape (B, K, J)."""
    return fit_exact(rows, n_labels=N_LABELS, settings=SETTINGS, device=device).values


def fit_2d(rows: Sequence[SurfaceRows], device: str) -> np.ndarray:
    """Fit label-wise 2D; return values of shape (B, K, J, G)."""
    if device == "cpu":
        surfaces = [fit_surfaces(*fit, n_labels=N_LABELS, settings=SETTINGS) for fit in rows]
    else:
        surfaces = fit_surface_batch(rows, n_labels=N_LABELS, settings=SETTINGS, device=device)
    return np.stack([surface.values for surface in surfaces])


OPERATIONS = (
    Operation("mrp", FitData.curve_rows, fit_by_adam),
    Operation("mrp_exact", FitData.curve_rows, fit_optima),
    Operation("label_2d", FitData.surface_rows, fit_2d),
)


@dataclass(frozen=True)
class Check:
    """Agreement of the results of one kind of fit.

    Attributes:
        name: What was fitted.
        largest_difference: Largest difference in logits between device and CPU.
        is_repeatable: Whether two runs on the device give the same bits.
    """

    name: str
    largest_difference: float
    is_repeatable: bool

    @property
    def passed(self) -> bool:
        """Whether the results agree up to `TOLERANCE`, and bit for bit between runs."""
        return self.largest_difference <= TOLERANCE and self.is_repeatable


@dataclass(frozen=True)
class Duration:
    """Time of a number of fits.

    Attributes:
        seconds: Wall time.
        is_estimate: Whether the time was computed from that of fewer fits.
    """

    seconds: float
    is_estimate: bool

    def __str__(self) -> str:
        return f"{self.seconds:.3g}{' (estimate)' if self.is_estimate else ''}"


@dataclass(frozen=True)
class Timing:
    """Times of one kind and number of fits.

    Attributes:
        name: What was fitted.
        n_fits: Number of fits B.
        cpu: Time on the CPU.
        device: Time on the device.
        peak_mib: Peak memory of the device in MiB; None if the device does not count it, or its time is an estimate.
    """

    name: str
    n_fits: int
    cpu: Duration
    device: Duration
    peak_mib: float | None


def check_operation(operation: Operation, data: FitData, device: str) -> Check:
    """Fit on the CPU once, and on the device twice."""
    rows = operation.rows(data, N_CHECKED)
    expected = operation.fit(rows, "cpu")
    first = operation.fit(rows, device)
    second = operation.fit(rows, device)
    return Check(operation.name, float(np.abs(first - expected).max()), first.tobytes() == second.tobytes())


def check_data_set(n_rows: int, device: str) -> list[Check]:
    """Calibrate a simulated data set, fit every variant on the CPU and on the device, and score test rows.

    Returns:
        A check of the reliability logits of each variant under all calibrators.
    """
    validation = _simulate_decisions(n_rows, seed=1)
    test = _simulate_decisions(n_rows, seed=2)
    parts = select_validation_rows(validation, 0, DEFAULTS.protocol)
    calibrators = []
    for name in CALIBRATORS:
        rows = parts.rows_for_calibrator(name)
        calibrators += fit_prefixes(name, rows.logits, rows.label, [len(rows)], seed=0)
    calibrated = [CalibratedDecisions.from_calibrator(calibrator, test) for calibrator in calibrators]

    def score(on_device: str) -> dict[str, np.ndarray]:
        models = fit_variants(FitBatch.from_validation_rows(calibrators, parts, DEFAULTS.projection, on_device))
        scores = {}
        for variant, fitted in models.items():
            pairs = zip(fitted, calibrated, strict=True)
            scores[variant] = np.stack([model(decisions) for model, decisions in pairs])
        return scores

    expected = score("cpu")
    first = score(device)
    second = score(device)
    checks = []
    for variant, logits in first.items():
        difference = float(np.abs(logits - expected[variant]).max())
        checks.append(Check(f"data set: {variant}", difference, logits.tobytes() == second[variant].tobytes()))
    return checks


def _simulate_decisions(n_rows: int, seed: int) -> ProtocolDecisions:
    """Simulate an overconfident model; decisions for label 1 are correct less often."""
    generator = np.random.default_rng(seed)
    true_logits = 1.5 * generator.normal(size=(n_rows, N_LABELS))
    label = (true_logits + generator.gumbel(size=true_logits.shape)).argmax(axis=1)
    logits = 2 * true_logits
    logits[:, 1] += 1
    return ProtocolDecisions(decision=decide(logits), logits=logits, label=label, group=np.arange(n_rows))


def measure(operation: Operation, data: FitData, numbers: Sequence[int], device: str, limit_s: float) -> list[Timing]:
    """Measure one kind of fit for increasing numbers of fits."""
    timings: list[Timing] = []
    for n_fits in numbers:
        rows = operation.rows(data, n_fits)
        previous = timings[-1] if timings else None
        cpu = _measure_one(operation, rows, "cpu", limit_s, previous and previous.cpu, previous and previous.n_fits)
        if _is_cuda(device):
            torch.cuda.reset_peak_memory_stats()
        on_device = _measure_one(
            operation, rows, device, limit_s, previous and previous.device, previous and previous.n_fits
        )
        peak_mib = None
        if _is_cuda(device) and not on_device.is_estimate:
            peak_mib = torch.cuda.max_memory_allocated() / 2**20
        timings.append(Timing(operation.name, n_fits, cpu, on_device, peak_mib))
    return timings


def _measure_one(
    operation: Operation,
    rows: Sequence[Any],
    device: str,
    limit_s: float,
    previous: Duration | None,
    n_previous: int | None,
) -> Duration:
    """Measure a fit, or estimate its time in proportion to the previous number of fits."""
    if previous is not None and n_previous is not None:
        expected_s = previous.seconds * len(rows) / n_previous
        if expected_s > limit_s:
            return Duration(expected_s, is_estimate=True)
    start = time.perf_counter()
    operation.fit(rows, device)  # the result is on the host, so the device has finished
    return Duration(time.perf_counter() - start, is_estimate=False)


def _is_cuda(device: str) -> bool:
    return device.startswith("cuda")


def describe_choice(timings: Sequence[Timing]) -> list[str]:
    """State from which number of fits on the device was faster than the CPU."""
    lines = []
    for name in dict.fromkeys(timing.name for timing in timings):
        own = [timing for timing in timings if timing.name == name]
        slower = [timing.n_fits for timing in own if timing.device.seconds >= timing.cpu.seconds]
        faster = [timing.n_fits for timing in own if timing.n_fits > max(slower, default=0)]
        if faster:
            lines.append(f"{name}: the device is faster from {min(faster):,} fits on")
        else:
            lines.append(f"{name}: the CPU is faster at every number of fits")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks, then the measurements.

    Args:
        arguments: Command line; None for that of the process.

    Returns:
        Exit status: 0 if all checks passed, 1 if one failed, 2 if the device or a package is missing.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cuda", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda", help='a torch device; "cpu" tests the script without a GPU')
    parser.add_argument("--rows", type=int, default=N_ROWS, help=f"rows of each fit (default: {N_ROWS:,})")
    parser.add_argument("--fits", type=int, nargs="+", default=N_FITS, help="numbers of fits, increasing")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="longest measured time in seconds")
    parser.add_argument("--out", type=Path, help="file for the results as JSON")
    options = parser.parse_args(arguments)
    # "cpu" is the path without torch; its CPU device runs the code of a GPU
    device = "cpu:0" if options.device == "cpu" else options.device
    if _is_cuda(device) and not torch.cuda.is_available():
        print("PyTorch finds no CUDA device; --device cpu runs the same code on the CPU", file=sys.stderr)
        return 2
    if importlib.util.find_spec("filelock") is None:
        print("the package filelock is missing, which PyTorch installs", file=sys.stderr)
        return 2

    start = time.perf_counter()
    name = torch.cuda.get_device_name(device) if _is_cuda(device) else "the CPU through torch"
    machine = f"{name}; {os.cpu_count()} cores; Python {platform.python_version()}, torch {torch.__version__}"
    print(f"{machine}; fits of {options.rows:,} rows and {N_LABELS} labels", flush=True)
    data = simulate_fits(max(*options.fits, N_CHECKED), options.rows)

    checks = [check_operation(operation, data, device) for operation in OPERATIONS]
    checks += check_data_set(2 * options.rows, device)
    for check in checks:
        word = "ok" if check.passed else "FAILED"
        same = "the same bits twice" if check.is_repeatable else "other bits in a second run"
        print(f"{word}: {check.name}: differs from the CPU by at most {check.largest_difference:.1e}; {same}")

    timings: list[Timing] = []
    print("fit | fits | CPU, s | device, s | CPU / device | peak memory of the device, MiB", flush=True)
    for operation in OPERATIONS:
        for timing in measure(operation, data, sorted(options.fits), device, options.limit):
            peak = "-" if timing.peak_mib is None else f"{timing.peak_mib:,.0f}"
            ratio = timing.cpu.seconds / timing.device.seconds
            cells = (timing.name, f"{timing.n_fits:,}", timing.cpu, timing.device, f"{ratio:.2f}", peak)
            print(*cells, sep=" | ", flush=True)
            timings.append(timing)
    print(*describe_choice(timings), sep="\n")
    peak_host_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of the process: {peak_host_mib:,.0f} MiB; {time.perf_counter() - start:.0f} s in total")
    if options.out:
        results = {"machine": machine, "rows": options.rows, "checks": [asdict(check) for check in checks]}
        results["timings"] = [asdict(timing) for timing in timings]
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0 if all(check.passed for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
