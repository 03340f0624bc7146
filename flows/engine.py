"""Flow runs: task runners, run locks, progress and task errors.

Tasks run in threads of the process of the flow, or on Dask workers. The results are the same, so no stage of DVC
depends on the task runner.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

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

from relmap.errors import InputError
from tasks.provenance.lock import LOCKS, hold_lock, is_lock_held
from tasks.records.errors import RunFailed
from tasks.records.store import STATE
from tasks.settings.params import DaskParams, Params

if TYPE_CHECKING:
    from distributed import Security

RUN_LOCK = "run-"  # start of the name of the lock of a run, which the process of the run holds
NO_PAGES: dict[str, object] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
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
        InputError: Dask is not installed, or no Prefect server is running.
    """
    if params.engine == "thread":
        return ThreadPoolTaskRunner(max_workers=N_THREADS)
    try:
        import dask  # noqa: PLC0415 - an extra
        from distributed import Security  # noqa: PLC0415
        from prefect_dask import DaskTaskRunner  # noqa: PLC0415
    except ModuleNotFoundError:
        raise InputError(
            "engine is dask in params.yaml, but Dask is not installed; install it with "
            "`pip install -c constraints.txt -e '.[dask]'`, or set engine: thread"
        ) from None
    if PREFECT_API_URL.value() is None:
        raise InputError(
            "engine is dask in params.yaml, but no Prefect server is running, and each worker would start its own; "
            "use `python -m flows.refresh`, keep `python -m flows.serve` running, set PREFECT_API_URL, or set "
            "engine: thread"
        )
    if params.dask.address is not None:
        return DaskTaskRunner(address=params.dask.address, client_kwargs={"security": scheduler_security(params.dask)})
    # By default Dask imports modules from a folder in /tmp, which another user may own, and everyone can see its pages.
    folder = str((STATE / "dask").absolute())
    dask.config.set(NO_PAGES | {"temporary-directory": folder})
    return DaskTaskRunner(
        cluster_kwargs={
            "n_workers": params.dask.workers,
            "threads_per_worker": 1,
            "memory_limit": 0,  # no limit, as for threads
            "protocol": "tls",
            "security": Security.temporary(),  # certificates in memory: no one else can connect
            "dashboard_address": None,
            "scheduler_kwargs": {"dashboard_address": "127.0.0.1:0"},
            "local_directory": folder,
        }
    )


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
    name = f"{RUN_LOCK}{flow_run.get_id()}"
    with hold_lock(name):
        yield
    (LOCKS / f"{name}.lock").unlink(missing_ok=True)


def mark_crashed_runs() -> int:
    """Set the state of runs whose process was killed, and of their tasks, to Crashed.

    Prefect shows them as running for ever, and the next run of their deployment waits for their slot:
    https://github.com/PrefectHQ/prefect/issues/16746

    Returns:
        Number of such runs.
    """
    n_crashed = 0
    with get_client(sync_client=True) as client:
        for path in sorted(LOCKS.glob(f"{RUN_LOCK}*.lock")):
            if not is_lock_held(path) and _mark_crashed_run(client, path):
                n_crashed += 1
    return n_crashed


def _mark_crashed_run(client: SyncPrefectClient, lock: Path) -> bool:
    """Set one run and its unfinished tasks to Crashed, unless it has ended or belongs to another server."""
    run_id = UUID(lock.stem.removeprefix(RUN_LOCK))
    try:
        run = client.read_flow_run(run_id)
    except ObjectNotFound:  # the lock is kept for the server that has the run
        return False
    lock.unlink(missing_ok=True)
    if run.state is None or run.state.is_final():
        return False
    crashed: State[Any] = Crashed(message="its process was killed; a command that started later detected it")
    client.set_flow_run_state(run_id, crashed, force=True)
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
