"""Every kind of labelled rows is fitted: no number of rows, groups or errors decides what a map contains."""

import re

import numpy as np
import polars as pl
import pytest
from scipy.special import softmax

from relmap import InputError
from relmap.decisions import FixedDecisions
from relmap.evaluation.assessment import describe_fit
from relmap.maps.score import FittedMap
from tests import maps

N_ROWS_OF_CASE = {
    "all correct": 600,
    "all wrong": 600,
    "one label": 600,
    "one row of a label": 600,
    "12 correct": 2_000,
    "9 wrong": 20_000,
}
MAX_ERRORS = 3.0  # standard errors of a share
MAX_WEIGHT = 50.0  # of logits with a standard deviation of 2
MAX_LINES = 8
WORDS = np.array([0.3, 0.6, 0.9])


def make_case(case: str, kind: str = "logits") -> pl.DataFrame:
    """Make labelled rows with three labels and logits, a confidence, or only a decision."""
    n_rows = N_ROWS_OF_CASE[case]
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(n_rows, 3)) * 2
    decision = logits.argmax(axis=1)
    wrong_label = (decision + 1) % 3
    few = generator.choice(n_rows, 12 if case == "12 correct" else 9, replace=False)
    if case == "one label":
        label = np.ones(n_rows, dtype=np.int64)
    elif case == "one row of a label":
        label = (decision + (generator.random(n_rows) < 0.2)) % 2
        label[5] = 2
    elif case in ("all correct", "9 wrong"):
        label = decision.copy()
        if case == "9 wrong":
            label[few] = wrong_label[few]
    else:
        label = wrong_label
        if case == "12 correct":
            label[few] = decision[few]
    if kind == "logits":
        return pl.DataFrame({"logits": logits.tolist(), "label": label})
    frame = pl.DataFrame({"decision": decision, "label": label})
    if kind == "confidence_only":
        confidence = np.round(softmax(logits, axis=1).max(axis=1), 2)
        return frame.with_columns(confidence=confidence)
    return frame


def standard_error(correct: np.ndarray) -> float:
    """Standard error of the share of correct rows, with one correct and one wrong row added."""
    share = (correct.sum() + 1) / (len(correct) + 2)
    return float(np.sqrt(share * (1 - share) / len(correct)))


@pytest.mark.parametrize("kind", ["logits", "confidence_only", "decision_only"])
@pytest.mark.parametrize("case", N_ROWS_OF_CASE)
def test_the_reliability_is_within_sampling_error_of_the_true_share(case, kind):
    rows = maps.rows_of_frame(make_case(case, kind))
    assert rows.kind == kind
    fit = maps.fit_map(rows)
    scored = FittedMap.from_document(fit.document)(rows)
    error = MAX_ERRORS * standard_error(rows.correct)
    assert abs(scored.reliability.mean() - rows.correct.mean()) < error
    assert abs(fit.scored.reliability.mean() - fit.rows.correct.mean()) < error
    assert np.abs(scored.logit).max() < MAX_WEIGHT
    if kind == "logits":
        calibrator = fit.document.calibrator.fitted
        assert max(np.abs(calibrator.weights).max(), np.abs(calibrator.bias).max()) < MAX_WEIGHT


@pytest.mark.parametrize("case", N_ROWS_OF_CASE)
def test_commands_agree_with_the_labelled_rows(case, tmp_path, monkeypatch):
    maps.limit_resamples(monkeypatch, 50)
    monkeypatch.chdir(tmp_path)
    frame = make_case(case)
    maps.write_frame(frame, tmp_path / "rows.parquet")
    correct = np.array(frame["logits"].to_list()).argmax(axis=1) == frame["label"].to_numpy()

    # in another order, more of these labels would be correct, so that the given one must be accepted
    options = ["--accept-label-order"] if correct.mean() < 0.1 else []
    fitted = maps.run_command("fit", "--predictions", "rows.parquet", "--out", "map.json", *options)
    applied = maps.run_command("apply", "--map", "map.json", "--predictions", "rows.parquet", "--out", "scored.parquet")

    assert len(fitted) <= MAX_LINES
    assert fitted[0].startswith("More than half") == (correct.mean() < 0.5)
    is_automatic = (pl.read_parquet("scored.parquet")["route"] == "automatic").to_numpy()
    stated = re.search(r"expected accuracy of ([\d.]+)%", " ".join(applied))
    assert (stated is not None) == is_automatic.any()
    if stated is not None:
        error = MAX_ERRORS * standard_error(correct[is_automatic]) + 0.001  # one decimal of a percentage
        assert abs(float(stated.group(1)) / 100 - correct[is_automatic].mean()) < error
    if not correct.any():
        assert not is_automatic.any()


