"""Source of saved logits of any model, in a `.npz` or parquet file, instead of labelled pairs to train on.

A `.npz` file has the format of the paper's release: `val_logits` and `test_logits` of shape (members, n, K) or (n, K),
`val_labels` and `test_labels` of shape (n,), and optionally `val_query_ids` and `test_query_ids` of shape (n,). Other
arrays are ignored, even `temperatures`, since this project fits temperatures itself, at the exact minimum of the loss.

A parquet file has the columns `split` (validation or test), `label`, `logits` (a list) and optionally `group`.

Without queries or groups, each row is a group of its own, named by its number.
"""

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from relmap.errors import InputError
from relmap.io.contents import check_content, first_line
from relmap.io.files import open_predictions, read_columns
from tasks.datasets.base import LabelledPairs
from tasks.datasets.own import OwnOptions
from tasks.datasets.raw import FETCH_AGAIN, ROW_NUMBER, forbid_rows, require_columns
from tasks.sources.hub import INDEX

SPLIT_PREFIXES = {"validation": "val", "test": "test"}  # split -> prefix of its arrays
MIN_LABELS = 2
MAX_LABELS = 127  # largest number of labels for an int8
N_LOGIT_AXES = 3  # members, rows, labels


@dataclass(frozen=True)
class SplitArrays:
    """Saved logits of one split, before they are checked.

    Attributes:
        split: Name of the split.
        logits: Shape (members, n, K).
        labels: Shape (n,).
        groups: Shape (n,).
        logits_place: File and array or column of the logits, for messages.
        labels_place: File and array or column of the labels.
        groups_place: File and array or column of the groups.
        row_numbers: Number of each row in the file, for messages, shape (n,).
    """

    split: str
    logits: np.ndarray
    labels: np.ndarray
    groups: np.ndarray
    logits_place: str
    labels_place: str
    groups_place: str
    row_numbers: np.ndarray


def read(folder: Path, options: OwnOptions) -> LabelledPairs:
    """Read the only file of a folder.

    Args:
        folder: Folder of the raw file.
        options: Options of the data set.

    Returns:
        Pairs with the logits of the first member, and the pairs of each member.

    Raises:
        InputError: The number of logits differs from the number of labels in the options.
    """
    (path,) = [path for path in folder.iterdir() if path.name != INDEX]
    members = read_saved_logits(path)
    n_labels = members[0]["logits"].to_numpy().shape[1]
    if n_labels != len(options.labels):
        raise InputError(f"{path} has {n_labels} logits in each row, but options name {len(options.labels)} labels")
    return LabelledPairs(members[0], members=members)


def read_saved_logits(path: Path) -> tuple[pl.DataFrame, ...]:
    """Read saved logits.

    Args:
        path: `.npz` or parquet file.

    Returns:
        One frame for each ensemble member with `split`, `group`, `label`, `logits` and `pair`: first validation rows,
        then test rows, in their order.

    Raises:
        InputError: The file is missing, incomplete, pickled or not data; an array or column is missing or of another
            type or shape; the splits differ in K or the number of members; a logit is not finite; a label is not in
            0..K-1; or a split has no rows of some label. The message names the file and the array or column.
    """
    if path.suffix not in (".npz", ".parquet"):
        raise InputError(f"{path}: saved logits are .npz or .parquet files; save them in one of these formats")
    check_content(path, FETCH_AGAIN)
    parts = _read_npz(path) if path.suffix == ".npz" else _read_parquet(path)
    for part in parts:
        _check_shapes(part)
        _check_same_shape(parts[0], part)
        _check_values(part)
    members = []
    for member in range(len(parts[0].logits)):
        members.append(pl.concat([_member_frame(part, member) for part in parts]))
    return tuple(members)


def _read_npz(path: Path) -> list[SplitArrays]:
    arrays = _load_arrays(path)
    parts = []
    first_row = 0
    for split, prefix in SPLIT_PREFIXES.items():
        logits = arrays[f"{prefix}_logits"]
        labels = arrays[f"{prefix}_labels"]
        row_numbers = np.arange(labels.size)
        parts.append(
            SplitArrays(
                split=split,
                logits=logits[None] if logits.ndim == N_LOGIT_AXES - 1 else logits,
                labels=labels,
                groups=arrays.get(f"{prefix}_query_ids", first_row + row_numbers),
                logits_place=f"{path}, {prefix}_logits",
                labels_place=f"{path}, {prefix}_labels",
                groups_place=f"{path}, {prefix}_query_ids",
                row_numbers=row_numbers,
            )
        )
        first_row += len(row_numbers)
    return parts


def _load_arrays(path: Path) -> Mapping[str, np.ndarray]:
    """Load the known arrays of a `.npz` file, and check that all required ones exist."""
    if not zipfile.is_zipfile(path):
        raise InputError(
            f"{path} is not a complete .npz file (the list of arrays at its end is missing); {FETCH_AGAIN}"
        )
    required = []
    optional = []
    for prefix in SPLIT_PREFIXES.values():
        required += [f"{prefix}_logits", f"{prefix}_labels"]
        optional.append(f"{prefix}_query_ids")
    try:
        with np.load(path, allow_pickle=False) as stored:
            existing = list(stored)
            arrays = {name: stored[name] for name in (*required, *optional) if name in stored}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise InputError(f"{path} is not a complete .npz file ({first_line(error)}); {FETCH_AGAIN}") from None
    except ValueError as error:  # an array is pickled
        raise InputError(
            f"{path} has an array of objects ({first_line(error)}); save arrays of numbers or text"
        ) from None
    missing = [name for name in required if name not in arrays]
    if missing:
        raise InputError(f"{path} has no array {', '.join(missing)}; it has {', '.join(existing) or 'none'}")
    query_ids = [name for name in optional if name in arrays]
    if len(query_ids) == 1:
        raise InputError(f"{path} has {query_ids[0]} only; give the query ids of both splits, or of neither")
    return arrays


