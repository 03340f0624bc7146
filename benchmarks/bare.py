"""Run the pipeline in one process without flows, servers, threads or stored results.

In the folder of a project, `python bare.py` computes the results of `make repro`. Prefect is imported, since the
functions have its decorators.
"""

from contextlib import nullcontext
from unittest.mock import patch

from prefect import Task

import flows.report
import tasks.report
from flows.reliability import select_params
from relmap.projection.rows import select_validation_rows
from tasks import download, train
from tasks.calibrate import calibrate
from tasks.measure import bootstrap_intervals, compare_calibrators, measure, measure_alternatives
from tasks.project import project
from tasks.records.store import read_base, runs_folder
from tasks.settings.params import load_params
from tasks.validate import check_inputs, check_invariants
from tasks.write import write_runs


def reliability(dataset: str) -> None:
    """Compute the results of the flow for one data set."""
    params = select_params(dataset, None)
    base = read_base(dataset)
    rivals = params.rivals.calibrators
    small_sizes = params.rivals.rows
    parts_by_seed = [select_validation_rows(base.validation, seed, params.protocol) for seed in params.seeds]
    own_settings = params.calibrator_settings.get(dataset, {})
    steps = params.rivals.row_counts(min(len(parts.calibrator_fit) for parts in parts_by_seed))
    results = {"gates": [check_inputs.fn(dataset)], "projected": [], "metrics": [], "rivals": [], "sensitivity": []}
    for parts in parts_by_seed:
        seed = parts.seed
        fits = [
            calibrate.fn(parts, name, seed, small_sizes, own_settings.get(name))
            for name in (*params.calibrators, *rivals)
        ]
        double_sizes = tuple(2 * rows for rows in small_sizes)
        interleaved_fits = [
            calibrate.fn(parts.interleaved_fit_rows, name, seed, double_sizes, own_settings.get(name))
            for name in rivals
        ]
        projected = project.fn(fits, parts, base.test, params, "cpu")
        gated = check_invariants.fn(projected, fits, dataset, params.metrics.ece_bins)
        results["projected"].append(gated)
        results["metrics"].append(measure.fn(gated, base.test.label, params.metrics))
        results["rivals"].append(compare_calibrators.fn(fits, interleaved_fits, steps, parts, base.test, params, "cpu"))
        results["sensitivity"].append(measure_alternatives.fn(gated, fits, parts, base, params, "cpu"))
    intervals = bootstrap_intervals.fn(
        results["projected"], results["metrics"], base.test, params.calibrators, params.metrics
    )
    write_runs.fn(base, results | {"intervals": [intervals]}, params, {"device": "cpu"}, runs_folder(dataset))


def report() -> None:
    """Run the flow `report` with functions in place of its tasks, without artifacts of Prefect."""
    functions = {name: value.fn for name, value in vars(flows.report).items() if isinstance(value, Task)}
    functions["_hide_from_prefect"] = lambda value: value
    shows = {name: lambda *_, **__: None for name in vars(tasks.report) if name.startswith("create_")}
    with (
        patch.multiple(flows.report, hold_run_lock=nullcontext, start_progress=lambda *_: lambda: None, **functions),
        patch.multiple(tasks.report, **shows),
    ):
        flows.report.report.fn()


def everything() -> None:
    """Compute everything from raw files to the report in `data/`."""
    for dataset in load_params().datasets:
        download.main(dataset)
        train.main(dataset)
        reliability(dataset)
    report()


if __name__ == "__main__":
    everything()
