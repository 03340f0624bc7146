"""Prefect tasks that run the gates.

`project` waits for `check_inputs`, and metrics are computed from the result of `check_invariants`. Neither runs if its
gate fails.
"""

from dataclasses import replace
from typing import Any

from prefect import task

from relmap.decisions import decide
from tasks.expectations.invariants import CheckedRun, check_unchanged
from tasks.expectations.pairs import check_pairs
from tasks.records.durations import measured
from tasks.records.store import base_folder, read_base, read_parquet
from tasks.results.values import CalibratorFit, SeedResults


@task(task_run_name="check_inputs/{dataset}")
@measured("check")
def check_inputs(dataset: str) -> dict[str, Any]:
    """Check the labelled pairs of all splits of a data set.

    Args:
        dataset: Key of the data set.

    Returns:
        Record of the gate.

    Raises:
        GateFailed: A pair violates an expectation.
    """
    base = read_base(dataset)
    return check_pairs(
        read_parquet(base_folder(dataset, "pairs.parquet")),
        n_labels=len(base.labels),
        groups_stay_together=base.split_by == "group",
        coordinates={"dataset": dataset},
        drawn=base.drawn,
        repeats_pairs=base.repeats_pairs,
    )


@task(task_run_name="check_invariants/{results.seed}")
@measured("check")
def check_invariants(results: SeedResults, fits: list[CalibratorFit], dataset: str, ece_bins: int) -> SeedResults:
    """Check that the projection left decisions, probabilities, accuracy and ECE unchanged.

    The values before the projection are recomputed from `logits.parquet` and the fitted calibrators.

    Args:
        results: Results of one protocol seed.
        fits: Fitted calibrators of the seed, in the order of `results.projections`.
        dataset: Key of the data set.
        ece_bins: Number of bins of the ECE.

    Returns:
        The results with the record of this gate.

    Raises:
        GateFailed: Something changed. The message names data set, seed, calibrator and the differences.
    """
    base = read_base(dataset)
    decision = decide(base.test.logits)
    runs = []
    for fit, after in zip(fits, results.projections, strict=True):
        log_probabilities = fit.model(base.test.logits)
        runs.append(CheckedRun(decision=decision, log_probabilities=log_probabilities, after=after))
    record = check_unchanged(
        runs,
        labels=base.test.label,
        seed0_accuracy=base.seed0_accuracy,
        ece_bins=ece_bins,
        coordinates={"dataset": dataset, "seed": results.seed},
    )
    return replace(results, gate_records=[*results.gate_records, record])
