"""Separators and encodings of text."""

import codecs
import gzip
import re

import pytest

from relmap.io.text import SeparatedText
from tests.texts import message_of

TEXTS = {  # name, content, and separator, encoding, whether there is one column
    "commas": ("p.csv", b"a,b\n1,2\n", (",", "utf-8", False)),
    "tabs": ("p.tsv", b"a\tb\n", ("\t", "utf-8", False)),
    "semicolons in csv": ("p.csv", b"a;b\n", (";", "utf-8", False)),
    "bars in tsv": ("p.tsv", b"a|b\n", ("|", "utf-8", False)),
    "one column": ("p.csv", b"a\n1\n\n", (",", "utf-8", True)),
    "one column of tsv": ("p.tsv", b"a\n", ("\t", "utf-8", True)),
    "empty": ("p.csv", b"", (",", "utf-8", True)),
    "gzip": ("p.csv.gz", gzip.compress(b"a;b\n"), (";", "utf-8", False)),
    "gzip with tabs": ("p.tsv.gz", gzip.compress(b"a\tb\n"), ("\t", "utf-8", False)),
    "byte order mark": ("p.csv", codecs.BOM_UTF8 + b"a,b\n", (",", "utf-8", False)),
    "UTF-16": ("p.csv", "ä,b\n".encode("utf-16"), (",", "utf-16", False)),
    "UTF-16, other order": ("p.csv", codecs.BOM_UTF16_BE + "a\tb\n".encode("utf-16-be"), ("\t", "utf-16", False)),
    "Windows": ("p.csv", "ä,b\n".encode("cp1252"), (",", "cp1252", False)),
    "no encoding": ("p.csv", b"\x81,b\n", (",", "utf-8", False)),
}


@pytest.mark.parametrize(("name", "content", "expected"), TEXTS.values(), ids=TEXTS)
def test_separator_and_encoding_are_detected(name, content, expected, tmp_path):
    (tmp_path / name).write_bytes(content)
    text = SeparatedText.from_path(tmp_path / name)
    assert (text.separator, text.encoding, text.has_blank_rows) == expected


def test_a_format_that_differs_from_the_name_is_noted(tmp_path):
    path = tmp_path / "p.csv"
    path.write_bytes("ä|b\n".encode("cp1252"))
    separator, encoding = SeparatedText.from_path(path).notes
    assert re.fullmatch(rf"{re.escape(str(path))} .* bars\.", separator)
    assert re.fullmatch(rf"{re.escape(str(path))} .*UTF-8: .*cp1252; .*", encoding)
    path.write_bytes("ä;b\n".encode())
    (separator,) = SeparatedText.from_path(path).notes
    assert re.fullmatch(rf"{re.escape(str(path))} .* semicolons\.", separator)
    path.write_bytes("ä,b\n".encode())
    assert SeparatedText.from_path(path).notes == []


def test_records_have_the_number_of_their_first_line(tmp_path):
    path = tmp_path / "p.csv"
    path.write_bytes(codecs.BOM_UTF8 + b'a,b\r\n\r\n1,"x\r\ny"\r\n2,z\r\n')
    assert [*SeparatedText.from_path(path).records()] == [(1, ["a", "b"]), (3, ["1", "x\r\ny"]), (5, ["2", "z"])]
    path.write_bytes(b"a\n\n1\n")
    assert [*SeparatedText.from_path(path).records()] == [(1, ["a"]), (2, []), (3, ["1"])]
    path.write_bytes(b"\n\r\na\n\n1\n")
    assert [*SeparatedText.from_path(path).records()] == [(3, ["a"]), (4, []), (5, ["1"])]
    path.write_bytes(b"\n\nsep=;\na;b\n\n1;2\n")
    assert [*SeparatedText.from_path(path).records()] == [(4, ["a", "b"]), (6, ["1", "2"])]


def test_records_are_divided_at_the_separator_of_the_file(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text('a;b\n1,5;"2;5"\n')
    assert [record.fields for record in SeparatedText.from_path(path).records()] == [["a", "b"], ["1,5", "2;5"]]


def test_rows_that_cannot_be_located_keep_their_number(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("a,b\n" + "x" * 200_000 + ",1\n2,3\n")
    assert SeparatedText(path).locate(1) == "row 1 (from 0)"


@pytest.mark.parametrize("content", [gzip.compress(b"a,b\n" * 99)[:-9], b"a,b\n"], ids=["truncated", "not gzipped"])
def test_incomplete_gzip_files_are_rejected(content, tmp_path):
    path = tmp_path / "p.csv.gz"
    path.write_bytes(content)
    expected = rf"{re.escape(str(path))} .*complete gzip file \(.+\); write .*"
    assert re.fullmatch(expected, message_of(SeparatedText.from_path, path))
