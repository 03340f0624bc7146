"""`map.json`: everything that applying a reliability map needs, readable, and no code.

A fitted calibrator and a fitted variant stand in it as the values that they are. What its schema cannot say is checked
when a map is made or read: shapes are those of K labels, knots rise from 0 to 1, no curve falls.
"""

import hashlib
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeAlias, Union

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from relmap.calibrators.matrix import Matrix
from relmap.calibrators.registry import CALIBRATORS
from relmap.io.signals import Signal
from relmap.maps.constant import Constant
from relmap.maps.correction import Correction
from relmap.projection.curves import Fallback
from relmap.projection.labelwise import Lines
from relmap.projection.pooling import ShrunkCurves, WithSignals
from relmap.projection.variants import DEPLOYABLE_VARIANTS, VARIANTS
from relmap.projection.whole_vector import WholeVector
from relmap.serialization import Count, Share
from relmap.settings import ProtocolParams

MOST_FOLDS = 50
MAX_HASH_CHARACTERS = 10**6  # of all hashes of training rows: 1 MB
FEW_ROWS = 20  # behind a label, which then leans on the others so much that it is said

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Half = Literal["lower", "upper"]
OF_CONFIDENCE = tuple(calibrator.model_type for calibrator in CALIBRATORS.values() if calibrator.accepts_confidence)
CALIBRATIONS = (*(calibrator.model_type for calibrator in CALIBRATORS.values()), Constant)
PROJECTIONS = sorted(
    {value for name in DEPLOYABLE_VARIANTS for value in VARIANTS[name].model_types}, key=attrgetter("__name__")
)
# of what the registries hold, which the type checker cannot know
Calibrator: TypeAlias = Union[tuple(CALIBRATIONS)]  # type: ignore[valid-type]  # noqa: UP007
Variant: TypeAlias = Union[tuple(PROJECTIONS)]  # type: ignore[valid-type]  # noqa: UP007

CORRECTABLE = (Lines, ShrunkCurves, WholeVector, WithSignals)  # what `auto` can choose, except the confidence itself


class Part(BaseModel):
    """A part of a map: never changed after reading, and no name in it goes unnoticed."""

    # a model is built when a map is read: a mistake in a command is told sooner
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, revalidate_instances="always"
    )

    @field_validator("*")
    @classmethod
    def _shows_as_it_is(cls, value: Any) -> Any:
        """No text holds a line break, or what moves a terminal's cursor or turns the direction of reading."""
        texts = [value] if isinstance(value, str) else value if isinstance(value, tuple | dict) else ()
        if not all(text.isprintable() for text in texts if isinstance(text, str)):
            raise ValueError("a text holds characters that cannot be shown")
        return value


class Calibration(Part):
    """A calibrator by its name on the command line, and as it was fitted."""

    name: str
    rows: Count  # that it was fitted on
    fitted: Annotated[Calibrator, Field(discriminator="kind")]


class Projection(Part):
    """A variant by its name, and as it was fitted."""

    name: str
    rows: Count  # that it was fitted on
    rows_by_label: tuple[Count, ...]  # of these, how many each label was decided on
    fitted: Annotated[Variant, Field(discriminator="kind")]

    @property
    def fallback(self) -> tuple[Fallback, ...]:
        """What each label stands on: itself, or mostly the others; empty where no label has a curve of its own."""
        if isinstance(self.fitted, Lines | ShrunkCurves | WithSignals) and self.name != "shared_1d":
            return tuple("none" if rows >= FEW_ROWS else "shared" for rows in self.rows_by_label)
        return getattr(self.fitted, "fallback", ())


class Fold(Part):
    """What was fitted on all folds but one, which it has not seen."""

    calibrator: Annotated[Calibrator, Field(discriminator="kind")]
    projection: Annotated[Variant, Field(discriminator="kind")]
    correction: Correction | None = None  # fitted without the out-of-fold logits of this fold


class Candidate(Part):
    """What `auto` chose from, on rows that the fit had not seen."""

    variant: str
    nll_correct: float
    change: float  # nll_correct less that of the confidence; negative is better
    low: float  # 95% interval of the change
    high: float


class Recalibrated(Part):
    """Matrix scaling alone beside the map, on rows that neither had seen: for who may change probabilities."""

    change: float  # of the log loss; negative is better than the map
    standard_error: Annotated[float, Field(ge=0)]
    low: float  # 95% interval of the change
    high: float
    decisions_changed: Share  # that it would decide otherwise


