"""Results that the tasks of one run pass to each other, and the schemas of the results that they write."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from relmap.decisions import Calibrator

if TYPE_CHECKING:
    from relmap.projection.mrp import Curves
    from relmap.projection.simplex import SimplexProjection

AVERAGE = "average"  # value of `calibrator` or `dataset` in rows that average over calibrators or data sets
SIMPLEX = "mrc"  # value of `variant` in rows about the probability vectors of MRC
FAILED = "failed"  # value of `source` of a data set that did not finish

_MEASUREMENT_COLUMNS = {"variant": pl.String(), "metric": pl.String(), "value": pl.Float64()}
METRICS_SCHEMA = pl.Schema({"calibrator": pl.String(), "seed": pl.Int64(), **_MEASUREMENT_COLUMNS})
# comparison of MRP with class-wise calibrators, by the number of labelled rows
RIVALS_SCHEMA = pl.Schema(
    {
        "seed": pl.Int64(),
        "rows": pl.Int64(),  # requested number of rows; the next two are the available numbers
        "calibrator_fit_rows": pl.Int64(),
        "projection_fit_rows": pl.Int64(),
        "calibrator": pl.String(),
        **_MEASUREMENT_COLUMNS,
    }
)
SENSITIVITY_SCHEMA = pl.Schema(
    {"calibrator": pl.String(), "seed": pl.Int64(), "option": pl.String(), **_MEASUREMENT_COLUMNS}
)
FALLBACK_PREDICATES = {"shared": "takes the shared curve", "identity": "keeps its confidence"}


def display_name(name: str, source: str) -> str:
    """Return the name under which reports show a data set.

    Args:
        name: Key of the data set.
        source: Its source.

    Returns:
        The key, followed by the source for simulated and failed data sets, such as "wands (simulated)".
    """
    return f"{name} ({source})" if "simulated" in source or source == FAILED else name


class CalibratorFit(NamedTuple):
    """A calibrator fitted for one protocol seed.

    Attributes:
        calibrator: Key of the calibrator.
        seed: Protocol seed.
        n_rows: Number of rows that `model` was fitted on.
        model: Calibrator fitted on all rows.
        models_by_row_count: Number n -> calibrator fitted on the first n rows, or on all rows if there are fewer.
    """

    calibrator: str
    seed: int
    n_rows: int
    model: Calibrator
    models_by_row_count: Mapping[int, Calibrator]


@dataclass(frozen=True)
class ProjectedDecisions:
    """Test rows of one calibrator with the reliability of every variant.

    Attributes:
        calibrator: Key of the calibrator.
        decision: Decisions of the base predictor, shape (n,), int.
        log_probabilities: Calibrated log-probabilities, not clipped, shape (n, K).
        reliability_logits: Variant -> clipped logit of the probability that the decision is correct, shape (n,).
        lattices: Variant -> fitted curves, for variants that are curves.
        simplex: Probability vectors of MRC.
        objective_excess: Objective of MRP that the published optimizer (Adam) reaches on the projection-fit rows, minus
            the minimum of this objective.
        kkt_residual: Largest residual of the optimality conditions at the minimum.
        violations: Violations that the fitted variants report.
    """

    calibrator: str
    decision: np.ndarray
    log_probabilities: np.ndarray
    reliability_logits: dict[str, np.ndarray]
    lattices: dict[str, "Curves"]
    simplex: "SimplexProjection"
    objective_excess: float
    kkt_residual: float
    violations: tuple[str, ...]


@dataclass(frozen=True)
class SeedResults:
    """Results of one protocol seed.

    Attributes:
        seed: Protocol seed.
        projections: Test rows of each calibrator.
        rows_per_label: Number of projection-fit rows of each label.
        fallbacks: Model of each label: "none" for its own curve, "shared" or "identity".
        gate_records: Records of the gates that the results have passed.
    """

    seed: int
    projections: list[ProjectedDecisions]
    rows_per_label: tuple[int, ...]
    fallbacks: tuple[str, ...]
    gate_records: list[dict[str, Any]]

    def describe_fallbacks(self, labels: tuple[str, ...]) -> list[str]:
        """Describe the labels that have too few projection-fit rows for a curve of their own.

        Args:
            labels: Names of the K labels.

        Returns:
            One sentence for each such label.
        """
        sentences = []
        for label, n_rows, fallback in zip(labels, self.rows_per_label, self.fallbacks, strict=True):
            if fallback in FALLBACK_PREDICATES:
                predicate = FALLBACK_PREDICATES[fallback]
                sentences.append(f"seed {self.seed}: {label} with {n_rows} projection-fit rows {predicate}")
        return sentences
