"""`dvc plots show` and `dvc plots diff` in headless Chromium without a network.

`make test-system` runs it; what is missing fails it.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.report_data import make_results, write_dvc_plots
from tests.system.browser import eventually, open_browser, requested_addresses

ROOT = Path(__file__).resolve().parent.parent.parent
DRAWN = """
const marks = [...document.querySelectorAll('.vega-embed svg.marks')];
return marks.map(svg => [...svg.querySelectorAll('[role=graphics-symbol]')].filter(it => it.getBBox().width > 0).length)
"""

pytestmark = pytest.mark.system


def command(folder: Path, *words: str) -> None:
    subprocess.run(words, cwd=folder, check=True)


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """Repository with the plots, templates and settings: one commit, and other figures in the workspace."""
    folder = tmp_path_factory.mktemp("project")
    plots = yaml.safe_load((ROOT / "dvc.yaml").read_text())["plots"]
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"plots": plots}, sort_keys=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_dvc_plots(make_results("wands"))
        command(folder, "git", "init", "-q")
        command(folder, sys.executable, "-m", "dvc", "init", "-q")
        shutil.copy(ROOT / ".dvc/config", ".dvc/config")
        shutil.copytree(ROOT / ".dvc/plots", ".dvc/plots", dirs_exist_ok=True)
        command(folder, "git", "add", "-A")
        command(folder, "git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "before")
        write_dvc_plots(make_results("wands", rows=900))
    return folder


@pytest.fixture
def driver(tmp_path):
    with open_browser(tmp_path / "browser") as browser:
        yield browser


@pytest.mark.parametrize("what", [["show"], ["diff", "HEAD"]], ids=["show", "diff"])
def test_every_plot_is_drawn_without_network_requests(project, driver, what):
    command(project, sys.executable, "-m", "dvc", "plots", *what, "-q")
    driver.get((project / "dvc_plots/index.html").as_uri())
    marks = eventually(lambda: len(driver.execute_script(DRAWN)) == 4 and driver.execute_script(DRAWN), within=30)
    assert min(marks) > 5  # lines, bands or bars
    assert driver.get_log("browser") == []
    assert [url for url in requested_addresses(driver) if url.startswith("http")] == []
