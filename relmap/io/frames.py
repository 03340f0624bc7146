"""Predictions in memory: frames of pandas, polars or Arrow, and arrays, which are read as a file of them would be.

So are files that cannot be read in pieces: a JSON list, and the first sheet of a workbook.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import narwhals as nw
import numpy as np
import polars as pl
import polars.selectors as cs
import pyarrow as pa
from polars.datatypes import DataTypeClass

from relmap.errors import InputError
from relmap.hashing import sha256_of_file
from relmap.io.contents import BYTE_ORDER_MARK, first_line, is_object, parsing
from relmap.io.reading import AS_NAMED, Reading
from relmap.io.rows import MOST_OFF, ROUNDED
from relmap.io.text import SeparatedText

Holds = Literal["logits", "probabilities"]
PIECE_ROWS = 2**17  # that are handed on at once
LARGEST_WHOLE = 2**27  # bytes of a file that cannot be read in pieces
ANEW = "write the predictions anew"
HASHED = cs.numeric() | cs.boolean() | cs.string() | cs.categorical() | cs.enum()  # what a map may read
HASHED |= cs.list(cs.numeric()) | cs.array(cs.numeric())
ROUNDING = 1e-6  # of probabilities in float32
PLAIN = ("integer", "floating", "boolean", "decimal128", "null", "date32", "timestamp")
TEXT = ("string", "large_string", "string_view")
LISTS = ("list", "large_list", "fixed_size_list")


@dataclass(frozen=True, eq=False)
class FramePredictions:
    """Rows in memory, those of the file `path` or of a frame, which messages call as scikit-learn does."""

    frame: pl.DataFrame
    sha256: str  # of the file, or of the rows
    path: Path = Path("X")
    reading: Reading = AS_NAMED
    text: SeparatedText | None = None  # the file that these rows were taken from, if it has lines

    @classmethod
    def of(cls, frame: pl.DataFrame) -> "FramePredictions":
        """The rows of `frame`; a frame of the same rows, whatever it was made of, has the same SHA-256."""
        return cls(frame, hashlib.sha256(frame.select(HASHED).write_ndjson().encode()).hexdigest())

    @cached_property
    def table(self) -> pa.Table:
        """The same rows for Arrow."""
        return self.frame.to_arrow(compat_level=pl.CompatLevel.oldest())

    @property
    def schema(self) -> pa.Schema:
        """The columns as Arrow has them."""
        return self.table.schema

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in their order; without `columns` every column."""
        table = self.table if columns is None else self.table.select(list(columns))
        yield from table.to_batches(PIECE_ROWS)


def read_whole(path: Path) -> FramePredictions:
    """A JSON list of objects, or the first sheet of a workbook, which is in memory from now on."""
    if path.stat().st_size > LARGEST_WHOLE:
        raise InputError(
            f"{path} has {path.stat().st_size / 2**20:,.0f} MiB, and {path.suffix} is read whole, up to "
            f"{LARGEST_WHOLE / 2**20:,.0f} MiB; save it as .parquet, .csv or .jsonl, which are read in pieces"
        )
    frame = _of_json(path) if path.suffix == ".json" else _of_workbook(path)
    return FramePredictions(storable(frame), sha256_of_file(path), path)


def _of_json(path: Path) -> pl.DataFrame:
    content = path.read_bytes().removeprefix(BYTE_ORDER_MARK)
    if not content.lstrip().startswith(b"["):
        raise InputError(
            f"{path} is no JSON list of objects; name it .jsonl if it has one on each line, and write such a list from "
            "pandas with to_json(orient='records')"
        )
    with parsing(path, "a JSON list of objects", ANEW):
        frame = pl.read_json(content, infer_schema_length=None)
    if not is_object(b'{"rows": %b}' % content):
        raise InputError(f"{path} has an object with a key twice; keep one of the two")
    return frame


