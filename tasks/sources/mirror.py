"""A mirror of official data: a folder, or its address, with a folder for each data set, laid out like the source.

`data/raw` of another machine is one: served as it is, its `source.json` files say what there is, with sizes and hashes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from tasks.protocol.errors import BadInput
from tasks.sources.contents import copied
from tasks.sources.http import NotThere, fetch
from tasks.sources.origin import Brought, RawFile
from tasks.sources.reach import shown

INDEX = "source.json"  # what a download stage writes beside its files


def from_mirror(mirror: str, name: str, revision: str, files: Iterable[RawFile], folder: Path) -> dict[str, Brought]:
    """Bring what the mirror has of `files` to their paths below `folder`, verified.

    What it lacks is not in the answer. BadInput where what it has is not the official file, or of another revision, or
    where there is no such mirror.
    """
    if mirror.startswith(("http://", "https://")):
        return _from_address(f"{mirror.rstrip('/')}/{name}", revision, files, folder)
    if not Path(mirror).is_dir():
        raise BadInput(f"DATA_MIRROR is {mirror}, which is neither a folder here nor an address that begins with http")
    return _from_folder(Path(mirror) / name, revision, files, folder)


def has_index(mirror: str, name: str) -> bool:
    """Does a folder say all that there is of a set? An address without an index has named files only."""
    return mirror.startswith(("http://", "https://")) or (Path(mirror) / name / INDEX).is_file()


def mirrored(place: Path, file: RawFile) -> dict[str, Path]:
    """The files in a folder that `file.path` matches, at most some folders deeper, by the path that they shall have."""
    found = sorted(path for path in place.rglob(file.path) if path.is_file()) if place.is_dir() else []
    if file.path.startswith("**/"):  # in any folder, so none of them is too deep
        return {path.relative_to(place).as_posix(): path for path in found}
    depth = file.path.count("/") + 1
    roots = {path.parents[depth - 1] for path in found}
    if len(roots) > 1:
        raise BadInput(f"{place} holds {file.path} in {len(roots)} places: {', '.join(map(str, found))}; leave one")
    return {"/".join(path.parts[-depth:]): path for path in found}


def _from_folder(place: Path, revision: str, files: Iterable[RawFile], folder: Path) -> dict[str, Brought]:
    known: dict[str, RawFile] = {}
    for index in sorted(place.rglob(INDEX)):
        known |= _listed(index.read_text(encoding="utf-8"), str(index), revision)
    found = {path: (source, file) for file in files for path, source in mirrored(place, file).items()}
    return {
        path: Brought(str(source), copied(source, folder / path, _together(file, known.get(path))))
        for path, (source, file) in found.items()
    }


def _from_address(place: str, revision: str, files: Iterable[RawFile], folder: Path) -> dict[str, Brought]:
    known = _index_at(place, revision, folder / ".mirror")
    wanted: dict[str, RawFile] = {}
    for file in files:
        if known is not None:
            wanted |= {path: _together(file, one) for path, one in known.items() if file.fits(path)}
        elif "*" not in file.path:
            wanted[file.path] = file
    brought = {}
    for path, file in wanted.items():
        url = f"{place}/{quote(path)}"
        try:
            by = fetch(replace(file, path=path, url=url), folder)
        except NotThere:
            continue
        brought[path] = Brought(shown(url), by)
    return brought


def _index_at(place: str, revision: str, aside: Path) -> dict[str, RawFile] | None:
    """What an address has, as it states it; None where it does not."""
    try:
        fetch(RawFile(INDEX, url=f"{place}/{INDEX}"), aside)
        return _listed((aside / INDEX).read_text(encoding="utf-8"), shown(f"{place}/{INDEX}"), revision)
    except NotThere:
        return None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _listed(text: str, called: str, revision: str) -> dict[str, RawFile]:
    """What an index states, by path; BadInput where it is of another revision, or of a twin."""
    try:
        index = json.loads(text)
        files = [RawFile(one["path"], size=int(one["size"]), sha256=str(one["sha256"])) for one in index["files"]]
        found, source = index["revision"], index["source"]
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{called} is not what a download stage writes ({type(error).__name__}: {error})") from None
    if found != revision:
        raise BadInput(f"{called} is of source {source}, revision {found}; needed is revision {revision}")
    return {file.path: file for file in files}


def _together(pinned: RawFile, stated: RawFile | None) -> RawFile:
    """What is pinned of a file, and where nothing is, what its mirror states."""
    if stated is None:
        return pinned
    return replace(pinned, size=pinned.size or stated.size, sha256=pinned.sha256 or stated.sha256)
