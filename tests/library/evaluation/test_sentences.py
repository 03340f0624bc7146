"""The sentences and numbers that describe a fitted map, its default threshold, and its numbers of rows."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit

from relmap.calibrators.identity import Constant, Identity
from relmap.decisions import FixedDecisions
from relmap.evaluation.assessment import describe_fit
from relmap.evaluation.evaluate import evaluate_map
from relmap.evaluation.sample import EvaluationSample
from relmap.evaluation.sentences import describe_comparison, describe_limits, describe_models
from relmap.maps import fit as map_fit
from relmap.maps.cross_fit import CrossFit
from relmap.maps.fit import MapFit
from relmap.maps.held_out import compute_default_threshold
from relmap.maps.score import FittedMap
from relmap.metrics.comparison import BETTER, describe_metrics
from relmap.projection.labelwise import Intercepts
from tests import maps

PARAMS = maps.SETTINGS.model_copy(update={"metrics": maps.METRIC_SETTINGS})


@pytest.fixture(scope="module")
def fit() -> MapFit:
    return maps.fit_map(maps.rows_of_frame(maps.make_predictions(600, shift=3.0)), params=PARAMS)


def test_a_fit_is_described_by_its_out_of_fold_evaluation(fit):
    document = fit.document
    evaluation = evaluate_map(document, EvaluationSample.from_rows(fit.rows, fit.scored, PARAMS.metrics))
    description = describe_fit(replace(fit, label_warnings=("First.", "Second.")))
    comparison = describe_comparison(evaluation, document, "out of fold on 600 rows")
    *first_lines, accuracy, models = description.lines
    assert (first_lines, models) == ([*comparison], describe_models(document))
    assert re.match(rf"Accuracy .* {100 * fit.rows.correct.mean():.1f}%\. First\. Second\.$", accuracy)
    assert len(description.lines) <= 7  # a command adds one line on the file
    details = set(description.details)
    assert {*describe_metrics(evaluation["metrics"]), *describe_limits(evaluation, document)} <= details
    log_loss = evaluation["metrics"]["nll_correct"]
    expected = {
        "comparison": BETTER,
        "variant": "mrp_pooled",
        "calibrator": "sms",
        "baseline": "ts",
        "log_loss": log_loss,
        "rows": 600,
        "errors": int((~fit.rows.correct).sum()),
        "groups": 600,
    }
    assert {name: description.numbers[name] for name in expected} == expected
    assert log_loss["high"] < 0


def test_decisions_only_have_no_label_spread_and_are_compared_with_one_reliability():
    rows = maps.rows_of_frame(maps.make_confidence_predictions(120).drop("confidence"))
    description = describe_fit(maps.fit_map(rows, params=PARAMS))
    assert "from one reliability" in description.lines[0]
    assert "Label spread" not in " ".join(description.details)
    assert description.numbers["baseline"] is None


def problems_of(decision: list[int], label: list[int], weight: list[float] | None = None) -> list[str]:
    weights = None if weight is None else np.array(weight)
    rows = FixedDecisions(decision=np.array(decision), label=np.array(label), weight=weights)
    return map_fit._find_label_problems(rows, maps.make_map())


# patterns of problems
UNUSED = "never decided, .*: "
BY_CHANCE = "less .*than by chance"
MOST_FREQUENT = "most frequent label .* "


@pytest.mark.parametrize(
    ("decision", "label", "weight", "expected"),
    [
        ([0, 1, 2, 2], [0, 1, 2, 1], None, []),
        ([0, 1, 1, 2], [0, 1, 1, 1], None, [rf"{UNUSED}exact\.$"]),
        ([0, 0, 0], [0, 1, 2], None, [rf"{UNUSED}partial, exact\.$"]),
        # half of the rows are correct, and half have the most frequent label
        ([0, 0, 1, 2], [0, 0, 2, 1], None, []),
        # 1 of 5 is correct, and 3 have the label 2; by chance, (2 * 1 + 2 * 1 + 1 * 3) / 5 = 1.4 are correct
        ([0, 0, 1, 2, 1], [0, 2, 2, 1, 2], None, [rf"{MOST_FREQUENT}60\.0%", BY_CHANCE]),
        # weighted, 3 of 8 are correct, and 6 of 8 have the label 1
        ([0, 1, 2, 2], [0, 1, 2, 1], [1, 1, 1, 5], [rf"{MOST_FREQUENT}75\.0%"]),
        # none is correct; by chance, (2 * 2 + 1 * 1 + 1 * 1) / 4 = 1.5 are correct
        ([0, 0, 1, 2], [1, 2, 0, 0], None, [rf"{MOST_FREQUENT}50\.0%", BY_CHANCE]),
    ],
)
def test_problems_of_labels_are_described(decision, label, weight, expected):
    problems = problems_of(decision, label, weight)
    assert len(problems) == len(expected)
    assert all(map(re.search, expected, problems))


def test_agreement_as_often_as_by_chance_is_not_reported():
    """Of four rows 2 are correct, as by chance. With a fifth row, fewer or more are correct than by chance."""
    assert "by chance" not in " ".join(problems_of([0, 0, 1, 1], [0, 1, 0, 1]))
    assert "by chance" in " ".join(problems_of([0, 0, 1, 1, 0], [0, 1, 0, 1, 1]))
    assert "by chance" not in " ".join(problems_of([0, 0, 1, 1, 0], [0, 1, 0, 1, 0]))


CONFIDENCE = np.linspace(0.05, 0.95, 10)
DECISION = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0])
LABEL = np.array([0, 1, 1, 1, 1, 2, 2, 1, 2, 0])
FOLD = np.array([0] * 4 + [1] * 6)


def made_up_fit(variant: str = "label_intercept", *, weight: np.ndarray | None = None) -> CrossFit:
    """Return a fit with two folds; each model has other shifts of the labels, or keeps the confidence."""
    models = []
    for shift in (0.0, 0.5, -0.25):
        shifts = Intercepts(np.array([shift, 2 * shift, -shift]))
        models.append(FittedMap(Identity(), shifts) if variant == "label_intercept" else FittedMap(Identity()))
    return CrossFit(
        deployed=models[0],
        folds=(models[1], models[2]),
        rows=FixedDecisions(decision=DECISION, confidence=CONFIDENCE, label=LABEL, weight=weight),
        fold=FOLD,
        n_calibrator_rows=10,
        projection_decisions=DECISION,
    )


def test_default_threshold_is_the_reliability_that_70_percent_of_the_rows_reach():
    assert compute_default_threshold(made_up_fit("confidence")) == 0.5
    shift = np.where(FOLD == 0, 0.5, -0.25) * np.array([1, 2, -1])[DECISION]
    reliability = np.sort(expit(logit(CONFIDENCE) + shift))
    assert compute_default_threshold(made_up_fit()) == max(reliability[2], 0.5)
    # with these weights the last five rows are 80% of all rows
    weight = np.array([1.0] * 5 + [4.0] * 5)
    coverage = []
    threshold = compute_default_threshold(made_up_fit(weight=weight))
    for limit in (threshold, np.nextafter(threshold, 1)):
        is_used = expit(logit(CONFIDENCE) + shift) >= limit
        coverage.append(np.average(is_used, weights=weight))
    assert threshold > 0.5
    assert coverage[0] >= 0.7 > coverage[1]


def test_default_threshold_of_decisions_only_is_computed_with_the_deployed_map():
    models = [FittedMap(Constant(share), Intercepts(np.array([0.0, 0.4, 0.8]) + share)) for share in (0.8, 0.9, 0.7)]
    rows = FixedDecisions(decision=DECISION, label=LABEL)
    fit = replace(made_up_fit(), rows=rows, deployed=models[0], folds=(models[1], models[2]))
    # 4 of 10 rows have the decision 0, with the lowest reliability; so it is the third lowest reliability too
    assert compute_default_threshold(fit) == pytest.approx(expit(logit(0.8) + 0.8))


def test_projection_counts_the_decisions_of_each_label():
    fitted = maps.make_variants(4)["label_intercept"]
    fit = replace(made_up_fit(), deployed=FittedMap(Identity(), fitted), projection_decisions=np.array([2, 0, 0, 2, 2]))
    projection = map_fit._projection("label_intercept", fit, 4)
    assert (projection.name, projection.rows, projection.rows_by_label) == ("label_intercept", 5, (2, 0, 3, 0))
    assert projection.fitted.own.alpha.tolist() == fitted.own.alpha.tolist()
