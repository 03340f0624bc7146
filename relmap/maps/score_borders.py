"""Borders of a score between labels in ascending order, such as grades or relevance, if the user gives none."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from relmap.errors import assignment
from relmap.io.column_layout import Reading, find_layout
from relmap.io.columns import find_grade_names, read_groups, read_labels, read_numbers
from relmap.io.files import Predictions, read_columns, rows_in_file
from relmap.io.frames import FramePredictions
from relmap.io.trec import LABELS
from relmap.maps.folds import split_folds
from relmap.maps.labelled_rows import read_with_labels
from relmap.maps.options import FitOptions

SIGNIFICANT_DIGITS = 6  # of a border


class FileWithBorders(NamedTuple):
    """Labelled predictions, and sentences on the borders that were added to their reading."""

    file: Predictions
    notes: list[str]


def add_borders(file: Predictions, options: FitOptions) -> FileWithBorders:
    """Add borders to the reading of a score with more than two labels, or of a run, if it has none.

    Borders are computed from the rows that are not held out, so that held-out rows have no influence on the decisions.

    Args:
        file: Labelled predictions.
        options: Names of the labels, in ascending order; without names, the labels are whole numbers. Groups, seed and
            share of the rows to hold out determine which rows are held out.

    Returns:
        The predictions with borders, or unchanged if they need none.

    Raises:
        InputError: A score or label cannot be read.
    """
    reading = file.reading
    label = reading.label or "label"
    is_run = isinstance(file, FramePredictions) and file.is_run
    has_positive = reading.positive is not None and not (is_run and reading.positive == LABELS[1])
    if reading.score is None or reading.border is not None or has_positive:
        return FileWithBorders(file, [])
    if not {reading.score, label} <= set(file.schema.names):
        return FileWithBorders(file, [])  # reported when the rows are read
    names = LABELS if reading.positive is not None else options.labels
    if names is None:
        column = read_columns(file, [label])[label]
        if column.dtype.is_nested() or column.n_unique() < 3:
            return FileWithBorders(file, [])
        names = find_grade_names(column, rows_in_file(file))
    if len(names) < 3 and not is_run:
        return FileWithBorders(file, [])
    placeholder = replace(reading, border=",".join("0" for _ in names[1:]))
    layout = find_layout(file.schema.names, str(file.path), labelled=True, group=options.group, reading=placeholder)
    frame, rows, _ = read_with_labels(file, layout, [], names)
    score = read_numbers(frame[reading.score], rows)
    grade = read_labels(frame[label], rows, names=names, n_labels=len(names), advice=str)
    weight = np.ones(len(score)) if layout.weight is None else read_numbers(frame[layout.weight], rows)
    group = None if layout.group is None else read_groups(frame[layout.group], rows)
    fit_rows = split_folds(len(score), group, options.seed, hold_out=options.hold_out).fit_rows
    values = balanced_borders(score[fit_rows], grade[fit_rows], len(names), weight[fit_rows])
    border = ",".join(f"{value:.{SIGNIFICANT_DIGITS}g}" for value in values)
    return FileWithBorders(replace(file, reading=replace(reading, border=border)), [_describe(reading, border, names)])


def _describe(reading: Reading, border: str, names: Sequence[str]) -> str:
    """Describe borders that were computed, as the text of the option."""
    choice = assignment("border", border)
    if len(names) == 2:
        return (
            f"The border of {reading.score} is {border}: the label {names[1]} is decided as often as it is the true "
            f"label. {choice} states it; other borders are possible."
        )
    return (
        f"The borders of {reading.score} are {border.replace(',', ', ')}: each label is decided as often as it is the "
        f"true label. {choice} states them; other borders are possible."
    )


def balanced_borders(score: np.ndarray, grade: np.ndarray, n_labels: int, weight: np.ndarray | None) -> list[float]:
    """Compute borders with which each label is decided as often as it is the true label.

    The borders depend on the labels only by their frequencies, so the decisions of single rows are not fitted to their
    labels.

    Args:
        score: Scores, shape (n,), at least one.
        grade: True labels 0..K-1, shape (n,), int.
        n_labels: K.
        weight: Number of rows that each row represents, shape (n,); None if all are equal.

    Returns:
        K - 1 borders, not decreasing: halfway between two neighboring scores, or a score if these are tied.
    """
    weight = np.ones(len(score)) if weight is None else weight
    order = np.argsort(score, kind="stable")
    sorted_score = score[order]
    midpoints = (sorted_score[:-1] + sorted_score[1:]) / 2
    ends = np.r_[sorted_score[0] - 1, midpoints, sorted_score[-1]]  # border with 0, 1, ..., n scores below it
    n_below = np.r_[0.0, np.cumsum(weight[order])]
    borders = []
    for label in range(1, n_labels):
        target = weight[grade < label].sum()
        borders.append(float(ends[np.abs(n_below - target).argmin()]))
    return borders
