"""Training rows are recognized among new rows and scored by models that have not seen them."""

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from relmap import ReliabilityMap
from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.io.frames import FramePredictions
from relmap.maps import fit_rows as training_rows
from relmap.maps.document import load_map
from relmap.maps.fit_rows import (
    NOT_RECOGNIZED,
    canonical_predictions,
    hash_training_rows,
    read_and_score_rows,
    recognize_rows,
    score_out_of_fold,
)
from relmap.maps.folds import restore_fold_split
from tests.maps import SOURCE, make_confidence_predictions, make_predictions, rows_of_frame, run_command

ROWS = make_predictions(800)
NEW_ROWS = make_predictions(500, seed=1)
SHUFFLED_HALF = ROWS.sample(fraction=0.5, shuffle=True, seed=3)
EARLIER_MAPS = sorted((Path(__file__).parents[2] / "data" / "maps_c857e97").glob("*.json"))


def fit(frame: pl.DataFrame, folder: Path, *options: str) -> object:
    frame.write_parquet(folder / "fit.parquet")
    files = "--predictions", folder / "fit.parquet", "--out", folder / "map.json"
    run_command("fit", *files, "--variant", "label_intercept", *options)
    return load_map(folder / "map.json")


def run_on_rows(command: str, frame: pl.DataFrame, folder: Path, capsys: pytest.CaptureFixture, *options: str) -> tuple:
    frame.write_parquet(folder / "rows.parquet")
    capsys.readouterr()
    files = "--map", folder / "map.json", "--predictions", folder / "rows.parquet"
    target = ("--target-accuracy", "0.8") if command == "thresholds" else ()
    run_command(command, *files, *target, *options)
    printed = capsys.readouterr()
    return json.loads(printed.out), printed.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fitted")
    fit(ROWS, folder)
    return folder


@pytest.mark.parametrize("command", ["evaluate", "thresholds"])
def test_number_of_training_rows_is_reported(command, folder, capsys):
    for frame, n_fitted in ((NEW_ROWS, 0), (SHUFFLED_HALF, 400), (pl.concat([NEW_ROWS, SHUFFLED_HALF]), 400)):
        numbers, printed = run_on_rows(command, frame, folder, capsys)
        assert numbers["fitted_rows"] == n_fitted
        note = re.search(rf"\b{n_fitted:,} of {len(frame):,} rows .*\bfit\b", printed)
        assert (note is not None) == (n_fitted > 0)
        if command == "thresholds":
            assert numbers["guaranteed"] == (n_fitted == 0)


def test_training_rows_are_scored_by_the_model_without_their_fold(folder):
    """Compare with the scores of the whole file in its original order."""
    document = load_map(folder / "map.json")
    rows = rows_of_frame(ROWS)
    expected = score_out_of_fold(document, rows, restore_fold_split(document, rows)).logit
    order = np.random.default_rng(0).permutation(len(ROWS))[:300]
    mixed = pl.concat([ROWS[order.tolist()], NEW_ROWS])
    scored_rows = read_and_score_rows(document, FramePredictions.from_frame(mixed), group=None)

    np.testing.assert_array_equal(scored_rows.fitted, np.arange(len(mixed)) < 300)
    np.testing.assert_array_equal(scored_rows.scored.logit[:300], expected[order])

    scored_alone = read_and_score_rows(document, FramePredictions.from_frame(NEW_ROWS), group=None)
    np.testing.assert_array_equal(scored_rows.scored.logit[300:], scored_alone.scored.logit)
    assert scored_alone.origin == "new"


def test_drift_is_tested_on_new_rows_only(folder, capsys):
    mixed = run_on_rows("evaluate", pl.concat([SHUFFLED_HALF, NEW_ROWS]), folder, capsys)[0]
    assert mixed["drift"] == run_on_rows("evaluate", NEW_ROWS, folder, capsys)[0]["drift"]
    assert run_on_rows("evaluate", SHUFFLED_HALF, folder, capsys)[0]["drift"] is None


