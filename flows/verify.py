"""Compare the outputs of stages with their manifests, and the objects in DVC's cache with their checksums.

`python -m flows.verify` exits with status 0 if nothing is missing, edited or corrupt. Otherwise it exits with status 1,
and prints the problems and the commands that repair them.
"""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.progress import track

from flows.processes import LOCK_FILE, cache_folder, is_complete
from relmap.errors import InputError
from tasks.provenance.dvc_stages import read_dvc_stage, stage_names
from tasks.provenance.lock import LOCKS, hold_lock, is_lock_held
from tasks.provenance.manifest import Manifest, build_current_manifest, list_changes
from tasks.provenance.stage import run_command
from tasks.provenance.verification import (
    Problem,
    find_input_problems,
    find_output_problems,
    find_stage_objects,
    is_corrupt,
    list_cached_objects,
)
from tasks.records.store import DATA
from tasks.settings.params import load_params

SCREEN = Console(stderr=True)
REFRESH = "python -m flows.refresh"
DATASET_FOLDERS = ("raw", "base", "runs", "manifests")  # folders under data/ with a folder for each data set
ObjectsByStage = Mapping[str, set[Path]]  # stage -> objects of DVC's cache that hold its outputs


def read_lock_entries() -> Mapping[str, Any]:
    """Return the entry of each stage in dvc.lock; none if the file is missing or incomplete."""
    if not LOCK_FILE.exists() or not is_complete(LOCK_FILE):
        return {}
    return yaml.safe_load(LOCK_FILE.read_text(encoding="utf-8"))["stages"] or {}


def check_cache(folder: Path) -> tuple[ObjectsByStage, dict[Path, str]]:
    """Check the objects in DVC's cache.

    Args:
        folder: Folder of the cache.

    Returns:
        The objects that each stage needs, and a description of each object that is corrupt or missing.
    """
    objects = track(list_cached_objects(folder), "DVC's cache", console=SCREEN)
    corrupt = {path: "is corrupt" for path in objects if is_corrupt(path)}
    lock_entries = read_lock_entries()
    needed = {}
    missing: set[Path] = set()
    for stage in stage_names():
        needed[stage] = find_stage_objects(lock_entries.get(stage) or {}, folder, corrupt)
        missing.update(path for path in needed[stage] if not path.exists())
    bad_objects = dict.fromkeys(sorted(missing), "is missing") | corrupt
    return needed, bad_objects


def relative_path(path: Path) -> str:
    """Return a path relative to the current folder, if it is inside."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def list_remedies(
    problems: list[Problem],
    needed: ObjectsByStage,
    bad_objects: Mapping[Path, str],
    manifests: Mapping[str, Manifest],
) -> list[str]:
    """List the commands that restore the outputs, in the order in which they have to run.

    Corrupt objects are removed. Lost outputs come from the cache, or else their stage runs again.

    Args:
        problems: Problems of outputs and inputs.
        needed: Objects that each stage needs.
        bad_objects: Objects that are corrupt or missing.
        manifests: Manifests that can be read.

    Returns:
        Shell commands.
    """
    commands = [shlex.join(["rm", "-f", relative_path(path)]) for path in sorted(bad_objects) if path.exists()]
    lost_stages = {problem.stage for problem in problems if problem.is_lost}
    for name, objects in needed.items():
        stage = read_dvc_stage(name)
        has_bad_objects = bool(objects & bad_objects.keys())
        if name in lost_stages:
            remove = shlex.join(["rm", "-rf", *(str(path) for path in (*stage.outputs, stage.manifest))])
            restore = "checkout" if objects and not has_bad_objects else "repro --force --single-item"
            commands.append(f"{remove} && dvc {restore} {name}")
        elif has_bad_objects:
            # The outputs are intact, and `dvc commit` stores them in the cache again. It also records that they belong
            # to the current code and inputs, so it is used only if this is true.
            is_current = name in manifests and not list_changes(manifests[name], build_current_manifest(stage))
            commands.append(f"dvc commit --force {name}" if is_current else REFRESH)
    if any(not problem.is_lost for problem in problems):
        commands.append(REFRESH)
    return commands


def main() -> None:
    """Find missing, edited and corrupt outputs and objects in DVC's cache. Prints the commands that repair them."""
    with hold_lock("refresh"):
        _require_no_running_stage()
        manifests: dict[str, Manifest] = {}
        problems: list[Problem] = []
        for name in track(stage_names(), "files under data/", console=SCREEN):
            manifest, output_problems = find_output_problems(name)
            problems += output_problems
            if manifest is not None:
                manifests[name] = manifest
        problems += find_input_problems(manifests)
        needed, bad_objects = check_cache(cache_folder() / "files" / "md5")
        commands = list_remedies(problems, needed, bad_objects, manifests)
        lines = [str(problem) for problem in problems]
        lines += [f"{relative_path(path)} (DVC's cache) {description}" for path, description in bad_objects.items()]
        if LOCK_FILE.exists() and not is_complete(LOCK_FILE):
            lines.append(f"{LOCK_FILE} is incomplete: a run was killed while it wrote the file")
            commands = [f"mv {LOCK_FILE} {LOCK_FILE}.cut", *commands, REFRESH]
    _print_unknown_folders()
    if lines:
        unique_commands = [f"  {command}" for command in dict.fromkeys(commands)]
        print("\n".join([*lines, "to repair this, run in this order:", *unique_commands]))
        sys.exit(1)
    print("all outputs of stages match their manifests, and DVC's cache is intact")


def _require_no_running_stage() -> None:
    """Raise InputError if a stage is running: outputs that it has not written yet would be reported as missing."""
    running = [name for name in stage_names() if is_lock_held(LOCKS / f"{name}.lock")]
    if running:
        raise InputError(f"{', '.join(running)} is running; run this command again when it has ended")


def _print_unknown_folders() -> None:
    """Print the folders under data/ that belong to no data set."""
    expected = {*load_params().datasets, "report.json"}
    for folder in DATASET_FOLDERS:
        for path in sorted((DATA / folder).glob("*")):
            if path.name not in expected:
                print(f"{path} belongs to no data set of params.yaml and was not checked")


if __name__ == "__main__":
    run_command(main, "verify")
