"""The calibrator and the variants of a map on labelled rows, each row judged by fits on the folds that it is not in."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from relmap.calibrators.identity import Identity
from relmap.calibrators.registry import calibrators_with_role, fit_prefixes
from relmap.calibrators.spline import fit_spline_of_confidence
from relmap.errors import InputError
from relmap.fitting.correction import fit_correction
from relmap.fitting.labelled import Division
from relmap.io.rows import PredictedRows
from relmap.maps.constant import fit_constant
from relmap.maps.correction import Correction
from relmap.maps.document import Calibrator, Source, Variant
from relmap.maps.reliability_map import FittedMap, Scored, calibrated_logit, scored_in_parts
from relmap.metrics.reliability import correctness_log_loss
from relmap.projection.batch import FitBatch
from relmap.projection.decisions import CalibratedDecisions, LabelledDecisions
from relmap.projection.variants import fit_variants
from relmap.projection.whole_vector import MAX_LABELS
from relmap.settings import ProjectionParams, Settings
from relmap.splits import split_validation

CONSTANT = "constant"  # the calibrator of decisions without a confidence


@dataclass(frozen=True, eq=False)
class Fit:
    """A calibrator, and variants by name."""

    calibrator: Calibrator
    variants: Mapping[str, Variant]
    matrix: Calibrator | None  # matrix scaling of the same rows, for who may recalibrate instead


@dataclass(frozen=True, eq=False)
class CrossFitCorrections:
    """Corrections of one variant, fitted on its out-of-fold logits.

    Attributes:
        full: Fitted on the logits of all rows; the one that is deployed.
        folds: Fitted without the logits of one fold each.
    """

    full: Correction
    folds: tuple[Correction, ...]


@dataclass(frozen=True, eq=False)
class Trial:
    """What is to be deployed, and what candidates say of rows that the fits behind it have not seen."""

    deployed: Fit
    folds: tuple[Fit, ...]
    rows: PredictedRows  # that are judged
    fold: np.ndarray  # (n,) which of the folds has not seen the row
    calibrated_on: int  # rows behind the calibrator of what is deployed
    decided: np.ndarray  # decisions of the rows behind its variants
    smallest: float  # reliability that a loss tells from 0
    corrections: Mapping[str, CrossFitCorrections] = field(default_factory=dict)  # by variant

    def losses(self, name: str) -> np.ndarray:
        """The log loss of the reliability of each row `(n,)` by the variant `name`, in nats."""
        return correctness_log_loss(self.scores(name).logit, self.rows.correct, self.smallest)

    def scores(self, name: str) -> Scored:
        """What the variant `name` says of each row."""
        corrected = self.corrections.get(name)
        corrections = [None] * len(self.folds) if corrected is None else corrected.folds
        return self._read(
            FittedMap(fit.calibrator, fit.variants[name], correction)
            for fit, correction in zip(self.folds, corrections, strict=True)
        )

    def with_correction(self, name: str, max_rows: int | None = None) -> "Trial":
        """Fit a correction of a variant, and use it wherever the variant is scored.

        Each row is scored with a correction that has not seen the row's fold, so the scores stay out of fold.

        Args:
            name: Key of the variant, which has no correction yet.
            max_rows: Maximum number of rows to fit on, evenly spread over the folds; None for all rows.

        Returns:
            The result with the correction; unchanged where the logits of the variant have too few distinct values.
        """
        logit = self.scores(name).logit
        used = np.unique(np.linspace(0, len(logit) - 1, max_rows or len(logit)).astype(np.int64))

        def fit(rows: np.ndarray) -> Correction | None:
            weight = None if self.rows.weight is None else self.rows.weight[rows]
            group = None if self.rows.group is None else self.rows.group[rows]
            return fit_correction(logit[rows], self.rows.correct[rows], weight, group)

        full = fit(used)
        folds = [fit(used[self.fold[used] != k]) for k in range(len(self.folds))]
        fitted = tuple(correction for correction in folds if correction is not None)
        if full is None or len(fitted) < len(folds):
            return self
        return replace(self, corrections={**self.corrections, name: CrossFitCorrections(full, fitted)})

    def with_deployed_correction(self) -> "Trial":
        """Score every fold with the correction that is deployed.

        The correction of a fold follows the labels of the other folds: it is low where the rows of the fold are often
        correct. That would move the residuals that the drift test starts from.
        """
        folds = len(self.folds)
        shared = {name: CrossFitCorrections(each.full, (each.full,) * folds) for name, each in self.corrections.items()}
        return replace(self, corrections=shared)

    def recalibrated(self) -> tuple[np.ndarray, float] | None:
        """The log loss of matrix scaling of the same decisions `(n,)`, and the share that it would decide otherwise."""
        logits = self.rows.logits
        if logits is None or any(fit.matrix is None for fit in self.folds):
            return None
        rival = self._read(FittedMap(fit.matrix) for fit in self.folds)
        changed = np.empty(len(self.rows), dtype=bool)
        for place, fit in enumerate(self.folds):
            assert fit.matrix is not None  # checked above
            in_fold = self.fold == place
            changed[in_fold] = fit.matrix(logits[in_fold]).argmax(axis=1) != self.rows.decision[in_fold]
        share = float(np.average(changed, weights=self.rows.weight))
        return correctness_log_loss(rival.logit, self.rows.correct, self.smallest), share

    def _read(self, of_folds: Iterable[FittedMap]) -> Scored:
        return scored_in_parts(self.rows, ((each, self.fold == place) for place, each in enumerate(of_folds)))


def cross_fit(
    rows: PredictedRows,
    division: Division,
    n_labels: int,
    calibrator: str,
    names: Sequence[str],
    settings: Settings,
    seed: int,
    most: int | None = None,
) -> Trial:
    """Fit everything on all folds but one, for each, and on all of them; or on the first `most` of these rows."""
    projection = settings.projection

    def fit(training: np.ndarray) -> Fit:
        on = rows.take(training[:most])
        fitted = fit_calibrator(calibrator, on, seed=seed)
        values = fit_variants(_batch_under(fitted, on, n_labels, projection), tuple(names), pool_labels=True)
        matrix = _matrix_beside(calibrator, on, n_labels) if most is None else None
        return Fit(fitted, {name: value for name, (value,) in values.items()}, matrix)

    folds = tuple(fit(division.training(place)) for place in range(len(division.folds)))
    fold = np.repeat(np.arange(len(folds)), [len(part) for part in division.folds])
    used = rows.take(division.fitted)
    deployed = fit(division.fitted) if most is None else folds[0]
    return Trial(deployed, folds, used, fold, len(used), used.decision, settings.metrics.smallest_reliability)


def as_in_the_paper(
    rows: PredictedRows, n_labels: int, calibrator: str, names: Sequence[str], settings: Settings, source: Source
) -> Trial:
    """Fit everything on the parts of the paper's protocol, and read it on projection-selection rows."""
    everything, calibrator_fit, projection_fit, selection = _paper_parts(rows, source)
    projection = settings.projection.model_copy(update={"minimum_rows": 0})  # each label on its own rows
    behind = everything if calibrator == "ts" else calibrator_fit
    fitted = fit_calibrator(calibrator, behind, seed=source.seed)
    values = fit_variants(_batch_under(fitted, projection_fit, n_labels, projection, selection), tuple(names))
    matrix = _matrix_beside(calibrator, calibrator_fit, n_labels)
    fit = Fit(fitted, {name: value for name, (value,) in values.items()}, matrix)
    fold, smallest = np.zeros(len(selection), dtype=np.int64), settings.metrics.smallest_reliability
    return Trial(fit, (fit,), selection, fold, len(behind), projection_fit.decision, smallest)


