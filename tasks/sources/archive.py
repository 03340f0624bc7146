"""Files out of a zip archive: the wanted ones only, to places that we name, no larger than is credible."""

from __future__ import annotations

import shutil
import zipfile
import zlib
from collections.abc import Iterable
from functools import partial
from pathlib import Path, PurePosixPath

from tasks.protocol.errors import BadInput
from tasks.sources.contents import appears
from tasks.sources.origin import RawFile

MOST = 100  # times the size of the archive: tables and texts pack 3 to 20 times, an attack thousands of times


def unpack(archive: Path, files: Iterable[RawFile], folder: Path) -> dict[str, str]:
    """Write `files` of the zip `archive` to their paths below `folder`; path -> by what it was verified.

    A file may lie some folders deeper in the archive. Names in it decide nothing but which bytes are read, so none can
    lead out of `folder`; BadInput where a file is missing, twice there, encrypted, broken, or larger than credible.
    """
    files = list(files)
    try:
        with zipfile.ZipFile(archive) as packed:
            members = {file: _member(archive, packed.infolist(), file.path) for file in files}
            size = sum(member.file_size for member in members.values())
            if size > MOST * archive.stat().st_size:
                raise BadInput(f"{archive} would unpack to {size} bytes, over {MOST} times its own size; it is refused")
            return {
                file.path: appears(
                    folder / file.path, partial(_extract, packed, member), file, f"{file.path} in {archive}"
                )
                for file, member in members.items()
            }
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeDecodeError) as error:
        raise BadInput(f"{archive} is not a whole zip archive ({error})") from None


def _member(archive: Path, members: Iterable[zipfile.ZipInfo], path: str) -> zipfile.ZipInfo:
    """The only member whose path is `path` or ends in it."""
    parts = PurePosixPath(path).parts
    found = [member for member in members if PurePosixPath(member.filename).parts[-len(parts) :] == parts]
    if len(found) != 1:
        raise BadInput(f"{archive} holds {len(found)} files {path}, where one must be")
    if found[0].flag_bits & 1:
        raise BadInput(f"{archive}: {path} is encrypted")
    return found[0]


def _extract(packed: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    with packed.open(member) as source, target.open("wb") as unpacked:
        shutil.copyfileobj(source, unpacked)
