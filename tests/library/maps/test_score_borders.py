"""Maps of one score with more than two labels: the decisions follow from borders of the score."""

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from relmap import ReliabilityMap
from relmap.errors import InputError
from relmap.io.column_layout import Reading, find_layout
from relmap.io.columns import FileRows
from relmap.io.files import open_predictions
from relmap.io.rows import read_rows
from relmap.maps.folds import split_folds
from relmap.maps.options import FitOptions
from relmap.maps.score_borders import add_borders, balanced_borders
from tests.maps import run_command


def simulate(n: int, seed: int = 0) -> pl.DataFrame:
    generator = np.random.default_rng(seed)
    score = generator.normal(size=n)
    grade = np.digitize(2 * score + generator.logistic(size=n), [0, 1.5, 3])
    return pl.DataFrame({"score": score, "label": grade})


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 999), n=st.integers(1, 80), n_labels=st.integers(3, 5), decimals=st.integers(0, 6))
def test_each_label_is_decided_as_often_as_it_is_the_true_label(seed, n, n_labels, decimals):
    generator = np.random.default_rng(seed)
    score = np.round(generator.normal(size=n), decimals)
    grade = generator.integers(0, n_labels, n)
    borders = balanced_borders(score, grade, n_labels, None)
    assert borders == sorted(borders)
    n_tied = np.unique(score, return_counts=True)[1].max()
    for k, border in enumerate(borders, 1):
        assert abs(int((score > border).sum()) - int((grade >= k).sum())) < n_tied
    repeats = generator.integers(1, 4, n)
    weighted = balanced_borders(score, grade, n_labels, repeats.astype(float))
    repeated = balanced_borders(np.repeat(score, repeats), np.repeat(grade, repeats), n_labels, None)
    for few, many in zip(weighted, repeated, strict=True):
        assert abs((np.repeat(score, repeats) > few).sum() - (np.repeat(score, repeats) > many).sum()) <= 3 * n_tied


@settings(deadline=None, max_examples=60)
@given(
    score=st.lists(st.integers(-50, 50), min_size=1, max_size=30),
    borders=st.lists(st.integers(-40, 40), min_size=2, max_size=5).map(sorted),
    unit=st.sampled_from([1.0, 0.125]),
)
def test_a_score_has_the_probabilities_of_a_cumulative_logit_model(score, borders, unit):
    scores = unit * np.array(score, dtype=float)
    limits = unit * np.array(borders, dtype=float)
    reading = Reading(score="s", border=",".join(map(str, limits.tolist())))
    assert reading.borders == tuple(limits)
    frame = pl.DataFrame({"s": scores})
    layout = find_layout(["s"], "p.csv", labelled=False, reading=reading)
    rows = read_rows(frame, layout, FileRows("p.csv"))
    assert rows.decision.tolist() == [int((limits < value).sum()) for value in scores]
    gap = float(np.diff(limits).mean()) or 2.0
    above = np.column_stack(
        [np.ones(len(scores)), expit((scores[:, None] - limits) / (gap / 2)), np.zeros(len(scores))]
    )
    np.testing.assert_allclose(np.exp(rows.logits), -np.diff(above, axis=1), rtol=1e-6, atol=1e-11)


@pytest.mark.parametrize("border", [None, "-0.5,0.5,1"])
def test_fit_apply_evaluate_and_report_use_the_same_borders(border, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = simulate(500)
    rows.write_csv("rows.csv")
    new = simulate(200, seed=1)
    new.write_csv("new.csv")
    options = ("--predictions", "rows.csv", "--score", "score")
    run_command("fit", *options, *(() if border is None else ("--border", border)), "--out", "map.json")
    printed = capsys.readouterr().err
    borders = [float(text) for text in json.loads((tmp_path / "map.json").read_text())["reading"]["border"].split(",")]
    assert ("borders of score" in printed) == (border is None)
    if border is None:
        assert np.bincount(np.digitize(rows["score"], borders)).tolist() == np.bincount(rows["label"]).tolist()
    else:
        assert borders == [-0.5, 0.5, 1]
    for more in ((), ("--score", "score")):  # the borders of the same column are remembered
        run_command("apply", "--map", "map.json", "--predictions", "new.csv", "--out", "out.csv", "--force", *more)
        routed = pl.read_csv("out.csv")
        assert routed["decision"].to_list() == np.digitize(new["score"], borders).tolist()
        assert set(routed["route"]) == {"automatic", "review"}
    run_command("evaluate", "--map", "map.json", "--predictions", "rows.csv", "--out", "evaluation.json")
    assert json.loads((tmp_path / "evaluation.json").read_text())["rows"] == 500
    run_command("report", *options, *(() if border is None else ("--border", border)), "--out", "report.html")
    assert (tmp_path / "report.html").exists()


def test_the_reliability_does_not_depend_on_the_unit_of_the_score():
    rows = simulate(600)
    scaled = rows.with_columns(score=0.01 * pl.col("score") + 0.7)
    reliabilities = []
    for frame in (rows, scaled):
        model = ReliabilityMap(score_column="score").fit(frame)
        reliabilities.append(model.reliability(frame).to_numpy())
        assert model.plot().figures[0].key == "map_curves"  # its rows have the borders too
    np.testing.assert_allclose(reliabilities[0], reliabilities[1], atol=0.01)


def test_named_grades_and_borders_are_given_as_lists_in_python():
    names = ["poor", "fair", "good", "perfect"]
    rows = simulate(400).with_columns(
        label=pl.col("label").cast(pl.String).replace(dict(zip("0123", names, strict=True)))
    )
    model = ReliabilityMap(score_column="score", labels=names, border=[-0.5, 0.5, 1]).fit(rows)
    expected = [names[k] for k in np.digitize(rows["score"], [-0.5, 0.5, 1])]
    assert model.predict(rows).tolist() == expected
    with pytest.raises(InputError, match=r"border has 2 .*3 .*4 labels"):
        ReliabilityMap(score_column="score", labels=names, border=[0, 1]).fit(rows)


def test_borders_do_not_depend_on_the_labels_of_held_out_rows(tmp_path):
    rows = simulate(500).with_columns(query=pl.int_range(500) // 10)
    split = split_folds(500, rows["query"].cast(pl.String).to_numpy(), 1, hold_out=0.4)
    is_held_out = pl.int_range(500).is_in(split.held_out)
    changed = rows.with_columns(label=pl.when(is_held_out).then(3 - pl.col("label")).otherwise("label"))
    borders = []
    for k, frame in enumerate((rows, changed)):
        frame.write_csv(tmp_path / f"{k}.csv")
        file = open_predictions(tmp_path / f"{k}.csv", Reading(score="score"))
        found = add_borders(file, FitOptions(group="query", hold_out=0.4))
        borders.append(found.file.reading.borders)
    fit_rows = rows[split.fit_rows]
    assert borders[0] == borders[1]
    expected = balanced_borders(fit_rows["score"].to_numpy(), fit_rows["label"].to_numpy(), 4, None)
    assert borders[0] == pytest.approx(expected, rel=1e-5)
    assert borders[0] != pytest.approx(balanced_borders(*rows["score", "label"].to_numpy().T, 4, None), rel=1e-5)
