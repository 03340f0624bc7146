"""A user's own predictions: from file to scored file, and from file to map and verdict."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import softmax
from sklearn.isotonic import IsotonicRegression

from relmap import cli as rerank
from relmap.projection.labelwise import Isotonic, WithFallbacks
from relmap.routing.apply import apply_map
from tests import maps

pytestmark = pytest.mark.bench
ROOT = Path(__file__).resolve().parent.parent.parent
K = 5


@pytest.fixture(scope="module")
def isotonic() -> list:
    """Scikit-learn's isotonic regression of each label, fitted on 1,600 rows of it."""
    generator, fitted = np.random.default_rng(0), []
    for _ in range(K):
        confidence = generator.random(1600)
        regression = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        fitted.append(regression.fit(confidence, generator.random(1600) < confidence))
    return fitted


def by_scikit_learn(isotonic: list, predictions: Path, out: Path) -> None:
    """The columns that `apply` adds, as one would write it with polars and scikit-learn."""
    frame = pl.read_parquet(predictions)
    probabilities = softmax(0.8 * frame["logits"].explode().to_numpy().reshape(-1, K), axis=1)
    decision, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
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


def test_apply(race, rows, predictions, isotonic, tmp_path):
    file, ours, theirs, copy = predictions / "first.parquet", *(tmp_path / f"{name}.parquet" for name in "abc")
    document = maps.make_map("mrp", n_labels=K)
    apply_map(document, file, ours)
    race.beside("polars: read and write the file", lambda: pl.read_parquet(file).write_parquet(copy), aim=0.5)
    race.beside("scikit-learn: isotonic of each label", lambda: by_scikit_learn(isotonic, file, theirs), aim=5)
    race.growth(lambda: apply_map(document, predictions / "tenth.parquet", tmp_path / "tenth.parquet"))
    race.floor(lambda: pl.read_parquet(ours).write_parquet(copy))
    race.run("apply a map, file to file", rows, lambda: apply_map(document, file, ours), rounds=3)

    steps = Isotonic(*(tuple(getattr(regression, f"{axis}_thresholds_") for regression in isotonic) for axis in "Xy"))
    shared = maps.make_variants(K)["shared_1d"]
    same = WithFallbacks(steps, shared, ("none",) * K, np.full(K, 1600))
    apply_map(maps.make_map("label_isotonic", same, n_labels=K), file, ours, coverage="0.7")
    made, expected = pl.read_parquet(ours), pl.read_parquet(theirs)
    alike = ["confidence", "reliability", "review_rank", "route"]
    assert made.drop(alike).equals(expected.drop(alike))
    for name in alike[:2]:
        np.testing.assert_allclose(made[name], expected[name], rtol=0, atol=1e-12)
    # of rows that rounding parts, the ranks may be exchanged
    assert (np.diff(made.sort("review_rank")["reliability"].to_numpy()) >= -1e-15).all()
    assert made["route"].sort().equals(expected["route"].sort())


def test_from_file_to_map_and_verdict(race, rows, predictions, tmp_path, monkeypatch, capsys):
    """The map is fitted on one file and judged on another of the same length."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")

    def arguments(place: str) -> list[list[str]]:
        known, new, out = predictions / "first.parquet", predictions / "second.parquet", tmp_path / place
        fit = ["fit", "--predictions", known, "--group", "group", "--out", f"{out}.map.json"]
        judge = ["evaluate", "--map", f"{out}.map.json", "--predictions", new, "--group", "group"]
        return [[str(argument) for argument in line] for line in (fit, [*judge, "--out", f"{out}.json"])]

    def as_commands() -> None:
        for line in arguments("commands"):
            subprocess.run([sys.executable, "-m", "relmap.cli", *line], cwd=ROOT, check=True, capture_output=True)

    def in_this_process() -> None:
        for line in arguments("here"):
            rerank.app(line, standalone_mode=False)

    race.timed("a limit of 10 s", 10, aim=1)
    race.beside("the same in this process", in_this_process)
    race.floor(lambda: [pl.read_parquet(predictions / f"{name}.parquet") for name in ("first", "second")])
    race.run("fit, then evaluate, as commands", rows, as_commands, rounds=1, warm_up=False)

    commands, here = (json.loads((tmp_path / f"{place}.json").read_text()) for place in ("commands", "here"))
    assert (tmp_path / "commands.map.json").read_bytes() == (tmp_path / "here.map.json").read_bytes()
    assert commands.pop("map") != here.pop("map")
    assert commands == here
    assert all(change["low"] <= change["change"] <= change["high"] for change in here["metrics"].values())
