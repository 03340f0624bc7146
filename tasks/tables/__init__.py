"""The tables of the report by key, in the order of the page."""

from tasks.tables.ablation import ablation_by_dataset, ablation_table
from tasks.tables.budgeted_fallback import budgeted_fallback_table
from tasks.tables.datasets import datasets_table
from tasks.tables.label_spread import label_spread_by_calibrator, label_spread_table
from tasks.tables.main import intervals_table, main_table
from tasks.tables.overview import overview_table
from tasks.tables.rivals import rivals_table
from tasks.tables.robustness import robustness_table
from tasks.tables.sensitivity import sensitivity_table
from tasks.tables.simplex_projection import simplex_projection_table
from tasks.tables.verdict import verdict_table

TABLES = {
    table.key: table
    for table in (
        overview_table,
        main_table,
        intervals_table,
        ablation_table,
        ablation_by_dataset,
        budgeted_fallback_table,
        label_spread_table,
        label_spread_by_calibrator,
        simplex_projection_table,
        rivals_table,
        robustness_table,
        datasets_table,
        sensitivity_table,
        verdict_table,
    )
}
