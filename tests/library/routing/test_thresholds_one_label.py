"""A target accuracy for the decisions of one label, which are tested at the whole error level."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from relmap import ReliabilityMap
from relmap.errors import InputError
from relmap.maps.document import MapDocument
from relmap.routing import thresholds
from relmap.routing.group_tests import RowGroups
from relmap.routing.thresholds import ReliabilityThresholds, find_accuracy_thresholds
from tests.maps import make_map_with_held_out, make_predictions, run_command

LABEL_SHARES = np.array([0.5, 0.3, 0.2])
MAX_ERROR_RATES = np.array([0.2, 0.3, 0.5])  # error rate of each label at reliability 0
UNIFORM_QUANTILES = np.linspace(0, 1, 101)
N_SIMULATIONS = 400
TARGET = 0.9
NAMES = ("bad", "fair", "good")


@pytest.fixture(scope="module")
def document() -> MapDocument:
    return make_map_with_held_out(quantiles=tuple(UNIFORM_QUANTILES.tolist()))


def simulate(generator: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate reliability, decision and correct; a row is wrong with MAX_ERROR_RATES * (1 - reliability)."""
    decision = generator.choice(3, n, p=LABEL_SHARES)
    reliability = generator.random(n)
    return reliability, decision, generator.random(n) < 1 - MAX_ERROR_RATES[decision] * (1 - reliability)


@pytest.fixture
def _no_advice(monkeypatch):
    monkeypatch.setattr(thresholds, "_advise", lambda *_: ())  # for speed: the search does not use the advice


def true_accuracy(label: int, threshold: float) -> float:
    return 1 - float(MAX_ERROR_RATES[label]) * (1 - threshold) / 2


@pytest.mark.usefixtures("_no_advice")
@pytest.mark.parametrize("has_groups", [False, True])
def test_the_threshold_of_one_label_is_never_higher_than_with_all_labels(document, has_groups):
    generator = np.random.default_rng(1)
    n_lower = 0
    n_found_alone = 0
    for seed in range(4 if has_groups else 40):
        rows = simulate(generator, 400)
        groups = RowGroups.from_names(np.arange(400) // 2, seed) if has_groups else None
        together = find_accuracy_thresholds(document, *rows, target=TARGET, groups=groups).labels
        for estimate in together:
            (alone,) = find_accuracy_thresholds(
                document, *rows, target=TARGET, groups=groups, only_label=estimate.label
            ).labels
            is_of_label = rows[1] == estimate.label
            of_label = find_accuracy_thresholds(
                document,
                *(values[is_of_label] for values in rows),
                target=TARGET,
                groups=None if groups is None else groups.take(is_of_label),
            ).overall
            assert alone == replace(of_label, label=estimate.label)
            assert alone.n_rows == estimate.n_rows
            if estimate.threshold is not None:
                assert alone.threshold is not None
                assert alone.threshold <= estimate.threshold
                n_lower += alone.threshold < estimate.threshold
            n_found_alone += estimate.threshold is None and alone.threshold is not None
    assert has_groups or (n_lower and n_found_alone)


@pytest.mark.usefixtures("_no_advice")
def test_the_target_of_one_label_is_missed_no_more_often_than_stated(document):
    generator = np.random.default_rng(2)
    level = 0.05
    missed = np.zeros(3)
    found = np.zeros(3)
    for _ in range(N_SIMULATIONS):
        rows = simulate(generator, 1000)
        for label in range(3):
            (estimate,) = find_accuracy_thresholds(
                document, *rows, target=TARGET, confidence=1 - level, only_label=label
            ).labels
            if estimate.threshold is not None:
                found[label] += 1
                missed[label] += true_accuracy(label, estimate.threshold) < TARGET
    max_missed = N_SIMULATIONS * level + 3 * np.sqrt(N_SIMULATIONS * level * (1 - level))
    assert (missed <= max_missed).all()
    assert found[0] > 0.7 * N_SIMULATIONS


@pytest.mark.usefixtures("_no_advice")
def test_the_target_of_one_label_holds_where_every_threshold_just_misses_it(document):
    generator = np.random.default_rng(3)
    level = 0.05
    missed = 0
    for _ in range(N_SIMULATIONS):
        reliability, decision, _ = simulate(generator, 600)
        correct = (generator.random(600) < TARGET - 1e-9) | (decision != 1)  # the other labels are always correct
        found = find_accuracy_thresholds(
            document, reliability, decision, correct, target=TARGET, confidence=1 - level, only_label=1
        )
        missed += found.labels[0].threshold is not None
    assert 0 < missed <= N_SIMULATIONS * level + 3 * np.sqrt(N_SIMULATIONS * level * (1 - level))


def describe(found: ReliabilityThresholds) -> str:
    return " ".join(found.describe(NAMES))


def test_a_missing_threshold_of_one_label_has_a_reason_and_advice(document):
    rows = simulate(np.random.default_rng(4), 60)
    found = find_accuracy_thresholds(document, *rows, target=0.97, only_label=2)
    assert found.overall.threshold is None
    text = describe(found)
    assert re.match("No threshold .*decisions good: ", text)
    assert all(sentence in text for sentence in found.advice)


def test_a_label_without_decisions_is_refused(document):
    reliability, _, correct = simulate(np.random.default_rng(5), 60)
    with pytest.raises(InputError, match=r"no decision .* exact;"):
        find_accuracy_thresholds(document, reliability, np.zeros(60, dtype=int), correct, target=TARGET, only_label=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("one_label")
    ReliabilityMap(labels=NAMES).fit(make_predictions(400, shift=2.0)).save(folder / "map.json")
    rows = make_predictions(1500, shift=2.0, seed=1)
    rows.write_parquet(folder / "rows.parquet")
    return folder


def test_apply_uses_the_threshold_of_one_label_and_sends_other_decisions_to_review(folder, monkeypatch):
    monkeypatch.chdir(folder)
    options = ("thresholds", "--map", "map.json", "--predictions", "rows.parquet", "--target-accuracy", 0.88)
    run_command(*options, "--label", "bad", "--out", "short.json")
    run_command(*options, "--only-label", "bad", "--label", "label", "--out", "long.json")
    assert json.loads(Path("short.json").read_text()) == json.loads(Path("long.json").read_text())
    model = ReliabilityMap.load("map.json")
    cuts = model.thresholds(pl.read_parquet("rows.parquet"), target_accuracy=0.88, only_label="bad")
    assert cuts.to_dict()["labels"] == json.loads(Path("long.json").read_text())["labels"]
    assert cuts.cut is None
    assert repr(cuts).startswith("Cuts(only_label=0, cut=0.")

    run_command(
        "apply", "--map", "map.json", "--predictions", "rows.parquet", "--out", "out.parquet", "--cuts", "long.json"
    )
    routed = pl.read_parquet("out.parquet")
    threshold = cuts.to_dict()["labels"][0]["cut"]
    is_automatic = (routed["decision_name"] == "bad") & (routed["reliability"] >= threshold)
    assert is_automatic.any()
    assert ((routed["route"] == "automatic") == is_automatic).all()


def test_the_column_of_the_label_is_a_column_if_there_is_one(folder, monkeypatch):
    monkeypatch.chdir(folder)
    pl.read_parquet("rows.parquet").rename({"label": "bad"}).write_parquet("renamed.parquet")
    run_command(
        *("thresholds", "--map", "map.json", "--predictions", "renamed.parquet", "--target-accuracy", 0.88),
        *("--label", "bad", "--out", "all.json"),
    )
    assert json.loads(Path("all.json").read_text())["only_label"] is None
