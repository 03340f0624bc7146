"""An evaluation in plain words: the answer first, then what it rests on. Nothing is said that an interval does not."""

from typing import Any

from tasks.maps.document import MapDocument
from tasks.metrics.advice import KEEP, UNKNOWN, USE, Advice, Change, advise, behind, rarer_of
from tasks.metrics.intervals import BETTER, sign_of
from tasks.metrics.registry import COMPARED, METRICS

FEW_FIT_ROWS = 200  # behind a label's curve; with fewer it is hardly better than the shared one
FEW_ERRORS = 100
LEAST_SURE = 0.3  # of the rows, whose review is told; more of them in numbers alone
OUT_OF_FOLD = "out of fold"
NAMED = 3  # labels in a sentence


def verdict(evaluation: dict[str, Any], document: MapDocument) -> list[str]:
    """What `evaluate` found of the map of `document`, ten sentences at most, one a line; the first is the advice."""
    advice, rests = advice_of(evaluation, document), limits(evaluation, document)
    budget = next(budget for budget in evaluation["reviews"] if budget["reviewed"] == LEAST_SURE)
    found = [budget[name] for name in ("confidence", "reliability", "low", "high")]
    if document.projection.fitted.kind == "confidence":
        by_chance = f"reviewing at random, {budget['at_random']:.0f}"
        why = [f"Why, at the fit: {document.choice.reason}"]
        if found[0] is not None:
            why.append(f"1,000 reviews of the least sure 30% find {found[0]:.0f} errors; {by_chance}.")
        return [str(advice), *why, *rests]
    reasons = [] if advice.answer in (USE, UNKNOWN) else _reasons(evaluation, document)
    return [str(advice), *advice.then, *behind(found, _changes(evaluation)), *reasons, *rests]


def advice_of(evaluation: dict[str, Any], document: MapDocument) -> Advice:
    """What to do, by what `compared` found of the map of `document`."""
    if document.projection.fitted.kind == "confidence":
        return Advice(KEEP, "the map keeps it by choice")
    sizes = {name: evaluation[name] for name in ("rows", "errors", "groups")}
    return advise(_changes(evaluation), **sizes)


def _changes(evaluation: dict[str, Any]) -> dict[str, Change]:
    compared = ((metric, evaluation["metrics"][metric]) for metric in COMPARED)
    return {metric: Change(*(of[name] for name in ("change", "low", "high", "p"))) for metric, of in compared}


def of_others(evaluation: dict[str, Any], document: MapDocument, where: str) -> list[str]:
    """What the other candidates of the fit, and recalibrating, do on rows that are enough to say so."""
    candidates, known = evaluation["candidates"], {each.variant for each in document.choice.candidates}
    if advice_of(evaluation, document).answer == UNKNOWN:
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
        numbers = f"{candidate['nll_correct']:.4f}  {0 - candidate['change']:+.4f}"
        if candidate["low"] is not None:
            numbers += f" ({0 - candidate['high']:+.4f} to {0 - candidate['low']:+.4f})"
        lines.append(f"    {candidate['variant']:<16} {numbers}  {mark}".rstrip())
    return lines


def of_recalibration(beside: dict[str, Any] | None, document: MapDocument) -> list[str]:
    """Whether to recalibrate instead, where matrix scaling is known to be as good `beside` the map, or clearly better.

    Who keeps the confidence changes it only for a better one.
    """
    if beside is None or beside["low"] is None:
        return []
    better = sign_of(METRICS["nll_correct"].direction, beside["low"], beside["high"], 0) == BETTER
    if not better and (document.projection.name == "confidence" or beside["change"] > beside["standard_error"]):
        return []
    return [
        "If your probabilities may change, recalibrate with matrix scaling instead (the calibrator matrix), which "
        f"{'is clearly better' if better else 'does as well'}: the log loss of its confidence alone is "
        f"{beside['change']:+.4f} (95% interval {beside['low']:+.4f} to {beside['high']:+.4f}) from this map's. "
        f"Followed through, it would decide {100 * beside['decisions_changed']:.1f}% of the rows otherwise."
    ]


def _reasons(evaluation: dict[str, Any], document: MapDocument) -> list[str]:
    """Why a map may not help: those that the numbers show."""
    decided = [label for label in evaluation["labels"] if label["rows"]]
    reasons = []
    if document.projection.name == "shared_1d":
        reasons.append("The map is one curve for all labels, so its order of the rows is that of the confidence.")
    on_others = [label for label in decided if label["fallback"] not in (None, "none")]
    if on_others:
        reasons.append(f"Too few rows for a curve of their own in the fit: {_listed(on_others)}.")
    few = [label for label in decided if label["fallback"] == "none" and label["fit_rows"] < FEW_FIT_ROWS]
    if few:
        reasons.append(f"Fewer than {FEW_FIT_ROWS} rows behind the curve in the fit: {_listed(few)}.")
    reasons += _spread_reason(evaluation["label_spread"], [label["name"] for label in decided])
    rarer, which = rarer_of(evaluation["rows"], evaluation["errors"])
    if rarer < FEW_ERRORS:
        reasons.append(f"Few decisions are {which}: {rarer} of {evaluation['rows']:,} rows, which settle little.")
    return reasons or ["No usual cause is seen: there are rows behind each label, errors, and a label spread."]


def _spread_reason(spread: dict[str, Any], decided: list[str]) -> list[str]:
    if len(decided) == 1:
        return [f"Only {decided[0]} is decided on these rows, so no label can differ from another."]
    if spread["value"] is None:
        return ["No label spread can be seen: no two labels have 20 rows each at about equal confidence."]
    if spread["value"] > spread["shuffled_p95"]:
        return []
    shown, shuffled = (f"{100 * spread[name]:.1f}" for name in ("value", "shuffled_p95"))
    return [f"No label spread: {shown} points at equal confidence, and shuffled labels show up to {shuffled}."]


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


def _listed(labels: list[dict[str, Any]]) -> str:
    shown = ", ".join(f"{label['name']} ({label['fit_rows']:,})" for label in labels[:NAMED])
    return shown + (f" and {len(labels) - NAMED} more" if len(labels) > NAMED else "")
