"""Registry of the differences between the text of the paper, the code that its authors released, and this project.

The page "How this differs from the paper's text and from its release", the note of the table `verdict` and the tutorial
are generated from it. To add a difference, add an entry to `_DIFFERENCES`, under its topic. Its sentences are shown on
the
page: use plain English, name numbers, and write "unknown" where an effect has not been measured.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "choice", "inferred"]
KIND_TITLES: dict[Kind, str] = {
    "text": "The release differs from the text of the paper, and this project follows the release",
    "choice": "This project differs from the release",
    "inferred": "Neither the text nor the release defines it, and this project infers it",
}
TOPICS = ("data", "base predictors", "protocol", "calibrators", "projection", "metrics")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A difference between the text of the paper, the release, and this project.

    Attributes:
        key: Name; tests and comments refer to it.
        kind: "text" if the release differs from the text and this project follows the release; "choice" if this project
            differs from the release; "inferred" if the release does not define it.
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
        release="Each training run samples other rows: run r adds 1009 r to the seed of the rows and 100 r to the seeds "
        "of the base predictors. The three members of a run share their rows.",
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
        code="relmap.splits.ValidationRows.rows_for_calibrator",
    ),
    Difference(
        key="rows_split_within_queries",
        kind="text",
        topic="protocol",
        release="Validation rows are split by row, so that rows of one query can be in two parts.",
        effect="Alternative `groups_kept_whole` of the table `sensitivity`.",
        code="relmap.splits.split_validation",
    ),
    # --- calibrators ---
    # --- projection ---
    # --- metrics ---
    Difference(
        key="label_spread_runs",
        kind="text",
        topic="metrics",
        text="The label spread is measured for SMART and three protocol seeds.",
        release="It is the mean over six calibrators and three training runs, each with three members.",
        effect="Unknown: `train.runs` and `train.members` are 1 by default.",
        code="tasks.measure.measure",
    ),
)
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
        f"The tables follow the code that the authors released. It differs from the text of the paper in {n_text} points. "
        f"This project differs from it in {n_choices} further points, and infers {n_inferred} that it does not define. "
        'The page "How this differs from the paper\'s text and from its release" of the documentation lists all of them.'
    )
