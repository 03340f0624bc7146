"""Fitting a reliability map: the pipeline's numbers, a recommendation by one standard error, and honest advice."""

import dataclasses
import os
from collections import Counter
from itertools import product
from pathlib import Path

import maps
import numpy as np
import polars as pl
import pytest
import yaml
from scipy.special import expit, logit

from tasks.calibrate import calibrate
from tasks.datasets import dataset_named
from tasks.maps import choose
from tasks.maps.choose import AUTO, DEPLOYABLE, SIMPLEST_FIRST, Difference
from tasks.maps.document import Candidate, MapDocument
from tasks.maps.labelled import cut, not_fitted_on
from tasks.maps.reliability_map import ReliabilityMap
from tasks.metrics.spread import label_spread
from tasks.predictions.rows import PredictedRows
from tasks.predictors import fit_predictor
from tasks.project import project
from tasks.projection.lattice import LatticeSettings
from tasks.protocol.decisions import FixedDecisions, decide
from tasks.protocol.errors import BadInput
from tasks.protocol.params import DatasetParams
from tasks.protocol.splits import draw_splits, validation_rows
from tests.maps import PARAMS, checked, learned

SETTINGS, SMALLEST = LatticeSettings.chosen(PARAMS.projection), PARAMS.metrics.smallest_reliability
QUICK = PARAMS.model_copy(update={"projection": PARAMS.projection.model_copy(update={"epochs": 40})})
ROOT = Path(__file__).resolve().parent.parent
LEARNED = {"calibrator", "projection"}


def chosen_variant(spread: float, seed: int, n: int) -> str:
    """What auto takes for stated confidences of two labels that are right more and less often than said."""
    generator = np.random.default_rng(seed)
    confidence = np.clip(1 - generator.beta(1.2, 3, n) / 2, 0.5, 1 - 1e-6)
    decision = generator.integers(0, 2, n)
    right = generator.random(n) < np.clip(confidence + spread * (decision - 0.5), 0, 1)
    parts = cut(PredictedRows(None, confidence, decision, np.where(right, decision, 1 - decision), None), 2, 1)
    calibrator = choose.fit_calibrator("uncal", parts.calibrator_fit, seed=1)
    variants = choose.fit_variants(choose.batch_under(calibrator, parts, SETTINGS), SIMPLEST_FIRST)
    rows = parts.projection_selection
    losses = {
        name: choose.losses_of(ReliabilityMap(calibrator, value), rows, SMALLEST) for name, value in variants.items()
    }
    return choose.simplest_within_one_standard_error(choose.candidates(losses, None)).variant


def check_against_the_pipeline(validation, test, calibrators, variants, split, *, grouped) -> None:
    """On the same rows a map under the paper's protocol has the confidences and reliabilities of the pipeline."""
    parts, seed = validation_rows(validation, 2, split), 2
    fits = [calibrate.fn(parts, calibrator, seed) for calibrator in calibrators]
    group = validation.group if grouped else None
    rows = PredictedRows(validation.logits, None, validation.decision, validation.labels, group)
    new = PredictedRows(test.logits, None, test.decision, None, None)
    alone = QUICK.projection.model_copy(update={"minimum_rows": 0})  # as the flow has it for the paper's sets
    projected = project.fn(fits, parts, test, QUICK.model_copy(update={"projection": alone}), "cpu")
    for pipeline, variant in product(projected.rows, variants):
        document = learned(rows, variant, pipeline.calibrator, seed, split, names=None, params=QUICK).document
        scored = ReliabilityMap.of(document)(new)
        np.testing.assert_allclose(scored.reliability, expit(pipeline.reliability_logits[variant]), rtol=0, atol=1e-12)
        confidence = np.exp(pipeline.log_probabilities[np.arange(len(new)), new.decision])
        np.testing.assert_allclose(scored.confidence, confidence, rtol=0, atol=1e-12)
        fitted_on = len(validation) if pipeline.calibrator == "ts" else len(parts.calibrator_fit)
        assert document.calibrator.rows == fitted_on
        unseen = not_fitted_on(MapDocument.model_validate_json(document.model_dump_json()), rows)
        assert len(unseen) >= len(parts.projection_selection) == document.held_out.rows


