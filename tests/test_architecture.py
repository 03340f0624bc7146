"""Rules of the architecture, each with a test that a violation is detected."""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest
import yaml

import relmap
from flows import dvc_process
from tasks.provenance.dvc_stages import read_dvc_stage, stage_names
from tasks.provenance.hashing import imported_files, imported_modules
from tests.project_copy import copy_project, shrink_params

ROOT = Path(__file__).resolve().parent.parent
TASK_MODULES = sorted(path.relative_to(ROOT) for path in ROOT.glob("tasks/*.py"))
FLOWS = sorted(path.relative_to(ROOT) for path in ROOT.glob("flows/*.py"))
LIBRARY = sorted(path.relative_to(ROOT) for path in ROOT.glob("relmap/**/*.py"))


def python_files(folder: Path) -> list[Path]:
    """List the Python files in a folder and its subfolders, relative to the root."""
    return sorted(path.relative_to(ROOT) for path in folder.rglob("*.py"))


def top_level_names(modules: set[str]) -> set[str]:
    """Return the top-level packages of modules."""
    return {name.split(".")[0] for name in modules}


TASK_PACKAGES = {  # packages of tasks/ -> their files
    folder.name: python_files(folder) for folder in ROOT.glob("tasks/*/") if (folder / "__init__.py").exists()
}
FILES = [*TASK_MODULES, *chain.from_iterable(TASK_PACKAGES.values()), *LIBRARY]
IMPORTS = {file: imported_modules(ROOT / file) for file in (*FILES, *FLOWS)}
LIBRARIES = {file: top_level_names(modules) for file, modules in IMPORTS.items()}
BASE_PACKAGES = {"provenance", "settings", "records", "results", "sources"}
ALSO_ALLOWED = {"page": {"tables", "figures"}}  # packages that may import more than the base
LAYERS = (  # of the library from bottom to top; a part imports only itself and lower layers
    {"errors", "decisions", "settings"},
    {"metrics", "io", "simulation"},
    {"calibrators"},
    {"projection"},
    {"maps"},
    {"evaluation"},
    {"routing"},
    {"cascade"},
    {"report"},
    {"estimator", "cli", "__main__"},
)
ALLOWED_PACKAGES: dict[str, set[str]] = {  # heavy or pickling libraries -> packages that may import them
    **{library: set() for library in ("pickle", "cloudpickle", "joblib", "dill", "marshal", "shelve")},
    "great_expectations": {"expectations"},
    "datasets": {"datasets"},
    "torch": {"projection"},
    "lightgbm": {"predictors"},
    "duckdb": {"io"},
    "sqlglot": {"maps"},
}
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
# Only user data sets have the readers `files` and `hub`.
ENTRIES = yaml.safe_load((ROOT / "params.yaml").read_text())["datasets"] | {
    "mine": {"reader": "files", "path": "mine.csv"},
    "theirs": {"reader": "hub", "path": "tasks/datasets/hub.py"},
}


def imported_task_packages(file: Path) -> set[str]:
    """Return the packages and modules of `tasks` that a file imports."""
    return {name.split(".")[1] for name in IMPORTS[file] if name.startswith("tasks.")}


def stage_entry(name: str) -> dict:
    """Return the entry of a stage of dvc.yaml, single or repeated for each data set."""
    return STAGES[name].get("do", STAGES[name])


def resolve_dependencies(dependencies: list[str]) -> set[str]:
    """Resolve `${key}` and `${item.…}` in dependencies for all data sets of params.yaml."""
    resolved = set()
    for key, entry in ENTRIES.items():
        values = {"${key}": key} | {f"${{item.{name}}}": str(value) for name, value in entry.items()}
        for dependency in dependencies:
            for name, value in values.items():
                dependency = dependency.replace(name, value)  # noqa: PLW2901
            resolved.add(dependency)
    return resolved


def files_run(name: str) -> set[Path]:
    """Return the non-empty project files that the command of a stage reaches."""
    entry = Path(*stage_entry(name)["cmd"].split()[2].split(".")).with_suffix(".py")
    return {file for file in imported_files(entry, ROOT) if (ROOT / file).stat().st_size}


