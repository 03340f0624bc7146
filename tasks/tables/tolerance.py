"""How far a number of ours may lie from the paper's by the drawing of seeds and of test rows alone.

The paper's test rows are unknown: its sampling deviation is taken to be as large as ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SEEDS = 3  # the paper's


@dataclass(frozen=True)
class Deviation:
    """How much a number of ours varies."""

    standard_error: float | None  # over test rows; None where it was not measured
    seeds: float  # deviation over the protocol seeds (n - 1)
    n_seeds: int
    sampled: str  # where the standard error comes from

    def tolerance(self, paper_seeds: float | None, half_unit: float, scale: float = 1.0) -> float | None:
        """Two standard deviations of the difference, and the paper's rounding; None without an error."""
        if self.standard_error is None or self.n_seeds < 2:
            return None
        theirs = self.seeds * scale if paper_seeds is None else paper_seeds
        variance = 2 * (self.standard_error * scale) ** 2
        variance += (self.seeds * scale) ** 2 / self.n_seeds + theirs**2 / SEEDS  # of means over seeds
        return 2 * math.sqrt(variance) + half_unit

    def described(self, paper_seeds: float | None, scale: float = 1.0) -> str:
        """The tolerance in words, with its numbers."""
        if self.standard_error is None:
            return ""
        theirs = "taken as ours" if paper_seeds is None else f"{paper_seeds:.3g}"
        return (
            f"2 standard deviations and half a printed unit: sampling {self.standard_error * scale:.2g} "
            f"({self.sampled}), as much again for the paper; seeds {self.seeds * scale:.2g}, the paper's {theirs}"
        )


def of_deviations(ours: float, paper: float, n_seeds: int, half_unit: float) -> float | None:
    """The tolerance of a deviation over seeds itself: s / sqrt(2 (n - 1)) for each side, None for one seed."""
    if n_seeds < 2:
        return None
    return 2 * math.sqrt(ours**2 / (2 * (n_seeds - 1)) + paper**2 / (2 * (SEEDS - 1))) + half_unit
