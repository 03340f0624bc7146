"""Methods that predict whether a decision is correct, fitted on the same labelled rows."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import polars as pl
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from relmap import ReliabilityMap
from relmap.metrics.probability import ece
from relmap.metrics.registry import compute_reliability_metrics

METRICS = ("log loss", "AURC", "ECE", "top gap", "absolute top gap")
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

    def replace_labels(self, share: float, generator: np.random.Generator) -> "LabelledRows":
        """Return the rows with a share of their true labels replaced by random ones."""
        replaced = generator.random(len(self.label)) < share
        random_labels = generator.integers(0, self.n_labels, len(self.label))
        return replace(self, label=np.where(replaced, random_labels, self.label))

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
TEMPERATURE_SCALING = "temperature scaling"
SMS = "`sms`"
MRP_ON_TEMPERATURE_SCALING = "MRP on temperature scaling"
DEFAULT = "default"
LABEL_ALONE = "label alone"
LINES_ON_TEMPERATURE_SCALING = {"Platt": "label_platt", "isotonic": "label_isotonic"}
POOLED_METHODS = (TEMPERATURE_SCALING, SMS, MRP_ON_TEMPERATURE_SCALING, DEFAULT)
METHODS = (*POOLED_METHODS, *LINES_ON_TEMPERATURE_SCALING, *TRAINED_MODELS)
DECISION_ONLY_METHODS = (LABEL_ALONE, DEFAULT, *TRAINED_MODELS)


def predict_reliabilities(rows: LabelledRows, test: LabelledRows, seed: int) -> dict[str, np.ndarray]:
    """Fit every method on rows, and predict the reliability of test rows.

    Args:
        rows: Labelled rows to fit on.
        test: Rows to predict.
        seed: Seed of the folds and of the trained models.

    Returns:
        By method, the probability that each decision is correct, shape (n,).
    """
    if rows.logits is None:
        reliabilities = {
            LABEL_ALONE: _apply_map_of_decisions(rows, test, has_signals=False, seed=seed),
            DEFAULT: _apply_map_of_decisions(rows, test, has_signals=True, seed=seed),
        }
    else:
        reliabilities = predict_with_pooled_methods(rows, test, seed)
        for name, variant in LINES_ON_TEMPERATURE_SCALING.items():
            reliabilities[name] = _apply_map(rows, test, "ts", variant, seed).reliability
    for name, make_model in TRAINED_MODELS.items():
        reliabilities[name] = _train(make_model(seed), rows, test)
    return reliabilities


def predict_with_pooled_methods(rows: LabelledRows, test: LabelledRows, seed: int) -> dict[str, np.ndarray]:
    """Fit the POOLED_METHODS on rows with logits, and predict the reliability of test rows.

    Args:
        rows: Labelled rows to fit on.
        test: Rows to predict.
        seed: Seed of the folds.

    Returns:
        By method, the probability that each decision is correct, shape (n,).
    """
    on_temperature = _apply_map(rows, test, "ts", "mrp_pooled", seed)
    default = _apply_map(rows, test, None, None, seed)
    return {
        TEMPERATURE_SCALING: on_temperature.confidence,
        SMS: default.confidence,
        MRP_ON_TEMPERATURE_SCALING: on_temperature.reliability,
        DEFAULT: default.reliability,
    }


def measure(reliability: np.ndarray, correct: np.ndarray) -> dict[str, float]:
    """Compute the METRICS of a predicted reliability.

    Args:
        reliability: Probability that each decision is correct, shape (n,).
        correct: Whether each decision is correct, shape (n,), bool.

    Returns:
        Metrics by name. The top gap is the mean reliability of the most reliable tenth, minus its accuracy.
        The absolute top gap is its absolute value.
    """
    bounded = np.clip(reliability, MIN_RELIABILITY, 1 - MIN_RELIABILITY)
    metrics = compute_reliability_metrics(np.log(bounded / (1 - bounded)), correct)
    n_top = max(1, round(TOP_SHARE * len(correct)))
    top = np.argsort(-bounded, kind="stable")[:n_top]
    top_gap = float(bounded[top].mean() - correct[top].mean())
    return {
        "log loss": float(metrics["nll_correct"]),
        "AURC": float(metrics["aurc"]),
        "ECE": ece(bounded, correct),
        "top gap": top_gap,
        "absolute top gap": abs(top_gap),
    }


class _Scored(NamedTuple):
    """Confidence and reliability of test rows, shape (n,)."""

    confidence: np.ndarray
    reliability: np.ndarray


def _apply_map(
    rows: LabelledRows, test: LabelledRows, calibrator: str | None, variant: str | None, seed: int
) -> _Scored:
    """Fit a map of logits with the library, and score test rows."""
    fitted = ReliabilityMap(calibrator=calibrator, variant=variant, arrays="logits", seed=seed)
    scored = fitted.fit(rows.logits, rows.label, groups=rows.group).apply(test.logits)
    return _Scored(np.asarray(scored["confidence"], dtype=float), np.asarray(scored["reliability"], dtype=float))


def _apply_map_of_decisions(rows: LabelledRows, test: LabelledRows, *, has_signals: bool, seed: int) -> np.ndarray:
    """Fit a default map of decisions without logits, and return the reliability of test rows."""
    signals: list[str] = []
    if has_signals and rows.signals is not None:
        signals = _signal_names(rows.signals)
    fitted = ReliabilityMap(labels=list(range(rows.n_labels)), signals=signals, seed=seed)
    scored = fitted.fit(_frame(rows), rows.label, groups=rows.group).apply(_frame(test))
    return np.asarray(scored["reliability"], dtype=float)


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
