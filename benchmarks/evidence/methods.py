"""Methods that predict whether a decision is correct, fitted on the same labelled rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import polars as pl
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from relmap import ReliabilityMap
from relmap.metrics.probability import ece
from relmap.metrics.registry import compute_reliability_metrics

METRICS = ("log loss", "AURC", "ECE", "top gap")
MIN_RELIABILITY = 1e-6  # bounds the log loss of a row at 13.8 nats, as the library does
TOP_SHARE = 0.1  # of the rows, for the top gap


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Predictions of n rows with their true labels.

    Attributes:
        label: True labels, shape (n,), from 0 to K - 1.
        decision: Decided labels, shape (n,).
        logits: Logits, shape (n, K); None if the model only decides.
        signals: Further columns, shape (n, S); None without any.
        group: Group of each row, such as its query, shape (n,); None if rows are independent.
        n_labels: Number of labels K.
    """

    label: np.ndarray
    decision: np.ndarray
    logits: np.ndarray | None
    signals: np.ndarray | None
    group: np.ndarray | None
    n_labels: int

    @property
    def correct(self) -> np.ndarray:
        """Whether each decision is correct, shape (n,), bool."""
        return self.label == self.decision

    def take(self, index: np.ndarray) -> "LabelledRows":
        """Return the rows with the given indices."""
        return LabelledRows(
            label=self.label[index],
            decision=self.decision[index],
            logits=_take(self.logits, index),
            signals=_take(self.signals, index),
            group=_take(self.group, index),
            n_labels=self.n_labels,
        )

    def features(self) -> np.ndarray:
        """Return the features of trained models: log-probabilities or signals, and indicators of the decided label."""
        indicators = np.eye(self.n_labels)[self.decision]
        columns = [indicators]
        if self.logits is not None:
            columns.append(np.clip(_log_probabilities(self.logits), -30, 0))
        if self.signals is not None:
            columns.append(self.signals)
        return np.hstack(columns)


class Classifier(Protocol):
    """A scikit-learn classifier that predicts probabilities."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> object:
        """Fit the classifier."""

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return probabilities of shape (n, 2)."""


TRAINED_MODELS: dict[str, Callable[[int], Classifier]] = {
    "logistic regression": lambda _: make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
    "gradient boosting": lambda seed: HistGradientBoostingClassifier(
        learning_rate=0.05, max_iter=100, max_leaf_nodes=8, min_samples_leaf=20, random_state=seed
    ),
    "random forest": lambda seed: RandomForestClassifier(n_estimators=200, min_samples_leaf=10, random_state=seed),
}
VARIANTS = {"Platt": "label_platt", "isotonic": "label_isotonic", "MRP": "mrp", "`auto`": "auto"}
DECISION_ONLY_VARIANTS = {"label alone": "label_intercept", "`auto`": "auto"}
METHODS = ("confidence", *VARIANTS, *TRAINED_MODELS)
DECISION_ONLY_METHODS = (*DECISION_ONLY_VARIANTS, *TRAINED_MODELS)


def predict_reliabilities(rows: LabelledRows, test: LabelledRows, seed: int) -> dict[str, np.ndarray]:
    """Fit every method on rows, and predict the reliability of test rows.

    Args:
        rows: Labelled rows to fit on.
        test: Rows to predict.
        seed: Seed of the folds and of the trained models.

    Returns:
        By method, the probability that each decision is correct, shape (n,).
    """
    reliabilities: dict[str, np.ndarray] = {}
    variants = DECISION_ONLY_VARIANTS if rows.logits is None else VARIANTS
    for name, variant in variants.items():
        scored = _apply_map(rows, test, variant, seed)
        reliabilities[name] = scored["reliability"]
        if variant == "mrp":
            reliabilities["confidence"] = scored["confidence"]
    for name, make_model in TRAINED_MODELS.items():
        reliabilities[name] = _train(make_model(seed), rows, test)
    return reliabilities


def measure(reliability: np.ndarray, correct: np.ndarray) -> dict[str, float]:
    """Compute the METRICS of a predicted reliability.

    Args:
        reliability: Probability that each decision is correct, shape (n,).
        correct: Whether each decision is correct, shape (n,), bool.

    Returns:
        Metrics by name. The top gap is the mean reliability of the most reliable tenth, minus its accuracy.
    """
    bounded = np.clip(reliability, MIN_RELIABILITY, 1 - MIN_RELIABILITY)
    metrics = compute_reliability_metrics(np.log(bounded / (1 - bounded)), correct)
    n_top = max(1, round(TOP_SHARE * len(correct)))
    top = np.argsort(-bounded, kind="stable")[:n_top]
    return {
        "log loss": float(metrics["nll_correct"]),
        "AURC": float(metrics["aurc"]),
        "ECE": ece(bounded, correct),
        "top gap": float(bounded[top].mean() - correct[top].mean()),
    }


def _apply_map(rows: LabelledRows, test: LabelledRows, variant: str, seed: int) -> dict[str, np.ndarray]:
    """Fit a variant with the library, and score test rows."""
    if rows.logits is not None:
        fitted = ReliabilityMap(variant=variant, arrays="logits", seed=seed)
        scored = fitted.fit(rows.logits, rows.label, groups=rows.group).apply(test.logits)
        return {name: np.asarray(scored[name], dtype=float) for name in ("confidence", "reliability")}
    signals: list[str] = []
    if variant == "auto" and rows.signals is not None:
        signals = _signal_names(rows.signals)
    fitted = ReliabilityMap(variant=variant, labels=list(range(rows.n_labels)), signals=signals, seed=seed)
    scored = fitted.fit(_frame(rows), rows.label, groups=rows.group).apply(_frame(test))
    return {"reliability": scored["reliability"].to_numpy()}


def _train(model: Classifier, rows: LabelledRows, test: LabelledRows) -> np.ndarray:
    """Train a classifier of the correctness. If all decisions are correct or all are wrong, predict 1 or 0."""
    correct = rows.correct
    if correct.all() or not correct.any():
        return np.full(len(test.label), correct.mean())
    model.fit(rows.features(), correct)
    return np.asarray(model.predict_proba(test.features())[:, 1])


def _frame(rows: LabelledRows) -> pl.DataFrame:
    frame = pl.DataFrame({"decision": rows.decision})
    if rows.signals is None:
        return frame
    columns = [pl.Series(name, rows.signals[:, k]) for k, name in enumerate(_signal_names(rows.signals))]
    return frame.with_columns(columns)


def _signal_names(signals: np.ndarray) -> list[str]:
    return [f"signal_{k}" for k in range(signals.shape[1])]


def _log_probabilities(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _take(values: np.ndarray | None, index: np.ndarray) -> np.ndarray | None:
    return None if values is None else values[index]
