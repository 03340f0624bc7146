"""Thresholds of a score at each border between grades: the guarantee in simulation, their order, and the command."""

import json
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from relmap.errors import InputError
from relmap.io.column_layout import Reading
from relmap.io.files import open_predictions
from relmap.io.frames import FramePredictions
from relmap.routing import score_thresholds
from relmap.routing.score_thresholds import (
    GradeThresholds,
    _accept_implied,
    find_grade_thresholds,
    find_score_thresholds,
    read_score,
)
from tests.maps import run_command

NAMES = ("0", "1", "2", "3")
BORDERS = np.array([-1.0, 1.0, 2.5])  # of the score plus logistic noise
SLOPE = 2.0
LEVEL = 0.1
N_SIMULATIONS = 100
METRICS = ("precision", "recall", "npv")
TARGETS = range(1, 100)  # in percent


def simulate(generator: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulate scores and grades: P(grade >= k) = expit(SLOPE * (score - BORDERS[k - 1]))."""
    score = generator.normal(0, 2, n)
    return score, np.digitize(SLOPE * score + generator.logistic(size=n), SLOPE * BORDERS)


def thresholds_of(found: GradeThresholds, metric: str) -> list[float | None]:
    """Return the threshold of each border for a metric."""
    return [item.threshold for border in found.borders for item in border.thresholds if item.metric == metric]


def test_the_targets_of_all_borders_are_missed_together_no_more_often_than_stated(monkeypatch):
    monkeypatch.setattr(score_thresholds, "_advise", lambda *_: ())  # for speed: the search does not use the advice
    generator = np.random.default_rng(1)
    score = np.sort(generator.normal(0, 2, 400_000))
    is_above = expit(SLOPE * (score[:, None] - BORDERS))  # probability of a positive row at each border
    n_above = np.arange(len(score), 0, -1)
    precision = is_above[::-1].cumsum(axis=0)[::-1] / n_above[:, None]
    npv = np.vstack([np.ones(3), (1 - is_above).cumsum(axis=0)[:-1] / np.arange(1, len(score))[:, None]])
    missed = 0
    found = np.zeros(6)
    for seed in range(N_SIMULATIONS):
        result = find_grade_thresholds(
            *simulate(generator, 1200), NAMES, precision=0.8, npv=0.8, confidence_level=1 - LEVEL, seed=seed
        )
        is_missed = []
        for rates, metric in ((precision, "precision"), (npv, "npv")):
            for k, threshold in enumerate(thresholds_of(result, metric)):
                if threshold is not None:
                    position = min(int(np.searchsorted(score, threshold)), len(score) - 1)
                    is_missed.append(rates[position, k] < 0.8)
        found += [value is not None for metric in ("precision", "npv") for value in thresholds_of(result, metric)]
        missed += any(is_missed)
    assert missed <= N_SIMULATIONS * LEVEL + 3 * np.sqrt(N_SIMULATIONS * LEVEL * (1 - LEVEL))
    assert (found > 0.3 * N_SIMULATIONS).all()


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 999),
    n=st.integers(40, 400),
    targets=st.fixed_dictionaries({}, optional=dict.fromkeys(METRICS, st.sampled_from([0.5, 0.7, 0.9]))).filter(bool),
    is_grouped=st.booleans(),
)
def test_thresholds_never_decrease_with_the_grade(seed, n, targets, is_grouped):
    generator = np.random.default_rng(seed)
    score = np.round(generator.normal(size=n), 1)
    grade = np.digitize(score * generator.choice([-1, 1, 1, 1]) + generator.normal(size=n), [-0.5, 0, 0.5])
    grade[:4] = range(4)
    groups = generator.integers(0, max(8, n // 4), n) if is_grouped else None
    if groups is not None:
        groups[:8] = range(8)
    found = find_grade_thresholds(score, grade, NAMES, groups=groups, **targets, confidence_level=0.6, seed=seed)
    for metric in targets:
        values = [value for value in thresholds_of(found, metric) if value is not None]
        assert values == sorted(values)


@pytest.mark.parametrize("metric", METRICS)
def test_two_grades_are_one_border(metric):
    score, grade = simulate(np.random.default_rng(2), 600)
    (border,) = find_grade_thresholds(score, np.minimum(grade, 1), ("no", "yes"), **{metric: 0.8}).borders
    alone = find_score_thresholds(score, grade > 0, **{metric: 0.8})
    assert border.to_dict() == alone.to_dict()


def test_a_border_shares_the_level_with_the_others():
    n_different = 0
    for seed in range(6):
        score, grade = simulate(np.random.default_rng(seed), 400)
        lowest = find_grade_thresholds(score, grade, NAMES, npv=0.8, confidence_level=0.7, seed=seed).borders[0]
        shared, whole = (
            find_score_thresholds(score, grade > 0, npv=0.8, confidence_level=1 - level, seed=seed)
            for level in (0.3 / 3, 0.3)
        )
        assert lowest.thresholds == shared.thresholds
        n_different += shared.thresholds != whole.thresholds
    assert n_different


@pytest.mark.parametrize("is_grouped", [False, True])
@pytest.mark.parametrize(("metric", "seed"), [("precision", 13), ("recall", 5), ("npv", 11)])  # one implies another
def test_the_stated_highest_target_has_a_threshold_and_higher_ones_have_none(metric, seed, is_grouped, monkeypatch):
    n = 120
    generator = np.random.default_rng(seed)
    score = np.round(generator.normal(size=n), 1)
    grade = np.digitize(score + generator.normal(size=n), BORDERS / 2)
    groups = generator.permutation(n) // 3 if is_grouped else None
    options = {"groups": groups, "confidence_level": 0.8, "seed": seed}

    def find(target: float) -> GradeThresholds:
        return find_grade_thresholds(score, grade, NAMES, **{metric: target}, **options)

    missed = find(0.985)
    monkeypatch.setattr(score_thresholds, "_advise", lambda *_: ())  # for speed: the targets below need no advice
    exists = {
        percent: [value is not None for value in thresholds_of(find(percent / 100), metric)] for percent in TARGETS
    }
    n_stated = 0
    for k, border in enumerate(missed.borders):
        (result,) = border.thresholds
        stated = [int(number) for line in result.advice for number in re.findall(r"have a threshold is (\d+)%", line)]
        if result.threshold is None:
            assert stated == [max(percent for percent in TARGETS if exists[percent][k])]
            n_stated += 1
    assert n_stated


def test_accepted_thresholds_imply_others():
    def flags(text: str) -> np.ndarray:
        return np.array([character == "1" for character in text])

    accepted = [
        {"precision": flags("00001"), "npv": flags("11000"), "recall": flags("11100")},
        {"precision": flags("00000"), "npv": flags("00000"), "recall": flags("00000")},
        {"precision": flags("00010"), "npv": flags("10100"), "recall": flags("11000")},
    ]
    _accept_implied(accepted)
    shown = [{metric: "".join(map(str, value.astype(int))) for metric, value in border.items()} for border in accepted]
    assert shown == [
        {"precision": "00011", "npv": "11000", "recall": "11000"},
        {"precision": "00010", "npv": "11000", "recall": "00000"},
        {"precision": "00010", "npv": "11100", "recall": "11000"},
    ]


@pytest.mark.parametrize(("grade", "message"), [(np.zeros(20), "at least 1"), (np.full(20, 3), "below 1")])
def test_a_border_without_rows_on_both_sides_is_refused(grade, message):
    with pytest.raises(InputError, match=f"grade .*{message};.*--labels"):
        find_grade_thresholds(np.arange(20.0), grade, NAMES, precision=0.5)


@pytest.mark.parametrize("labels", [(), ("--labels", "0,1,2,3")])
def test_the_command_writes_the_thresholds_of_all_borders(labels, tmp_path, capsys):
    score, grade = simulate(np.random.default_rng(4), 900)
    rows = pl.DataFrame({"s": score, "grade": grade, "query": np.arange(900) // 3})
    rows.write_csv(tmp_path / "rows.csv")
    run_command(
        *("thresholds", "--predictions", tmp_path / "rows.csv", "--score", "s", "--label", "grade", *labels),
        *("--precision", 0.7, "--npv", 0.7, "--out", tmp_path / "borders.json", "--figure", tmp_path / "curve.svg"),
    )
    content = json.loads((tmp_path / "borders.json").read_text())
    found = find_grade_thresholds(score, grade, NAMES, precision=0.7, npv=0.7)
    assert [border["at_least"] for border in content["borders"]] == ["1", "2", "3"]
    assert content["grades"] == [*NAMES]
    assert [border["thresholds"][0]["threshold"] for border in content["borders"]] == thresholds_of(found, "precision")
    assert [border["positives"] for border in content["borders"]] == [int((grade >= k).sum()) for k in (1, 2, 3)]
    printed = capsys.readouterr().err
    assert all(f"least {k}: threshold" in printed for k in (1, 2, 3))
    assert re.search(r"95% confidence, all .*together", printed)
    figure = (tmp_path / "curve.svg").read_text()
    assert all(f"at least {k}" in figure for k in (1, 2, 3))


@pytest.mark.parametrize("drops", [False, True])
def test_codes_for_missing_grades_are_no_grades(drops, tmp_path):
    score, grade = simulate(np.random.default_rng(5), 900)
    with_codes = np.where(np.arange(900) % 10 == 0, -1, grade)
    pl.DataFrame({"s": score, "label": with_codes}).write_csv(tmp_path / "rows.csv")
    options = ("thresholds", "--predictions", tmp_path / "rows.csv", "--score", "s", "--precision", 0.7)
    if not drops:
        with pytest.raises(InputError, match=r"label is '?-1'?"):
            run_command(*options)
        return
    run_command(*options, "--drop-unlabelled", "--out", tmp_path / "borders.json")
    content = json.loads((tmp_path / "borders.json").read_text())
    assert content["rows"] == 810
    assert content["grades"] == [*NAMES]


@pytest.mark.parametrize(
    ("reading", "labels", "expected"),
    [
        ({}, ["0", "1", "2"], None),
        ({}, ["2", "1", "0"], "Rows of 2 .*higher .*of 1 .*Check .*--labels"),
        ({}, ["0", "2", "1"], "Rows of 2 .*higher .*of 1 .*Check .*--labels"),
        ({"positive": "1"}, None, None),
        ({"positive": "0"}, None, "Rows .*not positive .*higher .*Check --positive"),
    ],
)
def test_grades_in_the_opposite_order_of_their_scores_are_noted(reading, labels, expected, tmp_path):
    grade = np.arange(300) % (2 if labels is None else 3)
    score = grade + np.random.default_rng(0).normal(size=300)
    path = tmp_path / "p.csv"
    pl.DataFrame({"score": score, "label": grade}).write_csv(path)
    notes = read_score(open_predictions(path, Reading(score="score", **reading)), labels=labels).notes
    assert [bool(re.match(expected, note)) for note in notes[:1]] == [True] if expected else notes == []
    is_descending = labels is not None and labels != sorted(labels)
    assert any("the lowest grade" in note for note in notes) == is_descending
    unrelated = pl.DataFrame({"score": np.random.default_rng(1).normal(size=300), "label": grade})
    unrelated.write_csv(path)
    notes = read_score(open_predictions(path, Reading(score="score", **reading)), labels=labels).notes
    assert not any("higher scores" in note for note in notes)


def test_grades_in_the_opposite_order_are_noted_after_grades_with_few_rows():
    grade = np.repeat([0, 1, 2, 3], [100, 3, 100, 100])  # 3 rows of grade 1 say nothing of its neighbors
    score = np.choose(grade, [0.0, 9.0, 5.0, 1.0]) + np.random.default_rng(0).normal(size=len(grade)) / 10
    predictions = FramePredictions.from_frame(pl.DataFrame({"score": score, "label": grade}))
    (note,) = read_score(replace(predictions, reading=Reading(score="score")), labels=None).notes
    assert re.match("Rows of 2 .*higher .*of 3 ", note)


@pytest.mark.parametrize("is_run", [False, True])
@pytest.mark.parametrize("labels", [None, ["0", "1", "2"]])
def test_names_of_a_run_are_doubted_only_if_they_are_given(labels, is_run):
    grade = np.arange(300) % 3
    score = np.random.default_rng(0).normal(size=300) - grade
    predictions = FramePredictions.from_frame(pl.DataFrame({"score": score, "label": grade}))
    file = replace(predictions, reading=Reading(score="score"), is_run=is_run)
    (note,) = read_score(file, labels=labels).notes
    assert "change the sign" in note
    assert ("--labels" in note) == (labels is not None or not is_run)


@pytest.mark.parametrize("positive", ["3", "other"])
def test_the_most_frequent_labels_are_listed_where_two_are_needed(positive, tmp_path):
    path = tmp_path / "p.csv"
    label = np.repeat(np.arange(2, 14), np.arange(2, 14))
    pl.DataFrame({"score": np.arange(90.0), "label": label}).write_csv(path)
    listed = ", ".join(f"{k} ({k})" for k in range(13, 3, -1))
    with pytest.raises(InputError, match=f"label has {re.escape(listed)} and 2 more"):
        read_score(open_predictions(path, Reading(score="score", positive=positive)))


def test_codes_of_missing_labels_are_named_as_such_where_grades_are_asked_for(tmp_path):
    path = tmp_path / "p.csv"
    pl.DataFrame({"score": np.arange(90.0), "label": np.arange(90) % 3 - 1}).write_csv(path)
    with pytest.raises(InputError, match=r"label has -1, 0, 1; .*-1 means"):
        read_score(open_predictions(path, Reading(score="score")))
