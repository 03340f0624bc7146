"""Gate for the results of one protocol seed: calibration and projection changed no decision and no probability.

A projection adds a reliability to fixed decisions. Accuracy, ECE and the probabilities of the calibrator stay the same
(paper, section 4.4), and the accuracy at full coverage equals the accuracy of the seed-0 decisions in every run
(section 4.3).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import scipy

from relmap.metrics.probability import accuracy, ece
from tasks.expectations.check import Check, make_expectation, make_range_expectations, run_gate
from tasks.results.values import ProjectedDecisions

MAX_KKT_RESIDUAL = 1e-8  # of the Karush-Kuhn-Tucker conditions, for a minimum to count as found
REMEDY = (
    "Do not use any result of this run: a step between the base predictor and this check changed decisions or "
    "probabilities, which must stay fixed."
)


@dataclass(frozen=True, eq=False)
class CheckedRun:
    """Test rows of one calibrator before and after the projection.

    The caller recomputes the values before the projection from the saved logits and the fitted calibrator.

    Attributes:
        decision: Decisions before the projection, shape (n,), int.
        log_probabilities: Calibrated log-probabilities before the projection, shape (n, K).
        after: Results of the projection, with copies of the decisions and log-probabilities.
    """

    decision: np.ndarray
    log_probabilities: np.ndarray
    after: ProjectedDecisions


def check_unchanged(
    runs: Sequence[CheckedRun],
    *,
    labels: np.ndarray,
    seed0_accuracy: float,
    ece_bins: int,
    coordinates: Mapping[str, object],
) -> dict[str, Any]:
    """Check the results of one protocol seed.

    Decisions and log-probabilities must be equal row by row, accuracy and ECE to the last bit, without a tolerance:
    a projection has no reason to change them. Reliabilities are in [0, 1], curves never decrease, no fitted variant
    reports a violation, and the optimum is proven.

    Args:
        runs: One for each calibrator, on the rows of `labels`.
        labels: True labels, shape (n,).
        seed0_accuracy: Accuracy of the decisions as measured when the base predictor was trained.
        ece_bins: Number of bins of the ECE.
        coordinates: Data set and protocol seed.

    Returns:
        Record of the gate.

    Raises:
        GateFailed: A check failed. The message names the coordinates, the calibrator, and the rows or numbers.
        ValueError: There is no run, shapes differ, or an array shares memory with its counterpart, so that a
            comparison could not fail.
    """
    if not runs:
        raise ValueError("there is no calibrator to check, so this gate could not fail")
    for run in runs:
        _require_comparable(run.after.calibrator, run.decision, run.after.decision)
        _require_comparable(run.after.calibrator, run.log_probabilities, run.after.log_probabilities)
    # One frame for all calibrators: Great Expectations takes longer to start than to check rows.
    rows = pl.concat([_rows_to_check(run) for run in runs])
    rows = rows.sort("largest_difference", descending=True, maintain_order=True)
    measurements = pl.DataFrame([measure_run(run, labels, seed0_accuracy, ece_bins) for run in runs])
    row_check = Check(
        name="unchanged rows",
        frame=rows,
        expectations=[
            make_expectation("equal", "decision_before", "decision_after", description="the decision is the fixed one"),
            *make_range_expectations("largest_difference", 0, 0, "no log-probability of a row differs"),
            *make_range_expectations("reliability", 0, 1, "reliability is a probability"),
        ],
        row_name_column="row",
        n_rows=sum(len(run.decision) for run in runs),
    )
    run_check = Check(
        name="unchanged run",
        frame=measurements,
        expectations=[
            make_expectation("equal", "accuracy_before", "accuracy_after", description="accuracy is unchanged"),
            make_expectation(
                "equal",
                "accuracy_seed0",
                "accuracy_after",
                description="accuracy equals the accuracy of the seed-0 decisions",
            ),
            make_expectation("equal", "ece_before", "ece_after", description="ECE is unchanged"),
            make_expectation("not null", "accuracy_seed0", description="the seed-0 accuracy is known"),
            *make_range_expectations("smallest_increment", 0, None, "curves never decrease"),
            *make_range_expectations("kkt", 0, MAX_KKT_RESIDUAL, "the optimum is proven"),
            make_expectation(
                "in set", "violations", value_set=[""], description="no fitted variant reports a violation"
            ),
        ],
        row_name_column="calibrator",
    )
    return run_gate("unchanged", coordinates, [row_check, run_check], REMEDY)


def measure_run(run: CheckedRun, labels: np.ndarray, seed0_accuracy: float, ece_bins: int) -> dict[str, object]:
    """Measure one calibrator before and after the projection.

    Args:
        run: Test rows of the calibrator.
        labels: True labels, shape (n,).
        seed0_accuracy: Accuracy of the seed-0 decisions.
        ece_bins: Number of bins of the ECE.

    Returns:
        One row of measurements.
    """
    return {
        "calibrator": run.after.calibrator,
        "accuracy_before": accuracy(run.decision, labels),
        "ece_before": _confidence_ece(run.log_probabilities, run.decision, labels, ece_bins),
        "accuracy_after": accuracy(run.after.decision, labels),
        "ece_after": _confidence_ece(run.after.log_probabilities, run.after.decision, labels, ece_bins),
        "accuracy_seed0": seed0_accuracy,
        # between neighbouring knots, over all labels
        "smallest_increment": float(np.diff(run.after.lattices["mrp"].values, axis=1).min()),
        "kkt": run.after.kkt_residual,
        "violations": "; ".join(run.after.violations),
    }


def _require_comparable(calibrator: str, before: np.ndarray, after: np.ndarray) -> None:
    """Raise ValueError if two arrays have different shapes, or share memory, so that they could never differ."""
    shapes = f"{calibrator}: {before.shape} before and {after.shape} after"
    if before.shape != after.shape:
        raise ValueError(f"{shapes} cannot be compared row by row")
    if np.shares_memory(before, after):
        raise ValueError(f"{shapes} share memory; comparing an array with itself checks nothing")


def _rows_to_check(run: CheckedRun) -> pl.DataFrame:
    """Return the rows that violate a requirement, and the rows that are closest to violating one."""
    before = run.log_probabilities
    after = run.after.log_probabilities
    with np.errstate(invalid="ignore"):  # two log-probabilities of minus infinity are equal, their difference is NaN
        difference = np.where(before == after, 0.0, np.abs(after - before)).max(axis=1)
    reliability = scipy.special.expit(run.after.reliability_logits["mrp"])
    is_omitted = (run.decision == run.after.decision) & (difference == 0) & (reliability >= 0) & (reliability <= 1)
    for closeness in (difference, reliability, -reliability):
        if len(closeness):
            is_omitted[closeness.argmax()] = False
    # The frame gets whole columns before it is filtered, so that a column of another length is an error.
    rows = pl.DataFrame(
        {
            "decision_before": run.decision,
            "decision_after": run.after.decision,
            "largest_difference": difference,
            "reliability": reliability,
            "row": np.arange(len(difference)),
        }
    )
    calibrator = pl.lit(run.after.calibrator)
    return rows.filter(~is_omitted).with_columns(row=pl.format("{} of {}", "row", calibrator), calibrator=calibrator)


def _confidence_ece(log_probabilities: np.ndarray, decision: np.ndarray, labels: np.ndarray, ece_bins: int) -> float:
    confidence = np.exp(log_probabilities[np.arange(len(labels)), decision])
    return ece(confidence, decision == labels, ece_bins)
