"""What the pipeline computes, called one after the other in one process: no flow, no server, no thread, nothing kept.

In a project's folder, `python bare.py` does what `make repro` does. Prefect is imported, since its decorators stand on
the functions.
"""

from contextlib import nullcontext
from unittest.mock import patch

from prefect import Task

import flows.report
import tasks.report
from flows.reliability import with_calibrators
from relmap.splits import select_validation_rows
from tasks import download, train
from tasks.calibrate import calibrate
from tasks.measure import bootstrap_intervals, compare_calibrators, measure, measure_alternatives
from tasks.project import project
from tasks.records.store import read_base, runs_folder
from tasks.settings.params import load_params
from tasks.validate import check_inputs, check_invariants
from tasks.write import write_runs


def reliability(dataset: str) -> None:
    """What the flow of this name makes of one data set."""
    params = load_params()
    params = with_calibrators(params, params.dataset(dataset).calibrators or params.calibrators)
    base, rivals, few = read_base(dataset), params.rivals.calibrators, params.rivals.rows
    cuts = [select_validation_rows(base.validation, seed, params.protocol) for seed in params.seeds]
    own = params.calibrator_settings.get(dataset, {})
    steps = params.rivals.row_counts(min(len(parts.calibrator_fit) for parts in cuts))
    made = {"gates": [check_inputs.fn(dataset)], "projected": [], "metrics": [], "rivals": [], "sensitivity": []}
    for parts in cuts:
        seed = parts.seed
        fits = [calibrate.fn(parts, name, seed, few, own.get(name)) for name in (*params.calibrators, *rivals)]
        twice = tuple(2 * rows for rows in few)
        both = [calibrate.fn(parts.interleaved_fit_rows, name, seed, twice, own.get(name)) for name in rivals]
        projected = project.fn(fits, parts, base.test, params, "cpu")
        gated = check_invariants.fn(projected, fits, dataset, params.metrics.ece_bins)
        made["projected"].append(gated)
        made["metrics"].append(measure.fn(gated, base.test.labels, params.metrics))
        made["rivals"].append(compare_calibrators.fn(fits, both, steps, parts, base.test, params, "cpu"))
        made["sensitivity"].append(measure_alternatives.fn(gated, fits, parts, base, params, "cpu"))
    intervals = bootstrap_intervals.fn(
        made["projected"], made["metrics"], base.test, params.calibrators, params.metrics
    )
    write_runs.fn(base, made | {"intervals": [intervals]}, params, {"device": "cpu"}, runs_folder(dataset))


def report() -> None:
    """The flow `report` with functions in place of its tasks; what they show in the Prefect UI is shown to nobody."""
    functions = {name: each.fn for name, each in vars(flows.report).items() if isinstance(each, Task)}
    functions["_hide_from_prefect"] = lambda value: value
    shows = {name: lambda *_, **__: None for name in vars(tasks.report) if name.startswith("create_")}
    with (
        patch.multiple(flows.report, hold_run_lock=nullcontext, start_progress=lambda *_: lambda: None, **functions),
        patch.multiple(tasks.report, **shows),
    ):
        flows.report.report.fn()


def everything() -> None:
    """From raw files to the report, into `data/`."""
    for dataset in load_params().datasets:
        download.main(dataset)
        train.main(dataset)
        reliability(dataset)
    report()


if __name__ == "__main__":
    everything()
