"""Prefect task: what one protocol seed measures when a choice is made otherwise."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import polars as pl
from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.calibrators import fit_on_first
from tasks.metrics.measured import Measurement, changed_metrics, measured
from tasks.metrics.probability import accuracy
from tasks.metrics.registry import COMPARED, Probabilities, Reliability, metrics_of, of_reliability
from tasks.projection.batch import Batch, project_together
from tasks.projection.curves import Curves
from tasks.projection.decisions import Decisions
from tasks.projection.lattice import LatticeSettings
from tasks.projection.simplex import project_simplex
from tasks.projection.variants import project_batch
from tasks.protocol.decisions import FixedDecisions
from tasks.protocol.params import Params
from tasks.protocol.results import SIMPLEX, Calibrated, Calibrator, Projected
from tasks.protocol.splits import ValidationRows, validation_rows
from tasks.protocol.store import Base, alternative_file, read_base


class Refit(NamedTuple):
    """New calibrators on other rows, or other logits, and what MRP is fitted on under them."""

    calibrators: Sequence[Calibrator]
    batch: Batch
    test: FixedDecisions


def refits(parts: ValidationRows, base: Base, params: Params, device: str) -> dict[str, Refit]:
    """By alternative, those of another protocol or base predictor, under the calibrators of `sensitivity`."""
    settings, fits = LatticeSettings.chosen(params.projection), {}
    for name, alternative in params.sensitivity.alternatives.items():
        other_base = alternative.base and alternative_file(base.name, alternative.base).exists()
        if not (other_base or alternative.protocol):
            continue
        other = read_base(base.name, alternative.base) if other_base else base
        cut = validation_rows(other.validation, parts.seed, params.with_alternative(name).protocol)
        rows = ((calibrator, cut.fit_rows(calibrator)) for calibrator in params.sensitivity.calibrators)
        calibrators = [fit_on_first(by, fit.logits, fit.labels, [len(fit)], seed=cut.seed)[0] for by, fit in rows]
        fits[name] = Refit(calibrators, Batch.under(calibrators, cut, settings, device), other.test)
    return fits


def remeasured(refit: Refit, curves: Sequence[Curves], params: Params) -> Iterator[tuple[str, Measurement]]:
    """Calibrator and measurement of new fits, with the `curves` of MRP under each calibrator."""
    test, fits = refit.test, zip(params.sensitivity.calibrators, refit.calibrators, curves, strict=True)
    for name, calibrator, mrp in fits:
        seen = Decisions.under(calibrator, test)
        yield name, ("confidence", "accuracy", accuracy(test.decision, test.labels))
        for variant, logit in (("confidence", seen.confidence_logit), ("mrp", mrp(seen))):
            metrics = of_reliability(logit, test.correct, params.metrics)
            yield from ((name, (variant, metric, metrics[metric])) for metric in COMPARED)


def alternatives(
    projected: Projected, batch: Batch, parts: ValidationRows, base: Base, params: Params
) -> Iterator[tuple[str, str, Measurement]]:
    """Calibrator, alternative and measurement, for each alternative but those of a base that is not there."""
    labels, refit = base.test.labels, refits(parts, base, params, batch.device)
    curves = dict(zip(refit, project_together([fit.batch for fit in refit.values()]), strict=True))
    for name, alternative in params.sensitivity.alternatives.items():
        if name in refit:
            yield from ((by, name, value) for by, value in remeasured(refit[name], curves[name], params))
        if alternative.base or alternative.protocol:
            continue
        other = params.with_alternative(name)
        varied, only = projected.rows, changed_metrics(params.metrics, other.metrics)
        if other.projection != params.projection:
            again = project_batch(replace(batch, settings=LatticeSettings.chosen(other.projection)), ("mrp",))["mrp"]
            seen = [Decisions(rows.reliability_logits["confidence"], rows.decision) for rows in projected.rows]
            varied = [
                replace(rows, reliability_logits={"mrp": mrp(decisions)})
                for rows, mrp, decisions in zip(projected.rows, again, seen, strict=True)
            ]
            only = {metric.key for metric in metrics_of(Reliability)}
        elif other.simplex != params.simplex:
            mrp = ((rows.log_probabilities, rows.decision, rows.reliability_logits["mrp"]) for rows in projected.rows)
            alpha = other.simplex.off_top_alpha
            varied = [
                replace(rows, simplex=project_simplex(*of, off_top_alpha=alpha))
                for rows, of in zip(projected.rows, mrp, strict=True)
            ]
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
