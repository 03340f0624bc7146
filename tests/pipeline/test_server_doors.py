"""The layer around Prefect's application: whom it lets in, and what it says to others."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from prefect.server.database import configurations
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect

from flows import server
from flows.server import OriginGuard

JSON = {"content-type": "application/json"}
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


async def here(request) -> PlainTextResponse:
    return PlainTextResponse("in")


async def socket(websocket) -> None:
    await websocket.accept()
    await websocket.send_text("in")
    await websocket.close()


@asynccontextmanager
async def starts(_):
    STARTS.append("up")
    yield


STARTS: list[str] = []  # of the application within
INNER = Starlette(routes=[Route("/", here, methods=METHODS), WebSocketRoute("/events", socket)], lifespan=starts)


def client(host: str = "127.0.0.1:4200") -> TestClient:
    return TestClient(OriginGuard(INNER, 4200), base_url=f"http://{host}")


@pytest.mark.parametrize("host", ["127.0.0.1:4200", "localhost:4200"])
@pytest.mark.parametrize("site", [None, "same-origin", "none"])
def test_programs_and_its_own_page_are_let_in(host, site):
    headers = {"origin": f"http://{host}", "sec-fetch-site": site} if site else {}
    kinds = [{"json": {}}, {"content": b"{}", "headers": {"content-type": "application/json; charset=utf-8"}}]
    for method in METHODS:
        for sent in [{}, *([] if method == "GET" else kinds)]:
            answer = client(host).request(method, "/", **sent | {"headers": headers | sent.get("headers", {})})
            assert (answer.status_code, answer.text) == (200, "in")
    with client(host).websocket_connect("/events", headers=headers | {"host": host}) as opened:
        assert opened.receive_text() == "in"


HOSTS = "evil.test:4200", "127.0.0.1", "127.0.0.1:4201", "127.0.0.1:4200.evil.test", "evil.test@127.0.0.1:4200", ""
# that of localhost is another page's, with cookies and storage of its own
ORIGINS = "http://evil.test", "http://127.0.0.1:8888", "https://127.0.0.1:4200", "http://localhost:4200", "null"
SITES = "cross-site", "same-site", "of a later standard"
GIVEN = {"host": HOSTS, "origin": ORIGINS, "sec-fetch-site": SITES}
WRONG = [{name: value} for name, values in GIVEN.items() for value in values]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_pages_and_names_of_others_are_refused_in_a_sentence_and_their_websockets_are_closed(wrong):
    for method in (*METHODS, "OPTIONS"):
        answer = client().request(method, "/", headers=JSON | wrong)
        assert answer.status_code == 403
        assert "this server" in answer.text
        assert not [name for name in answer.headers if name.startswith("access-control")]
    headers = {"host": "127.0.0.1:4200"} | wrong
    with (
        pytest.raises((WebSocketDisconnect, WebSocketDenialResponse)),
        client().websocket_connect("/events", headers=headers),
    ):
        pytest.fail("it was opened")


@pytest.mark.parametrize(
    "kind", [None, "", "text/plain", "text/plain; application/json", "multipart/form-data", "application/jsonp"]
)
def test_what_is_sent_must_say_that_it_is_json(kind):
    headers = {} if kind is None else {"content-type": kind}
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        for content in (b"{}", iter([b"{}"])):  # the latter is of a length that is not said
            assert client().request(method, "/", content=content, headers=headers).status_code == 403


@pytest.mark.parametrize("name", ["host", "origin", "sec-fetch-site"])
def test_a_header_twice_does_not_hide_the_wrong_one(name):
    own = {"host": "127.0.0.1:4200", "origin": "http://127.0.0.1:4200", "sec-fetch-site": "same-origin"}
    assert client().get("/", headers=own).status_code == 200
    for pair in ((own[name], "evil.test"), ("evil.test", own[name])):
        headers = [(key, value) for key, value in own.items() if key != name] + [(name, value) for value in pair]
        assert client().get("/", headers=headers).status_code == 403


def test_what_is_neither_asked_nor_opened_is_handed_on():
    with client():
        assert STARTS


@pytest.mark.parametrize(
    ("method", "status", "rejected"),
    [
        ("POST", 503, True),
        ("POST", 409, True),
        ("GET", 503, True),
        ("GET", 401, True),
        ("GET", 404, False),  # how a client looks something up
        ("POST", 201, False),
    ],
)
def test_each_rejected_request_is_logged_and_no_other(method, status, rejected, caplog):
    async def app(_scope, _receive, send):
        await send({"type": "http.response.start", "status": status, "headers": []})

    async def send(_message):
        pass

    scope = {"type": "http", "method": method, "path": "/api/flow\u202eruns"}
    asyncio.run(server.RejectionLog(app)(scope, None, send))
    expected = [f"{method} /api/flow\\u202eruns was rejected with status {status}"] if rejected else []
    assert [record.getMessage() for record in caplog.records] == expected


def test_writers_of_the_servers_database_wait_for_each_other(monkeypatch):
    configuration = configurations.AioSqliteConfiguration
    begun = []
    monkeypatch.setattr(configuration, "begin_transaction", lambda *_, with_for_update: begun.append(with_for_update))
    server.serialize_transactions()
    configuration.begin_transaction(None, None, with_for_update=False)
    assert begun == [True]
