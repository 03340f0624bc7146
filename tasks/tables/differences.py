"""Registry of the differences between the text of the paper, the code that its authors released, and this project.

The page "How this differs from the paper's text and from its release", the note of the table `verdict` and the tutorial
are generated from it. To add a difference, add an entry to `_DIFFERENCES`, under its topic. Its sentences are shown on
the page: use plain English, name numbers, and write "unknown" where an effect has not been measured.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "choice", "inferred"]
KIND_TITLES: dict[Kind, str] = {
    "text": "The release differs from the text of the paper or specifies more, and this project follows the release",
    "choice": "This project differs from the release",
    "inferred": "Neither the text nor the release defines it, and this project infers it",
}
TOPICS = ("data", "base predictors", "protocol", "calibrators", "projection", "metrics")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A difference between the text of the paper, the release, and this project.

    Attributes:
        key: Name; tests and comments refer to it.
        kind: "text" if the release differs from the text or specifies more, and this project follows the release;
            "choice" if this project differs from the release; "inferred" if the release does not define it.
        topic: One of TOPICS.
        text: What the text of the paper says; empty if nothing.
        release: What the release does.
        project: What this project does; empty for "text".
        effect: Effect on the numbers of the tables, as far as it is known.
        code: Dotted name of the function, class or module of this project that decides it.
    """

    key: str
    kind: Kind
    topic: str
    text: str = ""
    release: str
    project: str = ""
    effect: str
    code: str


