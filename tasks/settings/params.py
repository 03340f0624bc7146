"""params.yaml as frozen values; the only reader of that file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from relmap.errors import InputError, describe_validation_errors
from relmap.settings import Count, MetricParams, ProjectionParams, ProtocolParams, Section, Settings, row_counts
from tasks.settings.dataset_params import DatasetParams

PARAMS_FILE = Path("params.yaml")

Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]*$")]


class SimplexParams(Section):
    """What MRC leaves open: the power where the decision is not on top."""

    off_top_alpha: Annotated[float, Field(ge=0)]


class RivalParams(Section):
    """Class-wise calibrators beside MRP, and the numbers of calibrator-fit rows at which all are compared."""

    calibrators: tuple[str, ...]
    rows: Annotated[tuple[Count, ...], Field(min_length=1)]

    def asked(self, there: int) -> tuple[int, ...]:
        """Return the numbers of rows to compare at, of `there` rows: up to the first that takes them all."""
        return row_counts(self.rows, there)


class Alternative(Section):
    """One choice made otherwise: names of these sections with other values, or logits of another base predictor."""

    protocol: Mapping[str, Any] = Field(default_factory=dict)
    base: Key | None = None
    projection: Mapping[str, Any] = Field(default_factory=dict)
    metrics: Mapping[str, Any] = Field(default_factory=dict)
    simplex: Mapping[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_choice(self) -> "Alternative":
        if sum(bool(value) for _, value in self) != 1:
            raise ValueError("an alternative changes one of protocol, base, projection, metrics and simplex")
        return self


class SensitivityParams(Section):
    """What is also run to see what a choice changes; none of it enters the paper's tables."""

    calibrators: tuple[str, ...]
    alternatives: Mapping[str, Alternative]


class TrainParams(Section):
    """The base predictors: those of the tables, and those that show what a choice of theirs is worth."""

    seed: int  # of the base predictor of one's own sets; the paper's have theirs
    members: Count  # predictors of a run, each fed the rows in an order of its own
    runs: Count
    alternatives: tuple[Literal["unweighted", "multinomial", "member_1", "member_2"], ...]


class DaskTls(Section):
    """Certificates for a Dask scheduler at a `tls://` address; paths of PEM files on this machine."""

    ca_file: str
    cert_file: str
    key_file: str


class DaskParams(Section):
    """Workers of the engine `dask`: those of a running scheduler, or processes that the run starts itself.

    Whoever can talk to a Dask scheduler or worker can run code as its owner. So a scheduler is asked over TLS with
    certificates, unless `allow_unencrypted` says that its network is private.
    """

    address: Annotated[str, Field(pattern=r"^(tcp|tls)://[^/\s]+:[0-9]+$")] | None  # of a running scheduler
    workers: Count  # processes, where there is no address
    tls: DaskTls | None = None  # certificates for a tls:// address
    allow_unencrypted: bool = False  # accept a tcp:// address, at which every user of the network can run code

    @model_validator(mode="after")
    def _scheduler_is_authenticated(self) -> "DaskParams":
        address = self.address or ""
        if address.startswith("tcp://") and not self.allow_unencrypted:
            raise ValueError(
                f"{address} is not encrypted: everyone who can reach it can run code as the owner of its workers; "
                "use tls:// with certificates under dask.tls, or set dask.allow_unencrypted: true on a private network"
            )
        if address.startswith("tls://") != (self.tls is not None):
            raise ValueError("a tls:// address and the certificates under dask.tls go together; give both or neither")
        return self


class ScheduleParams(Section):
    """When `python -m flows.serve` runs what it serves; null is never by itself."""

    refresh: Annotated[str, Field(pattern=r"^\S+(\s+\S+){4}$")] | None  # cron: minute hour day month weekday


class WatchedMap(Section):
    """A reliability map in use, and labelled rows that each refresh holds it against."""

    map: str
    predictions: str
    group: str | None = None


class Params(Section):
    """The whole of params.yaml."""

    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
    calibrators: Annotated[tuple[str, ...], Field(min_length=1)]
    calibrator_settings: Mapping[Key, Mapping[str, Mapping[str, int]]]  # data set -> calibrator -> setting
    lanes: Count  # data sets that `flows.refresh` brings up to date at the same time
    stage_minutes: Annotated[float, Field(ge=0)] = 0  # longest time of one stage; 0 is no limit
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

    @field_validator("projection", "metrics", mode="after")
    @classmethod
    def _what_has_defaults_is_complete(cls, section: Section) -> Section:
        if missing := sorted(type(section).model_fields.keys() - section.model_fields_set):
            raise ValueError(f"{', '.join(missing)} is missing")
        return section

    @model_validator(mode="after")
    def _consistent(self) -> "Params":
        for what, given in (("calibrator", self.calibrators + self.rivals.calibrators), ("seed", self.seeds)):
            if twice := sorted({str(name) for name in given if given.count(name) > 1}):
                raise ValueError(f"{what} {', '.join(twice)} is given more than once")
        for name in self.sensitivity.alternatives:
            self.with_alternative(name)
        return self

    def with_alternative(self, name: str) -> "Params":
        """Return these parameters under the alternative `name` of `sensitivity`; another base changes none of them."""
        other = self.sensitivity.alternatives[name]
        changed = {part: (getattr(self, part), values) for part, values in other if part != "base"}
        update = {part: type(own).model_validate(own.model_dump() | dict(of)) for part, (own, of) in changed.items()}
        return self.model_copy(update=update)

    @property
    def of_library(self) -> Settings:
        """Return the settings that the library knows too."""
        return Settings(
            protocol=self.protocol,
            projection=self.projection,
            metrics=self.metrics,
            learning_curve_rows=self.rivals.rows,
        )

    def dataset(self, name: str) -> DatasetParams:
        """Return the entry of `name`; InputError lists the known names where there is none."""
        if name not in self.datasets:
            raise InputError(f"no data set {name!r} in {PARAMS_FILE}; it has {', '.join(self.datasets)}")
        return self.datasets[name]


def load_params(path: Path = PARAMS_FILE) -> Params:
    """Read and check params.yaml; InputError names each place that is wrong and what stood there."""
    try:
        return Params.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise InputError(f"{path} is not there; run from the project's root folder") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not valid YAML: {error}") from None
    except ValidationError as error:
        places = describe_validation_errors(error, str(path))
        raise InputError(f"{path} has {len(places)} mistake(s):\n  " + "\n  ".join(places)) from None
