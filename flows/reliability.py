"""Prefect flow `reliability`: calibrate, project, check and measure the fixed decisions of one data set."""

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from prefect import flow, tags
from prefect.futures import PrefectFuture, as_completed
from prefect.states import State
from prefect.task_runners import ThreadPoolTaskRunner
from rich.progress import track

from flows.engine import create_task_runner, hold_run_lock, start_progress, task_result
from flows.server import ensure_server, find_server
from relmap.calibrators.registry import CALIBRATORS
from relmap.errors import InputError
from relmap.io import atomic
from relmap.projection.mrp import select_device
from relmap.projection.rows import ValidationRows, select_validation_rows
from tasks.calibrate import calibrate
from tasks.expectations.check import GateFailed, get_batch_definition
from tasks.measure import bootstrap_intervals, compare_calibrators, measure, measure_alternatives
from tasks.project import project
from tasks.provenance import lock, stage
from tasks.records import store
from tasks.records.durations import measure_block
from tasks.records.store import Base
from tasks.results.measurements import FITTED_PER_MEMBER, average_members
from tasks.results.values import SeedResults, display_name
from tasks.settings.params import Params, load_params
from tasks.validate import check_inputs, check_invariants
from tasks.write import compare, show_gates, show_metrics, write_runs

Futures = dict[str, dict[str, Any]]  # kind of result -> description of the task -> its future
GateRecords = list[dict[str, Any]]


@dataclass(frozen=True)
class Experiment:
    """Inputs of a run: data, calibrators and seeds.

    Attributes:
        base: Fixed decisions of the data set.
        members: Decisions of the ensemble members, for each run of the base predictor; may be empty.
        params: Parameters, with the calibrators of this run.
        seeds: Protocol seeds.
        device: Device of the projection.
    """

    base: Base
    members: Sequence[Sequence[Base]]
    params: Params
    seeds: Sequence[int]
    device: str

    def members_of_seed(self, seed: int) -> Sequence[Base]:
        """Return the ensemble members for a protocol seed.

        If there are as many runs of the base predictor as protocol seeds in params.yaml, each seed uses its own run.
        Otherwise all seeds use the first run.

        Args:
            seed: Protocol seed.

        Returns:
            The members; empty if there are none.
        """
        if not self.members:
            return []
        run = self.run_of_seed(seed)
        return self.members[0 if run is None else run]

    def run_of_seed(self, seed: int) -> int | None:
        """Return the run of the base predictor that belongs to a protocol seed.

        Args:
            seed: Protocol seed.

        Returns:
            Number of the run; None if runs and seeds do not correspond.
        """
        if len(self.members) == len(self.params.seeds) and seed in self.params.seeds:
            return self.params.seeds.index(seed)
        return None


@dataclass(frozen=True)
class CalibratorFutures:
    """Futures of the calibrators of one protocol seed.

    Attributes:
        fits: Each calibrator, then each class-wise rival, fitted on its rows of the protocol.
        rivals_on_both_parts: Each rival, fitted on calibrator-fit and projection-fit rows together.
        spread_fits: For each calibrator and rival, the fit on the mean probabilities of the ensemble members, or a fit
            for each member if the calibrator is in FITTED_PER_MEMBER; for the label spread. Empty without members.
    """

    fits: list[PrefectFuture[Any]]
    rivals_on_both_parts: list[PrefectFuture[Any]]
    spread_fits: list[list[PrefectFuture[Any]]]


def with_calibrators(params: Params, names: tuple[str, ...]) -> Params:
    """Choose the calibrators of the tables.

    A chosen calibrator is not fitted again as a rival. Only chosen calibrators have a sensitivity table.

    Args:
        params: Parameters of params.yaml.
        names: Calibrators.

    Returns:
        The parameters with these calibrators.

    Raises:
        InputError: A calibrator is unknown. The message lists the calibrators.
    """
    rivals = tuple(name for name in params.rivals.calibrators if name not in names)
    sensitivity_calibrators = tuple(name for name in params.sensitivity.calibrators if name in names)
    unknown = sorted({*names, *rivals, *params.sensitivity.calibrators} - set(CALIBRATORS))
    if unknown:
        raise InputError(f"unknown calibrator {', '.join(unknown)}; choose from {', '.join(CALIBRATORS)}")
    return params.model_copy(
        update={
            "calibrators": names,
            "rivals": params.rivals.model_copy(update={"calibrators": rivals}),
            "sensitivity": params.sensitivity.model_copy(update={"calibrators": sensitivity_calibrators}),
        }
    )


