"""Waiting for the tasks of a flow: how far they are, and what failed where."""

from __future__ import annotations

from typing import Any

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.futures import as_completed
from rich.progress import track

from flows.engine import lost
from tasks.protocol.errors import BadInput, RunFailed


def outcome(future: Any, where: str) -> Any:
    """What a task has made; RunFailed names the place where it failed, unless the task itself has done so."""
    try:
        made = future.result(raise_on_failure=False)
    except lost() as error:
        raise RunFailed(f"{where}, was lost by Dask: {error}") from error
    if isinstance(made, BadInput | RunFailed):
        raise made
    if isinstance(made, Exception):
        told = f"{where}, failed: {type(made).__name__}: {made}"
        raise RunFailed(f"{told} (its traceback is in the Logs of run {future.task_run_id})") from made
    return made


def follow(futures: list[Any], dataset: str) -> None:
    """Wait for all, with a bar here and another on the run's page."""
    key = dataset.replace("_", "-")
    page: Any = create_progress_artifact(0.0, key=f"progress-{key}", description=f"{dataset}: tasks that have finished")
    shown = 0
    for done, _ in enumerate(track(as_completed(futures), f"{dataset:>19}", total=len(futures)), start=1):
        if (percent := 100 * done // len(futures)) >= min(shown + 5, 100):  # an answer of the server for each
            update_progress_artifact(page, percent)
            shown = percent
