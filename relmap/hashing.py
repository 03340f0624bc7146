"""SHA-256 of files and arrays."""

import hashlib
from pathlib import Path

import numpy as np


def hash_file(path: Path, algorithm: str) -> str:
    """Hex digest of the bytes of a file; DVC names what it keeps by their md5."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def sha256_of_file(path: Path) -> str:
    """Hex SHA-256 of the bytes of a file."""
    return hash_file(path, "sha256")


def sha256_of_arrays(*arrays: np.ndarray) -> str:
    """Hex SHA-256 of arrays: their shapes, types and bytes, in this order."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.shape}{array.dtype.str}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
