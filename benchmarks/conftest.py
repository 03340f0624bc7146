"""Benchmarks of operations compared with alternatives, measured alternately in one process.

`make bench` passes `--full`: benchmarks run on two cores, some on one too, and their results are printed as a table and
written to `bench.json`. Without `--full`, each runs once with few rows and measures nothing, as in `make test`.

pytest-benchmark times one function; alternatives are timed here, in the set-up of each of its rounds, so that a busy
moment of the machine affects all of them. Numbers are medians over rounds after a warm-up; operations that take seconds
are timed once.
"""

import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl
import pytest

from relmap.io.atomic import write_atomically

ROOT = Path(__file__).resolve().parent.parent
MILLION = 1_000_000
PAUSE = 0.02  # seconds before each turn: the threads of torch spin for a while after their work is done
GROWTH = "11 times a tenth of the rows"
NOISE_MIB = 1.0  # differences up to this are random
ON_ONE_CORE_TOO = pytest.mark.parametrize("threads", [1, 2], ids=["1-core", "2-cores"], indirect=True)
Compared = tuple[str | None, float | None, bool]  # its name, seconds, and whether a user would run it instead
MEASURED = pytest.StashKey[list["Measured"]]()


@dataclass(frozen=True)
class Measured:
    """One row of `bench.json`: an operation, one alternative and one number of threads."""

    operation: str
    rows: int
    measured_s: float
    alternative: str | None
    alternative_s: float | None
    ratio: float | None  # alternative_s / measured_s: speed-up
    used_instead: bool  # whether a user would run the alternative instead, so that the ratio should be at least 1
    floor_s: float | None  # seconds of a part that every implementation must do
    threads: int  # number of cores
    peak_mib: float | None = None  # peak memory beyond the input
    peak_mib_of_a_tenth: float | None = None  # the same with a tenth of the rows

    @property
    def ahead(self) -> str:
        """Return whether the operation is at least as fast as what a user would run instead."""
        if not self.used_instead or self.ratio is None:
            return "-"
        return "yes" if self.ratio >= 1 else "NO"


@dataclass(frozen=True)
class Alternative:
    """An alternative to an operation; of a long one, a part is measured and multiplied."""

    name: str
    call: Callable[[], Any]
    used_instead: bool
    times: float


@dataclass
class Comparison:
    """Measure an operation and its alternatives alternately."""

    request: pytest.FixtureRequest
    threads: int
    is_full: bool  # else everything runs once, without a clock
    measured: list[Measured]
    alternatives: list[Alternative] = field(default_factory=list)
    known_times: list[Compared] = field(default_factory=list)  # measured before
    floor: Alternative | None = None

    def add_alternative(
        self, name: str, call: Callable[[], Any], *, used_instead: bool = True, times: float = 1
    ) -> None:
        """Add an alternative. The operation should be as fast as what a user would run instead."""
        self.alternatives.append(Alternative(name, call, used_instead, times))

    def add_growth(self, call: Callable[[], Any]) -> None:
        """Require that the operation takes at most 11 times as long as with a tenth of its rows."""
        self.add_alternative(GROWTH, call, times=11)

    def add_floor(self, call: Callable[[], Any], *, times: float = 1) -> None:
        """Add a part of the work that every implementation must do."""
        self.floor = Alternative("floor", call, used_instead=False, times=times)

    def run(
        self, operation: str, rows: int, call: Callable[[], Any], *, rounds: int = 5, warm_up: bool = True
    ) -> tuple[Any, ...]:
        """Measure all; return the result of the operation and of the alternatives in order of their addition."""
        alternatives = self.alternatives + ([self.floor] if self.floor else [])
        seconds: list[list[float]] = [[] for _ in alternatives]
        results: list[Any] = [None] * len(alternatives)

        def run_alternatives() -> None:
            for index, alternative in enumerate(alternatives):
                results[index] = None  # the last result is freed before the clock starts
                time.sleep(PAUSE)
                start = time.perf_counter()
                results[index] = alternative.call()
                seconds[index].append(alternative.times * (time.perf_counter() - start))
            time.sleep(PAUSE)

        if not self.is_full:
            run_alternatives()
            return (call(), *results[: len(self.alternatives)])

        benchmark = self.request.getfixturevalue("benchmark")
        result = benchmark.pedantic(call, setup=run_alternatives, rounds=rounds, warmup_rounds=int(warm_up))
        medians = [median(rounds_of_one[int(warm_up) :]) for rounds_of_one in seconds]
        operation_s = benchmark.stats.stats.median
        floor_s = medians.pop() if self.floor else None
        compared = [
            (alternative.name, alternative_s, alternative.used_instead)
            for alternative, alternative_s in zip(self.alternatives, medians, strict=True)
        ]
        self._keep(operation, rows, operation_s, [*compared, *self.known_times], floor_s)
        return (result, *results[: len(self.alternatives)])

    def add_time(self, name: str, seconds: float, *, used_instead: bool = False) -> None:
        """Add a measured time to compare the next recorded time with."""
        self.known_times.append((name, seconds, used_instead))

    def record(self, operation: str, rows: int, seconds: float) -> None:
        """Record an operation that was measured once, compared with the times added before."""
        self._keep(operation, rows, seconds, self.known_times, None)
        self.known_times = []

    def _keep(
        self, operation: str, rows: int, measured_s: float, compared: Sequence[Compared], floor_s: float | None
    ) -> None:
        for name, other_s, used_instead in compared or [(None, None, False)]:
            ratio = None if other_s is None else other_s / measured_s
            self.measured.append(
                Measured(operation, rows, measured_s, name, other_s, ratio, used_instead, floor_s, self.threads)
            )

    def record_memory(self, operation: str, rows: int, whole: tuple[float, float], tenth: tuple[float, float]) -> None:
        """Record seconds and MiB of an operation; the memory shall be at most 11 times that of a tenth of its rows."""
        seconds, mib = whole
        _, mib_of_a_tenth = tenth
        ratio = 11 * max(mib_of_a_tenth, NOISE_MIB) / max(mib, NOISE_MIB)
        name = "11 times the memory of a tenth of the rows"
        peaks = (mib, mib_of_a_tenth)
        self.measured.append(Measured(operation, rows, seconds, name, None, ratio, True, None, self.threads, *peaks))


