"""Content of `map.json`: everything that is needed to apply a reliability map, as readable values without code.

Fitted calibrators and variants are stored as their fitted values. When a map is built or read, its shapes, orders and
the consistency of its parts are validated in addition to the JSON Schema, which is `map.schema.json`. Files are written
atomically.
"""

import hashlib
import json
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, Union

import numpy as np
import pydantic_core
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from relmap.calibrators.identity import Constant, Identity
from relmap.calibrators.registry import CALIBRATORS
from relmap.errors import InputError, describe_validation_errors
from relmap.io.atomic import read_json_object, write_text
from relmap.io.column_layout import Reading
from relmap.io.serialization import Count, Number, Share, Value
from relmap.io.signals import Signal, TextSignal
from relmap.maps import earlier
from relmap.maps.earlier import (
    EARLIER_TYPES,
    Corrected,
    LinesWithSignals,
    WholeVector,
    version_3_parts,
    without_missing_bound,
)
from relmap.projection.labelwise import Lines
from relmap.projection.mrp import Fallback
from relmap.projection.pooled import ShrunkCurves, SignalAdjusted
from relmap.projection.registry import DEPLOYABLE_VARIANTS, VARIANTS
from relmap.settings import ProtocolParams

MAX_FOLDS = 50
MAX_HASH_CHARACTERS = 10**6  # of all hashes of training rows: 1 MB
# parts that determine the scores of a row
SCORING_PARTS = {"input", "n_labels", "label_names", "calibrator", "projection", "signals"}
MIN_LABEL_ROWS = 20  # labels with fewer rows are mostly pooled with the others; reports name them

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Half = Literal["lower", "upper"]
CONFIDENCE_CALIBRATORS = tuple(
    calibrator.model_type for calibrator in CALIBRATORS.values() if calibrator.accepts_confidence
)
CALIBRATOR_TYPES = (*(calibrator.model_type for calibrator in CALIBRATORS.values()), Constant)


def _variant_types() -> list[type[Value]]:
    """Return the types of fitted variants that a map can have, sorted by name."""
    types: set[type[Value]] = set(EARLIER_TYPES)
    for name in DEPLOYABLE_VARIANTS:
        types.update(VARIANTS[name].model_types)
    return sorted(types, key=attrgetter("__name__"))


VARIANT_TYPES = _variant_types()
# unions that are built from registries at run time, so a type checker cannot know their members
Calibrator: TypeAlias = Union[tuple(CALIBRATOR_TYPES)]  # type: ignore[valid-type]  # noqa: UP007
Variant: TypeAlias = Union[tuple(VARIANT_TYPES)]  # type: ignore[valid-type]  # noqa: UP007


