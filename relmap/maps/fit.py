"""Fit of a reliability map: read labelled rows, fit in folds, and write the document."""

from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import NamedTuple

import numpy as np
from pydantic import ValidationError

from relmap import __version__
from relmap.calibrators.registry import CALIBRATORS, calibrators_with_role
from relmap.decisions import FixedDecisions
from relmap.errors import (
    InputError,
    assignment,
    describe_validation_errors,
    escape_unprintable,
    needs_extra,
    option,
)
from relmap.io.column_layout import DEFAULT_READING, Reading
from relmap.io.columns import join_names
from relmap.io.files import Predictions
from relmap.io.timestamps import current_timestamp
from relmap.maps.cross_fit import CONSTANT_CALIBRATOR, CrossFit, cross_fit, fit_paper_protocol
from relmap.maps.document import Calibration, Calibrator, Fold, MapDocument, Projection, Source
from relmap.maps.fit_rows import fingerprint_rows, hash_predictions, hash_training_rows
from relmap.maps.folds import FoldSplit, check_fit_rows, paper_fit_rows, split_folds
from relmap.maps.held_out import compute_default_threshold, summarize_out_of_fold_rows
from relmap.maps.labelled_rows import LabelledRows, describe_missing_ids, read_labelled_rows
from relmap.maps.options import DEFAULT_FIT_OPTIONS, FitOptions
from relmap.maps.score import ScoredDecisions
from relmap.maps.score_borders import add_borders
from relmap.maps.seen import summarize_fit_rows
from relmap.projection.registry import DEFAULT_VARIANT, DEPLOYABLE_VARIANTS
from relmap.settings import DEFAULTS, Settings

LIBRARIES = ("numpy", "scipy")  # recorded with their versions in a map
DEFAULT_CALIBRATORS = {"logits": "sms", "confidence_only": "uncal", "decision_only": CONSTANT_CALIBRATOR}
PAPER_CALIBRATOR = "ts"  # default under the paper's protocol
PAPER_VARIANT = "mrp"  # default under the paper's protocol
DECISION_ONLY_VARIANTS = ("confidence", DEFAULT_VARIANT)  # other curves need a confidence
MAX_CLASSWISE_LABELS = 50  # vector and matrix scaling take too long for more
UNLIMITED_CALIBRATOR = "sms"  # beyond its own limit it fits only a temperature


@dataclass(frozen=True, eq=False)
class MapFit:
    """A fitted map, with results that only the fit can report.

    Attributes:
        document: The map.
        rows: Rows with an out-of-fold prediction, in the order of the file.
        scored: Out-of-fold confidence under the baseline, and reliability, of these rows.
        label_warnings: Sentences on possible errors in the labels.
        settings: Settings of the fit.
        notes: Sentences on how the rows were read.
        held_out: Number of rows that were held out on request, and of their groups; None if there are none.
    """

    document: MapDocument
    rows: FixedDecisions
    scored: ScoredDecisions
    label_warnings: tuple[str, ...]
    settings: Settings
    notes: tuple[str, ...] = ()
    held_out: "HeldOutRows | None" = None


class HeldOutRows(NamedTuple):
    """Numbers of held-out rows and of their groups; None for independent rows."""

    n_rows: int
    n_groups: int | None

    def __str__(self) -> str:
        return f"{self.n_rows:,} rows" + ("" if self.n_groups is None else f" of {self.n_groups:,} groups")


def fit_map(file: Predictions, options: FitOptions = DEFAULT_FIT_OPTIONS, settings: Settings | None = None) -> MapFit:
    """Read labelled predictions, and fit a reliability map on them.

    Args:
        file: Labelled predictions.
        options: What is fitted. A calibrator of None is the default of the kind of predictions; a variant of None is
            `mrp_pooled`, or `mrp` under the paper's protocol.
        settings: Settings of the fit and of the metrics; None for the defaults.

    Returns:
        The map, with its out-of-fold predictions.

    Raises:
        InputError: The rows cannot be read or fitted, or an option is invalid.
    """
    settings = settings or DEFAULTS
    group = options.group or ""
    if not group.isprintable():
        raise InputError(f"the name of the group column, {group!r}, has unprintable characters; rename the column")
    file, border_notes = add_borders(file, options)
    labelled = read_labelled_rows(file, options)
    labelled = labelled._replace(notes=[*labelled.notes, *border_notes])
    if options.protocol == "paper" and (options.signals or options.hold_out):
        raise InputError(
            "the paper's protocol splits the rows itself and supports no signals; omit "
            f"{option('signals')} and {option('hold_out')}"
        )
    source = describe_source(file, labelled.rows, options, settings)
    fitted = fit_labelled_rows(labelled, options, source, settings, reading=file.reading)
    training = fitted.document.source.training_rows
    if training is None or training.by != "nothing":
        return fitted
    return replace(fitted, notes=(*fitted.notes, describe_missing_ids(file)))


