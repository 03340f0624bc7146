"""Apply a reliability map to a file of predictions, however long: which decisions to use, and which to review first.

The file is read twice, a piece at a time: once for the reliability of each row, and once more when all are ranked.
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
from relmap.io.columns import are_numbers, listed
from relmap.io.files import ParquetPredictions, Predictions, notes_on, opened
from relmap.io.frames import FramePredictions, as_frame
from relmap.io.output import Added, check_output, write_beside
from relmap.io.ranking import IN_MEMORY, ranked
from relmap.io.reading import AS_NAMED, Layout, Reading
from relmap.maps.document import MapDocument
from relmap.maps.scoring import Progress, layout_of, scores_of, unwatched
from relmap.routing.cuts import cuts_by_label

COVERAGE = "0.7"  # an example
SMALL_BATCH = 100  # rows
NO_THRESHOLD = "This map was written by an earlier version and has no threshold of its own, so 0.5 is used."
UNVERIFIED = "The predictions have no page checksums, or not everywhere: a flipped bit in them goes unseen."
EVEN = 0.5  # below it another label may be likelier
DECIMAL = re.compile(r"(\d+\.?\d*|\.\d+)(e[+-]?\d{1,2})?", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class RoutingRule:
    """Which decisions are automatic: those that are in the share and reach the cut of their label."""

    share: Fraction  # of the rows that are given together, the most reliable ones
    cuts: np.ndarray  # (K,) least reliability of each label; infinite where all of its rows go to review
    notes: tuple[str, ...] = ()

    def are_automatic(self, decision: np.ndarray, reliability: np.ndarray, rank: np.ndarray, n_rows: int) -> np.ndarray:
        """Tell which decisions are used as they are.

        Args:
            decision: Decided labels, shape (m,).
            reliability: Their reliability, shape (m,).
            rank: Their ranks among all rows, shape (m,); 1 is the least reliable row.
            n_rows: Number of all rows.

        Returns:
            Boolean array of shape (m,).
        """
        last_reviewed = n_rows - floor(self.share * n_rows)
        return np.asarray((rank > last_reviewed) & (reliability >= self.cuts[decision]))

    def notes_on(self, rows: int) -> tuple[str, ...]:
        """Return what a person should know about the rule for so many rows."""
        if self.share == 1 or not 0 < rows < SMALL_BATCH:
            return self.notes
        few = (
            f"A coverage is a share of the rows that are given together, and here are only {rows}: the route of a row "
            "depends on the others. For single rows or small batches, use the threshold of the map or a cut."
        )
        return (*self.notes, few)


@dataclass(frozen=True)
class Applied:
    """What was written."""

    rows: int
    automatic: int  # rows whose decision is used as it is
    lowest_automatic: float | None  # the lowest reliability among them; None if there are none
    expected: float | None  # share of them that is correct, as the map sees it
    doubtful: int  # of them, those that are likelier wrong than correct
    leaning: dict[int, int]  # label that leans on the others, for want of rows at the fit -> rows that decide it
    uncut: dict[int, int]  # label without a cut of its own, where others have one -> rows that decide it
    notes: tuple[str, ...] = ()  # on how the file was read

    def in_words(self, names: Sequence[str]) -> list[str]:
        """What is automatic, and which labels the map knows too little of."""
        lines = [f"All {self.rows:,} rows go to review."]
        if self.lowest_automatic is not None:
            lines = [
                f"{self.automatic:,} of {self.rows:,} rows ({self.automatic / self.rows:.1%}) are automatic: a "
                f"reliability of {self.lowest_automatic:.4g} or more, {self.expected:.1%} of them correct by the map. "
                "Review the rest."
            ]
        if self.doubtful:
            other = f": the other label, of {' and '.join(names)}, is likelier" if len(names) == 2 else ""
            lines.append(
                f"Beware: {self.doubtful:,} automatic decisions are less likely right than wrong{other}. "
                "A cut of 0.5 or more sends them to review."
            )
        without = {
            "No curve of their own, since the map was fitted on few rows of them or none": self.leaning,
            "No cut of their own, so that all their rows go to review": self.uncut,
        }
        for why, labels in without.items():
            if rare := [f"{names[label]} ({rows:,} rows)" for label, rows in labels.items() if rows]:
                lines.append(f"{why}: {listed(rare)}.")
        return [*self.notes, *lines]


def apply_map(
    document: MapDocument,
    predictions: Path,
    out: Path,
    *,
    coverage: str | None = None,
    cut: float | None = None,
    cuts: Path | None = None,
    in_memory: int = IN_MEMORY,
    progress: Progress = unwatched,
    reading: Reading = AS_NAMED,
) -> Applied:
    """Write the rows of `predictions` to `out`, untouched and in order, with what the map says of them.

    Added are `decision` (int64; not where the file has one of numbers 0..K-1, `decision_code` where it has one of
    names), `decision_name` (where the map has names), `confidence` (calibrated; `calibrated_confidence` where the file
    has a confidence), `reliability` (float64), `review_rank` (int64; 1 = lowest reliability, review it first; ties by
    row order) and `route`, `automatic` or `review`.
    Of n rows the floor(coverage * n) most reliable ones are automatic, `coverage` being a decimal number in [0, 1],
    taken exactly; or those whose reliability is at least `cut`; or what both allow. Or they are those whose reliability
    reaches the cut of their label, or of all, in the file `cuts` that `thresholds` wrote. If nothing is asked for, the
    threshold that the map has from its fit decides row by row: the route of a row does not depend on the others.
    Beyond `in_memory` rows memory does not grow; temporary files beside `out` then take about 50 bytes a row.
    `progress` is told of each piece: the stage, and its rows.

    Raises:
        InputError: a file, column or row that cannot be read, or scored before; `out` then is as it was.
    """
    rule, file = routing_rule(document, coverage, cut, cuts), opened(predictions, reading)
    check_output(file, out)
    return _applied(document, file, rule, out, in_memory, progress, lambda added: write_beside(file, added, out))


def apply_to_frame(document: MapDocument, rows: FramePredictions, **given: Any) -> tuple[pl.DataFrame, Applied]:
    """The columns that `apply_map` adds to rows in memory, `given` its coverage, cut or cuts; it raises the same."""
    made, n_rows, rule = [], len(rows.frame), routing_rule(document, **given)

    def keep(added: Added) -> None:
        made.append(as_frame(added(0, n_rows), rows.path))

    applied = _applied(document, rows, rule, rows.path, n_rows, unwatched, keep)
    return made[0], applied


def route_scores(
    document: MapDocument,
    scores: pl.DataFrame,
    *,
    coverage: str | None = None,
    cut: float | None = None,
    cuts: Path | Mapping[str, Any] | None = None,
) -> dict[str, np.ndarray]:
    """Rank and route rows that have been scored together, as `apply_map` does with those of a file.

    Args:
        document: The map.
        scores: The scores of each row, with the columns of SCORES.
        coverage: See `routing_rule`.
        cut: See `routing_rule`.
        cuts: See `routing_rule`.

    Returns:
        The columns that `apply_map` adds, by name and in their order, each of shape (n,).

    Raises:
        InputError: If `coverage`, `cut` or `cuts` is out of range.
    """
    rule = routing_rule(document, coverage, cut, cuts)
    decision, logit = scores["decision"].to_numpy().astype(np.int64), scores["logit"].to_numpy()
    rank = np.empty(len(logit), dtype=np.int64)
    rank[np.argsort(logit, kind="stable")] = np.arange(1, len(logit) + 1)
    reliability = scipy.special.expit(logit)
    automatic = rule.are_automatic(decision, reliability, rank, len(rank))
    added = {"decision": decision}
    if document.label_names is not None:
        added["decision_name"] = np.array(document.label_names)[decision]
    added["confidence"] = scores["confidence"].to_numpy()
    added["reliability"] = reliability
    added["review_rank"] = rank
    added["route"] = np.where(automatic, "automatic", "review")
    return added


def _applied(
    document: MapDocument,
    file: Predictions,
    rule: RoutingRule,
    beside: Path,
    in_memory: int,
    progress: Progress,
    write: Callable[[Added], None],
) -> Applied:
    """Let `write` ask for what is added to the rows of a file, in their order."""
    layout = layout_of(document, file)
    names = _added_names(document, file, layout)
    automatic, lowest, rows_by_label = 0, inf, np.zeros(document.n_labels, dtype=np.int64)
    expected, doubtful = 0.0, 0
    with ranked(scores_of(document, file, layout, progress), beside, in_memory=in_memory) as ranking:

        def added(first: int, count: int) -> pa.RecordBatch:
            nonlocal automatic, lowest, rows_by_label, expected, doubtful
            rows = ranking.rows(first, count)
            decision, reliability = rows["decision"].to_numpy(), scipy.special.expit(rows["logit"].to_numpy())
            used = rule.are_automatic(decision, reliability, rows["rank"].to_numpy(), ranking.n_rows)
            automatic += int(used.sum())
            expected += float(reliability[used].sum())
            doubtful += int((reliability[used] < EVEN).sum())
            lowest = min(lowest, reliability[used].min(initial=inf))
            rows_by_label = rows_by_label + np.bincount(decision, minlength=document.n_labels)
            values: dict[str, pa.Array] = {
                "decision": _arrow(decision.astype(np.int64)),
                "confidence": rows["confidence"].to_arrow(),
                "reliability": _arrow(reliability),
                "review_rank": rows["rank"].to_arrow(),
                "route": _arrow(("review", "automatic")).take(_arrow(used.astype(np.int8))),
            }
            if document.label_names is not None:
                values["decision_name"] = _arrow(document.label_names).take(_arrow(decision))
            progress("written", count)
            return pa.record_batch({name: values[key] for key, name in names.items()})

        write(added)
    bare = isinstance(file, ParquetPredictions) and not file.has_checksums()
    return Applied(
        rows=ranking.n_rows,
        automatic=automatic,
        lowest_automatic=float(lowest) if automatic else None,
        expected=expected / automatic if automatic else None,
        doubtful=doubtful,
        leaning={k: int(rows_by_label[k]) for k, kind in enumerate(document.projection.fallback) if kind != "none"},
        uncut={k: int(rows_by_label[k]) for k in np.flatnonzero(np.isinf(rule.cuts)).tolist()},
        notes=(*notes_on(file), *([UNVERIFIED] if bare else []), *rule.notes_on(ranking.n_rows)),
    )


def default_threshold(document: MapDocument) -> float:
    """Return the reliability from which a decision is used where nobody asks for another: that of the fit, or 0.5."""
    return EVEN if document.default_threshold is None else document.default_threshold


def routing_rule(
    document: MapDocument,
    coverage: str | None = None,
    cut: float | None = None,
    cuts: Path | Mapping[str, Any] | None = None,
) -> RoutingRule:
    """Return which decisions are automatic.

    Args:
        document: The map.
        coverage: Share of the rows in [0, 1], as it is typed; None if none is asked for.
        cut: Least reliability, in [0, 1]; None if none is asked for.
        cuts: What `thresholds` found; None if that is not asked for. If nothing is asked for, the rule is the map's
            own threshold.

    Raises:
        InputError: If one of them is out of range, or `cuts` is given beside another.
    """
    if cuts is not None:
        if coverage is not None or cut is not None:
            raise InputError("give the cuts that `thresholds` found, or a cut or a coverage of your own, not both")
        return RoutingRule(Fraction(1), cuts_by_label(document, cuts))
    if cut is not None and not 0 <= cut <= 1:
        raise InputError(f"the cut is {cut}; it must be a reliability in [0, 1]")
    if coverage is None:
        notes = () if cut is not None or document.default_threshold is not None else (NO_THRESHOLD,)
        threshold = default_threshold(document) if cut is None else cut
        return RoutingRule(Fraction(1), np.full(document.n_labels, threshold), notes)
    text = coverage.strip()
    share = Fraction(text) if len(text) < 50 and DECIMAL.fullmatch(text) else None
    if share is None or share > 1:
        raise InputError(f"the coverage is {text!r}; it must be a number in [0, 1] such as {COVERAGE}")
    return RoutingRule(share, np.full(document.n_labels, cut or 0.0))


def _added_names(document: MapDocument, file: Predictions, layout: Layout) -> dict[str, str]:
    """Each thing that is added, and the name of its column; InputError where the file has one of that name."""
    there = file.schema.names
    names = {name: name for name in ("decision", "decision_name", "confidence", "reliability", "review_rank", "route")}
    names |= {"decision": "decision_code"} if "decision" in there else {}
    names |= {"confidence": "calibrated_confidence"} if "confidence" in there else {}
    codes = tuple(map(str, range(document.n_labels)))
    whole = layout.decision == "decision" and pa.types.is_integer(file.schema.field("decision").type)
    if whole and (document.label_names == codes or not are_numbers(document.label_names)):
        del names["decision"]
    if document.label_names is None:
        del names["decision_name"]
    taken = [name for name in names.values() if name in there]
    if taken:
        raise InputError(
            f"{file.path} has the column {', '.join(taken)} already, which would be added; drop it or rename it "
            "(was this file scored before? then take the file that it was made from)"
        )
    return names


def _arrow(values: np.ndarray | Sequence[str]) -> pa.Array:
    """Numbers `(n,)` or texts by way of polars: `pyarrow.array` imports pandas to see whether they are its own."""
    made = pl.Series(values).to_arrow()
    return made.cast(pa.string()) if pa.types.is_large_string(made.type) else made
