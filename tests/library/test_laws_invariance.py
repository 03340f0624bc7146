"""What must not matter: the order of rows, names of groups and labels, the unit of weights, and copies of the data."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from relmap import ReliabilityMap
from relmap.fitting.folds import split_folds
from relmap.io.frames import FramePredictions
from relmap.io.rows import PredictedRows
from relmap.maps.reliability_map import FittedMap
from relmap.routing.apply import apply_to_frame
from tests import maps

N = 120
COUNTS = {"rows", "errors", "automatic", "reviews"}
TURN = np.array([2, 0, 1])  # new number of each label
BACK = np.argsort(TURN)
LOGITS = maps.make_predictions(N, shift=2.5, seed=1)
JUDGE = maps.make_confidence_predictions(N, shift=2.5, seed=1).with_columns(group=LOGITS["group"])
SIGNALS = maps.make_predictions_with_signals(N, seed=1)
COPIES = np.random.default_rng(0).permutation(np.tile([50, 150, 70, 130], N // 4))  # whole hundredths of their mean


def flat(value: object, place: str = "") -> dict[str, object]:
    """The plain values within a JSON value, by their place."""
    if isinstance(value, dict):
        return {end: leaf for key, inner in value.items() for end, leaf in flat(inner, f"{place}/{key}").items()}
    if isinstance(value, list | tuple):
        return {end: leaf for at, inner in enumerate(value) for end, leaf in flat(inner, f"{place}/{at}").items()}
    return {place: value}


def assert_same(first: object, second: object, rel: float = 1e-9, atol: float = 1e-11) -> None:
    """Compare plain values, numbers up to rounding."""
    one = flat(first)
    other = flat(second)
    assert list(one) == list(other)
    for place, value in one.items():
        if isinstance(value, float) and other[place] is not None:
            assert other[place] == pytest.approx(value, rel=rel, abs=atol), place
        else:
            assert other[place] == value, place


@pytest.fixture(scope="module", autouse=True)
def _few_resamples():
    with pytest.MonkeyPatch.context() as patch:
        maps.limit_resamples(patch, 60)
        maps.limit_prior_deviations(patch)
        yield


@pytest.fixture(scope="module")
def fitted() -> ReliabilityMap:
    return ReliabilityMap().fit(maps.make_predictions(240, shift=2.5, seed=2))


@pytest.fixture(scope="module")
def new_rows() -> pl.DataFrame:
    return LOGITS.with_columns(inverse_probability=pl.Series(COPIES / 100))


@pytest.mark.parametrize("columns", [("inverse_probability",), ()], ids=["weights", "plain"])
def test_an_evaluation_by_group_does_not_depend_on_the_order_of_rows(fitted, new_rows, columns):
    frame = new_rows.select("logits", "label", "group", *columns)
    order = np.random.default_rng(1).permutation(N)
    assert_same(
        fitted.evaluate(frame, groups="group").to_dict(), fitted.evaluate(frame[order], groups="group").to_dict()
    )


def test_thresholds_without_groups_do_not_depend_on_the_order_of_rows(fitted, new_rows):
    frame = new_rows.drop("inverse_probability", "group")
    order = np.random.default_rng(1).permutation(N)
    for asked in ({"target_accuracy": 0.6}, {"coverage": 0.5}):
        assert fitted.thresholds(frame, **asked).to_dict() == fitted.thresholds(frame[order], **asked).to_dict()


@pytest.mark.parametrize("settings", [{}, {"coverage": "0.6"}, {"cut": 0.7}], ids=str)
def test_a_row_is_scored_and_ranked_the_same_wherever_it_is(fitted, new_rows, settings):
    order = np.random.default_rng(1).permutation(N)
    scored = [
        apply_to_frame(fitted.document_, FramePredictions.from_frame(rows.select("logits")), **settings)[0]
        for rows in (new_rows, new_rows[order])
    ]
    assert scored[1].equals(scored[0][order])
    assert fitted.reliability(new_rows[order]).to_list() == fitted.reliability(new_rows)[order].to_list()


@pytest.mark.parametrize("groups", ["group", None])
def test_the_unit_of_weights_does_not_matter(fitted, new_rows, groups):
    other = new_rows.with_columns(pl.col("inverse_probability") * 37.5)
    assert_same(fitted.evaluate(new_rows, groups=groups).to_dict(), fitted.evaluate(other, groups=groups).to_dict())
    for asked in ({"target_accuracy": 0.6}, {"cost_error": 3.0, "cost_review": 1.0}):
        answers = [fitted.thresholds(rows, groups=groups, **asked).to_dict() for rows in (new_rows, other)]
        assert_same(*answers)
    fits = [ReliabilityMap().fit(rows, groups=groups) for rows in (new_rows, other)]
    assert_same(*[learned(each) for each in fits], rel=1e-6, atol=1e-8)
    assert str(fits[0].recommendation_) == str(fits[1].recommendation_)


@pytest.mark.parametrize("groups", ["group", None])
def test_weights_that_are_all_alike_are_none(fitted, new_rows, groups):
    plain = new_rows.drop("inverse_probability")
    alike = new_rows.with_columns(inverse_probability=3.0)
    fits = [ReliabilityMap().fit(rows, groups=groups) for rows in (plain, alike)]
    assert_same(*[learned(each, without=("aurc",)) for each in fits], atol=1e-8)
    answers = [fitted.evaluate(rows, groups=groups).to_dict() for rows in (plain, alike)]
    for answer in answers:
        assert answer.pop("weighted") == (answer is answers[1])
        for ranked in ("aupr_error", "aurc", "augrc"):  # sums over places, which copies of rows smooth
            answer["metrics"].pop(ranked)
    assert_same(*answers)


def learned(made: ReliabilityMap, without: tuple[str, ...] = ()) -> dict:
    """A map but for where it comes from."""
    content = made.document_.model_dump(mode="json", exclude={"source"})
    content["choice"]["gains"] = [
        {key: value for key, value in gain.items() if key not in without} for gain in content["choice"]["gains"]
    ]
    return content


@pytest.mark.parametrize("rows", [LOGITS, JUDGE], ids=["logits", "judge"])
def test_the_names_of_groups_do_not_matter(rows):
    renamed = rows.with_columns(group=pl.col("group").str.slice(1).cast(int) * -7 % 1009)
    other = rows.with_columns(group=pl.format("z{}", pl.col("group")))  # their order is kept
    made, again, third = (ReliabilityMap().fit(each, groups="group") for each in (rows, renamed, other))
    assert learned(made) == learned(third)
    assert str(made.recommendation_) == str(third.recommendation_)
    assert made.evaluate(rows).to_dict() == third.evaluate(other).to_dict()
    assert_same(learned(made), learned(again))


def test_within_groups_that_come_in_the_same_order_the_order_of_rows_does_not_matter():
    """Rows of several groups may alternate."""
    rows = LOGITS.with_columns(inverse_probability=pl.Series(COPIES / 100))
    numbered = rows.with_row_index("row").with_columns(
        within=pl.int_range(pl.len()).over("group"), first=pl.col("row").min().over("group")
    )
    alternating = numbered.sort("within", "first").select(rows.columns)
    assert not alternating.equals(rows)
    made, again = (ReliabilityMap(hold_out=0.2).fit(each, groups="group") for each in (rows, alternating))
    assert_same(learned(made), learned(again), rel=1e-6, atol=1e-7)
    assert str(made.recommendation_).splitlines()[0] == str(again.recommendation_).splitlines()[0]


def turned(frame: pl.DataFrame) -> pl.DataFrame:
    """The same rows with other numbers of the labels."""
    columns = [
        pl.col(name).replace_strict(dict(enumerate(TURN.tolist()))) for name in ("label", "decision") if name in frame
    ]
    if "logits" in frame:
        columns.append(pl.concat_list([pl.col("logits").list.get(old) for old in BACK.tolist()]).alias("logits"))
    return frame.with_columns(columns)


@pytest.mark.parametrize(
    ("rows", "settings"),
    [
        (LOGITS, {}),
        (LOGITS, {"variant": "mrp"}),
        (LOGITS, {"variant": "label_vector"}),
        (LOGITS, {"calibrator": "vector", "variant": "label_isotonic"}),
        (JUDGE, {}),
        (JUDGE.drop("confidence"), {}),
        (SIGNALS, {"variant": "label_signals", "signals": ["agreement", "source"]}),
    ],
    ids=["logits", "mrp", "vector", "isotonic", "judge", "decisions", "signals"],
)
def test_the_numbers_of_labels_do_not_matter(rows, settings):
    names = np.array(["bad", "fair", "good"])
    settings = {"seed": 3, **settings}
    made = ReliabilityMap(labels=names, **settings).fit(rows, groups="group")
    other = ReliabilityMap(labels=names[BACK], **settings).fit(turned(rows), groups="group")
    assert made.document_.projection.name == other.document_.projection.name
    np.testing.assert_allclose(other.reliability(turned(rows)), made.reliability(rows), atol=1e-5)
    assert other.predict(turned(rows)).tolist() == made.predict(rows).tolist()
    one = made.evaluate(rows).to_dict()
    two = other.evaluate(turned(rows)).to_dict()
    assert [label["label"] for label in two["labels"]] == [0, 1, 2]
    two["labels"] = [each | {"label": old} for old, each in enumerate(two["labels"][new] for new in TURN)]
    two["agreement"]["labels"] = [two["agreement"]["labels"][new] for new in TURN]
    for answer in (one, two):
        answer["label_spread"].pop("shuffled_p95")  # drawn at random, label after label
    assert_same(one, two, rel=1e-3, atol=1e-3)
    halves = np.array(other.document_.held_out.halves)[TURN]
    np.testing.assert_allclose(halves, made.document_.held_out.halves, atol=1e-5)
    cells = {(TURN[cell.label], cell.half): cell for cell in made.document_.held_out.cells}
    for cell in other.document_.held_out.cells:
        mine = cells.pop((cell.label, cell.half))
        assert (cell.rows, cell.mean_residual) == (mine.rows, pytest.approx(mine.mean_residual, abs=1e-5))
    assert not cells


def test_copies_of_all_rows_in_their_groups_change_no_mean_and_no_error(fitted, new_rows):
    """Sums over places, such as AURC, approach an integral; bounds that count rows are left out too."""
    frame = new_rows.drop("inverse_probability")
    one = fitted.evaluate(frame, groups="group").to_dict()
    two = fitted.evaluate(pl.concat([frame, frame]), groups="group").to_dict()
    assert (two["rows"], two["errors"], two["groups"]) == (2 * one["rows"], 2 * one["errors"], one["groups"])
    for answer in (one, two):
        for ranked in ("aupr_error", "aurc", "augrc"):
            answer["metrics"].pop(ranked)
        del answer["label_spread"]
        parts = answer.pop("drift")
        answer["drift"] = [
            [cell[name] for name in ("says", "correct", "expected")] for cell in (*parts["cells"], *parts["top"])
        ]
        answer["top"] = [[each[name] for name in ("predicted", "correct", "gap")] for each in answer["top"]]
        for share in (answer["accuracy"], *[label["correct"] for label in answer["labels"]]):
            del share["low"], share["high"]
    one = without_counts(one)
    two = without_counts(two)
    assert_same(one, two)
    costs = {"cost_error": 3.0, "cost_review": 1.0}
    single, double = (
        without_counts(fitted.thresholds(rows, groups="group", **costs).to_dict())
        for rows in (frame, pl.concat([frame, frame]))
    )
    assert_same(single, double)


def without_counts(value: object) -> object:
    """A JSON value without numbers of rows."""
    if isinstance(value, dict):
        kept = {key: inner for key, inner in value.items() if key not in COUNTS or isinstance(inner, list)}
        return {key: without_counts(inner) for key, inner in kept.items()}
    return [without_counts(inner) for inner in value] if isinstance(value, list) else value


def test_rows_that_are_held_out_change_nothing_but_where_they_come_from():
    hold_out = 0.3
    aside = split_folds(N, None, 1, hold_out=hold_out).held_out
    rows = maps.rows_of_frame(LOGITS.drop("group"))
    label = rows.label.copy()
    logits = rows.logits.copy()
    label[aside] = 0
    logits[aside] = logits[aside] ** 2
    other: PredictedRows = replace(rows, label=label, logits=logits, decision=logits.argmax(axis=1))
    made = [ReliabilityMap(hold_out=hold_out).fit(each.logits, each.label) for each in (rows, other)]
    assert learned(made[0]) == learned(made[1])
    assert len(aside) > 0
    assert made[0].document_.held_out.rows == N - len(aside)


def test_each_row_is_scored_by_itself():
    made = ReliabilityMap().fit(LOGITS.drop("group"))
    rows = maps.rows_of_frame(LOGITS.drop("group"))
    scored = FittedMap.from_document(made.document_)(rows)
    for row in range(0, N, 40):
        alone = FittedMap.from_document(made.document_)(rows.take(slice(row, row + 1)))
        assert (alone.confidence[0], alone.logit[0]) == (scored.confidence[row], scored.logit[row])
