"""The verdict: every number of the paper's tables beside ours.

equal: within half a unit of the paper's last digit. near: within a tolerance derived from the deviation of both over
seeds and test rows, stated in the row. off: further away. Simulated numbers are never compared.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import polars as pl

from tasks.protocol.keys import AVERAGE, BOOSTED, PAPER_CALIBRATORS, PAPER_DATASETS
from tasks.tables.deviations import Cell, Deviation, deviations, of_deviations
from tasks.tables.display import metric_of
from tasks.tables.printed import TABLES, Place, Printed, as_number, placed, printed
from tasks.tables.robustness import UNCALIBRATED
from tasks.tables.runs import FAILED, Runs, finished
from tasks.tables.table import table

SCHEMA = pl.Schema(
    dict.fromkeys(("table", "dataset", "row", "column"), pl.String)
    | dict.fromkeys(("paper", "ours", "difference", "tolerance"), pl.Float64)
    | {"tolerance_from": pl.String, "sign_agrees": pl.Boolean}
    | dict.fromkeys(("chosen_to_match", "verdict", "reason", "source"), pl.String)
)
NOT_COMPARABLE = "not comparable"
OFFICIAL = "hub"  # where the paper's data sets lie, drawn as its authors drew them
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
    "label_spread": "what shuffled labels show falls with the number of test rows, which the paper does not say",
    "other": "no sampling deviation was measured for it",
}


def chosen_to_match(place: Place) -> str:
    """What of ours behind a number was inferred from the paper's own tables; empty where nothing was.

    It is the one step of the set-up that the authors' release lacks, and it bears on every mean over calibrators.
    """
    averaged = place.table in ("ablation", "budgeted_fallback", "label_spread")
    return "ts: solved to the optimum" if averaged or place.row == "ts" else ""


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
    """A row for each number of the paper, or one that says why a data set, or all of them, cannot be compared."""
    sources = dict.fromkeys(runs.missing, FAILED) | runs.sources()
    if OFFICIAL not in [sources.get(name) for name in PAPER_DATASETS]:
        found = ", ".join(f"{name} ({sources.get(name, 'not run')})" for name in PAPER_DATASETS)
        return _table([_not_comparable(ALL, f"no data set of the paper comes from the hub: {found}", ALL)])
    reasons = {name: _reason(name, sources) for name in (*PAPER_DATASETS, BOOSTED)}
    ran = dict(runs.rows().group_by("dataset").agg(pl.col("calibrator").unique()).iter_rows())
    unlike = {name for name in PAPER_DATASETS if {*ran.get(name, ())} != {*PAPER_CALIBRATORS}}
    reasons[AVERAGE] = _reason_of_averages(sources, unlike)
    rows = [_not_comparable(name, why, sources.get(name, "")) for name, why in reasons.items() if why]
    compared = [number for number in printed() if not reasons[number.place.dataset]]
    return _table([*_compared(runs, compared, unlike), *rows])


def _reason(name: str, sources: dict[str, str]) -> str:
    source = sources.get(name, "not run")
    return "" if source == OFFICIAL else f"{name} is {source} here; only the set on the hub can be compared"


def _reason_of_averages(sources: dict[str, str], unlike: set[str]) -> str:
    """Averages are compared only if all that the paper averages is there, and nothing else."""
    if any(sources.get(name) != OFFICIAL for name in PAPER_DATASETS):
        return "the paper averages its six data sets, and not all of them come from the hub here"
    return OTHER_CALIBRATORS if unlike else ""


def _compared(runs: Runs, numbers: Iterable[Printed], unlike: set[str]) -> list[dict[str, Any]]:
    """A row for each of `numbers`; no mean over calibrators is compared where they are `unlike` the paper's."""
    ours = {place: value for table in TABLES for place, value in placed(table.key, table(runs)).items()}
    theirs = {number.place: number.value for number in printed()}
    varying = deviations(runs)
    return [
        {
            "table": number.place.table,
            "dataset": number.place.dataset,
            "row": number.place.row,
            "column": number.place.column,
            "paper": number.value,
            "chosen_to_match": chosen_to_match(number.place),
            "source": OFFICIAL,
            **(
                {"verdict": NOT_COMPARABLE, "reason": OTHER_CALIBRATORS}
                if number.place.row == AVERAGE and number.place.dataset in unlike
                else _judged(number, ours.get(number.place), *_tolerated(number, theirs, ours, varying))
            ),
        }
        for number in numbers
    ]


def _judged(number: Printed, cell: Any, tolerance: float | None, tolerance_from: str) -> dict[str, Any]:
    """What is said of one number, given ours and how far it may lie away."""
    if cell is None:
        return {"verdict": NOT_COMPARABLE, "reason": "not measured in this run"}
    ours = as_number(cell)
    difference = ours - number.value
    said = {"ours": ours, "difference": difference, "tolerance": tolerance, "tolerance_from": tolerance_from}
    if "delta" in number.place.column and number.value != 0:
        said["sign_agrees"] = ours * number.value > 0
    if abs(difference) <= number.half_unit + 1e-12:
        return said | {"verdict": "equal"}
    if tolerance is None:
        reason = NO_TOLERANCE.get(number.place.table, NO_TOLERANCE["other"])
        return said | {"verdict": NOT_COMPARABLE, "reason": f"differs, and no tolerance can be computed: {reason}"}
    return said | {"verdict": "near" if abs(difference) <= tolerance else "off"}


def _tolerated(
    number: Printed, theirs: dict[Place, float], ours: dict[Place, Any], varying: dict[Cell, Deviation]
) -> tuple[float | None, str]:
    """The tolerance of a number and where it comes from; None where there is none."""
    column = number.place.column
    cell = cell_of(number.place)
    found = varying.get(cell) if cell else None
    if found is None:
        return None, ""
    if column.endswith("_std"):
        here = ours.get(number.place, math.nan)
        tolerance = of_deviations(here, number.value, found.n_seeds, number.half_unit)
        return tolerance, "2 standard deviations of two deviations over seeds, and half a printed unit"
    scale = 100.0 if re.search("_(pp|pct)$", column) else 1.0
    paper_seeds = theirs.get(number.place._replace(column=f"{column}_std"))
    borrowed = number.place.table == "ablation" and number.place.row not in ("confidence", "mrp")
    described = found.described(paper_seeds, scale) + ("; both are MRP's, on the same rows" if borrowed else "")
    return found.tolerance(paper_seeds, number.half_unit, scale), described


def cell_of(place: Place) -> Cell | None:
    """What a number of the paper measures; None for what has no deviation of its own (counts, ratios, shuffles).

    Variants of the ablation other than confidence borrow MRP's: intervals are made of these two only.
    """
    table, dataset, row, column = place
    if table == "ablation":
        return Cell(dataset, AVERAGE, column, "before" if row == "confidence" else "after")
    metric, member = metric_of(column.removesuffix("_std"))
    measured = (metric.key, QUANTITIES[member]) if metric else MEASURED.get(column)
    return Cell(dataset, UNCALIBRATED if table == "robustness" else row, *measured) if measured else None


def _not_comparable(dataset: str, reason: str, source: str) -> dict[str, Any]:
    everywhere = {"table": ALL, "row": ALL, "column": ALL}
    return everywhere | {"dataset": dataset, "verdict": NOT_COMPARABLE, "reason": reason, "source": source}


def _table(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return finished(pl.DataFrame(rows, schema=SCHEMA))
