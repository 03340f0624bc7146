"""Registry of the metrics: the only source of their names, order and direction.

A metric is a function of a view, which contains the data about fixed decisions that the metric needs. If a view has
resamples (`draws`), the function computes the bootstrap replicates of the metric, otherwise its value for all rows.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from relmap.decisions import clip_log_probabilities
from relmap.metrics import reliability
from relmap.metrics.probability import brier_score_per_row, ece, log_loss_per_row, reject_nan, top_label
from relmap.metrics.resampling import Resamples
from relmap.metrics.spread import LabelCells
from relmap.settings import METRIC_DEFAULTS, MetricParams

MetricValue = Any  # a float for all rows, or an array (R,), float64, for R resamples
Direction = Literal[-1, 0, 1]  # sign of an improvement
HIGHER: Direction = 1
LOWER: Direction = -1
NEITHER: Direction = 0


@dataclass(frozen=True, eq=False)
class DecisionView:
    """Data about n fixed decisions that every metric needs.

    Attributes:
        correct: Whether each decision is correct, shape (n,), bool.
        params: Settings of the metrics.
        draws: Resamples of the rows; None to use each row once.
    """

    correct: np.ndarray
    params: MetricParams
    draws: Resamples | None

    def mean(self, values: np.ndarray) -> MetricValue:
        """Average values over rows.

        Args:
            values: Shape (n,).

        Returns:
            The mean, or the means of the resamples, shape (R,); NaN without rows.
        """
        if self.draws is not None:
            return self.draws.mean(values)
        return float(np.mean(values)) if len(values) else np.nan


def _accuracy(view: DecisionView) -> MetricValue:
    return view.mean(view.correct)


@dataclass(frozen=True, eq=False)
class ProbabilityView(DecisionView):
    """Fixed decisions with class probabilities of the calibrator or of MRC.

    All metrics use probabilities clipped to [s, 1 - s], with s the setting `smallest_probability`.

    Attributes:
        decision: Decided labels, shape (n,), int64.
        log_probabilities: Shape (n, K).
        labels: True labels, shape (n,), int64.
    """

    decision: np.ndarray
    log_probabilities: np.ndarray
    labels: np.ndarray

    @cached_property
    def clipped(self) -> np.ndarray:
        """Log-probabilities, clipped and not normalized again, shape (n, K)."""
        reject_nan(self.log_probabilities, "log-probability")
        return clip_log_probabilities(self.log_probabilities, self.params.smallest_probability)

    @cached_property
    def confidence(self) -> np.ndarray:
        """Clipped probability of the decision, shape (n,)."""
        return np.asarray(np.exp(self.clipped[np.arange(len(self.labels)), self.decision]))

    def ece(self, confidence: np.ndarray, correct: np.ndarray) -> MetricValue:
        """Compute the expected calibration error.

        Args:
            confidence: Confidence in [0, 1], shape (n,).
            correct: Shape (n,), bool.

        Returns:
            The error, or the errors of the resamples, shape (R,).

        Raises:
            ValueError: A confidence is NaN or outside [0, 1]; the message names the row.
        """
        if self.draws is not None:
            return self.draws.ece(confidence, correct, self.params.ece_bins)
        return ece(confidence, correct, self.params.ece_bins)


def _confidence_ece(view: ProbabilityView) -> MetricValue:
    return view.ece(view.confidence, view.correct)


def _top_label_ece(view: ProbabilityView) -> MetricValue:
    confidence, correct = top_label(view.clipped, view.labels)
    return view.ece(confidence, correct)


def _log_loss(view: ProbabilityView) -> MetricValue:
    return view.mean(log_loss_per_row(view.clipped, view.labels, smallest=0))


def _brier_score(view: ProbabilityView) -> MetricValue:
    return view.mean(brier_score_per_row(view.clipped, view.labels))


@dataclass(frozen=True, eq=False)
class LabelView(ProbabilityView):
    """Fixed decisions with class probabilities, for metrics of differences between decided labels.

    Attributes:
        seed: Seed of the shuffles of labels.
    """

    seed: int

    @cached_property
    def cells(self) -> LabelCells:
        """Rows by confidence group and decided label."""
        return LabelCells.from_decisions(self.confidence, self.decision, self.correct, self.params)


def _label_spread(view: LabelView) -> MetricValue:
    if view.draws is None:
        return view.cells.spread()
    return view.draws.label_spread(view.confidence, view.decision, view.correct, view.params)


def _shuffled_label_spread(view: LabelView) -> MetricValue:
    return view.cells.shuffled_quantile(view.seed)


@dataclass(frozen=True, eq=False)
class SimplexView(DecisionView):
    """Rows projected by MRC.

    Attributes:
        feasible: Whether the reliability is at least 1/K, shape (n,), bool.
        solved: Whether no label is more probable than the decision, shape (n,), bool.
    """

    feasible: np.ndarray
    solved: np.ndarray


def _infeasible_share(view: SimplexView) -> MetricValue:
    return view.mean(~view.feasible)


def _solved_share(view: SimplexView) -> MetricValue:
    return view.mean(view.solved)


@dataclass(frozen=True, eq=False)
class ReliabilityView(DecisionView):
    """Fixed decisions with a score: their reliability, or their confidence for comparison.

    Attributes:
        logit: Logit of the score, shape (n,).
    """

    logit: np.ndarray

    @cached_property
    def ranked(self) -> Mapping[str, MetricValue]:
        """All ranking metrics by name; they share one sort of the rows."""
        if self.draws is not None:
            return self.draws.ranking_metrics(self.logit, self.correct)
        groups = reliability.find_tie_groups(self.logit, self.correct)
        return {name: float(values[0]) for name, values in reliability.ranking_metrics(groups).items()}


def _correctness_log_loss(view: ReliabilityView) -> MetricValue:
    return view.mean(reliability.correctness_log_loss(view.logit, view.correct, view.params.smallest_reliability))


def _aupr_error(view: ReliabilityView) -> MetricValue:
    if view.params.ties == "expected":
        return view.ranked["aupr_error"]
    if view.draws is not None:  # the bootstrap supports expected ties only
        return np.full(view.draws.resamples, np.nan)
    return reliability.average_precision_by_threshold(view.logit, view.correct)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric of fixed decisions.

    Attributes:
        key: Name in files and settings.
        title: Name in tables and figures.
        direction: Sign of an improvement.
        view: Class of the views that `function` takes.
        function: Computes the metric from a view.
        choices: Names of the `MetricParams` that affect the metric.
        resampled: Whether the metric has bootstrap intervals.
        compared: Whether the metric is in the main table, its intervals and the headline.
        summary: What it measures, in a sentence for the reference.
    """

    key: str
    title: str
    direction: Direction
    view: type[DecisionView]
    function: Callable[[Any], MetricValue]
    choices: tuple[str, ...] = ()
    resampled: bool = True
    compared: bool = False
    summary: str = ""


