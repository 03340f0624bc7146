"""The exact sentences and numbers that describe a fitted map."""

from dataclasses import replace

import numpy as np
import pytest
from relmap.evaluation.verdict import describe_candidates, describe_label_spread
from relmap.fitting.model_choice import MeanDifference, ModelChoice
from relmap.maps.correction import Correction
from relmap.metrics.advice import KEEP, Advice
from scipy.special import expit, logit

from relmap.calibrators.identity import Identity
from relmap.calibrators.matrix import Matrix
from relmap.decisions import FixedDecisions
from relmap.fitting import map_fit
from relmap.fitting.cross_fit import CrossFitCorrections, CrossFitResult, FoldFit, MatrixScalingComparison
from relmap.fitting.map_fit import MapFit, compute_default_threshold
from relmap.maps.constant import Constant
from relmap.maps.document import Candidate, Choice, Gain, MapDocument, MatrixScalingResult
from relmap.maps.reliability_map import ScoredDecisions
from relmap.projection.curves import Confidence
from relmap.projection.labelwise import Intercepts
from relmap.projection.variants import VARIANTS
from tests import maps

MRP = VARIANTS["mrp"].description
CANDIDATES = (
    Candidate(variant="confidence", nll_correct=0.6, change=0.0, low=0.0, high=0.0),
    Candidate(variant="label_platt", nll_correct=0.55, change=-0.05, low=-0.08, high=-0.02),
    Candidate(variant="mrp", nll_correct=0.51, change=-0.0312, low=-0.07, high=0.01),
)
GAINS = (
    Gain(rows=60, nll_correct=-0.0012, nll_correct_standard_error=0.0103, aurc=-0.00001),
    Gain(rows=1200, nll_correct=0.02, nll_correct_standard_error=0.0004, aurc=0.0034),
)


def document_of(variant: str = "mrp", *, requested: str = "mrp", gains: tuple[Gain, ...] = (), **fields) -> MapDocument:
    document = maps.make_map(variant)
    choice = Choice(asked=requested, reason="one curve", candidates=CANDIDATES, gains=gains)
    held_out = document.held_out.model_copy(update={"rows": 1200})
    return document.model_copy(update={"choice": choice, "held_out": held_out, "default_threshold": 0.71239} | fields)


def fit_of(document: MapDocument, **fields) -> MapFit:
    rows = FixedDecisions(decision=np.zeros(1, dtype=np.int64), label=np.zeros(1, dtype=np.int64))
    defaults = MapFit(
        document=document,
        rows=rows,
        scored=ScoredDecisions(np.ones(1), np.ones(1)),
        accuracy=0.8126,
        label_warnings=(),
        advice=Advice(KEEP, "made up"),
    )
    return replace(defaults, **fields)


THRESHOLD = "By default, `apply` uses decisions with a reliability of 0.7124 or more."
GAIN = (
    "It lowers the log loss compared with the confidence by 0.0312 (95% interval, adjusted for the model choice: "
    "-0.0700 to +0.0100). With 3,600 more labelled rows, that interval would be half as wide."
)
SPREAD = describe_label_spread(0.1, 0.05)
POOLED = "Too few rows for a curve of its own: "


def test_description_has_its_sentences_in_order():
    document = document_of(requested="auto", gains=GAINS)
    lines = fit_of(document, correction_summary=("Corrected.",), label_warnings=("First.", "Second.")).describe()
    pooled = [line for line in lines if line.startswith(POOLED)]
    assert lines == [
        "The map contains one curve.",
        THRESHOLD,
        "Corrected.",
        GAIN,
        *describe_candidates(document.out_of_fold_results["candidates"], document, "out of fold"),
        SPREAD,
        *pooled,
        f"Change of the metrics from the confidence to {MRP}, by number of labelled rows:",
        "        60 rows: log loss -0.0012 (standard error 0.0103), AURC +0.0000",
        "     1,200 rows: log loss +0.0200 (standard error 0.0004), AURC +0.0034",
        "Accuracy of the decisions: 81.3%. First. Second.",
    ]
    assert len(pooled) == 1


