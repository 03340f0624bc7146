"""Notifications about runs that failed, crashed or were cancelled: by mail, chat, webhook or a command of the user.

Addresses often contain passwords, so they are read from environment variables, and no file of the project has them.
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
from relmap.io.timestamps import current_timestamp
from tasks.records.errors import RunFailed

ADDRESSES_VARIABLE = "MRP_NOTIFY"  # addresses of Apprise, separated by spaces
COMMAND_VARIABLE = (
    "MRP_NOTIFY_COMMAND"  # program and arguments; the program reads the message as JSON from standard input
)
COMMAND_TIMEOUT = 30  # seconds
MAX_MESSAGE_LENGTH = 2000  # characters; the log of the run has the complete message
Ending = Literal["failed", "crashed", "was cancelled"]
ENDINGS: dict[str, Ending] = {
    "FAILED": "failed",
    "CRASHED": "crashed",
    "CANCELLING": "was cancelled",  # the state in which Prefect calls the hook
    "CANCELLED": "was cancelled",
}
AFTER_CANCELLATION = {
    "refresh": "Its stages were stopped. Finished results are kept, and the next refresh continues from them.",
}
# Log lines of Prefect about a cancelled or failed run that are wrong or do not help.
MISLEADING_LINES = (
    "Finished in state Running()",
    "Running hook 'report_end' in response to entering state",
    "Hook 'report_end' finished running successfully",
    "Engine execution exited with unexpected exception",
    "Task run failed with state:",  # its next line is the same state
)


def _filter_log_line(record: logging.LogRecord) -> bool:
    """Drop a log line of Prefect if it is misleading; replace the traceback of an expected error by its message."""
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and not isinstance(error, InputError | RunFailed):
        return True
    is_misleading = record.getMessage().startswith(MISLEADING_LINES)
    if error is not None:
        record.msg = escape_unprintable_lines(str(error))
        record.args = ()
        record.exc_info = None
    return not is_misleading


for _name in ("prefect.flow_runs", "prefect.task_runs"):
    logging.getLogger(_name).addFilter(_filter_log_line)


def report_end(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Log how a run ended, and send notifications. Prefect calls this hook.

    Args:
        flow: The flow.
        flow_run: Run that failed, crashed or was cancelled.
        state: Last state of the run.
    """
    ending = ENDINGS.get(state.type.value)
    if ending is None:
        return
    message = f"{flow_run.name} {ending}."
    if ending == "was cancelled":
        message = f"{message} {AFTER_CANCELLATION.get(flow.name, 'Its process was stopped.')}"
    log = flow_run_logger(flow_run, flow)
    log.log(logging.INFO if ending == "was cancelled" else logging.ERROR, "%s", message)
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
        reason: Reason; may be empty.

    Returns:
        A message for each notification that could not be sent.
    """
    problems: list[str] = []
    reason = escape_unprintable_lines(reason[:MAX_MESSAGE_LENGTH])
    addresses = os.environ.get(ADDRESSES_VARIABLE, "").split()
    if addresses:
        problems += _notify_addresses(addresses, title=f"relmap: {run} {ending}", body=reason)
    command = os.environ.get(COMMAND_VARIABLE)
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


def _notify_addresses(addresses: list[str], title: str, body: str) -> list[str]:
    """Send a message to addresses of Apprise; return a message for each problem."""
    import apprise  # noqa: PLC0415 - the import is slow, and most runs send nothing

    problems = []
    receivers = apprise.Apprise()
    for number, address in enumerate(addresses, start=1):
        if not receivers.add(address):
            # An address may contain a password, so only its number is named.
            problems.append(f"address {number} of {ADDRESSES_VARIABLE} is not an address that Apprise supports")
    if len(receivers) and not receivers.notify(body=body or title, title=title):
        problems.append(f"not every address of {ADDRESSES_VARIABLE} could be notified")
    return problems


def escape_unprintable_lines(text: str) -> str:
    """Escape the control characters of a text, except line breaks.

    Args:
        text: Text of several lines.

    Returns:
        The escaped text.
    """
    return "\n".join(escape_unprintable(line) for line in text.splitlines())


def _run_command(command: str, message: dict[str, str]) -> list[str]:
    """Run a command with a message on its standard input; return a message for each problem."""
    try:
        result = subprocess.run(  # noqa: S603 - the user's own command
            shlex.split(command),
            input=json.dumps(message, ensure_ascii=False),
            text=True,
            timeout=COMMAND_TIMEOUT,
            check=False,
            capture_output=True,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return [f"the command of {COMMAND_VARIABLE} could not run: {error}"]
    if result.returncode == 0:
        return []
    output = result.stderr.strip()[:MAX_MESSAGE_LENGTH]
    return [f"the command of {COMMAND_VARIABLE} ended with status {result.returncode}: {output}"]