def undeclared_files(name: str, dependencies: list[str]) -> set[Path]:
    """Return project files that the command of a stage runs but no dependency covers."""
    covered = resolve_dependencies(dependencies)
    undeclared = set()
    for file in files_run(name):
        if not any(file.is_relative_to(path) for path in covered):
            undeclared.add(file)
    return undeclared


@pytest.mark.parametrize("package", TASK_PACKAGES)
def test_task_packages_import_only_lower_packages_and_no_orchestrator(package):
    for file in TASK_PACKAGES[package]:
        assert not LIBRARIES[file] & {"prefect", "dvc", "flows"}, file
        assert imported_task_packages(file) <= BASE_PACKAGES | ALSO_ALLOWED.get(package, set()) | {package}, file


def test_task_modules_do_not_import_each_other():
    for module in TASK_MODULES:
        assert not imported_task_packages(module) & {path.stem for path in TASK_MODULES}, module


def test_heavy_libraries_stay_in_their_package_and_nothing_is_pickled():
    for file, libraries in LIBRARIES.items():
        for library in libraries & set(ALLOWED_PACKAGES):
            assert file.parts[1] in ALLOWED_PACKAGES[library], f"{file} imports {library}"


# Text -> files that may contain it. A fit or a gate that fails would fail again, because its inputs are the same.
FORBIDDEN_TEXTS = {
    r"(?<![\w.])(eval|exec)\(": [],
    "retries=": [Path("tasks/download.py")],  # network errors can be temporary
    r"truth\.parquet": TASK_PACKAGES["simulation"],  # truth of simulated data
}


@pytest.mark.parametrize("text", FORBIDDEN_TEXTS)
def test_no_file_evaluates_code_retries_or_reads_the_simulated_truth(text):
    for file in {*IMPORTS} - {*FORBIDDEN_TEXTS[text]}:
        assert not re.search(text, (ROOT / file).read_text()), file


@pytest.mark.parametrize("package", ["tasks", *sorted({str(file.parent) for file in LIBRARY} - {"relmap"})])
def test_importing_a_package_runs_nothing(package):
    assert (ROOT / package / "__init__.py").read_text() == ""


def part_of(module: str) -> str:
    """Return the part of the library of a module: the first name after `relmap`."""
    return module.split(".")[1]


def layer_of(part: str) -> int:
    """Return the number of the layer of a part, from the bottom."""
    return next(number for number, parts in enumerate(LAYERS) if part in parts)


def parts_too_high(own: str, modules: set[str]) -> set[str]:
    """Return the imported parts of the library that are above the importing part."""
    parts = {part_of(name) for name in modules if name.startswith("relmap.")} - {own, "__version__"}
    return {part for part in parts if layer_of(part) > layer_of(own)}


@pytest.mark.parametrize("file", [file for file in LIBRARY if file != Path("relmap/__init__.py")], ids=str)
def test_library_imports_only_lower_layers_and_no_pipeline(file):
    own = part_of(".".join(file.with_suffix("").parts))
    assert not LIBRARIES[file] & {"tasks", "flows", "prefect", "dvc", "great_expectations"}
    assert not parts_too_high(own, IMPORTS[file])


def test_import_of_a_higher_layer_is_detected():
    assert parts_too_high("metrics", {"numpy", "relmap", "relmap.maps.fit", "relmap.errors"}) == {"maps"}
    assert parts_too_high("cli", {"relmap.io.rows", "relmap.errors"}) == set()


def check_cycles(imports: dict[Path, set[str]]) -> None:
    """Raise CycleError if files import one another in a circle."""
    graph = {}
    for file, names in imports.items():
        reached = {Path(*name.split(".")).with_suffix(".py") for name in names}
        graph[file] = reached & imports.keys()
    TopologicalSorter(graph).prepare()


def test_the_library_has_no_import_cycles():
    check_cycles({file: IMPORTS[file] for file in LIBRARY})


def test_import_cycle_is_detected():
    with pytest.raises(CycleError):
        check_cycles({Path("relmap/a.py"): {"relmap.b"}, Path("relmap/b.py"): {"relmap", "relmap.a"}})


