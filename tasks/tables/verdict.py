"""The verdict: every number of the paper's tables beside ours.

equal: within half a unit of the paper's last digit. near: within a tolerance derived from the deviation of both over
seeds and test rows, stated in the row. off: further away. Simulated numbers are never compared.

`paper/*.csv` holds the paper's tables with the digits that it gives. A number is named by table, data set, row and
column. `row` is a calibrator, a variant, a base predictor, or `average`; the data set of an average over all six is
`average` too.
"""

from pathlib import Path
from typing import Any

import polars as pl

from tasks.protocol.results import AVERAGE
from tasks.tables.ablation import ablation_table
from tasks.tables.budgeted_fallback import budgeted_fallback_table
from tasks.tables.deviations import CELL, deviations
from tasks.tables.display import metric_of
from tasks.tables.label_spread import label_spread_table
from tasks.tables.main import main_table
from tasks.tables.robustness import BASES, UNCALIBRATED, robustness_table
from tasks.tables.runs import BOOSTED, FAILED, PAPER_CALIBRATORS, PAPER_DATASETS, Runs, finished, table
from tasks.tables.simplex_projection import simplex_projection_table

FOLDER = Path(__file__).parent / "paper"
# The paper's tables of results, in its order.
TABLES = (
    main_table,
    budgeted_fallback_table,
    label_spread_table,
    ablation_table,
    simplex_projection_table,
    robustness_table,
)
PLACE = ("table", "dataset", "row", "column")  # where a number stands
ROWS = ("calibrator", "variant", "base")  # columns that name the row, where there is one of them
SCHEMA = pl.Schema(
    dict.fromkeys(PLACE, pl.String)
    | dict.fromkeys(("paper", "ours", "difference", "tolerance"), pl.Float64)
    | {"tolerance_from": pl.String, "sign_agrees": pl.Boolean}
    | dict.fromkeys(("chosen_to_match", "verdict", "reason", "source"), pl.String)
)
NOT_COMPARABLE = "not comparable"
OFFICIAL = "hub"  # where the paper's data sets lie, drawn as its authors drew them
NOT_RUN = "not run"
# Averages are compared only if all that the paper averages is there, and nothing else.
OTHER_SETS = "the paper averages its six data sets, and not all of them come from the hub here"
OTHER_CALIBRATORS = "the paper averages six calibrators, and it was not just these that were run"
ALL = "all"  # stands for every table, row or data set that a reason holds for
QUANTITIES = {"conf": "before", "base": "before", "mrp": "after", "mrc": "after", "delta": "delta"}
MEASURED = {  # metric and quantity of columns that do not say it by their names
    "accuracy": ("accuracy", "before"),
    "ece": ("ece", "before"),
    "label_spread_pp": ("label_spread", "before"),
    "q_below_uniform_pct": ("infeasible_share", "after"),
    "solved_pct": ("solved_share", "after"),
}
NO_TOLERANCE = {
    "label_spread": "what shuffled labels show falls with the number of test rows, which the paper does not say"
}
SEEDS = 3  # the paper's
# The one step of the set-up that the authors' release lacks, inferred from the paper's own tables.
INFERRED = "ts: solved to the optimum"


@table(
    "verdict",
    "The paper's numbers beside ours.",
    "The tables follow what the authors' released code does. It differs from the paper's text in two places: the "
    "temperature is fitted on all validation rows, where the text says calibrator-fit; and the label spread is the "
    "mean over six calibrators and three trainings, where the text says SMART and three protocol seeds. Where "
    "chosen_to_match names a choice, it was inferred from the paper's own tables: agreement there is no "
    "independent confirmation.",
    digits=4,
    place="comparison",
)
def verdict_table(runs: Runs) -> pl.DataFrame:
    """Return a row for each number of the paper, or one that says why a data set, or all, cannot be compared."""
    sources = dict.fromkeys(runs.missing, FAILED) | runs.sources()
    if OFFICIAL not in [sources.get(name) for name in PAPER_DATASETS]:
        named = ", ".join(f"{name} ({sources.get(name, NOT_RUN)})" for name in PAPER_DATASETS)
        why = f"no data set of the paper comes from the hub: {named}"
        return finished(pl.DataFrame([_not_comparable(ALL, why, ALL)], schema=SCHEMA))
    places = {name: sources.get(name, NOT_RUN) for name in (*PAPER_DATASETS, BOOSTED)}
    reasons = {
        name: "" if source == OFFICIAL else f"{name} is {source} here; only the set on the hub can be compared"
        for name, source in places.items()
    }
    ran = dict(runs.rows().group_by("dataset").agg(pl.col("calibrator").unique()).iter_rows())
    unlike = {name for name in PAPER_DATASETS if {*ran.get(name, ())} != {*PAPER_CALIBRATORS}}
    some_missing = any(reasons[name] for name in PAPER_DATASETS)
    reasons[AVERAGE] = OTHER_SETS if some_missing else OTHER_CALIBRATORS if unlike else ""
    rows = [_not_comparable(name, why, sources.get(name, "")) for name, why in reasons.items() if why]
    compared = [name for name, why in reasons.items() if not why]
    numbers = printed().filter(pl.col("dataset").is_in(compared))
    return finished(pl.concat([_compared(runs, numbers, unlike), pl.DataFrame(rows, schema=SCHEMA)]))


