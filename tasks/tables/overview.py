"""The first table that a person reads: does reranking by reliability help, where, by how much, and what to do.

And the headline: on how many data sets does MRP help, after correction, and what does that number cover?
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import polars as pl

from relmap.metrics.advice import MIXED, USE
from relmap.metrics.intervals import BETTER, WORSE, classify_change
from relmap.metrics.registry import COMPARED_METRICS, METRICS
from tasks.records.advice import advice_on, numbers, remarks
from tasks.records.results import AVERAGE, FAILED, display_name
from tasks.tables import ours, paper
from tasks.tables.runs import NUMBER, PAPER_DATASETS, TEXT, Runs, finished, table

AS_WELL, OF_THE_GAIN = 0.001, 0.1  # how far behind MRP a cheaper way may be: so much, and that share of what MRP gains
BASE = "ts"  # what MRP stands on where it is held against recalibration
JUDGED = {key: METRICS[key].title for key in ("nll_correct", "aurc")}  # what a cheaper way has to reach: lower
UNMEASURED = [None] * len(JUDGED)
HEADS = {  # of the columns that the page shows, numbers first; the CSV has more
    "dataset": "data set",
    "found_per_1000_conf": "errors found in 1,000 reviews, by confidence",
    "found_per_1000_mrp": "by reliability",
    "found_per_1000_low": "more, at least",
    "found_per_1000_high": "more, at most",
    "nll_correct_delta": "change of the log loss",
    "low": "at least",
    "high": "at most",
    "accuracy": "right decisions",
    "commonest_label": "right by the commonest label",
    "advice": "what to do",
}
OTHERS = ("aurc_conf", "aurc_mrp", "label_spread_pp", "random_p95_pp")
SCHEMA = pl.Schema(
    dict.fromkeys((*HEADS, *OTHERS), NUMBER) | dict.fromkeys(("dataset", "advice", "remarks", "source"), TEXT)
)
COVERS = (
    "Advice and changes are of means over the calibrators and protocol seeds that ran. The interval covers the "
    "drawing of test groups, given the fits of the seeds; it covers neither other training and validation rows nor "
    "other data sets."
)


@table(
    "overview",
    "Does reranking by reliability help, by how much, and what to do.",
    "Means over calibrators and protocol seeds, with 95% intervals of the changes. Errors are found among the least "
    "reliable 30% of decisions; the log loss is that of being right (correctness NLL). To rank better is by AUPR-Error "
    "or by AURC. Advice rests on 95% intervals and on p-values corrected over data sets (Holm). What does as well is, "
    "in NLL and in AURC, at most .001 and a tenth of MRP's gain behind it; clearly better is what has an interval of "
    "the difference in NLL that leaves out 0.",
    place="first",
)
def overview_table(runs: Runs) -> pl.DataFrame:
    """Return a row for each data set: means over calibrators and seeds, the interval of the change, and advice.

    Numbers are those of `advice.numbers`; their intervals are not corrected over data sets, as the advice is. The label
    spread stands beside the 95th percentile of shuffled labels, in percentage points.
    """
    rows = numbers(runs.rows(own=True), runs.intervals, runs.facts)
    averages = judged(runs).drop("p").rename({"delta": "value", "p_holm": "p"})
    others = [paper.ablation_by_dataset(runs), ours.rivals_table(runs)]
    words = []
    for row in rows.iter_rows(named=True):
        of_set, advice, said = {"dataset": row["dataset"]}, None, []
        if len(changes := averages.filter(**of_set)):
            advice = advice_on(row, changes, runs.smallest_relevant_change)
            ends = runs.intervals.filter(**of_set, quantity="beside_mrp").select("low", "high").iter_rows()
            better = any(
                classify_change(METRICS["nll_correct"].direction, low, high, 0) == BETTER for low, high in ends
            )
            if advice.answer in (USE, MIXED):
                said = list(_as_well(better, *(table.filter(**of_set) for table in others)))
        words.append((advice and str(advice), " ".join(said + remarks(advice, row))))
    advised = pl.DataFrame(words, schema={"advice": TEXT, "remarks": TEXT}, orient="row")
    return finished(rows.hstack(advised).select(SCHEMA.names()), runs, own=True)


def _as_well(better: bool, variants: pl.DataFrame, calibrators: pl.DataFrame) -> Iterator[str]:
    """Cheaper ways that reach what MRP does on one data set, and recalibrating where it is `better`."""
    shared = calibrators.filter(pl.col("projection_fit_rows") > 0)
    most = shared.filter(pl.col("rows") == pl.col("rows").max()).to_dicts()
    of = {row["variant"]: [row[metric] for metric in JUDGED] for row in variants.to_dicts()}
    for row, way in product(most, ("conf", "mrp")):
        of[row["calibrator"], way] = [row[f"{metric}_{way}"] for metric in JUDGED]
    for words, surpasses, *places in (
        ("A Platt line for each label", False, "label_platt", "mrp", "confidence"),
        ("If probabilities may change, matrix scaling", better, ("matrix", "conf"), (BASE, "mrp"), (BASE, "conf")),
    ):
        numbers = [*zip(JUDGED.values(), *(of.get(place, UNMEASURED) for place in places), strict=True)]
        known = all(None not in columns for columns in numbers)
        if known and (surpasses or all(_reached(*columns) for _, *columns in numbers)):
            beside = (f"{name} {at:.3f} beside {mrp:.3f}" for name, at, mrp, _ in numbers)
            yield f"{words} {'is clearly better' if surpasses else 'does as well'} ({', '.join(beside)})."


def _reached(at: float, mrp: float, confidence: float) -> bool:
    """Is a cheaper way's number about as low as MRP's, which stands in place of that of the confidence?"""
    return at <= mrp + min(AS_WELL, OF_THE_GAIN * max(confidence - mrp, 0))


def headline(runs: Runs) -> dict[str, Any]:
    """Return the change of each metric on each data set, MRP minus confidence, meant over calibrators, then counts.

    Data sets are named as people read them, for `dvc metrics` shows these names; `data_sets` counts, for each metric,
    those with an interval: improved, worsened, and all of them.
    """
    table = paper.main_table(runs).filter(pl.col("source") != FAILED).group_by("dataset", "source", maintain_order=True)
    means = table.agg(pl.col(f"{metric}_delta").mean().alias(metric) for metric in COMPARED_METRICS)
    changes = {display_name(row.pop("dataset"), row.pop("source")): row for row in means.iter_rows(named=True)}
    averages = judged(runs)
    return changes | {"data_sets": {metric: _counts(averages.filter(metric=metric)) for metric in COMPARED_METRICS}}


def judged(runs: Runs) -> pl.DataFrame:
    """Return the average of each data set with its `sign`, by its 95% interval and by Holm's p over data sets."""
    averages = ours.intervals_table(runs).filter(pl.col("calibrator") == AVERAGE)
    looks = averages.select("metric", "low", "high", "p_holm").iter_rows()
    signs = [classify_change(METRICS[metric].direction, low, high, p) for metric, low, high, p in looks]
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
