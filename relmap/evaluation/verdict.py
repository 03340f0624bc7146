"""Description of an evaluation in sentences: the recommendation, the numbers that support it, and its limits."""

from collections.abc import Mapping
from typing import Any

from relmap.evaluation.sample import JsonNumbers
from relmap.io.columns import join_names
from relmap.maps.document import MapDocument
from relmap.metrics.advice import (
    KEEP,
    UNKNOWN,
    USE,
    Advice,
    ErrorsFound,
    advise_map,
    describe_evidence,
    describe_insufficient_data,
    rarer_outcome,
)
from relmap.metrics.intervals import BETTER, classify_relevant_change, format_interval
from relmap.metrics.registry import METRICS
from relmap.settings import METRIC_DEFAULTS

MIN_CURVE_ROWS = 200  # a label with fewer fit rows hardly gains from its own curve
MIN_CLEAR_ERRORS = 100  # with fewer wrong decisions, or fewer correct ones, intervals are long
REVIEWED_SHARE = 0.3  # the sentence on reviews describes reviews of the least reliable 30% of the rows
OUT_OF_FOLD = "out of fold"


def describe_evaluation(
    evaluation: dict[str, Any],
    document: MapDocument,
    smallest: float = METRIC_DEFAULTS.smallest_relevant_change,
) -> list[str]:
    """Describe the evaluation of a map.

    Args:
        evaluation: Numbers of `evaluate_map`.
        document: The map.
        smallest: Smallest relevant change.

    Returns:
        At most ten sentences; the first one is the recommendation.
    """
    advice = advise_from_evaluation(evaluation, document, smallest)
    limits = describe_limits(evaluation, document)
    review = next(review for review in evaluation["reviews"] if review["reviewed"] == REVIEWED_SHARE)
    if document.projection.fitted.kind == "confidence":
        return [str(advice), *_describe_kept_confidence(review, document), *limits]
    errors_found = ErrorsFound(
        by_confidence=review["confidence"],
        by_reliability=review["reliability"],
        low=review["low"],
        high=review["high"],
    )
    evidence = describe_evidence(errors_found, evaluation["metrics"], smallest)
    reasons = [] if advice.answer in (USE, UNKNOWN) else _explain_missing_gain(evaluation, document)
    return [str(advice), *advice.next_steps, *evidence, *reasons, *limits]


def advise_from_evaluation(
    evaluation: dict[str, Any],
    document: MapDocument,
    smallest: float = METRIC_DEFAULTS.smallest_relevant_change,
) -> Advice:
    """Recommend what to do with a map.

    Args:
        evaluation: Numbers of `compare_scores`.
        document: The map.
        smallest: Smallest relevant change.

    Returns:
        The recommendation.
    """
    if document.projection.fitted.kind == "confidence":
        return Advice(KEEP, "`fit` recommended the confidence")
    return advise_map(
        evaluation["metrics"],
        rows=evaluation["rows"],
        errors=evaluation["errors"],
        groups=evaluation["groups"],
        smallest=smallest,
    )


def describe_alternatives(evaluation: dict[str, Any], document: MapDocument, where: str) -> list[str]:
    """Describe the alternatives to a map: the other candidates of its fit, and matrix scaling.

    Args:
        evaluation: Numbers of `evaluate_map` and `evaluate_alternatives`.
        document: The map.
        where: Phrase that names the rows of the numbers, such as "out of fold".

    Returns:
        The lines; empty if there are too few rows.
    """
    if describe_insufficient_data(evaluation["rows"], evaluation["errors"], evaluation["groups"]):
        return []
    recalibration = describe_recalibration(evaluation["recalibrated"], document)
    fitted = {candidate.variant for candidate in document.choice.candidates}
    if fitted <= {"confidence", document.projection.name}:
        return recalibration
    candidates = evaluation["candidates"]
    if candidates is None:
        return [
            "The gains of the other candidates are unknown, since this map does not contain them. Fit the map again."
        ]
    evaluated = {candidate["variant"] for candidate in candidates}
    missing = [f"    {variant:<16} is not part of the map" for variant in sorted(fitted - evaluated)]
    return [*describe_candidates(candidates, document, where), *missing, *recalibration]


def describe_candidates(candidates: list[dict[str, Any]], document: MapDocument, where: str) -> list[str]:
    """List the log loss of each candidate, and its gain over the confidence.

    Args:
        candidates: For each candidate, its variant, log loss `nll_correct`, and `change` of the log loss with the
            interval from `low` to `high`.
        document: The map.
        where: Phrase that names the rows of the numbers.

    Returns:
        A title, and a line for each candidate.
    """
    lines = [f"  log loss {where}, and gain over the confidence (95% interval):"]
    for candidate in candidates:
        gain = f"{-candidate['change']:+z.4f}"
        if candidate["low"] is not None:
            gain += f" ({-candidate['high']:+z.4f} to {-candidate['low']:+z.4f})"
        map_mark = "<- this map" if candidate["variant"] == document.projection.name else ""
        lines.append(f"    {candidate['variant']:<16} {candidate['nll_correct']:.4f}  {gain}  {map_mark}".rstrip())
    return lines


