"""Put on the path of a process under test: it, and every Python that it starts, may talk to this machine alone.

Whoever looks up or calls another host is written down in the file that GUARD_REPORT names, and refused. Each
process that imports `relmap` writes the imported file and its command into the file that LIBRARY_REPORT names.
"""

import ipaddress
import json
import os
import socket
import sys
import traceback
from pathlib import Path

OWN_NAMES = {None, "", "localhost", socket.gethostname()}


def is_own(host: object) -> bool:
    try:
        return host in OWN_NAMES or ipaddress.ip_address(str(host)).is_loopback
    except ValueError:
        return False


def guard(event: str, arguments: tuple) -> None:
    if event == "socket.getaddrinfo":
        host = arguments[0].decode() if isinstance(arguments[0], bytes) else arguments[0]
    elif event in {"socket.connect", "socket.sendto"} and arguments[0].family in {socket.AF_INET, socket.AF_INET6}:
        host = arguments[1][0]
    else:
        return
    if not is_own(host):
        with Path(os.environ["GUARD_REPORT"]).open("a") as report:
            report.write(f"{host}\n{''.join(traceback.format_stack(limit=12))}\n")
        raise OSError(f"the guard of the tests refuses a call to {host}")


def record_library(event: str, arguments: tuple) -> None:
    """Record the file of `relmap` when its code is executed."""
    file = getattr(arguments[0], "co_filename", "") if event == "exec" else ""
    if file.endswith("relmap/__init__.py"):
        with Path(os.environ["LIBRARY_REPORT"]).open("a") as report:
            report.write(json.dumps([file, sys.orig_argv]) + "\n")


if "LIBRARY_REPORT" in os.environ:
    sys.addaudithook(record_library)
if "GUARD_REPORT" in os.environ:
    sys.addaudithook(guard)
