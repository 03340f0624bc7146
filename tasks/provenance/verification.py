"""Compare the outputs of stages with their manifests, and the objects in DVC's cache with their names."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from relmap.errors import InputError
from relmap.io.hashing import hash_file
from tasks.provenance.dvc_stages import read_dvc_stage
from tasks.provenance.manifest import Files, Manifest, hash_files, read_manifest

CHECKOUT_SECONDS = 2.0  # within this time, a checkout writes the outputs of a stage and its manifest in any order


@dataclass(frozen=True)
class Problem:
    """A file that differs from what its stage wrote.

    Attributes:
        stage: Stage of which the file is an output.
        path: Path of the file.
        description: What is wrong.
        is_lost: Whether the outputs have to be restored; otherwise the stage only has to run.
    """

    stage: str
    path: str
    description: str
    is_lost: bool = True

    def __str__(self) -> str:
        return f"{self.path} ({self.stage}) {self.description}"


def find_output_problems(name: str) -> tuple[Manifest | None, list[Problem]]:
    """Compare the outputs of a stage with its manifest.

    Args:
        name: Name of the stage in DVC.

    Returns:
        The manifest, if it can be read, and the problems.
    """
    stage = read_dvc_stage(name)
    manifest_path = stage.manifest.as_posix()
    if not stage.manifest.exists():
        description = "is missing: the stage has not finished, or the file was lost"
        return None, [Problem(name, manifest_path, description, is_lost=False)]
    try:
        manifest = read_manifest(stage.manifest)
    except InputError as error:
        return None, [Problem(name, manifest_path, f"is damaged: {error}")]
    recorded = manifest.outputs
    current = hash_files(stage.outputs)
    manifest_time = stage.manifest.stat().st_mtime
    problems = []
    for path in sorted(recorded | current):
        if recorded.get(path) != current.get(path):
            problems.append(Problem(name, path, _describe_difference(path, recorded, current, manifest_time)))
    return manifest, problems


def find_input_problems(manifests: Mapping[str, Manifest]) -> Iterator[Problem]:
    """Find stages whose outputs were made from other inputs than the current outputs of the stages before them.

    Args:
        manifests: Manifest of each stage.
    """
    output_paths: list[Path] = []
    current_files: Files = {}
    for name, manifest in manifests.items():
        output_paths += read_dvc_stage(name).outputs
        current_files.update(manifest.outputs)
    for name, manifest in manifests.items():
        stage = read_dvc_stage(name)
        paths = {path for path in current_files if _is_inside(path, stage.inputs)}
        paths |= {path for path in manifest.inputs if _is_inside(path, output_paths)}
        changed = [path for path in sorted(paths) if current_files.get(path) != manifest.inputs.get(path)]
        if changed:
            outputs = ", ".join(str(path) for path in stage.outputs)
            description = f"was made from another version of {', '.join(changed)}"
            yield Problem(name, outputs, description, is_lost=False)


def is_corrupt(cached: Path) -> bool:
    """Check whether the MD5 sum of an object in DVC's cache differs from its name. DVC itself never checks this."""
    return hash_file(cached, "md5") != cached.parent.name + cached.name.removesuffix(".dir")


def list_cached_objects(cache: Path) -> list[Path]:
    """List the objects in DVC's cache, without files that DVC is writing or had not finished when it was killed."""
    return sorted(path for path in cache.glob("??/*") if re.fullmatch(r"[0-9a-f]{30}(\.dir)?", path.name))


def find_stage_objects(lock_entry: Mapping[str, Any], cache: Path, corrupt: Collection[Path]) -> set[Path]:
    """Find the cached objects that hold the outputs of a stage.

    The contents of a folder are unknown, and left out, if its list is corrupt or missing.

    Args:
        lock_entry: Entry of the stage in dvc.lock.
        cache: Folder of DVC's cache.
        corrupt: Corrupt objects.
    """
    digests = [out["md5"] for out in lock_entry.get("outs", []) if out.get("md5")]  # empty if dvc.lock is incomplete
    objects = {_object_path(cache, digest) for digest in digests}
    for path in sorted(objects):
        if path.suffix == ".dir" and path.exists() and path not in corrupt:
            entries = json.loads(path.read_text(encoding="utf-8"))
            objects |= {_object_path(cache, entry["md5"]) for entry in entries}
    return objects


def _object_path(cache: Path, digest: str) -> Path:
    return cache / digest[:2] / digest[2:]


def _is_inside(path: str, folders: Collection[Path]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


def _describe_difference(path: str, recorded: Files, current: Files, manifest_time: float) -> str:
    """Describe how a file changed. An edit, but not corruption, makes it newer than the manifest."""
    if path not in current:
        return "is missing"
    if path not in recorded:
        return "was added: its stage has not written it"
    modified = Path(path).stat().st_mtime
    if modified > manifest_time + CHECKOUT_SECONDS:
        return f"was edited at {datetime.fromtimestamp(modified, UTC).isoformat(timespec='seconds')}"
    return "is corrupt: its bytes changed, though its modification time did not"
