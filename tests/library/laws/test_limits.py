"""Limits: valid fitted values, the minimum number of rows, and options outside their ranges."""

import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from relmap import InputError, ReliabilityMap
from relmap.cli import app
from relmap.decisions import CalibratedDecisions
from relmap.maps.earlier import Corrected, Correction, LinesWithSignals
from relmap.projection.labelwise import Intercepts, Isotonic, Lines, WithFallbacks
from relmap.projection.mrp import Curves, SharedCurve
from relmap.projection.pooled import ShrunkCurves, SignalAdjusted
from relmap.projection.registry import DEPLOYABLE_VARIANTS
from relmap.projection.surface import Surfaces, fit_surfaces
from relmap.report.threshold_explorer import choose_thresholds
from tests import maps
from tests.texts import assert_matches

KNOTS = np.array([0.0, 0.25, 1.0])
INCREASING = np.array([[-1.0, 0.0, 2.0], [0.0, 0.0, 0.5]])


def make_curves(knots: np.ndarray = KNOTS, values: np.ndarray = INCREASING) -> Curves:
    return Curves(knots, values, np.full(len(values), 9), ("none",) * len(values))


def make_isotonic(thresholds: list[float], values: list[float]) -> Isotonic:
    """Make isotonic steps of the second label; the steps of the first label are valid."""
    return Isotonic((np.array([0.5]), np.array(thresholds)), (np.array([0.5]), np.array(values)))


def make_correction(knots: list[float], values: list[float]) -> Correction:
    return Correction(np.array(knots), np.array(values), first_slope=1.0, last_slope=1.0)


def make_surfaces(
    knots: np.ndarray = KNOTS, gap_knots: tuple[float, ...] = (-1.0, 2.0), values: np.ndarray | None = None
) -> Surfaces:
    sums = np.add.outer(np.add.outer([0.0, 1.0], [0.0, 1.0, 2.0]), np.arange(len(gap_knots)))
    return Surfaces(knots, np.array(gap_knots), sums if values is None else values)


def replace_value(values: np.ndarray, index: tuple[int, ...], value: float) -> np.ndarray:
    changed = values.copy()
    changed[index] = value
    return changed


def listing(subject: str, values: list[float]) -> str:
    """Return the pattern of a violation that lists values."""
    return rf"{subject} .*: {re.escape(str(values))}"


