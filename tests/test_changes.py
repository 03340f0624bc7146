"""Why a stage ran, in words, and what became of each stage."""

import re
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tasks.protocol.errors import RunFailed
from tasks.protocol.store import read_json, write_json
from tasks.provenance.checkout import NO_CHECKOUT, commit
from tasks.provenance.declared import declared
from tasks.provenance.history import Happened, ended, happened
from tasks.provenance.manifest import MOST_NAMED, changes, manifest_now, why
from tasks.provenance.stage import last_manifest_file, read_record, record_file, stage_run
from tests.tiny_project import edit_params, run

NAME = "train@wands"
PATH = Path("data/manifests/wands/train.json")
FORCED = "nothing that it reads had changed: it was forced, or its outputs were missing or changed"
FIRST = "it had not finished on this machine before"


def there():
    return manifest_now(declared(NAME))


def reseed(seed: int = 7) -> None:
    edit_params(lambda params: params["train"].update(seed=seed))


def now() -> datetime:
    """A moment after all that has been written, and before all that will be: dates of files are of the last tick."""
    time.sleep(0.02)
    moment = datetime.now(UTC)
    time.sleep(0.02)
    return moment


def test_without_a_change_it_was_forced_and_without_a_run_before_it_is_the_first(manifest):
    assert changes(manifest, there()) == []
    assert why(manifest, there()) == FORCED
    assert why(None, manifest) == FIRST


def test_a_parameter_is_named_with_what_it_was_and_is(manifest):
    def change(params) -> None:
        params["train"]["seed"] = 7
        twin = params["datasets"]["wands"]
        twin |= {"seed": 7, "residual": None, "source": "hub", "settings": {"alpha": None}}

    edit_params(change)
    assert set(changes(manifest, there())) == {
        "train.seed: 0 → 7",
        "datasets.wands.seed: nothing → 7",
        "datasets.wands.residual: 1.0 → None",
        "datasets.wands.source: 'simulated' → 'hub'",
        "datasets.wands.settings.alpha: nothing → None",
    }


def test_a_calibrator_more_is_named_however_long_their_list_is(manifest):
    first = run("report")
    edit_params(lambda params: params["calibrators"].append(params["rivals"]["calibrators"].pop(0)))
    (change,) = changes(first, manifest_now(declared("report")))
    assert "vector" in change


def test_files_commands_and_versions_are_named_and_outputs_are_no_reason(manifest):
    path = "data/raw/wands/rows.csv"
    Path(path).write_text("other\n")
    Path("tasks/trained/more.py").write_text("more\n")
    Path("tasks/train.py").unlink()
    other = {"command": "python -m new", "versions": manifest.versions | {"numpy": "9"}, "outputs": {}}
    after = there().model_copy(update=other)
    assert changes(manifest, after) == [
        f"{path}: {manifest.inputs[path].sha256[:8]} → {after.inputs[path].sha256[:8]}",
        f"tasks/train.py: {manifest.code['tasks/train.py'].sha256[:8]} → nothing",
        f"tasks/trained/more.py: nothing → {after.code['tasks/trained/more.py'].sha256[:8]}",
        f"command: {manifest.command} → python -m new",
        f"version of numpy: {manifest.versions['numpy']!r} → '9'",
    ]


def test_of_many_changes_a_few_are_named_and_the_others_counted(manifest):
    for number in range(MOST_NAMED + 3):
        Path(f"data/raw/wands/{number}.csv").touch()
    reason = why(manifest, there())
    assert reason.count("→") == MOST_NAMED
    assert reason.endswith("; and 3 more")


def of(name: str, stages: list[Happened]) -> tuple[str, str]:
    return next((stage.how, stage.why) for stage in stages if stage.stage == name)


def fail(reason: str) -> None:
    def stop() -> None:
        raise RunFailed(reason)

    with pytest.raises(RunFailed), stage_run(NAME):
        stop()


def test_a_stage_that_ran_says_why_and_the_others_were_skipped(manifest):
    run("train@scidocs")
    since = now()
    reseed()
    run(NAME)
    record = read_record(NAME)
    record.model_copy(update={"ended": record.started + timedelta(hours=25)}).write()
    stages = happened(since)
    assert stages[0].seconds == 25 * 3600  # of a day and more, in full
    assert [stage.stage for stage in stages] == [NAME, "train@scidocs", "report"]
    assert of(NAME, stages) == ("ran", "train.seed: 0 → 7")
    assert of("train@scidocs", stages) == ("skipped", "nothing that it reads has changed")
    assert of("report", stages)[0] == "not started"


@pytest.mark.parametrize("seed", [0, 7])
def test_though_dvc_removed_its_manifest_and_a_run_failed_it_is_compared_with_the_last_that_finished(manifest, seed):
    PATH.unlink()
    reseed(9)
    fail("no descent")
    reseed(seed)
    run(NAME)
    assert read_record(NAME).why == (f"train.seed: 0 → {seed}" if seed else FORCED)


def test_a_spoilt_memory_of_the_last_run_is_none_and_ends_no_run(manifest):
    last_manifest_file(NAME).write_bytes(last_manifest_file(NAME).read_bytes()[:40])
    run(NAME)
    assert read_record(NAME).why == FIRST


@pytest.mark.parametrize("link", [False, True])
def test_what_dvc_brought_back_from_its_cache_is_restored(manifest, tmp_path, link):
    kept = PATH.rename(tmp_path / "kept.json")
    since = now()
    if link:
        PATH.symlink_to(kept)
    else:
        PATH.write_bytes(kept.read_bytes())
    assert of(NAME, happened(since))[0] == "restored"


def test_a_stage_that_failed_or_was_killed_says_its_reason_and_why_it_ran(manifest):
    since = now()
    PATH.unlink()  # as DVC does before it runs a stage
    reseed()
    fail("wands: no descent")
    assert of(NAME, happened(since, {NAME})) == ("failed", "wands: no descent (why it ran: train.seed: 0 → 7)")
    assert ended(["wands", "scidocs"], since) == {"wands"}
    assert ended(["wands", "scidocs"], now()) == set()  # it is not this run's
    write_json(record_file(NAME), read_json(record_file(NAME)) | {"outcome": "running", "reason": None})
    how, reason = of(NAME, happened(since, {NAME}))
    assert how == "failed"
    assert reason.startswith("its process ended without a word: it was killed")
    assert "(why it ran: train.seed: 0 → 7)" in reason


def test_one_that_was_not_reached_is_no_run_and_one_that_dvc_could_not_keep_has_not_simply_run(manifest):
    run("report")
    since = now()
    run(NAME)
    stages = happened(since, {"report", NAME})
    assert of("report", stages) == ("not started", "a stage before it failed, or DVC could not start it")
    assert of(NAME, stages)[0] == "failed"


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[]", b'{"started": "x", "outcome": "finished"}', b"\xff{"])
def test_a_spoilt_record_ends_no_run(manifest, content):
    since = now()
    record_file(NAME).write_bytes(content)
    assert of(NAME, happened(since))[0] == "skipped"


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
