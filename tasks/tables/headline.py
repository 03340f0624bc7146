"""The headline: on how many data sets does MRP help, after correction, and what does that number cover?"""

from typing import Any

import polars as pl

from tasks.metrics.comparison import BETTER, WORSE, sign_of
from tasks.metrics.registry import COMPARED, METRICS
from tasks.protocol.results import AVERAGE, FAILED, display_name
from tasks.tables import intervals, main
from tasks.tables.runs import PAPER_DATASETS, Runs

COVERS = (
    "The change is the mean over the calibrators that ran. The interval covers the drawing of test groups, given the "
    "fits of the protocol seeds; it covers neither other training and validation rows nor other data sets."
)


def headline(runs: Runs) -> dict[str, Any]:
    """Return the change of each metric on each data set, MRP minus confidence, meant over calibrators, then counts.

    Data sets are named as people read them, for `dvc metrics` shows these names; `data_sets` counts, for each metric,
    those with an interval: improved, worsened, and all of them.
    """
    table = main.main_table(runs).filter(pl.col("source") != FAILED).group_by("dataset", "source", maintain_order=True)
    means = table.agg(pl.col(f"{metric}_delta").mean().alias(metric) for metric in COMPARED)
    changes = {display_name(row.pop("dataset"), row.pop("source")): row for row in means.iter_rows(named=True)}
    averages = judged(runs)
    return changes | {"data_sets": {metric: _counts(averages.filter(metric=metric)) for metric in COMPARED}}


def judged(runs: Runs) -> pl.DataFrame:
    """Return the average of each data set with its `sign`, by its 95% interval and by Holm's p over data sets."""
    averages = intervals.intervals_table(runs).filter(pl.col("calibrator") == AVERAGE)
    looks = averages.select("metric", "low", "high", "p_holm").iter_rows()
    signs = [sign_of(METRICS[metric].direction, low, high, p) for metric, low, high, p in looks]
    return averages.with_columns(pl.Series("sign", signs, dtype=pl.String))


def _counts(rows: pl.DataFrame) -> dict[str, int]:
    improved, worsened = (rows.filter(sign=sign).height for sign in (BETTER, WORSE))
    return {"improved": improved, "worsened": worsened, "of": rows["low"].count()}


def headline_sentence(runs: Runs) -> str:
    """Return on how many of the paper's and of one's own sets correctness NLL falls, and what the interval covers."""
    averages = judged(runs).filter(metric="nll_correct")
    paper = pl.col("dataset").is_in(PAPER_DATASETS)
    families = ((averages.filter(paper), "data sets"), (averages.filter(~paper), "own data sets"))
    sentences = [_sentence(rows, name) for rows, name in families if len(rows)]
    if not sentences:
        return "No interval was computed, so no number of data sets can be claimed."
    failed = [f"Not finished: {', '.join(runs.missing)}."] if runs.missing else []
    return " ".join([*sentences, *failed, COVERS])


def _sentence(rows: pl.DataFrame, name: str) -> str:
    counts = _counts(rows)
    sources = rows.group_by("source", maintain_order=True).len().iter_rows()
    named = ", ".join(source if count == len(rows) else f"{count} {source}" for source, count in sources)
    worse = f"; on {counts['worsened']} it raises it" if counts["worsened"] else ""
    without = len(rows) - counts["of"]
    unknown = f"; on {without} there are too few test groups for an interval" if without else ""
    return (
        f"On {counts['improved']} of {len(rows)} {name} ({named}) MRP lowers correctness NLL: the 95% interval lies "
        f"below zero, and p < .05 after Holm's correction over data sets{worse}{unknown}."
    )
