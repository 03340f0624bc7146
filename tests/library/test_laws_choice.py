"""Reported out-of-fold numbers of a fit equal their definitions, with and without weights and groups."""

import re
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import polars as pl
import pytest
from relmap.fitting.correction import fit_correction
from scipy.stats import t as student

from relmap import ReliabilityMap
from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.evaluation.evaluate import compare_scores
from relmap.evaluation.sample import EvaluationSample
from relmap.fitting import model_choice
from relmap.fitting.cross_fit import fit_calibrator
from relmap.fitting.folds import split_folds
from relmap.fitting.label_order import find_better_assignment
from relmap.fitting.map_fit import MapFit
from relmap.maps.document import MapDocument
from relmap.maps.reliability_map import FittedMap, ScoredDecisions
from tests import maps, naive
from tests.naive import Sample

N_ROWS = 150
SEED = 1
COPY_NUMBERS = np.array([20, 340, 60, 30, 50])  # 100 on average: the library counts weights in hundredths of their mean
WEIGHT_UNIT = 0.31  # arbitrary: only the ratios of weights matter
CHOICE_WIDENING = 1.3  # factor of intervals for the choice between models, see the documentation
INPUTS = {  # rows, calibrator and variant
    "logits": (maps.make_predictions(N_ROWS, shift=2.5), "ts", "label_platt"),
    "judge": (maps.make_confidence_predictions(N_ROWS, shift=2.5), "uncal", "label_intercept"),
    "decisions": (
        maps.make_confidence_predictions(N_ROWS, shift=2.5).drop("confidence"),
        "constant",
        "label_intercept",
    ),
}
WEIGHTS_AND_GROUPS = list(product([False, True], repeat=2))  # weights, groups
CASES = [*product(INPUTS, [False, True], [False, True])]
CASE_IDS = ["-".join([kind, *["weights"] * weighted, *["groups"] * grouped]) for kind, weighted, grouped in CASES]


@dataclass(frozen=True, eq=False)
class Case:
    """Rows, the map that was fitted to them, and the number of copies of each row."""

    rows: FixedDecisions
    sample: Sample
    calibrator: str
    map_fit: MapFit

    @property
    def document(self) -> MapDocument:
        return self.map_fit.document

    def out_of_fold(self, *, projected: bool = True) -> ScoredDecisions:
        """Score each row by the stored fit without its fold; only by its confidence if not `projected`."""
        confidence = np.empty(N_ROWS)
        score = np.empty(N_ROWS)
        folds = split_folds(N_ROWS, self.rows.group, SEED).folds
        for fold, members in zip(self.document.folds, folds, strict=True):
            model = (
                FittedMap(fold.calibrator, fold.projection, fold.correction)
                if projected
                else FittedMap(fold.calibrator)
            )
            scored = model(self.rows.take(members))
            confidence[members] = scored.confidence
            score[members] = scored.logit
        return ScoredDecisions(confidence, score)

    def losses(self, *, projected: bool = True) -> np.ndarray:
        return naive.log_losses(self.out_of_fold(projected=projected).logit, self.rows.correct)


