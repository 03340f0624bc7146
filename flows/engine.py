"""How the runs of flows go: where their tasks run, how far they are, what failed where, and whose process is gone.

Tasks run on threads of the flow's own process, or on the workers of Dask; what they make is the same, so no stage of
DVC depends on that. What Dask asks for is checked here.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psutil
from filelock import FileLock
from prefect import get_client
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId, TaskRunFilter
from prefect.exceptions import ObjectNotFound
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL
from prefect.states import Crashed, State
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from flows.notifications import notify
from flows.server import answers
from relmap.errors import InputError
from relmap.hashing import sha256_of_file
from tasks.provenance.hashing import imported_files
from tasks.provenance.lock import is_lock_held
from tasks.provenance.manifest import library_versions
from tasks.records.errors import RunFailed
from tasks.records.store import STATE
from tasks.settings.params import DaskParams, Params

if TYPE_CHECKING:
    from distributed import LocalCluster, Scheduler, Security, Worker

RUNS = STATE / "runs"  # a lock for each run, held by its process and by nobody else

ENTRY = Path("flows/reliability.py")  # reaches all code that a worker runs
PATIENCE = 5  # seconds in which a scheduler has to answer


def task_runner(params: Params) -> TaskRunner[Any]:
    """The task runner that `engine` of params.yaml names; InputError where something that it needs is not there."""
    if params.engine == "thread":
        return ThreadPoolTaskRunner(max_workers=2)
    try:
        from prefect_dask import DaskTaskRunner  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise InputError(
            "engine is dask in params.yaml, but Dask is not installed; `pip install -c constraints.txt -e '.[dask]'` "
            "in the environment brings it, engine: thread needs nothing"
        ) from None
    server = PREFECT_API_URL.value()
    if server is None:
        raise InputError(
            "engine is dask in params.yaml, but no Prefect server runs, and each worker would start one of its own; "
            "use `python -m flows.refresh`, or keep `python -m flows.serve` running beside this, or set "
            "PREFECT_API_URL, or say engine: thread"
        )
    if params.dask.address is None:
        options = {"n_workers": params.dask.workers}
        cluster_class: Any = private_cluster  # a function, where prefect-dask's types ask for a class
        return DaskTaskRunner(cluster_class=cluster_class, cluster_kwargs=options)
    security = scheduler_security(params.dask)
    _check_workers(params.dask.address, security, server)
    return DaskTaskRunner(address=params.dask.address, client_kwargs={"security": security})


def private_cluster(n_workers: int) -> "LocalCluster":
    """Start worker processes on this machine that no other user can talk to.

    Dask listens on TCP ports of the loopback interface, which every user of the machine can reach, and runs whatever
    code a client sends. So scheduler, nannies and workers accept only the certificate that is made here, which stays in
    the memory of this run's processes. TLS does not cover Dask's HTTP pages; they are switched off.

    Args:
        n_workers: Number of processes, each with one task at a time.

    Returns:
        The running cluster.
    """
    import dask  # noqa: PLC0415 - an extra
    from distributed import LocalCluster, Security  # noqa: PLC0415

    no_pages: dict[str, list[str]] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
    with dask.config.set(no_pages):
        cluster = LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            memory_limit=0,  # threads have none either
            host="127.0.0.1",
            protocol="tls",
            security=Security.temporary(),
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # until its HTTP server is stopped below
            preload=[__name__],  # calls `dask_setup` in each worker
            local_directory=str((STATE / "dask").absolute()),
        )
    assert cluster.scheduler is not None
    cluster.scheduler.http_server.stop()
    return cluster


def dask_setup(node: "Worker | Scheduler") -> None:
    """Stop the HTTP server of a worker or scheduler; Dask calls this in each process that preloads this module."""
    node.http_server.stop()


def scheduler_security(dask: DaskParams) -> "Security":
    """Return the credentials for a running scheduler; InputError names a certificate file that is missing."""
    from distributed import Security  # noqa: PLC0415 - an extra

    if dask.tls is None:
        return Security()
    for name, file in dask.tls:
        if not Path(file).is_file():
            raise InputError(f"dask.tls.{name} in params.yaml is {file}, and there is no such file")
    return Security(
        require_encryption=True,
        tls_ca_file=dask.tls.ca_file,
        tls_client_cert=dask.tls.cert_file,
        tls_client_key=dask.tls.key_file,
    )


def _check_workers(address: str, security: "Security", server: str) -> None:
    """InputError unless a scheduler answers at `address`, whose workers compute what this process would."""
    from distributed import Client  # noqa: PLC0415 - an extra

    try:
        asyncio.run(_answered(address, security))  # a client would wait for ever at what is no scheduler
    except OSError:
        raise InputError(
            f"no Dask scheduler answers within {PATIENCE} seconds at {address}, which is dask.address in params.yaml; "
            "start it (`python -m dask scheduler`), check the certificates under dask.tls, or set address: null"
        ) from None
    with Client(address, security=security, timeout=PATIENCE, set_as_default=False) as client:
        answers_of = client.run(unlike, code(), library_versions(), server, on_error="return")
    if not answers_of:
        raise InputError(f"the Dask scheduler at {address} has no worker; start one: `python -m dask worker {address}`")
    unable = "it was not started in the project's folder, or has not what it needs ({!r})"
    said = {who: [unable.format(of)] if isinstance(of, Exception) else of for who, of in answers_of.items()}
    if wrong := [f"{worker}: {sentence}" for worker, sentences in said.items() for sentence in sentences]:
        raise InputError("\n  ".join([f"workers of {address} are not like this process, start them anew:", *wrong]))


async def _answered(address: str, security: "Security") -> None:
    from distributed.core import connect  # noqa: PLC0415 - an extra

    async with asyncio.timeout(PATIENCE):
        connection = await connect(address, timeout=PATIENCE, **security.get_connection_args("client"))
    await connection.close()


def code() -> dict[str, str]:
    """The SHA-256 of each file that a worker may run."""
    return {file.as_posix(): sha256_of_file(file) for file in sorted(imported_files(ENTRY))}


def unlike(wanted_code: dict[str, str], wanted_versions: dict[str, str], server: str) -> list[str]:
    """On a worker: how it differs from the process that asks, a sentence each."""
    own_code, own_versions, started = code(), library_versions(), psutil.Process().create_time()
    older = {
        name: own_versions.get(name) for name in wanted_versions if own_versions.get(name) != wanted_versions[name]
    }
    pairs = {
        "other code in {}": [name for name in wanted_code if own_code.get(name) != wanted_code[name]],
        "it started before a change of {}": [name for name in own_code if Path(name).stat().st_ctime > started],
        "other versions: {}": [f"{name} {own} for {wanted_versions[name]}" for name, own in older.items()],
        "no Prefect server answers it at {}": [] if answers(server) else [server],
    }
    return [sentence.format(", ".join(names)) for sentence, names in pairs.items() if names]


def server_variables() -> dict[str, str]:
    """The environment in which a process reports to the server of this one."""
    asked = (PREFECT_API_URL, PREFECT_API_AUTH_STRING)
    return {setting.name: str(setting.value()) for setting in asked if setting.value() is not None}


def tell(sentence: str) -> None:
    """Print a sentence, and log it on the page of the flow run in which this is called, if there is one."""
    print(sentence, flush=True)
    if flow_run.get_id() is not None:
        get_run_logger().info("%s", sentence)


@contextmanager
def alive() -> Iterator[None]:
    """While inside, this flow run has a living process; the system ends that with the process, however it ends."""
    RUNS.mkdir(parents=True, exist_ok=True)
    path = RUNS / f"{flow_run.get_id()}.lock"
    with FileLock(path):
        yield
    path.unlink(missing_ok=True)


def mark_crashed() -> int:
    """Set to Crashed the runs of this project whose process was killed, and their tasks; returns how many runs."""
    with get_client(sync_client=True) as client:
        return sum(_crash(client, path) for path in sorted(RUNS.glob("*-*-*-*-*.lock")) if not is_lock_held(path))


def _crash(client: SyncPrefectClient, lock: Path) -> bool:
    """Set one run and its unfinished tasks to Crashed, unless it has ended; one of another server is left to that."""
    run_id = UUID(lock.stem)
    message = "its process was killed; the next start has found it"
    crashed: State[Any] = Crashed(message=message)
    try:
        run = client.read_flow_run(run_id)
    except ObjectNotFound:
        return False
    lock.unlink(missing_ok=True)
    if run.state is None or run.state.is_final():
        return False
    client.set_flow_run_state(run_id, crashed, force=True)
    if run.deployment_id is not None or run.name == "refresh":  # not of a stage, of which the refresh tells
        for problem in notify(run.name, "crashed", message):
            print(problem)
    only = FlowRunFilter(id=FlowRunFilterId(any_=[run_id]))
    running = TaskRunFilter.model_validate({"state": {"type": {"any_": ["RUNNING", "PENDING"]}}})
    for task in client.read_task_runs(flow_run_filter=only, task_run_filter=running):
        client.set_task_run_state(task.id, crashed, force=True)
    return True


def progress(name: str, steps: int, what: str) -> Callable[..., None]:
    """Something to call after each of `steps`, or with how many are done: an artifact shows their share, and `what`."""
    page: Any = create_progress_artifact(0.0, key=f"progress-{name.replace('_', '-')}", description=f"{name}: {what}")
    reached = shown = 0

    def advance(to: int | None = None) -> None:
        nonlocal reached, shown
        reached = reached + 1 if to is None else to
        if (percent := 100 * reached // steps) >= min(shown + 5, 100) > shown:  # each is an answer of the server
            update_progress_artifact(page, float(percent))
            shown = percent

    return advance


def outcome(future: Any, where: str) -> Any:
    """What a task has made; RunFailed names the place where it failed, unless the task itself has done so."""
    lost: tuple[type[Exception], ...] = ()  # what Dask raises where a scheduler, or worker after worker, is gone
    if "distributed" in sys.modules:
        from distributed import CancelledError, KilledWorker  # noqa: PLC0415 - an extra

        lost = CancelledError, KilledWorker
    try:
        made = future.result(raise_on_failure=False)
    except lost as error:
        raise RunFailed(f"{where}, was lost by Dask: {error}") from error
    if isinstance(made, InputError | RunFailed):
        raise made
    if isinstance(made, Exception):
        failure = f"{where}, failed: {type(made).__name__}: {made}"
        raise RunFailed(f"{failure} (its traceback is in the Logs of run {future.task_run_id})") from made
    return made
