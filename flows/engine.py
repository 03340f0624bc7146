"""Flow runs: task runners, Dask workers, run locks, progress and task errors.

Tasks run in threads of the process of the flow, or on Dask workers. The results are the same, so no stage of DVC
depends on the task runner. This module checks that the Dask workers can run the tasks.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import psutil
from filelock import FileLock
from prefect import get_client
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId, TaskRunFilter
from prefect.exceptions import ObjectNotFound
from prefect.futures import PrefectFuture
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL
from prefect.states import Crashed, State
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from flows.notifications import notify
from flows.server import is_api_available
from relmap.errors import InputError
from relmap.io.hashing import sha256_of_file
from tasks.provenance.hashing import imported_files
from tasks.provenance.lock import is_lock_held
from tasks.provenance.manifest import library_versions
from tasks.records.errors import RunFailed
from tasks.records.store import STATE
from tasks.settings.params import DaskParams, Params

if TYPE_CHECKING:
    from distributed import LocalCluster, Scheduler, Security, Worker

RUN_LOCKS = STATE / "runs"  # a lock for each run, held by the process of the run
WORKER_ENTRY_POINT = Path("flows/reliability.py")  # imports all code that a worker runs
SCHEDULER_TIMEOUT = 5  # seconds
N_THREADS = 2
PROGRESS_STEP = 5  # percent; each update of the artifact is a request to the server

Result = TypeVar("Result")


def create_task_runner(params: Params) -> TaskRunner[Any]:
    """Create the task runner that `engine` in params.yaml names.

    Args:
        params: Parameters.

    Returns:
        Task runner of Prefect.

    Raises:
        InputError: Dask is not installed, no Prefect server is running, or the workers differ from this process.
    """
    if params.engine == "thread":
        return ThreadPoolTaskRunner(max_workers=N_THREADS)
    try:
        from prefect_dask import DaskTaskRunner  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise InputError(
            "engine is dask in params.yaml, but Dask is not installed; install it with "
            "`pip install -c constraints.txt -e '.[dask]'`, or set engine: thread"
        ) from None
    server = PREFECT_API_URL.value()
    if server is None:
        raise InputError(
            "engine is dask in params.yaml, but no Prefect server is running, and each worker would start its own; "
            "use `python -m flows.refresh`, keep `python -m flows.serve` running, set PREFECT_API_URL, or set "
            "engine: thread"
        )
    if params.dask.address is None:
        cluster_class: Any = create_private_cluster  # a function, but prefect-dask's types require a class
        return DaskTaskRunner(cluster_class=cluster_class, cluster_kwargs={"n_workers": params.dask.workers})
    security = scheduler_security(params.dask)
    _check_workers(params.dask.address, security, server)
    return DaskTaskRunner(address=params.dask.address, client_kwargs={"security": security})


def create_private_cluster(n_workers: int) -> "LocalCluster":
    """Start worker processes on this machine to which no other user can connect.

    Dask listens on TCP ports of the loopback interface, which every user of the machine can reach, and runs any code
    that a client sends. Therefore scheduler, nannies and workers accept only a certificate that is created here and
    kept in the memory of the processes of this run. TLS does not cover the HTTP pages of Dask; they are disabled. Dask
    imports modules from its temporary folder, which by default is one in `/tmp` that another user may own.

    Args:
        n_workers: Number of processes, each with one task at a time.

    Returns:
        The running cluster.
    """
    import dask  # noqa: PLC0415 - an extra
    from distributed import LocalCluster, Security  # noqa: PLC0415

    folder = str((STATE / "dask").absolute())
    settings: dict[str, object] = {
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
        "temporary-directory": folder,
    }
    with dask.config.set(settings):
        cluster = LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            memory_limit=0,  # no limit, as for threads
            host="127.0.0.1",
            protocol="tls",
            security=Security.temporary(),
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # local only; the HTTP server is stopped below
            preload=[__name__],  # calls `dask_setup` in each worker
            local_directory=folder,
        )
    assert cluster.scheduler is not None
    cluster.scheduler.http_server.stop()
    return cluster


def dask_setup(node: "Worker | Scheduler") -> None:
    """Stop the HTTP server of a worker or scheduler. Dask calls this in each process that preloads this module.

    Args:
        node: Worker or scheduler of this process.
    """
    node.http_server.stop()


def scheduler_security(dask: DaskParams) -> "Security":
    """Return the credentials for a running scheduler.

    Args:
        dask: Parameters of Dask.

    Returns:
        Credentials; without encryption if there are no certificates.

    Raises:
        InputError: A certificate file is missing.
    """
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
    """Raise InputError unless a scheduler answers, and its workers have the code and libraries of this process."""
    from distributed import Client  # noqa: PLC0415 - an extra

    try:
        asyncio.run(_connect(address, security))  # `Client` would wait forever if another program listens
    except OSError:
        raise InputError(
            f"no Dask scheduler answers within {SCHEDULER_TIMEOUT} seconds at {address} (dask.address in params.yaml); "
            "start it (`python -m dask scheduler`), check the certificates under dask.tls, or set address: null"
        ) from None
    with Client(address, security=security, timeout=SCHEDULER_TIMEOUT, set_as_default=False) as client:
        differences_by_worker = client.run(
            describe_worker_differences, code_hashes(), library_versions(), server, on_error="return"
        )
    if not differences_by_worker:
        raise InputError(f"the Dask scheduler at {address} has no worker; start one: `python -m dask worker {address}`")
    lines = []
    for worker, differences in differences_by_worker.items():
        if isinstance(differences, Exception):
            lines.append(
                f"{worker}: it was not started in the project's folder, or a library is missing ({differences!r})"
            )
        else:
            lines += [f"{worker}: {difference}" for difference in differences]
    if lines:
        heading = f"workers of {address} run different code or cannot reach the Prefect server; restart them:"
        raise InputError("\n  ".join([heading, *lines]))


async def _connect(address: str, security: "Security") -> None:
    """Connect to a scheduler once."""
    from distributed.core import connect  # noqa: PLC0415 - an extra

    async with asyncio.timeout(SCHEDULER_TIMEOUT):
        connection = await connect(address, timeout=SCHEDULER_TIMEOUT, **security.get_connection_args("client"))
    await connection.close()


def code_hashes() -> dict[str, str]:
    """Compute the SHA-256 of each file that a worker may run.

    Returns:
        Path -> hexadecimal digest.
    """
    return {file.as_posix(): sha256_of_file(file) for file in sorted(imported_files(WORKER_ENTRY_POINT))}


def describe_worker_differences(
    expected_code: dict[str, str], expected_versions: dict[str, str], server: str
) -> list[str]:
    """Describe how this process differs from the one that submits tasks. Runs on a worker.

    Args:
        expected_code: Hashes of the code of the submitting process.
        expected_versions: Versions of its libraries.
        server: Address of its Prefect API.

    Returns:
        A clause for each kind of difference.
    """
    hashes = code_hashes()
    versions = library_versions()
    start_time = psutil.Process().create_time()
    other_files = [file for file, digest in expected_code.items() if hashes.get(file) != digest]
    changed_files = [file for file in hashes if Path(file).stat().st_ctime > start_time]
    other_versions = []
    for library, expected in expected_versions.items():
        if versions.get(library) != expected:
            other_versions.append(f"{library} {versions.get(library)} instead of {expected}")
    differences = []
    if other_files:
        differences.append(f"other code in {', '.join(other_files)}")
    if changed_files:
        differences.append(f"it started before a change of {', '.join(changed_files)}")
    if other_versions:
        differences.append(f"other versions: {', '.join(other_versions)}")
    if not is_api_available(server):
        differences.append(f"it cannot reach the Prefect server at {server}")
    return differences


def server_environment() -> dict[str, str]:
    """Return the environment variables that connect a child process to the Prefect server that this process uses.

    Returns:
        Name -> value.
    """
    settings = (PREFECT_API_URL, PREFECT_API_AUTH_STRING)
    return {setting.name: str(setting.value()) for setting in settings if setting.value() is not None}


def report_message(message: str) -> None:
    """Print a message, and log it on the page of the current flow run, if there is one.

    Args:
        message: One line.
    """
    print(message, flush=True)
    if flow_run.get_id() is not None:
        get_run_logger().info("%s", message)


@contextmanager
def hold_run_lock() -> Iterator[None]:
    """Hold the lock of the current flow run. The operating system releases it when the process ends, even if killed.

    Yields:
        Nothing.
    """
    RUN_LOCKS.mkdir(parents=True, exist_ok=True)
    path = RUN_LOCKS / f"{flow_run.get_id()}.lock"
    with FileLock(path):
        yield
    path.unlink(missing_ok=True)


def mark_crashed_runs() -> int:
    """Set the state of runs whose process was killed, and of their tasks, to Crashed.

    Returns:
        Number of such runs.
    """
    n_crashed = 0
    with get_client(sync_client=True) as client:
        for path in sorted(RUN_LOCKS.glob("*-*-*-*-*.lock")):
            if not is_lock_held(path) and _mark_crashed_run(client, path):
                n_crashed += 1
    return n_crashed


def _mark_crashed_run(client: SyncPrefectClient, lock: Path) -> bool:
    """Set one run and its unfinished tasks to Crashed, unless it has ended or belongs to another server."""
    run_id = UUID(lock.stem)
    try:
        run = client.read_flow_run(run_id)
    except ObjectNotFound:  # the lock is kept for the server that has the run
        return False
    lock.unlink(missing_ok=True)
    if run.state is None or run.state.is_final():
        return False
    message = "its process was killed; a command that started later detected it"
    crashed: State[Any] = Crashed(message=message)
    client.set_flow_run_state(run_id, crashed, force=True)
    # A stage runs inside a refresh, which sends the notifications about its stages.
    is_stage = run.deployment_id is None and run.name != "refresh"
    if not is_stage:
        for problem in notify(run.name, "crashed", message):
            print(problem)
    this_run = FlowRunFilter(id=FlowRunFilterId(any_=[run_id]))
    unfinished = TaskRunFilter.model_validate({"state": {"type": {"any_": ["RUNNING", "PENDING"]}}})
    for task in client.read_task_runs(flow_run_filter=this_run, task_run_filter=unfinished):
        client.set_task_run_state(task.id, crashed, force=True)
    return True


class Progress:
    """Progress artifact on the page of a run. Call it after each step."""

    def __init__(self, artifact_id: UUID, n_steps: int) -> None:
        """Start with no finished steps.

        Args:
            artifact_id: Identifier of the artifact.
            n_steps: Number of steps.
        """
        self._artifact_id = artifact_id
        self._n_steps = n_steps
        self._n_done = 0
        self._percent_shown = 0

    def __call__(self, n_done: int | None = None) -> None:
        """Record a finished step, and update the artifact after each five percent.

        Args:
            n_done: Number of finished steps; by default one more than before.
        """
        self._n_done = self._n_done + 1 if n_done is None else n_done
        percent = 100 * self._n_done // self._n_steps
        next_percent = min(self._percent_shown + PROGRESS_STEP, 100)
        if percent >= next_percent > self._percent_shown:
            update_progress_artifact(self._artifact_id, float(percent))
            self._percent_shown = percent


def start_progress(name: str, n_steps: int, unit: str) -> Progress:
    """Create a progress artifact.

    Args:
        name: Name of the work; part of the key of the artifact.
        n_steps: Number of steps.
        unit: Description of a step.

    Returns:
        Progress, to be called after each step.
    """
    artifact_id: Any = create_progress_artifact(
        0.0, key=f"progress-{name.replace('_', '-')}", description=f"{name}: {unit}"
    )
    return Progress(artifact_id, n_steps)


def task_result(future: PrefectFuture[Result], description: str) -> Result:
    """Return the result of a task.

    Args:
        future: Future of the task.
        description: Description of the task, for messages.

    Returns:
        The result.

    Raises:
        RunFailed: The task failed, or Dask lost it. An InputError or RunFailed of the task is raised unchanged.
    """
    try:
        result = future.result(raise_on_failure=False)
    except _errors_of_lost_tasks() as error:
        raise RunFailed(f"{description}, was lost by Dask: {error}") from error
    if isinstance(result, InputError | RunFailed):
        raise result
    if isinstance(result, Exception):
        reason = f"{type(result).__name__}: {result}"
        raise RunFailed(
            f"{description}, failed: {reason} (its traceback is in the logs of task run {future.task_run_id})"
        ) from result
    return result


def _errors_of_lost_tasks() -> tuple[type[Exception], ...]:
    """Return the errors that Dask raises if the scheduler, or several workers in a row, have ended."""
    if "distributed" not in sys.modules:
        return ()
    from distributed import CancelledError, KilledWorker  # noqa: PLC0415 - an extra

    return CancelledError, KilledWorker
