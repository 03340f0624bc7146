"""Comparison of every number of the paper's tables with this run.

equal: within half a unit of the last digit in the paper. near: within a tolerance that is derived from the standard
deviations of both numbers over seeds and test rows, and stated in the row. off: further away. Simulated data are never
compared.

`paper/*.csv` contains the tables of the paper with their digits. A number is identified by table, data set, row and
column. `row` is a calibrator, a variant, a base predictor, or `average`; the data set of an average over all six data
sets is `average` too.

The test rows of the paper are unknown, so the paper is assumed to have the sampling error of this run.
"""

from collections.abc import Mapping, Set
from pathlib import Path

import polars as pl

from relmap.metrics.registry import METRICS
from tasks.results.values import AVERAGE, FAILED
from tasks.tables.deviations import CELL, compute_deviations
from tasks.tables.differences import summarize_differences
from tasks.tables.display import parse_metric_column
from tasks.tables.paper import BASE_PREDICTORS, TABLES, UNCALIBRATED
from tasks.tables.runs import BOOSTED, PAPER_CALIBRATORS, PAPER_DATASETS, Runs, finish_table, table

PAPER_FOLDER = Path(__file__).parent / "published"
NUMBER_KEY = ("table", "dataset", "row", "column")
ROW_COLUMNS = ("calibrator", "variant", "base")  # a table has at most one of them, whose value names the row
SCHEMA = pl.Schema(
    dict.fromkeys(NUMBER_KEY, pl.String)
    | dict.fromkeys(("paper", "measured", "difference", "tolerance"), pl.Float64)
    | {"tolerance_from": pl.String, "sign_agrees": pl.Boolean}
    | dict.fromkeys(("chosen_to_match", "verdict", "reason", "source"), pl.String)
)
NOT_COMPARABLE = "not comparable"
NOT_RUN = "not run"  # value of the source of data sets without results
OFFICIAL_SOURCE = "hub"  # source of the paper's data sets
OTHER_DATASETS_REASON = "the paper averages its six data sets, and not all of them come from the hub here"
OTHER_CALIBRATORS_REASON = "the paper averages six calibrators, and this run has other calibrators"
ALL = "all"  # table, row or data set of a reason that holds for all of them
# Kind of a column -> quantity: before or after the projection, or their difference.
QUANTITIES = {"conf": "before", "base": "before", "mrp": "after", "mrc": "after", "delta": "delta"}
MEANINGS = {  # column -> metric and quantity, if its name does not contain them
    **{metric: (metric, "before") for metric in METRICS},
    "label_spread_pp": ("label_spread", "before"),
    "q_below_uniform_pct": ("infeasible_share", "after"),
    "solved_pct": ("solved_share", "after"),
}
NO_TOLERANCE_REASONS = {
    "label_spread": "the spread of shuffled labels falls with the number of test rows, which the paper does not give"
}
N_PAPER_SEEDS = 3
# The authors' release lacks one step of the set-up, which is inferred from the paper's own tables.
INFERRED_CHOICE = "ts: solved to the optimum"
ROUNDING = 1e-12  # rounding error of a difference


@table(
    "verdict",
    "The numbers of the paper compared with this run.",
    f"{summarize_differences()} A choice in chosen_to_match was inferred from the paper's own tables, so agreement is "
    "not an independent confirmation.",
    digits=4,
    placement="comparison",
)
def verdict_table(runs: Runs) -> pl.DataFrame:
    """Compare each number of the paper with the same number of this run.

    Args:
        runs: Results of all data sets.

    Returns:
        One row for each number, and one row with the reason for each data set that cannot be compared. If there is no
        official data set, one row with the reason.
    """
    sources = _dataset_sources(runs)
    if all(sources[name] != OFFICIAL_SOURCE for name in PAPER_DATASETS):
        datasets = ", ".join(f"{name} ({sources[name]})" for name in PAPER_DATASETS)
        reason = f"no data set of the paper comes from the hub: {datasets}"
        return finish_table(_rows_without_comparison({ALL: reason}, {ALL: ALL}))
    other_calibrators = _datasets_with_other_calibrators(runs)
    reasons = _reasons_not_to_compare(sources, other_calibrators)
    numbers = read_paper_numbers().filter(~pl.col("dataset").is_in([*reasons]))
    reported_sources = {name: source for name, source in sources.items() if source != NOT_RUN}
    compared = _compare(runs, numbers, other_calibrators)
    return finish_table(pl.concat([compared, _rows_without_comparison(reasons, reported_sources)]))


