"""Cost of DVC and Prefect compared with plain function calls, for a copy of the project with two data sets."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.bench.commands import Duration, ProjectCopy
from tests.project_copy import edit_params, run_module

pytestmark = pytest.mark.bench

ROWS = 5000
DATA_SETS = ("wands", "scidocs")
ALLOWED_SECONDS = 60  # seconds that DVC and Prefect may take
AUTHORS_CASES = {  # labels, test rows, and CPU-seconds of the authors' released code on one core, measured once in 2026
    "mslr_10k_balanced": (5, 3604, 570),
    "science_balanced": (2, 5858, 300),
}


def select_two_data_sets(params: dict[str, Any]) -> None:
    """Select simulated wands and scidocs at half the size, without slow calibrators."""
    params["datasets"] = {name: params["datasets"][name] | {"rows": ROWS} for name in DATA_SETS}
    params["calibrators"] = ["uncal", "ts", "diag", "spline"]
    params["sensitivity"]["calibrators"] = []


@dataclass(frozen=True)
class Project:
    """A copy of the project after its first refresh, and the duration of that refresh."""

    copy: ProjectCopy
    whole: Duration
    stages: dict[str, float]  # seconds of each stage in the first refresh


@pytest.fixture(scope="module")
def project(tmp_path_factory, threads) -> Project:
    copy = ProjectCopy(tmp_path_factory.mktemp("project"), select_two_data_sets)
    whole = copy.measure(copy.refresh)
    return Project(copy, whole, copy.stage_seconds())


@pytest.fixture(scope="module")
def plain(tmp_path_factory, threads) -> ProjectCopy:
    return ProjectCopy(tmp_path_factory.mktemp("plain"), select_two_data_sets, server=False)


def test_first_refresh(comparison, project, plain):
    plain_calls = plain.measure(plain.refresh_without_orchestration).seconds
    comparison.add_time(
        f"plain function calls in one process, and {ALLOWED_SECONDS} s", plain_calls + ALLOWED_SECONDS, aim=1
    )
    comparison.add_time("plain function calls in one process", plain_calls)
    comparison.record("make repro, two sets, from nothing", len(DATA_SETS) * ROWS, project.whole.seconds)
    for name in DATA_SETS:
        assert plain.metrics(name).equals(project.copy.metrics(name))


def test_refresh_without_changes(comparison, project):
    copy = project.copy
    repro = partial(run_module, copy.folder, "dvc", "repro")
    comparison.add_alternative("dvc status", partial(run_module, copy.folder, "dvc", "status"), aim=1 / 1.5)
    comparison.add_floor(partial(run_module, copy.folder, "dvc", "--version"))
    comparison.run("dvc repro, nothing to do", len(project.stages), repro, rounds=3, warm_up=False)


def test_refresh_after_one_changed_data_set(comparison, project):
    """Compare with a refresh without changes plus the repeated share of a whole run."""
    copy = project.copy
    nothing = copy.measure(copy.refresh)
    edit_params(copy.folder, lambda params: params["datasets"]["wands"].update(seed=1))
    changed = copy.measure(copy.refresh)
    rerun_seconds = {
        name: seconds for name, seconds in project.stages.items() if name.endswith("@wands") or name == "report"
    }
    share = sum(rerun_seconds.values()) / sum(project.stages.values())

    def expected(get_cost: Callable[[Duration], float]) -> float:
        return get_cost(nothing) + share * (get_cost(project.whole) - get_cost(nothing))

    comparison.add_time(
        f"the start, and {100 * share:.0f}% of a whole run", expected(lambda duration: duration.seconds), aim=1
    )
    comparison.record("flows.refresh, one of two sets changed", ROWS, changed.seconds)
    comparison.add_time(
        f"the start, and {100 * share:.0f}% of a whole run: CPU", expected(lambda duration: duration.cpu), aim=1
    )
    comparison.record("flows.refresh, one of two sets changed: CPU", ROWS, changed.cpu)


@pytest.mark.skipif("REAL_DATA" not in os.environ, reason="REAL_DATA names no folder")
@pytest.mark.parametrize(
    ("name", "labels", "rows", "authors_seconds"), [(name, *of) for name, of in AUTHORS_CASES.items()]
)
def test_reliability_stage_compared_with_the_authors_code(comparison, tmp_path, name, labels, rows, authors_seconds):
    """This stage also computes intervals, rivals, alternatives, MRC and label spread; see test_authors_check.py."""
    logits = Path(os.environ["REAL_DATA"]) / "authors_check" / name / "logits_and_labels.npz"
    entry = {"reader": "logits", "source": "files", "path": str(logits)}
    entry["options"] = {"labels": [str(label) for label in range(labels)]}
    copy = ProjectCopy(tmp_path, lambda params: params.update(datasets={"mine": entry}))
    for step in ("tasks.download", "tasks.train"):
        run_module(copy.folder, step, "mine")
    duration = copy.measure(partial(run_module, copy.folder, "flows.reliability", "mine"))
    comparison.add_time("the authors' code, which computes fewer results", authors_seconds, aim=1)
    comparison.record(f"reliability, three seeds, {name}: CPU", rows, duration.cpu)
