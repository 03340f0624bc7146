"""DVC verb: bring the raw files of one data set to `data/raw/<d>/`, from where params.yaml says and nowhere else.

They are put together beside that and take their place in one step, when all are there and verified.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import stamina

from tasks.datasets import dataset_named
from tasks.datasets.base import Dataset
from tasks.datasets.files import paths
from tasks.protocol.errors import BadInput
from tasks.protocol.params import DatasetParams, load_params
from tasks.protocol.store import downloads_folder, raw_folder, read_json, write_json
from tasks.provenance.hashing import sha256_of_file
from tasks.provenance.manifest import files_in
from tasks.provenance.stage import as_stage
from tasks.simulation import simulate
from tasks.sources.gather import gather
from tasks.sources.mirror import checked_mirror
from tasks.sources.origin import INDEX, Brought, Origin

DOWNLOADED = ("official", "hub")


def bring(own: Path, wanted: list[str], folder: Path, name: str) -> dict[str, Brought]:
    """Copy one's own files into `folder`. BadInput if one is not there."""
    if own.is_file() and wanted != [own.name]:
        raise BadInput(f"{name}: path is the file {own}, but options name {', '.join(wanted)}; give their folder")
    named = [own] if own.is_file() else [own / path for path in wanted]
    for source in named:
        if not source.is_file():
            raise BadInput(f"{source} is not there; mend its path in params.yaml, or put the file in that place")
        shutil.copyfile(source, folder / source.name)
    return {source.name: Brought(str(source), "nothing") for source in named}


def made(name: str, dataset: Dataset, params: DatasetParams, folder: Path) -> tuple[str, dict[str, Brought]]:
    """Fill `folder` with a twin or with one's own files; returns the origin in words, and that of each file."""
    if params.source == "simulated":
        assert params.rows is not None
        assert params.residual is not None
        simulate(params.reader, folder, rows=params.rows, residual=params.residual, seed=params.seed)
        told = f"simulated twin of {dataset.title}: {params.rows} rows, residual {params.residual}, seed {params.seed}"
        return told, {}
    brought = bring(Path(params.path), paths(params.chosen.options), folder, name)
    return ", ".join(one.source for one in brought.values()), brought


def is_here(folder: Path, origin: Origin) -> bool:
    """Does `folder` hold the files of `origin`, and no other, as they were when they were verified?"""
    try:
        about = read_json(folder / INDEX)
        recorded = {one["path"]: one["sha256"] for one in about["files"]}
    except (BadInput, KeyError, TypeError):
        return False
    if about.get("pinned") != pinned(origin):
        return False
    found = [path for path in files_in([folder]) if path != folder / INDEX]
    return {path.relative_to(folder).as_posix(): sha256_of_file(path) for path in found} == recorded


def pinned(origin: Origin) -> str:
    """What tells the bytes of this origin from those of another: place, revision, files."""
    files = [*origin.files, *([origin.archive] if origin.archive else [])]
    known = [(file.path, file.url, file.size, file.sha256, file.md5) for file in files]
    return hashlib.sha256(json.dumps([origin.repository, origin.revision, known]).encode()).hexdigest()[:16]


def aside_folder(name: str, origin: Origin | None, mirror: str | None) -> Path:
    """Where the raw files are put together; what another origin left there goes.

    So does what another mirror left, where no hash would tell a file of it from the official one.
    """
    if origin is None:
        key = "made"
    else:
        told = origin.repository or origin.archive or all(file.sha256 for file in origin.files)
        key = hashlib.sha256(f"{pinned(origin)} {None if told else mirror}".encode()).hexdigest()[:16]
    aside = downloads_folder(name) / key
    for other in downloads_folder(name).glob("*"):
        if other.is_file():
            other.unlink()
        elif origin is None or other != aside:
            shutil.rmtree(other)
    aside.mkdir(parents=True, exist_ok=True)
    return aside


def main(name: str) -> None:
    """Download, simulate or copy the raw files of `name`, with `source.json` beside them."""
    params = load_params().dataset(name)
    dataset = dataset_named(name, params.reader, params.chosen.options)
    origin = dataset.origin(params.chosen.options) if params.source in DOWNLOADED else None
    folder = raw_folder(name)
    if origin is not None and is_here(folder, origin):
        print(f"{name}: {folder} holds revision {origin.revision} already, unchanged since it came", flush=True)
        return
    mirror = checked_mirror(os.environ.get("DATA_MIRROR"))
    aside = aside_folder(name, origin, mirror)
    if origin is None:
        told, brought = made(name, dataset, params, aside)
    else:
        print(f"{name}: downloads {dataset.title} from {origin.homepage}", flush=True)
        print(f"Licence: {origin.licence}. {origin.terms}", flush=True)
        told, brought = origin.homepage, gather(list(dict.fromkeys((name, dataset.name))), origin, aside, mirror)
    write_json(aside / INDEX, described(name, params.source, told, origin, aside, brought))
    if folder.exists():
        shutil.rmtree(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside.replace(folder)
    shutil.rmtree(downloads_folder(name))


def described(
    name: str, source: str, told: str, origin: Origin | None, folder: Path, brought: Mapping[str, Brought]
) -> dict[str, object]:
    """What `source.json` says."""
    listed = []
    for path in files_in([folder]):
        place = path.relative_to(folder).as_posix()
        if place == INDEX:
            continue
        about = {"path": place, "size": path.stat().st_size, "sha256": sha256_of_file(path)}
        if place in brought:
            about |= {"from": brought[place].source, "verified_by": brought[place].verified_by}
        listed.append(about)
    return {
        "dataset": name,
        "source": source,
        "origin": told,
        "revision": origin and origin.revision,
        "licence": origin and origin.licence,
        "terms": origin and origin.terms,
        "pinned": origin and pinned(origin),
        "files": listed,
    }


def said(details: stamina.instrumentation.RetryDetails) -> None:
    """A wait before another try, to whoever watches."""
    print(f"another try in {details.wait_for:.0f} s: {details.caused_by}", flush=True)


if __name__ == "__main__":
    stamina.instrumentation.set_on_retry_hooks([said])
    as_stage("download", main)
