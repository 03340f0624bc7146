"""The first table that a person reads: does reranking by reliability help, where, by how much, and what to do."""

from __future__ import annotations

from typing import Any

import polars as pl

from tasks.protocol.keys import AVERAGE
from tasks.tables.ablation import ablation_by_dataset
from tasks.tables.headline import BETTER, judged
from tasks.tables.rivals import rivals_table
from tasks.tables.runs import KEYS, NUMBER, TEXT, Columns, Runs, finished, in_order, values

REVIEWED = 0.3  # of the decisions, as by selacc_70
AS_WELL = 0.001  # in NLL or AURC: a difference that no one would keep eight numbers a label for
RECALIBRATED = "matrix"
BASE = "ts"  # what MRP stands on where it is held against recalibration
USE, KEEP, MIXED, UNKNOWN = "Use the reliability", "Keep your confidence", "Mixed", "Too few test groups to tell"
BETTER_SIGN, WORSE, SAME = "better", "worse", "not certainly better"
MEASURED: Columns = dict.fromkeys(
    (
        *("accuracy", "ece", "nll_correct_delta", "low", "high", "aurc_conf", "aurc_mrp"),
        *("found_per_1000_conf", "found_per_1000_mrp", "label_spread_pp", "random_p95_pp"),
    ),
    NUMBER,
)
SCHEMA = pl.Schema({"dataset": TEXT, "advice": TEXT} | MEASURED | {"source": TEXT})


def overview_table(runs: Runs) -> pl.DataFrame:
    """A row for each data set: means over calibrators and protocol seeds, the interval of the change, and advice.

    `found_per_1000_conf` and `found_per_1000_mrp` are the wrong decisions among 1,000 reviewed, where the least
    reliable 30% are. The label spread stands beside the 95th percentile of shuffled labels, in percentage points.
    """
    rows = _measured(runs).join(_intervals(runs), on="dataset", how="left", maintain_order="left")
    told = _advice(runs)
    named = rows.with_columns(
        advice=pl.col("dataset").replace_strict(told, default=None, return_dtype=TEXT),
    )
    return finished(named.select(SCHEMA.names()), runs, own=True)


def _measured(runs: Runs) -> pl.DataFrame:
    """Means over seeds, then over calibrators."""
    wanted = {
        "accuracy": values("confidence", "accuracy"),
        "ece": values("confidence", "ece"),
        "aurc_conf": values("confidence", "aurc"),
        "aurc_mrp": values("mrp", "aurc"),
        "kept_conf": values("confidence", "selacc_70"),
        "kept_mrp": values("mrp", "selacc_70"),
        "label_spread_pp": 100 * values("confidence", "label_spread"),
        "random_p95_pp": 100 * values("confidence", "label_spread_null_p95"),
    }
    cells = runs.rows(own=True).group_by(*KEYS, maintain_order=True).agg(**{k: v.mean() for k, v in wanted.items()})
    numbers = [pl.col(name).fill_nan(None).mean() for name in wanted]
    means = cells.group_by("dataset", "source", maintain_order=True).agg(numbers)
    errors = 1 - pl.col("accuracy")
    return means.with_columns(
        ((errors - (1 - REVIEWED) * (1 - pl.col(f"kept_{way}"))) / REVIEWED * 1000).alias(f"found_per_1000_{way}")
        for way in ("conf", "mrp")
    )


def _intervals(runs: Runs) -> pl.DataFrame:
    averages = in_order(runs, runs.intervals, own=True).filter(
        calibrator=AVERAGE, metric="nll_correct", quantity="delta"
    )
    return averages.select("dataset", "low", "high", nll_correct_delta="value")


def _advice(runs: Runs) -> dict[str, str]:
    """What to do with each data set, by its intervals, and what does as well."""
    ablation, rivals = ablation_by_dataset(runs), rivals_table(runs)
    told = {}
    for (dataset,), rows in judged(runs).group_by("dataset", maintain_order=True):
        answer = _answer({row["metric"]: row for row in rows.to_dicts()})
        mine = [table.filter(dataset=dataset) for table in (ablation, rivals)]
        told[str(dataset)] = " ".join([f"{answer}.", *(_as_well(*mine) if answer.startswith((USE, MIXED)) else [])])
    return told


def _answer(found: dict[str, dict[str, Any]]) -> str:
    """By the correctness NLL, and by the two metrics that rank, each corrected over data sets."""
    if any(metric not in found or found[metric]["low"] is None for metric in BETTER):
        return UNKNOWN
    predicts, ranks = _sign(found["nll_correct"]), _sign(found["aupr_error"], found["aurc"])
    if predicts == ranks == BETTER_SIGN:
        return f"{USE}: it predicts and ranks better"
    if predicts == ranks == SAME:
        return f"{KEEP}: nothing is certain to change"
    told = f"the reliability predicts {predicts} and ranks {ranks}"
    return f"{KEEP if {predicts, ranks} <= {WORSE, SAME} else MIXED}: {told}"


def _sign(*looks: dict[str, Any]) -> str:
    improved, worsened = (any(look[way] for look in looks) for way in ("improved", "worsened"))
    if improved and worsened:
        return "better by one metric and worse by another"
    return BETTER_SIGN if improved else WORSE if worsened else SAME


def _as_well(ablation: pl.DataFrame, rivals: pl.DataFrame) -> list[str]:
    """Cheaper ways that reach what MRP does on one data set."""
    said = []
    nll = dict(ablation.select("variant", "nll_correct").iter_rows())
    mrp, platt = nll.get("mrp"), nll.get("label_platt")
    if mrp is not None and platt is not None and platt <= mrp + AS_WELL:
        said.append(f"A Platt line for each label does as well (correctness NLL {platt:.3f} beside {mrp:.3f}).")
    shared = rivals.filter(pl.col("projection_fit_rows") > 0)
    most = shared.filter(pl.col("rows") == pl.col("rows").max())
    ours, theirs = (
        most.filter(calibrator=name)[column].drop_nulls().to_list()
        for name, column in ((BASE, "aurc_mrp"), (RECALIBRATED, "aurc_conf"))
    )
    if ours and theirs and theirs[0] <= ours[0] + AS_WELL:
        said.append(f"So does matrix scaling, if probabilities may change (AURC {theirs[0]:.3f} beside {ours[0]:.3f}).")
    return said
