"""Operation of `python -m flows.serve` in headless Chromium: schedule, forms, runs and cancellation.

`make test-system` runs it. It fails if Chromium or its driver is missing. It needs no network.
"""

import json
import re
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.project_copy import copy_project, run_module
from tests.system.browser import open_browser, requested_urls, wait_until
from tests.system.served import RunningServer, run_server

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("project")

    def change_params(params: dict[str, Any]) -> None:
        datasets = params["datasets"]
        params["datasets"] = {name: datasets[name] | {"rows": 6000} for name in ("wands", "scidocs")}
        params["schedule"] = {"refresh": "0 5 * * *"}
        # the calibrators are not reduced: a stage must still run when a test clicks on Cancel

    copy_project(folder, change_params)
    run_module(folder, "dvc", "repro", "-q", "train")
    return folder


@pytest.fixture(scope="module")
def served(project) -> Iterator[RunningServer]:
    with run_server(project) as running:
        yield running


class Page:
    """The server's pages in a new browser, operated by a user."""

    def __init__(self, driver, served: RunningServer) -> None:
        self.driver = driver
        self.served = served

    def open(self, path: str) -> None:
        self.driver.get(self.served.address + path)

    def log_in(self) -> None:
        """Enter the secret on the login page."""
        self.open("/")
        secret_field = ("css selector", "input[type=password]")
        wait_until(lambda: self.driver.find_element(*secret_field).is_displayed())
        self.driver.find_element(*secret_field).send_keys(self.served.secret + "\ue007")  # Enter
        wait_until(lambda: "Dashboard" in self.text)

    @property
    def text(self) -> str:
        return self.driver.find_element("tag name", "body").text

    def click(self, text: str, selector: str = "button") -> None:
        """Click on the first element with this text."""

        def try_to_click() -> bool:
            elements = self.driver.find_elements("css selector", selector)
            next(element for element in elements if element.text == text).click()
            return True

        wait_until(try_to_click)

    def click_nth(self, selector: str, index: int) -> None:
        def try_to_click() -> bool:
            self.driver.find_elements("css selector", selector)[index].click()
            return True

        wait_until(try_to_click)

    def submit(self, name: str) -> None:
        """Submit the form of a deployment, and open the page of the run."""
        before = len(self.served.list_runs(name))
        self.click("Submit")
        (run,) = wait_until(lambda: self.served.list_runs(name)[before:])
        self.open(f"/v2/runs/flow-run/{run['id']}")

    def try_to_cancel(self) -> bool:
        """Open the menu of a run and choose Cancel.

        Call it with `wait_until`, which tries again: the menu closes whenever the page is updated.
        """
        self.driver.find_element("css selector", "button[aria-haspopup=menu]").click()
        items = self.driver.find_elements("css selector", "[role=menuitem]")
        next(item for item in items if item.text == "Cancel").click()
        return True


@pytest.fixture
def page(served, tmp_path) -> Iterator[Page]:
    with open_browser(tmp_path / "browser") as driver:
        page = Page(driver, served)
        page.log_in()
        yield page
        driver.save_screenshot(tmp_path / "last.png")


def test_the_page_contacts_only_its_own_port_and_shows_every_deployment(page, served):
    page.open("/")
    wait_until(lambda: "Dashboard" in page.text)
    page.click("Deployments", "a")
    wait_until(lambda: {"refresh", "reliability"} <= set(page.text.split()))
    assert "At 05:00 AM" in page.text
    time.sleep(2)  # enough for requests to an analytics service
    urls = [urllib.parse.urlsplit(url) for url in requested_urls(page.driver)]
    hosts = {url.netloc for url in urls if url.scheme in ("http", "https")}
    assert hosts == {urllib.parse.urlsplit(served.address).netloc}


def test_the_schedule_creates_runs(served):
    def scheduled_times() -> list[str]:
        return [run["expected_start_time"] for run in served.list_runs("refresh", scheduled=True)]

    for time_of_run in wait_until(scheduled_times):
        assert time_of_run[11:16] == "05:00"


def test_the_form_rejects_a_wrong_calibrator_and_creates_no_run(page, served):
    wrong = urllib.parse.quote(json.dumps({"datasets": ["wands"], "calibrators": ["platt"]}))
    page.open(f"/v2/deployments/deployment/{served.find_deployment_id('reliability')}/run?parameters={wrong}")
    before = served.list_runs("reliability")
    page.click("Submit")
    wait_until(lambda: "'platt' is not" in page.text)
    assert served.list_runs("reliability") == before


def test_a_run_started_from_the_form_finishes_and_shows_its_table(page, served, project):
    given = urllib.parse.quote(json.dumps({"datasets": ["wands"], "calibrators": ["ts"]}))
    page.open(f"/v2/deployments/deployment/{served.find_deployment_id('reliability')}/run?parameters={given}")
    wait_until(lambda: "sets in params.yaml" in page.text)
    started = time.monotonic()
    page.submit("reliability")
    wait_until(lambda: "Completed" in page.text and "reliabilities/wands" in page.text)
    seconds = time.monotonic() - started
    (run,) = [run for run in served.list_runs("reliability") if run["name"] == "reliabilities/wands"]
    print(f"from the form to the end in {seconds:.0f} s, of which {run['total_run_time']:.1f} s in the flow")
    assert run["parameters"]["calibrators"] == ["ts"]
    page.open("/v2/artifacts/key/metrics-wands")
    page.click_nth("a[href*='/artifacts/artifact/']", 0)
    wait_until(lambda: "wands (simulated)" in page.text and "aupr_error" in page.text)
    assert re.search(r"calibrator\s+metric\s+confidence\s+mrp", page.text)
    assert (project / "data/explored/wands/metrics.parquet").exists()
    assert not (project / "data/runs/wands").exists()  # outputs of DVC are not changed


def is_alive(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def stage_processes(project: Path) -> list[int]:
    """Return the processes of the stages that are running."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if {"flows.reliability", "tasks.train"} & set(process.cmdline()) and process.cwd() == str(project):
                found.append(process.pid)
    return found


def test_cancelling_a_refresh_also_ends_its_running_stages(page, served, project):
    page.open(f"/v2/deployments/deployment/{served.find_deployment_id('refresh')}/run")
    page.submit("refresh")
    wait_until(lambda: stage_processes(project))
    wait_until(lambda: "Running" in page.text)
    wait_until(page.try_to_cancel)
    process = stage_processes(project)[0]
    page.click("Cancel Flow Run")
    clicked = time.monotonic()
    wait_until(lambda: not is_alive(process) and not stage_processes(project), timeout=30)
    print(f"its stages ended {time.monotonic() - clicked:.1f} s after the click")
    wait_until(lambda: "Cancelled" in page.text)
    run = wait_until(lambda: [run for run in served.list_runs("refresh") if run["state_name"] == "Cancelled"])[0]

    tasks = served.query("task_runs", flow_runs={"id": {"any_": [run["id"]]}})
    names = {task["name"] for task in tasks}
    assert names == {"wands", "scidocs"}
