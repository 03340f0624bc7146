"""Files of a data set repository on the Hugging Face hub, at a pinned revision: which there are, and their hashes.

`HF_ENDPOINT` and `HF_HUB_OFFLINE` mean what they mean to `huggingface_hub`. What its cache has is not asked for again.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import stamina

from tasks.protocol.errors import BadInput
from tasks.sources.contents import copied
from tasks.sources.http import TRIES, UNUSABLE, fetch, worth_another_try
from tasks.sources.origin import Brought, RawFile
from tasks.sources.reach import reached

SHA256 = 64  # characters
TIMEOUT = 15.0  # seconds, for a list of files


def from_hub(
    repository: str, revision: str, files: Iterable[RawFile], folder: Path, there: Collection[str] = ()
) -> dict[str, Brought]:
    """Bring `files` of `repository` to their paths below `folder`, verified; but for those that are `there` already.

    BadInput where the hub cannot be reached, does not have the repository, the revision or a file, or wants a token.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import constants, try_to_load_from_cache  # noqa: PLC0415 - takes half a second
    from huggingface_hub.utils import build_hf_headers  # noqa: PLC0415

    listed = _cached if constants.HF_HUB_OFFLINE else _listed
    found = {}
    for file in listed(repository, revision, list(files)):
        if file.path in there:
            continue
        cached = try_to_load_from_cache(repository, file.path, revision=revision, repo_type="dataset")
        if isinstance(cached, str):
            by = copied(Path(cached), folder / file.path, file)
        else:
            by = fetch(file, folder, build_hf_headers())
        found[file.path] = Brought(f"hf://datasets/{repository}@{revision}/{file.path}", by)
    return found


def _listed(repository: str, revision: str, files: list[RawFile]) -> list[RawFile]:
    """What the hub says there is of `files`: each with its address, its size and its hash."""
    import httpx2  # noqa: PLC0415 - huggingface_hub's own
    from huggingface_hub import HfApi, hf_hub_url  # noqa: PLC0415
    from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415

    place = f"https://huggingface.co/datasets/{repository}"
    reached(HfApi().endpoint)
    cut = (httpx2.ReadError, httpx2.ReadTimeout, httpx2.RemoteProtocolError)
    try:
        for attempt in stamina.retry_context(
            on=lambda error: (
                isinstance(error, cut) or (isinstance(error, HfHubHTTPError) and worth_another_try(error.response))
            ),
            **TRIES,
        ):
            with attempt:
                described = HfApi().dataset_info(repository, revision=revision, files_metadata=True, timeout=TIMEOUT)
    except HfHubHTTPError as error:
        raise BadInput(f"{place} at {revision}: {error}; a private or gated set needs `hf auth login`") from None
    except (ImportError, OSError) as error:
        raise BadInput(f"{UNUSABLE}: {error}") from None
    except httpx2.HTTPError as error:
        raise BadInput(f"the hub cannot be reached for {place}: {type(error).__name__}, {error}") from None
    except ValueError as error:
        raise BadInput(f"what the hub answers for {place} at {revision} is no list of its files ({error})") from None
    there = {one.rfilename: one for one in described.siblings or ()}
    wanted = [path for path in there if any(file.fits(path) for file in files)]
    if missing := _missing(files, wanted):
        raise BadInput(f"{place} at {revision} holds no {missing}; it holds {', '.join(sorted(there)[:20])}")
    at = partial(hf_hub_url, repository, repo_type="dataset", revision=revision)
    return [_described(there[path], at(path)) for path in wanted]


def _missing(files: list[RawFile], found: Iterable[str]) -> str:
    """The patterns that nothing found fits, where something must."""
    found = list(found)
    without = [file for file in files if not any(map(file.fits, found))]
    return ", ".join(file.path for file in without if file.required or len(without) == len(files))


def _described(sibling: Any, url: str) -> RawFile:
    if sibling.lfs is not None:
        return RawFile(sibling.rfilename, url=url, size=sibling.lfs.size, sha256=sibling.lfs.sha256)
    return RawFile(sibling.rfilename, url=url, size=sibling.size, git_blob=sibling.blob_id)


def _cached(repository: str, revision: str, files: list[RawFile]) -> list[RawFile]:
    """What the cache of `huggingface_hub` holds of `files`; it names a file by the hash of its content."""
    from huggingface_hub import constants  # noqa: PLC0415
    from huggingface_hub.file_download import repo_folder_name  # noqa: PLC0415

    snapshot = Path(constants.HF_HUB_CACHE, repo_folder_name(repo_id=repository, repo_type="dataset"))
    snapshot = snapshot / "snapshots" / revision
    found = {
        path.relative_to(snapshot).as_posix(): path.resolve().name for path in snapshot.rglob("*") if path.is_file()
    }
    if missing := _missing(files, found):
        raise BadInput(
            f"HF_HUB_OFFLINE is set, and {snapshot} holds no {missing}; unset it to download, or set DATA_MIRROR"
        )
    return [
        RawFile(path, sha256=name) if len(name) == SHA256 else RawFile(path, git_blob=name)
        for path, name in found.items()
        if any(file.fits(path) for file in files)
    ]
