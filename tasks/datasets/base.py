"""Data sets as declared values."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import polars as pl

from tasks.sources.hub import Repository

# Columns of the frame that every reader returns: one row for each labelled pair, in a fixed order.
SCHEMA = {
    "pair": pl.String,  # identifier of the pair in its data set; never a feature
    "split": pl.String,  # train, validation or test; null if it is drawn later
    "group": pl.String,  # the query
    "label": pl.Int8,  # 0..K-1, in the order of Dataset.labels
    "text": pl.String,  # or `features`, pl.Array(pl.Float32, width)
}


@dataclass(frozen=True)
class LabelledPairs:
    """Labelled pairs that a reader made from raw files.

    Attributes:
        pairs: Frame with the columns of SCHEMA; instead of `text` it may have `features`, or `logits` of type
            pl.Array(pl.Float64, K).
        dropped: Number of omitted pairs, by the rule that omits them.
        members: For saved logits, the same pairs with the logits of each ensemble member.
    """

    pairs: pl.DataFrame
    dropped: Mapping[str, int] = field(default_factory=dict)
    members: tuple[pl.DataFrame, ...] = ()


class Dataset(NamedTuple):
    """Declaration of a data set.

    Attributes:
        name: Key in DVC, Prefect, params.yaml and paths.
        title: Name in the paper.
        domain: Application domain.
        task: Prediction task.
        labels: Names of the labels; the index is the label.
        licence: Licence of the data.
        read: Function that reads a folder of raw files. It raises InputError if a file is missing or incomplete, or has
            unexpected content.
        repository: Repository on the Hugging Face hub.
        files: Names of a user's own files, in the folder that params.yaml names.
        split_by: `group` if no query is in two splits.
        drawn_splits: Splits that `read` samples at random from one set of rows; files define the others.
        read_run: Function that reads the rows of a training run; it takes the folder and the number of the run. None
            if all runs share the rows of `read`.
        repeats_pairs: True if a source may list a pair more than once and each occurrence is a row.
        predictor_seed: Seed of the first linear base predictor.
        boosted_seed: Seed of boosted trees.
        max_training_passes: Maximum passes of the linear base predictor over the training rows; None for the default.
        max_terms: Maximum number of words and word pairs; None for the default.
        check_columns: Function that checks the columns of the files in a folder by their headers only.
    """

    name: str
    title: str
    domain: str
    task: str
    labels: tuple[str, ...]
    licence: str
    read: Callable[[Path], LabelledPairs]
    repository: Repository | None = None
    files: tuple[str, ...] = ()
    split_by: Literal["row", "group"] = "row"
    drawn_splits: tuple[str, ...] = ()
    read_run: Callable[[Path, int], LabelledPairs] | None = None
    repeats_pairs: bool = False
    predictor_seed: int = 0
    boosted_seed: int = 0
    max_training_passes: int | None = None
    max_terms: int | None = None
    check_columns: Callable[[Path], None] | None = None


def describe_differences(before: LabelledPairs, after: LabelledPairs) -> str:
    """Describe how many rows differ between two versions of a data set, regardless of order and pair identifiers.

    Args:
        before: Previous version.
        after: New version.

    Returns:
        A clause for a message.
    """
    rows_before = _count_rows(before)
    rows_after = _count_rows(after)
    n_added = (rows_after - rows_before).total()
    n_removed = (rows_before - rows_after).total()
    n_rows = f"{len(after.pairs):,}"
    if n_added != n_removed:
        return f"{n_added:,} of {n_rows} rows are new, and {n_removed:,} earlier rows were removed"
    if n_added:
        return f"{n_added:,} of {n_rows} rows differ"
    return "the files differ, but the rows read from them do not"


def _count_rows(labelled: LabelledPairs) -> Counter[int]:
    return Counter(labelled.pairs.select(pl.exclude("pair")).hash_rows())


def concatenate_texts(columns: Iterable[tuple[str, str]], separator: str = "\n") -> pl.Expr:
    """Concatenate text columns of a user's own files. A blank text is omitted with its prefix.

    Args:
        columns: Prefix and name of each column.
        separator: Text between two columns.

    Returns:
        Expression of the concatenated text.
    """
    texts = []
    for prefix, column in columns:
        is_not_blank = pl.col(column).str.strip_chars() != ""
        texts.append(pl.when(is_not_blank).then(pl.lit(prefix) + pl.col(column)))
    return pl.concat_str(texts, separator=separator, ignore_nulls=True)