def describe_recalibration(comparison: Mapping[str, Any] | None, document: MapDocument) -> list[str]:
    """Recommend recalibration with matrix scaling if its log loss is at least as good as that of the map.

    At least as good means: significantly lower, or higher by at most one standard error. If the map keeps the
    confidence, matrix scaling must be significantly better.

    Args:
        comparison: Log loss of matrix scaling minus that of the map, with its interval; None if unknown.
        document: The map.

    Returns:
        A line with the recommendation; empty without one.
    """
    if comparison is None or comparison["low"] is None:
        return []
    change = comparison["change"]
    smallest = METRIC_DEFAULTS.smallest_relevant_change
    direction = METRICS["nll_correct"].direction
    # no p-value: 0 lets the interval alone decide
    sign = classify_relevant_change(direction, change, comparison["low"], comparison["high"], p=0, smallest=smallest)
    if sign == BETTER:
        result = "is significantly better"
    elif document.projection.name == "confidence" or change > comparison["standard_error"]:
        return []
    else:
        result = "is as good"
    difference = f"{change:+.4f}" if abs(change) >= smallest else f"less than {smallest:g}"
    interval = format_interval(comparison["low"], comparison["high"], "+z.4f")
    return [
        "If your probabilities may change, consider recalibrating with matrix scaling instead (the calibrator matrix), "
        f"which {result}: the log loss of its confidence differs from that of this map by "
        f"{difference}{interval}. It would change {100 * comparison['decisions_changed']:.1f}% of the "
        "decisions."
    ]


def describe_label_spread(spread: float | None, shuffled: float | None) -> str:
    """Describe how much the accuracy differs between labels at equal confidence.

    Args:
        spread: Label spread, in [0, 1]; None if unknown.
        shuffled: 95th percentile of the label spread when labels are shuffled; None if unknown.

    Returns:
        A sentence.
    """
    if spread is None or shuffled is None:
        return "Label spread: unknown, since there are too few rows or decided labels."
    comparison = "more than" if spread > shuffled else "no more than"
    return (
        f"Label spread: at equal confidence, the accuracy differs by {100 * spread:.1f} percentage points between "
        f"decided labels, {comparison} between shuffled labels (95% of shuffles: up to {100 * shuffled:.1f})."
    )


def describe_pooled_labels(document: MapDocument) -> list[str]:
    """Name the labels that have too few fit rows for a curve of their own.

    Args:
        document: The map.

    Returns:
        A sentence; empty if there are none.
    """
    replacements = {"shared": "is mostly pooled with the other labels", "identity": "keeps its confidence"}
    descriptions = []
    for label, fallback in enumerate(document.projection.fallback):
        if fallback in replacements:
            name = document.shown_names[label]
            descriptions.append(f"{name} ({document.projection.rows_by_label[label]} rows) {replacements[fallback]}")
    return [f"Too few rows for a curve of its own: {join_names(descriptions)}."] if descriptions else []


def describe_limits(sizes: Mapping[str, Any], document: MapDocument) -> list[str]:
    """State the number of rows, and what the intervals cover.

    Args:
        sizes: Number of `rows`; whether they are `grouped` and `weighted`.
        document: The map.

    Returns:
        The sentences.
    """
    units = "groups" if sizes["grouped"] else "rows"
    lines = [
        f"Based on {sizes['rows']:,} rows, calibrator {document.calibrator.name}. Intervals reflect the sampling of "
        f"{units}, given the fit; they do not cover refitting or other data."
    ]
    if sizes["weighted"]:
        lines.append("Rows are weighted by the inverse of their sampling probability.")
    return lines


def _describe_kept_confidence(review: JsonNumbers, document: MapDocument) -> list[str]:
    """State why the map keeps the confidence, and how many errors are found by reviews of the least confident rows."""
    lines = [f"The map contains {document.choice.reason}."]
    if review["confidence"] is not None:
        lines.append(
            f"1,000 reviews of the least reliable {100 * REVIEWED_SHARE:.0f}% find {review['confidence']:.0f} errors; "
            f"1,000 random reviews, {review['at_random']:.0f}."
        )
    return lines


def _explain_missing_gain(evaluation: dict[str, Any], document: MapDocument) -> list[str]:
    """List the possible reasons why a map has no clear gain."""
    reasons = describe_pooled_labels(document)
    if document.projection.name == "shared_1d":
        reasons.append("The map is one curve for all labels, so it ranks the rows as the confidence does.")
    decided_labels = [label for label in evaluation["labels"] if label["rows"]]
    labels_with_few_rows = []
    for label in decided_labels:
        if label["fallback"] == "none" and label["fit_rows"] < MIN_CURVE_ROWS:
            labels_with_few_rows.append(f"{label['name']} ({label['fit_rows']:,})")
    if labels_with_few_rows:
        listed = join_names(labels_with_few_rows)
        reasons.append(f"Labels whose curve is fitted to fewer than {MIN_CURVE_ROWS} rows: {listed}.")
    spread = evaluation["label_spread"]["value"]
    shuffled = evaluation["label_spread"]["shuffled_p95"]
    if len(decided_labels) == 1:
        reasons.append(f"{decided_labels[0]['name']} is the only label decided on these rows, so labels cannot differ.")
    elif spread is None or shuffled is None or spread <= shuffled:
        reasons.append(describe_label_spread(spread, shuffled))
    n_rarer, outcome = rarer_outcome(evaluation["rows"], evaluation["errors"])
    if n_rarer < MIN_CLEAR_ERRORS:
        reasons.append(f"Few decisions are {outcome}: {n_rarer} of {evaluation['rows']:,} rows, so intervals are long.")
    if not reasons:
        return ["No common reason applies: labels have enough rows, there are errors, and labels differ."]
    return reasons
