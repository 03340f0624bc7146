"""A reliability map as an estimator of scikit-learn, on arrays and frames; only it needs that library.

Methods import what they compute with when they are first called, so that importing the class is fast.
"""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self, TypeVar

import numpy as np
import polars as pl
import scipy
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import Tags, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from relmap.errors import InputError, needs_extra
from relmap.io.atomic import check_output_path
from relmap.io.frames import (
    BATCH_ROWS,
    FramePredictions,
    add_column,
    append_columns,
    get_column,
    is_frame,
    read_array,
    to_native_column,
    to_polars,
    to_structured_array,
    unify_missing,
)
from relmap.io.inputs import TrainingInputs
from relmap.io.named_columns import check_width, has_predictions, infer_column_kind, numbered_columns
from relmap.io.reading import WEIGHT_COLUMN, Reading
from relmap.io.rows import ArrayKind
from relmap.options import PARAMETERS, Protocol, naming
from relmap.validation import check_settings, label_names, require_numbers

if TYPE_CHECKING:
    from relmap.api import Cuts, Evaluation, Judged
    from relmap.maps.document import MapDocument
    from relmap.report.plot import Plot

NOT_SAVED = "the map is saved without its classifier: save that too, and give the loaded map what it predicts"
Given = ParamSpec("Given")
Owner = TypeVar("Owner")
Result = TypeVar("Result")
FOLDS = 5  # in which a classifier predicts rows that it has not seen


def names_parameters(
    method: Callable[Concatenate[Owner, Given], Result],
) -> Callable[Concatenate[Owner, Given], Result]:
    """Let messages of a method name parameters of Python rather than options of the command line."""

    @wraps(method)
    def named(self: Owner, /, *arguments: Given.args, **keywords: Given.kwargs) -> Result:
        with naming("python"):
            return method(self, *arguments, **keywords)

    return named


def _predicts_probabilities(estimator: "ReliabilityMap") -> bool:
    return hasattr(estimator.classifier, "predict_proba")


