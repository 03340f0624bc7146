"""Manifests and fingerprints detect every relevant change; reasons for runs, and outcomes of stages."""

import os
import re
import shutil
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relmap.errors import InputError
from relmap.hashing import sha256_of_arrays
from relmap.io.atomic import write_json
from tasks.provenance.checkout import NO_CHECKOUT, describe_commit
from tasks.provenance.dvc_stages import read_dvc_stage
from tasks.provenance.hashing import code_fingerprint, imported_files
from tasks.provenance.history import StageOutcome, ended_datasets, stage_outcomes
from tasks.provenance.manifest import (
    MAX_NAMED_CHANGES,
    build_current_manifest,
    explain_run,
    list_changes,
    read_manifest,
)
from tasks.provenance.stage import LAST_MANIFESTS, RECORDS, read_record, run_stage
from tasks.records.errors import RunFailed
from tasks.records.store import read_json
from tests.tiny_project import complete_stage, edit_params

NAME = "train@wands"
PATH = Path("data/manifests/wands/train.json")
FORCED = "nothing that it reads had changed: it was forced, or its outputs were missing or changed"
FIRST = "it had not finished on this machine before"


def current_manifest():
    return build_current_manifest(read_dvc_stage(NAME))


def test_it_names_every_file_and_parameter_that_the_stage_declares(manifest):
    assert set(manifest.inputs) == {"data/raw/wands/rows.csv"}
    assert set(manifest.code) == {"tasks/train.py", "tasks/trained/model.py"}
    assert set(manifest.outputs) == {"data/base/wands/table.csv", "data/base/wands/deep/model.json"}
    assert set(manifest.parameters) == {"train", "datasets.wands"}
    assert {"python", "torch", "numpy", "polars", "lightgbm", "scikit-learn"} <= set(manifest.versions)


CHANGES = {
    "a bit": lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x0b"),  # of the end of its last line
    "one byte more": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "another name": lambda path: path.rename(path.with_name("other")),
    "away": Path.unlink,
    "one file more": lambda path: shutil.copy(path, path.with_name(f"more{path.suffix}")),
    "a hidden file more": lambda path: path.with_name(f".hidden{path.suffix}").touch(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_is_seen(manifest, change):
    for place, kind in (("data/raw/wands", "inputs"), ("tasks/trained", "code"), ("data/base/wands", "outputs")):
        change(next(Path(place).glob("*.*")))
        assert getattr(current_manifest(), kind) != getattr(manifest, kind)


def test_the_same_bytes_through_a_link_are_the_same(manifest):
    for folder in ("data/raw/wands", "data/base/wands"):  # as on another disk
        Path(folder).rename(Path(folder).with_suffix(".elsewhere"))
        Path(folder).symlink_to(Path(folder).with_suffix(".elsewhere").absolute(), target_is_directory=True)
    assert current_manifest() == manifest


def test_what_running_leaves_behind_is_no_change(manifest):
    for folder in map(Path, ("tasks/trained", "data/raw/wands", "data/base/wands")):
        for left in ("__pycache__/model.cpython-311.pyc", ".mypy_cache/x.json", ".model.py.77.partial", "model.pyc"):
            (folder / left).parent.mkdir(exist_ok=True)
            (folder / left).write_bytes(b"x")
    Path("tasks/trained/notes.md").write_text("no code")
    assert current_manifest() == manifest


def test_the_same_run_writes_the_same_bytes_whenever_and_wherever_it_is(manifest, trained_project):
    before = PATH.read_text()
    for file in Path().rglob("*"):
        os.utime(file, (0, 0))
    assert complete_stage(NAME) == manifest
    assert PATH.read_text() == before
    assert not re.search(r"20\d\d-\d\d-\d\d", before)
    assert str(trained_project) not in before


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1, exclude_max=True), st.integers(0, 7))
def test_every_flipped_bit_every_cut_and_what_is_no_manifest_is_seen(trained_project, tmp_path_factory, place, bit):
    path, content = tmp_path_factory.getbasetemp() / PATH.name, (trained_project / PATH).read_bytes()
    at = int(place * (len(content) - 1))  # the last byte is a line's end
    flipped = content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
    for spoilt in (content[:at], flipped, b"[]", b"{}", b'{"sha256": null}', b"null", b'{"format": 2}'):
        path.write_bytes(spoilt)
        with pytest.raises(InputError, match=r"train\.json"):
            read_manifest(path)


