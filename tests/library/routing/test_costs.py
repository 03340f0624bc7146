"""Costs of automatic decisions: the texts, and the threshold with the lowest expected cost."""

import re

import numpy as np
import pytest
from scipy.special import logit

from relmap.decisions import FixedDecisions
from relmap.evaluation.sample import EvaluationSample
from relmap.maps.score import ScoredDecisions
from relmap.routing.costs import CostEstimate, PolicyCost, estimate_costs
from relmap.routing.thresholds import ThresholdEstimate
from tests import maps

RELIABILITY = np.array([0.95, 0.9, 0.8, 0.8, 0.6, 0.3])
CORRECT = np.array([True, True, False, True, False, False])


def cost(value: float, low: float | None = None, high: float | None = None) -> dict[str, float | None]:
    return {"value": value, "low": low, "high": high}


def make_estimate(n_automatic: int, *alternatives: PolicyCost) -> CostEstimate:
    overall = ThresholdEstimate(label=None, threshold=0.8, n_rows=1200, n_automatic=n_automatic, accuracy=0.9)
    return CostEstimate(5.0, 1.5, overall, cost(0.75, 0.5, 1.0), alternatives)


def make_sample() -> EvaluationSample:
    decision = np.zeros(6, dtype=np.int64)
    rows = FixedDecisions(decision=decision, label=np.where(CORRECT, 0, 1))
    confidence = np.array([0.5, 0.99, 0.99, 0.5, 0.99, 0.99])
    scored = ScoredDecisions(confidence=confidence, logit=logit(RELIABILITY))
    return EvaluationSample.from_rows(rows, scored, maps.METRIC_SETTINGS)


def test_costs_are_described_with_a_warning_if_another_policy_is_cheaper():
    estimate = make_estimate(
        300,
        PolicyCost("reviewing all", cost(1.5), cost(-0.75, -1.0, -0.5)),
        PolicyCost("reviewing none", cost(0.25), cost(0.5, 0.25, 0.75)),
        PolicyCost("the same cut on the confidence", cost(0.8), cost(-0.05, -0.1, 0.1)),
        PolicyCost("another", cost(0.75), cost(0.0)),
    )
    recommendation, warning, costs, *policies = estimate.describe()
    assert recommendation.startswith("Use 25.0% of decisions ")
    assert recommendation.endswith(". Review the rest.")
    assert re.match(r"Warning: reviewing none .*cheaper\b", warning)
    assert re.search(r" 0\.75 \(95% interval 0\.5 to 1\),.* error costs 5 .*review 1\.5\.", costs)
    policy_line = re.compile(r"  (.+): ([\d.]+), [^;]*?\b(more|cheaper|not)\b[^;]*; .*: (-?\d.*)")
    assert [policy_line.fullmatch(line).groups() for line in policies] == [
        ("reviewing all", "1.5", "more", "-0.75 (95% interval -1 to -0.5)"),
        ("reviewing none", "0.25", "cheaper", "0.5 (95% interval 0.25 to 0.75)"),
        ("the same cut on the confidence", "0.8", "not", "-0.05 (95% interval -0.1 to 0.1)"),
        ("another", "0.75", "not", "0"),
    ]


def test_costs_without_automatic_decisions_say_that_all_are_reviewed():
    assert re.fullmatch(r"Review all: none of 1,200 .* 0\.8\.", make_estimate(0).describe()[0])


def test_the_costs_of_all_policies_are_means_over_rows():
    estimate = estimate_costs(make_sample(), error_cost=5, review_cost=1)
    assert estimate.overall.threshold == pytest.approx(0.8)
    assert estimate.overall.threshold <= 0.8  # the boundary itself is used
    assert (estimate.overall.n_rows, estimate.overall.n_automatic, estimate.overall.accuracy) == (6, 4, 0.75)
    assert estimate.cost["value"] == pytest.approx((5 + 2 * 1) / 6)  # one error and two reviews
    costs = {policy.name: policy.cost["value"] for policy in estimate.alternatives}
    changes = {policy.name: policy.change["value"] for policy in estimate.alternatives}
    # 4 of 6 rows have a confidence of at least 0.8, and 3 of these are wrong; in total, 3 rows are wrong
    assert costs == pytest.approx(
        {
            "reviewing all": 1,
            "reviewing none": 3 * 5 / 6,
            "the same cut on the confidence": (2 * 1 + 3 * 5) / 6,
        }
    )
    assert changes == pytest.approx({name: 7 / 6 - value for name, value in costs.items()})


@pytest.mark.parametrize(
    ("error_cost", "review_cost", "threshold"), [(5, 0, 1), (5, 5, 0), (4, 5, 0), (1e30, 1, 1), (10, 1, 0.9)]
)
def test_the_threshold_equalizes_expected_cost_and_cost_of_a_review(error_cost, review_cost, threshold):
    estimate = estimate_costs(make_sample(), error_cost, review_cost)
    assert estimate.overall.threshold == pytest.approx(threshold, abs=1e-6)
    assert (estimate.error_cost, estimate.review_cost) == (error_cost, review_cost)
