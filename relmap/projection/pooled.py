"""MRP with partial pooling over labels, the model of reliability maps, and its signals.

With z the logit of the confidence and x the standardized z, a pooled line has the logit of the reliability

    t = z + (a + a_k) + (b + b_k) x,   a, b ~ N(0, shared²),   a_k ~ N(0, intercept²),   b_k ~ N(0, slope²)

for a decision for label k. The prior shrinks the shared coefficients to the identity and the coefficients of a label to
the shared ones. Each standard deviation of the prior is one of DEVIATION_LEVELS. Coefficients are averaged over priors,
weighted by their marginal likelihoods (Laplace's approximation: MacKay, 1992; Tierney and Kadane, 1986). Slopes differ
less between labels than shifts do, so the standard deviation of the slopes has a half-normal prior (Gelman, 2006). The
line of a label with few rows is therefore close to that of the other labels, and the line of a label with many rows is
determined by its own rows; the transition is gradual.

The pooled model of a label is a weighted mean of its line and of its monotone curve (MRP at its convex optimum). The
weight of the curve rises with the number of rows of the label, and counts only where these rows fit the curve better
than its number of knots explains (Akaike, 1978).

Signals, further columns of shape (n, S), are added to the logit with weights that all labels share.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import scipy
from pydantic import Field

from relmap.calibrators.optimizers import NewtonStep, find_minimum
from relmap.decisions import CalibratedDecisions
from relmap.io.serialization import Axes, Number, Share, Value
from relmap.metrics.reliability import log_loss_of_logits
from relmap.projection.labelwise import MAX_LOGIT, Lines
from relmap.projection.mrp import Curves, choose_fallbacks

if TYPE_CHECKING:
    from relmap.projection.rows import FitBatch

DEVIATION_LEVELS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)  # standard deviations of a prior that are compared, in logits
TOLERANCE = 0.03  # largest predicted decrease, in nats, of the last Newton step; that of a next one would be about 1e-5
MAX_SEARCH_ROUNDS = 4  # the search usually ends in the second round
# log prior odds of a deviation of 0: noise must hardly change a calibrated confidence; one that is given without
# logits, such as the words of a judge, is less likely to be calibrated
ODDS_OF_NO_DEVIATION = 3.0
ODDS_OF_NO_DEVIATION_GIVEN = 1.0
# scale of the half-normal prior of the slopes' standard deviation; without it few rows can make a slope far too steep
SLOPE_DEVIATION_SCALE = 0.5
MIN_SPREAD = 0.01  # smallest standard deviation of the logits by which a slope is scaled
N_SEARCH_ROWS = 1000  # rows of the first search, evenly spaced
CURVE_WEIGHT_ROWS = 1000.0  # number of rows of a label at which the weight of its curve is at most one half
LINE_PARAMETERS = 2  # intercept and slope
NO_ERROR_FACTOR = 10.0  # an error rate of 1 / (10 n) gives n rows without an error in 90% of samples
SIGNAL_DEVIATION = 0.5  # standard deviation of the prior of a signal's weight, per standard deviation of the signal
LINE_PARTS = ("shared", "intercept", "slope")  # parts of the prior that are searched


class ShrunkCurves(Value, kind="shrunk"):
    """Monotone curves shrunk to lines, and smoothly bounded.

    With u = (1 - share) line + share curve, the logit t of the reliability satisfies exp(-t) = exp(-u) + exp(-largest).

    Attributes:
        line: The lines.
        curves: The curves.
        share: Weight in [0, 1] of the curve of each label, shape (K,).
        largest: Bound that the logit t approaches; None without a bound, as in maps written by earlier versions.
    """

    line: Lines
    curves: Curves
    share: Annotated[np.ndarray, Axes("K", of=Share)]
    largest: Annotated[float, Field(gt=0, le=MAX_LOGIT)] | None = None

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """Score decisions by confidence and label.

        Args:
            decisions: n decisions.

        Returns:
            Logit of the reliability, shape (n,), float64.
        """
        return self.bound(self.unbounded_logit(decisions))

    def unbounded_logit(self, decisions: CalibratedDecisions) -> np.ndarray:
        """Compute the weighted mean of line and curve.

        Args:
            decisions: n decisions.

        Returns:
            Logits, shape (n,), float64.
        """
        share = self.share[decisions.decision]
        # neither product falls as the confidence rises, not even by rounding, and so neither does their sum
        return np.asarray((1 - share) * self.line(decisions) + share * self.curves(decisions))

    def bound(self, logit: np.ndarray) -> np.ndarray:
        """Bound the logits of reliabilities smoothly by `largest`, so that different logits stay different.

        Args:
            logit: Logits, shape (n,).

        Returns:
            Shape (n,). The odds of an error are those of the logits plus those at `largest`.
        """
        if self.largest is None:
            return logit
        return np.asarray(-np.logaddexp(-logit, -self.largest))

    def _content_violations(self) -> list[str]:
        return self.line.violations(len(self.share)) + self.curves.violations(len(self.share))


class SignalAdjusted(Value, kind="signal_adjusted"):
    """Pooled curves plus weighted signals; the sum is bounded as the curves are.

    Attributes:
        base: The pooled curves.
        weights: Weight of each signal, shape (S,).
    """

    base: ShrunkCurves
    weights: Annotated[np.ndarray, Axes("S", of=Number)]

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """Score decisions by confidence, label and signals.

        Args:
            decisions: n decisions with signals, shape (n, S).

        Returns:
            Logit of the reliability, shape (n,), float64.
        """
        assert decisions.signals is not None
        contribution = (decisions.signals * self.weights).sum(axis=1)
        return self.base.bound(self.base.unbounded_logit(decisions) + contribution)

    def violations(self, n_labels: int | None = None) -> list[str]:
        """Find violations of the pooled curves.

        Args:
            n_labels: Number of labels K; None if it is unknown.

        Returns:
            One sentence for each violation; empty if the curves are valid.
        """
        return self.base.violations(n_labels)


@dataclass(frozen=True)
class Prior:
    """Standard deviations of the coefficients, in logits; 0 removes a part of the model.

    Attributes:
        shared: For the shared intercept and slope.
        intercept: For the intercepts of labels.
        slope: For the slopes of labels.
    """

    shared: float = 0.0
    intercept: float = 0.0
    slope: float = 0.0

    def shared_deviations(self, n_features: int) -> np.ndarray:
        """List the standard deviations of the shared coefficients.

        Args:
            n_features: Number F of features: 1, x and the signals.

        Returns:
            Standard deviations, shape (F,).
        """
        return np.array([self.shared, self.shared, *[SIGNAL_DEVIATION] * (n_features - 2)])

    def label_deviations(self, n_features: int) -> np.ndarray:
        """List the standard deviations of the coefficients of a label.

        Args:
            n_features: Number F of features: 1, x and the signals.

        Returns:
            Standard deviations, shape (F,).
        """
        return np.array([self.intercept, self.slope, *[0.0] * (n_features - 2)])


# if all confidences are equal, labels are expected to differ, and there is no slope
CONSTANT_CONFIDENCE_PRIOR = Prior(shared=4.0, intercept=4.0)


class PooledFit(NamedTuple):
    """Coefficients under one prior.

    Attributes:
        log_evidence: Laplace's approximation of the log marginal likelihood, in nats.
        shared: Shared coefficients, shape (F,).
        by_label: Coefficients of each label, shape (K, F).
    """

    log_evidence: float
    shared: np.ndarray
    by_label: np.ndarray


@dataclass(frozen=True, eq=False)
class NewtonSystem:
    """Gradient and Hessian of the objective, with A shared and B per-label free coefficients.

    The Hessian is an arrow matrix

        [ shared_hessian   cross_1        cross_2        ... ]
        [ cross_1'         label_1        0              ... ]
        [ cross_2'         0              label_2        ... ],

    because labels interact only through the shared coefficients.

    Attributes:
        shared_gradient: Shape (A,).
        label_gradient: Shape (K, B).
        shared_hessian: Shape (A, A).
        cross_hessian: Shape (K, A, B).
        label_hessian: Shape (K, B, B).
    """

    shared_gradient: np.ndarray
    label_gradient: np.ndarray
    shared_hessian: np.ndarray
    cross_hessian: np.ndarray
    label_hessian: np.ndarray

    def solve(self) -> NewtonStep:
        """Compute the Newton step by eliminating the blocks of the labels.

        With H_k the block of label k, C_k its cross block and g_k its gradient,

            S d = -(g - sum_k C_k H_k^-1 g_k),   d_k = -H_k^-1 g_k - H_k^-1 C_k' d,

        where S is the Schur complement.

        Returns:
            The step of the A shared coefficients and of the K B coefficients of the labels, and its predicted decrease.
        """
        gradient_response = self._label_solutions[..., -1]
        cross_response = self._label_solutions[..., :-1]
        eliminated = (self.cross_hessian @ self._label_solutions[..., -1:])[..., 0].sum(axis=0)
        shared_step = -np.linalg.solve(self.schur_complement, self.shared_gradient - eliminated)
        label_step = -gradient_response - cross_response @ shared_step
        decrease = -float(self.shared_gradient @ shared_step + (self.label_gradient * label_step).sum())
        return NewtonStep(np.append(shared_step, label_step), decrease)

    def log_determinant(self) -> float:
        """Return the log determinant of the Hessian, log |S| + sum_k log |H_k|."""
        label_terms = np.linalg.slogdet(self.label_hessian)[1]
        return float(np.linalg.slogdet(self.schur_complement)[1] + label_terms.sum())

    @cached_property
    def schur_complement(self) -> np.ndarray:
        """S = shared_hessian - sum_k C_k H_k^-1 C_k', shape (A, A)."""
        return np.asarray(
            self.shared_hessian - (self.cross_hessian @ self._label_solutions[..., :-1]).sum(axis=0),
        )

    @cached_property
    def _label_solutions(self) -> np.ndarray:
        """H_k^-1 [C_k', g_k] of each label, shape (K, B, A + 1)."""
        right = np.concatenate([np.swapaxes(self.cross_hessian, 1, 2), self.label_gradient[..., None]], axis=2)
        return np.linalg.solve(self.label_hessian, right)


@dataclass(frozen=True, eq=False)
class PooledPoint:
    """Free coefficients with the objective there.

    Attributes:
        problem: The problem.
        shared: Shared coefficients, shape (A,).
        by_label: Coefficients of each label, shape (K, B).
        value: Penalized log loss in nats.
        logit: Logit of the reliability of each row, shape (n,).
    """

    problem: "PenalizedProblem"
    shared: np.ndarray
    by_label: np.ndarray
    value: float
    logit: np.ndarray

    def newton_step(self) -> NewtonStep:
        """Solve for the Newton step.

        Returns:
            See `NewtonSystem.solve`.
        """
        return self.system.solve()

    @cached_property
    def system(self) -> NewtonSystem:
        """Gradient and Hessian."""
        return self.problem.newton_system(self)


class PooledRows:
    """Rows of a fit, sorted by label, with the fits under the priors tried so far.

    Args:
        offset: Logit of the confidence, shape (n,).
        features: Columns 1, x and signals, shape (n, F).
        label: Decided label 0..K-1, nondecreasing, shape (n,).
        correct: Whether the decision is correct, shape (n,), bool.
        n_labels: Number of labels K.
        log_odds: Log prior odds of a deviation of 0.
    """

    def __init__(
        self,
        offset: np.ndarray,
        features: np.ndarray,
        label: np.ndarray,
        correct: np.ndarray,
        n_labels: int,
        log_odds: float = ODDS_OF_NO_DEVIATION,
    ) -> None:
        self.log_odds = log_odds
        self.offset = offset
        self.columns = np.ascontiguousarray(features.T)  # (F, n), since sums over the rows of one column are faster
        self.label = label
        self.correct = correct
        self.n_labels = n_labels
        self.fits: dict[Prior, PooledFit] = {}

    def fit(self, prior: Prior, start: Prior) -> PooledFit:
        """Fit the coefficients under a prior by Newton's method.

        Args:
            prior: Standard deviations of the coefficients.
            start: Prior whose fit is the starting point if it is in `fits`; otherwise all coefficients start at 0.

        Returns:
            The coefficients and their log evidence.
        """
        problem = PenalizedProblem(self, prior)
        starting_point = problem.starting_point(self.fits.get(start))
        return problem.pooled_fit(find_minimum(problem.evaluate, starting_point, tolerance=TOLERANCE))

    @property
    def features(self) -> np.ndarray:
        """Columns 1, x and signals, shape (n, F)."""
        return self.columns.T

    def logits(self, coefficients: np.ndarray) -> np.ndarray:
        """Compute the logit of the reliability of each row.

        Args:
            coefficients: Coefficients of the first A features for each label, shape (K, A).

        Returns:
            Logits, shape (n,).
        """
        n_features = coefficients.shape[1]
        terms = coefficients.T[:, self.label] * self.columns[:n_features]
        return np.asarray(self.offset + terms.sum(axis=0))

    def mean_logits(self, line: np.ndarray) -> np.ndarray:
        """Compute the logit of the mean reliability of each label.

        Args:
            line: Intercept and slope of each label, shape (K, 2).

        Returns:
            Logits, shape (K,); a label without rows has the logit of all rows.
        """
        reliability = scipy.special.expit(self.logits(line))
        n_rows = np.bincount(self.label, minlength=self.n_labels)
        mean = np.bincount(self.label, reliability, self.n_labels) / np.maximum(n_rows, 1)
        return np.asarray(scipy.special.logit(np.where(n_rows, mean, reliability.mean())))

    @cached_property
    def _starts(self) -> np.ndarray:
        """First row of each label that has rows."""
        return np.flatnonzero(np.diff(self.label, prepend=-1))

    def sum_by_label(self, columns: np.ndarray) -> np.ndarray:
        """Sum columns over the rows of each label.

        Args:
            columns: Values of each row, shape (A, n).

        Returns:
            Sums, shape (K, A); 0 for a label without rows.
        """
        sums = np.zeros((self.n_labels, len(columns)))
        sums[self.label[self._starts]] = np.add.reduceat(columns, self._starts, axis=1).T
        return sums

    def sum_products_by_label(self, weight: np.ndarray) -> np.ndarray:
        """Sum weighted products of the features over the rows of each label.

        Args:
            weight: Weight of each row, shape (n,).

        Returns:
            sum_i weight_i f_i f_i' over the rows i of each label, shape (K, F, F).
        """
        n_features = len(self.columns)
        sums = np.empty((self.n_labels, n_features, n_features))
        for i in range(n_features):
            sums[:, i, i:] = self.sum_by_label(self.columns[i] * weight * self.columns[i:])
            sums[:, i:, i] = sums[:, i, i:]
        return sums


class PenalizedProblem:
    """Penalized log loss of the rows under a prior, in the coefficients that the prior leaves free.

    The objective is

        sum_i log(1 + exp(-s_i t_i)) + sum_a u_a² / (2 shared_a²) + sum_k sum_b v_kb² / (2 label_b²),
        t_i = offset_i + x_i' u + y_i' v_label(i),   s_i = +1 if row i is correct, else -1,

    with the A shared coefficients u, the B coefficients v_k of each label, and their features x and y.

    Args:
        rows: Fit rows.
        prior: Standard deviations of the coefficients; a coefficient with 0 is not free.
    """

    def __init__(self, rows: PooledRows, prior: Prior) -> None:
        n_features = len(rows.columns)
        shared_deviations = prior.shared_deviations(n_features)
        label_deviations = prior.label_deviations(n_features)
        self._rows = rows
        self._shared_columns = np.flatnonzero(shared_deviations > 0)
        self._label_columns = np.flatnonzero(label_deviations > 0)
        self._shared_precision = 1 / shared_deviations[self._shared_columns] ** 2
        self._label_precision = 1 / label_deviations[self._label_columns] ** 2

    def starting_point(self, fit: PooledFit | None) -> np.ndarray:
        """Select the free coefficients of a fit.

        Args:
            fit: Fit under another prior; None to start with all coefficients 0.

        Returns:
            The A shared coefficients and the coefficients of the labels, shape (A + K B,).
        """
        if fit is None:
            return np.zeros(len(self._shared_columns) + self._rows.n_labels * len(self._label_columns))
        return np.append(fit.shared[self._shared_columns], fit.by_label[:, self._label_columns])

    def evaluate(self, coefficients: np.ndarray) -> PooledPoint:
        """Evaluate the objective.

        Args:
            coefficients: The A shared coefficients and the coefficients of the labels, shape (A + K B,).

        Returns:
            The coefficients with the objective and the logits of the rows.
        """
        n_shared = len(self._shared_columns)
        shared = coefficients[:n_shared]
        by_label = coefficients[n_shared:].reshape(self._rows.n_labels, len(self._label_columns))
        rows = self._rows
        logit = rows.logits(self._add_up(shared, by_label))
        log_loss = log_loss_of_logits(logit, rows.correct).sum()
        shared_penalty = (self._shared_precision * shared**2).sum() / 2
        label_penalty = (self._label_precision * by_label**2).sum() / 2
        value = float(log_loss + shared_penalty + label_penalty)
        return PooledPoint(self, shared, by_label, value, logit)

    def newton_system(self, point: PooledPoint) -> NewtonSystem:
        """Compute gradient and Hessian at a point.

        With q_i = sigmoid(t_i), the gradient sums (q_i - correct_i) times the features, and the Hessian sums
        q_i (1 - q_i) times their products; both add the derivatives of the penalty.

        Args:
            point: Free coefficients with the logits of the rows.

        Returns:
            The blocks of the Newton system.
        """
        rows = self._rows
        reliability = scipy.special.expit(point.logit)
        residual = reliability - rows.correct
        weight = reliability * (1 - reliability)
        shared = self._shared_columns
        label = self._label_columns
        sums = rows.sum_by_label(rows.columns * residual)
        products = rows.sum_products_by_label(weight)
        return NewtonSystem(
            shared_gradient=sums.sum(axis=0)[shared] + self._shared_precision * point.shared,
            label_gradient=sums[:, label] + self._label_precision * point.by_label,
            shared_hessian=products.sum(axis=0)[np.ix_(shared, shared)] + np.diag(self._shared_precision),
            cross_hessian=products[:, shared][:, :, label],
            label_hessian=products[:, label][:, :, label] + np.diag(self._label_precision),
        )

    def _add_up(self, shared: np.ndarray, by_label: np.ndarray) -> np.ndarray:
        """Add shared coefficients and those of each label, 0 where none is free, shape (K, F)."""
        total = np.zeros((self._rows.n_labels, len(self._rows.columns)))
        total[:, self._shared_columns] += shared
        total[:, self._label_columns] += by_label
        return total

    def pooled_fit(self, optimum: PooledPoint) -> PooledFit:
        """Convert the solution to coefficients of all features, with its log evidence.

        Laplace's approximation of the log evidence is -objective + (log |P| - log |H|) / 2, with the precision matrix P
        of the prior and the Hessian H.

        Args:
            optimum: Free coefficients at the optimum.

        Returns:
            Coefficients of all features, 0 where the prior removes them.
        """
        n_labels = self._rows.n_labels
        n_features = len(self._rows.columns)
        log_precision = np.log(self._shared_precision).sum() + n_labels * np.log(self._label_precision).sum()
        log_evidence = float(-optimum.value + (log_precision - optimum.system.log_determinant()) / 2)
        shared = np.zeros(n_features)
        by_label = np.zeros((n_labels, n_features))
        shared[self._shared_columns] = optimum.shared
        by_label[:, self._label_columns] = optimum.by_label
        return PooledFit(log_evidence, shared, by_label)


def search_prior(prior: Prior, rows: PooledRows, reach: int) -> Prior:
    """Search for the prior with the largest posterior density, one part at a time.

    Args:
        prior: Prior at which the search starts.
        rows: Fit rows; the fits under all priors tried are added to `rows.fits`.
        reach: Number of DEVIATION_LEVELS by which a part may move at once.

    Returns:
        The best prior found.
    """
    for _ in range(MAX_SEARCH_ROUNDS):
        previous = prior
        for part in LINE_PARTS:
            prior = _best_level(prior, part, rows, reach)
        if prior == previous:
            break
    return prior


def _best_level(prior: Prior, part: str, rows: PooledRows, reach: int) -> Prior:
    """Choose the level of one part with the largest posterior density, the first of equals."""
    current = DEVIATION_LEVELS.index(getattr(prior, part))
    candidates = []
    scores = []
    for level in DEVIATION_LEVELS[max(current - reach, 0) : current + reach + 1]:
        candidate = replace(prior, **{part: level})
        if candidate not in rows.fits:
            rows.fits[candidate] = rows.fit(candidate, prior)
        candidates.append(candidate)
        scores.append(rows.fits[candidate].log_evidence + _log_prior(candidate, rows.log_odds))
    return candidates[scores.index(max(scores))]


def _log_prior(prior: Prior, log_odds: float) -> float:
    """Log prior of the standard deviations: the log odds for each 0, and a half-normal density for slopes."""
    n_removed = (prior.shared, prior.intercept, prior.slope).count(0.0)
    return float(log_odds * n_removed - (prior.slope / SLOPE_DEVIATION_SCALE) ** 2 / 2)


class PooledLine(NamedTuple):
    """Fitted lines, and weights of signals.

    Attributes:
        line: The lines.
        signal_weights: Weight of each signal, shape (S,).
    """

    line: Lines
    signal_weights: np.ndarray


def fit_pooled_line(
    confidence_logit: np.ndarray,
    decision: np.ndarray,
    correct: np.ndarray,
    n_labels: int,
    signals: np.ndarray | None = None,
    *,
    log_odds: float = ODDS_OF_NO_DEVIATION,
) -> PooledLine:
    """Fit pooled lines, averaged over priors by their marginal likelihoods.

    Confidences of exactly 0 or 1 are replaced by finite logits, which are log 2 above the largest other one: if d is
    the distance of the most extreme other confidence from 0 or 1, they move to a distance of about d / 2. The order of
    the rows does not matter.

    Args:
        confidence_logit: Logit of the confidence, shape (n,); may be infinite.
        decision: Decided label 0..K-1, shape (n,).
        correct: Whether the decision is correct, shape (n,), bool.
        n_labels: Number of labels K.
        signals: Further features, shape (n, S); None without any.
        log_odds: Log prior odds of a deviation of 0.

    Returns:
        The lines and the weights of the signals. A label whose line would fall gets a constant: the mean reliability of
        its rows.
    """
    signal_columns = () if signals is None else tuple(signals.T)
    order = np.lexsort((*signal_columns, correct, confidence_logit, decision))
    logit = confidence_logit[order].astype(np.float64)
    max_logit = _choose_max_logit(logit)
    logit = np.clip(logit, -max_logit, max_logit)
    mean = float(logit.mean())
    spread = max(float(logit.std()), MIN_SPREAD)
    features = np.column_stack(
        [np.ones(len(logit)), (logit - mean) / spread, *(column[order] for column in signal_columns)]
    )
    rows = PooledRows(logit, features, decision[order], correct[order], n_labels, log_odds)
    if (logit == logit[0]).all():
        rows.fits[CONSTANT_CONFIDENCE_PRIOR] = rows.fit(CONSTANT_CONFIDENCE_PRIOR, CONSTANT_CONFIDENCE_PRIOR)
    else:
        search_rows = rows if len(logit) <= N_SEARCH_ROWS else _evenly_spaced_rows(rows, N_SEARCH_ROWS)
        prior = search_prior(Prior(), search_rows, reach=len(DEVIATION_LEVELS))
        search_prior(prior, rows, reach=1)
    coefficients = _average_over_priors(rows)
    slope = 1 + coefficients[:, 1] / spread
    intercept = coefficients[:, 0] - coefficients[:, 1] * mean / spread
    intercept = np.where(slope >= 0, intercept, rows.mean_logits(coefficients[:, :2]))
    line = Lines(slope=np.maximum(slope, 0), intercept=intercept, farthest=max_logit)
    return PooledLine(line=line, signal_weights=coefficients[0, 2:])


def _average_over_priors(rows: PooledRows) -> np.ndarray:
    """Average the coefficients of each label over the priors tried, by their posterior probability, shape (K, F)."""
    log_posterior = []
    coefficients = []
    for prior, fit in rows.fits.items():
        log_posterior.append(fit.log_evidence + _log_prior(prior, rows.log_odds))
        coefficients.append(fit.shared + fit.by_label)
    posterior = scipy.special.softmax(log_posterior)
    return np.asarray((posterior[:, None, None] * coefficients).sum(axis=0))


def fit_mrp_pooled(batch: "FitBatch") -> list[ShrunkCurves | SignalAdjusted]:
    """Fit MRP at its optimum, averaged with pooled lines; and weights of signals, if there are any.

    With signals, the curve of a label is lowered by the mean contribution of the signals to the rows of the label.

    Args:
        batch: Batch of B fits.

    Returns:
        Model of each fit.
    """
    n_rows = batch.rows_per_label
    decision = batch.fit_rows.decision
    correct = batch.fit_rows.correct
    fallback = choose_fallbacks(n_rows, minimum_rows=0)
    fits: list[ShrunkCurves | SignalAdjusted] = []
    for decisions, optimum in zip(batch.fit_rows.by_calibrator, batch.exact_fit.values, strict=True):
        signals = decisions.signals
        pooled = fit_pooled_line(
            decisions.confidence_logit,
            decision,
            correct,
            batch.n_labels,
            signals,
            log_odds=ODDS_OF_NO_DEVIATION_GIVEN if batch.confidence_is_given else ODDS_OF_NO_DEVIATION,
        )
        values = optimum
        contribution = np.zeros(len(decision))
        if signals is not None:
            contribution = (signals * pooled.signal_weights).sum(axis=1)
            label_sums = np.bincount(decision, contribution, batch.n_labels)
            values = values - (label_sums / np.maximum(n_rows, 1))[:, None]
        # where confidences nearly coincide, an optimum can exceed the logits that a float64 reliability distinguishes
        clipped = np.clip(values, -MAX_LOGIT, MAX_LOGIT)
        curves = Curves(knots=batch.knots, values=clipped, rows=n_rows, fallback=fallback)
        share = _curve_weights(
            log_loss_of_logits(pooled.line(decisions) + contribution, correct),
            log_loss_of_logits(curves(decisions) + contribution, correct),
            decision,
            n_labels=batch.n_labels,
            n_knots=len(batch.knots),
        )
        shrunk = ShrunkCurves(line=pooled.line, curves=curves, share=share, largest=_largest_logit(len(decision)))
        fits.append(shrunk if signals is None else SignalAdjusted(base=shrunk, weights=pooled.signal_weights))
    return fits


def _curve_weights(
    line: np.ndarray, curve: np.ndarray, decision: np.ndarray, *, n_labels: int, n_knots: int
) -> np.ndarray:
    """Compute the weight of the curve of each label, from the log losses of the rows under the line and the curve.

    For a label with n rows, and summed log losses L of models with m and M parameters, it is

        n² / (n² + CURVE_WEIGHT_ROWS²) / (1 + exp((L_curve + M) - (L_line + m))).

    Returns:
        Weights, shape (K,); 0 for a label without rows.
    """
    gain = np.bincount(decision, line - curve, n_labels)
    akaike_weight = scipy.special.expit(gain - (n_knots - LINE_PARAMETERS))
    n_rows = np.bincount(decision, minlength=n_labels).astype(np.float64)
    return np.asarray(akaike_weight * n_rows**2 / (n_rows**2 + CURVE_WEIGHT_ROWS**2))


def _largest_logit(n_rows: int) -> float:
    """Return the logit of 1 - 1 / (NO_ERROR_FACTOR n), the largest reliability that n fit rows can support.

    With an error rate of 1 / (10 n), n rows have no error in 90% of samples. No number of correct rows can therefore
    distinguish a lower error rate from this one.
    """
    return float(scipy.special.logit(1 - 1 / (NO_ERROR_FACTOR * n_rows)))


def _choose_max_logit(logit: np.ndarray) -> float:
    """Choose the logit to clip at: MAX_LOGIT, or if one is infinite, at most log 2 above the largest finite one."""
    is_infinite = np.isinf(logit)
    if not is_infinite.any():
        return MAX_LOGIT
    largest = float(np.abs(logit[~is_infinite]).max(initial=2))
    return min(largest + float(np.log(2)), MAX_LOGIT)


def _evenly_spaced_rows(rows: PooledRows, max_rows: int) -> PooledRows:
    """Select at most `max_rows` evenly spaced rows."""
    n_rows = len(rows.offset)
    selected = np.unique(np.linspace(0, n_rows - 1, min(max_rows, n_rows)).astype(np.int64))
    return PooledRows(
        rows.offset[selected],
        rows.features[selected],
        rows.label[selected],
        rows.correct[selected],
        rows.n_labels,
        rows.log_odds,
    )
