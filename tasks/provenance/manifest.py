"""A manifest ties what a stage wrote to what it was made of: SHA-256 of inputs, code and outputs, parameters, versions.

It holds no date, so the same run writes the same bytes. `sha256` seals the rest of it. Why a stage ran is what differs
between two of its manifests.
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
from relmap.hashing import sha256_of_file
from relmap.io import atomic
from tasks.provenance import declared
from tasks.records import store

LIBRARIES = (
    *("torch", "numpy", "scipy", "scikit-learn", "lightgbm", "polars", "datasets"),
    *("prefect", "dvc", "great-expectations"),
)
LONGEST = 80  # characters of a changed value that are shown
MOST_NAMED = 5  # changes of a stage that are named one by one
LEFT_BEHIND = {"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".pyc", ".partial"}  # by running


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


def hashed(paths: Iterable[Path], suffix: str | None = None) -> Files:
    """Every file that `paths`, files and folders, hold, hashed, in order; with a `suffix`, only such files."""
    files = sorted({file for path in paths for file in ([path] if path.is_file() else path.rglob("*"))})
    return {
        file.as_posix(): HashedFile(size=file.stat().st_size, sha256=sha256_of_file(file))
        for file in files
        if file.is_file() and suffix in {None, file.suffix} and LEFT_BEHIND.isdisjoint({*file.parts, file.suffix})
    }


def manifest_of(stage: declared.Declared, inputs: Files, code: Files, outputs: Files) -> Manifest:
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


def manifest_now(stage: declared.Declared) -> Manifest:
    """What the manifest of `stage` would be if its outputs had been made of what is there now."""
    code = hashed(stage.code, ".py")  # an editor may leave other files there
    return manifest_of(stage, hashed(stage.inputs), code, hashed(stage.outputs))


def write_manifest(manifest: Manifest, *paths: Path) -> None:
    """Write a manifest with its seal into each of `paths`."""
    content = manifest.model_dump(mode="json")
    for path in paths:
        atomic.write_json(path, content | {"sha256": _seal(content)})


def _seal(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def read_manifest(path: Path) -> Manifest:
    """Read a manifest's file; InputError where it is missing, cut off, or not as it was written."""
    content = store.read_json(path)
    seal = content.pop("sha256", None)
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError as error:
        raise errors.InputError(
            f"{path} is no manifest: {'; '.join(errors.describe_validation_errors(error, 'the file'))}"
        ) from None
    if _seal(content) != seal:
        raise errors.InputError(f"{path} is not as it was written: its content does not fit its SHA-256")
    return manifest


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every value within nested mappings, with its dotted name."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _shown(value: HashedFile | str) -> str:
    text = value.sha256[:8] if isinstance(value, HashedFile) else value
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"


def _read_and_run(manifest: Manifest) -> list[dict[str, Any]]:
    values = {name: repr(value) for name, value in leaves(manifest.parameters)}
    versions = {f"version of {name}": repr(number) for name, number in manifest.versions.items()}
    return [values, manifest.inputs, manifest.code, {"command": manifest.command}, versions]


def changes(before: Manifest, after: Manifest) -> list[str]:
    """What differs of all that a stage reads and runs: parameters, inputs, code, command, versions of libraries."""
    return [
        f"{name}: {_shown(was.get(name, 'nothing'))} → {_shown(is_now.get(name, 'nothing'))}"
        for was, is_now in zip(_read_and_run(before), _read_and_run(after), strict=True)
        for name in sorted(was | is_now)
        if was.get(name) != is_now.get(name)
    ]


def why(before: Manifest | None, after: Manifest) -> str:
    """Why the stage of `after` ran, where `before` is that of its last finished run."""
    if before is None:
        return "it had not finished on this machine before"
    differences = changes(before, after)
    if not differences:
        return "nothing that it reads had changed: it was forced, or its outputs were missing or changed"
    more = [f"and {len(differences) - MOST_NAMED} more"] if len(differences) > MOST_NAMED else []
    return "; ".join([*differences[:MOST_NAMED], *more])
