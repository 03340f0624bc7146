"""Download data sets from the Hugging Face hub.

`huggingface_hub` handles tokens, its cache, `HF_ENDPOINT` and `HF_HUB_OFFLINE`.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from relmap.errors import InputError
from relmap.io.hashing import sha256_of_file

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # huggingface_hub reads it when it is imported
INDEX = "source.json"  # written by the download stage next to the files
CARD = "README.md"  # assigns the tables of a repository to splits
# Only tables and the card are downloaded, never scripts.
TABLE_SUFFIXES = (".parquet", ".csv", ".tsv", ".json", ".jsonl", ".ndjson")
PLAIN_TABLE_FILES = tuple(f"*{suffix}" for suffix in TABLE_SUFFIXES)
TABLE_FILES = (*PLAIN_TABLE_FILES, *(f"{pattern}.gz" for pattern in PLAIN_TABLE_FILES))
DATA_FILES = (*TABLE_FILES, CARD)
MAX_REASON_LENGTH = 300


@dataclass(frozen=True)
class Repository:
    """A data set on the hub.

    Attributes:
        id: Owner and name, such as `owner/name`.
        revision: Commit. None for the newest one at the first download.
        files: Patterns of the files to download; `*` also matches folders.
    """

    id: str
    revision: str | None = None
    files: tuple[str, ...] = DATA_FILES

    @property
    def homepage(self) -> str:
        """Web page of the repository."""
        return f"https://huggingface.co/datasets/{self.id}"


def resolve_revision(name: str, repository: Repository) -> str | None:
    """Find the commit of a repository.

    Args:
        name: Key of the data set, for messages.
        repository: The repository.

    Returns:
        The commit. None if the repository has no `revision` and `HF_HUB_OFFLINE` is set.

    Raises:
        InputError: The hub does not have the repository, denies access, or cannot be reached.
    """
    if repository.revision is not None:
        return repository.revision
    from huggingface_hub import HfApi, constants  # noqa: PLC0415 - takes half a second

    if constants.is_offline_mode():
        return None
    with _explain_hub_errors(name, repository):
        return str(HfApi().dataset_info(repository.id).sha)


def fetch(name: str, repository: Repository, folder: Path) -> tuple[str, list[str]]:
    """Copy the files of a repository into a folder, through the cache of `huggingface_hub`.

    Files with a SHA-256 published by the hub, usually the tables, are verified here, because `huggingface_hub` does not
    compare it and follows redirects from https to http.

    Args:
        name: Key of the data set, for messages.
        repository: The repository.
        folder: Folder of the copies.

    Returns:
        The commit, and the files whose SHA-256 was verified.

    Raises:
        InputError: The hub does not have the repository, denies access, or cannot be reached; the cache is incomplete
            in offline mode; or the hash of a file differs from the published one.
    """
    from huggingface_hub import snapshot_download  # noqa: PLC0415

    with _explain_hub_errors(name, repository):
        snapshot = Path(
            snapshot_download(
                repository.id,
                repo_type="dataset",
                revision=repository.revision,
                allow_patterns=list(repository.files),
            )
        )
        commit = snapshot.name  # the cache names each snapshot after its commit
        published_hashes = _published_hashes(repository, commit)
    copy_files(name, repository, snapshot, folder)
    verified = []
    for path in sorted(published_hashes):
        if not (folder / path).is_file():
            continue
        if sha256_of_file(folder / path) != published_hashes[path]:
            raise InputError(
                f"{name}: the SHA-256 of {path} differs from the one published at {repository.homepage}; delete "
                f"{(snapshot / path).resolve()} and download again"
            )
        verified.append(path)
    return commit, verified


def _published_hashes(repository: Repository, commit: str) -> dict[str, str]:
    """Return the SHA-256 of each file that has one on the hub; empty in offline mode."""
    from huggingface_hub import HfApi, constants  # noqa: PLC0415

    if constants.is_offline_mode():
        return {}
    files = HfApi().dataset_info(repository.id, revision=commit, files_metadata=True).siblings or []
    return {file.rfilename: file.lfs.sha256 for file in files if file.lfs}


def copy_files(name: str, repository: Repository, source: Path, folder: Path) -> None:
    """Copy the data files from a folder with the layout of a repository.

    Args:
        name: Key of the data set, for messages.
        repository: The repository, whose patterns select the files.
        source: Folder with the files.
        folder: Folder of the copies.

    Raises:
        InputError: The source has no table.
    """
    from huggingface_hub.utils import filter_repo_objects  # noqa: PLC0415

    files = sorted(path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file())
    matching = filter_repo_objects(files, allow_patterns=list(repository.files))
    selected = [path for path in matching if path != INDEX]
    tables = [path for path in selected if path != CARD]
    if not tables:
        raise InputError(
            f"{name}: {source} has no table of {repository.id} (parquet, csv, JSON lines), and scripts are never run; "
            "name a revision that has tables, often the commit of refs/convert/parquet"
        )
    for path in selected:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / path, folder / path)


@contextmanager
def _explain_hub_errors(name: str, repository: Repository) -> Iterator[None]:
    """Convert errors of `huggingface_hub` to an InputError with one sentence."""
    import httpx2  # noqa: PLC0415 - the HTTP library of huggingface_hub
    from huggingface_hub import errors  # noqa: PLC0415

    not_in_cache = (
        "is not complete in the cache of huggingface_hub, and HF_HUB_OFFLINE forbids downloads; unset it, or put the "
        "files into DATA_MIRROR"
    )
    # The first class that matches the error gives the reason. `{error...}` is filled in afterwards.
    reasons: dict[type[Exception], str] = {
        errors.GatedRepoError: "is gated: accept its terms there, then run `hf auth login` or set HF_TOKEN",
        errors.RepositoryNotFoundError: "does not exist, or is private; correct its id, or set HF_TOKEN",
        errors.RevisionNotFoundError: f"has no revision {repository.revision}; its page lists them under History",
        errors.LocalEntryNotFoundError: not_in_cache,
        errors.OfflineModeIsEnabled: not_in_cache,
        errors.HfHubHTTPError: "cannot be read: the hub answered {error.response.status_code}; try again later",
        httpx2.HTTPError: (
            "cannot be reached ({error.__class__.__name__}: {error}); try again, or without a network set DATA_MIRROR, "
            "or HF_HUB_OFFLINE=1 to use the cache"
        ),
        ValueError: "cannot be requested: {error}",  # an invalid id
    }
    try:
        yield
    except tuple(reasons) as error:
        cause: BaseException = error
        # A file is also not found in the cache if the hub cannot be reached; then the network error is the reason.
        if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(error.__cause__, httpx2.HTTPError):
            cause = error.__cause__
        template = next(template for kind, template in reasons.items() if isinstance(cause, kind))
        reason = " ".join(template.format(error=cause).split())
        raise InputError(f"{name}: {repository.homepage} {reason[:MAX_REASON_LENGTH]}") from None
