"""Saved logits of any model, in place of judged pairs to train on: a `.npz` of arrays, or a parquet file.

`.npz`, the format of the paper's release: `val_logits` and `test_logits` `(members, n, K)` or `(n, K)`, `val_labels`
and `test_labels` `(n,)`; `val_query_ids` and `test_query_ids` `(n,)` are optional. Other arrays are left alone, also
`temperatures`: ours is the exact minimum of the same loss. Parquet: `split` (validation or test), `label`, `logits` (a
list) and optionally `group`. Where there are no queries or groups, each row is a group of its own, named by its number.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from tasks.datasets.base import Dataset, Judged
from tasks.datasets.file_options import LogitsOptions
from tasks.datasets.options import checked
from tasks.datasets.raw import FETCH, ROW, first_line, forbid, opened, require
from tasks.protocol.errors import BadInput
from tasks.sources.hub import INDEX

SPLITS = {"validation": "val", "test": "test"}  # and what the names of their arrays begin with
MOST_LABELS = 127  # that an int8 can name


@dataclass(frozen=True)
class SavedLogits:
    """The logits that the members of a model gave to the same rows."""

    members: tuple[pl.DataFrame, ...]  # each `split, group, label, logits`: String, String, Int8, List(Float64)
    n_labels: int  # K


class Part(NamedTuple):
    """The rows of one split, each column with its place in the file."""

    logits: np.ndarray  # (members, n, K)
    labels: np.ndarray  # (n,)
    groups: np.ndarray  # (n,)
    places: tuple[str, str, str]  # of these three, for messages
    rows: np.ndarray  # (n,) numbers in the file, for messages


def logits_dataset(name: str, options: Mapping[str, Any]) -> Dataset:
    """The data set `name` whose logits are saved; BadInput says what is wrong with its options."""
    chosen = checked(LogitsOptions, options, name)
    return Dataset(
        name=name,
        title=chosen.title or name,
        domain=chosen.domain,
        task=chosen.task,
        labels=chosen.labels,
        licence=chosen.licence,
        read=partial(read, labels=chosen.labels),
    )


def read(folder: Path, labels: tuple[str, ...]) -> Judged:
    """The rows of the one file in `folder`, each with its `logits`, those of the first member in `pairs`."""
    (path,) = [path for path in folder.iterdir() if path.name != INDEX]
    saved = read_saved_logits(path)
    if saved.n_labels != len(labels):
        raise BadInput(f"{path} has {saved.n_labels} logits in each row, but options name {len(labels)} labels")
    pair = pl.format("{}:{}", "split", pl.int_range(1, pl.len() + 1).over("split"))
    frames = [
        frame.with_columns(pair=pair, logits=pl.col("logits").list.to_array(saved.n_labels)) for frame in saved.members
    ]
    return Judged(frames[0], members=tuple(frames))


def read_saved_logits(path: Path) -> SavedLogits:
    """The validation rows of a file and then its test rows, each in their order.

    Raises
    ------
    BadInput: names the file and the array or column. It is missing, cut off, no data, pickled, or of another type or
        shape; K or the number of members differs between the splits; a logit is not finite; a label is not in 0..K-1; a
        split has no row of some label, or no row at all.
    """
    readers = {".npz": _of_arrays, ".parquet": _of_columns}
    if path.suffix not in readers:
        raise BadInput(
            f"{path}: saved logits are read from {' and '.join(readers)}; write them so, and name the file so"
        )
    opened(path)
    parts = readers[path.suffix](path)
    for part in parts.values():
        _check_shapes(part)
    for axis, what in ((0, "members"), (2, "logits in each row")):
        shapes = {part.places[0]: part.logits.shape[axis] for part in parts.values()}
        if len(set(shapes.values())) > 1:
            told = ", ".join(f"{place} has {found} {what}" for place, found in shapes.items())
            raise BadInput(f"{told}; both splits need as many")
    for part in parts.values():
        _check_values(part)
    members, _, n_labels = parts["validation"].logits.shape
    frames = [pl.concat(_frame(split, part, member) for split, part in parts.items()) for member in range(members)]
    return SavedLogits(tuple(frames), n_labels)


def _of_arrays(path: Path) -> dict[str, Part]:
    arrays, parts, first = _arrays(path), {}, 0
    for split, short in SPLITS.items():
        logits, labels = arrays[f"{short}_logits"], arrays[f"{short}_labels"]
        rows = np.arange(labels.size)
        parts[split] = Part(
            logits=logits[None] if logits.ndim == 2 else logits,
            labels=labels,
            groups=arrays.get(f"{short}_query_ids", first + rows),
            places=(f"{path}, {short}_logits", f"{path}, {short}_labels", f"{path}, {short}_query_ids"),
            rows=rows,
        )
        first += len(rows)
    return parts


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file that are read, by name."""
    if not zipfile.is_zipfile(path):
        raise BadInput(f"{path} is not a whole .npz file (no list of its arrays at its end); {FETCH}")
    needed = [f"{short}_{what}" for short in SPLITS.values() for what in ("logits", "labels")]
    queries = [f"{short}_query_ids" for short in SPLITS.values()]
    try:
        with np.load(path, allow_pickle=False) as stored:
            missing = [name for name in needed if name not in stored]
            if missing:
                raise BadInput(f"{path} has no array {', '.join(missing)}; it has {', '.join(stored) or 'none'}")
            given = [name for name in queries if name in stored]
            if len(given) == 1:
                raise BadInput(f"{path} has {given[0]} only; give the query ids of both splits, or of neither")
            return {name: stored[name] for name in [*needed, *given]}
    except BadInput:
        raise
    except ValueError as error:  # what is pickled
        raise BadInput(f"{path} has an array of no plain type ({first_line(error)}); save numbers or text") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise BadInput(f"{path} is not a whole .npz file ({first_line(error)}); {FETCH}") from None


