"""Output of stages: printed to the terminal, and stored by stage for the page of a refresh."""

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
DISK_FULL = re.compile("the disk is full|No space left on device|Disk quota exceeded")


class StageOutput:
    """Lines that the stages of a refresh print.

    Each process of DVC runs one stage at a time, and prints a line when a stage starts. All lines of the process up to
    the next such line belong to that stage.

    Attributes:
        started: Names of stages that have started.
        stopped: Whether the refresh ends its stages itself, such as after a cancellation.
        error: Why the lines cannot be printed, such as the end of the program that read them; None if they can.
        disk_full: The first line which says that the disk is full; None if there is none.
    """

    def __init__(self) -> None:
        """Start without any lines."""
        self.started: SimpleQueue[str] = SimpleQueue()
        self.stopped = False
        self.error: OSError | None = None
        self.disk_full: str | None = None
        self._lines: dict[str, SimpleQueue[str | None]] = {}
        self._readers: list[Thread] = []

    def follow(self, process: Process) -> None:
        """Read the output of a process in a thread, until the process ends.

        Args:
            process: Process of DVC, with a captured output.
        """
        reader = Thread(target=self._read, args=[process], daemon=True)
        reader.start()
        self._readers.append(reader)

    def wait(self) -> None:
        """Wait until all processes have ended and every line has been read."""
        for reader in self._readers:
            reader.join()

    def lines(self, stage: str) -> Iterator[str | None]:
        """Yield the lines of a stage that has started, and None after each second without a line.

        Args:
            stage: Name of the stage.

        Yields:
            A line, or None.
        """
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
            self._print(text)
            if self.disk_full is None and DISK_FULL.search(text):
                self.disk_full = text.strip()
            header = STARTED.match(text.strip())
            if header is not None:
                if current is not None:
                    current.put(None)
                stage = header[1]
                current = SimpleQueue()
                self._lines[stage] = current
                self.started.put(stage)
            elif current is not None and text.strip():
                current.put(text.rstrip())
        if current is not None:
            current.put(None)

    def _print(self, text: str) -> None:
        """Print a text. After an error, print nothing more: this thread has to read until the process ends."""
        if self.error is None:
            try:
                sys.stdout.write(text)
                sys.stdout.flush()
            except OSError as error:
                self.error = error


@task(name="stage", task_run_name="{stage}")
def show_stage(stage: str, output: StageOutput, since: datetime) -> State[None]:
    """Log the reason, output and end of a stage while DVC runs it.

    Each line starts with the stage, since the page of a refresh mixes the lines of simultaneous stages.

    Args:
        stage: Name of a stage of dvc.yaml that has started.
        output: Output of the stages.
        since: Start of the refresh; earlier records of the stage belong to other runs.

    Returns:
        Final state of the task run, with the reason of a failure. Raising an exception instead would log a traceback of
        this function.
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
        return Cancelled(message=f"{stage} was stopped together with the refresh")
    if record is None:
        return Failed(message=f"{stage} could not start; see its output")
    return Failed(message=f"{stage}: {record.reason or 'its process ended without a message'}")


def _record(stage: str, since: datetime) -> StageRecord | None:
    """Return the record of a stage in this refresh; None before the stage has written one."""
    record = read_record(stage)
    return record if record is not None and record.started >= since else None
