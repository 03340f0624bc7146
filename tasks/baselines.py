"""Prefect task: the calibrators and their rivals on ever fewer labelled rows, one protocol seed."""

import polars as pl
from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.metrics.registry import compared
from tasks.projection.batch import Batch, project_together
from tasks.projection.decisions import Decisions
from tasks.protocol.decisions import FixedDecisions
from tasks.protocol.params import Params
from tasks.protocol.results import RIVALS, Calibrated
from tasks.protocol.splits import ValidationRows


@task(task_run_name="baselines/{parts.seed}", cache_policy=NO_CACHE, tags=["gpu"])
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
    first = [parts.first(asked) for asked in steps]
    batches = [Batch.under(fits, rows, settings, device) for fits, rows in zip(few, first, strict=True)]
    measurements: list[tuple[object, ...]] = []
    for asked, fits, rows, curves in zip(steps, few, first, project_together(batches), strict=True):
        counts = parts.seed, asked, len(rows.calibrator_fit), len(rows.projection_fit)
        for name, calibrator, mrp in zip(names, fits, curves, strict=True):
            seen = Decisions.under(calibrator, test)
            logits = {"confidence": seen.confidence_logit, "mrp": mrp(seen)}
            measurements += [(*counts, name, *row) for row in compared(logits, test.correct, params.metrics)]
    for fit in both_parts:
        for asked in steps:
            place = parts.seed, asked, min(2 * asked, fit.rows), 0, fit.calibrator
            logits = {"confidence": Decisions.under(fit.few[2 * asked], test).confidence_logit}
            measurements += [(*place, *row) for row in compared(logits, test.correct, params.metrics)]
    return pl.DataFrame(measurements, schema=RIVALS, orient="row")
