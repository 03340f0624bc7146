"""Routes of rows through cascades whose reliabilities are computed by hand."""

from dataclasses import FrozenInstanceError, replace

import numpy as np
import polars as pl
import pytest
from scipy.special import expit

from relmap.cascade.apply import CascadeRoutes, apply_cascade, has_columns
from relmap.cascade.document import CascadeDocument
from relmap.errors import InputError
from relmap.io.column_layout import Reading
from relmap.io.frames import FramePredictions
from tests.cascades import make_cascade, reliability_by_hand
from tests.texts import assert_matches, numbers_in

SMALL = Reading(decision="small", confidence="small_sure")
LARGE = Reading(decision="large", confidence="large_sure")
HUGE = Reading(decision="huge")
ROWS = pl.DataFrame(
    {
        "id": ["a", "b", "c", "d"],
        "small": ["yes", "no", "no", "yes"],
        "small_sure": [0.95, 0.6, 0.7, 0.5],
        "large": [None, "no", "yes", None],
        "large_sure": [None, 0.8, 0.8, None],
    }
)
INTERCEPTS = {"large": (0.5, -0.5)}
# of b and c; b agrees with the first model, c differs from it
LARGE_RELIABILITY = reliability_by_hand(
    np.array([0.8, 0.8]), [(np.array([True, False]), np.array([0.6, 0.7]))], np.array([0.5, -0.5])
)


def two_models(**fields: object) -> CascadeDocument:
    return make_cascade({"small": SMALL, "large": LARGE}, (0.9, 0.8), intercepts=INTERCEPTS, **fields)


def apply(document: CascadeDocument, rows: pl.DataFrame) -> tuple[pl.DataFrame, CascadeRoutes]:
    return apply_cascade(document, FramePredictions.from_frame(rows))


def routes_of(rows: pl.DataFrame, document: CascadeDocument | None = None) -> list[str]:
    return apply(document or two_models(), rows)[0]["cascade_route"].to_list()


def test_routes_by_hand():
    added, routes = apply(two_models(), ROWS)
    assert added.columns == ["cascade_decision", "cascade_reliability", "cascade_route"]
    assert added["cascade_route"].to_list() == ["use", "use", "person", "large"]
    assert added["cascade_decision"].to_list() == ["yes", "no", None, None]
    np.testing.assert_allclose(added["cascade_reliability"], [0.95, *LARGE_RELIABILITY, 0.5], rtol=1e-12)
    assert routes.rows == 4
    assert routes.asked == {"small": 4, "large": 2, "person": 1}
    assert routes.decided == {"small": 1, "large": 1}
    assert routes.waiting == {"large": 1, "person": 1}
    assert list(routes.waiting) == ["large", "person"]
    assert routes.expected_accuracy == pytest.approx((0.95 + LARGE_RELIABILITY[0]) / 2)
    assert routes.expected_in_the_end is None  # it is not known who decides row d
    assert routes.target_accuracy == 0.9
    assert routes.costs == {"small": 1, "large": 10, "person": 100}
    assert routes.cost == 4 * 1 + 2 * 10 + 1 * 100
    assert routes.are_identified
    assert routes.similar_columns == {}


def test_the_reliabilities_of_a_third_model_use_both_before():
    rows = pl.DataFrame(
        {
            "id": [1, 2, 3, 4],
            "small": ["no"] * 4,
            "small_sure": [0.6] * 4,
            "large": ["no", "yes", "no", "yes"],
            "large_sure": [0.7] * 4,
            "huge": ["no", "no", "yes", "yes"],
        }
    )
    document = make_cascade({"small": SMALL, "large": LARGE, "huge": HUGE}, (None, None, 0.85))
    added, routes = apply(document, rows)
    agrees_with_small = np.array([True, True, False, False])
    agrees_with_large = np.array([True, False, False, True])
    small = np.full(4, 0.6)
    large = reliability_by_hand(np.full(4, 0.7), [(rows["large"].to_numpy() == "no", small)])
    expected = reliability_by_hand(np.full(4, 0.8), [(agrees_with_small, small), (agrees_with_large, large)])
    np.testing.assert_allclose(added["cascade_reliability"], expected)
    is_final = expected >= 0.85
    assert 0 < is_final.sum() < 4
    assert added["cascade_route"].to_list() == ["use" if final else "person" for final in is_final]
    assert routes.asked == {"small": 4, "large": 4, "huge": 4, "person": 4 - is_final.sum()}
    assert routes.decided == {"small": 0, "large": 0, "huge": is_final.sum()}


