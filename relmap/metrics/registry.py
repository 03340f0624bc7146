"""The metrics: each one value, from which everything that lists metrics takes its names, order and direction.

A metric is a number of a view: of what it has to know of fixed decisions and of how sure they are. A view is of all
rows, or with `draws` of each resample of them, so that a value and its replicates are computed in the same words.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from relmap.metrics import reliability
from relmap.metrics.probability import brier_score_per_row, ece, log_loss_per_row, top_label
from relmap.metrics.resampling import Resamples
from relmap.metrics.spread import LabelCells
from relmap.settings import METRIC_DEFAULTS, MetricParams

MetricValue = Any  # a float for all rows, or (R,) float64 for R resamples
Direction = Literal[-1, 0, 1]  # the sign of an improvement
HIGHER: Direction = 1
LOWER: Direction = -1
NEITHER: Direction = 0


@dataclass(frozen=True, eq=False)
class DecisionView:
    """`n` fixed decisions, and what the metrics leave open."""

    correct: np.ndarray  # (n,) bool
    params: MetricParams
    draws: Resamples | None

    def mean(self, values: np.ndarray) -> MetricValue:
        """Return the mean of values `(n,)`; NaN of no rows."""
        if self.draws is not None:
            return self.draws.mean(values)
        return float(np.mean(values)) if len(values) else np.nan


@dataclass(frozen=True, eq=False)
class ProbabilityView(DecisionView):
    """Class probabilities beside fixed decisions, the calibrator's or MRC's."""

    decision: np.ndarray  # (n,) int64
    log_probabilities: np.ndarray  # (n, K)
    labels: np.ndarray  # (n,) int64, the true ones

    @cached_property
    def confidence(self) -> np.ndarray:
        """Return the probability of the decision, `(n,)`."""
        return np.asarray(np.exp(self.log_probabilities[np.arange(len(self.labels)), self.decision]))

    def ece(self, confidence: np.ndarray, correct: np.ndarray) -> MetricValue:
        """Return the expected calibration error of confidence `(n,)` in [0, 1] against correct `(n,)` bool."""
        error = ece if self.draws is None else self.draws.ece
        return error(confidence, correct, self.params.ece_bins)

    def _top_ece(self) -> MetricValue:
        return self.ece(*top_label(self.log_probabilities, self.labels))

    def _nll(self) -> MetricValue:
        return self.mean(log_loss_per_row(self.log_probabilities, self.labels, self.params.smallest_probability))


@dataclass(frozen=True, eq=False)
class LabelView(ProbabilityView):
    """The same, as what differs between decided labels is of them."""

    seed: int  # of the shuffled labels

    @cached_property
    def _cells(self) -> LabelCells:
        return LabelCells.of(self.confidence, self.decision, self.correct, self.params)

    def _label_spread(self) -> MetricValue:
        if self.draws is None:
            return self._cells.spread()
        return self.draws.label_spread(self.confidence, self.decision, self.correct, self.params)

    def _null(self) -> MetricValue:
        return self._cells.null(self.seed)


@dataclass(frozen=True, eq=False)
class SimplexView(DecisionView):
    """What became of the rows that MRC projected."""

    feasible: np.ndarray  # (n,) bool
    solved: np.ndarray  # (n,) bool


@dataclass(frozen=True, eq=False)
class ReliabilityView(DecisionView):
    """How sure decisions are, by the logit of a probability."""

    logit: np.ndarray  # (n,)

    @cached_property
    def ranked(self) -> Mapping[str, MetricValue]:
        """Return every metric that ranks, from one sort."""
        if self.draws is not None:
            return self.draws.ranking_metrics(self.logit, self.correct)
        of_one = reliability.ranking_metrics(reliability.find_tie_groups(self.logit, self.correct))
        return {name: float(values[0]) for name, values in of_one.items()}

    def _aupr_error(self) -> MetricValue:
        if self.params.ties == "expected":
            return self.ranked["aupr_error"]
        if self.draws is not None:  # the bootstrap knows no other reading
            return np.full(self.draws.resamples, np.nan)
        return reliability.average_precision_by_threshold(self.logit, self.correct)

    def _nll(self) -> MetricValue:
        return self.mean(reliability.correctness_log_loss(self.logit, self.correct, self.params.smallest_reliability))


class Metric(NamedTuple):
    """One metric: what it is called, which way is better, of which view it is, and how it is computed."""

    key: str
    title: str
    direction: Direction
    view: type[DecisionView]
    function: Callable[[Any], MetricValue]
    choices: tuple[str, ...] = ()  # names of MetricParams that bear on it
    resampled: bool = True  # whether the bootstrap bounds it
    compared: bool = False  # in the main table, its intervals and the headline


def _ranked(key: str, title: str, direction: Direction, *, compared: bool = False) -> Metric:
    return Metric(key, title, direction, ReliabilityView, lambda view: view.ranked[key], compared=compared)


_CELLS = ("spread_groups", "spread_minimum_cell")
_SHUFFLES = (*_CELLS, "spread_permutations")
_METRICS = (
    Metric("accuracy", "accuracy", HIGHER, DecisionView, lambda v: v.mean(v.correct)),
    Metric("ece", "ECE", LOWER, ProbabilityView, lambda v: v.ece(v.confidence, v.correct), ("ece_bins",)),
    Metric("top_ece", "ECE of the top label", LOWER, ProbabilityView, ProbabilityView._top_ece, ("ece_bins",)),
    Metric("nll", "NLL", LOWER, ProbabilityView, ProbabilityView._nll, ("smallest_probability",)),
    Metric(
        "brier",
        "Brier score",
        LOWER,
        ProbabilityView,
        lambda v: v.mean(brier_score_per_row(v.log_probabilities, v.labels)),
    ),
    Metric("label_spread", "label spread", NEITHER, LabelView, LabelView._label_spread, _CELLS),
    Metric(
        "label_spread_null_p95",
        "label spread, shuffled",
        NEITHER,
        LabelView,
        LabelView._null,
        _SHUFFLES,
        resampled=False,
    ),
    Metric(
        "nll_correct",
        "correctness NLL",
        LOWER,
        ReliabilityView,
        ReliabilityView._nll,
        ("smallest_reliability",),
        compared=True,
    ),
    Metric("aupr_error", "AUPR-Error", HIGHER, ReliabilityView, ReliabilityView._aupr_error, ("ties",), compared=True),
    _ranked("aurc", "AURC", LOWER, compared=True),
    _ranked("augrc", "AUGRC", LOWER),
    *(_ranked(f"selacc_{t}0", f"selective accuracy at {t}0%", HIGHER) for t in reliability.COVERAGE_TENTHS),
    Metric("infeasible_share", "infeasible", NEITHER, SimplexView, lambda v: v.mean(~v.feasible), resampled=False),
    Metric("solved_share", "solved", NEITHER, SimplexView, lambda v: v.mean(v.solved), resampled=False),
)
METRICS = {metric.key: metric for metric in _METRICS}
COMPARED_METRICS = tuple(key for key, metric in METRICS.items() if metric.compared)


def metrics_for_views(*views: type[DecisionView]) -> tuple[Metric, ...]:
    """Return the metrics of these kinds of view, in their order."""
    return tuple(metric for metric in _METRICS if metric.view in views)


def compute_reliability_metrics(
    logit: np.ndarray, correct: np.ndarray, params: MetricParams = METRIC_DEFAULTS, draws: Resamples | None = None
) -> dict[str, MetricValue]:
    """Return the metrics of one reliability, given as its logit `(n,)`, against correct `(n,)` bool, by name."""
    view = ReliabilityView(np.asarray(correct, dtype=bool), params, draws, np.asarray(logit, dtype=np.float64))
    return {metric.key: metric.function(view) for metric in metrics_for_views(ReliabilityView)}


def compute_compared_metrics(
    logits: Mapping[str, np.ndarray], correct: np.ndarray, params: MetricParams
) -> Iterator[tuple[str, str, MetricValue]]:
    """Yield variant, metric and value of the compared metrics, for the reliability logits `(n,)` of each variant."""
    for variant, logit in logits.items():
        metrics = compute_reliability_metrics(logit, correct, params)
        yield from ((variant, metric, metrics[metric]) for metric in COMPARED_METRICS)