@pytest.mark.parametrize(
    ("calibrators", "variants", "split"),
    [
        (PARAMS.calibrators, ["mrp"], {}),
        (["ts"], ["mrp", "label_platt", "shared_1d", "label_intercept"], {"split": "group", "projection_cap": 200}),
    ],
)
def test_under_the_papers_protocol_the_same_rows_give_the_pipelines_numbers(calibrators, variants, split):
    made = [maps.predictions(n, seed=seed) for seed, n in enumerate((900, 500))]
    rows = [checked(frame, "group") for frame in made]
    validation, test = (FixedDecisions(one.logits, one.label, one.decision, one.group) for one in rows)
    protocol = PARAMS.protocol.model_copy(update=split)
    check_against_the_pipeline(validation, test, calibrators, variants, protocol, grouped="split" in split)


def decided(name: str) -> tuple[dict[str, FixedDecisions], DatasetParams]:
    """Fixed decisions on validation and test rows of a real set, as the pipeline makes them."""
    sets = yaml.safe_load((ROOT / "flows/real_sets.yaml").read_text().replace("REAL_DATA", os.environ["REAL_DATA"]))
    entry = DatasetParams.model_validate(sets[name])
    path, split = Path(entry.path), entry.split
    frame = dataset_named(name, "files", entry.options).read(path.parent if path.is_file() else path).pairs
    if frame["split"].null_count():
        frame = draw_splits(frame, by=split.by, shares=split.shares, seed=entry.seed)
    parts = {part: frame.filter(pl.col("split") == part) for part in ("train", "validation", "test")}
    settings = {
        "n_labels": len(entry.options["labels"]),
        "class_weight": entry.class_weight,
        "settings": entry.settings,
    }
    predictor = fit_predictor(entry.predictor, parts.pop("train"), parts["validation"], **settings, seed=0)
    decisions = {}
    for part, rows in parts.items():
        logits = predictor(rows)
        labels = rows["label"].to_numpy().astype(np.int64)
        decisions[part] = FixedDecisions(logits, labels, decide(logits), rows["group"].to_numpy())
    return decisions, entry


@pytest.mark.real_data
@pytest.mark.skipif("REAL_DATA" not in os.environ, reason="REAL_DATA names no folder")
@pytest.mark.parametrize("name", ["mq2008", "science", "wikiqa"])
def test_a_map_of_real_predictions_says_what_the_pipeline_says(name):
    parts, entry = decided(name)
    grouped = entry.split.by == "group"
    check_against_the_pipeline(*parts.values(), PARAMS.calibrators, ["mrp"], PARAMS.protocol, grouped=grouped)


@pytest.mark.parametrize("variant", DEPLOYABLE)
def test_every_variant_that_a_map_can_hold_is_fitted_by_its_name(variant):
    document = learned(checked(maps.predictions(300)), variant).document
    assert document.projection.name == document.choice.asked == variant


def test_a_map_says_how_many_rows_are_behind_each_label_and_what_a_rare_one_stands_on():
    made = maps.predictions(900)
    logits = np.array(made["logits"].to_list()) - [0, 0, 6.5]  # the last label is hardly ever decided
    rows = checked(made.with_columns(logits=pl.Series(logits.tolist())))
    document = learned(rows, "mrp").document
    part = cut(rows, 3, 1).projection_fit
    assert document.projection.rows_by_label == tuple(np.bincount(part.decision, minlength=3))
    assert document.projection.fallback[2] != "none"
    assert any("exact" in line and "Too few rows" in line for line in learned(rows, "mrp").in_words())
    plain = checked(made)
    never = PredictedRows(plain.logits, None, plain.decision, np.minimum(plain.label, 1), None)  # decided all the same
    assert learned(never, "confidence").silent == ("exact",)


def test_the_calibrator_and_the_variants_never_see_the_rows_that_choose():
    rows = checked(maps.predictions(600))
    same = learned(rows, "mrp").document
    assert learned(rows, "mrp").document.model_dump_json() == same.model_dump_json()
    unseen = not_fitted_on(same, rows)
    label = rows.label.copy()
    label[unseen] = 0
    other = learned(PredictedRows(rows.logits, None, rows.decision, label, None), "mrp").document
    assert other.model_dump_json(include=LEARNED) == same.model_dump_json(include=LEARNED)
    assert len(unseen) == same.held_out.rows == 200