def _of_columns(path: Path) -> dict[str, Part]:
    try:
        frame = pl.read_parquet(opened(path), row_index_name=ROW, row_index_offset=1)
    except pl.exceptions.PolarsError as error:
        raise BadInput(f"{path} is not a whole parquet file ({first_line(error)}); {FETCH}") from None
    require(path, frame.columns, ("split", "label", "logits"))
    if "group" not in frame.columns:
        frame = frame.with_columns(group=ROW)
    for column in ("label", "logits", "group"):
        forbid(frame, pl.col(column).is_null(), path, column, "every row needs one")
    forbid(frame, ~pl.col("split").is_in(list(SPLITS)).fill_null(False), path, "split", "it is validation or test")
    kind = frame.schema["logits"]
    if not isinstance(kind, pl.List | pl.Array) or not kind.inner.is_numeric():
        raise BadInput(f"{path}, column 'logits' is {kind}; save lists of numbers")
    frame = frame.with_columns(pl.col("logits").cast(pl.List(pl.Float64)))
    n_labels = len(frame["logits"][0]) if len(frame) else 0
    lengths = frame.select(ROW, numbers=pl.col("logits").list.len())
    advice = f"so many numbers; the first row has {n_labels}"
    forbid(lengths, pl.col("numbers") != n_labels, path, "numbers", advice, called="logits")
    parts = {}
    for split in SPLITS:
        rows = frame.filter(pl.col("split") == split)
        parts[split] = Part(
            logits=rows["logits"].list.to_array(n_labels).to_numpy()[None],
            labels=rows["label"].to_numpy(),
            groups=rows["group"].to_numpy(),
            places=(f"{path}, logits of {split}", f"{path}, label of {split}", f"{path}, group of {split}"),
            rows=rows[ROW].to_numpy(),
        )
    return parts


def _check_shapes(part: Part) -> None:
    """BadInput unless these are logits, labels and groups of the same rows."""
    logits, labels, groups = part.logits, part.labels, part.groups
    if logits.ndim != 3 or logits.dtype.kind not in "fiu":
        found = f"{logits.dtype} of shape {logits.shape}"
        raise BadInput(f"{part.places[0]}: found {found}; save numbers of shape (members, n, K) or (n, K)")
    members, n, n_labels = logits.shape
    if not members or not n:
        raise BadInput(f"{part.places[0]}: no row is there; validation and test both need some")
    if not 2 <= n_labels <= MOST_LABELS:
        raise BadInput(
            f"{part.places[0]}: each row has {n_labels}; there must be 2 to {MOST_LABELS}, one for each label"
        )
    for place, column, kinds, wanted in ((1, labels, "iu", "integers"), (2, groups, "iuUO", "integers or text")):
        if column.shape != (n,) or column.dtype.kind not in kinds:
            found = f"{column.dtype} of shape {column.shape}"
            raise BadInput(
                f"{part.places[place]}: found {found}; save {wanted}, one for each of the {n} rows of logits"
            )


def _check_values(part: Part) -> None:
    """BadInput unless logits are finite and labels are all of those that there are logits for."""
    logits, labels, n_labels = part.logits, part.labels, part.logits.shape[2]
    member, row, label = np.unravel_index(np.argmin(np.isfinite(logits)), logits.shape)
    if not np.isfinite(logits[member, row, label]):
        found = f"{logits[member, row, label]} for label {label} of member {member}"
        raise BadInput(f"{part.places[0]}, row {part.rows[row]}: found {found}; every logit must be finite")
    outside = np.flatnonzero((labels < 0) | (labels >= n_labels))
    if len(outside):
        row = outside[0]
        advice = f"with {n_labels} logits in each row it must be 0 to {n_labels - 1}"
        raise BadInput(f"{part.places[1]}, row {part.rows[row]}: found {labels[row]}; {advice}")
    absent = sorted(set(range(n_labels)) - set(labels.tolist()))
    if absent:
        none = ", ".join(map(str, absent))
        raise BadInput(f"{part.places[1]}: no row has the label {none}; both splits need rows of each of {n_labels}")


def _frame(split: str, part: Part, member: int) -> pl.DataFrame:
    logits = pl.Series(part.logits[member].astype(np.float64), dtype=pl.Array(pl.Float64, part.logits.shape[2]))
    return pl.DataFrame(
        {
            "split": pl.Series([split] * len(part.labels), dtype=pl.String),
            "group": pl.Series(part.groups.tolist()).cast(pl.String),
            "label": pl.Series(part.labels.astype(np.int8), dtype=pl.Int8),
            "logits": logits.arr.to_list(),
        }
    )
