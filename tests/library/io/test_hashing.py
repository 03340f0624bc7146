"""Hashes of files and arrays."""

import hashlib

import numpy as np

from relmap.io.hashing import hash_file, sha256_of_arrays, sha256_of_file


def test_files_are_hashed_by_the_named_algorithm(tmp_path):
    path = tmp_path / "rows.bin"
    path.write_bytes(b"a\r\nb" * 1000)
    assert hash_file(path, "md5") == hashlib.md5(b"a\r\nb" * 1000, usedforsecurity=False).hexdigest()
    assert sha256_of_file(path) == hashlib.sha256(b"a\r\nb" * 1000).hexdigest()


def test_files_are_hashed_by_md5_where_it_is_forbidden_for_security(tmp_path, monkeypatch):
    new_hash = hashlib.new

    def new_hash_of_strict_system(name: str, *, usedforsecurity: bool = True) -> "hashlib._Hash":
        if usedforsecurity and name == "md5":
            raise ValueError("disabled for FIPS")
        return new_hash(name, usedforsecurity=usedforsecurity)

    monkeypatch.setattr(hashlib, "new", new_hash_of_strict_system)
    path = tmp_path / "rows.bin"
    path.write_bytes(b"rows")
    assert hash_file(path, "md5") == hashlib.md5(b"rows", usedforsecurity=False).hexdigest()


def test_arrays_are_hashed_with_their_shape_type_and_order():
    array = np.arange(6, dtype=np.int32)
    digest = hashlib.sha256(b"(6,)<i4" + array.tobytes() + b"(2, 3)<i4" + array.tobytes()).hexdigest()
    assert sha256_of_arrays(array, array.reshape(2, 3)) == digest
    assert sha256_of_arrays(array.reshape(2, 3), array) != digest
    transposed = array.reshape(2, 3).T
    assert sha256_of_arrays(transposed) == sha256_of_arrays(transposed.copy())
