"""Standard deviations of the numbers of the paper's tables: over protocol seeds, and over the sampling of test rows."""

import polars as pl

from tasks.results.comparison import count_test_rows
from tasks.results.values import AVERAGE, SIMPLEX
from tasks.tables.runs import BOOSTED, PAPER_CALIBRATORS, PAPER_DATASETS, Runs

SHARE_METRICS = ("infeasible_share", "solved_share")
# After the projection, these metrics are measured on the probabilities of MRC, all others on the reliability of MRP.
SIMPLEX_METRICS = ("ece", "top_ece", "nll", "brier", *SHARE_METRICS)
# Key of a number: `average` is a mean over calibrators or data sets; quantity is before, after or delta.
CELL = ("dataset", "calibrator", "metric", "quantity")


def compute_deviations(runs: Runs) -> pl.DataFrame:
    """Compute the standard deviations of each CELL, in the unit of its metric.

    Args:
        runs: Results of all data sets.

    Returns:
        Rows with `seed_deviation`, the standard deviation over `n_seeds` protocol seeds (n - 1), and `standard_error`
        over test rows, with its origin `standard_error_from`; null where not measured. Calibrators of a data set share
        their rows, so the standard error of their mean is about as large as for one calibrator. Data sets are
        independent of each other.
    """
    intervals = _select_paper_rows(runs.intervals.filter(pl.col("standard_error").is_finite()))
    errors_of_calibrators = intervals.filter(pl.col("calibrator") != AVERAGE).select(*CELL, value="standard_error")
    bootstrap_errors = _first_of_each_cell(
        _standard_errors(intervals, "standard_error", "bootstrap over test groups"),
        _standard_errors(
            _average_over(errors_of_calibrators, "calibrator"),
            "value",
            "mean bootstrap error of the calibrators, which share rows",
        ),
    )
    errors = _first_of_each_cell(
        _errors_of_shares(runs), _errors_of_dataset_averages(bootstrap_errors), bootstrap_errors
    )
    return _deviations_over_seeds(runs).join(errors, on=CELL, how="left", maintain_order="left")


def _deviations_over_seeds(runs: Runs) -> pl.DataFrame:
    """Compute the standard deviation over seeds of each cell. Averages are first computed for each seed."""
    keys = ("dataset", "calibrator", "seed", "metric")
    after_variant = pl.when(pl.col("metric").is_in(SIMPLEX_METRICS)).then(pl.lit(SIMPLEX)).otherwise(pl.lit("mrp"))
    before = pl.col("value").filter(pl.col("variant") == pl.lit("confidence")).first()
    after = pl.col("value").filter(pl.col("variant") == after_variant).first()
    wide = _select_paper_rows(runs.metrics).group_by(keys, maintain_order=True).agg(before=before, after=after)
    quantities = wide.with_columns(delta=pl.col("after") - pl.col("before")).unpivot(
        on=["before", "after", "delta"], index=keys, variable_name="quantity"
    )
    cells = quantities.drop_nulls("value").select(*CELL, "seed", "value")
    over_calibrators = _average_over(cells, "calibrator")
    over_datasets = _average_over(over_calibrators.filter(pl.col("dataset") != BOOSTED), "dataset")
    all_cells = pl.concat([cells, over_calibrators, over_datasets])
    return all_cells.group_by(CELL, maintain_order=True).agg(seed_deviation=pl.col("value").std(), n_seeds=pl.len())


def _select_paper_rows(frame: pl.DataFrame) -> pl.DataFrame:
    """Select rows with a counterpart in the paper's tables, in a fixed order."""
    return frame.filter(
        pl.col("dataset").is_in([*PAPER_DATASETS, BOOSTED]),
        pl.col("calibrator").is_in([*PAPER_CALIBRATORS, AVERAGE]),
    ).sort("dataset", "calibrator", pl.col("^seed$"), "metric", maintain_order=True)


def _average_over(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """Average values over a key column, which becomes AVERAGE."""
    means = frame.group_by(pl.exclude(column, "value"), maintain_order=True).agg(pl.col("value").mean())
    return means.with_columns(pl.lit(AVERAGE).alias(column)).select(frame.columns)


def _standard_errors(cells: pl.DataFrame, error: pl.Expr | str, origin: str) -> pl.DataFrame:
    return cells.select(*CELL, standard_error=error, standard_error_from=pl.lit(origin))


def _first_of_each_cell(*errors: pl.DataFrame) -> pl.DataFrame:
    """Return the first standard error of each cell in several frames."""
    return pl.concat(errors).unique(CELL, keep="first", maintain_order=True)


def _errors_of_dataset_averages(errors: pl.DataFrame) -> pl.DataFrame:
    """Compute standard errors of means over the paper's data sets, if each of them has one."""
    averages = errors.filter(pl.col("dataset").is_in(PAPER_DATASETS), calibrator=AVERAGE)
    error_of_mean = pl.col("standard_error").pow(2).sum().sqrt() / pl.len()
    means = averages.group_by("metric", "quantity").agg(error_of_mean=error_of_mean, n_datasets=pl.len())
    complete = means.filter(n_datasets=len(PAPER_DATASETS))
    complete = complete.with_columns(dataset=pl.lit(AVERAGE), calibrator=pl.lit(AVERAGE))
    return _standard_errors(complete, "error_of_mean", "bootstrap errors of independent data sets")


def _errors_of_shares(runs: Runs) -> pl.DataFrame:
    """Compute binomial standard errors of shares of test rows, which have no bootstrap."""
    shares = _select_paper_rows(runs.metrics.filter(pl.col("metric").is_in(SHARE_METRICS), variant=SIMPLEX))
    means = shares.group_by("dataset", "calibrator", "metric").agg(share=pl.col("value").mean())
    share = pl.col("share")
    n_rows = count_test_rows(runs.facts)
    known = means.filter(n_rows > 0, share.is_between(0, 1)).with_columns(quantity=pl.lit("after"))
    return _standard_errors(known, (share * (1 - share) / n_rows).sqrt(), "binomial over test rows, ignoring groups")
