"""An evaluation in plain words: the answer first, then what it rests on. Nothing is said that an interval does not."""

from typing import Any

import numpy as np

from tasks.maps.document import MapDocument
from tasks.metrics.intervals import BETTER, NOT_CERTAIN, WORSE, Sign, holm, sign_of, together
from tasks.metrics.registry import METRICS

FEW_FIT_ROWS = 200  # behind a label's curve; with fewer it is hardly better than the shared one
FEW_ERRORS = 100
FEWEST_ERRORS = 10  # or right decisions
FEW_GROUPS = 30  # resampled, fewer give intervals that are too short
OUT_OF_FOLD = "out of fold"
NAMED = 3  # labels in a sentence


def verdict(evaluation: dict[str, Any], document: MapDocument) -> list[str]:
    """What `evaluate` found of the map of `document`, ten sentences at most, one a line.

    The reliability helps if it predicts better (the interval of the change of the correctness NLL is below 0) and
    ranks better: AURC or the errors found at a review budget, all five held to 5% together (Holm, 1979).
    """
    if document.projection.fitted.kind == "confidence":
        return [
            "Keep your confidence: the map keeps it by choice.",
            f"Why, at the fit: {document.choice.reason}",
            *_found(evaluation, "confidence"),
        ]
    few = _too_few(evaluation)
    if few:
        return [f"No verdict: {few}.", *_found(evaluation, "reliability"), *_found(evaluation, "confidence")]
    nll = evaluation["metrics"]["nll_correct"]
    predicts, looks = _sign(nll, "nll_correct"), _looks(evaluation)
    certain = (predicts, together(looks.values())) == (BETTER, BETTER)
    reasons = [] if certain else _reasons(evaluation, document)
    return [*_answer(evaluation, predicts, looks), *reasons, *_limits(evaluation)]


def of_others(evaluation: dict[str, Any], document: MapDocument, where: str) -> list[str]:
    """What the other candidates of the fit, and recalibrating, do on rows that are enough to say so."""
    candidates, known = evaluation["candidates"], {each.variant for each in document.choice.candidates}
    if _too_few(evaluation):
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
    better = _sign(beside, "nll_correct") == BETTER
    if not better and (document.projection.name == "confidence" or beside["change"] > beside["standard_error"]):
        return []
    return [
        "If your probabilities may change, recalibrate with matrix scaling instead (the calibrator matrix), which "
        f"{'is clearly better' if better else 'does as well'}: the log loss of its confidence alone is "
        f"{beside['change']:+.4f} (95% interval {beside['low']:+.4f} to {beside['high']:+.4f}) from this map's. "
        f"Followed through, it would decide {100 * beside['decisions_changed']:.1f}% of the rows otherwise."
    ]


def _too_few(evaluation: dict[str, Any]) -> str:
    """What there is too little of to say anything; empty if there is enough."""
    rarer, which = _rarer(evaluation)
    if evaluation["groups"] < FEW_GROUPS:
        what = "groups" if evaluation["grouped"] else "rows"
        return f"there are {evaluation['groups']} {what}, and a difference among fewer than {FEW_GROUPS} may be chance"
    if rarer < FEWEST_ERRORS:
        return f"{rarer} of {evaluation['rows']:,} decisions are {which}, and it takes {FEWEST_ERRORS} to tell"
    return ""


def _rarer(evaluation: dict[str, Any]) -> tuple[int, str]:
    """Right or wrong decisions, whichever are fewer."""
    return min((evaluation["errors"], "wrong"), (evaluation["rows"] - evaluation["errors"], "right"))


def _answer(evaluation: dict[str, Any], predicts: Sign, looks: dict[str, Sign]) -> list[str]:
    """The answer, and the numbers behind it."""
    ranks, kept = together(looks.values()), _kept(evaluation)
    # the look that says so: 30% reviewed before any other, and AURC last
    look = next((name for name in ("30", *sorted(looks)) if looks[name] == ranks), "30")
    log_loss, review = f"its {_log_loss(evaluation)}", f"it {_ranking(evaluation, looks, look)}"
    said = [f"I{log_loss[1:]}.", f"I{review[1:]}.", kept]
    both = {predicts, ranks}
    if both == {BETTER}:
        return [f"Use the reliability: {review}.", kept, said[0]]
    if both == {NOT_CERTAIN}:
        not_better = "Keep your confidence: the reliability does not rank or predict better on these rows"
        return [f"{not_better}; {log_loss}, which spans zero.", *said[1:]]
    if both <= {WORSE, NOT_CERTAIN}:
        first, other = (review, said[0]) if ranks == WORSE else (log_loss, said[1])
        advice = "Keep your confidence, or fit the map again on rows like these."
        return [f"The reliability is worse than the confidence here: {first}.", other, kept, advice]
    mixed = f"Mixed: as a probability the reliability is {predicts}, and to choose what to review it is {ranks}."
    by = {WORSE: "the confidence", BETTER: "the reliability", NOT_CERTAIN: "the reliability"}
    review = by.get(ranks, "whichever is better at your own budget")
    advice = f"State {by[predicts]} as the probability of being right, and choose what to review by {review}."
    return [mixed, advice, *said]


