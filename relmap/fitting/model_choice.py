"""Choice of the variant that a map deploys, by its out-of-fold log loss.

The variant with the lowest loss is chosen, and the simpler one of equal variants. One exception: the score of the whole
logit vector is preferred unless its loss is more than two standard errors higher than the lowest. On real data sets it
is the best variant, and its prior reduces it to temperature scaling if the rows contain no evidence for more, so a
difference due to chance must not reject it. The fits are regularized, so the loss has no penalty for complexity. The
interval of the gain over the confidence is reported but does not affect the choice.

If rows were sampled with known probabilities, the loss of each row is weighted by the inverse of its probability.
Curves are fitted without weights, because the accuracy at a confidence and a label does not depend on the sampling. One
curve for all labels may depend on the sampling; then its weighted loss is higher, and it is not chosen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from relmap.calibrators.registry import CALIBRATORS, calibrators_with_role
from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.evaluation.evaluate import compare_scores
from relmap.evaluation.sample import EvaluationSample
from relmap.fitting.cross_fit import CONSTANT_CALIBRATOR, CrossFitResult, FitOptions, cross_fit, fit_paper_protocol
from relmap.fitting.folds import FoldSplit
from relmap.maps.document import Candidate, Choice, Gain, Source
from relmap.metrics.advice import KEEP, SAFE, USE, Advice, advise_map, describe_insufficient_errors
from relmap.metrics.reliability import find_tie_groups, ranking_metrics
from relmap.projection.variants import AUTO_VARIANTS, DEPLOYABLE_VARIANTS, PIPELINE_VARIANTS, VARIANTS
from relmap.projection.whole_vector import MAX_LABELS
from relmap.settings import MetricParams, Settings, row_counts

AUTO = "auto"
CONFIDENCE = "confidence"  # key of the variant that keeps the confidence
PREFERRED_VARIANT = "label_vector"
DECISION_ONLY_VARIANTS = (CONFIDENCE, "label_intercept", "label_signals")  # a curve needs a confidence
MAX_CLASSWISE_LABELS = 50  # class-wise calibrators take too long for more
CONFIDENCE_LEVEL = 0.95
MAX_STANDARD_ERRORS_BEHIND = 2  # of the preferred variant; chosen on data sets of 100 to 3,000 rows

# Intervals are longer than for one fit, since the fits of the folds share rows and the best of several variants is
# chosen. The factor was measured with random samples of real data sets.
INTERVAL_INFLATION = 1.3


def check_calibrator_and_variant(calibrator: str, variant: str, rows: FixedDecisions, n_labels: int) -> None:
    """Check that a calibrator and a variant exist, and that both can be fitted to the given rows.

    Args:
        calibrator: Key of the calibrator.
        variant: Key of the variant, or "auto".
        rows: Labelled rows to fit on.
        n_labels: Number of labels K.

    Raises:
        InputError: The calibrator or the variant is unknown, needs inputs that the rows lack, or takes too long for the
            number of labels.
    """
    _check_calibrator(calibrator, rows, n_labels)
    _check_variant(variant, rows, n_labels)


def _check_calibrator(calibrator: str, rows: FixedDecisions, n_labels: int) -> None:
    if rows.kind == "decision_only":
        if calibrator != CONSTANT_CALIBRATOR:
            raise InputError(
                f"the calibrator {calibrator} needs a confidence, and the rows have only decisions; omit the calibrator"
            )
    elif calibrator not in CALIBRATORS:
        raise InputError(f"unknown calibrator {calibrator!r}; choose one of {', '.join(CALIBRATORS)}")
    elif rows.logits is None and not CALIBRATORS[calibrator].accepts_confidence:
        accepting = [key for key, entry in CALIBRATORS.items() if entry.accepts_confidence]
        raise InputError(
            f"the calibrator {calibrator} needs logits or probabilities; with a decision and a confidence, use "
            f"{' or '.join(accepting)}"
        )
    if calibrator in calibrators_with_role("rival") and n_labels > MAX_CLASSWISE_LABELS:
        raise InputError(
            f"the calibrator {calibrator} takes too long for {n_labels} labels; use ts, which has no such limit"
        )


def _check_variant(variant: str, rows: FixedDecisions, n_labels: int) -> None:
    choices = (AUTO, *DEPLOYABLE_VARIANTS)
    if variant not in choices:
        reason = ", which needs the runner-up as well as the confidence" if variant == "label_2d" else ""
        raise InputError(f"a map cannot contain the variant {variant!r}{reason}; choose one of {', '.join(choices)}")
    if variant != AUTO and variant not in available_variants(rows, n_labels, DEPLOYABLE_VARIANTS):
        required_inputs = {"logits": f"logits or probabilities of at most {MAX_LABELS} labels", "signals": "signals"}
        required = required_inputs.get(VARIANTS[variant].required_input, "a confidence")
        raise InputError(f"the variant {variant} needs {required}; provide them, or use the variant auto")


def available_variants(rows: FixedDecisions, n_labels: int, variants: Sequence[str] = AUTO_VARIANTS) -> tuple[str, ...]:
    """Select the variants that can be fitted to the given rows.

    Args:
        rows: Labelled rows.
        n_labels: Number of labels K.
        variants: Keys to select from.

    Returns:
        Keys of the selected variants, in the same order.
    """
    inputs = {"confidence"}
    if rows.logits is not None and n_labels <= MAX_LABELS:
        inputs.add("logits")
    if rows.signals is not None:
        inputs.add("signals")
    available = [variant for variant in variants if VARIANTS[variant].required_input in inputs]
    if rows.kind == "decision_only":
        available = [variant for variant in available if variant in DECISION_ONLY_VARIANTS]
    return tuple(available)


@dataclass(frozen=True)
class MeanDifference:
    """Mean over rows of the difference of two losses.

    Attributes:
        mean: The mean.
        standard_error: Standard error of the mean.
        n_units: Number of independent units: of groups, or of rows without groups.
    """

    mean: float
    standard_error: float
    n_units: int

    @classmethod
    def from_differences(
        cls, differences: np.ndarray, group: np.ndarray | None, weight: np.ndarray | None = None
    ) -> "MeanDifference":
        """Compute the weighted mean m = sum_i w_i d_i / W and its cluster-robust standard error.

        With the residual sums s_g = sum_{i in g} w_i (d_i - m) of G groups, and W = sum_i w_i, the squared standard
        error is G / (G - 1) sum_g s_g² / W².

        Args:
            differences: Difference d of each row, shape (n,).
            group: Group of each row, shape (n,); None if each row is a group.
            weight: Weight w of each row, shape (n,); None for equal weights.

        Returns:
            The mean and its standard error.
        """
        mean = np.average(differences, weights=weight)
        residual = differences - mean
        total_weight: float = len(differences)
        if weight is not None:
            residual = residual * weight
            total_weight = weight.sum()
        if group is not None:
            _, group_code = np.unique(group, return_inverse=True)
            residual = np.bincount(group_code, residual)
        n_units = len(residual)
        small_sample_factor = n_units / max(n_units - 1, 1)
        standard_error = np.sqrt(small_sample_factor * (residual**2).sum()) / total_weight
        return cls(mean=float(mean), standard_error=float(standard_error), n_units=n_units)

    @property
    def interval(self) -> tuple[float, float]:
        """Ends of the 95% interval of the difference on new rows, by Student's t, extended by `INTERVAL_INFLATION`."""
        degrees_of_freedom = max(self.n_units - 1, 1)
        t_quantile = float(scipy.special.stdtrit(degrees_of_freedom, (1 + CONFIDENCE_LEVEL) / 2))
        half_width = t_quantile * INTERVAL_INFLATION * self.standard_error
        return self.mean - half_width, self.mean + half_width


