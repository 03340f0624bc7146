"""How far a number of ours may lie from the paper's by the drawing of protocol seeds and of test rows alone.

The paper's test rows are unknown: its sampling deviation is taken to be as large as ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from tasks.protocol.keys import AVERAGE, BOOSTED, PAPER_CALIBRATORS, PAPER_DATASETS, SIMPLEX
from tasks.tables.runs import Runs

PROBABILITY = ("ece", "top_ece", "nll", "brier")
SHARES = ("infeasible_share", "solved_share")
KEYS = ["dataset", "calibrator", "seed", "metric"]
SEEDS = 3  # the paper's


class Cell(NamedTuple):
    """What varies; `average` stands for the mean over calibrators, or over data sets."""

    dataset: str
    calibrator: str
    metric: str
    quantity: str  # before, after or delta


@dataclass(frozen=True)
class Deviation:
    """How much a number of ours varies."""

    standard_error: float | None  # over test rows; None where it was not measured
    seeds: float  # deviation over the protocol seeds (n - 1)
    n_seeds: int
    sampled: str  # where the standard error comes from

    def tolerance(self, paper_seeds: float | None, half_unit: float, scale: float = 1.0) -> float | None:
        """Two standard deviations of the difference, and the paper's rounding; None without an error."""
        if self.standard_error is None or self.n_seeds < 2:
            return None
        theirs = self.seeds * scale if paper_seeds is None else paper_seeds
        variance = 2 * (self.standard_error * scale) ** 2
        variance += (self.seeds * scale) ** 2 / self.n_seeds + theirs**2 / SEEDS  # of means over seeds
        return 2 * math.sqrt(variance) + half_unit

    def described(self, paper_seeds: float | None, scale: float = 1.0) -> str:
        """The tolerance in words, with its numbers."""
        if self.standard_error is None:
            return ""
        theirs = "taken as ours" if paper_seeds is None else f"{paper_seeds:.3g}"
        return (
            f"2 standard deviations and half a printed unit: sampling {self.standard_error * scale:.2g} "
            f"({self.sampled}), as much again for the paper; seeds {self.seeds * scale:.2g}, the paper's {theirs}"
        )


def of_deviations(ours: float, paper: float, n_seeds: int, half_unit: float) -> float | None:
    """The tolerance of a deviation over seeds itself: s / sqrt(2 (n - 1)) for each side, None for one seed."""
    if n_seeds < 2:
        return None
    return 2 * math.sqrt(ours**2 / (2 * (n_seeds - 1)) + paper**2 / (2 * (SEEDS - 1))) + half_unit


Errors = dict[Cell, tuple[float, str]]  # a standard error, and where it comes from


def deviations(runs: Runs) -> dict[Cell, Deviation]:
    """How much each cell and each average varies.

    Within a data set all calibrators share the rows, so that their mean varies as much as one; data sets are
    independent of one another.
    """
    errors = _bootstrapped(runs)
    errors |= _over_sets(errors) | _of_shares(runs)
    found = {}
    for *names, seeds, n_seeds in _over_seeds(runs).iter_rows():
        cell = Cell(*names)
        error, sampled = errors.get(cell, (None, ""))
        found[cell] = Deviation(error, seeds, n_seeds, sampled)
    return found


def _over_seeds(runs: Runs) -> pl.DataFrame:
    """Deviation over seeds of every cell and of its averages: the values of one seed are averaged first."""
    wide = (
        _shown(runs.metrics)
        .group_by(KEYS, maintain_order=True)
        .agg(
            before=pl.col("value").filter(pl.col("variant") == "confidence").first(),
            after=pl.col("value").filter(_projected()).first(),
        )
    )
    long = wide.with_columns(delta=pl.col("after") - pl.col("before")).unpivot(
        on=["before", "after", "delta"], index=KEYS, variable_name="quantity"
    )
    cells = long.filter(pl.col("value").is_not_null()).select(*Cell._fields, "seed", "value")
    sets = _averaged(cells, "calibrator")
    all_sets = _averaged(sets.filter(pl.col("dataset") != BOOSTED), "dataset")
    whole = pl.concat([cells, sets, all_sets])
    return whole.group_by(Cell._fields, maintain_order=True).agg(seeds=pl.col("value").std(ddof=1), n_seeds=pl.len())


def _projected() -> pl.Expr:
    """The rows that a number is compared with: MRP's, or MRC's where class probabilities are measured."""
    of_probabilities = pl.col("metric").is_in([*PROBABILITY, *SHARES])
    return pl.col("variant") == pl.when(of_probabilities).then(pl.lit(SIMPLEX)).otherwise(pl.lit("mrp"))


def _shown(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows that some table of the paper has a counterpart of, in an order that is always the same."""
    known = pl.col("dataset").is_in([*PAPER_DATASETS, BOOSTED]) & pl.col("calibrator").is_in(
        [*PAPER_CALIBRATORS, AVERAGE]
    )
    return frame.filter(known).sort([name for name in KEYS if name in frame.columns], maintain_order=True)


def _averaged(frame: pl.DataFrame, over: str) -> pl.DataFrame:
    """Means over `over`, which reads `average` from then on."""
    keys = [name for name in frame.columns if name not in (over, "value")]
    means = frame.group_by(keys, maintain_order=True).agg(pl.col("value").mean())
    return means.with_columns(pl.lit(AVERAGE).alias(over)).select(frame.columns)


def _bootstrapped(runs: Runs) -> Errors:
    """Standard errors of cells and of means over calibrators; where the latter's is not known, that of one."""
    frame = _shown(runs.intervals.filter(pl.col("standard_error").is_finite()))
    found = {
        Cell(*names): (error, "bootstrap over test groups")
        for *names, error in frame.select(*Cell._fields, "standard_error").iter_rows()
    }
    members = frame.filter(pl.col("calibrator") != AVERAGE).select(*Cell._fields, value="standard_error")
    for *names, error in _averaged(members, "calibrator").iter_rows():
        found.setdefault(Cell(*names), (error, "mean bootstrap error of the calibrators, which share rows"))
    return found


def _over_sets(errors: Errors) -> Errors:
    """Standard errors of means over the paper's data sets, where each of them has one."""
    names = {(cell.metric, cell.quantity) for cell in errors}
    found: Errors = {}
    for metric, quantity in names:
        cells = [Cell(dataset, AVERAGE, metric, quantity) for dataset in PAPER_DATASETS]
        if all(cell in errors for cell in cells):
            total = math.hypot(*(errors[cell][0] for cell in cells)) / len(cells)
            found[Cell(AVERAGE, AVERAGE, metric, quantity)] = (total, "bootstrap errors of independent data sets")
    return found


def _of_shares(runs: Runs) -> Errors:
    """Binomial standard errors of shares of test rows: no bootstrap is made of them."""
    rows = {fact["dataset"]: fact.get("rows", {}).get("test") for fact in runs.facts}
    shares = _shown(runs.metrics.filter((pl.col("variant") == SIMPLEX) & pl.col("metric").is_in(SHARES)))
    found: Errors = {}
    for dataset, calibrator, metric, share in (
        shares.group_by("dataset", "calibrator", "metric", maintain_order=True).agg(pl.col("value").mean()).iter_rows()
    ):
        if rows.get(dataset) and share is not None and 0 <= share <= 1:
            error = math.sqrt(share * (1 - share) / rows[dataset])
            found[Cell(dataset, calibrator, metric, "after")] = (error, "binomial over test rows, blind to groups")
    return found
