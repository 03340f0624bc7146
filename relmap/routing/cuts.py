"""Cuts on reliability: what is known of the decisions at or above one, in words and as JSON, and read back from it."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from relmap.errors import InputError, describe_validation_errors
from relmap.io.atomic import check_file
from relmap.maps.document import MapDocument
from relmap.serialization import Count, Share

DIGITS, MOST_DIGITS = 4, 9  # of a cut
NEAR = 1e-9  # from where rows tie: engines differ in the last bits of a tie
SHOWN = 5  # labels in words


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The decisions at or above a reliability: those of one label, or (label None) of all."""

    label: int | None
    cut: float | None = None  # in [0, 1], 0 takes every decision; None where there is none
    rows: int  # labelled rows, at least 1
    automatic: int = 0  # of these, at or above the cut
    accuracy: float | None = None  # of the automatic rows
    lower_bound: float | None = None  # of the accuracy of such decisions, as `find_cuts` and `cut_at_coverage` say
    why: str | None = None  # there is no cut, or nothing to say of it

    @property
    def coverage(self) -> float:
        """Share of automatic rows, in [0, 1]."""
        return self.automatic / self.rows

    @property
    def place(self) -> str:
        """Where it lies, and what was seen there."""
        of = f"with a reliability of at least {self.cut}" if self.cut else "of any reliability"
        return f"{of} ({self.automatic:,} of {self.rows:,} labelled rows, {self.accuracy:.1%} of them correct)"


@dataclass(frozen=True)
class Thresholds:
    """What holds of all decisions, and what holds of every decided label at once, each with `confidence`."""

    target: float | None  # accuracy, or
    asked: str | None  # coverage
    confidence: float
    overall: Cut
    labels: tuple[Cut, ...]
    instead: tuple[str, ...] = ()  # in words: what would have a cut, where there is none for all decisions
    chosen_cut: float | None = None  # or a cut that was chosen without these rows

    def as_json(self) -> dict[str, Any]:
        """Plain numbers and words; null where there is none."""
        overall, *labels = [asdict(cut) | {"coverage": cut.coverage} for cut in (self.overall, *self.labels)]
        del overall["label"]
        asked = {"target_accuracy": self.target, "asked_coverage": self.asked, "asked_cut": self.chosen_cut}
        return asked | {"confidence": self.confidence, "overall": overall, "labels": labels}

    def in_words(self, names: Sequence[str] | None = None) -> list[str]:
        """Thirteen lines or fewer, the labels of most rows; `names` are those of the labels 0..K-1, or None."""
        overall, surely = self.overall, f"with {100 * self.confidence:g}% confidence"
        lines = [f"No cut for all decisions: {overall.why}.", *self.instead]
        if self.chosen_cut is not None:
            lines = [f"Nothing is known about the cut {self.chosen_cut}: {overall.why}."]
        if overall.cut is not None:
            lines = [
                f"Use {overall.coverage:.1%} of decisions as they are: those {overall.place}.",
                f"{surely.capitalize()} at least {self._certain(overall)} of such decisions are correct, if new rows "
                "are like these and drawn independently.",
            ]
        which = "That cut" if self.target is None else "Or a cut of its own"
        takes_own = self.target is not None and _takes_own(overall.cut, [cut.cut for cut in self.labels])
        taken = ", which `apply` takes where it is given these cuts" if takes_own else ""
        lines.append(f"{which} for each label{taken}; {surely} all of it holds:")
        shown = sorted(sorted(self.labels, key=lambda cut: -cut.rows)[:SHOWN], key=lambda cut: cut.label or 0)
        lines += [f"  {names[cut.label or 0] if names else cut.label}: {self._of_label(cut)}" for cut in shown]
        left = len(self.labels) - len(shown)
        return [*lines, f"  and {left} more labels"] if left else lines

    def _of_label(self, cut: Cut) -> str:
        if cut.cut is None:
            return f"no cut; {cut.why}" if self.chosen_cut is None else f"{cut.why}"
        return f"{cut.coverage:.1%} of its decisions, {cut.place}; surely at least {self._certain(cut)}"

    def _certain(self, cut: Cut) -> str:
        assert cut.lower_bound is not None
        # rounded down: no more is promised than holds
        return f"{math.floor(1000 * cut.lower_bound) / 10:g}%" if self.target is None else f"{100 * self.target:g}%"


