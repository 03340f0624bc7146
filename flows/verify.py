"""Everything under `data/`, and DVC's cache, against the manifests: what rotted, was edited or is missing.

`python -m flows.verify` exits with 0 where all holds; else with 1, and says how to get back what does not.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.progress import track

from flows.repro import DVC, LOCK_FILE, is_lock_file
from tasks.protocol.errors import BadInput
from tasks.provenance.cache import objects_of_stage, rotted_objects
from tasks.provenance.changes import changes
from tasks.provenance.declared import declared, stage_names
from tasks.provenance.manifest import Manifest, manifest_now
from tasks.provenance.verification import Problem, problems_of_inputs, problems_of_outputs

REFRESH = "python -m flows.refresh"


def cache_folder() -> Path:
    """Where DVC keeps its objects, as it is configured."""
    told = subprocess.run([*DVC, "cache", "dir"], check=True, capture_output=True, text=True)  # noqa: S603 - our own
    return Path(told.stdout.strip()) / "files" / "md5"


def locked_stages() -> Mapping[str, Any]:
    """What dvc.lock knows of each stage: nothing, where it is not there or not whole."""
    if not LOCK_FILE.exists() or not is_lock_file(LOCK_FILE):
        return {}
    stages: Mapping[str, Any] = yaml.safe_load(LOCK_FILE.read_text(encoding="utf-8"))["stages"]
    return stages


def shown(path: Path) -> str:
    """A path as short as it can be typed from here."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def verify() -> tuple[list[str], list[str]]:
    """What does not hold, and the commands that mend it; both empty where all holds."""
    cache, screen, names = cache_folder(), Console(stderr=True), stage_names()
    objects = sorted(cache.glob("??/*"))
    found = {name: problems_of_outputs(name) for name in track(names, "files under data/", console=screen)}
    rotted = {path for path, bad in track(rotted_objects(objects), "DVC's cache", len(objects), console=screen) if bad}
    problems = [problem for _, some in found.values() for problem in some]
    manifests = {name: manifest for name, (manifest, _) in found.items() if manifest}
    problems += problems_of_inputs(manifests)
    told = [str(problem) for problem in problems]
    told += [
        f"{shown(path)} (DVC's cache) has rotted: its bytes are not those it is named for" for path in sorted(rotted)
    ]
    if LOCK_FILE.exists() and not is_lock_file(LOCK_FILE):
        told.append(f"{LOCK_FILE} is cut off; flows.refresh puts it aside and goes on")
    stages = locked_stages()
    kept = {name: objects_of_stage(stages.get(name, {}), cache, rotted) for name in names}
    return told, remedies(problems, rotted, kept, manifests)


def remedies(
    problems: list[Problem], rotted: set[Path], kept: Mapping[str, set[Path]], manifests: Mapping[str, Manifest]
) -> list[str]:
    """Commands, in their order: spoilt objects go; outputs come from the cache, or else their stage runs again."""
    commands = [f"rm -f {shown(path)}" for path in sorted(rotted)]
    lost = {problem.stage for problem in problems if problem.lost}
    for name, objects in kept.items():
        stage, whole = declared(name), bool(objects) and all(path.exists() and path not in rotted for path in objects)
        if name in lost:
            again = f"dvc checkout {name}" if whole else f"dvc repro --force --single-item {name}"
            commands.append(f"rm -rf {' '.join(map(str, (*stage.outputs, stage.manifest)))} && {again}")
        elif objects & rotted:
            # a commit says that these outputs are of the code and inputs that are there, so they have to be
            current = name in manifests and not changes(manifests[name], manifest_now(stage))
            commands.append(f"dvc commit --force {name}" if current else REFRESH)
    if any(not problem.lost for problem in problems):
        commands.append(REFRESH)
    return list(dict.fromkeys(commands))


if __name__ == "__main__":
    try:
        wrong, mending = verify()
    except BadInput as error:
        sys.exit(f"verify: {error}")
    if wrong:
        print("\n".join([*wrong, "to get it back, in this order:", *(f"  {command}" for command in mending)]))
        sys.exit(1)
    print("everything under data/ and in DVC's cache is as its stage left it")