def _sign(compared: dict[str, Any], metric: str, p: float = 0.0) -> Sign:
    """What the interval of a change, and a p that is corrected where others are looked at too, say of it."""
    return sign_of(METRICS[metric].direction, compared["low"], compared["high"], p)


def _looks(evaluation: dict[str, Any]) -> dict[str, Sign]:
    """What AURC and each review budget, by its percent, says of the ranking, as one of five looks."""
    budgets = {f"{100 * budget['reviewed']:.0f}": budget for budget in evaluation["reviews"]}
    compared = {"aurc": evaluation["metrics"]["aurc"], **budgets}
    adjusted = holm(np.array([np.nan if look["p"] is None else look["p"] for look in compared.values()]))
    looks = zip(compared.items(), adjusted, strict=True)
    return {name: _sign(look, "aurc" if name == "aurc" else "selacc_70", p) for (name, look), p in looks}


def _ranking(evaluation: dict[str, Any], looks: dict[str, Sign], look: str) -> str:
    """What one look at the ranking shows, with its interval."""
    if look == "aurc":
        aurc = evaluation["metrics"]["aurc"]
        ranks = f"ranks {looks[look]} over all coverages: AURC is {aurc['reliability']:.4f} instead of "
        return f"{ranks}{aurc['confidence']:.4f}, a change of {_number(aurc['change'])}{_interval(aurc)}"
    budget = _budget(evaluation, look)
    number = "as many" if budget["change"] == 0 else _number(abs(budget["change"]))
    more = {0: "", 1: " more", -1: " fewer"}[int(np.sign(budget["change"]))]
    chance = looks[look] == NOT_CERTAIN != _sign(budget, "selacc_70")
    return (
        f"finds {number}{more} errors per 1,000 reviews where {look}% are reviewed: "
        f"{_number(budget['reliability'])} instead of {_number(budget['confidence'])}{_interval(budget)}"
        + (", which as one of five looks may be chance" if chance else "")
    )


def _budget(evaluation: dict[str, Any], percent: str = "30") -> dict[str, Any]:
    return next(budget for budget in evaluation["reviews"] if f"{100 * budget['reviewed']:.0f}" == percent)


def _found(evaluation: dict[str, Any], by: str) -> list[str]:
    """What reviewing by one of the two finds; nothing is reviewed of a single row."""
    budget = _budget(evaluation)
    if budget[by] is None:
        return []
    by_chance = f"reviewing at random, {_number(budget['at_random'])}"
    return [f"Reviewing the 30% of the lowest {by} finds {_number(budget[by])} errors per 1,000 reviews; {by_chance}."]


def _kept(evaluation: dict[str, Any]) -> str:
    kept = evaluation["metrics"]["selacc_70"]
    before, after = (f"{100 * kept[by]:.1f}%" for by in ("confidence", "reliability"))
    return f"Of the 70% that are kept, {after} are right, and {before} where the confidence chooses."


def _log_loss(evaluation: dict[str, Any]) -> str:
    nll = evaluation["metrics"]["nll_correct"]
    return (
        f"log loss, as a probability of being right, is {nll['reliability']:.4f} instead of {nll['confidence']:.4f}, "
        f"a change of {_number(nll['change'])}{_interval(nll)}"
    )


def _interval(compared: dict[str, Any]) -> str:
    """Of the change."""
    if compared["low"] is None:
        return ""
    return f" (95% interval of the change: {_number(compared['low'])} to {_number(compared['high'])})"


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
    rarer, which = _rarer(evaluation)
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


def _limits(evaluation: dict[str, Any]) -> list[str]:
    """What the intervals cover."""
    what = "groups" if evaluation["grouped"] else "rows"
    limits = [f"The intervals cover the drawing of these {what} under the fitted map; not other data, nor another fit."]
    if evaluation["weighted"]:
        limits.append("Each row stands for as many as the inverse of the probability with which it was drawn.")
    return limits


def _listed(labels: list[dict[str, Any]]) -> str:
    shown = ", ".join(f"{label['name']} ({label['fit_rows']:,})" for label in labels[:NAMED])
    return shown + (f" and {len(labels) - NAMED} more" if len(labels) > NAMED else "")


def _number(number: float) -> str:
    """Two digits that say something; from 100 on, whole."""
    if abs(number) >= 100:
        return f"{number:,.0f}"
    return np.format_float_positional(number + 0.0, precision=2, fractional=False, trim="-")
