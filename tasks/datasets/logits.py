"""Saved logits of any model, in place of judged pairs to train on: a `.npz` of arrays, or a parquet file.

`.npz`, the format of the paper's release: `val_logits` and `test_logits` `(members, n, K)` or `(n, K)`, `val_labels`
and `test_labels` `(n,)`; `val_query_ids` and `test_query_ids` `(n,)` are optional. Other arrays are left alone, also
`temperatures`: ours is the exact minimum of the same loss. Parquet: `split` (validation or test), `label`, `logits` (a
list) and optionally `group`. Where there are no queries or groups, each row is a group of its own, named by its number.
"""

import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from relmap.errors import InputError
from relmap.io.contents import PARQUET, first_line, report_parse_errors
from tasks.datasets.base import Judged
from tasks.datasets.own import OwnOptions
from tasks.datasets.raw import FETCH, ROW, forbid, opened, require
from tasks.sources.hub import INDEX

SPLITS = {  # the arrays of each
    split: [f"{short}_{what}" for what in ("logits", "labels", "query_ids")]
    for split, short in (("validation", "val"), ("test", "test"))
}
MOST_LABELS = 127  # that an int8 can name


class Part(NamedTuple):
    """The rows of one split, each column with its place in the file."""

    split: str
    logits: np.ndarray  # (members, n, K)
    labels: np.ndarray  # (n,)
    groups: np.ndarray  # (n,)
    places: tuple[str, ...]  # of these three, for messages
    rows: np.ndarray  # (n,) numbers in the file, for messages


def read(folder: Path, chosen: OwnOptions) -> Judged:
    """The rows of the one file in `folder`, each with its `logits`, those of the first member in `pairs`."""
    (path,) = [path for path in folder.iterdir() if path.name != INDEX]
    members = read_saved_logits(path)
    n_labels = members[0]["logits"].to_numpy().shape[1]
    if n_labels != len(chosen.labels):
        raise InputError(f"{path} has {n_labels} logits in each row, but options name {len(chosen.labels)} labels")
    return Judged(members[0], members=members)


def read_saved_logits(path: Path) -> tuple[pl.DataFrame, ...]:
    """`split, group, label, logits, pair` for each member: validation rows, then test rows, in their order.

    Raises:
        InputError: names the file and the array or column. It is missing, cut off, no data, pickled, or of another type
            or shape; K or the number of members differs between the splits; a logit is not finite; a label is not in
            0..K-1; a split has no row of some label, or no row at all.
    """
    readers = {".npz": _of_arrays, ".parquet": _of_columns}
    if path.suffix not in readers:
        raise InputError(
            f"{path}: saved logits are read from {' and '.join(readers)}; write them so, and name the file so"
        )
    opened(path)
    parts = readers[path.suffix](path)
    for part in parts:
        _check(part, beside=parts[0])
    return tuple(pl.concat(_frame(part, member) for part in parts) for member in range(len(parts[0].logits)))


def _of_arrays(path: Path) -> list[Part]:
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path} is not a whole .npz file (no list of its arrays at its end); {FETCH}")
    try:
        with np.load(path, allow_pickle=False) as stored:
            there = list(stored)
            arrays = {name: stored[name] for names in SPLITS.values() for name in names if name in stored}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise InputError(f"{path} is not a whole .npz file ({first_line(error)}); {FETCH}") from None
    except ValueError as error:  # what is pickled
        raise InputError(f"{path} has an array of no plain type ({first_line(error)}); save numbers or text") from None
    missing = [name for names in SPLITS.values() for name in names[:2] if name not in arrays]
    if missing:
        raise InputError(f"{path} has no array {', '.join(missing)}; it has {', '.join(there) or 'none'}")
    if len(queries := [names[2] for names in SPLITS.values() if names[2] in arrays]) == 1:
        raise InputError(f"{path} has {queries[0]} only; give the query ids of both splits, or of neither")
    parts, first = [], 0
    for split, names in SPLITS.items():
        logits, labels = arrays[names[0]], arrays[names[1]]
        rows = np.arange(labels.size)
        logits, groups = logits[None] if logits.ndim == 2 else logits, arrays.get(names[2], first + rows)
        parts.append(Part(split, logits, labels, groups, tuple(f"{path}, {name}" for name in names), rows))
        first += len(rows)
    return parts


