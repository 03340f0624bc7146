"""Everything that the stages have written, and DVC's cache, held against manifests and names."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from relmap.errors import InputError
from relmap.hashing import hash_file
from tasks.provenance.declared import declared
from tasks.provenance.manifest import Files, Manifest, hashed, read_manifest

APART = 2.0  # seconds: a checkout may bring the outputs of one stage back in any order


class Problem(NamedTuple):
    """Something that is not as its stage left it."""

    stage: str  # whose output it is
    path: str
    what: str
    lost: bool = True  # the outputs have to be brought back; else the stage only has to run

    def __str__(self) -> str:
        return f"{self.path} ({self.stage}) {self.what}"


def problems_of_outputs(name: str) -> tuple[Manifest | None, list[Problem]]:
    """The manifest of a stage, and what does not hold of it or of the outputs that it names."""
    stage = declared(name)
    place = stage.manifest.as_posix()
    if not stage.manifest.exists():
        return None, [Problem(name, place, "is missing: the stage has not finished, or it was lost", lost=False)]
    try:
        manifest = read_manifest(stage.manifest)
    except InputError as error:
        return None, [Problem(name, place, f"is spoilt: {error}")]
    recorded, there, written = manifest.outputs, hashed(stage.outputs), stage.manifest.stat().st_mtime
    others = [path for path in sorted(recorded | there) if recorded.get(path) != there.get(path)]
    return manifest, [Problem(name, path, _what(path, recorded, there, written)) for path in others]


def _what(path: str, recorded: Files, there: Files, written: float) -> str:
    """What became of a file; its last writing tells an edit from rot, as far as a date can be trusted."""
    if path not in there:
        return "is missing"
    if path not in recorded:
        return "was added: its stage has not written it"
    last = Path(path).stat().st_mtime
    if last > written + APART:
        return f"was edited, at {datetime.fromtimestamp(last, UTC).isoformat(timespec='seconds')}"
    return "has rotted: its bytes differ, though nothing has written it since its stage ended"


def problems_of_inputs(manifests: Mapping[str, Manifest]) -> Iterator[Problem]:
    """Stages made of another input than the one that its own stage has made since."""
    outs = [place for name in manifests for place in declared(name).outputs]
    made = {path: file for manifest in manifests.values() for path, file in manifest.outputs.items()}
    for name, manifest in manifests.items():
        reads = declared(name).inputs
        is_made = {path for path in made if any(Path(path).is_relative_to(place) for place in reads)}
        was_made = {path for path in manifest.inputs if any(Path(path).is_relative_to(out) for out in outs)}
        other = [path for path in sorted(is_made | was_made) if made.get(path) != manifest.inputs.get(path)]
        if other:
            where = ", ".join(map(str, declared(name).outputs))
            yield Problem(name, where, f"was made of another {', '.join(other)} than is there now", lost=False)


def is_rotted(stored: Path) -> bool:
    """Whether the bytes of an object of DVC's cache are not those that it is named for; DVC trusts it for ever."""
    return hash_file(stored, "md5") != stored.parent.name + stored.name.removesuffix(".dir")


def objects_in(cache: Path) -> list[Path]:
    """Every object of DVC's cache; not what a DVC is writing, or was when it was killed."""
    return sorted(path for path in cache.glob("??/*") if re.fullmatch(r"[0-9a-f]{30}(\.dir)?", path.name))


def objects_of_stage(locked: Mapping[str, Any], cache: Path, rotted: Collection[Path]) -> set[Path]:
    """The objects that hold the outputs of a stage; `locked` is its entry in dvc.lock.

    Where the list of a folder has rotted, or is missing, what it lists is unknown and left out.
    """
    names = [out["md5"] for out in locked.get("outs", []) if out.get("md5")]  # none where dvc.lock is cut off
    objects = {cache / md5[:2] / md5[2:] for md5 in names}
    for top in sorted(objects):
        if top.suffix == ".dir" and top.exists() and top not in rotted:
            listed = json.loads(top.read_text(encoding="utf-8"))
            objects |= {cache / entry["md5"][:2] / entry["md5"][2:] for entry in listed}
    return objects
