"""Typed contents of params.yaml, and the function that reads and checks them."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from relmap.errors import InputError, describe_validation_errors
from relmap.settings import MetricParams, PositiveCount, ProjectionParams, ProtocolParams, Section
from tasks.settings.dataset_params import DatasetParams

PARAMS_FILE = Path("params.yaml")

Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]*$")]


class PipelineProtocolParams(ProtocolParams):
    """Protocol of the paper's tables: the split of the validation rows, and the bounds of all probabilities.

    Attributes:
        clip: Calibrated probabilities and reliabilities are clipped to [clip, 1 - clip] before anything is fitted,
            ranked or projected; 0 does not clip. Maps of users' own predictions are never clipped.
    """

    clip: Annotated[float, Field(ge=0, lt=0.5)]


class SimplexParams(Section):
    """Setting of MRC: the exponent alpha for rows whose decision is not the most probable label."""

    off_top_alpha: Annotated[float, Field(ge=0)]


class RivalParams(Section):
    """Class-wise calibrators to compare with MRP, and the numbers of calibrator-fit rows for the comparison."""

    calibrators: tuple[str, ...]
    rows: Annotated[tuple[PositiveCount, ...], Field(min_length=1)]

    def row_counts(self, available: int) -> tuple[int, ...]:
        """Return the numbers of rows of the comparison, up to the first one that includes all available rows."""
        steps = sorted(self.rows)
        return tuple(steps[: bisect_left(steps, available) + 1])


class Alternative(Section):
    """One changed choice: other values in one section of params.yaml, or the logits of another base predictor."""

    protocol: Mapping[str, Any] = Field(default_factory=dict)
    base: Key | None = None
    projection: Mapping[str, Any] = Field(default_factory=dict)
    metrics: Mapping[str, Any] = Field(default_factory=dict)
    simplex: Mapping[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _require_one_change(self) -> "Alternative":
        n_changes = sum(bool(value) for _, value in self)
        if n_changes != 1:
            raise ValueError(
                "an alternative must change exactly one of protocol, base, projection, metrics and simplex"
            )
        return self


class SensitivityParams(Section):
    """Alternatives that are run for the sensitivity tables only."""

    calibrators: tuple[str, ...]
    alternatives: Mapping[str, Alternative]


class TrainParams(Section):
    """Base predictors of the tables, and alternatives for the sensitivity tables."""

    seed: int  # for data sets that are not in the paper; the paper's data sets declare their own seeds
    members: PositiveCount  # base predictors of a run, each with another order of the training rows
    runs: PositiveCount
    alternatives: tuple[Literal["unweighted", "multinomial", "member_1", "member_2"], ...]
    # Also for simulated data sets: takes a quarter of the run time, and shows nothing about real data.
    alternatives_on_simulated: bool = False


class DaskTls(Section):
    """Certificates for a Dask scheduler at a `tls://` address; paths of PEM files on this machine."""

    ca_file: str
    cert_file: str
    key_file: str


class DaskParams(Section):
    """Workers of the engine `dask`: workers of a running scheduler, or processes that the run starts itself.

    Everyone who can connect to a Dask scheduler or worker can run code as its owner. So connections to a scheduler
    use TLS with certificates, unless `allow_unencrypted` states that the network is private.
    """

    address: Annotated[str, Field(pattern=r"^(tcp|tls)://[^/\s]+:[0-9]+$")] | None  # of a running scheduler
    workers: PositiveCount  # number of processes that the run starts if there is no address
    tls: DaskTls | None = None  # certificates for a tls:// address
    allow_unencrypted: bool = False  # accept a tcp:// address, at which every user of the network can run code

    @model_validator(mode="after")
    def _require_authentication(self) -> "DaskParams":
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
    """Schedule of the refresh under `python -m flows.serve`; null means no schedule."""

    refresh: Annotated[str, Field(pattern=r"^\S+(\s+\S+){4}$")] | None  # cron: minute hour day month weekday


class WatchedMap(Section):
    """A reliability map in use, and the labelled rows with which each refresh compares it."""

    map: str
    predictions: str
    group: str | None = None


class Params(Section):
    """All of params.yaml."""

    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
    calibrators: Annotated[tuple[str, ...], Field(min_length=1)]
    calibrator_settings: Mapping[Key, Mapping[str, Mapping[str, int]]]  # data set -> calibrator -> setting
    lanes: PositiveCount  # number of data sets that `flows.refresh` runs at the same time
    stage_minutes: Annotated[float, Field(ge=0)] = 0  # time limit of one stage; 0 means no limit
    engine: Literal["thread", "dask"]  # what runs the tasks of a flow
    dask: DaskParams
    protocol: PipelineProtocolParams
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
    def _require_all_fields(cls, section: Section) -> Section:
        missing = sorted(type(section).model_fields.keys() - section.model_fields_set)
        if missing:
            raise ValueError(f"{', '.join(missing)} is missing")
        return section

    @model_validator(mode="after")
    def _require_consistent_fields(self) -> "Params":
        _require_unique("calibrator", self.calibrators + self.rivals.calibrators)
        _require_unique("seed", self.seeds)
        for name in self.sensitivity.alternatives:
            self.with_alternative(name)
        return self

    def with_alternative(self, name: str) -> "Params":
        """Return these parameters changed by an alternative of `sensitivity`.

        An alternative with another base predictor changes no parameter.

        Args:
            name: Key of the alternative.
        """
        sections = {}
        for section_name, changed_values in self.sensitivity.alternatives[name]:
            if section_name != "base":
                section = getattr(self, section_name)
                sections[section_name] = type(section).model_validate(section.model_dump() | dict(changed_values))
        return self.model_copy(update=sections)

    def dataset(self, name: str) -> DatasetParams:
        """Return the entry of a data set.

        Raises:
            InputError: There is no such entry.
        """
        if name not in self.datasets:
            raise InputError(f"no data set {name!r} in {PARAMS_FILE}; it has {', '.join(self.datasets)}")
        return self.datasets[name]


def load_params(path: Path = PARAMS_FILE) -> Params:
    """Read and check params.yaml.

    Raises:
        InputError: The file is missing or has mistakes. The message names each place and value.
    """
    try:
        return Params.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise InputError(f"{path} is missing; run from the project's root folder") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not valid YAML: {error}") from None
    except ValidationError as error:
        lines = describe_validation_errors(error, str(path))
        raise InputError(f"{path} has {len(lines)} mistake(s):\n  " + "\n  ".join(lines)) from None


def _require_unique(kind: str, values: Sequence[str | int]) -> None:
    duplicates = sorted({str(value) for value in values if values.count(value) > 1})
    if duplicates:
        raise ValueError(f"{kind} {', '.join(duplicates)} is given more than once")
