"""Prefect flow: one data set, every calibrator and protocol seed, gated, measured and written."""

from __future__ import annotations

import os
import sys

from prefect import flow
from prefect.futures import as_completed
from prefect.task_runners import ThreadPoolTaskRunner
from rich.progress import track

from tasks.calibrate import calibrate
from tasks.calibrators import CALIBRATORS
from tasks.expectations.check import GateFailed
from tasks.measure import measure
from tasks.project import project
from tasks.projection.device import available_device
from tasks.projection.lattice import LatticeSettings
from tasks.protocol.errors import BadInput
from tasks.protocol.params import load_params
from tasks.protocol.splits import validation_parts
from tasks.protocol.store import read_base
from tasks.validate import known, unchanged
from tasks.write import write_runs


@flow(flow_run_name="reliability/{dataset}", task_runner=ThreadPoolTaskRunner(max_workers=2))
def reliability(dataset: str, seeds: list[int] | None = None, calibrators: list[str] | None = None) -> None:
    """Calibrate, project, check and measure the fixed decisions of `dataset`; writes `data/runs/<dataset>/`."""
    params = load_params()
    names = calibrators or list(params.calibrators)
    unknown = set(names) - set(CALIBRATORS)
    if unknown:
        raise BadInput(f"no calibrator {', '.join(sorted(unknown))}; there are {', '.join(CALIBRATORS)}")
    base = read_base(dataset)
    settings = LatticeSettings(**params.projection.model_dump())
    device = available_device(os.environ.get("MRP_DEVICE"))
    incoming = known.submit(dataset)
    fits, projections, measurements = [], [], []
    for seed in seeds or params.seeds:
        parts = validation_parts(
            len(base.validation),
            seed,
            calibrator_fit_cap=params.protocol.calibrator_fit_cap,
            projection_cap=params.protocol.projection_cap,
            group=base.validation_groups(),
        )
        fitting, projection_fit, selection = (base.validation.take(rows) for rows in parts)
        calibrated = [calibrate.submit(fitting, name, seed) for name in names]
        projected = project.submit(
            projection_fit, selection, base.test, calibrated, seed, settings, device, wait_for=[incoming]
        )
        gated = unchanged.submit(projected, calibrated, dataset, params.metrics.ece_bins)
        measurements.append(measure.submit(gated, base.test.labels, params.metrics))
        projections.append(gated)
        fits += calibrated
    submitted = [incoming, *fits, *projections, *measurements]
    for _ in track(as_completed(submitted), f"{dataset:>16}", total=len(submitted)):
        pass  # the bar moves as they finish; what failed is raised below
    reused = [fit.state.name == "Cached" for fit in fits]
    provenance = {"device": device, "calibrators_fitted": reused.count(False), "calibrators_reused": reused.count(True)}
    gates = [incoming.result()]  # raises what closed the gate
    seeds_projected, seeds_measured = ([one.result() for one in some] for some in (projections, measurements))
    write_runs(dataset, base, gates, seeds_projected, seeds_measured, provenance)


if __name__ == "__main__":
    try:
        reliability(sys.argv[1])
    except (BadInput, GateFailed) as error:
        sys.exit(f"reliability: {error}")