class MapPart(BaseModel):
    """A part of a map; it is immutable, and unknown names are rejected."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, revalidate_instances="always"
    )

    @field_validator("*")
    @classmethod
    def _reject_unprintable(cls, value: object) -> object:
        """Reject text with line breaks, or with characters that control a terminal or the direction of text."""
        texts: tuple[Any, ...] = ()
        if isinstance(value, str):
            texts = (value,)
        elif isinstance(value, tuple | dict):
            texts = tuple(value)
        for text in texts:
            if isinstance(text, str) and not text.isprintable():
                raise ValueError("a text has unprintable characters")
        return value


class Calibration(MapPart):
    """A fitted calibrator.

    Attributes:
        name: Name on the command line.
        rows: Number of rows that it was fitted on.
        fitted: The fitted values.
    """

    name: str
    rows: Count
    fitted: Annotated[Calibrator, Field(discriminator="kind")]


class Projection(MapPart):
    """A fitted variant.

    Attributes:
        name: Name of the variant.
        rows: Number of rows that it was fitted on.
        rows_by_label: Number of these rows with each decided label.
        fitted: The fitted values.
    """

    name: str
    rows: Count
    rows_by_label: tuple[Count, ...]
    fitted: Annotated[Variant, Field(discriminator="kind")]

    @property
    def fallback(self) -> tuple[Fallback, ...]:
        """Fallback of each label; empty if labels have no separate curves.

        Partially pooled variants have no fallbacks. For them, it is "shared" for labels with few rows, else "none".
        """
        pooled = (Lines, ShrunkCurves, SignalAdjusted, LinesWithSignals)
        fitted = self.fitted.base if isinstance(self.fitted, Corrected) else self.fitted
        if isinstance(fitted, pooled) and self.name != "shared_1d":
            return tuple("none" if rows >= MIN_LABEL_ROWS else "shared" for rows in self.rows_by_label)
        return getattr(fitted, "fallback", ())


class Fold(MapPart):
    """Models that were fitted on all folds but one.

    Attributes:
        calibrator: The calibrator.
        projection: The variant.
        baseline: Calibrator of the confidence that the map is compared with; null if it is `calibrator`.
    """

    calibrator: Annotated[Calibrator, Field(discriminator="kind")]
    projection: Annotated[Variant, Field(discriminator="kind")]
    baseline: Annotated[Calibrator, Field(discriminator="kind")] | None = None


class Cell(MapPart):
    """Out-of-fold rows of one decided label and one half of its reliabilities: a reference of the drift test.

    Attributes:
        label: The decided label.
        half: The half of the reliabilities.
        rows: Number of rows.
        mean_reliability: Mean reliability.
        mean_residual: Mean of correct - reliability.
        variance: Number of rows times the variance of the mean residual. For independent rows, it is the variance of
            one residual. If residuals of a group are correlated, it is larger.
    """

    label: Count
    half: Half
    rows: Count
    mean_reliability: Share
    mean_residual: Annotated[float, Field(ge=-1, le=1)]
    variance: Annotated[float, Field(ge=0)]


class TopCell(MapPart):
    """The most reliable out-of-fold rows: the reference of the drift test for the top of the ranking.

    Attributes:
        share: Share of all rows, such as 0.1. The rows are at least as reliable as the quantile at 1 - share.
        rows: Number of rows.
        mean_reliability: Mean reliability.
        mean_residual: Mean of correct - reliability.
        variance: As in `Cell`.
    """

    share: Share
    rows: Count
    mean_reliability: Share
    mean_residual: Annotated[float, Field(ge=-1, le=1)]
    variance: Annotated[float, Field(ge=0)]


class HeldOut(MapPart):
    """Summary of out-of-fold rows; under the paper's protocol, of its projection-selection rows.

    Attributes:
        rows: Number of rows.
        label_spread: Label spread of the calibrated confidence, in [0, 2]; null where undefined.
        label_spread_shuffled: 95th percentile of the spread of shuffled labels.
        quantiles: Quantiles of the reliability, from 0% to 100%.
        halves: For each label, the lowest reliability of its upper half.
        cells: Rows by label and half.
        top: The most reliable rows; empty in maps written by earlier versions.
    """

    rows: Count
    label_spread: float | None
    label_spread_shuffled: float | None
    quantiles: Annotated[tuple[Share, ...], Field(min_length=101, max_length=101)]
    halves: tuple[Share, ...]
    cells: tuple[Cell, ...]
    top: tuple[TopCell, ...] = ()


class SeenColumn(MapPart):
    """How the fit rows are distributed over a column: the reference of `relmap watch`.

    Attributes:
        column: `decision`, `confidence` (calibrated), `reliability`, or the name of a numeric signal.
        edges: Limits of the ranges; empty for the decision.
        counts: Number of rows of each decision, or in each range. They sum to the effective number of rows.
        effect: Mean design effect of groups on the counts; 1 without groups.
        label: Decided label 0..K-1 whose rows are counted; null for all rows.
    """

    column: str
    edges: Annotated[tuple[Number, ...], Field(max_length=100)]
    counts: Annotated[tuple[Annotated[float, Field(ge=0, le=1e15)], ...], Field(min_length=1)]
    effect: Annotated[float, Field(ge=1, le=1e9)]
    label: Count | None = None


class Seen(MapPart):
    """How the fit rows are distributed.

    Attributes:
        groups: Number of groups; null for independent rows.
        automatic: Share of the rows that reach `default_threshold`.
        columns: The columns.
    """

    groups: Count | None
    automatic: Share
    columns: tuple[SeenColumn, ...]


class Fingerprint(MapPart):
    """Hashes that identify the labelled fit rows as a whole, in any file or frame.

    Attributes:
        rows: Hash of the decisions and labels in the order of the rows.
        groups: Hash of the groups; null without groups.
        any_order: Hash that does not depend on the order of the rows: of the sorted confidences, or first logits, and
            of the number of rows of each true label; null if there are only decisions.
    """

    rows: Sha256
    groups: Sha256 | None
    any_order: Sha256 | None


class TrainingRows(MapPart):
    """Salted, truncated hashes that identify individual fit rows.

    Attributes:
        by: What is hashed: the prediction, or an id if predictions repeat; nothing if predictions repeat and there are
            no ids.
        id_column: Column of the ids; null if they are not hashed.
        salt: Salt of the hashes.
        share: Share of the fit rows that have a hash.
        folds: Sorted hashes of each fold, 8 characters of base64 each; a single entry if there are no folds.
    """

    by: Literal["prediction", "id", "nothing"]
    id_column: str | None
    salt: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    share: Share
    folds: Annotated[
        tuple[Annotated[str, Field(pattern=r"^([A-Za-z0-9+/]{8})*$", max_length=MAX_HASH_CHARACTERS)], ...],
        Field(max_length=MAX_FOLDS),
    ]


class Source(MapPart):
    """Origin of a map; it is not needed to apply the map.

    Attributes:
        file: Name of the file of labelled rows.
        sha256: SHA-256 of the file.
        fingerprint: Hashes of all rows together; null in maps written by earlier versions.
        training_rows: Hashes of individual rows; null in maps written by earlier versions.
        rows: Number of rows.
        seed: Seed of the fit.
        group: Column of groups that folds do not split.
        hold_out: Share of the rows that no fit used.
        protocol: Split of the paper's protocol, if it was used in place of folds.
        at: Date and time.
        versions: Versions of the libraries.
    """

    file: str
    sha256: Sha256
    fingerprint: Fingerprint | None = None
    training_rows: TrainingRows | None = None
    rows: Count
    seed: Annotated[int, Field(ge=0)]
    group: str | None
    hold_out: Annotated[float, Field(ge=0, lt=1)] = 0.0
    protocol: ProtocolParams | None = None
    at: str
    versions: dict[str, str]


class MapDocument(MapPart):
    """A reliability map: calibrator, projection, label names and their origin.

    Attributes:
        format: Name of the format.
        version: Version of the format.
        input: What is read from each row: logits (or log-probabilities), a decision and a confidence, or a decision.
        n_labels: Number of labels K.
        label_names: Names of the labels.
        calibrator: The calibrator.
        projection: The variant.
        baseline: Calibrator of the confidence that the map is compared with; null if it is `calibrator`.
        signals: Signals that are read, in the order of their weights in the projection.
        held_out: Summary of out-of-fold rows.
        seen: How the fit rows are distributed; null in maps written by earlier versions.
        default_threshold: Minimum reliability of automatic rows in `apply`; null in maps written by earlier versions.
        folds: Models that scored the out-of-fold rows; empty under the paper's protocol.
        source: Origin of the map.
        reading: How the fit rows were read, as options of the commands; only options that were given.
        earlier_version: Version of the format that the map was written in, if it was converted.
    """

    format: Literal["mrp-reliability-map"] = "mrp-reliability-map"
    version: Literal[4] = 4
    input: Literal["logits", "confidence_only", "decision_only"]
    n_labels: Annotated[int, Field(ge=2, le=100_000)]
    label_names: tuple[str, ...] | None
    calibrator: Calibration
    projection: Projection
    baseline: Calibration | None = None
    signals: tuple[Signal, ...] = ()
    held_out: HeldOut
    seen: Seen | None = None
    default_threshold: Annotated[float, Field(ge=0.5, le=1)] | None = None
    folds: tuple[Fold, ...] = ()
    source: Source
    reading: dict[str, str | float | bool] = {}
    earlier_version: Literal[3] | None = None

    @property
    def shown_names(self) -> tuple[str, ...]:
        """Name of each label; `label 0` and so on for labels without names."""
        return self.label_names or tuple(f"label {label}" for label in range(self.n_labels))

    @property
    def fingerprint(self) -> str:
        """Hex SHA-256 of everything that determines the scores of a row, independent of the origin of the map."""
        parts = without_missing_bound(self.model_dump(mode="json", include=SCORING_PARTS))
        if self.earlier_version is not None:  # files of thresholds name the fingerprint that this version computed
            parts = version_3_parts(parts)
        return hashlib.sha256(pydantic_core.to_json(parts)).hexdigest()

    @model_validator(mode="after")
    def _validate_parts(self) -> "MapDocument":
        """Check what the types of the fields cannot express."""
        violations = [
            *self._value_violations(),
            *self._name_violations(),
            *self._input_violations(),
            *self._fold_violations(),
            *self._signal_violations(),
            *self._summary_violations(),
            *self._reading_violations(),
        ]
        if violations:
            raise ValueError("; ".join(violations))
        return self

    def _fits(self) -> list[tuple[Any, Any, Any]]:
        """Return calibrator, variant and baseline: of the map, then of each fold."""
        baseline = None if self.baseline is None else self.baseline.fitted
        fold_fits = [(fold.calibrator, fold.projection, fold.baseline) for fold in self.folds]
        return [(self.calibrator.fitted, self.projection.fitted, baseline), *fold_fits]

    def _values(self) -> list[Any]:
        """Return all fitted calibrators and variants of the map and of its folds."""
        return [value for fit in self._fits() for value in fit if value is not None]

    def _value_violations(self) -> list[str]:
        violations = []
        for value in self._values():
            violations += value.violations(self.n_labels)
        return violations

    def _name_violations(self) -> list[str]:
        names = self.shown_names
        n_distinct = len(set(names))
        if len(names) == self.n_labels == n_distinct:
            return []
        return [f"there are {self.n_labels} labels and {len(names)} names, of which {n_distinct} are distinct"]

    def _input_violations(self) -> list[str]:
        """Check that calibrator and variants can read the input."""
        violations = []
        calibrator = self.calibrator
        if self.input == "confidence_only" and not isinstance(calibrator.fitted, CONFIDENCE_CALIBRATORS):
            violations.append(f"the calibrator {calibrator.name} needs logits, and the input is {self.input}")
        if (self.input == "decision_only") != isinstance(calibrator.fitted, Constant):
            violations.append(f"the calibrator {calibrator.name} does not match the input {self.input}")
        fitted = self.projection.fitted
        model = fitted.base if isinstance(fitted, Corrected) else fitted
        if self.input != "logits" and (self.baseline is not None or isinstance(model, WholeVector)):
            violations.append(f"a model of all logits needs logits, and the input is {self.input}")
        return violations

    def _fold_violations(self) -> list[str]:
        """Check the number of folds, and that all fits have the same types."""
        types = {tuple(type(value) for value in fit) for fit in self._fits()}
        n_folds = len(self.folds)
        violations = []
        if len(types) > 1 or n_folds == 1 or n_folds > MAX_FOLDS:
            violations.append(
                f"there are {n_folds} folds with {len(types)} types of fits; use 2 to {MAX_FOLDS} folds of one type"
            )
        training = self.source.training_rows
        if training is not None and training.folds and len(training.folds) != max(n_folds, 1):
            violations.append(f"source.training_rows has {len(training.folds)} folds, but the map has {n_folds}")
        return violations

    def _signal_violations(self) -> list[str]:
        """Check that there is one weight for each column of signals."""
        n_columns = sum(len(signal.values) if isinstance(signal, TextSignal) else 1 for signal in self.signals)
        n_weights = set()
        for _, projection, _ in self._fits():
            model = projection.base if isinstance(projection, Corrected) else projection
            n_weights.add(len(model.weights) if isinstance(model, SignalAdjusted | LinesWithSignals) else 0)
        if n_weights != {n_columns}:
            return [f"the signals have {n_columns} columns, but there are weights for {sorted(n_weights)}"]
        return []

    def _reading_violations(self) -> list[str]:
        """Check that the options exist and fit together."""
        try:
            Reading(**self.reading)  # type: ignore[arg-type]
        except (TypeError, InputError) as error:
            return [f"reading is invalid: {error}"]
        return []

    def _summary_violations(self) -> list[str]:
        """Check the summaries of the rows."""
        violations = []
        n_counts = len(self.projection.rows_by_label)
        if n_counts != self.n_labels:
            violations.append(f"projection.rows_by_label has {n_counts} numbers, but there are {self.n_labels} labels")
        has_other_labels = any(cell.label >= self.n_labels for cell in self.held_out.cells)
        if len(self.held_out.halves) != self.n_labels or has_other_labels:
            violations.append(f"held_out has other labels than 0..{self.n_labels - 1}")
        if (np.diff(self.held_out.quantiles) < 0).any():
            violations.append("held_out.quantiles decrease")
        for seen in self.seen.columns if self.seen else ():
            n_counts = self.n_labels if seen.column == "decision" else len(seen.edges) + 1
            if len(seen.counts) != n_counts or (np.diff(seen.edges) <= 0).any():
                violations.append(f"seen: {seen.column} has {len(seen.counts)} counts, or limits that do not increase")
            if seen.label is not None and (seen.label >= self.n_labels or seen.column == "decision"):
                violations.append(f"seen: {seen.column} cannot be counted for the label {seen.label}")
        return violations


FORMAT = "mrp-reliability-map"
VERSION = 4
SCHEMA_FILE = Path(__file__).with_name("map.schema.json")
MAX_FILE_BYTES = 64 * 2**20  # a map of 8,000 thresholds for each of 100 labels is smaller


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a map, which is the content of `map.schema.json`.

    Returns:
        The schema.
    """
    schema = MapDocument.model_json_schema()
    del schema["title"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{FORMAT}, version {VERSION}",
        **schema,
    }


