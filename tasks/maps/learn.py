"""Labelled predictions to a whole reliability map: fitted, chosen, and described for those who will rely on it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import ValidationError

from tasks.calibrators import calibrators_for
from tasks.maps.choose import AUTO, Difference, check_names, choose_map, recalibration
from tasks.maps.document import Calibration, HeldOut, MapDocument, Projection, Source
from tasks.maps.drift import reference
from tasks.maps.evaluate import spread_and_shuffled
from tasks.maps.labelled import Parts, cut
from tasks.maps.reliability_map import ReliabilityMap
from tasks.predictions.rows import PredictedRows, listed
from tasks.projection.variants import SIMPLEST_FIRST, VARIANTS
from tasks.protocol.errors import BadInput, mistakes
from tasks.protocol.params import MetricParams, Params


@dataclass(frozen=True, eq=False)
class Learned:
    """A map, and what else the rows said."""

    document: MapDocument
    recalibrated: Difference | None  # log loss of matrix scaling alone less that of the map; None where there is none
    moved: float  # share of rows that matrix scaling would decide otherwise
    accuracy: float  # of the decisions on all rows
    commonest: float  # share of the commonest true label
    silent: tuple[str, ...]  # labels that no row decides, or that are the truth of none

    def in_words(self) -> list[str]:
        """The recommendation, what it was chosen from, how many labelled rows it takes, and what to beware of."""
        choice, decided = self.document.choice, f"Of the decisions {100 * self.accuracy:.1f}% are correct."
        lines = [f"{'Recommendation' if choice.asked == AUTO else 'Map'}: {choice.reason}."]
        for part in (_of_candidates, _of_spread, _of_fallbacks, _of_gains):
            lines += part(self.document)
        doubts = [f"Never decided, or never the true label: {listed(self.silent)}."] if self.silent else []
        if self.accuracy < self.commonest:
            doubts.append(f"Always deciding the commonest label would be right in {100 * self.commonest:.1f}%.")
        if doubts:
            doubts.append("Are the labels numbered as they should be?")
        return [*lines, *self._of_recalibration(), " ".join([decided, *doubts])]

    def _of_recalibration(self) -> list[str]:
        rival, keeps = self.recalibrated, self.document.projection.name == "confidence"
        if rival is None or rival.mean > rival.standard_error or (keeps and rival.mean >= -rival.standard_error):
            return []  # who keeps the confidence changes it only for a better one
        return [
            "If your probabilities may change, recalibrate with matrix scaling instead (--calibrator matrix): the log "
            f"loss of its confidence alone is {rival.mean:+.4f} (standard error {rival.standard_error:.4f}) from this "
            f"map's. Followed through, it would decide {100 * self.moved:.1f}% of the rows otherwise."
        ]


def learn_map(
    rows: PredictedRows,
    source: Source,
    params: Params,
    *,
    calibrator: str,
    variant: str,
    n_labels: int,
    names: Sequence[str] | None,
) -> Learned:
    """The reliability map of labelled `rows` under the protocol seed of `source`, with the settings of `params`.

    Raises
    ------
    BadInput: an unknown calibrator or variant, or too few rows, groups or labels.
    """
    check_names(calibrator, variant, confidence_only=rows.logits is None, n_labels=n_labels)
    parts = cut(rows, n_labels, source.seed, source.protocol)
    chosen, learned, choice = choose_map(parts, params, calibrator, variant)
    behind = len(parts.fit_rows(calibrator))
    try:
        calibration = Calibration(name=calibrator, rows=behind, fitted=learned.calibrator)
        projection = Projection(name=chosen, rows=len(parts.projection_fit), fitted=learned.projection)
    except ValidationError as error:
        raise BadInput(
            f"the fit is beyond what a map holds ({mistakes(error, 'fit')[0]}), as from logits that are far too large "
            "or too small; scale them, or take the calibrator ts"
        ) from None
    document = MapDocument(
        input="confidence_only" if rows.logits is None else "logits",
        n_labels=n_labels,
        label_names=tuple(names) if names else None,
        calibrator=calibration,
        projection=projection,
        choice=choice,
        held_out=held_out(learned, parts, params.metrics),
        source=source,
    )
    smallest = params.metrics.smallest_reliability
    rival = None if calibrator in calibrators_for("rival") else recalibration(learned, parts, smallest)
    assert rows.label is not None
    met = np.intersect1d(rows.decision, rows.label)
    silent = tuple(name for label, name in enumerate(document.shown_names) if label not in met)
    recalibrated, moved = rival or (None, 0.0)
    commonest = float(np.bincount(rows.label).max()) / len(rows)
    return Learned(document, recalibrated, moved, float(rows.correct.mean()), commonest, silent)


def held_out(learned: ReliabilityMap, parts: Parts, params: MetricParams) -> HeldOut:
    """What the map says of projection-selection rows: what drift and thresholds start from."""
    rows = parts.projection_selection
    scored = learned(rows)
    spread, shuffled = spread_and_shuffled(scored.confidence, rows.decision, rows.correct, params, parts.seed)
    halves, reference_cells = reference(scored.reliability, rows.decision, rows.correct, rows.group, parts.n_labels)
    return HeldOut(
        rows=len(rows),
        label_spread=spread,
        label_spread_shuffled=shuffled,
        quantiles=tuple(np.quantile(scored.reliability, np.linspace(0, 1, 101)).tolist()),
        halves=halves,
        cells=reference_cells,
    )


def _of_candidates(document: MapDocument) -> list[str]:
    if document.choice.asked != AUTO:
        return []
    lines = ["  log loss, and how far above the best (standard error):"]
    for candidate in document.choice.candidates:
        mark = "<- this one" if candidate.variant == document.projection.name else ""
        numbers = f"{candidate.nll_correct:.4f}  {candidate.above_best:+.4f} ({candidate.standard_error:.4f})"
        lines.append(f"    {candidate.variant:<16} {numbers}  {mark}".rstrip())
    if len(document.choice.candidates) < len(SIMPLEST_FIRST):
        lines.append("  Some confidences are exactly 0 or 1, and a shift or a line of the logit cannot move these.")
    return lines


def _of_spread(document: MapDocument) -> list[str]:
    spread, shuffled = document.held_out.label_spread, document.held_out.label_spread_shuffled
    if spread is None or shuffled is None:
        return ["Label spread: too few rows, or too few decided labels, to tell."]
    more = "more than" if spread > shuffled else "no more than"
    return [
        f"Label spread: at equal confidence the decided labels differ by {100 * spread:.1f} points in how often they "
        f"are right, {more} shuffled labels show (95% of shuffles: up to {100 * shuffled:.1f})."
    ]


def _of_fallbacks(document: MapDocument) -> list[str]:
    takes = {"shared": "takes the curve of all labels", "identity": "keeps its confidence"}
    labels = zip(document.shown_names, document.projection.rows_by_label, document.projection.fallback, strict=False)
    few = [f"{name} ({rows} rows) {takes[kind]}" for name, rows, kind in labels if kind in takes]
    return [f"Too few rows for a curve of its own: {listed(few)}."] if few else []


def _of_gains(document: MapDocument) -> list[str]:
    name = "mrp" if document.projection.name == "confidence" else document.projection.name
    lines = [f"What {VARIANTS[name].in_words} changes with fewer labelled rows (for each of the two fits):"]
    for gain in document.choice.gains:
        log_loss = f"log loss {gain.nll_correct:+.4f} ({gain.nll_correct_standard_error:.4f})"
        lines.append(f"    {gain.rows:>6,} rows: {log_loss}, AURC {gain.aurc:+.4f}")
    return lines
