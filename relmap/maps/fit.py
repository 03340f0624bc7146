"""Fit of a reliability map to labelled rows, and its description for users."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from pydantic import ValidationError

from relmap import __version__
from relmap.calibrators.registry import CALIBRATORS, calibrators_with_role
from relmap.decisions import FixedDecisions
from relmap.errors import (
    InputError,
    Protocol,
    assignment,
    describe_validation_errors,
    escape_unprintable,
    needs_extra,
    option,
)
from relmap.evaluation.description import (
    compare_log_loss,
    describe_comparison,
    describe_label_spread,
    describe_limits,
    describe_models,
    describe_pooled_labels,
    describe_training_doubts,
    find_errors,
)
from relmap.evaluation.drift import summarize_reference_cells, summarize_top_cells
from relmap.evaluation.evaluate import evaluate_map
from relmap.evaluation.sample import EvaluationSample, finite_or_none
from relmap.evaluation.summary import FitSummary
from relmap.io.columns import join_names
from relmap.io.files import Predictions
from relmap.io.reading import DEFAULT_READING, Reading
from relmap.io.signals import Signal
from relmap.io.timestamps import current_timestamp
from relmap.maps.cross_fit import CONSTANT_CALIBRATOR, CrossFit, FitOptions, cross_fit, fit_paper_protocol
from relmap.maps.document import Calibration, Calibrator, Fold, HeldOut, MapDocument, Projection, Source
from relmap.maps.folds import check_fit_rows, paper_fit_rows, split_folds
from relmap.maps.labelled_rows import LabelledRows, fingerprint_rows, hash_predictions, read_labelled_rows
from relmap.maps.score import ScoredDecisions
from relmap.maps.training_rows import hash_training_rows
from relmap.metrics.comparison import describe_metrics
from relmap.metrics.resampling import BOOTSTRAP_SEED
from relmap.metrics.spread import LabelCells
from relmap.projection.registry import DEFAULT_VARIANT, DEPLOYABLE_VARIANTS
from relmap.settings import DEFAULTS, MetricParams, Settings

LIBRARIES = ("numpy", "scipy")  # recorded with their versions in a map
DEFAULT_CALIBRATORS = {"logits": "sms", "confidence_only": "uncal", "decision_only": CONSTANT_CALIBRATOR}
PAPER_CALIBRATOR = "ts"  # default under the paper's protocol
PAPER_VARIANT = "mrp"  # default under the paper's protocol
DECISION_ONLY_VARIANTS = ("confidence", DEFAULT_VARIANT)  # other curves need a confidence
MAX_CLASSWISE_LABELS = 50  # vector and matrix scaling take too long for more
UNLIMITED_CALIBRATOR = "sms"  # beyond its own limit it fits only a temperature
DEFAULT_COVERAGE = 0.7  # share of the rows that are used automatically by default
MIN_DEFAULT_THRESHOLD = 0.5  # below, a decision is more likely wrong than right
N_QUANTILES = 101  # of the reliability, from 0% to 100%


def fit_map(
    file: Predictions,
    *,
    calibrator: str | None = None,
    variant: str | None = None,
    seed: int = 1,
    group: str | None = None,
    names: tuple[str, ...] | None = None,
    signals: tuple[str, ...] = (),
    hold_out: float = 0,
    protocol: Protocol = "own",
    accept_label_order: bool = False,
) -> tuple[MapDocument, FitSummary]:
    """Fit a reliability map on labelled predictions.

    Args:
        file: Labelled predictions.
        calibrator: Key of the calibrator; None for the default of the kind of predictions.
        variant: Key of the variant; None for `mrp_pooled`, or `mrp` under the paper's protocol.
        seed: Seed of the folds.
        group: Column of the groups; rows of one group stay in the same fold. None without groups.
        names: Names of the labels in their order; None for 0..K-1.
        signals: Columns that may indicate whether a decision is correct.
        hold_out: Share of the rows to hold out, in [0, 0.9].
        protocol: "own", or "paper" for the split and the fits of the paper's tables.
        accept_label_order: Whether to accept names in an order that matches the predictions worse than another order.

    Returns:
        The map, and its description.

    Raises:
        InputError: The rows cannot be read or fitted, or an option is invalid.
    """
    if not (group or "").isprintable():
        raise InputError(f"the name of the group column, {group!r}, has unprintable characters; rename the column")
    labelled = read_labelled_rows(
        file,
        group=group,
        names=names,
        signals=signals,
        seed=seed,
        hold_out=hold_out,
        accept_label_order=accept_label_order,
    )
    if protocol == "paper" and (signals or hold_out):
        raise InputError(
            "the paper's protocol splits the rows itself and supports no signals; omit "
            f"{option('signals')} and {option('hold_out')}"
        )
    fit = fit_labelled_rows(
        labelled.rows,
        _describe_source(file, labelled, seed=seed, group=group, hold_out=hold_out, protocol=protocol),
        DEFAULTS,
        calibrator=calibrator,
        variant=variant,
        n_labels=labelled.n_labels,
        names=labelled.names,
        signals=labelled.signals,
        ids=labelled.ids,
        id_column=labelled.id_column,
        reading=file.reading,
    )
    description = describe_fit(fit)
    summary = FitSummary(
        lines=description.lines,
        notes=(*labelled.notes, *description.notes),
        numbers=description.numbers,
        details=description.details,
        comparison=description.comparison,
    )
    return fit.document, summary


def _describe_source(
    file: Predictions, labelled: LabelledRows, *, seed: int, group: str | None, hold_out: float, protocol: Protocol
) -> Source:
    """Record the rows, the options and the versions of a fit."""
    libraries = (*LIBRARIES, "torch") if protocol == "paper" else LIBRARIES
    versions = {"relmap": __version__}
    with needs_extra("pipeline"):  # the paper's protocol fits with torch
        for library in libraries:
            versions[library] = version(library)
    return Source(
        file=escape_unprintable(file.path.name),
        sha256=hash_predictions(file),
        fingerprint=fingerprint_rows(labelled.rows),
        rows=len(labelled.rows),
        seed=seed,
        group=group,
        hold_out=hold_out,
        protocol=DEFAULTS.protocol if protocol == "paper" else None,
        at=current_timestamp(),
        versions=versions,
    )


@dataclass(frozen=True, eq=False)
class MapFit:
    """A fitted map, with results that only the fit can report.

    Attributes:
        document: The map.
        rows: Rows with an out-of-fold prediction, in the order of the file.
        scored: Out-of-fold confidence under the baseline, and reliability, of these rows.
        label_warnings: Sentences on possible errors in the labels.
        settings: Settings of the fit.
    """

    document: MapDocument
    rows: FixedDecisions
    scored: ScoredDecisions
    label_warnings: tuple[str, ...]
    settings: Settings


def fit_labelled_rows(
    rows: FixedDecisions,
    source: Source,
    settings: Settings,
    *,
    calibrator: str | None,
    variant: str | None,
    n_labels: int,
    names: Sequence[str] | None,
    signals: tuple[Signal, ...] = (),
    ids: np.ndarray | None = None,
    id_column: str | None = None,
    reading: Reading = DEFAULT_READING,
) -> MapFit:
    """Fit a reliability map to labelled rows.

    Args:
        rows: Labelled rows, n of them.
        source: Origin of the rows, with the seed, the share to hold out, and the protocol.
        settings: Settings of the fit and of the metrics.
        calibrator: Key of the calibrator; None for the default of the kind of rows.
        variant: Key of the variant; None for the default.
        n_labels: Number of labels K.
        names: Names of the labels; None for 0..K-1.
        signals: How each signal is read.
        ids: Id of each row, shape (n,), by which fit rows are recognized if their predictions repeat.
        id_column: Name of the column of the ids.
        reading: How the rows were read, which the map remembers.

    Returns:
        The map, with its out-of-fold predictions.

    Raises:
        InputError: The calibrator or variant is unknown or cannot be fitted to these rows; or there are too few rows;
            or fitted values are too large for a map.
    """
    is_paper_protocol = source.protocol is not None
    if calibrator is None:
        uses_paper_default = is_paper_protocol and rows.kind == "logits"
        calibrator = PAPER_CALIBRATOR if uses_paper_default else DEFAULT_CALIBRATORS[rows.kind]
    if variant is None:
        variant = PAPER_VARIANT if is_paper_protocol else DEFAULT_VARIANT
    check_calibrator(calibrator, rows, n_labels)
    check_variant(variant, rows)
    split = split_folds(len(rows), rows.group, source.seed, hold_out=source.hold_out)
    check_fit_rows(rows, split, source.hold_out)
    options = FitOptions(n_labels=n_labels, calibrator=calibrator, variant=variant, settings=settings, seed=source.seed)
    fit = fit_paper_protocol(rows, source, options) if is_paper_protocol else cross_fit(rows, split, options)
    fitted_parts = split.folds
    if is_paper_protocol:
        fitted_parts = (paper_fit_rows(source, rows, fit.deployed.calibrator),)
    training_rows = hash_training_rows(rows, fitted_parts, source, ids=ids, id_column=id_column)
    try:
        document = MapDocument(
            input=rows.kind,
            n_labels=n_labels,
            label_names=tuple(names) if names else None,
            calibrator=_calibration(calibrator, fit.deployed.calibrator, fit),
            projection=_projection(variant, fit, n_labels),
            baseline=None if fit.deployed.baseline is None else _calibration("ts", fit.deployed.baseline, fit),
            signals=signals,
            held_out=summarize_out_of_fold_rows(fit, n_labels, settings.metrics),
            default_threshold=compute_default_threshold(fit),
            folds=() if is_paper_protocol else _folds(fit),
            source=source.model_copy(update={"training_rows": training_rows}),
            reading=reading.to_stored(),
        )
    except ValidationError as error:
        raise InputError(
            f"a map cannot store the fit ({describe_validation_errors(error, 'fit')[0]}), as happens with logits that "
            "are far too large or too small; rescale the logits, or use the calibrator ts"
        ) from None
    order = np.arange(len(fit.rows)) if is_paper_protocol else np.argsort(split.fit_rows)
    return MapFit(
        document=document,
        rows=fit.rows.take(order),
        scored=fit.scored.take(order),
        label_warnings=tuple(_find_label_problems(rows, document)),
        settings=settings,
    )


@dataclass(frozen=True)
class FitDescription:
    """Result of a fit in sentences and numbers.

    Attributes:
        lines: The answer, the numbers behind it, and what was done; at most seven.
        notes: Sentences on labels with few rows, and doubts about the rows.
        details: Further sentences.
        numbers: Numbers for JSON.
        comparison: Numbers of `evaluate_map` on the out-of-fold predictions.
    """

    lines: tuple[str, ...]
    notes: tuple[str, ...]
    details: tuple[str, ...]
    numbers: dict[str, object]
    comparison: dict[str, Any]


def describe_fit(fit: MapFit) -> FitDescription:
    """Describe a fitted map by its out-of-fold predictions.

    Args:
        fit: The fit.

    Returns:
        The description.
    """
    document = fit.document
    sample = EvaluationSample.from_rows(fit.rows, fit.scored, fit.settings.metrics)
    evaluation = evaluate_map(document, sample)
    accuracy = evaluation["accuracy"]["value"]
    where = f"out of fold on {len(fit.rows):,} rows"
    lines = [
        *describe_comparison(evaluation, document, where),
        " ".join([f"Accuracy of the decisions: {100 * accuracy:.1f}%.", *fit.label_warnings]),
        describe_models(document),
    ]
    details = describe_metrics(evaluation["metrics"])
    if document.input != "decision_only":
        held_out = document.held_out
        details.append(describe_label_spread(held_out.label_spread, held_out.label_spread_shuffled))
    details += describe_limits(evaluation, document)
    comparison = compare_log_loss(evaluation)
    numbers = {
        "comparison": comparison.word,
        "variant": document.projection.name,
        "calibrator": document.calibrator.name,
        "baseline": None if document.baseline is None else document.baseline.name,
        "accuracy": accuracy,
        "log_loss": evaluation["metrics"]["nll_correct"],
        "errors_found": find_errors(evaluation)._asdict(),
        "rows": evaluation["rows"],
        "errors": evaluation["errors"],
        "groups": evaluation["groups"],
    }
    notes = [*describe_pooled_labels(document), *describe_training_doubts(evaluation)]
    return FitDescription(tuple(lines), tuple(notes), tuple(details), numbers, comparison=evaluation)


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


def summarize_out_of_fold_rows(fit: CrossFit, n_labels: int, params: MetricParams) -> HeldOut:
    """Summarize the out-of-fold predictions, as a reference for the drift test and for thresholds.

    Args:
        fit: Out-of-fold predictions.
        n_labels: Number of labels K.
        params: Settings of the metrics.

    Returns:
        Label spread, quantiles of the reliability, and mean residuals by cell.
    """
    rows = fit.rows
    scored = fit.scored
    reliability = scored.reliability
    label_cells = LabelCells.from_decisions(scored.confidence, rows.decision, rows.correct, params)
    halves, reference_cells = summarize_reference_cells(reliability, rows.decision, rows.correct, rows.group, n_labels)
    quantiles = tuple(np.quantile(reliability, np.linspace(0, 1, N_QUANTILES)).tolist())
    return HeldOut(
        rows=len(rows),
        label_spread=finite_or_none(label_cells.spread()),
        label_spread_shuffled=finite_or_none(label_cells.shuffled_quantile(BOOTSTRAP_SEED)),
        quantiles=quantiles,
        halves=halves,
        cells=reference_cells,
        top=summarize_top_cells(reliability, rows.correct, rows.group, quantiles),
    )


def compute_default_threshold(fit: CrossFit) -> float:
    """Compute the reliability that 70% of the rows reach, at least 0.5.

    Args:
        fit: Out-of-fold predictions.

    Returns:
        The threshold, in [0.5, 1].
    """
    rows = fit.rows
    reliability = fit.scored.reliability
    if rows.kind == "decision_only":
        # Reliabilities have few distinct values. Those of the fold models differ slightly from those of the deployed
        # map, so that an out-of-fold threshold could exclude all rows of a label.
        reliability = fit.deployed(rows).reliability
    threshold = np.quantile(reliability, 1 - DEFAULT_COVERAGE, weights=rows.weight, method="inverted_cdf")
    return max(float(threshold), MIN_DEFAULT_THRESHOLD)


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
