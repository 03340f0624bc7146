"""Files of the Hugging Face hub, read with the library that they are made for: `datasets`, from the disk alone.

It comes after the door for raw files, never in its place: the library casts numbers to texts without a word, fills up
a column that is missing, and calls a page in HTML a broken footer. Nothing is written outside a throw-away folder.
"""

from __future__ import annotations

import errno
import glob
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from tasks.datasets.raw import FETCH, ROW, bad_json_line, opened, read_parquet
from tasks.protocol.errors import BadInput


def hub_library() -> Any:
    """The library `datasets`, quiet; importing it takes seconds, so only those who read with it do.

    Left to itself it tells its makers of every file of JSON or parquet that is read, local ones too; no setting
    against telemetry is heeded there, and where no network answers that takes seconds.
    """
    import datasets  # noqa: PLC0415

    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(logging.CRITICAL)
    return datasets


def load_file(path: Path, columns: Mapping[str, str]) -> pl.DataFrame:
    """ROW and `columns` (name -> `text`, `integer` or `list of texts`) of a file of parquet or JSON lines.

    Raises
    ------
    BadInput: as the door does, and for columns that are missing or of another kind.
    """
    source = opened(path)
    parquet = path.suffix == ".parquet"
    if parquet:
        read_parquet(path, columns, lambda lazy: lazy.head(0))
    library = hub_library()
    text = library.Value("string")
    kinds = {"text": text, "integer": library.Value("int64"), "list of texts": library.List(text)}
    with tempfile.TemporaryDirectory() as cache:
        try:
            rows = library.load_dataset(
                "parquet" if parquet else "json",
                data_files=glob.escape(str(path)),
                split="train",
                cache_dir=cache,
                features=library.Features({column: kinds[kind] for column, kind in columns.items()}),
                **({"columns": list(columns)} if parquet else {}),
            )
        except library.exceptions.DatasetGenerationError as error:
            line = "" if parquet else bad_json_line(source)
            form = "a whole parquet file" if parquet else f"one JSON object per line with {', '.join(columns)}"
            raise told(error, f"{path}{line} is not {form} ({reason(error)}); {FETCH}") from None
        return rows.to_polars().select(*columns).with_row_index(ROW, offset=1)


def load_repository(folder: Path, repository: str, config: str | None) -> Any:
    """The `DatasetDict` of a repository whose files lie in `folder`, in its configuration `config`.

    The library is shown these files, and none of our own beside them, under the repository's name: by that it knows
    one that only a script could read.

    Raises
    ------
    BadInput: a file is no data, there is no such configuration, or the library cannot read what is there.
    """
    own = {folder / "source.json"}
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path not in own]
    for path in files:
        if path.suffix not in (".md", ".py"):
            opened(path)
    library = hub_library()
    with tempfile.TemporaryDirectory() as place:
        view = Path(place) / repository.rpartition("/")[2]
        for path in files:
            link = view / path.relative_to(folder)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path.resolve())
        try:
            return library.load_dataset(str(view), name=config, cache_dir=place, verification_mode="no_checks")
        except RuntimeError as error:
            if "scripts are no longer supported" not in str(error):
                raise
            raise BadInput(
                f"{folder}: {repository} is read by a script of its own, which is never run; name a revision that holds"
                " data files (often the commit of refs/convert/parquet)"
            ) from None
        except (ValueError, OSError, library.exceptions.DatasetGenerationError) as error:
            raise told(error, f"{folder} cannot be read as {repository}, config {config!r}: {reason(error)}") from None


def reason(error: Exception) -> str:
    """What the library says, in one line; where it only says that something failed, what that was."""
    return " ".join(str(error.__cause__ or error).split())[:300]


def told(error: Exception, what: str) -> OSError | BadInput:
    """BadInput that says `what`; but where it was the machine that failed, and not the data, its own OSError.

    The disk that is full is seldom that of the data: the library unpacks them in the folder for temporary files.
    """
    cause = error.__cause__ or error
    if not isinstance(cause, OSError) or cause.errno is None:  # the library has errors of this kind without a number
        return BadInput(what)
    if cause.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f"{os.strerror(cause.errno)} in the folder for temporary files, which TMPDIR sets"
        return OSError(cause.errno, where, tempfile.gettempdir())
    return cause