def test_a_row_that_waits_for_a_model_is_not_sent_to_a_later_one():
    document = make_cascade({"small": SMALL, "large": LARGE, "huge": HUGE}, (0.9, 0.8, 0.5))
    rows = ROWS.with_columns(huge=pl.lit("yes"))
    _, routes = apply(document, rows)
    assert routes_of(rows, document)[3] == "large"
    without_large = rows.drop("large", "large_sure")
    assert routes_of(without_large, document) == ["use", "large", "large", "large"]
    assert apply(document, without_large)[1].asked == {"small": 4, "person": 0}
    assert routes.asked["huge"] == routes_of(ROWS, document).count("huge") == 1


def test_an_answer_that_was_not_asked_for_changes_nothing():
    unasked = ROWS.with_columns(large=pl.col("large").fill_null("no"), large_sure=pl.col("large_sure").fill_null(0.99))
    assert routes_of(unasked)[0] == "use"
    assert apply(two_models(), unasked)[0]["cascade_reliability"][0] == pytest.approx(0.95)
    alone = ROWS.filter(pl.col("id") == "a").with_columns(large=pl.lit("no"), large_sure=pl.lit(0.99))
    _, routes = apply(two_models(), alone)
    assert routes.asked == {"small": 1, "person": 0}
    assert routes.decided == {"small": 1}


@pytest.mark.parametrize("missing", [None, "", " ", "NA", "nan", "None"])
def test_an_answer_needs_all_of_its_columns(missing):
    rows = ROWS.with_columns(large_sure=pl.col("large_sure").cast(pl.String).fill_null(missing or ""))
    assert routes_of(rows) == ["use", "use", "person", "large"]
    incomplete = rows.with_columns(
        large_sure=pl.when(pl.col("id") != "b").then("large_sure").otherwise(pl.lit(missing))
    )
    assert routes_of(incomplete) == ["use", "large", "person", "large"]
    nothing = rows.with_columns(large=pl.lit(missing, pl.String))
    assert routes_of(nothing) == ["use", "large", "large", "large"]


def test_a_label_may_be_called_as_a_missing_answer_is_written():
    document = make_cascade({"small": SMALL, "large": LARGE}, (0.9, 0.5), names=("none", "some"))
    rows = pl.DataFrame(
        {
            "id": [1, 2],
            "small": ["some", "none"],
            "small_sure": [0.6, 0.6],
            "large": ["none", "none"],
            "large_sure": ["0.8", "none"],
        }
    )
    added, routes = apply(document, rows)
    assert routes.asked["large"] == 1
    assert added["cascade_route"].to_list() == ["use", "large"]
    assert added["cascade_decision"].to_list() == ["none", None]


def test_a_model_without_a_threshold_decides_no_row():
    document = make_cascade({"small": SMALL, "large": LARGE}, (None, 0.8))
    sure = ROWS.with_columns(small_sure=pl.lit(1.0))
    assert routes_of(sure.drop("large", "large_sure"), document) == ["large"] * 4


def test_a_single_model_sends_to_a_person_what_it_does_not_decide():
    document = make_cascade({"small": SMALL}, (0.65,))
    added, routes = apply(document, ROWS)
    assert added["cascade_route"].to_list() == ["use", "person", "use", "person"]
    assert routes.asked == {"small": 4, "person": 2}


def test_a_reliability_at_the_threshold_is_used():
    document = make_cascade({"small": SMALL}, (0.5,))
    assert routes_of(ROWS.with_columns(small_sure=pl.lit(0.5)), document) == ["use"] * 4
    below = ROWS.with_columns(small_sure=pl.lit(0.5 - 1e-8))
    assert routes_of(below, document) == ["person"] * 4


def test_equal_reliabilities_are_divided_by_the_names_of_the_rows():
    n_rows = 400
    rows = pl.DataFrame({"id": range(n_rows), "small": ["yes"] * n_rows, "small_sure": [0.5] * n_rows})
    document = make_cascade({"small": SMALL}, (0.5 + 0.25e-9,))
    routed = routes_of(rows, document)
    assert routed.count("use") == pytest.approx(0.75 * n_rows, abs=0.08 * n_rows)
    assert routes_of(rows[::-1], document) == routed[::-1]
    other_seed = make_cascade({"small": SMALL}, (0.5 + 0.25e-9,), seed=2)
    assert routes_of(rows, other_seed) != routed
    by_number = make_cascade({"small": SMALL}, (0.5 + 0.25e-9,), identity_columns=())
    assert routes_of(rows[::-1], by_number) == routes_of(rows, by_number)
    assert not apply(by_number, rows)[1].are_identified


