"""A copy of the project without git and with its own params.yaml, and its commands."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import yaml

ROOT = Path(__file__).resolve().parent.parent
ALTERNATIVES = {"ece_25_bins": {"metrics": {"ece_bins": 25}}, "by_group": {"protocol": {"split": "group"}}}
# A twin with few phrases, which a base predictor learns from few rows, and a large label-wise effect.
SMALL_TWIN = {"phrases": 6, "strength": 1.88, "log_sharpness": 0.7}
OWN_PAIRS_DATASET = {  # entry of `datasets` for the file mine.csv of `write_own_pairs`
    "reader": "files",
    "source": "files",
    "path": "mine.csv",
    "split": {"by": "row", "validation": 0.3, "test": 0.3},
    "options": {
        "labels": ["bad", "good"],
        "pairs": {"path": "mine.csv", "group": "query", "query": "query", "candidate": "title", "label": "grade"},
    },
}


def copy_project(folder: Path, change: Callable[[dict[str, Any]], object] = lambda _params: None) -> None:
    """Copy code and settings into `folder`; `change` edits the content of params.yaml."""
    for name in ("flows", "tasks", "relmap"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("dvc.yaml", ".dvcignore", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copy(ROOT / "params.yaml", folder / "params.yaml")
    edit_params(folder, change)
    (folder / ".dvc").mkdir()
    shutil.copy(ROOT / ".dvc/config", folder / ".dvc/config")
    (folder / ".dvc/config.local").write_text("[core]\n    no_scm = true\n")


def shrink_params(params: dict[str, Any], rows: int = 3000) -> None:
    """Keep little to compute: a simulated twin of wands, and the file mine.csv of `write_own_pairs`."""
    wands = params["datasets"]["wands"]
    params |= {
        "seeds": [1, 2],
        "calibrators": ["uncal", "ts"],
        "rivals": {"calibrators": ["vector"], "rows": [100]},
        "sensitivity": {"calibrators": [], "alternatives": ALTERNATIVES},
        "projection": params["projection"] | {"epochs": 100},
        "metrics": params["metrics"] | {"spread_permutations": 20, "resamples": 300},
        "datasets": {"wands": wands | {"rows": rows, "twin": wands["twin"] | SMALL_TWIN}, "mine": OWN_PAIRS_DATASET},
    }


def edit_params(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Edit params.yaml of `folder` in place with `change`."""
    params = yaml.safe_load((folder / "params.yaml").read_text())
    change(params)
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))


def write_params(folder: Path, changes: dict[str, object]) -> Path:
    """Write params.yaml into `folder` with changed values of settings such as `projection.knots`; return its path."""
    content = yaml.safe_load((ROOT / "params.yaml").read_text())
    for setting, value in changes.items():
        *sections, key = setting.split(".")
        reduce(getitem, sections, content)[key] = value
    (folder / "params.yaml").write_text(yaml.safe_dump(content))
    return folder / "params.yaml"


def clean_environment() -> dict[str, str]:
    """Return the environment of a user without settings, with the Python of the tests."""
    unset = ("PREFECT_", "DVC_", "MRP_", "DATA_MIRROR", "REAL_DATA", "PYTHONPATH")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(unset)}
    variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables["COLUMNS"] = "400"  # messages are not wrapped
    return variables


def run_module(folder: Path, *command: str, status: int = 0, **variables: str) -> str:
    """Run `python -m command`, or `python -c …`, in `folder` and return its output; fail on another status."""
    arguments = command if command[0] == "-c" else ("-m", *command)
    completed = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=clean_environment() | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    output = completed.stdout + completed.stderr
    assert completed.returncode == status, output
    return output


def start_module(
    folder: Path, *command: str, log: Path, wrapper: tuple[str, ...] = (), **variables: str
) -> subprocess.Popen[bytes]:
    """Start `python -m command` in `folder` and in its own session.

    Args:
        folder: Current folder of the process.
        command: Module and its arguments.
        log: File that the output is appended to.
        wrapper: Command that runs the command, for example `unshare`.
        variables: Environment variables.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            [*wrapper, sys.executable, "-u", "-m", *command],
            cwd=folder,
            env=clean_environment() | variables,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def recorded_libraries(report: Path) -> dict[str, str]:
    """Return environment variables that make each process of a run record in `report` which `relmap` it imports."""
    return {"PYTHONPATH": str(ROOT / "tests/guard"), "LIBRARY_REPORT": str(report)}


def processes_by_library(report: Path) -> dict[Path, set[str]]:
    """Return the imported files of `relmap`, and the commands that imported each."""
    commands: dict[Path, set[str]] = {}
    for line in report.read_text().splitlines():
        file, words = json.loads(line)
        commands.setdefault(Path(file), set()).add(" ".join(words[1:]))
    return commands


def flip_bit(file: Path, *, bit: int = 0, keep_times: bool = True) -> None:
    """Flip one bit in the middle of a file, also of a read-only one; kept times hide the change, as on a bad disk."""
    before = file.stat()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1 << bit
    file.chmod(0o644)
    file.write_bytes(content)
    file.chmod(before.st_mode)
    if keep_times:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def write_own_pairs(path: Path, seed: int = 0) -> None:
    """Write labelled pairs in which two of five words make a candidate good in most pairs."""
    generator = np.random.default_rng(seed)
    words = np.array(["lamp", "desk", "chair", "sofa", "rug"])
    word = generator.integers(0, 5, 900)
    good = generator.random(900) < np.where(word < 2, 0.8, 0.25)
    pl.DataFrame(
        {
            "query": [f"query {row % 90}" for row in range(900)],
            "title": [f"{words[word[row]]} number {row}" for row in range(900)],
            "grade": np.where(good, "good", "bad"),
        }
    ).write_csv(path)
