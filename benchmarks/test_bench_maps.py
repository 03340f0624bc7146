"""A user's own predictions from file to scored file, and to map and evaluation."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import softmax
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_predict

from relmap import ReliabilityMap
from relmap import cli as rerank
from relmap.projection.labelwise import Isotonic, WithFallbacks
from relmap.routing.apply import apply_map
from tests import maps

ROOT = Path(__file__).resolve().parent.parent
K = 5


@pytest.fixture(scope="module")
def isotonic() -> list:
    """Fit scikit-learn's isotonic regression for each label on 1,600 rows."""
    generator = np.random.default_rng(0)
    fitted = []
    for _ in range(K):
        confidence = generator.random(1600)
        regression = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        fitted.append(regression.fit(confidence, generator.random(1600) < confidence))
    return fitted


def by_scikit_learn(isotonic: list, predictions: Path, out: Path) -> None:
    """Write the columns that `apply` adds with polars and scikit-learn."""
    frame = pl.read_parquet(predictions)
    probabilities = softmax(0.8 * frame["logits"].explode().to_numpy().reshape(-1, K), axis=1)
    decision = probabilities.argmax(axis=1)
    confidence = probabilities.max(axis=1)
    reliability = np.empty(len(decision))
    for label in range(K):
        reliability[decision == label] = isotonic[label].predict(confidence[decision == label])
    rank = np.empty(len(decision), dtype=np.int64)
    rank[np.argsort(reliability, kind="stable")] = np.arange(1, len(decision) + 1)
    automatic = pl.Series(rank > len(rank) - 7 * len(rank) // 10)
    frame.with_columns(
        decision=decision,
        decision_name=pl.Series([f"label {label}" for label in range(K)])[decision],
        confidence=confidence,
        reliability=reliability,
        review_rank=rank,
        route=pl.select(pl.when(automatic).then(pl.lit("automatic")).otherwise(pl.lit("review"))).to_series(),
    ).write_parquet(out)


def logistic_regression(predictions: Path) -> float:
    """Predict which decisions are correct, out of fold, and return the log loss on the rows of another file."""
    features, correct = read_features(predictions / "first.parquet")
    model = LogisticRegression(max_iter=1000)
    out_of_fold = cross_val_predict(model, features, correct, cv=5, method="predict_proba")
    assert log_loss(correct, out_of_fold) < np.log(2)
    new_features, new_correct = read_features(predictions / "second.parquet")
    return log_loss(new_correct, model.fit(features, correct).predict_proba(new_features))


def read_features(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read the logits with an indicator of each decision, and whether each decision is correct."""
    frame = pl.read_parquet(file)
    logits = frame["logits"].explode().to_numpy().reshape(-1, K)
    decision = logits.argmax(axis=1)
    return np.hstack([logits, np.eye(K)[decision]]), decision == frame["label"].to_numpy()


def test_apply(comparison, rows, predictions, isotonic, tmp_path):
    file = predictions / "first.parquet"
    scored_file = tmp_path / "scored.parquet"
    reference_file = tmp_path / "reference.parquet"
    copy = tmp_path / "copy.parquet"
    document = maps.make_map("mrp", n_labels=K)
    apply_map(document, file, scored_file)
    comparison.add_alternative(
        "scikit-learn: isotonic of each label", lambda: by_scikit_learn(isotonic, file, reference_file)
    )
    comparison.add_growth(lambda: apply_map(document, predictions / "tenth.parquet", tmp_path / "tenth.parquet"))
    comparison.add_floor(lambda: pl.read_parquet(scored_file).write_parquet(copy))
    comparison.run("apply a map, file to file", rows, lambda: apply_map(document, file, scored_file), rounds=7)

    thresholds = tuple(regression.X_thresholds_ for regression in isotonic)
    values = tuple(regression.y_thresholds_ for regression in isotonic)
    steps = Isotonic(thresholds, values)
    shared = maps.make_variants(K)["shared_1d"]
    isotonic_variant = WithFallbacks(steps, shared, ("none",) * K, np.full(K, 1600))
    apply_map(maps.make_map("label_isotonic", isotonic_variant, n_labels=K), file, scored_file, coverage="0.7")
    scored = pl.read_parquet(scored_file)
    expected = pl.read_parquet(reference_file)
    compared = ["confidence", "reliability", "review_rank", "route"]

    assert scored.drop(compared).equals(expected.drop(compared))
    for name in compared[:2]:
        np.testing.assert_allclose(scored[name], expected[name], rtol=0, atol=1e-12)
    # ranks of rows that differ by rounding may be exchanged
    assert (np.diff(scored.sort("review_rank")["reliability"].to_numpy()) >= -1e-15).all()
    assert scored["route"].sort().equals(expected["route"].sort())


def test_single_rows(comparison, size, isotonic, tmp_path):
    n_rows = size(1000, 20)
    file = tmp_path / "map.json"
    file.write_text(maps.make_map("mrp", n_labels=K).model_dump_json(), encoding="utf-8")
    scored = ReliabilityMap.load(file, arrays="probabilities")
    probabilities = softmax(np.random.default_rng(0).normal(size=(n_rows, K)), axis=1)
    regression = isotonic[0]
    comparison.add_alternative(
        "scikit-learn: isotonic of one row",
        lambda: [regression.predict(probabilities[row : row + 1].max(axis=1))[0] for row in range(n_rows)],
    )
    comparison.run(
        "apply a map to single rows of an array",
        n_rows,
        lambda: [scored.apply(probabilities[row : row + 1])["reliability"][0] for row in range(n_rows)],
        rounds=7,
    )


def test_from_file_to_map_and_verdict(comparison, rows, predictions, tmp_path, monkeypatch, capsys):
    """Fit the map to one file and evaluate it on another of the same length."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")

    def arguments(name: str) -> list[list[str]]:
        labelled_rows = str(predictions / "first.parquet")
        new_rows = str(predictions / "second.parquet")
        out = tmp_path / name
        fit = ["fit", "--predictions", labelled_rows, "--group", "group", "--out", f"{out}.map.json", "--force"]
        evaluate = ["evaluate", "--map", f"{out}.map.json", "--predictions", new_rows, "--group", "group"]
        return [fit, [*evaluate, "--out", f"{out}.json", "--force"]]

    def as_commands() -> None:
        for line in arguments("commands"):
            subprocess.run([sys.executable, "-m", "relmap.cli", *line], cwd=ROOT, check=True, capture_output=True)

    def in_this_process() -> None:
        for line in arguments("here"):
            rerank.app(line, standalone_mode=False)

    comparison.add_alternative(
        "scikit-learn: logistic regression in five folds", lambda: logistic_regression(predictions)
    )
    comparison.add_alternative("the same in this process", in_this_process, used_instead=False)
    comparison.add_floor(lambda: [pl.read_parquet(predictions / f"{name}.parquet") for name in ("first", "second")])
    comparison.run("fit, then evaluate, as commands", rows, as_commands, rounds=1, warm_up=False)

    commands = json.loads((tmp_path / "commands.json").read_text())
    in_process = json.loads((tmp_path / "here.json").read_text())

    assert (tmp_path / "commands.map.json").read_bytes() == (tmp_path / "here.map.json").read_bytes()
    assert commands.pop("map") != in_process.pop("map")
    assert commands == in_process
    assert all(change["low"] <= change["change"] <= change["high"] for change in in_process["metrics"].values())
