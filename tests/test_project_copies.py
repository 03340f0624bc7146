"""A copy of the project: one with an addition, one that is read-only, and one of another user.

A new calibrator, variant, metric, table or figure takes one new file and its line in one registry: no other edit. Where
a checkout cannot be written to, what must write says so in a sentence, and the rest works.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import maps
import pytest

from relmap.maps.map_file import save_map
from tests.project_copy import ROOT, copy_project, environment

NEW = (  # the file of what is added, what stands in it, the registry, the line behind which it stands, its own line
    (
        "relmap/calibrators/doubled.py",
        "from relmap.calibrators.temperature import Temperature\n\n\n"
        "def fit_doubled(logits, labels, *, seed) -> Temperature:\n    return Temperature(2.0)\n",
        "relmap/calibrators/registry.py",
        "_CALIBRATORS = (\n",
        'CalibratorSpec(key="doubled", title="Doubled", role="rival", model_type=temperature.Temperature, '
        "fit=fit_doubled),",
    ),
    (
        "relmap/projection/as_it_was.py",
        "from relmap.projection.curves import Confidence\n\n\n"
        "def fit_as_it_was(batch) -> list[Confidence]:\n    return [Confidence() for _ in range(batch.n_fits)]\n",
        "relmap/projection/variants.py",
        "_VARIANTS = (\n",
        'Variant(key="as_it_was", title="as it was", role="rival", model_types=(Confidence,), fit=fit_as_it_was, '
        'description="the confidence as it was"),',
    ),
    (
        "relmap/metrics/errors_left.py",
        "def errors_left(view):\n    return 1 - view.mean(view.correct)\n",
        "relmap/metrics/registry.py",
        "_METRICS = (\n",
        'Metric(key="errors_left", title="errors left", direction=LOWER, view=ReliabilityView, function=errors_left, '
        "compared=True),",
    ),
    (
        "tasks/tables/rows_measured.py",
        "from tasks.tables.runs import table\n\n\n"
        '@table("rows_measured", "How many numbers were measured.")\n'
        'def rows_measured(runs):\n    return runs.metrics.group_by("dataset", "source").len()\n',
        "tasks/tables/__init__.py",
        "        verdict_table,\n",
        "rows_measured,",
    ),
    (
        "tasks/figures/all_scores.py",
        "from relmap.report.figure import Drawing, figure\n\n\n"
        '@figure("all_scores", "All the scores", "No chart.")\n'
        'def all_scores(results):\n    return Drawing(results.scores.select("confidence"), {"mark": "point"})\n',
        "tasks/figures/__init__.py",
        "        for_paper.simplex_paths,\n",
        "all_scores,",
    ),
)
SEEN = """
import json, typing
from typer.testing import CliRunner
from flows import forms
from relmap import cli as rerank
from tasks.records.measurements import RESAMPLED_METRICS
from tests.report_data import make_results, write_report

print(json.dumps({
    "page": str(write_report([make_results(calibrators=("uncal", "doubled"))])),
    "help": CliRunner(env={"COLUMNS": "400"}).invoke(rerank.app, ["fit", "--help"]).output,
    "forms": [*typing.get_args(forms.CalibratorName), *typing.get_args(forms.VariantName)],
    "bounded": RESAMPLED_METRICS,
}))
"""
SHOWN = {  # files of the report, and what of the additions they name
    "main.csv": ("doubled", "errors_left_conf", "errors_left_mrp", "errors_left_delta"),
    "intervals.csv": ("doubled",),
    "ablation_by_dataset.csv": ("as_it_was",),
    "figures/ablation.csv": ("as it was",),
    "metrics.json": ("errors_left",),
    "index.html": ("How many numbers were measured.", "All the scores"),
}


def test_what_is_new_is_in_the_report_the_help_and_the_forms_is_bounded_and_has_its_files(tmp_path):
    copy_project(tmp_path)
    for file, content, registry, last, line in NEW:
        (tmp_path / file).write_text(content)
        module, defined = file.removesuffix(".py").replace("/", "."), content.partition("def ")[2].partition("(")[0]
        text = (tmp_path / registry).read_text().replace(last, f"{last}        {line}\n")
        assert line in text, registry
        (tmp_path / registry).write_text(f"from {module} import {defined}\n{text}")
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests/report_data.py", tmp_path / "tests")
    words = [sys.executable, "-c", SEEN]
    done = subprocess.run(words, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    folder = Path(seen["page"]).parent
    for file, names in SHOWN.items():
        text = (folder / file).read_text()
        assert not [name for name in names if name not in text], file
    for name in ("doubled", "as_it_was"):
        assert name in seen["help"]
        assert name in seen["forms"]
    assert "errors_left" in seen["bounded"]
    for file, suffixes in {"rows_measured": {".csv", ".md", ".tex"}, "figures/all_scores": {".csv"}}.items():
        assert {path.suffix for path in folder.glob(f"{file}.*")} == suffixes


NOBODY = 65534
# root may do everything, unless its process has laid that down
BOUND = ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner"] if os.geteuid() == 0 else []


def copied(folder: Path) -> Path:
    """A copy of this project, and the folder that a run would write to."""
    copy_project(folder)
    (folder / "data").mkdir()
    return folder


@pytest.fixture(scope="module")
def read_only(tmp_path_factory):
    folder = copied(tmp_path_factory.mktemp("read_only"))
    modes = {path: path.stat().st_mode for path in (folder, *folder.rglob("*"))}
    for path, mode in modes.items():
        path.chmod(mode & ~0o222)
    yield folder
    for path, mode in modes.items():
        path.chmod(mode)


@pytest.fixture(scope="module")
def another_users(tmp_path_factory) -> Path:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    folder = copied(tmp_path_factory.mktemp("foreign"))
    folder.chmod(0o755)
    (folder / ".prefect").mkdir(mode=0o700)
    (folder / "data/.state/locks").mkdir(parents=True)
    (folder / "data/.state/server.json").write_text('{"api_url": "http://127.0.0.1:9/api"}')
    (folder / "data/.state/locks/serve.lock").touch(mode=0o600)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    return folder


def ran(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """`python -m` of a module of the copy, as a user who may no more than the modes say."""
    command = [*BOUND, sys.executable, "-m", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("which", "module"), [("read_only", "flows.serve"), ("another_users", "flows.serve")])
def test_what_must_write_says_in_a_sentence_that_it_may_not(which, module, request):
    done = ran(request.getfixturevalue(which), module)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"{module.partition('.')[2]}: ")
    assert "Permission denied" in done.stderr or "not permitted" in done.stderr
    assert "a checkout that belongs to you" in done.stderr


@pytest.mark.parametrize(("which", "module"), [("another_users", "flows.refresh"), ("read_only", "relmap")])
def test_help_needs_nothing_and_runs_nothing(which, module, request):
    done = ran(request.getfixturevalue(which), module, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip().startswith("Usage: ")


def test_rerank_works_on_files_elsewhere(read_only, tmp_path):
    save_map(maps.document(), tmp_path / "map.json")
    maps.predictions(90).write_parquet(tmp_path / "new.parquet")
    files = "--map", tmp_path / "map.json", "--predictions", tmp_path / "new.parquet", "--out", tmp_path / "out.parquet"
    done = ran(read_only, "relmap", "apply", *files)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.parquet").exists()
