"""Label names in the wrong order are rejected with the right order."""

import re
from itertools import permutations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, softmax

from relmap.errors import InputError, naming
from relmap.io.column_layout import Reading
from relmap.io.files import open_predictions
from relmap.io.label_order import find_better_assignment
from relmap.maps.document import load_map
from relmap.routing.apply import apply_map
from tests.maps import fit_file as fit_map
from tests.maps import make_predictions, run_command

LABEL_NAMES = ("bad", "fair", "excellent")
ROWS = make_predictions(1000)
LOGITS = np.array(ROWS["logits"].to_list())
NAMED_ROWS = pl.DataFrame(
    {"probabilities": softmax(LOGITS, axis=1).tolist(), "label": np.array(LABEL_NAMES)[ROWS["label"].to_numpy()]}
)


@pytest.fixture
def named_file(tmp_path):
    NAMED_ROWS.write_parquet(tmp_path / "named.parquet")
    return tmp_path / "named.parquet"


def run_fit(file, *options):
    run_command("fit", "--predictions", file, "--out", file.with_name("map.json"), "--variant", "confidence", *options)
    return load_map(file.with_name("map.json"))


def test_missing_label_order_is_reported_without_a_suggestion(named_file):
    with pytest.raises(InputError) as error:
        run_fit(named_file)
    assert "bad, excellent, fair" in str(error.value)
    assert not re.search(r"--labels \S*,", str(error.value))


def test_wrong_label_order_is_rejected_unless_it_is_accepted(named_file):
    decided = LOGITS.argmax(axis=1)
    wrong_order = ("bad", "excellent", "fair")
    with pytest.raises(InputError) as error:
        run_fit(named_file, "--labels", ",".join(wrong_order))

    true_names = NAMED_ROWS["label"].to_numpy()
    wrong_accuracy = np.mean(np.array(wrong_order)[decided] == true_names)
    right_accuracy = np.mean(np.array(LABEL_NAMES)[decided] == true_names)
    for text in (
        f"{wrong_accuracy:.1%}",
        f"{right_accuracy:.1%}",
        f"--labels {','.join(LABEL_NAMES)}",
        "--accept-label-order",
    ):
        assert text in str(error.value)
    assert not named_file.with_name("map.json").exists()
    assert run_fit(named_file, "--labels", ",".join(LABEL_NAMES)).label_names == LABEL_NAMES
    assert run_fit(named_file, "--labels", ",".join(wrong_order), "--accept-label-order").label_names == wrong_order


def test_wrong_order_of_numeric_labels_is_rejected_with_the_right_order(tmp_path):
    file = tmp_path / "rows.parquet"
    ROWS.with_columns(label=2 - pl.col("label")).write_parquet(file)

    with pytest.raises(InputError, match=r"order 2, 1, 0 .* --labels 2,1,0;"):
        run_fit(file)
    assert run_fit(file, "--labels", "2,1,0").label_names == ("2", "1", "0")


def test_order_is_checked_for_numeric_decisions_and_named_labels(tmp_path):
    file = tmp_path / "judge.csv"
    pl.DataFrame({"decision": LOGITS.argmax(axis=1), "label": NAMED_ROWS["label"]}).write_csv(file)
    with pytest.raises(InputError, match="give --labels bad,fair,excellent;"):
        run_fit(file, "--labels", "bad,excellent,fair")


def test_inaccurate_named_decisions_are_accepted(tmp_path):
    file = tmp_path / "judge.csv"
    decided = np.array(["yes", "no"] * 100)
    truth = np.where(np.arange(200) % 10 == 0, decided, np.roll(decided, 1))
    pl.DataFrame({"decision": decided, "label": truth}).write_csv(file)

    with pytest.raises(InputError, match="fit: --labels no,yes "):
        run_fit(file)
    assert run_fit(file, "--labels", "no,yes").n_labels == 2


PROBABILITY = expit(LOGITS[:, 1])
IS_RELEVANT = np.random.default_rng(0).random(len(PROBABILITY)) < PROBABILITY


