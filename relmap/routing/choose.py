"""Choose or validate a cut on the reliability, on labelled rows that a map has scored."""

import numpy as np

from relmap.errors import InputError, assignment, option
from relmap.evaluation.assessment import OUT_OF_FOLD_ORIGINS, MapAssessment
from relmap.evaluation.summary import Cuts
from relmap.io.columns import join_names, parse_label
from relmap.maps.document import MapDocument
from relmap.routing.costs import estimate_costs
from relmap.routing.group_tests import RowGroups
from relmap.routing.thresholds import (
    ReliabilityThresholds,
    bound_accuracy,
    find_accuracy_thresholds,
    find_coverage_threshold,
    sample_equally_likely_rows,
    suggest_hold_out,
)

SUGGESTED_HOLD_OUT = 0.3  # without a target accuracy
MAX_THRESHOLD_LINES = 8  # further labels are details
CHOSEN_WITHOUT_ROWS = "The bounds hold if the cut was chosen without looking at these rows."


def choose_cut(
    assessment: MapAssessment,
    *,
    target_accuracy: float | None = None,
    coverage: object = None,
    confidence_level: float = 0.95,
    cost_error: float | None = None,
    cost_review: float | None = None,
    cut: float | None = None,
    only_label: object = None,
) -> Cuts:
    """Find a cut on the reliability, or validate one that was chosen without these rows.

    On fit rows, cuts and bounds are estimates without a guarantee.

    Args:
        assessment: A map, with the labelled rows that it has scored.
        target_accuracy: Accuracy that automatic rows must have, in (0, 1).
        coverage: Share of the rows that is automatic, in (0, 1]; pass a string to avoid rounding.
        confidence_level: Confidence level of the guarantee, over random samples of labelled rows.
        cost_error: Cost of a wrong decision that is used. With `cost_review`, the result is the cut with the lowest
            expected cost according to the map, without a guarantee.
        cost_review: Cost of a review.
        cut: A cut to validate: the result has a lower bound of the accuracy of decisions at or above the cut.
        only_label: Label, by name or number, whose decisions alone must have the target accuracy; None for all.

    Returns:
        The cut.

    Raises:
        InputError: None or several of accuracy, coverage, costs and cut are given, a value is out of range, or the map
            has no such label.
    """
    has_costs = cost_error is not None or cost_review is not None
    n_given = [target_accuracy is not None, coverage is not None, cut is not None, has_costs].count(True)
    if n_given != 1:
        raise InputError(
            "give exactly one of these: a target accuracy, a coverage, the costs of an error and of a review, a "
            "cut to validate"
        )
    label_code = None
    if only_label is not None:
        if target_accuracy is None:
            raise InputError(f"{option('only_label')} needs {assignment('target_accuracy', 0.95)}")
        label_code = find_label(assessment.document, only_label)
        if label_code is None:
            labels = join_names(assessment.document.shown_names)
            raise InputError(f"{option('only_label')} is {only_label!r}; the labels are {labels}")
    map_identity = {"map_fingerprint": assessment.document.fingerprint}
    if has_costs:
        costs = estimate_costs(assessment.sample, cost_error, cost_review)
        return Cuts(tuple(costs.describe()), tuple(assessment.notes), map_identity | costs.as_json())
    seed = assessment.document.source.seed
    row_number, sampling_notes = sample_equally_likely_rows(assessment.rows, seed)
    groups = None
    if assessment.rows.group is not None:  # all rows are used
        groups = RowGroups.from_names(assessment.rows.group, seed, assessment.rows.weight)
        sampling_notes = [groups.describe()]
    thresholds = _thresholds_on(
        assessment, row_number, groups, target_accuracy, coverage, cut, confidence_level, label_code
    )
    is_guaranteed = assessment.origin not in OUT_OF_FOLD_ORIGINS
    notes = [*assessment.notes, *sampling_notes]
    if not is_guaranteed:
        notes.append(_estimate_note(assessment, target_accuracy, confidence_level, label_code))
    elif cut is None and assessment.origin == "held_out" and not thresholds.has_threshold:
        notes += _advise_larger_hold_out(assessment, target_accuracy, confidence_level, label_code)
    elif cut is not None:
        notes.append(CHOSEN_WITHOUT_ROWS)
    numbers = {
        "guaranteed": is_guaranteed,
        "fitted_rows": int(assessment.fitted.sum()),
        **map_identity,
        **thresholds.as_json(),
    }
    described = thresholds.describe(assessment.document.shown_names, is_guaranteed=is_guaranteed)
    return Cuts(
        lines=tuple(described[:MAX_THRESHOLD_LINES]),
        notes=tuple(notes),
        numbers=numbers,
        details=tuple(described[MAX_THRESHOLD_LINES:]),
    )


