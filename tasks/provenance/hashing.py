"""Imports of the project's code, and fingerprints of it."""

import ast
import hashlib
from pathlib import Path


def imported_modules(file: Path) -> set[str]:
    """Find the modules that a Python file imports, at its top or inside a function.

    Only absolute imports are found. Imports for type checkers do not count, since they never run.

    Args:
        file: Python file.

    Returns:
        Names of modules; `from a import b` gives both `a` and `a.b`.
    """
    modules: set[str] = set()
    pending: list[ast.AST] = [ast.parse(file.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            pending += node.orelse
            continue
        pending += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
            modules.update(f"{node.module}.{alias.name}" for alias in node.names)
    return modules


def imported_files(file: Path, root: Path = Path(), *, packages: bool = True) -> set[Path]:
    """Find the project's own files that run when a file is imported, the file included.

    Imports inside functions count, since they may run.

    Args:
        file: Python file, relative to `root`.
        root: Root folder of the project.
        packages: Whether the `__init__` of each package counts. If not, an `__init__` counts only if it is imported by
            name: a registry imports its members, but no member depends on the others through it.

    Returns:
        Paths relative to `root`.
    """
    found: set[Path] = set()
    pending = [file]
    while pending:
        current = pending.pop()
        if current in found:
            continue
        found.add(current)
        candidates = []
        if packages:
            candidates += [parent / "__init__.py" for parent in current.parents if parent != Path()]
        for module in imported_modules(root / current):
            path = Path(*module.split("."))
            candidates += [path.with_suffix(".py"), path / "__init__.py"]
        pending += [path for path in candidates if (root / path).is_file()]
    return found


def code_fingerprint(file: Path, root: Path = Path()) -> str:
    """Compute the SHA-256 of the names and bytes of the project files that a file imports, directly or indirectly.

    Args:
        file: Python file, relative to `root`.
        root: Root folder of the project.

    Returns:
        Hexadecimal digest.
    """
    digest = hashlib.sha256()
    for imported in sorted(imported_files(file, root, packages=False)):
        digest.update(imported.as_posix().encode())
        digest.update((root / imported).read_bytes())
    return digest.hexdigest()
