"""Prefect's runner, as `flows.serve` needs it: it starts what is asked for or due, and ends it in words."""

from __future__ import annotations

import asyncio
import signal
from typing import Self

from prefect.deployments.runner import RunnerDeployment
from prefect.runner import Runner


class Serving(Runner):
    """Prefect's runner, which Ctrl-C and SIGTERM end alike: runs are cancelled with all they started, schedules paused.

    Left alone, it ends at a Ctrl-C without a word to the server, on whose page the runs go on for ever, and at a
    SIGTERM it forgets to await its own end.
    """

    async def __aenter__(self) -> Self:
        """Start, and take both signals from there on."""
        await super().__aenter__()
        for received in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(received, self.execute_in_background, self.astop)
        return self


async def run_until_ended(made: list[RunnerDeployment]) -> None:
    """Register the deployments, and start their runs as they are asked for or due."""
    runner = Serving(query_seconds=2)  # until a run that was asked for starts
    for one in made:
        await runner.aadd_deployment(one)
    await runner.start()
