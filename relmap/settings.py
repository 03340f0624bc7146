"""Typed settings of the library, with their defaults."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Share = Annotated[float, Field(gt=0, lt=1)]


class Section(BaseModel):
    """A group of settings: frozen, and unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Count = Annotated[int, Field(ge=1)]


class ProtocolParams(Section):
    """Which validation rows each fit sees (paper, section 4.3, as its authors ran it)."""

    parts: tuple[Share, Share, Share]  # calibrator-fit, projection-fit, projection-selection
    projection_cap: Count  # of each of the last two
    temperature_rows: Literal["validation", "calibrator_fit"]
    split: Literal["row", "group"]

    @model_validator(mode="after")
    def _parts_are_a_whole(self) -> "ProtocolParams":
        if abs(sum(self.parts) - 1) > 1e-9:
            raise ValueError(f"the parts sum to {sum(self.parts):g}, not to 1")
        return self


class ProjectionParams(Section):
    """The lattice, by default that of the paper (sections 3.4 and 4.3); params.yaml itself has to name each setting."""

    knots: Annotated[int, Field(ge=3)] = 8  # J, uniform on [0, 1]
    smoothness: Annotated[float, Field(ge=0)] = 1e-4  # rho, the weight of the squared second differences
    learning_rate: Annotated[float, Field(gt=0)] = 0.03
    epochs: Count = 400
    minimum_rows: Annotated[int, Field(ge=0)] = 0  # a label with fewer projection-fit rows takes the shared curve


class MetricParams(Section):
    """What the metrics leave open; the defaults are for whoever has no params.yaml, which itself has to name each."""

    ece_bins: Count = 15
    ties: Literal["expected", "threshold"] = "expected"
    smallest_probability: Annotated[float, Field(ge=0, lt=0.5)] = 1e-12
    smallest_reliability: Annotated[float, Field(gt=0, lt=0.5)] = 1e-6
    spread_groups: Count = 10
    spread_minimum_cell: Count = 30
    spread_permutations: Count = 200
    # a change that is smaller is reported as no relevant difference; in nats for the log loss, and for the metrics of
    # ranking in their unit
    smallest_relevant_change: Annotated[float, Field(ge=1e-4)] = 1e-3
    resamples: Annotated[int, Field(ge=300)] = 1000  # fewer could never tell six data sets apart from chance


METRIC_DEFAULTS = MetricParams()
LEARNING_CURVE = (100, 300, 1000, 3000, 8000)  # numbers of labelled rows


class Settings(Section):
    """Settings of a fit and of its evaluation. The pipeline states its own values in params.yaml."""

    protocol: ProtocolParams = ProtocolParams(
        parts=(0.5, 0.25, 0.25), projection_cap=8000, temperature_rows="validation", split="row"
    )
    projection: ProjectionParams = ProjectionParams(minimum_rows=20)
    metrics: MetricParams = METRIC_DEFAULTS
    learning_curve_rows: tuple[Count, ...] = LEARNING_CURVE


DEFAULTS = Settings()


def row_counts(steps: Sequence[int], available: int) -> tuple[int, ...]:
    """Return the numbers of rows to fit on, of `available` rows: up to the first step that takes all of them."""
    steps = sorted(steps)
    return tuple(steps[: bisect_left(steps, available) + 1])
