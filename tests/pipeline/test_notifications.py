"""Notifications of runs that fail, crash or are cancelled, sent to receivers on this machine."""

import json
import logging
import shlex
import socket
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from types import SimpleNamespace
from unittest.mock import Mock
from uuid import uuid4

import pytest
from aiosmtpd.controller import Controller
from prefect.states import Cancelling, Completed, Crashed, Failed

from flows import notifications
from flows.notifications import ADDRESSES_VARIABLE, COMMAND_VARIABLE, HOOKS, notify, report_end
from tasks.records.errors import RunFailed


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The address of a receiver of JSON, and what it has received."""
    received: list[dict[str, str]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"json://127.0.0.1:{server.server_port}/runs", received
    server.shutdown()
    server.server_close()


@pytest.fixture
def mailbox() -> Iterator[tuple[str, list[str]]]:
    """The address of a mail server, and the mails that it has received."""
    received: list[str] = []

    class Receiver:
        async def handle_DATA(self, _server: object, _session: object, envelope: object) -> str:  # noqa: N802 - required by aiosmtpd
            received.append(envelope.content.decode())
            return "250 OK"

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    controller = Controller(Receiver(), hostname="127.0.0.1", port=port)
    controller.start()
    yield f"mailto://127.0.0.1:{port}?from=pipeline@example.org&to=team@example.org&mode=insecure", received
    controller.stop()


def test_nothing_is_sent_without_a_setting(monkeypatch):
    monkeypatch.delenv(ADDRESSES_VARIABLE, raising=False)
    monkeypatch.delenv(COMMAND_VARIABLE, raising=False)
    assert notify("refresh", "failed", "wands: no column 'grade'") == []


def test_a_webhook_receives_run_ending_and_reason(monkeypatch, webhook):
    address, received = webhook
    monkeypatch.setenv(ADDRESSES_VARIABLE, address)
    assert notify("refresh", "failed", "wands: no column 'grade'") == []
    (message,) = received
    assert message["title"] == "relmap: refresh failed"
    assert message["message"] == "wands: no column 'grade'"


def test_a_mail_contains_run_ending_and_reason(monkeypatch, mailbox):
    address, received = mailbox
    monkeypatch.setenv(ADDRESSES_VARIABLE, address)
    assert notify("refresh", "crashed", "its process was killed") == []
    (mail,) = received
    assert "relmap: refresh crashed" in mail
    assert "its process was killed" in mail


def test_a_command_receives_the_message_as_json(monkeypatch, tmp_path):
    program = f"import pathlib, sys; pathlib.Path({str(tmp_path / 'got')!r}).write_text(sys.stdin.read())"
    monkeypatch.setenv(COMMAND_VARIABLE, shlex.join([sys.executable, "-c", program]))
    assert notify("refresh", "was cancelled", "") == []
    message = json.loads((tmp_path / "got").read_text())
    assert (message["run"], message["ending"]) == ("refresh", "was cancelled")


def test_problems_are_returned_without_quoting_addresses(monkeypatch):
    monkeypatch.setenv(ADDRESSES_VARIABLE, "nonsense://user:password@host json://127.0.0.1:9/closed")
    monkeypatch.setenv(COMMAND_VARIABLE, "/no/such/program")
    problems = notify("refresh", "failed", "a reason")
    assert [problem.split(" ")[0] for problem in problems] == ["address", "not", "the"]
    assert not any("password" in problem for problem in problems)


@pytest.mark.parametrize(
    ("state", "ending"),
    [(Failed(message="a"), "failed"), (Crashed(message="a"), "crashed"), (Cancelling(), "was cancelled")],
)
def test_the_hook_notifies_and_logs_how_the_run_ended(monkeypatch, caplog, state, ending):
    notify = Mock(return_value=["a problem"])
    monkeypatch.setattr(notifications, "notify", notify)
    run = SimpleNamespace(id=uuid4(), name="refresh", flow_id=uuid4(), tags=[])
    monkeypatch.setattr(notifications, "flow_run_logger", lambda *_: logging.getLogger("runs"))
    with caplog.at_level("INFO"):
        report_end(SimpleNamespace(name="refresh"), run, state)
    notify.assert_called_once_with("refresh", ending, state.message or "")
    assert f"refresh {ending}." in caplog.text
    assert "a problem" in caplog.text


def filter_record(name: str, message: str, error: Exception | None) -> logging.LogRecord | None:
    """Return what a logger of Prefect makes of a line; None if it drops the line."""
    exc_info = (type(error), error, None) if error is not None else None
    record = logging.LogRecord(name, logging.ERROR, __file__, 1, message, (), exc_info)
    return record if logging.getLogger(name).filter(record) else None


@pytest.mark.parametrize("name", ["prefect.flow_runs", "prefect.task_runs"])
def test_an_error_that_explains_itself_is_logged_once_and_without_a_traceback(name):
    error = RunFailed("the refresh failed:\n  wands: 50% of the rows")
    record = filter_record(name, "Encountered exception during execution: RunFailed(...)", error)
    assert record is not None
    assert record.getMessage() == str(error)
    assert record.exc_info is None
    assert filter_record(name, "Engine execution exited with unexpected exception", error) is None
    assert filter_record(name, "Task run failed with state: Failed(...)", None) is None


def test_an_unexpected_error_keeps_its_traceback():
    for message in ("Encountered exception during execution: ...", "Engine execution exited with unexpected exception"):
        record = filter_record("prefect.flow_runs", message, ValueError("a bug"))
        assert record is not None
        assert record.exc_info is not None


def test_a_completed_run_sends_no_notification(monkeypatch):
    monkeypatch.setattr(notifications, "notify", lambda *_: pytest.fail("it would have notified"))
    report_end(SimpleNamespace(name="refresh"), SimpleNamespace(id=uuid4(), name="refresh"), Completed())


def test_every_served_flow_has_the_hooks():
    from flows import forms, serve
    from flows.refresh import refresh

    for flow in (refresh, serve.reliabilities, *forms.RERANK_FLOWS):
        assert flow.on_failure_hooks == HOOKS["on_failure"], flow.name
        assert flow.on_crashed_hooks == HOOKS["on_crashed"], flow.name
        assert flow.on_cancellation_hooks == HOOKS["on_cancellation"], flow.name
