"""Comparison of reliability and confidence for each data set, computed from the results of the pipeline."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from relmap.metrics.comparison import (
    BETTER,
    RETAINED_TENTHS,
    Comparison,
    ErrorsFound,
    describe_metrics,
    describe_uncertainty,
)
from relmap.metrics.intervals import errors_found_per_1000
from tasks.results.values import AVERAGE

# Minimum gain in accuracy of a useful base predictor over always deciding the most frequent label
MIN_ACCURACY_GAIN = 0.02

MEAN_COLUMNS = {  # column -> variant and metric
    "accuracy": ("confidence", "accuracy"),
    "aurc_conf": ("confidence", "aurc"),
    "aurc_mrp": ("mrp", "aurc"),
    "kept_conf": ("confidence", "selacc_70"),
    "kept_mrp": ("mrp", "selacc_70"),
    "label_spread_pp": ("confidence", "label_spread"),
    "random_p95_pp": ("confidence", "label_spread_null_p95"),
}


def summarize_datasets(
    metrics: pl.DataFrame, intervals: pl.DataFrame, facts: Sequence[Mapping[str, Any]]
) -> pl.DataFrame:
    """Summarize the results of each data set in one row.

    Numbers are means over seeds, then over calibrators. Unknown numbers are null.

    Args:
        metrics: Rows of metrics.parquet, of the calibrators to average over.
        intervals: Rows of intervals.parquet.
        facts: Content of the base.json of each data set.

    Returns:
        One row for each data set, with these columns among others:

        - `nll_correct_delta`: change of the log loss, with the 95% interval `low` to `high`; `groups`: number of test
          groups.
        - `found_per_1000_conf`, `found_per_1000_mrp`: wrong decisions in 1,000 reviews of the 30% with the lowest
          confidence or reliability.
        - `found_per_1000_low`, `found_per_1000_high`: 95% interval of the difference between these two.
        - `commonest_label`: accuracy of always deciding the most frequent label of the test rows.
        - `calibrators`, `seeds`: numbers of calibrators and seeds of the means.
    """
    rows = _join_changes(_average_metrics(metrics), intervals)
    n_rows = count_test_rows(facts)
    n_errors = (1 - pl.col("accuracy")) * n_rows
    return rows.with_columns(
        *_errors_found(n_rows, n_errors),
        pl.col("label_spread_pp", "random_p95_pp") * 100,
        commonest_label=_most_frequent_share(facts),
        rows=n_rows,
        errors=n_errors.round().cast(pl.Int64),
        nll_correct_delta="value",
    ).fill_nan(None)


def _average_metrics(metrics: pl.DataFrame) -> pl.DataFrame:
    """Average the metrics of MEAN_COLUMNS over seeds, then over calibrators."""
    means = {
        column: pl.col("value").filter(variant=variant, metric=metric).mean()
        for column, (variant, metric) in MEAN_COLUMNS.items()
    }
    by_calibrator = metrics.group_by("dataset", "source", "calibrator", maintain_order=True).agg(
        **means, seeds=pl.col("seed").n_unique()
    )
    return by_calibrator.group_by("dataset", "source", maintain_order=True).agg(
        pl.col(*MEAN_COLUMNS).fill_nan(None).mean(), pl.col("seeds").max(), calibrators=pl.len()
    )


def _join_changes(rows: pl.DataFrame, intervals: pl.DataFrame) -> pl.DataFrame:
    """Add the average changes of the log loss, and of the accuracy of the retained decisions as `kept_...`."""
    changes = intervals.filter(calibrator=AVERAGE, quantity="delta")
    change_and_interval = pl.col("value", "low", "high")
    log_loss = changes.filter(metric="nll_correct").select("dataset", change_and_interval, "groups")
    retained_accuracy = changes.filter(metric="selacc_70").select("dataset", change_and_interval.name.prefix("kept_"))
    for columns in (log_loss, retained_accuracy):
        rows = rows.join(columns, on="dataset", how="left", maintain_order="left")
    return rows


def _errors_found(n_rows: pl.Expr, n_errors: pl.Expr) -> list[pl.Expr]:
    """Compute the columns `found_per_1000_...` from the accuracies `kept_...` of the retained decisions."""
    n_retained = (RETAINED_TENTHS * n_rows + 9) // 10  # rounded up, as by selacc_70
    n_reviews = pl.when(n_rows > n_retained).then(n_rows - n_retained)
    columns = []
    for score in ("conf", "mrp"):
        retained_errors = (1 - pl.col(f"kept_{score}")) * n_retained
        found = errors_found_per_1000(n_errors, retained_errors, n_reviews)
        columns.append(found.alias(f"found_per_1000_{score}"))
    for bound in ("low", "high"):
        # Each error that is no longer among the retained decisions is found in the reviews instead.
        additional_errors = pl.col(f"kept_{bound}") * n_retained
        found = errors_found_per_1000(additional_errors, 0, n_reviews)
        columns.append(found.alias(f"found_per_1000_{bound}"))
    return columns


def _most_frequent_share(facts: Sequence[Mapping[str, Any]]) -> pl.Expr:
    """Return the share of the most frequent label in the test rows; null where the counts are unknown."""
    shares = {}
    for fact in facts:
        counts = fact.get("class_counts", {}).get("test")
        if counts and sum(counts):
            shares[fact["dataset"]] = max(counts) / sum(counts)
    return pl.col("dataset").replace_strict(shares, default=None, return_dtype=pl.Float64)


def count_test_rows(facts: Sequence[Mapping[str, Any]]) -> pl.Expr:
    """Return an expression for the number of test rows of each data set.

    Args:
        facts: Content of the base.json of each data set.

    Returns:
        Expression of the column `dataset`; null where the facts have no number.
    """
    counts = {fact["dataset"]: fact.get("rows", {}).get("test") for fact in facts}
    return pl.col("dataset").replace_strict(counts, default=None, return_dtype=pl.Int64)


def compare_dataset(row: Mapping[str, Any]) -> Comparison | None:
    """Compare the log losses of reliability and confidence for one data set.

    Args:
        row: Row of `summarize_datasets`.

    Returns:
        The comparison; None if there is no change of the log loss.
    """
    if row["nll_correct_delta"] is None:
        return None
    return Comparison(change=row["nll_correct_delta"], low=row["low"], high=row["high"])


def list_remarks(row: Mapping[str, Any]) -> list[str]:
    """List reasons for caution about a data set or its comparison.

    Args:
        row: Row of `summarize_datasets`.

    Returns:
        Sentences.
    """
    remarks = []
    comparison = compare_dataset(row)
    found_by_confidence = row["found_per_1000_conf"]
    found_by_reliability = row["found_per_1000_mrp"]
    is_better = comparison is not None and comparison.word == BETTER
    numbers_are_known = found_by_confidence is not None and found_by_reliability is not None
    if is_better and numbers_are_known and abs(found_by_reliability - found_by_confidence) < 1:
        remarks.append(
            "With reviews of 30% of the decisions, the reliability finds no more errors than the confidence."
        )
    accuracy = row["accuracy"]
    most_frequent = row["commonest_label"]
    if accuracy is not None and most_frequent is not None and accuracy < most_frequent + MIN_ACCURACY_GAIN:
        difference = "no better" if accuracy <= most_frequent else "hardly better"
        remarks.append(
            f"The base predictor is {difference} than always deciding the most frequent label: its accuracy is "
            f"{accuracy:.1%}, compared with {most_frequent:.1%}. Improve it first."
        )
    if comparison is not None and None not in (row["rows"], row["errors"]):
        uncertainty = describe_uncertainty(row["rows"], row["errors"], row["groups"])
        remarks += [uncertainty] if uncertainty else []
    return remarks


def describe_comparison(row: Mapping[str, Any], intervals: pl.DataFrame) -> list[str]:
    """Compare reliability and confidence for one data set, and describe the numbers behind the comparison.

    Args:
        row: Row of `summarize_datasets`.
        intervals: Rows of intervals.parquet of this data set.

    Returns:
        Sentences, the comparison first.
    """
    comparison = compare_dataset(row)
    if comparison is None:
        return ["No change of the log loss was computed."]
    errors_found = ErrorsFound(
        by_confidence=row["found_per_1000_conf"],
        by_reliability=row["found_per_1000_mrp"],
        low=row["found_per_1000_low"],
        high=row["found_per_1000_high"],
    )
    return [
        describe_change(comparison, row["rows"]),
        *list_remarks(row),
        *errors_found.describe(),
        *describe_metrics(_changes_by_metric(intervals.filter(calibrator=AVERAGE, quantity="delta"))),
        f"Means over {row['calibrators']} calibrators and {row['seeds']} protocol seeds.",
    ]


def describe_change(comparison: Comparison, n_rows: int | None) -> str:
    """Describe the comparison of a data set in one sentence.

    Args:
        comparison: The comparison.
        n_rows: Number of test rows; None if unknown.

    Returns:
        A sentence that begins with the word of the comparison.
    """
    where = "on the test rows" if n_rows is None else f"on {n_rows:,} test rows"
    return comparison.describe("the confidence", where, model="MRP")


def _changes_by_metric(averages: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """Return the change of each metric with its interval; None where a number is unknown."""
    rows = averages.select("metric", "low", "high", change="value").fill_nan(None).iter_rows(named=True)
    return {row["metric"]: row for row in rows}