def test_rows_beyond_the_caps_are_unseen_as_well():
    rows, made = checked(maps.predictions(25_000)), maps.document()
    parts = cut(rows, 3, 1)
    capped = {"rows": len(parts.projection_fit)}
    fits = {name: getattr(made, name).model_copy(update=capped) for name in ("calibrator", "projection")}
    assert capped == {"rows": len(parts.calibrator_fit)} == {"rows": 8000}
    assert len(not_fitted_on(made.model_copy(update=fits), rows)) == 25_000 - 2 * 8000


def test_label_and_confidence_alone_are_enough_ties_and_round_numbers_included():
    rows = checked(maps.confidence_only(3000, shift=2.5))
    assert {0.9, 0.95, 1.0} <= set(rows.confidence.tolist())
    for calibrator in ("uncal", "spline"):
        result = learned(rows, AUTO, calibrator)
        assert result.document.input == "confidence_only"
        assert result.document.projection.name.startswith(("label", "mrp"))
        scored = ReliabilityMap.of(result.document)(rows)
        assert np.isfinite(scored.reliability).all()
        assert (scored.confidence == rows.confidence).all() == (calibrator == "uncal")  # kept to the last bit
        assert result.recalibrated is None


@pytest.mark.parametrize(
    ("confidence", "platt", "simplest"),
    [
        ((0.02, 0.01), (0.01, 0.01), "label_platt"),
        ((0.02, 0.01), (0.011, 0.01), "mrp"),
        ((0.01, 0.02), (0.001, 0.01), "confidence"),
    ],
)
def test_the_simplest_within_one_standard_error_of_the_best_is_taken_and_the_reason_says_so(
    confidence, platt, simplest
):
    names, above = ("mrp", "label_platt", "confidence"), ((0.0, 0.0), platt, confidence)
    judged = [
        Candidate(variant=name, nll_correct=0.5 + far, above_best=far, standard_error=error)
        for name, (far, error) in zip(names, above, strict=True)
    ]
    chosen = choose.simplest_within_one_standard_error(judged)
    assert chosen.variant == simplest
    said = choose.reason(chosen, judged, 2, "ts")
    assert said.startswith("keep your confidence, calibrated by ts: ") == (simplest == "confidence")
    assert ("everything simpler is more than one standard error worse" in said) == (simplest == "mrp")
    assert "(MRP)" in said


def test_the_standard_error_is_that_of_the_difference_by_group():
    losses, group = np.array([1.0, 2.0, 4.0, 5.0]), np.array(["a", "a", "b", "b"])
    by_row, by_group = Difference.of(losses, None), Difference.of(losses, group)
    assert by_row.mean == by_group.mean == 3
    assert by_row.standard_error == pytest.approx(losses.std(ddof=1) / 2)
    # two groups whose sums lie 3 above and below their mean: sqrt(2 / 1 * (9 + 9)) / 4
    assert by_group.standard_error == pytest.approx(1.5)
    best, other = choose.candidates({"confidence": losses - losses, "mrp": losses}, group)
    assert (best.standard_error, other.standard_error) == (0, by_group.standard_error)


@pytest.mark.parametrize("rarer", [True, False])
def test_it_takes_ten_right_and_ten_wrong_decisions_of_ten_groups_to_choose(rarer):
    def rows(few: int, groups: int = 300) -> PredictedRows:
        correct, decision = (np.arange(300) < few) == rarer, np.zeros(300, dtype=int)
        return PredictedRows(None, np.full(300, 0.5), decision, 1 - correct, np.arange(300) % groups)

    assert f"9 of 300 projection-selection rows are {'right' if rarer else 'wrong'}" in choose.too_little(rows(9))
    assert "9 groups" in choose.too_little(rows(10, groups=9))
    assert choose.too_little(rows(10, groups=10)) == ""


def whole(spread: float, n: int = 24_000) -> object:
    """The same over 200 sets, which takes minutes."""
    return pytest.param(spread, n, 200, marks=pytest.mark.study)


