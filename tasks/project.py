"""Prefect task: fit every variant for all calibrators of one protocol seed."""

from collections.abc import Mapping
from dataclasses import replace

from prefect import task

from relmap.decisions import CalibratedDecisions, ProtocolDecisions, clip_log_probabilities, clip_logits
from relmap.projection.mrp import Curves, ReliabilityModel, SharedCurve
from relmap.projection.registry import fit_variants
from relmap.projection.rows import FitBatch, ValidationRows, measure_optimality_gap
from relmap.projection.simplex import project_simplex
from tasks.records.durations import measured
from tasks.results.values import CalibratorFit, ProjectedDecisions, SeedResults
from tasks.settings.params import Params


@task(task_run_name="project/{parts.seed}", tags=["gpu"])
@measured("fit")
def project(
    fits: list[CalibratorFit], parts: ValidationRows, test: ProtocolDecisions, params: Params, device: str
) -> SeedResults:
    """Fit every variant on the projection-fit rows of one seed, and score the test rows.

    Confidences, probabilities and reliabilities are clipped to the bounds of `params.protocol.clip`, so that rows
    beyond them tie.

    Args:
        fits: Fitted calibrators of the seed; calibrators of the tables come first.
        parts: Validation rows of the seed.
        test: Test rows.
        params: Settings.
        device: Device of the lattices.

    Returns:
        Results of the seed, without gate records.
    """
    clip = params.protocol.clip
    models = [fit.model for fit in fits]
    batch = FitBatch.from_validation_rows(models, parts, params.projection, device, smallest_probability=clip)
    batch = replace(batch, n_surfaces=len(params.calibrators))  # surfaces take most time, and only tables show them
    models_by_variant = fit_variants(batch)
    gap = measure_optimality_gap(batch)
    projections: list[ProjectedDecisions] = []
    for index, fit in enumerate(fits):
        variants = {}
        for variant, fitted in models_by_variant.items():
            if index < len(fitted):  # surfaces are fitted for the calibrators of the tables only
                variants[variant] = fitted[index]
        calibrated = CalibratedDecisions.from_calibrator(fit.model, test)
        log_probabilities = calibrated.log_probabilities
        assert log_probabilities is not None
        clipped = calibrated.clip(clip)
        reliability_logits = {variant: clip_logits(model(clipped), clip) for variant, model in variants.items()}
        simplex = project_simplex(
            clip_log_probabilities(log_probabilities, clip),
            test.decision,
            reliability_logits["mrp"],
            off_top_alpha=params.simplex.off_top_alpha,
        )
        projections.append(
            ProjectedDecisions(
                calibrator=fit.calibrator,
                decision=test.decision.copy(),  # a gate refuses arrays that share memory
                log_probabilities=log_probabilities,
                reliability_logits=reliability_logits,
                lattices=_select_curves(variants),
                simplex=simplex,
                objective_excess=float(gap.excess[index]),
                kkt_residual=float(gap.kkt_residual[index]),
                violations=_list_violations(variants),
            )
        )
    return SeedResults(
        seed=parts.seed,
        projections=projections,
        rows_per_label=tuple(batch.rows_per_label.tolist()),
        fallbacks=batch.fallback,
        gate_records=[],
    )


def _select_curves(models: Mapping[str, ReliabilityModel]) -> dict[str, Curves]:
    """Return the curves of the variants that are curves."""
    lattices = {}
    for variant, model in models.items():
        curves = model.curves if isinstance(model, SharedCurve) else model
        if isinstance(curves, Curves):
            lattices[variant] = curves
    return lattices


def _list_violations(models: Mapping[str, ReliabilityModel]) -> tuple[str, ...]:
    violations = []
    for variant, model in models.items():
        violations += [f"{variant}: {violation}" for violation in model.violations()]
    return tuple(violations)
