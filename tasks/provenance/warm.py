"""A parent that has imported the libraries of the stages once, and forks a child for each stage that asks it to.

`python -m tasks.provenance.warm LIBRARY…` waits on a socket that its user alone can open, until nobody holds the other
end of its input. It imports nothing of the project but this file, and reads neither data nor parameters. Where there is
no parent in the same surroundings, or none that can fork safely, a stage runs in its own process.
"""

import gc
import hashlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

FOLDER = Path("data/.state/warm")  # relative to the project's root: the name of a socket must be short
LATE = ("DVC_", "PREFECT_API_", "PATH", "TERM", "JE_ARROW_", "_")  # as names begin of what nothing reads at import
LONGEST = 2**20  # bytes of a request


def door() -> Path:
    """The socket of a parent in the surroundings of this process: its Python, libraries, folder and environment."""
    os.umask(umask := os.umask(0o077))
    of_python = (Path(__file__).read_bytes(), sys.executable, sys.version, tuple(sys.flags))
    libraries = [place.stat().st_mtime_ns for place in map(Path, sys.path[1:]) if place.is_dir()]  # as installed
    environment = sorted((name, value) for name, value in os.environ.items() if not name.startswith(LATE))
    surroundings = repr((of_python, libraries, str(Path.cwd()), umask, environment))
    return FOLDER / hashlib.sha256(surroundings.encode()).hexdigest()[:16]


def is_ours(connection: socket.socket) -> bool:
    """Whether a process of this user is at the other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return bool(struct.unpack("3i", credentials)[1] == os.getuid())


def hand_over() -> None:
    """Run the module that was called as a command in a child of the parent, and end as that ends; else return."""
    if sys.platform != "linux" or __name__ in sys.orig_argv:  # this is such a child
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            connection.connect(str(door()))
            if is_ours(connection):
                module = sys.modules["__main__"].__spec__.name  # type: ignore[union-attr]
                request = json.dumps([module, sys.argv[1:], dict(os.environ)])
                socket.send_fds(connection, [request.encode()], [0, 1, 2])
            connection.recv(1)[0]  # IndexError, where nothing was forked
        except (OSError, IndexError):
            return
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, lambda number, _frame: connection.send(bytes([number])))
        status = connection.recv(LONGEST)
    if not status:
        sys.exit("the process that ran this stage was ended")
    code = os.waitstatus_to_exitcode(int(status))
    if code < 0:
        with suppress(OSError):  # SIGKILL is as it is
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def serve(libraries: list[str]) -> str | None:
    """Fork for whoever asks; returns in each child the module to run, and None once nobody holds the other end."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    FOLDER.chmod(0o700)
    (place := door()).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(place))
        place.chmod(0o600)
        listening.listen()
        while True:
            ready, _, _ = select.select([sys.stdin, listening], [], [])
            with suppress(ChildProcessError):
                while any(os.waitpid(-1, os.WNOHANG)):
                    pass
            if sys.stdin in ready:
                place.unlink()
                return None
            with listening.accept()[0] as connection:
                threads = [*Path("/proc/self/task").iterdir()]  # of others a child would have the locks alone
                if len(threads) == 1 and not libraries and is_ours(connection) and os.fork() == 0:
                    return between(connection)
            while libraries:  # the first runs alone meanwhile; where nothing runs, nothing is imported
                import_module(libraries.pop())
                gc.freeze()  # it is never garbage


def between(connection: socket.socket) -> str:
    """In a process between: fork the child, in which this returns the module to run, and stand in for whoever asked."""
    try:
        request, files, *_ = socket.recv_fds(connection, LONGEST, 3)
        module, arguments, environment = json.loads(request)
        connection.send(b"y")
        child = os.fork()
    except (OSError, ValueError):
        os._exit(1)
    if not child:
        for place, file in enumerate(files):
            os.dup2(file, place)
            os.close(file)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv[1:] = arguments
        Path("/proc/self/comm").write_text(module)
        return str(module)
    ended = os.pidfd_open(child)
    with suppress(OSError, ValueError):
        while ended not in select.select([ended, connection.fileno()], [], [])[0]:
            (number,) = connection.recv(1)  # ValueError, where nobody waits any more
            signal.pidfd_send_signal(ended, number)
        connection.send(str(os.waitpid(child, 0)[1]).encode())
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(ended, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__" and sys.platform == "linux" and (called := serve(sys.argv[1:])):
    runpy.run_module(called, run_name="__main__", alter_sys=True)
