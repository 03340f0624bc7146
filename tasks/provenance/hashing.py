"""SHA-256 of files, arrays and code: what was read, and by which code."""

import ast
import hashlib
from pathlib import Path


def imports(file: Path) -> set[str]:
    """Names of the modules that a Python file imports, at its top or inside a function (absolute imports only).

    Imports for type checkers do not count: they never run.
    """
    names: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(file.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def reached_files(file: Path, root: Path = Path(), *, packages: bool = True) -> set[Path]:
    """The project's own files that importing `file` runs: itself, its packages' `__init__`, and so on from there.

    Paths are relative to `root`, the project's root folder. Imports inside functions count, since they may run.
    Without `packages`, an `__init__` counts only where it is imported by name: a registry lists its members, but
    no member depends on its siblings for that.
    """
    reached: set[Path] = set()
    waiting = [file]
    while waiting:
        current = waiting.pop()
        if current in reached:
            continue
        reached.add(current)
        candidates = [parent / "__init__.py" for parent in current.parents if packages and parent != Path()]
        for name in imports(root / current):
            place = Path(*name.split("."))
            candidates += [place.with_suffix(".py"), place / "__init__.py"]
        waiting += [place for place in candidates if (root / place).is_file()]
    return reached


def code_fingerprint(file: Path, root: Path = Path()) -> str:
    """Hex SHA-256 over the names and bytes of the project files that `file` itself imports, directly or not."""
    digest = hashlib.sha256()
    for reached in sorted(reached_files(file, root, packages=False)):
        digest.update(reached.as_posix().encode())
        digest.update((root / reached).read_bytes())
    return digest.hexdigest()
