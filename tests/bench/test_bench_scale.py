"""Made-up data of official size, from raw files to logits: memory, and the cost of a row beside that at a tenth."""

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tasks.simulation import simulate

pytestmark = pytest.mark.study
ROOT = Path(__file__).resolve().parent.parent.parent
# Rows with which a twin is as large as the released files.
ROWS = {"amazon_esci": 601_354, "mslr_web10k": 1_200_192}
GIB = 12
GROWTH = 1.3


def steps(name: str, rows: int, folder: Path) -> pl.DataFrame:
    """What each step took in a process of its own."""
    simulate(name, folder, rows=rows, residual=1.0, seed=0)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, Path(__file__).with_name("scale.py"), name, folder]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return pl.DataFrame(json.loads(done.stdout))


@pytest.mark.parametrize("name", ROWS)
def test_memory_is_bounded_and_a_row_costs_no_more_at_official_size(name, tmp_path, capsys):
    tenth = steps(name, ROWS[name] // 10, tmp_path / "tenth")
    whole = steps(name, ROWS[name], tmp_path / "whole")
    per_row = [took["seconds"].sum() / took["rows"][0] for took in (tenth, whole)]
    with capsys.disabled(), pl.Config(tbl_rows=-1):
        print(f"\n{name}: {1e6 * per_row[1]:.1f} µs for a row, {1e6 * per_row[0]:.1f} at a tenth")
        print(whole.join(tenth, on="step", suffix="_of_a_tenth", maintain_order="left"))
    assert whole["peak_gib"].max() <= GIB
    assert per_row[1] <= GROWTH * per_row[0]