def _thresholds_on(
    assessment: MapAssessment,
    row_number: np.ndarray,
    groups: RowGroups | None,
    target_accuracy: float | None,
    coverage: object,
    cut: float | None,
    confidence_level: float,
    only_label: int | None,
) -> ReliabilityThresholds:
    """Find or validate thresholds on the rows with these numbers, which must be independent or in groups."""
    reliability = assessment.scored.reliability[row_number]
    decision = assessment.rows.decision[row_number]
    correct = assessment.rows.correct[row_number]
    if target_accuracy is not None:
        return find_accuracy_thresholds(
            assessment.document,
            reliability,
            decision,
            correct,
            target=target_accuracy,
            confidence=confidence_level,
            groups=groups,
            only_label=only_label,
        )
    if cut is not None:
        return bound_accuracy(reliability, decision, correct, threshold=cut, confidence=confidence_level, groups=groups)
    return find_coverage_threshold(
        reliability, decision, correct, coverage=str(coverage), confidence=confidence_level, groups=groups
    )


def find_label(document: MapDocument, label: object) -> int | None:
    """Find a label of a map by its name, or by its number if no name is a number.

    Args:
        document: The map.
        label: Name or number.

    Returns:
        The label 0..K-1; None if there is no such label.
    """
    code = parse_label(str(label), document.label_names)
    return None if code is None or code >= document.n_labels else code


def _estimate_note(assessment: MapAssessment, target: float | None, confidence: float, label: int | None) -> str:
    """Explain why cuts on fit rows have no guarantee, and how to get one."""
    note = (
        "These are estimates without a guarantee, because the map was chosen and fitted on some of these rows. For a "
        "guarantee, give labelled rows that the fit did not use"
    )
    if target is None:
        return f"{note}, or fit again with {assignment('hold_out', SUGGESTED_HOLD_OUT)}."
    is_grouped = assessment.rows.group is not None
    n_units = _count_units(assessment, assessment.fitted, label)
    share = suggest_hold_out(n_units, target, 1 - confidence, is_grouped=is_grouped)
    if share is None:
        unit = "groups" if is_grouped else "rows"
        return (
            f"{note}; the {n_units:,} {unit} of the fit are too few to hold out enough of them for {100 * target:g}%."
        )
    return f"{note}, or fit again with {assignment('hold_out', share)}."


def _advise_larger_hold_out(
    assessment: MapAssessment, target: float | None, confidence: float, label: int | None
) -> list[str]:
    """Name a share of the rows to hold out that is large enough for a target, if the one of the fit is not."""
    hold_out = assessment.document.source.hold_out
    if target is None or not hold_out:
        return []
    is_grouped = assessment.rows.group is not None
    n_held_out = _count_units(assessment, np.full(len(assessment.rows), True), label)
    n_units = round(n_held_out / hold_out)
    share = suggest_hold_out(n_units, target, 1 - confidence, is_grouped=is_grouped)
    unit = "groups" if is_grouped else "rows"
    if share is None:
        return [f"About {n_units:,} {unit} are too few to hold out enough of them for {100 * target:g}%: label more."]
    if share <= hold_out:
        return []
    return [
        f"The {n_held_out:,} {unit} that were held out are few for {100 * target:g}%: fit again with at least "
        f"{assignment('hold_out', share)}."
    ]


def _count_units(assessment: MapAssessment, is_counted: np.ndarray, label: int | None) -> int:
    """Count the selected rows, or their groups; only rows with a decision for the label, if one is given."""
    rows = assessment.rows
    if label is not None:
        is_counted = is_counted & (rows.decision == label)
    return int(is_counted.sum()) if rows.group is None else len(np.unique(rows.group[is_counted]))
