"""Manifests and fingerprints detect relevant changes; reasons and outcomes of stages."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tasks.provenance.history import StageOutcome, ended_datasets, stage_outcomes
from tasks.provenance.manifest import (
    MAX_NAMED_CHANGES,
    Manifest,
    build_current_manifest,
    explain_run,
    list_changes,
    read_manifest,
    write_manifest,
)

from relmap.errors import InputError
from relmap.hashing import sha256_of_arrays
from relmap.io.atomic import write_json
from tasks.provenance import history
from tasks.provenance.checkout import NO_CHECKOUT, describe_commit
from tasks.provenance.dvc_stages import read_dvc_stage
from tasks.provenance.hashing import code_fingerprint, imported_files, imported_modules
from tasks.provenance.stage import LAST_MANIFESTS, RECORDS, StageRecord, read_record, run_stage
from tasks.records.errors import RunFailed
from tasks.records.store import read_json
from tests.tiny_project import complete_stage, edit_params

STAGE = "train@wands"
MANIFEST_PATH = Path("data/manifests/wands/train.json")
FORCED_REASON = "nothing that it reads had changed: it was forced, or its outputs were missing or changed"
FIRST_RUN_REASON = "it had not finished on this machine before"


def current_manifest():
    return build_current_manifest(read_dvc_stage(STAGE))


def test_manifest_lists_every_declared_file_and_parameter(manifest):
    assert set(manifest.inputs) == {"data/raw/wands/rows.csv"}
    assert set(manifest.code) == {"tasks/train.py", "tasks/trained/model.py"}
    assert set(manifest.outputs) == {"data/base/wands/table.csv", "data/base/wands/deep/model.json"}
    assert set(manifest.parameters) == {"train", "datasets.wands"}
    assert {"python", "torch", "numpy", "polars", "lightgbm", "scikit-learn"} <= set(manifest.versions)


CHANGES = {
    "a changed bit": lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x0b"),  # of the end of its last line
    "an additional byte": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "another name": lambda path: path.rename(path.with_name("other")),
    "no file": Path.unlink,
    "an additional file": lambda path: shutil.copy(path, path.with_name(f"more{path.suffix}")),
    "a hidden file": lambda path: path.with_name(f".hidden{path.suffix}").touch(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_file_change_is_detected(manifest, change):
    for folder, kind in (("data/raw/wands", "inputs"), ("tasks/trained", "code"), ("data/base/wands", "outputs")):
        change(next(Path(folder).glob("*.*")))
        assert getattr(current_manifest(), kind) != getattr(manifest, kind)


def test_linked_folder_gives_the_same_manifest(manifest):
    for folder in ("data/raw/wands", "data/base/wands"):  # as on another disk
        Path(folder).rename(Path(folder).with_suffix(".elsewhere"))
        Path(folder).symlink_to(Path(folder).with_suffix(".elsewhere").absolute(), target_is_directory=True)
    assert current_manifest() == manifest


def test_caches_and_partial_files_are_ignored(manifest):
    for folder in map(Path, ("tasks/trained", "data/raw/wands", "data/base/wands")):
        for file in ("__pycache__/model.cpython-311.pyc", ".mypy_cache/x.json", ".model.py.77.partial", "model.pyc"):
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_bytes(b"x")
    Path("tasks/trained/notes.md").write_text("no code")
    assert current_manifest() == manifest


def test_manifest_does_not_depend_on_time_and_place(manifest, trained_project):
    before = MANIFEST_PATH.read_text()
    for file in Path().rglob("*"):
        os.utime(file, (0, 0))
    assert complete_stage(STAGE) == manifest
    assert MANIFEST_PATH.read_text() == before
    assert not re.search(r"20\d\d-\d\d-\d\d", before)
    assert str(trained_project) not in before


@settings(max_examples=20, deadline=None)
@given(st.floats(0, 1, exclude_max=True), st.integers(0, 7))
def test_corrupted_manifest_is_rejected(trained_project, tmp_path_factory, position, bit):
    path = tmp_path_factory.getbasetemp() / MANIFEST_PATH.name
    content = (trained_project / MANIFEST_PATH).read_bytes()
    byte = int(position * (len(content) - 1))  # the last byte is a line's end
    flipped = content[:byte] + bytes([content[byte] ^ 1 << bit]) + content[byte + 1 :]
    for corrupted in (content[:byte], flipped, b"[]", b"{}", b'{"sha256": null}', b"null", b'{"format": 2}'):
        path.write_bytes(corrupted)
        with pytest.raises(InputError, match=r"train\.json"):
            read_manifest(path)


UNUSUAL_SETTINGS = {
    "numbers": {0: "bad", True: "yes", 1.5: "x"},
    "list": [1, [2.5, None]],
    "text": "wörter ✓",
    "n": [1e-4, 10**20],
}


def test_parameters_of_any_type_are_read_unchanged(manifest):
    edit_params(lambda params: params["datasets"]["wands"].update(settings=UNUSUAL_SETTINGS))
    after = complete_stage(STAGE)
    assert read_manifest(MANIFEST_PATH) == after
    assert list_changes(after, current_manifest()) == []
    assert list_changes(manifest, after) != []


def test_array_hash_depends_on_shape_type_and_values_only():
    array = np.arange(6.0).reshape(2, 3)
    of_another_shape = array.reshape(3, 2)
    of_another_type = array.astype(np.float32)
    of_another_value = array.copy()
    of_another_value[1, 2] += 1e-12
    for other in (of_another_shape, of_another_type, of_another_value):
        assert sha256_of_arrays(other) != sha256_of_arrays(array)
    assert sha256_of_arrays(np.asfortranarray(array)) == sha256_of_arrays(array)


PACKAGES = {  # a registry of two members, one of which imports a third file inside a function
    "pack/__init__.py": "from pack import first, other\n",
    "pack/first.py": "def f():\n    from base import third\n    return third\n",
    "pack/other.py": "X = 1\n",
    "base/__init__.py": "",
    "base/third.py": "import numpy\n",
}


def test_code_fingerprint_covers_all_imports_but_no_siblings(tmp_path):
    for name, text in PACKAGES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    member_path = Path("pack/first.py")
    member = tmp_path / "pack/first.py"
    imported = tmp_path / "base/third.py"

    assert {path.as_posix() for path in imported_files(member_path, tmp_path)} == PACKAGES.keys()

    before = code_fingerprint(member_path, tmp_path)
    (tmp_path / "pack/other.py").write_text("X = 2\n")
    assert code_fingerprint(member_path, tmp_path) == before

    member.write_text(imported.read_text() + member.read_text())  # a line that moves to another file
    imported.write_text("")
    moved = code_fingerprint(member_path, tmp_path)
    imported.write_text("import scipy\n")

    assert len({before, moved, code_fingerprint(member_path, tmp_path)}) == 3


def change_seed(seed: int = 7) -> None:
    edit_params(lambda params: params["train"].update(seed=seed))


def current_time() -> datetime:
    """Return a time that differs from the time stamps of all files before and after."""
    time.sleep(0.02)
    moment = datetime.now(UTC)
    time.sleep(0.02)
    return moment


def test_changed_parameter_is_named_with_old_and_new_value(manifest):
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


def test_changed_files_commands_and_versions_are_named_but_no_outputs(manifest):
    path = "data/raw/wands/rows.csv"
    Path(path).write_text("other\n")
    Path("tasks/trained/more.py").write_text("more\n")
    Path("tasks/train.py").unlink()
    changes = {"command": "python -m new", "versions": manifest.versions | {"numpy": "9"}, "outputs": {}}
    after = current_manifest().model_copy(update=changes)

    assert list_changes(manifest, after) == [
        f"{path}: {manifest.inputs[path].sha256[:8]} → {after.inputs[path].sha256[:8]}",
        f"tasks/train.py: {manifest.code['tasks/train.py'].sha256[:8]} → nothing",
        f"tasks/trained/more.py: nothing → {after.code['tasks/trained/more.py'].sha256[:8]}",
        f"command: {manifest.command} → python -m new",
        f"version of numpy: {manifest.versions['numpy']!r} → '9'",
    ]


def test_many_changes_are_summarized(manifest):
    for number in range(MAX_NAMED_CHANGES + 3):
        Path(f"data/raw/wands/{number}.csv").touch()
    reason = explain_run(manifest, current_manifest())
    assert reason.count("→") == MAX_NAMED_CHANGES
    assert reason.endswith("; and 3 more")


def get_outcome(name: str, stages: list[StageOutcome]) -> tuple[str, str]:
    return next((stage.status, stage.reason) for stage in stages if stage.stage == name)


def fail_stage(reason: str) -> None:
    with pytest.raises(RunFailed), run_stage(STAGE):
        raise RunFailed(reason)


def test_outcomes_distinguish_ran_and_skipped_stages(manifest):
    complete_stage("train@scidocs")
    since = current_time()
    change_seed()
    complete_stage(STAGE)
    record = read_record(STAGE)
    record.model_copy(update={"ended": record.started + timedelta(hours=25)}).write()
    stages = stage_outcomes(since)

    assert stages[0].seconds == 25 * 3600  # of a day and more, in full
    assert [stage.stage for stage in stages] == [STAGE, "train@scidocs", "report"]
    assert get_outcome(STAGE, stages) == ("ran", "train.seed: 0 → 7")
    assert get_outcome("train@scidocs", stages) == ("skipped", "nothing that it reads has changed")
    assert get_outcome("report", stages)[0] == "not started"


@pytest.mark.parametrize("seed", [0, 7])
def test_run_is_compared_with_the_last_finished_run(manifest, seed):
    MANIFEST_PATH.unlink()
    change_seed(9)
    fail_stage("no descent")
    change_seed(seed)
    complete_stage(STAGE)
    assert read_record(STAGE).why == (f"train.seed: 0 → {seed}" if seed else FORCED_REASON)


@pytest.mark.parametrize("is_linked", [False, True])
def test_manifest_from_the_dvc_cache_is_restored(manifest, tmp_path, is_linked):
    cached = MANIFEST_PATH.rename(tmp_path / "kept.json")
    since = current_time()
    if is_linked:
        MANIFEST_PATH.symlink_to(cached)
    else:
        MANIFEST_PATH.write_bytes(cached.read_bytes())
    assert get_outcome(STAGE, stage_outcomes(since))[0] == "restored"


def test_failed_or_killed_stage_reports_its_reason_and_why_it_ran(manifest):
    since = current_time()
    MANIFEST_PATH.unlink()  # as DVC does before it runs a stage
    change_seed()
    fail_stage("wands: no descent")

    assert get_outcome(STAGE, stage_outcomes(since, {STAGE})) == (
        "failed",
        "wands: no descent (why it ran: train.seed: 0 → 7)",
    )
    assert ended_datasets(["wands", "scidocs"], since) == {"wands"}
    assert ended_datasets(["wands", "scidocs"], current_time()) == set()  # it is not this run's

    record = RECORDS / f"{STAGE}.json"
    write_json(record, read_json(record) | {"outcome": "running", "reason": None})
    status, reason = get_outcome(STAGE, stage_outcomes(since, {STAGE}))

    assert status == "failed"
    assert reason.startswith("its process ended without a message: it was killed")
    assert "(why it ran: train.seed: 0 → 7)" in reason


def test_unreached_stage_did_not_start_and_uncommitted_stage_failed(manifest):
    complete_stage("report")
    since = current_time()
    complete_stage(STAGE)
    stages = stage_outcomes(since, {"report", STAGE})
    assert get_outcome("report", stages) == ("not started", "an earlier stage failed, or DVC could not start it")
    assert get_outcome(STAGE, stages)[0] == "failed"


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[]", b'{"started": "x", "outcome": "finished"}', b"\xff{"])
def test_corrupted_records_are_ignored(manifest, content):
    since = current_time()
    (RECORDS / f"{STAGE}.json").write_bytes(content)
    assert get_outcome(STAGE, stage_outcomes(since))[0] == "skipped"
    (LAST_MANIFESTS / f"{STAGE}.json").write_bytes(content)
    complete_stage(STAGE)
    assert read_record(STAGE).why == FIRST_RUN_REASON


def restore(name: str, run: Path) -> None:
    """Put the manifest of an earlier run where DVC has it after it restores that run."""
    content = run.read_bytes()
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    cached = Path(".dvc/cache/files/md5", digest[:2], digest[2:])
    cached.parent.mkdir(parents=True)
    cached.write_bytes(content)
    outputs = [{"path": read_dvc_stage(name).manifest.as_posix(), "md5": digest}]
    Path("dvc.lock").write_text(yaml.safe_dump({"stages": {name: {"outs": outputs}}}))


def test_reason_of_a_run_names_the_changes_since_a_state_that_dvc_restored(manifest):
    complete_stage(STAGE)
    first = Path("first.json")
    first.write_bytes((LAST_MANIFESTS / f"{STAGE}.json").read_bytes())
    change_seed(1)
    complete_stage(STAGE)
    assert read_record(STAGE).why == "train.seed: 0 → 1"
    restore(STAGE, first)
    change_seed(2)
    complete_stage(STAGE)
    assert read_record(STAGE).why == "train.seed: 0 → 2"
    Path("dvc.lock").write_text("stages: [")
    complete_stage(STAGE)
    assert read_record(STAGE).why.startswith("nothing that it reads had changed")


def test_commit_description_marks_uncommitted_changes(tmp_path, monkeypatch):
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


def changed_versions(manifest: Manifest, count: int) -> Manifest:
    """Return a manifest with other versions of the first libraries."""
    versions = dict.fromkeys(sorted(manifest.versions)[:count], "0")
    return manifest.model_copy(update={"versions": manifest.versions | versions})


@pytest.mark.parametrize(
    ("count", "named", "rest"), [(1, 1, ""), (4, 4, ""), (5, 5, ""), (6, 5, "; and 1 more"), (7, 5, "; and 2 more")]
)
def test_up_to_five_changes_are_named(manifest, count, named, rest):
    after = changed_versions(manifest, count)
    assert explain_run(manifest, after) == "; ".join(list_changes(manifest, after)[:named]) + rest


@pytest.mark.parametrize(("length", "shown"), [(80, "a" * 80), (81, "a" * 40 + " … " + "a" * 40)])
def test_long_values_are_shortened_in_the_middle(manifest, length, shown):
    after = manifest.model_copy(update={"command": "a" * length})
    assert list_changes(manifest, after) == [f"command: {manifest.command} → {shown}"]


def test_a_stage_that_was_not_committed_failed_with_its_duration(manifest):
    since = current_time()
    complete_stage(STAGE)
    record = read_record(STAGE)
    record.model_copy(update={"ended": record.started + timedelta(seconds=7.9)}).write()
    (outcome, *_) = stage_outcomes(since, {STAGE})
    reason = "it finished, but DVC could not store its outputs"
    assert outcome == StageOutcome(STAGE, "failed", reason, 7)


def test_only_the_first_line_of_a_failure_says_why_the_stage_ran(manifest):
    since = current_time()
    change_seed()
    fail_stage("no descent\nhere\nand there")
    (outcome, *_) = stage_outcomes(since, {STAGE})
    assert outcome.reason == "no descent (why it ran: train.seed: 0 → 7)\nhere\nand there"
    assert outcome.seconds is not None


def test_a_stage_whose_process_was_killed_has_no_duration(manifest):
    since = current_time()
    fail_stage("x")
    record = read_record(STAGE)
    record.model_copy(update={"ended": None, "outcome": "running", "reason": None}).write()
    (outcome, *_) = stage_outcomes(since)
    assert (outcome.status, outcome.seconds) == ("failed", None)


def test_a_data_set_has_ended_if_its_last_stage_finished_or_any_stage_failed(manifest, monkeypatch):
    outcomes = {
        "train@a": "finished",
        "reliability@a": "finished",
        "train@b": "finished",
        "train@c": "failed",
        "reliability@d": "running",
        "reliability@e": "failed",
    }
    since = datetime.now(UTC)
    monkeypatch.setattr(history, "stage_names", lambda: [*outcomes, "report"])
    for name, outcome in outcomes.items():
        StageRecord(stage=name, process=1, started=since, outcome=outcome).write()
    assert ended_datasets([*"abcde"], since) == {"a", "c", "e"}
    assert ended_datasets([*"ab"], since) == {"a"}
    assert ended_datasets([*"abcde"], since + timedelta(microseconds=1)) == set()


IMPORTS = """
import a.b, c as d
from e import f, g as h
from . import local
from .near import far
if TYPE_CHECKING:
    import typed
