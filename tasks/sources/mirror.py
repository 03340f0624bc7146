"""A mirror of official data: a folder, or its address, with a folder for each data set, laid out like the source.

`data/raw` of another machine is one: served as it is, its `source.json` files say what there is, with sizes and hashes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import httpx

from tasks.protocol.errors import BadInput
from tasks.sources.contents import copied
from tasks.sources.http import NotThere, fetch
from tasks.sources.origin import INDEX, Brought, RawFile
from tasks.sources.reach import shown


class Mirror(NamedTuple):
    """What a mirror has brought of a set."""

    brought: dict[str, Brought]
    complete: bool  # it says all that there is of the set, and has it


def checked_mirror(mirror: str | None) -> str | None:
    """`mirror` as the environment names it, None where it names none; BadInput where there is no such place."""
    if not mirror:
        return None
    if not is_address(mirror) and not Path(mirror).is_dir():
        raise BadInput(f"DATA_MIRROR is {mirror}, which is neither a folder here nor an address that begins with http")
    try:
        httpx.URL(mirror if is_address(mirror) else "")
    except httpx.InvalidURL as error:
        raise BadInput(f"DATA_MIRROR is {mirror}, which is no address ({error})") from None
    return mirror


def is_address(mirror: str) -> bool:
    """Is it a URL, and no folder?"""
    return mirror.startswith(("http://", "https://"))


def from_mirror(mirror: str, name: str, revision: str, files: Iterable[RawFile], folder: Path) -> Mirror:
    """Bring what the mirror has of `files` to their paths below `folder`, verified.

    What it lacks is not in the answer. BadInput where what it has is not the official file, or of another revision, or
    where it does not have what its index lists.
    """
    if is_address(mirror):
        return _from_address(f"{mirror.rstrip('/')}/{name}", revision, list(files), folder)
    return _from_folder(Path(mirror) / name, revision, list(files), folder)


def mirrored(place: Path, file: RawFile) -> dict[str, Path]:
    """The files in a folder that `file.path` matches, at most some folders deeper, by the path that they shall have."""
    found = sorted(path for path in place.rglob(file.path) if path.is_file()) if place.is_dir() else []
    if file.path.startswith("**/"):  # in any folder, so none of them is too deep
        named = {path.relative_to(place).as_posix(): path for path in found}
        return {name: path for name, path in named.items() if file.fits(name)}
    depth = file.path.count("/") + 1
    roots = {path.parents[depth - 1] for path in found}
    if place in roots:
        found = [path for path in found if path.parents[depth - 1] == place]
    elif len(roots) > 1:
        raise BadInput(f"{place} holds {file.path} in {len(roots)} places: {', '.join(map(str, found))}; leave one")
    return {"/".join(path.parts[-depth:]): path for path in found}


def _from_folder(place: Path, revision: str, files: list[RawFile], folder: Path) -> Mirror:
    listed: dict[str, RawFile] = {}
    for index in sorted(place.rglob(INDEX)):
        listed |= _listed(index.read_bytes(), str(index), revision)
    found = {path: (source, file) for file in files for path, source in mirrored(place, file).items()}
    brought = {
        path: Brought(str(source), copied(source, folder / path, _together(file, listed.get(path))))
        for path, (source, file) in found.items()
    }
    return Mirror(brought, _complete(str(place), listed, files, brought))


def _from_address(place: str, revision: str, files: list[RawFile], folder: Path) -> Mirror:
    listed = _index_at(place, revision, folder / ".mirror")
    wanted = {file.path: file for file in files if "*" not in file.path and not listed}
    for file in files:
        wanted |= {path: _together(file, one) for path, one in listed.items() if file.fits(path)}
    brought = {}
    for path, file in wanted.items():
        url = f"{place}/{quote(path)}"
        with suppress(NotThere):
            brought[path] = Brought(shown(url), fetch(replace(file, path=path, url=url), folder))
    return Mirror(brought, _complete(shown(place), listed, files, brought))


def _complete(place: str, listed: dict[str, RawFile], files: list[RawFile], brought: dict[str, Brought]) -> bool:
    """Has the mirror said all that there is? BadInput where it lacks some of that."""
    missing = [path for path in listed if path not in brought and any(file.fits(path) for file in files)]
    if missing:
        raise BadInput(
            f"{place}/{INDEX} lists {missing[0]}, which is not there ({len(missing)} such files); copy it whole"
        )
    return bool(listed)


def _index_at(place: str, revision: str, aside: Path) -> dict[str, RawFile]:
    """What an address has, as it states it; empty where it does not."""
    try:
        fetch(RawFile(INDEX, url=f"{place}/{INDEX}"), aside)
        return _listed((aside / INDEX).read_bytes(), shown(f"{place}/{INDEX}"), revision)
    except NotThere:
        return {}
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _listed(text: bytes, called: str, revision: str) -> dict[str, RawFile]:
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
