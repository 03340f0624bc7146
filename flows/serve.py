"""Command `python -m flows.serve`: serve the deployments of this project, and their schedule.

The deployments are the refresh with its schedule, and runs of chosen data sets. They use the Prefect API server in
PREFECT_API_URL, or else one that this command starts.
"""

import asyncio
import logging
import signal
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, TypeAlias
from uuid import UUID

import typer
from prefect import flow, get_client, tags
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.responses import DeploymentResponse
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound
from prefect.runner import Runner
from prefect.runner.storage import LocalStorage
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL
from prefect.states import Scheduled
from pydantic import Field

from flows import ROOT
from flows.engine import create_task_runner, hold_run_lock, mark_crashed_runs
from flows.refresh import refresh
from flows.server import ADDRESS_FILE, SECRET_FILE, create_prefect_home, find_server, serve_api
from relmap.calibrators.registry import CALIBRATORS
from relmap.errors import InputError
from tasks.provenance.stage import run_command
from tasks.records.errors import RunFailed
from tasks.records.store import STATE
from tasks.settings.params import Params, load_params

DEFAULT_PORT = 4200
POLL_SECONDS = 2  # until a requested run starts

# The form offers the content of the registry, which the type checker does not know.
CalibratorName: TypeAlias = Literal[tuple(CALIBRATORS)]  # type: ignore[valid-type]
Seed = Annotated[int, Field(ge=0)]


@flow(name="reliabilities", flow_run_name=lambda: f"reliabilities/{'+'.join(flow_run.parameters['datasets'])}")
def reliabilities(
    datasets: Annotated[list[str], Field(min_length=1)],
    seeds: Annotated[list[Seed], Field(min_length=1)] | None = None,
    calibrators: Annotated[list[CalibratorName], Field(min_length=1)] | None = None,
) -> None:
    """Calibrate, project, check and measure trained data sets, with seeds and calibrators of your choice.

    The results are written to `data/explored/`, one folder for each data set; outputs of DVC do not change. If a data
    set fails, the others finish.

    Args:
        datasets: Names of data sets in params.yaml, one run each.
        seeds: Protocol seeds, 0 or more (default: as in params.yaml).
        calibrators: Names of calibrators (default: as in params.yaml).

    Raises:
        RunFailed: A data set failed. Raised at the end, with all reasons.
    """
    from flows.reliability import reliability  # noqa: PLC0415 - takes seconds, and no other run needs it

    params = load_params()
    reliability_flow = reliability.with_options(task_runner=create_task_runner(params))
    explicit_seeds = seeds or list(params.seeds)  # with explicit seeds, the flow does not write the outputs of DVC
    explicit_calibrators = list(calibrators) if calibrators else None
    failures = []
    with hold_run_lock():
        for name in dict.fromkeys(datasets):
            try:
                with tags(name):
                    reliability_flow(name, explicit_seeds, explicit_calibrators)
            except (InputError, RunFailed) as error:
                failures.append(f"{name}: {error}")
    if failures:
        raise RunFailed("\n  ".join(["not every data set finished:", *failures]))


def create_deployments(params: Params) -> list[RunnerDeployment]:
    """Create all deployments: the refresh with its schedule, and the runs of chosen data sets on demand.

    Args:
        params: Parameters of params.yaml.

    Returns:
        The deployments.
    """
    # typed as awaitables too, but synchronous code gets the deployments
    deployments: list[Any] = [
        refresh.to_deployment("refresh", cron=params.schedule.refresh, concurrency_limit=1),
        reliabilities.to_deployment("reliability"),
    ]
    return deployments


def register_for_pool(deployments: Sequence[RunnerDeployment], pool: str) -> None:
    """Register deployments for the workers of a pool, which find the code under the same path.

    Args:
        deployments: Deployments.
        pool: Name of the work pool.

    Raises:
        InputError: No server is running.
    """
    find_server()
    if PREFECT_API_URL.value() is None:
        raise InputError("a work pool needs a running server; set PREFECT_API_URL to its address")
    keep_ui_schedules(deployments)
    for deployment in deployments:
        deployment.storage = LocalStorage(str(ROOT))
        deployment.apply(work_pool_name=pool)
    names = ", ".join(deployment.name for deployment in deployments)
    print(f"{names} now wait for a worker: `prefect worker start --pool {pool}`")


