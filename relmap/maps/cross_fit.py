"""Fit of the models of a map, and their out-of-fold predictions.

The projection is fitted on out-of-fold confidences: each row has the confidence of a calibrator that was fitted without
its fold, so that a calibrator that overfits does not mislead the projection. Calibrator and projection are fitted once
on all rows and once without each fold. The fits on all rows are deployed, and the others score the rows of the fold
that they were fitted without. No model that scores a fold has seen its rows: the projection without fold k is fitted on
confidences of calibrators without fold k and without the fold of each row.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from relmap.calibrators.identity import Constant, Identity, fit_constant
from relmap.calibrators.registry import calibrators_with_role, fit_prefixes
from relmap.calibrators.spline import fit_spline_of_confidence
from relmap.calibrators.temperature import fit_bounded_temperature
from relmap.decisions import CalibratedDecisions, FixedDecisions, LabelledDecisions
from relmap.errors import InputError
from relmap.maps.document import Calibrator, Source
from relmap.maps.folds import FoldSplit
from relmap.maps.options import FitOptions
from relmap.maps.score import FittedMap, ScoredDecisions, calibrated_logit, score_parts
from relmap.projection.registry import VARIANTS
from relmap.projection.rows import FitBatch, split_validation
from relmap.settings import Settings

CONSTANT_CALIBRATOR = "constant"  # key of the calibrator of decisions without a confidence


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Models fitted on all rows, and without each fold.

    Attributes:
        deployed: Models fitted on all rows.
        folds: The same models, each fitted without one fold.
        rows: Rows with an out-of-fold prediction, n of them.
        fold: Fold of each row, shape (n,); `folds[fold[i]]` was fitted without row i.
        n_calibrator_rows: Number of rows that the deployed calibrator was fitted on.
        projection_decisions: Decisions of the rows that the deployed projection was fitted on.
    """

    deployed: FittedMap
    folds: tuple[FittedMap, ...]
    rows: FixedDecisions
    fold: np.ndarray
    n_calibrator_rows: int
    projection_decisions: np.ndarray

    @cached_property
    def scored(self) -> ScoredDecisions:
        """Confidence under the baseline, and reliability, by the models that were fitted without the fold of a row."""
        return score_parts(self.rows, [(model, self.fold == k) for k, model in enumerate(self.folds)])


class _Calibrators:
    """Calibrators fitted without some folds, each fitted once.

    Args:
        rows: All rows of the folds.
        fold: Fold of each row, shape (n,).
        name: Key of the calibrator.
        seed: Seed of its fits.
    """

    def __init__(self, rows: FixedDecisions, fold: np.ndarray, name: str, *, seed: int) -> None:
        self._rows = rows
        self._fold = fold
        self._name = name
        self._seed = seed
        self._fitted: dict[frozenset[int], Calibrator] = {}

    def without(self, *folds: int) -> Calibrator:
        """Return the calibrator that is fitted without the given folds."""
        key = frozenset(folds)
        if key not in self._fitted:
            rows = self._rows.take(~np.isin(self._fold, folds))
            self._fitted[key] = fit_calibrator(self._name, rows, seed=self._seed)
        return self._fitted[key]

    def out_of_fold_logits(self, *omitted: int) -> np.ndarray:
        """Calibrate the rows outside the omitted folds, each by a calibrator without these folds and without its own.

        Args:
            *omitted: The omitted folds.

        Returns:
            Logits of the confidence of these rows, in their order.
        """
        is_included = ~np.isin(self._fold, omitted)
        rows = self._rows.take(is_included)
        fold = self._fold[is_included]
        own_folds = np.unique(fold).tolist()
        calibrator = self.without(*omitted)
        # Constants without a fold would be low exactly where its rows are correct. Without the only fold, there are no
        # rows to fit on.
        if isinstance(calibrator, Constant) or len(own_folds) == 1:
            return calibrated_logit(calibrator, rows)
        logits = np.empty(len(rows))
        for own_fold in own_folds:
            is_own = fold == own_fold
            logits[is_own] = calibrated_logit(self.without(*omitted, own_fold), rows.take(is_own))
        return logits