class _Cut(BaseModel):
    """A cut as it is read: what else is known of it is for people."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)
    label: Count | None = None
    cut: Share | None


class _Cuts(BaseModel):
    map_fingerprint: str
    asked_coverage: str | None = None
    asked_cut: Share | None = None
    overall: _Cut
    labels: list[_Cut]


def cuts_by_label(document: MapDocument, cuts: Path | Mapping[str, Any]) -> np.ndarray:
    """The least reliability of an automatic row of each label `(K,)`, as a file has it that `thresholds` wrote.

    It is the cut of the label's own where every label that was decided has one, or where there is no cut for all
    decisions: then it is infinite for a label without its own. Else it is the cut for all decisions, as it is for a
    coverage, for a chosen cut and for costs.

    Raises:
        InputError: no such cuts, those of another map or of labels that it has not, or none at all.
    """
    where = str(cuts) if isinstance(cuts, Path) else "the value of cuts"
    try:
        if isinstance(cuts, Path):
            check_file(cuts)
            cuts = json.loads(cuts.read_text(encoding="utf-8"))
        said = _Cuts.model_validate(cuts)
    except (OSError, ValueError, RecursionError) as error:  # there is none, no UTF-8, no JSON, or no cuts
        why = describe_validation_errors(error, "cuts")[0] if isinstance(error, ValidationError) else error
        raise InputError(f"{where} is not what `thresholds` writes ({why}); make it anew") from None
    if said.map_fingerprint != document.fingerprint:
        raise InputError(f"{where} holds the cuts of another map; make them again with `thresholds` and this map")
    labels, n_labels = [each.label for each in said.labels], document.n_labels
    if not {*labels} <= {*range(n_labels)} or len({*labels}) < len(labels):
        raise InputError(
            f"{where} is of the labels {labels}; the map's are 0 to {n_labels - 1}, each once; make it anew"
        )
    one_cut = said.asked_coverage is not None or said.asked_cut is not None
    own = {} if one_cut else {each.label: each.cut for each in said.labels}
    if said.overall.cut is None and not any(cut is not None for cut in own.values()):
        raise InputError(f"{where} has no cut; ask `thresholds` for a lower accuracy, or give it more rows")
    if not _takes_own(said.overall.cut, [*own.values()]):
        return np.full(n_labels, said.overall.cut)
    cuts_of = (own.get(label) for label in range(n_labels))
    return np.array([math.inf if cut is None else cut for cut in cuts_of])


def _takes_own(overall: float | None, own: Sequence[float | None]) -> bool:
    """Whether labels go by cuts of their own: all that were decided have one, or some, where there is none for all."""
    return any(cut is not None for cut in own) and (overall is None or None not in own)


def rounded_cut(beside: float, seen: np.ndarray, *, up: bool = False) -> float:
    """The next cut of four digits below a reliability `beside`, or `up`, above it, that ties with none of those `seen`.

    It has more, up to nine, where four would tie, or would hardly tell `beside` from 0 or 1.
    """
    near_end = max(min(beside, 1 - beside), 10.0 ** (2 - MOST_DIGITS))
    for digits in range(max(DIGITS, 2 - math.floor(math.log10(near_end))), MOST_DIGITS + 1):
        grain = 10**digits
        cut = (math.ceil((beside + NEAR) * grain) if up else max(math.floor((beside - NEAR) * grain), 0)) / grain
        if not (np.abs(seen - cut) < NEAR / 2).any():
            break
    return cut
