"""Prefect flow: one data set, every calibrator and protocol seed, gated, measured and written."""

import os
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from prefect import flow, tags
from prefect.futures import as_completed
from prefect.states import State
from prefect.task_runners import ThreadPoolTaskRunner
from rich.progress import track

from flows.engine import alive, outcome, progress, task_runner
from flows.server import find_server, server_needed
from relmap.calibrators.registry import CALIBRATORS
from relmap.errors import InputError
from relmap.io import atomic
from relmap.projection.device import select_device
from relmap.splits import select_validation_rows
from tasks.calibrate import calibrate
from tasks.expectations.check import GateFailed, get_batch_definition
from tasks.measure import bootstrap_intervals, compare_calibrators, measure, measure_alternatives
from tasks.project import project
from tasks.provenance import lock, stage
from tasks.records import store
from tasks.records.results import SeedResults, display_name
from tasks.records.store import Base
from tasks.settings.params import Params, load_params
from tasks.validate import check_inputs, check_invariants
from tasks.write import recommend, show_gates, show_metrics, write_runs

Futures = dict[str, dict[str, Any]]  # what is made -> the place in words -> its future


def with_calibrators(params: Params, names: tuple[str, ...]) -> Params:
    """`params` with `names` for the tables; each runs once, and choices vary only under those."""
    rivals = tuple(name for name in params.rivals.calibrators if name not in names)
    varied = tuple(name for name in params.sensitivity.calibrators if name in names)
    if unknown := sorted({*names, *rivals, *params.sensitivity.calibrators} - set(CALIBRATORS)):
        raise InputError(f"no calibrator {', '.join(unknown)}; there are {', '.join(CALIBRATORS)}")
    sections = (("rivals", rivals), ("sensitivity", varied))
    chosen = {name: getattr(params, name).model_copy(update={"calibrators": of}) for name, of in sections}
    return params.model_copy(update={"calibrators": names, **chosen})


def submit_all(base: Base, params: Params, device: str, seeds: Sequence[int], runs: list[list[Base]]) -> Futures:
    """Everything that the data set asks for; with as many model `runs` as protocol seeds, each seed has one of its own.

    Otherwise the first run is that of every seed.
    """
    names, rivals = [*params.calibrators, *params.rivals.calibrators], params.rivals.calibrators
    few, own = params.rivals.rows, params.calibrator_settings.get(base.name, {})
    twice = tuple(2 * rows for rows in few)
    on_both = calibrate.with_options(task_run_name="calibrate/{calibrator}/{seed}/both parts")
    of_member = calibrate.with_options(task_run_name="calibrate/{calibrator}/{seed}/member")
    paired = dict(zip(params.seeds, runs, strict=True)) if len(runs) == len(params.seeds) else {}
    cuts = [select_validation_rows(base.validation, seed, params.protocol) for seed in seeds]
    steps = params.rivals.row_counts(min(len(parts.calibrator_fit) for parts in cuts))
    made: Futures = defaultdict(dict, gates={"incoming": check_inputs.submit(base.name)})
    for parts in cuts:
        seed, run = f"seed {parts.seed}", paired.get(parts.seed, runs[0] if runs else [])
        fits = [calibrate.submit(parts, name, parts.seed, few, own.get(name)) for name in names]
        both_parts = [
            on_both.submit(parts.interleaved_fit_rows, name, parts.seed, twice, own.get(name)) for name in rivals
        ]
        projected = project.submit(fits, parts, base.test, params, device, wait_for=[made["gates"]["incoming"]])
        gated = check_invariants.submit(projected, fits, base.name, params.metrics.ece_bins)
        of_run = [
            [of_member.submit(rows, name, parts.seed, (), own.get(name)) for name in names]
            for rows in (select_validation_rows(member.validation, parts.seed, params.protocol) for member in run)
        ]
        places = [f"{name}, {seed}" for name in names] + [f"{name} on both parts, {seed}" for name in rivals]
        places += [f"{name} of member {member}, {seed}" for member in range(len(run)) for name in names]
        made["fits"] |= zip(places, [*fits, *both_parts, *chain.from_iterable(of_run)], strict=True)
        made["projected"][seed] = gated
        tests = [member.test for member in run]
        made["metrics"][seed] = measure.submit(gated, base.test.labels, params.metrics, tests, of_run)
        made["rivals"][seed] = compare_calibrators.submit(fits, both_parts, steps, parts, base.test, params, device)
        made["sensitivity"][seed] = measure_alternatives.submit(gated, fits, parts, base, params, device)
    projected, metrics = list(made["projected"].values()), list(made["metrics"].values())
    intervals = bootstrap_intervals.submit(projected, metrics, base.test, params.calibrators, params.metrics)
    return made | {"intervals": {"all seeds": intervals}}


def gates_reached(made: Futures) -> list[dict[str, Any]]:
    """The records of all gates that were reached, passed or not."""
    records: list[dict[str, Any]] = []
    for future in (*made["gates"].values(), *made["projected"].values()):
        match future.result(raise_on_failure=False) if future.state.is_final() else None:
            case GateFailed(record=record) | dict(record):
                records.append(record)
            case SeedResults(gate_records=gates):
                records += gates
    return records


def keep_failed(base: Base, gates: list[dict[str, Any]]) -> None:
    """Keep the records of the gates of which one has failed, for the report; if there are none, what was kept goes."""
    kept = store.failed_gates_file(base.name)
    if gates:
        atomic.write_json(kept, {"dataset": base.name, "source": base.source, "gates": gates})
    else:
        kept.unlink(missing_ok=True)