def cross_fit(
    rows: FixedDecisions, split: FoldSplit, n_labels: int, options: FitOptions, settings: Settings
) -> CrossFit:
    """Fit the models of a map on all rows, and without each fold.

    Args:
        rows: All labelled rows.
        split: Split of the rows into folds.
        n_labels: Number of labels K.
        options: Options of the fit, which name the calibrator and the variant.
        settings: Settings of the projection.

    Returns:
        The models, and out-of-fold predictions of the rows of all folds.
    """
    fit_rows = rows.take(split.fit_rows)
    fold_sizes = [len(fold) for fold in split.folds]
    fold = np.repeat(np.arange(len(fold_sizes)), fold_sizes)
    assert options.calibrator is not None
    calibrators = _Calibrators(fit_rows, fold, options.calibrator, seed=options.seed)
    fold_maps = []
    for k in range(len(fold_sizes)):
        others = fit_rows.take(fold != k)
        logits = calibrators.out_of_fold_logits(k)
        fold_maps.append(_fit_map(calibrators.without(k), others, logits, n_labels, options, settings))
    logits = calibrators.out_of_fold_logits()
    return CrossFit(
        deployed=_fit_map(calibrators.without(), fit_rows, logits, n_labels, options, settings),
        folds=tuple(fold_maps),
        rows=fit_rows,
        fold=fold,
        n_calibrator_rows=len(fit_rows),
        projection_decisions=fit_rows.decision,
    )


def fit_paper_protocol(
    rows: FixedDecisions, source: Source, n_labels: int, options: FitOptions, settings: Settings
) -> CrossFit:
    """Fit the models of a map under the protocol of the paper.

    Args:
        rows: All labelled rows.
        source: Seed and parts of the protocol.
        n_labels: Number of labels K.
        options: Options of the fit, which name the calibrator and the variant.
        settings: Settings of the projection.

    Returns:
        The models, and their predictions for the projection-selection rows, as a result with one fold.

    Raises:
        InputError: There are fewer than three groups.
    """
    assert options.calibrator is not None
    assert options.variant is not None
    split = _split_for_paper(rows, source)
    calibrator_rows = split.temperature_fit if options.calibrator == "ts" else split.calibrator_fit
    calibrator = fit_calibrator(options.calibrator, calibrator_rows, seed=options.seed)
    published = settings.projection.model_copy(update={"minimum_rows": 0})  # no pooling of rare labels
    batch = FitBatch(
        fit_rows=_as_batch(calibrator, split.projection_fit),
        n_labels=n_labels,
        settings=published,
        selection_rows=_as_batch(calibrator, split.projection_selection),
        confidence_is_given=True,  # the variants of the paper read only the calibrated confidence
    )
    projection = VARIANTS[options.variant].fit(batch)[0]
    deployed = FittedMap(calibrator, projection, _fit_baseline(calibrator_rows, options))
    return CrossFit(
        deployed=deployed,
        folds=(deployed,),
        rows=split.projection_selection,
        fold=np.zeros(len(split.projection_selection), dtype=np.int64),
        n_calibrator_rows=len(calibrator_rows),
        projection_decisions=split.projection_fit.decision,
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


def _fit_baseline(rows: FixedDecisions, options: FitOptions) -> Calibrator | None:
    """Fit temperature scaling as the baseline if the calibrator treats labels separately."""
    if options.calibrator not in calibrators_with_role("rival"):
        return None
    assert rows.logits is not None
    assert rows.label is not None
    return fit_bounded_temperature(rows.logits, rows.label, seed=options.seed)


def _fit_map(
    calibrator: Calibrator,
    rows: FixedDecisions,
    confidence_logit: np.ndarray,
    n_labels: int,
    options: FitOptions,
    settings: Settings,
) -> FittedMap:
    """Fit the projection on confidences with these logits, shape (n,), and the baseline."""
    assert options.variant is not None
    decisions = CalibratedDecisions(
        confidence_logit=confidence_logit, decision=rows.decision, logits=rows.logits, signals=rows.signals
    )
    batch = FitBatch(
        fit_rows=LabelledDecisions([decisions], rows.correct),
        n_labels=n_labels,
        settings=settings.projection,
        confidence_is_given=rows.logits is None,
    )
    return FittedMap(calibrator, VARIANTS[options.variant].fit(batch)[0], _fit_baseline(rows, options))


class _PaperSplit(NamedTuple):
    """Labelled rows by their purpose in the paper's protocol; see `relmap.projection.rows.ValidationRows`."""

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


def _as_batch(calibrator: Calibrator, rows: FixedDecisions) -> LabelledDecisions:
    """Return the decisions with their calibrated confidence, as a batch of one calibrator."""
    decisions = CalibratedDecisions(confidence_logit=calibrated_logit(calibrator, rows), decision=rows.decision)
    return LabelledDecisions([decisions], rows.correct)
