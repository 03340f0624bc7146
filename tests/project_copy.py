"""A copy of the project with a params.yaml of its own, as `make setup` leaves it without git, and its commands."""

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
OWN_PAIRS = {  # an entry of `datasets` for what `write_own_pairs` writes into mine.csv
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
    """Copy code and settings into `folder`; `change` is called on what params.yaml holds."""
    for name in ("flows", "tasks", "relmap"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("dvc.yaml", ".dvcignore", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copy(ROOT / "params.yaml", folder / "params.yaml")
    edit_params(folder, change)
    (folder / ".dvc").mkdir()
    shutil.copy(ROOT / ".dvc/config", folder / ".dvc/config")
    (folder / ".dvc/config.local").write_text("[core]\n    no_scm = true\n")


def small(params: dict[str, Any], rows: int = 3000) -> None:
    """Leave little to compute: a twin of wands, and what `write_own_pairs` writes into mine.csv."""
    params |= {
        "seeds": [1, 2],
        "calibrators": ["uncal", "ts"],
        "rivals": {"calibrators": ["vector"], "rows": [100]},
        "sensitivity": {"calibrators": [], "alternatives": ALTERNATIVES},
        "projection": params["projection"] | {"epochs": 100},
        "metrics": params["metrics"] | {"spread_permutations": 20, "resamples": 300},
        "datasets": {"wands": params["datasets"]["wands"] | {"rows": rows}, "mine": OWN_PAIRS},
    }


def edit_params(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    params = yaml.safe_load((folder / "params.yaml").read_text())
    change(params)
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))


def write_params(folder: Path, changes: dict[str, object]) -> Path:
    """Write params.yaml into `folder` with other values in places such as `projection.knots`; returns its path."""
    content = yaml.safe_load((ROOT / "params.yaml").read_text())
    for place, value in changes.items():
        *way, last = place.split(".")
        reduce(getitem, way, content)[last] = value
    (folder / "params.yaml").write_text(yaml.safe_dump(content))
    return folder / "params.yaml"


def environment(folder: Path) -> dict[str, str]:
    """Of a person who has set nothing, in the Python of the tests; what DVC remembers stays in `folder`."""
    others = ("PREFECT_", "DVC_", "MRP_", "DATA_MIRROR", "REAL_DATA", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if not name.startswith(others)} | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "400",  # no message is cut in lines
        "DVC_SITE_CACHE_DIR": str(folder / ".dvc/site"),
    }


def run(folder: Path, *command: str, status: int = 0, **variables: str) -> str:
    """Run `python -m command`, or `python -c …`, in `folder`; returns what it printed, fails on another status."""
    done = subprocess.run(
        [sys.executable, *(command if command[0] == "-c" else ("-m", *command))],
        cwd=folder,
        env=environment(folder) | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    printed = done.stdout + done.stderr
    assert done.returncode == status, printed
    return printed


def start(
    folder: Path, *command: str, log: Path, within: tuple[str, ...] = (), **variables: str
) -> subprocess.Popen[bytes]:
    """Start `python -m command` in `folder`, by the command `within`, in its own session; its words go to `log`."""
    own = {"cwd": folder, "env": environment(folder) | variables, "start_new_session": True}
    with log.open("ab") as printed:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": printed, "stderr": subprocess.STDOUT}
        return subprocess.Popen([*within, sys.executable, "-u", "-m", *command], **own, **pipes)


def recorded_libraries(report: Path) -> dict[str, str]:
    """Return variables with which each process of a run records in `report` which `relmap` it imports."""
    return {"PYTHONPATH": str(ROOT / "tests/guard"), "LIBRARY_REPORT": str(report)}


def processes_by_library(report: Path) -> dict[Path, set[str]]:
    """Return the imported files of `relmap`, and the commands that imported each."""
    commands: dict[Path, set[str]] = {}
    for line in report.read_text().splitlines():
        file, words = json.loads(line)
        commands.setdefault(Path(file), set()).add(" ".join(words[1:]))
    return commands


def flip(file: Path, *, bit: int = 0, rots: bool = True) -> None:
    """Flip one bit in the middle of a file, whoever may write to it; where it rots, the system sees nothing of it."""
    before, content = file.stat(), bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1 << bit
    file.chmod(0o644)
    file.write_bytes(content)
    file.chmod(before.st_mode)
    if rots:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def write_own_pairs(path: Path, seed: int = 0) -> None:
    """Judged pairs in which one word makes a candidate good, mostly."""
    generator = np.random.default_rng(seed)
    words = np.array(["lamp", "desk", "chair", "sofa", "rug"])
    picked = generator.integers(0, 5, 900)
    good = generator.random(900) < np.where(picked < 2, 0.8, 0.25)
    pl.DataFrame(
        {
            "query": [f"query {row % 90}" for row in range(900)],
            "title": [f"{words[word]} number {row}" for row, word in enumerate(picked)],
            "grade": np.where(good, "good", "bad"),
        }
    ).write_csv(path)