def select_params(dataset: str, calibrators: Sequence[str] | None) -> Params:
    """Read params.yaml, and apply the settings of one data set.

    Args:
        dataset: Key of the data set.
        calibrators: Calibrators (default: as in params.yaml).

    Returns:
        The parameters of the run.
    """
    params = load_params()
    entry = params.dataset(dataset)
    params = with_calibrators(params, tuple(calibrators or entry.calibrators or params.calibrators))
    if not entry.preset:
        return params
    # The paper fits a curve for every label, however few rows it has.
    projection = params.projection.model_copy(update={"minimum_rows": 0})
    return params.model_copy(update={"projection": projection})


def submit_tasks(experiment: Experiment) -> Futures:
    """Submit all tasks of a data set. Prefect starts each task when the results that it needs exist.

    Args:
        experiment: What to compute.

    Returns:
        Futures of the gates, fits, projections, metrics, rivals, sensitivity tables and intervals.
    """
    base = experiment.base
    params = experiment.params
    rows_by_seed = [select_validation_rows(base.validation, seed, params.protocol) for seed in experiment.seeds]
    min_fit_rows = min(len(rows.calibrator_fit) for rows in rows_by_seed)
    row_counts = params.rivals.row_counts(min_fit_rows)
    futures: Futures = defaultdict(dict)
    incoming_gate = check_inputs.submit(base.name)
    futures["gates"]["incoming"] = incoming_gate
    for rows in rows_by_seed:
        _submit_seed(experiment, rows, row_counts, incoming_gate, futures)
    projected = list(futures["projected"].values())
    metrics = list(futures["metrics"].values())
    futures["intervals"]["all seeds"] = bootstrap_intervals.submit(
        projected, metrics, base.test, params.calibrators, params.metrics
    )
    return futures


def _submit_seed(
    experiment: Experiment,
    rows: ValidationRows,
    row_counts: tuple[int, ...],
    incoming_gate: PrefectFuture[Any],
    futures: Futures,
) -> None:
    """Submit the tasks of one protocol seed, and add their futures."""
    base = experiment.base
    params = experiment.params
    device = experiment.device
    members = experiment.members_of_seed(rows.seed)
    description = f"seed {rows.seed}"

    calibrators = _submit_calibrators(experiment, rows, members, futures["fits"])
    fits = calibrators.fits
    projected = project.submit(fits, rows, base.test, params, device, wait_for=[incoming_gate])
    checked = check_invariants.submit(projected, fits, base.name, params.metrics.ece_bins)
    member_tests = [member.test for member in members]

    futures["projected"][description] = checked
    futures["metrics"][description] = measure.submit(
        checked, base.test.label, params.metrics, member_tests, calibrators.spread_fits
    )
    futures["rivals"][description] = compare_calibrators.submit(
        fits, calibrators.rivals_on_both_parts, row_counts, rows, base.test, params, device
    )
    futures["sensitivity"][description] = measure_alternatives.submit(checked, fits, rows, base, params, device)


def _submit_calibrators(
    experiment: Experiment, rows: ValidationRows, members: Sequence[Base], futures: dict[str, PrefectFuture[Any]]
) -> CalibratorFutures:
    """Submit the fits of all calibrators of one protocol seed, and add their futures under their descriptions."""
    params = experiment.params
    settings = params.calibrator_settings.get(experiment.base.name, {})
    names = [*params.calibrators, *params.rivals.calibrators]
    row_counts = params.rivals.rows
    doubled_row_counts = tuple(2 * count for count in row_counts)
    calibrate_both_parts = calibrate.with_options(task_run_name="calibrate/{calibrator}/{seed}/both parts")
    calibrate_member = calibrate.with_options(task_run_name="calibrate/{calibrator}/{seed}/member")
    seed = rows.seed

    fits = []
    for name in names:
        future = calibrate.submit(rows, name, seed, row_counts, settings.get(name))
        futures[f"{name}, seed {seed}"] = future
        fits.append(future)

    rivals_on_both_parts = []
    for name in params.rivals.calibrators:
        future = calibrate_both_parts.submit(
            rows.interleaved_fit_rows, name, seed, doubled_row_counts, settings.get(name)
        )
        futures[f"{name} on both parts, seed {seed}"] = future
        rivals_on_both_parts.append(future)

    spread_fits: list[list[PrefectFuture[Any]]] = []
    if not members:
        return CalibratorFutures(fits, rivals_on_both_parts, spread_fits)
    # as in the authors' code, the number of the run replaces the protocol seed for the label spread
    run = experiment.run_of_seed(seed)
    split_seed = seed if run is None else run
    validations = [member.validation for member in members]
    rows_of_members = [select_validation_rows(validation, split_seed, params.protocol) for validation in validations]
    mean_rows = select_validation_rows(average_members(validations), split_seed, params.protocol)
    for name in names:
        fits_of_calibrator = []
        for number, member_rows in enumerate(rows_of_members if name in FITTED_PER_MEMBER else [mean_rows]):
            future = calibrate_member.submit(member_rows, name, split_seed, (), settings.get(name))
            futures[f"{name} of members {number}, seed {seed}"] = future
            fits_of_calibrator.append(future)
        spread_fits.append(fits_of_calibrator)
    return CalibratorFutures(fits, rivals_on_both_parts, spread_fits)


