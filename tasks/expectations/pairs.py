"""Gates for inputs: released files before training, and labelled pairs before they are used to calibrate."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from relmap.decisions import number_groups
from tasks.expectations.check import Check, make_expectation, run_gate
from tasks.records.splits import SPLITS

PAIRS_REMEDY = (
    "Correct the source of these rows, its reader, or `split` in params.yaml. Nothing was calibrated or reported."
)
CONTRACT_REMEDY = (
    "These raw files differ from what the data set declares, or its reader misreads them: delete its folder in "
    "data/raw and run the download stage again. Nothing was trained on them."
)

# Probability of a false alarm of the check of class shares, for each class and split.
FALSE_ALARM_PROBABILITY = 1e-9


def check_contract(
    pairs: pl.DataFrame, *, n_labels: int, coordinates: Mapping[str, object], repeats_pairs: bool = False
) -> dict[str, Any]:
    """Compare the pairs in released files with what the data set declares.

    Args:
        pairs: Labelled pairs with the columns `pair` and `label`.
        n_labels: Number of labels K; each of 0..K-1 must occur, and no other label.
        coordinates: Data set.
        repeats_pairs: True if a pair may occur more than once.

    Returns:
        Record of the gate.

    Raises:
        GateFailed: A count differs. The message names the data set and each such count.
    """
    valid_labels = pairs.filter(pl.col("label").is_between(0, n_labels - 1))["label"]
    counts = [
        {"count": "labels that occur", "declared": n_labels, "found": valid_labels.n_unique()},
        {"count": "rows with another label", "declared": 0, "found": len(pairs) - len(valid_labels)},
    ]
    if not repeats_pairs:
        counts.append({"count": "distinct pairs", "declared": len(pairs), "found": pairs["pair"].n_unique()})
    as_declared = make_expectation(
        "equal", "declared", "found", description="the released files contain what is declared"
    )
    check = Check(name="contract", frame=pl.DataFrame(counts), expectations=[as_declared], row_name_column="count")
    return run_gate("contract", coordinates, [check], CONTRACT_REMEDY)


def summarize_pairs(frame: pl.DataFrame) -> pl.DataFrame:
    """Reduce labelled pairs to the columns that `check_pairs` needs.

    Uses polars only, so that the training stage does not import Great Expectations.

    Args:
        frame: Labelled pairs with their `split`, and `text`, `features` or `logits`.

    Returns:
        Columns `pair, split, group, label`, and `text_length`, `features_finite` or `logits_finite`.
    """
    if "text" in frame.columns:
        length = pl.col("text").str.strip_chars().str.len_chars()
        return frame.select("pair", "split", "group", "label", text_length=length)
    input_column = "features" if "features" in frame.columns else "logits"
    finite = pl.Series(np.isfinite(frame[input_column].to_numpy()).all(axis=1))
    return frame.select("pair", "split", "group", "label", finite.alias(f"{input_column}_finite"))


def check_pairs(
    frame: pl.DataFrame,
    *,
    n_labels: int,
    groups_stay_together: bool,
    coordinates: Mapping[str, object],
    drawn: Sequence[str] = (),
    repeats_pairs: bool = False,
) -> dict[str, Any]:
    """Check the labelled pairs of a data set.

    Labels must be known, texts must not be empty, features must be finite, pairs must be distinct unless the data set
    repeats some, and every split must have rows of every class. If splits are by group, no group may be in two splits.
    The class shares of randomly drawn splits must be close to the shares of the pool from which they were drawn.

    The check of class shares finds labels that are coded differently in one source file, a filter or a join that lost
    rows of one class in one split, and a split in file order. It cannot find labels that are shuffled over all rows,
    or a mistake that is the same in every split.

    Args:
        frame: Output of `summarize_pairs`.
        n_labels: Number of labels K; labels are 0..K-1.
        groups_stay_together: True if splits are by group, False if by row. It also defines the sampling unit.
        coordinates: Data set.
        drawn: Splits that were drawn at random from one pool. Empty if the source fixes all splits, since class
            shares of fixed splits may differ for good reasons.
        repeats_pairs: True if a pair may occur more than once.

    Returns:
        Record of the gate.

    Raises:
        GateFailed: A check failed. The message names the data set, the pairs, groups or classes, and the values found.
    """

    def checks() -> Iterator[Check]:
        yield Check(
            name="pairs",
            frame=frame,
            expectations=_row_expectations(n_labels, frame.columns, repeats_pairs=repeats_pairs),
            row_name_column="pair",
        )
        yield Check(
            name="pairs: classes",
            frame=_count_classes(frame, n_labels),
            expectations=[
                make_expectation("between", "rows_of_split", min_value=1, description="no split is empty"),
                make_expectation("between", "rows", min_value=1, description="every split has rows of every class"),
            ],
            row_name_column="class",
        )
        if groups_stay_together:
            yield _group_check(frame)
        if drawn:
            yield _class_share_check(frame, n_labels, drawn, by_group=groups_stay_together)

    return run_gate("pairs", coordinates, checks(), PAIRS_REMEDY)


def bound_class_shares(frame: pl.DataFrame, n_labels: int, drawn: Sequence[str], *, by_group: bool) -> pl.DataFrame:
    """Compute the share of each class in each drawn split, and the range that random drawing allows.

    Bernstein's inequality also holds for sampling without replacement (Hoeffding, 1963, section 6). Let `m` units be
    drawn from a pool, each with a number of mean 0, mean square `v` and absolute value at most `b`. Their sum exceeds
    `t` in absolute value with probability at most 2 exp(-t^2 / (2 m v + 2 b t / 3)). Here, the number of a unit is the
    number of its rows of the class, minus the number expected from its size. Units are groups or rows, so groups of a
    single class widen the range.

    Args:
        frame: Output of `summarize_pairs`.
        n_labels: Number of labels K.
        drawn: Splits that were drawn from one pool.
        by_group: True if groups were drawn, False if rows.

    Returns:
        One row for each drawn split and class: `class`, `share`, `lowest_share`, `highest_share`.
    """
    pool = frame.filter(pl.col("split").is_in(list(drawn)))
    if by_group:
        unit_of_row = number_groups(pool["group"].to_numpy())
    else:
        unit_of_row = np.arange(len(pool))
    n_units = unit_of_row.max() + 1
    counts = np.bincount(unit_of_row * n_labels + pool["label"].to_numpy(), minlength=n_units * n_labels)
    counts = counts.reshape(n_units, n_labels)
    rows_of_unit = counts.sum(axis=1)
    pool_share = counts.sum(axis=0) / len(pool)
    excess = counts - rows_of_unit[:, None] * pool_share
    split_of_unit = np.empty(n_units, dtype=object)
    split_of_unit[unit_of_row] = pool["split"].to_list()
    log_term = np.log(2 / FALSE_ALARM_PROBABILITY)
    linear_term = np.abs(excess).max(axis=0) * log_term / 3
    mean_square = np.mean(excess**2, axis=0)
    shares = []
    for split in drawn:
        in_split = split_of_unit == split
        n_split_rows = rows_of_unit[in_split].sum()
        # the positive solution t of t^2 = (2 m v + 2 b t / 3) ln(2 / probability)
        bound = linear_term + np.sqrt(linear_term**2 + 2 * in_split.sum() * mean_square * log_term)
        shares.append(
            pl.DataFrame(
                {
                    "class": [f"{label} in {split}" for label in range(n_labels)],
                    "share": counts[in_split].sum(axis=0) / n_split_rows,
                    "lowest_share": pool_share - bound / n_split_rows,
                    "highest_share": pool_share + bound / n_split_rows,
                }
            )
        )
    return pl.concat(shares)


def _row_expectations(n_labels: int, columns: Sequence[str], *, repeats_pairs: bool) -> list[Any]:
    """Return the expectations of each pair."""
    expectations = []
    if not repeats_pairs:
        expectations.append(make_expectation("unique", "pair", description="a pair occurs only once"))
    for column in ("pair", "group", "label", "split"):
        expectations.append(make_expectation("not null", column, description=f"{column} is never null"))
    for column, allowed in (("label", list(range(n_labels))), ("split", list(SPLITS))):
        description = f"{column} is one of {', '.join(str(value) for value in allowed)}"
        expectations.append(make_expectation("in set", column, value_set=allowed, description=description))
    for column in columns:
        if column.endswith("_finite"):
            description = f"the {column.removesuffix('_finite')} of a row are finite numbers"
            expectations.append(make_expectation("in set", column, value_set=[True], description=description))
    if "text_length" in columns:
        expectations.append(make_expectation("not null", "text_length", description="a text is never null"))
        description = "a text has more than blanks"
        expectations.append(make_expectation("between", "text_length", min_value=1, description=description))
    return expectations


def _count_classes(frame: pl.DataFrame, n_labels: int) -> pl.DataFrame:
    """Count the rows of each split and label, including zero counts."""
    # Saved logits have no training rows.
    required_splits = SPLITS[1:] if "logits_finite" in frame.columns else SPLITS
    cells = pl.DataFrame({"split": required_splits}).join(pl.DataFrame({"label": range(n_labels)}), how="cross")
    counts = frame.group_by("split", pl.col("label").cast(pl.Int64)).agg(rows=pl.len().cast(pl.Int64))
    cells = cells.join(counts, on=["split", "label"], how="left", maintain_order="left").fill_null(0)
    class_name = pl.format("{} in {}", "label", "split").alias("class")
    return cells.with_columns(class_name, rows_of_split=pl.col("rows").sum().over("split"))


def _group_check(frame: pl.DataFrame) -> Check:
    """Return the check that no group is in two splits."""
    splits = pl.col("split").unique(maintain_order=True).str.join(" and ")
    groups = frame.group_by("group", maintain_order=True).agg(splits=splits)
    one_split = make_expectation(
        "in set", "splits", value_set=list(SPLITS), description="all rows of a group are in one split"
    )
    return Check(name="pairs: groups", frame=groups, expectations=[one_split], row_name_column="group")


def _class_share_check(frame: pl.DataFrame, n_labels: int, drawn: Sequence[str], *, by_group: bool) -> Check:
    """Return the check that class shares of drawn splits are within the range of random drawing."""
    not_smaller = make_expectation(
        "at least",
        "share",
        "lowest_share",
        or_equal=True,
        description="the share of a class in a drawn split is not smaller than chance allows",
    )
    not_larger = make_expectation(
        "at least",
        "highest_share",
        "share",
        or_equal=True,
        description="the share of a class in a drawn split is not larger than chance allows",
    )
    return Check(
        name="pairs: class mix",
        frame=bound_class_shares(frame, n_labels, drawn, by_group=by_group),
        expectations=[not_smaller, not_larger],
        row_name_column="class",
    )
