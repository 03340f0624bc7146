"""The house rules as tests, each with a test that sees it fail."""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import yaml

import relmap
from tasks.provenance.dvc_stages import CODE_FOLDERS
from tasks.provenance.hashing import imported_files, imported_modules

ROOT = Path(__file__).resolve().parent.parent
VERBS = sorted(path.relative_to(ROOT) for path in ROOT.glob("tasks/*.py"))
FLOWS = sorted(path.relative_to(ROOT) for path in ROOT.glob("flows/*.py"))
ROOMS = {  # folders of tasks/ -> their files
    folder.name: sorted(path.relative_to(ROOT) for path in folder.rglob("*.py"))
    for folder in ROOT.glob("tasks/*/")
    if (folder / "__init__.py").exists()
}
LIBRARY = sorted(path.relative_to(ROOT) for path in ROOT.glob("relmap/**/*.py"))
FILES = [*VERBS, *(file for files in ROOMS.values() for file in files), *LIBRARY]
IMPORTS = {file: imported_modules(ROOT / file) for file in (*FILES, *FLOWS)}
LIBRARIES = {file: {name.split(".")[0] for name in names} for file, names in IMPORTS.items()}
GROUND = {"provenance", "settings", "records", "sources"}
ABOVE = {"page": {"tables", "figures"}}  # rooms that may import others beside the ground
LAYERS = (  # of the library, from the bottom to the top: a part imports itself and what is below it
    {"errors", "decisions", "settings", "optimizers", "serialization", "hashing", "timestamps", "splits", "options"},
    {"metrics"},
    {"io", "calibrators", "simulation"},
    {"projection"},
    {"maps"},
    {"fitting", "evaluation", "routing"},
    {"api", "validation"},
    {"report", "estimator", "pipeline"},
    {"console", "demo"},
    {"cli", "__main__"},
)
HOME: dict[str, set[str]] = {  # libraries that are heavy, or that pickle -> the rooms in which they stay
    **{library: set() for library in ("pickle", "cloudpickle", "joblib", "dill", "marshal", "shelve")},
    "great_expectations": {"expectations"},
    "datasets": {"datasets"},
    "torch": {"projection"},
    "lightgbm": {"predictors"},
    "duckdb": {"io"},
    "sqlglot": {"maps"},
}
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
# One's own data sets have the reader `files` or `hub`; no other one runs these files.
ENTRIES = yaml.safe_load((ROOT / "params.yaml").read_text())["datasets"] | {
    "mine": {"reader": "files", "path": "mine.csv"},
    "theirs": {"reader": "hub", "path": "tasks/datasets/hub.py"},
}


def rooms_of(file: Path) -> set[str]:
    """The folders of `tasks/` (or its file, for a verb) that a file imports."""
    return {name.split(".")[1] for name in IMPORTS[file] if name.startswith("tasks.")}


def stage(name: str) -> dict:
    """A stage of dvc.yaml, whether it stands alone or is repeated for each data set."""
    return STAGES[name].get("do", STAGES[name])


def filled_in(dependencies: list[str]) -> set[str]:
    """What dependencies with `${key}` or `${item.…}` in them become over the data sets of params.yaml."""
    made = set()
    for key, entry in ENTRIES.items():
        values = {"${key}": key} | {f"${{item.{name}}}": str(value) for name, value in entry.items()}
        for dependency in dependencies:
            for name, value in values.items():
                dependency = dependency.replace(name, value)  # noqa: PLW2901
            made.add(dependency)
    return made


def ran(name: str) -> set[Path]:
    """The files of the project that the command of a stage reaches, but for empty ones."""
    entry = Path(*stage(name)["cmd"].split()[2].split(".")).with_suffix(".py")
    return {file for file in imported_files(entry, ROOT) if (ROOT / file).stat().st_size}


def undeclared(name: str, dependencies: list[str]) -> set[Path]:
    """Project files that the command of a stage runs and that none of its dependencies covers."""
    places = filled_in(dependencies)
    return {file for file in ran(name) if not any(file.is_relative_to(place) for place in places)}


def never_run(name: str, dependencies: list[str]) -> set[Path]:
    """Project files that the dependencies of a stage cover and that its command does not run."""
    files = {file for place in filled_in(dependencies) for file in [ROOT / place, *(ROOT / place).rglob("*")]}
    code = {file.relative_to(ROOT) for file in files if file.suffix == ".py" and file.stat().st_size}
    return {file for file in code if file.parts[0] in CODE_FOLDERS} - ran(name)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_knows_no_orchestrator_and_imports_itself_and_what_is_below_alone(room):
    for file in ROOMS[room]:
        assert not LIBRARIES[file] & {"prefect", "dvc", "flows"}, file
        assert rooms_of(file) <= GROUND | ABOVE.get(room, set()) | {room}, file


def test_verbs_do_not_import_one_another():
    for verb in VERBS:
        assert not rooms_of(verb) & {path.stem for path in VERBS}, verb


