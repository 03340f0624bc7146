"""A manifest ties what a stage wrote to what it was made of: SHA-256 of inputs, code and outputs, parameters, versions.

It holds no date, so the same run writes the same bytes. `sha256` seals the rest of it.
"""

import hashlib
import json
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from tasks.protocol.errors import BadInput, mistakes
from tasks.protocol.store import read_json, write_json
from tasks.provenance.declared import Declared
from tasks.provenance.hashing import sha256_of_file

LIBRARIES = (
    *("torch", "numpy", "scipy", "scikit-learn", "lightgbm", "polars", "datasets"),
    *("prefect", "dvc", "great-expectations"),
)
LEFT_BEHIND = {"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"}  # by running; no change of code or data


class HashedFile(BaseModel, frozen=True, extra="forbid"):
    """Size in bytes and hex SHA-256 of a file."""

    size: int
    sha256: str


Files = dict[str, HashedFile]  # path -> what it holds


class Manifest(BaseModel, frozen=True, extra="forbid"):
    """Everything that the outputs of one stage depend on, and the outputs."""

    format: Literal[1] = 1
    stage: str
    command: str
    parameters: dict[str, Any]
    inputs: Files
    code: Files
    outputs: Files
    versions: dict[str, str]


def versions() -> dict[str, str]:
    """Python, and the libraries that results depend on."""
    return {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}}


def files_in(paths: Iterable[Path]) -> list[Path]:
    """The files that `paths`, files and folders, hold, in order; what is missing holds none."""
    files = {file for path in paths for file in ([path] if path.is_file() else path.rglob("*"))}
    kept = (file for file in files if file.suffix not in {".pyc", ".partial"} and LEFT_BEHIND.isdisjoint(file.parts))
    return sorted(file for file in kept if file.is_file())


def hashed(paths: Iterable[Path]) -> Files:
    """Every file of `paths`, hashed."""
    return {
        file.as_posix(): HashedFile(size=file.stat().st_size, sha256=sha256_of_file(file)) for file in files_in(paths)
    }


def hashed_code(paths: Iterable[Path]) -> Files:
    """Every Python file of `paths`, hashed; an editor may leave others there."""
    return hashed(file for file in files_in(paths) if file.suffix == ".py")


def manifest_of(stage: Declared, inputs: Files, code: Files, outputs: Files) -> Manifest:
    """The manifest of `outputs` that `stage` made of `inputs` and `code`, under the parameters and versions of now."""
    return Manifest(
        stage=stage.stage,
        command=stage.command,
        parameters=json.loads(json.dumps(dict(stage.parameters), default=str)),  # as it will be read
        inputs=inputs,
        code=code,
        outputs=outputs,
        versions=versions(),
    )


def manifest_now(stage: Declared) -> Manifest:
    """What the manifest of `stage` would be if its outputs had been made of what is there now."""
    return manifest_of(stage, hashed(stage.inputs), hashed_code(stage.code), hashed(stage.outputs))


def write_manifest(manifest: Manifest, *paths: Path) -> None:
    """Write a manifest with its seal into each of `paths`."""
    content = manifest.model_dump(mode="json")
    for path in paths:
        write_json(path, content | {"sha256": _seal(content)})


def _seal(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def read_manifest(path: Path) -> Manifest:
    """Read a manifest's file; BadInput where it is missing, cut off, or not as it was written."""
    content = read_json(path)
    seal = content.pop("sha256", None)
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError as error:
        raise BadInput(f"{path} is no manifest: {'; '.join(mistakes(error, 'the file'))}") from None
    if _seal(content) != seal:
        raise BadInput(f"{path} is not as it was written: its content does not fit its SHA-256")
    return manifest