def lazy_imports(text: str) -> set[str]:
    """Return the public names, or the package, that code imports from the lazy top level of the library."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name == "relmap"}
        elif isinstance(node, ast.ImportFrom) and node.module == "relmap":
            found |= {alias.name for alias in node.names if alias.name in relmap.__all__}
    return found


@pytest.mark.parametrize("file", [file for file in IMPORTS if file.parts[0] != "relmap"], ids=str)
def test_pipeline_does_not_import_the_lazy_top_level(file):
    assert lazy_imports((ROOT / file).read_text(encoding="utf-8")) == set()


@pytest.mark.parametrize(
    "line", ["import relmap", "from relmap import ReliabilityMap", "from relmap import cli, load_map"]
)
def test_lazy_top_level_import_is_detected(line):
    assert lazy_imports(line)
    assert not lazy_imports("import relmap.errors\nfrom relmap import cli\nfrom relmap.maps.document import load_map")


@pytest.mark.parametrize("name", STAGES)
def test_every_module_that_a_stage_imports_is_in_one_of_its_dependencies(name):
    dependencies = stage_entry(name)["deps"]
    assert not undeclared_files(name, dependencies)
    for left_out in ("tasks/provenance", "relmap"):
        incomplete = [dependency for dependency in dependencies if not dependency.startswith(left_out)]
        assert any(file.is_relative_to(left_out) for file in undeclared_files(name, incomplete))


# Changed file -> kinds of stages that run then, apart from those that follow if their inputs have changed.
RERUNS = {
    "tasks/tables/paper.py": {"report"},
    "tasks/figures/overview.py": {"report"},
    "tasks/page/page.html.jinja": {"report"},
    "relmap/report/figure.py": {"report"},
    "tasks/results/comparison.py": {"reliability", "report"},
    "relmap/calibrators/registry.py": {"reliability", "report"},
    "relmap/projection/registry.py": {"reliability", "report"},
    "tasks/predictors/linear.py": {"train"},
    "tasks/datasets/raw.py": {"download", "train"},
    "relmap/io/text.py": {"download", "train", "reliability", "report"},
    "relmap/io/output.py": {"download", "train", "reliability", "report"},
    "relmap/report/page.py": {"report"},
    "tasks/__pycache__/train.cpython.pyc": set(),
    "flows/choose_twin.py": set(),
}


@pytest.fixture(scope="module")
def up_to_date(tmp_path_factory):
    """Copy the project with made-up outputs, and let DVC record that they belong to the current code."""
    folder = tmp_path_factory.mktemp("up_to_date")
    copy_project(folder, shrink_params)
    (folder / "mine.csv").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in stage_names():
            for output in read_dvc_stage(name).outputs:
                output = output if output.suffix else output / "file"  # noqa: PLW2901
                output.parent.mkdir(parents=True, exist_ok=True)
                output.write_text(name)
        dvc_process.query("commit", "--force", "--quiet")
        yield folder


def test_a_change_of_code_reruns_only_the_stages_that_it_concerns(up_to_date):
    assert dvc_process.read_status() == {}
    for file, stages in RERUNS.items():
        path = up_to_date / file
        before = path.read_bytes() if path.exists() else b""
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(before + b"\n")
        assert {stage.partition("@")[0] for stage in dvc_process.read_status()} == stages, file
        path.write_bytes(before)


def test_flows_contains_commands_and_shared_modules():
    shared = {"__init__", "engine", "headers", "dvc_process"}
    assert shared < {file.stem for file in FLOWS}
    for file in FLOWS:
        text = (ROOT / file).read_text()
        assert file.stem in shared or 'if __name__ == "__main__":' in text, file


def test_no_stage_depends_on_an_address_on_the_network():
    # DVC fails everything where such a dependency cannot be reached
    assert not [dependency for name in STAGES for dependency in stage_entry(name)["deps"] if "://" in dependency]


def test_dvc_ignores_caches():
    ignored = set((ROOT / ".dvcignore").read_text().split())
    assert ignored >= {"__pycache__", "*.pyc", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
