"""Security headers of the server, and its transactions."""

import pytest
from prefect.server.database import configurations
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from flows import server
from flows.headers import POLICY, SecurityHeaders

# none of these allows requests to other servers or inline scripts
ALLOWED = {"'self'", "'none'", "data:", "blob:", "'unsafe-inline'", "'unsafe-eval'"}


@pytest.fixture(scope="module")
def prefect():
    """Client of Prefect's application with the headers, without its database."""
    from prefect.server.api.server import create_app

    return TestClient(SecurityHeaders(create_app(ignore_cache=True)), base_url="http://127.0.0.1:4200")


def assert_protected(response) -> None:
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'self'; ")
    assert response.headers.get_list("content-security-policy") == [policy]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"


def test_the_policy_allows_requests_to_this_server_only():
    sources = set(" ".join(POLICY.values()).split())
    assert sources <= ALLOWED
    assert "'unsafe-inline'" not in POLICY["script-src"]
    assert "data:" not in POLICY["script-src"]
    assert "blob:" not in POLICY["script-src"]
    assert "connect-src" not in POLICY  # that of default-src
    assert POLICY["frame-ancestors"] == "'none'"


@pytest.mark.parametrize("path", ["/", "/login", "/v2/login", "/docs", "/api/docs", "/api/health", "/api/nowhere"])
def test_all_responses_have_the_security_headers(prefect, path):
    assert_protected(prefect.get(path))


def test_security_headers_of_an_application_are_replaced():
    async def answer(_request) -> Response:
        return Response(headers={"content-security-policy": "default-src *"})

    response = TestClient(SecurityHeaders(Starlette(routes=[Route("/", answer)]))).get("/")
    assert_protected(response)


def test_transactions_take_the_write_lock_at_their_start(monkeypatch):
    configuration = configurations.AioSqliteConfiguration
    begun = []
    monkeypatch.setattr(configuration, "begin_transaction", lambda *_, with_for_update: begun.append(with_for_update))
    server.serialize_transactions()
    configuration.begin_transaction(None, None, with_for_update=False)
    assert begun == [True]
