"""DVC step `download`: write the raw files of a data set to `data/raw/<d>/`, from the source that params.yaml names.

The files are collected in a temporary folder, which replaces the old one in a single step.
"""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from relmap.errors import InputError
from relmap.io.atomic import temporary_path, write_json
from relmap.io.hashing import sha256_of_file
from tasks.datasets import base, find_declared_dataset
from tasks.provenance import stage
from tasks.records.durations import measured
from tasks.records.store import raw_folder, read_json
from tasks.settings.dataset_params import DatasetParams
from tasks.settings.params import load_params
from tasks.simulation import simulate
from tasks.sources.hub import INDEX, copy_files, fetch, resolve_revision


@measured("read")
def main(name: str) -> str | None:
    """Download, simulate or copy the raw files of a data set, and write `source.json` next to them.

    Files of data sets that are not in the paper are also read, so that mistakes in them are reported now.

    Args:
        name: Key of the data set.

    Returns:
        A message about the differences from the previous files, if any.

    Raises:
        InputError: The files cannot be obtained or read.
    """
    entry = load_params().dataset(name)
    dataset = find_declared_dataset(name, entry)
    with temporary_path(raw_folder(name), Path.mkdir) as folder:
        original_paths: dict[str, str] = {}  # path in `folder` -> path to name in messages
        if entry.source == "simulated":
            facts: dict[str, Any] | None = _simulate(dataset, entry, folder)
        elif entry.source == "files":
            original_paths = _copy_own_files(dataset, Path(entry.path), folder)
            facts = {"origin": ", ".join(original_paths.values())}
        else:
            facts = _download(name, dataset, entry.revision, folder)
            if facts is not None:
                original_paths = {str(folder): str(facts["origin"])}
        if facts is None:
            return None
        index = {
            "dataset": name,
            "source": entry.source,
            "origin": "",
            "revision": None,
            "licence": dataset.licence,
            **facts,
            "files": _list_files(folder),
        }
        write_json(folder / INDEX, index)
        message = _describe_changes(dataset, folder, original_paths) if entry.preset is None else None
        shutil.rmtree(raw_folder(name), ignore_errors=True)
        folder.replace(raw_folder(name))
        return message


def _simulate(dataset: base.Dataset, entry: DatasetParams, folder: Path) -> dict[str, Any]:
    """Write simulated files; return facts about them for `source.json`."""
    assert entry.rows is not None
    assert entry.residual is not None
    assert entry.twin is not None
    simulate(dataset.name, folder, rows=entry.rows, residual=entry.residual, twin=entry.twin, seed=entry.seed)
    size = f"{entry.rows} rows, residual {entry.residual}, seed {entry.seed}"
    return {"origin": f"simulated twin of {dataset.title}: {size}", "licence": None}


def _copy_own_files(dataset: base.Dataset, path: Path, folder: Path) -> dict[str, str]:
    """Copy the user's files; return the path of each copy -> its original path."""
    sources = [path / file for file in dataset.files] if path.is_dir() else [path]
    original_paths = {}
    for source in sources:
        copy = shutil.copyfile(source, folder / source.name)
        original_paths[str(copy)] = str(source)
    return original_paths


def _describe_changes(dataset: base.Dataset, folder: Path, original_paths: Mapping[str, str]) -> str | None:
    """Read the new files; describe how their rows differ from the previous version of the same files, if there is one.

    Errors name the original paths instead of the copies.
    """
    try:
        pairs = dataset.read(folder)
    except InputError as error:
        message = str(error)
        for copy, original in original_paths.items():
            message = message.replace(copy, original)
        raise InputError(message) from None
    with suppress(InputError):  # there are no previous files, or they cannot be read with this reader
        previous = read_json(raw_folder(dataset.name) / INDEX)["files"]
        current = _list_files(folder)
        same_names = [file["path"] for file in previous] == [file["path"] for file in current]
        if previous != current and same_names:
            return base.describe_differences(dataset.read(raw_folder(dataset.name)), pairs)
    return None


def _download(name: str, dataset: base.Dataset, revision: str | None, folder: Path) -> dict[str, Any] | None:
    """Copy files from DATA_MIRROR, or download them from the hub; return facts about them for `source.json`.

    Returns None if the files of the revision already exist.
    """
    assert dataset.repository is not None
    repository = replace(dataset.repository, revision=revision or dataset.repository.revision)
    mirror = os.environ.get("DATA_MIRROR")
    if mirror:
        source = _find_in_mirror(name, dataset, Path(mirror))
        copy_files(name, repository, source, folder)
        return {"origin": str(source)}
    existing_folder = raw_folder(name)
    existing_revision = None
    existing_files = None
    with suppress(InputError):  # there are no files, or they are incomplete
        index = read_json(existing_folder / INDEX)
        if index.get("origin") == repository.homepage:
            existing_revision = index.get("revision")
            existing_files = index.get("files")
    wanted_revision = resolve_revision(name, repository)
    is_current = existing_revision is not None and wanted_revision in (None, existing_revision)
    if existing_revision is not None and repository.revision is None and not is_current:
        raise InputError(
            f"{name}: {repository.homepage} has moved to revision {wanted_revision}, and {existing_folder} holds "
            f"{existing_revision}; set `revision` of {name} in params.yaml to the one that you want, or delete "
            "that folder to download the new one"
        )
    if is_current and existing_files == _list_files(existing_folder):
        print(f"{name}: {existing_folder} already holds revision {existing_revision}, unchanged", flush=True)
        return None
    print(f"{name}: downloading {dataset.title} from {repository.homepage}, licence: {dataset.licence}", flush=True)
    commit, verified = fetch(name, repository, folder)
    unverified = sorted({file["path"] for file in _list_files(folder)}.difference(verified))
    if unverified:
        print(f"{name}: not verified, since the hub publishes no hash: {', '.join(unverified)}", flush=True)
    return {"origin": repository.homepage, "revision": commit, "verified": verified}


def _find_in_mirror(name: str, dataset: base.Dataset, mirror: Path) -> Path:
    """Return the folder of a data set in DATA_MIRROR: its key in params.yaml, or the name of the paper's data set."""
    candidates = [mirror / name, mirror / dataset.name]
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    raise InputError(
        f"{name}: DATA_MIRROR is set, but {candidates[0]} is not a folder; put the files there, or unset DATA_MIRROR"
    )


def _list_files(folder: Path) -> list[dict[str, Any]]:
    """List path, size and SHA-256 of the raw files in a folder."""
    files = []
    for file in sorted(folder.rglob("*")):
        path = file.relative_to(folder).as_posix()
        if file.is_file() and path != INDEX:
            files.append({"path": path, "size": file.stat().st_size, "sha256": sha256_of_file(file)})
    return files


if __name__ == "__main__":
    stage.run_dataset_stage("download", main)
