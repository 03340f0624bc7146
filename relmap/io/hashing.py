"""Digests of files and arrays."""

import hashlib
from pathlib import Path

import numpy as np


def hash_file(path: Path, algorithm: str) -> str:
    """Hash the bytes of a file.

    Args:
        path: The file.
        algorithm: Name of the algorithm in `hashlib`; DVC uses "md5".

    Returns:
        Hexadecimal digest.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def sha256_of_file(path: Path) -> str:
    """Hash the bytes of a file with SHA-256.

    Args:
        path: The file.

    Returns:
        Hexadecimal digest.

    Raises:
        OSError: The file cannot be read.
    """
    return hash_file(path, "sha256")


def sha256_of_arrays(*arrays: np.ndarray) -> str:
    """Hash shapes, types and bytes of arrays with SHA-256.

    Args:
        *arrays: The arrays; their order matters.

    Returns:
        Hexadecimal digest.
    """
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.shape}{array.dtype.str}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