def printed() -> pl.DataFrame:
    """Return every number of the paper's six tables by its PLACE: `value`, and half a unit of its last digit."""
    texts = {table.key: pl.read_csv(FOLDER / f"{table.key}.csv", infer_schema=False) for table in TABLES}
    return pl.concat([placed(name, table) for name, table in texts.items()])


def placed(name: str, table: pl.DataFrame) -> pl.DataFrame:
    """Return the filled cells of a table, the paper's or ours, by PLACE: `value`, and `half_unit` of its last digit.

    A count such as 17/18 is a share, whose unit is one of the count.
    """
    row = next((pl.col(key) for key in ROWS if key in table.columns), pl.lit(AVERAGE))
    dataset = pl.col("dataset") if "dataset" in table.columns else pl.lit(AVERAGE)
    numbers = table.select(pl.exclude("dataset", "source", "ours", *ROWS).cast(pl.String))
    keys = table.select(dataset=pl.coalesce(row.replace_strict(BASES, default=None), dataset), row=row)
    cells = (
        pl.concat([keys, numbers], how="horizontal")
        .with_row_index("line")
        .unpivot(index=["line", "dataset", "row"], variable_name="column", value_name="text")
        .drop_nulls("text")
        .sort("line", maintain_order=True)
    )
    count, of = (pl.col("text").str.split("/").list.get(part, null_on_oob=True).cast(pl.Float64) for part in (0, 1))
    digits = pl.col("text").str.split(".").list.get(1, null_on_oob=True).str.len_chars().cast(pl.Int64).fill_null(0)
    return cells.select(
        pl.lit(name).alias("table"),
        *PLACE[1:],
        value=pl.when(of.is_null()).then(count).otherwise(count / of),
        half_unit=0.5 / pl.coalesce(of, pl.lit(10.0).pow(digits)),
    )


def _compared(runs: Runs, numbers: pl.DataFrame, unlike: set[str]) -> pl.DataFrame:
    """A row for each of `numbers`; no mean over calibrators is compared where they are `unlike` the paper's."""
    table, row, column, ours = (pl.col(name) for name in ("table", "row", "column", "ours"))
    other_average = (row == AVERAGE) & pl.col("dataset").is_in(unlike)
    averaged = table.is_in(["ablation", "budgeted_fallback", "label_spread"])
    measured = pl.concat([placed(each.key, each(runs)) for each in TABLES]).select(*PLACE, ours="value")
    compared = (
        _with_tolerances(numbers.join(measured, on=PLACE, how="left", maintain_order="left"), deviations(runs))
        .with_columns(ours=pl.when(~other_average).then("ours"))
        .with_columns(pl.when(ours.is_not_null()).then(pl.col("tolerance", "tolerance_from")))
    )
    paper, tolerance, difference = pl.col("value"), pl.col("tolerance"), ours - pl.col("value")
    near = pl.when(difference.abs() <= tolerance).then(pl.lit("near")).otherwise(pl.lit("off"))
    unequal = pl.when(tolerance.is_null()).then(pl.lit(NOT_COMPARABLE)).otherwise(near)
    verdict = pl.when(difference.abs() <= pl.col("half_unit") + 1e-12).then(pl.lit("equal")).otherwise(unequal)
    why = table.replace_strict(NO_TOLERANCE, default="no sampling deviation was measured for it")
    return compared.with_columns(
        paper=paper,
        difference=difference,
        sign_agrees=pl.when(column.str.contains("delta"), paper != 0).then(ours * paper > 0),
        chosen_to_match=pl.when(averaged | (row == "ts")).then(pl.lit(INFERRED)).otherwise(pl.lit("")),
        verdict=verdict,
        reason=pl.when(other_average)
        .then(pl.lit(OTHER_CALIBRATORS))
        .when(ours.is_null())
        .then(pl.lit("not measured in this run"))
        .when(verdict == NOT_COMPARABLE)
        .then(pl.format("differs, and no tolerance can be computed: {}", why)),
        source=pl.lit(OFFICIAL),
    ).select(SCHEMA.names())