def test_description_of_a_requested_variant_has_no_candidates_and_no_empty_parts():
    document = document_of("label_vector", requested="label_vector")
    candidate = CANDIDATES[2].model_copy(update={"variant": "label_vector", "change": 0.00004})
    choice = document.choice.model_copy(update={"candidates": (candidate,)})
    document = document.model_copy(update={"choice": choice})
    lines = fit_of(document, smallest_relevant_change=0.0005).describe()
    assert lines == [
        "The map contains one curve.",
        THRESHOLD,
        "No relevant difference in the log loss compared with the confidence was found: it changes by less than 0.0005 "
        "(95% interval, adjusted for the model choice: -0.0700 to +0.0100). With 3,600 more labelled rows, that "
        "interval would be half as wide.",
        SPREAD,
        "Accuracy of the decisions: 81.3%.",
    ]


def test_description_of_decisions_only_names_the_baseline_and_has_no_spread():
    document = document_of(input="decision_only")
    text = " ".join(fit_of(document).describe())
    assert "It lowers the log loss compared with one reliability for all decisions by 0.0312" in text
    assert "Label spread" not in text


def test_description_of_matrix_scaling_follows_the_gains():
    better = MatrixScalingResult(change=-0.2, standard_error=0.01, low=-0.3, high=-0.1, decisions_changed=0.1)
    document = document_of()
    others = map_fit.FittedAlternatives(recalibrated=better)
    document = document.model_copy(update={"others": others})
    *_, line, accuracy = fit_of(document).describe()
    assert "is significantly better" in line
    assert accuracy == "Accuracy of the decisions: 81.3%."


@pytest.mark.parametrize(
    ("target", "n_rows"),
    [
        (0.04, "0"),
        (0.1, "0"),
        (0.02, "3,600"),  # the interval of half-width 0.04 is halved by four times the rows
        (0.03, "934"),  # 1,200 * 16 / 9 = 2,133.3, rounded up
    ],
)
def test_rows_that_are_needed_for_an_interval(target, n_rows):
    lines = fit_of(document_of()).describe(target)
    expected = f"For an interval of ±{target:g}, about {n_rows} more labelled rows are needed."
    assert lines[2:4] == [GAIN, expected]


def test_a_map_with_the_confidence_only_has_the_gains_of_the_best_alternative():
    lines = fit_of(document_of("confidence", gains=GAINS)).describe(0.01)
    assert lines[2] == SPREAD
    assert lines[3] == f"Change of the metrics from the confidence to {MRP}, by number of labelled rows:"
    assert len(lines) == 7


def problems_of(decision: list[int], label: list[int], weight: list[float] | None = None) -> list[str]:
    weights = None if weight is None else np.array(weight)
    rows = FixedDecisions(decision=np.array(decision), label=np.array(label), weight=weights)
    return map_fit._find_label_problems(rows, maps.make_map())


UNUSED = "Labels that are never decided, or never the true label: "
BY_CHANCE = "Decisions and labels agree less often than by chance: check the numbering of the labels."


def majority_message(percentage: str) -> str:
    return f"Always deciding the most frequent label would be correct in {percentage}%."


@pytest.mark.parametrize(
    ("decision", "label", "weight", "expected"),
    [
        ([0, 1, 2, 2], [0, 1, 2, 1], None, []),
        ([0, 1, 1, 2], [0, 1, 1, 1], None, [f"{UNUSED}exact."]),
        ([0, 0, 0], [0, 1, 2], None, [f"{UNUSED}partial, exact."]),
        # half of the rows are correct, and half have the most frequent label
        ([0, 0, 1, 2], [0, 0, 2, 1], None, []),
        # 1 of 5 is correct, and 3 have the label 2; by chance, (2 * 1 + 2 * 1 + 1 * 3) / 5 = 1.4 are correct
        ([0, 0, 1, 2, 1], [0, 2, 2, 1, 2], None, [majority_message("60.0"), BY_CHANCE]),
        # weighted, 3 of 8 are correct, and 6 of 8 have the label 1
        ([0, 1, 2, 2], [0, 1, 2, 1], [1, 1, 1, 5], [majority_message("75.0")]),
        # none is correct; by chance, (2 * 2 + 1 * 1 + 1 * 1) / 4 = 1.5 are correct
        ([0, 0, 1, 2], [1, 2, 0, 0], None, [majority_message("50.0"), BY_CHANCE]),
    ],
)
def test_problems_of_labels_are_described(decision, label, weight, expected):
    assert problems_of(decision, label, weight) == expected