def _dataset_sources(runs: Runs) -> dict[str, str]:
    """Return the source of each data set of the paper; FAILED or NOT_RUN for data sets without results."""
    known_sources = dict(runs.metrics.select("dataset", "source").iter_rows())
    sources = {}
    for name in (*PAPER_DATASETS, BOOSTED):
        default = FAILED if name in runs.missing else NOT_RUN
        sources[name] = known_sources.get(name, default)
    return sources


def _reasons_not_to_compare(sources: Mapping[str, str], other_calibrators: Set[str]) -> dict[str, str]:
    """Return the reason for each data set of the paper, and for AVERAGE, that cannot be compared."""
    reasons = {}
    for name, source in sources.items():
        if source != OFFICIAL_SOURCE:
            reasons[name] = f"{name} is {source} here; only the data set on the hub can be compared"
    if not reasons.keys().isdisjoint(PAPER_DATASETS):
        reasons[AVERAGE] = OTHER_DATASETS_REASON
    elif other_calibrators:
        reasons[AVERAGE] = OTHER_CALIBRATORS_REASON
    return reasons


def _datasets_with_other_calibrators(runs: Runs) -> set[str]:
    """Return the paper's data sets that did not run with exactly the paper's calibrators."""
    calibrators = runs.table_metrics().group_by("dataset").agg(pl.col("calibrator").unique())
    ran = {dataset: set(names) for dataset, names in calibrators.iter_rows()}
    return {name for name in PAPER_DATASETS if ran.get(name, set()) != set(PAPER_CALIBRATORS)}


def read_paper_numbers() -> pl.DataFrame:
    """Read every number of the six result tables of the paper.

    Returns:
        Rows with NUMBER_KEY, `value`, and `half_unit` of its last digit.
    """
    frames = []
    for paper_table in TABLES:
        content = pl.read_csv(PAPER_FOLDER / f"{paper_table.key}.csv", infer_schema=False)
        frames.append(list_numbers(paper_table.key, content))
    return pl.concat(frames)


def list_numbers(table_key: str, rows: pl.DataFrame) -> pl.DataFrame:
    """List the numbers of a table of the paper or of this run.

    Args:
        table_key: Key of the table.
        rows: Rows of the table. A count such as 17/18 is a share, whose unit is one of the count.

    Returns:
        Rows with NUMBER_KEY, `value`, and `half_unit` of its last digit; cells without a number are omitted.
    """
    row_name = next((pl.col(column) for column in ROW_COLUMNS if column in rows.columns), pl.lit(AVERAGE))
    dataset = pl.col("dataset") if "dataset" in rows.columns else pl.lit(AVERAGE)
    dataset_of_base = row_name.replace_strict(BASE_PREDICTORS, default=None)
    keys = rows.select(dataset=pl.coalesce(dataset_of_base, dataset), row=row_name)
    numbers = rows.select(pl.exclude("dataset", "source", "added", *ROW_COLUMNS).cast(pl.String))
    cells = (
        pl.concat([keys, numbers], how="horizontal")
        .with_row_index("line")
        .unpivot(index=["line", "dataset", "row"], variable_name="column", value_name="text")
        .drop_nulls("text")
        .sort("line", maintain_order=True)
    )
    parts = pl.col("text").str.split("/")
    numerator = parts.list.first().cast(pl.Float64)
    denominator = parts.list.get(1, null_on_oob=True).cast(pl.Float64)
    decimals = pl.col("text").str.split(".").list.get(1, null_on_oob=True)
    n_decimals = decimals.str.len_chars().cast(pl.Int64).fill_null(0)
    return cells.select(
        pl.lit(table_key).alias("table"),
        *NUMBER_KEY[1:],
        value=pl.when(denominator.is_null()).then(numerator).otherwise(numerator / denominator),
        half_unit=0.5 / pl.coalesce(denominator, pl.lit(10.0).pow(n_decimals)),
    )