def wait_for_tasks(dataset: str, futures: Futures) -> None:
    """Wait until all tasks have ended, and show the progress in the terminal and on the page of the run.

    Args:
        dataset: Key of the data set.
        futures: Futures of the tasks.
    """
    all_futures: list[PrefectFuture[Any]] = []
    for futures_of_kind in futures.values():
        all_futures += futures_of_kind.values()
    advance = start_progress(dataset, len(all_futures), "tasks that have finished")
    for _ in track(as_completed(all_futures), f"{dataset:>19}", total=len(all_futures)):
        advance()


def collect_gate_records(futures: Futures) -> GateRecords:
    """Collect the records of all gates that were reached, passed or not.

    Args:
        futures: Futures of the tasks.

    Returns:
        The records; the incoming gate comes first.
    """
    records: GateRecords = []
    for future in (*futures["gates"].values(), *futures["projected"].values()):
        if not future.state.is_final():
            continue
        result = future.result(raise_on_failure=False)
        if isinstance(result, GateFailed):
            records.append(result.record)
        elif isinstance(result, dict):  # the record of the incoming gate
            records.append(result)
        elif isinstance(result, SeedResults):
            records += result.gate_records
    return records


def store_failed_gates(base: Base, records: GateRecords) -> None:
    """Store the records of gates for the report if one has failed; otherwise remove the records of an earlier run.

    Args:
        base: Fixed decisions of the data set.
        records: Records of the gates if one has failed; otherwise empty.
    """
    path = store.failed_gates_file(base.name)
    if records:
        atomic.write_json(path, {"dataset": base.name, "source": base.source, "gates": records})
    else:
        path.unlink(missing_ok=True)


def report_gates(base: Base, futures: Futures, is_exploration: bool) -> None:
    """Show failed gates on the page of the run, and store them for the report.

    Args:
        base: Fixed decisions of the data set.
        futures: Futures of the tasks.
        is_exploration: Whether the run is not a stage of DVC. The report does not show such runs.
    """
    records = collect_gate_records(futures)
    has_failed = not all(record["success"] for record in records)
    if has_failed:
        show_gates(base, records)
    if not is_exploration:
        store_failed_gates(base, records if has_failed else [])


def collect_results(dataset: str, futures: Futures) -> dict[str, list[Any]]:
    """Return the results of all tasks. If a task has failed, its error is raised.

    Args:
        dataset: Key of the data set, for messages.
        futures: Futures of the tasks.

    Returns:
        Kind of result -> results.
    """
    results = {}
    for kind, futures_of_kind in futures.items():
        results[kind] = [task_result(future, f"{dataset}, {kind}, {task}") for task, future in futures_of_kind.items()]
    return results


def results_folder(dataset: str, is_exploration: bool) -> Path:
    """Return the folder of the results of a run.

    Args:
        dataset: Key of the data set.
        is_exploration: Whether the run is not a stage of DVC.

    Returns:
        Folder under `data/`.
    """
    return store.explored_folder(dataset) if is_exploration else store.runs_folder(dataset)


def write_results(experiment: Experiment, results: dict[str, list[Any]], is_exploration: bool) -> list[str]:
    """Write the results of a run, and show them on its page.

    Args:
        experiment: What was computed.
        results: Results of the tasks.
        is_exploration: Whether the run is not a stage of DVC.

    Returns:
        The comparison of reliability and confidence, in sentences.
    """
    base = experiment.base
    params = experiment.params
    folder = results_folder(base.name, is_exploration)
    metrics_file = None if is_exploration else store.metrics_file(base.name)
    # A stage of DVC holds a lock of its own already.
    with lock.hold_lock(f"explored@{base.name}") if is_exploration else nullcontext():
        metrics = write_runs(base, results, params, {"device": experiment.device}, folder)
        show_metrics(base, metrics, folder)
        sentences: list[str] = compare(base, params, folder, metrics_file)
    return sentences