def _with_tolerances(numbers: pl.DataFrame, varying: pl.DataFrame) -> pl.DataFrame:
    """With the tolerance of each number, null where there is none, and in words where it comes from.

    It is two standard deviations of the difference and half a printed unit. What has no deviation of its own (counts,
    ratios, shuffles) has none. Variants of the ablation other than confidence borrow MRP's: intervals are made of
    these two only.
    """
    table, row, column = (pl.col(name) for name in ("table", "row", "column"))
    ablation, of_deviation = table == "ablation", column.str.ends_with("_std")
    parts = {name: metric_of(name.removesuffix("_std")) for name in numbers["column"].unique()}
    places = {name: (metric.key, QUANTITIES[member]) for name, (metric, member) in parts.items() if metric}
    metrics, quantities = (
        column.replace_strict({name: place[part] for name, place in (MEASURED | places).items()}, default=None)
        for part in (0, 1)
    )
    before = pl.when(row == "confidence").then(pl.lit("before")).otherwise(pl.lit("after"))
    theirs = numbers.filter(of_deviation).with_columns(column=column.str.strip_suffix("_std"))
    scale = pl.when(column.str.contains("_(pp|pct)$")).then(100.0).otherwise(1.0)
    others = pl.when(table == "robustness").then(pl.lit(UNCALIBRATED)).otherwise(row)
    cells = numbers.with_columns(
        calibrator=pl.when(ablation).then(pl.lit(AVERAGE)).otherwise(others),
        metric=pl.when(ablation).then(column).otherwise(metrics),
        quantity=pl.when(ablation).then(before).otherwise(quantities),
    )
    judged = (
        cells.join(varying, on=CELL, how="left", maintain_order="left")
        .join(theirs.select(*PLACE, paper_seeds="value"), on=PLACE, how="left", maintain_order="left")
        .with_columns(pl.col("standard_error", "seeds") * scale)
    )
    error, seeds, n = pl.col("standard_error"), pl.col("seeds"), pl.col("n_seeds")
    # The sampling of both sides, and the drawing of seeds behind each mean over seeds.
    variance = 2 * error**2 + seeds**2 / n + pl.coalesce("paper_seeds", seeds) ** 2 / SEEDS
    # Of a deviation over n seeds itself: s / sqrt(2 (n - 1)) on each side.
    of_both = pl.col("ours") ** 2 / (2 * (n - 1)) + pl.col("value") ** 2 / (2 * (SEEDS - 1))
    tolerance = 2 * pl.when(of_deviation).then(of_both).otherwise(variance).sqrt() + pl.col("half_unit")
    borrowed = pl.when(ablation & ~row.is_in(["confidence", "mrp"])).then(pl.lit("; both are MRP's, on the same rows"))
    described = pl.format(
        "2 standard deviations and half a printed unit: sampling {} ({}), as much again for the paper; "
        "seeds {}, the paper's {}{}",
        *(_digits(error, 2), "sampled", _digits(seeds, 2)),
        _digits(pl.col("paper_seeds"), 3).fill_null("taken as ours"),
        borrowed.fill_null(""),
    )
    of_deviations = pl.lit("2 standard deviations of two deviations over seeds, and half a printed unit")
    return judged.with_columns(
        tolerance=pl.when(n > 1).then(tolerance),
        tolerance_from=pl.when(of_deviation & n.is_not_null()).then(of_deviations).otherwise(described).fill_null(""),
    )


def _digits(number: pl.Expr, digits: int) -> pl.Expr:
    return number.map_elements(lambda value: f"{value:.{digits}g}", return_dtype=pl.String)


def _not_comparable(dataset: str, reason: str, source: str) -> dict[str, Any]:
    everywhere = {"table": ALL, "row": ALL, "column": ALL}
    return everywhere | {"dataset": dataset, "verdict": NOT_COMPARABLE, "reason": reason, "source": source}
