"""All files of an official place into one folder: what a mirror has from there, the rest from where it is published."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from tasks.protocol.errors import BadInput
from tasks.sources.archive import unpack
from tasks.sources.contents import verified
from tasks.sources.http import fetch
from tasks.sources.hub import from_hub
from tasks.sources.mirror import Mirror, from_mirror, is_address
from tasks.sources.origin import Brought, Origin, RawFile
from tasks.sources.reach import shown

PART = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<all>\d{5})(?P<ending>\..+)$")


def gather(names: Sequence[str], origin: Origin, folder: Path, mirror: str | None) -> dict[str, Brought]:
    """Bring the files of `origin` to `folder`, and nothing else; path -> from where, and by what it was verified.

    `names` are those that its folder in a mirror may have, the data set's own first. What an earlier call left there,
    whole or in part, is gone on from. Raises BadInput, which names the data set and says what could be put where by
    hand.
    """
    try:
        brought, complete = _from_mirror(mirror, names, origin, origin.files, folder)
        lacking = [file for file in origin.files if not any(map(file.fits, brought))]
        if any(not file.required for file in origin.files) and not complete:
            lacking = list(origin.files)  # which files there are, its place alone can say
        if any(file.required for file in lacking) or (lacking and not complete):
            brought |= _from_source(names, origin, lacking, folder, mirror, brought)
        _check_parts(brought)
    except BadInput as error:
        raise BadInput(f"{names[0]}: {error}\n{_by_hand(names[0], origin, mirror)}") from None
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if path.relative_to(folder).as_posix() not in brought:
            path.unlink()  # of another way to bring the same files
    return brought


def _from_mirror(
    mirror: str | None, names: Sequence[str], origin: Origin, files: Sequence[RawFile], folder: Path
) -> Mirror:
    for name in names if mirror else ():
        found = from_mirror(str(mirror), name, origin.revision, files, folder)
        if found.brought:
            return found
    return Mirror({}, complete=False)


def _from_source(
    names: Sequence[str],
    origin: Origin,
    files: list[RawFile],
    folder: Path,
    mirror: str | None,
    there: Collection[str],
) -> dict[str, Brought]:
    if origin.repository is not None:
        return from_hub(origin.repository, origin.revision, files, folder, there)
    if origin.archive is not None:
        return _from_archive(names, origin, origin.archive, files, folder, mirror)
    return {file.path: Brought(shown(str(file.url)), fetch(file, folder)) for file in files}


def _from_archive(
    names: Sequence[str], origin: Origin, archive: RawFile, files: list[RawFile], folder: Path, mirror: str | None
) -> dict[str, Brought]:
    if all(file.sha256 and (folder / file.path).is_file() for file in files):  # unpacked by a call that ended there
        with suppress(BadInput):  # or that was torn out of it
            by = {file.path: verified(folder / file.path, file, file.path) for file in files}
            return {path: Brought(str(archive.url), known) for path, known in by.items()}
    place = _from_mirror(mirror, names, origin, [archive], folder).brought
    if archive.path not in place:
        place = {archive.path: Brought(shown(str(archive.url)), fetch(archive, folder))}
    packed = folder / archive.path
    try:
        unpacked = unpack(packed, files, folder)
    except BadInput:
        packed.unlink()  # what could not be told from the file by its size, say, must not be met again
        raise
    packed.unlink()
    source = place[archive.path]
    return {
        path: Brought(source.source, f"{source.verified_by} of the archive" if by == "nothing" else by)
        for path, by in unpacked.items()
    }


def _check_parts(brought: dict[str, Brought]) -> None:
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
    known = "<folder>" if mirror is None else shown(mirror) if is_address(mirror) else mirror
    place = f"{known}/{name}/"
    then = ", where not all of it is now" if mirror else " and set DATA_MIRROR=<folder>"
    return (
        f"By hand: fetch {', '.join(about)} from {origin.homepage} (revision {origin.revision}), put it under the same "
        f"path into {place}{then}; then run the same command again"
    )