OWN = {"numbers": {0: "bad", True: "yes", 1.5: "x"}, "list": [1, [2.5, None]], "text": "wörter ✓", "n": [1e-4, 10**20]}


def test_parameters_are_the_same_after_reading_whatever_their_kind(manifest):
    edit_params(lambda params: params["datasets"]["wands"].update(settings=OWN))
    after = complete_stage(NAME)
    assert read_manifest(PATH) == after
    assert list_changes(after, current_manifest()) == []
    assert list_changes(manifest, after) != []


def test_the_hash_of_arrays_sees_shape_type_and_every_value_and_not_the_order_of_memory():
    array = np.arange(6.0).reshape(2, 3)
    others = array.reshape(3, 2), array.astype(np.float32), array + np.array([[0, 0, 0], [0, 0, 1e-12]])
    assert len({sha256_of_arrays(other) for other in (array, *others)}) == 4
    assert sha256_of_arrays(np.asfortranarray(array)) == sha256_of_arrays(array)


PACKAGES = {  # a registry of two members, one of which imports a third file inside a function
    "pack/__init__.py": "from pack import first, other\n",
    "pack/first.py": "def f():\n    from base import third\n    return third\n",
    "pack/other.py": "X = 1\n",
    "base/__init__.py": "",
    "base/third.py": "import numpy\n",
}


def test_a_member_depends_on_what_it_reaches_by_any_import_and_where_that_stands_and_not_on_its_siblings(tmp_path):
    for name, text in PACKAGES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    place, member, imported = Path("pack/first.py"), tmp_path / "pack/first.py", tmp_path / "base/third.py"
    assert {path.as_posix() for path in imported_files(place, tmp_path)} == PACKAGES.keys()
    before = code_fingerprint(place, tmp_path)
    (tmp_path / "pack/other.py").write_text("X = 2\n")
    assert code_fingerprint(place, tmp_path) == before
    member.write_text(imported.read_text() + member.read_text())  # a line that moves to another file
    imported.write_text("")
    moved = code_fingerprint(place, tmp_path)
    imported.write_text("import scipy\n")
    assert len({before, moved, code_fingerprint(place, tmp_path)}) == 3


def reseed(seed: int = 7) -> None:
    edit_params(lambda params: params["train"].update(seed=seed))


def now() -> datetime:
    """A moment after all that has been written, and before all that will be: dates of files are of the last tick."""
    time.sleep(0.02)
    moment = datetime.now(UTC)
    time.sleep(0.02)
    return moment


def test_a_parameter_is_named_with_what_it_was_and_is(manifest):
    def change(params) -> None:
        params["train"]["seed"] = 7
        twin = params["datasets"]["wands"]
        twin |= {"seed": 7, "residual": None, "source": "hub", "settings": {"alpha": None}}

    edit_params(change)
    assert set(list_changes(manifest, current_manifest())) == {
        "train.seed: 0 → 7",
        "datasets.wands.seed: nothing → 7",
        "datasets.wands.residual: 1.0 → None",
        "datasets.wands.source: 'simulated' → 'hub'",
        "datasets.wands.settings.alpha: nothing → None",
    }


def test_files_commands_and_versions_are_named_and_outputs_are_no_reason(manifest):
    path = "data/raw/wands/rows.csv"
    Path(path).write_text("other\n")
    Path("tasks/trained/more.py").write_text("more\n")
    Path("tasks/train.py").unlink()
    other = {"command": "python -m new", "versions": manifest.versions | {"numpy": "9"}, "outputs": {}}
    after = current_manifest().model_copy(update=other)
    assert list_changes(manifest, after) == [
        f"{path}: {manifest.inputs[path].sha256[:8]} → {after.inputs[path].sha256[:8]}",
        f"tasks/train.py: {manifest.code['tasks/train.py'].sha256[:8]} → nothing",
        f"tasks/trained/more.py: nothing → {after.code['tasks/trained/more.py'].sha256[:8]}",
        f"command: {manifest.command} → python -m new",
        f"version of numpy: {manifest.versions['numpy']!r} → '9'",
    ]


def test_of_many_changes_a_few_are_named_and_the_others_counted(manifest):
    for number in range(MAX_NAMED_CHANGES + 3):
        Path(f"data/raw/wands/{number}.csv").touch()
    reason = explain_run(manifest, current_manifest())
    assert reason.count("→") == MAX_NAMED_CHANGES
    assert reason.endswith("; and 3 more")