SURFACE_VALUES = make_surfaces().values
DECREASING_CURVE = make_curves(values=np.array([[0.0, 1.0, 0.5], [0.0, 0.0, 0.0]]))
DECREASING_MESSAGE = r"the curve .*label 0 falls \D*1\.0 \D*knot 1 \D*0\.5 \D*knot 2"
DECREASING_LINE = Lines(np.array([1.0, -0.5]), np.zeros(2))
LINE_MESSAGE = r"^label 1 .*slope -0\.5 .*intercept 0\.0"
VALID_LINES = Lines(np.array([1.0, 0.0]), np.array([0.5, -0.5]))
SHARED = SharedCurve(make_curves(values=INCREASING[:1]))
DECREASING_SHARED = SharedCurve(make_curves(values=np.array([[0.0, 1.0, 0.5]])))
NO_FALLBACKS = (("none", "none"), np.array([9, 9]))
FITTED_VALUES = {  # fitted value of two labels, patterns of its violations
    "curves": (make_curves(), []),
    "curves that are equal at two knots": (make_curves(values=np.zeros((2, 3))), []),
    "a curve that falls": (DECREASING_CURVE, [DECREASING_MESSAGE]),
    "a curve without a number": (
        make_curves(values=replace_value(INCREASING, (1, 2), np.inf)),
        ["curve .*label 1 .*value inf .*knot 2"],
    ),
    "knots above 0": (
        make_curves(np.array([0.1, 0.5, 1.0])),
        [listing(r"^\w+ knots", [0.1, 0.5, 1.0])],
    ),
    "knots below 1": (
        make_curves(np.array([0.0, 0.5, 0.9])),
        [listing(r"^\w+ knots", [0.0, 0.5, 0.9])],
    ),
    "a knot twice": (
        make_curves(np.array([0.0, 0.0, 1.0])),
        [listing(r"^\w+ knots", [0.0, 0.0, 1.0])],
    ),
    "shifts": (Intercepts(np.array([-30.0, 30.0])), []),
    "a shift too far": (Intercepts(np.array([0.0, 30.5])), [r"^label 1 .*shifted .* 30\.5"]),
    "a shift too far down": (Intercepts(np.array([-30.5, 0.0])), [r"^label 0 .*shifted .* -30\.5"]),
    "a shift that is no number": (Intercepts(np.array([np.nan, 0.0])), [r"^label 0 .*shifted .* nan"]),
    "lines": (VALID_LINES, []),
    "a line that falls": (DECREASING_LINE, [LINE_MESSAGE]),
    "an infinite slope": (Lines(np.array([np.inf, 1.0]), np.zeros(2)), [r"^label 0 .*slope inf .*intercept 0\.0"]),
    "no intercept": (Lines(np.ones(2), np.array([np.nan, 0.0])), [r"^label 0 .*slope 1\.0 .*intercept nan"]),
    "steps": (make_isotonic([0.0, 0.4, 1.0], [0.0, 0.0, 1.0]), []),
    "no step": (make_isotonic([], []), ["^label 1 .*0 thresholds .*0 values"]),
    "a step without a value": (make_isotonic([0.2, 0.4], [0.5]), ["^label 1 .*2 thresholds .*1 values"]),
    "a threshold below 0": (
        make_isotonic([-0.1, 0.4], [0.2, 0.5]),
        [listing("^label 1 .*threshold outside", [-0.1, 0.4])],
    ),
    "a threshold above 1": (
        make_isotonic([0.4, 1.1], [0.2, 0.5]),
        [listing("^label 1 .*threshold outside", [0.4, 1.1])],
    ),
    "a value below 0": (make_isotonic([0.2, 0.4], [-0.5, 0.5]), [listing("^label 1 .*value outside", [-0.5, 0.5])]),
    "a value above 1": (make_isotonic([0.2, 0.4], [0.5, 1.5]), [listing("^label 1 .*value outside", [0.5, 1.5])]),
    "a threshold twice": (
        make_isotonic([0.4, 0.4], [0.2, 0.5]),
        [listing("thresholds .*label 1", [0.4, 0.4])],
    ),
    "steps that fall": (make_isotonic([0.2, 0.4], [0.5, 0.2]), [listing("reliability .*label 1", [0.5, 0.2])]),
    "lines with a shared curve": (WithFallbacks(VALID_LINES, SHARED, *NO_FALLBACKS), []),
    "both of them wrong": (
        WithFallbacks(DECREASING_LINE, DECREASING_SHARED, *NO_FALLBACKS),
        [LINE_MESSAGE, f"shared curve: {DECREASING_MESSAGE}"],
    ),
    "curves shrunk to lines": (ShrunkCurves(VALID_LINES, make_curves(), np.array([0.0, 1.0])), []),
    "both parts wrong": (
        ShrunkCurves(DECREASING_LINE, DECREASING_CURVE, np.zeros(2)),
        [LINE_MESSAGE, DECREASING_MESSAGE],
    ),
    "signals": (SignalAdjusted(ShrunkCurves(VALID_LINES, make_curves(), np.zeros(2)), np.ones(3)), []),
    "signals with a line that falls": (
        SignalAdjusted(ShrunkCurves(DECREASING_LINE, make_curves(), np.zeros(2)), np.ones(3)),
        [LINE_MESSAGE],
    ),
    "signals of an earlier version": (LinesWithSignals(VALID_LINES, np.ones((3, 2))), []),
    "signals of an earlier version with a line that falls": (
        LinesWithSignals(DECREASING_LINE, np.ones((3, 2))),
        [LINE_MESSAGE],
    ),
    "surfaces": (make_surfaces(), []),
    "surfaces with a knot twice": (
        make_surfaces(np.array([0.0, 0.0, 1.0])),
        [listing(r"^\w+ knots", [0.0, 0.0, 1.0])],
    ),
    "surfaces that end below 1": (
        make_surfaces(np.array([0.0, 0.5, 0.9])),
        [listing(r"^\w+ knots", [0.0, 0.5, 0.9])],
    ),
    "surfaces that begin above 0": (
        make_surfaces(np.array([0.1, 0.5, 1.0])),
        [listing(r"^\w+ knots", [0.1, 0.5, 1.0])],
    ),
    "one gap": (make_surfaces(gap_knots=(0.5,)), [listing("gap knots", [0.5])]),
    "a gap twice": (make_surfaces(gap_knots=(0.5, 0.5)), [listing("gap knots", [0.5, 0.5])]),
    "a surface that falls along the confidence": (
        make_surfaces(values=replace_value(SURFACE_VALUES, (1, 0, 0), 9.0) + np.array([0.0, 100.0])),
        ["surface .*label 1 .*confidence .*knot 0, gap knot 0"],
    ),
    "a surface that falls along the gap": (
        make_surfaces(values=replace_value(SURFACE_VALUES, (0, 2, 1), 1.0)),
        [
            "surface .*label 0 .*confidence .*knot 1, gap knot 1",
            "surface .*label 0 .*gap after knot 2",
        ],
    ),
    "a correction": (make_correction([0.0, 1.0], [-1.0, 2.0]), []),
    "a correction of one knot": (make_correction([0.0], [-1.0]), ["correction .*1 knots.*two"]),
    "a correction that does not rise": (
        make_correction([0.0, 1.0], [2.0, 2.0]),
        [listing("values .*correction", [2.0, 2.0])],
    ),
    "a correction with a knot twice": (
        make_correction([1.0, 1.0], [1.0, 2.0]),
        [listing("knots .*correction", [1.0, 1.0])],
    ),
    "a line that falls and a correction of one knot": (
        Corrected(DECREASING_LINE, make_correction([0.0], [-1.0])),
        [LINE_MESSAGE, "correction .*1 knots.*two"],
    ),
}