def _of_workbook(path: Path) -> pl.DataFrame:
    try:
        import fastexcel  # noqa: PLC0415 - only who has a workbook needs it
    except ModuleNotFoundError:
        raise InputError(
            f"{path}: save the sheet as .csv, or install what reads workbooks: pip install 'relmap[excel]'"
        ) from None
    try:
        # what is not of the type that the first rows have would be null, and a blank row would not be there
        return pl.read_excel(path, infer_schema_length=None, drop_empty_rows=False)
    except (fastexcel.FastExcelError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{path} is not a whole workbook ({first_line(error)}); {ANEW}") from None


def is_frame(given: Any) -> bool:
    """Whether something is a frame of pandas, polars, Arrow or another library that Narwhals knows."""
    return bool(nw.dependencies.is_into_dataframe(given))


def frame_of(given: Any, holds: Holds | Literal["auto"] | None) -> pl.DataFrame:
    """A frame for polars, or an array as one with the column `logits` or `probabilities`.

    Args:
        given: a frame with the columns that a file has, or an array; see `array_of`.
        holds: what the numbers of an array are; see `array_of`.

    Raises:
        InputError: neither frame nor array of numbers, or one of which it cannot be told what it holds.
    """
    if is_frame(given):
        try:
            return nw.from_native(given, eager_only=True).to_polars()
        except (TypeError, ValueError) as error:  # a name twice, or a column of several types
            raise InputError(f"X is no sound frame ({' '.join(str(error).split())}); mend that column") from None
    kind, numbers = array_of(given, holds)
    return pl.DataFrame({kind: numbers})


def array_of(given: Any, holds: Holds | Literal["auto"] | None) -> tuple[Holds, np.ndarray]:
    """Return what the numbers of an array are, and the numbers `(n, K)` float64.

    Args:
        given: `(n, K)` numbers, one for each label; or `(n,)`, of the second of two labels.
        holds: what the numbers of an array are. With `auto` they are probabilities if in each row none is negative and
            their sum is 1, within rounding, and logits if some number lies outside [0, 1]; None, which is for a map
            that does not know what it was fitted on, refuses `(n,)` numbers in [0, 1], which may be either.

    Raises:
        InputError: no array of numbers, or one of which it cannot be told what it holds.
    """
    try:
        numbers = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"X is of the type {type(given).__name__}; give an array of numbers, or a frame") from None
    if numbers.ndim not in (1, 2) or not len(numbers) or 1 in numbers.shape[1:]:
        raise InputError(
            f"X has the shape {numbers.shape}; give (rows, labels), or (rows,) of the second of two labels"
        )
    one = numbers.ndim == 1
    inside = bool(((numbers >= -ROUNDING) & (numbers <= 1 + ROUNDING)).all())
    off = np.zeros(len(numbers)) if one else np.abs(numbers.sum(axis=1) - 1)
    say = "say what they are, arrays='logits' or arrays='probabilities'"
    if holds in ("auto", None) and inside and off.max() > min(MOST_OFF, ROUNDED * numbers.shape[-1]) + ROUNDING:
        raise InputError(
            f"X, row {int(off.argmax())} (from 0): all numbers lie in [0, 1], but those of this row do not sum to 1; "
            f"{say}"
        )
    if holds is None and inside and one:
        raise InputError(
            "X may hold logits or probabilities, since its numbers all lie in [0, 1], and a map that was loaded, or "
            f"fitted on a frame, does not know which; {say}, to load or before fit"
        )
    seen: Holds = "probabilities" if inside else "logits"
    taken = seen if holds is None or holds == "auto" else holds
    if one:
        numbers = np.column_stack([1 - numbers if taken == "probabilities" else np.zeros(len(numbers)), numbers])
    return taken, numbers


def with_column(frame: pl.DataFrame, name: str, values: Any, what: str) -> pl.DataFrame:
    """The frame with the column `name`; InputError where it has that, or another number of rows."""
    if name in frame.columns:
        raise InputError(f"X has a column {name}, and {what} is given too; give it once")
    array = without_missing(values)
    if array.shape != (len(frame),):
        raise InputError(f"X has {len(frame):,} rows, and {what} has the shape {array.shape}; give one for each row")
    return frame.with_columns(pl.Series(name, array.tolist() if array.dtype == object else array, strict=False))


