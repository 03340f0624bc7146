"""Cost of DVC and Prefect compared with plain function calls, for a copy of the project with two data sets."""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.commands import Duration, ProjectCopy
from tests.project_copy import edit_params, run_module

ROWS = 5000
DATA_SETS = ("wands", "scidocs")
AUTHORS_CASES = {  # labels, test rows, and CPU-seconds of the authors' released code on one core, measured once in 2026
    "mslr_10k_balanced": (5, 3604, 570),
    "science_balanced": (2, 5858, 300),
}


def select_two_data_sets(params: dict[str, Any]) -> None:
    """Select simulated wands and scidocs at half the size, without slow calibrators."""
    params["datasets"] = {name: params["datasets"][name] | {"rows": ROWS} for name in DATA_SETS}
    params["calibrators"] = ["uncal", "ts", "diag", "spline"]
    params["sensitivity"]["calibrators"] = []


def shrink_two_data_sets(params: dict[str, Any]) -> None:
    """Select the same data sets with little to compute."""
    select_two_data_sets(params)
    params["datasets"] = {name: entry | {"rows": 2000} for name, entry in params["datasets"].items()}
    params["seeds"] = [1]
    params["calibrators"] = ["uncal", "ts"]
    params["projection"]["epochs"] = 100
    params["metrics"]["resamples"] = 300


@dataclass(frozen=True)
class Project:
    """A copy of the project after its first refresh, and the duration of that refresh."""

    copy: ProjectCopy
    first_refresh: Duration


@pytest.fixture(scope="module")
def project(tmp_path_factory, threads, is_full) -> Project:
    change = select_two_data_sets if is_full else shrink_two_data_sets
    copy = ProjectCopy(tmp_path_factory.mktemp("project"), change)
    first_refresh = copy.measure(copy.refresh)
    return Project(copy, first_refresh)


@pytest.fixture(scope="module")
def plain(tmp_path_factory, threads, is_full) -> ProjectCopy:
    """Copy the project to compute the same results with plain function calls, without DVC and Prefect."""
    change = select_two_data_sets if is_full else shrink_two_data_sets
    return ProjectCopy(tmp_path_factory.mktemp("plain"), change, server=False)


def test_first_refresh(comparison, project, plain):
    plain_calls = plain.measure(plain.refresh_without_orchestration).seconds
    comparison.add_time("plain function calls in one process", plain_calls, used_instead=True)
    comparison.record("make repro, two sets, from nothing", len(DATA_SETS) * ROWS, project.first_refresh.seconds)
    for name in DATA_SETS:
        assert plain.metrics(name).equals(project.copy.metrics(name))


def test_refresh_without_changes(comparison, project):
    copy = project.copy
    repro = partial(run_module, copy.folder, "dvc", "repro")
    comparison.add_alternative("dvc status", partial(run_module, copy.folder, "dvc", "status"), used_instead=False)
    comparison.add_floor(partial(run_module, copy.folder, "dvc", "--version"))
    n_stages = 3 * len(DATA_SETS) + 1  # recorded as the number of rows, because rows have no effect here
    comparison.run("dvc repro, nothing to do", n_stages, repro, rounds=3, warm_up=False)


def test_refresh_after_one_changed_data_set(comparison, project):
    """Compare a refresh after a change with its expected time.

    The expected time is that of a refresh without changes, plus half of the additional time of the first refresh.
    """
    copy = project.copy
    unchanged = copy.measure(copy.refresh)
    edit_params(copy.folder, lambda params: params["datasets"]["wands"].update(seed=1))
    changed = copy.measure(copy.refresh)
    share = 1 / len(DATA_SETS)
    first = project.first_refresh
    expected_seconds = unchanged.seconds + share * (first.seconds - unchanged.seconds)
    expected_cpu = unchanged.cpu + share * (first.cpu - unchanged.cpu)
    alternative = f"a refresh without changes, and {100 * share:.0f}% of the rest of the first"

    comparison.add_time(alternative, expected_seconds)
    comparison.record("flows.refresh, one of two sets changed", ROWS, changed.seconds)
    comparison.add_time(f"{alternative}: CPU", expected_cpu)
    comparison.record("flows.refresh, one of two sets changed: CPU", ROWS, changed.cpu)


@pytest.mark.skipif("REAL_DATA" not in os.environ, reason="REAL_DATA names no folder")
@pytest.mark.parametrize(
    ("name", "n_labels", "rows", "authors_seconds"), [(name, *case) for name, case in AUTHORS_CASES.items()]
)
def test_reliability_stage_compared_with_the_authors_code(comparison, tmp_path, name, n_labels, rows, authors_seconds):
    """Compare CPU seconds; the results of both are compared in test_authors_check.py.

    Unlike the authors' code, the stage also computes intervals, comparisons with other calibrators, alternative
    settings, MRC and label spread.
    """
    logits = Path(os.environ["REAL_DATA"]) / "authors_check" / name / "logits_and_labels.npz"
    labels = [str(label) for label in range(n_labels)]
    entry = {"reader": "logits", "source": "files", "path": str(logits), "options": {"labels": labels}}
    copy = ProjectCopy(tmp_path, lambda params: params.update(datasets={"mine": entry}))
    for step in ("tasks.download", "tasks.train"):
        run_module(copy.folder, step, "mine")
    duration = copy.measure(partial(run_module, copy.folder, "flows.reliability", "mine"))
    comparison.add_time("the authors' code, which computes fewer results", authors_seconds, used_instead=True)
    comparison.record(f"reliability, three seeds, {name}: CPU", rows, duration.cpu)
