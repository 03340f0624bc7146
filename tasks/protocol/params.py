"""params.yaml as frozen values; the only reader of that file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tasks.protocol.errors import BadInput, mistakes

PARAMS_FILE = Path("params.yaml")

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]
Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]*$")]


class _Frozen(BaseModel):
    """A section of params.yaml: never changed after reading, and no name in it goes unnoticed."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ProtocolParams(_Frozen):
    """How many rows of each validation third are used."""

    calibrator_fit_cap: Count
    projection_cap: Count


class ProjectionParams(_Frozen):
    """The lattice of the paper (sections 3.4 and 4.3)."""

    knots: Annotated[int, Field(ge=3)]
    knots_at: Literal["uniform", "quantiles"]
    smoothness: Annotated[float, Field(ge=0)]
    learning_rate: Annotated[float, Field(gt=0)]
    epochs: Count
    selection: Literal["last", "best"]
    minimum_rows: Count


class MetricParams(_Frozen):
    """What the metrics leave open."""

    ece_bins: Count
    ece_binning: Literal["width", "mass"]
    ties: Literal["expected", "threshold"]
    smallest_probability: Annotated[float, Field(ge=0, lt=0.5)]
    smallest_reliability: Annotated[float, Field(gt=0, lt=0.5)]
    spread_groups: Count
    spread_minimum_cell: Count
    spread_permutations: Count
    spread_reading: Literal["mean", "group"]
    resamples: Annotated[int, Field(ge=300)]  # fewer could never tell six data sets apart from chance


class SimplexParams(_Frozen):
    """What MRC leaves open: the power where the decision is not on top."""

    off_top_alpha: Annotated[float, Field(ge=0)]


class RivalParams(_Frozen):
    """Class-wise calibrators beside MRP, and the numbers of calibrator-fit rows at which all are compared."""

    calibrators: tuple[str, ...]
    rows: Annotated[tuple[Count, ...], Field(min_length=1)]

    def asked(self, there: int) -> tuple[int, ...]:
        """The numbers of rows to compare at, where `there` rows are: up to the first that asks for them all."""
        steps = sorted(self.rows)
        return tuple(step for place, step in enumerate(steps) if place == 0 or steps[place - 1] < there)


