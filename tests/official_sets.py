"""The official sets as the tests serve them: generated files at the real addresses, and pins that fit these files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import stamina
from official_server import OfficialServer
from samples.official import write_archive, write_large

from tasks.datasets import DATASETS
from tasks.datasets.base import Dataset
from tasks.provenance.hashing import sha256_of_file
from tasks.sources.http import TRIES
from tasks.sources.origin import Origin, RawFile

CHOICES = [(name, key) for name, dataset in DATASETS.items() for key in dataset.origins if key not in "2345"]
DRAWN = {"alloprof_rerank/c", "scidocs/beir"}  # no split is given: each is drawn


@contextmanager
def internet(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[OfficialServer]:
    """Every official place, and an environment for this process in which there is no other; no wait between tries."""
    from huggingface_hub import constants

    (folder / "server").mkdir()
    with OfficialServer(folder / "server") as server, stamina.set_testing(True, attempts=TRIES["attempts"]):
        for name, value in server.environment().items():
            patch.setenv(name, value)
        patch.delenv("DATA_MIRROR", raising=False)
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, server.address)
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        patch.setattr(constants, "ENDPOINT", server.address)
        patch.setattr(constants, "HF_HUB_CACHE", str(folder / "hub_cache"))
        yield server


def preset(name: str, key: str, presets: dict[str, Any], chosen: str) -> dict[str, Any]:
    """An entry of `presets` for the origin `key`, after one of the project's own."""
    made = dict(presets[chosen])
    option = DATASETS[name].origin_option
    if option is not None:
        made["options"] = {**made.get("options", {}), option: int(key) if key.isdigit() else key}
    if f"{name}/{key}" in DRAWN:
        made["split"] = {**made["split"], "test": 0.3, "validation": 0.3}
    return made


def served(server: OfficialServer, name: str, key: str, folder: Path, queries: int = 120) -> Dataset:
    """Serve a generated set where its origin says; the data set, pinned to what is served."""
    raw = folder / "served"
    write_large(name, key, raw, queries=queries)
    dataset = DATASETS[name]
    origin = pinned(dataset, key, raw, folder / "set.zip")
    if origin.repository is not None:
        server.repository(origin.repository, origin.revision, raw)
    elif origin.archive is not None:
        server.serve(str(origin.archive.url), folder / "set.zip")
    else:
        for file in origin.files:
            server.serve(str(file.url), raw / file.path)
    return replace(dataset, origins={**dataset.origins, key: origin})


def pinned(dataset: Dataset, key: str, raw: Path, archive: Path) -> Origin:
    """The origin with the sizes, hashes and counts of the files in `raw`; packed into `archive` where it has one."""
    origin = dataset.origins[key]
    options = {dataset.origin_option: int(key) if key.isdigit() else key} if dataset.origin_option else {}
    counts = dataset.read(raw, options).counts
    files = origin.files
    if origin.repository is None:
        files = tuple(known(file, next(raw.rglob(file.path))) for file in files)
    if origin.archive is not None:
        write_archive(raw, archive)
    return replace(
        origin,
        files=files,
        archive=origin.archive and known(origin.archive, archive),
        published=tuple(replace(one, value=counts[one.what]) for one in origin.published),
    )


def known(file: RawFile, path: Path) -> RawFile:
    return replace(file, size=path.stat().st_size, sha256=sha256_of_file(path))


def write_pins(project: Path, dataset: Dataset) -> None:
    """Let a copy of the project have these pins; nothing else of its code is another."""
    path = project / f"tasks/datasets/{dataset.name}.py"
    source = path.read_text()
    (assigned,) = (
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and "ORIGINS" in ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
    )
    old = str(ast.get_source_segment(source, assigned))
    path.write_text(source.replace(old, f"ORIGINS = {dataset.origins!r}"))
