"""`map.json`: everything that applying a reliability map needs, readable, and no code.

The JSON Schema of version 1 is `map.schema.json` beside this file. What the schema cannot say is checked when a map is
read: knots rise from 0 to 1, no curve falls, every label has its part.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from tasks.maps.calibrator_forms import CalibratorForm, IdentityForm, SplineForm
from tasks.maps.parts import Part, Rows, Share
from tasks.maps.projection_forms import ProjectionForm
from tasks.protocol.params import ProtocolParams

FORMAT = "mrp-reliability-map"
VERSION = 1

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Calibration(Part):
    """A calibrator by its name on the command line, and as it was fitted."""

    name: str
    rows: Rows  # calibrator-fit rows
    fitted: CalibratorForm


class Projection(Part):
    """A variant by its name, and as it was fitted."""

    name: str
    rows: Rows  # projection-fit rows
    fitted: ProjectionForm


class Candidate(Part):
    """What `auto` chose from, on projection-selection rows."""

    variant: str
    nll_correct: float
    above_best: float  # nll_correct less that of the best
    standard_error: float  # of above_best


class Gain(Part):
    """What the projection buys over confidence with so many labelled rows for each of the two fits."""

    rows: Rows
    nll_correct: float  # with it less without, on projection-selection rows; negative is better
    nll_correct_standard_error: float
    aurc: float


class Choice(Part):
    """Why this variant."""

    asked: str  # auto, or the variant that was asked for
    reason: str
    candidates: tuple[Candidate, ...]
    gains: tuple[Gain, ...]


class Cell(Part):
    """Projection-selection rows of one decided label and one half of its reliabilities: what drift is held against."""

    label: Rows
    half: Literal["lower", "upper"]
    rows: Rows
    mean_reliability: Share
    mean_residual: Annotated[float, Field(ge=-1, le=1)]  # of correct - reliability
    variance: Annotated[float, Field(ge=0)]  # of the residual, for one row; rows of a group that err together raise it


class HeldOut(Part):
    """What the map said of projection-selection rows, on which it was not fitted."""

    rows: Rows
    label_spread: float | None  # of the calibrated confidence, in [0, 2]; null where undefined
    label_spread_shuffled: float | None  # the 95th percentile of what shuffled labels show
    quantiles: Annotated[tuple[Share, ...], Field(min_length=101, max_length=101)]  # of the reliability, 0% to 100%
    halves: tuple[Share, ...]  # for each label the reliability from which a row is in its upper half
    cells: tuple[Cell, ...]


class Source(Part):
    """What the map was fitted on; nothing of it is needed to apply the map."""

    file: str
    sha256: Sha256
    rows: Rows
    seed: Rows
    group: str | None  # the column whose groups were kept together
    protocol: ProtocolParams | None = None  # the paper's, if its parts were asked for in place of the tool's own
    at: str  # date and time
    versions: dict[str, str]


class MapDocument(Part):
    """A reliability map: calibrator, projection, label names and where they come from."""

    format: Literal["mrp-reliability-map"] = "mrp-reliability-map"
    version: Literal[1] = 1
    input: Literal["logits", "stated"]  # log-probabilities are logits; stated: a decision and a confidence, no more
    n_labels: Annotated[int, Field(ge=2, le=100_000)]
    label_names: tuple[str, ...] | None
    calibrator: Calibration
    projection: Projection
    choice: Choice
    held_out: HeldOut
    source: Source

    @property
    def shown_names(self) -> tuple[str, ...]:
        """A name for every label; `label 0` and so on, where names are not known."""
        return self.label_names or tuple(f"label {label}" for label in range(self.n_labels))

    @property
    def described(self) -> str:
        """What it is and what it was fitted on, for the last line of a report."""
        calibrated = f"{self.calibrator.name} on {self.calibrator.rows:,} rows"
        projected = f"{self.projection.name} on {self.projection.rows:,}"
        return (
            f"{calibrated}, {projected}, held out {self.held_out.rows:,}, of {self.source.rows:,} in {self.source.file}"
        )

    @model_validator(mode="after")
    def _sound(self) -> MapDocument:
        wrong = [*self.calibrator.fitted.contradictions(self.n_labels)]
        wrong += self.projection.fitted.contradictions(self.n_labels)
        names, fitted = self.shown_names, self.calibrator.fitted
        if len(set(names)) != self.n_labels or len(names) != self.n_labels:
            wrong.append(f"there are {self.n_labels} labels and {len(names)} names, of which {len(set(names))} differ")
        if self.input == "stated" and not isinstance(fitted, IdentityForm | SplineForm):
            wrong.append(f"a stated confidence has no logits for the calibrator {self.calibrator.name}")
        if len(self.held_out.halves) != self.n_labels or any(c.label >= self.n_labels for c in self.held_out.cells):
            wrong.append(f"held_out speaks of other labels than 0..{self.n_labels - 1}")
        if (np.diff(self.held_out.quantiles) < 0).any():
            wrong.append("held_out.quantiles fall")
        if wrong:
            raise ValueError("; ".join(wrong))
        return self
