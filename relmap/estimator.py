"""Reliability map as a scikit-learn estimator for arrays and frames.

Methods import what they need when they are first called, so that importing the class is fast.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    cast,
    get_args,
)

import numpy as np
import polars as pl
import scipy
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import Tags, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from relmap.errors import PARAMETERS, InputError, assignment, naming, needs_extra, option
from relmap.io.atomic import check_output_path
from relmap.io.column_layout import PREDICTION_FIELDS, WEIGHT_COLUMN, Reading, words_to_text
from relmap.io.frames import (
    BATCH_ROWS,
    FramePredictions,
    add_column,
    append_columns,
    are_in_unit_interval,
    detach,
    get_column,
    is_frame,
    label_names,
    read_array,
    to_native_column,
    to_polars,
    to_structured_array,
    unify_missing,
)
from relmap.io.label_columns import check_width, has_predictions, infer_column_kind, numbered_columns
from relmap.io.rows import ArrayKind
from relmap.io.training_inputs import TrainingInputs
from relmap.maps.options import MAX_HOLD_OUT, FitOptions
from relmap.maps.options import Protocol as FitProtocol

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame, IntoSeries
    from numpy.typing import ArrayLike

    from relmap.evaluation.assessment import MapAssessment
    from relmap.evaluation.summary import Cuts, Evaluation, FitSummary
    from relmap.maps.document import MapDocument
    from relmap.maps.score import RowScores
    from relmap.report.plot import Plot

    Rows = ArrayLike | IntoDataFrame  # an array, or a frame of pandas, polars or Arrow
    Values = ArrayLike  # one value for each row: an array, a list, or a series of pandas or polars

CLASSIFIER_FOLDS = 5  # folds for the out-of-fold predictions of a classifier
ARRAY_KINDS = ("auto", *get_args(ArrayKind))
INTEGER_NAME = "0|-?[1-9][0-9]{0,17}"  # at most 18 digits, so that it fits int64
CLASSIFIER_NOT_SAVED = (
    "the map is saved without its classifier; save the classifier too, and give the loaded map its predictions"
)

Parameters = ParamSpec("Parameters")
Owner = TypeVar("Owner")
Result = TypeVar("Result")


class Classifier(Protocol):
    """A classifier of scikit-learn, as far as `ReliabilityMap` uses it."""

    def fit(self, X: "Rows", y: "Values") -> object:
        """Fit the classifier."""

    def predict_proba(self, X: "Rows") -> np.ndarray:
        """Predict probabilities, shape (n, K)."""


class _TrainingPredictions(NamedTuple):
    """Predictions that a map is fitted on.

    Attributes:
        predicted: The predictions of the user, or the out-of-fold predictions of the classifier.
        rows: The predictions with their labels.
        labels: Labels in the order of the columns; None for 0..K-1.
        groups: Group of each row, or the name of its column.
    """

    predicted: "Rows"
    rows: FramePredictions
    labels: Sequence[object] | None
    groups: "Values | str | None"


def with_python_names(
    method: Callable[Concatenate[Owner, Parameters], Result],
) -> Callable[Concatenate[Owner, Parameters], Result]:
    """Decorate a method so that its messages name Python parameters instead of command-line options."""

    @wraps(method)
    def named(self: Owner, /, *arguments: Parameters.args, **keywords: Parameters.kwargs) -> Result:
        with naming("python"):
            return method(self, *arguments, **keywords)

    return named


def _predicts_probabilities(estimator: "ReliabilityMap") -> bool:
    return hasattr(estimator.classifier, "predict_proba")


class ReliabilityMap(ClassifierMixin, BaseEstimator):
    """Estimate the probability that each decision of a model is correct.

    The estimator works on predictions, not on features. `X` is one of:

    - an array of probabilities or logits, shape (n, K); for two labels also of the second label only, shape (n,);
    - a frame of pandas, polars or Arrow with a column for each label, named like the labels;
    - a frame with the columns of a file of predictions: `logits` or `probabilities`, or `decision` and `confidence`, or
      `decision`; or with columns that the parameters `probabilities`, `logits`, `score_column` and so on name.

    `y` are the true labels: 0..K-1, or elements of `labels`. A frame can contain them in the column `label`. The map
    changes no decision and no probability. Errors in the input are raised as `InputError`.

    Args:
        classifier: Classifier that computes the predictions. `X` then has the features of the classifier. `fit` fits
            the classifier on all rows, and the map on out-of-fold predictions of the classifier.
        calibrator: Key of the calibrator; None for `sms`, or `uncal` without logits. `hcal` can make the calibration of
            two imbalanced labels worse.
        variant: Key of the model of the reliability; None for `mrp_pooled`.
        seed: Seed of the folds, 0 or more.
        labels: Labels in their order, such as `classes_` of a classifier; None for 0..K-1.
        signals: Columns of a frame that may indicate whether a decision is correct.
        hold_out: Share of the rows to hold out for `evaluate` and `thresholds`, in [0, 0.9].
        protocol: `own`, or `paper` for the split and the fits of the paper's tables.
        arrays: Whether arrays, and columns named like labels, contain `logits` or `probabilities`. With `auto` they
            contain logits if any number is outside [0, 1], and otherwise probabilities, whose rows must sum to 1.
        accept_label_order: Fit even if another order of the labels matches the predictions significantly better.
        probabilities: Columns of a frame with the probabilities: a list of columns in the order of the labels; or the
            name of a column of lists; or the prefix of columns that end in numbers or names of labels, such as `p` for
            `p_0`, `p_1`, ...
        logits: Columns with the logits, given in the same ways.
        probability: Column with the probability of one of two labels.
        score_column: Column with the scores of a ranker; scores above `border` decide for one of two labels, or for a
            higher grade.
        border: Score above which the positive label is decided. For more than two labels, which are in ascending order,
            a list with a border for each but the lowest; None for borders with which each label is decided as often as
            it is the true label.
        positive: Label of `probability` or `score_column`; None for the second.
        label: Column of the true label.
        decision: Column of the decided label.
        confidence: Column of the confidence of the decision.
        confidence_words: Number of each word of a confidence: a dictionary, or "low=.3,medium=.6,high=.9".
        percent: Whether confidences and probabilities are percentages.
        id: Column that identifies fit rows in later files, if predictions repeat; None for the column `id`.
        drop_unlabelled: Whether to drop rows without a label.
        confidence_column: Former name of `confidence`.

    Attributes:
        document_: The map, a frozen value.
        summary_: How the map compares with the confidence out of fold; a loaded map has none.
        arrays_: Whether arrays contain `logits` or `probabilities`, as found by `fit` or given by `arrays`; None if
            unknown.
        classes_: The labels, shape (K,).
        label_names_: Names of the labels in their order; None for 0..K-1.
        classifier_: The classifier, fitted on all rows.

    Example:
        >>> from relmap import ReliabilityMap
        >>> from relmap.simulation.predictions import LABEL_NAMES, simulate_predictions
        >>> labelled = simulate_predictions(600, seed=1)
        >>> new = simulate_predictions(200, seed=2).drop("label")
        >>> model = ReliabilityMap(labels=LABEL_NAMES).fit(labelled, groups="query")
        >>> routed = model.apply(new, cut=0.8)
        >>> routed.columns[-5:]
        ['decision_name', 'confidence', 'reliability', 'review_rank', 'route']
    """

    label_names_: tuple[str, ...] | None

    def __init__(
        self,
        *,
        classifier: Classifier | None = None,
        calibrator: str | None = None,
        variant: str | None = None,
        seed: int = 1,
        labels: Sequence[object] | None = None,
        signals: Sequence[str] = (),
        hold_out: float = 0.0,
        protocol: FitProtocol = "own",
        arrays: ArrayKind | Literal["auto"] = "auto",
        accept_label_order: bool = False,
        probabilities: str | Sequence[str] | None = None,
        logits: str | Sequence[str] | None = None,
        probability: str | None = None,
        score_column: str | None = None,
        border: float | Sequence[float] | None = None,
        positive: object = None,
        label: str | None = None,
        decision: str | None = None,
        confidence: str | None = None,
        confidence_words: str | Mapping[str, float] | None = None,
        percent: bool = False,
        id: str | None = None,  # noqa: A002 - the same name as the option of the commands
        drop_unlabelled: bool = False,
        confidence_column: str | None = None,
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
        self.confidence = confidence
        self.confidence_words = confidence_words
        self.percent = percent
        self.id = id
        self.drop_unlabelled = drop_unlabelled
        self.confidence_column = confidence_column

    @with_python_names
    def fit(self, X: "Rows", y: "Values | None" = None, groups: "Values | str | None" = None) -> Self:
        """Fit the map on labelled rows.

        Args:
            X: Predictions, or the features that the classifier reads.
            y: True labels, shape (n,); None if `X` is a frame with the column `label`.
            groups: Group of each row, such as its query, shape (n,), or a column of `X`. Rows of one group stay in the
                same fold.

        Returns:
            The fitted estimator.

        Raises:
            InputError: The rows cannot be read or fitted, or a parameter is invalid.

        Example:
            >>> from relmap import ReliabilityMap
            >>> from relmap.simulation.predictions import LABEL_NAMES, simulate_predictions
            >>> labelled = simulate_predictions(600, seed=1)
            >>> model = ReliabilityMap(labels=LABEL_NAMES).fit(labelled, groups="query")
            >>> model.classes_.tolist()
            ['irrelevant', 'partial', 'exact']
        """
        from relmap.evaluation.assessment import describe_fit
        from relmap.maps.fit import fit_map

        check_settings(self.get_params(deep=False))
        self.__dict__.pop("document_", None)  # the number of labels of an earlier fit must not influence this fit
        self.arrays_: Any = self.arrays
        self.out_of_fold_: dict[str, FramePredictions] = {}
        self.training_inputs_: TrainingInputs | None = None
        truth = _one_column(y)
        if self.classifier is None:
            training = self._training_predictions(X, truth, groups)
        else:
            training = self._cross_validated_predictions(X, truth, groups)
        if is_frame(training.predicted):
            self.arrays_ = None if self.arrays == "auto" else self.arrays
        else:
            self.arrays_ = training.rows.frame.columns[0]
        self.document_: MapDocument
        self.fitted_rows_: FramePredictions | None
        self.summary_: FitSummary
        options = FitOptions(
            calibrator=self.calibrator,
            variant=self.variant,
            seed=int(self.seed),
            group=_group_column(training.groups),
            labels=self.label_names_,
            signals=tuple(map(str, self.signals)),
            hold_out=float(self.hold_out),
            protocol=self.protocol,
            accept_label_order=bool(self.accept_label_order),
        )
        fitted = fit_map(training.rows, options)
        if self.percent and not is_frame(training.predicted):  # the array is stored as fractions
            reading = {**fitted.document.reading, "percent": True}
            fitted = replace(fitted, document=fitted.document.model_copy(update={"reading": reading}))
        self.document_ = fitted.document
        read_as_fitted = training.rows.reading.completed_by(self.document_.reading)
        self.fitted_rows_ = replace(training.rows, reading=read_as_fitted)
        self.summary_ = describe_fit(fitted)
        if self.classifier is None and not is_frame(X):
            self.n_features_in_ = self.document_.n_labels
        self.label_names_ = self.document_.label_names
        self.classes_ = _classes(self.document_) if training.labels is None else np.asarray(training.labels)
        return self

    def _training_predictions(
        self, X: "Rows", y: "Values | None", groups: "Values | str | None"
    ) -> _TrainingPredictions:
        """Read labelled predictions; without `labels`, columns may be named like the labels."""
        labels = self.labels
        if labels is None and is_frame(X):
            labels = self._labels_of_columns(X, y, groups)
        self.label_names_ = _names(labels)
        return _TrainingPredictions(X, self._labelled(X, y, groups), labels, groups)

    def _cross_validated_predictions(
        self, X: "Rows", y: "Values | None", groups: "Values | str | None"
    ) -> _TrainingPredictions:
        """Predict each row by a classifier that was fitted without its fold, and fit the classifier on all rows."""
        from sklearn.model_selection import StratifiedGroupKFold, cross_val_predict

        if y is None:
            raise InputError("ReliabilityMap requires y to be passed, but the target y is None; give the true labels")
        validate_data(self, X, skip_check_array=True)  # records the names and the number of the features
        groups = self._groups(X, groups)
        folds = CLASSIFIER_FOLDS if groups is None else StratifiedGroupKFold(CLASSIFIER_FOLDS)
        predicted = cross_val_predict(self.classifier, X, y, groups=groups, cv=folds, method="predict_proba")
        self.classifier_ = clone(self.classifier).fit(X, y)
        labels = self.classifier_.classes_
        self.label_names_ = _names(labels)
        rows = self._table(predicted, y, groups)
        self.out_of_fold_ = {self._labelled(X, y, groups).sha256: rows}
        self.training_inputs_ = TrainingInputs.from_inputs(X, np.asarray(predicted))
        return _TrainingPredictions(predicted, rows, labels, groups)

    @with_python_names
    def reliability(self, X: "Rows") -> "np.ndarray | IntoSeries":
        """Estimate the probability that each decision is correct.

        Args:
            X: Predictions, or the features that the classifier reads.

        Returns:
            Probabilities in [0, 1]: an array, shape (n,), or a series of the dataframe library of `X`.

        Raises:
            InputError: The rows cannot be read.

        Example:
            >>> from relmap import ReliabilityMap
            >>> from relmap.simulation.predictions import LABEL_NAMES, simulate_predictions
            >>> labelled = simulate_predictions(600, seed=1)
            >>> model = ReliabilityMap(labels=LABEL_NAMES).fit(labelled, groups="query")
            >>> model.reliability(labelled).is_between(0, 1).all()
            True
        """
        reliability: np.ndarray = scipy.special.expit(self._scored(X).logit)
        return to_native_column(X, pl.Series("reliability", reliability)) if is_frame(X) else reliability

    @with_python_names
    def predict(self, X: "Rows") -> np.ndarray:
        """Return the decisions, which the map does not change.

        Args:
            X: Predictions, or the features that the classifier reads.

        Returns:
            Elements of `classes_`, shape (n,).

        Raises:
            InputError: The rows cannot be read.

        Example:
            >>> import numpy as np
            >>> from relmap import ReliabilityMap
            >>> generator = np.random.default_rng(0)
            >>> logits = 2 * generator.normal(size=(600, 3))
            >>> y = (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)
            >>> model = ReliabilityMap().fit(logits, y)
            >>> bool((model.predict(logits) == logits.argmax(axis=1)).all())
            True
        """
        scores = self._scored(X)  # before classes_, since it says what is wrong with a model that is not fitted
        return np.asarray(self.classes_[scores.decision])

    @available_if(_predicts_probabilities)
    def predict_proba(self, X: "Rows") -> np.ndarray:
        """Return the probabilities of the classifier, which the map does not change.

        Args:
            X: The features that the classifier reads.

        Returns:
            Probabilities, shape (n, K).

        Example:
            >>> import numpy as np
            >>> from relmap import ReliabilityMap
            >>> from sklearn.linear_model import LogisticRegression
            >>> generator = np.random.default_rng(0)
            >>> features = generator.normal(size=(600, 2))
            >>> y = (features[:, 0] + generator.normal(size=600) > 0).astype(int)
            >>> model = ReliabilityMap(classifier=LogisticRegression()).fit(features, y)
            >>> model.predict_proba(features).shape
            (600, 2)
        """
        check_is_fitted(self, "document_")
        probabilities: np.ndarray = self.classifier_.predict_proba(X)
        return probabilities

    @with_python_names
    def score(self, X: "Rows", y: "Values | None" = None, groups: "Values | str | None" = None) -> float:
        """Compute minus the log loss of the reliability as the probability of a correct decision.

        Args:
            X: Predictions, or the features that the classifier reads.
            y: True labels, shape (n,); None if `X` is a frame with the column `label`.
            groups: Group of each row, shape (n,), or a column of `X`.

        Returns:
            Minus the mean log loss in nats, at most 0; higher is better.

        Raises:
            InputError: The rows cannot be read.

        Example:
            >>> from relmap import ReliabilityMap
            >>> from relmap.simulation.predictions import LABEL_NAMES, simulate_predictions
            >>> labelled = simulate_predictions(600, seed=1)
            >>> model = ReliabilityMap(labels=LABEL_NAMES).fit(labelled, groups="query")
            >>> -1 < model.score(simulate_predictions(400, seed=2)) < 0
            True
        """
        from relmap.metrics.reliability import correctness_log_loss

        assessment = self._assess(X, y, groups)
        losses = correctness_log_loss(assessment.scored.logit, assessment.rows.correct)
        return -float(np.average(losses, weights=assessment.rows.weight))

    @with_python_names
    def apply(
        self,
        X: "Rows",
        *,
        coverage: float | str | None = None,
        cut: float | None = None,
        cuts: "Cuts | Mapping[str, Any] | str | Path | None" = None,
    ) -> "np.ndarray | IntoDataFrame":
        """Add decision, confidence, reliability, review rank and route to each row.

        Without `coverage`, `cut` and `cuts`, the threshold of the map decides the route.

        Args:
            X: Predictions, or the features that the classifier reads.
            coverage: Share of the rows of `X` with the route `automatic`, in [0, 1]; for large batches.
            cut: Minimum reliability of the rows with the route `automatic`.
            cuts: Result of `thresholds`, or the file that the command wrote, with a cut for each label or one for all.

        Returns:
            The frame with columns `decision`, `confidence`, `reliability`, `review_rank` and `route` added; for an
            array, a structured array with only these fields. Its decisions are names if the map has names, and the
            field `decision_code` has their numbers.

        Raises:
            InputError: The rows cannot be read, or a threshold is invalid.

        Example:
            >>> import numpy as np
            >>> from relmap import ReliabilityMap
            >>> generator = np.random.default_rng(0)
            >>> logits = 2 * generator.normal(size=(600, 3))
            >>> y = (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)
            >>> routed = ReliabilityMap().fit(logits, y).apply(logits, coverage=0.5)
            >>> int((routed["route"] == "automatic").sum())
            300
        """
        from relmap.evaluation.summary import Cuts
        from relmap.maps.score import score_array
        from relmap.routing.apply import apply_to_frame, route_scores

        require_numbers({"cut": cut})
        share = None if coverage is None else str(coverage)
        cuts_or_file = cuts
        if isinstance(cuts, str):
            cuts_or_file = Path(cuts)
        elif isinstance(cuts, Cuts):
            cuts_or_file = cuts.numbers
        if not (cuts_or_file is None or isinstance(cuts_or_file, Path | Mapping)):
            raise InputError(
                f"cuts is {cuts!r:.80}; give the result of `thresholds` or the path of its file; use cut for a number"
            )
        predicted = self._predicted(X)
        numbers = self._numbers(predicted)
        if numbers is None:
            rows = self._unlabelled(predicted)
            added_columns, _ = apply_to_frame(self._document, rows, coverage=share, cut=cut, cuts=cuts_or_file)
            if is_frame(X):
                return append_columns(X, added_columns)
            return self._routed_array({name: added_columns[name].to_numpy() for name in added_columns.columns})
        scores = score_array(self._document, *numbers)
        added = route_scores(self._document, scores, coverage=share, cut=cut, cuts=cuts_or_file)
        if is_frame(X):
            return append_columns(X, pl.DataFrame(added))
        return self._routed_array(added)

    @with_python_names
    def evaluate(self, X: "Rows", y: "Values | None" = None, groups: "Values | str | None" = None) -> "Evaluation":
        """Compare the reliability with the confidence on labelled rows.

        Fit rows are recognized and evaluated out of fold.

        Args:
            X: Predictions, or the features that the classifier reads.
            y: True labels, shape (n,); None if `X` is a frame with the column `label`.
            groups: Group of each row, shape (n,), or a column of `X`.

        Returns:
            Comparison with the confidence, and drift, in sentences and numbers.

        Raises:
            InputError: The rows cannot be read.

        Example:
            >>> from relmap import ReliabilityMap
            >>> from relmap.simulation.predictions import LABEL_NAMES, simulate_predictions
            >>> labelled = simulate_predictions(600, seed=1)
            >>> model = ReliabilityMap(labels=LABEL_NAMES).fit(labelled, groups="query")
            >>> evaluation = model.evaluate(simulate_predictions(400, seed=2), groups="query")
            >>> evaluation.to_dict()["rows"]
            400
        """
        return self._assess(X, y, groups).evaluate()

    @with_python_names
    def thresholds(
        self,
        X: "Rows",
        y: "Values | None" = None,
        groups: "Values | str | None" = None,
        *,
        target_accuracy: float | None = None,
        coverage: float | str | None = None,
        confidence_level: float = 0.95,
        cost_error: float | None = None,
        cost_review: float | None = None,
        cut: float | None = None,
        only_label: object = None,
    ) -> "Cuts":
        """Find a cut on the reliability, or validate one that was chosen without these rows.

        Give exactly one of `target_accuracy`, `coverage`, the two costs, and `cut`.

        Args:
            X: Predictions, or the features that the classifier reads.
            y: True labels, shape (n,); None if `X` is a frame with the column `label`.
            groups: Group of each row, shape (n,), or a column of `X`.
            target_accuracy: Accuracy that automatic rows must have, in (0, 1).
            coverage: Share of the rows of `X` that is automatic, in (0, 1].
            confidence_level: Probability that the guarantee holds, over random samples of labelled rows; in (0, 1).
            cost_error: Cost of a wrong decision that is used automatically; needs `cost_review`.
            cost_review: Cost of a review, in the unit of `cost_error`.
            cut: Cut to validate; the result has the accuracy at or above it, and the lower bound of this accuracy.
            only_label: Label whose decisions alone must have the target accuracy, at the whole confidence level; with
                `cuts`, `apply` then sends the decisions for other labels to review.

        Returns:
            The cut, in sentences and numbers. `apply` accepts it as `cuts`.

        Raises:
            InputError: The rows cannot be read, or none or several of these alternatives are given.

        Example:
            >>> from relmap import ReliabilityMap
            >>> from relmap.simulation.predictions import LABEL_NAMES, simulate_predictions
            >>> labelled = simulate_predictions(600, seed=1)
            >>> model = ReliabilityMap(labels=LABEL_NAMES).fit(labelled, groups="query")
            >>> cuts = model.thresholds(simulate_predictions(2000, seed=2), groups="query", target_accuracy=0.8)
            >>> 0 < cuts.cut < 1
            True
        """
        from relmap.routing.choose import choose_cut

        require_numbers(
            {
                "target_accuracy": target_accuracy,
                "confidence_level": confidence_level,
                "cut": cut,
                "cost_error": cost_error,
                "cost_review": cost_review,
            }
        )
        return choose_cut(
            self._assess(X, y, groups),
            target_accuracy=target_accuracy,
            coverage=coverage,
            confidence_level=confidence_level,
            cost_error=cost_error,
            cost_review=cost_review,
            cut=cut,
            only_label=only_label,
        )

    @with_python_names
    def plot(self, X: "Rows | None" = None, y: "Values | None" = None, groups: "Values | str | None" = None) -> "Plot":
        """Draw the curve of each label with labelled rows, and the error rate by coverage.

        A notebook displays the result; its method `save` writes it to a file.

        Args:
            X: Labelled predictions, or features; None for the fit rows, which are scored out of fold.
            y: True labels, shape (n,); None if `X` is a frame with the column `label`.
            groups: Group of each row, shape (n,), or a column of `X`.

        Returns:
            The charts, with `save(path)` for .html, .json, .pdf, .png and .svg.

        Raises:
            InputError: The extra `report` is not installed, the rows cannot be read, or there are none: a map that was
                loaded or unpickled has no rows.

        Example:
            >>> from relmap import ReliabilityMap
            >>> from relmap.simulation.predictions import LABEL_NAMES, simulate_predictions
            >>> labelled = simulate_predictions(600, seed=1)
            >>> model = ReliabilityMap(labels=LABEL_NAMES).fit(labelled, groups="query")
            >>> [figure.key for figure in model.plot().figures]
            ['map_curves', 'risk_coverage']
        """
        with needs_extra("report"):
            from relmap.report.plot import plot_map

        if X is not None:
            return plot_map(self._assess(X, y, groups))
        document = self._document
        if self.fitted_rows_ is None:
            raise InputError("this map was loaded and has no rows; give labelled predictions: plot(X, y)")
        from relmap.evaluation.assessment import MapAssessment

        return plot_map(MapAssessment.from_predictions(document, self.fitted_rows_, document.source.group))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, without the fit rows."""
        state: dict[str, Any] = super().__getstate__()
        return state | {"fitted_rows_": None} if "fitted_rows_" in state else state

    @with_python_names
    def sql(self, dialect: str = "duckdb", column: Literal["reliability", "confidence"] = "reliability") -> str:
        """Write the map as an SQL expression.

        Args:
            dialect: `duckdb`, `postgres`, `bigquery` or `spark`.
            column: What the expression computes. The `reliability` reads the columns `decision` (0..K-1) and
                `confidence` (calibrated). The calibrated `confidence` reads `decision`, `logits_0`, `logits_1`, ....

        Returns:
            The expression.

        Raises:
            InputError: The extra `sql` is not installed, the dialect or column is unknown, or SQL does not support the
                models of the map.

        Example:
            >>> from relmap import ReliabilityMap
            >>> from relmap.simulation.predictions import LABEL_NAMES, simulate_predictions
            >>> labelled = simulate_predictions(600, seed=1)
            >>> model = ReliabilityMap(labels=LABEL_NAMES).fit(labelled, groups="query")
            >>> "CASE" in model.sql("postgres")
            True
        """
        with needs_extra("sql"):
            from relmap.maps.sql import sql_expression

        return sql_expression(self._document, dialect, column)

    @with_python_names
    def save(self, path: str | Path) -> None:
        """Write the map to a JSON file, which the commands of `relmap` can read; the classifier is not saved.

        Args:
            path: The file.

        Raises:
            InputError: The file cannot be written.

        Warns:
            UserWarning: The estimator has a classifier.

        Example:
            >>> from pathlib import Path
            >>> from tempfile import TemporaryDirectory
            >>> from relmap import ReliabilityMap
            >>> from relmap.simulation.predictions import LABEL_NAMES, simulate_predictions
            >>> labelled = simulate_predictions(600, seed=1)
            >>> model = ReliabilityMap(labels=LABEL_NAMES).fit(labelled, groups="query")
            >>> with TemporaryDirectory() as folder:
            ...     model.save(Path(folder) / "map.json")
            ...     loaded = ReliabilityMap.load(Path(folder) / "map.json")
            >>> loaded.document_.fingerprint == model.document_.fingerprint
            True
        """
        from relmap.maps.document import save_map

        check_output_path(Path(path))
        save_map(self._document, Path(path))
        if self.classifier is not None:
            warnings.warn(CLASSIFIER_NOT_SAVED, UserWarning, stacklevel=3)  # at the caller of the decorated method

    @classmethod
    @with_python_names
    def load(cls, path: str | Path, *, arrays: ArrayKind | Literal["auto"] = "auto") -> Self:
        """Read a map that `save`, or the command `fit`, wrote.

        A file has label names as text: `classes_` are numbers if every name is an integer.

        Args:
            path: The file.
            arrays: Whether arrays contain logits or probabilities, which the file does not record. With `auto`, arrays
                of shape (n,) with numbers in [0, 1] are rejected, since they may be either.

        Returns:
            The fitted estimator, without a classifier and without rows.

        Raises:
            InputError: The file is not a valid map.

        Example:
            See `save`.
        """
        from relmap.maps.document import load_map

        document = load_map(Path(path))
        source = document.source
        names = document.label_names
        model = cls(
            calibrator=document.calibrator.name,
            variant=document.projection.name,
            seed=source.seed,
            labels=names,
            signals=tuple(signal.name for signal in document.signals),
            hold_out=source.hold_out,
            protocol="paper" if source.protocol else "own",
            arrays=arrays,
        )
        check_settings(model.get_params(deep=False))
        model.document_ = document
        model.arrays_ = None if arrays == "auto" else arrays
        model.out_of_fold_ = {}
        model.training_inputs_ = None
        model.fitted_rows_ = None
        model.label_names_ = names
        model.classes_ = _classes(document)
        return model

    def __sklearn_tags__(self) -> Tags:
        """Return the tags of scikit-learn, with the input tags of the classifier if there is one."""
        tags = super().__sklearn_tags__()
        if self.classifier is None:
            tags.target_tags.required = False  # a frame can contain the labels
        else:
            tags.input_tags = get_tags(self.classifier).input_tags
        return tags

    @property
    def recommendation_(self) -> "FitSummary":
        """Former name of `summary_`."""
        warnings.warn("recommendation_ is the former name of summary_; use summary_", FutureWarning, stacklevel=2)
        check_is_fitted(self, "summary_")
        return self.summary_

    @property
    def _document(self) -> "MapDocument":
        if not hasattr(self, "document_"):  # check_is_fitted alone takes longer than to score a row
            check_is_fitted(self, "document_")
        return self.document_

    def _predicted(self, X: "Rows") -> "Rows":
        """Return the predictions in X, or predict X with the classifier."""
        if self.classifier is None:
            return X
        check_is_fitted(self, "classifier_")
        predicted: np.ndarray = self.classifier_.predict_proba(X)
        return predicted

    def _routed_array(self, added: Mapping[str, np.ndarray]) -> np.ndarray:
        """Convert the added columns to a structured array.

        If the map has names, the decisions are elements of `classes_`, so that they can be compared with labels; their
        numbers are in `decision_code`.

        Args:
            added: The columns, each of shape (n,).

        Returns:
            Shape (n,), with a field for each column.
        """
        columns = {name: values for name, values in added.items() if name != "decision_name"}
        columns["route"] = np.array(columns["route"].tolist(), dtype=np.str_)
        if "decision_name" in added:
            code = columns.pop("decision")
            columns = {"decision_code": code, "decision": self.classes_[code], **columns}
        return to_structured_array(columns)

    def _unlabelled(self, predicted: "Rows") -> FramePredictions:
        frame, reading = self._read(predicted)
        return FramePredictions(frame, sha256="", reading=reading)  # only labelled rows need a hash

    def _numbers(self, predicted: "Rows") -> tuple[np.ndarray, ArrayKind] | None:
        """Return the numbers of an array and their kind, for a map that can score an array directly.

        Returns:
            Numbers and kind. None for a frame, for a map that reads more than logits, and for a long array, which is
            scored as a frame in pieces on two threads.
        """
        from relmap.maps.score import reads_only_logits

        if is_frame(predicted) or not reads_only_logits(self._document):
            return None
        array: Any = predicted
        if len(array) > BATCH_ROWS:
            return None
        check_width(array, self._n_labels, self.label_names_)
        kind, numbers = read_array(array, self.arrays_, percent=self._is_percent(array))
        return numbers, kind

    def _scored(self, X: "Rows") -> "RowScores":
        from relmap.maps.score import RowScores, ignore_progress, score_array, score_file

        predicted = self._predicted(X)
        numbers = self._numbers(predicted)
        if numbers is not None:
            return score_array(self._document, *numbers)
        return RowScores.from_frame(score_file(self._document, self._unlabelled(predicted), ignore_progress).scores)

    def _assess(self, X: "Rows", y: "Values | None", groups: "Values | str | None") -> "MapAssessment":
        """Read and score labelled rows."""
        from relmap.evaluation.assessment import MapAssessment

        groups = self._groups(X, groups)
        return MapAssessment.from_predictions(self._document, self._labelled(X, y, groups), _group_column(groups))

    def _groups(self, X: "Rows", groups: "Values | str | None") -> "Values | str | None":
        """Read groups from a column of the features, since the predictions of a classifier have no such column."""
        if self.classifier is None or not isinstance(groups, str):
            return groups
        return cast("Values", get_column(X, groups, "groups"))

    def _labelled(self, X: "Rows", y: "Values | None", groups: "Values | str | None") -> FramePredictions:
        """Return predictions with labels; rows that the classifier was fitted on get out-of-fold predictions."""
        predicted = self._predicted(X)
        rows = self._table(predicted, y, groups)
        if self.training_inputs_ is None or rows.sha256 in self.out_of_fold_:
            return self.out_of_fold_.get(rows.sha256, rows)
        return self._table(self.training_inputs_.out_of_fold(X, np.asarray(predicted)), y, groups)

    def _table(self, predicted: "Rows", y: "Values | None", groups: "Values | str | None") -> FramePredictions:
        """Combine predictions, labels and groups in one frame; groups may be the name of a column."""
        frame, reading = self._read(predicted)
        if y is not None:
            truth = y if self.label_names_ is None else label_names(y)
            frame = add_column(frame, reading.label or "label", truth, "y")
        make_predictions = FramePredictions.from_frame if is_frame(predicted) else FramePredictions.from_array
        rows = replace(make_predictions(frame), reading=reading)
        if groups is None or isinstance(groups, str):
            return rows
        return replace(rows, frame=add_column(frame, "group", groups, "groups"))

    @property
    def _n_labels(self) -> int | None:
        if hasattr(self, "document_"):
            return int(self.document_.n_labels)
        return None if self.label_names_ is None else len(self.label_names_)

    def _read(self, predicted: "Rows") -> tuple[pl.DataFrame, Reading]:
        """Convert predictions to a frame and its reading; columns with a number for each label get numbered names."""
        options = self._options()
        if not is_frame(predicted):
            self._refuse_columns_of_array(options)
            check_width(predicted, self._n_labels, self.label_names_)
            frame = to_polars(predicted, self.arrays_, percent=self._is_percent(predicted))
            logits = "logits" if "logits" in frame.columns else None  # a check of the array has confirmed them
            return frame, Reading(logits=logits, drop_unlabelled=bool(self.drop_unlabelled))
        frame = to_polars(predicted, None)
        kind, columns = self._columns_by_label(frame)
        if columns is None:
            reading = Reading(**options)
            if hasattr(self, "document_"):
                reading = reading.completed_by(self.document_.reading)
            return frame, reading
        frame = numbered_columns(frame, columns, kind, self._n_labels, self.label_names_)
        return frame, Reading(**(options | {kind: kind}))

    def _is_percent(self, array: "Rows") -> bool:
        """Return whether an array is in percent: by the parameter, or as the rows of the fit were.

        A map that was fitted on percentages also reads fractions, whose rows sum to 1.
        """
        if self.percent or not hasattr(self, "document_") or self.arrays_ == "logits":
            return bool(self.percent)
        if not self.document_.reading.get("percent"):
            return False
        numbers = np.asarray(detach(array), dtype=np.float64)
        return numbers.ndim == 1 or not are_in_unit_interval(numbers)

    def _options(self) -> dict[str, Any]:
        """Return the fields of a reading that the parameters give."""
        parameters = self.get_params(deep=False)
        options = {field.name: parameters[PARAMETERS.get(field.name, field.name)] for field in fields(Reading)}
        if options["positive"] is not None:
            options["positive"] = str(label_names(options["positive"]))
        if self.confidence_column is not None:
            if self.confidence is not None:
                raise InputError("confidence_column is the former name of confidence; give only confidence")
            options["confidence"] = self.confidence_column
        if np.ndim(self.border):  # type: ignore[arg-type]
            options["border"] = ",".join(map(str, np.asarray(self.border).tolist()))
        if isinstance(self.confidence_words, Mapping):
            options["confidence_words"] = words_to_text(self.confidence_words)
        return options

    def _refuse_columns_of_array(self, options: Mapping[str, object]) -> None:
        """Raise InputError for parameters that name columns, since an array has none."""
        for name in ("decision", "id", *PREDICTION_FIELDS):
            if options[name] is not None:
                raise InputError(
                    f"{assignment(name, options[name])} names a column, but the predictions are an array, which has no "
                    f"columns; omit {option(name)}, or give a frame"
                )

    def _columns_by_label(self, frame: pl.DataFrame) -> tuple[ArrayKind, Sequence[str] | None]:
        """Find the columns that have the numbers of one label each; None if there are no such columns.

        Returns:
            Whether the columns contain logits or probabilities, and the columns in the order of the labels.
        """
        names = self.label_names_
        given: dict[ArrayKind, str | Sequence[str] | None] = {
            "probabilities": self.probabilities,
            "logits": self.logits,
        }
        for kind, columns in given.items():
            if columns is None:
                continue
            if not isinstance(columns, str):
                return kind, [*map(str, columns)]
            if names is None or columns in frame.columns or f"{columns}_0" in frame.columns:
                return kind, None
            return kind, [f"{columns}_{name}" for name in names]
        other_columns = (
            self.probability,
            self.score_column,
            self.decision,
            self.confidence,
            self.confidence_column,
        )
        uses_other_columns = any(column is not None for column in other_columns)
        if names is None or uses_other_columns or has_predictions(frame.columns) or not {*names} & {*frame.columns}:
            return "probabilities", None
        return infer_column_kind(frame, names, "probabilities" if self.percent else self.arrays_), names

    def _labels_of_columns(self, X: "Rows", y: "Values | None", groups: "Values | str | None") -> list[object] | None:
        """Find the labels of a frame with a column for each, in the order of the columns; None for other frames."""
        frame = to_polars(X, None)
        truth = self.label or "label"
        if has_predictions(frame.columns) or (y is None and truth not in frame.columns):
            return None
        labels = unify_missing(frame[truth].to_numpy() if y is None else y)
        true_labels = np.unique(np.array([label for label in labels.tolist() if label is not None]))
        label_by_name = dict(zip(label_names(true_labels).tolist(), true_labels.tolist(), strict=True))
        reserved = {truth, groups if isinstance(groups, str) else None, self.id or "id", WEIGHT_COLUMN, *self.signals}
        columns = [name for name, kind in frame.schema.items() if kind.is_numeric() and name not in reserved]
        if not label_by_name or not set(label_by_name) <= set(columns):
            return None
        # if all numeric columns together are probabilities, each is a label, also without rows; otherwise, other
        # columns may have other numbers
        if not self.percent and infer_column_kind(frame, columns, "auto") != "probabilities":
            columns = [name for name in columns if name in label_by_name]
        return [label_by_name.get(name, name) for name in columns]


