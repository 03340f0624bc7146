"""Repositories of the Hugging Face hub, brought by its own library: tokens, cache, `HF_ENDPOINT`, `HF_HUB_OFFLINE`."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from relmap.errors import InputError
from relmap.hashing import sha256_of_file

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # before anything imports the library
INDEX = "source.json"  # what the download stage notes beside the files
# what a repository is read from: its tables and the card that says which is which; a script of its own never runs
ENDINGS = (".parquet", ".csv", ".tsv", ".json", ".jsonl", ".ndjson")
DATA_FILES = (*(f"*{ending}{zipped}" for ending in ENDINGS for zipped in ("", ".gz")), "README.md")


class Repository(NamedTuple):
    """A data set on the hub."""

    id: str  # owner/name
    revision: str | None = None  # a commit; None: the one that the hub shows at the first download
    files: tuple[str, ...] = DATA_FILES  # patterns, of which `*` goes through folders

    @property
    def homepage(self) -> str:
        """Its page."""
        return f"https://huggingface.co/datasets/{self.id}"


def revision_now(name: str, repository: Repository) -> str | None:
    """The commit that `repository` stands for; None where it names none and `HF_HUB_OFFLINE` is set.

    Raises:
        InputError: the hub does not have it, does not show it, or cannot be reached; it names the data set `name`.
    """
    if repository.revision is not None:
        return repository.revision
    from huggingface_hub import HfApi, constants  # noqa: PLC0415 - takes half a second

    if constants.is_offline_mode():
        return None
    with _asking(name, repository):
        return str(HfApi().dataset_info(repository.id).sha)


def fetch(name: str, repository: Repository, folder: Path) -> tuple[str, list[str]]:
    """Bring the files of `repository` into `folder`, through the cache of `huggingface_hub`.

    Returns their commit, and those that have the SHA-256 that the hub states. It states one for what it keeps as large
    files, which tables are; the library compares no hash, and follows a redirect from https to http.

    Raises:
        InputError: as `revision_now`; offline, where the cache does not hold them; a file is not what the hub states.
    """
    from huggingface_hub import HfApi, constants, snapshot_download  # noqa: PLC0415

    commit, wanted, shown = repository.revision, list(repository.files), list[Any]()
    with _asking(name, repository):
        snapshot = Path(snapshot_download(repository.id, repo_type="dataset", revision=commit, allow_patterns=wanted))
        if not constants.is_offline_mode():
            shown = HfApi().dataset_info(repository.id, revision=snapshot.name, files_metadata=True).siblings or []
    copy_files(name, repository, snapshot, folder)
    hashes = {file.rfilename: file.lfs.sha256 for file in shown if file.lfs}
    there = sorted(path for path in hashes if (folder / path).is_file())
    wrong = [path for path in there if sha256_of_file(folder / path) != hashes[path]]
    if wrong:
        raise InputError(
            f"{name}: {wrong[0]} is not what {repository.homepage} states (its SHA-256 is another); delete"
            f" {(snapshot / wrong[0]).resolve()} and download again"
        )
    return snapshot.name, there


def copy_files(name: str, repository: Repository, source: Path, folder: Path) -> None:
    """Copy those files of a folder laid out like `repository` that it is read from; InputError where there is none."""
    from huggingface_hub.utils import filter_repo_objects  # noqa: PLC0415

    files = sorted(path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file())
    wanted = [path for path in filter_repo_objects(files, allow_patterns=list(repository.files)) if path != INDEX]
    if not [path for path in wanted if path != "README.md"]:
        raise InputError(
            f"{name}: {source} holds no table of {repository.id} (parquet, csv, JSON lines), and a script is never run;"
            " name a revision that has them, often the commit of refs/convert/parquet"
        )
    for path in wanted:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / path, folder / path)


@contextmanager
def _asking(name: str, repository: Repository) -> Iterator[None]:
    """What the library raises inside is InputError, in one sentence."""
    import httpx2  # noqa: PLC0415 - huggingface_hub's own
    from huggingface_hub import errors  # noqa: PLC0415

    uncached = (
        "is not whole in the cache of huggingface_hub, and nothing is downloaded while HF_HUB_OFFLINE is set; unset it,"
        " or put the files into DATA_MIRROR"
    )
    reasons: dict[type[Exception], str] = {  # the first that fits
        errors.GatedRepoError: "is gated: accept its terms there, then `hf auth login` or set HF_TOKEN",
        errors.RepositoryNotFoundError: "is not there, or is private; mend its id, or set HF_TOKEN if it is yours",
        errors.RevisionNotFoundError: f"has no revision {repository.revision}; its page lists them under History",
        errors.LocalEntryNotFoundError: uncached,
        errors.OfflineModeIsEnabled: uncached,
        errors.HfHubHTTPError: "is not shown: the hub answers {error.response.status_code}; try again later",
        httpx2.HTTPError: "cannot be reached ({error.__class__.__name__}: {error}); try again, or without a network set"
        " DATA_MIRROR, or HF_HUB_OFFLINE=1 for what is in the cache",
        ValueError: "cannot be asked for: {error}",  # an id that no repository can have
    }
    try:
        yield
    except tuple(reasons) as error:
        unreached = isinstance(error, errors.LocalEntryNotFoundError) and isinstance(error.__cause__, httpx2.HTTPError)
        cause = error.__cause__ if unreached else error
        reason = next(said for kind, said in reasons.items() if isinstance(cause, kind)).format(error=cause)
        raise InputError(f"{name}: {repository.homepage} {' '.join(reason.split())[:300]}") from None
