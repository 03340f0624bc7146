"""Definition of a table of the report, and the results of all data sets that tables are computed from."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import polars as pl
from polars.selectors import float as float_columns

from relmap.calibrators.registry import CALIBRATORS, calibrators_with_role
from relmap.metrics.registry import COMPARED_METRICS
from tasks.results.values import FAILED

PAPER_DATASETS = ("amazon_esci", "mslr_web10k", "alloprof_rerank", "esci_rerank_us", "wands", "scidocs")
BOOSTED = "mslr_web10k_boosted"  # the same data set with a LightGBM base predictor: the paper's robustness check
PAPER_CALIBRATORS = calibrators_with_role("paper")
TEXT = pl.String
NUMBER = pl.Float64
KEYS = ("dataset", "source", "calibrator")
SORT_COLUMNS = ("dataset", "calibrator", "seed")
BOLD_NOTE = "Bold changes are improvements."
DEVIATION_NOTE = (
    "± is the standard deviation over the protocol seeds, each of which splits the validation rows differently; it is "
    "not a confidence interval."
)

# Where the page shows a table: first, in the comparison with the paper, in the list of all tables, or as a link only
# because it has thousands of rows.
Placement = Literal["first", "comparison", "list", "link"]


@dataclass(frozen=True)
class Runs:
    """Results of all data sets in long format. Runs that did not take place have no rows; undefined numbers are NaN.

    Attributes:
        metrics: Rows of metrics.parquet of all data sets.
        intervals: Rows of intervals.parquet. `quantity` is `before` (confidence, or probabilities of the calibrator),
            `after` (MRP, or MRC), `delta`, or `versus_mrp` (matrix scaling minus MRP with temperature scaling).
        rivals: Rows of rivals.parquet.
        sensitivity: Rows of sensitivity.parquet.
        facts: Content of the `base.json` of each data set. Own data sets have this order in tables.
        missing: Data sets without results, because one of their stages failed.
        calibrators: Calibrators shown in tables, by default.
        calibrators_by_dataset: Data set -> calibrators shown in tables, for data sets that differ from the default.
    """

    metrics: pl.DataFrame
    intervals: pl.DataFrame
    rivals: pl.DataFrame
    sensitivity: pl.DataFrame
    facts: tuple[Mapping[str, Any], ...]
    missing: tuple[str, ...]
    calibrators: tuple[str, ...]
    calibrators_by_dataset: Mapping[str, tuple[str, ...]]

    def own_datasets(self) -> list[str]:
        """List the data sets that are not in the paper.

        Returns:
            Keys, in the order of the facts, then of the results.
        """
        with_facts = [fact["dataset"] for fact in self.facts]
        with_metrics = self.metrics["dataset"].unique(maintain_order=True)
        names = [*with_facts, *with_metrics, *self.missing]
        return [name for name in dict.fromkeys(names) if name not in (*PAPER_DATASETS, BOOSTED)]

    def calibrators_for(self, dataset: str) -> tuple[str, ...]:
        """Return the calibrators shown in tables for a data set, without rivals.

        Args:
            dataset: Key of the data set.
        """
        return self.calibrators_by_dataset.get(dataset, self.calibrators)

    def other_calibrators(self) -> list[str]:
        """List the calibrators that ran and are not in the paper.

        Returns:
            Keys; keys of the registry come first.
        """
        ran = self.metrics["calibrator"].unique(maintain_order=True)
        others = set(ran) - set(PAPER_CALIBRATORS)
        return [name for name in dict.fromkeys([*CALIBRATORS, *ran]) if name in others]

    def table_metrics(self, *, include_own: bool = False) -> pl.DataFrame:
        """Return the metrics of the calibrators shown in tables, sorted as by `sort_rows`.

        Args:
            include_own: Whether to include own data sets.

        Returns:
            Rows of `metrics`.
        """
        is_in_tables = pl.any_horizontal(
            (pl.col("dataset") == dataset) & pl.col("calibrator").is_in(self.calibrators_for(dataset))
            for dataset in (*PAPER_DATASETS, *self.own_datasets())
        )
        return sort_rows(self, self.metrics.filter(is_in_tables), include_own=include_own)

    def aggregate(self, columns: Mapping[str, pl.Expr], *, include_own: bool = False) -> pl.DataFrame:
        """Aggregate the metrics of each data set and calibrator.

        Args:
            columns: Name -> expression over the metrics of one data set and calibrator.
            include_own: Whether to include own data sets.

        Returns:
            KEYS and the columns.
        """
        rows = self.table_metrics(include_own=include_own)
        return rows.group_by(*KEYS, maintain_order=True).agg(**columns)


@dataclass(frozen=True)
class Table:
    """A table of the report.

    Attributes:
        key: Name of its files.
        caption: Caption.
        note: What readers must know to interpret the numbers.
        digits: Number of displayed decimals, as in the paper if the paper has the table.
        placement: Part of the page that shows it; "link" for a link to its files only.
        compute: Computes the rows.
    """

    key: str
    caption: str
    note: str
    digits: int
    placement: Placement
    compute: Callable[[Runs], pl.DataFrame]

    def __call__(self, runs: Runs) -> pl.DataFrame:
        """Compute the rows in full precision, with `source` as the last column.

        Args:
            runs: Results of all data sets.

        Returns:
            The rows.
        """
        return self.compute(runs)


def table(
    key: str, caption: str, note: str = "", *, digits: int = 3, placement: Placement = "list"
) -> Callable[[Callable[[Runs], pl.DataFrame]], Table]:
    """Turn a function that computes rows into a table.

    Args:
        key: Name of its files.
        caption: Caption.
        note: What readers must know to interpret the numbers.
        digits: Number of displayed decimals.
        placement: Part of the page that shows it; "link" for a link to its files only.

    Returns:
        A decorator.
    """
    return partial(Table, key, caption, note, digits, placement)


def sort_rows(runs: Runs, frame: pl.DataFrame, *, include_own: bool, by: Iterable[str] = SORT_COLUMNS) -> pl.DataFrame:
    """Select the rows of some data sets, and sort them in the order of tables.

    Rows of other data sets are dropped: those of the boosted base predictor, and own data sets that are not included.

    Args:
        runs: Results of all data sets.
        frame: Rows with a column `dataset`.
        include_own: Whether to include own data sets, which come last.
        by: Columns to sort by; those that the frame lacks are ignored. Data sets and calibrators are in the order of
            the paper, other columns are in rising order.

    Returns:
        The sorted rows.
    """
    datasets = [*PAPER_DATASETS, *(runs.own_datasets() if include_own else [])]
    calibrators = [*dict.fromkeys([*CALIBRATORS, *runs.other_calibrators()])]
    orders = {"dataset": pl.Enum(datasets), "calibrator": pl.Enum(calibrators)}
    sort_keys = []
    for column in by:
        if column not in frame.columns:
            continue
        sort_key = pl.col(column)
        if column in orders:
            sort_key = sort_key.cast(orders[column], strict=False)  # unknown names become null, which is last
        sort_keys.append(sort_key)
    return frame.filter(pl.col("dataset").is_in(datasets)).sort(sort_keys, nulls_last=True, maintain_order=True)


def select_values(variant: str, metric: str) -> pl.Expr:
    """Return an expression for the values of one metric of one variant, one for each seed.

    Args:
        variant: Key of the variant.
        metric: Key of the metric.
    """
    return pl.col("value").filter((pl.col("variant") == variant) & (pl.col("metric") == metric))


def comparison_columns() -> dict[str, pl.Expr]:
    """Return the columns of the paper that compare confidence and MRP.

    Returns:
        For each compared metric the mean `_conf` and `_mrp`, the standard deviation `_std` of each over seeds (n - 1),
        and the change `_delta`.
    """
    columns: dict[str, pl.Expr] = {}
    for metric in COMPARED_METRICS:
        before = select_values("confidence", metric)
        after = select_values("mrp", metric)
        columns[f"{metric}_conf"] = before.mean()
        columns[f"{metric}_conf_std"] = before.std()
        columns[f"{metric}_mrp"] = after.mean()
        columns[f"{metric}_mrp_std"] = after.std()
        columns[f"{metric}_delta"] = after.mean() - before.mean()
    return columns


def finish_table(rows: pl.DataFrame, runs: Runs | None = None, *, include_own: bool = False) -> pl.DataFrame:
    """Add rows for failed data sets, replace undefined numbers by null, and move `source` to the end.

    Args:
        rows: Rows of a table.
        runs: Results of all data sets, which name the failed ones; None to add no rows.
        include_own: Whether the table includes own data sets; only with `runs`.

    Returns:
        The finished rows.
    """
    if runs is not None:
        failed = pl.DataFrame({"dataset": runs.missing, "source": FAILED}, schema={"dataset": TEXT, "source": TEXT})
        if "calibrator" in rows.columns:
            calibrators = [runs.calibrators_for(name) for name in runs.missing]
            calibrator_lists = pl.Series(calibrators, dtype=pl.List(TEXT))
            # one row for each calibrator of a failed data set
            failed = failed.with_columns(calibrator=calibrator_lists).explode("calibrator")
        rows = sort_rows(runs, pl.concat([rows, failed], how="diagonal"), include_own=include_own)
    return rows.select(pl.exclude("source"), "source").with_columns(float_columns().fill_nan(None))


def join_sources() -> pl.Expr:
    """Return an expression for the source of an average: the sources of the averaged rows, joined by +."""
    return pl.col("source").unique().sort().str.join("+")
