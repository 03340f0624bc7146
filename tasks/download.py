"""DVC verb: bring the raw files of one data set to `data/raw/<d>/`, from where params.yaml says and nowhere else.

They are put together beside that and take their place in one step, when all are there.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from tasks.datasets import base, dataset_named
from tasks.protocol.errors import BadInput
from tasks.protocol.params import load_params
from tasks.protocol.store import downloads_folder, raw_folder, read_json, write_json
from tasks.provenance import manifest, stage
from tasks.simulation import simulate
from tasks.sources.hub import INDEX, copy_files, fetch, revision_now


def main(name: str) -> None:
    """Download, simulate or copy the raw files of `name`, with `source.json` beside them."""
    entry = load_params().dataset(name)
    dataset = dataset_named(name, entry.reader, entry.options)
    aside = downloads_folder(name)
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        if entry.source == "simulated":
            assert entry.rows is not None
            assert entry.residual is not None
            simulate(dataset.name, aside, rows=entry.rows, residual=entry.residual, seed=entry.seed)
            size = f"{entry.rows} rows, residual {entry.residual}, seed {entry.seed}"
            origin: dict[str, Any] | None = {"origin": f"simulated twin of {dataset.title}: {size}", "licence": None}
        elif entry.source == "files":
            origin = {"origin": _own_files(name, Path(entry.path), dataset.files, aside)}
        else:
            origin = _from_hub(name, dataset, entry.revision, aside)
        if origin is None:
            return
        about = {"dataset": name, "source": entry.source, "origin": "", "revision": None, "licence": dataset.licence}
        write_json(aside / INDEX, about | origin | {"files": _listed(aside)})
        shutil.rmtree(raw_folder(name), ignore_errors=True)
        aside.replace(raw_folder(name))
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _own_files(name: str, own: Path, wanted: tuple[str, ...], folder: Path) -> str:
    """Copy one's own files into `folder`; returns their places. BadInput if one is not there."""
    wanted = wanted or (own.name,)
    if own.is_file() and wanted != (own.name,):
        raise BadInput(f"{name}: path is the file {own}, but options name {', '.join(wanted)}; give their folder")
    named = [own / path for path in wanted] if own.is_dir() else [own]
    for source in named:
        if not source.is_file():
            raise BadInput(
                f"{name}: {source} is not there; mend its path in params.yaml, or put the file in that place"
            )
        shutil.copyfile(source, folder / source.name)
    return ", ".join(map(str, named))


def _from_hub(name: str, dataset: base.Dataset, revision: str | None, folder: Path) -> dict[str, Any] | None:
    """Fill `folder` from DATA_MIRROR, where that is set, or else from the hub; None where that revision is there.

    BadInput where the hub shows another revision than the one that is there, and nobody said which one is meant.
    """
    assert dataset.repository is not None
    repository = dataset.repository._replace(revision=revision or dataset.repository.revision)
    if mirror := os.environ.get("DATA_MIRROR"):
        places = [Path(mirror) / key for key in dict.fromkeys((name, dataset.name))]
        source = next((place for place in places if place.is_dir()), None)
        if source is None:
            raise BadInput(
                f"{name}: DATA_MIRROR is set, but {places[0]} is no folder; put the files there, or unset it"
            )
        copy_files(name, repository, source, folder)
        return {"origin": str(source)}
    raw, about = raw_folder(name), dict[str, Any]()
    with suppress(BadInput):  # nothing is there, or nothing whole
        about = read_json(raw / INDEX)
    there = about.get("revision") if about.get("origin") == repository.homepage else None
    wanted = revision_now(name, repository)
    if there is not None and repository.revision is None and wanted not in (None, there):
        raise BadInput(
            f"{name}: {repository.homepage} has moved to revision {wanted}, and {raw} holds {there}; write the one that"
            f" you mean as `revision` of {name} into params.yaml, or delete that folder for the new one"
        )
    if there is not None and wanted in (None, there) and about.get("files") == _listed(raw):
        print(f"{name}: {raw} holds revision {there} already, unchanged since it came", flush=True)
        return None
    print(f"{name}: {dataset.title} comes from {repository.homepage}, licence: {dataset.licence}", flush=True)
    commit, verified = fetch(name, repository, folder)
    unverified = sorted({file["path"] for file in _listed(folder)}.difference(verified))
    if unverified:
        print(f"{name}: unverified, since nothing is known of their content: {', '.join(unverified)}", flush=True)
    return {"origin": repository.homepage, "revision": commit, "verified": verified}


def _listed(folder: Path) -> list[dict[str, Any]]:
    """The path, size and SHA-256 of each raw file."""
    files = {Path(path).relative_to(folder).as_posix(): file for path, file in manifest.hashed([folder]).items()}
    return [{"path": path, **file.model_dump()} for path, file in files.items() if path != INDEX]


if __name__ == "__main__":
    stage.as_stage("download", main)
