"""Operation of `python -m flows.serve` in headless Chromium: schedule, forms, runs and cancellation.

`make test-system` runs it; what is missing fails it. Nothing here needs a network.
"""

import json
import re
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.notifications import AFTER_CANCELLATION
from tests.project_copy import copy_project, run
from tests.system.browser import eventually, open_browser, requested_addresses
from tests.system.served import Served, serving

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("project")

    def change(params: dict[str, Any]) -> None:
        params["datasets"] = {name: params["datasets"][name] | {"rows": 6000} for name in ("wands", "scidocs")}
        params |= {"schedule": {"refresh": "0 5 * * *"}}  # all calibrators: a stage takes longer than clicks

    copy_project(folder, change)
    run(folder, "dvc", "repro", "-q", "train")
    return folder


@pytest.fixture(scope="module")
def served(project) -> Iterator[Served]:
    with serving(project) as running:
        yield running


class Page:
    """A new browser on the pages of the server."""

    def __init__(self, driver, served: Served) -> None:
        self.driver = driver
        self.served = served

    def open(self, path: str) -> None:
        self.driver.get(self.served.address + path)

    def enter(self) -> None:
        """Enter the secret on the login page."""
        self.open("/")
        secret_field = ("css selector", "input[type=password]")
        eventually(lambda: self.driver.find_element(*secret_field).is_displayed())
        self.driver.find_element(*secret_field).send_keys(self.served.secret + "\ue007")  # Enter
        eventually(lambda: "Dashboard" in self.text)

    @property
    def text(self) -> str:
        return self.driver.find_element("tag name", "body").text

    def click(self, text: str, kind: str = "button", place: int = 0) -> None:
        def click() -> bool:
            named = [element for element in self.driver.find_elements("css selector", kind) if element.text == text]
            named[place].click()
            return True

        eventually(click)

    def choose(self, place: int, option: str) -> list[str]:
        """Select an option of the list at `place` on the page, and return all its options."""
        lists = "button[aria-haspopup=listbox]"
        eventually(lambda: self.driver.find_elements("css selector", lists)[place].click() or True)

        def drawn() -> list[str]:
            texts = [option.text for option in self.driver.find_elements("css selector", "[role=option]")]
            return texts if all(texts) else []

        options = eventually(drawn)
        self.click(option, "[role=option]")
        self.driver.switch_to.active_element.send_keys("\ue00c")  # Escape
        return options

    def submit(self, name: str) -> None:
        """Submit the form of a deployment, and open the page of the run."""
        before = len(self.served.runs(name))
        self.click("Submit")
        (run,) = eventually(lambda: self.served.runs(name)[before:])
        self.open(f"/v2/runs/flow-run/{run['id']}")

    def ask_to_cancel(self) -> bool:
        """Open the menu of a run and choose Cancel; a page that is drawn again closes the menu."""
        self.driver.find_element("css selector", "button[aria-haspopup=menu]").click()
        items = self.driver.find_elements("css selector", "[role=menuitem]")
        next(item for item in items if item.text == "Cancel").click()
        return True


@pytest.fixture
def page(served, tmp_path) -> Iterator[Page]:
    with open_browser(tmp_path / "browser") as driver:
        page = Page(driver, served)
        page.enter()
        yield page
        driver.save_screenshot(tmp_path / "last.png")


def test_the_page_contacts_only_its_own_port_and_shows_every_deployment(page, served):
    page.open("/")
    eventually(lambda: "Dashboard" in page.text)
    page.click("Deployments", "a")
    eventually(lambda: {"refresh", "reliability", "rerank-fit"} <= set(page.text.split()))
    assert "At 05:00 AM" in page.text
    time.sleep(2)  # its analytics would be asked by now
    hosts = {urllib.parse.urlsplit(url).netloc for url in requested_addresses(page.driver) if url.startswith("http")}
    assert hosts == {urllib.parse.urlsplit(served.address).netloc}


