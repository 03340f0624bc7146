"""An evaluation in plain words: the answer first, then what it rests on. Nothing is said that an interval does not."""

from typing import Any

from relmap.io.columns import listed
from relmap.maps.document import MapDocument
from relmap.metrics.advice import (
    KEEP,
    UNKNOWN,
    USE,
    Advice,
    advise_map,
    describe_evidence,
    describe_insufficient_data,
    rarer_outcome,
)
from relmap.metrics.intervals import BETTER, classify_change
from relmap.metrics.registry import METRICS
from relmap.settings import METRIC_DEFAULTS

FEW_FIT_ROWS = 200  # behind a label's curve; with fewer it is hardly better than the shared one
FEW_ERRORS = 100
LEAST_SURE = 0.3  # of the rows, whose review is told; more of them in numbers alone
OUT_OF_FOLD = "out of fold"


def verdict(
    evaluation: dict[str, Any],
    document: MapDocument,
    smallest: float = METRIC_DEFAULTS.smallest_relevant_change,
) -> list[str]:
    """Describe an evaluation in at most ten sentences.

    Args:
        evaluation: Result of `evaluate`.
        document: The map.
        smallest: Smallest relevant change.

    Returns:
        One sentence a line; the first is the recommendation.
    """
    advice = advice_of(evaluation, document, smallest)
    rests = limits(evaluation, document)
    budget = next(budget for budget in evaluation["reviews"] if budget["reviewed"] == LEAST_SURE)
    found = [budget[name] for name in ("confidence", "reliability", "low", "high")]
    if document.projection.fitted.kind == "confidence":
        by_chance = f"reviewing at random, {budget['at_random']:.0f}"
        why = [f"At the fit, the map was given {document.choice.reason}."]
        if found[0] is not None:
            why.append(f"1,000 reviews of the least sure 30% find {found[0]:.0f} errors; {by_chance}.")
        return [str(advice), *why, *rests]
    reasons = [] if advice.answer in (USE, UNKNOWN) else _reasons(evaluation, document)
    evidence = describe_evidence(found, evaluation["metrics"], smallest)
    return [str(advice), *advice.then, *evidence, *reasons, *rests]


def advice_of(
    evaluation: dict[str, Any],
    document: MapDocument,
    smallest: float = METRIC_DEFAULTS.smallest_relevant_change,
) -> Advice:
    """Return the recommendation of an evaluation; arguments are those of `verdict`."""
    if document.projection.fitted.kind == "confidence":
        return Advice(KEEP, "the map keeps it by choice")
    return advise_map(
        evaluation["metrics"],
        rows=evaluation["rows"],
        errors=evaluation["errors"],
        groups=evaluation["groups"],
        smallest=smallest,
    )


def of_others(evaluation: dict[str, Any], document: MapDocument, where: str) -> list[str]:
    """What the other candidates of the fit, and recalibrating, do on rows that are enough to say so."""
    candidates, known = evaluation["candidates"], {each.variant for each in document.choice.candidates}
    if describe_insufficient_data(evaluation["rows"], evaluation["errors"], evaluation["groups"]):
        return []
    lines = of_recalibration(evaluation["recalibrated"], document)
    if not known - {"confidence", document.projection.name}:
        return lines
    if candidates is None:
        return ["What the other candidates of the fit gain here is not known: this map does not hold them. Fit again."]
    missing = sorted(known - {each["variant"] for each in candidates})
    unheld = [f"    {name:<16} is not held by the map" for name in missing]
    return [*of_candidates(candidates, document, where), *unheld, *lines]


def of_candidates(candidates: list[dict[str, Any]], document: MapDocument, where: str) -> list[str]:
    """What each candidate gains over the confidence on rows that say `where` they are, each interval by itself."""
    lines = [f"  log loss {where}, and what it gains beside the confidence (95% interval):"]
    for candidate in candidates:
        mark = "<- this one" if candidate["variant"] == document.projection.name else ""
        numbers = f"{candidate['nll_correct']:.4f}  {0 - candidate['change']:+z.4f}"
        if candidate["low"] is not None:
            numbers += f" ({0 - candidate['high']:+z.4f} to {0 - candidate['low']:+z.4f})"
        lines.append(f"    {candidate['variant']:<16} {numbers}  {mark}".rstrip())
    return lines


