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


STARTS: list[str] = []  # one entry for each start of the inner application


@asynccontextmanager
async def record_start(_):
    STARTS.append("up")
    yield


INNER = Starlette(
    routes=[Route("/", accept_request, methods=METHODS), WebSocketRoute("/events", accept_socket)],
    lifespan=record_start,
)


def make_client(host: str = "127.0.0.1:4200") -> TestClient:
    return TestClient(OriginGuard(INNER, 4200), base_url=f"http://{host}")


@pytest.mark.parametrize("host", ["127.0.0.1:4200", "localhost:4200"])
@pytest.mark.parametrize("site", [None, "same-origin", "none"])
def test_requests_of_programs_and_of_pages_of_the_server_are_accepted(host, site):
    headers = {"origin": f"http://{host}", "sec-fetch-site": site} if site else {}
    json_headers = headers | {"content-type": "application/json; charset=utf-8"}
    client = make_client(host)
    for method in METHODS:
        answers = [client.request(method, "/", headers=headers)]
        if method != "GET":
            answers.append(client.request(method, "/", headers=headers, json={}))
            answers.append(client.request(method, "/", headers=json_headers, content=b"{}"))
        for answer in answers:
            assert answer.status_code == 200
            assert answer.text == "in"
    with make_client(host).websocket_connect("/events", headers=headers | {"host": host}) as opened:
        assert opened.receive_text() == "in"


WRONG_HEADERS = [
    {"host": "evil.test:4200"},
    {"host": "127.0.0.1"},
    {"host": "127.0.0.1:4201"},
    {"host": "127.0.0.1:4200.evil.test"},
    {"host": "evil.test@127.0.0.1:4200"},
    {"host": ""},
    {"origin": "http://evil.test"},
    {"origin": "http://127.0.0.1:8888"},
    {"origin": "https://127.0.0.1:4200"},
    {"origin": "http://localhost:4200"},  # another origin than 127.0.0.1, with its own cookies and storage
    {"origin": "null"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "of a later standard"},
]


@pytest.mark.parametrize("wrong", WRONG_HEADERS, ids=str)
def test_requests_of_other_origins_are_refused_with_a_reason(wrong):
    for method in (*METHODS, "OPTIONS"):
        answer = make_client().request(method, "/", headers=JSON | wrong)
        assert answer.status_code == 403
        assert "this server" in answer.text
        assert not any(name.startswith("access-control") for name in answer.headers)
    headers = {"host": "127.0.0.1:4200"} | wrong
    with (
        pytest.raises((WebSocketDisconnect, WebSocketDenialResponse)),
        make_client().websocket_connect("/events", headers=headers),
    ):
        pytest.fail("the socket was accepted")


@pytest.mark.parametrize(
    "kind", [None, "", "text/plain", "text/plain; application/json", "multipart/form-data", "application/jsonp"]
)
def test_content_must_have_the_type_json(kind):
    headers = {} if kind is None else {"content-type": kind}
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        for content in (b"{}", iter([b"{}"])):  # the latter has no content length
            assert make_client().request(method, "/", content=content, headers=headers).status_code == 403


@pytest.mark.parametrize("name", ["host", "origin", "sec-fetch-site"])
def test_a_repeated_header_is_refused_if_one_value_is_wrong(name):
    valid = {"host": "127.0.0.1:4200", "origin": "http://127.0.0.1:4200", "sec-fetch-site": "same-origin"}
    assert make_client().get("/", headers=valid).status_code == 200
    other_headers = [(other_name, value) for other_name, value in valid.items() if other_name != name]
    for first, second in ((valid[name], "evil.test"), ("evil.test", valid[name])):
        headers = [*other_headers, (name, first), (name, second)]
        assert make_client().get("/", headers=headers).status_code == 403


def test_lifespan_events_are_forwarded():
    with make_client():
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
    async def respond(_scope, _receive, send):
        await send({"type": "http.response.start", "status": status, "headers": []})

    async def ignore_message(_message):
        pass

    scope = {"type": "http", "method": method, "path": "/api/flow\u202eruns"}
    asyncio.run(server.RejectionLog(respond)(scope, None, ignore_message))
    expected = [f"{method} /api/flow\\u202eruns was rejected with status {status}"] if rejected else []
    assert [record.getMessage() for record in caplog.records] == expected


def test_transactions_take_the_write_lock_at_their_start(monkeypatch):
    configuration = configurations.AioSqliteConfiguration
    begun = []
    monkeypatch.setattr(configuration, "begin_transaction", lambda *_, with_for_update: begun.append(with_for_update))
    server.serialize_transactions()
    configuration.begin_transaction(None, None, with_for_update=False)
    assert begun == [True]
