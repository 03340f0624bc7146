"""Apply a reliability map to predictions: score and rank the rows, and route each to automatic use or to review.

A file of any length is read twice in pieces: once to score the rows, and once to write them with their ranks.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor, inf
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import scipy

from relmap.errors import InputError
from relmap.evaluation.watch import ColumnChange, find_clear_changes, ranges_of
from relmap.io.column_layout import DEFAULT_READING, Layout, Reading
from relmap.io.columns import has_numeric_name, join_names
from relmap.io.files import ParquetPredictions, Predictions, open_predictions, reading_notes
from relmap.io.frames import FramePredictions, arrow_to_polars
from relmap.io.output import ColumnBuilder, check_output, write_with_columns
from relmap.io.ranking import MAX_ROWS_IN_MEMORY, Ranking, rank_by_logit, rank_rows
from relmap.maps.document import MapDocument
from relmap.maps.score import Progress, RowScores, find_map_layout, ignore_progress, score_in_pieces
from relmap.routing.thresholds import MAX_THRESHOLD_DECIMALS, read_label_thresholds

EXAMPLE_COVERAGE = "0.7"
MIN_COVERAGE_ROWS = 100  # with fewer rows, a note warns that routes by coverage depend on the other rows
NO_THRESHOLD = "This map was written by an earlier version and has no threshold of its own, so 0.5 is used."
NO_CHECKSUMS = "Not all pages of the predictions have checksums: a corrupted bit may remain undetected."
DEFAULT_THRESHOLD = 0.5  # below it another label may be more probable
DECIMAL = re.compile(r"(\d+\.?\d*|\.\d+)(e[+-]?\d{1,2})?", re.IGNORECASE)
MAX_DECIMAL_CHARACTERS = 50
ADDED_COLUMNS = ("decision", "decision_name", "confidence", "reliability", "review_rank", "route")


@dataclass(frozen=True, eq=False)
class RoutingRule:
    """Rule by which decisions are automatic: the most reliable rows, if they reach the threshold of their label.

    Attributes:
        share: Share of the most reliable rows among the rows that are routed together; 1 if only thresholds are used.
        thresholds: Minimum reliability for each decided label, shape (K,); infinite if all of its rows are reviewed.
        notes: Sentences for the user.
    """

    share: Fraction
    thresholds: np.ndarray
    notes: tuple[str, ...] = ()

    def are_automatic(self, decision: np.ndarray, reliability: np.ndarray, rank: np.ndarray, n_rows: int) -> np.ndarray:
        """Return which decisions are used without a review.

        Args:
            decision: Decided label of each of m rows, shape (m,).
            reliability: Reliability of each of these rows, shape (m,).
            rank: Rank of each of these rows among all rows, shape (m,); 1 is the least reliable row.
            n_rows: Number of all rows.

        Returns:
            Boolean array of shape (m,).
        """
        n_outside_share = n_rows - floor(self.share * n_rows)
        return np.asarray((rank > n_outside_share) & (reliability >= self.thresholds[decision]))

    @property
    def only_threshold(self) -> float | None:
        """Minimum reliability of all automatic rows; None with a share, or if labels have different thresholds."""
        distinct = np.unique(self.thresholds)
        is_only = self.share == 1 and len(distinct) == 1
        return float(distinct[0]) if is_only else None

    def notes_for(self, n_rows: int) -> tuple[str, ...]:
        """Return the notes for a number of rows.

        Args:
            n_rows: Number of rows that are routed together.

        Returns:
            Sentences for the user.
        """
        if self.share == 1 or not 0 < n_rows < MIN_COVERAGE_ROWS:
            return self.notes
        few_rows = (
            f"A coverage is a share of the rows that are given together, and there are only {n_rows}: the route of a "
            "row depends on the others. For single rows or small batches, use the threshold of the map or a cut."
        )
        return (*self.notes, few_rows)


@dataclass(frozen=True)
class RoutingSummary:
    """Summary of the rows that were routed.

    Attributes:
        rows: Number of rows.
        automatic: Number of rows whose decision is used without a review.
        min_reliability: Lowest reliability of an automatic row; None without automatic rows.
        expected_accuracy: Mean reliability of the automatic rows; None without automatic rows.
        below_half: Number of automatic rows with a reliability below 0.5.
        pooled_labels: Number of rows of each decided label that had few fit rows, so that its curve is mostly pooled
            with those of other labels.
        labels_without_threshold: Number of rows of each decided label that has no threshold although other labels do.
        notes: Sentences on how the file was read and routed.
        changes: Decision and reliability, if these rows clearly differ from the fit rows in them.
        threshold: Minimum reliability of automatic rows, if all labels have the same one and no share is given.
    """

    rows: int
    automatic: int
    min_reliability: float | None
    expected_accuracy: float | None
    below_half: int
    pooled_labels: dict[int, int]
    labels_without_threshold: dict[int, int]
    notes: tuple[str, ...] = ()
    changes: tuple[ColumnChange, ...] = ()
    threshold: float | None = None

    def describe(self, names: Sequence[str]) -> list[str]:
        """Describe which rows are automatic, and warn of labels with few fit rows.

        Args:
            names: Names of the labels 0..K-1.

        Returns:
            The notes and further sentences.
        """
        lines = [*self.notes]
        if self.changes:
            differences = "; ".join(change.describe(names) for change in self.changes)
            lines.append(f"These rows differ from the fit rows. {differences[0].upper()}{differences[1:]}.")
        if not self.rows:
            lines.append("The file has no rows, so there is nothing to decide or to review.")
        elif self.min_reliability is None:
            lines.append(f"All {self.rows:,} rows go to review.")
        else:
            limit = f"{self.min_reliability:.4g}" if self.threshold is None else _format_threshold(self.threshold)
            lines.append(
                f"{self.automatic:,} of {self.rows:,} rows ({self.automatic / self.rows:.1%}) are automatic, with a "
                f"reliability of at least {limit} and an expected accuracy of "
                f"{self.expected_accuracy:.1%}. Review the others."
            )
        if self.below_half:
            other_label = ""
            if len(names) == 2:
                other_label = f"; of {' and '.join(names)}, the other label is more probable"
            lines.append(
                f"Warning: {self.below_half:,} automatic decisions have a reliability below 0.5{other_label}. "
                "A cut of 0.5 or more sends them to review."
            )
        lines += _describe_labels(
            "Labels without a separate curve, since the map was fitted on few of their rows or none",
            self.pooled_labels,
            names,
        )
        lines += _describe_labels(
            "Labels without a threshold, so all of their rows go to review", self.labels_without_threshold, names
        )
        return lines


def _format_threshold(threshold: float) -> str:
    """Write a threshold with all its digits if it has at most nine, or else with four, as `fit` does."""
    chosen = f"{threshold:.{MAX_THRESHOLD_DECIMALS}g}"
    return chosen if float(chosen) == threshold else f"{threshold:.4g}"


def _describe_labels(finding: str, n_rows: Mapping[int, int], names: Sequence[str]) -> list[str]:
    """Complete a finding with the labels that it applies to and their numbers of rows; empty if none has rows."""
    labels = [f"{names[label]} ({count:,} rows)" for label, count in n_rows.items() if count]
    return [f"{finding}: {join_names(labels)}."] if labels else []


def apply_map(
    document: MapDocument,
    predictions: Path | Predictions,
    out: Path,
    *,
    coverage: str | None = None,
    cut: float | None = None,
    cuts: Path | None = None,
    in_memory: int = MAX_ROWS_IN_MEMORY,
    progress: Progress = ignore_progress,
    reading: Reading = DEFAULT_READING,
) -> RoutingSummary:
    """Write the rows of a file in their order, with the scores, rank and route of each.

    The columns that are added:

    - `decision` (int64): number of the decided label. Omitted if the file has a column `decision` of integers 0..K-1;
      named `decision_code` if the file has a column `decision` of text, as every column of a csv file is.
    - `decision_name`: name of the decided label, if the map has names.
    - `confidence` (float64): calibrated confidence. Named `calibrated_confidence` if the file has a confidence.
    - `reliability` (float64).
    - `review_rank` (int64): 1 is the lowest reliability, to be reviewed first. Ties are ranked by row order.
    - `route`: `automatic` or `review`.

    Without `coverage`, `cut` and `cuts`, the threshold of the map is used, and the route of a row does not depend on
    the other rows. Files with more than `in_memory` rows need no further memory, but temporary files in the folder of
    `out`, about 50 bytes for each row.

    Args:
        document: The map.
        predictions: File of predictions, or an opened one.
        out: File to write.
        coverage: Share of automatic rows in [0, 1], as text, so that it is exact: of n rows, the floor(coverage * n)
            most reliable ones.
        cut: Minimum reliability of automatic rows. With a coverage, rows must also be in this share.
        cuts: File that `thresholds` wrote, with a threshold for each label or one for all.
        in_memory: Maximal number of rows that are ranked in memory.
        progress: Called with the stage and the number of rows of each piece.
        reading: Names and units of the columns of a file that is not opened yet.

    Returns:
        A summary.

    Raises:
        InputError: A file, column or row cannot be read, or the file was scored before; `out` is then unchanged.
    """
    rule = routing_rule(document, coverage, cut, cuts)
    file = open_predictions(predictions, reading) if isinstance(predictions, Path) else predictions
    check_output(file, out)

    def write(build_columns: ColumnBuilder) -> None:
        write_with_columns(file, build_columns, out)

    return _route(document, file, rule, out, in_memory, progress, write)


def apply_to_frame(
    document: MapDocument,
    rows: FramePredictions,
    *,
    coverage: str | None = None,
    cut: float | None = None,
    cuts: Path | Mapping[str, Any] | None = None,
) -> tuple[pl.DataFrame, RoutingSummary]:
    """Score, rank and route rows in memory, as `apply_map` does with the rows of a file.

    Args:
        document: The map.
        rows: The predictions.
        coverage: See `routing_rule`.
        cut: See `routing_rule`.
        cuts: See `routing_rule`.

    Returns:
        The columns that `apply_map` adds, and a summary.

    Raises:
        InputError: A column or row cannot be read, or the rows were scored before.
    """
    n_rows = len(rows.frame)
    rule = routing_rule(document, coverage, cut, cuts)
    frames: list[pl.DataFrame] = []

    def collect(build_columns: ColumnBuilder) -> None:
        frames.append(arrow_to_polars(build_columns(0, n_rows), rows.path))

    summary = _route(document, rows, rule, rows.path, n_rows, ignore_progress, collect)
    return frames[0], summary


def route_scores(
    document: MapDocument,
    scores: RowScores,
    *,
    coverage: str | None = None,
    cut: float | None = None,
    cuts: Path | Mapping[str, Any] | None = None,
) -> dict[str, np.ndarray]:
    """Rank and route rows that have been scored together, as `apply_map` does with the rows of a file.

    Args:
        document: The map.
        scores: The scores of each row.
        coverage: See `routing_rule`.
        cut: See `routing_rule`.
        cuts: See `routing_rule`.

    Returns:
        The columns that `apply_map` adds, by name and in their order, each of shape (n,).

    Raises:
        InputError: `coverage`, `cut` or `cuts` is out of range.
    """
    rule = routing_rule(document, coverage, cut, cuts)
    decision = scores.decision
    rank = rank_by_logit(scores.logit)
    reliability = scipy.special.expit(scores.logit)
    is_automatic = rule.are_automatic(decision, reliability, rank, len(rank))
    columns = {"decision": decision}
    if document.label_names is not None:
        columns["decision_name"] = np.array(document.label_names)[decision]
    columns["confidence"] = scores.confidence
    columns["reliability"] = reliability
    columns["review_rank"] = rank
    columns["route"] = np.where(is_automatic, "automatic", "review")
    return columns


def _route(
    document: MapDocument,
    file: Predictions,
    rule: RoutingRule,
    neighbor: Path,
    in_memory: int,
    progress: Progress,
    write: Callable[[ColumnBuilder], None],
) -> RoutingSummary:
    """Score and rank the rows of a file, then call `write` with a function that returns the added columns of rows.

    `write` must request the columns of all rows in their order. Temporary files are in the folder of `neighbor`.

    Returns:
        Summary of the routes.
    """
    layout = find_map_layout(document, file)
    names = _added_names(document, file, layout)
    scores = score_in_pieces(document, file, layout, progress)
    with rank_rows(scores, neighbor, in_memory=in_memory) as ranking:
        router = _Router(document, rule, ranking, names, progress)
        write(router.build_columns)
    notes = [*reading_notes(file)]
    label = file.reading.label or "label"
    if label in file.schema.names:
        notes.append(f"The rows have labels in the column {label}; to compare the map with them, use evaluate.")
    if isinstance(file, ParquetPredictions) and not file.has_checksums():
        notes.append(NO_CHECKSUMS)
    notes += rule.notes_for(ranking.n_rows)
    return router.summarize(notes)


class _Router:
    """Computes the columns that are added to the rows of a file, and counts the rows by route.

    Args:
        document: The map.
        rule: Which decisions are automatic.
        ranking: Scores and ranks of all rows.
        names: Name in the output of each added column.
        progress: Called with the stage and the number of rows of each piece.
    """

    def __init__(
        self, document: MapDocument, rule: RoutingRule, ranking: Ranking, names: Mapping[str, str], progress: Progress
    ) -> None:
        self._document = document
        self._rule = rule
        self._ranking = ranking
        self._names = names
        self._progress = progress
        self._n_automatic = 0
        self._n_below_half = 0
        self._sum_of_reliability = 0.0
        self._min_reliability = inf
        self._decision_counts = np.zeros(document.n_labels)
        self._ranges = ranges_of(document)
        self._range_counts = np.zeros(len(self._ranges) + 1)

    def build_columns(self, first: int, count: int) -> pa.RecordBatch:
        """Return the columns that are added to `count` rows from row `first` on, and count these rows by route."""
        rows = self._ranking.rows(first, count)
        decision = rows["decision"].to_numpy()
        reliability = scipy.special.expit(rows["logit"].to_numpy())
        is_automatic = self._rule.are_automatic(decision, reliability, rows["rank"].to_numpy(), self._ranking.n_rows)
        self._count(decision, reliability, is_automatic)
        values: dict[str, pa.Array] = {
            "decision": _to_arrow(decision.astype(np.int64)),
            "confidence": rows["confidence"].to_arrow(),
            "reliability": _to_arrow(reliability),
            "review_rank": rows["rank"].to_arrow(),
            "route": _to_arrow(("review", "automatic")).take(_to_arrow(is_automatic.astype(np.int8))),
        }
        if self._document.label_names is not None:
            values["decision_name"] = _to_arrow(self._document.label_names).take(_to_arrow(decision))
        self._progress("written", count)
        return pa.record_batch({name: values[key] for key, name in self._names.items()})

    def _count(self, decision: np.ndarray, reliability: np.ndarray, is_automatic: np.ndarray) -> None:
        automatic_reliability = reliability[is_automatic]
        in_range = np.searchsorted(self._ranges, reliability, side="right")
        self._range_counts = self._range_counts + np.bincount(in_range, minlength=len(self._range_counts))
        self._n_automatic += len(automatic_reliability)
        self._sum_of_reliability += float(automatic_reliability.sum())
        self._n_below_half += int((automatic_reliability < DEFAULT_THRESHOLD).sum())
        self._min_reliability = min(self._min_reliability, automatic_reliability.min(initial=inf))
        self._decision_counts = self._decision_counts + np.bincount(decision, minlength=self._document.n_labels)

    def summarize(self, notes: Sequence[str]) -> RoutingSummary:
        """Summarize the rows whose columns were requested."""
        pooled_labels = {}
        for label, fallback in enumerate(self._document.projection.fallback):
            if fallback != "none":
                pooled_labels[label] = int(self._decision_counts[label])
        labels_without_threshold = {}
        for label in np.flatnonzero(np.isinf(self._rule.thresholds)).tolist():
            labels_without_threshold[label] = int(self._decision_counts[label])
        min_reliability = None
        expected_accuracy = None
        if self._n_automatic:
            min_reliability = float(self._min_reliability)
            expected_accuracy = self._sum_of_reliability / self._n_automatic
        return RoutingSummary(
            rows=self._ranking.n_rows,
            automatic=self._n_automatic,
            min_reliability=min_reliability,
            expected_accuracy=expected_accuracy,
            below_half=self._n_below_half,
            pooled_labels=pooled_labels,
            labels_without_threshold=labels_without_threshold,
            notes=tuple(notes),
            changes=find_clear_changes(self._document, self._decision_counts, self._range_counts),
            threshold=self._rule.only_threshold,
        )


def default_threshold(document: MapDocument) -> float:
    """Return the threshold of a map.

    Args:
        document: The map.

    Returns:
        Minimum reliability of automatic rows if no other threshold is given; 0.5 for a map without one.
    """
    return DEFAULT_THRESHOLD if document.default_threshold is None else document.default_threshold


def routing_rule(
    document: MapDocument,
    coverage: str | None = None,
    cut: float | None = None,
    cuts: Path | Mapping[str, Any] | None = None,
) -> RoutingRule:
    """Build the rule by which decisions are automatic.

    Args:
        document: The map.
        coverage: Share of automatic rows in [0, 1], as text, so that it is exact.
        cut: Minimum reliability of automatic rows, in [0, 1].
        cuts: Output of `thresholds`, or its file. Without `coverage`, `cut` and `cuts`, the threshold of the map is
            used.

    Returns:
        The rule.

    Raises:
        InputError: A value is out of range, or `cuts` is given together with `coverage` or `cut`.
    """
    if cuts is not None:
        if coverage is not None or cut is not None:
            raise InputError(
                "the output of `thresholds` cannot be combined with a cut or a coverage; omit the output or these"
            )
        thresholds = read_label_thresholds(document, cuts)
        return RoutingRule(Fraction(1), thresholds, (_describe_thresholds(thresholds, document.shown_names),))
    if cut is not None and not 0 <= cut <= 1:
        raise InputError(f"the cut is {cut}; it must be a reliability in [0, 1]")
    if coverage is not None:
        return RoutingRule(_parse_coverage(coverage), np.full(document.n_labels, cut or 0.0))
    if cut is not None:
        return RoutingRule(Fraction(1), np.full(document.n_labels, cut))
    notes = (NO_THRESHOLD,) if document.default_threshold is None else ()
    return RoutingRule(Fraction(1), np.full(document.n_labels, default_threshold(document)), notes)


def _describe_thresholds(thresholds: np.ndarray, names: Sequence[str]) -> str:
    """Say which thresholds of a file are used: one for all labels, or one for each."""
    if (thresholds == thresholds[0]).all():
        return (
            f"The threshold for all decisions is used: a reliability of {thresholds[0]:.4g} or more, for every label."
        )
    by_label = []
    for name, threshold in zip(names, thresholds.tolist(), strict=True):
        by_label.append(f"{name} {'none' if threshold == inf else f'{threshold:.4g}'}")
    return f"Each label has its own threshold: {join_names(by_label)}."


def _parse_coverage(coverage: str) -> Fraction:
    """Parse a decimal number in [0, 1] exactly."""
    text = coverage.strip()
    if len(text) < MAX_DECIMAL_CHARACTERS and DECIMAL.fullmatch(text):
        share = Fraction(text)
        if share <= 1:
            return share
    raise InputError(f"the coverage is {text!r}; it must be a number in [0, 1] such as {EXAMPLE_COVERAGE}")


def _added_names(document: MapDocument, file: Predictions, layout: Layout) -> dict[str, str]:
    """Return the name in the output of each column that is added.

    Raises:
        InputError: The input has a column with one of these names.
    """
    existing = file.schema.names
    names = {name: name for name in ADDED_COLUMNS}
    if "decision" in existing:
        names["decision"] = "decision_code"
    if "confidence" in existing:
        names["confidence"] = "calibrated_confidence"
    if _has_decision_codes(document, file, layout):
        del names["decision"]
    if document.label_names is None:
        del names["decision_name"]
    conflicts = [name for name in names.values() if name in existing]
    if conflicts:
        raise InputError(
            f"{file.path} already has the column {', '.join(conflicts)}, which apply adds; drop or rename it. If this "
            "file is an output of apply, give the original file"
        )
    return names


def _has_decision_codes(document: MapDocument, file: Predictions, layout: Layout) -> bool:
    """Return whether the column `decision` of the file has label numbers 0..K-1."""
    if layout.decision != "decision" or not pa.types.is_integer(file.schema.field("decision").type):
        return False
    codes = tuple(str(label) for label in range(document.n_labels))
    return document.label_names == codes or not has_numeric_name(document.label_names)


def _to_arrow(values: np.ndarray | Sequence[str]) -> pa.Array:
    """Convert numbers or texts to Arrow with polars, since `pyarrow.array` would import pandas."""
    array = pl.Series(values).to_arrow()
    return array.cast(pa.string()) if pa.types.is_large_string(array.type) else array