def _paper_parts(rows: PredictedRows, source: Source) -> tuple[PredictedRows, ...]:
    """What the paper's protocol fits a temperature on, the other calibrators, the variants, and what chooses."""
    assert source.protocol is not None
    parts = [rows.take(part) for part in split_validation(len(rows), source.seed, source.protocol, rows.group)]
    if not all(map(len, parts)):
        raise InputError("there are fewer than three groups, which cannot be cut in three parts; leave the groups away")
    return rows if source.protocol.temperature_rows == "validation" else parts[0], *parts


def fit_calibrator(name: str, rows: PredictedRows, *, seed: int) -> Calibrator:
    """The calibrator `name` on all rows."""
    assert rows.label is not None
    if rows.logits is not None:
        return fit_prefixes(name, rows.logits, rows.label, [len(rows)], seed=seed)[0]
    if name == CONSTANT:
        return fit_constant(np.average(rows.correct, weights=rows.weight) * len(rows), len(rows))
    if name == "uncal":
        return Identity()
    assert rows.confidence is not None
    return fit_spline_of_confidence(rows.confidence, rows.correct)


def _matrix_beside(calibrator: str, rows: PredictedRows, n_labels: int) -> Calibrator | None:
    """Matrix scaling of `rows`; None without logits, and beside a rival like it."""
    if rows.logits is None or n_labels > MAX_LABELS or calibrator in calibrators_with_role("rival"):
        return None
    return fit_calibrator("matrix", rows, seed=0)


def _batch_under(
    calibrator: Calibrator,
    rows: PredictedRows,
    n_labels: int,
    settings: ProjectionParams,
    selection: PredictedRows | None = None,
) -> FitBatch:
    """What the variants are fitted on under one calibrator."""

    def of(rows: PredictedRows) -> LabelledDecisions:
        seen = CalibratedDecisions(calibrated_logit(calibrator, rows), rows.decision, None, rows.logits, rows.signals)
        return LabelledDecisions([seen], rows.correct, rows.label)

    return FitBatch(of(rows), n_labels, settings, None if selection is None else of(selection))
