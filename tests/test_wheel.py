"""The wheel: contents, installation, and use in a folder where the user has modules named `tasks` and `flows`."""

import json
import re
import shutil
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
import yaml

from relmap import __version__
from relmap.simulation.predictions import LABEL_NAMES, simulate_predictions
from tests.environments import (
    PYTHONS,
    ROOT,
    build_wheel,
    create_environment,
    find_python,
    install,
    run_code_of_page,
    run_command,
    uv_pip,
    write_constraints,
)
from tests.library.laws.test_services import FIRST_USE, N_THREADS

MAX_PACKAGES = 30  # of an installation without extras
MAX_MEGABYTES = {"no extra": 700, "report": 850}  # by extra; on the disk as with `du -m`, but without bytecode
NOT_IN_WHEEL = {"README.md"}
OLDER_VERSIONS = ("numpy<2.4", "scikit-learn<1.9", "pydantic<2.13")  # which other packages of a user may require
PIPELINE_MODULES = ("torch", "prefect", "dvc", "great_expectations", "lightgbm", "datasets", "pandas")
OTHER_PYTHON = pytest.param("other Python", marks=pytest.mark.system)


class Installed(NamedTuple):
    """The wheel in an environment of its own.

    Attributes:
        python: The interpreter of the environment.
        folder: A folder with the user's own `tasks.py` and `flows.py`.
        packages: Number of packages without extras.
        megabytes: Size of the packages without extras, and with the extra `report`, in MiB.
    """

    python: Path
    folder: Path
    packages: int
    megabytes: dict[str, int]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("source"))


def count_megabytes(folder: Path) -> int:
    """Return the size of the files of a folder on the disk in MiB, without bytecode, which Python may write later."""
    files = [path.lstat() for path in folder.rglob("*") if path.suffix != ".pyc"]
    return sum(file.st_blocks for file in files) * 512 // 2**20


def find_interpreter(installation: str) -> Path:
    """Find the interpreter of an installation; skip the test if there is none.

    "tested" is installed for the current Python, "lowest" for the lowest supported one, and "other Python" for the
    highest supported one that is not the current one.
    """
    current = Path(sys.executable)
    if installation == "tested":
        return current
    if installation == "lowest":
        lowest = find_python(PYTHONS[0])
        if lowest is None:
            pytest.skip(f"Python {PYTHONS[0]} is missing")
        return lowest
    others = [python for python in map(find_python, PYTHONS) if python not in (None, current)]
    if not others:
        pytest.skip(f"no other Python of {', '.join(PYTHONS)} is installed")
    return others[-1]


@pytest.fixture(scope="module", params=["tested", "lowest", OTHER_PYTHON])
def installed(request, wheel, tmp_path_factory) -> Installed:
    """Install the wheel with the tested or the lowest versions of its dependencies, or for another Python."""
    folder = tmp_path_factory.mktemp("installed")
    interpreter = find_interpreter(request.param)
    versions = "lowest" if request.param == "lowest" else "tested"
    constraints = write_constraints(folder, interpreter, versions, extra="report")
    python = create_environment(folder, interpreter)
    install(python, constraints, wheel)
    packages = len(json.loads(uv_pip("list", "--quiet", "--format", "json", "--python", python)))
    megabytes = {"no extra": count_megabytes(folder / "environment")}
    install(python, constraints, f"{wheel}[report]")
    megabytes["report"] = count_megabytes(folder / "environment")
    user_folder = folder / "own"
    user_folder.mkdir()
    for name in ("tasks.py", "flows.py"):
        (user_folder / name).write_text("raise RuntimeError('a module of the user')\n")
    return Installed(python, user_folder, packages, megabytes)


def test_wheel_contains_only_the_library_and_its_data(wheel):
    files = {path.relative_to(ROOT) for path in (ROOT / "relmap").rglob("*") if path.is_file()}
    expected = {str(file) for file in files if file.suffix != ".pyc" and file.name not in NOT_IN_WHEEL}
    contained = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert contained == expected
    assert contained >= {"relmap/py.typed", "relmap/maps/map.schema.json", "relmap/report/templates/page.css"}


@pytest.mark.parametrize("older_versions", [*[(version,) for version in OLDER_VERSIONS], OLDER_VERSIONS], ids=" ".join)
def test_wheel_is_compatible_with_older_versions_of_common_libraries(older_versions, wheel, tmp_path):
    requirements = tmp_path / "requirements.in"
    requirements.write_text("\n".join([f"relmap[report] @ {wheel.as_uri()}", *older_versions]))
    assert "relmap @ " in uv_pip("compile", "--quiet", "--python", sys.executable, requirements)


