"""The gates that a data set passed, or did not, as rows that a person reads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Expectation:
    """One thing that a gate expects, in words, and over all places where it was asked: how often it was met."""

    gate: str
    words: str
    asked: int = 0
    failures: list[str] = field(default_factory=list)  # where, and what was there


def gates_of(records: Iterable[Mapping[str, Any]]) -> list[Expectation]:
    """From the records of gates.json, expectations in the order in which they were first asked."""
    rows: dict[tuple[str, str], Expectation] = {}
    for check in (check for record in records for check in record["checks"]):
        where = ", ".join(str(value) for value in check["coordinates"].values())
        for expected in check["expectations"]:
            key = check["gate"], expected["description"]
            row = rows.setdefault(key, Expectation(*key))
            row.asked += 1
            if not expected["success"]:
                row.failures.append(f"{where}: {expected['found']} (allowed: {expected['allowed']})")
    return list(rows.values())
