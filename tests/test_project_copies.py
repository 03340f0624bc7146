"""Copies of the project: with additions, read-only, and owned by another user.

A new calibrator, variant, metric, table or figure takes one new file and its line in one registry: no other edit. Where
a checkout cannot be written to, what must write says so in a sentence, and the rest works.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from relmap.maps.document import save_map
from tests import maps
from tests.project_copy import ROOT, clean_environment, copy_project, run_module

# New file, its content, registry, line of the registry before the new one, and the new line
ADDITIONS = (
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
        "from relmap.io.serialization import Value\n\n\n"
        'class AsItWas(Value, kind="as_it_was"):\n'
        "    shift: float\n\n"
        "    def __call__(self, decisions):\n        return decisions.confidence_logit + self.shift\n\n\n"
        "def fit_as_it_was(batch) -> list[AsItWas]:\n    return [AsItWas(0.5) for _ in range(batch.n_fits)]\n",
        "relmap/projection/registry.py",
        "_VARIANTS = (\n",
        'Variant(key="as_it_was", title="as it was", role="rival", model_types=(as_it_was.AsItWas,), '
        "fit=as_it_was.fit_as_it_was, "
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
INSPECT_ADDITIONS = """
import json, typing
from typer.testing import CliRunner
from flows import serve
from relmap import cli as rerank
from tasks.results.bootstrap import RESAMPLED_METRICS
from tests.report_data import make_results, write_report

import numpy as np
from relmap.estimator import ReliabilityMap
logits = np.random.default_rng(0).normal(size=(200, 3))
labels = np.arange(200) % 3
fitted = ReliabilityMap(calibrator="doubled", variant="as_it_was").fit(logits, labels)
fitted.save("map.json")
loaded = ReliabilityMap.load("map.json", arrays="logits")
doubled = np.exp(2 * logits) / np.exp(2 * logits).sum(axis=1, keepdims=True)
odds = doubled.max(axis=1) / (1 - doubled.max(axis=1))

