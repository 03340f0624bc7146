"""DVC verb: bring the raw files of one data set to `data/raw/<d>/`, from where params.yaml says and nowhere else.

They are put together beside that and take their place in one step, when all are there.
"""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any

from relmap.errors import InputError
from relmap.io.atomic import temporary_beside, write_json
from tasks.datasets import base, declared_set
from tasks.provenance import manifest, stage
from tasks.records.store import raw_folder, read_json
from tasks.settings.params import load_params
from tasks.simulation import simulate
from tasks.sources.hub import INDEX, copy_files, fetch, revision_now


def main(name: str) -> str | None:
    """Download, simulate or copy the raw files of `name`, with `source.json` beside them.

    One's own are read once, so that a mistake in them is found here; returns what differs from those of before.
    """
    entry = load_params().dataset(name)
    dataset, places = declared_set(name, entry), dict[str, str]()
    with temporary_beside(raw_folder(name), Path.mkdir) as aside:
        if entry.source == "simulated":
            assert entry.rows is not None
            assert entry.residual is not None
            simulate(dataset.name, aside, rows=entry.rows, residual=entry.residual, seed=entry.seed)
            size = f"{entry.rows} rows, residual {entry.residual}, seed {entry.seed}"
            origin: dict[str, Any] | None = {"origin": f"simulated twin of {dataset.title}: {size}", "licence": None}
        elif entry.source == "files":
            own = Path(entry.path)
            for source in [own / path for path in dataset.files] if own.is_dir() else [own]:
                places[str(shutil.copyfile(source, aside / source.name))] = str(source)
            origin = {"origin": ", ".join(places.values())}
        else:
            origin = _from_hub(name, dataset, entry.revision, aside)
            places = {str(aside): str(origin and origin["origin"])}
        if origin is None:
            return None
        about = {"dataset": name, "source": entry.source, "origin": "", "revision": None, "licence": dataset.licence}
        write_json(aside / INDEX, about | origin | {"files": _listed(aside)})
        differs = _read(dataset, aside, places) if entry.preset is None else None
        shutil.rmtree(raw_folder(name), ignore_errors=True)
        aside.replace(raw_folder(name))
        return differs


def _read(dataset: base.Dataset, aside: Path, places: Mapping[str, str]) -> str | None:
    """Read the files in `aside`, which come from `places`; what differs from those of before, if they are others."""
    try:
        now = dataset.read(aside)
    except InputError as error:
        said = reduce(lambda text, place: text.replace(*place), places.items(), str(error))
        raise InputError(said) from None
    with suppress(InputError):  # nothing is there, or nothing that is read like this
        before = read_json(raw_folder(dataset.name) / INDEX)["files"]
        if before != (files := _listed(aside)) and [of["path"] for of in before] == [of["path"] for of in files]:
            return base.what_differs(dataset.read(raw_folder(dataset.name)), now)
    return None


def _from_hub(name: str, dataset: base.Dataset, revision: str | None, folder: Path) -> dict[str, Any] | None:
    """Fill `folder` from DATA_MIRROR, or else from the hub; None where that revision is there already."""
    assert dataset.repository is not None
    repository = dataset.repository._replace(revision=revision or dataset.repository.revision)
    if mirror := os.environ.get("DATA_MIRROR"):
        places = [Path(mirror) / key for key in dict.fromkeys((name, dataset.name))]
        source = next((place for place in places if place.is_dir()), None)
        if source is None:
            raise InputError(
                f"{name}: DATA_MIRROR is set, but {places[0]} is no folder; put the files there, or unset it"
            )
        copy_files(name, repository, source, folder)
        return {"origin": str(source)}
    raw, about = raw_folder(name), dict[str, Any]()
    with suppress(InputError):  # nothing is there, or nothing whole
        about = read_json(raw / INDEX)
    there = about.get("revision") if about.get("origin") == repository.homepage else None
    wanted = revision_now(name, repository)
    if there is not None and repository.revision is None and wanted not in (None, there):
        raise InputError(
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
    files = {Path(path).relative_to(folder).as_posix(): file for path, file in manifest.hash_files([folder]).items()}
    return [{"path": path, **file.model_dump()} for path, file in files.items() if path != INDEX]


if __name__ == "__main__":
    stage.run_dataset_stage("download", main)
