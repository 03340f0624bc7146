"""The threshold control of the `relmap report` page in Chromium: keyboard, costs, phone, print, no JavaScript.

`make test-system` runs it. Expected numbers come from a loop over the rows.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from relmap import cli
from relmap.evaluation.assessment import MapAssessment
from relmap.io.files import open_predictions
from relmap.maps.document import load_map
from tests import maps
from tests.system.browser import open_browser, requested_urls, wait_until

NAMES = ("</script><b>bad", "fair & square", "a label with a name of many words that is long")
DESK = 1400
PHONE = 400  # pixels
REVIEW_ALL = (1, 5)  # costs of an error and of a review with which no review pays

pytestmark = pytest.mark.system


class Rows(NamedTuple):
    """Rows of the page with out-of-fold scores."""

    reliability: np.ndarray
    decision: np.ndarray
    correct: np.ndarray


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("explorer")
    rows = maps.write_frame(maps.make_predictions(900), folder / "rows.parquet")
    names = ",".join(f'"{name}"' for name in NAMES)
    cli.report(predictions=rows, out=folder / "page.html", group="group", labels=names)
    return folder / "page.html"


@pytest.fixture(scope="module")
def rows(page) -> Rows:
    assessment = MapAssessment.from_predictions(
        load_map(page.with_name("page.map.json")), open_predictions(page.with_name("rows.parquet"))
    )
    return Rows(assessment.scored.reliability, assessment.rows.decision, assessment.rows.correct)


class Control:
    """The control, used with the keyboard."""

    def __init__(self, driver: Any, page: Path) -> None:
        self.driver = driver
        self.page = page

    def open(self, width: int = DESK) -> None:
        """Load the page, so that nothing is set."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.get(self.page.as_uri())
        wait_until(lambda: self.run("return document.documentElement.dataset.drawn") == "yes")

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def find(self, name: str) -> Any:
        return self.driver.find_element("id", f"explorer-{name}")

    def press(self, *keys: str) -> None:
        """Press keys where the focus is."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def type_into(self, name: str, text: str) -> None:
        """Replace the content of an input with the keyboard, and leave it."""
        from selenium.webdriver import Keys

        self.run("arguments[0].focus(); arguments[0].select()", self.find(name))
        self.press(text or Keys.DELETE, Keys.TAB)

    def take_cheapest(self) -> None:
        """Choose the second mode with the keyboard."""
        from selenium.webdriver import Keys

        self.run("arguments[0].focus()", self.driver.find_element("name", "explorer-mode"))
        self.press(Keys.ARROW_DOWN)

    @property
    def threshold(self) -> float:
        """The threshold of the command to copy."""
        return float(re.search(r"--cut (\S+)", self.find("command").text)[1])

    def table(self) -> dict[str, list[str]]:
        """The cells of each line by its name."""
        script = """
            const lines = [...document.querySelectorAll("#explorer-table tbody tr")];
            return lines.map((line) => [...line.cells].map((cell) => cell.textContent.replace(/\\s+/g, " ").trim()));
        """
        return {name: cells for name, *cells in self.run(script)}


@pytest.fixture(scope="module")
def control(tmp_path_factory, page) -> Iterator[Control]:
    with open_browser(tmp_path_factory.mktemp("browser")) as driver:
        yield Control(driver, page)


def check_table(control: Control, rows: Rows, error: float, review: float) -> None:
    """Compare every line with a loop over the rows at the threshold."""
    table = control.table()
    assert [*table] == ["All decisions", *NAMES]
    for label, name in enumerate(["All decisions", *NAMES], start=-1):
        own = np.array([label in (-1, decision) for decision in rows.decision])
        automatic = own & (rows.reliability >= control.threshold)
        share, accuracy, reviews, cost = table[name]
        assert share == f"{100 * automatic.sum() / own.sum():.1f}%"
        assert reviews == f"{(own & ~automatic).sum():,} of {own.sum():,}"
        if automatic.any():
            assert accuracy.startswith(f"{100 * rows.correct[automatic].mean():.1f}%")
        else:
            assert accuracy == "–"
        costs = np.where(automatic, error * ~rows.correct, review)[own]
        assert float(cost) == pytest.approx(costs.mean(), rel=1e-3)


def test_a_threshold_is_set_with_the_keyboard_by_slider_and_by_number(control, rows):
    from selenium.webdriver import Keys

    control.open()
    check_table(control, rows, 5, 1)
    first = control.threshold
    control.run("arguments[0].focus()", control.find("slider"))
    control.press(*[Keys.ARROW_RIGHT] * 5)
    assert control.threshold > first
    assert control.find("slider").get_attribute("aria-valuetext") == str(control.threshold)
    check_table(control, rows, 5, 1)
    control.press(Keys.END)
    assert control.threshold == 1
    assert re.search(r"\b900 of 900 rows .*review", control.find("summary").text)
    control.press(Keys.HOME)
    assert control.threshold == 0
    assert "100.0% of decisions" in control.find("summary").text
    check_table(control, rows, 5, 1)
    control.type_into("threshold", "0.9")
    assert control.threshold == pytest.approx(0.9, abs=0.002)
    assert float(control.find("threshold").get_attribute("value")) == control.threshold
    check_table(control, rows, 5, 1)


def test_the_tab_key_reaches_every_input_and_the_button_in_order(control):
    from selenium.webdriver import Keys

    control.open()
    control.run("arguments[0].focus()", control.driver.find_element("name", "explorer-mode"))
    reached = []
    for _ in range(9):
        control.press(Keys.TAB)
        reached.append(control.driver.switch_to.active_element.get_attribute("id"))
    names = ["slider", "threshold", "cost-error", "cost-review", "copy"]
    assert [name for name in reached if name.startswith("explorer-")] == [f"explorer-{name}" for name in names]
    unlabelled = "return [...document.querySelectorAll('#threshold-explorer input')].filter((i) => !i.labels.length)"
    assert control.run(unlabelled) == []
    assert control.find("summary").get_attribute("role") == "status"


@pytest.mark.parametrize(("error", "review"), [(5, 1), (2, 0.9), (10, 0.1), REVIEW_ALL, (1, 0)])
def test_the_threshold_of_the_lowest_cost_is_that_of_a_loop(control, rows, error, review):
    control.open()
    control.take_cheapest()
    control.type_into("cost-error", str(error))
    control.type_into("cost-review", str(review))
    choices = control.run("return JSON.parse(document.querySelector('#threshold-explorer script').textContent)")
    costs = []
    for threshold in choices["thresholds"]:
        automatic = rows.reliability >= threshold
        costs.append(np.where(automatic, error * ~rows.correct, review).mean())
    lowest = np.flatnonzero(np.isclose(costs, min(costs), rtol=1e-12, atol=0))
    assert control.threshold == choices["thresholds"][lowest[0]]
    assert (control.threshold == 0) == ((error, review) == REVIEW_ALL)
    check_table(control, rows, error, review)
    assert control.find("slider").get_property("disabled")
    assert control.find("threshold").get_property("disabled")
    by_map = control.find("by-map").text
    assert float(re.search(r"threshold is ([\d.]+):", by_map)[1]) == pytest.approx(max(0, 1 - review / error))


@pytest.mark.parametrize("text", ["", "0", "-1"])
def test_an_invalid_cost_is_reported_and_the_results_remain(control, text):
    control.open()
    before = control.table()
    control.type_into("cost-error", text)
    assert re.search(r"\bcost of an error .*\b0\b", control.find("summary").text)
    assert control.find("cost-error").get_attribute("aria-invalid") == "true"
    assert [cells[:3] for cells in control.table().values()] == [cells[:3] for cells in before.values()]
    assert {cells[3] for cells in control.table().values()} == {"–"}
    control.type_into("cost-error", "5")
    assert control.table() == before


def test_a_threshold_out_of_range_is_ignored(control):
    control.open()
    before = control.threshold
    for text in ("7", "-1", ""):
        control.type_into("threshold", text)
        assert control.threshold == before
        assert float(control.find("threshold").get_attribute("value")) == before


@pytest.mark.parametrize("width", [PHONE, 360, DESK])
def test_every_column_is_visible_without_horizontal_scrolling(control, width):
    control.open(width)
    assert control.run("return document.documentElement.scrollWidth") <= width
    region = control.run("return document.getElementById('explorer-table').parentElement")
    wide, shown = control.run("return [arguments[0].scrollWidth, arguments[0].clientWidth]", region)
    assert wide <= shown
    inputs = control.driver.find_elements("css selector", "#threshold-explorer input, #threshold-explorer button")
    assert all(each.rect["x"] >= 0 and each.rect["x"] + each.rect["width"] <= width for each in inputs)


def test_label_names_are_escaped_and_the_page_sends_no_requests(control, page):
    control.open()
    control.driver.get_log("performance")
    control.open()
    control.take_cheapest()
    assert control.run("return document.querySelectorAll('#threshold-explorer b').length") == 0
    assert {url for url in requested_urls(control.driver) if not url.startswith(("blob:", "data:"))} == {page.as_uri()}
    assert control.driver.get_log("browser") == []


def test_the_command_is_copied_or_selected(control):
    from selenium.webdriver import Keys

    control.open()
    control.run("arguments[0].focus()", control.find("copy"))
    control.press(Keys.ENTER)
    message = wait_until(lambda: control.find("copied").text, timeout=10)
    assert message.startswith(("Copied", "The command"))
    if message.startswith("The command"):
        assert control.run("return getSelection().toString().trim()") == control.find("command").text
    program, command, *_ = shlex.split(control.find("command").text)
    assert (program, command) == ("relmap", "thresholds")


def test_the_printed_page_has_the_results_and_no_button(control):
    control.open()
    control.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    visible = "return getComputedStyle(arguments[0]).display"
    assert control.run(visible, control.find("copy")) == "none"
    assert control.run(visible, control.find("table")) == "table"
    control.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_without_javascript_the_control_is_hidden_and_the_page_refers_to_the_table_of_cuts(control):
    disable = "Emulation.setScriptExecutionDisabled"
    control.driver.execute_cdp_cmd(disable, {"value": True})
    control.driver.get(control.page.as_uri())
    text = wait_until(lambda: control.driver.find_element("id", "threshold").text)
    control.driver.execute_cdp_cmd(disable, {"value": False})
    assert 'table "Cuts"' in text
    assert "Cost of" not in text