def _ranking_metric(key: str, title: str, direction: Direction, *, summary: str, compared: bool = False) -> Metric:
    """Build a metric that is one of `ReliabilityView.ranked`."""

    def get_ranked(view: ReliabilityView) -> MetricValue:
        return view.ranked[key]

    return Metric(
        key=key,
        title=title,
        direction=direction,
        view=ReliabilityView,
        function=get_ranked,
        compared=compared,
        summary=summary,
    )


_SPREAD_CHOICES = ("spread_groups", "spread_minimum_cell", "smallest_probability")
_METRICS = (
    Metric(
        key="accuracy",
        summary="Share of correct decisions.",
        title="accuracy",
        direction=HIGHER,
        view=DecisionView,
        function=_accuracy,
    ),
    Metric(
        key="ece",
        summary=("Mean distance between confidence and accuracy over bins of the confidence of the fixed decision."),
        title="ECE",
        direction=LOWER,
        view=ProbabilityView,
        function=_confidence_ece,
        choices=("ece_bins", "smallest_probability"),
    ),
    Metric(
        key="top_ece",
        summary="ECE of the most probable label instead of the fixed decision.",
        title="ECE of the top label",
        direction=LOWER,
        view=ProbabilityView,
        function=_top_label_ece,
        choices=("ece_bins", "smallest_probability"),
    ),
    Metric(
        key="nll",
        summary="Mean negative log-likelihood of the true label (log loss of the class probabilities).",
        title="NLL",
        direction=LOWER,
        view=ProbabilityView,
        function=_log_loss,
        choices=("smallest_probability",),
    ),
    Metric(
        key="brier",
        summary="Mean squared distance of the class probabilities from the true label.",
        title="Brier score",
        direction=LOWER,
        view=ProbabilityView,
        function=_brier_score,
        choices=("smallest_probability",),
    ),
    Metric(
        key="label_spread",
        summary=(
            "Range of the accuracy between decided labels of similar confidence, as a mean over confidence groups."
        ),
        title="label spread",
        direction=NEITHER,
        view=LabelView,
        function=_label_spread,
        choices=_SPREAD_CHOICES,
    ),
    Metric(
        key="label_spread_null_p95",
        summary="95th percentile of the label spread if labels are shuffled.",
        title="label spread, shuffled",
        direction=NEITHER,
        view=LabelView,
        function=_shuffled_label_spread,
        choices=(*_SPREAD_CHOICES, "spread_permutations"),
        resampled=False,
    ),
    Metric(
        key="nll_correct",
        summary="Log loss of the reliability as the probability of a correct decision, in nats.",
        title="correctness log loss",
        direction=LOWER,
        view=ReliabilityView,
        function=_correctness_log_loss,
        choices=("smallest_reliability",),
        compared=True,
    ),
    Metric(
        key="aupr_error",
        summary="Average precision of finding wrong decisions, lowest reliability first.",
        title="AUPR-Error",
        direction=HIGHER,
        view=ReliabilityView,
        function=_aupr_error,
        choices=("ties",),
        compared=True,
    ),
    _ranking_metric(
        "aurc",
        "AURC",
        LOWER,
        summary="Area under the risk-coverage curve, the mean error rate over all coverages.",
        compared=True,
    ),
    _ranking_metric("augrc", "AUGRC", LOWER, summary="Area under the generalized risk-coverage curve."),
    *(
        _ranking_metric(
            f"selacc_{tenths}0",
            f"selective accuracy at {tenths}0%",
            HIGHER,
            summary=f"Accuracy of the most reliable {tenths}0% of the decisions.",
        )
        for tenths in reliability.COVERAGE_TENTHS
    ),
    Metric(
        key="infeasible_share",
        summary="Share of rows whose reliability MRC cannot reach.",
        title="infeasible",
        direction=NEITHER,
        view=SimplexView,
        function=_infeasible_share,
        resampled=False,
    ),
    Metric(
        key="solved_share",
        summary="Share of rows for which MRC found the exponent.",
        title="solved",
        direction=NEITHER,
        view=SimplexView,
        function=_solved_share,
        resampled=False,
    ),
)
METRICS = {metric.key: metric for metric in _METRICS}
COMPARED_METRICS = tuple(key for key, metric in METRICS.items() if metric.compared)