class Alternative(_Frozen):
    """One choice made otherwise: names of these sections with other values."""

    projection: Mapping[str, Any] = Field(default_factory=dict)
    metrics: Mapping[str, Any] = Field(default_factory=dict)
    simplex: Mapping[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_choice(self) -> Alternative:
        if sum(map(bool, (self.projection, self.metrics, self.simplex))) != 1:
            raise ValueError("an alternative changes one of projection, metrics and simplex")
        return self


class SensitivityParams(_Frozen):
    """What is also run to see what a choice changes; none of it enters the paper's tables."""

    calibrators: tuple[str, ...]
    alternatives: Mapping[str, Alternative]


class TrainParams(_Frozen):
    """Settings of the base predictors; each predictor checks its own names."""

    seed: int
    linear_text: Mapping[str, Any]
    linear_features: Mapping[str, Any]
    boosted: Mapping[str, Any]

    def settings(self, own: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """The section of each kind of predictor, with a data set's own settings over it."""
        sections = {"linear_text": self.linear_text, "linear_features": self.linear_features, "boosted": self.boosted}
        return {kind: {**section, **own} for kind, section in sections.items()}


class SplitParams(_Frozen):
    """Shares of the rows (or groups) whose split the source leaves open; what is left over is train."""

    by: Literal["row", "group"]
    validation: Share | None = None
    test: Share | None = None

    @property
    def shares(self) -> dict[str, float]:
        """Splits to draw, with their shares; they sum to one."""
        drawn = {name: share for name, share in (("validation", self.validation), ("test", self.test)) if share}
        return {"train": 1 - sum(drawn.values()), **drawn}


class Preset(_Frozen):
    """How the judged pairs of a set are split, weighted and read."""

    split: SplitParams
    class_weight: Literal["none", "balanced"] = "none"
    predictor: Literal["linear", "boosted"] = "linear"
    settings: Mapping[str, Any] = Field(default_factory=dict)  # of the predictor, in place of those under `train`
    options: Mapping[str, Any] = Field(default_factory=dict)  # the reader's own


class DatasetParams(_Frozen):
    """One data set of a run: where it comes from, and how it is split, weighted and read.

    The latter stands in the entry itself, or, for a set with several accepted ways, in the preset that it names.
    """

    reader: str  # the file in tasks/datasets that reads it; `files` or `hub` for your own
    source: Literal["simulated", "official", "hub", "files"]
    path: str  # what on this machine the raw files are made from: the code of a twin or of a reader, or one's own files
    rows: Annotated[int, Field(ge=100)] | None = None
    residual: Annotated[float, Field(ge=0)] | None = None
    seed: int = 0  # of the twin and of drawn splits
    calibrators: tuple[str, ...] | None = None  # of this set, in place of those that all have
    preset: str | None = None
    presets: Mapping[str, Preset] = Field(default_factory=dict)
    split: SplitParams | None = None
    class_weight: Literal["none", "balanced"] = "none"
    predictor: Literal["linear", "boosted"] = "linear"
    settings: Mapping[str, Any] = Field(default_factory=dict)
    options: Mapping[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> DatasetParams:
        if self.preset is not None and self.preset not in self.presets:
            raise ValueError(f"preset {self.preset!r} is not among its presets: {', '.join(self.presets) or 'none'}")
        if self.preset is None and self.split is None:
            raise ValueError("say how it is split: give `split`, or `preset` and `presets`")
        if self.source == "simulated" and (self.rows is None or self.residual is None):
            raise ValueError("a simulated set needs `rows` and `residual`")
        for own in ("files", "hub"):
            if (self.source == own) != (self.reader == own):
                raise ValueError(f"source `{own}` and reader `{own}` go together")
        return self

    @property
    def chosen(self) -> Preset:
        """The split, weights, predictor and reader's options in force."""
        if self.preset is not None:
            return self.presets[self.preset]
        return Preset(**{name: getattr(self, name) for name in Preset.model_fields})


class DaskParams(_Frozen):
    """Whose workers the engine `dask` takes: those of a scheduler, or processes of the run's own."""

    address: Annotated[str, Field(pattern=r"^(tcp|tls)://[^/\s]+:[0-9]+$")] | None  # of a running scheduler
    workers: Count  # processes, where there is no address


class ScheduleParams(_Frozen):
    """When `python -m flows.serve` runs what it serves; null is never by itself."""

    refresh: Annotated[str, Field(pattern=r"^\S+(\s+\S+){4}$")] | None  # cron: minute hour day month weekday


class WatchedMap(_Frozen):
    """A reliability map in use, and labelled rows that each refresh holds it against."""

    map: str
    predictions: str
    group: str | None = None


class Params(_Frozen):
    """The whole of params.yaml."""

    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
    calibrators: Annotated[tuple[str, ...], Field(min_length=1)]
    lanes: Count  # data sets that `flows.refresh` brings up to date at the same time
    engine: Literal["thread", "dask"]  # what runs the tasks of a flow
    dask: DaskParams
    protocol: ProtocolParams
    projection: ProjectionParams
    simplex: SimplexParams
    metrics: MetricParams
    rivals: RivalParams
    sensitivity: SensitivityParams
    train: TrainParams
    schedule: ScheduleParams
    watched: Mapping[Key, WatchedMap]
    datasets: Annotated[Mapping[Key, DatasetParams], Field(min_length=1)]

    @model_validator(mode="after")
    def _no_name_is_given_twice(self) -> Params:
        names = [*self.calibrators, *self.rivals.calibrators, *self.sensitivity.calibrators]
        for what, given in (("calibrator", names), ("seed", self.seeds)):
            twice = sorted({str(one) for one in given if list(given).count(one) > 1})
            if twice:
                raise ValueError(f"{what} {', '.join(twice)} is given more than once")
        return self

    @model_validator(mode="after")
    def _alternatives_are_known(self) -> Params:
        for name in self.sensitivity.alternatives:
            self.with_alternative(name)
        return self

    def with_alternative(self, name: str) -> tuple[ProjectionParams, SimplexParams, MetricParams]:
        """The three sections under the alternative `name` of `sensitivity`."""
        other = self.sensitivity.alternatives[name]
        return (
            ProjectionParams(**{**self.projection.model_dump(), **other.projection}),
            SimplexParams(**{**self.simplex.model_dump(), **other.simplex}),
            MetricParams(**{**self.metrics.model_dump(), **other.metrics}),
        )

    def dataset(self, name: str) -> DatasetParams:
        """The entry of `name`; BadInput lists the known names where there is none."""
        if name not in self.datasets:
            raise BadInput(f"no data set {name!r} in {PARAMS_FILE}; it has {', '.join(self.datasets)}")
        return self.datasets[name]


def load_params(path: Path = PARAMS_FILE) -> Params:
    """Read and check params.yaml; BadInput names each place that is wrong and what stood there."""
    try:
        return Params.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise BadInput(f"{path} is not there; run from the project's root folder") from None
    except yaml.YAMLError as error:
        raise BadInput(f"{path} is not valid YAML: {error}") from None
    except ValidationError as error:
        places = mistakes(error, str(path))
        raise BadInput(f"{path} has {len(places)} mistake(s):\n  " + "\n  ".join(places)) from None
