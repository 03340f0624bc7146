"""`make repro` beside the same work as plain function calls in one process; both from a new folder."""

from os import getloadavg
from typing import Any

import pytest

from tests.bench.commands import Copy

pytestmark = pytest.mark.study

# Rows of the twins with which a quarter of the validation rows is longer than the cap of 8,000.
ROWS = {"esci_rerank_us": 265_000, "mslr_web10k": 175_000}


@pytest.mark.parametrize(("rows", "seconds", "factor"), [({}, 60, 1.0), (ROWS, 0, 1.1)], ids=["default", "full caps"])
def test_dvc_and_prefect_cost_a_minute_at_most_and_at_full_caps_a_tenth(tmp_path, capsys, rows, seconds, factor):
    def change(params: dict[str, Any]) -> None:
        sets = params["datasets"]
        params["datasets"] = {name: sets[name] | {"rows": rows[name]} for name in rows} or sets

    plain, ours = (Copy(tmp_path / place, change) for place in ("plain", "ours"))
    took = {"plain calls": plain.took(plain.bare), "make repro": ours.took(ours.refresh)}
    with capsys.disabled():
        for name, commands in took.items():
            print(f"\n{rows or 'default'}, {name}: {commands.seconds:.1f} s, {commands.cpu:.1f} s of CPU", end="")
        print(f"; load {getloadavg()[0]:.1f} at the end")
        print({name: round(stage) for name, stage in ours.stage_seconds().items()})
    for name in ROWS:
        assert plain.metrics(name).equals(ours.metrics(name))
    assert (plain.folder / "data/report/main.csv").read_bytes() == (ours.folder / "data/report/main.csv").read_bytes()
    assert took["make repro"].seconds <= factor * took["plain calls"].seconds + seconds
