"""DVC's cache, held against its own names: DVC trusts an object for ever once it is there."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any


def md5_of_file(path: Path) -> str:
    """The name that DVC gives to the bytes of a file."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def rotted_objects(objects: Collection[Path]) -> Iterator[tuple[Path, bool]]:
    """Each object of the cache, and whether its bytes are no longer those that it is named for."""
    for path in objects:
        yield path, md5_of_file(path) != path.parent.name + path.name.removesuffix(".dir")


def objects_in(cache: Path) -> list[Path]:
    """Every object; not what a DVC is writing, or was when it was killed."""
    return sorted(path for path in cache.glob("??/*") if re.fullmatch(r"[0-9a-f]{30}(\.dir)?", path.name))


def objects_of_stage(locked: Mapping[str, Any], cache: Path, rotted: Collection[Path]) -> set[Path]:
    """The objects that hold the outputs of a stage; `locked` is its entry in dvc.lock.

    Where the list of a folder has rotted, or is missing, what it lists is unknown and left out.
    """
    found: set[Path] = set()
    for out in locked.get("outs", []):
        if not out.get("md5"):  # dvc.lock is cut off here
            continue
        top = _object(cache, out["md5"])
        found.add(top)
        if top.suffix == ".dir" and top.exists() and top not in rotted:
            found |= {_object(cache, entry["md5"]) for entry in json.loads(top.read_text(encoding="utf-8"))}
    return found


def _object(cache: Path, md5: str) -> Path:
    return cache / md5[:2] / md5[2:]
