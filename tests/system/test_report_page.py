"""The report page in headless Chromium: desktop and phone widths, light and dark themes.

`make test-system` runs it; what is missing fails it. Nothing here needs a network, and nothing may ask for one.
"""

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relmap import cli as rerank
from relmap.report.figure import DARK, LIGHT
from tasks.tables.runs import PAPER_DATASETS
from tests import maps
from tests.report_data import IMPROVEMENTS, INCONCLUSIVE, contrast_ratio, make_results, write_report
from tests.system.browser import open_browser, requested_urls, wait_until

TEN = tuple(f"grade {number}" for number in range(10))
LONG = "a label of very many words that nobody would want to read twice"
DESK = 1440
PHONE = 360  # pixels
PAGE = "judged.html"  # of `rerank report`
LARGEST = 8_000_000  # bytes
MARKS = """
    const shapes = (within) => [...within.querySelectorAll(".role-mark path, .role-mark line")];
    const drawn = (shape) => {
        const box = shape.getBBox();
        return box.width + box.height > 0 && [box.x, box.y, box.width, box.height].every(Number.isFinite);
    };
    return [...document.querySelectorAll("figure.chart")].map((figure) => {
        const cells = [...figure.querySelectorAll("svg .role-scope.cell > g")];
        const panels = cells.length ? cells : [...figure.querySelectorAll("svg")];
        return {
            id: figure.id,
            marks: panels.map((panel) => shapes(panel).filter(drawn).length),
            broken: /NaN|undefined|Infinity/.test(figure.querySelector("svg")?.outerHTML || "undefined"),
            cut: [...figure.querySelectorAll("svg tspan, svg text")].map((text) => text.textContent)
                .filter((text) => /^[^…]*…$/.test(text)),
            outside: [...figure.querySelectorAll("svg text")].filter((text) => {
                const [mine, whole] = [text, text.ownerSVGElement].map((node) => node.getBoundingClientRect());
                return mine.left < whole.left - 1 || mine.right > whole.right + 1;
            }).map((text) => text.textContent),
        };
    });
"""
COLOURS = """
    const pairs = new Set();
    const opaque = (colour) => colour && !/^rgba\\(.*, 0\\)$|transparent/.test(colour);
    const ground = (node) => {
        for (; node; node = node.parentElement) {
            const colour = getComputedStyle(node).backgroundColor;
            if (opaque(colour)) return colour;
        }
        return "none";
    };
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let text = walk.nextNode(); text; text = walk.nextNode()) {
        const node = text.parentElement;
        if (!text.textContent.trim() || /SCRIPT|STYLE/.test(node.tagName)) continue;
        const style = getComputedStyle(node);
        pairs.add(`${node instanceof SVGElement ? style.fill : style.color} on ${ground(node)} by ${node.tagName}`);
    }
    return [...pairs];
"""

pytestmark = pytest.mark.system


@pytest.fixture(scope="module", params=["one", "twelve", "failed", "rerank"])
def report_path(request, tmp_path_factory) -> Iterator[Path]:
    """Files of pages; some data sets have too few groups, one decided label, or no certain decision.

    The last is that of `rerank report`.
    """
    if request.param == "rerank":
        rows = maps.write_frame(maps.make_predictions(900), tmp_path_factory.mktemp("rerank") / "judged.parquet")
        rerank.report(predictions=rows, out=rows.with_name(PAGE), group="group")
        yield rows.with_name(PAGE)
        return
    first = [
        make_results(PAPER_DATASETS[0], labels=TEN, rows=3000, groups=150),
        make_results(PAPER_DATASETS[1], labels=("no", "yes")),
        make_results(PAPER_DATASETS[2], decided=1, changes=dict.fromkeys(IMPROVEMENTS, INCONCLUSIVE)),
        make_results(PAPER_DATASETS[3], groups=5, changes=dict.fromkeys(IMPROVEMENTS)),
        make_results(PAPER_DATASETS[4], labels=("n", LONG, "y")),
        make_results(PAPER_DATASETS[5], source="official", failing=True),
    ]
    own = [
        make_results(f"own_{number}", labels=TEN[: 2 + 2 * (number % 5)], rows=1500, source="official")
        for number in range(6)
    ]
    sets, missing = {
        "one": ([make_results("shop", labels=("no", "yes"), source="official")], {}),
        "twelve": (first + own, {}),
        "failed": (first[:1], {"wands": "the gate 'pairs' failed", "own": "it was stopped"}),
    }[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp(request.param))
        yield write_report(sets, missing)


