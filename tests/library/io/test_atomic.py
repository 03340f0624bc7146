"""Files are written as a whole or not at all, and only where they replace nothing by mistake."""

import errno
import fcntl
import json
import os
from pathlib import Path

import polars as pl
import pytest

from relmap import InputError
from relmap.io.atomic import (
    DISK_FULL,
    MAX_NAME_BYTES,
    check_file,
    check_new_file,
    check_output_name,
    check_output_path,
    check_suffix,
    read_json_object,
    remove_path,
    temporary_path,
    write_atomically,
    write_json,
    write_text,
)


def test_failed_write_leaves_the_old_file(tmp_path):
    def fail(partial: Path) -> None:
        partial.write_text("half")
        raise OSError("disk full")

    (tmp_path / "kept").write_text("old")
    with pytest.raises(OSError, match="disk full"):
        write_atomically(tmp_path / "kept", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_text() == "old"


def test_nan_is_written_as_null(tmp_path):
    write_json(tmp_path / "x.json", {"a": float("nan"), "b": [1.0, float("nan")]})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": None, "b": [1.0, None]}
    with pytest.raises(ValueError, match="not JSON compliant"):  # an infinity is no hole
        write_json(tmp_path / "x.json", {"a": float("inf")})


def test_text_is_written_as_utf_8_in_any_locale(tmp_path, monkeypatch):
    monkeypatch.setattr("io.text_encoding", lambda encoding, _=2: encoding or "ascii")
    write_text(tmp_path / "a.txt", "ä\n")
    assert (tmp_path / "a.txt").read_bytes() == b"\xc3\xa4\n"


def test_only_partial_files_of_dead_processes_are_removed(tmp_path):
    remaining = {".x.csv.12.partial", ".y.csv.13.partial", ".x.csv.mine.partial"}
    (tmp_path / ".x.csv.14.ranks.partial").mkdir()
    for name in (*remaining, ".x.csv.11.partial", ".x.csv.14.ranks.partial/by_logit.parquet"):
        (tmp_path / name).touch()
    with (tmp_path / ".x.csv.12.partial").open() as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        write_atomically(tmp_path / "x.csv", lambda partial: partial.write_text("whole"))
    assert {path.name for path in tmp_path.iterdir()} == {"x.csv", *remaining}


def test_output_path_must_be_a_file_and_no_input(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null"), tmp_path):
        with pytest.raises(InputError, match="name a file"):
            check_output_path(path)
    (tmp_path / "read").write_text("rows")
    (tmp_path / "link").symlink_to("read")
    with pytest.raises(InputError, match="input file"):
        check_output_path(tmp_path / "link", tmp_path / "read")


@pytest.mark.parametrize("error", [OSError(DISK_FULL), pl.exceptions.ComputeError(f"polars: {DISK_FULL}")])
def test_a_full_disk_is_reported_with_the_file_that_was_written(error, tmp_path):
    def fail(_partial: Path) -> None:
        raise error

    with pytest.raises(OSError, match=r"x\.csv") as caught:
        write_atomically(tmp_path / "x.csv", fail)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "x.csv"))


def test_a_temporary_path_is_next_to_its_path_in_a_folder_that_is_created_and_ends_with_the_block(tmp_path):
    path = tmp_path / "new/folder/x.csv"
    with temporary_path(path) as file, temporary_path(path, Path.mkdir, ".ranks") as folder:
        assert {file.parent, folder.parent} == {path.parent}
        assert file.is_file()
        assert folder.is_dir()
        assert str(os.getpid()) in file.name
        (folder / "rows").touch()
    assert [*path.parent.iterdir()] == []


def test_files_and_folders_are_removed_if_they_exist(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").touch()
    for name in ("folder", "missing"):
        remove_path(tmp_path / name)
    assert [*tmp_path.iterdir()] == []


def test_a_file_that_exists_is_replaced_only_by_force(tmp_path):
    (tmp_path / "x.csv").touch()
    with pytest.raises(InputError, match="--force"):
        check_new_file(tmp_path / "x.csv", force=False)
    check_new_file(tmp_path / "x.csv", force=True)
    check_new_file(tmp_path / "y.csv", force=False)
    check_new_file(None, force=False)
    check_output_path(None)


def test_the_folder_of_an_output_must_be_writable_or_can_be_created(tmp_path):
    (tmp_path / "file").touch()
    check_output_path(tmp_path / "new/folder/x.csv")
    with pytest.raises(InputError, match=r"file is not a folder .* write elsewhere"):
        check_output_path(tmp_path / "file/x.csv")


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("~/x.csv", "begins with ~"),
        ("a\0b.csv", "NUL"),
        ("a" * (MAX_NAME_BYTES + 1), f"more than {MAX_NAME_BYTES} bytes"),
        ("é" * (MAX_NAME_BYTES // 2 + 1) + "/x.csv", f"more than {MAX_NAME_BYTES} bytes"),
    ],
)
def test_names_that_file_systems_or_shells_read_otherwise_are_refused(name, cause):
    with pytest.raises(InputError, match=cause):
        check_output_name(Path(name))


@pytest.mark.parametrize("name", ["a" * MAX_NAME_BYTES, "a~/x.csv", "folder/~x.csv", ""])
def test_other_names_are_accepted(name):
    check_output_name(Path(name))


def test_a_suffix_must_be_one_of_the_given_ones_after_a_name():
    check_suffix(Path("x.json"), ".csv", ".json")
    with pytest.raises(InputError, match=r"end in \.csv or \.json"):
        check_suffix(Path("x.txt"), ".csv", ".json")
    with pytest.raises(InputError, match=r"no name .* result\.json"):
        check_suffix(Path("folder/.json"), ".json")


def test_names_that_no_file_can_have_are_refused(tmp_path):
    check_file(tmp_path / "missing")
    for name, cause in (("\udcff", "not UTF-8"), ("a" * 5000, "cannot be the name")):
        with pytest.raises(InputError, match=cause):
            check_file(tmp_path / name)


def read_map(path: Path, max_bytes: int = 100) -> tuple[str, object]:
    return read_json_object(path, kind="reliability map", command="relmap fit", max_bytes=max_bytes)


def test_json_is_read_as_text_and_content(tmp_path):
    (tmp_path / "x.json").write_text('{"a": "é"}', encoding="utf-8")
    assert read_map(tmp_path / "x.json") == ('{"a": "é"}', {"a": "é"})
    assert read_map(tmp_path / "x.json", max_bytes=11)[1] == {"a": "é"}


@pytest.mark.parametrize(
    ("content", "cause", "remedy"),
    [
        (b'{"a": 1', "not a complete JSON file", "fit the map again"),
        (b"\xff", "not a complete JSON file", "fit the map again"),
        (b"[" * 100_000, "not a complete JSON file", "fit the map again"),
        (b" " * 200_001, "has 200,001 bytes; a reliability map is far smaller", "give a map that `relmap fit` wrote"),
        (None, "does not exist", "`relmap fit` writes a map"),
    ],
)
def test_files_that_are_no_json_objects_are_named_with_the_command_that_writes_them(content, cause, remedy, tmp_path):
    if content is not None:
        (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(InputError, match=rf"x\.json .*{cause}.*; {remedy}"):
        read_map(tmp_path / "x.json", max_bytes=200_000)
