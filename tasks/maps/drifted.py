"""What was found of a map on new rows, as values and in words: where it holds, and where it no longer does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

SHOWN = 5

Half = Literal["lower", "upper"]
HALVES: tuple[Half, Half] = ("lower", "upper")


@dataclass(frozen=True)
class CellDrift:
    """The new rows of a cell, and what was to be expected of them."""

    label: int
    half: Half
    border: float  # between the halves
    rows: int
    says: float  # mean reliability
    correct: float  # share of correct decisions
    expected: float | None  # that share, were the mean residual as on the held-out rows; None where there are none
    p: float | None  # of no change, adjusted for all cells that are tested; None where rows are too few for a test

    def in_words(self, names: Sequence[str] | None) -> str:
        """The label, by its name if there are names, and the reliabilities."""
        where = f"below {self.border:.3g}" if self.half == "lower" else f"{self.border:.3g} and above"
        return f"{names[self.label] if names else self.label} at reliability {where}"


@dataclass(frozen=True)
class Drift:
    """Each cell with new rows, by label and half, and the chance `level` of an alarm where nothing has changed."""

    level: float
    cells: tuple[CellDrift, ...]

    @property
    def changed(self) -> tuple[CellDrift, ...]:
        """The cells in which the map no longer holds, the clearest first."""
        found = [(one.p, one) for one in self.cells if one.p is not None and one.p <= self.level]
        return tuple(one for _, one in sorted(found, key=lambda pair: pair[0]))

    @property
    def holds(self) -> bool:
        """No test speaks against the map; neither does it where no cell could be tested, which the words say."""
        return not self.changed

    def as_json(self) -> dict[str, Any]:
        """Plain numbers; p is null where a cell could not be tested."""
        return {"holds": self.holds, "level": self.level, "cells": [asdict(one) for one in self.cells]}

    def in_words(self, names: Sequence[str] | None = None) -> list[str]:
        """Ten lines or fewer; `names` are those of the labels 0..K-1, or None."""
        untested = [one for one in self.cells if one.p is None]
        if len(untested) == len(self.cells):
            lines = ["It cannot be said whether the map still holds: no label has enough labelled rows for a test."]
        elif self.holds:
            lines = ["The map still holds: at a reliability, decisions are correct as often as when it was fitted."]
        else:
            lines = [
                f"The map no longer holds for {one.in_words(names)}: says {one.says:.2f}, correct {one.correct:.2f} "
                f"({one.rows:,} rows, {one.expected:.2f} expected, p {one.p:.2g})."
                for one in self.changed[:SHOWN]
            ]
            more = f"Nor for {len(self.changed) - SHOWN} more such parts. " if len(self.changed) > SHOWN else ""
            lines.append(f"{more}Fit it again.")
        if untested:
            shown = "; ".join(one.in_words(names) for one in untested[:SHOWN])
            more = f"; and {len(untested) - SHOWN} more" if len(untested) > SHOWN else ""
            lines.append(f"Not tested, since there are too few rows here or at the fit: {shown}{more}.")
        if len(untested) == len(self.cells):
            return lines
        return [
            *lines,
            f"An unchanged stream is called a changed one in at most {100 * self.level:g}% of evaluations. A change of "
            "the mix of labels is not looked for: the map can hold for another mix.",
        ]