def of_recalibration(beside: dict[str, Any] | None, document: MapDocument) -> list[str]:
    """Whether to recalibrate instead, where matrix scaling is known to be as good `beside` the map, or clearly better.

    Who keeps the confidence changes it only for a better one.
    """
    if beside is None or beside["low"] is None:
        return []
    better = classify_change(METRICS["nll_correct"].direction, beside["low"], beside["high"], 0) == BETTER
    if not better and (document.projection.name == "confidence" or beside["change"] > beside["standard_error"]):
        return []
    return [
        "If your probabilities may change, recalibrate with matrix scaling instead (the calibrator matrix), which "
        f"{'is clearly better' if better else 'does as well'}: the log loss of its confidence alone is "
        f"{beside['change']:+z.4f} (95% interval {beside['low']:+z.4f} to {beside['high']:+z.4f}) from this map's. "
        f"Followed through, it would decide {100 * beside['decisions_changed']:.1f}% of the rows otherwise."
    ]


def _reasons(evaluation: dict[str, Any], document: MapDocument) -> list[str]:
    """Why a map may not help: those that the numbers show."""
    decided = [label for label in evaluation["labels"] if label["rows"]]
    reasons, spread = of_leaning(document), [*evaluation["label_spread"].values()]
    if document.projection.name == "shared_1d":
        reasons.append("The map is one curve for all labels, so its order of the rows is that of the confidence.")
    own = [label for label in decided if label["fallback"] == "none" and label["fit_rows"] < FEW_FIT_ROWS]
    if own:
        few = listed([f"{label['name']} ({label['fit_rows']:,})" for label in own])
        reasons.append(f"Fewer than {FEW_FIT_ROWS} rows behind the curve in the fit: {few}.")
    if len(decided) == 1:
        reasons.append(f"Only {decided[0]['name']} is decided on these rows, so no label can differ from another.")
    elif None in spread or spread[0] <= spread[1]:
        reasons.append(of_spread(*spread))
    rarer, which = rarer_outcome(evaluation["rows"], evaluation["errors"])
    if rarer < FEW_ERRORS:
        reasons.append(f"Few decisions are {which}: {rarer} of {evaluation['rows']:,} rows, which settle little.")
    return reasons or ["No usual cause is seen: there are rows behind each label, errors, and a label spread."]


def of_spread(spread: float | None, shuffled: float | None) -> str:
    """How far labels differ at equal confidence, beside the 95th percentile of what `shuffled` labels show."""
    if spread is None or shuffled is None:
        return "Label spread: too few rows, or too few decided labels, to tell."
    more = "more than" if spread > shuffled else "no more than"
    return (
        f"Label spread: at equal confidence the decided labels differ by {100 * spread:.1f} points in how often they "
        f"are correct, {more} shuffled labels show (95% of shuffles: up to {100 * shuffled:.1f})."
    )


def of_leaning(document: MapDocument) -> list[str]:
    """Which labels have no curve of their own."""
    leans = {"shared": "leans on the other labels", "identity": "keeps its confidence"}
    labels = zip(document.shown_names, document.projection.rows_by_label, document.projection.fallback, strict=False)
    few = [f"{name} ({rows} rows) {leans[kind]}" for name, rows, kind in labels if kind in leans]
    return [f"Too few rows for a curve of its own: {listed(few)}."] if few else []


def limits(evaluation: dict[str, Any], document: MapDocument) -> list[str]:
    """What the advice rests on, and what the intervals cover."""
    what = "groups" if evaluation["grouped"] else "rows"
    lines = [
        f"This rests on {evaluation['rows']:,} rows under the calibrator {document.calibrator.name}; the intervals "
        f"cover the drawing of these {what}, given the fit; not other data, nor another fit."
    ]
    if evaluation["weighted"]:
        lines.append("Each row stands for as many as the inverse of the probability with which it was drawn.")
    return lines
