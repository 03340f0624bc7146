"""Why a stage ran, in words; what became of each stage; and what a run is compared with."""

from __future__ import annotations

import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tasks.protocol.errors import RunFailed
from tasks.protocol.store import read_json, write_json
from tasks.provenance.changes import MOST_NAMED, changes, why
from tasks.provenance.checkout import NO_CHECKOUT, commit
from tasks.provenance.declared import declared
from tasks.provenance.history import FINISHED, Happened, failed_since, happened, keep_finished, last_finished, moment
from tasks.provenance.manifest import manifest_now, read_manifest
from tasks.provenance.stage import record_file, stage_run
from tests.tiny_project import copy_here, edit_params, finished_in, run, work

NAME = "train@wands"
PATH = Path("data/manifests/wands/train.json")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A project with a finished stage."""
    return finished_in(tmp_path_factory.mktemp("finished"), NAME)


@pytest.fixture
def before(finished, tmp_path, monkeypatch):
    """The manifest of a finished stage, in a copy of the project."""
    monkeypatch.chdir(tmp_path)
    copy_here(finished)
    return read_manifest(PATH)


def there():
    return manifest_now(declared(NAME))


def test_nothing_changed(before):
    assert changes(before, there()) == []
    assert why(before, there()) == (
        "nothing that it reads had changed: it was forced, or its outputs were missing or changed"
    )


def test_a_first_run(before):
    assert why(None, before) == "it had not finished before"


def test_a_parameter_is_told_from_what_to_what(before):
    edit_params(lambda params: params["train"].update(seed=7))
    edit_params(lambda params: params["datasets"]["wands"].update(seed=7))
    assert changes(before, there()) == [
        "train.seed: 0 → 7",
        "datasets.wands.seed: nothing → 7",
    ]


def test_a_parameter_that_came_or_went_was_or_is_nothing(before):
    edit_params(lambda params: params["datasets"]["wands"].pop("residual") and params["datasets"]["wands"])
    edit_params(lambda params: params["datasets"]["wands"].update(residual=None, source="hub"))
    edit_params(lambda params: params["datasets"]["wands"].update(settings={"alpha": None}))
    told = changes(before, there())
    assert "datasets.wands.residual: 1.0 → None" in told
    assert "datasets.wands.source: 'simulated' → 'hub'" in told
    assert "datasets.wands.settings.alpha: nothing → None" in told


def test_a_calibrator_more_is_told_however_long_their_list_is(before):
    first = run("report")
    edit_params(lambda params: params["calibrators"].append("vector"))
    edit_params(lambda params: params["rivals"]["calibrators"].remove("vector"))
    (told,) = changes(first, manifest_now(declared("report")))
    assert "vector" in told


def test_an_input_and_code_that_changed_came_or_went_are_named_with_their_digits(before):
    Path("data/raw/wands/rows.csv").write_text("other\n")
    Path("tasks/trained/more.py").write_text("more\n")
    Path("tasks/train.py").unlink()
    after = there()
    was, is_now = before.inputs, after.inputs
    path = "data/raw/wands/rows.csv"
    assert changes(before, after) == [
        f"{path}: {was[path].sha256[:8]} → {is_now[path].sha256[:8]}",
        f"tasks/train.py: {before.code['tasks/train.py'].sha256[:8]} → nothing",
        f"tasks/trained/more.py: nothing → {after.code['tasks/trained/more.py'].sha256[:8]}",
    ]


def test_a_command_and_versions_are_told(before):
    old = before.model_copy(
        update={"command": "python -m tasks.old wands", "versions": before.versions | {"numpy": "1.0.0"}}
    )
    assert changes(old, before) == [
        f"command: python -m tasks.old wands → {before.command}",
        f"version of numpy: '1.0.0' → {before.versions['numpy']!r}",
    ]


def test_outputs_are_no_reason(before):
    assert changes(before, run(NAME, "otherwise\n")) == []


def test_of_many_changes_a_few_are_named_and_the_others_counted(before):
    for number in range(MOST_NAMED + 3):
        Path(f"data/raw/wands/{number}.csv").touch()
    told = why(before, there())
    assert told.count("→") == MOST_NAMED
    assert told.endswith("; and 3 more")


def what(name: str, stages: list[Happened]) -> tuple[str, str]:
    (one,) = [stage for stage in stages if stage.stage == name]
    return one.how, one.why


def test_a_stage_that_ran_says_why_and_the_others_were_skipped(before):
    run("train@scidocs")
    since = moment()
    edit_params(lambda params: params["train"].update(seed=7))
    run(NAME)
    stages = happened(since)
    assert [one.stage for one in stages] == [NAME, "train@scidocs", "report"]
    assert what(NAME, stages) == ("ran", "train.seed: 0 → 7")
    assert what("train@scidocs", stages) == ("skipped", "nothing that it reads has changed")


def test_a_first_run_is_told_as_one(before):
    since = moment()
    run("train@scidocs")
    assert what("train@scidocs", happened(since)) == ("ran", "it had not finished before")


def test_what_dvc_brought_back_from_its_cache_is_restored(before):
    old = PATH.read_bytes()
    edit_params(lambda params: params["train"].update(seed=7))
    run(NAME)
    since = moment()
    PATH.write_bytes(old)
    assert what(NAME, happened(since))[0] == "restored"


def fail(reason: str) -> None:
    def stop() -> None:
        work(NAME)
        raise RunFailed(reason)

    with pytest.raises(RunFailed), stage_run(NAME):
        stop()


def test_a_stage_that_failed_says_its_reason_and_why_it_ran(before):
    since = moment()
    PATH.unlink()  # as DVC does before it runs a stage
    edit_params(lambda params: params["train"].update(seed=7))
    fail("wands: no descent")
    assert what(NAME, happened(since, {NAME})) == ("failed", "wands: no descent (why it ran: train.seed: 0 → 7)")
    assert failed_since(since) == {"wands"}
    assert failed_since(moment()) == set()  # it is not this run's


def test_a_stage_that_was_killed_is_told_as_killed(before):
    since = moment()
    PATH.unlink()
    record = {"stage": NAME, "process": 1, "started": datetime.now(UTC).isoformat(), "outcome": "running"}
    write_json(record_file(NAME), record)
    how, reason = what(NAME, happened(since, {NAME}))
    assert how == "failed"
    assert "killed" in reason
    assert "(why it ran: nothing that it reads had changed" in reason


def test_a_stage_that_was_not_reached_is_no_run(before):
    run("report")
    since = moment()
    (told,) = [one for one in happened(since, {"report"}) if one.stage == "report"]
    assert (told.how, told.seconds) == ("not started", None)
    assert "a stage before it failed" in told.why


def test_a_stage_that_dvc_could_not_keep_has_not_simply_run(before):
    since = moment()
    run(NAME)
    assert what(NAME, happened(since, {NAME}))[0] == "failed"


def test_a_run_of_a_day_and_more_is_counted_in_full(before):
    since = moment()
    run(NAME)
    record = read_json(record_file(NAME))
    write_json(
        record_file(NAME), record | {"started": "2100-01-01T00:00:00+00:00", "ended": "2100-01-02T01:00:00+00:00"}
    )
    (told,) = [one for one in happened(since) if one.stage == NAME]
    assert told.seconds == 25 * 3600


@pytest.mark.parametrize(
    "content", ["", "{", "{}", "[]", '{"started": "x", "outcome": "finished"}', '{"sta\ufffdted": 1}']
)
def test_a_spoilt_record_ends_no_run(before, content):
    since = moment()
    record_file(NAME).write_text(content)
    assert what(NAME, happened(since))[0] == "skipped"


@pytest.mark.parametrize("flipped", [0, 7])
def test_a_record_with_a_flipped_bit_ends_no_run(before, flipped):
    since = moment()
    content = bytearray(record_file(NAME).read_bytes())
    content[len(content) // 2] ^= 1 << flipped
    record_file(NAME).write_bytes(content)
    assert happened(since)


def test_the_last_finished_run_is_what_was_kept(before):
    keep_finished({"all": {"aupr": 0.25}})
    run("train@scidocs")
    kept = last_finished()
    assert kept.metrics == {"all": {"aupr": 0.25}}
    assert kept.manifests == {NAME: before}


def test_what_a_killed_run_deleted_is_compared_with_the_last_finished_run(before):
    keep_finished({})
    PATH.unlink()
    edit_params(lambda params: params["train"].update(seed=7))
    since = moment()
    run(NAME)
    assert what(NAME, happened(since)) == ("ran", "train.seed: 0 → 7")


def test_before_any_finished_run_there_is_none(before):
    assert last_finished().metrics == {}
    assert last_finished().manifests == {}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content[:40],
        lambda _content: b"{}",
        lambda content: content.replace(b'"seed": 0', b'"seed": 1'),
        lambda content: content.replace(b'"format": 1', b'"format": 2'),
        lambda content: content.replace(b"stage", b"st\xe1ge"),
    ],
    ids=["cut", "empty", "edited", "of another version", "a flipped bit"],
)
def test_a_spoilt_memory_of_the_last_run_is_none_and_ends_no_run(before, spoil):
    keep_finished({"all": {"aupr": 0.25}})
    content = FINISHED.read_bytes()
    assert spoil(content) != content
    FINISHED.write_bytes(spoil(content))
    assert NAME not in last_finished().manifests
    assert moment().manifests == {NAME: before}


def test_a_manifest_that_is_spoilt_counts_as_not_finished(before):
    PATH.write_bytes(PATH.read_bytes()[:-9])
    assert moment().manifests == {}
    run(NAME)
    assert moment().manifests == {NAME: read_manifest(PATH)}


def test_a_checkout_says_its_commit_and_whether_tracked_files_differ_from_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit() == NO_CHECKOUT
    Path("tracked").write_text("one")
    for command in (["init", "-q"], ["add", "tracked"], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *command], check=True)
    Path("beside").write_text("untracked")
    assert re.fullmatch("[0-9a-f]{40}", commit())
    Path("tracked").write_text("two")
    assert commit().endswith("with changes that are not committed")
