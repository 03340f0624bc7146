"""`dvc plots show` and `dvc plots diff` in a browser without a network: Chromium without a screen.

`make test-system` runs it; what is missing fails it.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
import yaml

from tasks.figures import figures_of
from tasks.page.page import dvc_plots_page
from tasks.protocol.store import REPORT
from tests.report_data import made
from tests.system.browser import eventually, open_browser

ROOT = Path(__file__).resolve().parent.parent.parent
DRAWN = """
const marks = [...document.querySelectorAll('.vega-embed svg.marks')];
return marks.map(one => [...one.querySelectorAll('[role=graphics-symbol]')].filter(it => it.getBBox().width > 0).length)
"""

pytestmark = pytest.mark.system


def command(folder: Path, *words: str) -> None:
    subprocess.run(words, cwd=folder, check=True)


def write_figures(folder: Path, names: Sequence[str], rows: int) -> None:
    """The CSVs that are plotted, of two data sets."""
    place = folder / REPORT / "figures"
    place.mkdir(parents=True, exist_ok=True)
    sets = [made("wands", rows=rows).results(), made("mine", source="files").results()]
    for name in names:
        found = [(one.shown, figure.rows) for one in sets for figure in figures_of(one) if figure.name == name]
        frames = [frame.select(pl.lit(shown).alias("dataset"), pl.all()) for shown, frame in found]
        pl.concat(frames).write_csv(place / f"{name}.csv")


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A repository with our plots, templates and settings: one commit, and other figures in the workspace."""
    folder = tmp_path_factory.mktemp("project")
    plots = yaml.safe_load((ROOT / "dvc.yaml").read_text())["plots"]
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"plots": plots}, sort_keys=False))
    names = [Path(path).stem for plot in plots for path in plot]
    write_figures(folder, names, rows=600)
    (folder / REPORT / "figures" / "dvc_plots.html").write_text(dvc_plots_page(), encoding="utf-8")
    command(folder, "git", "init", "-q")
    command(folder, sys.executable, "-m", "dvc", "init", "-q")
    shutil.copy(ROOT / ".dvc/config", folder / ".dvc/config")
    shutil.copytree(ROOT / ".dvc/plots", folder / ".dvc/plots", dirs_exist_ok=True)
    command(folder, "git", "add", "-A")
    command(folder, "git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "before")
    write_figures(folder, names, rows=900)
    return folder


@pytest.fixture
def driver(tmp_path):
    browser = open_browser(tmp_path / "browser")
    try:
        yield browser
    finally:
        browser.quit()


@pytest.mark.parametrize("what", [["show"], ["diff", "HEAD"]], ids=["show", "diff"])
def test_every_plot_is_drawn_and_no_request_leaves_the_page(project, driver, what):
    command(project, sys.executable, "-m", "dvc", "plots", *what, "-q")
    driver.get((project / "dvc_plots/index.html").as_uri())
    drawn = eventually(lambda: len(driver.execute_script(DRAWN)) == 4 and driver.execute_script(DRAWN), within=30)
    assert min(drawn) > 5  # lines, bands or bars
    assert driver.get_log("browser") == []
    messages = [json.loads(one["message"])["message"] for one in driver.get_log("performance")]
    sent = [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]
    assert [url for url in sent if url.startswith("http")] == []
