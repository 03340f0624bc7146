"""The cut of the least expected cost, where a wrong decision that is used costs so much and a review so much.

A decision goes to review where (1 - reliability) times the cost of an error is above that of a review: the cut is one
less the second over the first, whatever the rows. They tell what it costs, a review being taken to end in the truth.
"""

from dataclasses import asdict
from typing import Any

import numpy as np

from relmap.errors import InputError
from relmap.evaluation.sample import EvaluationSample
from relmap.metrics.intervals import BETTER, WORSE, classify_change, format_interval
from relmap.routing.cuts import NEAR, Cut, rounded_cut

ROUNDING = 1e-12  # 1 - 1/5 is not to be just above 0.8
HIGHEST = 1e30  # cost, whose sums are still finite
SIGNS = {BETTER: "clearly dearer", WORSE: "clearly cheaper"}  # a way, where the change from it to the cut is such


def expected_costs(judged: EvaluationSample, error: float | None, review: float | None) -> tuple[dict[str, Any], Cut]:
    """The mean cost of a row by the cut, and by other ways with what the cut changes, for JSON; and the cut itself.

    Intervals are of the bootstrap over groups, given the map; rows that stand for others count as often.

    Raises:
        InputError: a cost is missing, above HIGHEST, or below 0; or an error costs nothing.
    """
    if error is None or review is None or not (0 < error <= HIGHEST and 0 <= review <= HIGHEST):
        given = f"the cost of an error is {error}, and that of a review is {review}"
        limits = f"an error above 0 and a review of 0 or more, {HIGHEST:g} at most"
        raise InputError(f"{given}; give both, {limits}, such as 5 and 1")
    exact = 1 - review / error - ROUNDING
    cut = rounded_cut(exact - NEAR, np.empty(0), up=True) if review < error else 0.0
    used = judged.scored.reliability >= cut
    reviewed = {
        "reviewing all": np.ones(len(judged), dtype=bool),
        "reviewing none": np.zeros(len(judged), dtype=bool),
        "the same cut on the confidence": judged.probability["confidence"] < cut,
    }
    costs = {way: np.where(at, review, error * ~judged.correct) for way, at in reviewed.items()}
    own = np.where(used[judged.row_number], error * ~judged.correct, review)
    beside = {
        way: {"cost": judged.mean_with_interval(cost), "change": judged.mean_with_interval(own - cost)}
        for way, cost in costs.items()
    }
    accuracy = float(judged.rows.correct[used].mean()) if used.any() else None
    found = Cut(label=None, cut=cut, rows=len(used), automatic=int(used.sum()), accuracy=accuracy)
    facts = {
        "cost_error": float(error),
        "cost_review": float(review),
        "cost": judged.mean_with_interval(own),
        "beside": beside,
    }
    overall = asdict(found) | {"coverage": found.coverage}
    return {"guaranteed": False} | facts | {"overall": overall, "labels": []}, found


def in_words(costs: dict[str, Any], cut: Cut) -> list[str]:
    """What to use, what that costs, and what the other ways do, a line each."""
    used = f"Review all: none of {cut.rows:,} labelled rows has a reliability of {cut.cut} or more."
    if cut.automatic:
        used = f"Use {cut.coverage:.1%} of decisions as they are: those {cut.place}. Review the rest."
    each = f"where an error costs {costs['cost_error']:g} and a review {costs['cost_review']:g}"
    lines, beware = [f"A row then costs {_shown(costs['cost'])} on the average, {each}. Other ways:"], []
    for way, numbers in costs["beside"].items():
        sign, change = (
            classify_change(-1, numbers["change"]["low"], numbers["change"]["high"], 0.0),
            _shown(numbers["change"]),
        )
        if sign == WORSE:
            beware = [f"Beware: {way} is clearly cheaper on these rows, for which the map may not hold."]
        said = f"which the cut changes by {change}: {SIGNS.get(sign, 'not certainly different')}"
        lines.append(f"  {way}: {numbers['cost']['value']:.4g}, {said}")
    return [used, *beware, *lines]


def _shown(number: dict[str, float | None]) -> str:
    return f"{number['value']:.4g}{format_interval(number['low'], number['high'], '.4g')}"
