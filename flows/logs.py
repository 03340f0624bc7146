"""Log files of limited size: a full file is renamed, and the oldest one is removed."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from logging import INFO, Formatter, LogRecord
from logging.handlers import RotatingFileHandler
from pathlib import Path
from threading import Thread
from typing import IO

BYTES_PER_FILE = 5_000_000
MAX_OLD_FILES = 4
SECONDS_FOR_LAST_LINES = 5.0
OUTPUT_DESCRIPTORS = (1, 2)  # standard output and standard error


class RotatingLog:
    """Log file with up to four older files: `serve.log` is followed by `serve.log.1` to `serve.log.4`."""

    def __init__(self, path: Path) -> None:
        """Open the file for appending, and create its folder.

        Args:
            path: Log file.
        """
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._handler = RotatingFileHandler(path, maxBytes=BYTES_PER_FILE, backupCount=MAX_OLD_FILES, encoding="utf-8")
        self._handler.setFormatter(Formatter("%(message)s"))

    def write(self, line: bytes) -> None:
        """Append a line; invalid UTF-8 is replaced.

        Args:
            line: One line.
        """
        text = line.decode(errors="replace").rstrip("\n")
        self._handler.emit(LogRecord("output", INFO, "", 0, "%s", (text,), None))

    def close(self) -> None:
        """Close the file."""
        self._handler.close()


def log_lines(stream: IO[bytes], path: Path, terminal: IO[bytes] | None = None) -> Thread:
    """Write each line of a stream to a log file, in a thread that ends with the stream.

    Args:
        stream: Output of a process.
        path: Log file.
        terminal: Second destination of the lines, if any, until it can no longer be written to.

    Returns:
        The running thread.
    """

    def copy() -> None:
        log = RotatingLog(path)
        is_open = terminal is not None
        with stream:
            for line in stream:
                log.write(line)
                if terminal is not None and is_open:
                    try:
                        terminal.write(line)
                        terminal.flush()
                    except OSError:  # the program that read it has ended
                        is_open = False
        log.close()

    thread = Thread(target=copy, daemon=True)
    thread.start()
    return thread


@contextmanager
def log_output(path: Path) -> Iterator[None]:
    """Copy the output of this process and its children to a log file, inside the `with` block.

    Args:
        path: Log file.

    Yields:
        Nothing.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    terminal_descriptors = [os.dup(number) for number in OUTPUT_DESCRIPTORS]
    read_end, write_end = os.pipe()
    for number in OUTPUT_DESCRIPTORS:
        os.dup2(write_end, number)
    os.close(write_end)
    terminal = os.fdopen(os.dup(terminal_descriptors[0]), "wb")
    log_thread = log_lines(os.fdopen(read_end, "rb"), path, terminal)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in zip(OUTPUT_DESCRIPTORS, terminal_descriptors, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
        log_thread.join(SECONDS_FOR_LAST_LINES)  # a child that is still running keeps the pipe open
        with suppress(OSError):  # the program that read it has ended
            terminal.close()
