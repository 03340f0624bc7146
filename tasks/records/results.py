"""What the tasks of one run hand to one another."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from relmap.decisions import Calibrator

AVERAGE = "average"  # over the calibrators of a data set, or over the data sets: what such results are filed under
SIMPLEX = "mrc"  # MRP's reliability as the top of a probability vector: what its results are filed under
FAILED = "failed"  # the source of a data set that did not finish
_NUMBER = {"variant": pl.String(), "metric": pl.String(), "value": pl.Float64()}
_ROWS = ("rows", "calibrator_fit_rows", "projection_fit_rows")  # asked for, and there
METRICS = pl.Schema({"calibrator": pl.String(), "seed": pl.Int64(), **_NUMBER})
RIVALS = pl.Schema({**dict.fromkeys(("seed", *_ROWS), pl.Int64()), "calibrator": pl.String(), **_NUMBER})
SENSITIVITY = pl.Schema({"calibrator": pl.String(), "seed": pl.Int64(), "option": pl.String(), **_NUMBER})


def display_name(name: str, source: str) -> str:
    """Return `wands (simulated)` for a twin, `wands (failed)` for a hole, the plain key for everything else."""
    return f"{name} ({source})" if "simulated" in source or source == FAILED else name


class Calibrated(NamedTuple):
    """One calibrator of one protocol seed; `value` is the frozen thing that `fit_<name>` returned."""

    calibrator: str
    seed: int
    rows: int  # that it was fitted on
    value: Calibrator
    few: Mapping[int, Calibrator]  # number of rows -> the same, fitted on so many of the first rows at most


@dataclass(frozen=True)
class ProjectedDecisions:
    """The test rows under one calibrator, with the reliability of every variant; all arrays share the rows."""

    calibrator: str
    decision: np.ndarray  # (n,) as fixed by the base predictor
    log_probabilities: np.ndarray  # (n, K) of the calibrator
    reliability_logits: dict[str, np.ndarray]  # variant -> (n,) logit of the probability that the decision is correct
    lattices: dict[str, Any]  # variant -> its fitted curves, for those that are lattices
    simplex: Any  # MRP's reliability put back into the class probabilities
    adam_above_optimum: float  # objective of MRP as published less the lowest one, on the projection-fit rows
    kkt: float  # the largest residual that proves the lowest one
    violations: tuple[str, ...]  # what the fitted variants name as wrong with themselves


@dataclass(frozen=True)
class Projected:
    """Everything that one protocol seed projected."""

    seed: int
    rows: list[ProjectedDecisions]
    label_rows: tuple[int, ...]  # projection-fit rows behind each label
    fallback: tuple[str, ...]  # what each label stands on: none (its own curve), shared or identity
    gates: list[dict[str, Any]]  # the records of the gates that it has passed

    def fallbacks(self, labels: tuple[str, ...]) -> list[str]:
        """A sentence for each label that has too few projection-fit rows for a curve of its own."""
        takes = {"shared": "takes the shared curve", "identity": "keeps its confidence"}
        return [
            f"seed {self.seed}: {label} with {rows} projection-fit rows {takes[kind]}"
            for label, rows, kind in zip(labels, self.label_rows, self.fallback, strict=True)
            if kind in takes
        ]
