"""The figures of the report by data set, in the order in which they are read.

A new one is a file with a function from `Results` to a `Figure`, or None where what it shows was not run, and a line
here.
"""

from tasks.figures.calibrators import label_spread, simplex_feasibility
from tasks.figures.curves import label_curves, reliability_by_label
from tasks.figures.figure import Figure
from tasks.figures.ranking import errors_found, fallback_gain, risk_coverage
from tasks.figures.results import Results
from tasks.figures.variants import ablation, labelled_rows

FIGURES = (
    risk_coverage,
    fallback_gain,
    label_curves,
    reliability_by_label,
    label_spread,
    errors_found,
    labelled_rows,
    ablation,
    simplex_feasibility,
)


def figures_of(results: Results) -> list[Figure]:
    """Every figure of one data set; what was not run has none."""
    made = [figure(results) for figure in FIGURES]
    return [figure for figure in made if figure and len(figure.rows)]
