"""What a person wants to know of a fresh map: the recommendation and its reason, in lines of text."""

from __future__ import annotations

from tasks.maps.choose import IN_WORDS
from tasks.maps.document import MapDocument
from tasks.maps.fit import OF_THE_LOGIT
from tasks.maps.learn import Learned
from tasks.predictions.columns import listed


def said_of_fit(learned: Learned) -> list[str]:
    """The recommendation, what it was chosen from, how many labelled rows it takes, and what to beware of."""
    document = learned.document
    lines = [f"{'Recommendation' if document.choice.asked == 'auto' else 'Map'}: {document.choice.reason}."]
    if document.choice.asked == "auto":
        lines += _of_candidates(document)
        if not {one.variant for one in document.choice.candidates} >= {*OF_THE_LOGIT}:
            lines.append("  Some confidences are exactly 0 or 1, and a shift or a line of the logit cannot move these.")
    lines += [*_of_spread(document), *_of_fallbacks(document), *_of_gains(document), *_of_recalibration(learned)]
    doubts = [f"Never decided, or never the true label: {listed(learned.silent)}."] if learned.silent else []
    if learned.accuracy < learned.commonest:
        doubts.append(f"Always deciding the commonest label would be right in {100 * learned.commonest:.1f}%.")
    if doubts:
        doubts.append("Are the labels numbered as they should be?")
    return [*lines, " ".join([f"Of the decisions {100 * learned.accuracy:.1f}% are correct.", *doubts])]


def _of_candidates(document: MapDocument) -> list[str]:
    told = ["  log loss, and how far above the best (standard error):"]
    for one in document.choice.candidates:
        mark = "<- this one" if one.variant == document.projection.name else ""
        numbers = f"{one.nll_correct:.4f}  {one.above_best:+.4f} ({one.standard_error:.4f})"
        told.append(f"    {one.variant:<16} {numbers}  {mark}".rstrip())
    return told


def _of_spread(document: MapDocument) -> list[str]:
    found, shuffled = document.held_out.label_spread, document.held_out.label_spread_shuffled
    if found is None or shuffled is None:
        return ["Label spread: too few rows, or too few decided labels, to tell."]
    told = "more than" if found > shuffled else "no more than"
    return [
        f"Label spread: at equal confidence the decided labels differ by {100 * found:.1f} points in how often they "
        f"are right, {told} shuffled labels show (95% of shuffles: up to {100 * shuffled:.1f})."
    ]


def _of_fallbacks(document: MapDocument) -> list[str]:
    takes = {"shared": "takes the curve of all labels", "identity": "keeps its confidence"}
    standing = zip(document.shown_names, document.projection.rows_by_label, document.projection.fallback, strict=False)
    few = [f"{name} ({rows} rows) {takes[kind]}" for name, rows, kind in standing if kind in takes]
    return [f"Too few rows for a curve of its own: {listed(few)}."] if few else []


def _of_gains(document: MapDocument) -> list[str]:
    name = "mrp" if document.projection.name == "confidence" else document.projection.name
    told = [f"What {IN_WORDS[name]} changes with fewer labelled rows (for each of the two fits):"]
    return told + [
        f"    {one.rows:>6,} rows: log loss {one.nll_correct:+.4f} ({one.nll_correct_standard_error:.4f}), "
        f"AURC {one.aurc:+.4f}"
        for one in document.choice.gains
    ]


def _of_recalibration(learned: Learned) -> list[str]:
    rival, kept = learned.recalibrated, learned.document.projection.name == "confidence"
    if rival is None:
        return []
    better, as_good = rival.mean < -rival.standard_error, rival.mean <= rival.standard_error
    if not (better if kept else as_good):
        return []
    return [
        "If your probabilities may change, recalibrate with matrix scaling instead (--calibrator matrix): the log loss "
        f"of its confidence alone is {rival.mean:+.4f} (standard error {rival.standard_error:.4f}) from this map's. "
        f"Followed through, it would decide {100 * learned.moved:.1f}% of the rows otherwise."
    ]