class Others(Part):
    """What the fit chose from beside the map, fitted on the same rows: `evaluate` shows it, nothing else reads it."""

    variants: dict[str, Annotated[Variant, Field(discriminator="kind")]] = {}  # by name; none that reads signals
    matrix: Matrix | None = None  # matrix scaling
    recalibrated: Recalibrated | None = None


class Gain(Part):
    """What the projection buys over confidence if so many labelled rows are there to fit on."""

    rows: Count
    nll_correct: float  # with it less without, on rows that the fit had not seen; negative is better
    nll_correct_standard_error: float
    aurc: float


class Choice(Part):
    """Why this variant."""

    asked: str  # auto, or the variant that was asked for
    reason: str
    candidates: tuple[Candidate, ...]
    gains: tuple[Gain, ...]


class Cell(Part):
    """Rows of one decided label and one half of its reliabilities, unseen by the fit: what drift is held against."""

    label: Count
    half: Half
    rows: Count
    mean_reliability: Share
    mean_residual: Annotated[float, Field(ge=-1, le=1)]  # of correct - reliability
    variance: Annotated[float, Field(ge=0)]  # of the residual, for one row; rows of a group that err together raise it


class TopCell(Part):
    """The most reliable rows that the fit had not seen: the reference of the drift test for the top of the ranking."""

    share: Share  # of all rows, such as 0.1; the limit is the quantile of the reliability at 1 - share
    rows: Count
    mean_reliability: Share
    mean_residual: Annotated[float, Field(ge=-1, le=1)]  # of correct - reliability
    variance: Annotated[float, Field(ge=0)]  # of the residual of one row; correlated rows of a group increase it


class HeldOut(Part):
    """What was said of rows that the fit had not seen: out of fold, or the paper's projection-selection rows."""

    rows: Count
    label_spread: float | None  # of the calibrated confidence, in [0, 2]; null where undefined
    label_spread_shuffled: float | None  # the 95th percentile of what shuffled labels show
    quantiles: Annotated[tuple[Share, ...], Field(min_length=101, max_length=101)]  # of the reliability, 0% to 100%
    halves: tuple[Share, ...]  # for each label the reliability from which a row is in its upper half
    cells: tuple[Cell, ...]
    top: tuple[TopCell, ...] = ()  # empty in maps written by earlier versions


class Fingerprint(Part):
    """By what labelled rows are known again, whatever file or frame they come from."""

    rows: Sha256  # decisions and labels, in their order
    groups: Sha256 | None  # which rows are of one group
    any_order: Sha256 | None  # what is said of the rows, sorted; None of decisions alone


class TrainingRows(Part):
    """Salted, truncated hashes by which single rows of the fit are recognized."""

    # the prediction, or an id where predictions repeat; nothing where there is no id either
    by: Literal["prediction", "id", "nothing"]
    id_column: str | None
    salt: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    share: Share  # of the rows of the fit that have a hash here
    # for each fold its hashes, 8 characters of base64 each, sorted; one entry for all rows where there are no folds
    folds: Annotated[
        tuple[Annotated[str, Field(pattern=r"^([A-Za-z0-9+/]{8})*$", max_length=MAX_HASH_CHARACTERS)], ...],
        Field(max_length=MOST_FOLDS),
    ]


class Source(Part):
    """What the map was fitted on; nothing of it is needed to apply the map."""

    file: str
    sha256: Sha256
    fingerprint: Fingerprint | None = None  # of maps before it, the file alone is known
    training_rows: TrainingRows | None = None  # maps of earlier versions recognize all rows together, or none
    rows: Count
    seed: Annotated[int, Field(ge=0)]
    group: str | None  # the column whose groups were kept together
    hold_out: Annotated[float, Field(ge=0, lt=1)] = 0.0  # share of the rows that was kept aside from every fit
    protocol: ProtocolParams | None = None  # the paper's, if its parts were asked for in place of folds
    at: str  # date and time
    versions: dict[str, str]


