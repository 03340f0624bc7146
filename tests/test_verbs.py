"""The verbs, called as plain functions: gates close on what was changed, keys see what a fit depends on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from tasks.calibrate import calibrate, fit_key
from tasks.expectations.check import GateFailed
from tasks.measure import measure
from tasks.metrics.probability import accuracy
from tasks.project import project
from tasks.projection.lattice import LatticeSettings
from tasks.protocol.params import MetricParams
from tasks.protocol.results import Calibrated, Projected, ProjectedDecisions
from tasks.protocol.store import base_folder, write_logits
from tasks.validate import known, unchanged
from tasks.write import scored_rows

METRICS = MetricParams(ece_bins=15, spread_groups=10, spread_minimum_cell=20, spread_permutations=20)


@pytest.fixture
def calibrated(decisions) -> list[Calibrated]:
    return [calibrate.fn(decisions, name, 1) for name in ("uncal", "ts")]


@pytest.fixture
def projected(decisions, calibrated, tmp_path, monkeypatch) -> Projected:
    """What one seed projects, with the same decisions as validation and as saved test rows."""
    monkeypatch.chdir(tmp_path)
    facts = {
        "labels": ["a", "b", "c"],
        "split_by": "group",
        "drawn": [],
        "source": "simulated",
        "accuracy": {"test": accuracy(decisions.decision, decisions.labels)},
    }
    write_logits("wands", {"validation": decisions, "test": decisions}, facts)
    rows = len(decisions)
    pl.DataFrame(
        {
            "pair": [str(row) for row in range(rows)],
            "split": [("train", "validation", "test")[int(group[1:]) % 3] for group in decisions.group],
            "group": decisions.group.tolist(),
            "label": pl.Series(decisions.labels, dtype=pl.Int8),
            "query_length": [5] * rows,
            "candidate_length": [9] * rows,
        }
    ).write_parquet(base_folder("wands") / "pairs.parquet")
    return project.fn(decisions, decisions, decisions, calibrated, 1, LatticeSettings(epochs=30), "cpu")


def changed(projected: Projected, **arrays: np.ndarray) -> Projected:
    """What was projected, with something of the second calibrator changed on the way."""
    first, second = projected.rows
    return replace(projected, rows=[first, replace(second, **arrays)])


def test_what_nothing_touched_is_let_through_and_recorded(projected, calibrated):
    passed = unchanged.fn(projected, calibrated, "wands", 15)
    assert passed.rows == projected.rows
    assert passed.gates
    assert all(gate["success"] for gate in passed.gates)


def a_flipped_decision(rows: ProjectedDecisions) -> dict[str, np.ndarray]:
    decision = rows.decision.copy()
    decision[7] = (decision[7] + 1) % 3
    return {"decision": decision}


def a_nudged_probability(rows: ProjectedDecisions) -> dict[str, np.ndarray]:
    nudged = rows.log_probabilities.copy()
    nudged[7, 0] += 1e-12
    return {"log_probabilities": nudged}


def a_reliability_that_is_no_number(rows: ProjectedDecisions) -> dict[str, dict[str, np.ndarray]]:
    spoilt = rows.reliability_logits["mrp"].copy()
    spoilt[7] = np.nan
    return {"reliability_logits": rows.reliability_logits | {"mrp": spoilt}}


@pytest.mark.parametrize("change", [a_flipped_decision, a_nudged_probability, a_reliability_that_is_no_number])
def test_a_gate_closes_on_one_changed_row_and_names_where(projected, calibrated, change):
    with pytest.raises(GateFailed) as error:
        unchanged.fn(changed(projected, **change(projected.rows[1])), calibrated, "wands", 15)
    assert "wands" in str(error.value)
    assert "ts" in str(error.value)
    assert "7" in str(error.value)


def test_known_pairs_pass_and_a_group_in_two_splits_does_not(projected):
    assert known.fn("wands")["success"]
    path = base_folder("wands") / "pairs.parquet"
    pairs = pl.read_parquet(path)
    moved = pl.when(pl.col("pair") == "3").then(pl.lit("test")).otherwise("split").alias("split")
    pairs.with_columns(moved).write_parquet(path)
    with pytest.raises(GateFailed, match="q0"):
        known.fn("wands")


def test_a_seed_is_measured_in_every_metric_and_variant(projected, decisions):
    rows = measure.fn(projected, decisions.labels, METRICS)
    assert set(rows["variant"]) == {"confidence", "shared_1d", "mrp"}
    assert set(rows["calibrator"]) == {"uncal", "ts"}
    of_all = {"nll_correct", "aupr_error", "aurc", "augrc", "selacc_10", "selacc_50", "selacc_70", "selacc_90"}
    of_calibrators = {"accuracy", "ece", "top_ece", "nll", "brier", "label_spread", "label_spread_null_p95"}
    assert set(rows.filter(pl.col("variant") == "mrp")["metric"]) == of_all
    assert set(rows.filter(pl.col("variant") == "confidence")["metric"]) == of_all | of_calibrators


def key(fit, calibrator="ts", seed=1) -> str:
    return fit_key(None, {"fit": fit, "calibrator": calibrator, "seed": seed})


def test_a_fit_is_found_again_for_the_same_rows_alone(decisions):
    assert key(decisions) == key(replace(decisions, group=decisions.group[::-1]))
    labels = decisions.labels.copy()
    labels[0] = (labels[0] + 1) % 3
    logits = decisions.logits.copy()
    logits[0, 0] = np.nextafter(logits[0, 0], np.inf)
    keys = {
        key(decisions),
        key(decisions, seed=2),
        key(decisions, calibrator="uncal"),
        key(replace(decisions, labels=labels)),
        key(replace(decisions, logits=logits)),
    }
    assert len(keys) == 5


def test_a_large_test_set_is_sampled_under_a_fixed_seed_and_a_small_one_is_not():
    assert (scored_rows(500) == np.arange(500)).all()
    large = scored_rows(120_000)
    assert len(np.unique(large)) == 50_000
    assert (np.diff(large) > 0).all()
    assert (large == scored_rows(120_000)).all()
