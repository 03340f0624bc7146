"""Study of cascades: what does a cascade save at equal accuracy?

`python -m benchmarks.cascade_saving [--real-data FOLDER]` compares cascades with thresholds on the confidences and with
random routing, on rows that no rule was chosen on. The first table is for two simulated models whose confidences are
right, too high, or wrong by label; the second for two scikit-learn models of different size on data sets of FOLDER.

In each draw, `Cascade` is fitted on the labelled rows for a target accuracy, and its cost and accuracy are measured on
other rows. The thresholds on the confidences are chosen with the same test, for the same target, on the same labelled
rows, and measured on the same other rows. Their accuracies differ slightly, so there are two comparisons at equal
accuracy. Both use a curve: the costs and accuracies, on the other rows, of all thresholds on the confidences that no
others beat on the labelled rows, with linear interpolation between neighbours.

- Chosen alike: the cost of the chosen thresholds, plus the difference of the curve between the accuracy of the cascade
  and theirs.
- Chosen afterwards: the cost of the curve at the accuracy of the cascade. These thresholds are found on all labelled
  rows and on the other rows. No user could choose them, and the cascade is not chosen so.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from scipy.special import softmax
from scipy.stats import t as student
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.cascade import MODELS, REAL_COSTS, STEPS_OF_PLANS, as_record, costs_of, keep_steps
from benchmarks.evidence.cases import Source, read_features, read_home_depot
from benchmarks.records import RESULTS, read_records, write_records
from relmap.cascade.apply import USE
from relmap.cascade.estimator import Cascade
from relmap.cascade.fit import PERSON
from relmap.cascade.policy import NEVER, CascadeRows, Plan, Policy, find_frontier, measure_policy, tie_breakers

MEASURED_CODE = ("relmap/cascade", "relmap/maps", "benchmarks/cascade_saving.py")
READINGS = {name: {"logits": name} for name in MODELS}
CONFIDENCES = "thresholds on the confidences"  # as the summary of a cascade calls them
TARGETS = (0.85, 0.95)
LEVEL = 0.95  # of intervals
LABEL_SHARES = np.array([0.6, 0.25, 0.15])
LABEL_CENTRES = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.87]])
SEPARATIONS = (1.5, 2.2)  # of the centres of the labels, in what each model sees
BASE_SHARE = 0.35  # of the rows, or queries, of a real data set, that train the models
MAX_BASE_ROWS = 12_000
ClassWeight = Literal["balanced"] | None


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions of a cheap and a strong model for n rows.

    Attributes:
        label: True labels, shape (n,), from 0 to K - 1.
        logits: Logits of each model, shape (n, K).
    """

    label: np.ndarray
    logits: tuple[np.ndarray, ...]

    def take(self, index: np.ndarray) -> "Predictions":
        """Return the rows with the given indices."""
        return Predictions(self.label[index], tuple(logits[index] for logits in self.logits))

    def to_frame(self) -> pl.DataFrame:
        """Return a frame with the label, and a column for each model and label."""
        columns = {"label": self.label}
        for name, logits in zip(MODELS, self.logits, strict=True):
            for label, values in enumerate(logits.T):
                columns[f"{name}_{label}"] = values
        return pl.DataFrame(columns)

    def correct(self) -> np.ndarray:
        """Return whether each model, and a person, is correct, shape (n, 3)."""
        columns = [logits.argmax(axis=1) == self.label for logits in self.logits]
        return np.column_stack([*columns, np.ones(len(self.label), dtype=bool)])

    def confidences(self) -> np.ndarray:
        """Return the confidence of each model, shape (n, 2), with a small random number that divides ties."""
        columns = [softmax(logits, axis=1).max(axis=1) for logits in self.logits]
        return np.column_stack(columns) + tie_breakers(range(len(self.label)), len(MODELS), seed=0)


@dataclass(frozen=True)
class Situation:
    """What is wrong with the confidences of simulated models.

    Attributes:
        name: Name in the table.
        strong_sees_all: Whether the strong model sees what the cheap one sees, and more; else each sees something else.
        ignores_shares: Whether the models take all labels for equally frequent, as with balanced class weights.
        scale: What the logits are multiplied by; above 1, the confidences are too high.
    """

    name: str
    strong_sees_all: bool = True
    ignores_shares: bool = False
    scale: float = 1.0


SITUATIONS = (
    Situation("right"),
    Situation("too high", scale=2.0),
    Situation("wrong by label", ignores_shares=True),
    Situation("right, different evidence", strong_sees_all=False),
)