@pytest.mark.parametrize(("value", "patterns"), FITTED_VALUES.values(), ids=FITTED_VALUES)
def test_violations_of_a_fitted_value_are_described(value, patterns):
    violations = value.violations(2)
    assert_matches(violations, patterns)


@pytest.mark.parametrize("variant", [None, "label_intercept"])
def test_a_fit_needs_two_rows(variant):
    frame = maps.make_predictions(60).drop("group")
    for n_rows in (2, 3):
        document = ReliabilityMap(variant=variant).fit(frame.head(n_rows)).document_
        assert (document.source.rows, document.projection.rows) == (n_rows, n_rows)
    with pytest.raises(InputError, match=r"\b1 labelled rows"):
        ReliabilityMap(variant=variant).fit(frame.head(1))


@pytest.fixture(scope="module")
def fitted_map() -> ReliabilityMap:
    return ReliabilityMap(variant="label_intercept").fit(maps.make_predictions(300))


NEW_ROWS = maps.make_predictions(200, seed=1).drop("group")


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 1.5])
@pytest.mark.parametrize("options", [{"coverage": 0.5}, {"target_accuracy": 0.7}, {"cut": 0.5}], ids=str)
def test_confidence_level_outside_0_and_1_is_rejected(fitted_map, options, level):
    with pytest.raises(InputError, match=rf" {level}; .*above 0"):
        fitted_map.thresholds(NEW_ROWS, confidence_level=level, **options)


@pytest.mark.parametrize(
    "costs",
    [
        {"cost_error": 5},
        {"cost_review": 1},
        {"cost_error": 0, "cost_review": 1},
        {"cost_error": 5, "cost_review": -1},
        {"cost_error": 2e30, "cost_review": 1},
        {"cost_error": 5, "cost_review": 2e30},
    ],
    ids=str,
)
def test_missing_or_invalid_costs_are_rejected(fitted_map, costs):
    with pytest.raises(InputError, match=r"error cost.*above 0 .*1e\+30"):
        fitted_map.thresholds(NEW_ROWS, **costs)


def test_costs_at_the_limits_are_accepted(fitted_map):
    largest = fitted_map.thresholds(NEW_ROWS, cost_error=1e30, cost_review=0).to_dict()
    assert largest["overall"]["automatic"] == 0

    equal = fitted_map.thresholds(NEW_ROWS, cost_error=1, cost_review=1).to_dict()
    assert (equal["overall"]["rows"], equal["overall"]["automatic"]) == (200, 200)


