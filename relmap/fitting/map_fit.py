"""Fit of a reliability map to labelled rows, and its description for users."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from pydantic import ValidationError

from relmap.decisions import FixedDecisions
from relmap.errors import InputError, describe_validation_errors
from relmap.evaluation.drift import summarize_reference_cells, summarize_top_cells
from relmap.evaluation.sample import finite_or_none
from relmap.evaluation.top_calibration import TOP_TENTHS
from relmap.evaluation.verdict import (
    OUT_OF_FOLD,
    describe_candidates,
    describe_label_spread,
    describe_pooled_labels,
    describe_recalibration,
)
from relmap.fitting.cross_fit import CrossFitResult
from relmap.fitting.folds import check_fit_rows, paper_fit_rows, split_folds
from relmap.fitting.model_choice import (
    AUTO,
    CONFIDENCE,
    MeanDifference,
    ModelChoice,
    check_calibrator_and_variant,
    choose_model,
    variant_with_gains,
)
from relmap.fitting.training_rows import hash_training_rows
from relmap.io.columns import join_names
from relmap.io.signals import Signal
from relmap.maps.document import (
    Calibration,
    FittedAlternatives,
    Fold,
    HeldOut,
    MapDocument,
    MatrixScalingResult,
    Projection,
    Source,
)
from relmap.maps.reliability_map import ScoredDecisions
from relmap.metrics.advice import Advice, format_change
from relmap.metrics.reliability import count_retained_rows
from relmap.metrics.resampling import BOOTSTRAP_SEED
from relmap.metrics.spread import LabelCells
from relmap.projection.variants import VARIANTS
from relmap.settings import METRIC_DEFAULTS, MetricParams, Settings

DEFAULT_COVERAGE = 0.7  # share of the rows that are used automatically by default
MIN_DEFAULT_THRESHOLD = 0.5  # below, a decision is more likely wrong than right
N_QUANTILES = 101  # of the reliability, from 0% to 100%


@dataclass(frozen=True, eq=False)
class MapFit:
    """A fitted map, with results that only the fit can report.

    Attributes:
        document: The map.
        rows: Rows with an out-of-fold prediction.
        scored: Out-of-fold confidence and reliability of these rows.
        accuracy: Share of all labelled rows whose decision is correct.
        label_warnings: Sentences on possible errors in the labels.
        advice: Recommendation on the fit.
        correction_summary: Sentence on the effect of the correction; empty without one.
        smallest_relevant_change: Smallest relevant change of a metric.
    """

    document: MapDocument
    rows: FixedDecisions
    scored: ScoredDecisions
    accuracy: float
    label_warnings: tuple[str, ...]
    advice: Advice
    correction_summary: tuple[str, ...] = ()
    smallest_relevant_change: float = METRIC_DEFAULTS.smallest_relevant_change

    def describe(self, target: float | None = None) -> list[str]:
        """Describe the map, the precision of its gain, the candidates, and warnings.

        Args:
            target: Half-width of the interval of the gain, in nats, for which the required number of labelled rows is
                reported; None for none.

        Returns:
            One sentence or table row each.
        """
        document = self.document
        lines = [
            f"The map contains {document.choice.reason}.",
            f"By default, `apply` uses decisions with a reliability of {document.default_threshold:.4g} or more.",
            *self.correction_summary,
            *_describe_gain(document, target, self.smallest_relevant_change),
        ]
        comparison = document.out_of_fold_results
        if document.choice.asked == AUTO:
            lines += describe_candidates(comparison["candidates"], document, OUT_OF_FOLD)
        if document.input != "decision_only":
            held_out = document.held_out
            lines.append(describe_label_spread(held_out.label_spread, held_out.label_spread_shuffled))
        lines += describe_pooled_labels(document)
        lines += _describe_gains_by_rows(document)
        lines += describe_recalibration(comparison["recalibrated"], document)
        accuracy = f"Accuracy of the decisions: {100 * self.accuracy:.1f}%."
        return [*lines, " ".join([accuracy, *self.label_warnings])]


def fit_labelled_rows(
    rows: FixedDecisions,
    source: Source,
    settings: Settings,
    *,
    calibrator: str,
    variant: str,
    n_labels: int,
    names: Sequence[str] | None,
    signals: tuple[Signal, ...] = (),
    ids: np.ndarray | None = None,
    id_column: str | None = None,
) -> MapFit:
    """Fit a reliability map to labelled rows.

    Args:
        rows: Labelled rows, n of them.
        source: Origin of the rows, with the seed, the share to hold out, and the protocol.
        settings: Settings of the fit and of the metrics.
        calibrator: Key of the calibrator.
        variant: Key of the variant, or "auto".
        n_labels: Number of labels K.
        names: Names of the labels; None for 0..K-1.
        signals: How each signal is read.
        ids: Id of each row, shape (n,), by which fit rows are recognized if their predictions repeat.
        id_column: Name of the column of the ids.

    Returns:
        The map, with its out-of-fold predictions.

    Raises:
        InputError: The calibrator or variant is unknown or cannot be fitted to these rows; or there are too few rows,
            groups or labels; or fitted values are too large for a map.
    """
    check_calibrator_and_variant(calibrator, variant, rows, n_labels)
    split = split_folds(len(rows), rows.group, source.seed, hold_out=source.hold_out)
    check_fit_rows(rows, split, source.hold_out)
    model = choose_model(rows, split, n_labels, calibrator, variant, settings, source)
    result = model.result
    fitted_parts = split.folds
    if source.protocol is not None:
        fitted_parts = (paper_fit_rows(source, rows, result.full_fit.calibrator),)
    training_rows = hash_training_rows(rows, fitted_parts, source, ids=ids, id_column=id_column)
    uses_signals = model.variant == "label_signals"
    corrections = result.corrections.get(model.variant)
    try:
        document = MapDocument(
            input=rows.kind,
            n_labels=n_labels,
            label_names=tuple(names) if names else None,
            calibrator=Calibration(name=calibrator, rows=result.n_calibrator_rows, fitted=result.full_fit.calibrator),
            projection=_build_projection(model, n_labels),
            correction=None if corrections is None else corrections.full,
            signals=signals if uses_signals else (),
            choice=model.choice,
            others=_build_alternatives(model),
            held_out=summarize_out_of_fold_rows(result, model.variant, n_labels, settings.metrics),
            default_threshold=compute_default_threshold(result, model.variant),
            folds=_build_folds(model) if source.protocol is None else (),
            source=source.model_copy(update={"training_rows": training_rows}),
        )
    except ValidationError as error:
        raise InputError(
            f"a map cannot store the fit ({describe_validation_errors(error, 'fit')[0]}), as happens with logits that "
            "are far too large or too small; rescale the logits, or use the calibrator ts"
        ) from None
    return MapFit(
        document=document,
        rows=result.rows,
        scored=result.out_of_fold_scores(model.variant),
        accuracy=float(np.average(rows.correct, weights=rows.weight)),
        label_warnings=tuple(_find_label_problems(rows, document)),
        advice=model.advice,
        correction_summary=_summarize_correction(model),
        smallest_relevant_change=settings.metrics.smallest_relevant_change,
    )


def summarize_out_of_fold_rows(result: CrossFitResult, variant: str, n_labels: int, params: MetricParams) -> HeldOut:
    """Summarize the out-of-fold predictions, as a reference for the drift test and for thresholds.

    Args:
        result: Out-of-fold predictions.
        variant: Key of the deployed variant.
        n_labels: Number of labels K.
        params: Settings of the metrics.

    Returns:
        Label spread, quantiles of the reliability, and mean residuals by cell.
    """
    rows = result.rows
    scored = result.out_of_fold_scores(variant)
    reliability = result.with_deployed_correction().out_of_fold_scores(variant).reliability
    label_cells = LabelCells.from_decisions(scored.confidence, rows.decision, rows.correct, params)
    halves, reference_cells = summarize_reference_cells(reliability, rows.decision, rows.correct, rows.group, n_labels)
    quantiles = tuple(np.quantile(scored.reliability, np.linspace(0, 1, N_QUANTILES)).tolist())
    return HeldOut(
        rows=len(rows),
        label_spread=finite_or_none(label_cells.spread()),
        label_spread_shuffled=finite_or_none(label_cells.shuffled_quantile(BOOTSTRAP_SEED)),
        quantiles=quantiles,
        halves=halves,
        cells=reference_cells,
        top=summarize_top_cells(reliability, rows.correct, rows.group, quantiles),
    )


def compute_default_threshold(result: CrossFitResult, variant: str) -> float:
    """Compute the reliability that 70% of the rows reach, at least 0.5.

    Args:
        result: Out-of-fold predictions.
        variant: Key of the deployed variant.

    Returns:
        The threshold, in [0.5, 1].
    """
    rows = result.rows
    if rows.kind == "decision_only":
        # Reliabilities have few distinct values. Those of the fold models differ slightly from those of the deployed
        # map, so that an out-of-fold threshold could exclude all rows of a label.
        reliability = result.deployed_map(variant)(rows).reliability
    else:
        reliability = result.out_of_fold_scores(variant).reliability
    threshold = np.quantile(reliability, 1 - DEFAULT_COVERAGE, weights=rows.weight, method="inverted_cdf")
    return max(float(threshold), MIN_DEFAULT_THRESHOLD)


def _build_projection(model: ModelChoice, n_labels: int) -> Projection:
    decisions = model.result.projection_decisions
    return Projection(
        name=model.variant,
        rows=len(decisions),
        rows_by_label=tuple(np.bincount(decisions, minlength=n_labels).tolist()),
        fitted=model.result.full_fit.variants[model.variant],
    )


def _build_folds(model: ModelChoice) -> tuple[Fold, ...]:
    """Return the models of each fold, which were fitted on the other folds, with their corrections."""
    folds = []
    for fold_map in model.result.fold_maps(model.variant):
        folds.append(
            Fold(calibrator=fold_map.calibrator, projection=fold_map.projection, correction=fold_map.correction)
        )
    return tuple(folds)


def _build_alternatives(model: ModelChoice) -> FittedAlternatives:
    """Return the candidates that were not chosen and read no signals, and matrix scaling, for `evaluate`."""
    result = model.result
    recalibrated = _compare_matrix_scaling(model)
    omitted = (model.variant, CONFIDENCE, "label_signals")
    variants = {name: fitted for name, fitted in result.full_fit.variants.items() if name not in omitted}
    try:
        return FittedAlternatives(variants=variants, matrix=result.full_fit.matrix, recalibrated=recalibrated)
    except ValidationError:  # a map cannot store one of these models, as happens with logits that are far too small
        return FittedAlternatives(recalibrated=recalibrated)


def _compare_matrix_scaling(model: ModelChoice) -> MatrixScalingResult | None:
    """Compare matrix scaling with the deployed variant by the out-of-fold log loss."""
    result = model.result
    comparison = result.matrix_scaling_comparison()
    if comparison is None:
        return None
    difference = MeanDifference.from_differences(
        comparison.log_loss - result.out_of_fold_losses(model.variant), result.rows.group, result.rows.weight
    )
    low, high = difference.interval
    return MatrixScalingResult(
        change=difference.mean,
        standard_error=difference.standard_error,
        low=low,
        high=high,
        decisions_changed=comparison.changed_share,
    )


def _find_label_problems(rows: FixedDecisions, document: MapDocument) -> list[str]:
    """Describe signs of missing or wrongly numbered labels."""
    assert rows.label is not None
    problems = []
    used = np.intersect1d(rows.decision, rows.label)
    unused = [name for label, name in enumerate(document.shown_names) if label not in used]
    if unused:
        problems.append(f"Labels that are never decided, or never the true label: {join_names(unused)}.")
    total_weight = len(rows) if rows.weight is None else rows.weight.sum()
    largest_share = (np.bincount(rows.label, rows.weight) / total_weight).max()
    if np.average(rows.correct, weights=rows.weight) < largest_share:
        problems.append(f"Always deciding the most frequent label would be correct in {100 * largest_share:.1f}%.")
    decision_counts = np.bincount(rows.decision, minlength=document.n_labels)
    label_counts = np.bincount(rows.label, minlength=document.n_labels)
    # expected number of correct decisions if decisions and labels were independent, times the number of rows
    chance_correct_times_rows = float((decision_counts * label_counts.astype(np.float64)).sum())
    if chance_correct_times_rows > len(rows) * int(rows.correct.sum()):
        problems.append("Decisions and labels agree less often than by chance: check the numbering of the labels.")
    return problems


def _summarize_correction(model: ModelChoice) -> tuple[str, ...]:
    """Describe the out-of-fold effect of the correction on the log loss and on the most reliable rows."""
    result = model.result
    if model.variant not in result.corrections:
        return ()
    uncorrected = result.without_corrections()
    rows = result.rows
    uncorrected_scores = uncorrected.out_of_fold_scores(model.variant)
    corrected_scores = result.out_of_fold_scores(model.variant)
    order = np.argsort(-uncorrected_scores.logit[rows.copies], kind="stable")
    top = rows.copies[order[: count_retained_rows(len(rows.copies), TOP_TENTHS[0])]]
    loss_before = np.average(uncorrected.out_of_fold_losses(model.variant), weights=rows.weight)
    loss_after = np.average(result.out_of_fold_losses(model.variant), weights=rows.weight)
    return (
        "A monotone correction of the score, which preserves the ranking, changes the out-of-fold log loss from "
        f"{loss_before:.4f} to {loss_after:.4f}, and the mean reliability of the most reliable {10 * TOP_TENTHS[0]}% "
        f"from {uncorrected_scores.reliability[top].mean():.3f} to {corrected_scores.reliability[top].mean():.3f}; "
        f"their accuracy is {rows.correct[top].mean():.3f}.",
    )


def _describe_gain(document: MapDocument, target: float | None, smallest: float) -> list[str]:
    """Describe the gain in log loss, its interval, and how many rows would shorten the interval."""
    variant = document.projection.name
    if variant == CONFIDENCE:
        return []
    candidate = next(candidate for candidate in document.choice.candidates if candidate.variant == variant)
    n_rows = document.held_out.rows
    baseline = "the confidence" if document.input != "decision_only" else "one reliability for all decisions"
    interval = f" (95% interval, adjusted for the model choice: {candidate.low:+z.4f} to {candidate.high:+z.4f})"
    change = format_change(
        f"the log loss compared with {baseline}",
        candidate.change,
        interval,
        smallest,
    )
    lines = [f"{change} With {3 * n_rows:,} more labelled rows, that interval would be half as wide."]
    if target is not None:
        half_width = (candidate.high - candidate.low) / 2
        required_rows = ceil(n_rows * (half_width / target) ** 2)
        n_more_rows = max(required_rows - n_rows, 0)
        lines.append(f"For an interval of ±{target:g}, about {n_more_rows:,} more labelled rows are needed.")
    return lines


def _describe_gains_by_rows(document: MapDocument) -> list[str]:
    """Describe the learning curve: the gain over the confidence by number of labelled rows."""
    if not document.choice.gains:
        return []
    variant = variant_with_gains(document.projection.name, document.choice.candidates)
    assert variant is not None
    description = VARIANTS[variant].description
    lines = [f"Change of the metrics from the confidence to {description}, by number of labelled rows:"]
    for gain in document.choice.gains:
        log_loss = f"log loss {gain.nll_correct:+z.4f} (standard error {gain.nll_correct_standard_error:.4f})"
        lines.append(f"    {gain.rows:>6,} rows: {log_loss}, AURC {gain.aurc:+z.4f}")
    return lines
