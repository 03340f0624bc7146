"""Sentences about a map: what a fit or an evaluation found, what was done, and the limits of the numbers.

Saying is separate from doing: no sentence decides what a map contains.
"""

from collections.abc import Mapping
from typing import Any

from relmap.calibrators.registry import CALIBRATORS
from relmap.calibrators.structured import MAX_LABELS, StructuredMatrix
from relmap.io.columns import join_names
from relmap.maps.document import MapDocument
from relmap.maps.held_out import accuracy_of_cells
from relmap.metrics.comparison import WORSE, Comparison, ErrorsFound, describe_uncertainty
from relmap.projection.registry import VARIANTS

REVIEWED_SHARE = 0.3  # the sentence on reviews describes reviews of the least reliable 30% of the rows
MOSTLY_WRONG = 0.5  # a lower accuracy is stated in the first line
MIN_DOUBTED_ROWS = 300  # with fewer rows, no wrong decision may be chance
MAX_DOUBTED_SHARE = 0.002  # share of wrong decisions that a model seldom reaches on rows that it has not seen
FAR_LOWER = 0.1  # difference of accuracies that drift seldom explains
CONFIDENCE = "confidence"  # key of the variant that keeps the confidence

Numbers = Mapping[str, Any]


def compare_log_loss(evaluation: Numbers) -> Comparison:
    """Return the change of the log loss from the confidence to the reliability.

    Args:
        evaluation: Numbers of `compare_scores`.

    Returns:
        The comparison.
    """
    change = evaluation["metrics"]["nll_correct"]
    return Comparison(change=change["change"], low=change["low"], high=change["high"])


def describe_baseline(document: MapDocument) -> str:
    """Name the confidence that a map is compared with.

    Args:
        document: The map.

    Returns:
        A noun phrase.
    """
    if document.input == "decision_only":
        return "one reliability for all decisions"
    calibration = document.baseline or document.calibrator
    if calibration.name == "uncal":
        return "your confidence"
    return f"your confidence after the calibrator {calibration.name}"


def describe_comparison(evaluation: Numbers, document: MapDocument, where: str) -> list[str]:
    """Describe the answer of a fit or an evaluation, and the numbers behind it.

    Args:
        evaluation: Numbers of `compare_scores`, and the `accuracy`.
        document: The map.
        where: Phrase that names the rows, such as "out of fold on 1,000 rows".

    Returns:
        At most five sentences, the answer first.
    """
    lines = describe_low_accuracy(evaluation)
    if document.projection.name == CONFIDENCE and document.baseline is None:
        lines.append(f"The map keeps {describe_baseline(document)} as the reliability, {where}.")
    else:
        comparison = compare_log_loss(evaluation)
        lines.append(comparison.describe(describe_baseline(document), where))
        if comparison.word == WORSE:
            lines.append("Consider to fit again with the variant confidence, or on more rows like these.")
        lines += find_errors(evaluation).describe()
    uncertainty = describe_uncertainty(evaluation["rows"], evaluation["errors"], evaluation["groups"])
    return [*lines, uncertainty] if uncertainty else lines


def describe_low_accuracy(evaluation: Numbers) -> list[str]:
    """State that most decisions are wrong.

    Args:
        evaluation: Numbers with the `accuracy`.

    Returns:
        A sentence; empty if at least half of the decisions are correct.
    """
    accuracy = evaluation["accuracy"]["value"]
    if accuracy is None or accuracy >= MOSTLY_WRONG:
        return []
    return [
        f"More than half of the decisions are wrong: {100 * accuracy:.1f}% are correct. Check the labels and their "
        "order, or improve the model first."
    ]


def find_errors(evaluation: Numbers) -> ErrorsFound:
    """Return the errors found by reviews of the least confident and of the least reliable rows.

    Args:
        evaluation: Numbers of `compare_scores`.

    Returns:
        The numbers of reviews of REVIEWED_SHARE of the rows.
    """
    review = next(review for review in evaluation["reviews"] if review["reviewed"] == REVIEWED_SHARE)
    return ErrorsFound(
        by_confidence=review["confidence"],
        by_reliability=review["reliability"],
        low=review["low"],
        high=review["high"],
    )


