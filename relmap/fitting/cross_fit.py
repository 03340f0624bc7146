"""Fits of the calibrator and the variants of a map, and their out-of-fold predictions.

All models are fitted once on all rows and once without each fold. The fit on all rows is deployed. Each other fit
scores the rows of the fold that it was fitted without.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from relmap.calibrators.identity import Identity
from relmap.calibrators.registry import calibrators_with_role, fit_prefixes
from relmap.calibrators.spline import fit_spline_of_confidence
from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.fitting.correction import fit_correction
from relmap.fitting.folds import FoldSplit
from relmap.maps.constant import fit_constant
from relmap.maps.correction import Correction
from relmap.maps.document import Calibrator, Source, Variant
from relmap.maps.reliability_map import FittedMap, ScoredDecisions, calibrated_logit, score_parts
from relmap.metrics.reliability import correctness_log_loss
from relmap.projection.batch import FitBatch
from relmap.projection.decisions import CalibratedDecisions, LabelledDecisions
from relmap.projection.variants import fit_variants
from relmap.projection.whole_vector import MAX_LABELS
from relmap.settings import Settings
from relmap.splits import split_validation

CONSTANT_CALIBRATOR = "constant"  # key of the calibrator of decisions without a confidence


@dataclass(frozen=True)
class FitOptions:
    """Models to fit, and their settings.

    Attributes:
        n_labels: Number of labels K.
        calibrator: Key of the calibrator.
        variants: Keys of the variants.
        settings: Settings of the projection and of the metrics.
        seed: Seed of the calibrator.
    """

    n_labels: int
    calibrator: str
    variants: tuple[str, ...]
    settings: Settings
    seed: int


@dataclass(frozen=True, eq=False)
class FoldFit:
    """Models fitted on the same rows.

    Attributes:
        calibrator: The calibrator.
        variants: Fitted variants by key.
        matrix: Matrix scaling, an alternative for users who may recalibrate; None if it was not fitted.
    """

    calibrator: Calibrator
    variants: Mapping[str, Variant]
    matrix: Calibrator | None


@dataclass(frozen=True, eq=False)
class CrossFitCorrections:
    """Corrections of one variant, fitted on its out-of-fold logits.

    Attributes:
        full: Fitted on the logits of all rows; it is deployed.
        folds: Fitted without the logits of one fold each.
    """

    full: Correction
    folds: tuple[Correction, ...]


class MatrixScalingComparison(NamedTuple):
    """Matrix scaling, evaluated out of fold on the fixed decisions.

    Attributes:
        log_loss: Log loss in nats of the confidence under matrix scaling for the correctness of the fixed decisions,
            shape (n,).
        changed_share: Share of the rows whose decision matrix scaling would change.
    """

    log_loss: np.ndarray
    changed_share: float


@dataclass(frozen=True, eq=False)
class CrossFitResult:
    """Models fitted on all rows, and without each fold, to compare variants by their out-of-fold predictions.

    Attributes:
        full_fit: Calibrator and variants fitted on all rows; one of the variants is deployed.
        fold_fits: The same models, each fitted without one fold.
        rows: Rows with an out-of-fold prediction, n of them.
        fold: Fold of each row, shape (n,); `fold_fits[fold[i]]` was fitted without row i.
        n_calibrator_rows: Number of rows used to fit the deployed calibrator.
        projection_decisions: Decisions of the rows used to fit the deployed variants.
        min_reliability: Bound to which reliabilities are clipped before a log loss is computed.
        corrections: Corrections by key of the variant.
    """

    full_fit: FoldFit
    fold_fits: tuple[FoldFit, ...]
    rows: FixedDecisions
    fold: np.ndarray
    n_calibrator_rows: int
    projection_decisions: np.ndarray
    min_reliability: float
    corrections: Mapping[str, CrossFitCorrections] = field(default_factory=dict)

    def out_of_fold_scores(self, variant: str) -> ScoredDecisions:
        """Score each row with the models that were fitted without its fold.

        Args:
            variant: Key of a fitted variant.

        Returns:
            Confidence and reliability of the n rows.
        """
        return self._score_by_fold(self.fold_maps(variant))

    def out_of_fold_losses(self, variant: str) -> np.ndarray:
        """Compute the log loss of the out-of-fold reliability for the correctness of each row.

        Args:
            variant: Key of a fitted variant.

        Returns:
            Log loss in nats, shape (n,).
        """
        scores = self.out_of_fold_scores(variant)
        return correctness_log_loss(scores.logit, self.rows.correct, self.min_reliability)

    def deployed_map(self, variant: str) -> FittedMap:
        """Return the map of a variant that is fitted on all rows, without a correction.

        Args:
            variant: Key of a fitted variant.
        """
        return FittedMap(self.full_fit.calibrator, self.full_fit.variants[variant])

    def fold_maps(self, variant: str) -> list[FittedMap]:
        """Return the map of a variant that is fitted without each fold, with its correction.

        Args:
            variant: Key of a fitted variant.
        """
        pairs = zip(self.fold_fits, self._fold_corrections(variant), strict=True)
        return [FittedMap(fit.calibrator, fit.variants[variant], correction) for fit, correction in pairs]

    def with_correction(self, variant: str, max_rows: int | None = None) -> "CrossFitResult":
        """Fit a correction of a variant, and apply it whenever the variant is scored.

        The correction of a row's fold is fitted on the logits of the other folds, so the scores remain out of fold.

        Args:
            variant: Key of a fitted variant that has no correction yet.
            max_rows: Maximum number of rows to fit on, evenly spread over the folds; None for all rows.

        Returns:
            The result with the correction; unchanged if the logits of the variant have too few distinct values.
        """
        logit = self.out_of_fold_scores(variant).logit
        n_fit_rows = len(logit) if max_rows is None else max_rows
        fit_rows = np.unique(np.linspace(0, len(logit) - 1, n_fit_rows).astype(np.int64))
        full = self._fit_correction(logit, fit_rows)
        if full is None:
            return self
        fold_corrections = []
        for k in range(len(self.fold_fits)):
            correction = self._fit_correction(logit, fit_rows[self.fold[fit_rows] != k])
            if correction is None:
                return self
            fold_corrections.append(correction)
        fitted = CrossFitCorrections(full=full, folds=tuple(fold_corrections))
        return replace(self, corrections={**self.corrections, variant: fitted})

    def without_corrections(self) -> "CrossFitResult":
        """Return the result without corrections."""
        return replace(self, corrections={})

    def with_deployed_correction(self) -> "CrossFitResult":
        """Return a result that scores every fold with the correction that is deployed.

        If decisions in a fold are correct more often than usual, those in the other folds are correct less often, and
        the correction that is fitted on the other folds is too low. This would bias the residuals that the drift test
        uses as its reference.

        Returns:
            The result with one correction for all folds.
        """
        corrections = {}
        for variant, fitted in self.corrections.items():
            corrections[variant] = CrossFitCorrections(full=fitted.full, folds=(fitted.full,) * len(self.fold_fits))
        return replace(self, corrections=corrections)

    def matrix_scaling_comparison(self) -> MatrixScalingComparison | None:
        """Evaluate matrix scaling, which may change decisions, out of fold.

        Returns:
            Log loss and share of changed decisions; None if the rows have no logits, or matrix scaling was not fitted.
        """
        calibrators = [fit.matrix for fit in self.fold_fits if fit.matrix is not None]
        if self.rows.logits is None or len(calibrators) < len(self.fold_fits):
            return None
        scores = self._score_by_fold([FittedMap(calibrator) for calibrator in calibrators])
        is_changed = np.empty(len(self.rows), dtype=bool)
        for k, calibrator in enumerate(calibrators):
            in_fold = self.fold == k
            new_decision = calibrator(self.rows.logits[in_fold]).argmax(axis=1)
            is_changed[in_fold] = new_decision != self.rows.decision[in_fold]
        return MatrixScalingComparison(
            log_loss=correctness_log_loss(scores.logit, self.rows.correct, self.min_reliability),
            changed_share=float(np.average(is_changed, weights=self.rows.weight)),
        )

    def _fold_corrections(self, variant: str) -> Sequence[Correction | None]:
        corrections = self.corrections.get(variant)
        return [None] * len(self.fold_fits) if corrections is None else corrections.folds

    def _fit_correction(self, logit: np.ndarray, row_numbers: np.ndarray) -> Correction | None:
        weight = None if self.rows.weight is None else self.rows.weight[row_numbers]
        group = None if self.rows.group is None else self.rows.group[row_numbers]
        return fit_correction(logit[row_numbers], self.rows.correct[row_numbers], weight, group)

    def _score_by_fold(self, models: Sequence[FittedMap]) -> ScoredDecisions:
        """Score the rows of fold k with model k."""
        return score_parts(self.rows, [(model, self.fold == k) for k, model in enumerate(models)])


def cross_fit(
    rows: FixedDecisions, split: FoldSplit, options: FitOptions, max_training_rows: int | None = None
) -> CrossFitResult:
    """Fit all models on all rows, and without each fold.

    Args:
        rows: All labelled rows.
        split: Split of the rows into folds.
        options: Models to fit.
        max_training_rows: Maximum number of training rows of each fold, for a learning curve: only the first rows of
            the other folds are used. Then no models are fitted on all rows; `full_fit` has the models of the first
            fold. None for no maximum.

    Returns:
        The models, and out-of-fold predictions of the rows of all folds.
    """
    is_limited = max_training_rows is not None
    fold_fits = []
    for k in range(len(split.folds)):
        training_rows = split.training_rows(k)[:max_training_rows]
        fold_fits.append(_fit_models(rows.take(training_rows), options, with_matrix=not is_limited))
    fit_rows = rows.take(split.fit_rows)
    fold_sizes = [len(fold) for fold in split.folds]
    return CrossFitResult(
        full_fit=fold_fits[0] if is_limited else _fit_models(fit_rows, options, with_matrix=True),
        fold_fits=tuple(fold_fits),
        rows=fit_rows,
        fold=np.repeat(np.arange(len(fold_sizes)), fold_sizes),
        n_calibrator_rows=len(fit_rows),
        projection_decisions=fit_rows.decision,
        min_reliability=options.settings.metrics.smallest_reliability,
    )


def fit_paper_protocol(rows: FixedDecisions, source: Source, options: FitOptions) -> CrossFitResult:
    """Fit all models under the protocol of the paper.

    Args:
        rows: All labelled rows.
        source: Seed and parts of the protocol.
        options: Models to fit.

    Returns:
        The models, and their predictions for the projection-selection rows, as a result with one fold.

    Raises:
        InputError: There are fewer than three groups.
    """
    split = _split_for_paper(rows, source)
    calibrator_rows = split.temperature_fit if options.calibrator == "ts" else split.calibrator_fit
    calibrator = fit_calibrator(options.calibrator, calibrator_rows, seed=options.seed)
    batch = FitBatch(
        fit_rows=_calibrate_rows(calibrator, split.projection_fit),
        n_labels=options.n_labels,
        settings=options.settings.projection.model_copy(update={"minimum_rows": 0}),  # no pooling of rare labels
        selection_rows=_calibrate_rows(calibrator, split.projection_selection),
    )
    fit = FoldFit(
        calibrator=calibrator,
        variants=_fit_variants_once(batch, options.variants, pool_labels=False),
        matrix=_fit_matrix_alternative(split.calibrator_fit, options),
    )
    return CrossFitResult(
        full_fit=fit,
        fold_fits=(fit,),
        rows=split.projection_selection,
        fold=np.zeros(len(split.projection_selection), dtype=np.int64),
        n_calibrator_rows=len(calibrator_rows),
        projection_decisions=split.projection_fit.decision,
        min_reliability=options.settings.metrics.smallest_reliability,
    )


def fit_calibrator(name: str, rows: FixedDecisions, *, seed: int) -> Calibrator:
    """Fit a calibrator.

    Args:
        name: Key of the calibrator. For rows without logits, it must be `CONSTANT_CALIBRATOR`, "uncal" or "spline".
        rows: Labelled rows to fit on.
        seed: Seed of the fit.

    Returns:
        The fitted calibrator.
    """
    assert rows.label is not None
    if rows.logits is not None:
        return fit_prefixes(name, rows.logits, rows.label, [len(rows)], seed=seed)[0]
    if name == CONSTANT_CALIBRATOR:
        return fit_constant(np.average(rows.correct, weights=rows.weight) * len(rows), len(rows))
    if name == "uncal":
        return Identity()
    assert rows.confidence is not None
    return fit_spline_of_confidence(rows.confidence, rows.correct)


class _PaperSplit(NamedTuple):
    """Labelled rows by their purpose in the paper's protocol; see `relmap.splits.ValidationRows`."""

    temperature_fit: FixedDecisions
    calibrator_fit: FixedDecisions
    projection_fit: FixedDecisions
    projection_selection: FixedDecisions


