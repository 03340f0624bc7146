"""Detection of label names in another order than the columns of the predictions."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import lgamma, log

import numpy as np
import polars as pl
import scipy

from relmap.decisions import FixedDecisions, decide
from relmap.errors import InputError, assignment, labels_to_paste
from relmap.io.column_layout import Layout
from relmap.io.columns import are_whole_numbers, has_numeric_name, join_names
from relmap.io.rows import positive_label

# Models often confuse two neighboring labels, so that exchanging them may increase the accuracy a little although their
# order is correct. A map takes such confusion into account.
MIN_ACCURACY_GAIN = 0.05
SIGNIFICANCE_LEVEL = 0.001  # probability of rejecting an order although no other one is better


@dataclass(frozen=True)
class BetterAssignment:
    """An assignment of labels to columns that matches the true labels significantly better than the one given.

    Attributes:
        label_of_column: Label, 0..K-1, of each of the K columns.
        accuracy: Share of correct decisions under the given assignment.
        better_accuracy: Share of correct decisions under `label_of_column`.
    """

    label_of_column: tuple[int, ...]
    accuracy: float
    better_accuracy: float


def find_better_assignment(
    column: np.ndarray,
    label: np.ndarray,
    n_labels: int,
    *,
    weight: np.ndarray | None = None,
    groups: np.ndarray | None = None,
) -> BetterAssignment | None:
    """Find an assignment of labels to columns that is significantly better than column k for label k.

    The most accurate assignment solves the assignment problem on the confusion matrix. It is returned if its accuracy
    is higher by `MIN_ACCURACY_GAIN`, and if two gains are significant: the gain in accuracy, and the part of it that
    the shares of columns and labels do not explain. The second test is needed because, if a model decides a rare label
    too often, another assignment is more accurate although the given order is correct.

    Args:
        column: Column with the largest number in each row, shape (n,), 0..K-1.
        label: True label of each row, shape (n,), 0..K-1.
        n_labels: K.
        weight: Number of rows that each row represents, shape (n,); None if each represents one.
        groups: Group of each row, shape (n,); rows of a group are not independent. None for independent rows.

    Returns:
        The better assignment, or None.
    """
    weight = np.ones(len(label)) if weight is None else weight / weight.mean()
    cell = column * n_labels + label
    confusion = np.bincount(cell, weight, n_labels**2).reshape(n_labels, n_labels) / len(label)
    given = np.arange(n_labels)
    accuracy = float(confusion[given, given].sum())
    # no assignment has a higher accuracy; the bound often makes the slow import of scipy.optimize unnecessary
    largest_accuracy = float(confusion.max(axis=0).sum())
    if largest_accuracy - accuracy < MIN_ACCURACY_GAIN:
        return None
    _, assigned = scipy.optimize.linear_sum_assignment(confusion, maximize=True)
    better_accuracy = float(confusion[given, assigned].sum())
    if better_accuracy - accuracy < MIN_ACCURACY_GAIN:
        return None
    gain = np.zeros((n_labels, n_labels))
    gain[given, assigned] += 1
    gain[given, given] -= 1
    gain_beyond_shares = _remove_marginal_gain(gain, confusion)
    log_n_tests = _log_n_tests(n_labels, n_moved=int((assigned != given).sum()))
    for gain_of_cell in (gain, gain_beyond_shares):
        log_p_value = _log_p_value(gain_of_cell[column, label] * weight, groups)
        if log_p_value + log_n_tests > log(SIGNIFICANCE_LEVEL):
            return None
    return BetterAssignment(
        label_of_column=tuple(assigned.tolist()), accuracy=accuracy, better_accuracy=better_accuracy
    )


def _remove_marginal_gain(gain: np.ndarray, confusion: np.ndarray) -> np.ndarray:
    """Subtract from the gain of each cell what the shares of columns and labels explain, shape (K, K).

    With the shares p of columns and q of labels, the result is gain - gain q - p gain + p gain q. If columns and labels
    are independent, its mean is 0.

    Returns:
        The remaining gain, shape (K, K).
    """
    column_share = confusion.sum(axis=1)
    label_share = confusion.sum(axis=0)
    gain_of_column = (gain @ label_share)[:, None]
    gain_of_label = column_share @ gain
    return np.asarray(gain - gain_of_column - gain_of_label + column_share @ gain @ label_share)


def check_label_order(
    rows: FixedDecisions,
    frame: pl.DataFrame,
    layout: Layout,
    names: Sequence[str] | None,
    n_labels: int,
    file: str,
    *,
    is_run: bool = False,
) -> None:
    """Check that the labels are in the order of the columns of the predictions.

    Without logits or probabilities, decisions and labels that are both given by name, or both as numbers, cannot be in
    different orders and are not checked.

    Args:
        rows: The labelled rows.
        frame: The columns that the rows were read from.
        layout: How the columns were read.
        names: Names of the labels in the given order; None for 0..K-1.
        n_labels: K.
        file: Name of the file, for the message.
        is_run: Whether the rows are documents of a run, whose scores can only have another sign.

    Raises:
        InputError: Another order matches the labels significantly better; the message has both accuracies.
    """
    column = _columns_to_check(rows, frame, layout, names)
    if column is None:
        return
    assert rows.label is not None
    found = find_better_assignment(column, rows.label, n_labels, weight=rows.weight, groups=rows.group)
    if found is None:
        return
    shown = names or [str(label) for label in range(n_labels)]
    if n_labels > 2 and layout.kind == "logits":  # of two labels, negated logits are those of the other order
        _reject_negated_logits(rows, found, layout, file)
    accuracy = f"{found.accuracy:.1%}"
    better_accuracy = f"{found.better_accuracy:.1%}"
    accept = assignment("accept_label_order", True)
    if layout.kind == "score" and (is_run or n_labels > 2):
        _reject_score_order(rows, found, layout, shown, file, is_run=is_run)
    if layout.is_of_one_label:
        positive = shown[1 - positive_label(layout.reading, names)]
        raise InputError(
            f"{file}: {layout.columns[0]} may be the {layout.kind} of the other label: then {better_accuracy} of the "
            f"decisions are correct, instead of {accuracy}. If so, give {assignment('positive', positive)}; otherwise "
            f"give {accept}"
        )
    better = [shown[label] for label in found.label_of_column]
    if layout.kind in ("confidence_only", "decision_only") and not _are_codes(frame[str(layout.decision)]):
        better = [shown[decision] for decision in np.argsort(found.label_of_column)]  # the labels are the numbers
        raise InputError(
            f"{file}: {layout.label} has numbers or truth values, which may be in another order than the names. As "
            f"given ({join_names(shown)}) {accuracy} of the decisions are correct; in the order {join_names(better)} "
            f"{better_accuracy} are. If that is the order, give {labels_to_paste(better)}; otherwise give {accept}"
        )
    can_reorder_names = names is None or _are_named_labels(frame, layout, names)
    change = f"give {labels_to_paste(better)}" if can_reorder_names else "renumber the labels, or the columns"
    raise InputError(
        f"{file}: the labels may be in another order than the columns of the predictions. As given "
        f"({join_names(shown)}) {accuracy} of the decisions are correct; in the order {join_names(better)} "
        f"{better_accuracy} are. If that is the order of the columns, {change}; otherwise give {accept}"
    )


def _reject_score_order(
    rows: FixedDecisions, found: BetterAssignment, layout: Layout, shown: Sequence[str], file: str, *, is_run: bool
) -> None:
    """Reject a score whose lower values have the higher labels, or labels that are not in ascending order.

    Args:
        rows: The labelled rows.
        found: The best assignment of labels to decisions.
        layout: How the columns were read.
        shown: Names of the labels.
        file: Name of the file, for the message.
        is_run: Whether the rows are documents of a run, whose labels cannot be in another order.

    Raises:
        InputError: Always.
    """
    assert rows.label is not None
    score = layout.columns[0]
    better = [shown[label] for label in found.label_of_column]
    accept = assignment("accept_label_order", True)
    accuracies = f"{found.accuracy:.1%} of the decisions are correct, instead of {found.better_accuracy:.1%}"
    if len(shown) > 2:
        accuracies = (
            f"As given ({join_names(shown)}) {found.accuracy:.1%} of the decisions are correct; in the order "
            f"{join_names(better)} {found.better_accuracy:.1%} are"
        )
    other_order = (
        "" if is_run or are_whole_numbers(shown) else f"; if that is the order, give {labels_to_paste(better)}"
    )
    correlation = float(np.corrcoef(rows.decision, rows.label)[0, 1])
    if correlation < 0:
        raise InputError(
            f"{file}: rows of {shown[-1]} have lower values of {score} than rows of {shown[0]}. {accuracies}. If a "
            f"lower score is better, change the sign of the score and of the border{other_order}; otherwise give "
            f"{accept}"
        )
    raise InputError(
        f"{file}: the labels may not be in ascending order of {score}. {accuracies}. Check the labels"
        f"{other_order}; otherwise give {accept}"
    )


def _reject_negated_logits(rows: FixedDecisions, found: BetterAssignment, layout: Layout, file: str) -> None:
    """Reject logits whose smallest number is the label more often than any other order explains, such as losses.

    Args:
        rows: The labelled rows, with logits.
        found: The best assignment of labels to columns.
        layout: How the columns were read.
        file: Name of the file, for the message.

    Raises:
        InputError: The negated logits match the labels better.
    """
    assert rows.logits is not None
    accuracy = float(np.average(decide(-rows.logits) == rows.label, weights=rows.weight))
    if accuracy <= found.better_accuracy:
        return
    name = layout.columns[0] if len(layout.columns) == 1 else join_names(layout.columns)
    raise InputError(
        f"{file}: the largest number in {name} is the label in {found.accuracy:.1%} of the rows, and the smallest in "
        f"{accuracy:.1%}, as if these were distances, losses or negative log-probabilities; change the sign of all "
        "numbers"
    )


def _columns_to_check(
    rows: FixedDecisions, frame: pl.DataFrame, layout: Layout, names: Sequence[str] | None
) -> np.ndarray | None:
    """Return the column with the largest number in each row, shape (n,); None if labels cannot be in another order."""
    if rows.logits is not None:
        return decide(rows.logits) if layout.decision else rows.decision
    if names is None or has_numeric_name(names):
        return None
    has_codes = [_are_codes(frame[str(name)]) for name in (layout.decision, layout.label)]
    return rows.decision if any(has_codes) and not all(has_codes) else None


def _are_named_labels(frame: pl.DataFrame, layout: Layout, names: Sequence[str]) -> bool:
    """Return whether the column of labels contains names; numbers are names if a label has a number as its name."""
    return has_numeric_name(names) or not _are_codes(frame[str(layout.label)])


def _are_codes(column: pl.Series) -> bool:
    """Return whether a column has numbers or truth values, also as text, and not names."""
    texts = column.cast(pl.String).str.strip_chars().str.to_lowercase()
    is_code = texts.str.contains(r"^([0-9]{1,9}(\.0+)?|true|false)$")
    return column.dtype.is_numeric() or bool(is_code.all())


def _log_p_value(gain: np.ndarray, groups: np.ndarray | None) -> float:
    """Return an upper bound of the log p-value of the sum of the gains; 0 if the sum is not positive.

    If the signs of the sums s_g of groups are symmetric and independent, P(sum_g s_g >= t) is at most
    exp(-t^2 / (2 sum_g s_g^2)) (Efron, 1969).
    """
    if groups is not None:
        _, group_code = np.unique(groups, return_inverse=True)
        gain = np.bincount(group_code, gain)
    total = float(gain.sum())
    squares = float((gain**2).sum())
    return -(total**2) / (2 * squares) if total > 0 and squares else 0.0


def _log_n_tests(n_labels: int, n_moved: int) -> float:
    """Return the log of the factor by which p-values are multiplied, since the best of many assignments is tested.

    The factor bounds the number of assignments that move `n_moved` columns, times the K possible numbers of moved
    columns.
    """
    return lgamma(n_labels + 1) - lgamma(n_labels - n_moved + 1) + log(n_labels)
