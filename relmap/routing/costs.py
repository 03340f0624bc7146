"""Find the threshold with the lowest expected cost, given the cost of an error and the cost of a review.

A decision should be reviewed if (1 - reliability) times the cost of an error exceeds the cost of a review. So the
threshold is 1 - review cost / error cost. It does not depend on the labelled rows, which are only used to estimate the
mean cost. A review is assumed to find the true label.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from relmap.errors import InputError
from relmap.evaluation.sample import EvaluationSample, JsonNumbers
from relmap.metrics.comparison import BETTER, WORSE, compare_interval
from relmap.metrics.intervals import format_interval
from relmap.routing.thresholds import TIE_TOLERANCE, ThresholdEstimate, round_threshold

ROUNDING_TOLERANCE = 1e-12  # keeps 1 - 1/5 from rounding to just above 0.8
MAX_COST = 1e30  # sums of costs remain finite
# whether the threshold is better or worse than another policy -> description of the other policy
COMPARISONS = {BETTER: "significantly more expensive", WORSE: "significantly cheaper"}


class PolicyCost(NamedTuple):
    """Mean cost of a row under an alternative policy.

    Attributes:
        name: Name of the policy.
        cost: Mean cost, with a 95% interval.
        change: Mean cost with the threshold minus the mean cost under this policy, with a 95% interval.
    """

    name: str
    cost: JsonNumbers
    change: JsonNumbers


@dataclass(frozen=True)
class CostEstimate:
    """Mean cost of a row with the threshold that has the lowest expected cost, and under alternative policies.

    Attributes:
        error_cost: Cost of a wrong automatic decision.
        review_cost: Cost of a review.
        overall: The threshold and its automatic rows.
        cost: Mean cost of a row with the threshold, with a 95% interval.
        alternatives: Mean costs under other policies.
    """

    error_cost: float
    review_cost: float
    overall: ThresholdEstimate
    cost: JsonNumbers
    alternatives: tuple[PolicyCost, ...]

    def as_json(self) -> dict[str, Any]:
        """Convert the numbers for JSON; missing numbers are None."""
        return {
            "guaranteed": False,
            "cost_error": self.error_cost,
            "cost_review": self.review_cost,
            "cost": self.cost,
            "alternatives": {
                policy.name: {"cost": policy.cost, "change": policy.change} for policy in self.alternatives
            },
            "overall": {"label": None, **self.overall.as_json()},
            "labels": [],
        }

    def describe(self) -> list[str]:
        """Describe the threshold, its cost and the costs of other policies, one line each."""
        overall = self.overall
        recommendation = (
            f"Review all: none of {overall.n_rows:,} labelled rows has a reliability of at least {overall.threshold}."
        )
        if overall.n_automatic:
            recommendation = (
                f"Use {overall.coverage:.1%} of decisions as they are: those {overall.describe_rows()}. Review the "
                "rest."
            )
        costs = f"an error costs {self.error_cost:g} and a review {self.review_cost:g}"
        warnings = []
        lines = [f"The mean cost of a row is {_format_number(self.cost)}, where {costs}. Alternatives:"]
        for policy in self.alternatives:
            word = compare_interval(policy.change["low"], policy.change["high"])
            if word == WORSE:  # one warning suffices, for the last such policy
                warnings = [
                    f"Warning: {policy.name} is significantly cheaper on these rows; the map may be wrong for them."
                ]
            comparison = COMPARISONS.get(word, "not significantly different")
            lines.append(
                f"  {policy.name}: {policy.cost['value']:.4g}, {comparison}; cost with the threshold minus this cost: "
                f"{_format_number(policy.change)}"
            )
        return [recommendation, *warnings, *lines]


def estimate_costs(sample: EvaluationSample, error_cost: float | None, review_cost: float | None) -> CostEstimate:
    """Estimate the mean cost of a row with the threshold that has the lowest expected cost.

    Intervals come from a bootstrap over groups, given the map. Rows are repeated in proportion to their sampling
    weight.

    Args:
        sample: Labelled rows with their reliability.
        error_cost: Cost of a wrong automatic decision, above 0.
        review_cost: Cost of a review, at least 0.

    Returns:
        The threshold, its cost and the costs of alternative policies.

    Raises:
        InputError: A cost is missing or out of range.
    """
    if error_cost is None or review_cost is None or not (0 < error_cost <= MAX_COST and 0 <= review_cost <= MAX_COST):
        raise InputError(
            f"the cost of an error is {error_cost}, and the cost of a review is {review_cost}; give an error cost "
            f"above 0 and a review cost of at least 0, both at most {MAX_COST:g}, such as 5 and 1"
        )
    threshold = 0.0  # no reviews if a review costs at least as much as an error
    if review_cost < error_cost:
        exact_threshold = 1 - review_cost / error_cost - ROUNDING_TOLERANCE
        # round_threshold adds TIE_TOLERANCE to avoid ties with given reliabilities, but none are given here
        threshold = round_threshold(exact_threshold - TIE_TOLERANCE, np.empty(0), up=True)
    is_automatic = sample.scored.reliability >= threshold
    automatic_costs = error_cost * ~sample.correct  # cost of each row if it is not reviewed
    threshold_costs = np.where(is_automatic[sample.row_number], automatic_costs, review_cost)
    is_reviewed_by_policy = {
        "reviewing all": np.ones(len(sample), dtype=bool),
        "reviewing none": np.zeros(len(sample), dtype=bool),
        "the same cut on the confidence": sample.probability["confidence"] < threshold,
    }
    alternatives = []
    for name, is_reviewed in is_reviewed_by_policy.items():
        costs = np.where(is_reviewed, review_cost, automatic_costs)
        change = sample.mean_with_interval(threshold_costs - costs)
        alternatives.append(PolicyCost(name=name, cost=sample.mean_with_interval(costs), change=change))
    overall = ThresholdEstimate(
        label=None,
        threshold=threshold,
        n_rows=len(is_automatic),
        n_automatic=int(is_automatic.sum()),
        accuracy=float(sample.rows.correct[is_automatic].mean()) if is_automatic.any() else None,
    )
    return CostEstimate(
        error_cost=float(error_cost),
        review_cost=float(review_cost),
        overall=overall,
        cost=sample.mean_with_interval(threshold_costs),
        alternatives=tuple(alternatives),
    )


def _format_number(number: JsonNumbers) -> str:
    """Format a mean with its 95% interval."""
    return f"{number['value']:.4g}{format_interval(number['low'], number['high'], '.4g')}"