def outcome_of(name: str, stages: list[StageOutcome]) -> tuple[str, str]:
    return next((stage.status, stage.reason) for stage in stages if stage.stage == name)


def fail(reason: str) -> None:
    with pytest.raises(RunFailed), run_stage(NAME):
        raise RunFailed(reason)


def test_a_stage_that_ran_says_why_and_the_others_were_skipped(manifest):
    complete_stage("train@scidocs")
    since = now()
    reseed()
    complete_stage(NAME)
    record = read_record(NAME)
    record.model_copy(update={"ended": record.started + timedelta(hours=25)}).write()
    stages = stage_outcomes(since)
    assert stages[0].seconds == 25 * 3600  # of a day and more, in full
    assert [stage.stage for stage in stages] == [NAME, "train@scidocs", "report"]
    assert outcome_of(NAME, stages) == ("ran", "train.seed: 0 → 7")
    assert outcome_of("train@scidocs", stages) == ("skipped", "nothing that it reads has changed")
    assert outcome_of("report", stages)[0] == "not started"


@pytest.mark.parametrize("seed", [0, 7])
def test_though_dvc_removed_its_manifest_and_a_run_failed_it_is_compared_with_the_last_that_finished(manifest, seed):
    PATH.unlink()
    reseed(9)
    fail("no descent")
    reseed(seed)
    complete_stage(NAME)
    assert read_record(NAME).why == (f"train.seed: 0 → {seed}" if seed else FORCED)


@pytest.mark.parametrize("link", [False, True])
def test_what_dvc_brought_back_from_its_cache_is_restored(manifest, tmp_path, link):
    kept = PATH.rename(tmp_path / "kept.json")
    since = now()
    if link:
        PATH.symlink_to(kept)
    else:
        PATH.write_bytes(kept.read_bytes())
    assert outcome_of(NAME, stage_outcomes(since))[0] == "restored"


def test_a_stage_that_failed_or_was_killed_says_its_reason_and_why_it_ran(manifest):
    since = now()
    PATH.unlink()  # as DVC does before it runs a stage
    reseed()
    fail("wands: no descent")
    assert outcome_of(NAME, stage_outcomes(since, {NAME})) == (
        "failed",
        "wands: no descent (why it ran: train.seed: 0 → 7)",
    )
    assert ended_datasets(["wands", "scidocs"], since) == {"wands"}
    assert ended_datasets(["wands", "scidocs"], now()) == set()  # it is not this run's
    write_json(record := RECORDS / f"{NAME}.json", read_json(record) | {"outcome": "running", "reason": None})
    how, reason = outcome_of(NAME, stage_outcomes(since, {NAME}))
    assert how == "failed"
    assert reason.startswith("its process ended without a message: it was killed")
    assert "(why it ran: train.seed: 0 → 7)" in reason


def test_one_that_was_not_reached_is_no_run_and_one_that_dvc_could_not_keep_has_not_simply_run(manifest):
    complete_stage("report")
    since = now()
    complete_stage(NAME)
    stages = stage_outcomes(since, {"report", NAME})
    assert outcome_of("report", stages) == ("not started", "an earlier stage failed, or DVC could not start it")
    assert outcome_of(NAME, stages)[0] == "failed"


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[]", b'{"started": "x", "outcome": "finished"}', b"\xff{"])
def test_a_spoilt_record_or_memory_of_the_last_run_is_none_and_ends_no_run(manifest, content):
    since = now()
    (RECORDS / f"{NAME}.json").write_bytes(content)
    assert outcome_of(NAME, stage_outcomes(since))[0] == "skipped"
    (LAST_MANIFESTS / f"{NAME}.json").write_bytes(content)
    complete_stage(NAME)
    assert read_record(NAME).why == FIRST


def test_a_checkout_says_its_commit_and_whether_tracked_files_differ_from_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert describe_commit() == NO_CHECKOUT
    Path("tracked").write_text("first")
    for command in (["init", "-q"], ["add", "tracked"], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *command], check=True)
    Path("beside").write_text("untracked")
    assert re.fullmatch("[0-9a-f]{40}", describe_commit())
    Path("tracked").write_text("second")
    assert describe_commit().endswith("with uncommitted changes")
