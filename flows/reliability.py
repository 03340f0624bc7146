"""Prefect flow: one data set, every calibrator and protocol seed, gated, measured and written."""

from __future__ import annotations

import os
import sys
from typing import Any

from prefect import flow
from prefect.futures import as_completed
from prefect.task_runners import ThreadPoolTaskRunner
from rich.progress import track

from tasks.bound import bound
from tasks.calibrate import calibrate
from tasks.calibrators import CALIBRATORS
from tasks.compare import compare
from tasks.expectations.check import GateFailed
from tasks.measure import measure
from tasks.project import project
from tasks.projection.device import available_device
from tasks.protocol.errors import BadInput
from tasks.protocol.keys import ALTERNATIVE_OF
from tasks.protocol.params import Params, load_params
from tasks.protocol.splits import ValidationRows, validation_rows
from tasks.protocol.store import Base, read_base
from tasks.validate import known, unchanged
from tasks.vary import vary
from tasks.write import write_runs

Futures = dict[str, list[Any]]  # what a task makes -> its futures, one for each protocol seed


def with_calibrators(params: Params, names: tuple[str, ...]) -> Params:
    """`params` with `names` for the tables; each runs once, and an alternative only beside what it is one to."""
    rivals = tuple(name for name in params.rivals.calibrators if name not in names)
    others = [name for name in params.sensitivity.calibrators if name not in names]
    beside = tuple(name for name in others if ALTERNATIVE_OF.get(name, names[0]) in names)
    unknown = sorted({*names, *rivals, *others} - set(CALIBRATORS))
    if unknown:
        raise BadInput(f"no calibrator {', '.join(unknown)}; there are {', '.join(CALIBRATORS)}")
    return params.model_copy(
        update={
            "calibrators": names,
            "rivals": params.rivals.model_copy(update={"calibrators": rivals}),
            "sensitivity": params.sensitivity.model_copy(update={"calibrators": beside}),
        }
    )


def submit(
    parts: ValidationRows, steps: tuple[int, ...], base: Base, params: Params, device: str, incoming: Any
) -> Futures:
    """Everything that one protocol seed asks for; calibrators are compared at `steps` rows."""
    rivals, few = params.rivals.calibrators, params.rivals.rows
    compared = [
        calibrate.submit(parts.calibrator_fit, name, parts.seed, few) for name in [*params.calibrators, *rivals]
    ]
    varied = [calibrate.submit(parts.calibrator_fit, name, parts.seed) for name in params.sensitivity.calibrators]
    on_both = calibrate.with_options(task_run_name="calibrate/{calibrator}/{seed}/both parts")
    both_parts = [on_both.submit(parts.both_fits, name, parts.seed, tuple(2 * rows for rows in few)) for name in rivals]
    fits = [*compared, *varied]
    projected = project.submit(fits, parts, base.test, params, device, wait_for=[incoming])
    gated = unchanged.submit(projected, fits, base.name, params.metrics.ece_bins)
    return {
        "fits": [*fits, *both_parts],
        "projected": [gated],
        "metrics": [measure.submit(gated, base.test.labels, params.metrics)],
        "rivals": [compare.submit(compared, both_parts, steps, parts, base.test, params, device)],
        "sensitivity": [vary.submit(gated, fits, parts, base.test, params, device)],
    }


@flow(flow_run_name="reliability/{dataset}", task_runner=ThreadPoolTaskRunner(max_workers=2))
def reliability(dataset: str, seeds: list[int] | None = None, calibrators: list[str] | None = None) -> None:
    """Calibrate, project, check and measure the fixed decisions of `dataset`; writes `data/runs/<dataset>/`."""
    params = load_params()
    chosen = calibrators or params.dataset(dataset).calibrators or params.calibrators
    params = with_calibrators(params, tuple(chosen))
    base, device = read_base(dataset), available_device(os.environ.get("MRP_DEVICE"))
    cuts = [
        validation_rows(base.validation, seed, params.protocol, base.validation_groups())
        for seed in seeds or params.seeds
    ]
    if params.projection.selection == "best" and not all(len(parts.projection_selection) for parts in cuts):
        raise BadInput(
            f"{dataset}: projection.selection is best, but a seed has no projection-selection rows; say last"
        )
    steps = params.rivals.asked(min(len(parts.calibrator_fit) for parts in cuts))
    incoming = known.submit(dataset)
    by_seed = [submit(parts, steps, base, params, device, incoming) for parts in cuts]
    futures = {name: [one for seed in by_seed for one in seed[name]] for name in by_seed[0]}
    futures["intervals"] = [
        bound.submit(futures["projected"], futures["metrics"], base.test, params.calibrators, params.metrics)
    ]
    submitted = [incoming, *(one for some in futures.values() for one in some)]
    for _ in track(as_completed(submitted), f"{dataset:>19}", total=len(submitted)):
        pass  # the bar moves as they finish; what failed is raised below
    gates = [incoming.result()]  # raises what closed the gate
    fits = futures.pop("fits")
    reused = [fit.result() is not None and fit.state.name == "Cached" for fit in fits]  # a failed fit is told first
    provenance = {"device": device, "calibrators_fitted": reused.count(False), "calibrators_reused": reused.count(True)}
    results = {name: [one.result() for one in some] for name, some in futures.items()}
    for sentence in (one for seed in results["projected"] for one in seed.fallbacks(base.labels)):
        print(f"{dataset}, {sentence}")
    write_runs(base, gates, results, params, provenance)


if __name__ == "__main__":
    try:
        reliability(sys.argv[1])
    except (BadInput, GateFailed) as error:
        sys.exit(f"reliability: {error}")