@pytest.mark.parametrize("names", [("irrelevant", "relevant"), ("Yes", "No"), ("2", "1")])
@pytest.mark.parametrize("column", ["--probability p", "--border 0 --score s"])
def test_probability_or_score_of_one_of_two_labels_is_fitted(names, column, tmp_path):
    negative, positive = names
    file = tmp_path / "rows.csv"
    label = np.where(IS_RELEVANT, positive, negative)
    pl.DataFrame({"p": PROBABILITY, "s": LOGITS[:, 1], "label": label}).write_csv(file)
    document = run_fit(file, *column.split(), "--positive", positive.lower())
    assert document.label_names == names

    apply_map(document, file, tmp_path / "scored.csv", reading=reading_for(column))
    scored = pl.read_csv(tmp_path / "scored.csv", infer_schema=False)
    assert (scored["decision_name"] == positive).to_list() == (PROBABILITY > 0.5).tolist()
    if negative == "irrelevant":
        with pytest.raises(InputError, match=r"--positive irrelevant.*--positive relevant"):
            run_fit(file, *column.split())
        with pytest.raises(InputError, match=r"--positive relevant; .*--accept-label-order"):
            run_fit(file, *column.split(), "--positive", "irrelevant")
        with pytest.raises(InputError, match=r"--positive.*'relevent';.* irrelevant, relevant"):
            run_fit(file, *column.split(), "--positive", "relevent")


def reading_for(column):
    return Reading(probability="p") if "probability" in column else Reading(score="s", border=0.0)


def test_probability_of_one_of_two_labels_rejects_a_third_label(tmp_path):
    file = tmp_path / "rows.csv"
    NAMED_ROWS.select("label", p=0.4).write_csv(file)
    with pytest.raises(InputError, match=r"\bp\b.*two.* 3 labels \(bad, "):
        run_fit(file, "--probability", "p", "--positive", "fair")


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 4).flatmap(lambda k: st.permutations(range(k))), st.integers(0, 2**32 - 1))
def test_label_order_of_an_accurate_model_is_found(order, seed):
    """The expected order is found by trying all permutations."""
    n_labels = len(order)
    n_rows = 400
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, n_labels, n_rows)
    decided = np.where(generator.random(n_rows) < 0.8, truth, generator.integers(0, n_labels, n_rows))
    label = np.array(order)[truth]  # column c is the probability of label order[c]
    assignment = find_better_assignment(decided, label, n_labels)
    best = max(permutations(range(n_labels)), key=lambda names: (np.array(names)[decided] == label).mean())

    if best == tuple(range(n_labels)):
        assert assignment is None
    else:
        assert assignment is not None
        assert assignment.label_of_column == best == tuple(order)
        assert assignment.accuracy == pytest.approx((decided == label).mean())
        assert assignment.better_accuracy == pytest.approx((np.array(best)[decided] == label).mean())


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_random_decisions_keep_their_label_order(n_labels, seed):
    """Decisions are independent of the true labels, so no order is better, whatever the shares of labels."""
    generator = np.random.default_rng(seed)
    decided = generator.choice(n_labels, 500, p=generator.dirichlet(np.ones(n_labels)))
    label = generator.choice(n_labels, 500, p=generator.dirichlet(np.ones(n_labels)))
    assert find_better_assignment(decided, label, n_labels) is None


def test_rare_label_decided_too_often_is_not_a_wrong_order():
    """Swapped labels would be more accurate, but the rare label is more frequent among its decisions."""
    decided = np.repeat([1, 0], [900, 100])
    label = np.zeros(1000, dtype=int)
    label[:100] = 1  # 100 of 900 decided 1, none of 100 decided 0

    assert (decided == label).mean() == pytest.approx(0.2)
    assert find_better_assignment(decided, label, 2) is None


def test_rows_of_a_group_count_as_one_observation():
    decided = np.tile([0, 1], 300)
    groups = np.repeat(np.arange(4), 150)

    assert find_better_assignment(decided, 1 - decided, 2) is not None
    assert find_better_assignment(decided, 1 - decided, 2, groups=groups) is None


@pytest.mark.parametrize(
    ("style", "remedy"),
    [
        ("command line", "--labels bad,fair,excellent; .*--accept-label-order"),
        ("python", r" labels=\['bad', 'fair', 'excellent'\]; .* accept_label_order=True"),
    ],
)
def test_remedy_uses_the_notation_of_the_interface(style, remedy, named_file):
    with naming(style), pytest.raises(InputError, match=remedy):
        fit_map(open_predictions(named_file), names=("bad", "excellent", "fair"))