def _read_parquet(path: Path) -> list[SplitArrays]:
    table = open_predictions(path)
    names = table.schema.names
    require_columns(path, names, ("split", "label", "logits"))
    columns = [name for name in ("split", "label", "logits", "group") if name in names]
    frame = read_columns(table, columns).with_row_index(ROW_NUMBER, offset=1)
    if "group" not in frame.columns:
        frame = frame.with_columns(group=ROW_NUMBER)
    for column in ("label", "logits", "group"):
        forbid_rows(frame, pl.col(column).is_null(), path, column, "every row needs one")
    is_known = pl.col("split").is_in(list(SPLIT_PREFIXES)).fill_null(False)
    forbid_rows(frame, ~is_known, path, "split", "it must be validation or test")
    dtype = frame.schema["logits"]
    if not isinstance(dtype, pl.List | pl.Array) or not dtype.inner.is_numeric():
        raise InputError(f"{path}, column 'logits' is {dtype}; save lists of numbers")
    frame = frame.with_columns(pl.col("logits").cast(pl.List(pl.Float64)))
    n_labels = len(frame["logits"][0]) if len(frame) else 0
    lengths = frame.select(ROW_NUMBER, length=pl.col("logits").list.len())
    remedy = f"all rows need the same number of logits; the first row has {n_labels}"
    forbid_rows(lengths, pl.col("length") != n_labels, path, "length", remedy, name_in_file="logits")
    parts = []
    for split in SPLIT_PREFIXES:
        rows = frame.filter(pl.col("split") == split)
        parts.append(
            SplitArrays(
                split=split,
                logits=rows["logits"].list.to_array(n_labels).to_numpy()[None],
                labels=rows["label"].to_numpy(),
                groups=rows["group"].to_numpy(),
                logits_place=f"{path}, logits of {split}",
                labels_place=f"{path}, label of {split}",
                groups_place=f"{path}, group of {split}",
                row_numbers=rows[ROW_NUMBER].to_numpy(),
            )
        )
    return parts


def _check_shapes(part: SplitArrays) -> None:
    """Check types and shapes of the arrays of a split."""
    if part.logits.ndim != N_LOGIT_AXES or part.logits.dtype.kind not in "fiu":
        raise InputError(
            f"{part.logits_place}: found {_describe_array(part.logits)}; "
            "save numbers of shape (members, n, K) or (n, K)"
        )
    n_members, n, n_labels = part.logits.shape
    if not n_members or not n:
        raise InputError(f"{part.logits_place}: there are no rows; validation and test both need some")
    if not MIN_LABELS <= n_labels <= MAX_LABELS:
        raise InputError(
            f"{part.logits_place}: the number of logits in each row is {n_labels}; it must be {MIN_LABELS} to "
            f"{MAX_LABELS}, one for each label"
        )
    _check_column(part.labels, "iu", "integers", part.labels_place, n)
    _check_column(part.groups, "iuUO", "integers or text", part.groups_place, n)


def _check_column(values: np.ndarray, type_codes: str, type_names: str, place: str, n: int) -> None:
    if values.shape != (n,) or values.dtype.kind not in type_codes:
        found = _describe_array(values)
        raise InputError(f"{place}: found {found}; save {type_names}, one for each of the {n} rows of logits")


def _describe_array(values: np.ndarray) -> str:
    return f"{values.dtype} of shape {values.shape}"


def _check_same_shape(first: SplitArrays, other: SplitArrays) -> None:
    for axis, unit in ((0, "members"), (2, "logits in each row")):
        first_size = first.logits.shape[axis]
        other_size = other.logits.shape[axis]
        if first_size != other_size:
            raise InputError(
                f"{first.logits_place} has {first_size} {unit}, {other.logits_place} has {other_size} {unit}; both "
                "need the same number"
            )


def _check_values(part: SplitArrays) -> None:
    """Check that logits are finite, and that labels are in 0..K-1 and all occur."""
    n_labels = part.logits.shape[2]
    not_finite = np.argwhere(~np.isfinite(part.logits))
    if len(not_finite):
        member, row, label = not_finite[0]
        found = f"{part.logits[member, row, label]} for label {label} of member {member}"
        raise InputError(f"{part.logits_place}, row {part.row_numbers[row]}: found {found}; every logit must be finite")
    unknown = np.flatnonzero((part.labels < 0) | (part.labels >= n_labels))
    if len(unknown):
        row = unknown[0]
        raise InputError(
            f"{part.labels_place}, row {part.row_numbers[row]}: found {part.labels[row]}; with {n_labels} logits in "
            f"each row it must be 0 to {n_labels - 1}"
        )
    absent = sorted(set(range(n_labels)) - set(part.labels.tolist()))
    if absent:
        names = ", ".join(map(str, absent))
        raise InputError(
            f"{part.labels_place}: no row has the label {names}; both splits need rows of each of {n_labels} labels"
        )


def _member_frame(part: SplitArrays, member: int) -> pl.DataFrame:
    columns = {
        "group": pl.Series(part.groups.tolist()).cast(pl.String),
        "label": part.labels.astype(np.int8),
        "logits": part.logits[member].astype(np.float64),
    }
    pair = pl.format("{}:{}", pl.lit(part.split), pl.int_range(1, pl.len() + 1))
    return pl.DataFrame(columns).select(pl.lit(part.split).alias("split"), pl.all(), pair=pair)