def test_agreement_as_often_as_by_chance_is_not_reported():
    """Of four rows 2 are correct, as by chance. With a fifth row, fewer or more are correct than by chance."""
    assert BY_CHANCE not in problems_of([0, 0, 1, 1], [0, 1, 0, 1])
    assert BY_CHANCE in problems_of([0, 0, 1, 1, 0], [0, 1, 0, 1, 1])
    assert BY_CHANCE not in problems_of([0, 0, 1, 1, 0], [0, 1, 0, 1, 0])


CONFIDENCE = np.linspace(0.05, 0.95, 10)
DECISION = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0])
LABEL = np.array([0, 1, 1, 1, 1, 2, 2, 1, 2, 0])
FOLD = np.array([0] * 4 + [1] * 6)


def made_up_result(*, weight: np.ndarray | None = None) -> CrossFitResult:
    """Return a result of two folds, whose rows have a confidence; each fit has other shifts of the labels."""
    fits = []
    for shift in (0.0, 0.5, -0.25):
        variants = {"confidence": Confidence(), "label_intercept": Intercepts(np.array([shift, 2 * shift, -shift]))}
        fits.append(FoldFit(calibrator=Identity(), variants=variants, matrix=None))
    rows = FixedDecisions(decision=DECISION, confidence=CONFIDENCE, label=LABEL, weight=weight)
    return CrossFitResult(
        full_fit=fits[0],
        fold_fits=(fits[1], fits[2]),
        rows=rows,
        fold=FOLD,
        n_calibrator_rows=10,
        projection_decisions=DECISION,
        min_reliability=1e-6,
    )


def test_default_threshold_is_the_reliability_that_70_percent_of_the_rows_reach():
    result = made_up_result()
    assert compute_default_threshold(result, "confidence") == 0.5
    shift = np.where(FOLD == 0, 0.5, -0.25) * np.array([1, 2, -1])[DECISION]
    reliability = np.sort(expit(logit(CONFIDENCE) + shift))
    assert compute_default_threshold(result, "label_intercept") == max(reliability[2], 0.5)
    # with these weights the last five rows are 80% of all rows
    weight = np.array([1.0] * 5 + [4.0] * 5)
    weighted = made_up_result(weight=weight)
    coverage = []
    threshold = compute_default_threshold(weighted, "label_intercept")
    for limit in (threshold, np.nextafter(threshold, 1)):
        is_used = expit(logit(CONFIDENCE) + shift) >= limit
        coverage.append(np.average(is_used, weights=weight))
    assert threshold > 0.5
    assert coverage[0] >= 0.7 > coverage[1]


def test_default_threshold_of_decisions_only_is_computed_with_the_deployed_map():
    fits = []
    for share in (0.8, 0.9, 0.7):
        variants = {"label_intercept": Intercepts(np.array([0.0, 0.4, 0.8]) + share)}
        fits.append(FoldFit(calibrator=Constant(share), variants=variants, matrix=None))
    rows = FixedDecisions(decision=DECISION, label=LABEL)
    result = replace(made_up_result(), rows=rows, full_fit=fits[0], fold_fits=(fits[1], fits[2]))
    # 4 of 10 rows have the decision 0, with the lowest reliability; so it is the third lowest reliability too
    assert compute_default_threshold(result, "label_intercept") == pytest.approx(expit(logit(0.8) + 0.8))


def choice_of(result: CrossFitResult) -> ModelChoice:
    choice = Choice(asked="auto", reason="made up", candidates=CANDIDATES, gains=())
    return ModelChoice(variant="label_intercept", advice=Advice(KEEP, "made up"), choice=choice, result=result)


