"""Put on the path of a process under test: it, and every Python that it starts, may talk to this machine alone.

Whoever looks up or calls another host is written down in the file that GUARD_REPORT names, and refused.
"""

import ipaddress
import os
import socket
import traceback
from pathlib import Path

OWN_NAMES = {None, "", "localhost", socket.gethostname()}


def is_own(host: object) -> bool:
    if host in OWN_NAMES:
        return True
    try:
        return ipaddress.ip_address(str(host)).is_loopback
    except ValueError:
        return False


def refuse(host: object) -> None:
    with Path(os.environ["GUARD_REPORT"]).open("a") as report:
        report.write(f"{host}\n{''.join(traceback.format_stack(limit=12))}\n")
    raise OSError(f"the guard of the tests refuses a call to {host}")


def guarded(call, host_of):
    def inner(*arguments, **named):
        host = host_of(*arguments)
        if not is_own(host):
            refuse(host)
        return call(*arguments, **named)

    return inner


def peer(own, address, *_):
    return address[0] if own.family in {socket.AF_INET, socket.AF_INET6} else None


class GuardedSocket(socket.socket):
    connect = guarded(socket.socket.connect, peer)
    connect_ex = guarded(socket.socket.connect_ex, peer)


if "GUARD_REPORT" in os.environ:
    socket.socket = GuardedSocket
    socket.getaddrinfo = guarded(
        socket.getaddrinfo, lambda host, *_: host.decode() if isinstance(host, bytes) else host
    )