def test_installation_is_small(installed):
    assert installed.packages <= MAX_PACKAGES
    assert {name for name, size in installed.megabytes.items() if size > MAX_MEGABYTES[name]} == set()


def test_installed_library_is_used_without_the_pipeline(installed):
    code = """
import json, sys
from importlib.util import find_spec
import relmap
found_modules = [name for name in sys.argv[1:] if find_spec(name)]
print(json.dumps([relmap.__file__, found_modules]))
"""
    printed = run_command(installed.python, "-c", code, *PIPELINE_MODULES, folder=installed.folder)
    (site_packages,) = installed.python.parents[1].glob("lib/*/site-packages")
    assert json.loads(printed) == [f"{site_packages}/relmap/__init__.py", []]


@pytest.mark.parametrize("installed", ["tested", OTHER_PYTHON], indirect=True)
def test_readme_runs_with_user_modules_named_tasks_and_flows(installed):
    run_code_of_page(installed.python, ROOT / "README.md", installed.folder, PYTHONPATH=str(installed.folder))


@pytest.mark.parametrize("installed", ["lowest", OTHER_PYTHON], indirect=True)
def test_command_runs_with_user_modules_named_tasks_and_flows(installed):
    command = installed.python.with_name("relmap")
    folder = installed.folder
    assert run_command(command, "--version", folder=folder) == f"relmap {__version__}\n"

    run_command(command, "demo", "--folder", "demo", folder=folder)  # fit, apply, thresholds, label and evaluate
    assert (folder / "demo/scored.parquet").exists()

    labels = ("--labels", ",".join(LABEL_NAMES))
    validation_rows = ("--predictions", "demo/validation.parquet")
    run_command(command, "report", *validation_rows, *labels, "--out", "page.html", folder=folder)
    assert (folder / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")

    simulated = simulate_predictions(200, seed=0)
    logits = [pl.col("logits").list.get(label).alias(f"logits_{label}") for label in range(3)]
    simulated.select("label", *logits).write_csv(folder / "rows.csv")
    csv_rows = ("--predictions", "rows.csv")
    run_command(command, "fit", *csv_rows, *labels, "--out", "map.json", folder=folder)
    run_command(command, "apply", "--map", "map.json", *csv_rows, "--out", "routed.csv", folder=folder)
    assert len(pl.read_csv(folder / "routed.csv")) == 200


def test_missing_extra_is_named(installed):
    (installed.folder / "rows.xlsx").write_bytes(b"PK")
    arguments = ("fit", "--predictions", "rows.xlsx", "--out", "from_excel.json")
    command = installed.python.with_name("relmap")
    assert "relmap[excel]" in run_command(command, *arguments, folder=installed.folder, status=1)


@pytest.mark.parametrize("installed", ["lowest"], indirect=True)
def test_first_use_in_a_process_is_thread_safe_with_the_lowest_versions(installed):
    fit = """
import numpy as np
from relmap import ReliabilityMap
generator = np.random.default_rng(0)
probabilities = generator.dirichlet(np.ones(3), 300)
labels = (probabilities.cumsum(axis=1) > generator.random((300, 1))).argmax(axis=1)
ReliabilityMap().fit(probabilities, labels).save("threads.json")
"""
    run_command(installed.python, "-c", fit, folder=installed.folder)
    # FIRST_USE reads rows from the standard input, and scores them with the map in each thread
    code = f"import io, sys; sys.stdin = io.StringIO('[[0.2, 0.3, 0.5], [0.1, 0.8, 0.1]]')\n{FIRST_USE}"
    printed = run_command(installed.python, "-c", code, "threads.json", N_THREADS, folder=installed.folder)
    reliability_of_threads = json.loads(printed)
    assert reliability_of_threads == [reliability_of_threads[0]] * N_THREADS


def test_release_makes_readme_links_absolute(tmp_path):
    steps = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]["build"]["steps"]
    (step,) = [step for step in steps if "README" in step.get("name", "")]
    shutil.copy(ROOT / "README.md", tmp_path)
    variables = {"GITHUB_REPOSITORY": "owner/relmap", "GITHUB_REF_NAME": "v1"}
    run_command("bash", "-c", step["run"], folder=tmp_path, **variables)
    links = re.findall(r"\]\(([^)]+)\)", (tmp_path / "README.md").read_text(encoding="utf-8"))

    assert "https://raw.githubusercontent.com/owner/relmap/v1/docs/_static/overview.svg" in links
    assert "https://github.com/owner/relmap/blob/v1/CHANGELOG.md" in links
    assert not [link for link in links if not link.startswith("https://")]