def metrics_for_views(*views: type[DecisionView]) -> tuple[Metric, ...]:
    """List the metrics of some classes of views.

    Args:
        *views: Classes of views; subclasses are not included.

    Returns:
        The metrics, in the order of the registry.
    """
    return tuple(metric for metric in _METRICS if metric.view in views)


def compute_reliability_metrics(
    logit: np.ndarray, correct: np.ndarray, params: MetricParams = METRIC_DEFAULTS, draws: Resamples | None = None
) -> dict[str, MetricValue]:
    """Compute the metrics of a reliability.

    Args:
        logit: Logit of the reliability, shape (n,).
        correct: Whether the decision is correct, shape (n,), bool.
        params: Settings of the metrics.
        draws: Resamples of the rows; None for all rows.

    Returns:
        Metrics by name: floats, or arrays (R,) of the resamples.

    Raises:
        ValueError: A logit is NaN; the message names the row.
    """
    view = ReliabilityView(correct, params, draws, logit)
    return {metric.key: metric.function(view) for metric in metrics_for_views(ReliabilityView)}


def compute_compared_metrics(
    logits: Mapping[str, np.ndarray], correct: np.ndarray, params: MetricParams
) -> Iterator[tuple[str, str, MetricValue]]:
    """Compute the metrics that are compared, for each variant.

    Args:
        logits: Logit of the reliability of each variant, shape (n,).
        correct: Whether the decision is correct, shape (n,), bool.
        params: Settings of the metrics.

    Yields:
        Variant, metric and value.
    """
    for variant, logit in logits.items():
        metrics = compute_reliability_metrics(logit, correct, params)
        for metric in COMPARED_METRICS:
            yield variant, metric, metrics[metric]
