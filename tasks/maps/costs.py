"""The cut of the least expected cost, where a wrong decision that is used costs so much and a review so much.

A decision goes to review where (1 - reliability) times the cost of an error is above that of a review: the cut is one
less the second over the first, whatever the rows. They tell what it costs, a review being taken to end in the truth.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tasks.maps.cuts import NEAR, Cut, rounded_cut
from tasks.maps.evaluate import JudgedDecisions, plain
from tasks.metrics.intervals import BETTER, WORSE, Estimate, sign_of
from tasks.protocol.errors import BadInput

Number = Mapping[str, float | None]  # value, low and high
SIGNS = {BETTER: "clearly dearer", WORSE: "clearly cheaper"}  # ways, where the change from them to the cut is such


@dataclass(frozen=True)
class Costs:
    """The cut, and the cost of a row on the average: by it, and by other ways, with what it changes beside each."""

    error: float
    review: float
    cut: Cut
    cost: Number
    beside: Mapping[str, tuple[Number, Number]]  # way -> its cost, and the change from it to that of the cut

    def as_json(self) -> dict[str, Any]:
        """Plain numbers; null where there are too few groups for an interval."""
        beside = {way: {"cost": cost, "change": change} for way, (cost, change) in self.beside.items()}
        overall = asdict(self.cut) | {"coverage": self.cut.coverage}
        facts = {"cost_error": self.error, "cost_review": self.review, "cost": self.cost, "beside": beside}
        return {"guaranteed": False} | facts | {"overall": overall, "labels": []}

    def in_words(self) -> list[str]:
        """What to use, what that costs, and what the other ways do, a line each."""
        used = f"Use {self.cut.coverage:.1%} of decisions as they are: those {self.cut.place}. Review the rest."
        if not self.cut.automatic:
            used = f"Review all: none of {self.cut.rows:,} labelled rows has a reliability of {self.cut.cut} or more."
        lines = [
            used,
            f"A row then costs {_shown(self.cost)} on the average, where an error costs {self.error:g} and a review "
            f"{self.review:g}. Beside it, with the change from that to the cut on the reliability:",
        ]
        for way, (cost, change) in self.beside.items():
            sign = sign_of(-1, change["low"], change["high"], 0.0)
            if sign == WORSE:
                lines.insert(1, f"Beware: {way} is clearly cheaper on these rows, for which the map may not hold.")
            said = SIGNS.get(sign, "not certainly different")
            lines.append(f"  {way}: {cost['value']:.4g}; {_shown(change, '+')}, so it is {said}")
        return lines


def expected_costs(judged: JudgedDecisions, error: float | None, review: float | None) -> Costs:
    """The cut for the costs of an `error` and a `review`, and what labelled rows cost by it and by other ways.

    Intervals are of the bootstrap over groups, given the map; rows that stand for others count as often.

    Raises:
        BadInput: a cost is missing, infinite, or below 0; or an error costs nothing.
    """
    if error is None or review is None or not (0 < error < math.inf and 0 <= review < math.inf):
        given = f"the cost of an error is {error}, and that of a review {review}"
        raise BadInput(f"{given}; give both, an error above 0 and a review of 0 or more, such as 5 and 1")
    cut = rounded_cut(1 - review / error - 2 * NEAR, np.empty(0), up=True) if review < error else 0.0

    def of(use: np.ndarray | bool) -> np.ndarray:
        return np.where(use, error * ~judged.correct, review)

    def number(values: np.ndarray) -> Number:
        drawn = None if judged.draws is None else judged.draws.mean(values)
        where = Estimate(float(values.mean()), drawn).interval
        return {"value": float(values.mean()), "low": plain(where.low), "high": plain(where.high)}

    reliability, correct = judged.scored.reliability, judged.rows.correct
    cost = of(reliability[judged.at] >= cut)
    ways = {
        "reviewing all": of(False),
        "reviewing none": of(True),
        "the same cut on the confidence": of(judged.probability["confidence"] >= cut),
    }
    beside = {way: (number(values), number(cost - values)) for way, values in ways.items()}
    used = reliability >= cut
    accuracy = float(correct[used].mean()) if used.any() else None
    found = Cut(label=None, cut=cut, rows=len(used), automatic=int(used.sum()), accuracy=accuracy)
    return Costs(error, review, found, number(cost), beside)


def _shown(number: Number, sign: str = "") -> str:
    between = (
        "" if number["low"] is None else f" (95% interval {number['low']:{sign}.4g} to {number['high']:{sign}.4g})"
    )
    return f"{number['value']:{sign}.4g}{between}"