@pytest.fixture(scope="session", params=[2], ids=["2-cores"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """Pin this process and its children to the given number of cores, and limit all thread pools.

    Polars and the pool of the library use two threads on one core, as they would on a machine with one core. Without
    `--full`, nothing is pinned: other tests run in the same process.
    """
    import torch
    from threadpoolctl import threadpool_limits

    if not request.config.getoption("--full"):
        yield request.param
        return
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < request.param:
        pytest.fail(f"the benchmarks need {request.param} cores, and there are {len(cores)}")
    _pin(cores[: request.param])
    torch.set_num_threads(request.param)
    with threadpool_limits(request.param):
        yield request.param
    _pin(cores)


def _pin(cores: list[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


@pytest.fixture
def comparison(threads: int, is_full: bool, request: pytest.FixtureRequest) -> Comparison:
    return Comparison(request, threads, is_full, request.config.stash.setdefault(MEASURED, []))


@pytest.fixture(scope="session")
def is_full(request: pytest.FixtureRequest) -> bool:
    """Return whether to measure at full size."""
    return request.config.getoption("--full")


@pytest.fixture(scope="session")
def size(is_full: bool) -> Callable[[int, int], int]:
    """Return a function that chooses between the size that is measured and a tiny one."""
    return lambda full, tiny: full if is_full else tiny


@pytest.fixture(scope="session")
def rows(size: Callable[[int, int], int]) -> int:
    """Return the number of rows of the large benchmarks."""
    return size(MILLION, 2000)


@pytest.fixture(scope="session")
def predictions(rows: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write predictions of five labels to `first`, `second` and `tenth.parquet`, the last with a tenth of the rows."""
    folder = tmp_path_factory.mktemp("predictions")
    for seed, name, n in ((0, "first", rows), (1, "second", rows), (2, "tenth", rows // 10)):
        simulate_predictions(n, 5, seed).write_parquet(folder / f"{name}.parquet")
    return folder


def simulate_predictions(n: int, n_labels: int, seed: int) -> pl.DataFrame:
    """Simulate the columns `logits`, `label` and `group` (ten rows each); label 1 is overconfident."""
    generator = np.random.default_rng(seed)
    logits = 2 * generator.normal(size=(n, n_labels))
    true_logits = logits - 1.5 * (np.arange(n_labels) == 1)
    label = (true_logits + generator.gumbel(size=logits.shape)).argmax(axis=1)  # drawn from softmax(true_logits)
    lists = pl.Series(logits, dtype=pl.Array(pl.Float64, n_labels)).arr.to_list()
    group = "q" + pl.Series(np.arange(n) // 10).cast(str)
    return pl.DataFrame({"logits": lists, "label": label, "group": group})


FULL_SIZE_ONLY = ("test_bench_orchestration.py",)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="measure the benchmarks at full size")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip benchmarks that have no small size: they take minutes, and the tests of the pipeline run the same code."""
    if config.getoption("--full"):
        return
    for item in items:
        if item.path.name in FULL_SIZE_ONLY:
            item.add_marker(pytest.mark.skip(reason="only at full size: pass --full"))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Write `bench.json` only after a complete and successful run of all benchmarks."""
    measured = session.config.stash.get(MEASURED, [])
    options = session.config.option
    is_complete = options.full and not options.keyword
    if measured and is_complete and exitstatus == pytest.ExitCode.OK:
        text = json.dumps([asdict(row) for row in measured], indent=2) + "\n"
        write_atomically(ROOT / "bench.json", lambda partial: partial.write_text(text, encoding="utf-8"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was measured at full size."""
    if not config.option.full:
        return
    timed = []
    grown = []
    for result in config.stash.get(MEASURED, []):
        row = {"operation": result.operation, "rows": f"{result.rows:,}"}
        if result.peak_mib is None:
            timed.append(
                {
                    **row,
                    "cores": result.threads,
                    "measured": result.measured_s,
                    "alternative": result.alternative,
                    "s": result.alternative_s,
                    "ratio": result.ratio,
                    "ahead": result.ahead,
                    "floor": result.floor_s,
                    "measured / floor": result.floor_s and result.measured_s / result.floor_s,
                }
            )
        else:
            grown.append(
                {
                    **row,
                    "MiB": result.peak_mib,
                    "MiB of a tenth": result.peak_mib_of_a_tenth,
                    "times": result.ratio and 11 / result.ratio,
                    "at most 11 times": result.ahead,
                }
            )
    machine = f"{os.cpu_count()} cores of {platform.machine()}, load {os.getloadavg()[0]:.1f} at the end"
    for title, rows in (
        (f"Medians in seconds; ratio = alternative / measured ({machine})", timed),
        ("Peak memory beyond the input, each in a process of its own", grown),
    ):
        shown = []
        for row in rows:
            shown.append({name: _shown(value) for name, value in row.items()})
        with pl.Config(
            tbl_rows=-1, tbl_cols=-1, tbl_width_chars=170, fmt_str_lengths=80, tbl_hide_column_data_types=True
        ):
            terminalreporter.write(f"{title}\n{pl.DataFrame(shown)}\n" if rows else "")


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)
