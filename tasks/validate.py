"""Prefect tasks: the gates. Each returns what it lets through, so nothing can pass beside it."""

from dataclasses import replace
from typing import Any

from prefect import task

from relmap.decisions import decide
from tasks.expectations import invariants, pairs
from tasks.records.results import Calibrated, Projected
from tasks.records.store import base_folder, read_base, read_parquet


@task(task_run_name="check_inputs/{dataset}")
def check_inputs(dataset: str) -> dict[str, Any]:
    """Check the judged pairs that `dataset` was trained and is calibrated on, and return the gate's record.

    Raises:
        GateFailed: a pair is not as it must be; the message names what is wrong.
    """
    base = read_base(dataset)
    return pairs.check_pairs(
        read_parquet(base_folder(dataset, "pairs.parquet")),
        n_labels=len(base.labels),
        groups_stay_together=base.split_by == "group",
        coordinates={"dataset": dataset},
        drawn=base.drawn,
    )


@task(task_run_name="check_invariants/{projected.seed}")
def check_invariants(projected: Projected, calibrated: list[Calibrated], dataset: str, ece_bins: int) -> Projected:
    """Let `projected` through if decisions, probabilities, accuracy and ECE are what they were without it.

    What they were is computed anew, from `logits.parquet` and the frozen calibrators, not from what came in here.

    Raises:
        GateFailed: they are not; the message names the data set, the seed, the calibrator and what differs.
    """
    base = read_base(dataset)
    test, decision, fits = base.test, decide(base.test.logits), zip(calibrated, projected.rows, strict=True)
    outgoing = [invariants.Outgoing(decision, fit.value(test.logits), rows) for fit, rows in fits]
    record = invariants.check_unchanged(
        outgoing,
        labels=test.labels,
        seed0_accuracy=base.seed0_accuracy,
        ece_bins=ece_bins,
        coordinates={"dataset": dataset, "seed": projected.seed},
    )
    return replace(projected, gates=[*projected.gates, record])
