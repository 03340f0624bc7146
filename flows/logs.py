"""Log files of limited size: when one is full it is renamed, and the oldest is removed."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from logging import INFO, Formatter, LogRecord
from logging.handlers import RotatingFileHandler
from pathlib import Path
from threading import Thread
from typing import IO

BYTES_PER_FILE = 5_000_000
OLD_FILES = 4
SECONDS_FOR_LAST_LINES = 5.0


class RotatingLog:
    """A log file, and up to four older ones beside it: `serve.log`, `serve.log.1`, … ."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._handler = RotatingFileHandler(path, maxBytes=BYTES_PER_FILE, backupCount=OLD_FILES, encoding="utf-8")
        self._handler.setFormatter(Formatter("%(message)s"))

    def write(self, line: bytes) -> None:
        """Append a line; bytes that are no text are replaced."""
        text = line.decode(errors="replace").rstrip("\n")
        self._handler.emit(LogRecord("output", INFO, "", 0, "%s", (text,), None))

    def close(self) -> None:
        """Close the file."""
        self._handler.close()


def log_lines(stream: IO[bytes], path: Path, terminal: IO[bytes] | None = None) -> Thread:
    """Write each line of a stream to a log file, in a thread that ends with the stream.

    Args:
        stream: What a process prints.
        path: The log file.
        terminal: Where the lines go as well, if anywhere.

    Returns:
        The thread, which is running.
    """

    def copy() -> None:
        log = RotatingLog(path)
        with stream:
            for line in stream:
                log.write(line)
                if terminal is not None:
                    terminal.write(line)
                    terminal.flush()
        log.close()

    thread = Thread(target=copy, daemon=True)
    thread.start()
    return thread


@contextmanager
def output_logged(path: Path) -> Iterator[None]:
    """Inside, what this process and those that it starts print goes to a log file as well as to the terminal."""
    sys.stdout.flush()
    sys.stderr.flush()
    terminal_numbers = os.dup(1), os.dup(2)
    read_end, write_end = os.pipe()
    os.dup2(write_end, 1)
    os.dup2(write_end, 2)
    os.close(write_end)
    terminal = os.fdopen(os.dup(terminal_numbers[0]), "wb")
    copying = log_lines(os.fdopen(read_end, "rb"), path, terminal)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, terminal_number in enumerate(terminal_numbers, start=1):
            os.dup2(terminal_number, number)
            os.close(terminal_number)
        copying.join(SECONDS_FOR_LAST_LINES)  # a process that outlives us still holds the pipe
        terminal.close()