def _of_columns(path: Path) -> list[Part]:
    with report_parse_errors(path, PARQUET, FETCH):
        frame = pl.read_parquet(opened(path)).with_row_index(ROW, offset=1)
    require(path, frame.columns, ("split", "label", "logits"))
    if "group" not in frame.columns:
        frame = frame.with_columns(group=ROW)
    for column in ("label", "logits", "group"):
        forbid(frame, pl.col(column).is_null(), path, column, "every row needs one")
    forbid(frame, ~pl.col("split").is_in(list(SPLITS)).fill_null(False), path, "split", "it is validation or test")
    kind = frame.schema["logits"]
    if not isinstance(kind, pl.List | pl.Array) or not kind.inner.is_numeric():
        raise InputError(f"{path}, column 'logits' is {kind}; save lists of numbers")
    frame = frame.with_columns(pl.col("logits").cast(pl.List(pl.Float64)))
    n_labels = len(frame["logits"][0]) if len(frame) else 0
    lengths = frame.select(ROW, numbers=pl.col("logits").list.len())
    advice = f"so many numbers; the first row has {n_labels}"
    forbid(lengths, pl.col("numbers") != n_labels, path, "numbers", advice, called="logits")
    parts = []
    for split in SPLITS:
        rows = frame.filter(pl.col("split") == split)
        logits = rows["logits"].list.to_array(n_labels).to_numpy()[None]
        places = tuple(f"{path}, {column} of {split}" for column in ("logits", "label", "group"))
        labels, groups, numbers = (rows[column].to_numpy() for column in ("label", "group", ROW))
        parts.append(Part(split, logits, labels, groups, places, numbers))
    return parts


def _check(part: Part, beside: Part) -> None:
    """InputError unless these are logits, labels and groups of the same rows, of the shape of those `beside` them."""
    logits, labels, where = part.logits, part.labels, part.places
    if logits.ndim != 3 or logits.dtype.kind not in "fiu":
        what = f"{logits.dtype} of shape {logits.shape}"
        raise InputError(f"{where[0]}: found {what}; save numbers of shape (members, n, K) or (n, K)")
    members, n, n_labels = logits.shape
    if not members or not n:
        raise InputError(f"{where[0]}: no row is there; validation and test both need some")
    if not 2 <= n_labels <= MOST_LABELS:
        raise InputError(f"{where[0]}: each row has {n_labels}; there must be 2 to {MOST_LABELS}, one for each label")
    for place, column, kinds, wanted in (
        (where[1], labels, "iu", "integers"),
        (where[2], part.groups, "iuUO", "integers or text"),
    ):
        if column.shape != (n,) or column.dtype.kind not in kinds:
            what = f"{column.dtype} of shape {column.shape}"
            raise InputError(f"{place}: found {what}; save {wanted}, one for each of the {n} rows of logits")
    for axis, what in ((0, "members"), (2, "logits in each row")):
        if logits.shape[axis] != beside.logits.shape[axis]:
            each = ", ".join(f"{of.places[0]} has {of.logits.shape[axis]} {what}" for of in (beside, part))
            raise InputError(f"{each}; both splits need as many")
    for member, row, label in np.argwhere(~np.isfinite(logits))[:1]:
        what = f"{logits[member, row, label]} for label {label} of member {member}"
        raise InputError(f"{where[0]}, row {part.rows[row]}: found {what}; every logit must be finite")
    for row in np.flatnonzero((labels < 0) | (labels >= n_labels))[:1]:
        advice = f"with {n_labels} logits in each row it must be 0 to {n_labels - 1}"
        raise InputError(f"{where[1]}, row {part.rows[row]}: found {labels[row]}; {advice}")
    if absent := sorted(set(range(n_labels)) - set(labels.tolist())):
        none = ", ".join(map(str, absent))
        raise InputError(f"{where[1]}: no row has the label {none}; both splits need rows of each of {n_labels}")


def _frame(part: Part, member: int) -> pl.DataFrame:
    columns = {
        "group": pl.Series(part.groups.tolist()).cast(pl.String),
        "label": part.labels.astype(np.int8),
        "logits": part.logits[member].astype(np.float64),
    }
    pair = pl.format("{}:{}", pl.lit(part.split), pl.int_range(1, pl.len() + 1))
    return pl.DataFrame(columns).select(pl.lit(part.split).alias("split"), pl.all(), pair=pair)
