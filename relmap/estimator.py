"""A reliability map as an estimator of scikit-learn, on arrays and frames; only it needs that library."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import polars as pl
import scipy
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import StratifiedGroupKFold, cross_val_predict
from sklearn.utils.validation import check_is_fitted

from relmap.api import Cuts, Evaluation, Judged, fit_map
from relmap.errors import InputError, needs_extra
from relmap.io.atomic import check_place
from relmap.io.frames import FramePredictions, Holds, alone, beside, column_of, frame_of, is_frame, with_column
from relmap.io.inputs import TrainingInputs
from relmap.maps.document import MapDocument
from relmap.maps.map_file import load_map, save_map
from relmap.maps.scoring import scored_file, unwatched
from relmap.metrics.reliability import nll_correct_of_rows
from relmap.routing.apply import apply_to_frame
from relmap.settings import Protocol
from relmap.validation import check_settings, names_of, refuse_other_than_numbers

FOLDS = 5  # in which a classifier predicts rows that it has not seen


class ReliabilityMap(ClassifierMixin, BaseEstimator):
    """Which of a model's decisions can be used as they are: an estimator over what the model predicts.

    `X` is an array of probabilities or logits `(n, K)`, an array `(n,)` of those of the second of two labels, or a
    frame of pandas, polars or Arrow with the columns that a file of predictions has (`logits` or `probabilities`, or
    `decision` and `confidence`, or `decision`). `y` is the true label, 0..K-1 or one of `labels`; of a frame it may be
    the column `label`. No decision and no probability is changed. Every mistake is a InputError, of one sentence.

    Args:
        classifier: what predicts, if `X` is what it reads, not what it predicts: `fit` then learns the map on its
            predictions out of fold, and fits it on all rows.
        calibrator: its key; None is `ts`, without logits `uncal`.
        variant: `auto` takes the one of the lowest loss out of fold; or the key of one.
        seed: 0 or more, under which rows are dealt in folds.
        labels: names in their order, such as `classes_` of a classifier; None for 0..K-1.
        signals: columns of a frame that may say how sure a decision is.
        hold_out: share of the rows to keep aside for `evaluate` and `thresholds`, in [0, 0.9].
        protocol: `paper` for the parts and fits of the paper's tables.
        arrays: what arrays hold, `logits` or `probabilities`; with `auto` those are probabilities whose rows are
            not negative and sum to 1.

    Attributes:
        document_: the map, a frozen value.
        recommendation_: what to deploy and why, in words and numbers; not of a map that was loaded.
        arrays_: what arrays hold, as they were read or as `arrays` says; None where neither tells.
        classes_: the labels, `(K,)`.
        classifier_: the classifier, fitted on all rows.
    """

    def __init__(
        self,
        *,
        classifier: Any = None,
        calibrator: str | None = None,
        variant: str = "auto",
        seed: int = 1,
        labels: Sequence[Any] | None = None,
        signals: Sequence[str] = (),
        hold_out: float = 0.0,
        protocol: Protocol = "own",
        arrays: Holds | Literal["auto"] = "auto",
    ) -> None:
        self.classifier = classifier
        self.calibrator = calibrator
        self.variant = variant
        self.seed = seed
        self.labels = labels
        self.signals = signals
        self.hold_out = hold_out
        self.protocol = protocol
        self.arrays = arrays

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Fit the map on labelled rows, and return it.

        Args:
            X: predictions, or what the classifier reads.
            y: true labels `(n,)`; None where `X` is a frame with the column `label`.
            groups: a group of each row `(n,)`, such as its query, whose rows go together; or a column of `X`.

        Raises:
            InputError: what is wrong with the rows, or with what is asked.
        """
        check_settings(self.get_params(deep=False))
        self.arrays_: Any = self.arrays
        self.out_of_fold_: dict[str, FramePredictions] = {}
        self.training_inputs_: TrainingInputs | None = None
        if self.classifier is None:
            predicted, rows = X, self._labelled(X, y, groups)
        else:
            groups = self._groups(X, groups)
            folds = FOLDS if groups is None else StratifiedGroupKFold(FOLDS)
            predicted = cross_val_predict(self.classifier, X, y, groups=groups, cv=folds, method="predict_proba")
            self.classifier_ = clone(self.classifier).fit(X, y)
            rows = self._table(predicted, y, groups)
            self.out_of_fold_ = {self._labelled(X, y, groups).sha256: rows}
            self.training_inputs_ = TrainingInputs.of(X, np.asarray(predicted))
        stated = None if self.arrays == "auto" else self.arrays
        self.arrays_ = stated if is_frame(predicted) else rows.frame.columns[0]
        labels = self.labels if self.classifier is None else self.classifier_.classes_
        asked: dict[str, Any] = {name: getattr(self, name) for name in ("calibrator", "variant", "protocol")}
        asked |= {"seed": int(self.seed), "hold_out": float(self.hold_out), "signals": tuple(map(str, self.signals))}
        names = None if labels is None else tuple(names_of(labels).tolist())
        self.document_, self.recommendation_ = fit_map(rows, group=_column(groups), names=names, **asked)
        self.classes_ = np.arange(self.document_.n_labels) if labels is None else np.asarray(labels)
        return self

    def reliability(self, X: Any) -> Any:
        """Return the probability that each decision is correct, in [0, 1]: an array `(n,)`, or a column as in `X`."""
        return alone(X, pl.Series("reliability", scipy.special.expit(self._scored(X)["logit"].to_numpy())))

    def predict(self, X: Any) -> np.ndarray:
        """Return the fixed decisions `(n,)`, of `classes_`: no map changes them."""
        return np.asarray(self.classes_[self._scored(X)["decision"].to_numpy()])

    def score(self, X: Any, y: Any = None, groups: Any = None) -> float:
        """Return minus the log loss of the reliability as the probability of a correct decision, in nats, at most 0."""
        judged = self._judged(X, y, groups)
        losses = nll_correct_of_rows(judged.scored.logit, judged.rows.correct)
        return -float(np.average(losses, weights=judged.rows.weight))

    def apply(self, X: Any, *, coverage: float | str | None = None, cut: float | None = None, cuts: Any = None) -> Any:
        """Return a frame with decision, confidence, reliability, review_rank and route added; of an array these alone.

        Args:
            X: predictions; an array gives a structured array.
            coverage: share of the rows whose route is `automatic`, in [0, 1]; without it and a cut at most 0.7, and
                none whose reliability is below 0.5.
            cut: or the least reliability of those.
            cuts: or what `thresholds` answered, or the path of what it wrote: a cut by label, or of all.
        """
        refuse_other_than_numbers({"cut": cut})
        share = None if coverage is None else str(coverage)
        found = Path(cuts) if isinstance(cuts, str) else cuts.numbers if isinstance(cuts, Cuts) else cuts
        if not (found is None or isinstance(found, Path | Mapping)):
            raise InputError(f"cuts is {cuts!r:.80}; give what `thresholds` answered, or its file; a number is the cut")
        asked = {"coverage": share, "cut": cut, "cuts": found}
        return beside(X, apply_to_frame(self._document, self._unlabelled(X), **asked)[0])

    def evaluate(self, X: Any, y: Any = None, groups: Any = None) -> Evaluation:
        """Return a verdict on labelled rows; those of the fit, given as then, are judged by folds without them."""
        return self._judged(X, y, groups).evaluation()

    def thresholds(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        *,
        target_accuracy: float | None = None,
        coverage: float | str | None = None,
        confidence: float = 0.95,
        cost_error: float | None = None,
        cost_review: float | None = None,
    ) -> Cuts:
        """Return the cut for a target accuracy or a coverage, with its guarantee, or of the least expected cost."""
        asked: dict[str, Any] = {"target_accuracy": target_accuracy, "confidence": confidence}
        asked |= {"cost_error": cost_error, "cost_review": cost_review}
        refuse_other_than_numbers(asked)
        return self._judged(X, y, groups).cuts(coverage=coverage, **asked)

    def sql(self, dialect: str = "duckdb") -> str:
        """Return one SQL expression of decision (0..K-1) and confidence (calibrated), or logits_i: the reliability."""
        with needs_extra("sql"):
            from relmap.maps.sql import sql_expression  # noqa: PLC0415 - an extra

        return sql_expression(self._document, dialect)

    def save(self, path: str | Path) -> None:
        """Write the map to a JSON file, which every command of `relmap.cli` reads; without the classifier."""
        check_place(Path(path))
        save_map(self._document, Path(path))

    @classmethod
    def load(cls, path: str | Path, *, arrays: Holds | Literal["auto"] = "auto") -> Self:
        """Return the map that `save`, or the command `fit`, wrote; InputError says what is wrong with the file.

        Names of labels are text in a file: `classes_` are numbers where every name is that of a whole number.

        Args:
            path: of the map.
            arrays: what arrays hold, which the file does not say; with `auto` an array `(n,)` that lies in
                [0, 1], and so may be either, is refused.
        """
        document = load_map(Path(path))
        source, names = document.source, document.label_names
        made = cls(
            calibrator=document.calibrator.name,
            variant=document.choice.asked,
            seed=source.seed,
            labels=names,
            signals=tuple(signal.name for signal in document.signals),
            hold_out=source.hold_out,
            protocol="paper" if source.protocol else "own",
            arrays=arrays,
        )
        check_settings(made.get_params(deep=False))
        made.document_, made.arrays_, made.out_of_fold_ = document, None if arrays == "auto" else arrays, {}
        made.training_inputs_ = None
        whole = names is None or all(re.fullmatch("0|-?[1-9][0-9]{0,17}", name) for name in names)
        made.classes_ = np.asarray(names or range(document.n_labels), dtype=np.int64 if whole else np.str_)
        return made

    @property
    def _document(self) -> MapDocument:
        check_is_fitted(self, "document_")
        return self.document_

    def _predicted(self, X: Any) -> Any:
        return X if self.classifier is None else self.classifier_.predict_proba(X)

    def _unlabelled(self, X: Any) -> FramePredictions:
        return FramePredictions(frame_of(self._predicted(X), self.arrays_), sha256="")  # nobody asks who they are

    def _scored(self, X: Any) -> pl.DataFrame:
        return scored_file(self._document, self._unlabelled(X), unwatched)[1]

    def _judged(self, X: Any, y: Any, groups: Any) -> Judged:
        groups = self._groups(X, groups)
        return Judged.read(self._document, self._labelled(X, y, groups), _column(groups))

    def _groups(self, X: Any, groups: Any) -> Any:
        """Groups by row where a column of what the classifier reads names them: what it predicts has no such column."""
        return groups if self.classifier is None or not isinstance(groups, str) else column_of(X, groups, "groups")

    def _labelled(self, X: Any, y: Any, groups: Any) -> FramePredictions:
        """Predictions with their label; of rows that the classifier was fitted on, those of its folds."""
        predicted = self._predicted(X)
        rows = self._table(predicted, y, groups)
        if self.training_inputs_ is None or rows.sha256 in self.out_of_fold_:
            return self.out_of_fold_.get(rows.sha256, rows)
        return self._table(self.training_inputs_.out_of_fold(X, np.asarray(predicted)), y, groups)

    def _table(self, predicted: Any, y: Any = None, groups: Any = None) -> FramePredictions:
        """Predictions as a file of them is read; groups may be the name of a column that is there."""
        frame = frame_of(predicted, self.arrays_)
        if y is not None:
            named = self.labels is not None or self.classifier is not None
            frame = with_column(frame, "label", names_of(y) if named else y, "y")
        rows = FramePredictions.of(frame)
        if groups is None or isinstance(groups, str):
            return rows
        return replace(rows, frame=with_column(frame, "group", groups, "groups"))


def _column(groups: Any) -> str | None:
    """The column of the groups in a table."""
    return groups if groups is None or isinstance(groups, str) else "group"
