"""How much the numbers of the paper's tables vary here: over protocol seeds, and over the drawing of test rows."""

import polars as pl

from tasks.records.advice import test_rows
from tasks.records.results import AVERAGE, SIMPLEX
from tasks.tables.runs import BOOSTED, PAPER_CALIBRATORS, PAPER_DATASETS, Runs

SHARES = ("infeasible_share", "solved_share")
OF_SIMPLEX = ("ece", "top_ece", "nll", "brier", *SHARES)  # measured of MRC, all others of MRP
# What varies: `average` stands for the mean over calibrators, or over data sets; quantity is before, after or delta.
CELL = ("dataset", "calibrator", "metric", "quantity")


def deviations(runs: Runs) -> pl.DataFrame:
    """Return how much each CELL varies, in the unit of its metric.

    `seeds` is its deviation over `n_seeds` protocol seeds (n - 1), and `standard_error` that over test rows, taken from
    where `sampled` says; both are null where it was not measured. Within a data set all calibrators share the rows, so
    that their mean varies as much as one; data sets are independent of one another.
    """
    measured = _in_the_paper(runs.intervals.filter(pl.col("standard_error").is_finite()))
    members = measured.filter(pl.col("calibrator") != AVERAGE).select(*CELL, value="standard_error")
    bootstrapped = _first_of_each(
        _errors(measured, "standard_error", "bootstrap over test groups"),
        _errors(_averaged(members, "calibrator"), "value", "mean bootstrap error of the calibrators, which share rows"),
    )
    errors = _first_of_each(_of_shares(runs), _over_sets(bootstrapped), bootstrapped)
    return _over_seeds(runs).join(errors, on=CELL, how="left", maintain_order="left")


def _over_seeds(runs: Runs) -> pl.DataFrame:
    """Deviation over seeds of every cell and of its averages: the values of one seed are averaged first."""
    keys = ("dataset", "calibrator", "seed", "metric")
    projected = pl.when(pl.col("metric").is_in(OF_SIMPLEX)).then(pl.lit(SIMPLEX)).otherwise(pl.lit("mrp"))
    variants = {"before": pl.lit("confidence"), "after": projected}
    sides = {side: pl.col("value").filter(pl.col("variant") == name).first() for side, name in variants.items()}
    wide = _in_the_paper(runs.metrics).group_by(keys, maintain_order=True).agg(**sides)
    cells = wide.with_columns(delta=pl.col("after") - pl.col("before")).unpivot(
        on=[*sides, "delta"], index=keys, variable_name="quantity"
    )
    cells = cells.drop_nulls("value").select(*CELL, "seed", "value")
    sets = _averaged(cells, "calibrator")
    whole = pl.concat([cells, sets, _averaged(sets.filter(pl.col("dataset") != BOOSTED), "dataset")])
    return whole.group_by(CELL, maintain_order=True).agg(seeds=pl.col("value").std(ddof=1), n_seeds=pl.len())


def _in_the_paper(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows that some table of the paper has a counterpart of, in an order that is always the same."""
    return frame.filter(
        pl.col("dataset").is_in([*PAPER_DATASETS, BOOSTED]),
        pl.col("calibrator").is_in([*PAPER_CALIBRATORS, AVERAGE]),
    ).sort("dataset", "calibrator", pl.col("^seed$"), "metric", maintain_order=True)


def _averaged(frame: pl.DataFrame, over: str) -> pl.DataFrame:
    """Means over `over`, which reads `average` from then on."""
    means = frame.group_by(pl.exclude(over, "value"), maintain_order=True).agg(pl.col("value").mean())
    return means.with_columns(pl.lit(AVERAGE).alias(over)).select(frame.columns)


def _errors(cells: pl.DataFrame, error: pl.Expr | str, sampled: str) -> pl.DataFrame:
    """The column `error` as the standard errors of the cells, which come from `sampled`."""
    return cells.select(*CELL, standard_error=error, sampled=pl.lit(sampled))


def _first_of_each(*errors: pl.DataFrame) -> pl.DataFrame:
    """The first standard error that each cell has in the frames."""
    return pl.concat(errors).unique(CELL, keep="first", maintain_order=True)


def _over_sets(errors: pl.DataFrame) -> pl.DataFrame:
    """Standard errors of means over the paper's data sets, where each of them has one."""
    averages = errors.filter(pl.col("dataset").is_in(PAPER_DATASETS), calibrator=AVERAGE)
    total = pl.col("standard_error").pow(2).sum().sqrt() / pl.len()
    sets = averages.group_by("metric", "quantity", maintain_order=True).agg(total=total, sets=pl.len())
    whole = sets.filter(sets=len(PAPER_DATASETS)).with_columns(dataset=pl.lit(AVERAGE), calibrator=pl.lit(AVERAGE))
    return _errors(whole, "total", "bootstrap errors of independent data sets")


def _of_shares(runs: Runs) -> pl.DataFrame:
    """Binomial standard errors of shares of test rows: no bootstrap is made of them."""
    shares = _in_the_paper(runs.metrics.filter(pl.col("metric").is_in(SHARES), variant=SIMPLEX))
    means = shares.group_by("dataset", "calibrator", "metric", maintain_order=True).agg(share=pl.col("value").mean())
    share, rows = pl.col("share"), test_rows(runs.facts)
    known = means.filter(rows > 0, share.is_between(0, 1)).with_columns(quantity=pl.lit("after"))
    return _errors(known, (share * (1 - share) / rows).sqrt(), "binomial over test rows, blind to groups")