def _compare(runs: Runs, numbers: pl.DataFrame, other_calibrators: Set[str]) -> pl.DataFrame:
    """Compare numbers of the paper with this run, except averages if this run averaged over other calibrators."""
    measured_value = pl.col("measured")
    table_key = pl.col("table")
    measured = pl.concat([list_numbers(result_table.key, result_table(runs)) for result_table in TABLES]).select(
        *NUMBER_KEY, measured="value"
    )
    paper_and_measured = numbers.join(measured, on=NUMBER_KEY, how="left", maintain_order="left")
    averages_other_calibrators = (pl.col("row") == AVERAGE) & pl.col("dataset").is_in(other_calibrators)
    has_counterpart = measured_value.is_not_null() & ~averages_other_calibrators
    with_tolerances = _add_tolerances(paper_and_measured, compute_deviations(runs)).with_columns(
        # null for numbers without a counterpart in this run
        pl.when(has_counterpart).then(pl.col("measured", "tolerance", "tolerance_from"))
    )
    paper = pl.col("value")
    difference = measured_value - paper
    is_equal = difference.abs() <= pl.col("half_unit") + ROUNDING
    is_near = difference.abs() <= pl.col("tolerance")
    verdict = (
        pl.when(is_equal)
        .then(pl.lit("equal"))
        .when(pl.col("tolerance").is_null())
        .then(pl.lit(NOT_COMPARABLE))
        .when(is_near)
        .then(pl.lit("near"))
        .otherwise(pl.lit("off"))
    )
    uses_inferred_choice = table_key.is_in(["ablation", "budgeted_fallback", "label_spread"]) | (pl.col("row") == "ts")
    no_tolerance_reason = table_key.replace_strict(
        NO_TOLERANCE_REASONS, default="no sampling deviation was measured for it"
    )
    return with_tolerances.with_columns(
        paper=paper,
        difference=difference,
        sign_agrees=pl.when(pl.col("column").str.contains("delta"), paper != 0).then(measured_value * paper > 0),
        chosen_to_match=pl.when(uses_inferred_choice).then(pl.lit(INFERRED_CHOICE)).otherwise(pl.lit("")),
        verdict=verdict,
        reason=pl.coalesce(
            pl.when(averages_other_calibrators).then(pl.lit(OTHER_CALIBRATORS_REASON)),
            pl.when(measured_value.is_null()).then(pl.lit("not measured in this run")),
            pl.when(verdict == NOT_COMPARABLE).then(
                pl.format("differs, and no tolerance can be computed: {}", no_tolerance_reason)
            ),
        ),
        source=pl.lit(OFFICIAL_SOURCE),
    ).select(SCHEMA.names())


