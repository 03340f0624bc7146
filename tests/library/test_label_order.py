"""Names of labels in the wrong order are rejected, with the order that matches."""

import re
from itertools import permutations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, softmax

from relmap.errors import InputError
from relmap.fitting.label_order import find_better_assignment
from relmap.io.files import open_predictions
from relmap.maps.map_file import load_map
from relmap.options import naming
from relmap.routing.apply import apply_map
from tests.maps import make_predictions, run_command

ORDER = ("bad", "fair", "excellent")
ROWS = make_predictions(1000)
NUMBERS = np.array(ROWS["logits"].to_list())
NAMED = pl.DataFrame(
    {"probabilities": softmax(NUMBERS, axis=1).tolist(), "label": np.array(ORDER)[ROWS["label"].to_numpy()]}
)


@pytest.fixture
def named(tmp_path):
    NAMED.write_parquet(tmp_path / "named.parquet")
    return tmp_path / "named.parquet"


def fit(file, *options):
    run_command("fit", "--predictions", file, "--out", file.with_name("map.json"), *options)
    return load_map(file.with_name("map.json"))


def test_no_order_is_suggested_where_it_is_not_known(named):
    with pytest.raises(InputError) as told:
        fit(named)
    assert "the file has the labels bad, excellent, fair" in str(told.value)
    assert not re.search(r"--labels \S*,", str(told.value))


def test_labels_in_another_order_are_rejected_with_both_accuracies_unless_they_are_accepted(named):
    decided = NUMBERS.argmax(axis=1)
    wrong_order = ("bad", "excellent", "fair")
    with pytest.raises(InputError) as told:
        fit(named, "--labels", ",".join(wrong_order))
    wrong, right = (
        np.mean([names[column] == label for column, label in zip(decided, NAMED["label"], strict=True)])
        for names in (wrong_order, ORDER)
    )
    for words in (f"{wrong:.1%}", f"{right:.1%}", f"--labels {','.join(ORDER)}", "--accept-label-order"):
        assert words in str(told.value)
    assert not named.with_name("map.json").exists()
    assert fit(named, "--labels", ",".join(ORDER)).label_names == ORDER
    assert fit(named, "--labels", ",".join(wrong_order), "--accept-label-order").label_names == wrong_order


def test_numbers_of_labels_in_another_order_are_rejected_with_the_order_to_paste(tmp_path):
    file = tmp_path / "rows.parquet"
    ROWS.with_columns(label=2 - pl.col("label")).write_parquet(file)
    with pytest.raises(InputError, match=r"in the order 2, 1, 0 .* give --labels 2,1,0;"):
        fit(file)
    assert fit(file, "--labels", "2,1,0").label_names == ("2", "1", "0")


def test_decisions_in_numbers_and_labels_in_names_are_checked(tmp_path):
    file = tmp_path / "judge.csv"
    pl.DataFrame({"decision": NUMBERS.argmax(axis=1), "label": NAMED["label"]}).write_csv(file)
    with pytest.raises(InputError, match="give --labels bad,fair,excellent;"):
        fit(file, "--labels", "bad,excellent,fair")


def test_a_judge_that_is_mostly_wrong_is_accepted_where_both_sides_have_names(tmp_path):
    file = tmp_path / "judge.csv"
    decided = np.array(["yes", "no"] * 100)
    truth = np.where(np.arange(200) % 10 == 0, decided, np.roll(decided, 1))
    pl.DataFrame({"decision": decided, "label": truth}).write_csv(file)
    with pytest.raises(InputError, match="name the labels to fit: --labels no,yes "):
        fit(file)
    assert fit(file, "--labels", "no,yes").n_labels == 2


PROBABILITY = expit(NUMBERS[:, 1])
RELEVANT = np.random.default_rng(0).random(len(PROBABILITY)) < PROBABILITY