@pytest.mark.parametrize("gap", [0.3, 0.02, 1e-3, 3e-5, 1e-7, 7e-9])
def test_threshold_between_two_levels_has_the_fewest_digits(gap):
    margin = 1e-9
    for start in (0.1234567891, 0.4999999999, 0.7, 0.6180339887):
        levels = np.array([start, start + gap])
        inner = choose_thresholds(levels, 50, 0.0)[1:-1]
        by_digits = ((np.ceil((start + margin) * 10.0**digits) / 10.0**digits) for digits in range(1, 10))
        expected = [value for value in by_digits if value <= start + gap - margin][:1]
        assert inner.tolist() == expected


def run_thresholds(folder, frame: pl.DataFrame, *options: str) -> None:
    frame.write_csv(folder / "rows.csv")
    app(["thresholds", "--predictions", str(folder / "rows.csv"), "--score", "s", *options], standalone_mode=False)


SCORED_ROWS = pl.DataFrame({"s": np.linspace(-2, 2, 90), "label": ["no"] * 40 + ["yes"] * 50})
TARGET_OPTIONS = ("--positive", "yes", "--precision", "0.8")


@pytest.mark.parametrize("options", [("--label", "s"), ("--group", "s"), ("--group", "label")], ids=" ".join)
def test_score_label_and_group_must_be_different_columns(options, tmp_path):
    with pytest.raises(InputError, match=r"score, label .*group.*different"):
        run_thresholds(tmp_path, SCORED_ROWS, *TARGET_OPTIONS, *options)


def test_rows_without_label_or_finite_score_are_rejected(tmp_path, capsys):
    unlabelled = SCORED_ROWS.with_columns(label=pl.when(pl.int_range(90) % 30 != 7).then("label"))
    with pytest.raises(InputError, match=r"rows\.csv, line 9: label\b.*missing"):
        run_thresholds(tmp_path, unlabelled, *TARGET_OPTIONS)

    run_thresholds(tmp_path, unlabelled, *TARGET_OPTIONS, "--drop-unlabelled")
    printed = capsys.readouterr()
    assert re.search("3 of 90 .*omitted", printed.err)
    assert '"rows": 87' in printed.out

    infinite = SCORED_ROWS.with_columns(s=pl.when(pl.int_range(90) == 7).then(float("inf")).otherwise("s"))
    with pytest.raises(InputError, match=r"rows\.csv, line 9: s\b.*\binf\b"):
        run_thresholds(tmp_path, infinite, *TARGET_OPTIONS)


@pytest.mark.parametrize(
    ("labels", "option"),
    [((0, 1), "1"), ((0, 1), " 1 "), ((0.0, 1.0), "1"), ((0, 1), "1.0"), ((False, True), "true"), (("a", " b "), "b")],
)
def test_positive_label_is_matched_as_text_or_number(labels, option, tmp_path, capsys):
    frame = SCORED_ROWS.with_columns(label=pl.Series([labels[0]] * 40 + [labels[1]] * 50))
    run_thresholds(tmp_path, frame, "--positive", option, "--precision", "0.8")
    assert '"positives": 50' in capsys.readouterr().out


RARE_LABEL_ROWS = maps.make_predictions(400, 4, seed=2).with_columns(
    logits=pl.concat_list(*[pl.col("logits").list.get(label) for label in range(3)], pl.lit(-30.0)),
    label=pl.when(pl.col("label") == 3).then(0).otherwise("label"),
)


@pytest.mark.parametrize("variant", DEPLOYABLE_VARIANTS)
def test_fitted_variants_have_no_violations_without_rows_of_a_label(variant):
    document = ReliabilityMap(variant=variant).fit(RARE_LABEL_ROWS).document_
    fits = [document.projection.fitted, *(fold.projection for fold in document.folds)]

    assert len(fits) > 1
    assert [fitted_map.violations(4) for fitted_map in fits] == [[]] * len(fits)


