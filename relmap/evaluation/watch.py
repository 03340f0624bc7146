"""Watch new rows without labels: are decisions, confidences and reliabilities distributed as on the fit rows?

A map stores how its fit rows are distributed: the number of rows of each decision, and in ranges of the calibrated
confidence, of the reliability and of each numeric signal. New rows are counted in the same way and compared by
Pearson's chi-squared test of homogeneity, one test for each column, with Holm's adjustment. Confidences are also
compared within each frequent decided label, because a rise for one label and a fall for another can cancel out.

If rows come in groups, counts are divided by the design effect of each column, and the statistic has an F distribution
with degrees of freedom that depend on the number of groups (Rao and Scott, 1984, On chi-squared tests for multiway
contingency tables with cell proportions estimated from survey data).

A change does not prove that reliabilities are wrong, and no change does not prove that they are right: only labels show
that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import scipy

from relmap.decisions import number_groups
from relmap.errors import InputError, option
from relmap.io.column_layout import WEIGHT_COLUMN, require_column
from relmap.io.columns import join_names, read_groups
from relmap.io.files import Predictions, read_columns, reading_notes, rows_in_file
from relmap.io.signals import NumberSignal
from relmap.maps.document import MapDocument, Seen, SeenColumn
from relmap.maps.held_out import accuracy_of_cells
from relmap.maps.score import find_group_column, ignore_progress, score_file
from relmap.maps.seen import CONFIDENCE, DECISION, RELIABILITY, count_codes
from relmap.metrics.intervals import holm_adjust

MIN_EXPECTED = 5.0  # rows of a range, below which it is joined with its neighbour
LEVEL = 0.01  # probability of a false alarm
MIN_ROWS = 20
MIN_DIFFERENCE = 0.05  # share of rows in another range, below which a routing command prints no warning
POWER = 0.8  # probability with which a change of `WatchResult.detectable_change` is found


class ColumnCounts(NamedTuple):
    """Counts of new rows.

    Attributes:
        counts: Number of rows of each decision, or in each range.
        effect: Design effect of their groups; None to assume that of the fit rows.
        n_groups: Number of their groups; None to assume that of the fit rows.
    """

    counts: np.ndarray
    effect: float | None = None
    n_groups: int | None = None


@dataclass(frozen=True)
class ColumnChange:
    """A column of new rows, compared with the fit rows.

    Attributes:
        column: Name of the column.
        label: Decided label 0..K-1 whose rows are compared; None for all rows.
        p_value: p-value of no change, adjusted for all columns; 1 if there are too few rows for a test.
        place: Where the shares differ most: a decided label, or a limit of the column.
        share_fit: Share of the fit rows there: with this decision, or at or above this limit.
        share_new: The same share of the new rows.
        edges: Limits of the ranges; empty for the decision.
        shares_fit: Share of the fit rows of each decision, or in each range.
        shares_new: The same shares of the new rows.
    """

    column: str
    label: int | None
    p_value: float
    place: int | float
    share_fit: float
    share_new: float
    edges: tuple[float, ...]
    shares_fit: tuple[float, ...]
    shares_new: tuple[float, ...]

    @property
    def moved(self) -> float:
        """Share of the rows that are in another range than on the fit rows, in [0, 1]."""
        return float(np.abs(np.subtract(self.shares_new, self.shares_fit)).sum() / 2)

    def title(self, names: Sequence[str]) -> str:
        """Name what is compared.

        Args:
            names: Names of the labels 0..K-1.

        Returns:
            The column, and the label whose rows are compared.
        """
        return self.column if self.label is None else f"{self.column} of rows decided {names[self.label]}"

    def describe(self, names: Sequence[str]) -> str:
        """Describe where the shares differ most.

        Args:
            names: Names of the labels 0..K-1.

        Returns:
            A phrase.
        """
        if self.column == DECISION:
            what = f"decided {names[int(self.place)]}"
        else:
            what = f"{self.column} at least {self.place:.4g}"
        rows = "" if self.label is None else f" decided {names[self.label]}"
        return f"{what}: {self.share_fit:.1%} of the fit rows{rows}, {self.share_new:.1%} of the new rows{rows}"

    def as_json(self, names: Sequence[str], level: float) -> dict[str, Any]:
        """Convert the numbers for JSON.

        Args:
            names: Names of the labels 0..K-1.
            level: Largest p-value of a change.

        Returns:
            Numbers and names.
        """
        return {
            "column": self.column,
            "rows_decided": None if self.label is None else names[self.label],
            "changed": self.p_value <= level,
            "p": self.p_value,
            "place": self.place,
            "place_label": names[int(self.place)] if self.column == DECISION else None,
            "share_fit": self.share_fit,
            "share_new": self.share_new,
        }


@dataclass(frozen=True)
class WatchResult:
    """New rows without labels, compared with the fit rows of a map.

    Attributes:
        rows: Number of new rows.
        columns: The compared columns, the most significant first.
        automatic_fit: Share of the fit rows that reach the default threshold of the map; None if other thresholds are
            given.
        automatic_new: Share of the new rows that reach their threshold.
        thresholds: Phrase that names the thresholds.
        accuracy_fit: Accuracy of the fit rows; None if the map does not store it.
        expected_accuracy: Mean reliability of the new rows.
        expected_automatic: Mean reliability of the new rows that reach the threshold; None without such rows.
        detectable_change: Change of the share of one decision that is found with the probability `POWER`, for the label
            that needs the largest change; None if the shares of the decisions cannot be tested.
        notes: Sentences on how the rows were read.
        level: Probability of a false alarm.
    """

    rows: int
    columns: tuple[ColumnChange, ...]
    automatic_fit: float | None
    automatic_new: float
    thresholds: str
    accuracy_fit: float | None
    expected_accuracy: float
    expected_automatic: float | None
    detectable_change: float | None
    notes: tuple[str, ...] = ()
    level: float = LEVEL

    @property
    def changed(self) -> tuple[ColumnChange, ...]:
        """Columns that changed."""
        return tuple(change for change in self.columns if change.p_value <= self.level)

    def describe(self, names: Sequence[str]) -> list[str]:
        """Describe the comparison.

        Args:
            names: Names of the labels 0..K-1.

        Returns:
            At most eight sentences; the first is the answer.
        """
        if self.changed:
            changed = join_names([change.title(names) for change in self.changed])
            lines = [
                f"The {self.rows:,} new rows differ from the fit rows in {changed}; without a change, this happens "
                f"with a probability of at most {self.level:.0%}."
            ]
            lines += [f"  {change.describe(names)}" for change in self.changed[:4]]
            lines.append(
                "Label a sample of them (relmap label), and test whether the reliabilities still hold (evaluate)."
            )
        else:
            lines = [
                f"The {self.rows:,} new rows are distributed like the fit rows, as far as a test can tell.",
                self._describe_power(),
            ]
        fit_share = "" if self.automatic_fit is None else f"; {self.automatic_fit:.1%} of the fit rows do"
        lines.append(f"{self.automatic_new:.1%} reach {self.thresholds}{fit_share}.")
        accuracy = f"{self.expected_accuracy:.1%} of all decisions"
        if self.expected_automatic is not None:
            accuracy += f", and {self.expected_automatic:.1%} of the automatic ones"
        at_fit = "" if self.accuracy_fit is None else f" At the fit, {self.accuracy_fit:.1%} of all were correct."
        lines.append(
            f"If the reliabilities still hold, {accuracy} are correct.{at_fit} Only labels can show whether they hold."
        )
        return lines

    def _describe_power(self) -> str:
        """Describe which changes the test finds."""
        if self.detectable_change is None:
            return (
                "The shares of the decisions cannot be tested: there are too few rows, or nearly all have the same "
                "decision."
            )
        return (
            f"With {self.rows:,} rows, a change of the share of a decision by about "
            f"{max(100 * self.detectable_change, 1):.0f} percentage points or more is found with a probability of "
            f"{POWER:.0%}; smaller changes can remain unnoticed."
        )

    def as_json(self, names: Sequence[str]) -> dict[str, Any]:
        """Convert the numbers for JSON.

        Args:
            names: Names of the labels 0..K-1.

        Returns:
            Numbers and names.
        """
        return {
            "rows": self.rows,
            "changed": bool(self.changed),
            "level": self.level,
            "automatic_fit": self.automatic_fit,
            "automatic_new": self.automatic_new,
            "accuracy_fit": self.accuracy_fit,
            "expected_accuracy": self.expected_accuracy,
            "expected_automatic_accuracy": self.expected_automatic,
            "detectable_change": self.detectable_change,
            "columns": [change.as_json(names, self.level) for change in self.columns],
        }


Counts = Mapping[tuple[str, int | None], ColumnCounts]  # by column, and the label whose rows are counted


def compare_counts(seen: Seen, counts: Counts) -> tuple[ColumnChange, ...]:
    """Compare the counts of new rows with those of the fit rows.

    Args:
        seen: How the fit rows are distributed.
        counts: Counts of the new rows; other columns are not compared.

    Returns:
        The compared columns, the most significant first.
    """
    compared = [column for column in seen.columns if (column.column, column.label) in counts]
    p_values = []
    for column in compared:
        p_values.append(_homogeneity_p_value(column, counts[column.column, column.label], seen.groups))
    adjusted = np.nan_to_num(holm_adjust(np.array(p_values)), nan=1.0).tolist()
    changes = []
    for column, p_value in zip(compared, adjusted, strict=True):
        changes.append(_describe_change(column, counts[column.column, column.label].counts, p_value))
    return tuple(sorted(changes, key=lambda change: change.p_value))


def find_clear_changes(
    document: MapDocument, decision_counts: np.ndarray, reliability_counts: np.ndarray
) -> tuple[ColumnChange, ...]:
    """Find out, where rows are routed, whether they are clearly distributed differently from the fit rows.

    Args:
        document: The map.
        decision_counts: Number of new rows of each decided label, shape (K,).
        reliability_counts: Number of new rows in each range of the reliability that the map stores.

    Returns:
        The columns that changed, the most significant first; empty if nothing changed clearly, or the map stores no
        ranges.
    """
    if document.seen is None or decision_counts.sum() < MIN_ROWS:
        return ()
    counts: Counts = {
        (DECISION, None): ColumnCounts(decision_counts),
        (RELIABILITY, None): ColumnCounts(reliability_counts),
    }
    changes = compare_counts(document.seen, counts)
    if max(change.moved for change in changes) < MIN_DIFFERENCE:
        return ()
    return tuple(change for change in changes if change.p_value <= LEVEL)


def ranges_of(document: MapDocument) -> np.ndarray:
    """Return the limits of the ranges of the reliability that a map stores; empty without any."""
    if document.seen is not None:
        for seen in document.seen.columns:
            if seen.column == RELIABILITY:
                return np.array(seen.edges)
    return np.empty(0)


def _homogeneity_p_value(seen: SeenColumn, new: ColumnCounts, groups_fit: int | None) -> float:
    """Return the p-value of the test that the shares of fit rows and new rows are equal; NaN with too few rows."""
    table = _effective_counts(seen, new)
    if table.shape[1] < 2:
        return np.nan
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
    statistic = float(((table - expected) ** 2 / expected).sum())
    dof = table.shape[1] - 1
    known_groups = [number for number in (groups_fit, new.n_groups) if number is not None]
    # functions of scipy.special: `apply` calls this, and importing scipy.stats takes longer than the rest of it
    if not known_groups:
        return float(scipy.special.chdtrc(dof, statistic))
    n_groups = 2 * sum(known_groups) / len(known_groups)  # rows with unknown groups are assumed to have as many
    return float(scipy.special.fdtrc(dof, max(n_groups - 2, 1), statistic / dof))


def find_detectable_change(seen: SeenColumn, new: ColumnCounts, n_tests: int) -> float | None:
    """Compute the change of one share that the test finds with the probability `POWER`.

    If a share p changes by δ, the statistic has a noncentral chi-squared distribution whose noncentrality is at least
    δ² / (p (1 - p) (1 / n_fit + 1 / n_new)). It is this large if the other shares change in proportion.

    Args:
        seen: Distribution of the fit rows.
        new: Counts of the new rows.
        n_tests: Number of columns that are tested together.

    Returns:
        The change δ for the share that needs the largest one; None if the shares cannot be tested.
    """
    table = _effective_counts(seen, new)
    dof = table.shape[1] - 1
    if dof < 1:
        return None
    critical_value = scipy.special.chdtri(dof, LEVEL / n_tests)
    noncentrality = scipy.special.chndtrinc(critical_value, dof, 1 - POWER)
    share = table.sum(axis=0) / table.sum()
    largest_variance = (share * (1 - share)).max()
    return float(np.sqrt(noncentrality * largest_variance * (1 / table.sum(axis=1)).sum()))


def _effective_counts(seen: SeenColumn, new: ColumnCounts) -> np.ndarray:
    """Return the effective numbers of fit rows and new rows, shape (2, R), with rare ranges joined."""
    effect = seen.effect if new.effect is None else new.effect
    return _join_rare(np.vstack([np.array(seen.counts) / seen.effect, new.counts / effect]))


def _join_rare(table: np.ndarray) -> np.ndarray:
    """Join ranges, from the first on, until each is expected to have `MIN_EXPECTED` rows in both samples."""
    share = table.sum(axis=0) / table.sum()
    smallest = table.sum(axis=1).min()
    joined: list[np.ndarray] = []
    waiting = np.zeros(2)
    expected = 0.0
    for column, column_share in zip(table.T, share, strict=True):
        waiting = waiting + column
        expected += column_share * smallest
        if expected >= MIN_EXPECTED:
            joined.append(waiting)
            waiting = np.zeros(2)
            expected = 0.0
    if waiting.any():
        if joined:
            joined[-1] = joined[-1] + waiting
        else:
            joined.append(waiting)
    return np.array(joined).T


def _describe_change(seen: SeenColumn, new: np.ndarray, p_value: float) -> ColumnChange:
    """Find where the shares differ most: at a decision, or at a limit of the column."""
    fit_share = np.array(seen.counts) / sum(seen.counts)
    new_share = new / max(new.sum(), 1)
    if seen.column == DECISION:
        label = int(np.abs(new_share - fit_share).argmax())
        place: int | float = label
        share_fit = fit_share[label]
        share_new = new_share[label]
    elif not seen.edges:
        place, share_fit, share_new = 0.0, 1.0, 1.0
    else:
        above_fit = 1 - np.cumsum(fit_share)[:-1]
        above_new = 1 - np.cumsum(new_share)[:-1]
        index = int(np.abs(above_new - above_fit).argmax())
        place = seen.edges[index]
        share_fit = above_fit[index]
        share_new = above_new[index]
    return ColumnChange(
        column=seen.column,
        label=seen.label,
        p_value=p_value,
        place=place,
        share_fit=float(share_fit),
        share_new=float(share_new),
        edges=seen.edges,
        shares_fit=tuple(fit_share.tolist()),
        shares_new=tuple(new_share.tolist()),
    )


def watch_file(
    document: MapDocument,
    file: Predictions,
    group: str | None = None,
    *,
    thresholds: np.ndarray | None = None,
) -> WatchResult:
    """Compare the rows of a file with the fit rows of a map; labels are not read.

    Args:
        document: The map.
        file: The predictions.
        group: Column of groups; None for the column of the fit, if the file has it.
        thresholds: Minimum reliability of automatic rows of each decided label, shape (K,); None for the default
            threshold of the map.

    Returns:
        The comparison.

    Raises:
        InputError: A row cannot be read, there are too few rows, the rows have sampling weights, or the map was written
            by an earlier version.
    """
    if document.seen is None:
        raise InputError(
            "this map was written by an earlier version and does not store how its rows are distributed; fit it again"
        )
    names = file.schema.names
    if WEIGHT_COLUMN in names:
        raise InputError(
            f"{file.path} has sampling weights in {WEIGHT_COLUMN}, so its rows are not distributed like all new rows; "
            "watch the file that they were sampled from"
        )
    if group is not None:
        require_column(names, str(file.path), "group", group)
    group, notes = find_group_column(
        document,
        file,
        group,
        without=f"its groups are assumed to be like those of the fit rows; name their column with {option('group')}",
    )
    scores = score_file(document, file, ignore_progress).scores
    if scores.is_empty():
        raise InputError(f"{file.path} has no rows, so nothing was tested; watch needs at least {MIN_ROWS} rows")
    if len(scores) < MIN_ROWS:
        raise InputError(f"{file.path} has {len(scores):,} rows; watch needs at least {MIN_ROWS}")
    decision = scores["decision"].to_numpy()
    reliability = scipy.special.expit(scores["logit"].to_numpy())
    values = {CONFIDENCE: scores["confidence"].to_numpy(), RELIABILITY: reliability}
    signals = [signal for signal in document.signals if isinstance(signal, NumberSignal) and signal.name in names]
    wanted = [signal.name for signal in signals]
    if group is not None:
        wanted.append(group)
    frame = read_columns(file, list(dict.fromkeys(wanted))) if wanted else pl.DataFrame()
    for signal in signals:
        values[signal.name] = signal(frame[signal.name], rows_in_file(file))[:, 0]
    groups = None
    if group is not None:
        groups = number_groups(read_groups(frame[group], rows_in_file(file)))
    counts = _count_columns(document.seen, decision, values, groups)
    columns = compare_counts(document.seen, counts)
    decisions = next(seen for seen in document.seen.columns if seen.column == DECISION)
    described = "the given thresholds"
    if thresholds is None:
        thresholds = np.full(document.n_labels, document.default_threshold or 0.0)
        described = f"the default threshold of the map ({thresholds[0]:.4g})"
        automatic_fit = document.seen.automatic
    else:
        automatic_fit = None
    is_automatic = reliability >= thresholds[decision]
    return WatchResult(
        rows=len(scores),
        columns=columns,
        automatic_fit=automatic_fit,
        automatic_new=float(is_automatic.mean()),
        thresholds=described,
        accuracy_fit=_accuracy_of_fit_rows(document, decisions),
        expected_accuracy=float(reliability.mean()),
        expected_automatic=float(reliability[is_automatic].mean()) if is_automatic.any() else None,
        detectable_change=find_detectable_change(decisions, counts[DECISION, None], len(counts)),
        notes=(*reading_notes(file), *notes),
    )


def _count_columns(
    seen: Seen, decision: np.ndarray, values: Mapping[str, np.ndarray], groups: np.ndarray | None
) -> Counts:
    """Count new rows by decision, and in the ranges of each column that they have."""
    counts: dict[tuple[str, int | None], ColumnCounts] = {}
    for column in seen.columns:
        if column.column == DECISION:
            code = decision
        elif column.column in values:
            code = np.searchsorted(column.edges, values[column.column], side="right")
        else:
            continue
        is_counted = np.ones(len(decision), dtype=bool) if column.label is None else decision == column.label
        groups_of_rows = None if groups is None else groups[is_counted]
        counts[column.column, column.label] = _count_new_rows(code[is_counted], len(column.counts), groups_of_rows)
    return counts


def _count_new_rows(code: np.ndarray, n_codes: int, groups: np.ndarray | None) -> ColumnCounts:
    """Count new rows by the number of their range or label."""
    if groups is None or not len(code):
        return ColumnCounts(np.bincount(code, minlength=n_codes).astype(float))
    counts, effect = count_codes(code, n_codes, None, groups)
    return ColumnCounts(np.array(counts), effect, len(np.unique(groups)))


def _accuracy_of_fit_rows(document: MapDocument, decisions: SeenColumn) -> float | None:
    """Return the accuracy of the fit rows; None if they have weights, or the map does not store all of them."""
    held_out = document.held_out
    are_weighted = not np.isclose(sum(decisions.counts), held_out.rows)  # their effective number is smaller
    if are_weighted or sum(cell.rows for cell in held_out.cells) < held_out.rows:
        return None
    return accuracy_of_cells(held_out.cells)
