"""Ten times the rows take at most eleven times the memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.conftest import ALL_CORES

pytestmark = [pytest.mark.bench, ALL_CORES]
ROOT = Path(__file__).resolve().parent.parent.parent


def test_memory_of_every_operation(race):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SOURCE_DATE_EPOCH": "0"}
    command = [sys.executable, "-m", "tests.bench.memory"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for one in map(json.loads, done.stdout.splitlines()):
        race.memory(**one)
