"""What people read around each table: its caption, how many decimals it shows, and a note on what it does not say."""

from __future__ import annotations

from dataclasses import dataclass

DEVIATION = (
    "± is the deviation over the protocol seeds, each a split of the validation rows; it is no confidence interval."
)
SIMULATED = (
    "Rows marked simulated were measured on twins of our own making: they say that the pipeline works, "
    "nothing about the data set of that name."
)
BOLD = "Bold changes are improvements."


@dataclass(frozen=True)
class Layout:
    """How a table is shown; `digits` are the paper's, where it has the table."""

    caption: str
    digits: int = 3
    note: str = ""


LAYOUTS = {
    "overview": Layout(
        "Does reranking by reliability help, by how much, and what to do.",
        3,
        "Means over calibrators and protocol seeds; low to high is the 95% interval of the change of the correctness "
        "NLL. Errors found per 1,000 reviews are those where the least reliable 30% of decisions are reviewed, with "
        "the interval of their change. To rank better is by AUPR-Error or by AURC. Advice rests on 95% intervals "
        "and on p-values corrected over data sets (Holm). What does as well is, in NLL and in AURC, at most .001 "
        "and a tenth of MRP's gain behind it.",
    ),
    "main": Layout("Reliability of fixed decisions: confidence, MRP, and the change.", 3, f"{DEVIATION} {BOLD}"),
    "budgeted_fallback": Layout(
        "Change of the accuracy of the decisions kept at each coverage, MRP minus confidence.",
        3,
        f"Means over calibrators and protocol seeds. {BOLD}",
    ),
    "label_spread": Layout(
        "Label-conditioned reliability spread under SMART, in percentage points, beside that of shuffled labels.",
        1,
        "Random is the 95th percentile over shuffles. Runs are counted over calibrators and protocol seeds.",
    ),
    "label_spread_by_calibrator": Layout(
        "Label-conditioned reliability spread of each calibrator, in percentage points.",
        1,
        "Random is the 95th percentile over shuffles. Runs are counted over protocol seeds.",
    ),
    "ablation": Layout(
        "Structural ablation, averaged over data sets and calibrators.",
        4,
        "Variants marked ours are not in the paper.",
    ),
    "ablation_by_dataset": Layout(
        "Structural ablation of each data set, averaged over calibrators.",
        4,
        "Variants marked ours are not in the paper.",
    ),
    "simplex_projection": Layout(
        "Class probabilities of the calibrator (base) and of the top-label simplex projection (MRC).",
        4,
        f"Means over protocol seeds. {BOLD}",
    ),
    "datasets": Layout("Data sets, and what was realised of them.", 3, "Class priors in the order of the labels."),
    "robustness": Layout(
        "MSLR-WEB10K under a stronger base predictor.", 3, "Bases with a calibrator's name are ours. Means over seeds."
    ),
    "rivals": Layout(
        "Class-wise calibrators beside MRP, by labelled rows.",
        3,
        f"{DEVIATION} {BOLD} With 0 projection-fit rows the calibrator was given the rows of both parts. "
        "Where a set is split by group, the first rows are those of whole groups.",
    ),
    "sensitivity": Layout("What each choice changes.", 4, "Means over the protocol seeds that both were run with."),
    "intervals": Layout(
        "MRP minus confidence, with 95% intervals.",
        4,
        "Intervals cover the drawing of test groups, given the fits of the protocol seeds; with fewer than ten groups "
        "there is none. "
        "Holm's correction is over data sets, for the averages over calibrators.",
    ),
    "verdict": Layout(
        "The paper's numbers beside ours.",
        4,
        "The tables follow what the authors' released code does. It differs from the paper's text in two places: the "
        "temperature is fitted on all validation rows, where the text says calibrator-fit; and the label spread is the "
        "mean over six calibrators and three trainings, where the text says SMART and three protocol seeds. Where "
        "chosen_to_match names a choice, it was inferred from the paper's own tables: agreement there is no "
        "independent confirmation.",
    ),
}
