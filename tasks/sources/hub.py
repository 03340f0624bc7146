"""Repositories of the Hugging Face hub, brought by its own library: tokens, cache, `HF_ENDPOINT`, `HF_HUB_OFFLINE`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tasks.protocol.errors import BadInput
from tasks.provenance.hashing import sha256_of_file

INDEX = "source.json"  # what the download stage notes beside the files
# what a repository is read from: its tables and the card that says which is which; a script of its own never runs
ENDINGS = (".parquet", ".csv", ".tsv", ".json", ".jsonl", ".ndjson")
DATA_FILES = (*(f"*{ending}{zipped}" for ending in ENDINGS for zipped in ("", ".gz")), "README.md")


@dataclass(frozen=True)
class Repository:
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

    Raises
    ------
    BadInput: the hub does not have it, does not show it, or cannot be reached; it names the data set `name`.
    """
    if repository.revision is not None:
        return repository.revision
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import HfApi, constants  # noqa: PLC0415 - takes half a second

    if constants.is_offline_mode():
        return None
    with _told(name, repository):
        return str(HfApi().dataset_info(repository.id).sha)


def fetch(name: str, repository: Repository, folder: Path) -> tuple[str, list[str]]:
    """Bring the files of `repository` into `folder`, through the cache of `huggingface_hub`.

    Returns their commit, and those that have the SHA-256 that the hub states. It states one for what it keeps as large
    files, which tables are; the library compares no hash, and follows a redirect from https to http.

    Raises
    ------
    BadInput: as `revision_now`; offline, where the cache does not hold them; a file is not what the hub states.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import HfApi, constants, snapshot_download  # noqa: PLC0415

    with _told(name, repository):
        snapshot = Path(
            snapshot_download(
                repository.id,
                repo_type="dataset",
                revision=repository.revision,
                allow_patterns=list(repository.files),
            )
        )
        online = not constants.is_offline_mode()
        told = HfApi().dataset_info(repository.id, revision=snapshot.name, files_metadata=True) if online else None
    copy_files(name, repository, snapshot, folder)
    stated = {one.rfilename: one.lfs.sha256 for one in (told and told.siblings) or [] if one.lfs}
    there = sorted(path for path in stated if (folder / path).is_file())
    wrong = [path for path in there if sha256_of_file(folder / path) != stated[path]]
    if wrong:
        raise BadInput(
            f"{name}: {wrong[0]} is not what {repository.homepage} states (its SHA-256 is another); delete"
            f" {(snapshot / wrong[0]).resolve()} and download again"
        )
    return snapshot.name, there


def copy_files(name: str, repository: Repository, source: Path, folder: Path) -> None:
    """Copy those files of a folder laid out like `repository` that it is read from; BadInput where there is none."""
    from huggingface_hub.utils import filter_repo_objects  # noqa: PLC0415

    found = sorted(path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file())
    wanted = [path for path in filter_repo_objects(found, allow_patterns=list(repository.files)) if path != INDEX]
    if not [path for path in wanted if path != "README.md"]:
        raise BadInput(
            f"{name}: {source} holds no table of {repository.id} (parquet, csv, JSON lines), and a script is never run;"
            " name a revision that has them, often the commit of refs/convert/parquet"
        )
    for path in wanted:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / path, folder / path)


@contextmanager
def _told(name: str, repository: Repository) -> Iterator[None]:
    """What the library raises, as one sentence."""
    import httpx2  # noqa: PLC0415 - huggingface_hub's own
    from huggingface_hub import errors  # noqa: PLC0415

    what = f"{name}: {repository.homepage}"
    try:
        yield
    except errors.GatedRepoError:
        raise BadInput(f"{what} is gated: accept its terms there, then `hf auth login` or set HF_TOKEN") from None
    except errors.RepositoryNotFoundError:
        raise BadInput(f"{what} is not there, or is private; mend its id, or set HF_TOKEN if it is yours") from None
    except errors.RevisionNotFoundError:
        raise BadInput(f"{what} has no revision {repository.revision}; its page lists them under History") from None
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        if isinstance(error.__cause__, httpx2.HTTPError):
            raise _unreached(what, error.__cause__) from None
        raise BadInput(
            f"{what} is not whole in the cache of huggingface_hub, and nothing is downloaded while HF_HUB_OFFLINE is"
            " set; unset it, or put the files into DATA_MIRROR"
        ) from None
    except errors.HfHubHTTPError as error:
        raise BadInput(f"{what}: the hub answers {error.response.status_code}; try again later") from None
    except httpx2.HTTPError as error:
        raise _unreached(what, error) from None
    except ValueError as error:  # an id that no repository can have
        raise BadInput(f"{what}: {' '.join(str(error).split())[:200]}") from None


def _unreached(what: str, error: Exception) -> BadInput:
    return BadInput(
        f"{what} cannot be reached ({type(error).__name__}: {error}); try again, or without a network set DATA_MIRROR,"
        " or HF_HUB_OFFLINE=1 for what is in the cache"
    )
