"""Limits: what a fitted value may hold, the fewest rows of a fit, and options outside their ranges."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from relmap import InputError, ReliabilityMap
from relmap.cli import app
from relmap.maps.correction import Correction
from relmap.projection.curves import Curves, SharedCurve
from relmap.projection.decisions import CalibratedDecisions
from relmap.projection.labelwise import Intercepts, Isotonic, Lines, WithFallbacks
from relmap.projection.pooling import ShrunkCurves, WithSignals
from relmap.projection.surface import Surfaces, fit_surfaces
from relmap.projection.variants import DEPLOYABLE_VARIANTS, VARIANTS
from relmap.report.threshold_explorer import choose_thresholds
from tests import maps
from tests.fits import make_batch, simulate_rows

KNOTS = np.array([0.0, 0.25, 1.0])
RISING = np.array([[-1.0, 0.0, 2.0], [0.0, 0.0, 0.5]])


def curves(knots: np.ndarray = KNOTS, values: np.ndarray = RISING) -> Curves:
    return Curves(knots, values, np.full(len(values), 9), ("none",) * len(values))


def isotonic(thresholds: list[float], values: list[float]) -> Isotonic:
    """The second label has these steps; those of the first are valid."""
    return Isotonic((np.array([0.5]), np.array(thresholds)), (np.array([0.5]), np.array(values)))


def surfaces(
    knots: np.ndarray = KNOTS, gap_knots: tuple[float, ...] = (-1.0, 2.0), values: np.ndarray | None = None
) -> Surfaces:
    sums = np.add.outer(np.add.outer([0.0, 1.0], [0.0, 1.0, 2.0]), np.arange(len(gap_knots)))
    return Surfaces(knots, np.array(gap_knots), sums if values is None else values)


def with_value(values: np.ndarray, place: tuple[int, ...], value: float) -> np.ndarray:
    changed = values.copy()
    changed[place] = value
    return changed


CUBE = surfaces().values
FALLING = curves(values=np.array([[0.0, 1.0, 0.5], [0.0, 0.0, 0.0]]))
FALLS = "label 0 falls from 1.0 at knot 1 to 0.5 at knot 2"
STEEP = Lines(np.array([1.0, -0.5]), np.zeros(2))
NEGATIVE = "label 1 has the line -0.5 l + 0.0"
FLAT = Lines(np.array([1.0, 0.0]), np.array([0.5, -0.5]))
SHARED = SharedCurve(curves(values=RISING[:1]))
SHARED_FALLS = SharedCurve(curves(values=np.array([[0.0, 1.0, 0.5]])))
TWO = (("none", "none"), np.array([9, 9]))
CONTENTS = {  # a value of two labels, the sentences about it
    "curves": (curves(), []),
    "curves that are equal at two knots": (curves(values=np.zeros((2, 3))), []),
    "a curve that falls": (FALLING, [FALLS]),
    "a curve without a number": (
        curves(values=with_value(RISING, (1, 2), np.inf)),
        ["label 1 is inf at knot 2"],
    ),
    "knots above 0": (curves(np.array([0.1, 0.5, 1.0])), ["the knots do not rise from 0 to 1: [0.1, 0.5, 1.0]"]),
    "knots below 1": (curves(np.array([0.0, 0.5, 0.9])), ["the knots do not rise from 0 to 1: [0.0, 0.5, 0.9]"]),
    "a knot twice": (curves(np.array([0.0, 0.0, 1.0])), ["the knots do not rise from 0 to 1: [0.0, 0.0, 1.0]"]),
    "shifts": (Intercepts(np.array([-12.0, 12.0])), []),
    "a shift too far": (Intercepts(np.array([0.0, 12.5])), ["label 1 is shifted by 12.5"]),
    "a shift too far down": (Intercepts(np.array([-12.5, 0.0])), ["label 0 is shifted by -12.5"]),
    "a shift that is no number": (Intercepts(np.array([np.nan, 0.0])), ["label 0 is shifted by nan"]),
    "lines": (FLAT, []),
    "a line that falls": (STEEP, [NEGATIVE]),
    "an infinite slope": (Lines(np.array([np.inf, 1.0]), np.zeros(2)), ["label 0 has the line inf l + 0.0"]),
    "no intercept": (Lines(np.ones(2), np.array([np.nan, 0.0])), ["label 0 has the line 1.0 l + nan"]),
    "steps": (isotonic([0.0, 0.4, 1.0], [0.0, 0.0, 1.0]), []),
    "no step": (isotonic([], []), ["label 1 has 0 thresholds and 0 values"]),
    "a step without a value": (isotonic([0.2, 0.4], [0.5]), ["label 1 has 2 thresholds and 1 values"]),
    "a threshold below 0": (
        isotonic([-0.1, 0.4], [0.2, 0.5]),
        ["label 1 has a threshold outside [0, 1]: [-0.1, 0.4]"],
    ),
    "a threshold above 1": (isotonic([0.4, 1.1], [0.2, 0.5]), ["label 1 has a threshold outside [0, 1]: [0.4, 1.1]"]),
    "a value below 0": (isotonic([0.2, 0.4], [-0.5, 0.5]), ["label 1 has a value outside [0, 1]: [-0.5, 0.5]"]),
    "a value above 1": (isotonic([0.2, 0.4], [0.5, 1.5]), ["label 1 has a value outside [0, 1]: [0.5, 1.5]"]),
    "a threshold twice": (isotonic([0.4, 0.4], [0.2, 0.5]), ["the thresholds of label 1 do not rise: [0.4, 0.4]"]),
    "steps that fall": (isotonic([0.2, 0.4], [0.5, 0.2]), ["the reliability of label 1 falls: [0.5, 0.2]"]),
    "lines with a shared curve": (WithFallbacks(FLAT, SHARED, *TWO), []),
    "both of them wrong": (WithFallbacks(STEEP, SHARED_FALLS, *TWO), [NEGATIVE, f"shared curve: {FALLS}"]),
    "curves shrunk to lines": (ShrunkCurves(FLAT, curves(), np.array([0.0, 1.0])), []),
    "both parts wrong": (ShrunkCurves(STEEP, FALLING, np.zeros(2)), [NEGATIVE, FALLS]),
    "signals": (WithSignals(FLAT, np.ones((3, 2))), []),
    "signals with a line that falls": (WithSignals(STEEP, np.ones((3, 2))), [NEGATIVE]),
    "surfaces": (surfaces(), []),
    "surfaces with a knot twice": (
        surfaces(np.array([0.0, 0.0, 1.0])),
        ["the knots do not rise from 0 to 1: [0.0, 0.0, 1.0]"],
    ),
    "surfaces that end below 1": (
        surfaces(np.array([0.0, 0.5, 0.9])),
        ["the knots do not rise from 0 to 1: [0.0, 0.5, 0.9]"],
    ),
    "surfaces that begin above 0": (
        surfaces(np.array([0.1, 0.5, 1.0])),
        ["the knots do not rise from 0 to 1: [0.1, 0.5, 1.0]"],
    ),
    "one gap": (surfaces(gap_knots=(0.5,)), ["the gap knots do not rise: [0.5]"]),
    "a gap twice": (surfaces(gap_knots=(0.5, 0.5)), ["the gap knots do not rise: [0.5, 0.5]"]),
    "a surface that falls along the confidence": (
        surfaces(values=with_value(CUBE, (1, 0, 0), 9.0) + np.array([0.0, 100.0])),
        ["label 1 falls along the confidence after knot 0, gap knot 0"],
    ),
    "a surface that falls along the gap": (
        surfaces(values=with_value(CUBE, (0, 2, 1), 1.0)),
        ["label 0 falls along the confidence after knot 1, gap knot 1", "label 0 falls along the gap after knot 2"],
    ),
    "a correction": (Correction(np.array([0.0, 1.0]), np.array([-1.0, 2.0]), first_slope=1.0, last_slope=1.0), []),
    "a correction of one knot": (
        Correction(np.array([0.0]), np.array([-1.0]), first_slope=1.0, last_slope=1.0),
        ["a correction has 1 knots; it needs two"],
    ),
    "a correction that does not rise": (
        Correction(np.array([0.0, 1.0]), np.array([2.0, 2.0]), first_slope=1.0, last_slope=1.0),
        ["the values of a correction do not increase: [2.0, 2.0]"],
    ),
    "a correction with a knot twice": (
        Correction(np.array([1.0, 1.0]), np.array([1.0, 2.0]), first_slope=1.0, last_slope=1.0),
        ["the knots of a correction do not increase: [1.0, 1.0]"],
    ),
}


@pytest.mark.parametrize(("value", "sentences"), CONTENTS.values(), ids=CONTENTS)
def test_each_violation_of_a_fitted_value_is_named_with_its_place_and_a_valid_value_has_none(value, sentences):
    found = value.violations(2)
    assert len(found) == len(sentences)
    for sentence, expected in zip(found, sentences, strict=True):
        assert sentence.startswith(expected)


def test_a_map_needs_60_rows_to_fit_on():
    frame = maps.make_predictions(60).drop("group")
    assert ReliabilityMap(variant="label_intercept").fit(frame).document_.source.rows == 60
    with pytest.raises(InputError, match=r"^there are 59 labelled rows to fit on; label more: a map needs 60"):
        ReliabilityMap(variant="label_intercept").fit(frame.head(59))


@pytest.fixture(scope="module")
def fitted() -> ReliabilityMap:
    return ReliabilityMap(variant="label_intercept").fit(maps.make_predictions(300))


NEW = maps.make_predictions(200, seed=1).drop("group")


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.5, 1.5])
@pytest.mark.parametrize("options", [{"coverage": 0.5}, {"target_accuracy": 0.7}, {"cut": 0.5}], ids=str)
def test_a_confidence_lies_between_0_and_1(fitted, options, confidence):
    with pytest.raises(InputError, match=f"confidence of {confidence} is not above 0 and below 1"):
        fitted.thresholds(NEW, confidence=confidence, **options)


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
def test_both_costs_are_given_and_lie_in_their_ranges(fitted, costs):
    with pytest.raises(InputError, match=r"give both, an error above 0 and a review of 0 or more, 1e\+30 at most"):
        fitted.thresholds(NEW, **costs)


def test_costs_at_the_ends_of_their_ranges_are_taken(fitted):
    largest = fitted.thresholds(NEW, cost_error=1e30, cost_review=0).to_dict()
    assert largest["overall"]["automatic"] == 0
    equal = fitted.thresholds(NEW, cost_error=1, cost_review=1).to_dict()
    assert (equal["overall"]["rows"], equal["overall"]["automatic"]) == (200, 200)


@pytest.mark.parametrize("gap", [0.3, 0.02, 1e-3, 3e-5, 1e-7, 7e-9])
def test_a_threshold_between_two_levels_has_the_fewest_digits_that_lie_between(gap):
    near = 1e-9
    for start in (0.1234567891, 0.4999999999, 0.7, 0.6180339887):
        levels = np.array([start, start + gap])
        inner = choose_thresholds(levels, 50, 0.0)[1:-1]
        by_digits = ((np.ceil((start + near) * 10.0**digits) / 10.0**digits) for digits in range(1, 10))
        expected = [value for value in by_digits if value <= start + gap - near][:1]
        assert inner.tolist() == expected


def command(folder, frame: pl.DataFrame, *options: str) -> None:
    frame.write_csv(folder / "rows.csv")
    app(["thresholds", "--predictions", str(folder / "rows.csv"), "--score", "s", *options], standalone_mode=False)


SCORED = pl.DataFrame({"s": np.linspace(-2, 2, 90), "label": ["no"] * 40 + ["yes"] * 50})
TARGET = ("--positive", "yes", "--precision", "0.8")


@pytest.mark.parametrize("options", [("--label", "s"), ("--group", "s"), ("--group", "label")], ids=" ".join)
def test_score_label_and_group_are_three_columns(options, tmp_path):
    with pytest.raises(InputError, match="score, label and group must be different columns"):
        command(tmp_path, SCORED, *TARGET, *options)


def test_a_row_without_a_label_or_a_score_is_named_and_unlabelled_rows_can_be_dropped(tmp_path, capsys):
    unlabelled = SCORED.with_columns(label=pl.when(pl.int_range(90) % 30 != 7).then("label"))
    with pytest.raises(InputError, match=r"rows\.csv, line 9: label is missing; drop or label the row"):
        command(tmp_path, unlabelled, *TARGET)
    command(tmp_path, unlabelled, *TARGET, "--drop-unlabelled")
    printed = capsys.readouterr()
    assert "3 rows without a label are dropped" in printed.err
    assert '"rows": 87' in printed.out
    infinite = SCORED.with_columns(s=pl.when(pl.int_range(90) == 7).then(float("inf")).otherwise("s"))
    with pytest.raises(InputError, match=r"rows\.csv, line 9: s is inf; it must be finite"):
        command(tmp_path, infinite, *TARGET)


@pytest.mark.parametrize(
    ("labels", "typed"),
    [((0, 1), "1"), ((0, 1), " 1 "), ((0.0, 1.0), "1"), ((0, 1), "1.0"), ((False, True), "true"), (("a", " b "), "b")],
)
def test_a_positive_label_is_found_as_text_or_as_a_number(labels, typed, tmp_path, capsys):
    frame = SCORED.with_columns(label=pl.Series([labels[0]] * 40 + [labels[1]] * 50))
    command(tmp_path, frame, "--positive", typed, "--precision", "0.8")
    assert '"positives": 50' in capsys.readouterr().out


FOUR = maps.make_predictions(400, 4, seed=2).with_columns(
    logits=pl.concat_list(*[pl.col("logits").list.get(label) for label in range(3)], pl.lit(-30.0)),
    label=pl.when(pl.col("label") == 3).then(0).otherwise("label"),
)


@pytest.mark.parametrize("variant", [name for name in DEPLOYABLE_VARIANTS if name != "label_signals"])
def test_what_is_fitted_has_no_violation_also_where_a_label_has_no_row(variant):
    document = ReliabilityMap(variant=variant).fit(FOUR).document_
    fits = [document.projection.fitted, *(fold.projection for fold in document.folds)]
    assert len(fits) > 1
    assert [fitted.violations(4) for fitted in fits] == [[]] * len(fits)


@pytest.mark.parametrize("n_rows", [0, 1, 20])
def test_surfaces_of_one_gap_have_gap_knots_that_rise_from_it(n_rows):
    confidence = np.linspace(0.3, 0.9, n_rows)
    decision = np.zeros(n_rows, dtype=int)
    settings = maps.SETTINGS.projection.model_copy(update={"epochs": 3})
    fitted = fit_surfaces(confidence, np.full(n_rows, 0.5), decision, decision == 0, n_labels=2, settings=settings)
    assert fitted.violations(2) == []
    assert fitted.gap_knots[0] == (0.5 if n_rows else 0.0)
    assert fitted.gap_knots[-1] == pytest.approx(0.500001 if n_rows else 1.0)


def test_the_whole_vector_needs_logits_and_labels():
    rows = simulate_rows(1, 50, 3)
    complete = make_batch(rows, 3)
    assert len(VARIANTS["label_vector"].fit(complete)) == 1
    (decisions,) = complete.fit_rows.by_calibrator
    without_logits = complete.fit_rows._replace(by_calibrator=[replace(decisions, logits=None)])
    for fit_rows in (without_logits, complete.fit_rows._replace(labels=None)):
        with pytest.raises(ValueError, match="the whole vector needs logits and labels"):
            VARIANTS["label_vector"].fit(replace(complete, fit_rows=fit_rows))


@pytest.mark.parametrize("offset", [-5e-10, 5e-10, -5e-9, 5e-9])
def test_hundredths_that_nearly_tie_with_a_row_are_no_thresholds(offset):
    hundredths = np.arange(1, 100) / 100
    levels = hundredths[3::7] + offset
    thresholds = choose_thresholds(levels, 1000, 0.5)
    ties = abs(offset) < 1e-9
    for hundredth in hundredths:
        is_near = np.abs(levels - hundredth).min() < 1e-8
        assert (hundredth in thresholds) == (not (is_near and ties) or hundredth == 0.5)


NUMBER = pl.int_range(pl.len())
ID_COLUMNS = {  # a column named id, whether it identifies rows
    "text": (pl.format("r{}", NUMBER), True),
    "numbers with gaps": (7 * NUMBER, True),
    "numbers of the rows": (NUMBER, False),
    "numbers of the rows from 5": (NUMBER + 5, False),
    "numbers of the rows, backward": (-NUMBER, False),
    "numbers of the rows as text": ((NUMBER + 5).cast(pl.String), False),
    "each value twice": (NUMBER // 2, False),
    "one value missing": (pl.when(NUMBER != 4).then(7 * NUMBER), False),
    "lists": (pl.concat_list(7 * NUMBER), False),
}


@pytest.mark.parametrize(("column", "identifies"), ID_COLUMNS.values(), ids=ID_COLUMNS)
def test_a_column_named_id_identifies_rows_unless_it_repeats_or_numbers_them(column, identifies):
    frame = maps.make_confidence_predictions(300).with_columns(id=column)
    training = ReliabilityMap(variant="label_intercept").fit(frame).document_.source.training_rows
    found = (training.by, training.id_column, training.share)
    assert found == (("id", "id", 1.0) if identifies else ("nothing", None, 0.0))


def test_rows_of_the_fit_come_with_the_groups_of_the_fit():
    frame = maps.make_predictions(300)
    ungrouped = ReliabilityMap(variant="label_intercept").fit(frame)
    with pytest.raises(InputError, match="fitted on, with no groups; give the same here"):
        ungrouped.evaluate(frame, groups="group")
    grouped = ReliabilityMap(variant="label_intercept").fit(frame, groups="group")
    with pytest.raises(InputError, match="fitted on, with groups by group; give the same here"):
        grouped.evaluate(frame.with_columns(group=pl.lit("all")))


def test_a_gap_needs_log_probabilities_and_logits():
    logits = np.array([[1.0, 0.0, -1.0]])
    complete = CalibratedDecisions(np.zeros(1), np.zeros(1, dtype=int), np.log(np.full((1, 3), 1 / 3)), logits)
    assert complete.gap.shape == (1,)
    for name in ("log_probabilities", "logits"):
        with pytest.raises(ValueError, match="the gap needs the log-probabilities and the logits"):
            _ = replace(complete, **{name: None}).gap


def test_a_name_of_more_than_220_bytes_is_refused(fitted, tmp_path):
    fitted.save(tmp_path / f"{'x' + 107 * 'ü'}.json")
    with pytest.raises(InputError, match="has more than 220 bytes; give a shorter name"):
        fitted.save(tmp_path / f"{108 * 'ü'}.json")
    with pytest.raises(InputError, match="has more than 220 bytes; give a shorter name"):
        fitted.save(tmp_path / ("x" * 221) / "map.json")
