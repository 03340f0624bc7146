"""Prefect task: one protocol seed, every calibrator and variant in as few batches as possible."""

from dataclasses import replace

from prefect import task

from relmap.decisions import FixedDecisions
from relmap.projection.batch import FitBatch, measure_optimality_gap
from relmap.projection.curves import Curves, SharedCurve
from relmap.projection.decisions import CalibratedDecisions
from relmap.projection.simplex import project_simplex
from relmap.projection.variants import VARIANTS, fit_variants
from relmap.splits import ValidationRows
from tasks.records.results import Calibrated, Projected, ProjectedDecisions
from tasks.settings.params import Params


@task(task_run_name="project/{parts.seed}", tags=["gpu"])
def project(
    calibrated: list[Calibrated], parts: ValidationRows, test: FixedDecisions, params: Params, device: str
) -> Projected:
    """Fit every variant on the projection-fit rows of one seed, then read each on the test rows."""
    calibrators = [fit.value for fit in calibrated]
    batch = FitBatch.from_validation_rows(calibrators, parts, params.projection, device)
    batch = replace(batch, n_surfaces=len(params.calibrators))  # those of the tables come first
    variants = fit_variants(batch)
    gap = measure_optimality_gap(batch)
    rows: list[ProjectedDecisions] = []
    for place, fit in enumerate(calibrated):
        seen = CalibratedDecisions.from_calibrator(fit.value, test)
        log_probabilities = seen.log_probabilities
        assert log_probabilities is not None
        fitted = {name: values[place] for name, values in variants.items() if place < len(values)}
        curves = {name: value.curves if isinstance(value, SharedCurve) else value for name, value in fitted.items()}
        # what reads no calibrator says the same under each
        known = {}
        for name in fitted:
            if rows and VARIANTS[name].required_input == "logits":
                known[name] = rows[0].reliability_logits[name]
        logits = {name: known[name] if name in known else value(seen) for name, value in fitted.items()}
        mrc = log_probabilities, test.decision, logits["mrp"]
        rows.append(
            ProjectedDecisions(
                calibrator=fit.calibrator,
                decision=test.decision.copy(),
                log_probabilities=log_probabilities,
                reliability_logits=logits,
                lattices={name: value for name, value in curves.items() if isinstance(value, Curves)},
                simplex=project_simplex(*mrc, off_top_alpha=params.simplex.off_top_alpha),
                adam_above_optimum=float(gap.excess[place]),
                kkt=float(gap.kkt_residual[place]),
                violations=tuple(f"{name}: {what}" for name, value in fitted.items() for what in value.violations()),
            )
        )
    return Projected(parts.seed, rows, tuple(batch.rows_per_label.tolist()), batch.fallback, gates=[])
