"""The house rules as tests, each with a test that sees it fail."""

import re
from pathlib import Path

import pytest
import yaml

from tasks.provenance.hashing import imports, reached_files

ROOT = Path(__file__).resolve().parent.parent
ORCHESTRATORS = {"prefect", "dvc", "flows"}
NOUNS = sorted(path.relative_to(ROOT) for path in ROOT.glob("tasks/*/**/*.py"))
VERBS = sorted(path.relative_to(ROOT) for path in ROOT.glob("tasks/*.py"))
MIDDLE = {
    "calibrators",
    "datasets",
    "expectations",
    "predictions",
    "predictors",
    "projection",
    "simulation",
}
GROUND = {"metrics", "protocol", "provenance", "sources"}
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
# One's own data sets have the reader `files` or `hub`; no other one runs these files.
ENTRIES = yaml.safe_load((ROOT / "params.yaml").read_text())["datasets"] | {
    "mine": {"reader": "files", "path": "mine.csv"},
    "theirs": {"reader": "hub", "path": "tasks/datasets/hub.py"},
}


def project_imports(file: Path) -> set[str]:
    """The folders of `tasks/` (or `tasks` itself, for a verb) that a file imports."""
    names = {name for name in imports(file) if name.startswith("tasks.")}
    return {name.split(".")[1] for name in names}


def stage(name: str) -> dict:
    """A stage of dvc.yaml, whether it stands alone or is repeated for each data set."""
    return STAGES[name].get("do", STAGES[name])


def filled_in(dependency: str) -> set[str]:
    """What a dependency with `${key}` or `${item.…}` in it becomes over the data sets of params.yaml."""
    values = [
        {"key": key, **{f"item.{name}": value for name, value in entry.items()}} for key, entry in ENTRIES.items()
    ]
    return {re.sub(r"\$\{([\w.]+)\}", lambda found, known=known: str(known[found[1]]), dependency) for known in values}


def undeclared(name: str, dependencies: list[str], root: Path = ROOT) -> set[Path]:
    """Project files that the command of a stage runs and that none of its dependencies covers."""
    entry = Path(*stage(name)["cmd"].split()[2].split(".")).with_suffix(".py")
    declared = {place for dependency in dependencies for place in filled_in(dependency)}
    ran = {file for file in reached_files(entry, root) if (root / file).stat().st_size}
    return {file for file in ran if not any(file.is_relative_to(place) for place in declared)}


def never_run(name: str, dependencies: list[str], root: Path = ROOT) -> set[Path]:
    """Project files that the dependencies of a stage cover and that its command does not run."""
    entry = Path(*stage(name)["cmd"].split()[2].split(".")).with_suffix(".py")
    places = {root / place for dependency in dependencies for place in filled_in(dependency)}
    files = {file for place in places for file in ([place] if place.is_file() else place.rglob("*.py"))}
    code = {file.relative_to(root) for file in files if file.suffix == ".py" and file.stat().st_size}
    return {file for file in code if file.parts[0] in {"flows", "tasks"}} - reached_files(entry, root)


@pytest.mark.parametrize("noun", NOUNS, ids=str)
def test_nouns_know_no_orchestrator(noun):
    assert not {name.split(".")[0] for name in imports(ROOT / noun)} & ORCHESTRATORS


@pytest.mark.parametrize("noun", [n for n in NOUNS if n.parts[1] in MIDDLE], ids=str)
def test_nouns_of_the_middle_rank_do_not_import_one_another(noun):
    assert project_imports(ROOT / noun) <= GROUND | {noun.parts[1]}


@pytest.mark.parametrize("noun", [n for n in NOUNS if n.parts[1] in GROUND], ids=str)
def test_nouns_of_the_ground_import_nothing_above_them(noun):
    assert project_imports(ROOT / noun) <= GROUND


@pytest.mark.parametrize("noun", [n for n in NOUNS if n.parts[1] == "maps"], ids=str)
def test_maps_stand_above_the_middle_rank(noun):
    assert project_imports(ROOT / noun) <= GROUND | {"calibrators", "projection", "predictions", "maps"}


