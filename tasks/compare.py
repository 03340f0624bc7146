"""Prefect task: the calibrators and their rivals on ever fewer labelled rows, one protocol seed."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.metrics.reliability import reliability_metrics
from tasks.projection.lattice import LatticeSettings
from tasks.projection.rows import rows_under
from tasks.projection.variants import Batch, project_batch
from tasks.protocol.decisions import FixedDecisions
from tasks.protocol.params import ProjectionParams
from tasks.protocol.results import Calibrated, Calibrator
from tasks.protocol.splits import ValidationRows

COMPARED = ("nll_correct", "aupr_error", "aurc")
SCHEMA = pl.Schema(
    dict.fromkeys(("seed", "rows", "calibrator_fit_rows", "projection_fit_rows"), pl.Int64())
    | dict.fromkeys(("calibrator", "variant", "metric"), pl.String())
    | {"value": pl.Float64()}
)


def by_confidence(name: str, calibrator: Calibrator, test: FixedDecisions) -> Iterator[tuple[str, str, str, float]]:
    """Calibrator, variant, metric and value of the confidence alone."""
    metrics = reliability_metrics(rows_under([calibrator], test).confidence_logit[0], test.correct)
    yield from ((name, "confidence", metric, metrics[metric]) for metric in COMPARED)


def by_mrp(fits: dict[str, Calibrator], batch: Batch, test: FixedDecisions) -> Iterator[tuple[str, str, str, float]]:
    """Calibrator, variant, metric and value of MRP on top of each calibrator of `batch`."""
    tested = rows_under(list(fits.values()), test).confidence_logit
    for name, mrp, at in zip(fits, project_batch(batch, ("mrp",))["mrp"], tested, strict=True):
        metrics = reliability_metrics(mrp(at, test.decision), test.correct)
        yield from ((name, "mrp", metric, metrics[metric]) for metric in COMPARED)


@task(task_run_name="compare/{parts.seed}", cache_policy=NO_CACHE)
def compare(
    calibrated: list[Calibrated],
    both_parts: list[Calibrated],
    parts: ValidationRows,
    test: FixedDecisions,
    params: ProjectionParams,
    device: str,
) -> pl.DataFrame:
    """Rows of seed, rows asked for and true numbers of fit rows, calibrator, variant, metric, value.

    MRP takes as many projection-fit rows as its calibrator takes calibrator-fit rows. So that no rival lacks a label,
    `both_parts` were fitted on as many rows of each; that leaves MRP none, and only confidence is measured.
    """
    settings = LatticeSettings.chosen(params)
    found: list[tuple[object, ...]] = []
    for asked in calibrated[0].few:
        fits, first = {fit.calibrator: fit.few[asked] for fit in calibrated}, parts.first(asked)
        counts = parts.seed, asked, len(first.calibrator_fit), len(first.projection_fit)
        measured = [one for name, value in fits.items() for one in by_confidence(name, value, test)]
        measured += by_mrp(fits, Batch.under(list(fits.values()), first, settings, device), test)
        found += [(*counts, *one) for one in measured]
    for fit in both_parts:
        for twice, value in fit.few.items():
            counts = parts.seed, twice // 2, min(twice, fit.rows), 0
            found += [(*counts, *one) for one in by_confidence(fit.calibrator, value, test)]
    return pl.DataFrame(found, schema=SCHEMA, orient="row")
