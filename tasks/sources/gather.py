"""All files of an official place into one folder: what a mirror has from there, the rest from where it is published."""

from __future__ import annotations

import re
from pathlib import Path

from tasks.protocol.errors import BadInput
from tasks.sources.archive import unpack
from tasks.sources.http import fetch
from tasks.sources.hub import from_hub
from tasks.sources.mirror import from_mirror
from tasks.sources.origin import Origin, RawFile

PART = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<all>\d{5})(?P<ending>\..+)$")


def gather(name: str, origin: Origin, folder: Path, mirror: str | None) -> dict[str, str]:
    """Bring the files of `origin` for the data set `name` to `folder`; path -> where each came from.

    What an earlier call left there, whole or in part, is gone on from. Raises BadInput, which names the data set and
    says what could be put where by hand.
    """
    try:
        brought = from_mirror(mirror, name, origin.revision, origin.files, folder) if mirror else {}
        lacking = [file for file in origin.files if not any(map(file.fits, brought))]
        if any(file.required for file in lacking) or not brought:
            brought |= _from_source(name, origin, lacking, folder, mirror)
        _check_parts(brought)
    except BadInput as error:
        raise BadInput(f"{name}: {error}\n{_by_hand(name, origin, mirror)}") from None
    return brought


def _from_source(name: str, origin: Origin, files: list[RawFile], folder: Path, mirror: str | None) -> dict[str, str]:
    if origin.repository is not None:
        return from_hub(origin.repository, origin.revision, files, folder)
    if origin.archive is not None:
        return _from_archive(name, origin, origin.archive, files, folder, mirror)
    return {file.path: str(file.url) for file in files if fetch(file, folder)}


def _from_archive(
    name: str, origin: Origin, archive: RawFile, files: list[RawFile], folder: Path, mirror: str | None
) -> dict[str, str]:
    place = from_mirror(mirror, name, origin.revision, [archive], folder) if mirror else {}
    packed = fetch(archive, folder)  # which asks for nothing where the mirror had it
    try:
        unpack(packed, files, folder)
    except BadInput:
        packed.unlink()  # what could not be told from the file by its size, say, must not be met again
        raise
    packed.unlink()
    return {file.path: place.get(archive.path, str(archive.url)) for file in files}


def _check_parts(brought: dict[str, str]) -> None:
    """Of a table in numbered parts all must be there."""
    parts: dict[tuple[str, str, str], set[int]] = {}
    for path in brought:
        if found := PART.match(path):
            parts.setdefault((found["stem"], found["all"], found["ending"]), set()).add(int(found["number"]))
    for (stem, count, ending), numbers in parts.items():
        missing = sorted(set(range(int(count))) - numbers)
        if missing:
            raise BadInput(f"{stem}-{missing[0]:05}-of-{count}{ending} is missing ({len(missing)} of {count} parts)")


def _by_hand(name: str, origin: Origin, mirror: str | None) -> str:
    """What to do where the download does not work."""
    wanted = [origin.archive] if origin.archive else origin.files
    about = [f"{file.path} ({file.size:,} bytes)" if file.size else file.path for file in wanted]
    place = f"{mirror or '<folder>'}/{name}/"
    then = "" if mirror else " and set DATA_MIRROR=<folder>"
    return (
        f"By hand: fetch {', '.join(about)} from {origin.homepage} (revision {origin.revision}), put it under the same "
        f"path into {place}{then}; then run the same command again"
    )
