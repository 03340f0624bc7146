"""`make repro` beside the same work as plain function calls in one process; both from a new folder."""

from collections.abc import Callable
from os import getloadavg
from pathlib import Path
from typing import Any

import pytest

from tests.bench.commands import Copy, Took

pytestmark = pytest.mark.study

# Rows of the twins with which a quarter of the validation rows is longer than the cap of 8,000.
ROWS = {"esci_rerank_us": 265_000, "mslr_web10k": 175_000}


def default(_params: dict[str, Any]) -> None:
    """As params.yaml stands there."""


def at_full_caps(params: dict[str, Any]) -> None:
    """Two sets, so that it ends in minutes."""
    params["datasets"] = {name: params["datasets"][name] | {"rows": rows} for name, rows in ROWS.items()}


def both(folder: Path, change: Callable[[dict[str, Any]], object], capsys: pytest.CaptureFixture[str]) -> list[Took]:
    """What plain calls and `make repro` take, from raw files to the same report."""
    plain, ours = (Copy(folder / place, change) for place in ("plain", "ours"))
    took = [plain.took(plain.bare), ours.took(ours.refresh)]
    with capsys.disabled():
        for name, one in zip(("plain calls", "make repro"), took, strict=True):
            print(f"\n{change.__name__}, {name}: {one.seconds:.1f} s, {one.cpu:.1f} s of CPU", end="")
        print(f"; load {getloadavg()[0]:.1f} at the end")
        print({name: round(seconds) for name, seconds in ours.stage_seconds().items()})
    for name in ROWS:
        assert plain.metrics(name).equals(ours.metrics(name))
    assert (plain.folder / "data/report/main.csv").read_bytes() == (ours.folder / "data/report/main.csv").read_bytes()
    return took


def test_dvc_and_prefect_cost_a_minute_at_most_at_the_default_size(tmp_path, capsys):
    plain, ours = both(tmp_path, default, capsys)
    assert ours.seconds <= plain.seconds + 60


def test_dvc_and_prefect_cost_a_tenth_at_most_at_full_caps(tmp_path, capsys):
    plain, ours = both(tmp_path, at_full_caps, capsys)
    assert ours.seconds <= 1.1 * plain.seconds