def describe_models(document: MapDocument) -> str:
    """Describe what a map contains, and the rows that it was fitted on.

    Args:
        document: The map.

    Returns:
        A sentence.
    """
    calibrator = document.calibrator.name
    parts = []
    if isinstance(document.calibrator.fitted, StructuredMatrix) and document.n_labels > MAX_LABELS:
        parts.append("temperature scaling")  # more labels have no weights
    elif calibrator in CALIBRATORS and calibrator != "uncal":
        parts.append(CALIBRATORS[calibrator].title)
    elif document.input == "decision_only":
        parts.append("the accuracy of all decisions")
    else:
        parts.append("the confidence as given")
    parts.append(VARIANTS[document.projection.name].description)
    if document.signals:
        parts.append(f"the signals {join_names([signal.name for signal in document.signals])}")
    folds = f", evaluated in {len(document.folds)} folds" if document.folds else ""
    return f"The map: {'; '.join(parts)}. It was fitted on {document.projection.rows:,} rows{folds}."


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
    replacements = {"shared": "mostly uses the common curve", "identity": "keeps its confidence"}
    descriptions = []
    for label, fallback in enumerate(document.projection.fallback):
        if fallback in replacements:
            name = document.shown_names[label]
            descriptions.append(f"{name} ({document.projection.rows_by_label[label]} rows) {replacements[fallback]}")
    return [f"Too few rows for a curve of its own: {join_names(descriptions)}."] if descriptions else []


def describe_training_doubts(evaluation: Numbers) -> list[str]:
    """Ask whether the model was trained on the rows, if hardly any decision is wrong.

    Args:
        evaluation: Number of `rows` and of `errors`.

    Returns:
        A sentence; empty if enough decisions are wrong.
    """
    rows = evaluation["rows"]
    errors = evaluation["errors"]
    if rows < MIN_DOUBTED_ROWS or errors > MAX_DOUBTED_SHARE * rows:
        return []
    return [
        f"Only {errors} of {rows:,} decisions are wrong. Was the model trained on these rows? Then its confidence on "
        "new rows is too high: fit the map on rows that the model has not seen."
    ]


def describe_lower_accuracy(document: MapDocument, evaluation: Numbers) -> list[str]:
    """Ask whether the model was trained on the fit rows, if new decisions are far less accurate.

    Args:
        document: The map.
        evaluation: Numbers of new rows, with the `accuracy` and its interval.

    Returns:
        A sentence; empty if the accuracy is not far lower.
    """
    accuracy_fit = accuracy_of_cells(document.held_out.cells)
    high = evaluation["accuracy"]["high"]
    if accuracy_fit is None or high is None or high > accuracy_fit - FAR_LOWER:
        return []
    return [
        f"The accuracy is {100 * evaluation['accuracy']['value']:.1f}%, and {100 * accuracy_fit:.1f}% on the fit "
        "rows. Was the model trained on the fit rows? Then fit the map again, on rows that the model has not seen."
    ]


def describe_limits(sizes: Numbers, document: MapDocument) -> list[str]:
    """State the number of rows, and what the intervals cover.

    Args:
        sizes: Number of `rows`; whether they are `grouped` and `weighted`.
        document: The map.

    Returns:
        The sentences.
    """
    units = "groups" if sizes["grouped"] else "rows"
    calibrator = "" if document.input == "decision_only" else f", calibrator {document.calibrator.name}"
    lines = [
        f"Based on {sizes['rows']:,} rows{calibrator}. Intervals reflect the sampling of {units}, given the fit; they "
        "do not cover refitting or other data."
    ]
    if sizes["weighted"]:
        lines.append("Rows are weighted by the inverse of their sampling probability.")
    return lines
