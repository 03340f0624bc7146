"""Find the imports of the project's code, and compute fingerprints of that code."""

import ast
import hashlib
from pathlib import Path


def imported_modules(file: Path) -> set[str]:
    """Find the modules that a Python file imports, at module level or inside a function.

    Only absolute imports are found. Imports under `if TYPE_CHECKING` are omitted, because they never run.

    Args:
        file: Python file.

    Returns:
        Names of modules; `from a import b` gives both `a` and `a.b`.
    """
    modules: set[str] = set()
    pending: list[ast.AST] = [ast.parse(file.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and _is_type_checking(node.test):
            pending += node.orelse
            continue
        pending += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
            modules.update(f"{node.module}.{alias.name}" for alias in node.names)
    return modules


def _is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def imported_files(file: Path, root: Path = Path(), *, packages: bool = True) -> set[Path]:
    """Find the file itself and all project files that it imports, directly or indirectly.

    Imports inside functions are included, because they may run.

    Args:
        file: Python file, relative to `root`.
        root: Root folder of the project.
        packages: Whether to include the `__init__` of the packages that contain a found file, which Python runs. If
            not, an `__init__` is included only where its package is imported by name. A member of a registry then does
            not depend on the other members, which the `__init__` of the registry imports.

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
            folders = [folder for folder in current.parents if folder != Path()]  # without the root
            candidates += [folder / "__init__.py" for folder in folders]
        for module in imported_modules(root / current):
            path = Path(*module.split("."))
            candidates += [path.with_suffix(".py"), path / "__init__.py"]
        pending += [path for path in candidates if (root / path).is_file()]
    return found


def code_fingerprint(file: Path) -> str:
    """Compute the SHA-256 of the names and bytes of the project files that a file imports, directly or indirectly.

    Args:
        file: Python file, relative to the root folder of the project, which is the current folder.

    Returns:
        Hexadecimal digest.
    """
    digest = hashlib.sha256()
    for imported in sorted(imported_files(file, packages=False)):
        digest.update(imported.as_posix().encode())
        digest.update(imported.read_bytes())
    return digest.hexdigest()