def _split_for_paper(rows: FixedDecisions, source: Source) -> _PaperSplit:
    assert source.protocol is not None
    parts = split_validation(len(rows), source.seed, source.protocol, rows.group)
    if any(len(part) == 0 for part in parts):
        raise InputError(
            "there are fewer than three groups, which cannot be split in the three parts of the paper's protocol; omit "
            "the groups"
        )
    calibrator_fit = rows.take(parts.calibrator_fit)
    return _PaperSplit(
        temperature_fit=rows if source.protocol.temperature_rows == "validation" else calibrator_fit,
        calibrator_fit=calibrator_fit,
        projection_fit=rows.take(parts.projection_fit),
        projection_selection=rows.take(parts.projection_selection),
    )


def _fit_models(rows: FixedDecisions, options: FitOptions, *, with_matrix: bool) -> FoldFit:
    """Fit the calibrator, and under it the variants."""
    calibrator = fit_calibrator(options.calibrator, rows, seed=options.seed)
    batch = FitBatch(
        fit_rows=_calibrate_rows(calibrator, rows),
        n_labels=options.n_labels,
        settings=options.settings.projection,
    )
    return FoldFit(
        calibrator=calibrator,
        variants=_fit_variants_once(batch, options.variants, pool_labels=True),
        matrix=_fit_matrix_alternative(rows, options) if with_matrix else None,
    )


def _calibrate_rows(calibrator: Calibrator, rows: FixedDecisions) -> LabelledDecisions:
    """Return the decisions with their calibrated confidence, as a batch of one calibrator."""
    decisions = CalibratedDecisions(
        confidence_logit=calibrated_logit(calibrator, rows),
        decision=rows.decision,
        logits=rows.logits,
        signals=rows.signals,
    )
    return LabelledDecisions([decisions], rows.correct, rows.label)


def _fit_variants_once(batch: FitBatch, variants: tuple[str, ...], *, pool_labels: bool) -> dict[str, Variant]:
    """Fit each variant for the only calibrator of a batch."""
    models_by_variant = fit_variants(batch, variants, pool_labels=pool_labels)
    return {variant: models[0] for variant, models in models_by_variant.items()}


def _fit_matrix_alternative(rows: FixedDecisions, options: FitOptions) -> Calibrator | None:
    """Fit matrix scaling; None without logits, for many labels, or if the calibrator is a similar one."""
    is_rival = options.calibrator in calibrators_with_role("rival")
    if rows.logits is None or options.n_labels > MAX_LABELS or is_rival:
        return None
    return fit_calibrator("matrix", rows, seed=0)