print(json.dumps({
    "loaded": type(loaded.document_.projection.fitted).__name__,
    "difference": float(np.abs(loaded.reliability(logits) - 1 / (1 + np.exp(-0.5) / odds)).max()),
    "measured": fitted.evaluate(logits + 0.1, labels).to_dict()["metrics"]["errors_left"]["change"],
    "page": str(write_report([make_results(calibrators=("uncal", "doubled"))])),
    "help": CliRunner(env={"COLUMNS": "400"}).invoke(rerank.app, ["fit", "--help"]).output,
    "calibrators": typing.get_args(serve.CalibratorName),
    "bounded": RESAMPLED_METRICS,
}))
"""
EXPECTED_IN_REPORT = {  # files of the report -> names of additions in them
    "main.csv": ("doubled", "errors_left_conf", "errors_left_mrp", "errors_left_delta"),
    "intervals.csv": ("doubled",),
    "ablation_by_dataset.csv": ("as_it_was",),
    "figures/ablation.csv": ("as it was",),
    "metrics.json": ("errors_left",),
    "index.html": ("How many numbers were measured.", "All the scores"),
}


NAMING_VARIANTS = (  # tests with the names of variants
    "tests/library/maps/test_document.py",
    "tests/library/projection/test_registry_parts.py",
    "tests/pipeline/test_figures.py",
    "tests/pipeline/test_tables.py",
)
WRITE_SCHEMA = """
import json
from relmap.maps.document import SCHEMA_FILE, json_schema
SCHEMA_FILE.write_text(json.dumps(json_schema(), indent=1, ensure_ascii=False), encoding="utf-8")
"""


def add(folder: Path, file: str, content: str, registry: str, anchor: str, line: str) -> None:
    """Write a new file, and its line and its import into a registry."""
    (folder / file).write_text(content)
    module = file.removesuffix(".py").replace("/", ".")
    defined = content.partition("def ")[2].partition("(")[0]
    text = (folder / registry).read_text().replace(anchor, f"{anchor}        {line}\n")
    assert line in text, registry
    package, _, name = module.rpartition(".")
    imported = f"from {package} import {name}" if f"{name}." in line else f"from {module} import {defined}"
    (folder / registry).write_text(f"{imported}\n{text}")


def test_a_new_variant_changes_no_test(tmp_path):
    copy_project(tmp_path)
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    (variant,) = [addition for addition in ADDITIONS if "projection" in addition[0]]
    add(tmp_path, *variant)
    run_module(tmp_path, "-c", WRITE_SCHEMA)  # as the guide says, since the schema is a generated file
    run_module(tmp_path, "pytest", "-q", "-p", "no:cacheprovider", *NAMING_VARIANTS)


def test_new_component_needs_one_file_and_one_line(tmp_path):
    copy_project(tmp_path)
    for addition in ADDITIONS:
        add(tmp_path, *addition)

    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests/report_data.py", tmp_path / "tests")
    printed = run_module(tmp_path, "-c", INSPECT_ADDITIONS)
    (line,) = [line for line in printed.splitlines() if line.startswith("{")]
    shown = json.loads(line)
    folder = Path(shown["page"]).parent
    for file, names in EXPECTED_IN_REPORT.items():
        text = (folder / file).read_text()
        assert not [name for name in names if name not in text], file
    for name in ("doubled", "as_it_was"):
        assert name in shown["help"]
    assert "doubled" in shown["calibrators"]
    assert "errors_left" in shown["bounded"]
    assert shown["loaded"] == "AsItWas"
    assert shown["difference"] < 1e-12
    assert shown["measured"] == 0  # both scores are of the same decisions
    for file, suffixes in {"rows_measured": {".csv", ".md", ".tex"}, "figures/all_scores": {".csv"}}.items():
        assert {path.suffix for path in folder.glob(f"{file}.*")} == suffixes


NOBODY = 65534
# Root may write everywhere unless its process gives up these capabilities
WITHOUT_ROOT_CAPABILITIES = (
    ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner"] if os.geteuid() == 0 else []
)


def copy_with_data(folder: Path) -> Path:
    """Copy the project, and create its folder of outputs."""
    copy_project(folder)
    (folder / "data").mkdir()
    return folder


@pytest.fixture(scope="module")
def read_only(tmp_path_factory):
    folder = copy_with_data(tmp_path_factory.mktemp("read_only"))
    modes = {path: path.stat().st_mode for path in (folder, *folder.rglob("*"))}
    for path, mode in modes.items():
        path.chmod(mode & ~0o222)
    yield folder
    for path, mode in modes.items():
        path.chmod(mode)


@pytest.fixture(scope="module")
def owned_by_another_user(tmp_path_factory) -> Path:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    folder = copy_with_data(tmp_path_factory.mktemp("foreign"))
    folder.chmod(0o755)
    (folder / ".prefect").mkdir(mode=0o700)
    (folder / "data/.state/locks").mkdir(parents=True)
    (folder / "data/.state/server.json").write_text('{"api_url": "http://127.0.0.1:9/api"}')
    (folder / "data/.state/locks/serve.lock").touch(mode=0o600)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    return folder


def run_unprivileged(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a module of the copy as a user without special rights."""
    command = [*WITHOUT_ROOT_CAPABILITIES, sys.executable, "-m", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=clean_environment(), capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("fixture", "module"), [("read_only", "flows.serve"), ("owned_by_another_user", "flows.serve")]
)
def test_command_without_write_permission_reports_it(fixture, module, request):
    completed = run_unprivileged(request.getfixturevalue(fixture), module)
    assert completed.returncode == 1
    assert completed.stderr.count("\n") == 1
    assert completed.stderr.startswith(f"{module.partition('.')[2]}: ")
    assert "Permission denied" in completed.stderr or "not permitted" in completed.stderr
    assert "belongs to you" in completed.stderr


@pytest.mark.parametrize(("fixture", "module"), [("owned_by_another_user", "flows.refresh"), ("read_only", "relmap")])
def test_help_needs_no_write_permission(fixture, module, request):
    completed = run_unprivileged(request.getfixturevalue(fixture), module, "--help")
    assert (completed.returncode, completed.stderr) == (0, "")
    assert completed.stdout.strip().startswith("Usage: ")


def test_library_command_works_from_a_read_only_checkout(read_only, tmp_path):
    save_map(maps.make_map(), tmp_path / "map.json")
    maps.make_predictions(90).write_parquet(tmp_path / "new.parquet")
    options = (
        "--map",
        tmp_path / "map.json",
        "--predictions",
        tmp_path / "new.parquet",
        "--out",
        tmp_path / "out.parquet",
    )
    completed = run_unprivileged(read_only, "relmap", "apply", *options)
    assert completed.returncode == 0, completed.stderr
    assert (tmp_path / "out.parquet").exists()
