"""Everything under `data/`, and DVC's cache, against the manifests: what rotted, was edited or is missing.

`python -m flows.verify` exits with 0 where all holds; else with 1, and says how to get back what does not.
"""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.progress import track

from flows.processes import LOCK_FILE, cache_folder, is_whole
from relmap.errors import InputError
from tasks.provenance import verification
from tasks.provenance.declared import declared, stage_names
from tasks.provenance.lock import LOCKS, is_held, locked
from tasks.provenance.manifest import Manifest, changes, manifest_now
from tasks.provenance.stage import command
from tasks.provenance.verification import Problem
from tasks.records.store import DATA
from tasks.settings.params import load_params

SCREEN = Console(stderr=True)
REFRESH = "python -m flows.refresh"
OF_STAGES = ("raw", "base", "runs", "manifests")  # folders under data/ with a folder for each data set
Objects = Mapping[str, set[Path]]  # stage -> the objects of DVC's cache that hold its outputs


def locked_stages() -> Mapping[str, Any]:
    """The entry of each stage in dvc.lock: none, where that is not there or not whole."""
    if not LOCK_FILE.exists() or not is_whole(LOCK_FILE):
        return {}
    return yaml.safe_load(LOCK_FILE.read_text(encoding="utf-8"))["stages"] or {}


def read_cache(folder: Path) -> tuple[Objects, dict[Path, str]]:
    """What DVC's cache in `folder` should hold of each stage, and what is wrong with those objects that do not hold."""
    looked_at = track(verification.objects_in(folder), "DVC's cache", console=SCREEN)
    rotted = dict.fromkeys(filter(verification.is_rotted, looked_at), "has rotted")
    stages = locked_stages()
    wanted = {name: verification.objects_of_stage(stages.get(name) or {}, folder, rotted) for name in stage_names()}
    missing = sorted(path for path in set().union(*wanted.values()) if not path.exists())
    return wanted, dict.fromkeys(missing, "is missing") | rotted


def shown(path: Path) -> str:
    """A path as short as it can be typed from here."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def remedies(
    problems: list[Problem], wanted: Objects, gone: Mapping[Path, str], manifests: Mapping[str, Manifest]
) -> list[str]:
    """Commands, in their order: spoilt objects go; outputs come from the cache, or else their stage runs again."""
    commands = [shlex.join(["rm", "-f", shown(path)]) for path in sorted(gone) if path.exists()]
    lost = {problem.stage for problem in problems if problem.lost}
    for name, objects in wanted.items():
        stage, whole = declared(name), bool(objects) and not objects & gone.keys()
        if name in lost:
            away = shlex.join(["rm", "-rf", *map(str, (*stage.outputs, stage.manifest))])
            commands.append(f"{away} && dvc {'checkout' if whole else 'repro --force --single-item'} {name}")
        elif objects & gone.keys():
            # a commit says that these outputs are of the code and inputs that are there, so they have to be
            current = name in manifests and not changes(manifests[name], manifest_now(stage))
            commands.append(f"dvc commit --force {name}" if current else REFRESH)
    if any(not problem.lost for problem in problems):
        commands.append(REFRESH)
    return commands


def main() -> None:
    """Hold everything under data/, and DVC's cache, against the manifests; say how to get back what does not hold."""
    with locked("refresh"):
        running = [name for name in stage_names() if is_held(LOCKS / f"{name}.lock")]
        if running:  # what it has not written yet would be called missing
            raise InputError(f"{', '.join(running)} is running; look again when it has ended")
        looked_at = track(stage_names(), "files under data/", console=SCREEN)
        outputs = {name: verification.problems_of_outputs(name) for name in looked_at}
        manifests = {name: manifest for name, (manifest, _) in outputs.items() if manifest}
        problems = [problem for _, of_stage in outputs.values() for problem in of_stage]
        problems += verification.problems_of_inputs(manifests)
        wanted, gone = read_cache(cache_folder() / "files" / "md5")
        commands = remedies(problems, wanted, gone, manifests)
        wrong = [*map(str, problems), *(f"{shown(path)} (DVC's cache) {what}" for path, what in gone.items())]
        if LOCK_FILE.exists() and not is_whole(LOCK_FILE):
            wrong.append(f"{LOCK_FILE} is cut off, as by a run that was killed while writing it")
            commands = [f"mv {LOCK_FILE} {LOCK_FILE}.cut", *commands, REFRESH]
    expected = {*load_params().datasets, "report.json"}
    for path in (path for name in OF_STAGES for path in sorted((DATA / name).glob("*")) if path.name not in expected):
        print(f"{path} belongs to no data set of params.yaml: left alone")
    if wrong:
        mending = (f"  {line}" for line in dict.fromkeys(commands))
        print("\n".join([*wrong, "to get it back, in this order:", *mending]))
        sys.exit(1)
    print("everything that a stage wrote under data/, and DVC's cache, is as it was left")


if __name__ == "__main__":
    command(main, "verify")
