"""Prefect tasks: metrics of one protocol seed, comparisons with fewer rows or other choices, and intervals."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl
from prefect import task

from relmap.calibrators.registry import fit_prefixes
from relmap.decisions import CalibratedDecisions, Calibrator, ProtocolDecisions, clip_log_probabilities, clip_logits
from relmap.metrics.probability import accuracy
from relmap.metrics.registry import ProbabilityView, ReliabilityView, compute_compared_metrics, metrics_for_views
from relmap.projection.mrp import ReliabilityModel
from relmap.projection.registry import fit_variants
from relmap.projection.rows import FitBatch, ValidationRows, fit_mrp_batches, select_validation_rows
from relmap.projection.simplex import SimplexProjection, project_simplex
from relmap.settings import MetricParams
from tasks.records.durations import measured
from tasks.records.store import Base, base_folder, read_base
from tasks.results.bootstrap import bootstrap_rows
from tasks.results.measurements import (
    FITTED_PER_MEMBER,
    Measurement,
    average_calibrated_members,
    average_members,
    compute_metrics,
    find_affected_metrics,
)
from tasks.results.values import (
    METRICS_SCHEMA,
    RIVALS_SCHEMA,
    SENSITIVITY_SCHEMA,
    SIMPLEX,
    CalibratorFit,
    ProjectedDecisions,
    SeedResults,
)
from tasks.settings.params import Params


class AlternativeMeasurement(NamedTuple):
    """A measurement under one alternative of params.yaml.

    Attributes:
        calibrator: Key of the calibrator.
        option: Key of the alternative.
        measurement: Variant, metric and value.
    """

    calibrator: str
    option: str
    measurement: Measurement


class _Refit(NamedTuple):
    """Calibrators and a batch of fits for an alternative that needs new fits."""

    option: str
    clip: float
    calibrators: list[Calibrator]
    batch: FitBatch
    test: ProtocolDecisions


@task(task_run_name="measure/{results.seed}")
@measured("measure")
def measure(
    results: SeedResults,
    labels: np.ndarray,
    params: MetricParams,
    members: Sequence[ProtocolDecisions] = (),
    spread_fits: Sequence[Sequence[CalibratorFit]] = (),
) -> pl.DataFrame:
    """Compute the metrics of one protocol seed on the test rows.

    Args:
        results: Results of the seed.
        labels: True labels of the test rows, shape (n,).
        params: Settings of the metrics.
        members: Test rows of the members of a model run, which are other rows than those of the tables in later runs.
            If there are any, the label spread is that of their mean probabilities.
        spread_fits: For each of `results.projections`, the calibrator fitted on the mean probabilities of the members;
            for TS, the calibrators fitted on each member, whose calibrated probabilities are averaged.

    Returns:
        Rows with the columns of METRICS_SCHEMA.
    """
    rows: list[tuple[object, ...]] = []
    for index, decisions in enumerate(results.projections):
        spread_probabilities = None
        spread_labels = None
        if members:
            spread_labels = members[0].label
            calibrators = [fit.model for fit in spread_fits[index]]
            if decisions.calibrator in FITTED_PER_MEMBER:
                spread_probabilities = average_calibrated_members(members, calibrators)
            else:
                (calibrator,) = calibrators
                spread_probabilities = calibrator(average_members(members).logits)
        measurements = compute_metrics(
            decisions,
            labels,
            params,
            seed=results.seed,
            spread_probabilities=spread_probabilities,
            spread_labels=spread_labels,
        )
        rows += [(decisions.calibrator, results.seed, *measurement) for measurement in measurements]
    return pl.DataFrame(rows, schema=METRICS_SCHEMA, orient="row")


@task
@measured("measure")
def bootstrap_intervals(
    results: list[SeedResults],
    metrics: list[pl.DataFrame],
    test: ProtocolDecisions,
    calibrators: tuple[str, ...],
    params: MetricParams,
) -> pl.DataFrame:
    """Compute intervals of the metrics by a paired bootstrap over the groups of the test rows.

    Args:
        results: Results of each protocol seed.
        metrics: Metrics of each protocol seed.
        test: Test rows.
        calibrators: Calibrators to compute intervals for, if they ran.
        params: Settings of the metrics.

    Returns:
        Rows with the columns calibrator, metric, quantity, value, standard_error, low, high, p and groups.
    """
    all_calibrators = [decisions.calibrator for decisions in results[0].projections]
    chosen = [calibrator for calibrator in all_calibrators if calibrator in calibrators]
    means = pl.concat(metrics).group_by("calibrator", "variant", "metric").agg(pl.col("value").mean())
    values = {(calibrator, variant, metric): value for calibrator, variant, metric, value in means.iter_rows()}
    return pl.DataFrame(bootstrap_rows(results, test, values, chosen, params), infer_schema_length=None)


@task(task_run_name="compare calibrators/{parts.seed}", tags=["gpu"])
@measured("measure")
def compare_calibrators(
    fits: list[CalibratorFit],
    fits_on_both_parts: list[CalibratorFit],
    row_counts: tuple[int, ...],
    parts: ValidationRows,
    test: ProtocolDecisions,
    params: Params,
    device: str,
) -> pl.DataFrame:
    """Compare calibrators with and without MRP, fitted on fewer labelled rows.

    MRP uses as many projection-fit rows as its calibrator uses calibrator-fit rows. For a fair comparison, class-wise
    calibrators are also fitted on the rows of both parts. No rows are then left for MRP, so only the confidence is
    measured.

    Args:
        fits: Calibrators, fitted on all rows and on the first n rows, for each n in `row_counts`.
        fits_on_both_parts: Class-wise calibrators, fitted on both parts and on their first 2n rows, for each n.
        row_counts: Requested numbers of rows.
        parts: Validation rows of the seed.
        test: Test rows.
        params: Settings.
        device: Device of the lattices.

    Returns:
        Rows with the columns of RIVALS_SCHEMA: requested and available numbers of rows, and measurements.
    """
    limited_parts = [parts.limit_fit_rows(row_count) for row_count in row_counts]
    batches = []
    for row_count, limited in zip(row_counts, limited_parts, strict=True):
        calibrators = [fit.models_by_row_count[row_count] for fit in fits]
        batches.append(
            FitBatch.from_validation_rows(
                calibrators, limited, params.projection, device, smallest_probability=params.protocol.clip
            )
        )
    rows: list[tuple[object, ...]] = []
    curves_of_batches = fit_mrp_batches(batches)
    for row_count, limited, curves in zip(row_counts, limited_parts, curves_of_batches, strict=True):
        n_rows = (len(limited.calibrator_fit), len(limited.projection_fit))
        for fit, mrp in zip(fits, curves, strict=True):
            calibrated = CalibratedDecisions.from_calibrator(fit.models_by_row_count[row_count], test)
            logits = _score_variants({"mrp": mrp}, calibrated, params.protocol.clip)
            for measurement in compute_compared_metrics(logits, test.correct, params.metrics):
                rows.append((parts.seed, row_count, *n_rows, fit.calibrator, *measurement))
    for fit in fits_on_both_parts:
        for row_count in row_counts:
            n_rows = (min(2 * row_count, fit.n_rows), 0)
            calibrated = CalibratedDecisions.from_calibrator(fit.models_by_row_count[2 * row_count], test)
            logits = _score_variants({}, calibrated, params.protocol.clip)
            for measurement in compute_compared_metrics(logits, test.correct, params.metrics):
                rows.append((parts.seed, row_count, *n_rows, fit.calibrator, *measurement))
    return pl.DataFrame(rows, schema=RIVALS_SCHEMA, orient="row")


@task(task_run_name="measure alternatives/{parts.seed}", tags=["gpu"])
@measured("measure")
def measure_alternatives(
    results: SeedResults,
    fits: list[CalibratorFit],
    parts: ValidationRows,
    base: Base,
    params: Params,
    device: str,
) -> pl.DataFrame:
    """Measure each alternative of `sensitivity` in params.yaml.

    Only the calibrators of the tables are varied, and only metrics that an alternative affects are measured. Another
    projection affects MRP, but its MRC is not measured. Another protocol or base predictor needs new fits, which are
    made for the calibrators of `sensitivity` only, and of which confidence, label intercept and MRP are measured.

    Args:
        results: Results of one protocol seed.
        fits: Fitted calibrators, in the order of `results.projections`.
        parts: Validation rows of the seed.
        base: Decisions of the base predictor.
        params: Settings.
        device: Device of the lattices.

    Returns:
        Rows with the columns of SENSITIVITY_SCHEMA.
    """
    indices = [index for index, fit in enumerate(fits) if fit.calibrator in params.calibrators]
    results = replace(results, projections=[results.projections[index] for index in indices])
    calibrators = [fits[index].model for index in indices]
    batch = FitBatch.from_validation_rows(
        calibrators, parts, params.projection, device, smallest_probability=params.protocol.clip
    )
    measurements = [
        *_measure_refits(parts, base, params, device),
        *_measure_other_settings(results, batch, base.test.label, params),
    ]
    rows = [(calibrator, parts.seed, option, *values) for calibrator, option, values in measurements]
    return pl.DataFrame(rows, schema=SENSITIVITY_SCHEMA, orient="row")


def _measure_refits(parts: ValidationRows, base: Base, params: Params, device: str) -> Iterator[AlternativeMeasurement]:
    """Measure the alternatives of the protocol and of the base predictor, which need new fits."""
    names = params.sensitivity.calibrators
    refits = _prepare_refits(parts, base, params, device)
    curves_of_refits = fit_mrp_batches([refit.batch for refit in refits])
    for refit, curves in zip(refits, curves_of_refits, strict=True):
        test = refit.test
        shifts = fit_variants(refit.batch, ("label_intercept",))["label_intercept"]
        for name, calibrator, shift, mrp in zip(names, refit.calibrators, shifts, curves, strict=True):
            calibrated = CalibratedDecisions.from_calibrator(calibrator, test)
            test_accuracy = accuracy(test.decision, test.label)
            yield AlternativeMeasurement(name, refit.option, ("confidence", "accuracy", test_accuracy))
            logits = _score_variants({"label_intercept": shift, "mrp": mrp}, calibrated, refit.clip)
            for measurement in compute_compared_metrics(logits, test.correct, params.metrics):
                yield AlternativeMeasurement(name, refit.option, measurement)


def _score_variants(
    models: Mapping[str, ReliabilityModel], calibrated: CalibratedDecisions, clip: float
) -> dict[str, np.ndarray]:
    """Return the clipped logits of the confidence and of each model."""
    clipped = calibrated.clip(clip)
    logits = {"confidence": clipped.confidence_logit}
    for variant, model in models.items():
        logits[variant] = clip_logits(model(clipped), clip)
    return logits


def _prepare_refits(parts: ValidationRows, base: Base, params: Params, device: str) -> list[_Refit]:
    """Fit the calibrators of the alternatives that need new fits; skip base predictors without saved logits."""
    refits: list[_Refit] = []
    names = params.sensitivity.calibrators
    if not names:
        return refits
    for option, alternative in params.sensitivity.alternatives.items():
        alternative_base = base
        if alternative.base is not None:
            if not base_folder(base.name, "sensitivity", f"{alternative.base}.parquet").exists():
                continue
            alternative_base = read_base(base.name, alternative.base)
        elif not alternative.protocol:
            continue
        protocol = params.with_alternative(option).protocol
        rows = select_validation_rows(alternative_base.validation, parts.seed, protocol)
        calibrators = []
        for name in names:
            fit_rows = rows.rows_for_calibrator(name)
            calibrators += fit_prefixes(
                name, fit_rows.logits, fit_rows.label, [len(fit_rows)], seed=rows.seed, published=True
            )
        batch = FitBatch.from_validation_rows(
            calibrators, rows, params.projection, device, smallest_probability=protocol.clip
        )
        refits.append(_Refit(option, protocol.clip, calibrators, batch, alternative_base.test))
    return refits


def _measure_other_settings(
    results: SeedResults, batch: FitBatch, labels: np.ndarray, params: Params
) -> Iterator[AlternativeMeasurement]:
    """Measure the alternatives of projection, MRC and metrics; other alternatives affect no metric here."""
    for option in params.sensitivity.alternatives:
        changed = params.with_alternative(option)
        projections = results.projections
        metric_keys: Collection[str] = find_affected_metrics(params.metrics, changed.metrics)
        if changed.projection != params.projection:
            projections = _refit_mrp(projections, replace(batch, settings=changed.projection), params.protocol.clip)
            metric_keys = {metric.key for metric in metrics_for_views(ReliabilityView)}
        elif changed.simplex != params.simplex:
            alpha = changed.simplex.off_top_alpha
            projections = [
                replace(decisions, simplex=change_off_top_alpha(decisions, alpha, params.protocol.clip))
                for decisions in projections
            ]
            metric_keys = {metric.key for metric in metrics_for_views(ProbabilityView)}
        for decisions in projections:
            measurements = compute_metrics(
                decisions, labels, changed.metrics, seed=results.seed, metric_keys=metric_keys
            )
            for measurement in measurements:
                variant = measurement[0]
                # the settings of MRC change nothing but MRC
                if changed.simplex == params.simplex or variant == SIMPLEX:
                    yield AlternativeMeasurement(decisions.calibrator, option, measurement)


def _refit_mrp(projections: Sequence[ProjectedDecisions], batch: FitBatch, clip: float) -> list[ProjectedDecisions]:
    """Fit MRP again; return the test rows with the new reliability only."""
    models = fit_variants(batch, ("mrp",))["mrp"]
    refitted = []
    for decisions, mrp in zip(projections, models, strict=True):
        calibrated = CalibratedDecisions(decisions.reliability_logits["confidence"], decisions.decision)
        refitted.append(replace(decisions, reliability_logits={"mrp": clip_logits(mrp(calibrated), clip)}))
    return refitted


def change_off_top_alpha(decisions: ProjectedDecisions, off_top_alpha: float, clip: float) -> SimplexProjection:
    """Project test rows again with another power for rows whose decision is not the most probable label.

    Args:
        decisions: Projected test rows.
        off_top_alpha: New power of these rows.
        clip: Bound to which the probabilities are clipped.

    Returns:
        The projection; all other rows are unchanged.
    """
    before = decisions.simplex
    off_top = ~before.solved
    projected = project_simplex(
        clip_log_probabilities(decisions.log_probabilities[off_top], clip),
        decisions.decision[off_top],
        decisions.reliability_logits["mrp"][off_top],
        off_top_alpha=off_top_alpha,
    )
    alpha = before.alpha.copy()
    alpha[off_top] = off_top_alpha
    log_probabilities = before.log_probabilities.copy(order="K")
    log_probabilities[off_top] = projected.log_probabilities
    return SimplexProjection(log_probabilities, alpha, before.feasible, before.solved)
