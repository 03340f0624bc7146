"""The figures of the report: results in, a chart and the rows behind it out."""

from tasks.figures.calibrators import label_spread, simplex_feasibility
from tasks.figures.curves import label_curves, reliability_by_label
from tasks.figures.figure import Figure
from tasks.figures.ranking import errors_found, fallback_gain, retained, risk_coverage
from tasks.figures.results import Results
from tasks.figures.variants import ablation, labelled_rows


def figures_of(results: Results) -> list[Figure]:
    """Every figure of one data set, in the order in which it is read; what was not run has none."""
    ranked = retained(results)
    made = [
        risk_coverage(results, ranked),
        fallback_gain(results, ranked),
        label_curves(results),
        reliability_by_label(results),
        label_spread(results),
        errors_found(results, ranked),
        labelled_rows(results),
        ablation(results),
        simplex_feasibility(results),
    ]
    return [figure for figure in made if figure and len(figure.rows)]
