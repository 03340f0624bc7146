"""What to do with the fixed decisions of a data set: an answer by intervals, and the numbers that stand beside it.

The stage of one data set and the report of all give both by this code.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from tasks.metrics.intervals import BETTER, NOT_CERTAIN, WORSE, Sign, found_per_1000, sign_of, together
from tasks.metrics.registry import COMPARED, METRICS
from tasks.protocol.results import AVERAGE

USE, KEEP, MIXED, UNKNOWN = "Use the reliability", "Keep your confidence", "Mixed", "Too few test groups to tell"
RANKS = ("aupr_error", "aurc")
KEPT_TENTHS = 7  # of the decisions, as by selacc_70; the others are reviewed
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


def answer(signs: Mapping[str, Sign]) -> str:
    """Return what to do, by the `signs` of metrics: of the correctness NLL, and of the two that rank."""
    if "nll_correct" not in signs:
        return f"{UNKNOWN}."
    predicts, ranks = signs["nll_correct"], together(signs[metric] for metric in RANKS if metric in signs)
    if predicts == ranks == BETTER:
        return f"{USE}: it predicts and ranks better."
    if predicts == ranks == NOT_CERTAIN:
        return f"{KEEP}: nothing is certain to change."
    advice = KEEP if {predicts, ranks} <= {WORSE, NOT_CERTAIN} else MIXED
    return f"{advice}: the reliability predicts {predicts} and ranks {ranks}."


def numbers(metrics: pl.DataFrame, intervals: pl.DataFrame, facts: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return a row for each data set: means over seeds and then over calibrators, and intervals of two changes.

    `found_per_1000_conf` and `found_per_1000_mrp` are the wrong decisions among 1,000 reviewed, where all are but the
    most reliable 70%; `_low` and `_high` bound their difference. `low` and `high` bound `nll_correct_delta`, both at
    95%. `commonest_label` is the accuracy of always deciding the label that most test rows have. What is not known is
    null.

    Args:
        metrics: long, as in metrics.parquet, of the calibrators that count.
        intervals: as in intervals.parquet.
        facts: the base.json of each data set.
    """
    means = {name: pl.col("value").filter(variant=of, metric=metric).mean() for name, (of, metric) in MEANS.items()}
    cells = metrics.group_by("dataset", "source", "calibrator", maintain_order=True).agg(**means)
    rows = cells.group_by("dataset", "source", maintain_order=True).agg(pl.col(*MEANS).fill_nan(None).mean())
    changes = intervals.filter(calibrator=AVERAGE, quantity="delta")
    for metric, prefix in (("nll_correct", ""), ("selacc_70", "kept_")):
        bounds = changes.filter(metric=metric).select("dataset", pl.col("value", "low", "high").name.prefix(prefix))
        rows = rows.join(bounds, on="dataset", how="left", maintain_order="left")
    sizes = {fact["dataset"]: fact.get("rows", {}).get("test") for fact in facts}
    counts = {fact["dataset"]: fact.get("class_counts", {}).get("test") for fact in facts}
    shares = {name: max(labels) / sum(labels) for name, labels in counts.items() if labels and sum(labels)}
    n = pl.col("dataset").replace_strict(sizes, default=None, return_dtype=pl.Int64)
    kept = (KEPT_TENTHS * n + 9) // 10  # as many as selacc_70 keeps
    errors, reviews = (1 - pl.col("accuracy")) * n, pl.when(n > kept).then(n - kept)
    columns = {way: found_per_1000(errors, (1 - pl.col(f"kept_{way}")) * kept, reviews) for way in ("conf", "mrp")}
    columns |= {end: found_per_1000(pl.col(f"kept_{end}") * kept, 0, reviews) for end in ("low", "high")}
    return rows.with_columns(
        *(number.alias(f"found_per_1000_{name}") for name, number in columns.items()),
        pl.col("label_spread_pp", "random_p95_pp") * 100,
        commonest_label=pl.col("dataset").replace_strict(shares, default=None, return_dtype=pl.Float64),
        nll_correct_delta="value",
    ).fill_nan(None)


def remarks(advice: str, row: Mapping[str, Any]) -> list[str]:
    """Return what a row of `numbers` says against its data set, or against the `advice` on it."""
    both, said = (row["found_per_1000_conf"], row["found_per_1000_mrp"]), []
    if advice.startswith(USE) and None not in both and abs(both[1] - both[0]) < 1:
        said.append("Where 30% are reviewed, it finds no more errors.")
    accuracy, commonest = row["accuracy"], row["commonest_label"]
    if None not in (accuracy, commonest) and accuracy < commonest + HARDLY:
        hardly = "no better" if accuracy <= commonest else "hardly better"
        said.append(
            f"The base predictor is {hardly} than always deciding the commonest label: {accuracy:.1%} of its decisions "
            f"are right, and {commonest:.1%} would be. Mend it first."
        )
    return said


def in_words(row: Mapping[str, Any], intervals: pl.DataFrame) -> list[str]:
    """Return the verdict on one data set, the answer first, from its row of `numbers` and its `intervals`."""
    changes = intervals.filter(pl.col("metric").is_in(COMPARED), calibrator=AVERAGE, quantity="delta").fill_nan(None)
    looks = changes.drop_nulls("low").select("metric", "low", "high", "p").iter_rows()
    said = [answer({metric: sign_of(METRICS[metric].direction, *look) for metric, *look in looks})]
    said += remarks(said[0], row)
    if None not in (row["found_per_1000_conf"], row["found_per_1000_mrp"]):
        between = _between(row["found_per_1000_low"], row["found_per_1000_high"], "+.0f")
        said.append(
            f"1,000 reviews of the least reliable 30% find {row['found_per_1000_mrp']:.0f} errors, and "
            f"{row['found_per_1000_conf']:.0f} where the confidence chooses{between}."
        )
    if row["nll_correct_delta"] is not None:
        change = f"the log loss of being right changes by {row['nll_correct_delta']:+.3f}"
        said.append(f"As a probability, {change}{_between(row['low'], row['high'], '+.3f')}.")
    return [*said, "The report of several data sets also corrects for their number."]


def _between(low: float | None, high: float | None, how: str) -> str:
    known = low is not None and high is not None
    return f" (95% interval of the change: {low:{how}} to {high:{how}})" if known else ""
