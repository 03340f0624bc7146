"""Tell a person that a run failed, crashed or was cancelled: by mail, chat, webhook or a program of their own.

Addresses often hold passwords, so they are read from the environment and stand in no file of the project.
"""

import json
import logging
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any, Literal

from prefect import Flow
from prefect.client.schemas.objects import FlowRun
from prefect.logging.loggers import flow_run_logger
from prefect.states import State

from relmap.errors import InputError, escape_unprintable
from relmap.timestamps import current_timestamp
from tasks.records.errors import RunFailed

ADDRESSES = "MRP_NOTIFY"  # addresses of Apprise, separated by spaces
COMMAND = "MRP_NOTIFY_COMMAND"  # a program with its arguments; it gets the message as JSON on its standard input
SECONDS_FOR_COMMAND = 30
LONGEST_MESSAGE = 2000  # characters; all of it stands in the log of the run
Ending = Literal["failed", "crashed", "was cancelled"]
ENDINGS: dict[str, Ending] = {
    "FAILED": "failed",
    "CRASHED": "crashed",
    "CANCELLING": "was cancelled",  # the state in which Prefect calls the hook
    "CANCELLED": "was cancelled",
}
AFTER_CANCELLATION = {
    "refresh": "Its stages were ended. What had finished is kept, and the next refresh goes on from there.",
}
# Prefect's own lines about a cancelled or failed run that are wrong, or say nothing to its reader.
MISLEADING = (
    "Finished in state Running()",
    "Running hook 'report_end' in response to entering state",
    "Hook 'report_end' finished running successfully",
    "Engine execution exited with unexpected exception",
)


def _is_helpful(record: logging.LogRecord) -> bool:
    """Whether a line of Prefect's log is kept. An error that explains itself loses its traceback."""
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and not isinstance(error, InputError | RunFailed):
        return True
    is_misleading = record.getMessage().startswith(MISLEADING)
    if error is not None:
        record.msg = escape_unprintable_lines(str(error))
        record.args = ()
        record.exc_info = None
    return not is_misleading


for _name in ("prefect.flow_runs", "prefect.task_runs"):
    logging.getLogger(_name).addFilter(_is_helpful)


def report_end(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Log how a run ended, and notify whoever asked for it. A hook of Prefect.

    Args:
        flow: The flow.
        flow_run: Its run, which failed, crashed or was cancelled.
        state: Its last state.
    """
    ending = ENDINGS.get(state.type.value)
    if ending is None:
        return
    sentence = f"{flow_run.name} {ending}."
    if ending == "was cancelled":
        sentence = f"{sentence} {AFTER_CANCELLATION.get(flow.name, 'Its process was ended.')}"
    log = flow_run_logger(flow_run, flow)
    log.log(logging.INFO if ending == "was cancelled" else logging.ERROR, "%s", sentence)
    for problem in notify(flow_run.name, ending, state.message or ""):
        log.warning("%s", problem)


HOOKS: dict[str, Any] = {
    "on_failure": [report_end],
    "on_crashed": [report_end],
    "on_cancellation": [report_end],
}


def notify(run: str, ending: Ending, reason: str) -> list[str]:
    """Send a message about a run to every address, and to the command.

    Args:
        run: Name of the run.
        ending: How it ended.
        reason: Why, in words; may be empty.

    Returns:
        What could not be sent, a sentence each; empty where all was sent or nobody is to be told.
    """
    problems = []
    reason = escape_unprintable_lines(reason[:LONGEST_MESSAGE])
    addresses = os.environ.get(ADDRESSES, "").split()
    if addresses:
        import apprise  # noqa: PLC0415 - it takes long, and most runs notify nobody

        receivers = apprise.Apprise()
        refused = [number for number, address in enumerate(addresses, start=1) if not receivers.add(address)]
        # an address may hold a password, so it is named by its place
        problems += [f"address {number} of {ADDRESSES} is not one that Apprise understands" for number in refused]
        title = f"relmap: {run} {ending}"
        if len(receivers) and not receivers.notify(body=reason or title, title=title):
            problems.append(f"not every address of {ADDRESSES} could be notified")
    command = os.environ.get(COMMAND)
    if command:
        message = {
            "run": run,
            "ending": ending,
            "reason": reason,
            "project": str(Path.cwd()),
            "time": current_timestamp(),
        }
        problems += _run_command(command, message)
    return problems


def escape_unprintable_lines(text: str) -> str:
    """Return a text of several lines without characters that a terminal would obey."""
    return "\n".join(escape_unprintable(line) for line in text.splitlines())


def _run_command(command: str, message: dict[str, str]) -> list[str]:
    """Run a command with a message on its standard input; return what went wrong."""
    try:
        done = subprocess.run(  # noqa: S603 - the user's own command
            shlex.split(command),
            input=json.dumps(message, ensure_ascii=False),
            text=True,
            timeout=SECONDS_FOR_COMMAND,
            check=False,
            capture_output=True,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return [f"the command of {COMMAND} did not run: {error}"]
    if done.returncode:
        return [
            f"the command of {COMMAND} ended with status {done.returncode}: {done.stderr.strip()[:LONGEST_MESSAGE]}"
        ]
    return []
