"""What stages print: passed on to the terminal, and kept by stage for the page of a refresh."""

import re
import sys
from collections.abc import Iterator
from datetime import datetime
from queue import Empty, SimpleQueue
from threading import Thread

from prefect import task
from prefect.logging import get_run_logger
from prefect.states import Cancelled, Completed, Failed, State

from flows.processes import Process
from tasks.provenance.stage import StageRecord, read_record

STARTED = re.compile(r"Running stage '(.+)':$")  # as DVC writes it
SECONDS_OF_SILENCE = 1.0


class StageOutput:
    """The lines of each stage that a refresh runs.

    DVC runs one stage at a time in each of its processes, and says which one it begins. All lines of that process up
    to the next such line belong to this stage.

    Attributes:
        started: Stages in the order in which they start.
        stopped: Whether the refresh ends its stages itself, as when it is cancelled.
    """

    def __init__(self) -> None:
        self.started: SimpleQueue[str] = SimpleQueue()
        self.stopped = False
        self._lines: dict[str, SimpleQueue[str | None]] = {}
        self._readers: list[Thread] = []

    def follow(self, process: Process) -> None:
        """Read what a process prints, in a thread of its own, until the process ends."""
        reader = Thread(target=self._read, args=[process], daemon=True)
        reader.start()
        self._readers.append(reader)

    def wait(self) -> None:
        """Return when all processes have ended and every line has been read."""
        for reader in self._readers:
            reader.join()

    def lines(self, stage: str) -> Iterator[str | None]:
        """Yield the lines of a stage that has started, and None after each second of silence."""
        queue = self._lines[stage]
        while True:
            try:
                line = queue.get(timeout=SECONDS_OF_SILENCE)
            except Empty:
                yield None
                continue
            if line is None:  # the stage has ended
                return
            yield line

    def _read(self, process: Process) -> None:
        assert process.stdout is not None
        current: SimpleQueue[str | None] | None = None
        for raw in process.stdout:
            text = raw.decode(errors="replace")
            sys.stdout.write(text)
            sys.stdout.flush()
            started = STARTED.match(text.strip())
            if started is not None:
                if current is not None:
                    current.put(None)
                current = self._lines[started[1]] = SimpleQueue()
                self.started.put(started[1])
            elif current is not None and text.strip():
                current.put(text.rstrip())
        if current is not None:
            current.put(None)


@task(name="stage", task_run_name="{stage}")
def show_stage(stage: str, output: StageOutput, since: datetime) -> State[None]:
    """Log why a stage runs, what it prints and how it ends, while DVC runs it.

    Each line starts with the stage, since the page of a refresh mixes the lines of stages that run at the same time.

    Args:
        stage: Name of a stage of dvc.yaml that has started.
        output: The lines that stages print.
        since: When the refresh began; earlier records of the stage are not of this run.

    Returns:
        The last state of the task run, with the reason of a failure. An exception would add a traceback of this file.
    """
    logger = get_run_logger()
    reason_logged = False
    for line in output.lines(stage):
        record = _record(stage, since)
        if not reason_logged and record is not None and record.reason_known:
            logger.info("%s runs because: %s", stage, record.why)
            reason_logged = True
        if line is not None:
            logger.info("%s: %s", stage, line)
    record = _record(stage, since)
    if record is not None and record.outcome == "finished":
        if not reason_logged:
            logger.info("%s ran because: %s", stage, record.why)
        return Completed(message=f"{stage} finished")
    if output.stopped:
        return Cancelled(message=f"{stage} was ended together with the refresh")
    if record is None:
        return Failed(message=f"{stage} could not start; its output says why")
    return Failed(message=f"{stage}: {record.reason or 'its process was ended before it could say why'}")


def _record(stage: str, since: datetime) -> StageRecord | None:
    """Return the record of the stage's run in this refresh, or None before the stage has written one."""
    record = read_record(stage)
    return record if record is not None and record.started >= since else None
