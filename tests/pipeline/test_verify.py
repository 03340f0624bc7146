"""Corrupt, edited, missing and added files are reported, with the commands that restore them."""

import hashlib
import json
import os
import shlex
from functools import partial
from pathlib import Path

import pytest
import yaml
from flows.processes import LOCK_FILE
from tasks.provenance.manifest import Manifest
from tasks.provenance.verification import Problem, find_input_problems, is_corrupt, list_cached_objects

from flows.verify import REFRESH, check_cache, list_remedies, read_lock_entries
from relmap.hashing import hash_file
from tasks.provenance import verification
from tasks.provenance.dvc_stages import read_dvc_stage, stage_names
from tests.project_copy import flip_bit
from tests.tiny_project import complete_stage, copy_to_current_folder, create_finished_project, edit_params

NAME = "train@wands"
TABLE = Path("data/base/wands/table.csv")
DEEP = "data/base/wands/deep/model.json"
MANIFEST = "data/manifests/wands/train.json"
BACK = "rm -rf data/base/wands data/manifests/wands/train.json && dvc"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return create_finished_project(tmp_path_factory.mktemp("finished"))


@pytest.fixture(autouse=True)
def _copy(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copy_to_current_folder(finished)


def check_outputs() -> tuple[dict[str, Manifest], list[Problem]]:
    """The valid manifests, and the problems of the outputs of all stages."""
    of_stages = {name: verification.find_output_problems(name) for name in stage_names()}
    manifests = {name: manifest for name, (manifest, _) in of_stages.items() if manifest}
    return manifests, [problem for _, problems in of_stages.values() for problem in problems]


def edit_by_hand(path: Path) -> None:
    """Edit a file by hand, later than the manifest was written, or a seed in it."""
    later = read_dvc_stage(NAME).manifest.stat().st_mtime + 60
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1') + "\n")
    os.utime(path, (later, later))


@pytest.mark.parametrize(
    ("path", "disturb", "words", "lost"),
    [
        *((path, flip_bit, "is corrupt", True) for path in (str(TABLE), DEEP, "data/report/table.csv")),
        (DEEP, edit_by_hand, "was edited at 20", True),
        (str(TABLE), Path.unlink, "is missing", True),
        (f"{DEEP}.csv", Path.touch, "was added", True),
        *((MANIFEST, partial(flip_bit, bit=bit), "is damaged", True) for bit in (0, 7)),
        (MANIFEST, edit_by_hand, "does not match its SHA-256", True),
        (MANIFEST, Path.unlink, "has not finished", False),  # its stage only has to run
    ],
)
def test_a_changed_file_is_reported_with_its_stage(path, disturb, words, lost):
    disturb(Path(path))
    _, (problem,) = check_outputs()
    assert (problem.path, problem.stage, problem.is_lost) == (path, "report" if "report" in path else NAME, lost)
    assert words in problem.description
    assert str(problem).startswith(f"{path} ({problem.stage}) ")


def test_outputs_of_other_inputs_are_reported():
    complete_stage(NAME, "otherwise\n")
    manifests, problems = check_outputs()
    assert problems == []
    (problem,) = find_input_problems(manifests)
    assert (problem.stage, problem.path, problem.is_lost) == ("report", "data/report", False)
    assert str(TABLE) in problem.description


def test_outputs_of_added_or_removed_inputs_are_reported():
    manifests, _ = check_outputs()
    recorded = manifests[NAME].outputs
    added = recorded | {"data/base/wands/more.csv": recorded[str(TABLE)]}
    removed = {DEEP: recorded[DEEP]}
    for changed_outputs in (added, removed):
        other = manifests[NAME].model_copy(update={"outputs": changed_outputs})
        assert [problem.stage for problem in find_input_problems(manifests | {NAME: other})] == ["report"]


@pytest.fixture
def cache(tmp_path):
    """A cache with an object for each file of the stage's outputs, and a list of them, as DVC keeps them; dvc.lock."""
    folder = tmp_path / "shared cache"
    entries = []
    for path in sorted(Path("data/base/wands").rglob("*.*")):
        md5 = hash_file(path, "md5")
        write_cached_object(folder, md5, path.read_bytes())
        entries.append({"md5": md5, "relpath": path.relative_to("data/base/wands").as_posix()})
    content = json.dumps(entries).encode()
    listed = f"{hashlib.md5(content).hexdigest()}.dir"
    write_cached_object(folder, listed, content)
    stages = {NAME: {"cmd": "x", "outs": [{"path": "data/base/wands", "md5": listed}]}}
    LOCK_FILE.write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}))
    return folder


def write_cached_object(folder: Path, md5: str, content: bytes) -> None:
    path = folder / md5[:2] / md5[2:]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.mark.parametrize("bit", [0, 7])
def test_every_corrupt_object_is_found_and_no_other(cache, bit):
    objects = list_cached_objects(cache)
    assert not any(map(is_corrupt, objects))
    for path in objects:
        flip_bit(path, bit=bit)
        assert [other for other in objects if is_corrupt(other)] == [path]
        flip_bit(path, bit=bit)