def _one_column(y: "Values | None") -> "Values | None":
    """Flatten labels of shape (n, 1) with a warning, as the classifiers of scikit-learn do."""
    shape: tuple[int, ...] = getattr(y, "shape", ())
    if len(shape) == 2 and shape[1] == 1:
        flattened: np.ndarray = column_or_1d(y, warn=True)
        return flattened
    return y


def _names(labels: Sequence[object] | None) -> tuple[str, ...] | None:
    if labels is None:
        return None
    values: Any = labels
    return tuple(label_names(values).tolist())


def _classes(document: "MapDocument") -> np.ndarray:
    """Return the labels of a map, shape (K,): integers if every name is one, else text."""
    names = document.label_names
    are_integers = names is None or all(re.fullmatch(INTEGER_NAME, name) for name in names)
    return np.asarray(names or range(document.n_labels), dtype=np.int64 if are_integers else np.str_)


def _group_column(groups: "Values | str | None") -> str | None:
    """Return the name of the column of groups in the frame that `_table` builds; None without groups."""
    return groups if groups is None or isinstance(groups, str) else "group"


def check_settings(settings: Mapping[str, Any]) -> None:
    """Check the parameters of the estimator.

    Args:
        settings: Value of each parameter, by name.

    Raises:
        InputError: A parameter is invalid; the message names it and the valid values.
    """
    array_kinds = ", ".join(ARRAY_KINDS)
    _require(settings, "labels", _are_distinct_labels(settings["labels"]), "a list of two names or more, each once")
    _require(settings, "signals", _are_column_names(settings["signals"]), "a list of the names of columns")
    _require(settings, "hold_out", _is_share(settings["hold_out"]), "a share in [0, 0.9]")
    _require(settings, "seed", _is_seed(settings["seed"]), "a whole number, 0 or more")
    _require(settings, "protocol", settings["protocol"] in ("own", "paper"), "one of own, paper")
    _require(settings, "arrays", settings["arrays"] in ARRAY_KINDS, f"one of {array_kinds}")
    classifier = settings["classifier"]
    if classifier is not None and not hasattr(classifier, "predict_proba"):
        model = type(classifier).__name__
        raise InputError(f"the classifier, {model}, has no predict_proba; wrap it in CalibratedClassifierCV")


