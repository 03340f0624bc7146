"""Why a stage ran: what differs between two of its manifests, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tasks.provenance.manifest import Files, Manifest

LONGEST = 80  # characters of a value that are shown
MOST_NAMED = 5  # changes of a stage that are named one by one


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every value within nested mappings, with its dotted name."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def changed_parameters(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Each value that differs: its name, what it was, what it is."""
    old, new = dict(leaves(before)), dict(leaves(after))
    shown = {name: (_shown(old, name), _shown(new, name)) for name in old | new}
    return [f"{name}: {_short(was)} → {_short(is_now)}" for name, (was, is_now) in shown.items() if was != is_now]


def _shown(values: Mapping[str, Any], name: str) -> str:
    return repr(values[name]) if name in values else "nothing"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"


def changed_files(before: Files, after: Files) -> list[str]:
    """Each file that differs: its path, the first digits of its SHA-256 as they were and as they are."""
    return [
        f"{path}: {_digits(before, path)} → {_digits(after, path)}"
        for path in sorted(before | after)
        if before.get(path) != after.get(path)
    ]


def _digits(files: Files, path: str) -> str:
    return files[path].sha256[:8] if path in files else "nothing"


def changes(before: Manifest, after: Manifest) -> list[str]:
    """What differs of all that a stage reads and runs: parameters, inputs, code, command, versions of libraries."""
    found = [
        *changed_parameters(before.parameters, after.parameters),
        *changed_files(before.inputs, after.inputs),
        *changed_files(before.code, after.code),
    ]
    if before.command != after.command:
        found.append(f"command: {before.command} → {after.command}")
    return [*found, *(f"version of {one}" for one in changed_parameters(before.versions, after.versions))]


def why(before: Manifest | None, after: Manifest) -> str:
    """Why the stage of `after` ran, where `before` is that of its last finished run."""
    if before is None:
        return "it had not finished on this machine before"
    found = changes(before, after)
    if not found:
        return "nothing that it reads had changed: it was forced, or its outputs were missing or changed"
    more = [f"and {len(found) - MOST_NAMED} more"] if len(found) > MOST_NAMED else []
    return "; ".join([*found[:MOST_NAMED], *more])
