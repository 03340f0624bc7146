"""Deployments, their forms, and the server of the project."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import AsyncMock
from uuid import uuid4

import pytest
import sqlalchemy
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectNotFound
from prefect.server.database import provide_database_interface
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools import validate
from prefect.utilities.schema_tools.validation import ValidationError
from sqlalchemy.orm import Session

from flows import reliability, serve, server
from relmap.errors import InputError
from tasks.provenance.lock import hold_lock
from tasks.records.errors import RunFailed
from tasks.settings.params import load_params


def test_only_the_refresh_has_a_schedule_and_all_parameters_are_described():
    deployed = {deployment.name: deployment for deployment in serve.create_deployments(load_params())}
    assert set(deployed) == {"refresh", "reliability"}
    assert [name for name, deployment in deployed.items() if deployment.schedules] == ["refresh"]
    (entry,) = deployed["refresh"].schedules
    assert (entry.schedule.cron, entry.schedule.timezone or "UTC") == (load_params().schedule.refresh, "UTC")
    assert deployed["refresh"].concurrency_limit == 1
    assert all(deployment.entrypoint.startswith("flows/") for deployment in deployed.values())
    for deployment in deployed.values():
        fields = deployment._parameter_openapi_schema.model_dump()["properties"]
        assert fields
        assert all(field["description"] for field in fields.values())


def test_schedules_of_registered_deployments_are_not_sent_again(monkeypatch, capsys):
    new, known = serve.create_deployments(load_params())[:2]
    paused = SimpleNamespace(active=False, schedule=CronSchedule(cron="7 3 * * *", timezone="UTC"))
    registered = SimpleNamespace(paused=False, schedules=[paused])

    def read(name: str) -> SimpleNamespace:
        if name == new.full_name:
            raise ObjectNotFound(RuntimeError(name))
        return registered

    client = SimpleNamespace(read_deployment_by_name=read)
    monkeypatch.setattr(serve, "get_client", lambda **_: nullcontext(client))
    serve.keep_ui_schedules([new, known])
    assert new.model_dump(exclude_unset=True).keys() >= {"paused", "schedules"}
    assert new.schedules
    assert not {"paused", "schedules"} & known.model_dump(exclude_unset=True).keys()
    assert re.fullmatch(r"reliability .*: cron 7 3 \* \* \* timezone UTC \(paused\)\n", capsys.readouterr().out)


def test_the_runner_keeps_its_files_in_a_private_folder(monkeypatch):
    monkeypatch.setattr(serve.Runner, "__aenter__", AsyncMock())
    runner = serve.StoppableRunner()
    asyncio.run(runner.__aenter__())
    assert runner._tmp_dir.parent == (server.STATE / "runner").absolute()


def test_the_installed_sqlalchemy_can_insert_scheduled_runs():
    # with SQLAlchemy 2.1, Prefect 3.8.8 silently starts no scheduled run
    database = provide_database_interface()
    engine = sqlalchemy.create_engine("sqlite://")
    database.Base.metadata.create_all(engine, tables=[database.FlowRun.__table__])
    run = {"id": uuid4(), "flow_id": uuid4(), "state": {}, "state_name": "Scheduled", "auto_scheduled": True}
    with Session(engine) as session:
        session.execute(database.queries.insert(database.FlowRun), [run])
        assert session.scalars(sqlalchemy.select(database.FlowRun.state_name)).all() == ["Scheduled"]


@pytest.mark.parametrize(
    "wrong",
    [{"datasets": ["wands"], "seeds": [-1]}, {"datasets": ["wands"], "calibrators": ["platt"]}, {"datasets": []}, {}],
)
def test_the_form_schema_rejects_impossible_values(wrong):
    schema = parameter_schema(serve.reliabilities).model_dump(exclude_unset=True)
    validate({"datasets": ["wands"], "seeds": [4], "calibrators": ["hcal"]}, schema, raise_on_error=True)
    with pytest.raises(ValidationError):
        validate(wrong, schema, raise_on_error=True)


def test_if_a_data_set_fails_the_others_finish_and_all_reasons_are_reported(monkeypatch):
    calls = []

    def reliability_of(*arguments):
        calls.append(arguments)
        if arguments[0] != "scidocs":
            raise RunFailed(f"no luck with {arguments[0]}")

    monkeypatch.setattr(reliability, "reliability", SimpleNamespace(with_options=lambda **_: reliability_of))
    monkeypatch.setattr(serve, "hold_run_lock", nullcontext)  # there is no flow run
    with pytest.raises(RunFailed, match=r"with wands(.|\n)*with mine"):
        serve.reliabilities.fn(["wands", "scidocs", "mine", "wands"], [4], ["ts"])
    serve.reliabilities.fn(["scidocs"])
    default_seeds = list(load_params().seeds)  # explicit seeds, so that no run writes the outputs of DVC
    assert calls == [*((name, [4], ["ts"]) for name in ("wands", "scidocs", "mine")), ("scidocs", default_seeds, None)]


def test_a_used_port_and_a_served_project_are_reported(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(server, "Popen", lambda *_, **__: subprocess.Popen(["false"], stdin=subprocess.PIPE))
    with pytest.raises(RunFailed, match=r"port 4299, .* --port"), server.serve_api(4299):
        pass
    assert not server.ADDRESS_FILE.exists()
    with hold_lock("serve"), pytest.raises(InputError, match="already running"), server.serve_api(4):
        pass


def listener_of(user_id: int | None, port: int) -> tuple[SimpleNamespace, SimpleNamespace]:
    """Return a listening socket of a user, and its process; None for a process that cannot be inspected."""
    pid = None if user_id is None else user_id + 5
    listening = SimpleNamespace(status=server.psutil.CONN_LISTEN, laddr=(server.HOST, port), pid=pid)
    return listening, SimpleNamespace(uids=lambda: SimpleNamespace(effective=user_id))


@pytest.mark.parametrize(
    ("users", "is_own"), [(["me"], True), (["other"], False), ([None], False), (["me", "other"], False), ([], False)]
)
def test_the_secret_is_sent_only_to_a_port_of_this_user(users, is_own, monkeypatch):
    user_ids = {"me": os.geteuid(), "other": os.geteuid() + 1, None: None}
    pairs = [listener_of(user_ids[user], 4200) for user in users]
    elsewhere, _ = listener_of(os.geteuid() + 1, 4201)
    processes = {listening.pid: process for listening, process in pairs}
    monkeypatch.setattr(
        server.psutil, "net_connections", lambda _kind: [elsewhere, *(listening for listening, _ in pairs)]
    )
    monkeypatch.setattr(server.psutil, "Process", lambda pid: processes[pid])
    assert server.is_own_port(4200) == is_own


def test_a_port_of_this_process_is_its_own():
    with socket.create_server((server.HOST, 0)) as listener:
        port = listener.getsockname()[1]
        assert server.is_own_port(port)
    assert not server.is_own_port(port)


def test_a_running_server_is_used_and_files_of_a_killed_one_are_removed(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_API_URL", "http://elsewhere/api")
    monkeypatch.setattr(server, "is_api_available", lambda _url, **_within: True)
    server.STATE.mkdir(parents=True)
    for left in (server.ADDRESS_FILE, server.SECRET_FILE):
        left.touch()
    with server.serve_api(4200) as url:
        assert url == "http://elsewhere/api"
        assert not server.ADDRESS_FILE.exists()
        assert not server.SECRET_FILE.exists()


def test_a_server_that_ends_during_the_start_is_reported():
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    with subprocess.Popen(command) as process, pytest.raises(RunFailed, match=r"status 3; .*port 9\b"):
        server.wait_until_healthy(process, 9)


def test_the_server_ends_when_its_parent_process_ends():
    code = "import threading, time; from flows.server import end_with_parent;"
    code += "threading.Thread(target=end_with_parent, daemon=True).start(); print('up', flush=True); time.sleep(60)"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"up\n"
        process.stdin.close()  # as the system does when the parent is killed
        assert process.wait(20) == -signal.SIGTERM


def test_the_secret_is_random_unless_set_and_private_to_the_user(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PREFECT_SERVER_API_AUTH_STRING", raising=False)
    server.STATE.mkdir(parents=True)
    secret = server.create_secret()
    server.write_secret(secret)
    assert server.SECRET_FILE.read_text() == secret
    assert server.SECRET_FILE.stat().st_mode & 0o777 == 0o600
    assert server.create_secret() != secret
    assert len(secret) >= 43  # 256 bits
    with pytest.raises(FileExistsError):  # the file is always new, so that it cannot be a link or readable by others
        server.write_secret(secret)
    monkeypatch.setenv("PREFECT_SERVER_API_AUTH_STRING", "mine")
    assert server.create_secret() == "mine"


def test_a_work_pool_needs_a_server(monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with pytest.raises(InputError, match="PREFECT_API_URL"):
        serve.register_for_pool([], "here")