def test_summary_of_a_correction_has_losses_and_reliabilities_before_and_after():
    """The most reliable tenth is one of ten rows, or the tenth of the copies if rows have weights."""
    halves = Correction(np.array([-1.0, 1.0]), np.array([-0.5, 0.75]), first_slope=0.5, last_slope=0.5)
    corrections = {"label_intercept": CrossFitCorrections(full=halves, folds=(halves, halves))}
    shift = np.where(FOLD == 0, 0.5, -0.25) * np.array([1, 2, -1])[DECISION]
    before = logit(CONFIDENCE) + shift
    after = halves(before)
    correct = DECISION == LABEL
    for weight in (None, np.array([1.0] * 8 + [30.0, 0.5])):
        result = replace(made_up_result(weight=weight), corrections=corrections)
        numbers = []
        for score in (before, after):
            numbers.append(np.average(np.logaddexp(0, np.where(correct, -score, score)), weights=weight))
        order = np.argsort(-before[result.rows.copies], kind="stable")
        n_top = -(-len(order) // 10)
        top = result.rows.copies[order[:n_top]]
        assert map_fit._summarize_correction(choice_of(result)) == (
            "A monotone correction of the score, which preserves the ranking, changes the out-of-fold log loss from "
            f"{numbers[0]:.4f} to {numbers[1]:.4f}, and the mean reliability of the most reliable 10% from "
            f"{expit(before[top]).mean():.3f} to {expit(after[top]).mean():.3f}; their accuracy is "
            f"{correct[top].mean():.3f}.",
        )
    assert map_fit._summarize_correction(choice_of(made_up_result())) == ()


def test_alternatives_are_the_other_variants_without_the_confidence_and_signals():
    result = made_up_result()
    variants = maps.make_variants()
    full_variants = {
        "confidence": Confidence(),
        "label_intercept": variants["label_intercept"],
        "mrp": variants["mrp"],
        "label_signals": variants["mrp"],
        "label_vector": variants["label_vector"],
    }
    result = replace(result, full_fit=replace(result.full_fit, variants=full_variants))
    alternatives = map_fit._build_alternatives(choice_of(result))
    assert tuple(alternatives.variants) == ("mrp", "label_vector")
    assert alternatives.matrix is None
    assert alternatives.recalibrated is None


def test_matrix_scaling_is_compared_with_the_deployed_variant(monkeypatch):
    weight = np.array([1.0, 2.0, 0.5, 3.0, 1.0, 1.5, 4.0, 1.0, 2.0, 0.25])
    group = np.array(["a", "a", "b", "b", "b", "c", "d", "d", "e", "e"])
    result = made_up_result(weight=weight)
    result = replace(result, rows=replace(result.rows, group=group))
    log_loss = np.linspace(0.1, 1.3, 10) ** 2
    comparison = MatrixScalingComparison(log_loss=log_loss, changed_share=0.125)
    monkeypatch.setattr(CrossFitResult, "matrix_scaling_comparison", lambda _: comparison)
    losses = result.out_of_fold_losses("label_intercept")
    difference = MeanDifference.from_differences(log_loss - losses, group, weight)
    alternatives = map_fit._build_alternatives(choice_of(result))
    assert alternatives.recalibrated == MatrixScalingResult(
        change=difference.mean,
        standard_error=difference.standard_error,
        low=difference.interval[0],
        high=difference.interval[1],
        decisions_changed=0.125,
    )


def test_alternatives_that_a_map_cannot_store_are_omitted(monkeypatch):
    comparison = MatrixScalingComparison(log_loss=np.linspace(0.1, 1, 10), changed_share=0.25)
    monkeypatch.setattr(CrossFitResult, "matrix_scaling_comparison", lambda _: comparison)
    result = made_up_result()
    infinite = Matrix(np.full((3, 3), np.inf), np.zeros(3))
    result = replace(result, full_fit=replace(result.full_fit, matrix=infinite))
    alternatives = map_fit._build_alternatives(choice_of(result))
    assert alternatives.matrix is None
    assert alternatives.variants == {}
    assert alternatives.recalibrated.decisions_changed == 0.25


def test_projection_counts_the_decisions_of_each_label():
    fitted = maps.make_variants(4)["label_intercept"]
    full_fit = replace(made_up_result().full_fit, variants={"label_intercept": fitted})
    result = replace(made_up_result(), full_fit=full_fit, projection_decisions=np.array([2, 0, 0, 2, 2]))
    projection = map_fit._build_projection(choice_of(result), 4)
    assert (projection.name, projection.rows, projection.rows_by_label) == ("label_intercept", 5, (2, 0, 3, 0))
    assert projection.fitted.own.alpha.tolist() == fitted.own.alpha.tolist()