def row_copies(weighted: bool) -> np.ndarray:
    return (
        np.random.default_rng(9).permutation(np.tile(COPY_NUMBERS, N_ROWS // 5))
        if weighted
        else np.ones(N_ROWS, dtype=int)
    )


def make_rows(frame: pl.DataFrame, weighted: bool, grouped: bool) -> tuple[FixedDecisions, Sample]:
    """Make rows with weights or groups or both, and the number of copies of each row."""
    copies = row_copies(weighted)
    group = np.array([f"q{number}" for number in np.random.default_rng(2).integers(0, 40, N_ROWS)])
    rows = maps.rows_of_frame(frame.select(pl.exclude("group")))
    rows = replace(rows, group=group if grouped else None, weight=copies * WEIGHT_UNIT if weighted else None)
    return rows, Sample.from_groups(copies, rows.group)


@pytest.fixture(scope="module", params=CASES, ids=CASE_IDS)
def case(request) -> Case:
    kind, weighted, grouped = request.param
    frame, calibrator, variant = INPUTS[kind]
    rows, sample = make_rows(frame, weighted, grouped)
    return Case(rows, sample, calibrator, maps.fit_map(rows, variant, calibrator, SEED))


def widened_interval(sample: Sample, values: np.ndarray) -> list[float]:
    """Return the mean, its standard error by group, and the interval widened for the choice of a model."""
    mean, standard_error = sample.mean_with_standard_error(values)
    half_width = CHOICE_WIDENING * student.ppf(0.975, max(sample.cluster.max(), 1)) * standard_error
    return [mean, standard_error, mean - half_width, mean + half_width]


def test_candidates_and_gain_use_weights_and_groups(case):
    losses = {"confidence": case.losses(projected=False), case.document.projection.name: case.losses()}
    for candidate in case.document.choice.candidates:
        candidate_losses = losses[candidate.variant]
        mean, _, low, high = widened_interval(case.sample, candidate_losses - losses["confidence"])
        expected = [candidate_losses[case.sample.rows].mean(), mean, low, high]
        assert [candidate.nll_correct, candidate.change, candidate.low, candidate.high] == pytest.approx(expected)
    gain = case.document.choice.gains[-1]
    mean, standard_error, *_ = widened_interval(
        case.sample, losses[case.document.projection.name] - losses["confidence"]
    )
    assert (gain.rows, gain.nll_correct, gain.nll_correct_standard_error) == (
        N_ROWS,
        pytest.approx(mean),
        pytest.approx(standard_error),
    )

    rows = case.sample.rows
    correct = case.rows.correct
    after = case.out_of_fold().logit[rows]
    before = case.out_of_fold(projected=False).logit[rows]
    aurc = [naive.metrics(score, np.full(len(rows), 0.5), correct[rows])["aurc"] for score in (after, before)]
    assert gain.aurc == pytest.approx(aurc[0] - aurc[1])


def test_matrix_scaling_comparison_uses_weights_and_groups(case):
    recalibrated = case.document.others.recalibrated
    if case.rows.logits is None:
        assert recalibrated is None
        return
    fold_split = split_folds(N_ROWS, case.rows.group, SEED)
    losses = np.empty(N_ROWS)
    is_changed = np.empty(N_ROWS)
    for index, members in enumerate(fold_split.folds):
        matrix = fit_calibrator("matrix", case.rows.take(fold_split.training_rows(index)), seed=1)
        fold_rows = case.rows.take(members)
        losses[members] = naive.log_losses(FittedMap(matrix)(fold_rows).logit, fold_rows.correct)
        is_changed[members] = matrix(fold_rows.logits).argmax(axis=1) != fold_rows.decision
    reported = [recalibrated.change, recalibrated.standard_error, recalibrated.low, recalibrated.high]

    assert reported == pytest.approx(widened_interval(case.sample, losses - case.losses()))
    assert recalibrated.decisions_changed == pytest.approx(is_changed[case.sample.rows].mean())


def test_accuracy_and_threshold_equal_the_results_of_repeated_rows(case):
    rows = case.sample.rows
    assert case.map_fit.accuracy == pytest.approx(case.rows.correct[rows].mean())

    reliability = case.out_of_fold().reliability
    if case.rows.kind == "decision_only":
        reliability = FittedMap.from_document(case.document)(case.rows).reliability
    threshold = max(value for value in reliability if (reliability[rows] >= value).mean() >= 0.7 - 1e-12)
    assert case.document.default_threshold == max(threshold, 0.5)

    label = case.rows.label[rows]
    majority_accuracy = max((label == value).mean() for value in range(3))
    warning = re.search("most frequent label would be correct in ([0-9.]+)%", " ".join(case.map_fit.label_warnings))
    assert (warning is not None) == (majority_accuracy > case.map_fit.accuracy)


def test_constant_confidence_is_the_weighted_share_of_correct_rows(case):
    if case.calibrator != "constant":
        return
    fold_split = split_folds(N_ROWS, case.rows.group, SEED)
    copies = case.sample.copies
    constants_and_rows = [(case.document.calibrator.fitted, np.arange(N_ROWS))]
    constants_and_rows += [
        (fold.calibrator, fold_split.training_rows(index)) for index, fold in enumerate(case.document.folds)
    ]
    for constant, members in constants_and_rows:
        share = np.repeat(case.rows.correct[members], copies[members]).mean()
        assert constant.share == pytest.approx((share * len(members) + 1) / (len(members) + 2))


@pytest.mark.parametrize(("weighted", "grouped"), WEIGHTS_AND_GROUPS)
def test_stored_corrections_equal_fits_to_the_out_of_fold_logits(weighted, grouped):
    rows, sample = make_rows(INPUTS["logits"][0], weighted, grouped)
    map_fit = maps.fit_map(rows, seed=SEED)
    document = map_fit.document
    folds = split_folds(N_ROWS, rows.group, SEED).folds
    score = np.empty(N_ROWS)
    fold_of = np.empty(N_ROWS)
    for index, (fold, members) in enumerate(zip(document.folds, folds, strict=True)):
        score[members] = FittedMap(fold.calibrator, fold.projection)(rows.take(members)).logit
        fold_of[members] = index
    # The correction of the map comes last; it is fitted on all rows, since no row has its index as a fold
    for index, stored in enumerate([*[fold.correction for fold in document.folds], document.correction]):
        is_used = fold_of != index
        weight = None if rows.weight is None else rows.weight[is_used]
        group = None if rows.group is None else rows.group[is_used]
        expected = fit_correction(score[is_used], rows.correct[is_used], weight, group)
        np.testing.assert_allclose(stored.knots, expected.knots, rtol=1e-9)
        np.testing.assert_allclose(stored.values, expected.values, rtol=1e-6, atol=1e-8)
        assert [stored.first_slope, stored.last_slope] == pytest.approx([expected.first_slope, expected.last_slope])
    corrected = np.select([fold_of == k for k in range(5)], [fold.correction(score) for fold in document.folds])
    chosen = next(
        candidate for candidate in document.choice.candidates if candidate.variant == document.projection.name
    )
    assert chosen.nll_correct == pytest.approx(naive.log_losses(corrected, rows.correct)[sample.rows].mean())

    top = sample.rows[np.argsort(-score[sample.rows], kind="stable")[: -(-len(sample.rows) // 10)]]
    before = ScoredDecisions(score, score).reliability[top].mean()
    after = ScoredDecisions(score, corrected).reliability[top].mean()
    numbers = re.findall(r"\d\.\d+", map_fit.correction_summary[0])
    losses = [naive.log_losses(logit, rows.correct)[sample.rows].mean() for logit in (score, corrected)]
    expected = [f"{loss:.4f}" for loss in losses] + [
        f"{mean:.3f}" for mean in (before, after, rows.correct[top].mean())
    ]
    assert numbers == expected


def expected_choice(losses: dict[str, np.ndarray], sample: Sample) -> str:
    """Choose the all-logits model, unless the best candidate is better by more than two standard errors."""
    means = {name: loss[sample.rows].mean() for name, loss in losses.items()}
    best = min(means, key=means.__getitem__)
    mean, standard_error = sample.mean_with_standard_error(losses["label_vector"] - losses[best])
    return "label_vector" if mean <= 2 * standard_error else best


@pytest.mark.parametrize(("weighted", "grouped"), WEIGHTS_AND_GROUPS)
def test_model_choice_uses_weights_and_groups(weighted, grouped):
    """Many differences are near two standard errors, so an ignored weight or group changes a choice."""
    n = 60
    choices = []
    group = np.array([f"g{row // 6}" for row in range(n)])
    for seed in range(60):
        generator = np.random.default_rng(seed)
        group_effect = generator.normal(size=10)[np.arange(n) // 6]
        losses = {
            "confidence": 0.7 + 0.1 * generator.normal(size=n),
            "mrp": 0.6 + 0.1 * generator.normal(size=n),
            "label_vector": 0.7 + 0.1 * group_effect + 0.2 * generator.normal(size=n),
        }
        copies = generator.integers(1, 10, n) if weighted else np.ones(n, dtype=int)
        rows = FixedDecisions(
            decision=np.zeros(n, dtype=int),
            label=np.zeros(n, dtype=int),
            group=group if grouped else None,
            weight=copies.astype(float) if weighted else None,
        )
        comparison = model_choice.compare_candidates(losses, rows)
        chosen = model_choice.select_candidate(comparison, losses, rows).variant
        assert chosen == expected_choice(losses, Sample.from_groups(copies, rows.group))
        choices.append(chosen)

    assert 5 < choices.count("label_vector") < 55


@pytest.mark.parametrize(("weighted", "grouped"), WEIGHTS_AND_GROUPS)
def test_recommendation_of_the_fit_equals_the_evaluation(weighted, grouped, monkeypatch):
    """Both use the same rows in the same order, including the resamples."""
    frame = INPUTS["logits"][0].select(pl.exclude("group"))
    rows, _ = make_rows(INPUTS["logits"][0], weighted, grouped)
    if weighted:
        frame = frame.with_columns(inverse_probability=pl.Series(rows.weight))
    if grouped:
        frame = frame.with_columns(query=pl.Series(rows.group))
    recorded = []

    def recorded_comparison(sample: EvaluationSample) -> dict[str, object]:
        recorded.append(compare_scores(sample))
        return recorded[-1]

    monkeypatch.setattr(model_choice, "compare_scores", recorded_comparison)
    model = ReliabilityMap().fit(frame, groups="query" if grouped else None)
    evaluation = model.evaluate(frame, groups="query" if grouped else None)
    (recommended,) = recorded
    expected = evaluation.to_dict()

    for name, numbers in recommended["metrics"].items():
        assert list(numbers.values()) == pytest.approx(list(expected["metrics"][name].values()), nan_ok=True), name
    assert [recommended[key] for key in ("rows", "errors", "groups")] == [
        expected[key] for key in ("rows", "errors", "groups")
    ]
    assert str(model.recommendation_).splitlines()[0] == str(evaluation).splitlines()[0]
    assert model.recommendation_.to_dict()["accuracy"] == pytest.approx(expected["accuracy"]["value"])
    assert ("Rows are weighted by" in str(model.recommendation_)) == weighted
    assert ("the sampling of groups" in str(model.recommendation_)) == grouped


@pytest.mark.parametrize("grouped", [False, True])
def test_better_label_order_equals_the_order_found_with_repeated_rows(grouped):
    for seed in range(30):
        generator = np.random.default_rng(seed)
        column, label = generator.integers(0, 3, (2, 80))
        label = np.where(generator.random(80) < 0.3 + 0.5 * generator.random(), (column + 1) % 3, label)
        copies = generator.integers(1, 12, 80)
        group = generator.integers(0, 30, 80) if grouped else np.arange(80)
        repeated_rows = np.repeat(np.arange(80), copies)
        weighted = find_better_assignment(column, label, 3, weight=copies * 0.7, groups=group if grouped else None)
        repeated = find_better_assignment(column[repeated_rows], label[repeated_rows], 3, groups=group[repeated_rows])
        assert (weighted is None) == (repeated is None)
        if weighted is not None:
            assert weighted.label_of_column == repeated.label_of_column
            assert weighted.accuracy == pytest.approx(repeated.accuracy)
            assert weighted.better_accuracy == pytest.approx(repeated.better_accuracy)


@pytest.mark.parametrize(("weighted", "grouped"), WEIGHTS_AND_GROUPS)
def test_label_order_check_uses_weights_and_groups(weighted, grouped):
    """Most rows match another order, but they have little weight, or all belong to one group."""
    decision = np.arange(120) % 2
    is_swapped = np.arange(120) < 90
    logits = np.eye(2)[decision] * 2.0
    frame = pl.DataFrame({"logits": logits.tolist(), "label": np.where(is_swapped, 1 - decision, decision)})
    if weighted:
        frame = frame.with_columns(inverse_probability=pl.Series(np.where(is_swapped, 1.0, 40.0)))
    if grouped:
        frame = frame.with_columns(query=pl.Series(np.where(is_swapped, -1, np.arange(120))))
    fit = ReliabilityMap(variant="label_intercept").fit
    if weighted or grouped:
        fit(frame, groups="query" if grouped else None)
    else:
        with pytest.raises(InputError, match=r"75\.0%"):
            fit(frame)
