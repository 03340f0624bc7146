"""Prefect task: what one protocol seed measures when a choice is made otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl
from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.metrics.measured import Measurement, of_probabilities, of_reliabilities, remeasured
from tasks.projection.batch import Batch
from tasks.projection.lattice import LatticeSettings
from tasks.projection.simplex import project_simplex
from tasks.projection.variants import project_batch
from tasks.protocol.decisions import FixedDecisions
from tasks.protocol.keys import SIMPLEX
from tasks.protocol.params import Params
from tasks.protocol.results import Calibrated, Projected, ProjectedDecisions
from tasks.protocol.splits import ValidationRows


def projected_again(projected: Projected, batch: Batch, settings: LatticeSettings) -> list[ProjectedDecisions]:
    """The same calibrators with nothing but MRP, under other settings."""
    fitted = project_batch(replace(batch, settings=settings), ("mrp",))["mrp"]
    return [
        replace(rows, reliability_logits={"mrp": curves(rows.reliability_logits["confidence"], rows.decision)})
        for rows, curves in zip(projected.rows, fitted, strict=True)
    ]


def alternatives(
    projected: Projected, batch: Batch, labels: np.ndarray, params: Params
) -> Iterator[tuple[str, str, Measurement]]:
    """Calibrator, alternative and measurement, for each alternative of params.yaml."""
    for name in params.sensitivity.alternatives:
        projection, simplex, metrics = params.with_alternative(name)
        if projection.selection == "best" and batch.selection is None:
            continue  # nothing to choose the epoch by
        if projection != params.projection:
            for rows in projected_again(projected, batch, LatticeSettings.chosen(projection)):
                yield from ((rows.calibrator, name, found) for found in of_reliabilities(rows, labels, metrics))
            continue
        for rows in projected.rows:
            if simplex != params.simplex:
                mrp = rows.log_probabilities, rows.decision, rows.reliability_logits["mrp"]
                moved = replace(rows, simplex=project_simplex(*mrp, off_top_alpha=simplex.off_top_alpha))
                found = [one for one in of_probabilities(moved, labels, metrics) if one[0] == SIMPLEX]
            else:
                found = list(remeasured(rows, labels, params.metrics, metrics, projected.seed))
            yield from ((rows.calibrator, name, one) for one in found)


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
    test: FixedDecisions,
    params: Params,
    device: str,
) -> pl.DataFrame:
    """Rows of calibrator, seed, option, variant, metric, value: what each alternative of params.yaml makes of it.

    Only the calibrators of the tables are varied, and only what an alternative bears on is measured; of another
    projection that is MRP itself, not the MRC made from it. Without projection-selection rows no epoch is chosen.
    """
    kept = [place for place, fit in enumerate(calibrated) if fit.calibrator in params.calibrators]
    projected = replace(projected, rows=[projected.rows[place] for place in kept])
    calibrators = [calibrated[place].value for place in kept]
    batch = Batch.under(calibrators, parts, LatticeSettings.chosen(params.projection), device)
    found = alternatives(projected, batch, test.labels, params)
    return pl.DataFrame(
        [(calibrator, parts.seed, option, *measurement) for calibrator, option, measurement in found],
        schema=SCHEMA,
        orient="row",
    )