def write_fit_counts(folder: Path, fit_states: Sequence[State]) -> None:
    """Write how many calibrators were fitted and how many fits were reused.

    The file is separate from the results, which are the same in both cases.

    Args:
        folder: Folder of the results.
        fit_states: Final states of the fits.
    """
    n_reused = sum(state.name == "Cached" for state in fit_states)
    counts = {"calibrators_fitted": len(fit_states) - n_reused, "calibrators_reused": n_reused}
    atomic.write_json(store.STATE / "fits" / folder.relative_to(store.DATA).with_suffix(".json"), counts)


@flow(flow_run_name="reliability/{dataset}", task_runner=ThreadPoolTaskRunner(max_workers=2))
def reliability(dataset: str, seeds: list[int] | None = None, calibrators: list[str] | None = None) -> None:
    """Calibrate, project, check and measure the fixed decisions of a data set, and print the comparison.

    The results are written to `data/runs/<dataset>/`, which belongs to DVC. With chosen seeds or calibrators, they are
    written to `data/explored/<dataset>/`.

    Args:
        dataset: Key of the data set.
        seeds: Protocol seeds (default: as in params.yaml).
        calibrators: Calibrators (default: as in params.yaml).
    """
    is_exploration = bool(seeds or calibrators)
    with hold_run_lock():
        params = select_params(dataset, calibrators)
        with measure_block("read"):
            base = store.read_base(dataset)
            members = store.read_members(dataset)
        experiment = Experiment(
            base=base,
            members=members,
            params=params,
            seeds=seeds or params.seeds,
            device=select_device(os.environ.get("MRP_DEVICE"), setting="MRP_DEVICE"),
        )
        with tags(dataset, base.source):
            futures = submit_tasks(experiment)
            wait_for_tasks(dataset, futures)
        report_gates(base, futures, is_exploration)
        results = collect_results(dataset, futures)
        for seed_results in results["projected"]:
            for sentence in seed_results.describe_fallbacks(base.labels):
                print(f"{dataset}, {sentence}")
        sentences = write_results(experiment, results, is_exploration)
        fit_states = [fit.state for fit in futures["fits"].values()]
        write_fit_counts(results_folder(dataset, is_exploration), fit_states)
        for sentence in sentences:
            print(f"{display_name(dataset, base.source)}: {sentence}")
        if params.dask.address is None:  # workers of a running scheduler store their fits on their own machines
            warn_not_stored(dataset, stored_files(fit_states))


def stored_files(states: Iterable[State]) -> list[Path]:
    """Return the paths where Prefect stores the results of tasks.

    Args:
        states: Final states of the tasks, all completed.

    Returns:
        A path for each task. If Prefect could not write a file, the file is missing, and Prefect has only logged this.
    """
    records: list[Any] = [state.data for state in states]  # Prefect's type of a stored result is private
    return [Path(record.metadata.storage_key) for record in records]


def warn_not_stored(dataset: str, files: Sequence[Path]) -> None:
    """Print how many calibrator fits could not be stored.

    Args:
        dataset: Key of the data set.
        files: Paths where its fits should be.
    """
    missing = [file for file in files if not file.exists()]
    if missing:
        print(
            f"Warning, {dataset}: {len(missing)} of {len(files)} calibrator fits could not be stored in "
            f"{missing[0].parent}. The results are complete, but the next run fits these calibrators again. Make sure "
            "that the folder can be written and that the disk has free space."
        )


def main(
    dataset: Annotated[str, typer.Argument(help="A key of `datasets` in params.yaml.")],
    seed: Annotated[list[int] | None, typer.Option(min=0, help="Only this protocol seed; may be repeated.")] = None,
    calibrator: Annotated[list[str] | None, typer.Option(help="Only this calibrator; may be repeated.")] = None,
) -> None:
    """Run the stage `reliability` of a data set. With chosen seeds or calibrators, run it outside of DVC."""
    is_exploration = bool(seed or calibrator)
    with nullcontext() if is_exploration else stage.run_stage(f"reliability@{dataset}"):
        params = select_params(dataset, calibrator)  # reports mistakes before a server starts
        find_server()  # Dask needs the address of a running server
        run = reliability.with_options(task_runner=create_task_runner(params))
        run_tags = [dataset, "dvc"] if "DVC_STAGE" in os.environ else [dataset]
        # The imports that gates need take as long as the server needs to start.
        with ensure_server(meanwhile=get_batch_definition), tags(*run_tags):
            run(dataset, seed, calibrator)


if __name__ == "__main__":
    stage.run_command(main, "reliability")