def test_objects_of_a_stage_include_the_files_of_readable_folders(cache):
    locked = read_lock_entries()[NAME]
    (listing,) = cache.glob("??/*.dir")
    assert verification.find_stage_objects(locked, cache, set()) == set(list_cached_objects(cache))
    assert verification.find_stage_objects(locked, cache, {listing}) == {listing}
    listing.unlink()
    assert verification.find_stage_objects(locked, cache, set()) == {listing}


def test_an_incomplete_dvc_lock_can_be_read(cache):
    content = LOCK_FILE.read_bytes()
    for length in range(0, len(content), 3):
        LOCK_FILE.write_bytes(content[:length])
        for locked in read_lock_entries().values():
            verification.find_stage_objects(locked, cache, set())
    LOCK_FILE.unlink()
    assert read_lock_entries() == {}


def list_commands(cache: Path) -> list[str]:
    manifests, problems = check_outputs()
    return list_remedies([*problems, *find_input_problems(manifests)], *check_cache(cache), manifests)


def test_intact_outputs_need_no_command(cache):
    write_cached_object(cache, "ab.77.tmp", b"what a DVC is writing")
    manifests, problems = check_outputs()
    assert problems == list(find_input_problems(manifests)) == list_commands(cache) == []


@pytest.mark.parametrize("suffix", ["", ".dir"])
def test_lost_outputs_without_a_cached_copy_are_recomputed(cache, suffix):
    flip_bit(TABLE)
    bad = next(path for path in list_cached_objects(cache) if path.suffix == suffix)
    flip_bit(bad)
    first, second = list_commands(cache)
    assert shlex.split(first) == ["rm", "-f", str(bad.relative_to(Path.cwd()))]
    bad.unlink()
    assert [second] == list_commands(cache) == [f"{BACK} repro --force --single-item {NAME}"]


def change_own_setting(value: str) -> None:
    edit_params(lambda params: params["datasets"]["wands"].update(settings={"own": "x" * 50 + value}))


@pytest.mark.parametrize("change", ["value", "code"])
def test_a_corrupt_object_is_committed_again_if_code_and_parameters_are_unchanged(cache, change):
    change_own_setting("")
    complete_stage(NAME)
    flip_bit(list_cached_objects(cache)[0])
    assert list_commands(cache)[1:] == [f"dvc commit --force {NAME}"]
    change_own_setting("y") if change == "value" else Path("tasks/train.py").write_text("new\n")
    assert list_commands(cache)[1:] == [REFRESH]


def test_each_command_is_proposed_once(cache):
    for path in (TABLE, Path(DEEP)):
        flip_bit(path)
    for name in ("report", "train@scidocs"):
        read_dvc_stage(name).manifest.unlink()
    assert list_commands(cache) == [f"{BACK} checkout {NAME}", REFRESH]


@pytest.mark.parametrize(("seconds", "words"), [(0, "is corrupt: "), (2, "is corrupt: "), (3, "was edited at ")])
def test_a_file_was_edited_if_it_is_newer_than_a_checkout_may_make_it(seconds, words):
    written = 1_700_000_000
    os.utime(MANIFEST, (written, written))
    content = TABLE.read_text()
    TABLE.write_text(content + "x")
    os.utime(TABLE, (written + seconds, written + seconds))
    _, (problem,) = verification.find_output_problems(NAME)
    assert problem.description.startswith(words)
    if seconds == 3:
        assert problem.description == "was edited at 2023-11-14T22:13:23+00:00"


def test_all_changed_inputs_of_a_stage_are_named():
    manifests, _ = check_outputs()
    recorded = manifests[NAME].outputs
    changed_outputs = {"data/base/wands/more.csv": recorded[str(TABLE)], DEEP: recorded[DEEP]}
    other = manifests[NAME].model_copy(update={"outputs": changed_outputs})
    (problem,) = find_input_problems(manifests | {NAME: other})
    assert problem == Problem(
        "report",
        "data/report",
        "was made from another version of data/base/wands/more.csv, data/base/wands/table.csv",
        is_lost=False,
    )


def test_only_complete_objects_of_the_cache_are_listed(tmp_path):
    cache_folder = tmp_path / "cache"
    digits = "0123456789abcdef" * 2
    names = [digits[2:], f"{digits[2:]}.dir", digits[3:], f"{digits[2:]}0", f"{digits[2:]}.tmp", f".{digits[2:]}"]
    for folder in ("ab", "01", "abc"):
        (cache_folder / folder).mkdir(parents=True)
        for name in names:
            (cache_folder / folder / name).touch()
    listed = [path.relative_to(cache_folder).as_posix() for path in list_cached_objects(cache_folder)]
    assert listed == [f"{folder}/{name}" for folder in ("01", "ab") for name in names[:2]]
