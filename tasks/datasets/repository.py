"""Repositories of the hub as they lie in a raw folder, read with the library that they are made for: `datasets`.

It comes after a look at each file, never in its place: the library casts numbers to texts without a word and calls a
page in HTML a broken footer. Nothing is written outside a throw-away folder, and nothing is asked of a network.
"""

import errno
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from tasks.datasets.raw import FETCH, ROW, forbid, opened, require, typed
from tasks.protocol.errors import BadInput
from tasks.sources.contents import PARQUET, parsing
from tasks.sources.hub import INDEX


class RepositoryRows(NamedTuple):
    """The rows of one split, on the disk."""

    path: Path  # <raw folder>/<config>/<split>, for messages
    data: Any  # datasets.Dataset

    def table(self, kinds: Mapping[str, str]) -> pl.DataFrame:
        """ROW and the columns of `kinds`, cast; BadInput where one is missing or of another kind."""
        require(self.path, self.data.column_names, kinds)
        frame = self.data.select_columns(list(kinds)).to_polars().with_row_index(ROW, offset=1)
        return typed(self.path, frame.lazy(), kinds)

    def frame(self, kinds: Mapping[str, str], labels: tuple[str, ...], label: str = "label") -> pl.DataFrame:
        """As `table`, with `pair` (`<split>:<row>`, from 1) and `label` 0..K-1, which the column `label` holds.

        Raises:
            BadInput: as `table`, and for a label that is none of `labels`.
        """
        frame = self.table(kinds)
        known = pl.col(label).is_between(0, len(labels) - 1).fill_null(False)
        named = ", ".join(f"{code} ({name})" for code, name in enumerate(labels))
        forbid(frame, ~known, self.path, label, f"it must be one of {named}")
        pair = pl.format("{}:{}", pl.lit(self.path.name), ROW)
        return frame.with_columns(pl.col(label).cast(pl.Int8).alias("label"), pair=pair)

    def texts_by_id(self) -> pl.DataFrame:
        """`id` (or `_id`) and `text` of queries or of a corpus, below its title where there is one; blank texts go.

        Raises:
            BadInput: a column is missing, or an id comes twice.
        """
        key = "_id" if "_id" in self.data.column_names else "id"
        title = {"title": "text"} if "title" in self.data.column_names else {}
        frame = self.table({key: "text or number", "text": "text", **title})
        forbid(frame, pl.col(key).is_duplicated(), self.path, key, "every row needs an id of its own")
        titled = [pl.when(pl.col(column) != "").then(column) for column in (*title, "text")]
        frame = frame.filter(pl.col("text").str.strip_chars() != "")
        return frame.select(pl.col(key).alias("id"), text=pl.concat_str(titled, separator="\n", ignore_nulls=True))


OpenedRepository = Callable[..., RepositoryRows]  # (split, config=None) -> its rows


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


@contextmanager
def opened_repository(folder: Path) -> Iterator[OpenedRepository]:
    """`rows(split, config=None)` of the repository whose files lie in `folder`, as its card says.

    Raises:
        BadInput: a file is cut or no data, there is no such configuration or split, or the library cannot read them.
    """
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != INDEX and path.suffix != ".md":
            opened(path)
            if path.suffix == ".parquet":
                with parsing(path, PARQUET, FETCH):  # what it holds stands at its end
                    pl.read_parquet_schema(path)
    library = hub_library()
    with tempfile.TemporaryDirectory() as place:
        view = Path(place) / "repository"  # these files, and none of our own beside them
        shutil.copytree(folder.resolve(), view, copy_function=os.symlink, ignore=shutil.ignore_patterns(INDEX))

        def rows(split: str, config: str | None = None) -> RepositoryRows:
            try:
                # "no_checks": the card counts the whole set, and a cut mirror is a set too
                data = library.load_dataset(
                    str(view), name=config, split=split, cache_dir=place, verification_mode="no_checks"
                )
            except (ValueError, OSError, library.exceptions.DatasetGenerationError) as error:
                cause = error.__cause__ or error
                if isinstance(cause, OSError) and cause.errno is not None:  # the machine failed, not the data
                    if cause.errno in (errno.ENOSPC, errno.EDQUOT):  # where the library unpacks, seldom where data are
                        where = f"{os.strerror(cause.errno)} in the folder for temporary files, which TMPDIR sets"
                        raise OSError(cause.errno, where, tempfile.gettempdir()) from None
                    raise cause from None
                of = f"split {split}" + (f" of config {config}" if config else "")
                raise BadInput(f"{folder}: {of} cannot be read: {' '.join(str(cause).split())[:300]}") from None
            return RepositoryRows(folder / (config or "") / split, data)

        yield rows
