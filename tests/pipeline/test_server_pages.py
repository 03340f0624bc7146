"""Additions to Prefect's pages: security headers, no pages of the API, and a hint on the login page."""

import html
import re

import pytest
from flows.pages import POLICY, SCRIPT, SCRIPT_PATH, PageScript, SecurityHeaders
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from flows import server

PAGE = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
NAMES = ("docs", "redoc", "openapi.json", "docs/oauth2-redirect")
# none of these allows requests to other servers or inline scripts
ALLOWED = {
    "'self'",
    "'none'",
    "data:",
    "blob:",
    "'unsafe-inline'",
    "'unsafe-eval'",
}


@pytest.fixture(scope="module")
def prefect():
    """Client of Prefect's application with the layers of this project, without its database."""
    from prefect.server.api.server import create_app

    app = create_app(ignore_cache=True)
    return TestClient(server.add_protection(app, 4200), base_url="http://127.0.0.1:4200")


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


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("prefix", ["/", "/api/", "//", "/api//"])
def test_documentation_pages_of_the_api_are_disabled(prefect, prefix, name):
    for path in (f"{prefix}{name}", f"{prefix}{name}/"):
        for headers in ({}, PAGE):
            response = prefect.request("GET", f"http://127.0.0.1:4200{path}", headers=headers, follow_redirects=False)
            assert response.status_code == 404, path
            assert "<script" not in response.text
            assert_protected(response)


@pytest.mark.parametrize("path", ["/", "/login", "/v2/", "/v2/login", "/deployments", "/v2/deployments", SCRIPT_PATH])
def test_pages_of_both_interfaces_have_the_security_headers(prefect, path):
    response = prefect.get(path, headers=PAGE)
    assert response.status_code == 200
    assert_protected(response)


@pytest.mark.parametrize("path", ["/login", "/v2/login"])
def test_each_page_has_our_script_first_and_the_hint(prefect, path):
    cached = {"if-none-match": '"any"', "if-modified-since": "Fri, 01 Jan 2100 00:00:00 GMT", "range": "bytes=0-9"}
    response = prefect.get(path, headers=PAGE | cached | {"accept-encoding": "gzip"})
    assert response.status_code == 200
    assert int(response.headers["content-length"]) == len(response.content)
    assert "etag" not in response.headers
    first = re.search(r"<script[^>]*>", response.text)[0]
    assert f'src="{SCRIPT_PATH}"' in first
    assert html.escape(server.LOGIN_HINT) in first
    assert "data/.state/secret" in first
    assert 'id="app"' in response.text or 'id="root"' in response.text
    assert prefect.get(SCRIPT_PATH).text == SCRIPT


def test_refusals_and_api_responses_have_the_security_headers(prefect):
    for response in (
        prefect.get("/", headers={"origin": "http://evil.test"}),
        prefect.get("/api/health"),
        prefect.get("/api/nowhere"),
        prefect.get("/v2/nowhere.js"),
    ):
        assert_protected(response)


def test_security_headers_of_an_application_are_replaced():
    async def answer(_request) -> Response:
        return Response(headers={"content-security-policy": "default-src *"})

    response = TestClient(SecurityHeaders(Starlette(routes=[Route("/", answer)]))).get("/")
    assert_protected(response)


def test_the_hint_is_escaped_and_other_content_is_unchanged():
    async def page(_request) -> Response:
        return HTMLResponse("<html><head><title>a</title></head></html>")

    async def data(_request) -> Response:
        return JSONResponse({"text": "<head>"}, headers={"etag": '"a"'})

    app = PageScript(Starlette(routes=[Route("/", page), Route("/data", data)]), "'\"><script>alert(1)</script>")
    text = TestClient(app).get("/", headers=PAGE).text
    assert text.count("<script") == 1
    assert "&lt;script&gt;" in text
    response = TestClient(app).get("/data", headers=PAGE)
    assert response.text == '{"text":"<head>"}'
    assert response.headers["etag"] == '"a"'
    assert "<script" not in TestClient(app).get("/", headers={"accept": "*/*"}).text