def test_heavy_libraries_stay_in_their_room_and_nothing_is_pickled():
    for file, libraries in LIBRARIES.items():
        assert not [library for library in libraries & set(HOME) if file.parts[1] not in HOME[library]], file


SAID = {  # what no file may say, but those named: a fit or a gate that fails would fail again, as the same bytes go in
    r"(?<![\w.])(eval|exec)\(": [],
    "retries=": [Path("tasks/download.py")],  # what a network brings is another matter
    r"truth\.parquet": ROOMS["simulation"],  # of a twin
}


@pytest.mark.parametrize("text", SAID)
def test_nothing_is_evaluated_or_tried_again_or_reads_the_truth_of_a_twin(text):
    for file in {*IMPORTS} - {*SAID[text]}:
        assert not re.search(text, (ROOT / file).read_text()), file


@pytest.mark.parametrize("package", ["tasks", *sorted({str(file.parent) for file in LIBRARY} - {"relmap"})])
def test_importing_a_package_runs_nothing(package):
    assert (ROOT / package / "__init__.py").read_text() == ""


def part_of(module: str) -> str:
    """The part of the library that a module belongs to: the first name after `relmap`."""
    return module.split(".")[1]


def layer_of(part: str) -> int:
    """The number of the layer of a part of the library, from the bottom."""
    return next(number for number, parts in enumerate(LAYERS) if part in parts)


def parts_too_high(own: str, modules: set[str]) -> set[str]:
    """The parts of the library among imported modules that are above the importing part; the top level is none."""
    parts = {part_of(name) for name in modules if name.startswith("relmap.")} - {own, "__version__"}
    return {part for part in parts if layer_of(part) > layer_of(own)}


@pytest.mark.parametrize("file", [file for file in LIBRARY if file != Path("relmap/__init__.py")], ids=str)
def test_the_library_imports_in_one_direction_and_knows_neither_pipeline_nor_orchestrator(file):
    own = part_of(".".join(file.with_suffix("").parts))
    assert not LIBRARIES[file] & {"tasks", "flows", "prefect", "dvc", "great_expectations"}
    assert not parts_too_high(own, IMPORTS[file])


def test_an_import_from_below_to_above_is_seen():
    assert parts_too_high("metrics", {"numpy", "relmap", "relmap.io.rows", "relmap.errors"}) == {"io"}
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


def test_a_cycle_is_seen():
    with pytest.raises(CycleError):
        check_cycles({Path("relmap/a.py"): {"relmap.b"}, Path("relmap/b.py"): {"relmap", "relmap.a"}})


def lazy_imports(text: str) -> set[str]:
    """What code imports of the lazy top level of the library: a public name, or the whole."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name == "relmap"}
        elif isinstance(node, ast.ImportFrom) and node.module == "relmap":
            found |= {alias.name for alias in node.names if alias.name in relmap.__all__}
    return found


@pytest.mark.parametrize("file", [file for file in IMPORTS if file.parts[0] != "relmap"], ids=str)
def test_the_pipeline_imports_submodules_of_the_library_and_never_its_lazy_top_level(file):
    assert lazy_imports((ROOT / file).read_text(encoding="utf-8")) == set()


@pytest.mark.parametrize(
    "line", ["import relmap", "from relmap import ReliabilityPipeline", "from relmap import cli, load_map"]
)
def test_an_import_of_the_lazy_top_level_is_seen(line):
    assert lazy_imports(line)
    assert not lazy_imports("import relmap.errors\nfrom relmap import cli\nfrom relmap.maps.map_file import load_map")


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_declares_the_code_that_it_runs_and_no_other_and_a_folder_struck_out_or_code_too_much_is_caught(name):
    dependencies = stage(name)["deps"]
    assert not undeclared(name, dependencies)
    assert not never_run(name, dependencies)  # a change of it would run the stage again for nothing
    fewer = [dependency for dependency in dependencies if not dependency.startswith("tasks/provenance")]
    assert any(file.parts[1] == "provenance" for file in undeclared(name, fewer))
    for more in ("flows/docs.py", "relmap/routing"):
        assert any(file.is_relative_to(more) for file in never_run(name, [*dependencies, more]))


def test_flows_holds_a_file_for_each_command_and_the_files_that_they_share():
    shared = {
        "__init__",
        "engine",
        "forms",
        "logs",
        "notifications",
        "pages",
        "processes",
        "scheduling",
        "server",
        "stage_output",
    }
    assert shared < {file.stem for file in FLOWS}
    for file in FLOWS:
        text = (ROOT / file).read_text()
        assert file.stem in shared or 'if __name__ == "__main__":' in text, file


def test_no_stage_depends_on_an_address_on_the_network():
    # DVC fails everything where such a dependency cannot be reached
    assert not [dependency for name in STAGES for dependency in stage(name)["deps"] if "://" in dependency]


def test_caches_that_a_stage_leaves_behind_are_no_change():
    ignored = set((ROOT / ".dvcignore").read_text().split())
    assert ignored >= {"__pycache__", "*.pyc", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
