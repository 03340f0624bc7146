"""Rows of the fit are recognized one by one, in any order and among new rows, and scored by models without them."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from relmap import ReliabilityMap
from relmap.errors import InputError
from relmap.fitting import training_rows
from relmap.fitting.folds import restore_fold_split
from relmap.fitting.labelled_rows import read_and_score_rows, score_out_of_fold
from relmap.fitting.training_rows import NOT_RECOGNIZED, hash_training_rows, recognize_rows
from relmap.io.frames import FramePredictions
from relmap.io.rows import PredictedRows
from relmap.maps.map_file import load_map
from tests.maps import SOURCE, make_confidence_predictions, make_predictions, rows_of_frame, run_command

ROWS, NEW_ROWS = make_predictions(800), make_predictions(500, seed=1)
SHUFFLED_HALF = ROWS.sample(fraction=0.5, shuffle=True, seed=3)
EARLIER = sorted((Path(__file__).parents[1] / "data" / "maps_c857e97").glob("*.json"))


def fit(frame: pl.DataFrame, folder: Path, *options: str) -> object:
    frame.write_parquet(folder / "fit.parquet")
    run_command("fit", "--predictions", folder / "fit.parquet", "--out", folder / "map.json", *options)
    return load_map(folder / "map.json")


def answers(command: str, frame: pl.DataFrame, folder: Path, capsys: pytest.CaptureFixture, *options: str) -> tuple:
    frame.write_parquet(folder / "rows.parquet")
    capsys.readouterr()
    asked = "--map", folder / "map.json", "--predictions", folder / "rows.parquet"
    run_command(command, *asked, *(("--target-accuracy", "0.8") if command == "thresholds" else ()), *options)
    printed = capsys.readouterr()
    return json.loads(printed.out), printed.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("fitted")
    fit(ROWS, place)
    return place


@pytest.mark.parametrize("command", ["evaluate", "thresholds"])
def test_how_many_rows_were_used_is_reported(command, folder, capsys):
    for frame, fitted in ((NEW_ROWS, 0), (SHUFFLED_HALF, 400), (pl.concat([NEW_ROWS, SHUFFLED_HALF]), 400)):
        numbers, words = answers(command, frame, folder, capsys)
        assert numbers["fitted_rows"] == fitted
        assert (f"{fitted:,} of {len(frame):,} rows were used to fit the map" in words) == (fitted > 0)
        assert numbers.get("guaranteed", fitted == 0) == (fitted == 0)


def test_each_row_has_the_score_of_the_model_without_its_fold_whatever_is_around_it(folder):
    """The oracle is the whole file in its order, which is recognized as such."""
    document = load_map(folder / "map.json")
    rows = rows_of_frame(ROWS)
    whole = score_out_of_fold(document, rows, restore_fold_split(document, rows)).logit
    order = np.random.default_rng(0).permutation(len(ROWS))[:300]
    mixed = pl.concat([ROWS[order.tolist()], NEW_ROWS])
    read = read_and_score_rows(document, FramePredictions.from_frame(mixed), group=None)
    np.testing.assert_array_equal(read.fitted, np.arange(len(mixed)) < 300)
    np.testing.assert_array_equal(read.scored.logit[:300], whole[order])
    alone = read_and_score_rows(document, FramePredictions.from_frame(NEW_ROWS), group=None)
    np.testing.assert_array_equal(read.scored.logit[300:], alone.scored.logit)
    assert alone.origin == "new"


def test_drift_is_tested_on_the_new_rows_alone(folder, capsys):
    mixed = answers("evaluate", pl.concat([SHUFFLED_HALF, NEW_ROWS]), folder, capsys)[0]
    assert mixed["drift"] == answers("evaluate", NEW_ROWS, folder, capsys)[0]["drift"]
    assert answers("evaluate", SHUFFLED_HALF, folder, capsys)[0]["drift"] is None


def test_all_rows_in_another_order_are_scored_as_in_their_own(folder, capsys):
    turned, own = (answers("evaluate", frame, folder, capsys)[0] for frame in (ROWS[::-1], ROWS))
    assert turned["fitted_rows"] == own["fitted_rows"] == len(ROWS)
    assert turned["metrics"]["nll_correct"]["reliability"] == pytest.approx(
        own["metrics"]["nll_correct"]["reliability"]
    )


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 6),
    st.sampled_from(["logits", "probabilities", "confidence"]),
    st.integers(0, 2**32 - 1),
    st.sampled_from([np.float64, np.float32]),
)
def test_a_row_of_the_fit_is_recognized_in_any_precision_and_no_other_one(n_labels, kind, seed, precision):
    generator = np.random.default_rng(seed)

    def rows(numbers: np.ndarray) -> PredictedRows:
        given = numbers.astype(precision).astype(float) if numbers is again else numbers
        decision = numbers.argmax(axis=1)
        if kind == "confidence":
            return PredictedRows(None, given.max(axis=1), decision, decision, None)
        return PredictedRows(np.log(given) if kind == "probabilities" else given, None, decision, decision, None)

    again = None
    numbers = generator.normal(size=(200, n_labels)) * 3
    numbers = numbers if kind == "logits" else softmax(numbers, axis=1)
    folds = np.array_split(generator.permutation(100), 5)  # the other 100 rows are new
    training = hash_training_rows(rows(numbers[:100]), folds, SOURCE)
    order = generator.permutation(200)
    again = numbers[order]
    expected = np.full(200, NOT_RECOGNIZED)
    for place, members in enumerate(folds):
        expected[np.isin(order, members)] = place
    np.testing.assert_array_equal(recognize_rows(training, rows(again), None), expected)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 400), st.integers(1, 500))
def test_never_more_hashes_are_stored_than_there_is_room_for(room, n):
    numbers = np.random.default_rng(n).normal(size=(n, 2))
    rows = PredictedRows(numbers, None, np.zeros(n, dtype=int), np.zeros(n, dtype=int), None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_rows, "MAX_HASHES", room)
        training = hash_training_rows(rows, [np.arange(n)], SOURCE)
    assert sum(map(len, training.folds)) == 8 * min(n, room)
    assert training.share == min(n, room) / n
    assert (recognize_rows(training, rows) != NOT_RECOGNIZED).sum() == min(n, room)


def test_there_is_room_for_one_megabyte():
    assert training_rows.MAX_HASHES * 8 == 10**6


def test_the_same_rows_have_other_hashes_in_another_map():
    rows = rows_of_frame(ROWS)
    other = SOURCE.model_copy(update={"seed": 2})
    one, two = (hash_training_rows(rows, [np.arange(len(rows))], source) for source in (SOURCE, other))
    assert one == hash_training_rows(rows, [np.arange(len(rows))], SOURCE)
    assert one.folds != two.folds
    assert one.salt != two.salt


JUDGE = make_confidence_predictions(600)
IDS = pl.Series("pair", [f"q{row}-d{7 * row}" for row in range(600)])


def test_rows_of_a_judge_whose_values_repeat_are_recognized_by_their_id(tmp_path, capsys):
    numbered = JUDGE.with_columns(IDS, id=pl.int_range(600))
    for frame, options in ((numbered, ["--id", "pair"]), (numbered.drop("id").rename({"pair": "id"}), [])):
        assert fit(frame, tmp_path, *options).source.training_rows.by == "id"
        half = frame.sample(fraction=0.5, shuffle=True, seed=1)
        numbers, words = answers("evaluate", half, tmp_path, capsys)
        assert numbers["fitted_rows"] == 300
        column = options[-1] if options else "id"
        numbers, words = answers("evaluate", half.drop(column), tmp_path, capsys)
        assert numbers["fitted_rows"] == 0
        assert f"recognized by the column {column}, which" in words


@pytest.mark.parametrize("column", [None, pl.int_range(600), pl.lit("q1"), pl.lit(None)])
def test_rows_of_a_judge_without_an_id_cannot_be_recognized_which_is_reported(column, tmp_path, capsys):
    """A column named id that repeats, or that holds the numbers of the rows, does not identify a row."""
    frame = JUDGE if column is None else JUDGE.with_columns(id=column)
    assert fit(frame, tmp_path).source.training_rows.by == "nothing"
    numbers, words = answers("evaluate", frame.head(300), tmp_path, capsys)
    assert numbers["fitted_rows"] == 0
    assert "cannot be recognized, since their predictions repeat" in words
    assert "--id" in words


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (None, "no column pair, which --id names"),
        (pl.lit("a"), "the id a is repeated"),
        (pl.lit(None), "is missing"),
    ],
)
def test_an_id_that_is_none_is_refused(column, why, tmp_path):
    with pytest.raises(InputError, match=why):
        fit(JUDGE if column is None else JUDGE.with_columns(pair=column), tmp_path, "--id", "pair")


def test_fitted_rows_are_left_out_where_a_map_has_others_for_a_guarantee(tmp_path, capsys):
    fit(ROWS, tmp_path, "--hold-out", "0.4")
    numbers, words = answers("thresholds", ROWS[::-1], tmp_path, capsys)
    assert "480 of 800 rows were used to fit the map: they are omitted" in words
    assert numbers["overall"]["rows"] == 320
    assert numbers["guaranteed"]


def test_the_protocol_of_the_paper_has_no_folds_so_fitted_rows_are_left_out(tmp_path, capsys):
    document = fit(ROWS, tmp_path, "--protocol", "paper")
    numbers, words = answers("evaluate", ROWS[::-1], tmp_path, capsys)
    assert "rows were used to fit the map: they are omitted" in words
    assert numbers["rows"] == document.held_out.rows


@pytest.mark.parametrize("file", EARLIER[:3], ids=lambda path: path.stem)
def test_an_earlier_map_reports_that_it_cannot_recognize_single_rows(file, capsys):
    rows = pl.read_csv(file.with_name(f"{file.stem.partition('_')[0]}.csv"))
    if "label" not in rows.columns:
        document = load_map(file)
        rows = rows.with_columns(label=pl.lit((document.label_names or ("0",))[0]))
    document = load_map(file)
    read = read_and_score_rows(document, FramePredictions.from_frame(rows), group=None)
    assert read.origin == "new"
    assert "written by an earlier version" in " ".join(read.notes)


def test_a_map_with_hashes_of_other_folds_is_refused(folder, tmp_path):
    content = json.loads((folder / "map.json").read_text())
    content["source"]["training_rows"]["folds"].pop()
    (tmp_path / "map.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"source.training_rows has 4 folds, and there are 5"):
        load_map(tmp_path / "map.json")
    content["source"]["training_rows"]["folds"][0] = "not base64"
    (tmp_path / "map.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="training_rows"):
        load_map(tmp_path / "map.json")


@pytest.mark.parametrize("kind", ["array", "frame"])
@pytest.mark.parametrize("model", [LogisticRegression(C=100, max_iter=2000), DecisionTreeClassifier(max_depth=4)])
def test_rows_behind_a_classifier_are_recognized_by_its_inputs(model, kind):
    """The classifier knows its rows by heart; half of them get the out-of-fold predictions all the same."""
    logits, label = np.array(ROWS["logits"].to_list()), ROWS["label"].to_numpy()
    wide = np.hstack([logits, np.random.default_rng(0).normal(size=(len(label), 200))])
    inputs = pl.DataFrame(wide) if kind == "frame" else wide
    fitted = ReliabilityMap(classifier=model).fit(inputs, label)
    half = np.random.default_rng(1).permutation(len(label))[:400]
    given = inputs[half.tolist()] if kind == "frame" else inputs[half]
    accuracy = fitted.evaluate(given, label[half]).numbers["accuracy"]["value"]
    assert (fitted.predict(given) == label[half]).mean() > accuracy + 0.05
    whole = fitted.evaluate(inputs, label).numbers["accuracy"]["value"]
    assert accuracy == pytest.approx(whole, abs=0.08)
