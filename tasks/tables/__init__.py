"""The tables of the report by name: each a function of `Runs` to a table in full precision, `source` comes last."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from tasks.tables.ablation import ablation_by_dataset, ablation_table
from tasks.tables.budgeted_fallback import budgeted_fallback_table
from tasks.tables.datasets import datasets_table
from tasks.tables.intervals import intervals_table
from tasks.tables.label_spread import label_spread_by_calibrator, label_spread_table
from tasks.tables.main import main_table
from tasks.tables.overview import overview_table
from tasks.tables.rivals import rivals_table
from tasks.tables.robustness import robustness_table
from tasks.tables.runs import Runs
from tasks.tables.sensitivity import sensitivity_table
from tasks.tables.simplex_projection import simplex_projection_table
from tasks.tables.verdict import verdict_table

TABLES: dict[str, Callable[[Runs], pl.DataFrame]] = {
    "overview": overview_table,
    "main": main_table,
    "budgeted_fallback": budgeted_fallback_table,
    "label_spread": label_spread_table,
    "label_spread_by_calibrator": label_spread_by_calibrator,
    "ablation": ablation_table,
    "ablation_by_dataset": ablation_by_dataset,
    "simplex_projection": simplex_projection_table,
    "datasets": datasets_table,
    "robustness": robustness_table,
    "rivals": rivals_table,
    "sensitivity": sensitivity_table,
    "intervals": intervals_table,
    "verdict": verdict_table,
}
