"""Copies of the project in which mutants are written, so that the checkout itself never changes."""

import compileall
import filecmp
import os
import shutil
import subprocess
from pathlib import Path

THREAD_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")


def limit_threads() -> None:
    """Let this process and its children compute on one thread each; call it before numpy is imported."""
    for name in THREAD_LIMITS:
        os.environ[name] = "1"


def project_files(root: Path) -> list[str]:
    """Return the files of the project that git tracks or would track.

    Args:
        root: Folder of the checkout.

    Returns:
        Paths relative to `root`.

    Raises:
        RuntimeError: `root` is not a git checkout.
    """
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if listed.returncode:
        raise RuntimeError(f"{root}: make mutants needs a git checkout: {listed.stderr.strip()}")
    return [file for file in listed.stdout.splitlines() if (root / file).is_file()]


class Copy:
    """A copy of the project in a folder, in which one file at a time can be mutated."""

    def __init__(self, root: Path, folder: Path) -> None:
        """Make the folder equal to the project, and touch only files that differ.

        Args:
            root: Folder of the checkout.
            folder: Folder of the copy; created if it does not exist.
        """
        self._root = root
        self.folder = folder
        self._mutated: str | None = None
        files = set(project_files(root))
        for file in files:
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.is_file() or not filecmp.cmp(root / file, target, shallow=False):
                shutil.copy2(root / file, target)
        for top in ("relmap", "tasks", "flows", "tests"):
            for source in list((folder / top).rglob("*.py")):
                if str(source.relative_to(folder)) not in files:
                    source.unlink()
            compileall.compile_dir(folder / top, quiet=1)

    def mutate(self, file: str, content: str) -> None:
        """Replace the content of one file; the file that was mutated before is restored.

        Args:
            file: Path relative to the root of the project.
            content: Mutated source.
        """
        self.restore()
        self._mutated = file
        (self.folder / file).write_text(content, encoding="utf-8")

    def restore(self) -> None:
        """Restore the mutated file, with the time stamp for which its compiled code is valid."""
        if self._mutated is not None:
            shutil.copy2(self._root / self._mutated, self.folder / self._mutated)
            self._mutated = None
