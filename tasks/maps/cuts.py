"""Cuts on reliability as values, and in words: what is certain of the decisions at or above them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

LABELS_IN_WORDS = 5


@dataclass(frozen=True)
class Cut:
    """The decisions at or above a reliability: those of one label, or (label None) of all."""

    label: int | None
    cut: float | None  # in [0, 1], 0 takes every decision; None where there is none
    rows: int  # labelled rows, at least 1
    automatic: int  # of these, at or above the cut
    accuracy: float | None  # of the automatic rows
    lower_bound: float | None  # of the accuracy of such decisions, as `find_cuts` and `cut_at_coverage` say
    why: str | None  # there is no cut, or nothing to say of it

    @property
    def coverage(self) -> float:
        """Share of automatic rows, in [0, 1]."""
        return self.automatic / self.rows


@dataclass(frozen=True)
class Thresholds:
    """What holds of all decisions, and what holds of every decided label at once, each with `confidence`."""

    target: float | None  # accuracy, or
    asked: str | None  # coverage
    confidence: float
    overall: Cut
    labels: tuple[Cut, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain numbers and words; null where there is none."""
        overall, *labels = [asdict(one) | {"coverage": one.coverage} for one in (self.overall, *self.labels)]
        del overall["label"]
        asked = {"target_accuracy": self.target, "asked_coverage": self.asked, "confidence": self.confidence}
        return {**asked, "overall": overall, "labels": labels}

    def in_words(self, names: Sequence[str] | None = None) -> list[str]:
        """Ten lines or fewer, the labels of most rows; `names` are those of the labels 0..K-1, or None."""
        one, surely = self.overall, f"ith {100 * self.confidence:g}% confidence"
        if one.cut is None:
            lines = [f"No cut for all decisions: {one.why}."]
        else:
            lines = [
                f"Use {one.coverage:.1%} of decisions as they are: those {_where(one)}.",
                f"W{surely} at least {self._certain(one)} of such decisions are correct, if new rows are like these "
                "and drawn independently.",
            ]
        lines.append(
            f"{'That cut' if self.target is None else 'Or a cut of its own'} for each label; w{surely} all of it holds:"
        )
        shown = sorted(sorted(self.labels, key=lambda cut: -cut.rows)[:LABELS_IN_WORDS], key=lambda cut: cut.label or 0)
        lines += [f"  {names[cut.label or 0] if names else cut.label}: {self._of_label(cut)}" for cut in shown]
        left = len(self.labels) - len(shown)
        return [*lines, f"  and {left} more labels"] if left else lines

    def _of_label(self, one: Cut) -> str:
        if one.cut is None or one.accuracy is None:
            return f"no cut; {one.why}"
        return f"{one.coverage:.1%} of its decisions, {_where(one)}; surely at least {self._certain(one)}"

    def _certain(self, one: Cut) -> str:
        assert one.lower_bound is not None
        # rounded down: no more is promised than holds
        return f"{math.floor(1000 * one.lower_bound) / 10:g}%" if self.target is None else f"{100 * self.target:g}%"


def _where(one: Cut) -> str:
    of = f"with a reliability of at least {one.cut}" if one.cut else "of any reliability"
    return f"{of} ({one.automatic:,} of {one.rows:,} labelled rows, {one.accuracy:.1%} of them correct)"
