"""A saved predictor: `predictor.json` that a person can read, and one model file; nothing in them runs on load."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from tasks.protocol.errors import BadInput
from tasks.protocol.store import read_json, write_json, write_whole

FORMAT = 2  # rises when an older reader would misread a newer folder
HEADER = "predictor.json"


class Settings(BaseModel):
    """Base of every predictor's settings: never changed after reading, and no name among them goes unnoticed."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def write_predictor(folder: Path, header: Mapping[str, Any], file: str, model: bytes) -> None:
    """Write the model, then the header that names it, its SHA-256 and the versions it was fitted with.

    Each file appears whole or not at all; after a crash between the two `read_predictor` refuses the folder.
    """
    described = {
        **header,
        "format": FORMAT,
        "versions": {name: version(name) for name in ("numpy", "scikit-learn", "lightgbm")},
        "model": {"file": file, "sha256": hashlib.sha256(model).hexdigest()},
    }
    write_whole(folder / file, lambda partial: partial.write_bytes(model))
    write_json(folder / HEADER, described)


def read_predictor(folder: Path) -> tuple[dict[str, Any], bytes]:
    """The header and the bytes of the model; BadInput where one is missing, of another format, or not as written."""
    header = read_json(folder / HEADER)
    if header.get("format") != FORMAT:
        raise BadInput(f"{folder / HEADER} has format {header.get('format')!r}, not {FORMAT}; run `train` again")
    path = folder / header["model"]["file"]
    if not path.is_file():
        raise BadInput(f"{path} is missing, though {HEADER} names it; run `train` again")
    model = path.read_bytes()
    found = hashlib.sha256(model).hexdigest()
    if found != header["model"]["sha256"]:
        raise BadInput(f"{path} has SHA-256 {found}, not the one in {HEADER}: it was changed; run `train` again")
    return header, model


def pack(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Named numeric arrays to the bytes of an .npz file; the same arrays give the same bytes."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def unpack(model: bytes) -> dict[str, np.ndarray]:
    """The arrays that `pack` wrote, bit for bit."""
    with np.load(io.BytesIO(model), allow_pickle=False) as stored:
        return dict(stored)