def test_each_model_divides_equal_reliabilities_in_its_own_way():
    n_rows = 400
    rows = pl.DataFrame({"id": range(n_rows), "small": ["yes"] * n_rows, "small_sure": [0.5] * n_rows})
    rows = rows.with_columns(large="small", large_sure="small_sure")
    at_large = float(reliability_by_hand(np.array(0.5), [(np.array(True), np.array(0.5))]))
    document = make_cascade({"small": SMALL, "large": LARGE}, (0.5 + 0.5e-9, at_large + 0.5e-9))
    _, routes = apply(document, rows)
    assert routes.decided["small"] == pytest.approx(200, abs=40)
    # with the same numbers for both models, those that go on would be below the second threshold too
    assert routes.decided["large"] == pytest.approx(100, abs=35)


def test_without_a_person_no_cost_of_a_person_is_counted():
    document = two_models(person_cost=None)
    _, routes = apply(document, ROWS)
    assert routes.asked == {"small": 4, "large": 2}
    assert routes.costs == {"small": 1, "large": 10}
    assert routes.cost == 24


def test_the_expected_accuracy_of_all_rows_counts_a_person():
    document = make_cascade({"small": SMALL}, (0.65,), person_accuracy=0.9)
    _, routes = apply(document, ROWS)
    assert routes.expected_accuracy == pytest.approx((0.95 + 0.7) / 2)
    assert routes.expected_in_the_end == pytest.approx((0.95 + 0.7 + 2 * 0.9) / 4)
    _, routes = apply(document, ROWS[::2])
    assert routes.waiting == {}
    assert routes.expected_in_the_end == routes.expected_accuracy == pytest.approx((0.95 + 0.7) / 2)
    _, routes = apply(document, ROWS[1::2])
    assert routes.expected_accuracy is None
    assert routes.expected_in_the_end == pytest.approx(0.9)


def test_no_rows_have_no_routes():
    added, routes = apply(two_models(), ROWS.clear())
    assert len(added) == 0
    assert routes.rows == 0
    assert routes.expected_accuracy is None
    assert routes.expected_in_the_end is None
    assert len(routes.describe()) == 1


def test_routes_are_frozen():
    _, routes = apply(two_models(), ROWS)
    with pytest.raises(FrozenInstanceError):
        routes.rows = 5


# Decisions in the type of the first model's column


def numbered(**fields: object) -> CascadeDocument:
    return make_cascade({"small": Reading()}, (0.65,), names=("0", "1"), inputs={"small": "confidence_only"}, **fields)


@pytest.mark.parametrize(
    ("names", "decisions", "expected"),
    [
        (("no", "yes"), ["yes", "no"], ["yes", None]),
        (("0", "1"), [1, 0], [1, None]),
        (("0", "1"), [1.0, 0.0], [1.0, None]),
        (("0", "1"), [True, False], [True, None]),
        (("0", "1"), [False, True], [False, None]),
        (("yes", "no"), [True, False], [True, None]),
        (("no", "yes"), [1, 0], ["yes", None]),  # a column of numbers cannot hold the names
        (("0", "1", "2"), [True, False], ["1", None]),  # nor can truth values hold three
    ],
)
def test_decisions_have_the_type_of_the_column_if_it_can_hold_the_names(names, decisions, expected):
    document = make_cascade({"small": Reading()}, (0.65,), names=names, inputs={"small": "confidence_only"})
    rows = pl.DataFrame({"id": [1, 2], "decision": decisions, "confidence": [0.7, 0.6]})
    added, _ = apply(document, rows)
    assert added["cascade_decision"].to_list() == expected
    assert added["cascade_decision"].dtype == pl.Series(expected).dtype


@pytest.mark.parametrize("dtype", [pl.Int64, pl.Int8, pl.Float64, pl.String, pl.Boolean])
def test_final_decisions_alone_are_named_in_the_type_of_the_decisions(dtype):
    decisions = pl.Series([1, 0, 1, 0]).cast(dtype)
    rows = pl.DataFrame({"id": range(4), "decision": decisions, "confidence": [0.7, 0.8, 0.6, 0.5]})
    added, _ = apply(numbered(), rows)
    assert added["cascade_decision"].dtype == dtype
    assert added["cascade_decision"].to_list() == [*decisions[:2], None, None]


