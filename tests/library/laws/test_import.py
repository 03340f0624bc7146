"""Importing the library is fast and changes nothing in the process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from relmap.maps.document import save_map
from tests.maps import make_map, make_predictions

ROOT = Path(__file__).resolve().parents[3]
THIRD_PARTY = {
    "altair", "duckdb", "narwhals", "numpy", "pandas", "polars", "pyarrow", "pydantic", "rich", "scipy", "sklearn",
    "sqlglot", "torch", "typer", "vl_convert",
}  # fmt: skip
IMPORT_DEPENDENCIES = (
    "import altair, jinja2, narwhals, numpy, polars, pyarrow.parquet, pydantic, rich, scipy.optimize, \
scipy.special, scipy.stats, sklearn.base, sklearn.model_selection, sklearn.pipeline, sqlglot, typer, vl_convert"
)
IMPORT_EVERY_MODULE = """
from importlib import import_module
from pkgutil import walk_packages
import relmap
for module in walk_packages(relmap.__path__, "relmap."):
    # the last two need torch
    if module.name not in ("relmap.__main__", "relmap.projection.lattices_torch"):
        import_module(module.name)
"""
READ_STATE = """
import gc, locale, logging, os, random, signal, sys, threading, time, warnings

def state():
    import numpy, threadpoolctl
    root = logging.getLogger()
    return {
        "environment": dict(os.environ),
        "working directory": os.getcwd(),
        "threads": threading.active_count(),
        "threads of BLAS": [pool["num_threads"] for pool in threadpoolctl.threadpool_info()],
        "warning filters": list(warnings.filters),
        "garbage collection": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()),
        "signal handlers": [signal.getsignal(number) for number in signal.valid_signals()],
        "root logging": (root.level, list(root.handlers), logging.root.manager.disable),
        "floating-point errors": numpy.geterr(),
        "random numbers": (random.getstate(), numpy.random.get_state()[1].tolist()),
        "recursion limit": sys.getrecursionlimit(),
        "hooks": (sys.excepthook, threading.excepthook, sys.displayhook),
        "locale": locale.setlocale(locale.LC_ALL),
    }
"""


def run_python(code: str, folder: Path = ROOT) -> str:
    """Run code in a new interpreter that finds this checkout, and return its output."""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"]
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    completed = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def imported_modules(code: str, folder: Path = ROOT) -> set[str]:
    """Return the names of all modules that code imports."""
    output = run_python(f"{code}\nimport json, sys\nprint(json.dumps([*sys.modules]))", folder)
    return set(json.loads(output.splitlines()[-1]))


def test_import_of_relmap_imports_no_third_party_package():
    assert not imported_modules("import relmap; dir(relmap); relmap.__version__") & THIRD_PARTY


def test_imported_modules_includes_known_imports():
    assert imported_modules("import relmap; relmap.InputError") >= {"relmap.errors"}
    assert "numpy" in imported_modules("from relmap import load_map")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_and_version_import_no_numerical_package(arguments):
    imported = imported_modules(f"from relmap.cli import app; app({arguments!r}, standalone_mode=False)")
    assert not imported & (THIRD_PARTY - {"typer", "rich"})


def test_apply_and_sql_do_not_import_scikit_learn_or_scipy_optimizers(tmp_path):
    save_map(make_map(), tmp_path / "map.json")
    make_predictions(90).drop("label").write_parquet(tmp_path / "new.parquet")
    code = """
from relmap.cli import app
app("apply --map map.json --predictions new.parquet --out out.parquet".split(), standalone_mode=False)
app("sql --map map.json".split(), standalone_mode=False)
"""
    imported = imported_modules(code, tmp_path)

    assert not {name for name in imported if name.startswith(("sklearn", "scipy.optimize", "torch", "pandas"))}
    assert (tmp_path / "out.parquet").exists()


def changed_process_state(*codes: str) -> list[list[str]]:
    """Return the parts of the process state that each code changes, after all dependencies are imported."""
    lines = [IMPORT_DEPENDENCIES, READ_STATE, "changed = []"]
    for code in codes:
        lines += ["before = state()", code]
        lines.append("changed.append([name for name, value in state().items() if value != before[name]])")
    changes = eval(run_python("\n".join([*lines, "print(changed)"])).splitlines()[-1])
    assert isinstance(changes, list)
    return changes


CHANGES = {
    "environment": "os.environ['OMP_NUM_THREADS'] = '1'",
    "threads of BLAS": "threadpoolctl = __import__('threadpoolctl'); threadpoolctl.threadpool_limits(1)",
    "warning filters": "warnings.simplefilter('ignore')",
    "garbage collection": "gc.set_threshold(10_000)",
    "signal handlers": "signal.signal(signal.SIGINT, signal.SIG_IGN)",
    "working directory": "os.chdir('/')",
    "root logging": "logging.basicConfig()",
    "floating-point errors": "__import__('numpy').seterr(all='ignore')",
}


def test_import_of_every_module_does_not_change_the_process_state():
    """Known changes are detected in the same process, since importing the dependencies takes most of the time."""
    assert changed_process_state(IMPORT_EVERY_MODULE, *CHANGES.values()) == [[], *([name] for name in CHANGES)]


COUNT_INCOMPLETE_MODELS = """
from pydantic import BaseModel

def models(parent):
    for model in parent.__subclasses__():
        yield model
        yield from models(model)

of_library = {model for model in models(BaseModel) if model.__module__.startswith("relmap.")}
print([model.__name__ for model in of_library if not model.__pydantic_complete__], len(of_library) > 10)
"""


def test_pydantic_models_are_complete_after_import():
    assert run_python(f"{IMPORT_EVERY_MODULE}\n{COUNT_INCOMPLETE_MODELS}") == "[] True\n"
