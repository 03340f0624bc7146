"""What DVC and Prefect cost, beside the same functions called bare: commands in a copy of the project with two sets."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.bench.commands import Copy, Took
from tests.project_copy import edit_params, run_module

pytestmark = pytest.mark.bench

ROWS, SETS = 5000, ("wands", "scidocs")
SLACK = 60  # seconds that DVC and Prefect may take
AUTHORS = {  # labels, test rows, and CPU-seconds of the authors' released code on one core, measured once in 2026
    "mslr_10k_balanced": (5, 3604, 570),
    "science_balanced": (2, 5858, 300),
}


def two_sets(params: dict[str, Any]) -> None:
    """Twins of wands and scidocs at half the size, without slow calibrators."""
    params["datasets"] = {name: params["datasets"][name] | {"rows": ROWS} for name in SETS}
    params["calibrators"], params["sensitivity"]["calibrators"] = ["uncal", "ts", "diag", "spline"], []


@dataclass(frozen=True)
class Project:
    """A copy of the project that was brought up to date once, and what that took."""

    copy: Copy
    whole: Took
    stages: dict[str, float]  # seconds of each stage then


@pytest.fixture(scope="module")
def project(tmp_path_factory, threads) -> Project:
    copy = Copy(tmp_path_factory.mktemp("project"), two_sets)
    whole = copy.took(copy.refresh)
    return Project(copy, whole, copy.stage_seconds())


@pytest.fixture(scope="module")
def plain(tmp_path_factory, threads) -> Copy:
    return Copy(tmp_path_factory.mktemp("plain"), two_sets, server=False)


def test_everything_from_nothing(race, project, plain):
    plain_calls = plain.took(plain.bare).seconds
    race.timed(f"plain function calls in one process, and {SLACK} s", plain_calls + SLACK, aim=1)
    race.timed("plain function calls in one process", plain_calls)
    race.took("make repro, two sets, from nothing", len(SETS) * ROWS, project.whole.seconds)
    for name in SETS:
        assert plain.metrics(name).equals(project.copy.metrics(name))


def test_nothing_to_do(race, project):
    copy = project.copy
    repro = partial(run_module, copy.folder, "dvc", "repro")
    race.beside("dvc status", partial(run_module, copy.folder, "dvc", "status"), aim=1 / 1.5)
    race.floor(partial(run_module, copy.folder, "dvc", "--version"))
    race.run("dvc repro, nothing to do", len(project.stages), repro, rounds=3, warm_up=False)


def test_one_data_set_changed(race, project):
    """Beside what it should take: the start, and of all that a whole run takes beyond it the share of what ran anew."""
    copy = project.copy
    nothing = copy.took(copy.refresh)
    edit_params(copy.folder, lambda params: params["datasets"]["wands"].update(seed=1))
    changed = copy.took(copy.refresh)
    anew = {name: took for name, took in project.stages.items() if name.endswith("@wands") or name == "report"}
    share = sum(anew.values()) / sum(project.stages.values())

    def expected(of: Callable[[Took], float]) -> float:
        return of(nothing) + share * (of(project.whole) - of(nothing))

    race.timed(f"the start, and {100 * share:.0f}% of a whole run", expected(lambda took: took.seconds), aim=1)
    race.took("flows.refresh, one of two sets changed", ROWS, changed.seconds)
    race.timed(f"the start, and {100 * share:.0f}% of a whole run: CPU", expected(lambda took: took.cpu), aim=1)
    race.took("flows.refresh, one of two sets changed: CPU", ROWS, changed.cpu)


@pytest.mark.skipif("REAL_DATA" not in os.environ, reason="REAL_DATA names no folder")
@pytest.mark.parametrize(("name", "labels", "rows", "theirs"), [(name, *of) for name, of in AUTHORS.items()])
def test_the_stage_on_saved_logits_beside_the_code_of_the_authors(race, tmp_path, name, labels, rows, theirs):
    """Ours has intervals, rivals, alternatives, MRC and label spread too; test_authors_check.py: both agree."""
    logits = Path(os.environ["REAL_DATA"]) / "authors_check" / name / "logits_and_labels.npz"
    of = {"reader": "logits", "source": "files", "path": str(logits)}
    of["options"] = {"labels": [str(label) for label in range(labels)]}
    copy = Copy(tmp_path, lambda params: params.update(datasets={"mine": of}))
    for step in ("tasks.download", "tasks.train"):
        run_module(copy.folder, step, "mine")
    took = copy.took(partial(run_module, copy.folder, "flows.reliability", "mine"))
    race.timed("the authors' code, without most of that", theirs, aim=1)
    race.took(f"reliability, three seeds, {name}: CPU", rows, took.cpu)