def test_decisions_of_probabilities_are_names():
    document = make_cascade({"small": Reading(probabilities="p,q")}, (0.65,), inputs={"small": "logits"})
    rows = pl.DataFrame({"id": [1, 2], "p": [0.1, 0.6], "q": [0.9, 0.4]})
    added, _ = apply(document, rows)
    assert added["cascade_decision"].to_list() == ["yes", None]
    np.testing.assert_allclose(added["cascade_reliability"], [0.9, 0.6])


def test_words_for_numbered_labels_are_errors():
    rows = pl.DataFrame({"id": [1], "decision": ["yes"], "confidence": [0.7]})
    with pytest.raises(InputError, match="yes"):
        apply(numbered(are_numbered=True), rows)
    assert apply(numbered(), rows)[0]["cascade_decision"].to_list() == ["1"]


# Errors


def test_columns_of_an_earlier_call_are_refused():
    with pytest.raises(InputError, match=r"column cascade_route;"):
        apply(two_models(), ROWS.with_columns(cascade_route=pl.lit("use")))


def test_the_first_model_needs_all_predictions():
    with pytest.raises(InputError, match="small"):
        apply(two_models(), ROWS.drop("small"))
    with pytest.raises(InputError, match=r"row 2\b.*small"):
        apply(two_models(), ROWS.with_columns(small=pl.Series(["yes", "no", None, "no"])))


def test_columns_that_identify_rows_are_required():
    with pytest.raises(InputError, match=r"column id\b"):
        apply(two_models(), ROWS.drop("id"))


@pytest.mark.parametrize("row", [1, 2])
def test_an_unreadable_answer_is_named_by_its_row(row):
    broken = ROWS.with_row_index().with_columns(
        large=pl.when(pl.col("index") == row).then(pl.lit("maybe")).otherwise("large")
    )
    with pytest.raises(InputError, match=rf"row {row}\b.*'maybe'") as refusal:
        apply(two_models(), broken.drop("index"))
    assert "rows" not in str(refusal.value)  # it is the only one


def test_signals_in_the_rows_are_refused():
    with pytest.raises(InputError, match="column support_of_small"):
        apply(two_models(), ROWS.with_columns(support_of_small=1.0))


# Columns of a model


@pytest.mark.parametrize(
    ("reading", "columns", "expected"),
    [
        (Reading(decision="large"), ["small", "large"], True),
        (Reading(decision="large"), ["small", "large_0"], False),
        (Reading(decision="large"), [], False),
        (Reading(confidence="sure"), ["sure"], True),
        (Reading(confidence="sure"), ["sure_0"], False),
        (Reading(decision="large", confidence="sure"), ["sure"], True),
        (Reading(probabilities="p"), ["p_0", "p_1"], True),
        (Reading(probabilities="p"), ["p"], True),
        (Reading(probabilities="p"), ["pp_0"], False),
        (Reading(probabilities="p,q"), ["q"], True),
        (Reading(logits="l"), ["l_0"], True),
        (Reading(probability="p"), ["p"], True),
        (Reading(probability="p"), ["p_0"], False),
        (Reading(score="s"), ["s"], True),
        (Reading(), ["decision"], False),
    ],
)
def test_the_columns_of_a_model_are_found(reading, columns, expected):
    assert has_columns(reading, columns) is expected


def similar(columns: dict[str, str], **fields: object) -> dict[str, str]:
    """Return the similar columns if the large model's predictions have these names."""
    document = make_cascade({"small": SMALL, "large": Reading(decision="label_2")}, (0.9, 0.8), **fields)
    rows = ROWS.drop("large_sure").rename({"large": "label_2"}).rename(columns)
    return apply(document, rows)[1].similar_columns


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("Label_2", {"label_2": "Label_2"}),
        (" label_2 ", {"label_2": " label_2 "}),
        ("labels_2", {"label_2": "labels_2"}),
        ("lb_2", {}),  # two thirds of the letters are the same
        ("other", {}),
        ("label_2", {}),
    ],
)
def test_a_column_with_a_similar_name_is_found(column, expected):
    assert similar({"label_2": column}) == expected


def test_columns_of_other_models_and_of_ids_are_not_similar():
    document = make_cascade({"label_1": Reading(decision="label_1"), "large": Reading(decision="label_2")}, (0.9, 0.8))
    rows = pl.DataFrame({"id": [1, 2], "label_1": ["no", "yes"]})
    assert apply(document, rows)[1].similar_columns == {}
    assert similar({"label_2": "other", "id": "label_3"}, identity_columns=("label_3",)) == {}


