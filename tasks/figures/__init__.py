"""The figures of the report by key, in the order in which they are read.

A new one is a file with a function of what its role says, which `figure` makes a `Figure`, and a line here.
"""

from typing import Any

from relmap.report import curves, ranking
from relmap.report.figure import DrawnFigure, Role
from tasks.figures import for_paper, overview, variants

FIGURES = {
    figure.key: figure
    for figure in (
        overview.overview,
        ranking.risk_coverage,
        ranking.accuracy_gain,
        curves.label_curves,
        curves.reliability_by_label,
        variants.label_spread,
        ranking.errors_found,
        variants.labelled_rows,
        variants.ablation,
        variants.simplex_feasibility,
        for_paper.method_overview,
        for_paper.labelwise_curves,
        for_paper.simplex_paths,
    )
}


def drawn_for(role: Role, source: Any) -> list[DrawnFigure]:
    """Return every figure that is for `role`, made of `source`; what was not run has none."""
    made = (figure(source) for figure in FIGURES.values() if figure.role == role)
    return [figure for figure in made if figure]
