"""Thresholds on a raw score: the guarantee in simulation, the command, and errors."""

import json
import re

import numpy as np
import polars as pl
import pytest
from scipy.special import expit

from relmap.cli import app
from relmap.errors import InputError
from relmap.routing.score_thresholds import find_score_thresholds

N_DRAWS = 100
N_POPULATION = 100_000  # groups
LEVEL = 0.1
TARGET = 0.9


def simulate(seed: int, n_groups: int, rows_per_group: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw scores, labels and groups; with more than one row a group has an effect of its own."""
    random = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), rows_per_group)
    effect = random.normal(0, 1, n_groups)[groups] * (rows_per_group > 1)
    score = random.normal(0, 2, len(groups))
    return score, random.random(len(groups)) < expit(2 * score + effect), groups


@pytest.mark.parametrize("rows_per_group", [1, 10])
def test_precision_target_is_missed_no_more_often_than_stated(rows_per_group):
    score, positive, groups = simulate(10_000, N_POPULATION, rows_per_group)
    grid = np.linspace(-1, 4, 51)
    true_precision = []  # mean over groups, at each threshold of the grid
    for threshold in grid:
        selected = score >= threshold
        n_selected = np.bincount(groups, selected)
        n_positive = np.bincount(groups, selected & positive)
        true_precision.append((n_positive[n_selected > 0] / n_selected[n_selected > 0]).mean())
    missed = 0
    found = 0
    for seed in range(N_DRAWS):
        n_groups = 600 if rows_per_group == 1 else 200
        score, positive, groups = simulate(seed, n_groups, rows_per_group)
        result = find_score_thresholds(
            score,
            positive,
            groups=None if rows_per_group == 1 else groups,
            precision=TARGET,
            confidence_level=1 - LEVEL,
        )
        threshold = result.thresholds[0].threshold
        if threshold is not None:
            found += 1
            missed += np.interp(threshold, grid, true_precision) < TARGET - 0.002  # error of the interpolation

    assert found > 0.5 * N_DRAWS
    assert missed <= N_DRAWS * LEVEL + 3 * np.sqrt(N_DRAWS * LEVEL * (1 - LEVEL))


def test_review_band_lies_between_the_thresholds():
    score, positive, _ = simulate(1, 3000, 1)
    result = find_score_thresholds(100 * score + 7, positive, precision=0.95, npv=0.95)
    above, below = result.thresholds

    assert result.review == (below.threshold, above.threshold)
    assert above.covered == ((100 * score + 7) >= above.threshold).sum()
    assert below.covered == ((100 * score + 7) < below.threshold).sum()
    assert above.covered + below.covered + result.review_rows == 3000

    plain = find_score_thresholds(score, positive, precision=0.95, npv=0.95)
    assert above.threshold == pytest.approx(100 * plain.thresholds[0].threshold + 7, abs=1e-3)


def test_precision_and_recall_share_a_threshold():
    score, positive, _ = simulate(2, 4000, 1)
    first, second = find_score_thresholds(score, positive, precision=0.75, recall=0.75).thresholds
    assert first.threshold == second.threshold


def test_missing_threshold_is_reported_with_the_groups_needed():
    score, positive, groups = simulate(3, 60, 5)
    found = find_score_thresholds(score, positive, groups=groups, precision=0.95)
    assert [result.threshold for result in found.thresholds] == [None]
    text = " ".join(found.describe())
    assert re.search(r"No threshold .*precision of 95%\.", text)
    assert "groups like these" in text


def test_command_without_a_map_writes_json_and_a_figure(tmp_path, capsys):
    score, positive, groups = simulate(4, 200, 10)
    label = np.where(positive, "relevant", "other")
    pl.DataFrame({"s": score, "label": label, "query": groups}).write_csv(tmp_path / "rows.csv")
    arguments = ["thresholds", "--predictions", tmp_path / "rows.csv", "--score", "s", "--positive", "relevant"]
    targets = ["--precision", 0.8, "--npv", 0.8, "--group", "query"]
    outputs = ["--out", tmp_path / "answer.json", "--figure", tmp_path / "curve.svg"]
    app([str(part) for part in (*arguments, *targets, *outputs)], standalone_mode=False)
    answer = json.loads((tmp_path / "answer.json").read_text())

    assert [entry["metric"] for entry in answer["thresholds"]] == ["precision", "npv"]
    assert answer["groups"] == 200
    assert (tmp_path / "curve.svg").read_text().startswith("<svg")
    assert re.search(r"\b50 of the 200 groups propose .* 150 test .*--seed\b", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--score", "s", "--positive", "relevant"], "--precision 0.95"),
        (["--score", "s", "--precision", "0.9"], "--positive"),
        (["--score", "s", "--positive", "wrong", "--precision", "0.9"], "no row .*label 'wrong' .*--positive;"),
        (["--score", "s", "--positive", "relevant", "--coverage", "0.7"], "--coverage needs a map"),
        (["--score", "s", "--positive", "relevant", "--precision", "1.2"], "precision is 1.2"),
    ],
)
def test_command_reports_missing_and_invalid_options(options, message, tmp_path):
    score, positive, _ = simulate(5, 50, 1)
    frame = pl.DataFrame({"s": score, "label": np.where(positive, "relevant", "other")})
    frame.write_csv(tmp_path / "rows.csv")
    with pytest.raises(InputError, match=message):
        app(["thresholds", "--predictions", str(tmp_path / "rows.csv"), *options], standalone_mode=False)


def test_sampling_weights_are_rejected(tmp_path):
    pl.DataFrame({"s": [1.0, 2.0], "label": ["a", "b"], "inverse_probability": [1.0, 2.0]}).write_csv(
        tmp_path / "rows.csv"
    )
    options = ["--score", "s", "--positive", "a", "--precision", "0.9"]
    with pytest.raises(InputError, match="sampling weights"):
        app(["thresholds", "--predictions", str(tmp_path / "rows.csv"), *options], standalone_mode=False)