@pytest.mark.parametrize(
    ("spread", "n", "sets"),
    [(0.0, 24_000, 5), (0.066, 24_000, 5), whole(0.0), whole(0.066), whole(0.0, 8000), whole(0.1)],
)
def test_the_answer_is_label_wise_where_labels_differ_and_else_to_keep_the_confidence(spread, n, sets):
    """0.066 is the label spread of the paper's weakest set."""
    taken = Counter(chosen_variant(spread, seed, n) for seed in range(sets))
    if spread:
        assert taken["confidence"] + taken["shared_1d"] <= sets // 10
    else:
        assert taken["mrp"] <= sets // 20
        assert taken["confidence"] >= 4


def test_the_gain_is_told_for_fewer_rows_and_shrinks_with_them():
    document = learned(checked(maps.predictions(9000, shift=2.5)), "mrp").document
    gains, last = document.choice.gains, document.choice.gains[-1]
    assert [gain.rows for gain in gains] == [100, 300, 1000, 3000]
    assert last.nll_correct < gains[0].nll_correct
    assert last.nll_correct < -2 * last.nll_correct_standard_error
    assert last.aurc < 0
    full = {candidate.variant: candidate.nll_correct for candidate in document.choice.candidates}
    assert last.nll_correct == pytest.approx(full["mrp"] - full["confidence"])


def test_matrix_scaling_is_recommended_where_it_does_as_well():
    rows = checked(maps.predictions(3000, shift=2.5))
    result, parts = learned(rows), cut(rows, 3, 1)
    said = "\n".join(result.in_words())
    unseen = parts.projection_selection
    matrix = choose.fit_calibrator("matrix", parts.calibrator_fit, seed=1)
    alone, ours = (
        choose.losses_of(made, unseen, SMALLEST).mean()
        for made in (ReliabilityMap(matrix), ReliabilityMap.of(result.document))
    )
    assert result.recalibrated.mean == pytest.approx(alone - ours)
    assert result.moved == np.mean(matrix(unseen.logits).argmax(axis=1) != unseen.decision)
    assert result.recalibrated.mean <= result.recalibrated.standard_error
    assert "they are right, more than shuffled labels show" in said
    assert "--calibrator matrix" in said
    for mean, as_good in ((0.009, True), (0.011, False)):
        lines = dataclasses.replace(result, recalibrated=Difference(mean, 0.01)).in_words()
        assert any("--calibrator matrix" in line for line in lines) == as_good
    assert f"{100 * result.moved:.1f}% of the rows" in said


def test_after_matrix_scaling_a_shift_is_gone_and_confidence_is_kept():
    result = learned(checked(maps.predictions(3000, shift=2.5)), AUTO, "matrix")
    assert result.document.projection.name == "confidence"
    assert "keep your confidence" in result.in_words()[0]


@pytest.mark.parametrize(
    ("made", "asked", "told"),
    [
        (maps.predictions(200), {"calibrator": "platt"}, "no calibrator 'platt'"),
        (maps.predictions(200), {"variant": "label_2d"}, "runner-up"),
        (maps.predictions(200), {"variant": "best"}, "cannot hold"),
        (maps.confidence_only(200), {}, "uncal and spline"),
        (maps.predictions(59), {}, "59 labelled rows"),
        (maps.predictions(200).with_columns(label=1), {}, "every label is 1"),
        (maps.predictions(200, per_group=100), {}, "fewer than three groups"),
    ],
)
def test_what_cannot_be_fitted_is_told(made, asked, told):
    with pytest.raises(BadInput, match=told):
        learned(checked(made, "group" if "group" in made.columns else None), **asked)


def test_a_single_label_wise_shift_is_found(decisions):
    """The spread that the map tells is that of the calibrated confidence on the rows that choose."""
    rows = PredictedRows(decisions.logits, None, decisions.decision, decisions.labels, None)
    document, selection = learned(rows, "label_intercept").document, cut(rows, 3, 1).projection_selection
    scored = ReliabilityMap.of(document)(selection)
    shifts, held_out = document.projection.fitted.own.alpha, document.held_out
    assert shifts[1] < min(shifts[0], shifts[2]) - 0.5
    assert held_out.label_spread == label_spread(scored.confidence, selection.decision, selection.correct)
    np.testing.assert_allclose(held_out.quantiles[::25], np.percentile(scored.reliability, [0, 25, 50, 75, 100]))
    np.testing.assert_allclose(scored.logit, logit(scored.confidence) + shifts[selection.decision], atol=1e-9)