@flow(flow_run_name="reliability/{dataset}", task_runner=ThreadPoolTaskRunner(max_workers=2))
def reliability(dataset: str, seeds: list[int] | None = None, calibrators: list[str] | None = None) -> None:
    """Calibrate, project, check and measure the fixed decisions of `dataset`.

    Writes `data/runs/<dataset>/`, which is DVC's; of chosen seeds or calibrators, `data/explored/<dataset>/`. Ends with
    the verdict in words.
    """
    with alive():
        params = load_params()
        chosen = calibrators or params.dataset(dataset).calibrators or params.calibrators
        params = with_calibrators(params, tuple(chosen))
        if params.dataset(dataset).preset:  # in the paper every label stands on its own rows, however few
            params = params.model_copy(update={"projection": params.projection.model_copy(update={"minimum_rows": 0})})
        base, device = store.read_base(dataset), select_device(os.environ.get("MRP_DEVICE"))
        with tags(dataset, base.source):
            made = submit_all(base, params, device, seeds or params.seeds, store.read_members(dataset))
            futures = [future for of in made.values() for future in of.values()]
            advance = progress(dataset, len(futures), "tasks that have finished")  # on the page of the run
            for _ in track(as_completed(futures), f"{dataset:>19}", total=len(futures)):
                advance()
        reached, explored = gates_reached(made), bool(seeds or calibrators)
        failed = not all(record["success"] for record in reached)
        if failed:
            show_gates(base, reached)
        if not explored:
            keep_failed(base, reached if failed else [])
        results = {
            what: [outcome(future, f"{dataset}, {what}, {place}") for place, future in futures.items()]
            for what, futures in made.items()
        }
        for sentence in chain.from_iterable(seed.describe_fallbacks(base.labels) for seed in results["projected"]):
            print(f"{dataset}, {sentence}")
        states = [fit.state.name for fit in made["fits"].values()]
        reused = states.count("Cached")
        fits = {"calibrators_fitted": len(states) - reused, "calibrators_reused": reused}
        folder = store.explored_folder(dataset) if explored else store.runs_folder(dataset)
        with lock.hold_lock(f"explored@{dataset}") if explored else nullcontext():  # the stage has a lock of its own
            show_metrics(base, write_runs(base, results, params, {"device": device}, folder), folder)
            said = recommend(base, params, folder, None if explored else store.metrics_file(dataset))
        # beside the results, which are the same however many were fitted
        atomic.write_json(store.STATE / "fits" / folder.relative_to(store.DATA).with_suffix(".json"), fits)
        for sentence in said:
            print(f"{display_name(dataset, base.source)}: {sentence}")
        if params.dask.address is None:  # workers elsewhere store their fits where they are
            files = stored_files([fit.state for fit in made["fits"].values()])
            warn_not_stored(dataset, files)
            note_use(files)


def stored_files(states: list[State]) -> list[Path]:
    """Return where Prefect stores the results of tasks.

    Args:
        states: Final states of the tasks, all completed.

    Returns:
        A path for each. A file that could not be written is missing, which Prefect only writes to its log.
    """
    records: list[Any] = [state.data for state in states]  # Prefect's type of a stored result is private
    return [Path(record.metadata.storage_key) for record in records]


def warn_not_stored(dataset: str, files: list[Path]) -> None:
    """Print how many calibrator fits could not be stored.

    Args:
        dataset: Data set of the run.
        files: Where its fits should be.
    """
    missing = [file for file in files if not file.exists()]
    if missing:
        print(
            f"Warning, {dataset}: {len(missing)} of {len(files)} calibrator fits could not be stored in "
            f"{missing[0].parent}. The results are complete, but the next run fits these calibrators again. Make sure "
            "that the folder can be written and that the disk has free space."
        )


def note_use(files: list[Path]) -> None:
    """Set the time of the last access of stored fits, by which `flows.prune` tells which are still in use.

    Most systems do not keep that time by themselves. The time of the last change stays.
    """
    for file in files:
        with suppress(OSError):  # it is missing, or another user's
            os.utime(file, ns=(time.time_ns(), file.stat().st_mtime_ns))


def main(
    dataset: Annotated[str, typer.Argument(help="A key of `datasets` in params.yaml.")],
    seed: Annotated[list[int] | None, typer.Option(min=0, help="Only this protocol seed; may be repeated.")] = None,
    calibrator: Annotated[list[str] | None, typer.Option(help="Only this calibrator; may be repeated.")] = None,
) -> None:
    """The stage `reliability` of one data set; of chosen seeds or calibrators, no stage of DVC."""
    with nullcontext() if seed or calibrator else stage.run_stage(f"reliability@{dataset}"):
        params = load_params()  # a mistake is said before a server starts
        with_calibrators(params, tuple(calibrator or params.dataset(dataset).calibrators or params.calibrators))
        find_server()  # that of this run's own would not do for Dask
        run = reliability.with_options(task_runner=task_runner(params))
        # while a server comes up there is time to import what the gates need
        with server_needed(get_batch_definition), tags(dataset, *(["dvc"] if "DVC_STAGE" in os.environ else [])):
            run(dataset, seed, calibrator)


if __name__ == "__main__":
    stage.run_command(main, "reliability")
