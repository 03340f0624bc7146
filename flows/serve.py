"""Prefect deployments: `python -m flows.serve` is the command that starts schedule, forms and server.

It serves the refresh on its schedule, single data sets and each rerank command with a form, on its own API server or
that of PREFECT_API_URL. A form refuses what its types do not allow before a run exists. A run shows what it found.
"""

import asyncio
import inspect
import logging
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Self
from uuid import UUID

import typer
from prefect import Flow, flow, get_client, tags
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.deployments.runner import RunnerDeployment
from prefect.runner import Runner
from prefect.runner.storage import LocalStorage
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL
from prefect.states import Scheduled
from prefect.utilities.callables import parameter_schema
from pydantic import Field

from flows import ROOT
from flows.engine import alive, mark_crashed, task_runner
from flows.forms import FOLDER, RERANK, CalibratorName, Seed, choose, deployed, explain
from flows.logs import output_logged
from flows.notifications import HOOKS
from flows.refresh import main as refresh_command
from flows.refresh import refresh
from flows.server import FOUND, SECRET, api_server, find_server, own_home
from relmap.errors import InputError
from tasks.provenance.stage import run_command
from tasks.records.errors import RunFailed
from tasks.records.store import STATE
from tasks.settings.params import Params, load_params

LOG = STATE / "serve.log"  # what runs printed
OPEN = "Ask for no secret: every user of this machine can then start runs, which read and write as you do."


@flow(
    name="reliabilities",
    flow_run_name=lambda: f"reliabilities/{'+'.join(flow_run.parameters['datasets'])}",
    **HOOKS,
)
def reliabilities(
    datasets: Annotated[list[str], Field(min_length=1)],
    seeds: Annotated[list[Seed], Field(min_length=1)] | None = None,
    calibrators: Annotated[list[CalibratorName], Field(min_length=1)] | None = None,
) -> None:
    """Calibrate, project, check and measure data sets that are trained, under seeds and calibrators of your choice.

    The results go to `data/explored/`, a folder for each data set; `refresh` alone changes what DVC keeps. Where a data
    set fails, the others finish; RunFailed then holds every reason.

    Args:
        datasets: Names of data sets in params.yaml, one run each.
        seeds: Protocol seeds, 0 or more; those of params.yaml if left out.
        calibrators: Names of calibrators; those of params.yaml if left out.
    """
    from flows.reliability import reliability  # noqa: PLC0415 - takes seconds, and no other run needs it

    params = load_params()
    run = reliability.with_options(task_runner=task_runner(params))
    seeds = seeds or list(params.seeds)  # said aloud, so that no run writes where DVC does
    wrong = []
    with alive():
        for name in dict.fromkeys(datasets):
            try:
                with tags(name):
                    run(name, seeds, list(calibrators) if calibrators else None)
            except (InputError, RunFailed) as error:
                wrong.append(f"{name}: {error}")
    if wrong:
        raise RunFailed("\n  ".join(["not every data set finished:", *wrong]))


def deployments(params: Params) -> list[RunnerDeployment]:
    """Everything that is served: the refresh on its schedule, and the rest on demand."""
    explain(refresh, inspect.signature(refresh_command).parameters.values())
    scheduled = deployed(refresh, "refresh", cron=params.schedule.refresh, concurrency_limit=1)
    chosen = deployed(knowing(params.datasets), "reliability")
    return [scheduled, chosen, *(deployed(form, form.name) for form in RERANK)]


def knowing(datasets: Iterable[str]) -> Flow[..., None]:
    """`reliabilities`, whose form offers these data sets alone: it cannot know them at import, when nothing is read."""
    form, asked = reliabilities.with_options(), inspect.signature(reliabilities)
    offered = Field(min_length=1, json_schema_extra={"items": {"type": "string", "enum": list(datasets)}})
    parameters = dict(asked.parameters)
    parameters["datasets"] = parameters["datasets"].replace(annotation=Annotated[list[str], offered])
    form.__signature__ = asked.replace(parameters=list(parameters.values()))  # type: ignore[attr-defined]
    form.parameters = parameter_schema(form)
    return form


def hand_over(made: list[RunnerDeployment], pool: str) -> None:
    """Register the deployments for the workers of a pool, which find the code in a folder with our path."""
    find_server()
    if PREFECT_API_URL.value() is None:
        raise InputError("a work pool needs a running server; set PREFECT_API_URL to its address")
    for deployment in made:
        deployment.storage = LocalStorage(str(ROOT))
        deployment.apply(work_pool_name=pool)
    print(f"{', '.join(each.name for each in made)} now wait for a worker: `prefect worker start --pool {pool}`")


def serve(made: list[RunnerDeployment], port: int, open_to_all: bool) -> None:
    """Start what is asked for or due until a Ctrl-C or SIGTERM, with a UI in the browser."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts us in the background ignores it
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # so that either ends all we start
    with output_logged(LOG), api_server(port, open_to_all) as url:
        if lost := mark_crashed():
            print(f"runs that were left as running by a killed process, and are now marked as crashed: {lost}")
        print(f"Prefect UI: {url.removesuffix('/api')}, serving {', '.join(of.name for of in made)}; Ctrl-C ends it")
        if SECRET.exists():
            print(f"the page asks once for the secret in {SECRET.absolute()}, which nobody but you can read")
        asyncio.run(run_until_ended(made))
        logging.shutdown()  # the last words reach the server while it is there


class Serving(Runner):
    """Prefect's runner, which Ctrl-C and SIGTERM end alike: runs are cancelled with all they started, schedules paused.

    Left alone, it ends at a Ctrl-C without a word to the server, on whose page the runs go on for ever, and at a
    SIGTERM it forgets to await its own end.
    """

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        for received in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(received, self.execute_in_background, self.astop)
        return self


async def run_until_ended(made: list[RunnerDeployment]) -> None:
    """Register the deployments, and start their runs as they are asked for or due."""
    runner = Serving(query_seconds=2)  # until a run that was asked for starts
    identifiers = [await runner.aadd_deployment(deployment) for deployment in made]
    if FOUND.exists():  # on a server of somebody else, another process may be starting them
        await schedule_again(identifiers)
    await runner.start()


async def schedule_again(deployments: list[UUID]) -> None:
    """Schedule runs that a killed `flows.serve` had taken but not started; nothing else would ever start them.

    Args:
        deployments: Identifiers of the deployments whose runs this process starts.
    """
    taken = FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.PENDING]))
    async with get_client() as client:
        lost = await client.read_flow_runs(
            flow_run_filter=FlowRunFilter(state=taken),
            deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=deployments)),
        )
        for run in lost:
            await client.set_flow_run_state(run.id, Scheduled(), force=True)
    if lost:
        print(f"runs that a killed process had not started yet, and that are scheduled again: {len(lost)}")


def main(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Of the server, where none is running yet.")] = 4200,
    work_pool: Annotated[str | None, typer.Option(help="Leave the runs to the workers of this pool, and end.")] = None,
    out: Annotated[Path, typer.Option(help="The only folder in which the forms of rerank may write.")] = FOLDER,
    open_to_all: Annotated[bool, typer.Option("--open", help=OPEN)] = False,
) -> None:
    """Serve every deployment with a form and, where it has one, on its schedule."""
    own_home()
    made = deployments(load_params())
    choose(out)
    if work_pool is None:
        serve(made, port, open_to_all)
    else:
        hand_over(made, work_pool)


if __name__ == "__main__":
    run_command(main, "serve")
