"""Where the forms of `flows.serve` may write: new files, and their own, in one folder.

Whoever can send a form could otherwise overwrite any file of the user who serves it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.protocol.errors import BadInput
from tasks.protocol.store import DATA, STATE, read_json, write_json
from tasks.provenance.hashing import sha256_of_file

FOLDER = DATA / "served"
CHOSEN = STATE / "served.json"  # runs are processes of their own, which read here what was chosen
MADE = STATE / "served"  # a record for each file that a form has made


def choose(folder: Path) -> None:
    """Let forms write into `folder` from now on; a new one is for this user alone."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_json(CHOSEN, {"folder": str(folder.resolve())})


@contextmanager
def written(out: Path, *endings: str) -> Iterator[Path]:
    """The place of `out` in the folder; what stands there after the block is a form's own.

    Raises BadInput where `out` leads out of the folder, has none of the `endings`, or is a file that no form has made,
    or that was changed since.
    """
    if not CHOSEN.exists():  # a worker on another machine than that of `flows.serve`
        choose(FOLDER)
    folder = Path(read_json(CHOSEN)["folder"])
    place = (folder / out).resolve()  # through links and ..
    if not place.is_relative_to(folder) or place == folder:
        raise BadInput(f"{out} is not in {folder}, the only folder in which a form may write; see `flows.serve --out`")
    if place.suffix not in endings:
        raise BadInput(f"{out} must end in {' or '.join(endings)}")
    record = MADE / f"{hashlib.sha256(str(place).encode()).hexdigest()}.json"
    if place.exists() and not (record.exists() and read_json(record)["sha256"] == sha256_of_file(place)):
        raise BadInput(f"{place} is there already, and not as a form has made it; name another file")
    yield place
    write_json(record, {"file": str(place), "sha256": sha256_of_file(place)})