def simulate(situation: Situation, n_rows: int, seed: int) -> Predictions:
    """Simulate two models that see normal variables, whose means depend on the label.

    Their logits are those of the exact probabilities of the labels, given what the model sees, apart from the errors of
    the situation.

    Args:
        situation: What is wrong with the confidences.
        n_rows: Number of rows.
        seed: Seed.

    Returns:
        The predictions.
    """
    generator = np.random.default_rng(seed)
    label = generator.choice(len(LABEL_SHARES), n_rows, p=LABEL_SHARES)
    log_likelihoods = []
    for separation in SEPARATIONS:
        means = separation * LABEL_CENTRES
        seen = means[label] + generator.normal(size=(n_rows, 2))
        log_likelihoods.append(seen @ means.T - (means**2).sum(axis=1) / 2)
    cheap, strong = log_likelihoods
    if situation.strong_sees_all:
        strong = strong + cheap
    offset = np.zeros(len(LABEL_SHARES)) if situation.ignores_shares else np.log(LABEL_SHARES)
    return Predictions(label, (situation.scale * (cheap + offset), situation.scale * (strong + offset)))


@dataclass(frozen=True)
class Draw:
    """One cascade and its alternatives, on rows that none of them was chosen on.

    Attributes:
        cost: Mean cost of a row of the cascade.
        accuracy: Accuracy of its final decisions.
        cost_alike: Cost of thresholds on the confidences that were chosen in the same way, moved along their curve to
            the accuracy of the cascade.
        cost_afterwards: Cost of this curve at the accuracy of the cascade.
        cost_random: Cost of random routing with the accuracy of the cascade.
    """

    cost: float
    accuracy: float
    cost_alike: float
    cost_afterwards: float
    cost_random: float


def measure_draw(labelled: Predictions, other: Predictions, target: float, seed: int) -> Draw:
    """Fit a cascade on labelled rows, and compare it with its alternatives on other rows.

    Args:
        labelled: Rows to fit on.
        other: Rows to measure on.
        target: Target accuracy.
        seed: Seed of the cascade.

    Returns:
        Costs and accuracies.

    Raises:
        InputError: No cascade that reaches the target is cheaper than a person.
    """
    cascade = Cascade(READINGS, REAL_COSTS, target_accuracy=target, seed=seed).fit(labelled.to_frame())
    cost, accuracy = measure_cascade(cascade, other)
    by_confidence = CascadeRows(other.confidences(), other.correct())
    curve = measure_curve(CascadeRows(labelled.confidences(), labelled.correct()), by_confidence)
    assert cascade.summary_ is not None
    chosen = measure_alternative(cascade.summary_.numbers["alternatives"][CONFIDENCES], by_confidence)
    cost_afterwards = cost_at(curve, accuracy)
    return Draw(
        cost=cost,
        accuracy=accuracy,
        cost_alike=chosen.cost + cost_afterwards - cost_at(curve, chosen.accuracy),
        cost_afterwards=cost_afterwards,
        cost_random=cost_of_random_routing(other.correct().mean(axis=0), accuracy),
    )


def measure_cascade(cascade: Cascade, rows: Predictions) -> tuple[float, float]:
    """Route rows through a cascade.

    Args:
        cascade: A fitted cascade, whose person is always right.
        rows: The rows.

    Returns:
        The mean cost of a row, and the accuracy of the final decisions.
    """
    routed = pl.DataFrame(cascade.apply(rows.to_frame().drop("label")))
    is_used = routed["cascade_route"].to_numpy() == USE
    is_correct = routed["cascade_decision"].cast(pl.Int64).to_numpy() == rows.label
    assert cascade.document_ is not None
    assert cascade.routes_ is not None
    costs = [step.cost for step in cascade.document_.steps]
    cumulative = np.cumsum([*costs, REAL_COSTS[PERSON]])
    counts = [*cascade.routes_.decided.values(), cascade.routes_.waiting.get(PERSON, 0)]
    return float(counts @ cumulative) / len(rows.label), float(np.where(is_used, is_correct, True).mean())


def measure_alternative(chosen: dict[str, Any], rows: CascadeRows) -> Policy:
    """Measure thresholds that the summary of a cascade states as an alternative.

    Args:
        chosen: Models and thresholds of the alternative.
        rows: Rows with its scores for all models.

    Returns:
        The thresholds with their cost and accuracy.
    """
    steps = tuple(MODELS.index(name) for name in chosen["models"])
    thresholds = [NEVER if threshold is None else threshold for threshold in chosen["thresholds"]]
    return measure_policy(thresholds, keep_steps(rows, steps), costs_of(steps))