def test_the_schedule_creates_runs(served):
    def due() -> list[str]:
        runs = served.ask("flow_runs", deployments={"name": {"any_": ["refresh"]}})
        return [run["expected_start_time"] for run in runs if run["auto_scheduled"]]

    assert all(at[11:16] == "05:00" for at in eventually(due))


def test_the_form_rejects_a_wrong_calibrator_before_a_run_exists(page, served):
    wrong = urllib.parse.quote(json.dumps({"datasets": ["wands"], "calibrators": ["platt"]}))
    page.open(f"/v2/deployments/deployment/{served.deployment('reliability')}/run?parameters={wrong}")
    before = served.runs("reliability")
    page.click("Submit")
    eventually(lambda: "'platt' is not one of" in page.text)
    assert served.runs("reliability") == before


def test_a_run_started_from_the_form_finishes_and_shows_its_table(page, served, project):
    page.open(f"/v2/deployments/deployment/{served.deployment('reliability')}/run")
    assert page.choose(0, "wands") == ["wands", "scidocs"]
    assert {"ts", "hcal", "matrix"} <= set(page.choose(1, "ts"))
    began = time.monotonic()
    page.submit("reliability")
    eventually(lambda: "Completed" in page.text and "reliabilities/wands" in page.text)
    took = time.monotonic() - began
    (run,) = [run for run in served.runs("reliability") if run["name"] == "reliabilities/wands"]
    print(f"from the form to the end in {took:.0f} s, of which {run['total_run_time']:.1f} s in the flow")
    assert run["parameters"]["calibrators"] == ["ts"]
    page.open("/v2/artifacts/key/metrics-wands")
    eventually(lambda: page.driver.find_element("css selector", "a[href*='/artifacts/artifact/']").click() or True)
    eventually(lambda: "wands (simulated)" in page.text and "aupr_error" in page.text)
    assert re.search(r"calibrator\s+metric\s+confidence\s+mrp", page.text)
    assert (project / "data/explored/wands/metrics.parquet").exists()
    assert not (project / "data/runs/wands").exists()  # what DVC keeps is left alone


def stages(project: Path) -> list[int]:
    records = [json.loads(file.read_text()) for file in (project / "data/.state/stages").glob("*.json")]
    running = [record["process"] for record in records if record["outcome"] == "running"]
    return [process for process in running if Path(f"/proc/{process}").exists()]


def test_a_cancelled_refresh_ends_with_its_stage(page, served, project):
    page.open(f"/v2/deployments/deployment/{served.deployment('refresh')}/run")
    page.submit("refresh")
    eventually(lambda: stages(project))
    eventually(lambda: "Running" in page.text)
    eventually(page.ask_to_cancel)
    (first, *_) = stages(project)
    page.click("Cancel Flow Run")
    began = time.monotonic()
    eventually(lambda: not Path(f"/proc/{first}").exists() and not stages(project), within=30)
    print(f"its stages were gone {time.monotonic() - began:.1f} s after the click")
    eventually(lambda: "Cancelled" in page.text)
    run = served.runs("refresh")[-1]
    assert run["state_name"] == "Cancelled"

    def logged() -> list[str]:
        lines = served.ask("logs", logs={"flow_run_id": {"any_": [run["id"]]}}, sort="TIMESTAMP_ASC")
        return [line["message"] for line in lines]

    last = f"refresh was cancelled. {AFTER_CANCELLATION['refresh']}"
    eventually(lambda: last in logged(), within=30)
    assert logged()[-1] == last
    tasks = served.ask("task_runs", flow_runs={"id": {"any_": [run["id"]]}})
    assert {task["name"] for task in tasks} & {"reliability@wands", "reliability@scidocs"}
    assert {task["state_type"] for task in tasks} <= {"COMPLETED", "CANCELLED"}
    assert not [line for line in logged() if "Traceback" in line]
