"""The gate for what goes out of one protocol seed: calibration and projection changed no decision and no probability.

A projection adds a reliability to fixed decisions; accuracy, ECE and the probabilities of the calibrator stay as they
are (paper, section 4.4), and full-coverage accuracy is that of the seed-0 decisions in every run (section 4.3).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import scipy

from relmap.metrics.probability import accuracy, ece
from tasks.expectations.check import Check, expect, expect_numbers, pass_gate
from tasks.records.results import ProjectedDecisions

LARGEST_RESIDUAL = 1e-8  # of the Karush-Kuhn-Tucker conditions, at which a minimum counts as found
REMEDY = "Trust no result of this run: a step between the base predictor and here changed what it had to leave alone."


class Outgoing(NamedTuple):
    """The test rows of one calibrator: what must hold, and what the projection hands on (`after`).

    What must hold is computed anew by the caller, from the saved logits and the frozen calibrator, never taken from
    `after`.
    """

    decision: np.ndarray  # (n,) int
    log_probabilities: np.ndarray  # (n, K)
    after: ProjectedDecisions


def check_unchanged(
    outgoing: Sequence[Outgoing],
    *,
    labels: np.ndarray,
    seed0_accuracy: float,
    ece_bins: int,
    coordinates: Mapping[str, object],
) -> dict[str, Any]:
    """Check what one protocol seed hands on; return the records of its checks: the rows of all calibrators, the run.

    Decisions and log-probabilities are equal row by row, accuracy and ECE to the last bit, with no tolerance: a
    projection has no reason to touch them. Reliabilities are in [0, 1] (read from logits, so only NaN can leave it),
    curves never fall, no fitted variant finds itself wrong, and the optimum is proven.

    Args:
        outgoing: one for each calibrator; their rows are those of `labels`.
        labels: `(n,)` true labels.
        seed0_accuracy: accuracy of the decisions as the base predictor's training saw it.
        coordinates: the data set and the protocol seed.

    Raises:
        GateFailed: names the coordinates, the calibrator, and the worst rows or the numbers that differ.
        ValueError: an array is the same memory as it was before or differs in shape, or there is nothing to check:
            comparing would say nothing. A copy of the same array cannot be told from an array computed anew.
    """
    if not outgoing:
        raise ValueError("there is no calibrator to check; a gate that nothing passes through says nothing")
    for made in outgoing:
        for what in ("decision", "log_probabilities"):
            before, after = (getattr(of, what) for of in (made, made.after))
            shapes = f"{made.after.calibrator}: {before.shape} before and {after.shape} after"
            if before.shape != after.shape:
                raise ValueError(f"{shapes} cannot be compared row by row")
            if np.shares_memory(before, after):
                raise ValueError(f"{shapes} share memory; a comparison of an array with itself is no gate")
    # all calibrators in one frame: Great Expectations takes longer to start than to look at rows
    rows = pl.concat([_rows(made) for made in outgoing]).sort(
        "largest_difference", descending=True, maintain_order=True
    )
    runs = pl.DataFrame([measured_run(made, labels, seed0_accuracy, ece_bins) for made in outgoing])
    of_rows = [
        expect("equal", "decision_before", "decision_after", description="the decision is the fixed one"),
        *expect_numbers("largest_difference", 0, 0, "no log-probability of a row differs"),
        *expect_numbers("reliability", 0, 1, "reliability is a probability"),
    ]
    of_runs = [
        expect("equal", "accuracy_before", "accuracy_after", description="accuracy is unchanged"),
        expect("equal", "accuracy_seed0", "accuracy_after", description="accuracy is that of the seed-0 decisions"),
        expect("equal", "ece_before", "ece_after", description="ECE is unchanged"),
        expect("not null", "accuracy_seed0", description="the seed-0 accuracy is known"),
        *expect_numbers("smallest_increment", 0, None, "curves never fall"),
        *expect_numbers("kkt", 0, LARGEST_RESIDUAL, "the optimum is proven"),
        expect("in set", "violations", value_set=[""], description="no fitted variant names anything as wrong"),
    ]
    count = sum(len(made.decision) for made in outgoing)
    checks = Check("unchanged rows", rows, of_rows, "row", count), Check("unchanged run", runs, of_runs, "calibrator")
    return pass_gate("unchanged", coordinates, checks, REMEDY)


def _rows(rows: Outgoing) -> pl.DataFrame:
    """A row for each decision that violates anything, and for those that come closest to it."""
    before, after = rows.log_probabilities, rows.after.log_probabilities
    with np.errstate(invalid="ignore"):  # two log-probabilities of minus infinity are equal, their difference is NaN
        difference = np.where(before == after, 0.0, np.abs(after - before)).max(axis=1)
    reliability = scipy.special.expit(rows.after.reliability_logits["mrp"])
    sound = (rows.decision == rows.after.decision) & (difference == 0) & (reliability >= 0) & (reliability <= 1)
    sound[[of.argmax() for of in (difference, reliability, -reliability) if len(of)]] = False
    columns = {  # whole, so that one of another length is seen
        "decision_before": rows.decision,
        "decision_after": rows.after.decision,
        "largest_difference": difference,
        "reliability": reliability,
        "row": np.arange(len(difference)),
    }
    calibrator, kept = pl.lit(rows.after.calibrator), pl.DataFrame(columns).filter(~sound)
    return kept.with_columns(row=pl.format("{} of {}", "row", calibrator), calibrator=calibrator)


def measured_run(rows: Outgoing, labels: np.ndarray, seed0_accuracy: float, ece_bins: int) -> dict[str, object]:
    """The numbers of one calibrator, before and after, each from its own arrays."""
    numbers: dict[str, object] = {"calibrator": rows.after.calibrator}
    for side, of in (("before", rows), ("after", rows.after)):
        confidence = np.exp(of.log_probabilities[np.arange(len(labels)), of.decision])
        numbers[f"accuracy_{side}"] = accuracy(of.decision, labels)
        numbers[f"ece_{side}"] = ece(confidence, of.decision == labels, ece_bins)
    return numbers | {
        "accuracy_seed0": seed0_accuracy,
        # between neighbouring knots, over all labels
        "smallest_increment": float(np.diff(rows.after.lattices["mrp"].values, axis=1).min()),
        "kkt": rows.after.kkt,
        "violations": "; ".join(rows.after.violations),
    }