def _add_tolerances(numbers: pl.DataFrame, deviations: pl.DataFrame) -> pl.DataFrame:
    """Add the tolerance of each number and its origin.

    The variance of the difference of two means over seeds is

        2 standard_error^2 + seed_deviation^2 / n_seeds + paper_seed_deviation^2 / N_PAPER_SEEDS,

    and a standard deviation s over n seeds has the variance s^2 / (2 (n - 1)), asymptotically. The tolerance is two
    standard deviations of the difference and half a printed unit. It is null for counts, ratios and numbers of shuffled
    labels, for which no standard deviations are computed.
    """
    is_ablation = pl.col("table") == "ablation"
    is_deviation = pl.col("column").str.ends_with("_std")
    with_deviations = _join_deviations(numbers, deviations)
    standard_error = pl.col("standard_error")
    seed_deviation = pl.col("seed_deviation")
    n_seeds = pl.col("n_seeds")
    paper_seed_deviation = pl.col("paper_seed_deviation")
    assumed_paper_deviation = pl.coalesce(paper_seed_deviation, seed_deviation)
    variance_of_means = 2 * standard_error**2 + seed_deviation**2 / n_seeds + assumed_paper_deviation**2 / N_PAPER_SEEDS
    variance_of_deviations = pl.col("measured") ** 2 / (2 * (n_seeds - 1)) + pl.col("value") ** 2 / (
        2 * (N_PAPER_SEEDS - 1)
    )
    variance = pl.when(is_deviation).then(variance_of_deviations).otherwise(variance_of_means)
    tolerance = 2 * variance.sqrt() + pl.col("half_unit")
    # only confidence and MRP have bootstrap intervals
    uses_errors_of_mrp = is_ablation & ~pl.col("row").is_in(["confidence", "mrp"])
    mrp_remark = pl.when(uses_errors_of_mrp).then(pl.lit("; both deviations are those of MRP on the same rows"))
    origin_for_means = pl.format(
        "2 standard deviations of the difference, and half a printed unit. Standard deviation from sampling: {} ({}), "
        "assumed equal for the paper. Standard deviation over seeds: {}, in the paper: {}{}",
        _format_digits(standard_error, 2),
        "standard_error_from",
        _format_digits(seed_deviation, 2),
        _format_digits(paper_seed_deviation, 3).fill_null("assumed equal"),
        mrp_remark.fill_null(""),
    )
    origin_for_deviations = pl.lit(
        "2 standard deviations of the difference of two standard deviations over seeds, and half a printed unit"
    )
    origin = pl.when(is_deviation & n_seeds.is_not_null()).then(origin_for_deviations).otherwise(origin_for_means)
    return with_deviations.with_columns(tolerance=tolerance, tolerance_from=origin.fill_null(""))


def _join_deviations(numbers: pl.DataFrame, deviations: pl.DataFrame) -> pl.DataFrame:
    """Add the columns of `deviations` to each number, and the paper's standard deviation `paper_seed_deviation`."""
    column = pl.col("column")
    row = pl.col("row")
    is_ablation = pl.col("table") == "ablation"
    meanings = dict(MEANINGS)
    for name in numbers["column"].unique():
        metric, kind = parse_metric_column(name.removesuffix("_std"))
        if metric is not None:
            meanings[name] = (metric.key, QUANTITIES[kind])
    meaning_rows = [(name, metric_key, quantity) for name, (metric_key, quantity) in meanings.items()]
    known = pl.DataFrame(meaning_rows, schema=("column", "metric", "quantity"), orient="row")
    paper_deviations = numbers.filter(column.str.ends_with("_std")).with_columns(column=column.str.strip_suffix("_std"))
    unit = pl.when(column.str.contains("_(pp|pct)$")).then(100.0).otherwise(1.0)
    calibrator = pl.when(pl.col("table") == "robustness").then(pl.lit(UNCALIBRATED)).otherwise(row)
    return (
        numbers.join(known, on="column", how="left", maintain_order="left")
        .with_columns(
            calibrator=pl.when(is_ablation).then(pl.lit(AVERAGE)).otherwise(calibrator),
            quantity=pl.when(is_ablation, row != "confidence").then(pl.lit("after")).otherwise("quantity"),
        )
        .join(deviations, on=CELL, how="left", maintain_order="left")
        .join(
            paper_deviations.select(*NUMBER_KEY, paper_seed_deviation="value"),
            on=NUMBER_KEY,
            how="left",
            maintain_order="left",
        )
        .with_columns(pl.col("standard_error", "seed_deviation") * unit)
    )


def _format_digits(number: pl.Expr, digits: int) -> pl.Expr:
    """Format a number with the given number of significant digits."""
    return number.map_elements(lambda value: f"{value:.{digits}g}", return_dtype=pl.String)


def _rows_without_comparison(reasons: Mapping[str, str], sources: Mapping[str, str]) -> pl.DataFrame:
    """Return one row for each data set that cannot be compared."""
    rows = []
    for name, reason in reasons.items():
        rows.append(
            {
                "table": ALL,
                "dataset": name,
                "row": ALL,
                "column": ALL,
                "verdict": NOT_COMPARABLE,
                "reason": reason,
                "source": sources.get(name, ""),
            }
        )
    return pl.DataFrame(rows, schema=SCHEMA)
