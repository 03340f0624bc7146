"""Prefect task: what one protocol seed measures when a choice is made otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import polars as pl
from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.calibrators import fit_on_first
from tasks.metrics.measured import Measurement, changed_metrics, measured
from tasks.metrics.probability import accuracy
from tasks.metrics.registry import Probabilities, Reliability, metrics_of, of_reliability
from tasks.projection.batch import Batch
from tasks.projection.decisions import Decisions
from tasks.projection.lattice import LatticeSettings
from tasks.projection.simplex import project_simplex
from tasks.projection.variants import project_batch
from tasks.protocol.decisions import FixedDecisions
from tasks.protocol.keys import COMPARED, SIMPLEX
from tasks.protocol.params import Params
from tasks.protocol.results import Calibrated, Projected, ProjectedDecisions
from tasks.protocol.splits import ValidationRows, validation_rows
from tasks.protocol.store import Base, alternative_file, read_base


def projected_again(projected: Projected, batch: Batch, settings: LatticeSettings) -> list[ProjectedDecisions]:
    """The same calibrators with nothing but MRP, under other settings."""
    fitted = project_batch(replace(batch, settings=settings), ("mrp",))["mrp"]
    return [
        replace(
            rows, reliability_logits={"mrp": curves(Decisions(rows.reliability_logits["confidence"], rows.decision))}
        )
        for rows, curves in zip(projected.rows, fitted, strict=True)
    ]


def simplex_again(rows: ProjectedDecisions, off_top_alpha: float) -> ProjectedDecisions:
    """The same with another MRC."""
    mrp = rows.log_probabilities, rows.decision, rows.reliability_logits["mrp"]
    return replace(rows, simplex=project_simplex(*mrp, off_top_alpha=off_top_alpha))


def refitted(
    parts: ValidationRows, test: FixedDecisions, params: Params, device: str
) -> Iterator[tuple[str, Measurement]]:
    """Calibrator and measurement of new fits on other rows, or other logits, under the calibrators of `sensitivity`."""
    names = params.sensitivity.calibrators
    fits = ((name, parts.fit_rows(name)) for name in names)
    calibrators = [fit_on_first(name, one.logits, one.labels, [len(one)], seed=parts.seed)[0] for name, one in fits]
    batch = Batch.under(calibrators, parts, LatticeSettings.chosen(params.projection), device)
    fitted = project_batch(batch, ("confidence", "mrp"))
    for place, (name, calibrator) in enumerate(zip(names, calibrators, strict=True)):
        seen = Decisions.under(calibrator, test)
        yield name, ("confidence", "accuracy", accuracy(test.decision, test.labels))
        for variant, values in fitted.items():
            metrics = of_reliability(values[place](seen), test.correct, params.metrics)
            yield from ((name, (variant, metric, metrics[metric])) for metric in COMPARED)


def alternatives(
    projected: Projected, batch: Batch, parts: ValidationRows, base: Base, params: Params
) -> Iterator[tuple[str, str, Measurement]]:
    """Calibrator, alternative and measurement, for each alternative but those of a base that is not there."""
    labels = base.test.labels
    for name, alternative in params.sensitivity.alternatives.items():
        other = params.with_alternative(name)
        if alternative.base and not alternative_file(base.name, alternative.base).exists():
            continue
        if alternative.base or alternative.protocol:
            found = read_base(base.name, alternative.base) if alternative.base else base
            cut = validation_rows(found.validation, parts.seed, other.protocol)
            yield from ((by, name, one) for by, one in refitted(cut, found.test, params, batch.device))
            continue
        varied, only = projected.rows, changed_metrics(params.metrics, other.metrics)
        if other.projection != params.projection:
            varied = projected_again(projected, batch, LatticeSettings.chosen(other.projection))
            only = {metric.key for metric in metrics_of(Reliability)}
        elif other.simplex != params.simplex:
            varied = [simplex_again(rows, other.simplex.off_top_alpha) for rows in projected.rows]
            only = {metric.key for metric in metrics_of(Probabilities)}
        for rows in varied:
            for one in measured(rows, labels, other.metrics, seed=projected.seed, only=only):
                if other.simplex == params.simplex or one[0] == SIMPLEX:
                    yield rows.calibrator, name, one


SCHEMA = pl.Schema(
    {"calibrator": pl.String(), "seed": pl.Int64()}
    | dict.fromkeys(("option", "variant", "metric"), pl.String())
    | {"value": pl.Float64()}
)


@task(task_run_name="vary/{parts.seed}", cache_policy=NO_CACHE, tags=["gpu"])
def vary(
    projected: Projected,
    calibrated: list[Calibrated],
    parts: ValidationRows,
    base: Base,
    params: Params,
    device: str,
) -> pl.DataFrame:
    """Rows of calibrator, seed, option, variant, metric, value: what each alternative of params.yaml makes of it.

    Only the calibrators of the tables are varied, and only what an alternative bears on is measured; of another
    projection that is MRP itself, not the MRC made from it. Another protocol or base predictor takes new fits, which
    are made under the calibrators of `sensitivity` alone.
    """
    kept = [place for place, fit in enumerate(calibrated) if fit.calibrator in params.calibrators]
    projected = replace(projected, rows=[projected.rows[place] for place in kept])
    calibrators = [calibrated[place].value for place in kept]
    batch = Batch.under(calibrators, parts, LatticeSettings.chosen(params.projection), device)
    found = alternatives(projected, batch, parts, base, params)
    return pl.DataFrame(
        [(calibrator, parts.seed, option, *measurement) for calibrator, option, measurement in found],
        schema=SCHEMA,
        orient="row",
    )
