"""Rows to label next are drawn with the chances that are said, and what their labels tell of all rows is true."""

import json
from dataclasses import replace
from pathlib import Path

import maps
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.metrics import cohen_kappa_score, precision_score, recall_score

from flows import rerank
from tasks.maps.agreement import AllRows, agreement
from tasks.maps.label import EVENLY, chances, draw
from tasks.maps.reliability_map import Scored
from tasks.maps.thresholds import independent_rows
from tasks.predictions.rows import PredictedRows
from tasks.protocol.errors import BadInput

MAP = maps.document("confidence", confidence_only=True)


def judged(n: int, seed: int = 0, wrong_by: float = 0.0) -> tuple[PredictedRows, Scored]:
    """Rows of three labels, and a reliability that is off by so many logits."""
    generator = np.random.default_rng(seed)
    decision, t = generator.choice(3, n, p=[0.6, 0.3, 0.1]), generator.normal(1, 1.5, n)
    label = np.where(generator.random(n) < expit(t), decision, (decision + 1) % 3)
    rows = PredictedRows(None, expit(t), decision, label, None)
    return rows, Scored(rows.confidence, t + wrong_by)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.0, 0.2, 0.5, 0.999, 1.0]), st.integers(0, 3)), min_size=1), st.data())
def test_chances_sum_to_the_rows_that_are_asked_for_and_so_many_are_drawn(rows, data):
    reliability, decision = (np.array(column) for column in zip(*rows, strict=True))
    asked = data.draw(st.integers(1, len(rows)))
    chance = chances(reliability, decision, asked)
    assert ((chance > 0) & (chance <= 1)).all()
    assert chance.sum() == pytest.approx(asked)
    assert chance.min() >= EVENLY * asked / len(rows) * (1 - 1e-9)
    assert len(np.unique(draw(chance, asked, seed=0))) == asked


def test_a_row_is_the_likelier_drawn_the_less_sure_and_the_rarer_it_is():
    reliability, decision = np.array([0.5, 0.9, 0.9, 0.9]), np.array([0, 0, 0, 1])
    unsure, sure, _, rare = chances(reliability, decision, 1)
    assert (unsure > sure, rare > sure) == (True, True)
    no_floor = [(chance - EVENLY / 4 * 1) for chance in (unsure, sure, rare)]
    assert no_floor[0] / no_floor[1] == pytest.approx(np.sqrt(0.25 / 0.09))
    assert no_floor[2] / no_floor[1] == pytest.approx(np.sqrt(3))


def test_rows_are_drawn_and_kept_as_often_as_is_said():
    chance, runs = chances(np.linspace(0.5, 0.99, 30), np.arange(30) % 3, 10), 4000
    drawn = np.bincount(np.concatenate([draw(chance, 10, seed) for seed in range(runs)]), minlength=30)
    assert drawn / runs == pytest.approx(chance, abs=5 * np.sqrt(0.25 / runs))
    rows = PredictedRows(None, None, np.zeros(30, dtype=int), None, None, weight=1 / chance)
    kept = np.concatenate([independent_rows(rows, seed)[0] for seed in range(runs)])
    alike = np.bincount(kept, minlength=30) / runs * chance  # of all rows, by both draws
    assert alike == pytest.approx(np.full(30, chance.min()), abs=5 * np.sqrt(0.25 / runs))


def test_precision_recall_and_kappa_are_those_of_scikit_learn():
    rows, scored = judged(400)
    found = agreement(MAP, rows, scored, None, 1000)
    truth = rows.label, rows.decision
    for name, reference in (("precision", precision_score), ("recall", recall_score)):
        values = [label[name]["value"] for label in found["labels"]]
        assert values == pytest.approx(reference(*truth, average=None).tolist())
    assert found["kappa"]["value"] == pytest.approx(cohen_kappa_score(*truth))
    assert (found["rows"], found["accuracy"]["value"]) == (400, pytest.approx(rows.correct.mean()))
    few = agreement(MAP, rows.take(slice(9)), Scored(scored.confidence[:9], scored.logit[:9]), None, 1000)
    assert few["kappa"]["low"] is few["accuracy"]["high"] is None


@pytest.mark.parametrize("wrong_by", [0.0, -2.0])
def test_labels_that_were_drawn_by_chance_tell_the_accuracy_of_all_rows(wrong_by):
    """However wrong the map is: it draws, and helps, the worse, and the interval knows it."""
    rows, scored = judged(4000, wrong_by=wrong_by)
    known, chance = AllRows.of(rows.decision, scored.logit, 3), chances(scored.reliability, rows.decision, 250)
    rare = recall_score(rows.label, rows.decision, average=None)[2]
    inside, widths, values = [], [], []
    for seed in range(60):
        at = draw(chance, 250, seed)
        drawn, said = replace(rows.take(at), weight=1 / chance[at]), Scored(scored.confidence[at], scored.logit[at])
        helped, alone = (agreement(MAP, drawn, said, all_rows, 300) for all_rows in (known, None))
        shares = (helped["accuracy"], rows.correct.mean()), (helped["labels"][2]["recall"], rare)
        inside.append([share["low"] <= true <= share["high"] for share, true in shares])
        widths.append([each["accuracy"]["high"] - each["accuracy"]["low"] for each in (helped, alone)])
        values.append(helped["accuracy"]["value"])
    assert np.mean(inside, axis=0).min() >= 0.88
    assert np.mean(values) == pytest.approx(rows.correct.mean(), abs=4 * np.std(values) / np.sqrt(60))
    assert np.divide(*np.mean(widths, axis=0)) < 0.97


