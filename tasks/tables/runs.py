"""What a table is, and what it is made from: the results of all data sets, as one frozen value, and their gathering."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import polars as pl
from polars.selectors import float as float_columns

from relmap.calibrators.registry import CALIBRATORS, calibrators_with_role
from relmap.metrics.registry import COMPARED_METRICS
from tasks.records.results import FAILED

PAPER_DATASETS = ("amazon_esci", "mslr_web10k", "alloprof_rerank", "esci_rerank_us", "wands", "scidocs")
BOOSTED = "mslr_web10k_boosted"  # the same judgements under a LightGBM base: the paper's robustness check
PAPER_CALIBRATORS = calibrators_with_role("paper")
TEXT, NUMBER = pl.String, pl.Float64
KEYS = ("dataset", "source", "calibrator")
ORDER = ("dataset", "calibrator", "seed")  # of the rows of a table
Place = Literal["first", "comparison", "list", "beside"]  # on the page; `beside` it are those of thousands of rows
BOLD = "Bold changes are improvements."
DEVIATION = (
    "± is the deviation over the protocol seeds, each a split of the validation rows; it is no confidence interval."
)


@dataclass(frozen=True)
class Runs:
    """The results of all data sets, long; what was not run is absent, what is undefined is NaN.

    In `intervals`, `quantity` is before, after or delta: before is the confidence, or the calibrator's probabilities;
    after is MRP, or MRC. `beside_mrp` is matrix scaling alone less MRP under a temperature. `facts` holds the
    `base.json` of each data set, in the order in which own sets are shown.
    """

    metrics: pl.DataFrame
    intervals: pl.DataFrame
    rivals: pl.DataFrame
    sensitivity: pl.DataFrame
    facts: tuple[Mapping[str, Any], ...]
    missing: tuple[str, ...]  # data sets that failed
    calibrators: tuple[str, ...]  # those that were asked for,
    calibrators_of: Mapping[str, tuple[str, ...]]  # and of single data sets instead
    smallest_relevant_change: float  # smaller ones are reported as no relevant difference

    def own(self) -> list[str]:
        """Return data sets that are not the paper's, in the order of the facts, then of the results."""
        seen = [fact["dataset"] for fact in self.facts] + [*self.metrics["dataset"].unique(maintain_order=True)]
        return [name for name in dict.fromkeys([*seen, *self.missing]) if name not in (*PAPER_DATASETS, BOOSTED)]

    def asked(self, dataset: str) -> tuple[str, ...]:
        """Return the calibrators that were asked for on one data set, without rivals that ran beside them."""
        return self.calibrators_of.get(dataset, self.calibrators)

    def others(self) -> list[str]:
        """Return calibrators that ran and are not the paper's, the known rivals first."""
        ran = self.metrics["calibrator"].unique(maintain_order=True)
        return [name for name in dict.fromkeys([*CALIBRATORS, *ran]) if name in set(ran) - {*PAPER_CALIBRATORS}]

    def rows(self, *, own: bool = False) -> pl.DataFrame:
        """Return metrics under the calibrators asked for on the paper's sets (and one's own), in the tables' order."""
        asked = pl.any_horizontal(
            (pl.col("dataset") == dataset) & pl.col("calibrator").is_in(self.asked(dataset))
            for dataset in (*PAPER_DATASETS, *self.own())
        )
        return in_order(self, self.metrics.filter(asked), own=own)

    def cells(self, columns: Mapping[str, pl.Expr], *, own: bool = False) -> pl.DataFrame:
        """Return KEYS and these `columns` of the rows of each data set and calibrator."""
        return self.rows(own=own).group_by(*KEYS, maintain_order=True).agg(**columns)


class Table(NamedTuple):
    """A table of the report."""

    key: str  # of its files
    caption: str
    note: str  # on what its numbers do not say
    digits: int  # of decimals that people see: the paper's, where it has the table
    place: Place
    make: Callable[[Runs], pl.DataFrame]

    def __call__(self, runs: Runs) -> pl.DataFrame:
        """Return the rows in full precision, with `source` as the last column."""
        return self.make(runs)


def table(
    key: str, caption: str, note: str = "", *, digits: int = 3, place: Place = "list"
) -> Callable[[Callable[[Runs], pl.DataFrame]], Table]:
    """Make a table of the function that is decorated."""
    return partial(Table, key, caption, note, digits, place)


def in_order(runs: Runs, frame: pl.DataFrame, *, own: bool, by: Iterable[str] = ORDER) -> pl.DataFrame:
    """Return rows of the paper's data sets (and one's own), sorted by those columns of `by` that the frame has."""
    datasets = [*PAPER_DATASETS, *(runs.own() if own else [])]
    kinds = {"dataset": pl.Enum(datasets), "calibrator": pl.Enum([*dict.fromkeys([*CALIBRATORS, *runs.others()])])}
    columns = (name for name in by if name in frame.columns)
    keys = [pl.col(name).cast(kinds[name], strict=False) if name in kinds else pl.col(name) for name in columns]
    return frame.filter(pl.col("dataset").is_in(datasets)).sort(keys, nulls_last=True, maintain_order=True)


def values(variant: str, metric: str) -> pl.Expr:
    """Return, in a group of rows, the values of one metric of one variant, one for each seed."""
    return pl.col("value").filter((pl.col("variant") == variant) & (pl.col("metric") == metric))


def compared() -> dict[str, pl.Expr]:
    """Return the paper's columns for each metric: confidence and MRP, mean and deviation over seeds (n - 1), delta."""
    columns: dict[str, pl.Expr] = {}
    for metric in COMPARED_METRICS:
        before, after = values("confidence", metric), values("mrp", metric)
        columns |= {f"{metric}_conf": before.mean(), f"{metric}_conf_std": before.std(ddof=1)}
        columns |= {f"{metric}_mrp": after.mean(), f"{metric}_mrp_std": after.std(ddof=1)}
        columns[f"{metric}_delta"] = after.mean() - before.mean()
    return columns


def finished(table: pl.DataFrame, runs: Runs | None = None, *, own: bool = False) -> pl.DataFrame:
    """Return the table with undefined numbers empty and `source` last; given `runs`, with a row for each failed set."""
    if runs is not None:
        holes = pl.DataFrame({"dataset": runs.missing, "source": FAILED}, schema={"dataset": TEXT, "source": TEXT})
        if "calibrator" in table.columns:
            under = [runs.asked(name) for name in runs.missing]
            holes = holes.with_columns(calibrator=pl.Series(under, dtype=pl.List(TEXT))).explode("calibrator")
        table = in_order(runs, pl.concat([table, holes], how="diagonal"), own=own)
    return table.select(pl.exclude("source"), "source").with_columns(float_columns().fill_nan(None))


def joined_sources() -> pl.Expr:
    """Return the source of an average: the one of all its members, or all of theirs."""
    return pl.col("source").unique().sort().str.join("+")
