"""Attack the listening ports of a run as another user: `python -m tests.system.attack UID PORT ...`.

It imports what it needs as the user who started it, since the environment may be in a private folder, then gives up
that user's rights. It holds none of the run's credentials. It prints one JSON object: port -> what the port gave.
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


def read_secrets() -> dict[str, Any]:
    """Return the user and the secrets of the attacked process; runs there if the attack succeeds."""
    secrets = sorted(name for name in os.environ if name.startswith("PREFECT_API"))
    return {"uid": os.getuid(), "secrets": secrets}


async def run_code(port: int, scheme: str, security: Security | None) -> object:
    """Return the result of Dask's `run`, or else the identity of the server; None without an answer."""
    remote = rpc(f"{scheme}://127.0.0.1:{port}", timeout=TIMEOUT, **_arguments(security))
    call = {"function": pickle.dumps(read_secrets), "args": pickle.dumps(()), "kwargs": pickle.dumps({})}
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


def request_pages(port: int) -> dict[str, int]:
    """Return the HTTP status of each path that answers."""
    found = {}
    for path in PATHS:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=TIMEOUT) as answer:
                found[path] = answer.status
        except urllib.error.HTTPError as error:
            found[path] = error.code
        except (OSError, ValueError, HTTPException):
            break  # it does not speak HTTP
    return found


async def open_websockets(port: int) -> list[str]:
    """Return the WebSockets that stay open without the secret, or accept a wrong one."""
    found = []
    for path in WEBSOCKETS:
        for protocols in (None, ["prefect"]):
            with suppress(OSError, TimeoutError, WebSocketException, EOFError):
                address = f"ws://127.0.0.1:{port}{path}"
                async with connect(address, subprotocols=protocols, open_timeout=TIMEOUT, proxy=None) as socket:
                    await socket.send(json.dumps({"type": "auth", "token": "a guess"}))
                    with suppress(TimeoutError):  # silence means that it waits for more
                        answer = json.loads(await asyncio.wait_for(socket.recv(), TIMEOUT))
                        if answer.get("type") == "auth_failure":
                            continue
                    found.append(f"{path} {protocols}")
    return found


async def attack(port: int) -> dict[str, object]:
    """Return the results of all attacks on a port without credentials."""
    ways = {"tcp": None, "tls": Security.temporary()}  # credentials of the attacker's own
    results = await asyncio.gather(*(run_code(port, scheme, security) for scheme, security in ways.items()))
    taken = {scheme: result for scheme, result in zip(ways, results, strict=True) if result is not None}
    return {
        "code": taken,
        "pages": await asyncio.to_thread(request_pages, port),
        "websockets": await open_websockets(port),
    }


async def attack_all(ports: list[int]) -> dict[int, dict[str, object]]:
    """Attack all ports; return port -> results."""
    return dict(zip(ports, await asyncio.gather(*map(attack, ports)), strict=True))


if __name__ == "__main__":
    user, *ports = map(int, sys.argv[1:])
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    print(json.dumps(asyncio.run(attack_all(ports))))
