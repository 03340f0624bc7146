"""The server of the tests behaves as the official places do, for the clients that we have."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256

import httpx
import pytest
from official_pages import CDN, Cut, Html, LfsPointer, Slow, Stall, Status, Wrong
from official_server import OfficialServer

RAW = "https://github.com/amazon-science/esci-data/raw/7916cdf/examples.parquet"
MEDIA = "https://media.githubusercontent.com/media/amazon-science/esci-data/7916cdf/examples.parquet"
PLAIN = "https://raw.githubusercontent.com/wayfair/WANDS/3b74dcf/dataset/query.csv"
CONTENT = bytes(range(256)) * 1000
SIZE = len(CONTENT)
LARGE = CONTENT * 60  # huggingface_hub keeps what it has read in steps of 10 MiB
STEP = 10 << 20
REPOSITORY, REVISION = "mteb/esci", "237f74be0503482b4e8bc1b83778c7a87ea93fd8"
SNAPSHOT = """
import sys
from huggingface_hub import snapshot_download

_, name, revision, folder, *patterns = sys.argv
snapshot_download(
    name, repo_type="dataset", revision=revision, allow_patterns=patterns, cache_dir=folder, max_workers=1
)
"""


@pytest.fixture
def server(tmp_path, monkeypatch):
    with OfficialServer(tmp_path) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        server.serve(PLAIN, CONTENT)
        server.redirect(RAW, MEDIA)
        server.serve(MEDIA, CONTENT)
        yield server


@pytest.fixture
def hub(server, tmp_path):
    """The same server with a data set on its hub."""
    folder = tmp_path / "repository"
    (folder / "us").mkdir(parents=True)
    (folder / "us/test-0.parquet").write_bytes(LARGE)
    (folder / "us/train-0.parquet").write_bytes(CONTENT)
    (folder / "README.md").write_text("of a data set\n")
    server.repository(REPOSITORY, REVISION, folder)
    return server


def snapshot(server, tmp_path, *patterns, **variables):
    """Download from the hub as another process; the folder of the snapshot, and what the process printed."""
    command = [sys.executable, "-c", SNAPSHOT, REPOSITORY, REVISION, str(tmp_path / "cache"), *patterns]
    environment = {**os.environ, **server.environment(), **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return tmp_path / "cache" / f"datasets--mteb--esci/snapshots/{REVISION}", done.stderr


def asked(server):
    return [(request.method, request.url, request.range, request.status) for request in server.requests]


def test_a_file_comes_whole_from_its_real_address(server):
    answer = httpx.get(RAW, follow_redirects=True)
    assert answer.content == CONTENT
    assert str(answer.url) == MEDIA
    assert asked(server) == [("GET", RAW, None, 302), ("GET", MEDIA, None, 200)]
    assert server.requests[-1].sent == SIZE


def test_only_those_who_trust_our_authority_are_answered(server, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(PLAIN)
    assert not server.requests


def test_what_is_served_nowhere_is_missing_and_on_record(server):
    for url in ("https://example.org/a", "http://example.org/b", f"{server.address}/c"):
        assert httpx.get(url).status_code == 404
    assert [request.url for request in server.requests] == [
        "https://example.org/a",
        "http://example.org/b",
        f"{server.address}/c",
    ]


@pytest.mark.parametrize(
    ("part", "status", "said", "start", "stop"),
    [
        ("bytes=0-", 206, f"bytes 0-{SIZE - 1}/{SIZE}", 0, SIZE),
        ("bytes=100-", 206, f"bytes 100-{SIZE - 1}/{SIZE}", 100, SIZE),
        ("bytes=100-199", 206, f"bytes 100-199/{SIZE}", 100, 200),
        ("bytes=100-999999999", 206, f"bytes 100-{SIZE - 1}/{SIZE}", 100, SIZE),
        (f"bytes={SIZE}-", 416, f"bytes */{SIZE}", 0, 0),
        ("rows=1-", 200, None, 0, SIZE),
    ],
)
def test_a_range_is_answered_with_that_part(server, part, status, said, start, stop):
    answer = httpx.get(PLAIN, headers={"Range": part})
    assert (answer.status_code, answer.headers.get("Content-Range")) == (status, said)
    assert answer.content == CONTENT[start:stop]


def test_a_changed_file_comes_whole_to_whoever_has_a_part_of_the_old_one(server):
    etag = httpx.head(PLAIN).headers["ETag"]
    headers = {"Range": "bytes=100-", "If-Range": etag}
    assert httpx.get(PLAIN, headers=headers).status_code == 206
    server.serve(PLAIN, b"another file")
    answer = httpx.get(PLAIN, headers=headers)
    assert (answer.status_code, answer.content) == (200, b"another file")


def test_a_place_may_know_neither_parts_nor_its_length(server, tmp_path):
    (tmp_path / "content").write_bytes(CONTENT)
    server.serve(PLAIN, tmp_path / "content", ranges=False, chunked=True)
    answer = httpx.get(PLAIN, headers={"Range": "bytes=100-"})
    assert (answer.status_code, answer.content) == (200, CONTENT)
    assert not {"Accept-Ranges", "Content-Length"} & set(answer.headers)


def test_a_head_says_what_a_get_would_and_sends_nothing(server):
    said, got = httpx.head(PLAIN), httpx.get(PLAIN)
    assert said.headers.keys() == got.headers.keys()
    assert said.headers["Content-Length"] == str(SIZE)
    assert [request.sent for request in server.requests] == [0, SIZE]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("address", [PLAIN, "http://example.org/file"])
@pytest.mark.parametrize("reset", [False, True])
def test_a_cut_ends_the_body_early_and_once(server, address, reset, chunked):
    server.serve(address, CONTENT, chunked=chunked)
    server.fault(address, Cut(1000, reset=reset))
    with pytest.raises(httpx.TransportError) as stopped:
        httpx.get(address)
    if address != PLAIN:  # through TLS Python 3.11 reports a reset as an end
        assert stopped.type == (httpx.ReadError if reset else httpx.RemoteProtocolError)
    assert httpx.get(address).content == CONTENT
    assert [request.sent for request in server.requests] == [1000, SIZE]


def test_a_stall_leaves_the_client_waiting(server):
    server.fault(PLAIN, Stall(after=1000))
    with pytest.raises(httpx.ReadTimeout):
        httpx.get(PLAIN, timeout=0.2)
    assert httpx.get(PLAIN).content == CONTENT


def test_faults_come_in_their_order_and_then_none(server):
    server.fault(PLAIN, Status(503, times=2), Status(429, retry_after=1), Html(), LfsPointer(), Wrong(CONTENT[::-1]))
    answers = [httpx.get(PLAIN) for _ in range(7)]
    assert [answer.status_code for answer in answers] == [503, 503, 429, 200, 200, 200, 200]
    assert answers[2].headers["Retry-After"] == "1"
    assert answers[3].headers["Content-Type"].startswith("text/html")
    assert answers[4].text.startswith("version https://git-lfs.github.com/spec/v1\noid sha256:")
    assert answers[5].content == CONTENT[::-1]
    assert answers[5].headers["ETag"] == answers[6].headers["ETag"]
    assert answers[6].content == CONTENT


def test_a_fault_is_of_one_address_and_method(server):
    server.fault(MEDIA, Status(503))
    assert httpx.head(MEDIA).status_code == 200
    assert httpx.get(PLAIN).status_code == 200
    assert httpx.get(MEDIA).status_code == 503
    with pytest.raises(KeyError, match="nowhere"):
        server.fault("https://example.org/nowhere", Html())


def test_a_slow_download_takes_its_time_and_ends_with_the_server(tmp_path, monkeypatch):
    with OfficialServer(tmp_path) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        server.serve(PLAIN, CONTENT)
        server.fault(PLAIN, Slow(bytes_per_second=1000), Stall(0))
        slow, stalled = httpx.Client(), httpx.Client()
        unread = [client.send(client.build_request("GET", PLAIN), stream=True) for client in (slow, stalled)]
        assert len(next(unread[0].iter_raw())) < 1000
        assert [request.sent < 1000 for request in server.requests] == [True, True]
    for answer, client in zip(unread, (slow, stalled), strict=True):
        client.close()
        assert answer.num_bytes_downloaded < 1000
    assert not server.connections


def test_a_snapshot_asks_for_the_tree_and_for_each_file_once(hub, tmp_path):
    folder, printed = snapshot(hub, tmp_path, "us/test-*", "README.md")
    got = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.*")}
    assert got == {"us/test-0.parquet": LARGE, "README.md": b"of a data set\n"}, printed
    resolve = f"{hub.address}/datasets/{REPOSITORY}/resolve/{REVISION}"
    tree = f"{hub.address}/api/datasets/{REPOSITORY}/tree/{REVISION}?recursive=true&expand=false"
    readme = f"{hub.address}/api/resolve-cache/datasets/{REPOSITORY}/{REVISION}/README.md"
    assert asked(hub) == [
        ("GET", tree, None, 200),
        ("HEAD", f"{resolve}/README.md", None, 307),
        ("HEAD", readme, None, 200),
        ("GET", readme, None, 200),
        ("HEAD", f"{resolve}/us/test-0.parquet", None, 302),
        ("GET", f"{CDN}/{REPOSITORY}/{REVISION}/us/test-0.parquet", None, 200),
    ]


def test_a_snapshot_that_was_cut_asks_for_the_rest_only(hub, tmp_path):
    hub.fault(f"{REPOSITORY}/us/test-0.parquet", Cut(after=STEP + 5))
    folder, printed = snapshot(hub, tmp_path, "us/test-*")
    assert (folder / "us/test-0.parquet").read_bytes() == LARGE, printed
    assert [(request.range, request.status, request.sent) for request in hub.requests[-2:]] == [
        (None, 200, STEP + 5),
        (f"bytes={STEP}-", 206, len(LARGE) - STEP),
    ]


def test_a_hub_that_fails_twice_is_asked_three_times(hub, tmp_path):
    hub.fault(REPOSITORY, Status(503, times=2))
    folder, printed = snapshot(hub, tmp_path, "us/train-*")
    assert (folder / "us/train-0.parquet").read_bytes() == CONTENT, printed
    assert [request.status for request in hub.requests] == [503, 503, 200, 302, 200]


def test_xet_is_used_where_it_is_offered_and_can_be_declined(hub, tmp_path):
    hub.repository(REPOSITORY, REVISION, tmp_path / "repository", xet=True)
    snapshot(hub, tmp_path, "us/train-*")
    assert hub.requests[-1].url.endswith(f"/xet-read-token/{REVISION}")
    folder, printed = snapshot(hub, tmp_path, "us/train-*", HF_HUB_DISABLE_XET="1")
    assert (folder / "us/train-0.parquet").read_bytes() == CONTENT, printed
    assert hub.requests[-1].url == f"{CDN}/{REPOSITORY}/{REVISION}/us/train-0.parquet"


@pytest.mark.parametrize("at", [f"/revision/{REVISION}", "/revision/main", ""])
def test_the_hub_says_size_and_checksum_of_each_file(hub, at):
    about = httpx.get(f"{hub.address}/api/datasets/{REPOSITORY}{at}", params={"blobs": "true"}).json()
    assert about["sha"] == REVISION
    readme, test, _ = about["siblings"]
    # as `git hash-object` says
    assert readme == {"rfilename": "README.md", "size": 14, "blobId": "9ee06ecce75e0fa5c510ff92431a344182d4fad9"}
    assert test["lfs"] == {"sha256": sha256(LARGE).hexdigest(), "size": len(LARGE), "pointerSize": 133}
    tree = httpx.get(f"{hub.address}/api/datasets/{REPOSITORY}/tree/main", params={"recursive": "true"}).json()
    assert [entry["oid"] for entry in tree] == [file["blobId"] for file in about["siblings"]]


@pytest.mark.parametrize(
    ("place", "status", "code"),
    [
        ("mteb/none/tree/main", 401, "RepoNotFound"),
        (f"{REPOSITORY}/tree/{'0' * 40}", 404, "RevisionNotFound"),
        (f"{REPOSITORY}/revision/{'0' * 40}", 404, "RevisionNotFound"),
    ],
)
def test_the_hub_says_what_it_does_not_have(hub, place, status, code):
    answer = httpx.get(f"{hub.address}/api/datasets/{place}")
    assert (answer.status_code, answer.headers["X-Error-Code"]) == (status, code)
    missing = httpx.head(f"{hub.address}/datasets/{REPOSITORY}/resolve/{REVISION}/none.csv")
    assert (missing.status_code, missing.headers["X-Error-Code"]) == (404, "EntryNotFound")
