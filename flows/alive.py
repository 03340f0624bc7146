"""Flow runs whose process was killed, and servers that are gone: neither can say so itself."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from filelock import FileLock
from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId, TaskRunFilter
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL
from prefect.states import Crashed, State

from flows import own_home
from flows.server import new_secret, own_server
from tasks.protocol.errors import RunFailed
from tasks.protocol.store import STATE
from tasks.provenance.lock import is_held

RUNS = STATE / "runs"  # a lock for each run, held by its process and by nobody else


@contextmanager
def alive() -> Iterator[None]:
    """While inside, this flow run has a living process; the system ends that with the process, however it ends."""
    RUNS.mkdir(parents=True, exist_ok=True)
    path = RUNS / f"{flow_run.get_id()}.lock"
    with FileLock(path):
        yield
    path.unlink(missing_ok=True)


@contextmanager
def server_needed() -> Iterator[None]:
    """Inside there is a Prefect server, if need be one of this process's own.

    One that no longer answers is told in words: RunFailed; BadInput where it can have no home.
    """
    own_home()
    if PREFECT_API_URL.value() is None:
        kept = ExitStack()
        atexit.register(kept.close)  # not with the block: Prefect's threads send their last words after it, before this
        kept.enter_context(own_server(new_secret(), temporary=True))
    try:
        yield
    except httpx.TransportError as error:
        where = PREFECT_API_URL.value() or "this run's own address"
        raise RunFailed(
            f"the Prefect server at {where} no longer answers ({error}); what has finished is kept: run the same "
            "command again"
        ) from error


def mark_crashed() -> int:
    """Set to Crashed the runs of this project whose process is gone, and their tasks; returns how many runs."""
    dead = [path for path in sorted(RUNS.glob("*-*-*-*-*.lock")) if not is_held(path)]
    with get_client(sync_client=True) as client:
        return sum(_crash(client, path) for path in dead)


def _crash(client: SyncPrefectClient, lock: Path) -> bool:
    """Set one run and its unfinished tasks to Crashed, unless it has ended; one of another server is left to that."""
    run = UUID(lock.stem)
    state: State[Any] = Crashed(message="its process was killed; the next start has found it")
    try:
        found = client.read_flow_run(run)
    except ObjectNotFound:
        return False
    lock.unlink(missing_ok=True)
    if found.state is None or found.state.is_final():
        return False
    client.set_flow_run_state(run, state, force=True)
    only = FlowRunFilter(id=FlowRunFilterId(any_=[run]))
    running = TaskRunFilter.model_validate({"state": {"type": {"any_": ["RUNNING", "PENDING"]}}})
    for task in client.read_task_runs(flow_run_filter=only, task_run_filter=running):
        client.set_task_run_state(task.id, state, force=True)
    return True