@pytest.mark.parametrize("noun", [n for n in NOUNS if n.parts[1] in {"tables", "figures"}], ids=str)
def test_what_shows_results_stands_above_what_they_are_results_of(noun):
    assert project_imports(ROOT / noun) <= GROUND | {"calibrators", "projection", noun.parts[1]}


@pytest.mark.parametrize("noun", [n for n in NOUNS if n.parts[1] == "page"], ids=str)
def test_the_page_stands_above_tables_and_figures(noun):
    assert project_imports(ROOT / noun) <= GROUND | {"tables", "figures", "page"}


@pytest.mark.parametrize("verb", VERBS, ids=str)
def test_verbs_do_not_import_one_another(verb):
    siblings = {path.stem for path in VERBS}
    assert not project_imports(ROOT / verb) & siblings


@pytest.mark.parametrize("file", [*NOUNS, *VERBS], ids=str)
def test_heavy_libraries_stay_in_their_room(file):
    rooms = {
        "great_expectations": {"expectations"},
        "datasets": {"datasets"},
        "torch": {"projection", "calibrators"},
        "lightgbm": {"predictors"},
        "duckdb": {"maps"},
        "sqlglot": {"maps"},
    }
    used = {name.split(".")[0] for name in imports(ROOT / file)}
    for library, allowed in rooms.items():
        assert library not in used or file.parts[1] in allowed, f"{file} imports {library}"


@pytest.mark.parametrize("file", [*NOUNS, *VERBS, *Path(ROOT / "flows").glob("*.py")], ids=str)
def test_nothing_is_pickled_or_evaluated(file):
    used = {name.split(".")[0] for name in imports(ROOT / file)}
    assert not used & {"pickle", "cloudpickle", "joblib", "dill", "marshal", "shelve"}
    assert not re.search(r"(?<![\w.])(eval|exec)\(", (ROOT / file).read_text())


@pytest.mark.parametrize("package", ["tasks", *(f"tasks/{name}" for name in ("protocol", "projection", "metrics"))])
def test_importing_a_package_runs_nothing(package):
    assert (ROOT / package / "__init__.py").read_text() == ""


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_declares_all_the_code_it_runs(name):
    assert not undeclared(name, stage(name)["deps"])


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_with_a_folder_struck_out_is_caught(name):
    dependencies = [dependency for dependency in stage(name)["deps"] if not dependency.startswith("tasks/provenance")]
    assert any(file.parts[1] == "provenance" for file in undeclared(name, dependencies))


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_declares_no_code_that_it_does_not_run(name):
    # a change of it would run the stage again for nothing
    assert not never_run(name, stage(name)["deps"])


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("more", ["flows/demo.py", "tasks/maps"])
def test_a_stage_with_code_too_much_is_caught(name, more):
    assert any(file.is_relative_to(more) for file in never_run(name, [*stage(name)["deps"], more]))


def test_an_orchestrator_in_a_noun_is_caught(tmp_path):
    file = tmp_path / "noun.py"
    file.write_text("def f():\n    from prefect import task\n")
    assert {name.split(".")[0] for name in imports(file)} & ORCHESTRATORS


def test_no_task_is_tried_again():
    # a fit or a gate that fails would fail again: the same bytes go in. What a network brings is another matter.
    for file in [*VERBS, *(path.relative_to(ROOT) for path in ROOT.glob("flows/*.py"))]:
        assert file.name == "download.py" or "retries=" not in (ROOT / file).read_text(), file


def test_no_stage_depends_on_an_address_on_the_network():
    # DVC fails everything where such a dependency cannot be reached
    assert not [dependency for name in STAGES for dependency in stage(name)["deps"] if "://" in dependency]


def test_no_stage_reads_the_truth_of_a_twin():
    for file in [*NOUNS, *VERBS, *Path(ROOT / "flows").glob("*.py")]:
        if "simulation" not in file.parts:
            assert "truth.parquet" not in (ROOT / file).read_text(), file


@pytest.mark.parametrize("left_behind", ["__pycache__", "*.pyc", ".mypy_cache", ".ruff_cache", ".pytest_cache"])
def test_caches_that_a_stage_leaves_behind_are_no_change(left_behind):
    assert left_behind in (ROOT / ".dvcignore").read_text().split()