def test_row_order_does_not_change_the_scores(folder, capsys):
    reversed_rows = run_on_rows("evaluate", ROWS[::-1], folder, capsys)[0]
    in_order = run_on_rows("evaluate", ROWS, folder, capsys)[0]
    assert reversed_rows["fitted_rows"] == in_order["fitted_rows"] == len(ROWS)
    assert reversed_rows["metrics"]["nll_correct"]["reliability"] == pytest.approx(
        in_order["metrics"]["nll_correct"]["reliability"]
    )


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 6),
    st.sampled_from(["logits", "probabilities", "confidence"]),
    st.integers(0, 2**32 - 1),
    st.sampled_from([np.float64, np.float32]),
)
def test_only_training_rows_are_recognized_in_any_precision(n_labels, kind, seed, precision):
    generator = np.random.default_rng(seed)

    def make_rows(exact: np.ndarray, number_type: type = np.float64) -> FixedDecisions:
        rounded = exact.astype(number_type).astype(float)
        decision = exact.argmax(axis=1)
        if kind == "confidence":
            return FixedDecisions(decision=decision, confidence=rounded.max(axis=1), label=decision)
        logits = np.log(rounded) if kind == "probabilities" else rounded
        return FixedDecisions(decision=decision, logits=logits, label=decision)

    numbers = generator.normal(size=(200, n_labels)) * 3
    numbers = numbers if kind == "logits" else softmax(numbers, axis=1)
    predictions = canonical_predictions(make_rows(numbers))
    assume(len(np.unique(predictions, axis=0)) == len(predictions))  # confidences near 1 can be equal in float32
    folds = np.array_split(generator.permutation(100), 5)  # the other 100 rows are new
    training = hash_training_rows(make_rows(numbers[:100]), folds, SOURCE)
    order = generator.permutation(200)
    expected = np.full(200, NOT_RECOGNIZED)
    for fold, members in enumerate(folds):
        expected[np.isin(order, members)] = fold

    new_rows = make_rows(numbers[order], precision)
    np.testing.assert_array_equal(recognize_rows(training, new_rows, None), expected)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 400), st.integers(1, 500))
def test_number_of_stored_hashes_is_limited(max_hashes, n):
    numbers = np.random.default_rng(n).normal(size=(n, 2))
    rows = FixedDecisions(decision=np.zeros(n, dtype=int), logits=numbers, label=np.zeros(n, dtype=int))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_rows, "MAX_HASHES", max_hashes)
        training = hash_training_rows(rows, [np.arange(n)], SOURCE)
    assert sum(map(len, training.folds)) == 8 * min(n, max_hashes)
    assert training.share == min(n, max_hashes) / n
    assert (recognize_rows(training, rows) != NOT_RECOGNIZED).sum() == min(n, max_hashes)


def test_hashes_take_at_most_one_megabyte():
    assert training_rows.MAX_HASHES * 8 == 10**6


def test_hashes_differ_between_maps():
    rows = rows_of_frame(ROWS)
    other_source = SOURCE.model_copy(update={"seed": 2})
    first = hash_training_rows(rows, [np.arange(len(rows))], SOURCE)
    second = hash_training_rows(rows, [np.arange(len(rows))], other_source)

    assert first == hash_training_rows(rows, [np.arange(len(rows))], SOURCE)
    assert first.folds != second.folds
    assert first.salt != second.salt


JUDGE_ROWS = make_confidence_predictions(600)
PAIR_IDS = pl.Series("pair", [f"q{row}-d{7 * row}" for row in range(600)])


def test_repeated_predictions_are_recognized_by_id(tmp_path, capsys):
    numbered = JUDGE_ROWS.with_columns(PAIR_IDS, id=pl.int_range(600))
    for frame, options in ((numbered, ["--id", "pair"]), (numbered.drop("id").rename({"pair": "id"}), [])):
        assert fit(frame, tmp_path, *options).source.training_rows.by == "id"
        half = frame.sample(fraction=0.5, shuffle=True, seed=1)
        numbers, printed = run_on_rows("evaluate", half, tmp_path, capsys)
        assert numbers["fitted_rows"] == 300
        column = options[-1] if options else "id"
        numbers, printed = run_on_rows("evaluate", half.drop(column), tmp_path, capsys)
        assert numbers["fitted_rows"] == 0
        assert re.search(rf"recognized by .*\b{column}, ", printed)


