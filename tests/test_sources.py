"""Files of official places: whole and verified, or not there at all."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from threading import Event

import httpx
import pytest
import stamina
from hypothesis import given
from hypothesis import strategies as st
from official_pages import Cut, Fault, Html, LfsPointer, Status, Wrong
from official_server import OfficialServer
from official_sets import internet

from tasks.protocol.errors import BadInput
from tasks.sources import http, hub, reach
from tasks.sources.archive import unpack
from tasks.sources.contents import git_blob_of_file
from tasks.sources.gather import gather
from tasks.sources.http import NotThere, fetch
from tasks.sources.hub import from_hub
from tasks.sources.mirror import checked_mirror, from_mirror
from tasks.sources.origin import Brought, Origin, RawFile

URL = "https://data.example.org/set/table.csv"
CONTENT = b"id,text\n" + b"".join(b"%d,some words about it\n" % row for row in range(20_000))
REVISION = "0123456789abcdef0123456789abcdef01234567"


def declared(content: bytes = CONTENT, path: str = "table.csv", url: str | None = URL) -> RawFile:
    return RawFile(path, url=url, size=len(content), sha256=hashlib.sha256(content).hexdigest())


SIZED = replace(declared(), sha256=None)
BARE = replace(declared(), sha256=None, size=None)


@pytest.fixture
def server(tmp_path, monkeypatch) -> Iterator[OfficialServer]:
    """Every official place, one of which serves CONTENT."""
    with internet(tmp_path, monkeypatch) as here:
        here.serve(URL, CONTENT)
        yield here


def fetched(file: RawFile, folder: Path) -> bytes:
    fetch(file, folder)
    return (folder / file.path).read_bytes()


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("file", [declared(), SIZED, BARE], ids=["hash known", "size known", "nothing known"])
def test_a_file_takes_its_place_and_leaves_nothing_else(server, tmp_path, file):
    assert fetched(file, tmp_path / "raw") == CONTENT
    assert names(tmp_path / "raw") == ["table.csv"]


def test_what_is_there_is_not_asked_for_again(server, tmp_path):
    fetch(declared(), tmp_path / "raw")
    asked = len(server.requests)
    fetch(declared(), tmp_path / "raw")
    assert len(server.requests) == asked


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("file", [declared(), SIZED, BARE], ids=["hash known", "size known", "nothing known"])
def test_a_cut_transfer_goes_on_where_it_was_cut(server, tmp_path, reset, file):
    server.fault(URL, Cut(200_000, reset))
    assert fetched(file, tmp_path / "raw") == CONTENT
    first, second = server.requests
    assert first.range is None
    start = int(second.range.removeprefix("bytes=").removesuffix("-"))
    assert 0 < start <= 200_000
    assert second.sent == len(CONTENT) - start


def test_a_cut_without_a_length_is_noticed_where_the_size_is_known(server, tmp_path):
    server.serve(URL, CONTENT, chunked=True)
    server.fault(URL, Cut(150_000))
    assert fetched(declared(), tmp_path / "raw") == CONTENT


def test_a_server_that_knows_no_ranges_sends_the_whole_again(server, tmp_path):
    server.serve(URL, CONTENT, ranges=False)
    server.fault(URL, Cut(150_000))
    assert fetched(declared(), tmp_path / "raw") == CONTENT
    assert server.requests[-1].sent == len(CONTENT)


def interrupted(server: OfficialServer, folder: Path, file: RawFile) -> None:
    """What a process leaves that gave up after many cuts."""
    server.fault(URL, *[Cut(50_000)] * http.TRIES["attempts"])
    with pytest.raises(BadInput, match="cannot be downloaded"):
        fetch(file, folder)
    assert not (folder / "table.csv").exists()
    server.requests.clear()


@pytest.mark.parametrize("file", [declared(), BARE], ids=["hash known", "nothing known"])
def test_a_later_call_asks_for_the_rest_only(server, tmp_path, file):
    interrupted(server, tmp_path, file)
    have = (tmp_path / "table.csv.partial").stat().st_size
    assert fetched(file, tmp_path) == CONTENT
    assert [one.range for one in server.requests] == [f"bytes={have}-"]
    assert names(tmp_path / "raw") == []


@pytest.mark.parametrize("file", [declared(CONTENT.upper()), BARE], ids=["hash known", "nothing known"])
def test_a_file_that_changed_meanwhile_is_fetched_whole(server, tmp_path, file):
    interrupted(server, tmp_path, file)
    server.serve(URL, CONTENT.upper())
    assert fetched(file, tmp_path) == CONTENT.upper()
    assert server.requests[-1].sent == len(CONTENT)


def test_without_a_tag_and_a_hash_nothing_is_glued_together(server, tmp_path):
    interrupted(server, tmp_path, BARE)
    (tmp_path / "table.csv.partial.etag").write_text('W/"weak"')
    assert fetched(BARE, tmp_path) == CONTENT
    assert [one.range for one in server.requests] == [None]


def test_what_was_whole_before_a_crash_is_verified_and_not_asked_for(server, tmp_path):
    (tmp_path / "table.csv.partial").write_bytes(CONTENT)
    assert fetched(declared(), tmp_path) == CONTENT
    assert server.requests == []


def test_what_was_whole_but_of_unknown_size_is_found_to_be_whole(server, tmp_path):
    interrupted(server, tmp_path, BARE)
    (tmp_path / "table.csv.partial").write_bytes(CONTENT)
    assert fetched(BARE, tmp_path) == CONTENT
    assert [one.status for one in server.requests] == [416]


@pytest.mark.parametrize("faults", [(Status(503, times=2),), (Status(429, retry_after=3),), (Status(500), Status(502))])
def test_a_busy_server_is_asked_again(server, tmp_path, faults):
    server.fault(URL, *faults)
    assert fetched(declared(), tmp_path) == CONTENT


@pytest.mark.parametrize(("asked", "waited"), [("7", 7.0), ("100000", http.LONGEST_WAIT), ("0", True), ("soon", True)])
def test_a_busy_server_says_how_long_it_wants_to_be_left_alone(asked, waited):
    answer = httpx.Response(429, headers={"Retry-After": asked})
    assert http.worth_another_try(answer) == waited


@pytest.mark.parametrize("code", [400, 401, 403, 404, 410])
def test_a_refusal_is_asked_once(server, tmp_path, code):
    server.fault(URL, Status(code))
    with pytest.raises(BadInput, match=f"the server answers {code}") as told:
        fetch(declared(), tmp_path)
    assert isinstance(told.value, NotThere) == (code in (404, 410))
    assert len(server.requests) == 1


def test_a_server_that_stays_busy_is_left_in_the_end(server, tmp_path):
    server.fault(URL, Status(503, times=50))
    with pytest.raises(BadInput, match="the server answers 503"):
        fetch(declared(), tmp_path)
    assert len(server.requests) == http.TRIES["attempts"]


NO_DATA: dict[str, tuple[Fault, str]] = {
    "other bytes": (Wrong(CONTENT.swapcase()), "its SHA-256 is"),
    "more bytes": (Wrong(CONTENT + b"more"), f"it has {len(CONTENT) + 4} bytes, not {len(CONTENT)}"),
    "a page": (Html(), "is a web page"),
    "a pointer": (LfsPointer(), "is a Git LFS pointer"),
    "nothing": (Wrong(b""), "is empty"),
}


@pytest.mark.parametrize(("fault", "told"), NO_DATA.values(), ids=NO_DATA)
def test_what_is_not_the_file_is_refused_by_name_and_not_kept(server, tmp_path, fault, told):
    server.fault(URL, fault)
    with pytest.raises(BadInput, match=told):
        fetch(declared(), tmp_path)
    assert not {"table.csv", "table.csv.partial"} & set(names(tmp_path))
    assert len(server.requests) == 1
    assert fetched(declared(), tmp_path) == CONTENT


@pytest.mark.parametrize(
    "fault", [NO_DATA[one][0] for one in ("a page", "a pointer", "nothing")], ids=["a page", "a pointer", "nothing"]
)
def test_what_is_no_data_is_refused_where_nothing_is_known_of_the_file_too(server, tmp_path, fault):
    server.fault(URL, fault)
    with pytest.raises(BadInput):
        fetch(BARE, tmp_path)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/table.csv", "https://no-such-host.invalid/table.csv"])
def test_a_host_that_cannot_be_reached_is_given_up_at_once(tmp_path, monkeypatch, url):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    began = time.monotonic()
    with stamina.set_testing(False), pytest.raises(BadInput, match=f"^{re.escape(url)}: .* cannot be reached"):
        fetch(RawFile("table.csv", url=url), tmp_path)
    assert time.monotonic() - began < 20
    assert names(tmp_path) == []


def test_a_name_server_that_is_silent_is_not_waited_for(tmp_path, monkeypatch):
    silence = Event()

    def unanswered(*_: object, **__: object) -> None:
        silence.wait(30)
        raise OSError("no name server answers")

    monkeypatch.setattr(reach, "getproxies", dict)
    monkeypatch.setattr(reach, "LONGEST", 0.1)
    monkeypatch.setattr(reach.socket, "create_connection", unanswered)
    with pytest.raises(BadInput, match=r"data\.example\.org cannot be reached \(no answer within 0 s\)"):
        fetch(declared(), tmp_path)
    silence.set()


# What a server should not do, and what it is asked for


def answered(monkeypatch, *answers: httpx.Response | Exception) -> list[httpx.Request]:
    """Let the next requests have these answers; returns the list in which they will stand."""
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        given = answers[len(asked) - 1]
        if isinstance(given, Exception):
            raise given
        return given

    monkeypatch.setattr(http, "_client", lambda: httpx.Client(transport=httpx.MockTransport(answer)))
    monkeypatch.setattr(http, "reached", lambda _: None)
    return asked


def streamed(status: int, content: bytes, **headers: str) -> httpx.Response:
    """An answer whose body is read as it comes."""
    return httpx.Response(status, headers=headers, stream=httpx.ByteStream(content))


def test_bytes_are_asked_for_as_they_are_and_packed_ones_refused(tmp_path, monkeypatch):
    asked = answered(monkeypatch, streamed(200, gzip.compress(CONTENT), **{"Content-Encoding": "gzip"}))
    with pytest.raises(BadInput, match="is sent packed"):
        fetch(BARE, tmp_path)
    assert asked[0].headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("cut", [httpx.ReadTimeout("silence"), httpx.ReadError("reset")], ids=repr)
def test_silence_in_a_transfer_is_a_cut(tmp_path, monkeypatch, cut):
    answered(monkeypatch, cut, streamed(200, CONTENT))
    assert fetched(declared(), tmp_path) == CONTENT


@pytest.mark.parametrize(
    "headers", [{"Content-Range": "bytes 7-9/12", "ETag": '"a"'}, {"Content-Range": "bytes 4-9/10", "ETag": '"b"'}]
)
def test_another_part_or_a_part_of_another_file_is_not_glued_on(tmp_path, monkeypatch, headers):
    (tmp_path / "table.csv.partial").write_bytes(b"old,")
    (tmp_path / "table.csv.partial.etag").write_text('"a"')
    answers = streamed(206, b"foreign", **headers), streamed(200, b"new,1\n", ETag='"b"')
    asked = answered(monkeypatch, *answers)
    assert fetched(BARE, tmp_path) == b"new,1\n"
    assert [one.headers.get("Range") for one in asked] == ["bytes=4-", None]


@pytest.mark.parametrize("file", [replace(BARE, size=None), replace(BARE, md5=hashlib.md5(b"0123456789").hexdigest())])
def test_a_part_that_ends_early_is_gone_on_from(tmp_path, monkeypatch, file):
    (tmp_path / "table.csv.partial").write_bytes(b"0123")
    (tmp_path / "table.csv.partial.etag").write_text('"a"')
    some = [{"Content-Range": part, "ETag": '"a"'} for part in ("bytes 4-6/10", "bytes 7-9/10")]
    asked = answered(monkeypatch, streamed(206, b"456", **some[0]), streamed(206, b"789", **some[1]))
    assert fetched(file, tmp_path) == b"0123456789"
    assert [one.headers["Range"] for one in asked] == ["bytes=4-", "bytes=7-"]


def test_no_try_tells_a_password(server, tmp_path):
    told: list[str] = []
    stamina.instrumentation.set_on_retry_hooks([lambda details: told.append(str(details.caused_by))])
    server.fault(URL, Status(503))
    try:
        fetch(replace(declared(), url=URL.replace("https://", "https://me:secret@")), tmp_path)
    finally:
        stamina.instrumentation.set_on_retry_hooks(None)
    assert told == [f"{URL}: 503 Service Unavailable"]


@pytest.mark.parametrize("url", ["http://a..b/x", f"http://{'a' * 70}.org/x"])
def test_a_name_that_no_host_can_have_is_told(tmp_path, monkeypatch, url):
    monkeypatch.setattr(reach, "getproxies", dict)
    with pytest.raises(BadInput, match="cannot be reached"):
        fetch(RawFile("table.csv", url=url), tmp_path)


@pytest.mark.parametrize("content", [b'{"error": "log in"}', b"id,text\n"])
def test_an_answer_that_came_whole_and_is_too_short_is_no_cut(server, tmp_path, content):
    server.fault(URL, Wrong(content))
    with pytest.raises(BadInput, match=f"it has {len(content)} bytes, not {len(CONTENT)}"):
        fetch(declared(), tmp_path)
    assert len(server.requests) == 1
    assert "table.csv.partial" not in names(tmp_path)


def test_a_page_is_known_with_a_byte_order_mark_too(server, tmp_path):
    server.fault(URL, Wrong(b"\xef\xbb\xbf<!DOCTYPE html><html></html>"))
    with pytest.raises(BadInput, match="is a web page"):
        fetch(BARE, tmp_path)


def test_a_file_of_which_only_an_md5_is_known_is_held_to_it(server, tmp_path):
    file = replace(SIZED, md5=hashlib.md5(CONTENT, usedforsecurity=False).hexdigest())
    assert fetch(file, tmp_path / "one") == "MD5"
    server.fault(URL, Wrong(CONTENT.swapcase()))
    with pytest.raises(BadInput, match="its MD5 is"):
        fetch(file, tmp_path / "two")


def test_what_an_earlier_call_left_is_verified_again(server, tmp_path):
    (tmp_path / "table.csv").write_bytes(CONTENT.swapcase())
    assert fetched(declared(), tmp_path) == CONTENT


@pytest.mark.parametrize("variable", ["https_proxy", "SSL_CERT_FILE"])
def test_a_proxy_or_a_certificate_that_cannot_be_used_is_told(server, tmp_path, monkeypatch, variable):
    monkeypatch.setenv(variable, "gopher://nowhere")
    with pytest.raises(BadInput, match="the proxy or the certificates"):
        fetch(declared(), tmp_path)


def test_a_password_in_an_address_is_not_told():
    assert reach.shown("https://me:secret@host.org/a?signature=b") == "https://host.org/a"
    assert reach.shown(URL) == URL


# Archives


def packed(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def laid(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "set.zip"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("above", ["", "SET-1/", "a/b/"])
def test_the_wanted_files_of_an_archive_are_unpacked_and_no_other(tmp_path, above):
    archive = laid(tmp_path, packed(**{f"{above}Fold1/train.txt": CONTENT, f"{above}Fold2/train.txt": b"other"}))
    unpack(archive, [declared(path="Fold1/train.txt")], tmp_path / "raw")
    assert names(tmp_path / "raw") == ["Fold1/train.txt"]
    assert (tmp_path / "raw/Fold1/train.txt").read_bytes() == CONTENT


def test_no_name_in_an_archive_leads_out_of_the_folder(tmp_path):
    archive = laid(tmp_path, packed(**{"../../Fold1/train.txt": CONTENT, "/etc/other": b"x"}))
    unpack(archive, [declared(path="Fold1/train.txt")], tmp_path / "deep/raw")
    assert names(tmp_path) == ["deep/raw/Fold1/train.txt", "set.zip"]


def encrypted() -> bytes:
    content = bytearray(packed(**{"t.txt": b"words"}))
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    return bytes(content)


BROKEN = {
    "no archive": (b"id,text\n1,a\n", "is not a whole zip archive"),
    "a cut one": (packed(**{"t.txt": CONTENT})[:-200], "is not a whole zip archive"),
    "one that lacks the file": (packed(other=b"x"), "holds 0 files t.txt"),
    "one that has it twice": (packed(**{"a/t.txt": b"x", "b/t.txt": b"y"}), "holds 2 files t.txt"),
    "an encrypted one": (encrypted(), "t.txt is encrypted"),
    "a bomb": (packed(**{"t.txt": bytes(3_000_000)}), "over 100 times its own size"),
    "other content": (packed(**{"t.txt": CONTENT.swapcase()}), "t.txt in .* is not the official file"),
}


@pytest.mark.parametrize(("content", "told"), BROKEN.values(), ids=BROKEN)
def test_a_bad_archive_is_refused_by_name(tmp_path, content, told):
    with pytest.raises(BadInput, match=told):
        unpack(laid(tmp_path, content), [replace(declared(path="t.txt"), url=None)], tmp_path / "raw")
    assert not (tmp_path / "raw/t.txt").exists()


def test_a_flipped_bit_in_an_archive_is_noticed_where_no_hash_is_known(tmp_path):
    content = bytearray(packed(**{"t.txt": CONTENT}))
    content[len(content) // 2] ^= 4
    with pytest.raises(BadInput, match="is not"):
        unpack(laid(tmp_path, bytes(content)), [RawFile("t.txt")], tmp_path / "raw")
    assert not (tmp_path / "raw/t.txt").exists()


# Names that others choose

parts = st.sampled_from(["us", "train-1.parquet", "..", ".", "", "x.csv", "~", "a b"])


@given(st.lists(parts, min_size=1, max_size=5), st.sampled_from(["us/*.parquet", "*.csv", "**/*", "**/*.csv", "*/*"]))
def test_a_name_that_fits_stays_in_the_folder(path, pattern):
    name = "/".join(path)
    if RawFile(pattern).fits(name):
        folder = Path("/data/raw")
        assert Path(os.path.normpath(folder / name)).is_relative_to(folder)
        assert PurePosixPath(name).as_posix() == name


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("us/train-*.parquet", "us/train-00000-of-00001.parquet", True),
        ("us/train-*.parquet", "us/train-/../../x.parquet", False),
        ("*.csv", "a/b.csv", False),
        ("**/*.csv", "b.csv", True),
        ("**/*.csv", "a/b/c.csv", True),
        ("**/*.csv", "../c.csv", False),
        ("**/*.csv", "/c.csv", False),
    ],
)
def test_a_pattern_fits_names_folder_by_folder(pattern, path, fits):
    assert RawFile(pattern).fits(path) == fits


# All files of an origin


def origin(**changes: object) -> Origin:
    made = Origin(
        homepage="https://data.example.org", revision=REVISION, licence="MIT", terms="Free.", files=(declared(),)
    )
    return replace(made, **changes)


def index(source: str = "official", revision: str | None = REVISION, content: bytes = CONTENT) -> str:
    file = {"path": "table.csv", "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return json.dumps({"source": source, "revision": revision, "files": [file]})


def test_a_mirrors_folder_is_used_and_nothing_is_asked_for(server, tmp_path):
    (tmp_path / "mirror/set/deeper").mkdir(parents=True)
    (tmp_path / "mirror/set/deeper/table.csv").write_bytes(CONTENT)
    brought = gather(["set"], origin(), tmp_path / "raw", str(tmp_path / "mirror"))
    assert brought == {"table.csv": Brought(str(tmp_path / "mirror/set/deeper/table.csv"), "SHA-256")}
    assert names(tmp_path / "raw") == ["table.csv"]
    assert server.requests == []


def test_what_a_mirror_lacks_is_fetched_from_the_source(server, tmp_path):
    other = declared(b"x" * 30, "other.csv", "https://data.example.org/other.csv")
    server.serve(str(other.url), b"x" * 30)
    (tmp_path / "mirror/set").mkdir(parents=True)
    (tmp_path / "mirror/set/table.csv").write_bytes(CONTENT)
    brought = gather(["set"], origin(files=(declared(), other)), tmp_path / "raw", str(tmp_path / "mirror"))
    assert brought["other.csv"].source == other.url
    assert names(tmp_path / "raw") == ["other.csv", "table.csv"]


@pytest.mark.parametrize(("text", "told"), [(index("simulated", None), "of source simulated"), ("{", "is not what")])
def test_a_twin_never_stands_in_for_official_files(server, tmp_path, text, told):
    (tmp_path / "mirror/set").mkdir(parents=True)
    (tmp_path / "mirror/set/source.json").write_text(text)
    (tmp_path / "mirror/set/table.csv").write_bytes(CONTENT)
    with pytest.raises(BadInput, match=told):
        gather(["set"], origin(files=(BARE,)), tmp_path / "raw", str(tmp_path / "mirror"))


def test_a_mirror_with_the_wrong_bytes_is_refused_though_the_source_has_the_right_ones(server, tmp_path):
    (tmp_path / "mirror/set").mkdir(parents=True)
    (tmp_path / "mirror/set/table.csv").write_bytes(CONTENT.swapcase())
    with pytest.raises(BadInput, match=r"set: .*table.csv is not the official file"):
        gather(["set"], origin(), tmp_path / "raw", str(tmp_path / "mirror"))
    assert not (tmp_path / "raw/table.csv").exists()


MIRROR = "https://mirror.example.org/data/raw"


def test_the_raw_folder_of_another_machine_is_a_mirror(server, tmp_path):
    server.serve(f"{MIRROR}/set/source.json", index().encode())
    server.serve(f"{MIRROR}/set/table.csv", CONTENT)
    brought, complete = from_mirror(MIRROR, "set", REVISION, [RawFile("*.csv")], tmp_path / "raw")
    assert complete
    assert brought == {"table.csv": Brought(f"{MIRROR}/set/table.csv", "SHA-256")}
    assert names(tmp_path / "raw") == ["table.csv"]


def test_a_mirror_that_does_not_have_the_set_is_passed_by(server, tmp_path):
    assert gather(["set"], origin(), tmp_path / "raw", MIRROR)["table.csv"].source == URL


def test_a_mirrors_index_cannot_lead_out_of_the_folder(server, tmp_path):
    text = json.dumps({**json.loads(index()), "files": [{"path": "../out.csv", "size": 1, "sha256": "0"}]})
    server.serve(f"{MIRROR}/set/source.json", text.encode())
    assert from_mirror(MIRROR, "set", REVISION, [RawFile("**/*.csv")], tmp_path / "raw").brought == {}


def test_a_mirrors_index_tells_the_bytes_where_nothing_is_pinned(server, tmp_path):
    (tmp_path / "mirror/set").mkdir(parents=True)
    (tmp_path / "mirror/set/source.json").write_text(index())
    (tmp_path / "mirror/set/table.csv").write_bytes(CONTENT[:1000])
    with pytest.raises(BadInput, match=f"it has 1000 bytes, not {len(CONTENT)}"):
        gather(["set"], origin(files=(BARE,)), tmp_path / "raw", str(tmp_path / "mirror"))


@pytest.mark.parametrize("place", ["/no/such/folder", "file:///tmp", "ftp://host/x"])
def test_a_mirror_that_is_not_there_is_told(place):
    with pytest.raises(BadInput, match=r"DATA_MIRROR is .*, which is neither"):
        checked_mirror(place)


def test_a_mirror_is_a_folder_or_an_address(tmp_path):
    assert checked_mirror(None) is checked_mirror("") is None
    assert checked_mirror(str(tmp_path)) == str(tmp_path)
    assert checked_mirror(MIRROR) == MIRROR
    with pytest.raises(BadInput, match="which is no address"):
        checked_mirror("http://host:port/x")


def test_an_address_without_an_index_has_files_and_archives_by_name(server, tmp_path):
    content = packed(**{"SET/table.csv": CONTENT})
    server.serve(f"{MIRROR}/set/set.zip", content)
    place = origin(files=(replace(declared(), url=None),), archive=declared(content, "set.zip", ZIP))
    assert gather(["set"], place, tmp_path / "raw", MIRROR)["table.csv"].source == f"{MIRROR}/set/set.zip"
    server.serve(f"{MIRROR}/other/table.csv", CONTENT)
    assert gather(["other"], origin(), tmp_path / "2", MIRROR)["table.csv"].source == f"{MIRROR}/other/table.csv"


def test_a_name_and_a_password_for_a_mirror_are_written_nowhere(server, tmp_path):
    server.serve(f"{MIRROR}/set/table.csv", CONTENT)
    mirror = MIRROR.replace("https://", "https://me:secret@")
    assert gather(["set"], origin(), tmp_path / "raw", mirror)["table.csv"].source == f"{MIRROR}/set/table.csv"
    with pytest.raises(BadInput) as told:
        gather(["other"], origin(files=(replace(BARE, url=f"{URL}x"),)), tmp_path / "2", mirror)
    assert "secret" not in str(told.value)


ANY = tuple(RawFile(f"**/*.{ending}", required=False) for ending in ("csv", "parquet"))


def test_a_raw_folder_with_files_at_its_top_and_below_is_a_mirror(tmp_path):
    (tmp_path / "mirror/set/data").mkdir(parents=True)
    for name in ("top.csv", "data/below.csv"):
        (tmp_path / "mirror/set" / name).write_bytes(CONTENT)
    brought, _ = from_mirror(str(tmp_path / "mirror"), "set", REVISION, ANY, tmp_path / "raw")
    assert sorted(brought) == names(tmp_path / "raw") == ["data/below.csv", "top.csv"]


def test_of_a_set_without_a_list_of_files_a_mirror_is_all_only_where_it_says_so(server, repository, tmp_path):
    (tmp_path / "mirror/set").mkdir(parents=True)
    (tmp_path / "mirror/set/table.csv").write_bytes(CONTENT)
    place = origin(files=ANY, repository="someone/set")
    brought = gather(["set"], place, tmp_path / "raw", str(tmp_path / "mirror"))
    assert sorted(brought) == ["table.csv", "us/train-00000-of-00001.parquet"]
    (tmp_path / "mirror/set/source.json").write_text(index())
    server.requests.clear()
    assert list(gather(["set"], place, tmp_path / "2", str(tmp_path / "mirror"))) == ["table.csv"]
    assert server.requests == []


def test_a_mirror_must_have_what_its_index_lists(server, tmp_path):
    stated = json.loads(index())
    stated["files"].append({"path": "more.csv", "size": 1, "sha256": "0"})
    (tmp_path / "mirror/set").mkdir(parents=True)
    (tmp_path / "mirror/set/source.json").write_text(json.dumps(stated))
    (tmp_path / "mirror/set/table.csv").write_bytes(CONTENT)
    server.serve(f"{MIRROR}/set/source.json", json.dumps(stated).encode())
    server.serve(f"{MIRROR}/set/table.csv", CONTENT)
    for mirror in (str(tmp_path / "mirror"), MIRROR):
        with pytest.raises(BadInput, match=r"source\.json lists more\.csv, which is not there"):
            from_mirror(mirror, "set", REVISION, [RawFile("*.csv")], tmp_path / "raw")


def test_the_note_of_what_was_brought_is_never_data(tmp_path):
    (tmp_path / "mirror/set").mkdir(parents=True)
    (tmp_path / "mirror/set/source.json").write_text(index())
    (tmp_path / "mirror/set/table.csv").write_bytes(CONTENT)
    files = [RawFile(f"**/*.{ending}", required=False) for ending in ("csv", "json")]
    assert list(from_mirror(str(tmp_path / "mirror"), "set", REVISION, files, tmp_path / "raw").brought) == [
        "table.csv"
    ]
    assert not RawFile("*.json").fits("source.json")


def test_a_mirrors_folder_is_read_at_its_top_before_below(tmp_path):
    (tmp_path / "mirror/set/below").mkdir(parents=True)
    (tmp_path / "mirror/set/table.csv").write_bytes(CONTENT)
    (tmp_path / "mirror/set/below/table.csv").write_bytes(b"other")
    from_mirror(str(tmp_path / "mirror"), "set", REVISION, [declared()], tmp_path / "raw")
    assert (tmp_path / "raw/table.csv").read_bytes() == CONTENT


def test_a_file_that_was_torn_out_of_its_archive_is_unpacked_again(server, tmp_path):
    content = packed(**{"SET/table.csv": CONTENT})
    server.serve(ZIP, content)
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/table.csv").write_bytes(CONTENT[:1000])
    place = origin(files=(replace(declared(), url=None),), archive=declared(content, "set.zip", ZIP))
    gather(["set"], place, tmp_path / "raw", None)
    assert (tmp_path / "raw/table.csv").read_bytes() == CONTENT


def test_what_was_brought_in_another_way_does_not_stay(server, tmp_path):
    (tmp_path / "raw").mkdir()
    for name in ("train-00000-of-00003.parquet", "set.zip.partial", "set.zip.partial.etag"):
        (tmp_path / "raw" / name).write_bytes(b"of before")
    gather(["set"], origin(), tmp_path / "raw", None)
    assert names(tmp_path / "raw") == ["table.csv"]


def test_an_archive_that_was_unpacked_already_is_not_asked_for_again(server, tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/table.csv").write_bytes(CONTENT)
    place = origin(files=(replace(declared(), url=None),), archive=declared(b"zip", "set.zip", ZIP))
    assert gather(["set"], place, tmp_path / "raw", None) == {"table.csv": Brought(ZIP, "SHA-256")}
    assert server.requests == []


def test_an_entry_of_another_name_finds_the_set_in_a_mirror(server, tmp_path):
    (tmp_path / "mirror/set").mkdir(parents=True)
    (tmp_path / "mirror/set/table.csv").write_bytes(CONTENT)
    gather(["set_boosted", "set"], origin(), tmp_path / "raw", str(tmp_path / "mirror"))
    assert server.requests == []


def test_a_failed_download_says_what_to_put_where(server, tmp_path):
    server.fault(URL, Status(404))
    with pytest.raises(BadInput) as told:
        gather(["set"], origin(), tmp_path / "raw", None)
    for word in ("set: ", URL, "404", f"{len(CONTENT):,} bytes", "<folder>/set/", "DATA_MIRROR=<folder>", REVISION):
        assert word in str(told.value)


def test_of_a_table_in_parts_all_must_be_there(server, tmp_path):
    (tmp_path / "mirror/set").mkdir(parents=True)
    for part in (0, 2):
        (tmp_path / f"mirror/set/train-0000{part}-of-00003.parquet").write_bytes(CONTENT)
    with pytest.raises(BadInput, match=r"train-00001-of-00003\.parquet is missing"):
        gather(["set"], origin(files=(RawFile("train-*.parquet"),)), tmp_path / "raw", str(tmp_path / "mirror"))


ZIP = "https://data.example.org/set.zip"


def test_an_archive_is_unpacked_and_thrown_away(server, tmp_path):
    content = packed(**{"SET/table.csv": CONTENT})
    server.serve(ZIP, content)
    place = origin(files=(replace(declared(), url=None),), archive=declared(content, "set.zip", ZIP))
    assert gather(["set"], place, tmp_path / "raw", None) == {"table.csv": Brought(ZIP, "SHA-256")}
    assert names(tmp_path / "raw") == ["table.csv"]


def test_an_archive_that_is_not_whole_is_not_kept(server, tmp_path):
    server.serve(ZIP, packed(**{"SET/table.csv": CONTENT})[:-50])
    place = origin(files=(replace(declared(), url=None),), archive=RawFile("set.zip", url=ZIP))
    with pytest.raises(BadInput, match="is not a whole zip archive"):
        gather(["set"], place, tmp_path / "raw", None)
    server.serve(ZIP, packed(**{"SET/table.csv": CONTENT}))
    assert gather(["set"], place, tmp_path / "raw", None) == {"table.csv": Brought(ZIP, "SHA-256")}


def test_an_archive_may_lie_in_a_mirror(server, tmp_path):
    content = packed(**{"SET/table.csv": CONTENT})
    (tmp_path / "mirror/set").mkdir(parents=True)
    (tmp_path / "mirror/set/set.zip").write_bytes(content)
    place = origin(files=(replace(declared(), url=None),), archive=declared(content, "set.zip", ZIP))
    brought = gather(["set"], place, tmp_path / "raw", str(tmp_path / "mirror"))
    assert brought == {"table.csv": Brought(str(tmp_path / "mirror/set/set.zip"), "SHA-256")}
    assert server.requests == []


# The hub


@pytest.fixture
def repository(server, tmp_path) -> Path:
    folder = tmp_path / "repository"
    (folder / "us").mkdir(parents=True)
    (folder / "README.md").write_text("---\nlicense: mit\n---\nWords.\n")
    (folder / "us/train-00000-of-00001.parquet").write_bytes(b"PAR1" + CONTENT + b"PAR1")
    server.repository("someone/set", REVISION, folder)
    return folder


FILES = [RawFile("us/train-*.parquet"), RawFile("README.md")]


def test_files_of_a_repository_are_those_of_the_pinned_revision(server, repository, tmp_path):
    brought = from_hub("someone/set", REVISION, FILES, tmp_path / "raw")
    assert brought["README.md"] == Brought(f"hf://datasets/someone/set@{REVISION}/README.md", "SHA-1 of git")
    assert names(tmp_path / "raw") == names(repository)
    for name in names(repository):
        assert (tmp_path / "raw" / name).read_bytes() == (repository / name).read_bytes()
    assert all(REVISION in one.url for one in server.requests)


@pytest.mark.parametrize("name", ["us/train-00000-of-00001.parquet", "README.md"])
def test_files_of_a_repository_are_verified_by_the_hash_that_the_hub_states(server, repository, tmp_path, name):
    server.fault(f"someone/set/{name}", Wrong((repository / name).read_bytes().swapcase()))
    with pytest.raises(BadInput, match="is not the official file: its SHA-"):
        from_hub("someone/set", REVISION, FILES, tmp_path / "raw")
    assert not (tmp_path / "raw" / name).exists()


def test_a_file_of_a_repository_goes_on_where_it_was_cut(server, repository, tmp_path):
    server.fault("someone/set/us/train-00000-of-00001.parquet", Cut(1000))
    from_hub("someone/set", REVISION, FILES, tmp_path / "raw")
    assert {one.range for one in server.requests if "train" in one.url} == {None, "bytes=1000-"}
    assert [one.sent for one in server.requests if one.status == 206] == [len(CONTENT) + 8 - 1000]


def listing(server: OfficialServer) -> str:
    return f"{server.address}/api/datasets/someone/set/revision/{REVISION}?blobs=true"


def test_a_busy_hub_is_asked_again(server, repository, tmp_path):
    server.fault(listing(server), Status(503, times=2))
    from_hub("someone/set", REVISION, FILES, tmp_path / "raw")


def test_a_list_of_files_that_is_cut_is_asked_for_again(server, repository, tmp_path):
    server.fault(listing(server), Cut(30))
    from_hub("someone/set", REVISION, FILES, tmp_path / "raw")


def test_a_token_goes_to_the_hub(server, repository, tmp_path, monkeypatch):
    sent = []
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    monkeypatch.setattr(hub, "fetch", lambda _, __, headers: sent.append(headers["authorization"]) or "size")
    from_hub("someone/set", REVISION, FILES, tmp_path / "raw")
    assert sent == ["Bearer hf_mine"] * 2


def test_a_page_in_place_of_the_list_of_files_is_told(server, repository, tmp_path):
    server.fault(listing(server), Html())
    with pytest.raises(BadInput, match="is no list of its files"):
        from_hub("someone/set", REVISION, FILES, tmp_path / "raw")


def test_a_hub_that_cannot_be_reached_is_told_at_once(server, tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(BadInput, match=r"the hub cannot be reached for .*someone/set: ConnectError"):
        from_hub("someone/set", REVISION, FILES, tmp_path / "raw")


@pytest.mark.parametrize(("name", "revision"), [("someone/other", REVISION), ("someone/set", REVISION[::-1])])
def test_what_the_hub_does_not_have_is_said(server, repository, tmp_path, name, revision):
    with pytest.raises(BadInput, match=f"{name} at {revision}: (.|\n)*40[14]"):
        from_hub(name, revision, FILES, tmp_path / "raw")


def test_a_file_that_the_repository_does_not_have_is_said(server, repository, tmp_path):
    with pytest.raises(BadInput, match=r"holds no es/train-\*.parquet; it holds README.md, us/train"):
        from_hub("someone/set", REVISION, [RawFile("es/train-*.parquet")], tmp_path / "raw")


def cached(repository: Path, cache: Path) -> None:
    """Put a repository into the cache of huggingface_hub, as it lays it out."""
    home = cache / "datasets--someone--set"
    for name in names(repository):
        content = (repository / name).read_bytes()
        blob = hashlib.sha256(content).hexdigest() if name.endswith("parquet") else git_blob_of_file(repository / name)
        (home / "blobs").mkdir(parents=True, exist_ok=True)
        (home / "blobs" / blob).write_bytes(content)
        link = home / "snapshots" / REVISION / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(home / "blobs" / blob)


def test_what_the_hubs_own_cache_holds_is_not_downloaded_again(server, repository, tmp_path):
    cached(repository, tmp_path / "hub_cache")
    from_hub("someone/set", REVISION, FILES, tmp_path / "raw")
    assert names(tmp_path / "raw") == names(repository)
    assert all("/api/" in one.url for one in server.requests)


def test_offline_the_cache_is_all_there_is(server, repository, tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(BadInput, match=r"HF_HUB_OFFLINE is set, and .* holds no us/train"):
        from_hub("someone/set", REVISION, FILES, tmp_path / "raw")
    cached(repository, tmp_path / "hub_cache")
    from_hub("someone/set", REVISION, FILES, tmp_path / "raw")
    assert names(tmp_path / "raw") == names(repository)
    assert server.requests == []


def test_a_spoilt_cache_is_noticed(server, repository, tmp_path):
    cached(repository, tmp_path / "hub_cache")
    blob = next((tmp_path / "hub_cache").rglob("blobs/*"))
    blob.write_bytes(blob.read_bytes().swapcase())
    with pytest.raises(BadInput, match="is not the official file"):
        from_hub("someone/set", REVISION, FILES, tmp_path / "raw")
