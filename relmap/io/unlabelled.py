"""Rows without a label: which rows these are if they may be omitted, and whether their scores differ from the others.

Documents that nobody judged, or rows that annotators skipped, are seldom a random sample. Results on the labelled rows
then need not hold for all rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import scipy

from relmap.io.column_layout import normalize_name
from relmap.io.columns import UNJUDGED_NUMBER, describe_missing, is_missing_label, label_texts, looks_unjudged

MIN_OMITTED_SHARE = 0.5  # with fewer omitted rows, most rows are labelled
MIN_COMPARED_ROWS = 20  # of each kind
MAX_P_VALUE = 0.001  # of the Kolmogorov-Smirnov test
MIN_DIFFERENCE = 0.15  # Kolmogorov-Smirnov statistic, so that small differences in many rows are not reported


class OmittedRows(NamedTuple):
    """Rows without a label, which are omitted.

    Attributes:
        is_omitted: Whether each row is omitted, series of n booleans.
        notes: Sentences on the number of these rows and on their scores.
    """

    is_omitted: pl.Series
    notes: list[str]


def find_omitted_rows(
    frame: pl.DataFrame,
    label: str,
    names: Sequence[str] | None,
    *,
    decisions: Sequence[str] = (),
    n_labels: int | None = None,
    scores: Sequence[str] = (),
    words: Mapping[str, float] | None = None,
    are_weighted: bool = False,
) -> OmittedRows:
    """Find the rows that have no label, and compare their scores with those of the other rows.

    Args:
        frame: The rows.
        label: Column of the labels.
        names: Names of the labels, which are never missing; None if they are not known.
        decisions: Columns of decisions, whose values are never missing.
        n_labels: Number K of labels, whose numbers 0..K-1 are never missing; None if it is not known.
        scores: Columns of the score, the confidence, or a number for each label.
        words: Number of each word of confidence.
        are_weighted: Whether the labelled rows were sampled with known probabilities. Then their scores may differ.

    Returns:
        The rows without a label, with sentences for the user.
    """
    is_omitted = find_unlabelled(frame, label, names, decisions=decisions, n_labels=n_labels)
    n_omitted = int(is_omitted.sum())
    if not n_omitted:
        return OmittedRows(is_omitted, [])
    written = describe_missing(frame[label], is_omitted)
    notes = [f"{n_omitted:,} of {len(frame):,} rows have no label and are omitted{written}."]
    if n_omitted > MIN_OMITTED_SHARE * len(frame) and not are_weighted:
        values = _comparable_numbers(frame, scores, words or {})
        notes += describe_omitted_scores(values[is_omitted.to_numpy()], values[~is_omitted.to_numpy()])
    return OmittedRows(is_omitted, notes)


def find_unlabelled(
    frame: pl.DataFrame,
    label: str,
    names: Sequence[str] | None,
    *,
    decisions: Sequence[str] = (),
    n_labels: int | None = None,
) -> pl.Series:
    """Find the rows without a label: missing values, texts such as NA, and codes such as -1 that no decision has.

    A code that may be a label is a label: if it is a name or a decision, if the number before it is a label, if it is
    one of only two values, such as -1 and 1, or if it is negative and one of K values for K labels without a name.

    Args:
        frame: The rows.
        label: Column of the labels.
        names: Names of the labels; None if they are not known.
        decisions: Columns of decisions.
        n_labels: Number K of labels 0..K-1; None if it is not known.

    Returns:
        Series of n booleans.
    """
    is_missing = is_missing_label(frame[label], names)
    if frame[label].dtype.is_nested() or frame[label].dtype == pl.Boolean:
        return is_missing
    texts = label_texts(frame[label].filter(~is_missing)).unique().drop_nulls()
    normalized = {text: normalize_name(text) for text in texts}
    used = {normalize_name(name) for name in names or ()} | _decided_names(frame, decisions)
    unjudged = []
    for text, name in normalized.items():
        if (
            name not in used
            and looks_unjudged(text)
            and not _may_be_label(name, normalized.values(), n_labels, has_decisions=bool(decisions))
        ):
            unjudged.append(text)
    if names is None and not decisions and len(set(normalized.values())) == n_labels:
        unjudged = [text for text in unjudged if not normalized[text].startswith("-")]  # -1, 0 and 1 are three labels
    n_judged = len({name for text, name in normalized.items() if text not in unjudged})
    if n_judged == 1 and all(UNJUDGED_NUMBER.fullmatch(normalized[text]) for text in unjudged):
        return is_missing
    return is_missing | label_texts(frame[label]).is_in(unjudged).fill_null(False)


def _decided_names(frame: pl.DataFrame, decisions: Sequence[str]) -> set[str]:
    names = set()
    for column in decisions:
        if not frame[column].dtype.is_nested():
            names |= {normalize_name(text) for text in label_texts(frame[column]).unique().drop_nulls()}
    return names


def _may_be_label(name: str, names: Iterable[str], n_labels: int | None, *, has_decisions: bool) -> bool:
    """Return whether a number such as 9 may be a label, although no decision has it."""
    if not name.isdigit():
        return False
    if n_labels is not None:
        return int(name) < n_labels
    return not has_decisions or str(int(name) - 1) in names


def _comparable_numbers(frame: pl.DataFrame, columns: Sequence[str], words: Mapping[str, float]) -> np.ndarray:
    """Read the score of each row without a check, shape (n,): the largest number of its columns and lists."""
    if not columns:
        return np.full(len(frame), np.nan)
    largest = []
    for name in columns:
        column = frame[name]
        if isinstance(column.dtype, pl.Array):
            column = column.arr.to_list()
        if isinstance(column.dtype, pl.List):
            column = column.list.eval(pl.element().cast(pl.Float64, strict=False)).list.max()
        if column.dtype in (pl.String, pl.Categorical, pl.Enum):
            text = column.cast(pl.String).str.strip_chars(" []%").str.replace_all(r"[\s,;]+", " ")
            number_of_word = {}
            for word in text.unique().drop_nulls():
                if normalize_name(word) in words:
                    number_of_word[word] = str(words[normalize_name(word)])
            parts = text.replace(number_of_word).str.split(" ")
            column = parts.list.eval(pl.element().cast(pl.Float64, strict=False)).list.max()
        largest.append(column.cast(pl.Float64, strict=False).to_numpy())
    return np.asarray(np.fmax.reduce(largest))


def describe_omitted_scores(omitted: np.ndarray, labelled: np.ndarray) -> list[str]:
    """Compare the scores of omitted and labelled rows by a Kolmogorov-Smirnov test.

    Args:
        omitted: Scores of the rows without a label, shape (n,).
        labelled: Scores of the other rows, shape (m,).

    Returns:
        A sentence for the user; empty if the scores do not clearly differ, or there are few rows.
    """
    omitted = omitted[np.isfinite(omitted)]
    labelled = labelled[np.isfinite(labelled)]
    if min(len(omitted), len(labelled)) < MIN_COMPARED_ROWS:
        return []
    test: Any = scipy.stats.ks_2samp(omitted, labelled, method="asymp")
    if test.pvalue > MAX_P_VALUE or test.statistic < MIN_DIFFERENCE:
        return []
    return [
        "The omitted rows have clearly other scores than the labelled rows (median "
        f"{np.median(omitted):.4g}, of the labelled rows {np.median(labelled):.4g}): accuracies and guarantees hold "
        "for judged rows only. For all rows, label a random sample."
    ]