@pytest.mark.parametrize("words", [("irrelevant", "relevant"), ("Yes", "No"), ("2", "1")])
@pytest.mark.parametrize("column", ["--probability p", "--border 0 --score s"])
def test_one_command_fits_a_probability_of_one_of_two_labels(words, column, tmp_path):
    other, positive = words
    file = tmp_path / "rows.csv"
    label = np.where(RELEVANT, positive, other)
    pl.DataFrame({"p": PROBABILITY, "s": NUMBERS[:, 1], "label": label}).write_csv(file)
    document = fit(file, *column.split(), "--positive", positive.lower())
    assert document.label_names == words
    apply_map(document, file, tmp_path / "scored.csv", reading=read_as(column))
    scored = pl.read_csv(tmp_path / "scored.csv", infer_schema=False)
    assert (scored["decision_name"] == positive).to_list() == (PROBABILITY > 0.5).tolist()
    if other == "irrelevant":
        with pytest.raises(InputError, match="name its label: --positive irrelevant or --positive relevant"):
            fit(file, *column.split())
        with pytest.raises(InputError, match=r"give --positive relevant; .* give --accept-label-order"):
            fit(file, *column.split(), "--positive", "irrelevant")
        with pytest.raises(InputError, match="--positive is 'relevent'; the labels are irrelevant, relevant"):
            fit(file, *column.split(), "--positive", "relevent")


def read_as(column):
    from relmap.io.reading import Reading

    return Reading(probability="p") if "probability" in column else Reading(score="s", border=0.0)


def test_a_third_label_has_no_place_in_a_probability_of_one_of_two(tmp_path):
    file = tmp_path / "rows.csv"
    NAMED.select("label", p=0.4).write_csv(file)
    with pytest.raises(InputError, match=r"p is the probability of one of two labels, and label has 3 \(bad, "):
        fit(file, "--probability", "p", "--positive", "fair")


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 4).flatmap(lambda k: st.permutations(range(k))), st.integers(0, 2**32 - 1))
def test_the_order_of_a_model_that_is_mostly_right_is_found_from_any_other_order(order, seed):
    """The oracle tries every order."""
    n_labels = len(order)
    n = 400
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, n_labels, n)
    decided = np.where(generator.random(n) < 0.8, truth, generator.integers(0, n_labels, n))
    label = np.array(order)[truth]  # column c speaks of the label order[c]
    found = find_better_assignment(decided, label, n_labels)
    best = max(permutations(range(n_labels)), key=lambda names: (np.array(names)[decided] == label).mean())
    if best == tuple(range(n_labels)):
        assert found is None
    else:
        assert found is not None
        assert found.label_of_column == best == tuple(order)
        assert found.accuracy == pytest.approx((decided == label).mean())
        assert found.better_accuracy == pytest.approx((np.array(best)[decided] == label).mean())


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_a_model_that_knows_nothing_keeps_its_order(n_labels, seed):
    """Decisions are independent of the truth, so no order is right, whatever the shares of labels are."""
    generator = np.random.default_rng(seed)
    decided, label = (generator.choice(n_labels, 500, p=generator.dirichlet(np.ones(n_labels))) for _ in range(2))
    assert find_better_assignment(decided, label, n_labels) is None


def test_a_rare_label_that_is_decided_too_often_is_no_other_order():
    """Swapped labels would be more accurate, but the decision for the rare label raises its share."""
    decided = np.repeat([1, 0], [900, 100])
    label = np.zeros(1000, dtype=int)
    label[:100] = 1  # 100 of 900 decided 1, none of 100 decided 0
    assert (decided == label).mean() == pytest.approx(0.2)
    assert find_better_assignment(decided, label, 2) is None


def test_rows_of_one_group_count_as_one():
    decided = np.tile([0, 1], 300)
    groups = np.repeat(np.arange(4), 150)
    assert find_better_assignment(decided, 1 - decided, 2) is not None
    assert find_better_assignment(decided, 1 - decided, 2, groups=groups) is None


@pytest.mark.parametrize(
    ("style", "shown"),
    [
        ("command line", "give --labels bad,fair,excellent; .* give --accept-label-order"),
        ("form", "give labels = bad,fair,excellent; .* give accept_label_order"),
        ("python", r"give labels=\['bad', 'fair', 'excellent'\]; .* give accept_label_order=True"),
    ],
)
def test_the_remedy_is_named_as_its_reader_writes_it(style, shown, named):
    from relmap.api import fit_map

    with naming(style), pytest.raises(InputError, match=shown):
        fit_map(open_predictions(named), names=("bad", "excellent", "fair"))
