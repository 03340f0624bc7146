"""Where an official data set comes from: a pinned place, its terms, its files, and what is published about them."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

INDEX = "source.json"  # what a download stage writes beside its files


@dataclass(frozen=True)
class RawFile:
    """One file, relative to `raw/<d>/`; `size` in bytes and `sha256` where known.

    `path` may be a pattern (`us/train-*.parquet`; `**/*.csv` is in any folder) where the source does not say in how
    many parts it comes. A file without `url` lies in the repository or the archive of its origin.
    """

    path: str
    url: str | None = None
    size: int | None = None
    sha256: str | None = None
    md5: str | None = None
    git_blob: str | None = None  # the SHA-1 that git gives its content; the hub states it for its smaller files
    required: bool = True  # else it is taken where there is one

    def fits(self, path: str) -> bool:
        """Is `path`, as a server names it, one that this file may have?

        None that leads out of a folder is, nor the name of our own note of what was brought.
        """
        if path == INDEX:
            return False
        parts, wanted = path.split("/"), self.path.split("/")
        if wanted[0] == "**":
            wanted = wanted[1:]
            parts, above = parts[-len(wanted) :], parts[: -len(wanted)]
        else:
            above = []
        plain = not {"", ".", ".."} & {*parts, *above}
        return plain and len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


@dataclass(frozen=True)
class Brought:
    """A file that has come."""

    source: str  # from where
    verified_by: str  # SHA-256, SHA-1 of git, MD5, size or nothing


@dataclass(frozen=True)
class Published:
    """A count that the source, or a paper about it, states."""

    what: str  # as the reader counts it: `test queries`
    value: int
    verified: bool  # read in an official copy; else recalled, and other numbers are a warning only


@dataclass(frozen=True)
class Origin:
    """One official place of a data set."""

    homepage: str
    revision: str  # pinned commit, or what identifies the bytes
    licence: str
    terms: str  # what whoever downloads it should know, in a sentence
    files: tuple[RawFile, ...]
    repository: str | None = None  # id of a data set of the Hugging Face hub that has the files, at `revision`
    archive: RawFile | None = None  # a zip that has the files
    published: tuple[Published, ...] = ()
