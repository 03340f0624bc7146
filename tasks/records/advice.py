"""Advice on a data set from the results of the pipeline."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from relmap.metrics.advice import RETAINED_TENTHS, USE, Advice, Changes, advise, describe_evidence
from relmap.metrics.intervals import errors_found_per_1000
from tasks.records.results import AVERAGE

HARDLY = 0.02  # of the test rows: a base predictor that gains no more over the commonest label has learnt little


MEANS = {  # column -> variant and metric
    "accuracy": ("confidence", "accuracy"),
    "aurc_conf": ("confidence", "aurc"),
    "aurc_mrp": ("mrp", "aurc"),
    "kept_conf": ("confidence", "selacc_70"),
    "kept_mrp": ("mrp", "selacc_70"),
    "label_spread_pp": ("confidence", "label_spread"),
    "random_p95_pp": ("confidence", "label_spread_null_p95"),
}


def numbers(metrics: pl.DataFrame, intervals: pl.DataFrame, facts: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return a row for each data set: means over seeds and then over calibrators, and intervals of two changes.

    `found_per_1000_conf` and `found_per_1000_mrp` are the wrong decisions among 1,000 reviewed, where all are but the
    most reliable 70%; `_low` and `_high` bound their difference. `low` and `high` bound `nll_correct_delta`, both at
    95%. `commonest_label` is the accuracy of always deciding the label that most test rows have. `calibrators` and
    `seeds` are what is meant over. What is not known is null.

    Args:
        metrics: long, as in metrics.parquet, of the calibrators that count.
        intervals: as in intervals.parquet.
        facts: the base.json of each data set.
    """
    means = {name: pl.col("value").filter(variant=of, metric=metric).mean() for name, (of, metric) in MEANS.items()}
    cells = metrics.group_by("dataset", "source", "calibrator", maintain_order=True).agg(
        **means, seeds=pl.col("seed").n_unique()
    )
    rows = cells.group_by("dataset", "source", maintain_order=True).agg(
        pl.col(*MEANS).fill_nan(None).mean(), pl.col("seeds").max(), calibrators=pl.len()
    )
    changes = intervals.filter(calibrator=AVERAGE, quantity="delta")
    for metric, prefix in (("nll_correct", ""), ("selacc_70", "kept_")):
        bounds = changes.filter(metric=metric).select("dataset", pl.col("value", "low", "high").name.prefix(prefix))
        rows = rows.join(bounds, on="dataset", how="left", maintain_order="left")
    counts = {fact["dataset"]: fact.get("class_counts", {}).get("test") for fact in facts}
    shares = {name: max(labels) / sum(labels) for name, labels in counts.items() if labels and sum(labels)}
    n = test_rows(facts)
    kept = (RETAINED_TENTHS * n + 9) // 10  # as many as selacc_70 keeps
    errors, reviews = (1 - pl.col("accuracy")) * n, pl.when(n > kept).then(n - kept)
    columns = {
        way: errors_found_per_1000(errors, (1 - pl.col(f"kept_{way}")) * kept, reviews) for way in ("conf", "mrp")
    }
    columns |= {end: errors_found_per_1000(pl.col(f"kept_{end}") * kept, 0, reviews) for end in ("low", "high")}
    return rows.with_columns(
        *(number.alias(f"found_per_1000_{name}") for name, number in columns.items()),
        pl.col("label_spread_pp", "random_p95_pp") * 100,
        commonest_label=pl.col("dataset").replace_strict(shares, default=None, return_dtype=pl.Float64),
        rows=n,
        errors=errors.round().cast(pl.Int64),
        nll_correct_delta="value",
    ).fill_nan(None)


def test_rows(facts: Sequence[Mapping[str, Any]]) -> pl.Expr:
    """Return the number of test rows of the set in the column `dataset`; null where its `facts` do not say it."""
    sizes = {fact["dataset"]: fact.get("rows", {}).get("test") for fact in facts}
    return pl.col("dataset").replace_strict(sizes, default=None, return_dtype=pl.Int64)


def advice_on(row: Mapping[str, Any], averages: pl.DataFrame, smallest: float) -> Advice:
    """Return what to do with a data set.

    Args:
        row: Its row of `numbers`.
        averages: Its rows of intervals.parquet with changes of means over calibrators; their `p` may be corrected for
            the number of data sets.
        smallest: Smallest relevant change.
    """
    return advise(
        _changes(averages),
        rows=row["rows"],
        errors=row["errors"],
        groups=averages["groups"][0],
        smallest=smallest,
    )


def _changes(averages: pl.DataFrame) -> Changes:
    rows = averages.select(pl.exclude("value"), change="value").fill_nan(None).iter_rows(named=True)
    return {row["metric"]: row for row in rows}


def remarks(advice: Advice | None, row: Mapping[str, Any]) -> list[str]:
    """Return what a row of `numbers` says against its data set, or against the `advice` on it."""
    both, said = (row["found_per_1000_conf"], row["found_per_1000_mrp"]), []
    if advice is not None and advice.answer == USE and None not in both and abs(both[1] - both[0]) < 1:
        said.append("Where 30% are reviewed, it finds no more errors.")
    accuracy, commonest = row["accuracy"], row["commonest_label"]
    if None not in (accuracy, commonest) and accuracy < commonest + HARDLY:
        hardly = "no better" if accuracy <= commonest else "hardly better"
        said.append(
            f"The base predictor is {hardly} than always deciding the commonest label: {accuracy:.1%} of its decisions "
            f"are right, and {commonest:.1%} would be. Mend it first."
        )
    return said


def in_words(row: Mapping[str, Any], intervals: pl.DataFrame, smallest: float) -> list[str]:
    """Return the recommendation for one data set, the answer first.

    Args:
        row: Its row of `numbers`.
        intervals: Its intervals.parquet.
        smallest: Smallest relevant change.
    """
    averages = intervals.filter(calibrator=AVERAGE, quantity="delta")
    advice = advice_on(row, averages, smallest)
    found = [row[f"found_per_1000_{name}"] for name in ("conf", "mrp", "low", "high")]
    return [
        str(advice),
        *advice.then,
        *remarks(advice, row),
        *describe_evidence(found, _changes(averages), smallest),
        f"These are means over the calibrators that ran ({row['calibrators']}) and protocol seeds ({row['seeds']}); "
        "the report of several data sets also corrects for their number.",
    ]
