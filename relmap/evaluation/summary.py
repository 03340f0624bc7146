"""Results in sentences for readers and in numbers for programs."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from html import escape
from typing import Any

from relmap.errors import escape_unprintable

Numbers = dict[str, Any]


@dataclass(frozen=True)
class Summary:
    """A result as sentences, with the numbers that they are based on.

    Attributes:
        lines: Sentences, at most eight; the first one is the answer.
        notes: Sentences on how the rows were read.
        numbers: Numbers and words for JSON.
        details: Further sentences and table rows.
    """

    lines: tuple[str, ...]
    notes: tuple[str, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict, repr=False)
    details: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Copy the numbers and words, ready for JSON."""
        return deepcopy(dict(self.numbers))

    def __str__(self) -> str:
        return "\n".join(escape_unprintable(line) for line in (*self.lines, *self.notes))

    def _repr_html_(self) -> str:
        """Format the sentences for a notebook."""
        first, _, rest = escape(str(self)).partition("\n")
        return f'<p><strong>{first}</strong></p><pre style="white-space: pre-wrap">{rest}</pre>'


@dataclass(frozen=True)
class FitSummary(Summary):
    """What `fit` did, and how its map compares with the confidence out of fold.

    Attributes:
        comparison: Numbers of `evaluate_map` on the out-of-fold predictions.
    """

    comparison: Mapping[str, Any] = field(default_factory=dict, repr=False)


class Evaluation(Summary):
    """Comparison of the reliability with the confidence on labelled rows."""


class Cuts(Summary):
    """Minimum reliability of decisions that can be used automatically."""

    def __repr__(self) -> str:
        estimate = self.numbers["overall"]
        numbers = []
        if self.numbers.get("only_label") is not None:
            (estimate,) = self.numbers["labels"]
            numbers.append(f"only_label={estimate['label']}")
        numbers.append(f"cut={estimate['cut']}")
        if estimate["cut"] is None:
            return f"Cuts({', '.join(numbers)})"
        numbers.append(f"coverage={estimate['coverage']:.4g}")
        if estimate["accuracy"] is not None:
            numbers.append(f"accuracy={estimate['accuracy']:.4g}")
        return f"Cuts({', '.join(numbers)})"

    @property
    def cut(self) -> float | None:
        """Cut for all decisions, which `apply` accepts; None if there is none, such as with a target for one label."""
        cut: float | None = self.numbers["overall"]["cut"]
        return cut