def test_a_map_that_tells_nothing_leaves_the_accuracy_as_it_was():
    rows, scored = judged(300)
    flat = Scored(scored.confidence, np.zeros(300))
    known = AllRows.of(np.arange(3000) % 3, np.zeros(3000), 3)
    helped, alone = (agreement(MAP, rows, flat, all_rows, 300)["accuracy"] for all_rows in (known, None))
    assert helped == pytest.approx(alone)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A map, and 3,000 rows without their labels."""
    place = tmp_path_factory.mktemp("label")
    maps.predictions(600, shift=2.0).write_parquet(place / "first.parquet")
    run("fit", "--predictions", place / "first.parquet", "--out", place / "map.json")
    maps.predictions(3000, shift=2.0, seed=5).drop("label").write_parquet(place / "all.parquet")
    return place


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_rows_to_label_come_back_labelled_through_every_command(suffix, folder, capsys):
    drawn, known = folder / f"to_label.{suffix}", ("--map", folder / "map.json", "--predictions")
    run("label", *known, folder / "all.parquet", "--rows", 300, "--out", drawn)
    assert "300 of 3,000 rows are drawn" in capsys.readouterr().err
    read = {"csv": pl.read_csv, "parquet": pl.read_parquet, "jsonl": pl.read_ndjson}[suffix](drawn)
    assert (len(read), read["label"].null_count()) == (300, 300)
    assert "decision" not in read.columns  # it must not sway who labels
    truth = maps.predictions(3000, shift=2.0, seed=5).with_columns(first=pl.col("logits").list.first())
    given = read["logits_0"] if suffix == "csv" else read["logits"].list.first()
    places = [truth["first"].index_of(value) for value in given]
    maps.write(read.with_columns(label=truth["label"].gather(places)), drawn)
    run("fit", "--predictions", drawn, "--out", folder / "again.json")
    run("evaluate", *known, drawn, "--unlabelled", folder / "all.parquet", "--out", folder / "e.json")
    run("thresholds", *known, drawn, "--target-accuracy", 0.6)
    said, agreed = capsys.readouterr().err, json.loads((folder / "e.json").read_text())["agreement"]
    right = float((truth["logits"].list.arg_max() == truth["label"]).mean())
    assert agreed["rows"] == 3000
    assert agreed["accuracy"]["low"] < right < agreed["accuracy"]["high"]
    assert "Of all 3,000 rows" in said
    assert "drawn so that all rows were as likely" in said


@pytest.mark.parametrize(
    ("column", "rows", "said"),
    [
        ({"label": 1}, 5, "has the column label already"),
        ({}, 3001, "--rows is 3,001, and .* has 3,000 rows"),
        ({"more": [[1, 2]]}, 5, "the column more is large_list.*, which a .csv file cannot hold"),
    ],
)
def test_what_label_cannot_draw_from_is_told(column, rows, said, folder, tmp_path):
    columns = [pl.Series(name, [value] * 3000) for name, value in column.items()]
    pl.read_parquet(folder / "all.parquet").with_columns(*columns).write_parquet(tmp_path / "all.parquet")
    asked = "--map", folder / "map.json", "--predictions", tmp_path / "all.parquet", "--out", tmp_path / "o.csv"
    with pytest.raises(BadInput, match=said):
        run("label", *asked, "--rows", rows)
    assert not (tmp_path / "o.csv").exists()


@pytest.mark.parametrize("weight", [0.0, -1.0, np.inf, np.nan])
def test_a_weight_that_is_none_is_told_with_its_row(weight, tmp_path):
    frame = maps.predictions(100).with_columns(inverse_probability=pl.Series([1.0, weight] * 50))
    with pytest.raises(BadInput, match=r"row 1 .*inverse_probability is .*must be above 0"):
        run("fit", "--predictions", maps.write(frame, tmp_path / "p.parquet"), "--out", tmp_path / "map.json")


def test_weights_move_the_choice_as_repeated_rows_would():
    """The rows of the label that is off count ten times as much as the others."""
    frame = maps.predictions(1200, shift=2.0)
    plain = maps.learned(maps.checked(frame)).document.choice.candidates
    decided = np.array(frame["logits"].to_list()).argmax(axis=1)
    weight = np.where(decided == 1, 10.0, 1.0)
    weighted = maps.learned(maps.checked(frame.with_columns(inverse_probability=pl.Series(weight)))).document.choice
    gain, more = (next(c.change for c in all_ if c.variant == "label_platt") for all_ in (plain, weighted.candidates))
    assert more < 1.5 * gain < 0


def run(*arguments: object) -> object:
    """A command as it is typed, in this process."""
    return rerank.app([str(each) for each in arguments], standalone_mode=False)