def describe_source(file: Predictions, rows: FixedDecisions, options: FitOptions, settings: Settings) -> Source:
    """Record the rows, the options and the versions of a fit.

    Args:
        file: The predictions.
        rows: The labelled rows that were read from them.
        options: Options of the fit.
        settings: Settings of the fit.

    Returns:
        The record, which the map stores.

    Raises:
        InputError: A library that the paper's protocol needs is not installed.
    """
    libraries = (*LIBRARIES, "torch") if options.protocol == "paper" else LIBRARIES
    versions = {"relmap": __version__}
    with needs_extra("pipeline"):  # the paper's protocol fits with torch
        for library in libraries:
            versions[library] = version(library)
    return Source(
        file=escape_unprintable(file.path.name),
        sha256=hash_predictions(file),
        fingerprint=fingerprint_rows(rows),
        rows=len(rows),
        seed=options.seed,
        group=options.group,
        hold_out=options.hold_out,
        protocol=settings.protocol if options.protocol == "paper" else None,
        at=current_timestamp(),
        versions=versions,
    )


def fit_labelled_rows(
    labelled: LabelledRows,
    options: FitOptions,
    source: Source,
    settings: Settings,
    *,
    reading: Reading = DEFAULT_READING,
) -> MapFit:
    """Fit a reliability map to labelled rows.

    Args:
        labelled: Labelled rows, n of them, with their labels and signals.
        options: What is fitted; see `fit_map`.
        source: Record of the rows and of the options, which the map stores.
        settings: Settings of the fit and of the metrics.
        reading: How the rows were read, which the map remembers.

    Returns:
        The map, with its out-of-fold predictions.

    Raises:
        InputError: The calibrator or variant is unknown or cannot be fitted to these rows; or there are too few rows;
            or fitted values are too large for a map.
    """
    rows = labelled.rows
    n_labels = labelled.n_labels
    options = _with_models(options, rows)
    assert options.calibrator is not None
    assert options.variant is not None
    check_calibrator(options.calibrator, rows, n_labels)
    check_variant(options.variant, rows)
    split = split_folds(len(rows), rows.group, options.seed, hold_out=options.hold_out)
    check_fit_rows(rows, split, options.hold_out)
    if options.protocol == "paper":
        fit = fit_paper_protocol(rows, source, n_labels, options, settings)
        fitted_parts: tuple[np.ndarray, ...] = (paper_fit_rows(source, rows, fit.deployed.calibrator),)
        order = np.arange(len(fit.rows))
    else:
        fit = cross_fit(rows, split, n_labels, options, settings)
        fitted_parts = split.folds
        order = np.argsort(split.fit_rows)
    baseline = fit.deployed.baseline
    threshold = compute_default_threshold(fit)
    training_rows = hash_training_rows(rows, fitted_parts, source, ids=labelled.ids, id_column=labelled.id_column)
    try:
        document = MapDocument(
            input=rows.kind,
            n_labels=n_labels,
            label_names=labelled.names or None,
            calibrator=_calibration(options.calibrator, fit.deployed.calibrator, fit),
            projection=_projection(options.variant, fit, n_labels),
            baseline=None if baseline is None else _calibration("ts", baseline, fit),
            signals=labelled.signals,
            held_out=summarize_out_of_fold_rows(fit, n_labels, settings.metrics),
            seen=summarize_fit_rows(fit, labelled.signals, n_labels, threshold),
            default_threshold=threshold,
            folds=() if options.protocol == "paper" else _folds(fit),
            source=source.model_copy(update={"training_rows": training_rows}),
            reading=reading.to_stored(),
        )
    except ValidationError as error:
        raise InputError(
            f"a map cannot store the fit ({describe_validation_errors(error, 'fit')[0]}), as happens with logits that "
            "are far too large or too small; rescale the logits, or use the calibrator ts"
        ) from None
    return MapFit(
        document=document,
        rows=fit.rows.take(order),
        scored=fit.scored.take(order),
        label_warnings=tuple(_find_label_problems(rows, document)),
        settings=settings,
        notes=tuple(labelled.notes),
        held_out=_count_held_out(rows, split) if options.hold_out else None,
    )


