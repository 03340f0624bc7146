"""CPU time of importing the library, beyond that of its dependencies. The limits hold on a quiet machine."""

import subprocess
import sys

from benchmarks.conftest import ROOT


def cpu_seconds(setup: str, code: str) -> float:
    """Return the CPU time of `code` after `setup`, in seconds: the minimum of three runs."""
    program = f"{setup}\nimport time\nstart = time.process_time()\n{code}\n"
    program += "import sys\nprint(time.process_time() - start, file=sys.stderr)"
    seconds = []
    for _ in range(3):
        command = [sys.executable, "-c", program]
        completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        seconds.append(float(completed.stderr.split()[-1]))
    return min(seconds)


def test_import_takes_less_than_a_tenth_of_a_second(is_full):
    seconds = cpu_seconds("", "import relmap")
    assert not is_full or seconds < 0.1


def test_estimator_import_takes_less_than_three_tenths_of_a_second_beyond_dependencies(is_full):
    seconds = cpu_seconds("import numpy, polars, sklearn.base", "from relmap import ReliabilityMap")
    assert not is_full or seconds < 0.3


def test_help_takes_less_than_three_tenths_of_a_second_beyond_typer(is_full):
    seconds = cpu_seconds("import typer", "from relmap.cli import app; app(['--help'], standalone_mode=False)")
    assert not is_full or seconds < 0.3