def measure_curve(candidates: CascadeRows, rows: CascadeRows) -> list[Policy]:
    """Measure all thresholds that no others beat on the rows for candidates.

    Args:
        candidates: Rows to find thresholds on.
        rows: Rows to measure them on.

    Returns:
        The thresholds with their costs and accuracies.
    """
    plans = []
    for steps in STEPS_OF_PLANS:
        models = tuple(MODELS[step] for step in steps)
        plans.append(Plan(models, costs_of(steps), keep_steps(candidates, steps), keep_steps(rows, steps)))
    measured = []
    for policy in find_frontier(plans):
        plan = plans[policy.plan]
        measured.append(measure_policy(policy.thresholds, plan.tests, plan.costs))
    return measured


def cost_at(curve: Sequence[Policy], accuracy: float) -> float:
    """Return the cost at which thresholds of a curve have an accuracy, interpolated between neighbours.

    Args:
        curve: Thresholds; those with others that are cheaper and as accurate are ignored.
        accuracy: The accuracy; the curve has a policy with at least this one.

    Returns:
        The cost.
    """
    costs: list[float] = []
    accuracies: list[float] = []
    for policy in sorted(curve, key=lambda policy: (policy.cost, -policy.accuracy)):
        if not accuracies or policy.accuracy > accuracies[-1]:
            costs.append(policy.cost)
            accuracies.append(policy.accuracy)
    return float(np.interp(accuracy, accuracies, costs))


def cost_of_random_routing(accuracies: np.ndarray, accuracy: float) -> float:
    """Return the least cost at which random routing has an accuracy; only the decider of a row is paid.

    Args:
        accuracies: Accuracy of each model and of a person, who has the highest one.
        accuracy: The accuracy, at least that of the least accurate.

    Returns:
        The cost.
    """
    alone = [(REAL_COSTS[name], each) for name, each in zip((*MODELS, PERSON), accuracies, strict=True)]
    costs = []
    for (cost, low), (next_cost, high) in combinations(alone, 2):
        if low <= accuracy <= high:
            costs.append(float(np.interp(accuracy, [low, high], [cost, next_cost])))
    return min(costs)


def summarize(name: str, target: float, accuracy_alone: np.ndarray, draws: Sequence[Draw]) -> dict[str, object]:
    """Summarize draws as one row of a table.

    Args:
        name: Name of the situation or data set.
        target: Target accuracy.
        accuracy_alone: Accuracy of each model alone.
        draws: At least two draws.

    Returns:
        Means, and savings with their intervals.
    """
    alone = ", ".join(f"{accuracy:.1%}" for accuracy in accuracy_alone)
    return {
        "case: cheap, strong alone": f"{name}: {alone}",
        "target": target,
        "accuracy": float(np.mean([draw.accuracy for draw in draws])),
        "cost": float(np.mean([draw.cost for draw in draws])),
        "chosen alike": format_saving([1 - draw.cost / draw.cost_alike for draw in draws]),
        "chosen afterwards": format_saving([1 - draw.cost / draw.cost_afterwards for draw in draws]),
        "random routing": format_saving([1 - draw.cost / draw.cost_random for draw in draws]),
    }


def format_saving(savings: Sequence[float]) -> str:
    """Format the mean of savings with its confidence interval, in percent.

    Args:
        savings: Savings of at least two draws, as shares of the cost of an alternative.

    Returns:
        The mean and the interval.
    """
    mean = float(np.mean(savings))
    margin = student.ppf((1 + LEVEL) / 2, len(savings) - 1) * np.std(savings, ddof=1) / np.sqrt(len(savings))
    numbers = [f"{100 * value:+.1f}".replace("-", "−") for value in (mean, mean - margin, mean + margin)]
    return f"{numbers[0]}% ({numbers[1]} to {numbers[2]})"


def measure_simulations(n_draws: int, n_labelled: int, n_other: int) -> Iterator[dict[str, object]]:
    """Compare cascades of simulated models with their alternatives.

    Args:
        n_draws: Number of draws of each situation, at least 2.
        n_labelled: Number of labelled rows of a draw.
        n_other: Number of rows of a draw to measure on.

    Yields:
        A row of the table for each situation and target.
    """
    for situation in SITUATIONS:
        pairs = []
        for draw in range(n_draws):
            labelled = simulate(situation, n_labelled, seed=2 * draw)
            pairs.append((labelled, simulate(situation, n_other, seed=2 * draw + 1)))
        yield from _measure_targets(situation.name, pairs)