else:
    import untyped
if OTHER:
    import other
def function():
    from i.j import k
"""


def test_all_absolute_imports_that_may_run_are_found(tmp_path):
    (tmp_path / "module.py").write_text(IMPORTS)
    found = {"a.b", "c", "e", "e.f", "e.g", "untyped", "other", "i.j", "i.j.k"}
    assert imported_modules(tmp_path / "module.py") - {"near", "near.far"} == found


def test_packages_are_included_only_on_request(tmp_path):
    for name, text in PACKAGES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    without = imported_files(Path("pack/first.py"), tmp_path, packages=False)
    assert {path.as_posix() for path in without} == {"pack/first.py", "base/__init__.py", "base/third.py"}


def test_the_checksum_does_not_depend_on_the_order_of_keys(manifest):
    content = read_json(MANIFEST_PATH)
    MANIFEST_PATH.write_text(json.dumps(dict(reversed(content.items()))))
    assert read_manifest(MANIFEST_PATH) == manifest


def test_the_checksum_is_that_of_sorted_json_with_all_characters(manifest):
    content = manifest.model_copy(update={"command": "größe"}).model_dump(mode="json")
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    write_manifest(manifest.model_copy(update={"command": "größe"}), MANIFEST_PATH, Path("copy.json"))
    for path in (MANIFEST_PATH, Path("copy.json")):
        assert read_json(path)["sha256"] == hashlib.sha256(text.encode()).hexdigest()


def test_a_file_with_a_valid_checksum_but_other_fields_is_no_manifest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = {"format": 1, "stage": 7}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    write_json(Path("x.json"), content | {"sha256": digest})
    with pytest.raises(InputError, match=r"^x\.json is not a manifest: stage: .*; command: .*; parameters: .*"):
        read_manifest(Path("x.json"))


def test_without_git_there_is_no_commit(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert describe_commit() == NO_CHECKOUT


def test_dates_in_parameters_are_text(manifest):
    edit_params(lambda params: params["datasets"]["wands"].update(settings={"since": date(2026, 1, 2)}))
    assert current_manifest().parameters["datasets.wands"]["settings"] == {"since": "2026-01-02"}
