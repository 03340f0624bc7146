"""`make repro` compared with plain function calls in one process, each from a new folder."""

from os import getloadavg
from typing import Any

import pytest

from benchmarks.commands import ProjectCopy

pytestmark = pytest.mark.study

# Rows of the twins with which a quarter of the validation rows is longer than the cap of 8,000.
ROWS = {"esci_rerank_us": 265_000, "mslr_web10k": 175_000}


@pytest.mark.parametrize("rows", [{}, ROWS], ids=["default", "full caps"])
def test_pipeline_and_plain_calls_give_the_same_results(tmp_path, capsys, rows):
    def change(params: dict[str, Any]) -> None:
        sets = params["datasets"]
        params["datasets"] = {name: sets[name] | {"rows": rows[name]} for name in rows} or sets

    plain = ProjectCopy(tmp_path / "plain", change)
    project = ProjectCopy(tmp_path / "pipeline", change)
    times = {
        "plain calls": plain.measure(plain.refresh_without_orchestration),
        "make repro": project.measure(project.refresh),
    }
    with capsys.disabled():
        for name, commands in times.items():
            print(f"\n{rows or 'default'}, {name}: {commands.seconds:.1f} s, {commands.cpu:.1f} s of CPU", end="")
        ratio = times["make repro"].seconds / times["plain calls"].seconds
        print(f"; {ratio:.2f} times; load {getloadavg()[0]:.1f} at the end")

    for name in ROWS:
        assert plain.metrics(name).equals(project.metrics(name))
    assert (plain.folder / "data/report/main.csv").read_bytes() == (
        project.folder / "data/report/main.csv"
    ).read_bytes()
