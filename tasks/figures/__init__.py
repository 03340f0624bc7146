"""Figures of the report by key, in reading order.

To add one, write a file with a function that draws it, decorated with `figure`, and add an entry here.
"""

from collections.abc import Sequence

import polars as pl

from relmap.report import curves as curves_of_maps
from relmap.report import ranking as rankings_of_maps
from relmap.report.figure import DrawnFigure, Results, Role
from tasks.figures import curves, for_paper, overview, ranking, variants

FIGURES = {
    figure.key: figure
    for figure in (
        overview.overview,
        rankings_of_maps.risk_coverage,
        ranking.accuracy_gain,
        curves.label_curves,
        curves_of_maps.reliability_by_label,
        variants.label_spread,
        rankings_of_maps.errors_found,
        variants.labelled_rows,
        variants.ablation,
        variants.simplex_feasibility,
        for_paper.method_overview,
        for_paper.labelwise_curves,
        for_paper.simplex_paths,
    )
}


def draw_all(role: Role, source: Results | Sequence[Results] | pl.DataFrame) -> list[DrawnFigure]:
    """Draw every figure of a role.

    Args:
        role: Role of the figures.
        source: Data of this role: the results of one data set, the results of all data sets, or the table `overview`.

    Returns:
        The figures, without those whose data were not computed.
    """
    figures = []
    for figure in FIGURES.values():
        if figure.role == role:
            drawn_figure = figure(source)
            if drawn_figure is not None:
                figures.append(drawn_figure)
    return figures