_DIFFERENCES = (
    # --- data ---
    Difference(
        key="sampled_rows",
        kind="text",
        topic="data",
        text="The sampling of rows, the split of queries and the texts of pairs are not described.",
        release="Scripts define them for all six data sets, with fixed seeds.",
        effect="They define the rows of all tables.",
        code="tasks.datasets.sampling",
    ),
    Difference(
        key="rows_of_runs",
        kind="text",
        topic="data",
        text="Three model seeds are named, but not what differs between them.",
        release="Each training run samples other rows: run r adds 1009 r to the seed of the rows and 100 r to the "
        "seeds of the base predictors. The three members of a run share their rows.",
        effect="Only on the label spread; all other tables use the first member of run 0.",
        code="tasks.train",
    ),
    Difference(
        key="runs_of_amazon_esci",
        kind="inferred",
        topic="data",
        release="The script makes one run of Amazon ESCI, but the evaluations read three.",
        project="Runs 1 and 2 have the seeds that the same rule gives.",
        effect="Only on the label spread of Amazon ESCI, with `train.runs` above 1.",
        code="tasks.datasets.amazon_esci.sample_splits",
    ),
    Difference(
        key="scores_of_alloprof",
        kind="choice",
        topic="data",
        release="The number of labels of Alloprof is the largest score plus one.",
        project="There are two labels, and a score above 1 is an error that names its row.",
        effect="None on scores of 0 and 1.",
        code="tasks.datasets.alloprof_rerank.sample_splits",
    ),
    # --- base predictors ---
    Difference(
        key="weights_of_boosted_trees",
        kind="inferred",
        topic="base predictors",
        text="The LightGBM predictor is balanced.",
        release="Class weights are off unless an option is given; the seed of the run with weights is not recorded.",
        project="Class weights are balanced, with 9101, the seed of the script.",
        effect="Unknown, and only on the table `robustness`.",
        code="tasks.train",
    ),
    Difference(
        key="threads_of_boosted_trees",
        kind="choice",
        topic="base predictors",
        release="LightGBM uses 8 threads.",
        project="It uses one thread in its deterministic mode, so that every machine gives the same trees.",
        effect="None on the inputs on which both were run: all logits are equal. Sums in another order may change the "
        "last digits on more rows.",
        code="tasks.predictors.boosted.BoostedSettings",
    ),
    # --- protocol ---
    Difference(
        key="temperature_rows",
        kind="text",
        topic="protocol",
        text="The temperature is fitted on the calibrator-fit rows.",
        release="It is fitted on all validation rows, which include the rows of the projection.",
        effect="Alternative `temperature_without_leak` of the table `sensitivity`.",
        code="relmap.projection.rows.ValidationRows.rows_for_calibrator",
    ),
    Difference(
        key="rows_split_within_queries",
        kind="text",
        topic="protocol",
        release="Validation rows are split by row, so that rows of one query can be in two parts.",
        effect="Alternative `groups_kept_whole` of the table `sensitivity`.",
        code="relmap.projection.rows.split_validation",
    ),
    Difference(
        key="clip",
        kind="text",
        topic="protocol",
        text="Bounds of probabilities are not mentioned.",
        release="Calibrated probabilities are clipped to [1e-6, 1 - 1e-6], and not normalized again, before "
        "rankings, ECE, fits of the projection, MRC, the log loss of the labels and the Brier score. Reliabilities "
        "are clipped to the same bounds before their loss and their ranking. Rows beyond the bounds tie.",
        effect="Alternative `no_clip` of the table `sensitivity`; large where a base predictor is overconfident, "
        "above all for the label intercept. Maps of users' own predictions are not clipped.",
        code="relmap.decisions.CalibratedDecisions.clip",
    ),
    Difference(
        key="fit_of_the_temperature",
        kind="inferred",
        topic="protocol",
        text="The temperature is fitted by log loss.",
        release="The function that fits it is in a module that is not published.",
        project="It is the exact minimum of the log loss.",
        effect="The column `chosen_to_match` of the table `verdict` names the numbers that it affects.",
        code="relmap.calibrators.temperature.fit_temperature",
    ),
    Difference(
        key="softmax_in_double_precision",
        kind="inferred",
        topic="protocol",
        release="The function that decides the fixed label is in a module that is not published.",
        project="The fixed label is the first largest logit, compared in float64.",
        effect="None, except for logits that are equal in float32.",
        code="relmap.decisions.decide",
    ),
    Difference(
        key="random_numbers",
        kind="choice",
        topic="protocol",
        release="One stream of random numbers of PyTorch on a GPU gives the batches of h-calibration and the start "
        "of SMART.",
        project="Each fit draws them from NumPy with the protocol seed.",
        effect="SMART and, above 6,000 rows, h-calibration differ as between two seeds. On saved logits of two data "
        "sets, NLL, AUPR-Error and AURC agree to 0.01.",
        code="relmap.calibrators.smart.initial_parameters",
    ),
    # --- calibrators ---
    Difference(
        key="diagonal",
        kind="text",
        topic="calibrators",
        text="DIAG is the diagonal family of intra-order-preserving functions of Rahimi et al. (2020).",
        release="It multiplies each gap between neighboring sorted logits by a factor, which is the same for all "
        "rows. A ridge draws the factors to 1.",
        effect="Defines the rows of DIAG in all tables.",
        code="relmap.calibrators.diagonal.fit_diagonal",
    ),
    Difference(
        key="optimum_of_diagonal",
        kind="choice",
        topic="calibrators",
        release="The factors are fitted by L-BFGS in float32 with at most 120 iterations, which ends before the "
        "optimum.",
        project="The factors are the optimum.",
        effect="Probabilities differ by up to 0.0005 on 120 artificial rows.",
        code="relmap.calibrators.diagonal.fit_diagonal",
    ),
    Difference(
        key="spline",
        kind="text",
        topic="calibrators",
        text="Spline is the recalibration of Gupta et al. (2020).",
        release="It is a logistic regression on cubic B-splines of the confidence. Probabilities are floored at "
        "1e-8, so that rows with a confidence above 1 - 1e-8 stay near 1, whatever the curve says.",
        effect="Large for overconfident base predictors. Maps of users' own predictions use the curve without these "
        "floors.",
        code="relmap.calibrators.spline.fit_published_spline",
    ),
    Difference(
        key="hcalibration_mapping",
        kind="text",
        topic="calibrators",
        text="h-cal uses the objective of Huang et al. (2025); the mapping is not described.",
        release="The mapping of -log p has 51 slopes with cumulative offsets, and jumps between segments. The loss "
        "of a label uses the rows of the other labels only, which is biased for two imbalanced labels.",
        effect="h-cal can worsen calibration on imbalanced binary labels: in a simulation with 27% positive "
        "decisions, the ECE of calibrated predictions rises from 0.005 to 0.064.",
        code="relmap.calibrators.hcalibration.fit_hcal",
    ),
    Difference(
        key="hcalibration_ties",
        kind="choice",
        topic="calibrators",
        release="Events are sorted by probabilities in float32, with PyTorch's sort, which leaves tied events in any "
        "order.",
        project="They are sorted by probabilities in float64, and tied events keep the order of the rows.",
        effect="The loss differs by up to 0.3% and fitted probabilities by up to 0.0002 on 300 artificial rows. Only "
        "the order of tied events causes this: sorted as in the release, the loss agrees to 1e-6.",
        code="relmap.calibrators.hcalibration.fit_hcal",
    ),
    Difference(
        key="smart_loss",
        kind="text",
        topic="calibrators",
        text="SMART is the method of Guo et al. (2025), which minimizes a soft calibration error.",
        release="The network minimizes the log loss. The network after the step of the best epoch is stored, "
        "although the loss is that before the step.",
        effect="Defines the rows of SMART in all tables.",
        code="relmap.calibrators.smart.fit_smart",
    ),
    # --- projection ---
    Difference(
        key="projection_selection",
        kind="text",
        topic="projection",
        text="Projection-selection rows choose hyperparameters and the epoch where a variant needs it.",
        release="They choose the penalty of the label intercept only. MRP uses the last of 400 epochs.",
        effect="Defines MRP in all tables.",
        code="relmap.projection.rows.FitBatch",
    ),
    Difference(
        key="precision_of_the_lattice",
        kind="choice",
        topic="projection",
        release="MRP, shared 1D and label-wise 2D are fitted in float32, with the reliability clipped to [1e-6, 1 - "
        "1e-6] in the loss.",
        project="They are fitted in float64, without a clip in the loss.",
        effect="Logits at knots differ by up to 0.003 and reliabilities by up to 0.001 on artificial rows.",
        code="relmap.projection.lattices_torch.fit_lattices",
    ),
    Difference(
        key="bound_of_the_intercept",
        kind="choice",
        topic="projection",
        release="Shifts are fitted by L-BFGS in float32 with at most 80 iterations, without a bound.",
        project="Shifts are the optimum within [-30, 30].",
        effect="Shifts differ by less than 0.002 on artificial rows. Labels whose decisions are all correct or all "
        "wrong differ, if the chosen penalty is 0.",
        code="relmap.projection.labelwise.fit_intercepts",
    ),
    Difference(
        key="simplex_search",
        kind="text",
        topic="projection",
        text="MRC is feasible if the fixed label is on top and the reliability is at least 1/K.",
        release="A reliability below 1/K makes the row uniform, and the row counts as solved. Unsolved are rows "
        "whose fixed label is not the first of the most probable labels; they do not change. Powers are at most "
        "512.",
        effect="Defines the columns of infeasible and solved rows.",
        code="relmap.projection.simplex.project_simplex",
    ),
    # --- metrics ---
    Difference(
        key="label_spread_runs",
        kind="text",
        topic="metrics",
        text="The label spread is measured for SMART and three protocol seeds.",
        release="It is the mean over six calibrators and three training runs, each with three members. Each "
        "calibrator is fitted on the mean probabilities of the members, except for the temperatures, and decides by "
        "its own probabilities.",
        effect="The table `label_spread_by_calibrator` shows each calibrator.",
        code="tasks.measure.measure",
    ),
    Difference(
        key="one_training_run",
        kind="choice",
        topic="metrics",
        release="The label spread is averaged over three training runs. The number of the run replaces the protocol "
        "seed.",
        project="There is one training run with one member by default, and three protocol seeds. With as many runs "
        "as protocol seeds (`train.runs: 3`, `train.members: 3`), it is measured as in the release.",
        effect="Unknown for the paper's data sets.",
        code="flows.reliability.Experiment",
    ),
    Difference(
        key="shuffles_of_labels",
        kind="choice",
        topic="metrics",
        release="Residuals are shuffled row by row, 200 times, with a seed for each data set and calibrator. A seed "
        "counts as above random if at most 9 shuffles have at least its label spread.",
        project="The sums of shuffled residuals are drawn from their distribution, with the protocol seed. A seed "
        "counts if its label spread is above the 95th percentile.",
        effect="The percentile has a standard error of about 4% in both. The counts differ only if exactly 10 "
        "shuffles have at least the label spread.",
        code="relmap.metrics.spread.LabelCells",
    ),
    Difference(
        key="ties",
        kind="choice",
        topic="metrics",
        text="Rows with equal reliability are not mentioned.",
        release="AUPR-Error, AURC and selective accuracy keep tied rows in the order of the file.",
        project="They are expectations over a random order of tied rows.",
        effect="On saved logits of two data sets, at most 0.006 in AUPR-Error and 0.002 in AURC, for isotonic "
        "regression. Up to 0.03 on 120 artificial rows. Clipped confidences tie too.",
        code="relmap.metrics.reliability",
    ),
    Difference(
        key="ece_bins",
        kind="text",
        topic="metrics",
        text="The number of bins of the ECE is not given.",
        release="There are 15 bins of equal width, closed on the left.",
        effect="Alternative `ece_25_bins` of the table `sensitivity`.",
        code="relmap.metrics.probability.confidence_bins",
    ),
    Difference(
        key="figure_of_curves",
        kind="choice",
        topic="metrics",
        text="The figure of learned curves shows SMART.",
        release="Its curves are fitted for 220 epochs, on the rows of training run 0.",
        project="It shows the curves of the tables (400 epochs) and the first protocol seed.",
        effect="On the figure only.",
        code="tasks.figures.for_paper",
    ),
)
PAGE_TITLE = "How this differs from the paper's text and from its release"
DIFFERENCES = {difference.key: difference for difference in _DIFFERENCES}


def differences_of_kind(kind: Kind) -> tuple[Difference, ...]:
    """List the differences of a kind.

    Args:
        kind: Kind of a difference.

    Returns:
        The differences, in the order of the registry.
    """
    return tuple(difference for difference in _DIFFERENCES if difference.kind == kind)


def summarize_differences() -> str:
    """Summarize the registry, for the note of a table.

    Returns:
        Sentences with the number of differences of each kind.
    """
    n_text = len(differences_of_kind("text"))
    n_choices = len(differences_of_kind("choice"))
    n_inferred = len(differences_of_kind("inferred"))
    return (
        "The tables follow the code that the authors released. It differs from the text of the paper, or specifies "
        f"more, in {n_text} points. This project differs from it in {n_choices} further points, and infers "
        f'{n_inferred} that it does not define. The page "{PAGE_TITLE}" of the documentation lists all of them.'
    )