def _count_held_out(rows: FixedDecisions, split: FoldSplit) -> HeldOutRows:
    n_groups = None if rows.group is None else len(np.unique(rows.group[split.held_out]))
    return HeldOutRows(n_rows=len(split.held_out), n_groups=n_groups)


def _with_models(options: FitOptions, rows: FixedDecisions) -> FitOptions:
    """Fill in the default calibrator and variant."""
    calibrator = options.calibrator
    variant = options.variant
    is_paper_protocol = options.protocol == "paper"
    if calibrator is None:
        uses_paper_default = is_paper_protocol and rows.kind == "logits"
        calibrator = PAPER_CALIBRATOR if uses_paper_default else DEFAULT_CALIBRATORS[rows.kind]
    if variant is None:
        variant = PAPER_VARIANT if is_paper_protocol else DEFAULT_VARIANT
    return replace(options, calibrator=calibrator, variant=variant)


def check_calibrator(calibrator: str, rows: FixedDecisions, n_labels: int) -> None:
    """Check that a calibrator exists, and that it can be fitted to the given rows.

    Args:
        calibrator: Key of the calibrator.
        rows: Labelled rows to fit on.
        n_labels: Number of labels K.

    Raises:
        InputError: The calibrator is unknown, needs inputs that the rows lack, or takes too long for the number of
            labels.
    """
    if rows.kind == "decision_only":
        if calibrator != CONSTANT_CALIBRATOR:
            raise InputError(
                f"the calibrator {calibrator} needs a confidence, and the rows have only decisions; omit the calibrator"
            )
        return
    if calibrator not in CALIBRATORS:
        raise InputError(f"unknown calibrator {calibrator!r}; choose one of {', '.join(CALIBRATORS)}")
    if rows.logits is None and not CALIBRATORS[calibrator].accepts_confidence:
        accepting = [key for key, entry in CALIBRATORS.items() if entry.accepts_confidence]
        raise InputError(
            f"the calibrator {calibrator} needs logits or probabilities; with a decision and a confidence, use "
            f"{' or '.join(accepting)}"
        )
    is_slow = calibrator in calibrators_with_role("rival") and calibrator != UNLIMITED_CALIBRATOR
    if is_slow and n_labels > MAX_CLASSWISE_LABELS:
        raise InputError(
            f"the calibrator {calibrator} takes too long for {n_labels} labels; use sms or ts, which have no such limit"
        )


def check_variant(variant: str, rows: FixedDecisions) -> None:
    """Check that a variant exists, and that it can be fitted to the given rows.

    Args:
        variant: Key of the variant.
        rows: Labelled rows to fit on.

    Raises:
        InputError: The variant is unknown, or needs inputs that the rows lack, or does not read the signals.
    """
    if variant == "auto":
        raise InputError(
            f"the variant auto does not exist any more: every map is fitted in the same way; omit {option('variant')}"
        )
    if variant not in DEPLOYABLE_VARIANTS:
        reason = ", which needs the runner-up as well as the confidence" if variant == "label_2d" else ""
        raise InputError(
            f"a map cannot contain the variant {variant!r}{reason}; choose one of {', '.join(DEPLOYABLE_VARIANTS)}"
        )
    if rows.kind == "decision_only" and variant not in DECISION_ONLY_VARIANTS:
        raise InputError(
            f"the variant {variant} needs a confidence, and the rows have only decisions; omit {option('variant')}"
        )
    if rows.signals is not None and variant != DEFAULT_VARIANT:
        raise InputError(
            f"the variant {variant} does not read signals; omit {option('variant')}, which is the same as "
            f"{assignment('variant', DEFAULT_VARIANT)}, or omit {option('signals')}"
        )


def _calibration(name: str, fitted: Calibrator, fit: CrossFit) -> Calibration:
    return Calibration(name=name, rows=fit.n_calibrator_rows, fitted=fitted)


def _projection(name: str, fit: CrossFit, n_labels: int) -> Projection:
    decisions = fit.projection_decisions
    return Projection(
        name=name,
        rows=len(decisions),
        rows_by_label=tuple(np.bincount(decisions, minlength=n_labels).tolist()),
        fitted=fit.deployed.projection,
    )


def _folds(fit: CrossFit) -> tuple[Fold, ...]:
    """Return the models of each fold, which were fitted on the other folds."""
    return tuple(
        Fold(calibrator=fold.calibrator, projection=fold.projection, baseline=fold.baseline) for fold in fit.folds
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