def measure_real(folder: Path, n_draws: int, n_labelled: int, n_other: int) -> Iterator[dict[str, object]]:
    """Compare cascades of two trained models with their alternatives, on real data sets.

    Args:
        folder: Folder of the data sets.
        n_draws: Number of random divisions of each data set, at least 2.
        n_labelled: Number of labelled rows of a division.
        n_other: Number of rows of a division to measure on, at most.

    Yields:
        A row of the table for each data set, class weights and target.
    """
    readers: dict[str, Callable[[], Source]] = {
        "MQ2008": lambda: read_features(folder / "mq2008", ("train", "vali", "test"), 46, by_group=False),
        "MSLR": lambda: read_features(folder / "mslr_10k", ("train", "test"), 136, by_group=True),
        "Home Depot": lambda: read_home_depot(folder / "home_depot", "label3"),
    }
    class_weights: tuple[ClassWeight, ...] = (None, "balanced")
    for name, read in readers.items():
        source = read()
        for class_weight in class_weights:
            predictions = train_models(source, class_weight)
            pairs = []
            for draw in range(n_draws):
                order = np.random.default_rng(draw).permutation(len(predictions.label))
                labelled = predictions.take(order[:n_labelled])
                pairs.append((labelled, predictions.take(order[n_labelled : n_labelled + n_other])))
            yield from _measure_targets(f"{name}, {class_weight or 'no'} weights", pairs)


def train_models(source: Source, class_weight: ClassWeight) -> Predictions:
    """Train a small and a large model on a part of the rows.

    With features, the small model is a logistic regression on the two features that differ most between labels, and the
    large one boosted trees on all. With texts, both are linear, on 300 words and on up to 80,000 words and pairs.

    Args:
        source: Rows of the data set.
        class_weight: Class weights of both models.

    Returns:
        Predictions of the other rows.
    """
    units = source.group if source.by_group else np.arange(len(source.label))
    names = np.unique(units)
    generator = np.random.default_rng(0)
    generator.shuffle(names)
    is_base = np.isin(units, names[: round(BASE_SHARE * len(names))])
    base = generator.permutation(np.flatnonzero(is_base))[:MAX_BASE_ROWS]
    other = np.flatnonzero(~is_base)
    inputs = source.inputs
    if isinstance(inputs, pl.Series):
        few_words = TfidfVectorizer(max_features=300, sublinear_tf=True)
        many_words = TfidfVectorizer(ngram_range=(1, 2), min_df=3, max_features=80_000, sublinear_tf=True)
        linear = SGDClassifier(
            loss="log_loss", alpha=1e-5, max_iter=14, tol=None, class_weight=class_weight, random_state=0
        )
        cheap = make_pipeline(few_words, LogisticRegression(max_iter=300, class_weight=class_weight))
        strong = make_pipeline(many_words, linear)
    else:
        two_best = SelectKBest(k=2)
        cheap = make_pipeline(StandardScaler(), two_best, LogisticRegression(class_weight=class_weight))
        trees = HistGradientBoostingClassifier(max_iter=60, class_weight=class_weight, random_state=0)
        strong = make_pipeline(trees)
    logits = []
    for model in (cheap, strong):
        model.fit(inputs[base], source.label[base])
        logits.append(np.log(np.clip(model.predict_proba(inputs[other]), 1e-12, None)))
    return Predictions(source.label[other], tuple(logits))


def _measure_targets(name: str, pairs: Sequence[tuple[Predictions, Predictions]]) -> Iterator[dict[str, object]]:
    accuracy_alone = np.mean([other.correct()[:, :-1].mean(axis=0) for _, other in pairs], axis=0)
    for target in TARGETS:
        draws = [measure_draw(labelled, other, target, seed) for seed, (labelled, other) in enumerate(pairs)]
        yield summarize(name, target, accuracy_alone, draws)


def main() -> None:
    """Measure the tables, and write them as records."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cascade_saving", description=__doc__)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--labelled-rows", type=int, default=2_000)
    parser.add_argument("--other-rows", type=int, default=20_000, help="at most, for real data")
    parser.add_argument("--real-data", type=Path, help="folder of real data sets, to measure these only")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of records; other records in it are kept")
    arguments = parser.parse_args()
    command = f"python -m benchmarks.cascade_saving --draws {arguments.draws}"
    if arguments.real_data is None:
        record_name = "cascade-saving"
        measured = measure_simulations(arguments.draws, arguments.labelled_rows, arguments.other_rows)
    else:
        record_name = "cascade-saving-real"
        command += " --real-data FOLDER"
        measured = measure_real(arguments.real_data, arguments.draws, arguments.labelled_rows, arguments.other_rows)
    rows = []
    for row in measured:
        rows.append(row)
        print(row, flush=True)
    record = as_record(rows, command, MEASURED_CODE)
    record.values["draws"] = f"{arguments.draws:,}"
    record.values["labelled-rows"] = f"{arguments.labelled_rows:,}"
    write_records(read_records(arguments.out) | {record_name: record}, arguments.out)


if __name__ == "__main__":
    main()
