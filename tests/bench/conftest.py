"""The benchmarks: what an operation takes beside what would do in its place, in one process and in turns.

`make bench` runs them on two cores, some on one too, prints one table and writes `bench.json`. pytest-benchmark times
one function; whatever stands beside it is timed here, in the set-up of each of its rounds, so that all take turns and a
busy moment of the machine falls on each of them. Every number is a median over rounds, after one that does not count,
but what takes seconds is timed once.
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

ROOT = Path(__file__).resolve().parent.parent.parent
MILLION = 1_000_000
PAUSE = 0.02  # seconds before each turn: the threads of torch spin for a while after their work is done
UNSEEN = 1.0  # MiB: so much more or less is chance
ON_ONE_CORE_TOO = pytest.mark.parametrize("threads", [1, 2], ids=["1-core", "2-cores"], indirect=True)
Compared = tuple[str | None, float | None, float | None]  # its name, seconds and aim
MEASURED = pytest.StashKey[list["Measured"]]()


@dataclass(frozen=True)
class Measured:
    """One row of `bench.json`. An operation has a row for each thing beside it and each number of threads."""

    operation: str
    rows: int
    ours_s: float
    beside: str | None
    beside_s: float | None
    ratio: float | None  # beside_s / ours_s: how many times faster ours is
    aim: float | None  # the least ratio that we want: 0.5 is "at most twice the time"
    floor_s: float | None  # no way of doing it could take less than this part of it
    threads: int  # cores that everything was pinned to
    peak_mib: float | None = None  # memory at its highest, beyond the input
    peak_mib_of_a_tenth: float | None = None  # the same with a tenth of the rows

    @property
    def reached(self) -> str:
        """Whether the aim is."""
        if self.aim is None or self.ratio is None:
            return "-"
        return "yes" if self.ratio >= self.aim else "NO"


@dataclass(frozen=True)
class Beside:
    """What stands beside an operation; of a long one only a part is done, and counted so many times."""

    name: str
    call: Callable[[], Any]
    aim: float | None
    times: float


@dataclass
class Race:
    """Times an operation and all that stands beside it, in turns."""

    request: pytest.FixtureRequest
    threads: int
    measured: list[Measured]
    others: list[Beside] = field(default_factory=list)
    known: list[Compared] = field(default_factory=list)  # timed before, or a limit
    lowest: Beside | None = None

    def beside(self, name: str, call: Callable[[], Any], *, aim: float | None = None, times: float = 1) -> None:
        """Another way of doing it, and how many times faster ours shall be."""
        self.others.append(Beside(name, call, aim, times))

    def growth(self, call: Callable[[], Any]) -> None:
        """The operation with a tenth of its rows: ten times the rows shall take at most 11 times as long."""
        self.beside("11 times a tenth of the rows", call, aim=1, times=11)

    def floor(self, call: Callable[[], Any], *, times: float = 1) -> None:
        """A part of the work that any way of doing it has to do."""
        self.lowest = Beside("floor", call, None, times)

    def run(
        self, operation: str, rows: int, ours: Callable[[], Any], *, rounds: int = 5, warm_up: bool = True
    ) -> tuple[Any, ...]:
        """The results of ours and of the others, in the order in which they were named, for the test to compare."""
        others = self.others + ([self.lowest] if self.lowest else [])
        seconds: list[list[float]] = [[] for _ in others]
        results: list[Any] = [None] * len(others)

        def the_others() -> None:
            for place, other in enumerate(others):
                results[place] = None  # what the last round made is gone before the clock starts
                time.sleep(PAUSE)
                start = time.perf_counter()
                results[place] = other.call()
                seconds[place].append(other.times * (time.perf_counter() - start))
            time.sleep(PAUSE)

        benchmark = self.request.getfixturevalue("benchmark")
        result = benchmark.pedantic(ours, setup=the_others, rounds=rounds, warmup_rounds=int(warm_up))
        took = [median(each[int(warm_up) :]) for each in seconds]
        ours_s, floor_s = benchmark.stats.stats.median, took.pop() if self.lowest else None
        compared = [(other.name, other_s, other.aim) for other, other_s in zip(self.others, took, strict=True)]
        self._keep(operation, rows, ours_s, [*compared, *self.known], floor_s)
        return (result, *results[: len(self.others)])

    def timed(self, name: str, seconds: float, *, aim: float | None = None) -> None:
        """What `took` shall stand beside, where it was timed already."""
        self.known.append((name, seconds, aim))

    def took(self, operation: str, rows: int, seconds: float) -> None:
        """An operation that was timed already, once, beside what was told before it."""
        self._keep(operation, rows, seconds, self.known, None)
        self.known = []

    def _keep(
        self, operation: str, rows: int, ours_s: float, compared: Sequence[Compared], floor_s: float | None
    ) -> None:
        for name, other_s, aim in compared or [(None, None, None)]:
            ratio = None if other_s is None else other_s / ours_s
            self.measured.append(Measured(operation, rows, ours_s, name, other_s, ratio, aim, floor_s, self.threads))

    def memory(self, operation: str, rows: int, whole: tuple[float, float], tenth: tuple[float, float]) -> None:
        """Seconds and MiB of an operation, and with a tenth of its rows: the memory shall grow 11 times at most."""
        (seconds, mib), (_, mib_of_a_tenth) = whole, tenth
        ratio = 11 * max(mib_of_a_tenth, UNSEEN) / max(mib, UNSEEN)
        name, peaks = "11 times the memory of a tenth of the rows", (mib, mib_of_a_tenth)
        self.measured.append(Measured(operation, rows, seconds, name, None, ratio, 1, None, self.threads, *peaks))


@pytest.fixture(scope="session", params=[2], ids=["2-cores"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """So many cores for this process and its children, and no pool with more threads.

    Polars and our own pool keep two threads on one core; what they lose by that, they would on such a machine too.
    """
    import torch
    from threadpoolctl import threadpool_limits

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
def race(threads: int, request: pytest.FixtureRequest) -> Race:
    return Race(request, threads, request.config.stash.setdefault(MEASURED, []))


@pytest.fixture(scope="session")
def rows(request: pytest.FixtureRequest) -> int:
    """A million, or `--rows`, for a look that takes less long."""
    return request.config.getoption("--rows")


@pytest.fixture(scope="session")
def predictions(rows: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with labelled predictions of five labels: `first`, `second` and `tenth.parquet`, a tenth of the rows."""
    folder = tmp_path_factory.mktemp("predictions")
    for seed, name, n in ((0, "first", rows), (1, "second", rows), (2, "tenth", rows // 10)):
        made_up_predictions(n, 5, seed).write_parquet(folder / f"{name}.parquet")
    return folder


def made_up_predictions(n: int, n_labels: int, seed: int) -> pl.DataFrame:
    """Columns `logits`, `label`, and `group` of ten rows; label 1 is right less often than its confidence says."""
    generator = np.random.default_rng(seed)
    logits = 2 * generator.normal(size=(n, n_labels))
    label = (logits - 1.5 * (np.arange(n_labels) == 1) + generator.gumbel(size=logits.shape)).argmax(axis=1)
    lists = pl.Series(logits, dtype=pl.Array(pl.Float64, n_labels)).arr.to_list()
    return pl.DataFrame({"logits": lists, "label": label, "group": "q" + pl.Series(np.arange(n) // 10).cast(str)})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rows", type=int, default=MILLION, help="rows of the large benchmarks")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Only what agreed with its peers is written, and only of all benchmarks, not of some or of a study."""
    measured, asked = session.config.stash.get(MEASURED, []), session.config.option
    whole = asked.markexpr == "bench" and not asked.keyword
    if measured and whole and exitstatus == pytest.ExitCode.OK:
        text = json.dumps([asdict(each) for each in measured], indent=2) + "\n"
        write_atomically(ROOT / "bench.json", lambda partial: partial.write_text(text, encoding="utf-8"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    timed, grown = [], []
    for each in config.stash.get(MEASURED, []):
        row = {"operation": each.operation, "rows": f"{each.rows:,}"}
        if each.peak_mib is None:
            row |= {"cores": each.threads, "ours": each.ours_s, "beside": each.beside, "s": each.beside_s}
            row |= {"ratio": each.ratio, "aim": each.aim, "reached": each.reached, "floor": each.floor_s}
            timed.append(row | {"ours / floor": each.floor_s and each.ours_s / each.floor_s})
        else:
            row |= {"MiB": each.peak_mib, "MiB of a tenth": each.peak_mib_of_a_tenth}
            grown.append(row | {"times": each.ratio and 11 / each.ratio, "at most 11 times": each.reached})
    machine = f"{os.cpu_count()} cores of {platform.machine()}, load {os.getloadavg()[0]:.1f} at the end"
    for title, rows in (
        (f"Medians in seconds; ratio = beside / ours ({machine})", timed),
        ("Memory at its highest beyond the input, each in a process of its own", grown),
    ):
        shown = [{name: _shown(value) for name, value in row.items()} for row in rows]
        with pl.Config(
            tbl_rows=-1, tbl_cols=-1, tbl_width_chars=170, fmt_str_lengths=80, tbl_hide_column_data_types=True
        ):
            terminalreporter.write(f"{title}\n{pl.DataFrame(shown)}\n" if rows else "")


def _shown(value: object) -> str:
    return "-" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
