"""What a fit reports of out-of-fold rows: each number against its definition, with weights and groups in every way."""

import re
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import polars as pl
import pytest
from scipy.stats import t as student

from relmap import ReliabilityMap
from relmap.errors import InputError
from relmap.fitting import model_choice
from relmap.fitting.correction import fit_correction
from relmap.fitting.cross_fit import fit_calibrator
from relmap.fitting.folds import split_folds
from relmap.fitting.label_order import find_better_assignment
from relmap.fitting.map_fit import MapFit
from relmap.io.rows import PredictedRows
from relmap.maps.document import MapDocument
from relmap.maps.reliability_map import FittedMap, ScoredDecisions
from tests import maps, naive
from tests.naive import Sample

N = 150
SEED = 1
COPIES = np.array([20, 340, 60, 30, 50])  # 100 on average: the library counts weights in hundredths of their mean
WIDER = 1.3  # than for one fit, as the documentation states
KINDS = {  # rows, calibrator and variant
    "logits": (maps.make_predictions(N, shift=2.5), "ts", "label_platt"),
    "judge": (maps.make_confidence_predictions(N, shift=2.5), "uncal", "label_intercept"),
    "decisions": (maps.make_confidence_predictions(N, shift=2.5).drop("confidence"), "constant", "label_intercept"),
}
BOTH = list(product([False, True], repeat=2))  # weights, groups
ASKED = [*product(KINDS, [False, True], [False, True])]
IDS = ["-".join([kind, *["weights"] * weighted, *["groups"] * grouped]) for kind, weighted, grouped in ASKED]


@dataclass(frozen=True, eq=False)
class Case:
    """Rows, the map that was fitted on them, and how often each row counts."""

    rows: PredictedRows
    sample: Sample
    calibrator: str
    learned: MapFit

    @property
    def document(self) -> MapDocument:
        return self.learned.document

    def out_of_fold(self, variant: bool = True) -> ScoredDecisions:
        """Score each row with what the map holds of the fit without its fold; or the confidence alone."""
        confidence = np.empty(N)
        score = np.empty(N)
        folds = split_folds(N, self.rows.group, SEED).folds
        for fold, members in zip(self.document.folds, folds, strict=True):
            model = (
                FittedMap(fold.calibrator, fold.projection, fold.correction) if variant else FittedMap(fold.calibrator)
            )
            scored = model(self.rows.take(members))
            confidence[members] = scored.confidence
            score[members] = scored.logit
        return ScoredDecisions(confidence, score)

    def losses(self, variant: bool = True) -> np.ndarray:
        return naive.log_losses(self.out_of_fold(variant).logit, self.rows.correct)