def without_missing(values: Any) -> np.ndarray:
    """Return values as an array, in which None stands for every missing one.

    Args:
        values: An array, a sequence or a series; None, NaN and what pandas counts as such are missing.

    Returns:
        The array; of objects if a value is missing.
    """
    given = np.asarray(values)
    if given.dtype.kind not in "fO" and not isinstance(values, list | tuple):
        return given
    objects = np.array(values, dtype=object)  # a copy
    if hasattr(values, "isna"):
        missing = np.asarray(values.isna(), dtype=bool)
    else:
        flat = [value is None or (isinstance(value, float) and math.isnan(value)) for value in objects.ravel()]
        missing = np.reshape(np.array(flat, dtype=bool), objects.shape)
    if not missing.any():
        return given
    objects[missing] = None
    return objects


def column_of(given: Any, name: str, what: str) -> Any:
    """The column `name` of a frame, as its library has it; InputError says that `what` names it where there is none."""
    if not is_frame(given) or name not in nw.from_native(given).collect_schema().names():
        raise InputError(f"X has no column {name}, which {what} names")
    return given[name]


def beside(given: Any, added: pl.DataFrame) -> Any:
    """The frame `given`, untouched, with the columns `added`; for an array these alone, as a structured array."""
    if not is_frame(given):
        return added.to_numpy(structured=True)
    frame = nw.from_native(given, eager_only=True)
    own = nw.from_arrow(added, backend=frame.implementation)
    return frame.with_columns(*(own[name] for name in added.columns)).to_native()


def structured(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return columns of one length as a structured array `(n,)`."""
    kinds = [(name, values.dtype) for name, values in columns.items()]
    length = len(next(iter(columns.values())))
    array = np.empty(length, dtype=kinds)
    for name, values in columns.items():
        array[name] = values
    return array


def alone(given: Any, values: pl.Series) -> Any:
    """One value for each row as the library of `given` has them: a series, a chunked array, or an array `(n,)`."""
    if not is_frame(given):
        return values.to_numpy()
    return nw.from_native(beside(given, values.to_frame()), eager_only=True)[values.name].to_native()


def as_frame(rows: pa.RecordBatch | pa.Table, path: Path) -> pl.DataFrame:
    """The same rows for polars; InputError names a column of `path` whose type it does not know."""
    for column in rows.schema:
        if not is_readable(column.type):
            raise InputError(f"{path}: the column {column.name} is {column.type}; it must hold numbers, text or lists")
    frame = pl.DataFrame(rows.rename_columns([str(place) for place in range(rows.num_columns)]))
    frame.columns = rows.schema.names  # polars gives a column without a name another one
    return frame


def is_readable(kind: pa.DataType, *, nested: bool = True) -> bool:
    """Whether polars knows an Arrow type; where not it may abort rather than say so."""
    if pa.types.is_dictionary(kind):
        return is_readable(kind.value_type, nested=False)
    if nested and pa.types.is_struct(kind):
        return all(is_readable(part.type) for part in kind)
    if nested and _is_one_of(kind, LISTS):
        return is_readable(kind.value_type)
    return _is_one_of(kind, PLAIN + TEXT)


def _is_one_of(kind: pa.DataType, names: Sequence[str]) -> bool:
    return any(getattr(pa.types, f"is_{name}")(kind) for name in names)


def storable(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with text in place of whole numbers beyond 64 bits, in lists too, which Arrow does not have."""
    return frame.cast({name: _storable(kind) for name, kind in frame.schema.items()})


def _storable(kind: pl.DataType | DataTypeClass) -> pl.DataType | DataTypeClass:
    match kind:
        case pl.Int128():
            return pl.String()
        case pl.List():
            return pl.List(_storable(kind.inner))
        case pl.Struct():
            return pl.Struct({part.name: _storable(part.dtype) for part in kind.fields})
        case _:
            return kind