def compare_candidates(losses: Mapping[str, np.ndarray], rows: FixedDecisions) -> tuple[Candidate, ...]:
    """Compare the log loss of each variant with that of the confidence.

    Args:
        losses: Log loss of each row by variant in nats, shape (n,) each; including the confidence.
        rows: The n rows, with their groups and weights.

    Returns:
        Mean loss and change of each variant, in the order of `losses`.
    """
    candidates = []
    for variant, loss in losses.items():
        difference = MeanDifference.from_differences(loss - losses[CONFIDENCE], rows.group, rows.weight)
        low, high = difference.interval
        candidates.append(
            Candidate(
                variant=variant,
                nll_correct=float(np.average(loss, weights=rows.weight)),
                change=difference.mean,
                low=low,
                high=high,
            )
        )
    return tuple(candidates)


def lowest_loss_candidate(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate with the lowest log loss.

    Args:
        candidates: Candidates, simpler ones first; the first one of equal candidates is returned.
    """
    return min(candidates, key=lambda candidate: candidate.nll_correct)


def select_candidate(
    candidates: Sequence[Candidate], losses: Mapping[str, np.ndarray], rows: FixedDecisions
) -> Candidate:
    """Select the preferred variant, or the variant with the lowest loss if its loss is significantly lower.

    The preferred variant is rejected if its mean loss exceeds the lowest mean loss by more than
    `MAX_STANDARD_ERRORS_BEHIND` standard errors of the difference.

    Args:
        candidates: Candidates, simpler ones first.
        losses: Log loss of each row by variant in nats, shape (n,) each.
        rows: The n rows, with their groups and weights.

    Returns:
        The selected candidate.
    """
    best = lowest_loss_candidate(candidates)
    preferred = next((candidate for candidate in candidates if candidate.variant == PREFERRED_VARIANT), best)
    excess = MeanDifference.from_differences(losses[preferred.variant] - losses[best.variant], rows.group, rows.weight)
    return preferred if excess.mean <= MAX_STANDARD_ERRORS_BEHIND * excess.standard_error else best


def variant_with_gains(chosen: str, candidates: Sequence[Candidate]) -> str | None:
    """Return the variant whose gains over the confidence are reported.

    Args:
        chosen: Key of the chosen variant.
        candidates: The candidates.

    Returns:
        The chosen variant, or the best other candidate if the confidence was chosen; None if there is no other.
    """
    alternatives = [candidate for candidate in candidates if candidate.variant != CONFIDENCE]
    if not alternatives:
        return None
    return chosen if chosen != CONFIDENCE else lowest_loss_candidate(alternatives).variant


def is_correctable(variant: str, rows: FixedDecisions) -> bool:
    """Return whether `auto` corrects the score of a variant.

    Args:
        variant: Key of the variant.
        rows: Labelled rows. Without a confidence, scores differ by label only, and there is nothing to correct.
    """
    return variant != CONFIDENCE and rows.kind != "decision_only"


@dataclass(frozen=True, eq=False)
class ModelChoice:
    """The chosen variant, with the results that support the choice.

    Attributes:
        variant: Key of the variant.
        advice: Recommendation on the fit.
        choice: Candidates, reason and gains, as the map stores them.
        result: Fitted models and out-of-fold predictions.
    """

    variant: str
    advice: Advice
    choice: Choice
    result: CrossFitResult


def choose_model(
    rows: FixedDecisions,
    split: FoldSplit,
    n_labels: int,
    calibrator: str,
    variant: str,
    settings: Settings,
    source: Source,
) -> ModelChoice:
    """Fit the candidates and choose the variant of the map.

    "auto" also fits a monotone correction of the score of the selected variant. The map contains this variant only if
    the recommendation is to use it, and keeps the confidence otherwise, so that recommendation and map always agree.

    Args:
        rows: Labelled rows.
        split: Split of the rows into folds.
        n_labels: Number of labels K.
        calibrator: Key of the calibrator.
        variant: Key of the variant, or "auto".
        settings: Settings of the fit and of the metrics.
        source: Seed and protocol of the fit.

    Returns:
        The choice.
    """
    candidates = available_variants(rows, n_labels) if variant == AUTO else (CONFIDENCE, variant)
    if source.protocol is not None:
        candidates = tuple(name for name in candidates if name in PIPELINE_VARIANTS)
    search = _ModelSearch(
        rows=rows,
        split=split,
        options=FitOptions(
            n_labels=n_labels,
            calibrator=calibrator,
            variants=tuple(dict.fromkeys(candidates)),
            settings=settings,
            seed=source.seed,
        ),
        source=source,
    )
    return search.choose_automatically() if variant == AUTO else search.choose_requested(variant)


class _Deployment(NamedTuple):
    """Variant that a map deploys, the recommendation, and the reason as a clause."""

    variant: str
    advice: Advice
    reason: str


@dataclass(frozen=True, eq=False)
class _ModelSearch:
    """Candidates fitted to labelled rows, of which one is chosen."""

    rows: FixedDecisions
    split: FoldSplit
    options: FitOptions
    source: Source

    def choose_requested(self, variant: str) -> ModelChoice:
        """Choose the variant that the user requested."""
        result = self._fit()
        candidates = compare_candidates(self._losses(result), result.rows)
        if variant == CONFIDENCE:
            advice = Advice(KEEP, "as requested")
        else:
            advice = self._advise(variant, result, candidates)
        deployment = _Deployment(variant, advice, f"{VARIANTS[variant].description}, as requested")
        return self._build_choice(variant, deployment, candidates, result, corrected=None)

    def choose_automatically(self) -> ModelChoice:
        """Choose among all candidates, and correct the score of the chosen one."""
        result = self._fit()
        losses = self._losses(result)
        candidates = compare_candidates(losses, result.rows)
        selected = select_candidate(candidates, losses, result.rows)
        n_errors = int((~result.rows.correct).sum())
        insufficient = describe_insufficient_errors(len(result.rows), n_errors)
        best = lowest_loss_candidate(candidates)
        variant = CONFIDENCE if insufficient else selected.variant
        corrected = None
        if self.source.protocol is None and is_correctable(variant, self.rows):
            corrected = variant
            result = result.with_correction(variant)
            losses[variant] = result.out_of_fold_losses(variant)
            candidates = compare_candidates(losses, result.rows)
        reason = describe_selection(
            selected,
            best,
            len(result.rows),
            self.options.calibrator,
            is_corrected=variant in result.corrections,
        )
        if insufficient:
            reason = f"{describe_kept_confidence(self.options.calibrator)}: {insufficient}"
            deployment = _Deployment(CONFIDENCE, Advice(KEEP, insufficient), reason)
        elif variant == CONFIDENCE:
            deployment = _Deployment(CONFIDENCE, Advice(KEEP, "it has the lowest log loss"), reason)
        else:
            deployment = self._deploy_by_advice(variant, self._advise(variant, result, candidates), reason)
        return self._build_choice(AUTO, deployment, candidates, result, corrected=corrected)

    def _fit(self) -> CrossFitResult:
        if self.source.protocol is not None:
            return fit_paper_protocol(self.rows, self.source, self.options)
        return cross_fit(self.rows, self.split, self.options)

    def _losses(self, result: CrossFitResult) -> dict[str, np.ndarray]:
        return {variant: result.out_of_fold_losses(variant) for variant in self.options.variants}

    def _advise(self, variant: str, result: CrossFitResult, candidates: Sequence[Candidate]) -> Advice:
        # in the order of the file, so that an evaluation of the same file draws the same resamples
        row_numbers = self.split.fit_rows if self.source.protocol is None else np.arange(len(result.rows))
        return advise_variant(variant, result, candidates, np.argsort(row_numbers), self.options.settings.metrics)

    def _deploy_by_advice(self, variant: str, advice: Advice, reason: str) -> _Deployment:
        """Deploy the variant if the recommendation is to use it, otherwise keep the confidence."""
        if advice.answer in (USE, SAFE):
            return _Deployment(variant, advice, reason)
        confidence = describe_kept_confidence(self.options.calibrator)
        reason = f"{confidence}, instead of {VARIANTS[variant].description}: {advice.reason}"
        return _Deployment(CONFIDENCE, Advice(KEEP, advice.reason), reason)

    def _build_choice(
        self,
        requested: str,
        deployment: _Deployment,
        candidates: tuple[Candidate, ...],
        result: CrossFitResult,
        *,
        corrected: str | None,
    ) -> ModelChoice:
        """Measure the gains, and combine all results of the choice; `corrected` is the variant with a correction."""
        gains: list[Gain] = []
        variant = variant_with_gains(deployment.variant, candidates)
        if self.source.protocol is None and variant is not None:
            gains = self._gains_by_rows(variant, is_corrected=deployment.variant == corrected)
            gains.append(_measure_gain(len(result.rows), variant, result))
        choice = Choice(asked=requested, reason=deployment.reason, candidates=candidates, gains=tuple(gains))
        return ModelChoice(variant=deployment.variant, advice=deployment.advice, choice=choice, result=result)

    def _gains_by_rows(self, variant: str, *, is_corrected: bool) -> list[Gain]:
        """Measure the gain of fits to the first rows of each training set, for several numbers of rows."""
        training_rows = [self.rows.take(self.split.training_rows(k)) for k in range(len(self.split.folds))]
        smallest_training_set = min(len(training) for training in training_rows)
        options = FitOptions(
            n_labels=self.options.n_labels,
            calibrator=self.options.calibrator,
            variants=(CONFIDENCE, variant),
            settings=self.options.settings,
            seed=self.options.seed,
        )
        gains = []
        for n_rows in row_counts(self.options.settings.learning_curve_rows, smallest_training_set):
            if n_rows > smallest_training_set // 2:
                continue
            n_correct = [int(training.correct[:n_rows].sum()) for training in training_rows]
            if not all(0 < count < n_rows for count in n_correct):
                continue
            result = cross_fit(self.rows, self.split, options, max_training_rows=n_rows)
            if is_corrected:
                result = result.with_correction(variant, n_rows)
            gains.append(_measure_gain(n_rows, variant, result))
        return gains


def advise_variant(
    variant: str, result: CrossFitResult, candidates: Sequence[Candidate], order: np.ndarray, params: MetricParams
) -> Advice:
    """Recommend to use a variant or to keep the confidence, by the out-of-fold predictions.

    Args:
        variant: Key of the variant.
        result: Out-of-fold predictions of n rows.
        candidates: Log losses of the variants, with intervals that are adjusted for the choice among them.
        order: Row numbers that sort the rows as in their file, shape (n,).
        params: Settings of the metrics.

    Returns:
        The recommendation.
    """
    rows = result.rows.take(order)
    scored = result.out_of_fold_scores(variant).take(order)
    comparison = compare_scores(EvaluationSample.from_rows(rows, scored, params))
    changes = comparison["metrics"]
    candidate = next(candidate for candidate in candidates if candidate.variant == variant)
    changes["nll_correct"]["low"] = candidate.low
    changes["nll_correct"]["high"] = candidate.high
    return advise_map(
        changes,
        rows=comparison["rows"],
        errors=comparison["errors"],
        groups=comparison["groups"],
        smallest=params.smallest_relevant_change,
    )


def describe_selection(
    selected: Candidate, best: Candidate, n_rows: int, calibrator: str, *, is_corrected: bool
) -> str:
    """Describe which candidate was selected by its log loss, and why.

    Args:
        selected: The selected candidate.
        best: The candidate with the lowest log loss.
        n_rows: Number of rows with an out-of-fold prediction.
        calibrator: Key of the calibrator.
        is_corrected: Whether the score of the selected candidate was corrected after the selection.

    Returns:
        A clause that continues "The map contains".
    """
    if selected is best:
        comparison = "has the lowest log loss"
    else:
        best_title = VARIANTS[best.variant].title
        comparison = (
            f"is within {MAX_STANDARD_ERRORS_BEHIND} standard errors of the lowest log loss (that of {best_title})"
        )
    if selected.variant == CONFIDENCE:
        content = describe_kept_confidence(calibrator)
    else:
        content = VARIANTS[selected.variant].description
    log_loss = f"{selected.nll_correct:.4f}"
    if is_corrected:
        log_loss = f"{log_loss} before its correction"  # the candidates are listed with the log loss after it
    return f"{content}, which {comparison} on {n_rows:,} out-of-fold rows ({log_loss})"


def describe_kept_confidence(calibrator: str) -> str:
    """Describe a map that keeps the confidence.

    Args:
        calibrator: Key of the calibrator.

    Returns:
        A clause that continues "The map contains".
    """
    if calibrator == CONSTANT_CALIBRATOR:
        return "the same reliability for every decision"
    return "your confidence" if calibrator == "uncal" else f"your confidence, calibrated by {calibrator}"


def _measure_gain(n_rows: int, variant: str, result: CrossFitResult) -> Gain:
    """Measure the out-of-fold gain of a variant over the confidence; the result was fitted on `n_rows` rows."""
    difference = MeanDifference.from_differences(
        result.out_of_fold_losses(variant) - result.out_of_fold_losses(CONFIDENCE),
        result.rows.group,
        result.rows.weight,
    )
    return Gain(
        rows=n_rows,
        nll_correct=difference.mean,
        nll_correct_standard_error=difference.standard_error,
        aurc=_area_under_risk_coverage(variant, result) - _area_under_risk_coverage(CONFIDENCE, result),
    )


def _area_under_risk_coverage(variant: str, result: CrossFitResult) -> float:
    """Return the AURC of the out-of-fold scores, in which rows are repeated by their weights."""
    copies = result.rows.copies
    logit = result.out_of_fold_scores(variant).logit
    tie_groups = find_tie_groups(logit[copies], result.rows.correct[copies])
    return float(ranking_metrics(tie_groups)["aurc"][0])
