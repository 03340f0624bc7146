"""Security layers of the server: accepted and refused requests, the log of rejections, and transactions."""

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


async def accept_request(request) -> PlainTextResponse:
    return PlainTextResponse("in")


async def accept_socket(websocket) -> None:
    await websocket.accept()
    await websocket.send_text("in")
    await websocket.close()


@asynccontextmanager
async def record_start(_):
    STARTS.append("up")
    yield


STARTS: list[str] = []  # of the inner application
INNER = Starlette(
    routes=[Route("/", accept_request, methods=METHODS), WebSocketRoute("/events", accept_socket)],
    lifespan=record_start,
)


def client(host: str = "127.0.0.1:4200") -> TestClient:
    return TestClient(OriginGuard(INNER, 4200), base_url=f"http://{host}")


@pytest.mark.parametrize("host", ["127.0.0.1:4200", "localhost:4200"])
@pytest.mark.parametrize("site", [None, "same-origin", "none"])
def test_requests_of_programs_and_of_the_own_page_are_accepted(host, site):
    headers = {"origin": f"http://{host}", "sec-fetch-site": site} if site else {}
    kinds = [{"json": {}}, {"content": b"{}", "headers": {"content-type": "application/json; charset=utf-8"}}]
    for method in METHODS:
        for sent in [{}, *([] if method == "GET" else kinds)]:
            answer = client(host).request(method, "/", **sent | {"headers": headers | sent.get("headers", {})})
            assert (answer.status_code, answer.text) == (200, "in")
    with client(host).websocket_connect("/events", headers=headers | {"host": host}) as opened:
        assert opened.receive_text() == "in"


HOSTS = "evil.test:4200", "127.0.0.1", "127.0.0.1:4201", "127.0.0.1:4200.evil.test", "evil.test@127.0.0.1:4200", ""
# localhost is another origin, with its own cookies and storage
ORIGINS = "http://evil.test", "http://127.0.0.1:8888", "https://127.0.0.1:4200", "http://localhost:4200", "null"
SITES = "cross-site", "same-site", "of a later standard"
WRONG_HEADERS = [{"host": host} for host in HOSTS]
WRONG_HEADERS += [{"origin": origin} for origin in ORIGINS]
WRONG_HEADERS += [{"sec-fetch-site": site} for site in SITES]


@pytest.mark.parametrize("wrong", WRONG_HEADERS, ids=str)
def test_requests_of_other_origins_are_refused_with_a_reason(wrong):
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
        pytest.fail("the socket was accepted")


@pytest.mark.parametrize(
    "kind", [None, "", "text/plain", "text/plain; application/json", "multipart/form-data", "application/jsonp"]
)
def test_content_must_have_the_type_json(kind):
    headers = {} if kind is None else {"content-type": kind}
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        for content in (b"{}", iter([b"{}"])):  # the latter has no content length
            assert client().request(method, "/", content=content, headers=headers).status_code == 403


@pytest.mark.parametrize("name", ["host", "origin", "sec-fetch-site"])
def test_a_repeated_header_is_refused_if_one_value_is_wrong(name):
    own = {"host": "127.0.0.1:4200", "origin": "http://127.0.0.1:4200", "sec-fetch-site": "same-origin"}
    assert client().get("/", headers=own).status_code == 200
    for pair in ((own[name], "evil.test"), ("evil.test", own[name])):
        headers = [(key, value) for key, value in own.items() if key != name] + [(name, value) for value in pair]
        assert client().get("/", headers=headers).status_code == 403


def test_lifespan_events_are_forwarded():
    with client():
        assert STARTS


@pytest.mark.parametrize(
    ("method", "status", "rejected"),
    [
        ("POST", 503, True),
        ("POST", 409, True),
        ("GET", 503, True),
        ("GET", 401, True),
        ("GET", 404, False),  # a client checks existence in this way
        ("POST", 201, False),
    ],
)
def test_only_rejected_requests_are_logged(method, status, rejected, caplog):
    async def app(_scope, _receive, send):
        await send({"type": "http.response.start", "status": status, "headers": []})

    async def send(_message):
        pass

    scope = {"type": "http", "method": method, "path": "/api/flow\u202eruns"}
    asyncio.run(server.RejectionLog(app)(scope, None, send))
    expected = [f"{method} /api/flow\\u202eruns was rejected with status {status}"] if rejected else []
    assert [record.getMessage() for record in caplog.records] == expected


def test_transactions_take_the_write_lock_at_their_start(monkeypatch):
    configuration = configurations.AioSqliteConfiguration
    begun = []
    monkeypatch.setattr(configuration, "begin_transaction", lambda *_, with_for_update: begun.append(with_for_update))
    server.serialize_transactions()
    configuration.begin_transaction(None, None, with_for_update=False)
    assert begun == [True]