def test_only_models_that_rows_wait_for_have_similar_columns():
    document = make_cascade({"small": SMALL, "large": LARGE, "huge": HUGE}, (0.9, 0.8, 0.5))
    rows = ROWS.rename({"large": "Large", "large_sure": "large_SURE"}).with_columns(Huge=pl.lit("yes"))
    assert apply(document, rows)[1].similar_columns == {"large": "Large", "large_sure": "large_SURE"}
    complete = ROWS.with_columns(large=pl.lit("yes"), large_sure=pl.lit(0.5), Huge=pl.lit("yes"))
    assert apply(document, complete)[1].similar_columns == {"huge": "Huge"}


# Sentences


ROUTES = CascadeRoutes(
    rows=2000,
    asked={"small": 2000, "large": 1200, "person": 0},
    decided={"small": 500, "large": 700},
    waiting={"large": 800},
    expected_accuracy=0.9512,
    expected_in_the_end=None,
    target_accuracy=0.9,
    costs={"small": 0.5, "large": 10.0, "person": 100.0},
    are_identified=True,
    similar_columns={},
)
FINISHED = replace(ROUTES, waiting={"person": 800}, asked=ROUTES.asked | {"person": 800}, expected_in_the_end=0.97)


def test_rows_that_wait_for_a_model_are_described():
    lines = ROUTES.describe()
    assert_matches(
        lines, [r"small.*large.*expected accuracy", r"go to large: .*`cascade apply`", r"^Cost so far: .*asking large"]
    )
    assert numbers_in(lines[0]) == ["1,200", "2,000", "500", "700", "95.1%"]
    assert numbers_in(lines[1]) == ["800"]
    # the cost of nobody who was not asked, and what the model would cost in addition
    expected = ["2,000", "0.5", "1,200", "10", "13,000", "6.5", "800", "10", "8,000"]
    assert numbers_in(lines[2]) == expected
    assert "person" not in lines[2]


def test_rows_that_go_to_a_person_are_described():
    lines = FINISHED.describe()
    assert_matches(lines, [r"are final", r"go to a person", r"Expected accuracy of all", r"^Cost: .*a person"])
    assert numbers_in(lines[1]) == ["800"]
    assert numbers_in(lines[2]) == ["97.0%"]
    expected = ["2,000", "0.5", "1,200", "10", "800", "100", "93,000", "46.5"]
    assert numbers_in(lines[3]) == expected


def test_rows_that_all_are_final_have_no_second_expected_accuracy():
    lines = replace(FINISHED, waiting={}, expected_in_the_end=0.9512).describe()
    assert_matches(lines, ["are final", "^Cost: "])


def test_rows_of_which_none_is_final_have_no_expected_accuracy():
    lines = replace(ROUTES, decided={"small": 0}, expected_accuracy=None).describe()
    assert_matches(lines, ["go to large", "^Cost so far"])


def test_nothing_that_was_asked_costs_nothing():
    lines = replace(FINISHED, asked={"small": 0}).describe()
    assert numbers_in(lines[-1]) == ["0", "0", "0"]


@pytest.mark.parametrize(
    ("expected", "target", "is_below"),
    [(0.89, 0.9, True), (0.9, 0.9, False), (0.91, 0.9, False), (None, 0.9, False), (0.5, None, False)],
)
def test_an_expected_accuracy_below_the_target_is_explained(expected, target, is_below):
    lines = replace(FINISHED, expected_in_the_end=expected, target_accuracy=target).describe()
    below = [line for line in lines if "below the target" in line]
    assert len(below) == is_below
    if is_below:
        assert numbers_in(below[0]) == ["90%"]


def test_rows_without_ids_must_keep_their_order():
    lines = replace(ROUTES, are_identified=False).describe()
    assert_matches(lines, ["are final", "go to large", "same order", "^Cost"])
    to_person = replace(FINISHED, are_identified=False).describe()
    assert not any("same order" in line for line in to_person)
    both = replace(ROUTES, waiting={"person": 3, "large": 800}).describe()
    assert_matches(both, ["are final", "go to a person", "go to large", "^Cost so far"])


def test_similar_columns_are_described():
    lines = replace(ROUTES, similar_columns={"large": "Large"}).describe()
    assert any("no column large;" in line and "Large" in line for line in lines)


def test_the_support_of_a_decision_is_bounded():
    rows = ROWS.filter(pl.col("id") == "b").with_columns(small_sure=pl.lit(0.0))
    document = make_cascade({"small": SMALL, "large": LARGE}, (None, 0.8))
    added, _ = apply(document, rows)
    expected = reliability_by_hand(np.array(0.8), [(np.array(True), expit(-10))])
    assert added["cascade_reliability"][0] == pytest.approx(expected)