@pytest.mark.parametrize("column", [None, pl.int_range(600), pl.lit("q1"), pl.lit(None)])
def test_repeated_predictions_without_id_are_reported_as_unrecognizable(column, tmp_path, capsys):
    """A repeated `id`, or one that counts the rows, does not identify a row."""
    frame = JUDGE_ROWS if column is None else JUDGE_ROWS.with_columns(id=column)
    assert fit(frame, tmp_path).source.training_rows.by == "nothing"
    numbers, printed = run_on_rows("evaluate", frame.head(300), tmp_path, capsys)
    assert numbers["fitted_rows"] == 0
    assert "cannot be recognized" in printed
    assert "--id" in printed


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (None, "no column pair.*--id"),
        (pl.lit("a"), "id a .*repeated"),
        (pl.lit(None), "is missing"),
    ],
)
def test_invalid_id_is_rejected(column, message, tmp_path):
    with pytest.raises(InputError, match=message):
        fit(JUDGE_ROWS if column is None else JUDGE_ROWS.with_columns(pair=column), tmp_path, "--id", "pair")


def test_guarantee_omits_training_rows_if_rows_were_held_out(tmp_path, capsys):
    fit(ROWS, tmp_path, "--hold-out", "0.4")
    numbers, printed = run_on_rows("thresholds", ROWS[::-1], tmp_path, capsys)
    assert re.search(r"\b480 of 800 rows .*omitted", printed)
    assert numbers["overall"]["rows"] == 320
    assert numbers["guaranteed"]


def test_paper_protocol_omits_training_rows(tmp_path, capsys):
    document = fit(ROWS, tmp_path, "--protocol", "paper")
    numbers, printed = run_on_rows("evaluate", ROWS[::-1], tmp_path, capsys)
    n_held_out = document.held_out.rows
    assert re.search(rf"\b{len(ROWS) - n_held_out} of 800 rows .*omitted", printed)
    assert numbers["rows"] == n_held_out


@pytest.mark.parametrize("file", EARLIER_MAPS[:3], ids=lambda path: path.stem)
def test_earlier_map_cannot_recognize_single_rows(file, capsys):
    rows = pl.read_csv(file.with_name(f"{file.stem.partition('_')[0]}.csv"))
    document = load_map(file)
    if "label" not in rows.columns:
        first_label = document.label_names[0] if document.label_names else "0"
        rows = rows.with_columns(label=pl.lit(first_label))
    scored_rows = read_and_score_rows(document, FramePredictions.from_frame(rows), group=None)
    assert scored_rows.origin == "new"
    assert "earlier version" in " ".join(scored_rows.notes)


def test_hashes_of_other_folds_are_rejected(folder, tmp_path):
    content = json.loads((folder / "map.json").read_text())
    content["source"]["training_rows"]["folds"].pop()
    (tmp_path / "map.json").write_text(json.dumps(content))

    with pytest.raises(InputError, match=r"source\.training_rows .*4 folds.* 5"):
        load_map(tmp_path / "map.json")

    content["source"]["training_rows"]["folds"][0] = "not base64"
    (tmp_path / "map.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="training_rows"):
        load_map(tmp_path / "map.json")


@pytest.mark.parametrize("kind", ["array", "frame"])
@pytest.mark.parametrize("model", [LogisticRegression(C=100, max_iter=2000), DecisionTreeClassifier(max_depth=4)])
def test_classifier_rows_are_recognized_by_their_inputs(model, kind):
    """The classifier overfits its rows; half of them still get out-of-fold predictions."""
    logits = np.array(ROWS["logits"].to_list())
    label = ROWS["label"].to_numpy()
    features = np.hstack([logits, np.random.default_rng(0).normal(size=(len(label), 200))])
    inputs = pl.DataFrame(features) if kind == "frame" else features
    fitted = ReliabilityMap(classifier=model, variant="label_intercept").fit(inputs, label)
    half = np.random.default_rng(1).permutation(len(label))[:400]
    half_inputs = inputs[half.tolist()] if kind == "frame" else inputs[half]
    accuracy = fitted.evaluate(half_inputs, label[half]).numbers["accuracy"]["value"]

    assert (fitted.predict(half_inputs) == label[half]).mean() > accuracy + 0.05

    accuracy_of_all = fitted.evaluate(inputs, label).numbers["accuracy"]["value"]
    assert accuracy == pytest.approx(accuracy_of_all, abs=0.08)
