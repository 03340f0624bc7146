"""A mirror of official data: a folder, or its address, with a folder for each data set, laid out like the source.

`data/raw` of another machine is one: served as it is, its `source.json` files say what there is.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tasks.protocol.errors import BadInput
from tasks.sources.contents import copied
from tasks.sources.http import NotThere, fetch
from tasks.sources.origin import RawFile

INDEX = "source.json"  # what a download stage writes beside its files


def from_mirror(mirror: str, name: str, revision: str, files: Iterable[RawFile], folder: Path) -> dict[str, str]:
    """Bring what the mirror has of `files` to their paths below `folder`, verified; path -> where it came from.

    What it lacks is not in the answer. BadInput where what it has is not the official file, or of another revision.
    """
    if mirror.startswith(("http://", "https://")):
        return _from_address(f"{mirror.rstrip('/')}/{name}", revision, files, folder)
    return _from_folder(Path(mirror) / name, revision, files, folder)


def mirrored(place: Path, file: RawFile) -> dict[str, Path]:
    """The files in a folder that `file.path` matches, at most some folders deeper, by the path that they shall have."""
    found = sorted(path for path in place.rglob(file.path) if path.is_file()) if place.is_dir() else []
    depth = file.path.count("/") + 1
    roots = {path.parents[depth - 1] for path in found}
    if len(roots) > 1:
        raise BadInput(f"{place} holds {file.path} in {len(roots)} places: {', '.join(map(str, found))}; leave one")
    return {"/".join(path.parts[-depth:]): path for path in found}


def _from_folder(place: Path, revision: str, files: Iterable[RawFile], folder: Path) -> dict[str, str]:
    if (place / INDEX).is_file():
        _listed((place / INDEX).read_text(encoding="utf-8"), str(place / INDEX), revision)
    found = {path: (source, file) for file in files for path, source in mirrored(place, file).items()}
    for path, (source, file) in found.items():
        copied(source, folder / path, file)
    return {path: str(source) for path, (source, _) in found.items()}


def _from_address(place: str, revision: str, files: Iterable[RawFile], folder: Path) -> dict[str, str]:
    aside = folder / ".mirror"
    try:
        index = fetch(RawFile(INDEX, url=f"{place}/{INDEX}"), aside)
        listed = _listed(index.read_text(encoding="utf-8"), f"{place}/{INDEX}", revision)
    except NotThere:
        return {}
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    brought = {}
    for file in files:
        for path, known in listed.items():
            if file.fits(path):
                url = f"{place}/{quote(path)}"
                size, sha256 = file.size or known["size"], file.sha256 or known["sha256"]
                fetch(RawFile(path, url=url, size=size, sha256=sha256), folder)
                brought[path] = url
    return brought


def _listed(text: str, called: str, revision: str) -> dict[str, Any]:
    """path -> size and SHA-256, as an index states them; BadInput where it is of another revision, or of a twin."""
    try:
        index = json.loads(text)
        listed = {one["path"]: {"size": int(one["size"]), "sha256": str(one["sha256"])} for one in index["files"]}
        found, source = index["revision"], index["source"]
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{called} is not what a download stage writes ({type(error).__name__}: {error})") from None
    if found != revision:
        raise BadInput(f"{called} is of source {source}, revision {found}; needed is revision {revision}")
    return listed