@pytest.mark.parametrize("n_rows", [2, 3, 5, 20])
def test_a_few_rows_give_a_map_close_to_the_confidence(n_rows):
    rows = maps.rows_of_frame(maps.make_predictions(n_rows))
    scored = FittedMap.from_document(maps.fit_map(rows).document)(rows)
    assert np.isfinite(scored.logit).all()
    assert scored.reliability.max() < 1


def test_one_row_is_too_few():
    with pytest.raises(InputError, match="1 labelled rows"):
        maps.fit_map(maps.rows_of_frame(maps.make_predictions(1)))


@pytest.mark.parametrize("n_groups", [1, 2, 21])
def test_a_few_groups_are_fitted_and_called_uncertain(n_groups):
    n_rows = 420
    frame = maps.make_predictions(n_rows, per_group=n_rows // n_groups)
    fit = maps.fit_map(maps.rows_of_frame(frame, "group"))
    assert fit.document.projection.name == "mrp_pooled"
    uncertain = [line for line in describe_fit(fit).lines if line.startswith("Uncertain")]
    assert f"only {n_groups:,} groups" in uncertain[0]


def test_a_constant_confidence_gives_the_share_of_each_label():
    generator = np.random.default_rng(0)
    decision = generator.integers(0, 2, 600)
    correct = generator.random(600) < np.array([0.6, 0.9])[decision]
    label = np.where(correct, decision, 1 - decision)
    frame = pl.DataFrame({"decision": decision, "confidence": [0.95] * 600, "label": label})
    fit = maps.fit_map(maps.rows_of_frame(frame, n_labels=2), names=("no", "yes"))
    grid = FixedDecisions(decision=np.array([0, 1]), confidence=np.array([0.95, 0.95]))
    reliability = FittedMap.from_document(fit.document)(grid).reliability
    shares = [correct[decision == label].mean() for label in (0, 1)]
    np.testing.assert_allclose(reliability, shares, atol=0.01)


def test_a_judge_with_three_words_is_as_close_to_the_truth_as_the_frequencies_of_600_rows():
    """The words are the same for both verdicts, which are correct with different probabilities."""
    truth = np.array([[0.55, 0.7, 0.85], [0.75, 0.85, 0.97]])
    word_share = np.array([0.2, 0.3, 0.5])
    errors = []
    for seed in range(6):
        generator = np.random.default_rng(seed)
        decision = generator.integers(0, 2, 600)
        word = generator.choice(3, 600, p=word_share)
        correct = generator.random(600) < truth[decision, word]
        label = np.where(correct, decision, 1 - decision)
        rows = FixedDecisions(decision=decision, confidence=WORDS[word], label=label)
        fit = maps.fit_map(rows, names=("no", "yes"))
        grid = FixedDecisions(decision=np.repeat([0, 1], 3), confidence=np.tile(WORDS, 2))
        reliability = FittedMap.from_document(fit.document)(grid).reliability.reshape(2, 3)
        cell = 3 * decision + word
        frequency = (np.bincount(cell, correct) / np.bincount(cell)).reshape(2, 3)
        estimates = (reliability, frequency, np.tile(WORDS, (2, 1)))
        errors.append([(np.abs(estimate - truth) @ word_share).mean() for estimate in estimates])
    of_map, of_frequencies, of_words = np.mean(errors, axis=0)
    assert of_map < 1.25 * of_frequencies
    assert of_map < 0.25 * of_words


@pytest.mark.parametrize("kind", ["logits", "confidence_only", "decision_only"])
def test_auto_is_refused_with_one_sentence(kind):
    rows = maps.rows_of_frame(make_case("all correct", kind))
    with pytest.raises(InputError, match=r"variant auto .*--variant"):
        maps.fit_map(rows, "auto")
