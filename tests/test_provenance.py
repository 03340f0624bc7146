"""Hashes see every change that matters and nothing else."""

from pathlib import Path

import numpy as np
import pytest

from tasks.provenance.hashing import code_fingerprint, reached_files, sha256_of_arrays


@pytest.fixture
def project(tmp_path):
    """A registry of two members, one of which imports a third file inside a function."""
    files = {
        "pack/__init__.py": "from pack import one, two\n",
        "pack/one.py": "def f():\n    from base import three\n    return three\n",
        "pack/two.py": "X = 1\n",
        "base/__init__.py": "",
        "base/three.py": "import numpy\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_hash_of_arrays_sees_shape_type_and_every_value_and_not_the_order_of_memory():
    array = np.arange(6.0).reshape(2, 3)
    others = array.reshape(3, 2), array.astype(np.float32), array + np.array([[0, 0, 0], [0, 0, 1e-12]])
    assert len({sha256_of_arrays(other) for other in (array, *others)}) == 4
    assert sha256_of_arrays(np.asfortranarray(array)) == sha256_of_arrays(array)


def test_imports_inside_functions_and_packages_are_reached(project):
    reached = {path.as_posix() for path in reached_files(Path("pack/one.py"), project)}
    assert reached == {"pack/one.py", "pack/__init__.py", "pack/two.py", "base/three.py", "base/__init__.py"}


def test_a_member_depends_on_what_it_imports_and_where_that_stands_and_not_on_its_siblings(project):
    one, three = project / "pack/one.py", project / "base/three.py"
    before = code_fingerprint(Path("pack/one.py"), project)
    (project / "pack/two.py").write_text("X = 2\n")
    assert code_fingerprint(Path("pack/one.py"), project) == before
    one.write_text(three.read_text() + one.read_text())  # a line that moves to another file
    three.write_text("")
    moved = code_fingerprint(Path("pack/one.py"), project)
    three.write_text("import scipy\n")
    assert len({before, moved, code_fingerprint(Path("pack/one.py"), project)}) == 3