def describe_map(document: MapDocument) -> str:
    """Describe the models of a map and the rows that they were fitted on, for the last line of a report.

    Args:
        document: The map.

    Returns:
        A phrase.
    """
    calibrator = document.calibrator
    projection = document.projection
    calibrator_rows = f"fitted on {calibrator.rows:,} rows"
    if isinstance(calibrator.fitted, Identity):
        calibrator_rows = "(not fitted)"
    folds = f" in {len(document.folds)} folds" if document.folds else ""
    return (
        f"{calibrator.name} {calibrator_rows}, {projection.name} fitted on {projection.rows:,}, evaluated on "
        f"{document.held_out.rows:,}{folds}, of {document.source.rows:,} rows of {document.source.file}"
    )


def save_map(document: MapDocument, path: Path) -> None:
    """Write a map atomically, with one line for each entry or list of numbers.

    Args:
        document: The map.
        path: File to write.
    """
    write_text(path, _format_json(document.model_dump(mode="json")) + "\n")


def _format_json(content: object, indent: str = "") -> str:
    """Format JSON with one line for each entry; a list of plain values is on one line."""
    inner_indent = indent + "  "
    if isinstance(content, dict) and content:
        entries = []
        for key, value in content.items():
            entries.append(f"{inner_indent}{json.dumps(key)}: {_format_json(value, inner_indent)}")
        return "{\n" + ",\n".join(entries) + f"\n{indent}}}"
    if isinstance(content, list) and any(isinstance(value, dict | list) for value in content):
        items = [f"{inner_indent}{_format_json(value, inner_indent)}" for value in content]
        return "[\n" + ",\n".join(items) + f"\n{indent}]"
    return json.dumps(content, ensure_ascii=False, allow_nan=False)


