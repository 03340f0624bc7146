"""The gates that a data set passed, or did not, as rows that a person reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Expectation:
    """One thing that a gate expects, in words, and over all places where it was asked: how often it held."""

    gate: str
    words: str
    asked: int
    held: int
    failures: tuple[str, ...]  # where, and what was found


@dataclass(frozen=True)
class Gates:
    """All gates of one data set."""

    expectations: tuple[Expectation, ...] = ()

    @property
    def asked(self) -> int:
        """How often anything was expected."""
        return sum(one.asked for one in self.expectations)

    @property
    def failed(self) -> int:
        """How often it did not hold."""
        return sum(one.asked - one.held for one in self.expectations)


def gates_of(records: Iterable[Mapping[str, Any]]) -> Gates:
    """From the records of gates.json, expectations in the order in which they were first asked."""
    found: dict[tuple[str, str], list[tuple[bool, str]]] = {}
    for check in (check for record in records for check in record["checks"]):
        where = ", ".join(str(value) for value in check["coordinates"].values())
        for one in check["expectations"]:
            told = f"{where}: {one['found']} (allowed: {one['allowed']})"
            found.setdefault((check["gate"], one["description"]), []).append((one["success"], told))
    return Gates(
        tuple(
            Expectation(
                gate, words, len(asked), sum(held for held, _ in asked), tuple(told for held, told in asked if not held)
            )
            for (gate, words), asked in found.items()
        )
    )
