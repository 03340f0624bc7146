"""Out-of-fold numbers of a fit equal their definitions, with and without weights and groups."""

import re
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import polars as pl
import pytest
from scipy.special import logit

from relmap import ReliabilityMap
from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.evaluation.assessment import describe_fit
from relmap.io.label_order import find_better_assignment
from relmap.maps.document import MapDocument
from relmap.maps.fit import MapFit
from relmap.maps.folds import split_folds
from relmap.maps.score import FittedMap, ScoredDecisions
from tests import maps, naive
from tests.naive import Sample

N_ROWS = 150
SEED = 1
COPY_NUMBERS = np.array([20, 340, 60, 30, 50])  # 100 on average: the library counts weights in hundredths of their mean
WEIGHT_UNIT = 0.31  # arbitrary: only the ratios of weights matter
INPUTS = {  # rows, calibrator and variant
    "logits": (maps.make_predictions(N_ROWS, shift=2.5), "sms", "mrp_pooled"),
    "judge": (maps.make_confidence_predictions(N_ROWS, shift=2.5), "uncal", "label_intercept"),
    "decisions": (maps.make_confidence_predictions(N_ROWS, shift=2.5).drop("confidence"), "constant", "mrp_pooled"),
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

    def out_of_fold(self) -> ScoredDecisions:
        """Score each row by the stored fit without its fold, with the confidence that the map is compared with."""
        confidence = np.empty(N_ROWS)
        logit = np.empty(N_ROWS)
        folds = split_folds(N_ROWS, self.rows.group, SEED).folds
        for fold, members in zip(self.document.folds, folds, strict=True):
            rows = self.rows.take(members)
            confidence[members] = FittedMap(fold.baseline or fold.calibrator)(rows).confidence
            logit[members] = FittedMap(fold.calibrator, fold.projection)(rows).logit
        if self.calibrator == "constant":
            confidence[:] = confidence.mean()  # constants would rank the rows by fold
        return ScoredDecisions(confidence, logit)


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


def test_the_comparison_uses_weights_and_groups(case):
    rows = case.sample.rows
    scored = case.out_of_fold()
    losses = {
        "confidence": naive.log_losses(logit(scored.confidence), case.rows.correct),
        "reliability": naive.log_losses(scored.logit, case.rows.correct),
    }
    numbers = describe_fit(case.map_fit).numbers
    for name, loss in losses.items():
        assert numbers["log_loss"][name] == pytest.approx(loss[rows].mean())
    change = losses["reliability"] - losses["confidence"]
    assert numbers["log_loss"]["change"] == pytest.approx(change[rows].mean())
    assert numbers["accuracy"] == pytest.approx(case.rows.correct[rows].mean())
    assert (numbers["rows"], numbers["errors"]) == (N_ROWS, (~case.rows.correct).sum())
    assert numbers["groups"] == case.sample.cluster.max() + 1


def test_accuracy_and_threshold_equal_the_results_of_repeated_rows(case):
    rows = case.sample.rows
    reliability = case.out_of_fold().reliability
    if case.rows.kind == "decision_only":
        reliability = FittedMap.from_document(case.document)(case.rows).reliability
    threshold = max(value for value in reliability if (reliability[rows] >= value).mean() >= 0.7 - 1e-12)
    assert case.document.default_threshold == max(threshold, 0.5)

    label = case.rows.label[rows]
    majority_accuracy = max((label == value).mean() for value in range(3))
    warning = re.search("most frequent [^%]* ([0-9.]+)%", " ".join(case.map_fit.label_warnings))
    assert (warning is not None) == (majority_accuracy > case.rows.correct[rows].mean())


def test_constant_confidence_is_the_weighted_share_of_correct_rows(case):
    if case.calibrator != "constant":
        return
    fold_split = split_folds(N_ROWS, case.rows.group, SEED)
    copies = case.sample.copies
    constants_and_rows = [(case.document.calibrator.fitted, np.arange(N_ROWS))]
    constants_and_rows += [
        (fold.calibrator, np.setdiff1d(fold_split.fit_rows, fold_split.folds[index]))
        for index, fold in enumerate(case.document.folds)
    ]
    for constant, members in constants_and_rows:
        share = np.repeat(case.rows.correct[members], copies[members]).mean()
        assert constant.share == pytest.approx((share * len(members) + 1) / (len(members) + 2))


@pytest.mark.parametrize(("weighted", "grouped"), WEIGHTS_AND_GROUPS)
def test_the_comparison_of_the_fit_equals_the_evaluation_of_its_rows(weighted, grouped):
    """Both use the same rows in the same order, including the resamples."""
    frame = INPUTS["logits"][0].select(pl.exclude("group"))
    rows, _ = make_rows(INPUTS["logits"][0], weighted, grouped)
    if weighted:
        frame = frame.with_columns(inverse_probability=pl.Series(rows.weight))
    if grouped:
        frame = frame.with_columns(query=pl.Series(rows.group))
    model = ReliabilityMap().fit(frame, groups="query" if grouped else None)
    evaluation = model.evaluate(frame, groups="query" if grouped else None)
    numbers = model.summary_.to_dict()
    expected = evaluation.to_dict()

    for name, value in numbers["log_loss"].items():
        assert value == pytest.approx(expected["metrics"]["nll_correct"][name], nan_ok=True), name
    for name in ("rows", "errors", "groups", "comparison"):
        assert numbers[name] == expected[name]
    held_out = model.document_.held_out
    assert list(expected["label_spread"].values()) == [held_out.label_spread, held_out.label_spread_shuffled]
    assert numbers["accuracy"] == pytest.approx(expected["accuracy"]["value"])
    assert model.summary_.lines[0] == evaluation.lines[0]
    sentences = " ".join(model.summary_.details)
    assert ("are weighted by" in sentences) == weighted
    assert ("sampling of groups" in sentences) == grouped


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
    logits = np.eye(2)[decision] * 2.0 - 0.5
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
