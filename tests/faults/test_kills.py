"""SIGKILL in the middle of a run: the same command finishes, with the same bytes, and repeats no finished fit."""

import signal

import pytest

from tests.faults.small_project import killed

pytestmark = pytest.mark.faults

# Each run of a chain is cut at a later moment of its data set than the one before. `replace` cuts a file that is whole
# but not in its place yet, `write` one that is half written.
MACHINE = {
    "wands": (
        killed("write", "data/raw/.wands.partial/.source.json.*"),
        killed("write", "dvc.lock"),
        killed("write", ".dvc/tmp/rwlock", nth=5),
        killed("replace", "data/base/wands/logits.parquet"),
        killed("replace", ".dvc/cache/files/*", nth=3),
        killed("write", ".prefect/storage/ts-*", nth=2),
        killed("replace", "data/runs/wands/metrics.parquet"),
        killed("replace", "data/report/main.csv"),
    ),
    "mine": (
        killed("replace", "data/raw/mine"),  # what was there is gone, and what takes its place not yet there
        killed("write", "data/base/mine/.predictor.npz.*"),
        killed("replace", "data/manifests/mine/train.json"),
        killed("write", ".prefect/storage/vector-*"),
        killed("write", ".dvc/cache/runs/*"),
        killed("write", "data/runs/mine/.run.json.*"),
    ),
}


MOMENTS = {  # of a data set, in one run after the other
    "raw/{}": "replace",
    "base/{}/pairs.parquet": "replace",
    "runs/{}/.curves.json.*": "write",
    "report/main.csv": "replace",
}


def check_as_undisturbed(project, finished, kept):
    """The results are those of an undisturbed run, and of the fits that were kept none was made again."""
    assert project.results() == finished.results()
    assert project.kept_fits().items() >= kept.items()
    assert "RUNNING" not in project.flow_states()


@pytest.mark.parametrize("dataset", MACHINE)
def test_a_machine_that_dies_again_and_again_loses_nothing(project, finished, dataset):
    kept = {}
    for fault in MACHINE[dataset]:
        project.run("flows.refresh", faults=(fault,), status=-signal.SIGKILL)
        assert project.kept_fits().items() >= kept.items()
        kept = project.kept_fits()
    project.run("flows.refresh")
    check_as_undisturbed(project, finished, kept)
    assert "CRASHED" in project.flow_states()


@pytest.mark.parametrize(("whom", "dataset"), [("stage", "wands"), ("dvc", "mine")])
def test_a_killed_stage_or_dvc_is_told_and_the_same_command_finishes(project, finished, whom, dataset):
    kept = {}
    for path, call in MOMENTS.items():
        fault = killed(call, f"data/{path.format(dataset)}", whom)
        printed = project.run("flows.refresh", faults=(fault,), status=1)
        assert "refresh: not all went well" in printed
        assert "Traceback" not in printed
        assert project.kept_fits().items() >= kept.items()
        kept = project.kept_fits()
    project.run("flows.refresh")
    check_as_undisturbed(project, finished, kept)