def load_map(path: Path) -> MapDocument:
    """Read and validate a map.

    Args:
        path: The file.

    Returns:
        The map.

    Raises:
        InputError: The file is missing or not JSON, has another format or version, or is invalid; the message names
            the location.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from relmap import ReliabilityMap, load_map
        >>> from relmap.simulation.predictions import LABEL_NAMES, simulate_predictions
        >>> labelled = simulate_predictions(600, seed=1)
        >>> model = ReliabilityMap(labels=LABEL_NAMES).fit(labelled, groups="query")
        >>> with TemporaryDirectory() as folder:
        ...     model.save(Path(folder) / "map.json")
        ...     document = load_map(Path(folder) / "map.json")
        >>> document.label_names
        ('irrelevant', 'partial', 'exact')
    """
    text, content = read_json_object(path, kind="reliability map", command="relmap fit", max_bytes=MAX_FILE_BYTES)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{path} is not a reliability map: it lacks the format {FORMAT!r}; give a map that fit wrote")
    version = content.get("version")
    if version == earlier.VERSION:
        text = json.dumps(earlier.convert_version_3(content, VERSION))
    elif version != VERSION:
        raise InputError(
            f"{path} has version {version!r} of the map format, and this program reads the versions {earlier.VERSION} "
            f"and {VERSION}; fit the map again, or use the version of the program that wrote it"
        )
    try:
        return MapDocument.model_validate_json(text)
    except ValidationError as error:
        errors = "; ".join(describe_validation_errors(error, "map"))
        raise InputError(f"{path} is not a valid reliability map; fit it again: {errors}") from None