class Reader:
    """A browser with the page open."""

    def __init__(self, driver: Any, path: Path) -> None:
        self.driver = driver
        self.path = path
        self.look(DESK)
        self.open()

    def open(self) -> None:
        """Wait until every figure is drawn."""
        self.driver.get(self.path.as_uri())
        wait_until(lambda: self.run("return document.documentElement.dataset.drawn") == "yes")

    def ask(self, command: str, **settings: object) -> dict[str, Any]:
        return self.driver.execute_cdp_cmd(command, settings)

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def look(self, width: int) -> None:
        """Set the width of the screen in pixels, and wait until all charts fit."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        fits = "(plot) => Number(plot.dataset.width) === plot.clientWidth && plot.querySelector('svg')"
        wait_until(lambda: self.run(f"return [...document.querySelectorAll('.plot')].every({fits})"))

    def actions(self) -> Any:
        """What mouse and keyboard can do."""
        from selenium.webdriver import ActionChains

        return ActionChains(self.driver)

    def in_theme(self, name: str) -> None:
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])


@pytest.fixture(scope="module")
def reader(tmp_path_factory, report_path) -> Iterator[Reader]:
    with open_browser(tmp_path_factory.mktemp("browser")) as driver:
        yield Reader(driver, report_path)


@pytest.fixture(autouse=True)
def at_a_desk(reader):
    """Start each test with the desktop width and the light theme."""
    reader.in_theme("light")
    reader.look(DESK)


def test_the_page_opens_without_messages_or_requests_and_is_small(reader):
    reader.driver.get_log("performance")  # requests of Chromium at its start
    reader.open()
    assert reader.driver.get_log("browser") == []
    requested = {re.sub("^(blob|data):.*", r"\1", url) for url in requested_urls(reader.driver)}
    assert requested <= {reader.path.as_uri(), "blob", "data"}
    assert reader.path.stat().st_size < LARGEST


@pytest.mark.parametrize("width", [DESK, PHONE])
def test_every_panel_has_marks_and_no_truncated_text(reader, width):
    reader.look(width)
    figures = reader.run(MARKS)
    assert len(figures) >= (3 if reader.path.name == PAGE else 9)
    for figure in figures:
        assert figure["marks"], figure
        assert min(figure["marks"]) > 0, figure
        assert not figure["broken"], figure
        assert not figure["outside"], figure
        cut = [text for text in figure["cut"] if not LONG.startswith(text[:10])]
        assert width == PHONE or not cut, figure


@pytest.mark.parametrize("width", [PHONE, 768, DESK])
def test_the_page_is_as_wide_as_the_screen(reader, width):
    reader.look(width)
    reader.run("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
    shown, needed = reader.run("return [innerWidth, document.documentElement.scrollWidth]")
    assert needed <= shown == width
    wide = "[...document.querySelectorAll('.plot')].filter((plot) => plot.scrollWidth > plot.clientWidth)"
    assert reader.run(f"return {wide}.map((plot) => plot.closest('figure').id)") == []
    reader.run("document.querySelectorAll('details').forEach((details) => { details.open = false; })")


@pytest.mark.parametrize(("theme", "colours"), [("light", LIGHT), ("dark", DARK)])
def test_all_text_has_enough_contrast_in_both_themes(reader, theme, colours):
    reader.in_theme(theme)
    ground = reader.run("return getComputedStyle(document.body).backgroundColor")
    assert contrast_ratio(ground, colours["paper"]) == pytest.approx(1)
    pairs = reader.run(COLOURS)
    assert len(pairs) > 3
    for pair in pairs:
        text, behind, _ = re.split(" on | by ", pair)
        assert contrast_ratio(text, behind) >= 4.5, pair  # WCAG 2.2, level AA


def test_hovering_shows_numbers(reader):
    for figure in reader.driver.find_elements("css selector", "figure.chart")[:10]:
        marks = figure.find_elements("css selector", ".mark-symbol path, .mark-rect path")
        middle = marks[len(marks) // 2]
        reader.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", middle)

        def tooltip(mark=middle) -> str:
            reader.actions().move_by_offset(0, 0).move_to_element(mark).perform()
            return reader.driver.find_element("css selector", "#vg-tooltip-element.visible").text

        assert re.search(r"\d", wait_until(tooltip, timeout=10)), figure.get_attribute("id")


def test_the_keyboard_reaches_the_comparison_and_scrolling_regions(reader):
    from selenium.webdriver import Keys

    reader.open()  # nothing has the focus
    reader.actions().send_keys(Keys.TAB).perform()
    skip = reader.driver.switch_to.active_element
    assert skip.get_attribute("class") == "skip"
    assert skip.rect["x"] >= 0  # it is seen while it has the focus
    reader.actions().send_keys(Keys.ENTER).perform()
    assert reader.run("return location.hash") == "#comparison"
    passed = []
    for _ in range(12):
        reader.actions().send_keys(Keys.TAB).perform()
        passed.append(reader.driver.switch_to.active_element.get_attribute("class") or "")
    assert any("scrolled" in name for name in passed)
    assert "skip" not in passed[:5]  # it lies behind us; on a short page the way goes round
    assert reader.run("return [...document.querySelectorAll('.scrolled')].every((region) => region.tabIndex === 0)")


def test_the_rows_of_a_figure_can_be_saved_from_the_page_alone(reader):
    links = reader.run("return [...document.querySelectorAll('a.csv')].map((link) => link.href)")
    assert all(link.startswith("blob:") for link in links)
    saved = reader.run("return fetch(arguments[0]).then((answer) => answer.text())", links[0])
    assert saved.startswith("variant,coverage," if reader.path.name == PAGE else "dataset,change,")


def test_the_printed_page_has_all_figures_and_tables(reader):
    reader.ask("Emulation.setEmulatedMedia", media="print")  # charts are not drawn again for print
    widest = reader.run("""
        const plots = [...document.querySelectorAll(".plot")];
        plots.forEach((plot) => { plot.style.width = "300px"; });
        const wide = Math.max(...plots.map((plot) => plot.querySelector("svg").getBoundingClientRect().width));
        plots.forEach((plot) => { plot.style.width = ""; });
        return wide;
    """)
    reader.ask("Emulation.setEmulatedMedia", media="")
    assert widest <= 300
    pdf = base64.b64decode(reader.ask("Page.printToPDF", printBackground=True)["data"])
    assert pdf.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 4