def copies_of(weighted: bool) -> np.ndarray:
    return np.random.default_rng(9).permutation(np.tile(COPIES, N // 5)) if weighted else np.ones(N, dtype=int)


def rows_with(frame: pl.DataFrame, weighted: bool, grouped: bool) -> tuple[PredictedRows, Sample]:
    """The rows with weights or groups or both, and how often each of them counts."""
    copies = copies_of(weighted)
    group = np.array([f"q{number}" for number in np.random.default_rng(2).integers(0, 40, N)])
    rows = maps.rows_of_frame(frame.select(pl.exclude("group")))
    rows = replace(rows, group=group if grouped else None, weight=copies * 0.31 if weighted else None)
    return rows, Sample.from_groups(copies, rows.group)


@pytest.fixture(scope="module", params=ASKED, ids=IDS)
def case(request) -> Case:
    kind, weighted, grouped = request.param
    frame, calibrator, variant = KINDS[kind]
    rows, sample = rows_with(frame, weighted, grouped)
    return Case(rows, sample, calibrator, maps.fit_map(rows, variant, calibrator, SEED))


def interval_of_mean(sample: Sample, values: np.ndarray) -> list[float]:
    """The mean, its standard error by group, and the ends of the interval made wider for the choice."""
    mean, error = sample.mean_with_error(values)
    half = WIDER * student.ppf(0.975, max(sample.cluster.max(), 1)) * error
    return [mean, error, mean - half, mean + half]


def test_candidates_and_the_gain_have_the_error_of_weighted_groups(case):
    losses = {"confidence": case.losses(False), case.document.projection.name: case.losses()}
    for candidate in case.document.choice.candidates:
        own = losses[candidate.variant]
        mean, _, low, high = interval_of_mean(case.sample, own - losses["confidence"])
        expected = [own[case.sample.rows].mean(), mean, low, high]
        assert [candidate.nll_correct, candidate.change, candidate.low, candidate.high] == pytest.approx(expected)
    gain = case.document.choice.gains[-1]
    mean, error, *_ = interval_of_mean(case.sample, losses[case.document.projection.name] - losses["confidence"])
    assert (gain.rows, gain.nll_correct, gain.nll_correct_standard_error) == (
        N,
        pytest.approx(mean),
        pytest.approx(error),
    )
    rows = case.sample.rows
    correct = case.rows.correct
    after, before = (case.out_of_fold(variant).logit[rows] for variant in (True, False))
    aurc = [naive.metrics(score, np.full(len(rows), 0.5), correct[rows])["aurc"] for score in (after, before)]
    assert gain.aurc == pytest.approx(aurc[0] - aurc[1])


def test_matrix_scaling_is_compared_out_of_fold_by_weighted_groups(case):
    recalibrated = case.document.others.recalibrated
    if case.rows.logits is None:
        assert recalibrated is None
        return
    division = split_folds(N, case.rows.group, SEED)
    losses = np.empty(N)
    moved = np.empty(N)
    for place, fold in enumerate(division.folds):
        matrix = fit_calibrator("matrix", case.rows.take(division.training_rows(place)), seed=1)
        unseen = case.rows.take(fold)
        losses[fold] = naive.log_losses(FittedMap(matrix)(unseen).logit, unseen.correct)
        moved[fold] = matrix(unseen.logits).argmax(axis=1) != unseen.decision
    shown = [recalibrated.change, recalibrated.standard_error, recalibrated.low, recalibrated.high]
    assert shown == pytest.approx(interval_of_mean(case.sample, losses - case.losses()))
    assert recalibrated.decisions_changed == pytest.approx(moved[case.sample.rows].mean())


def test_accuracy_and_threshold_are_those_of_repeated_rows(case):
    rows = case.sample.rows
    assert case.learned.accuracy == pytest.approx(case.rows.correct[rows].mean())
    reliability = case.out_of_fold().reliability
    if case.rows.kind == "decision_only":
        reliability = FittedMap.from_document(case.document)(case.rows).reliability
    reached = max(value for value in reliability if (reliability[rows] >= value).mean() >= 0.7 - 1e-12)
    assert case.document.default_threshold == max(reached, 0.5)
    label = case.rows.label[rows]
    often = max((label == value).mean() for value in range(3))
    shown = re.search("most frequent label would be correct in ([0-9.]+)%", " ".join(case.learned.label_warnings))
    assert (shown is not None) == (often > case.learned.accuracy)


def test_the_constant_of_a_judge_is_the_weighted_share_of_correct_rows(case):
    if case.calibrator != "constant":
        return
    folds = split_folds(N, case.rows.group, SEED)
    copies = case.sample.copies
    parts = [(case.document.calibrator.fitted, np.arange(N))]
    parts += [(fold.calibrator, folds.training_rows(place)) for place, fold in enumerate(case.document.folds)]
    for constant, members in parts:
        share = np.repeat(case.rows.correct[members], copies[members]).mean()
        assert constant.share == pytest.approx((share * len(members) + 1) / (len(members) + 2))


@pytest.mark.parametrize(("weighted", "grouped"), BOTH)
def test_auto_stores_the_corrections_of_the_weighted_out_of_fold_logits(weighted, grouped):
    rows, sample = rows_with(KINDS["logits"][0], weighted, grouped)
    learned = maps.fit_map(rows, seed=SEED)
    document = learned.document
    folds = split_folds(N, rows.group, SEED).folds
    score = np.empty(N)
    fold_of = np.empty(N)
    for place, (fold, members) in enumerate(zip(document.folds, folds, strict=True)):
        score[members] = FittedMap(fold.calibrator, fold.projection)(rows.take(members)).logit
        fold_of[members] = place
    for place, stored in enumerate([*[fold.correction for fold in document.folds], document.correction]):
        used = fold_of != place
        weight = None if rows.weight is None else rows.weight[used]
        group = None if rows.group is None else rows.group[used]
        expected = fit_correction(score[used], rows.correct[used], weight, group)
        np.testing.assert_allclose(stored.knots, expected.knots, rtol=1e-9)
        np.testing.assert_allclose(stored.values, expected.values, rtol=1e-6, atol=1e-8)
        assert [stored.first_slope, stored.last_slope] == pytest.approx([expected.first_slope, expected.last_slope])
    corrected = np.select([fold_of == k for k in range(5)], [fold.correction(score) for fold in document.folds])
    chosen = next(each for each in document.choice.candidates if each.variant == document.projection.name)
    assert chosen.nll_correct == pytest.approx(naive.log_losses(corrected, rows.correct)[sample.rows].mean())
    top = sample.rows[np.argsort(-score[sample.rows], kind="stable")[: -(-len(sample.rows) // 10)]]
    before, after = (ScoredDecisions(score, logit).reliability[top].mean() for logit in (score, corrected))
    numbers = re.findall(r"\d\.\d+", learned.correction_summary[0])
    losses = [naive.log_losses(logit, rows.correct)[sample.rows].mean() for logit in (score, corrected)]
    expected = [f"{loss:.4f}" for loss in losses] + [
        f"{mean:.3f}" for mean in (before, after, rows.correct[top].mean())
    ]
    assert numbers == expected


def deployed_by_hand(losses: dict[str, np.ndarray], sample: Sample) -> str:
    """The whole vector, unless the best candidate is more than two standard errors better."""
    means = {name: loss[sample.rows].mean() for name, loss in losses.items()}
    best = min(means, key=means.__getitem__)
    mean, error = sample.mean_with_error(losses["label_vector"] - losses[best])
    return "label_vector" if mean <= 2 * error else best


@pytest.mark.parametrize(("weighted", "grouped"), BOTH)
def test_the_choice_weighs_rows_and_counts_groups_as_one(weighted, grouped):
    """Differences near two standard errors, many times, so that a dropped weight or group changes a choice."""
    n = 60
    taken = []
    group = np.array([f"g{row // 6}" for row in range(n)])
    for seed in range(60):
        generator = np.random.default_rng(seed)
        luck = generator.normal(size=10)[np.arange(n) // 6]
        losses = {
            "confidence": 0.7 + 0.1 * generator.normal(size=n),
            "mrp": 0.6 + 0.1 * generator.normal(size=n),
            "label_vector": 0.7 + 0.1 * luck + 0.2 * generator.normal(size=n),
        }
        copies = generator.integers(1, 10, n) if weighted else np.ones(n, dtype=int)
        rows = PredictedRows(
            None,
            None,
            np.zeros(n, dtype=int),
            np.zeros(n, dtype=int),
            group if grouped else None,
            None,
            copies.astype(float) if weighted else None,
        )
        judged = model_choice.compare_candidates(losses, rows)
        chosen = model_choice.select_candidate(judged, losses, rows).variant
        assert chosen == deployed_by_hand(losses, Sample.from_groups(copies, rows.group))
        taken.append(chosen)
    assert 5 < taken.count("label_vector") < 55


@pytest.mark.parametrize(("weighted", "grouped"), BOTH)
def test_the_fit_advises_by_the_numbers_that_evaluate_shows(weighted, grouped, monkeypatch):
    """Of the same rows in the same order, down to the resamples."""
    frame = KINDS["logits"][0].select(pl.exclude("group"))
    rows, _ = rows_with(KINDS["logits"][0], weighted, grouped)
    if weighted:
        frame = frame.with_columns(inverse_probability=pl.Series(rows.weight))
    if grouped:
        frame = frame.with_columns(query=pl.Series(rows.group))
    compared = model_choice.compare_scores
    seen = []
    monkeypatch.setattr(model_choice, "compare_scores", lambda judged: seen.append(compared(judged)) or seen[-1])
    made = ReliabilityMap().fit(frame, groups="query" if grouped else None)
    answer = made.evaluate(frame, groups="query" if grouped else None)
    (advised,) = seen
    shown = answer.to_dict()
    for name, numbers in advised["metrics"].items():
        assert list(numbers.values()) == pytest.approx(list(shown["metrics"][name].values()), nan_ok=True), name
    assert [advised[key] for key in ("rows", "errors", "groups")] == [
        shown[key] for key in ("rows", "errors", "groups")
    ]
    assert str(made.recommendation_).splitlines()[0] == str(answer).splitlines()[0]
    assert made.recommendation_.to_dict()["accuracy"] == pytest.approx(shown["accuracy"]["value"])
    assert ("Rows are weighted by" in str(made.recommendation_)) == weighted
    assert ("the sampling of groups" in str(made.recommendation_)) == grouped


@pytest.mark.parametrize("grouped", [False, True])
def test_a_better_order_of_labels_is_that_of_repeated_rows_of_a_group(grouped):
    for seed in range(30):
        generator = np.random.default_rng(seed)
        column, label = generator.integers(0, 3, (2, 80))
        label = np.where(generator.random(80) < 0.3 + 0.5 * generator.random(), (column + 1) % 3, label)
        copies = generator.integers(1, 12, 80)
        group = generator.integers(0, 30, 80) if grouped else np.arange(80)
        at = np.repeat(np.arange(80), copies)
        weighted = find_better_assignment(column, label, 3, weight=copies * 0.7, groups=group if grouped else None)
        repeated = find_better_assignment(column[at], label[at], 3, groups=group[at])
        assert (weighted is None) == (repeated is None)
        if weighted is not None:
            assert weighted.label_of_column == repeated.label_of_column
            assert weighted.accuracy == pytest.approx(repeated.accuracy)
            assert weighted.better_accuracy == pytest.approx(repeated.better_accuracy)


@pytest.mark.parametrize(("weighted", "grouped"), BOTH)
def test_the_order_of_labels_is_refused_by_weighted_rows_and_independent_groups(weighted, grouped):
    """Most rows match another order; few by weight, and all of one group, which proves nothing."""
    decision = np.arange(120) % 2
    swapped = np.arange(120) < 90
    logits = np.eye(2)[decision] * 2.0
    frame = pl.DataFrame({"logits": logits.tolist(), "label": np.where(swapped, 1 - decision, decision)})
    if weighted:
        frame = frame.with_columns(inverse_probability=pl.Series(np.where(swapped, 1.0, 40.0)))
    if grouped:
        frame = frame.with_columns(query=pl.Series(np.where(swapped, -1, np.arange(120))))
    fit = ReliabilityMap(variant="label_intercept").fit
    if weighted or grouped:
        fit(frame, groups="query" if grouped else None)
    else:
        with pytest.raises(InputError, match=r"75\.0%"):
            fit(frame)
