"""Typed settings of the library, with their defaults."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

PartialShare = Annotated[float, Field(gt=0, lt=1)]


class Section(BaseModel):
    """A group of settings. It is immutable, and unknown names are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid")


PositiveCount = Annotated[int, Field(ge=1)]


class ProtocolParams(Section):
    """Split of the validation rows, as in the paper (section 4.3) and in the code of its authors.

    Attributes:
        parts: Shares of the calibrator-fit, projection-fit and projection-selection rows.
        projection_cap: Maximum number of projection-fit rows, and of projection-selection rows.
        temperature_rows: Rows on which TS is fitted.
        split: Whether rows or groups are split.
    """

    parts: tuple[PartialShare, PartialShare, PartialShare]
    projection_cap: PositiveCount
    temperature_rows: Literal["validation", "calibrator_fit"]
    split: Literal["row", "group"]

    @model_validator(mode="after")
    def _check_sum_of_parts(self) -> "ProtocolParams":
        if abs(sum(self.parts) - 1) > 1e-9:
            raise ValueError(f"the parts sum to {sum(self.parts):g}, not to 1")
        return self


class ProjectionParams(Section):
    """Settings of the lattice; the defaults are those of the paper (sections 3.4 and 4.3).

    Attributes:
        knots: Number of uniform knots J on [0, 1].
        smoothness: Weight rho of the squared second differences.
        learning_rate: Learning rate of Adam.
        epochs: Number of epochs of Adam.
        minimum_rows: Labels with fewer projection-fit rows use the shared curve.
    """

    knots: Annotated[int, Field(ge=3)] = 8
    smoothness: Annotated[float, Field(ge=0)] = 1e-4
    learning_rate: Annotated[float, Field(gt=0)] = 0.03
    epochs: PositiveCount = 400
    minimum_rows: Annotated[int, Field(ge=0)] = 0


class MetricParams(Section):
    """Settings of the metrics.

    Attributes:
        ece_bins: Number of bins of calibration errors.
        ties: Treatment of tied rows by AUPR-Error: the expectation over their orders, or one threshold that
            all of them reach together.
        smallest_probability: Class probabilities are clipped to this number and 1 minus it, in metrics of
            probabilities.
        smallest_reliability: Lower bound of a reliability, and of 1 minus it, in the correctness log loss.
        spread_groups: Number of confidence groups of the label spread.
        spread_minimum_cell: Minimum number of rows of a cell; the label spread omits smaller cells.
        spread_permutations: Number of shuffles of the label spread.
        resamples: Number of bootstrap resamples; with fewer than 300, no change could be significant after correction
            for six data sets.
    """

    ece_bins: PositiveCount = 15
    ties: Literal["expected", "threshold"] = "expected"
    smallest_probability: Annotated[float, Field(ge=0, lt=0.5)] = 1e-12
    smallest_reliability: Annotated[float, Field(gt=0, lt=0.5)] = 1e-6
    spread_groups: PositiveCount = 10
    spread_minimum_cell: PositiveCount = 30
    spread_permutations: PositiveCount = 200
    resamples: Annotated[int, Field(ge=300)] = 1000


METRIC_DEFAULTS = MetricParams()


class Settings(Section):
    """Settings of a fit and of its evaluation.

    Attributes:
        protocol: Split of the rows.
        projection: Lattice.
        metrics: Metrics.
    """

    protocol: ProtocolParams = ProtocolParams(
        parts=(0.5, 0.25, 0.25), projection_cap=8000, temperature_rows="validation", split="row"
    )
    projection: ProjectionParams = ProjectionParams(minimum_rows=20)
    metrics: MetricParams = METRIC_DEFAULTS


DEFAULTS = Settings()
