"""The study of what a cascade saves runs on few rows."""

import sys

import numpy as np
import polars as pl
import pytest

from benchmarks import cascade_saving
from benchmarks.cascade_saving import (
    SITUATIONS,
    Situation,
    cost_at,
    cost_of_random_routing,
    measure_curve,
    simulate,
    train_models,
)
from benchmarks.evidence.cases import Source
from benchmarks.records import read_records
from relmap.cascade.policy import CascadeRows, Policy


def policy(cost: float, accuracy: float) -> Policy:
    return Policy(thresholds=(), cost=cost, accuracy=accuracy, shares=())


def test_the_command_writes_a_record(tmp_path, monkeypatch):
    out = tmp_path / "results.json"
    arguments = ["--draws", "2", "--labelled-rows", "300", "--other-rows", "500", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["cascade_saving", *arguments])
    monkeypatch.setattr(cascade_saving, "SITUATIONS", SITUATIONS[:1])
    monkeypatch.setattr(cascade_saving, "TARGETS", (0.85,))
    cascade_saving.main()
    record = read_records(out)["cascade-saving"]
    assert [row[0].partition(":")[0] for row in record.rows] == [SITUATIONS[0].name]
    assert record.values == {"draws": "2", "labelled-rows": "300"}


@pytest.mark.parametrize(("scale", "ignores_shares"), [(1.0, False), (2.0, False), (1.0, True)])
def test_only_undistorted_confidences_are_right_for_each_label(scale, ignores_shares):
    rows = simulate(Situation("", scale=scale, ignores_shares=ignores_shares), 50_000, seed=1)
    decision = rows.logits[0].argmax(axis=1)
    gap = rows.confidences()[:, 0] - rows.correct()[:, 0]
    largest = max(abs(gap[decision == label].mean()) for label in range(3))
    is_right = scale == 1 and not ignores_shares
    assert (largest < 0.02) == is_right


def test_the_cost_at_an_accuracy_is_interpolated_between_the_cheapest_policies():
    curve = [policy(100, 1.0), policy(10, 0.8), policy(50, 0.7), policy(1, 0.6)]
    assert cost_at(curve, 0.8) == 10
    assert cost_at(curve, 0.7) == pytest.approx(5.5)
    assert cost_at(curve, 0.9) == pytest.approx(55)


def test_random_routing_leaves_out_a_model_that_does_not_pay():
    assert cost_of_random_routing(np.array([0.6, 0.8, 1.0]), 0.8) == pytest.approx(10)
    assert cost_of_random_routing(np.array([0.8, 0.81, 1.0]), 0.81) == pytest.approx(1 + 99 / 20)


def test_a_curve_ends_with_a_person_who_decides_every_row():
    rows = simulate(SITUATIONS[0], 300, seed=1)
    scores = CascadeRows(rows.confidences(), rows.correct())
    most_accurate = max(measure_curve(scores, scores), key=lambda each: each.accuracy)
    assert most_accurate.accuracy == 1
    assert most_accurate.cost <= 100


@pytest.mark.parametrize("kind", ["features", "texts"])
def test_models_predict_the_rows_that_did_not_train_them(kind):
    generator = np.random.default_rng(1)
    label = generator.integers(0, 3, 400)
    features = label[:, None] + generator.normal(size=(400, 4))
    texts = pl.Series([f"word{each} common text" for each in label])
    group = np.repeat(np.arange(40), 10)
    source = Source(features if kind == "features" else texts, label, group, by_group=True)
    predictions = train_models(source, "balanced")
    assert len(predictions.label) == 10 * (40 - round(0.35 * 40))
    assert [logits.shape for logits in predictions.logits] == [(len(predictions.label), 3)] * 2
    assert predictions.correct()[:, 1].mean() > 0.4
