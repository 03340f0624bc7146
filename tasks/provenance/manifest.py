"""Manifests of stages: hashes of inputs, code and outputs, parameters, and versions of libraries.

A manifest holds no date, so the same run writes the same bytes. Its key `sha256` is the checksum of the other keys. The
differences between two manifests of a stage are the reason why it ran.
"""

import hashlib
import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from relmap import errors
from relmap.io import atomic
from relmap.io.hashing import sha256_of_file
from tasks.provenance.dvc_stages import DvcStage
from tasks.records import store

LIBRARIES = (
    "torch",
    "numpy",
    "scipy",
    "scikit-learn",
    "lightgbm",
    "polars",
    "datasets",
    "prefect",
    "dvc",
    "great-expectations",
)
MAX_VALUE_LENGTH = 80  # characters of a changed value in a message
MAX_NAMED_CHANGES = 5
# Names and suffixes of files and folders that tools write into code and data folders.
IGNORED_NAMES = {"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".pyc", ".partial"}


class HashedFile(BaseModel, frozen=True, extra="forbid"):
    """Size in bytes and SHA-256 of a file."""

    size: int
    sha256: str


Files = dict[str, HashedFile]  # path -> hash


class Manifest(BaseModel, frozen=True, extra="forbid"):
    """Outputs of one stage, and everything that they depend on."""

    format: Literal[1] = 1
    stage: str
    command: str
    parameters: dict[str, Any]
    inputs: Files
    code: Files
    outputs: Files
    versions: dict[str, str]


def library_versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that results depend on."""
    versions = {"python": platform.python_version()}
    for library in LIBRARIES:
        versions[library] = version(library)
    return versions


def hash_files(paths: Iterable[Path], suffix: str | None = None) -> Files:
    """Hash files and the files in folders.

    Args:
        paths: Files and folders.
        suffix: If given, only files with this suffix are hashed.

    Returns:
        Hash of each file, sorted by path.
    """
    files: set[Path] = set()
    for path in paths:
        if path.is_file():
            files.add(path)
        else:
            files.update(path.rglob("*"))
    hashes = {}
    for file in sorted(files):
        is_ignored = not IGNORED_NAMES.isdisjoint({*file.parts, file.suffix})
        if file.is_file() and suffix in {None, file.suffix} and not is_ignored:
            hashes[file.as_posix()] = HashedFile(size=file.stat().st_size, sha256=sha256_of_file(file))
    return hashes


def build_manifest(stage: DvcStage, inputs: Files, code: Files, outputs: Files) -> Manifest:
    """Build the manifest of a stage with the current parameters and versions.

    Args:
        stage: Declaration of the stage.
        inputs: Hashes of its inputs.
        code: Hashes of its code.
        outputs: Hashes of its outputs.
    """
    # Parameters are written as JSON and read again, so that they can be compared with a manifest read from a file.
    parameters = json.loads(json.dumps(dict(stage.parameters), default=str))
    return Manifest(
        stage=stage.name,
        command=stage.command,
        parameters=parameters,
        inputs=inputs,
        code=code,
        outputs=outputs,
        versions=library_versions(),
    )


def build_current_manifest(stage: DvcStage) -> Manifest:
    """Build the manifest of a stage from the files that exist now.

    Args:
        stage: Declaration of the stage.
    """
    code = hash_files(stage.code, ".py")  # editors may leave other files there
    return build_manifest(stage, inputs=hash_files(stage.inputs), code=code, outputs=hash_files(stage.outputs))


def write_manifest(manifest: Manifest, *paths: Path) -> None:
    """Write a manifest with its checksum to each path."""
    content = manifest.model_dump(mode="json")
    for path in paths:
        atomic.write_json(path, content | {"sha256": _checksum(content)})


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        InputError: The file is missing, incomplete, or does not match its checksum.
    """
    content = store.read_json(path)
    checksum = content.pop("sha256", None)
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError as error:
        mistakes = "; ".join(errors.describe_validation_errors(error, "the file"))
        raise errors.InputError(f"{path} is not a manifest: {mistakes}") from None
    if _checksum(content) != checksum:
        raise errors.InputError(f"{path} was changed after it was written: its content does not match its SHA-256")
    return manifest


def flatten(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of nested mappings with its dotted name."""
    if not isinstance(value, Mapping):
        yield name, value
        return
    for key, inner_value in value.items():
        yield from flatten(inner_value, f"{name}.{key}" if name else str(key))


def list_changes(before: Manifest, after: Manifest) -> list[str]:
    """List the differences in what a stage reads and runs.

    Args:
        before: Manifest of the earlier run.
        after: Manifest of the later run.

    Returns:
        One line for each changed parameter, input, code file, command and library version.
    """
    lines = []
    for old_values, new_values in zip(_dependencies(before), _dependencies(after), strict=True):
        for name in sorted(old_values | new_values):
            old = old_values.get(name, "nothing")
            new = new_values.get(name, "nothing")
            if old != new:
                lines.append(f"{name}: {_shorten(old)} → {_shorten(new)}")
    return lines


def explain_run(before: Manifest | None, after: Manifest) -> str:
    """Explain why a stage ran.

    Args:
        before: Manifest of its last finished run on this machine, if any.
        after: Manifest of the current run.
    """
    if before is None:
        return "it had not finished on this machine before"
    changes = list_changes(before, after)
    if not changes:
        return "nothing that it reads had changed: it was forced, or its outputs were missing or changed"
    named = changes[:MAX_NAMED_CHANGES]
    if len(changes) > MAX_NAMED_CHANGES:
        named.append(f"and {len(changes) - MAX_NAMED_CHANGES} more")
    return "; ".join(named)


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _dependencies(manifest: Manifest) -> list[dict[str, Any]]:
    """Return parameters, inputs, code, command and versions, each as name -> value."""
    parameters = {name: repr(value) for name, value in flatten(manifest.parameters)}
    versions = {f"version of {library}": repr(number) for library, number in manifest.versions.items()}
    return [parameters, manifest.inputs, manifest.code, {"command": manifest.command}, versions]


def _shorten(value: HashedFile | str) -> str:
    text = value.sha256[:8] if isinstance(value, HashedFile) else value
    if len(text) <= MAX_VALUE_LENGTH:
        return text
    half = MAX_VALUE_LENGTH // 2
    return f"{text[:half]} … {text[-half:]}"