class MapDocument(Part):
    """A reliability map: calibrator, projection, label names and where they come from."""

    format: Literal["mrp-reliability-map"] = "mrp-reliability-map"
    version: Literal[3] = 3
    # log-probabilities are logits; or a decision and a confidence, or a decision alone
    input: Literal["logits", "confidence_only", "decision_only"]
    n_labels: Annotated[int, Field(ge=2, le=100_000)]
    label_names: tuple[str, ...] | None
    calibrator: Calibration
    projection: Projection
    correction: Correction | None = None  # of the logit of the projection; only `auto` fits one
    signals: tuple[Signal, ...] = ()  # what else is read of each row, in the order of the values
    choice: Choice
    others: Others | None = None  # maps of before do not know them
    held_out: HeldOut
    # from which reliability on `apply` uses a decision; maps written by earlier versions have none
    default_threshold: Annotated[float, Field(ge=0.5, le=1)] | None = None
    folds: tuple[Fold, ...] = ()  # the fits behind what was held out; none under the paper's protocol
    source: Source

    @property
    def shown_names(self) -> tuple[str, ...]:
        """A name for every label; `label 0` and so on, where names are not known."""
        return self.label_names or tuple(f"label {label}" for label in range(self.n_labels))

    @property
    def fingerprint(self) -> str:
        """Hex SHA-256 of all that decides what the map says of a row, wherever it lies and whenever it was made."""
        parts = {"input", "n_labels", "label_names", "calibrator", "projection", "signals"}
        if self.correction is not None:  # maps without one keep the fingerprint that earlier versions gave them
            parts.add("correction")
        return hashlib.sha256(self.model_dump_json(include=parts).encode()).hexdigest()

    @property
    def judged_out_of_fold(self) -> dict[str, Any]:
        """The candidates, and matrix scaling beside the map, on the rows of the fit; ready for JSON."""
        recalibrated = self.others and self.others.recalibrated and self.others.recalibrated.model_dump()
        return {"candidates": self.choice.model_dump()["candidates"], "recalibrated": recalibrated}

    @model_validator(mode="after")
    def _sound(self) -> "MapDocument":
        names, fitted = self.shown_names, self.calibrator.fitted
        fits = [(fitted, self.projection.fitted), *((fold.calibrator, fold.projection) for fold in self.folds)]
        others = [] if self.others is None else [*self.others.variants.values(), self.others.matrix]
        values = [value for value in (*chain(*fits), *others) if value is not None]
        wrong = [what for value in values for what in value.violations(self.n_labels)]
        if len(set(names)) != self.n_labels or len(names) != self.n_labels:
            wrong.append(f"there are {self.n_labels} labels and {len(names)} names, of which {len(set(names))} differ")
        if self.input == "confidence_only" and not isinstance(fitted, OF_CONFIDENCE):
            wrong.append(f"a stated confidence has no logits for the calibrator {self.calibrator.name}")
        if (self.input == "decision_only") != isinstance(fitted, Constant):
            wrong.append(f"the calibrator {self.calibrator.name} and the input {self.input} do not go together")
        kinds, folds = {(type(calibrator), type(projection)) for calibrator, projection in fits}, len(self.folds)
        if len(kinds) > 1 or folds == 1 or folds > MOST_FOLDS:
            wrong.append(f"there are {folds} folds, of {len(kinds)} kinds of fits; 2 to {MOST_FOLDS} of one are due")
        if self.input != "logits" and any(isinstance(value, WholeVector | Matrix) for value in values):
            wrong.append(f"a score of the whole vector reads logits, and the input is {self.input}")
        if any(isinstance(value, WithSignals) for value in others):
            wrong.append("others.variants reads signals, which a map keeps for itself alone")
        width = sum(len(getattr(signal, "values", "1")) for signal in self.signals)
        weights = {len(value.weights) if isinstance(value, WithSignals) else 0 for _, value in fits}
        if weights != {width}:
            wrong.append(f"the signals are {width} columns, and there are weights for {sorted(weights)}")
        wrong += self._wrong_corrections()
        if len(self.projection.rows_by_label) != self.n_labels:
            wrong.append(f"projection.rows_by_label has {len(self.projection.rows_by_label)} numbers")
        if len(self.held_out.halves) != self.n_labels or any(c.label >= self.n_labels for c in self.held_out.cells):
            wrong.append(f"held_out speaks of other labels than 0..{self.n_labels - 1}")
        training = self.source.training_rows
        if training is not None and training.folds and len(training.folds) != max(len(self.folds), 1):
            wrong.append(f"source.training_rows has {len(training.folds)} folds, and there are {len(self.folds)}")
        if (np.diff(self.held_out.quantiles) < 0).any():
            wrong.append("held_out.quantiles fall")
        if wrong:
            raise ValueError("; ".join(wrong))
        return self

    def _wrong_corrections(self) -> list[str]:
        """Return what is wrong with the corrections of the map and of its folds, a sentence each."""
        corrections = [self.correction, *(fold.correction for fold in self.folds)]
        wrong = [what for correction in corrections if correction is not None for what in correction.violations()]
        if len({correction is None for correction in corrections}) > 1:
            wrong.append("the map and its folds must all have a correction, or none of them")
        if self.correction is not None and not isinstance(self.projection.fitted, CORRECTABLE):
            wrong.append(f"a correction does not apply to the variant {self.projection.name}")
        return wrong
