"""How well decisions agree with true labels: accuracy, precision and recall of each label, Cohen's kappa.

Where all rows are known of which the labelled ones were drawn, what the map says of them helps: the accuracy is that of
the labelled rows, plus a share of what the mean reliability of all rows has above that of the labelled ones
(prediction-powered inference, the share that of least variance: Angelopoulos, Duchi and Zrnic, 2023), and labels are
decided as often as they are. Nothing is assumed of the map: one that tells nothing leaves the interval as it was.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy

from relmap.errors import InputError
from relmap.evaluation.evaluate import JudgedDecisions, plain
from relmap.io.files import Predictions, notes_on
from relmap.maps.document import MapDocument
from relmap.maps.scoring import Progress, scored_file
from relmap.metrics.intervals import UNKNOWN_INTERVAL, format_interval, percentile_interval, share_confidence_interval
from relmap.metrics.resampling import MIN_BOOTSTRAP_GROUPS
from relmap.options import option

SHOWN = 5  # labels in words


@dataclass(frozen=True)
class AllRows:
    """What a map says of all rows of a file, labelled or not."""

    decided: np.ndarray  # (K,) rows of each decision
    reliability: np.ndarray  # (K,) their mean reliability; anything where there are none
    notes: tuple[str, ...] = ()  # on how the file was read

    @classmethod
    def read(cls, document: MapDocument, predictions: Predictions, progress: Progress) -> "AllRows":
        """Of the rows of a file; InputError for one that cannot be read."""
        scores = scored_file(document, predictions, progress)[1]
        if scores.is_empty():
            raise InputError(
                f"{predictions.path} has no rows; {option('unlabelled')} names the file that the labelled rows were "
                "drawn from"
            )
        rows = cls.of(scores["decision"].to_numpy(), scores["logit"].to_numpy(), document.n_labels)
        return replace(rows, notes=tuple(notes_on(predictions)))

    @classmethod
    def of(cls, decision: np.ndarray, logit: np.ndarray, n_labels: int) -> "AllRows":
        """Of decisions `(N,)` and logits of their reliability `(N,)`."""
        decided = np.bincount(decision, minlength=n_labels)
        return cls(decided, np.bincount(decision, scipy.special.expit(logit), n_labels) / np.maximum(decided, 1))

    def together(self) -> "AllRows":
        """The same rows as if all were of one decision."""
        mean = np.average(self.reliability, weights=self.decided)
        return AllRows(self.decided.sum(keepdims=True), np.array([mean]))


def agreement(document: MapDocument, judged: JudgedDecisions, everything: AllRows | None = None) -> dict[str, Any]:
    """Accuracy, kappa, and precision and recall by label, with 95% intervals; ready for JSON.

    Without `everything` they are those of the labelled rows alone. Undefined numbers are None, and so are intervals
    where there are fewer than ten groups.
    """
    rows, draws, n_labels = judged.rows, judged.draws, document.n_labels
    assert rows.label is not None
    label, decision = rows.label[judged.at], judged.decision

    def sums(values: np.ndarray, cell: np.ndarray, cells: int) -> np.ndarray:
        """Of the rows, and then of each resample, `(cells, 1 + R)`."""
        of_rows = np.bincount(cell, values, cells)[:, None]
        return of_rows if draws is None else np.hstack([of_rows, draws.sums(values, cell, cells)])

    correct, labelled = sums(judged.correct, decision, n_labels), sums(np.ones(len(label)), decision, n_labels)
    reliability = sums(judged.probability["reliability"], decision, n_labels)
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = _powered(correct, labelled, reliability, everything)
        whole = [each.sum(axis=0, keepdims=True) for each in (correct, labelled, reliability)]
        accuracy = _powered(whole[0], whole[1], whole[2], everything and everything.together())
        # of a decision that is made but was never labelled nobody knows the labels: what hangs on it is NaN
        decided = (
            labelled / whole[1] if everything is None else (everything.decided / everything.decided.sum())[:, None]
        )
        of_label = np.zeros_like(labelled)
        for place in np.flatnonzero(decided[:, 0] > 0):
            of_decision = decided[place] * sums(decision == place, label, n_labels) / labelled[place]
            of_label += np.where(decided[place] > 0, of_decision, 0)
        diagonal = np.where(decided > 0, decided * correct / labelled, 0)
        by_chance = (decided * of_label).sum(axis=0)
        kappa = (diagonal.sum(axis=0) - by_chance) / (1 - by_chance)
        recall = diagonal / of_label
    pairs = (np.unique(cell * judged.clusters + judged.cluster) // judged.clusters for cell in (decision, label))
    units = [np.bincount(of_cell, minlength=n_labels) for of_cell in pairs]
    return {
        "rows": len(rows) if everything is None else int(everything.decided.sum()),
        "accuracy": _number(accuracy[0], judged.clusters),
        "kappa": _number(kappa, judged.clusters),
        "labels": [
            {"name": name, "precision": _number(right_of, rows_of), "recall": _number(of_truth, true_rows)}
            for name, right_of, rows_of, of_truth, true_rows in zip(
                document.shown_names, precision, units[0], recall, units[1], strict=True
            )
        ],
    }


def in_words(agreed: dict[str, Any], labelled: int) -> list[str]:
    """The accuracy where it is of more rows than the `labelled` ones, kappa, and the labels."""
    lines = []
    if agreed["rows"] > labelled:
        lines.append(f"Of all {agreed['rows']:,} rows {share_in_words(agreed['accuracy'])} are decided correctly.")
    kappa = agreed["kappa"]
    if kappa["value"] is not None:
        number = f"{kappa['value']:z.2f}{format_interval(kappa['low'], kappa['high'], '.2f')}"
        lines.append(f"Cohen's kappa, the agreement with true labels beyond chance: {number}.")
    shown = agreed["labels"][:SHOWN]
    for each in shown:
        precision, recall = (share_in_words(each[name]) for name in ("precision", "recall"))
        lines.append(f"  {each['name']}: {precision} of its decisions are correct; {recall} of its rows are found.")
    left = len(agreed["labels"]) - len(shown)
    return [*lines, f"  and {left} more labels"] if left else lines


def _powered(
    correct: np.ndarray, labelled: np.ndarray, reliability: np.ndarray, everything: AllRows | None
) -> np.ndarray:
    """Shares of correct rows by cell, `(cells, 1 + R)`, from sums of the same shape over labelled rows."""
    share = correct / labelled
    if everything is None or share.shape[1] == 1:
        return np.asarray(share)
    above = everything.reliability[:, None] - reliability / labelled
    drawn = np.nan_to_num(np.stack([share, above])[:, :, 1:])
    away = drawn - drawn.mean(axis=2, keepdims=True)
    covariance, variance = (away[0] * away[1]).sum(axis=1), (away[1] ** 2).sum(axis=1)
    power = np.clip(-covariance / np.where(variance > 0, variance, np.inf), 0, 1) * (everything.decided > 0)
    return np.asarray(np.clip(share + power[:, None] * above, 0, 1))


def _number(replicated: np.ndarray, units: int) -> dict[str, float | None]:
    """The value and its interval, from the value and its replicates `(1 + R,)`, over so many clusters.

    Where no resample differs, as of rows that are all right, it is that of as many independent rows.
    """
    value, where = (
        float(replicated[0]),
        percentile_interval(replicated[1:]) if units >= MIN_BOOTSTRAP_GROUPS else UNKNOWN_INTERVAL,
    )
    low, high = where.low, where.high
    if low == high and value in (0, 1):
        ends = share_confidence_interval(np.array([value * units]), np.array([units]))
        low, high = float(ends[0][0]), float(ends[1][0])
    return {"value": plain(value), "low": plain(low), "high": plain(high)}


def share_in_words(number: dict[str, float | None]) -> str:
    """A share in percent, with its interval."""
    if number["value"] is None:
        return "no telling which share"
    between = "" if number["low"] is None else f" ({100 * number['low']:.1f} to {100 * number['high']:.1f}%)"  # type: ignore[operator]
    return f"{100 * number['value']:.1f}%{between}"
