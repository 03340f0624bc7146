"""`dvc plots show` and `dvc plots diff` in headless Chromium without a network.

`make test-system` runs this test. It fails, instead of being skipped, if Chromium is missing.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import yaml

from tests.report_data import make_results, write_dvc_plots
from tests.system.browser import open_browser, requested_urls, wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
N_PLOTS = 4
COUNT_MARKS = """
const marks = [...document.querySelectorAll('.vega-embed svg.marks')];
return marks.map(svg => [...svg.querySelectorAll('[role=graphics-symbol]')].filter(it => it.getBBox().width > 0).length)
"""

pytestmark = pytest.mark.system


def run_command(folder: Path, *words: str) -> None:
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
        run_command(folder, "git", "init", "-q")
        run_command(folder, sys.executable, "-m", "dvc", "init", "-q")
        shutil.copy(ROOT / ".dvc/config", ".dvc/config")
        shutil.copytree(ROOT / ".dvc/plots", ".dvc/plots", dirs_exist_ok=True)
        run_command(folder, "git", "add", "-A")
        run_command(folder, "git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "before")
        write_dvc_plots(make_results("wands", rows=900))
    return folder


HOSTILE = "</script></plaintext><script>window.attacked = true</script><img src=x onerror='window.attacked = true'>"


@pytest.fixture
def driver(tmp_path):
    with open_browser(tmp_path / "browser") as browser:
        yield browser


@pytest.mark.parametrize("subcommand", [["show"], ["diff", "HEAD"]], ids=["show", "diff"])
def test_every_plot_is_drawn_without_network_requests(project, driver, subcommand):
    run_command(project, sys.executable, "-m", "dvc", "plots", *subcommand, "-q")
    driver.get((project / "dvc_plots/index.html").as_uri())
    wait_until(lambda: len(driver.execute_script(COUNT_MARKS)) == N_PLOTS, timeout=30)
    n_marks = driver.execute_script(COUNT_MARKS)  # lines, bands or bars of each plot
    assert min(n_marks) > 5
    assert driver.get_log("browser") == []
    assert [url for url in requested_urls(driver) if url.startswith("http")] == []


def test_a_label_runs_no_script_and_is_drawn(project, driver):
    curves = project / "data/report/figures/curves.csv"
    rows = pl.read_csv(curves).with_columns(label=pl.lit(HOSTILE))
    before = curves.read_bytes()
    rows.write_csv(curves)
    try:
        run_command(project, sys.executable, "-m", "dvc", "plots", "show", "-q")
    finally:
        curves.write_bytes(before)
    driver.get((project / "dvc_plots/index.html").as_uri())
    wait_until(lambda: len(driver.execute_script(COUNT_MARKS)) == N_PLOTS, timeout=30)
    assert driver.execute_script("return window.attacked") is None
    assert driver.get_log("browser") == []