def _require(settings: Mapping[str, Any], name: str, is_valid: bool, expected: str) -> None:
    if not is_valid:
        raise InputError(f"{name} is {settings[name]!r}; give {expected}")


def _are_distinct_labels(labels: "ArrayLike | None") -> bool:
    if labels is None:
        return True
    names = label_names(labels)
    if names.ndim != 1 or None in names.tolist():
        return False
    distinct = set(names.tolist())
    return 2 <= len(distinct) == len(names) and all(name.isprintable() for name in distinct)


def _are_column_names(signals: Iterable[object]) -> bool:
    return np.ndim(signals) == 1 and all(isinstance(name, str) for name in signals)  # type: ignore[arg-type]


def _is_share(value: object) -> bool:
    return isinstance(value, Real) and 0 <= float(value) <= MAX_HOLD_OUT


def _is_seed(value: object) -> bool:
    return isinstance(value, Integral) and int(value) >= 0


def require_numbers(values: Mapping[str, object]) -> None:
    """Check that options are numbers.

    Args:
        values: Value of each option, by name; None if it is not given.

    Raises:
        InputError: A value is neither a number nor None; the message names the option.
    """
    for name, value in values.items():
        if not isinstance(value, Real | None):
            raise InputError(f"{name} is {value!r:.80}; give a number")
