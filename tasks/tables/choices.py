"""What of ours was inferred from the paper's own tables: there, agreement is no independent confirmation."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tasks.protocol.keys import AVERAGE
from tasks.tables.printed import Place


@dataclass(frozen=True)
class Choice:
    """A choice and the numbers that it bears on; empty tables or rows mean all of them."""

    made: str
    tables: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    columns: str = ""  # a pattern that is searched for

    def bears_on(self, place: Place) -> bool:
        """Whether the number at `place` depends on it; an average depends on what its members depend on."""
        member = place.row in self.rows or place.table in ("ablation", "budgeted_fallback")
        return (
            (not self.tables or place.table in self.tables)
            and (not self.rows or member)
            and re.search(self.columns, place.column) is not None
        )


CHOICES = (
    Choice("spline: what the confidence leaves is shared as the base predictor shared it", ("simplex_projection",),
           ("spline",), "^(top_ece|nll|brier|q_below|solved)"),
    Choice("hcal: leave-one-class-out objective, started from the identity", rows=("hcal",)),
    Choice("smart: trained with cross-entropy", rows=("smart",)),
    Choice("ts: solved to the optimum", rows=("ts",)),
    Choice("ece: of the fixed decision, not of the top label", ("main",), columns="^ece$"),
    Choice("brier: a sum over classes", ("simplex_projection",), columns="^brier"),
    Choice("top label: classes in the paper's order, first index on ties", ("simplex_projection",),
           columns="^top_ece_(mrc|delta)"),
    Choice("solved: decision on top and no cap hit, infeasible targets included", ("simplex_projection",),
           columns="^solved"),
    Choice("label spread: cells of 20 rows or more", ("label_spread",), columns="spread_pp|random|ratio"),
    Choice("label spread: percentile of the mean over groups", ("label_spread",), columns="random|ratio|runs"),
    Choice("label spread: runs are counted over seeds and calibrators", ("label_spread",), columns="runs"),
    Choice("average: unweighted over data sets and calibrators", ("ablation",)),
    Choice("average: over calibrators first, then over data sets", ("budgeted_fallback",)),
    Choice("robustness: under the uncalibrated base", ("robustness",)),
)  # fmt: skip
GUESSED = "paper_guess"


def chosen_to_match(place: Place, presets: dict[str, str | None]) -> str:
    """The choices behind a number, one sentence after another; empty where nothing was inferred.

    `presets` names the preset of each data set: that of the paper's guess chose split, weights and caps by its tables.
    """
    made = [choice.made for choice in CHOICES if choice.bears_on(place)]
    guessed = presets.values() if place.dataset == AVERAGE else [presets.get(place.dataset)]
    if GUESSED in guessed:
        made.append(f"preset {GUESSED}: split, class weights and caps")
    return "; ".join(made)
