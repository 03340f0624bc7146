"""Attack the listening ports of a run as another user: `python -m tests.system.attack UID PORT ...`.

The program imports its modules as the user who started it, since the environment may be in a private folder, then
gives up that user's rights. It has none of the run's credentials. It prints one JSON object: port -> answers.
"""

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from http.client import HTTPException
from typing import Any

from distributed.core import rpc
from distributed.protocol import pickle
from distributed.security import Security
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

TIMEOUT = 3  # seconds
WEBSOCKETS = ("/api/events/in", "/api/events/out", "/api/logs/out", "/api/task_runs/subscriptions/scheduled")
PATHS = (
    "/",
    "/status",
    "/health",
    "/api/health",
    "/api/ready",
    "/metrics",
    "/info/main/workers.html",
    "/json/counts.json",
    "/individual-plots.json",
    "/sitemap.json",
    "/eventstream",
    "/api/v1",
    "/proxy/8787/127.0.0.1/status",
    "/statics/css/base.css",
)


def report_secrets() -> dict[str, Any]:
    """Report the user and the secrets of the attacked process; the attacked process runs it if the attack succeeds."""
    secrets = sorted(name for name in os.environ if name.startswith("PREFECT_API"))
    return {"uid": os.getuid(), "secrets": secrets}


async def run_code(port: int, scheme: str, security: Security | None) -> object:
    """Return the answer to Dask's `run`, or else to `identity`; None if the port answers neither."""
    remote = rpc(f"{scheme}://127.0.0.1:{port}", timeout=TIMEOUT, **_arguments(security))
    call = {"function": pickle.dumps(report_secrets), "args": pickle.dumps(()), "kwargs": pickle.dumps({})}
    try:
        for operation, arguments in (("run", call), ("identity", {})):
            with suppress(OSError, asyncio.TimeoutError, ValueError, TypeError):
                answer = await asyncio.wait_for(getattr(remote, operation)(**arguments), TIMEOUT)
                if answer is not None:
                    return str(answer)[:300]
        return None
    finally:
        await remote.close_rpc()


def _arguments(security: Security | None) -> dict[str, Any]:
    return {} if security is None else {"connection_args": security.get_connection_args("client")}


def page_statuses(port: int) -> dict[str, int]:
    """Return the HTTP status of each path that answers."""
    statuses = {}
    for path in PATHS:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=TIMEOUT) as answer:
                statuses[path] = answer.status
        except urllib.error.HTTPError as error:
            statuses[path] = error.code
        except (OSError, ValueError, HTTPException):
            break  # the port does not serve HTTP
    return statuses


async def open_websockets(port: int) -> list[str]:
    """Return the WebSockets that stay open for a client without the secret, or accept a guessed one."""
    still_open = []
    for path in WEBSOCKETS:
        for protocols in (None, ["prefect"]):
            with suppress(OSError, TimeoutError, WebSocketException, EOFError):
                address = f"ws://127.0.0.1:{port}{path}"
                async with connect(address, subprotocols=protocols, open_timeout=TIMEOUT, proxy=None) as socket:
                    await socket.send(json.dumps({"type": "auth", "token": "a guess"}))
                    with suppress(TimeoutError):  # no answer means that the connection was accepted
                        answer = json.loads(await asyncio.wait_for(socket.recv(), TIMEOUT))
                        if answer.get("type") == "auth_failure":
                            continue
                    still_open.append(f"{path} {protocols}")
    return still_open


async def attack(port: int) -> dict[str, object]:
    """Return the answers of a port to a client without the run's credentials."""
    schemes = {"tcp": None, "tls": Security.temporary()}  # the attacker's own credentials
    results = await asyncio.gather(*(run_code(port, scheme, security) for scheme, security in schemes.items()))
    answers = {scheme: result for scheme, result in zip(schemes, results, strict=True) if result is not None}
    statuses = await asyncio.to_thread(page_statuses, port)
    return {"code": answers, "pages": statuses, "websockets": await open_websockets(port)}


async def attack_all(ports: list[int]) -> dict[int, dict[str, object]]:
    """Attack several ports at the same time."""
    return dict(zip(ports, await asyncio.gather(*map(attack, ports)), strict=True))


if __name__ == "__main__":
    user, *ports = map(int, sys.argv[1:])
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    print(json.dumps(asyncio.run(attack_all(ports))))
