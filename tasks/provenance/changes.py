"""Why a stage ran: what differs between two of its manifests, in words."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tasks.provenance.manifest import Files, Manifest

Entries = dict[str, str]
LONGEST = 80  # characters of a value that are shown
MOST_NAMED = 5  # changes of a stage that are named one by one


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every value within nested mappings, with its dotted name."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"


def _differences(before: Entries, after: Entries, shown: Callable[[str], str] = _short) -> list[str]:
    """Each entry that differs: its name, what it was, what it is."""
    pairs = {name: (before.get(name, "nothing"), after.get(name, "nothing")) for name in sorted(before | after)}
    return [f"{name}: {shown(was)} → {shown(is_now)}" for name, (was, is_now) in pairs.items() if was != is_now]


def _changed_files(*before_and_after: Files) -> list[str]:
    """Each file that differs: its path, the first digits of its SHA-256 as they were and as they are."""
    before, after = ({path: file.sha256 for path, file in files.items()} for files in before_and_after)
    return _differences(before, after, lambda digits: digits[:8])


def _values(parameters: Mapping[str, Any]) -> dict[str, str]:
    return {name: repr(value) for name, value in leaves(parameters)}


def changes(before: Manifest, after: Manifest) -> list[str]:
    """What differs of all that a stage reads and runs: parameters, inputs, code, command, versions of libraries."""
    return [
        *_differences(_values(before.parameters), _values(after.parameters)),
        *_changed_files(before.inputs, after.inputs),
        *_changed_files(before.code, after.code),
        *_differences({"command": before.command}, {"command": after.command}),
        *(f"version of {change}" for change in _differences(_values(before.versions), _values(after.versions))),
    ]


def why(before: Manifest | None, after: Manifest) -> str:
    """Why the stage of `after` ran, where `before` is that of its last finished run."""
    if before is None:
        return "it had not finished on this machine before"
    differences = changes(before, after)
    if not differences:
        return "nothing that it reads had changed: it was forced, or its outputs were missing or changed"
    more = [f"and {len(differences) - MOST_NAMED} more"] if len(differences) > MOST_NAMED else []
    return "; ".join([*differences[:MOST_NAMED], *more])
