"""DVC verb: bring the raw files of one data set to `data/raw/<d>/`, from where params.yaml says and nowhere else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tasks.datasets import dataset_named
from tasks.datasets.base import Dataset
from tasks.datasets.files import paths
from tasks.protocol.errors import BadInput
from tasks.protocol.params import DatasetParams, load_params
from tasks.protocol.store import raw_folder, read_json, write_json, write_whole
from tasks.provenance.hashing import sha256_of_file
from tasks.provenance.manifest import files_in
from tasks.provenance.stage import as_stage
from tasks.simulation import simulate


def bring(source: Path, folder: Path) -> None:
    """Copy `source` into `folder`, whole or not at all; BadInput if it is not there."""
    if not source.is_file():
        raise BadInput(f"{source} is not there; mend its path in params.yaml, or put the file in that place")
    write_whole(folder / source.name, lambda partial: shutil.copyfile(source, partial))


def mirror_files(dataset: Dataset, name: str, folder: Path) -> None:
    """Copy the official files from `DATA_MIRROR/<d>/` and check each against its published size and SHA-256."""
    mirror = os.environ.get("DATA_MIRROR")
    if mirror is None:
        wanted = ", ".join(file.path for file in dataset.files)
        raise BadInput(
            f"{name}: downloading from the official source is not built yet; fetch {wanted} from {dataset.homepage} "
            f"(revision {dataset.revision}), put them in <folder>/{name}/ and set DATA_MIRROR=<folder>"
        )
    for file in dataset.files:
        found = sorted((Path(mirror) / name).glob(file.path))
        if not found:
            raise BadInput(f"{name}: {Path(mirror) / name / file.path} is not there; fetch it from {dataset.homepage}")
        for source in found:
            size, wrong = source.stat().st_size, f"{name}: {source} is not the official file of {dataset.homepage}"
            if file.size is not None and size != file.size:
                raise BadInput(f"{wrong}: it has {size} bytes, not {file.size}; fetch it again")
            if file.sha256 is not None and (found_hash := sha256_of_file(source)) != file.sha256:
                raise BadInput(f"{wrong}: its SHA-256 is {found_hash}, not {file.sha256}; fetch it again")
            target = folder / source.relative_to(Path(mirror) / name).parent
            target.mkdir(parents=True, exist_ok=True)
            bring(source, target)


def fill(name: str, dataset: Dataset, params: DatasetParams, folder: Path) -> str:
    """Put the raw files in `folder`; returns the origin in words."""
    if params.source == "simulated":
        assert params.rows is not None
        assert params.residual is not None
        simulate(params.reader, folder, rows=params.rows, residual=params.residual, seed=params.seed)
        return f"simulated twin of {dataset.title}: {params.rows} rows, residual {params.residual}, seed {params.seed}"
    if params.source == "files":
        own = Path(params.path)
        wanted = paths(params.chosen.options)
        if own.is_file() and wanted != [own.name]:
            raise BadInput(f"{name}: path is the file {own}, but options name {', '.join(wanted)}; give their folder")
        named = [own] if own.is_file() else [own / path for path in wanted]
        for path in named:
            bring(path, folder)
        return ", ".join(str(path) for path in named)
    if params.source == "official":
        mirror_files(dataset, name, folder)
        return f"{dataset.homepage} through DATA_MIRROR"
    raise BadInput(f"{name}: source `hub` is not built yet; use `files` with a downloaded parquet file")


def main(name: str) -> None:
    """Download, simulate or link the raw files of `name`, then write `source.json` beside them."""
    params = load_params().dataset(name)
    dataset = dataset_named(name, params.reader, params.chosen.options)
    folder = raw_folder(name)
    about = folder / "source.json"
    if folder.exists() and (
        not about.exists() or read_json(about)["source"] != params.source or params.source != "official"
    ):
        shutil.rmtree(folder)  # nothing of another source may stay behind; only a download goes on where it was cut
    folder.mkdir(parents=True, exist_ok=True)
    origin = fill(name, dataset, params, folder)
    files = [path for path in files_in([folder]) if path != about]
    write_json(
        about,
        {
            "dataset": name,
            "source": params.source,
            "origin": origin,
            "revision": dataset.revision if params.source == "official" else None,
            "licence": dataset.licence if params.source == "official" else None,
            "files": [
                {
                    "path": path.relative_to(folder).as_posix(),
                    "size": path.stat().st_size,
                    "sha256": sha256_of_file(path),
                }
                for path in files
            ],
        },
    )


if __name__ == "__main__":
    as_stage("download", main)
