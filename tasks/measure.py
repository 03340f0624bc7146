"""Prefect tasks: what one protocol seed measures, also on fewer rows and with another choice, and intervals."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from prefect import task

from relmap.calibrators.registry import fit_prefixes
from relmap.decisions import FixedDecisions
from relmap.metrics.probability import accuracy
from relmap.metrics.registry import ProbabilityView, ReliabilityView, compute_compared_metrics, metrics_for_views
from relmap.projection.batch import FitBatch, fit_mrp_batches
from relmap.projection.decisions import CalibratedDecisions
from relmap.projection.simplex import SimplexProjection, project_simplex
from relmap.projection.variants import fit_variants
from relmap.settings import MetricParams
from relmap.splits import ValidationRows, select_validation_rows
from tasks.records.measured import Measurement, averaged, bounded, changed_metrics, measured
from tasks.records.results import METRICS, RIVALS, SENSITIVITY, SIMPLEX, Calibrated, Projected, ProjectedDecisions
from tasks.records.store import Base, base_folder, read_base
from tasks.settings.params import Params

Varied = tuple[str, str, Measurement]  # calibrator, alternative, and what it measures


@task(task_run_name="measure/{projected.seed}")
def measure(
    projected: Projected,
    labels: np.ndarray,
    params: MetricParams,
    members: Sequence[FixedDecisions] = (),
    calibrated: Sequence[Sequence[Calibrated]] = (),
) -> pl.DataFrame:
    """Return rows of calibrator, seed, variant, metric, value on the test rows; `labels` `(n,)` are the true ones.

    The label spread is that of the mean probabilities of `members`, each with its own `calibrated`, if there are any.
    """
    values: list[tuple[object, ...]] = []
    for place, rows in enumerate(projected.rows):
        run = averaged(rows, members, [fits[place].value for fits in calibrated]) if members else None
        measurements = measured(rows, labels, params, seed=projected.seed, run=run)
        values += [(rows.calibrator, projected.seed, *measurement) for measurement in measurements]
    return pl.DataFrame(values, schema=METRICS, orient="row")


@task
def bootstrap_intervals(
    projected: list[Projected],
    measured: list[pl.DataFrame],
    test: FixedDecisions,
    calibrators: tuple[str, ...],
    params: MetricParams,
) -> pl.DataFrame:
    """Return rows of calibrator, metric, quantity, value, standard_error, low, high, p, for those in `calibrators`.

    The intervals are of a paired bootstrap over the groups of `test`.
    """
    ran = [rows.calibrator for rows in projected[0].rows if rows.calibrator in calibrators]
    keys = ["calibrator", "variant", "metric"]
    means = pl.concat(measured).group_by(keys).agg(pl.col("value").mean())
    values = {(calibrator, variant, metric): value for calibrator, variant, metric, value in means.iter_rows()}
    return pl.DataFrame(bounded(projected, test, values, ran, params), infer_schema_length=None)


@task(task_run_name="baselines/{parts.seed}", tags=["gpu"])
def baselines(
    calibrated: list[Calibrated],
    both_parts: list[Calibrated],
    steps: tuple[int, ...],
    parts: ValidationRows,
    test: FixedDecisions,
    params: Params,
    device: str,
) -> pl.DataFrame:
    """Return rows of seed, rows asked for (`steps`) and true numbers of fit rows, calibrator, variant, metric, value.

    MRP takes as many projection-fit rows as its calibrator takes calibrator-fit rows. So that no rival lacks a label,
    `both_parts` were fitted on as many rows of each; that leaves MRP none, and only confidence is measured.
    """
    settings, names = params.projection, [fit.calibrator for fit in calibrated]
    few = [[fit.few[asked] for fit in calibrated] for asked in steps]
    first = [parts.limit_fit_rows(asked) for asked in steps]
    batches = [
        FitBatch.from_validation_rows(fits, rows, settings, device) for fits, rows in zip(few, first, strict=True)
    ]
    measurements: list[tuple[object, ...]] = []
    for asked, fits, rows, curves in zip(steps, few, first, fit_mrp_batches(batches), strict=True):
        counts = parts.seed, asked, len(rows.calibrator_fit), len(rows.projection_fit)
        for name, calibrator, mrp in zip(names, fits, curves, strict=True):
            seen = CalibratedDecisions.from_calibrator(calibrator, test)
            logits = {"confidence": seen.confidence_logit, "mrp": mrp(seen)}
            measurements += [
                (*counts, name, *row) for row in compute_compared_metrics(logits, test.correct, params.metrics)
            ]
    for fit in both_parts:
        for asked in steps:
            place = parts.seed, asked, min(2 * asked, fit.rows), 0, fit.calibrator
            logits = {"confidence": CalibratedDecisions.from_calibrator(fit.few[2 * asked], test).confidence_logit}
            measurements += [(*place, *row) for row in compute_compared_metrics(logits, test.correct, params.metrics)]
    return pl.DataFrame(measurements, schema=RIVALS, orient="row")


def _refitted(parts: ValidationRows, base: Base, params: Params, device: str) -> Iterator[Varied]:
    """Each alternative of the protocol, and each base predictor that there is logits of: what takes new fits."""
    names, settings, fits = params.sensitivity.calibrators, params.projection, {}
    for option, alternative in params.sensitivity.alternatives.items():
        other_base = alternative.base and base_folder(base.name, "sensitivity", f"{alternative.base}.parquet").exists()
        if not names or not (other_base or alternative.protocol):
            continue
        other = read_base(base.name, alternative.base) if other_base else base
        cut = select_validation_rows(other.validation, parts.seed, params.with_alternative(option).protocol)
        rows = ((name, cut.rows_for_calibrator(name)) for name in names)
        calibrators = [fit_prefixes(name, fit.logits, fit.labels, [len(fit)], seed=cut.seed)[0] for name, fit in rows]
        fits[option] = calibrators, FitBatch.from_validation_rows(calibrators, cut, settings, device), other.test
    together = fit_mrp_batches([batch for _, batch, _ in fits.values()])
    for (option, (calibrators, _, test)), curves in zip(fits.items(), together, strict=True):
        for name, calibrator, mrp in zip(names, calibrators, curves, strict=True):
            seen = CalibratedDecisions.from_calibrator(calibrator, test)
            logits = {"confidence": seen.confidence_logit, "mrp": mrp(seen)}
            yield name, option, ("confidence", "accuracy", accuracy(test.decision, test.labels))
            yield from ((name, option, row) for row in compute_compared_metrics(logits, test.correct, params.metrics))


def _remeasured(projected: Projected, batch: FitBatch, labels: np.ndarray, params: Params) -> Iterator[Varied]:
    """Each alternative of projection, MRC and metrics, where `labels (n,)` are the true ones."""
    for option, alternative in params.sensitivity.alternatives.items():
        if alternative.base or alternative.protocol:
            continue
        other = params.with_alternative(option)
        varied, only = projected.rows, changed_metrics(params.metrics, other.metrics)
        if other.projection != params.projection:
            again = fit_variants(replace(batch, settings=other.projection), ("mrp",))["mrp"]
            seen = (CalibratedDecisions(rows.reliability_logits["confidence"], rows.decision) for rows in varied)
            logits = [{"mrp": mrp(decisions)} for mrp, decisions in zip(again, seen, strict=True)]
            varied = [replace(rows, reliability_logits=of) for rows, of in zip(varied, logits, strict=True)]
            only = {metric.key for metric in metrics_for_views(ReliabilityView)}
        elif other.simplex != params.simplex:
            mrc = [with_off_top_alpha(rows, other.simplex.off_top_alpha) for rows in varied]
            varied = [replace(rows, simplex=of) for rows, of in zip(varied, mrc, strict=True)]
            only = {metric.key for metric in metrics_for_views(ProbabilityView)}
        for rows in varied:
            for row in measured(rows, labels, other.metrics, seed=projected.seed, only=only):
                if other.simplex == params.simplex or row[0] == SIMPLEX:
                    yield rows.calibrator, option, row


@task(task_run_name="sensitivity/{parts.seed}", tags=["gpu"])
def sensitivity(
    projected: Projected, calibrated: list[Calibrated], parts: ValidationRows, base: Base, params: Params, device: str
) -> pl.DataFrame:
    """Return rows of calibrator, seed, option, variant, metric, value, of each alternative in params.yaml.

    Only the calibrators of the tables are varied, and only what an alternative bears on is measured; of another
    projection that is MRP itself, not the MRC made from it. Another protocol or base predictor takes new fits, which
    are made under the calibrators of `sensitivity` alone.
    """
    kept = [place for place, fit in enumerate(calibrated) if fit.calibrator in params.calibrators]
    projected = replace(projected, rows=[projected.rows[place] for place in kept])
    calibrators = [calibrated[place].value for place in kept]
    batch = FitBatch.from_validation_rows(calibrators, parts, params.projection, device)
    varied = *_refitted(parts, base, params, device), *_remeasured(projected, batch, base.test.labels, params)
    return pl.DataFrame(
        [(calibrator, parts.seed, option, *row) for calibrator, option, row in varied], schema=SENSITIVITY, orient="row"
    )


def with_off_top_alpha(rows: ProjectedDecisions, off_top_alpha: float) -> SimplexProjection:
    """Return what `project_simplex` makes of `rows` with another alpha off the top; rows on top stay."""
    before, off = rows.simplex, ~rows.simplex.solved
    of_rows = rows.log_probabilities[off], rows.decision[off], rows.reliability_logits["mrp"][off]
    alpha, moved = before.alpha.copy(), before.log_probabilities.copy(order="K")
    alpha[off] = off_top_alpha
    moved[off] = project_simplex(*of_rows, off_top_alpha=off_top_alpha).log_probabilities
    return SimplexProjection(moved, alpha, before.feasible, before.solved)
