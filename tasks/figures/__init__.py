"""The figures of the report by key, in the order in which they are read.

A new one is a file with a function of what its role says, which `figure` makes a `Figure`, and a line here.
"""

from typing import Any

from tasks.figures import curves, for_paper, overview, ranking, variants
from tasks.figures.figure import DrawnFigure, Role

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