class ReliabilityMap(ClassifierMixin, BaseEstimator):
    """Which of a model's decisions can be used as they are: an estimator over what the model predicts.

    `X` is an array of probabilities or logits `(n, K)`, an array `(n,)` of those of the second of two labels, or a
    frame of pandas, polars or Arrow. A frame has a column for each label, named by it, or the columns that a file of
    predictions has (`logits` or `probabilities`, or `decision` and `confidence`, or `decision`), or columns that
    `probabilities`, `logits`, `score_column` and so on name. `y` is the true label, 0..K-1 or one of `labels`; of a
    frame it may be the column `label`. No decision and no probability is changed. Every mistake is an InputError, of
    one sentence.

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
        arrays: what arrays, and columns named by labels, hold: `logits` or `probabilities`; with `auto` those are
            probabilities whose rows are not negative and sum to 1.
        accept_label_order: fit even if the labels in another order match the predictions clearly better.
        probabilities: columns of a frame with the probabilities: a list of them in the order of the labels, or a
            column of lists, or what stands before _0, _1, ... or before the names of the labels.
        logits: the same of logits.
        probability: column with the probability of one of two labels.
        score_column: column of a ranker's scores, which decide for one of two labels above `border`.
        border: the score above which that label is decided.
        positive: the label of `probability` or `score_column`; None is the second.
        label: column of the true label.
        decision: column of the decided label.
        confidence_column: column that says how sure the decision is.
        confidence_words: what words of confidence count as, such as "low=.3,medium=.6,high=.9".
        percent: whether a confidence or probability goes from 0 to 100.
        id: column that identifies rows of the fit later, if predictions repeat; None is the column `id`.
        drop_unlabelled: whether to drop rows without a label.

    Attributes:
        document_: the map, a frozen value.
        recommendation_: what to deploy and why, in words and numbers; not of a map that was loaded.
        arrays_: what arrays hold, as they were read or as `arrays` says; None where neither tells.
        classes_: the labels, `(K,)`.
        label_names_: the names of the labels in their order; None for 0..K-1.
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
        arrays: ArrayKind | Literal["auto"] = "auto",
        accept_label_order: bool = False,
        probabilities: str | Sequence[str] | None = None,
        logits: str | Sequence[str] | None = None,
        probability: str | None = None,
        score_column: str | None = None,
        border: float | None = None,
        positive: Any = None,
        label: str | None = None,
        decision: str | None = None,
        confidence_column: str | None = None,
        confidence_words: str | None = None,
        percent: bool = False,
        id: str | None = None,  # noqa: A002 - as the option of the commands
        drop_unlabelled: bool = False,
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
        self.accept_label_order = accept_label_order
        self.probabilities = probabilities
        self.logits = logits
        self.probability = probability
        self.score_column = score_column
        self.border = border
        self.positive = positive
        self.label = label
        self.decision = decision
        self.confidence_column = confidence_column
        self.confidence_words = confidence_words
        self.percent = percent
        self.id = id
        self.drop_unlabelled = drop_unlabelled

    @names_parameters
    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Fit the map on labelled rows, and return it.

        Args:
            X: predictions, or what the classifier reads.
            y: true labels `(n,)`; None where `X` is a frame with the column `label`.
            groups: a group of each row `(n,)`, such as its query, whose rows go together; or a column of `X`.

        Raises:
            InputError: what is wrong with the rows, or with what is asked.
        """
        from relmap.api import fit_map

        check_settings(self.get_params(deep=False))
        shape: tuple[int, ...] = getattr(y, "shape", ())
        if len(shape) == 2 and shape[1] == 1:
            y = column_or_1d(y, warn=True)  # as the classifiers of scikit-learn
        self.__dict__.pop("document_", None)  # what an earlier fit knew of the labels
        self.arrays_: Any = self.arrays
        self.out_of_fold_: dict[str, FramePredictions] = {}
        self.training_inputs_: TrainingInputs | None = None
        labels: Any = self.labels
        if self.classifier is None:
            if labels is None and is_frame(X):
                labels = self._labels_of_columns(X, y, groups)
            self.label_names_ = _names(labels)
            predicted, rows = X, self._labelled(X, y, groups)
        else:
            from sklearn.model_selection import StratifiedGroupKFold, cross_val_predict

            if y is None:
                raise InputError(
                    "ReliabilityMap requires y to be passed, but the target y is None; give the true labels"
                )
            validate_data(self, X, skip_check_array=True)  # learns the names and the number of the features
            groups = self._groups(X, groups)
            folds = FOLDS if groups is None else StratifiedGroupKFold(FOLDS)
            predicted = cross_val_predict(self.classifier, X, y, groups=groups, cv=folds, method="predict_proba")
            self.classifier_ = clone(self.classifier).fit(X, y)
            labels = self.classifier_.classes_
            self.label_names_ = _names(labels)
            rows = self._table(predicted, y, groups)
            self.out_of_fold_ = {self._labelled(X, y, groups).sha256: rows}
            self.training_inputs_ = TrainingInputs.from_inputs(X, np.asarray(predicted))
        self.fitted_rows_: FramePredictions | None = rows
        stated = None if self.arrays == "auto" else self.arrays
        self.arrays_ = stated if is_frame(predicted) else rows.frame.columns[0]
        self.document_, self.recommendation_ = fit_map(
            rows,
            calibrator=self.calibrator,
            variant=self.variant,
            seed=int(self.seed),
            group=_column(groups),
            names=self.label_names_,
            signals=tuple(map(str, self.signals)),
            hold_out=float(self.hold_out),
            protocol=self.protocol,
            accept_label_order=bool(self.accept_label_order),
        )
        if self.classifier is None and not is_frame(X):
            self.n_features_in_ = self.document_.n_labels
        self.label_names_ = self.document_.label_names
        self.classes_ = _classes(self.document_) if labels is None else np.asarray(labels)
        return self

    @names_parameters
    def reliability(self, X: Any) -> Any:
        """Return the probability that each decision is correct, in [0, 1]: an array `(n,)`, or a column as in `X`."""
        return to_native_column(X, pl.Series("reliability", scipy.special.expit(self._scored(X)["logit"].to_numpy())))

    @names_parameters
    def predict(self, X: Any) -> np.ndarray:
        """Return the fixed decisions `(n,)`, of `classes_`: no map changes them."""
        decision = self._scored(X)["decision"].to_numpy()
        return np.asarray(self.classes_[decision])

    @available_if(_predicts_probabilities)
    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities of the classifier `(n, K)`: no map changes them."""
        check_is_fitted(self, "document_")
        return self.classifier_.predict_proba(X)

    @names_parameters
    def score(self, X: Any, y: Any = None, groups: Any = None) -> float:
        """Return minus the log loss of the reliability as the probability of a correct decision, in nats, at most 0."""
        from relmap.metrics.reliability import correctness_log_loss

        judged = self._judged(X, y, groups)
        losses = correctness_log_loss(judged.scored.logit, judged.rows.correct)
        return -float(np.average(losses, weights=judged.rows.weight))

    @names_parameters
    def apply(self, X: Any, *, coverage: float | str | None = None, cut: float | None = None, cuts: Any = None) -> Any:
        """Return a frame with decision, confidence, reliability, review_rank and route added; of an array these alone.

        Args:
            X: predictions; an array gives a structured array.
            coverage: share of these rows whose route is `automatic`, in [0, 1]; for large batches.
            cut: or the least reliability of those; by default the threshold of the map.
            cuts: or what `thresholds` answered, or the path of what it wrote: a cut by label, or of all.
        """
        from relmap.api import Cuts
        from relmap.maps.scoring import score_array
        from relmap.routing.apply import apply_to_frame, route_scores

        require_numbers({"cut": cut})
        share = None if coverage is None else str(coverage)
        found = Path(cuts) if isinstance(cuts, str) else cuts.numbers if isinstance(cuts, Cuts) else cuts
        if not (found is None or isinstance(found, Path | Mapping)):
            raise InputError(f"cuts is {cuts!r:.80}; give what `thresholds` answered, or its file; a number is the cut")
        predicted = self._predicted(X)
        numbers = self._numbers(predicted)
        if numbers is None:
            rows = self._unlabelled(predicted)
            return append_columns(X, apply_to_frame(self._document, rows, coverage=share, cut=cut, cuts=found)[0])
        scores = score_array(self._document, *numbers)
        added = route_scores(self._document, scores, coverage=share, cut=cut, cuts=found)
        return append_columns(X, pl.DataFrame(added)) if is_frame(X) else to_structured_array(added)

    @names_parameters
    def evaluate(self, X: Any, y: Any = None, groups: Any = None) -> "Evaluation":
        """Return a verdict on labelled rows; those of the fit, given as then, are judged by folds without them."""
        return self._judged(X, y, groups).evaluation()

    @names_parameters
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
        cut: float | None = None,
    ) -> "Cuts":
        """Find a cut on the reliability, or validate one that was chosen without these rows.

        Args:
            X: Predictions.
            y: True labels, shape (n,); None if `X` is a frame with the column `label`.
            groups: A group of each row, shape (n,), or a column of `X`.
            target_accuracy: Accuracy that automatic rows must have, in (0, 1).
            coverage: Or the share of these rows that is automatic, in (0, 1].
            confidence: Confidence of the guarantee, over random samples of such rows.
            cost_error: Or the cost of a wrong decision that is used; needs `cost_review`.
            cost_review: Cost of a review, in the unit of `cost_error`.
            cut: Or a cut to validate: how often decisions at or above it are correct, with a lower bound.

        Returns:
            The cut, in words and numbers. `apply` takes it as `cuts`.

        Raises:
            InputError: The rows cannot be read, or not exactly one of the four is given.
        """
        asked: dict[str, Any] = {"target_accuracy": target_accuracy, "confidence": confidence, "cut": cut}
        asked |= {"cost_error": cost_error, "cost_review": cost_review}
        require_numbers(asked)
        return self._judged(X, y, groups).cuts(coverage=coverage, **asked)

    @names_parameters
    def plot(self, X: Any = None, y: Any = None, groups: Any = None) -> "Plot":
        """Draw a curve for each label with its rows, and the errors among the decisions that are kept.

        A notebook displays what is returned; `save` writes it to a file.

        Args:
            X: Labelled predictions; None for the rows of the fit, each scored by a model of the folds without it.
            y: Their true labels `(n,)`; None where `X` is a frame with the column `label`.
            groups: A group of each row, or a column of `X`.

        Returns:
            The charts, with `save(path)` for .html, .json, .pdf, .png and .svg.

        Raises:
            InputError: The extra `report` is not installed, the rows cannot be read, or there are none: a map that was
                loaded or unpickled has no rows.
        """
        with needs_extra("report"):
            from relmap.report.plot import plot_map

        if X is not None:
            return plot_map(self._judged(X, y, groups))
        document = self._document
        if self.fitted_rows_ is None:
            raise InputError(
                "this map has no rows of its own, since it was loaded; give labelled predictions: plot(X, y)"
            )
        from relmap.api import Judged

        return plot_map(Judged.read(document, self.fitted_rows_, document.source.group))

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: everything but the rows of the fit."""
        state: dict[str, Any] = super().__getstate__()
        return state | {"fitted_rows_": None} if "fitted_rows_" in state else state

    @names_parameters
    def sql(self, dialect: str = "duckdb") -> str:
        """Return one SQL expression of decision (0..K-1) and confidence (calibrated), or logits_i: the reliability."""
        with needs_extra("sql"):
            from relmap.maps.sql import sql_expression

        return sql_expression(self._document, dialect)

    @names_parameters
    def save(self, path: str | Path) -> None:
        """Write the map to a JSON file, which every command of `relmap` reads; without the classifier.

        Args:
            path: of the file.

        Raises:
            InputError: the file cannot be written.

        Warns:
            UserWarning: there is a classifier, which is not saved.
        """
        from relmap.maps.map_file import save_map

        check_output_path(Path(path))
        save_map(self._document, Path(path))
        if self.classifier is not None:
            warnings.warn(NOT_SAVED, UserWarning, stacklevel=3)  # at the caller of the decorated method

    @classmethod
    @names_parameters
    def load(cls, path: str | Path, *, arrays: ArrayKind | Literal["auto"] = "auto") -> Self:
        """Return the map that `save`, or the command `fit`, wrote; InputError says what is wrong with the file.

        Names of labels are text in a file: `classes_` are numbers where every name is that of a whole number.

        Args:
            path: of the map.
            arrays: what arrays hold, which the file does not say; with `auto` an array `(n,)` that lies in
                [0, 1], and so may be either, is refused.
        """
        from relmap.maps.map_file import load_map

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
        made.training_inputs_ = made.fitted_rows_ = None
        made.label_names_, made.classes_ = names, _classes(document)
        return made

    def __sklearn_tags__(self) -> Tags:
        """Return the tags of scikit-learn: inputs are those of the classifier, if there is one."""
        tags = super().__sklearn_tags__()
        if self.classifier is None:
            tags.target_tags.required = False  # a frame may have a column of labels
        else:
            tags.input_tags = get_tags(self.classifier).input_tags
        return tags

    @property
    def _document(self) -> "MapDocument":
        if not hasattr(self, "document_"):
            check_is_fitted(self, "document_")  # raises; it takes longer than to score a row
        return self.document_

    def _predicted(self, X: Any) -> Any:
        if self.classifier is None:
            return X
        check_is_fitted(self, "classifier_")
        return self.classifier_.predict_proba(X)

    def _unlabelled(self, predicted: Any) -> FramePredictions:
        frame, reading = self._read(predicted)
        return FramePredictions(frame, sha256="", reading=reading)  # nobody asks who they are

    def _numbers(self, predicted: Any) -> tuple[np.ndarray, ArrayKind] | None:
        """The numbers of an array and what they are, if the map can score them without a frame in between.

        Long arrays are scored in pieces on two threads, as a frame.
        """
        from relmap.maps.scoring import reads_only_logits

        if is_frame(predicted) or not reads_only_logits(self._document) or len(predicted) > BATCH_ROWS:
            return None
        check_width(predicted, self._n_labels, self.label_names_)
        kind, numbers = read_array(predicted, self.arrays_)
        return numbers, kind

    def _scored(self, X: Any) -> pl.DataFrame:
        from relmap.maps.scoring import ignore_progress, score_array, score_file

        predicted = self._predicted(X)
        numbers = self._numbers(predicted)
        if numbers is not None:
            return score_array(self._document, *numbers)
        return score_file(self._document, self._unlabelled(predicted), ignore_progress)[1]

    def _judged(self, X: Any, y: Any, groups: Any) -> "Judged":
        from relmap.api import Judged

        groups = self._groups(X, groups)
        return Judged.read(self._document, self._labelled(X, y, groups), _column(groups))

    def _groups(self, X: Any, groups: Any) -> Any:
        """Groups by row where a column of what the classifier reads names them: what it predicts has no such column."""
        return groups if self.classifier is None or not isinstance(groups, str) else get_column(X, groups, "groups")

    def _labelled(self, X: Any, y: Any, groups: Any) -> FramePredictions:
        """Predictions with their label; of rows that the classifier was fitted on, those of its folds."""
        predicted = self._predicted(X)
        rows = self._table(predicted, y, groups)
        if self.training_inputs_ is None or rows.sha256 in self.out_of_fold_:
            return self.out_of_fold_.get(rows.sha256, rows)
        return self._table(self.training_inputs_.out_of_fold(X, np.asarray(predicted)), y, groups)

    def _table(self, predicted: Any, y: Any = None, groups: Any = None) -> FramePredictions:
        """Predictions as a file of them is read; groups may be the name of a column that is there."""
        frame, reading = self._read(predicted)
        if y is not None:
            truth = y if self.label_names_ is None else label_names(y)
            frame = add_column(frame, reading.label or "label", truth, "y")
        rows = replace(FramePredictions.from_frame(frame), reading=reading)
        if groups is None or isinstance(groups, str):
            return rows
        return replace(rows, frame=add_column(frame, "group", groups, "groups"))

    @property
    def _n_labels(self) -> int | None:
        if hasattr(self, "document_"):
            return int(self.document_.n_labels)
        return None if self.label_names_ is None else len(self.label_names_)

    def _read(self, predicted: Any) -> tuple[pl.DataFrame, Reading]:
        """Predictions as a frame, and how it is read; columns that are named one by one are numbered before.

        InputError where there are not K numbers a row.
        """
        if not is_frame(predicted):
            check_width(predicted, self._n_labels, self.label_names_)
            return to_polars(predicted, self.arrays_), Reading(drop_unlabelled=bool(self.drop_unlabelled))
        frame, given = to_polars(predicted, None), self.get_params(deep=False)
        options = {field.name: given[PARAMETERS.get(field.name, field.name)] for field in fields(Reading)}
        if options["positive"] is not None:
            options["positive"] = str(label_names(options["positive"]))
        kind, columns = self._columns_by_label(frame)
        if columns is None:
            return frame, Reading(**options)
        frame = numbered_columns(frame, columns, kind, self._n_labels, self.label_names_)
        return frame, Reading(**(options | {kind: None}))

    def _columns_by_label(self, frame: pl.DataFrame) -> tuple[ArrayKind, Sequence[str] | None]:
        """The columns that hold a number for one label each, and of what kind; None where none are named so."""
        names = self.label_names_
        asked: dict[ArrayKind, str | Sequence[str] | None] = {
            "probabilities": self.probabilities,
            "logits": self.logits,
        }
        for kind, columns in asked.items():
            if columns is None:
                continue
            if not isinstance(columns, str):
                return kind, [*map(str, columns)]
            if names is None or columns in frame.columns or f"{columns}_0" in frame.columns:
                return kind, None
            return kind, [f"{columns}_{name}" for name in names]
        options = (self.probability, self.score_column, self.decision, self.confidence_column)
        named_otherwise = any(column is not None for column in options)
        if names is None or named_otherwise or has_predictions(frame.columns) or not {*names} & {*frame.columns}:
            return "probabilities", None
        return infer_column_kind(frame, names, self.arrays_), names

    def _labels_of_columns(self, X: Any, y: Any, groups: Any) -> list[Any] | None:
        """The labels of a frame with a column for each, in the order of the columns; None for another frame."""
        frame = to_polars(X, None)
        truth = self.label or "label"
        if has_predictions(frame.columns) or (y is None and truth not in frame.columns):
            return None
        labels = unify_missing(frame[truth].to_numpy() if y is None else y)
        given = np.unique(np.array([label for label in labels.tolist() if label is not None]))
        label_of = dict(zip(label_names(given).tolist(), given.tolist(), strict=True))
        reserved = {truth, groups if isinstance(groups, str) else None, self.id or "id", WEIGHT_COLUMN, *self.signals}
        columns = [name for name, kind in frame.schema.items() if kind.is_numeric() and name not in reserved]
        if not label_of or not set(label_of) <= set(columns):
            return None
        if infer_column_kind(frame, columns, "auto") != "probabilities":
            columns = [name for name in columns if name in label_of]
        return [label_of.get(name, name) for name in columns]


def _names(labels: Any) -> tuple[str, ...] | None:
    return None if labels is None else tuple(label_names(labels).tolist())


def _classes(document: "MapDocument") -> np.ndarray:
    """The labels `(K,)` as a map has them: numbers where every name is that of a whole number, else text."""
    names = document.label_names
    whole = names is None or all(re.fullmatch("0|-?[1-9][0-9]{0,17}", name) for name in names)
    return np.asarray(names or range(document.n_labels), dtype=np.int64 if whole else np.str_)


def _column(groups: Any) -> str | None:
    """The column of the groups in a table."""
    return groups if groups is None or isinstance(groups, str) else "group"
