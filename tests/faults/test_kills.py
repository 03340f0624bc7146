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


def kill_and_finish(project, finished, faults, status):
    """A run for each fault, then one to the end: it makes no fit again that was kept, and the undisturbed results."""
    kept = {}
    for fault in faults:
        printed = project.run("flows.refresh", faults=(fault,), status=status)
        assert "Traceback" not in printed or status < 0
        assert "refresh: not all went well" in printed or status < 0
        assert project.kept_fits().items() >= kept.items()
        kept = project.kept_fits()
    project.run("flows.refresh")
    assert project.results() == finished.results()
    assert project.kept_fits().items() >= kept.items()
    assert "RUNNING" not in project.flow_states()


@pytest.mark.parametrize("dataset", MACHINE)
def test_a_machine_that_dies_again_and_again_loses_nothing(project, finished, dataset):
    kill_and_finish(project, finished, MACHINE[dataset], -signal.SIGKILL)
    assert "CRASHED" in project.flow_states()


@pytest.mark.parametrize(("whom", "dataset"), [("stage", "wands"), ("dvc", "mine")])
def test_a_killed_stage_or_dvc_is_told_and_the_same_command_finishes(project, finished, whom, dataset):
    faults = [killed(call, f"data/{path.format(dataset)}", whom) for path, call in MOMENTS.items()]
    kill_and_finish(project, finished, faults, 1)