def serve(deployments: Sequence[RunnerDeployment], port: int) -> None:
    """Start requested and scheduled runs until Ctrl-C or SIGTERM, with a UI in the browser.

    Args:
        deployments: Deployments.
        port: Port of a new server.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start this process with SIGINT ignored
    # SIGTERM is handled as Ctrl-C, so that the child processes end with either signal
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    with serve_api(port) as url:
        n_crashed = mark_crashed_runs()
        if n_crashed:
            print(f"runs of killed processes, now marked as crashed: {n_crashed}")
        names = ", ".join(deployment.name for deployment in deployments)
        print(f"Prefect UI: {url.removesuffix('/api')}, serving {names}; stop it with Ctrl-C")
        if SECRET_FILE.exists():
            print(f"the page asks once for the secret in {SECRET_FILE.absolute()}, which only you can read")
        keep_ui_schedules(deployments)
        asyncio.run(run_until_stopped(deployments))
        logging.shutdown()  # sends the last log lines while the server is running


def keep_ui_schedules(deployments: Sequence[RunnerDeployment]) -> None:
    """Keep the schedules that the server has, since users change them in the UI.

    Deployments that are new to the server get their schedules from params.yaml.

    Args:
        deployments: Deployments that are about to be registered.
    """
    with get_client(sync_client=True) as client:
        for deployment in deployments:
            try:
                registered = client.read_deployment_by_name(deployment.full_name)
            except ObjectNotFound:
                continue
            if deployment.schedules or registered.schedules:
                print(f"{deployment.name} keeps the schedule of the UI: {_describe_schedules(registered)}")
            deployment.schedules = None
            deployment.model_fields_set.difference_update({"paused", "schedules"})  # not sent to the server


def _describe_schedules(deployment: DeploymentResponse) -> str:
    """Describe the schedules of a deployment, and which of them are paused."""
    texts = []
    for entry in deployment.schedules:
        is_paused = deployment.paused or not entry.active
        times = entry.schedule.model_dump(mode="json", include={"cron", "interval", "rrule", "timezone"})
        text = " ".join(f"{name} {value}" for name, value in times.items() if value is not None)
        texts.append(f"{text} (paused)" if is_paused else text)
    return ", ".join(texts) or "none"


class StoppableRunner(Runner):
    """Prefect runner that stops in the same way at Ctrl-C and SIGTERM.

    It cancels its runs, and ends their child processes. Prefect's own runner ends at Ctrl-C without informing the
    server, which then shows the runs as running for ever. At SIGTERM it ends before it has stopped everything.
    https://github.com/PrefectHQ/prefect/issues/16746 is the report.
    """

    async def __aenter__(self) -> Self:
        # Prefect's own folder is in /tmp/runner_storage, which may belong to another user
        self._tmp_dir = (STATE / "runner" / self._tmp_dir.name).absolute()
        await super().__aenter__()
        loop = asyncio.get_running_loop()
        for stop_signal in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(stop_signal, self.execute_in_background, self.astop)
        return self


async def run_until_stopped(deployments: Sequence[RunnerDeployment]) -> None:
    """Register deployments, and start their runs when they are requested or scheduled.

    Args:
        deployments: Deployments.
    """
    runner = StoppableRunner(query_seconds=POLL_SECONDS, pause_on_shutdown=False)
    deployment_ids = [await runner.aadd_deployment(deployment) for deployment in deployments]
    # Only on the server of this process: elsewhere, other processes may be about to start these runs.
    if ADDRESS_FILE.exists():
        await reschedule_lost_runs(deployment_ids)
    await runner.start()


async def reschedule_lost_runs(deployment_ids: list[UUID]) -> None:
    """Schedule runs again that a killed `flows.serve` had marked as pending but not started.

    Args:
        deployment_ids: Identifiers of the deployments whose runs this process starts.
    """
    is_pending = FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.PENDING]))
    async with get_client() as client:
        lost = await client.read_flow_runs(
            flow_run_filter=FlowRunFilter(state=is_pending),
            deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=deployment_ids)),
        )
        for run in lost:
            await client.set_flow_run_state(run.id, Scheduled(), force=True)
    if lost:
        print(f"runs of a killed process that had not started, now scheduled again: {len(lost)}")


def main(
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port of the server, if none is running yet.")
    ] = DEFAULT_PORT,
    work_pool: Annotated[
        str | None, typer.Option(help="Register the deployments for the workers of this pool, and exit.")
    ] = None,
) -> None:
    """Serve every deployment, and the refresh on its schedule."""
    create_prefect_home()
    deployments = create_deployments(load_params())
    if work_pool is None:
        serve(deployments, port)
    else:
        register_for_pool(deployments, work_pool)


if __name__ == "__main__":
    run_command(main, "serve")
