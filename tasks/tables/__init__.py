"""Tables of the report by key, in the order of the page."""

from tasks.tables import additional, paper
from tasks.tables.overview import overview_table
from tasks.tables.verdict import verdict_table

TABLES = {
    table.key: table
    for table in (
        overview_table,
        paper.main_table,
        additional.intervals_table,
        paper.ablation_table,
        paper.ablation_by_dataset,
        paper.budgeted_fallback_table,
        paper.label_spread_table,
        paper.label_spread_by_calibrator,
        paper.simplex_projection_table,
        additional.rivals_table,
        paper.robustness_table,
        paper.datasets_table,
        additional.sensitivity_table,
        verdict_table,
    )
}
