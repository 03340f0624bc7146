"""Audit hooks for processes under test, which Python imports at start if PYTHONPATH has this folder.

With GUARD_REPORT, connections to other hosts and look-ups of their names are refused, and written to the file that this
variable names. With LIBRARY_REPORT, each process that imports `relmap` writes the imported file and its command to the
file that this variable names. Child processes inherit both.
"""

import ipaddress
import json
import os
import socket
import sys
import traceback
from pathlib import Path

LOCAL_NAMES = {None, "", "localhost", socket.gethostname()}


def is_local(host: object) -> bool:
    """Return whether a host name or address belongs to this machine."""
    try:
        return host in LOCAL_NAMES or ipaddress.ip_address(str(host)).is_loopback
    except ValueError:
        return False


def requested_host(event: str, arguments: tuple) -> object:
    """Return the host that an audit event looks up or connects to; an empty name for any other event."""
    if event == "socket.getaddrinfo":
        host = arguments[0]
        return host.decode() if isinstance(host, bytes) else host
    if event in {"socket.connect", "socket.sendto"}:
        used_socket, address = arguments
        if used_socket.family in {socket.AF_INET, socket.AF_INET6}:
            return address[0]
    return ""


def refuse_other_hosts(event: str, arguments: tuple) -> None:
    """Refuse and report a look-up of another host, or a connection to it."""
    host = requested_host(event, arguments)
    if not is_local(host):
        with Path(os.environ["GUARD_REPORT"]).open("a") as report:
            report.write(f"{host}\n{''.join(traceback.format_stack(limit=12))}\n")
        raise OSError(f"the guard of the tests refuses a call to {host}")


def record_library(event: str, arguments: tuple) -> None:
    """Record the file of `relmap` when its code is executed."""
    if event != "exec":
        return
    file = getattr(arguments[0], "co_filename", "")
    if file.endswith("relmap/__init__.py"):
        with Path(os.environ["LIBRARY_REPORT"]).open("a") as report:
            report.write(json.dumps([file, sys.orig_argv]) + "\n")


if "LIBRARY_REPORT" in os.environ:
    sys.addaudithook(record_library)
if "GUARD_REPORT" in os.environ:
    sys.addaudithook(refuse_other_hosts)
