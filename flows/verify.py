"""Find flipped bits: compare DVC's cache and the outputs of all stages with DVC's checksums.

`python -m flows.verify` exits with status 0 if everything is intact, and otherwise with status 1. DVC itself reads a
file again only if its inode, size or time changed, and never reads its cache again.
"""

import json
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from flows.dvc_process import query
from relmap.io.hashing import hash_file
from tasks.provenance.lock import hold_lock
from tasks.provenance.stage import run_command

OBJECT_NAME = re.compile(r"[0-9a-f]{30}(\.dir)?")


def find_corrupt_objects(cache: Path) -> list[Path]:
    """Find the objects in DVC's cache whose MD5 sum differs from their name.

    Args:
        cache: Folder of the cache.

    Returns:
        Paths of the objects.
    """
    corrupt = []
    for path in sorted(cache.glob("files/md5/??/*")):
        is_object = OBJECT_NAME.fullmatch(path.name)  # and not a file that DVC is writing
        if is_object and hash_file(path, "md5") != path.parent.name + path.name.removesuffix(".dir"):
            corrupt.append(path)
    return corrupt


def find_changed_outputs() -> dict[str, str]:
    """Compare the outputs of all stages with dvc.lock. DVC reads every file, because its memory of files is empty.

    Returns:
        Path of an output -> its state, such as "modified", "deleted" or "not in cache".
    """
    with TemporaryDirectory() as empty:
        status = json.loads(query("status", "--json", DVC_SITE_CACHE_DIR=empty))
    changed: dict[str, str] = {}
    for changes in status.values():
        for change in changes:
            if isinstance(change, dict):
                changed |= change.get("changed outs", {})
    return changed


def main() -> None:
    """Find corrupt, edited and missing outputs of stages, and corrupt objects in DVC's cache."""
    with hold_lock("refresh"):
        corrupt = find_corrupt_objects(Path(query("cache", "dir")))
        changed = find_changed_outputs()
    lines = [f"{path} (DVC's cache) is corrupt" for path in corrupt] + [
        f"{path} is {changed[path]}" for path in changed
    ]
    if lines:
        remedy = "to repair this, delete these files and folders, then run `python -m flows.refresh`"
        print("\n".join([*lines, remedy]))
        sys.exit(1)
    print("all outputs of stages match dvc.lock, and DVC's cache is intact")


if __name__ == "__main__":
    run_command(main, "verify")
