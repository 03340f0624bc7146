"""Is there a network that leads to an address? Told within a bound, whatever the machine's name servers do."""

from __future__ import annotations

import socket
from functools import cache
from queue import Empty, SimpleQueue
from threading import Thread
from urllib.request import getproxies

import httpx

from tasks.protocol.errors import BadInput

LONGEST = 15.0  # seconds, for looking a name up and trying all its addresses
ADDRESSES = 8  # that may swallow packets before one answers
NO_HOST = (OSError, UnicodeError, OverflowError)  # the last two for names and ports that cannot be


def reached(url: str) -> None:
    """Return where a server listens at the host of `url`; BadInput, after 15 s at most, where none does.

    Where there is a proxy, that is the proxy's to know. A name server that is silent, or an address that swallows
    packets, is waited for by the system much longer than anybody wants to.
    """
    address = httpx.URL(url)
    if {address.scheme, "all"} & getproxies().keys():
        return
    try:
        _connected(address.host, address.port or {"https": 443}.get(address.scheme, 80))
    except NO_HOST as error:
        raise BadInput(f"{shown(url)}: {address.host} cannot be reached ({error})") from None


@cache  # that it could; an error is not remembered
def _connected(host: str, port: int) -> None:
    found: SimpleQueue[Exception | None] = SimpleQueue()

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=LONGEST / ADDRESSES).close()
        except NO_HOST as error:
            found.put(error)
        else:
            found.put(None)

    Thread(target=connect, daemon=True).start()  # whoever waits for a name cannot be interrupted
    try:
        error = found.get(timeout=LONGEST)
    except Empty:
        raise TimeoutError(f"no answer within {LONGEST:.0f} s") from None
    if error is not None:
        raise error


def shown(url: str) -> str:
    """An address without the name, the password and the signature that it may hold."""
    return str(httpx.URL(url).copy_with(userinfo=b"", query=None))