@pytest.mark.parametrize("n_rows", [0, 1, 20])
def test_surfaces_of_one_gap_have_increasing_gap_knots(n_rows):
    confidence = np.linspace(0.3, 0.9, n_rows)
    decision = np.zeros(n_rows, dtype=int)
    settings = maps.SETTINGS.projection.model_copy(update={"epochs": 3})
    fitted = fit_surfaces(confidence, np.full(n_rows, 0.5), decision, decision == 0, n_labels=2, settings=settings)

    assert fitted.violations(2) == []
    assert fitted.gap_knots[0] == (0.5 if n_rows else 0.0)
    assert fitted.gap_knots[-1] == (1.5 if n_rows else 1.0)


@pytest.mark.parametrize("offset", [-5e-10, 5e-10, -5e-9, 5e-9])
def test_hundredths_near_a_level_are_not_thresholds(offset):
    hundredths = np.arange(1, 100) / 100
    levels = hundredths[3::7] + offset
    thresholds = choose_thresholds(levels, 1000, 0.5)
    is_tie = abs(offset) < 1e-9
    for hundredth in hundredths:
        is_tied = is_tie and np.abs(levels - hundredth).min() < 1e-8
        is_given = hundredth == 0.5
        assert (hundredth in thresholds) == (is_given or not is_tied)


ROW_NUMBER = pl.int_range(pl.len())
ID_COLUMNS = {  # values of a column named id, whether they identify rows
    "text": (pl.format("r{}", ROW_NUMBER), True),
    "numbers with gaps": (7 * ROW_NUMBER, True),
    "numbers of the rows": (ROW_NUMBER, False),
    "numbers of the rows from 5": (ROW_NUMBER + 5, False),
    "numbers of the rows, backward": (-ROW_NUMBER, False),
    "numbers of the rows as text": ((ROW_NUMBER + 5).cast(pl.String), False),
    "each value twice": (ROW_NUMBER // 2, False),
    "one value missing": (pl.when(ROW_NUMBER != 4).then(7 * ROW_NUMBER), False),
    "lists": (pl.concat_list(7 * ROW_NUMBER), False),
}


@pytest.mark.parametrize(("column", "identifies"), ID_COLUMNS.values(), ids=ID_COLUMNS)
def test_column_named_id_identifies_rows_if_unique_and_not_consecutive(column, identifies):
    frame = maps.make_confidence_predictions(300).with_columns(id=column)
    training = ReliabilityMap(variant="label_intercept").fit(frame).document_.source.training_rows
    identification = (training.by, training.id_column, training.share)

    assert identification == (("id", "id", 1.0) if identifies else ("nothing", None, 0.0))


def test_evaluation_of_training_rows_needs_the_groups_of_the_fit():
    frame = maps.make_predictions(300)
    ungrouped = ReliabilityMap(variant="label_intercept").fit(frame)
    with pytest.raises(InputError, match="with no groups"):
        ungrouped.evaluate(frame, groups="group")

    grouped = ReliabilityMap(variant="label_intercept").fit(frame, groups="group")
    with pytest.raises(InputError, match="groups by group"):
        grouped.evaluate(frame.with_columns(group=pl.lit("all")))


def test_gap_needs_log_probabilities_and_logits():
    logits = np.array([[1.0, 0.0, -1.0]])
    complete = CalibratedDecisions(np.zeros(1), np.zeros(1, dtype=int), np.log(np.full((1, 3), 1 / 3)), logits)

    assert complete.gap.shape == (1,)
    for name in ("log_probabilities", "logits"):
        with pytest.raises(ValueError, match=r"gap .*log-probabilities .*logits"):
            _ = replace(complete, **{name: None}).gap


def test_file_name_of_more_than_220_bytes_is_rejected(fitted_map, tmp_path):
    fitted_map.save(tmp_path / f"{'x' + 107 * 'ü'}.json")  # 1 + 2 * 107 + 5 = 220 bytes
    with pytest.raises(InputError, match="220 bytes"):
        fitted_map.save(tmp_path / f"{108 * 'ü'}.json")
    with pytest.raises(InputError, match="220 bytes"):
        fitted_map.save(tmp_path / ("x" * 221) / "map.json")
