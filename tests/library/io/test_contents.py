"""Contents of files: types of columns, and files that are no data."""

import errno
import re
from pathlib import Path

import polars as pl
import pytest

from relmap.io.contents import HEAD_BYTES, check_content, first_line, is_json_object, report_parse_errors
from tests.texts import message_of


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf \n\t", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\n", ".*Git LFS .*`git lfs pull`.*"),
        (b"\n <!DOCTYPE html><p>", r".*web page \(.* b'<!DOCTYPE html>'\), .*"),
        (b"\xef\xbb\xbf<HTML lang='en'>", r""".*web page \(.* b"<HTML lang='en'"\), .*"""),
    ],
)
def test_files_without_data_are_rejected(content, expected, tmp_path):
    path = tmp_path / "p.csv"
    path.write_bytes(content)
    assert re.fullmatch(rf"{re.escape(str(path))} {expected}; !", message_of(check_content, path, "!"))


def test_a_file_that_cannot_be_read_is_reported_with_the_reason(tmp_path, monkeypatch):
    path = tmp_path / "p.csv"
    path.write_bytes(b"a")

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "open", fail)
    message = message_of(check_content, path, "!")
    assert message.startswith(f"{path} ")
    assert message.endswith(": Input/output error; !")


def test_the_first_bytes_of_a_file_are_returned(tmp_path):
    path = tmp_path / "p.csv"
    path.write_bytes(b"a" * (HEAD_BYTES + 1))
    assert check_content(path, "!") == b"a" * HEAD_BYTES
    assert message_of(check_content, tmp_path / "missing.csv", "!") == f"{tmp_path / 'missing.csv'} is missing; !"
    for url in ("https://host/p.csv", "s3://bucket/p.csv"):
        assert re.fullmatch(f"{url} .*URL, .*; download .*", message_of(check_content, path.__class__(url), "!"))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"", True),
        (b"  \r", True),
        (b'{"a": 1}', True),
        (b' {"a": {"b": 1}, "c": {"b": 2}} ', True),
        (b"[1]", False),
        (b"1", False),
        (b'{"a": 1', False),
        (b'{"a": NaN}', False),
        (b'{"a": 1, "a": 1}', False),
        (b'{"a": {"b": 1, "b": 2}}', False),
        (b"[" * 100_000, False),
    ],
)
def test_lines_with_one_json_object_are_recognized(line, expected):
    assert is_json_object(line) is expected


def test_parse_errors_name_the_file_and_the_first_invalid_line(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n2\n')

    def fail(*arguments: object) -> None:
        with report_parse_errors(path, "one JSON object per line", "!", *arguments):
            raise pl.exceptions.ComputeError("first line\nsecond line")

    expected = f"{path}{{}} is not one JSON object per line (first line); !"
    assert message_of(fail) == expected.format("")
    assert message_of(fail, path.read_bytes()) == expected.format(", line 2")
    assert message_of(fail, b"{}\n{}\nx", 7) == expected.format(", line 9")
    assert message_of(fail, b"{}\n") == expected.format("")
    assert first_line(ValueError(f"\n {'x' * 300}\nother")) == "x" * 200


def test_errors_of_the_machine_are_not_errors_of_the_file(tmp_path):
    with pytest.raises(OSError, match="no space"), report_parse_errors(tmp_path, "data", "!"):
        raise OSError(28, "no space")

    def fail() -> None:
        with report_parse_errors(tmp_path, "data", "!"):
            raise OSError("broken footer")

    assert re.fullmatch(rf"{re.escape(str(tmp_path))} .*data \(broken footer\); !", message_of(fail))
