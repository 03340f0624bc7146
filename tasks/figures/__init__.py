"""The figures of the report by key, in the order in which they are read.

A new one is a file with a function of what its role says, which `figure` makes a `Figure`, and a line here.
"""

from typing import Any

from tasks.figures.calibrators import label_spread, simplex_feasibility
from tasks.figures.curves import label_curves, reliability_by_label
from tasks.figures.figure import DrawnFigure, Role
from tasks.figures.for_paper import labelwise_curves, method_overview, simplex_paths
from tasks.figures.overview import overview
from tasks.figures.ranking import accuracy_gain, errors_found, risk_coverage
from tasks.figures.variants import ablation, labelled_rows

FIGURES = {
    figure.key: figure
    for figure in (
        overview,
        risk_coverage,
        accuracy_gain,
        label_curves,
        reliability_by_label,
        label_spread,
        errors_found,
        labelled_rows,
        ablation,
        simplex_feasibility,
        method_overview,
        labelwise_curves,
        simplex_paths,
    )
}


def drawn_for(role: Role, source: Any) -> list[DrawnFigure]:
    """Return every figure that is for `role`, made of `source`; what was not run has none."""
    made = (figure(source) for figure in FIGURES.values() if figure.role == role)
    return [figure for figure in made if figure]
