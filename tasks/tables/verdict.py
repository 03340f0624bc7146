"""The verdict: every number of the paper's tables beside ours.

equal: within half a unit of the paper's last digit. near: within a tolerance derived from the deviation of both over
seeds and test rows, stated in the row. off: further away. Simulated numbers are never compared.

`paper/*.csv` holds the paper's tables with the digits that it gives. A number is named by table, data set, row and
column. `row` is a calibrator, a variant, a base predictor, or `average`; the data set of an average over all six is
`average` too.

The paper's test rows are unknown: its sampling deviation is taken to be as large as ours.
"""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from relmap.metrics.registry import METRICS
from tasks.records.results import AVERAGE, FAILED
from tasks.tables.deviations import CELL, deviations
from tasks.tables.display import metric_of
from tasks.tables.paper import BASES, TABLES, UNCALIBRATED
from tasks.tables.runs import BOOSTED, PAPER_CALIBRATORS, PAPER_DATASETS, Runs, finished, table

FOLDER = Path(__file__).parent / "paper"
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
# Averages are compared only if all that the paper averages is there, and nothing else.
OTHER_SETS = "the paper averages its six data sets, and not all of them come from the hub here"
OTHER_CALIBRATORS = "the paper averages six calibrators, and it was not just these that were run"
ALL = "all"  # stands for every table, row or data set that a reason holds for
QUANTITIES = {"conf": "before", "base": "before", "mrp": "after", "mrc": "after", "delta": "delta"}
MEASURED = {  # metric and quantity of columns that do not say it by their names
    **{metric: (metric, "before") for metric in METRICS},
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
    sources = dict.fromkeys(runs.missing, FAILED) | dict(runs.metrics.select("dataset", "source").iter_rows())
    places = {name: sources.get(name, "not run") for name in (*PAPER_DATASETS, BOOSTED)}
    if OFFICIAL not in [places[name] for name in PAPER_DATASETS]:
        named = ", ".join(f"{name} ({places[name]})" for name in PAPER_DATASETS)
        return finished(_not_comparable({ALL: f"no data set of the paper comes from the hub: {named}"}, {ALL: ALL}))
    reasons = {
        name: "" if source == OFFICIAL else f"{name} is {source} here; only the set on the hub can be compared"
        for name, source in places.items()
    }
    ran = dict(runs.rows().group_by("dataset").agg(pl.col("calibrator").unique()).iter_rows())
    unlike = {name for name in PAPER_DATASETS if {*ran.get(name, ())} != {*PAPER_CALIBRATORS}}
    some_missing = any(reasons[name] for name in PAPER_DATASETS)
    reasons[AVERAGE] = OTHER_SETS if some_missing else OTHER_CALIBRATORS if unlike else ""
    numbers = printed().filter(pl.col("dataset").is_in([name for name, why in reasons.items() if not why]))
    return finished(pl.concat([_compared(runs, numbers, unlike), _not_comparable(reasons, sources)]))


def printed() -> pl.DataFrame:
    """Return every number of the paper's six tables by its PLACE: `value`, and half a unit of its last digit."""
    names = [table.key for table in TABLES]
    return pl.concat([placed(name, pl.read_csv(FOLDER / f"{name}.csv", infer_schema=False)) for name in names])


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
    both = numbers.join(measured, on=PLACE, how="left", maintain_order="left")
    compared = _with_tolerances(both, deviations(runs)).with_columns(
        pl.when(~other_average, ours.is_not_null()).then(pl.col("ours", "tolerance", "tolerance_from"))
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
        reason=pl.coalesce(
            pl.when(other_average).then(pl.lit(OTHER_CALIBRATORS)),
            pl.when(ours.is_null()).then(pl.lit("not measured in this run")),
            pl.when(verdict == NOT_COMPARABLE).then(pl.format("differs, and no tolerance can be computed: {}", why)),
        ),
        source=pl.lit(OFFICIAL),
    ).select(SCHEMA.names())


def _with_tolerances(numbers: pl.DataFrame, varying: pl.DataFrame) -> pl.DataFrame:
    """With the tolerance of each number, null where it has no deviation (counts, ratios, shuffles), and its source."""
    table, row, column = (pl.col(name) for name in ("table", "row", "column"))
    of_ablation, of_deviation = table == "ablation", column.str.ends_with("_std")
    parts = {name: metric_of(name.removesuffix("_std")) for name in numbers["column"].unique()}
    places = MEASURED | {name: (metric.key, QUANTITIES[member]) for name, (metric, member) in parts.items() if metric}
    meanings = [(name, *meaning) for name, meaning in places.items()]
    known = pl.DataFrame(meanings, schema=("column", *CELL[2:]), orient="row")
    theirs = numbers.filter(of_deviation).with_columns(column=column.str.strip_suffix("_std"))
    scale = pl.when(column.str.contains("_(pp|pct)$")).then(100.0).otherwise(1.0)
    others = pl.when(table == "robustness").then(pl.lit(UNCALIBRATED)).otherwise(row)
    judged = (
        numbers.join(known, on="column", how="left", maintain_order="left")
        .with_columns(
            calibrator=pl.when(of_ablation).then(pl.lit(AVERAGE)).otherwise(others),
            quantity=pl.when(of_ablation, row != "confidence").then(pl.lit("after")).otherwise("quantity"),
        )
        .join(varying, on=CELL, how="left", maintain_order="left")
        .join(theirs.select(*PLACE, paper_seeds="value"), on=PLACE, how="left", maintain_order="left")
        .with_columns(pl.col("standard_error", "seeds") * scale)
    )
    error, seeds, n = pl.col("standard_error"), pl.col("seeds"), pl.col("n_seeds")
    # The sampling of both sides, and the drawing of seeds behind each mean over seeds.
    variance = 2 * error**2 + seeds**2 / n + pl.coalesce("paper_seeds", seeds) ** 2 / SEEDS
    # Of a deviation over n seeds itself: s / sqrt(2 (n - 1)) on each side.
    of_both = pl.col("ours") ** 2 / (2 * (n - 1)) + pl.col("value") ** 2 / (2 * (SEEDS - 1))
    tolerance = 2 * pl.when(of_deviation).then(of_both).otherwise(variance).sqrt() + pl.col("half_unit")
    of_others = of_ablation & ~row.is_in(["confidence", "mrp"])  # intervals are made of these two only
    borrowed = pl.when(of_others).then(pl.lit("; both are MRP's, on the same rows"))
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


def _not_comparable(reasons: Mapping[str, str], sources: Mapping[str, str]) -> pl.DataFrame:
    """A row for each data set that there is a reason for."""
    same = {"table": ALL, "row": ALL, "column": ALL, "verdict": NOT_COMPARABLE}
    rows = (same | {"dataset": name, "reason": why, "source": sources.get(name, "")} for name, why in reasons.items())
    return pl.DataFrame([row for row in rows if row["reason"]], schema=SCHEMA)
