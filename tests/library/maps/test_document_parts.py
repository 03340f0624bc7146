"""Parts of a map must fit together: each rule accepts maps at its limit and names what does not fit."""

import numpy as np
import pydantic
import pytest

from relmap.calibrators.identity import Constant, Identity
from relmap.calibrators.spline import Spline
from relmap.calibrators.temperature import Temperature
from relmap.decisions import FixedDecisions
from relmap.io.signals import NumberSignal, TextSignal
from relmap.maps.document import Cell, MapDocument
from relmap.maps.earlier import WholeVector
from relmap.maps.score import FittedMap
from tests import maps
from tests.texts import assert_matches

ROWS = maps.rows_of_frame(maps.make_predictions(200))
HASHES = ("AAAAAAAA",)
LENGTH = NumberSignal(name="length", mean=0.0, deviation=1.0, lowest=-1.0, highest=1.0)
SOURCE_KIND = TextSignal(name="source", values=("ads", "web"))
CELL = Cell(label=2, half="upper", rows=9, mean_reliability=0.5, mean_residual=0.0, variance=0.1)


@pytest.fixture(scope="module")
def document() -> MapDocument:
    """Fitted map with five folds."""
    return maps.fit_map(ROWS, "label_intercept").document


def change(document: MapDocument, **parts: object) -> MapDocument:
    """Return a map with other parts, which are checked."""
    return MapDocument(**dict(document) | parts)


def check_violations(document: MapDocument, *patterns: str, **parts: object) -> None:
    """Check that a map with other parts violates one rule for each pattern, in this order."""
    with pytest.raises(pydantic.ValidationError) as error:
        change(document, **parts)
    (violation,) = error.value.errors()
    rules = str(violation["ctx"]["error"]).split("; ")
    assert_matches(rules, patterns)


def test_labels_need_as_many_distinct_names(document):
    assert change(document, label_names=None).shown_names == ("label 0", "label 1", "label 2")
    check_violations(document, "3 labels .*2 names.* 2 .*distinct", label_names=("a", "b"))
    check_violations(document, "3 labels .*4 names.* 4 .*distinct", label_names=("a", "b", "c", "d"))
    check_violations(document, "3 labels .*3 names.* 2 .*distinct", label_names=("a", "b", "b"))


@pytest.mark.parametrize(
    ("map_input", "calibrator", "expected"),
    [
        ("logits", Temperature(0.5), None),
        ("logits", Identity(), None),
        ("confidence_only", Identity(), None),
        ("decision_only", Constant(0.5), None),
        ("confidence_only", Temperature(0.5), "made up .*logits.*confidence_only$"),
        ("decision_only", Identity(), "made up .*match.*decision_only$"),
        ("logits", Constant(0.5), "made up .*match.*logits$"),
    ],
)
def test_the_calibrator_reads_the_input(map_input, calibrator, expected):
    document = maps.make_map("label_intercept")
    calibration = document.calibrator.model_copy(update={"name": "made up", "fitted": calibrator})
    if expected:
        check_violations(document, expected, input=map_input, calibrator=calibration)
    else:
        assert change(document, input=map_input, calibrator=calibration).input == map_input


def test_models_that_read_all_logits_need_logits():
    expected = "all logits .*confidence_only$"
    document = maps.make_map("label_intercept", confidence_only=True)
    earlier = document.projection.model_copy(update={"fitted": WholeVector(np.eye(3), np.zeros(3))})
    check_violations(document, expected, projection=earlier)
    check_violations(document, expected, baseline=document.calibrator)
    logits_map = maps.make_map("label_intercept")
    assert change(logits_map, baseline=logits_map.calibrator).baseline == logits_map.calibrator


def test_hashes_of_fit_rows_have_one_part_for_each_fold(document):
    def source_with(n_folds: int) -> object:
        rows = document.source.training_rows.model_copy(update={"folds": HASHES * n_folds})
        return document.source.model_copy(update={"training_rows": rows})

    for n_folds in (0, 5):
        assert len(change(document, source=source_with(n_folds)).source.training_rows.folds) == n_folds
    check_violations(document, r"source\.training_rows .*4 folds.* 5$", source=source_with(4))
    without_folds = change(document, folds=(), source=source_with(1))
    assert without_folds.folds == ()
    check_violations(document, r"source\.training_rows .*2 folds.* 0$", folds=(), source=source_with(2))
    no_hashes = document.source.model_copy(update={"training_rows": None})
    assert change(document, source=no_hashes).source.training_rows is None


def test_signals_have_a_weight_for_each_column():
    document = maps.make_map("label_intercept")
    check_violations(document, r"signals .*1 columns.*\[0\]$", signals=(LENGTH,))
    check_violations(document, r"signals .*3 columns.*\[0\]$", signals=(LENGTH, SOURCE_KIND))


def test_summaries_have_the_labels_of_the_map(document):
    projection = document.projection.model_copy(update={"rows_by_label": (1, 2)})
    check_violations(document, r"projection\.rows_by_label .*2 numbers.* 3 labels$", projection=projection)

    def held_out(**parts: object) -> object:
        return document.held_out.model_copy(update=parts)

    other_labels = r"held_out .*labels .*0\.\.2$"
    assert change(document, held_out=held_out(cells=(CELL,))).held_out.cells == (CELL,)
    check_violations(document, other_labels, held_out=held_out(cells=(CELL.model_copy(update={"label": 3}),)))
    check_violations(document, other_labels, held_out=held_out(halves=(0.5, 0.5)))
    check_violations(document, other_labels, held_out=held_out(halves=(0.5,) * 4))
    equal = held_out(quantiles=(0.5,) * 101)
    falling = held_out(quantiles=(0.5,) * 100 + (0.4,))
    assert change(document, held_out=equal).held_out.quantiles == (0.5,) * 101
    check_violations(document, r"^held_out\.quantiles decrease$", held_out=falling)


def test_all_violated_rules_are_named_together(document):
    names = ("a", "a", "b")
    projection = document.projection.model_copy(update={"rows_by_label": (1, 2)})
    patterns = ("3 labels .*3 names.* 2 .*distinct", r"projection\.rows_by_label .*2 numbers.* 3 labels$")
    check_violations(document, *patterns, label_names=names, projection=projection)


def test_a_spline_calibrates_confidences_without_logits():
    spline = Spline(np.array([0.0, 1.0]), np.array([[-1.0, 2.0, 0.0, 0.5]]))
    document = maps.make_map("confidence", calibrator=spline, confidence_only=True)
    confidence = np.array([0.2, 0.9, 0.5])
    scored = FittedMap.from_document(document)(FixedDecisions(decision=np.array([0, 1, 2]), confidence=confidence))
    np.testing.assert_allclose(scored.confidence, spline.calibrate_confidence(confidence))
