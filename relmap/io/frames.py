"""Predictions in memory: frames of pandas, polars or Arrow, and arrays. They are read like a file.

Files that cannot be read in pieces are also read into memory: JSON lists, and the first sheet of workbooks.
"""

import hashlib
import json
import math
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeGuard
from zipfile import BadZipFile, ZipFile, is_zipfile

import narwhals as nw
import numpy as np
import polars as pl
import polars.selectors as cs
import pyarrow as pa
from numpy.typing import ArrayLike
from polars.datatypes import DataTypeClass

from relmap.errors import InputError
from relmap.io.column_layout import DEFAULT_READING, Reading
from relmap.io.columns import MIN_ROWS_OF_UNIT, PERCENT
from relmap.io.contents import (
    BYTE_ORDER_MARK,
    WRITE_AGAIN,
    first_line,
    infer_column_types,
    is_json_object,
    report_parse_errors,
)
from relmap.io.hashing import sha256_of_arrays, sha256_of_file
from relmap.io.rows import MAX_SUM_ERROR, ROUNDING_ERROR, ArrayKind, find_constant_sum
from relmap.io.text import SeparatedText

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame, IntoSeries

    InputData: TypeAlias = IntoDataFrame | ArrayLike

BATCH_ROWS = 2**17
MAX_WHOLE_BYTES = 2**27  # maximum size of a file that cannot be read in pieces
HASHED_COLUMNS = (  # columns of the types that a map can read
    cs.numeric()
    | cs.boolean()
    | cs.string()
    | cs.categorical()
    | cs.enum()
    | cs.list(cs.numeric())
    | cs.array(cs.numeric())
)
FLOAT32_ERROR = 1e-6  # maximum rounding error of a probability, or of a sum of them, in float32
MEBIBYTE = 2**20
PRINTED_ROWS = 6  # of a structured array
PRINTED_WIDTH = 100
MAX_OBJECT_CHARACTERS = 200  # of a Python object that is read as text
CONVERSION_ERRORS = (  # of Narwhals, polars and Arrow, for columns that they cannot convert
    TypeError,
    ValueError,
    OverflowError,
    NotImplementedError,
    pl.exceptions.PolarsError,
    pa.ArrowException,
)
# names of Arrow types, as in the functions pyarrow.types.is_...
PLAIN_TYPES = ("integer", "floating", "boolean", "decimal128", "null", "date32", "timestamp")
TEXT_TYPES = ("string", "large_string", "string_view")
LIST_TYPES = ("list", "large_list", "fixed_size_list")


@dataclass(frozen=True, eq=False)
class FramePredictions:
    """Predictions in memory.

    Attributes:
        frame: The rows.
        sha256: SHA-256 of the file of the rows, in hexadecimal; without a file, of the rows.
        path: The file, for messages; without a file `X`, the name of the argument.
        reading: Names and units of the columns.
        text: The text file from which the rows were taken, if there is one.
        is_run: Whether the rows are documents of a run, whose scores are better the higher they are.
    """

    frame: pl.DataFrame
    sha256: str
    path: Path = Path("X")
    reading: Reading = DEFAULT_READING
    text: SeparatedText | None = None
    is_run: bool = False

    @classmethod
    def from_frame(cls, frame: pl.DataFrame) -> "FramePredictions":
        """Create predictions from the rows of a frame.

        Args:
            frame: The rows.

        Returns:
            Predictions whose SHA-256 depends only on the rows, not on the library of the original frame.
        """
        rows = frame.select(HASHED_COLUMNS).write_ndjson().encode()
        return cls(frame, hashlib.sha256(rows).hexdigest())

    @classmethod
    def from_array(cls, frame: pl.DataFrame) -> "FramePredictions":
        """Create predictions from an array that `to_polars` converted, with columns of other values, such as labels.

        Args:
            frame: The array as a column, and one value of each row in every other column.

        Returns:
            Predictions whose SHA-256 depends only on the values.
        """
        columns = [column.cast(pl.String) if column.dtype == pl.Object else column for column in frame]
        return cls(frame, sha256_of_arrays(*[_to_plain_array(column) for column in columns]))

    @cached_property
    def table(self) -> pa.Table:
        """The rows as an Arrow table."""
        return self.frame.to_arrow(compat_level=pl.CompatLevel.oldest())

    @cached_property
    def schema(self) -> pa.Schema:
        """Names and Arrow types of the columns."""
        return self.frame.clear().to_arrow(compat_level=pl.CompatLevel.oldest()).schema

    def read(self, columns: Sequence[str]) -> pl.DataFrame:
        """Select columns.

        Args:
            columns: Names of existing columns.

        Returns:
            All rows.

        Raises:
            InputError: A column has a type that no file of predictions can have.
        """
        _check_types([self.schema.field(name) for name in columns], self.path)
        return self.frame.select(columns)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read the rows in pieces.

        Args:
            columns: Columns to read; None for all.

        Yields:
            The rows in their order.
        """
        table = self.table if columns is None else self.table.select(list(columns))
        yield from table.to_batches(BATCH_ROWS)


def read_whole(path: Path) -> FramePredictions:
    """Read a JSON list of objects, or the first sheet of a workbook, into memory.

    Args:
        path: The file.

    Returns:
        The predictions.

    Raises:
        InputError: The file is too large, or cannot be read.
    """
    size = path.stat().st_size
    if size > MAX_WHOLE_BYTES:
        raise InputError(
            f"{path} has {size / MEBIBYTE:,.0f} MiB, but {path.suffix} files are read into memory, up to "
            f"{MAX_WHOLE_BYTES / MEBIBYTE:,.0f} MiB; save it as .parquet, .csv or .jsonl, which are read in pieces"
        )
    frame = _read_json_list(path) if path.suffix == ".json" else _read_workbook(path)
    return FramePredictions(cast_for_arrow(frame), sha256_of_file(path), path)


def _read_json_list(path: Path) -> pl.DataFrame:
    content = path.read_bytes().removeprefix(BYTE_ORDER_MARK)
    if not content.lstrip().startswith(b"["):
        raise InputError(
            f"{path} is not a JSON list of objects; if it has one object on each line, rename it to .jsonl. pandas "
            "writes a list of objects with to_json(orient='records')"
        )
    with report_parse_errors(path, "a JSON list of objects", WRITE_AGAIN):
        try:
            frame = pl.read_json(content, infer_schema_length=None)
        except pl.exceptions.PolarsError:
            lines = _lines_of_list(content)
            if not lines:
                raise
            frame = pl.read_ndjson(lines, schema=infer_column_types(lines))
    if not is_json_object(b'{"rows": %b}' % content):  # false if an object in the list has a repeated key
        raise InputError(f"{path} has an object with a repeated key; keep one of the two")
    return frame


def _lines_of_list(content: bytes) -> bytes:
    """Convert a JSON list of objects to lines; empty if it is no such list."""
    if not is_json_object(b'{"rows": %b}' % content):
        return b""
    objects = json.loads(content)
    if not all(isinstance(members, dict) for members in objects):
        return b""
    return b"\n".join(json.dumps(members).encode() for members in objects)


def _read_workbook(path: Path) -> pl.DataFrame:
    try:
        import fastexcel  # noqa: PLC0415 - only workbooks need it
    except ModuleNotFoundError:
        raise InputError(
            f"{path} needs an optional package that reads workbooks; install it with pip install 'relmap[excel]', or "
            "save the sheet as .csv"
        ) from None
    _limit_unpacked_size(path)
    try:
        # by default, values of another type than the first rows become null, and blank rows are omitted
        frame = pl.read_excel(path, infer_schema_length=None, drop_empty_rows=False)
    except (fastexcel.FastExcelError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{path} is not a complete workbook ({first_line(error)}); {WRITE_AGAIN}") from None
    has_value = ~frame.select(pl.all_horizontal(pl.all().is_null())).to_series() if frame.width else pl.Series([])
    last = has_value.arg_true()
    return frame.head(int(last[-1]) + 1 if len(last) else 0)  # without blank rows at the end


def _limit_unpacked_size(path: Path) -> None:
    """Reject a workbook whose parts are too large when they are unpacked; a small file can hold gigabytes of zeros.

    The declared sizes may be wrong, so parts are unpacked until the limit is reached.

    Raises:
        InputError: The parts are too large together, or cannot be unpacked.
    """
    if not is_zipfile(path):
        return
    n_bytes = 0
    try:
        with ZipFile(path) as archive:
            for member in archive.infolist():
                member.file_size = sys.maxsize  # else `read` stops at the declared size
                with archive.open(member) as part:
                    while n_bytes <= MAX_WHOLE_BYTES:
                        piece = part.read(MEBIBYTE)
                        if not piece:
                            break
                        n_bytes += len(piece)
    except (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{path} is not a complete workbook ({first_line(error)}); {WRITE_AGAIN}") from None
    if n_bytes > MAX_WHOLE_BYTES:
        raise InputError(
            f"{path} unpacks to more than {MAX_WHOLE_BYTES / MEBIBYTE:,.0f} MiB, and workbooks are read into memory; "
            "save the sheet as .csv, which is read in pieces"
        )


def is_frame(data: object) -> "TypeGuard[IntoDataFrame]":
    """Return whether an object is a frame of pandas, polars, Arrow or another library that Narwhals supports.

    Args:
        data: Any object.

    Returns:
        Whether it is a frame.
    """
    if isinstance(data, np.ndarray):  # the check of Narwhals takes as long as the score of a single row
        return False
    return bool(nw.dependencies.is_into_dataframe(data))


def to_polars(data: "InputData", kind: ArrayKind | Literal["auto"] | None, *, percent: bool = False) -> pl.DataFrame:
    """Convert a frame or an array of predictions to a polars frame.

    Args:
        data: A frame with the columns that a file has, or an array; see `read_array`.
        kind: What the numbers of an array are; see `read_array`.
        percent: Whether the numbers of an array are in percent.

    Returns:
        The frame; for an array, one with the column `logits` or `probabilities`. A column of Python objects that are
        not of one type is text.

    Raises:
        InputError: `data` is neither a frame nor an array of numbers, or an array may contain logits or probabilities.
    """
    if not is_frame(data):
        array = read_array(data, kind, percent=percent)
        return pl.DataFrame({array.kind: array.numbers})
    try:
        frame = nw.from_native(data, eager_only=True)
        names = [*frame.columns]
    except (TypeError, ValueError) as error:  # two columns have the same name, or names are not text
        raise InputError(f"X is not a valid frame ({' '.join(str(error).split())}); fix that column") from None
    if not all(isinstance(name, str) for name in names):
        names = [str(name) for name in names]
    if len(set(names)) < len(names):
        repeated = sorted({name for name in names if names.count(name) > 1})
        raise InputError(f"X has more than one column named {', '.join(repeated)}; rename all but one")
    try:
        converted = frame.to_polars()
    except CONVERSION_ERRORS:
        columns = [_to_polars_column(frame, place) for place in range(len(names))]
        converted = pl.DataFrame(columns)
    objects = [name for name, dtype in converted.schema.items() if dtype == pl.Object]
    texts = [_objects_to_series(name, converted[name].to_list()) for name in objects]
    return cast_for_arrow(converted.with_columns(texts).rename(dict(zip(converted.columns, names, strict=True))))


def _to_polars_column(frame: "nw.DataFrame[Any]", place: int) -> pl.Series:
    """Convert a column of a frame, if need be by its Python values."""
    name = frame.columns[place]
    try:
        return frame.select(name).to_polars().to_series().alias(str(name))
    except CONVERSION_ERRORS:
        return _objects_to_series(str(name), frame[name].to_list())


def _objects_to_series(name: str, values: Sequence[object]) -> pl.Series:
    """Convert Python objects, such as tensors or values of several types, to numbers or lists if possible, or text."""
    values = [detach(value) for value in values]
    present = [value for value in values if not is_missing_object(value)]
    if present and all(isinstance(value, np.ndarray) for value in present):
        lists = [value.tolist() if isinstance(value, np.ndarray) else None for value in values]
        try:
            return pl.Series(name, lists)
        except (TypeError, ValueError, pl.exceptions.PolarsError):
            pass
    texts = [None if is_missing_object(value) else str(value)[:MAX_OBJECT_CHARACTERS] for value in values]
    return pl.Series(name, texts, dtype=pl.String)


def is_missing_object(value: object) -> bool:
    """Return whether a Python object is None or NaN, or another missing value of pandas.

    Args:
        value: Any object.
    """
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and math.isnan(value)


def detach(data: Any) -> Any:  # noqa: ANN401 - a tensor, whose type is not known without torch
    """Convert a tensor of torch, or a list of tensors, to NumPy, also if it has gradients or is on another device.

    Args:
        data: Any object.

    Returns:
        An array; other objects unchanged.
    """
    if isinstance(data, list | tuple) and data and hasattr(data[0], "detach"):
        return [detach(value) for value in data]
    if not (hasattr(data, "detach") and hasattr(data, "cpu")):
        return data
    tensor = data.detach().cpu()
    return (tensor.double() if tensor.is_floating_point() else tensor).numpy()


class PredictionArray(NamedTuple):
    """Predictions of n rows for K labels.

    Attributes:
        kind: What the numbers are.
        numbers: Shape (n, K), float64.
    """

    kind: ArrayKind
    numbers: np.ndarray


def read_array(
    data: "InputData", kind: ArrayKind | Literal["auto"] | None, *, percent: bool = False
) -> PredictionArray:
    """Read an array of predictions.

    Args:
        data: Shape (n, K), one number for each label; or shape (n,), numbers of the second of two labels.
        kind: What the numbers are. With `auto`, they are logits if any lies outside [0, 1]; otherwise they are
            probabilities, which must sum to 1 in each row, within rounding. None is for a map without information on
            the kind of arrays that it was fitted on. It is like `auto`, but rejects numbers in [0, 1] of shape (n,),
            which may be either.
        percent: Whether the numbers are probabilities in percent.

    Returns:
        The numbers and what they are; probabilities are fractions.

    Raises:
        InputError: `data` is not an array of numbers, or may contain logits or probabilities.
    """
    if hasattr(data, "to_polars"):  # such as a dataset of Hugging Face
        raise InputError(f"X is of the type {type(data).__name__}; give the frame X.to_polars()")
    data = detach(data)
    try:
        values = np.asarray(data)
        if np.ma.is_masked(data):
            raise InputError("X has masked values; omit these rows, or give their predictions")
        if values.dtype.kind == "c":
            raise InputError("X has complex numbers; give real probabilities or logits")
        numbers = values.astype(np.float64)
    except InputError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        hint = f" ({first_line(error)}); for a tensor give X.detach().cpu().numpy()" if hasattr(data, "ndim") else ""
        raise InputError(
            f"X is of the type {type(data).__name__}{hint}; give an array of numbers, or a frame"
        ) from None
    if numbers.ndim not in (1, 2) or not len(numbers) or 1 in numbers.shape[1:]:
        raise InputError(
            f"X has the shape {numbers.shape}; it must be (rows, labels), or (rows,) for the second of two labels"
        )
    if percent:
        if kind == "logits":
            raise InputError("arrays is 'logits', and percent is given; omit one of them")
        kind = "probabilities"
    whole = PERCENT if percent else 1
    array_kind = _find_kind(numbers, kind, whole)
    if numbers.ndim == 1:
        first_column = whole - numbers if array_kind == "probabilities" else np.zeros(len(numbers))
        numbers = np.column_stack([first_column, numbers])
    return PredictionArray(array_kind, numbers / whole if percent else numbers)


def _find_kind(numbers: np.ndarray, kind: ArrayKind | Literal["auto"] | None, whole: int) -> ArrayKind:
    """Find what the numbers of an array are, and check them; see `read_array`. Probabilities are parts of `whole`."""
    if kind is not None and kind != "auto":
        if kind == "probabilities" and numbers.ndim == 1:
            _check_probabilities_of_one_label(numbers, whole)
        return kind
    if are_in_unit_interval(numbers):
        _check_probabilities(numbers, accepts_one_column=kind == "auto")
        return "probabilities"
    _reject_shares(numbers)
    return "logits"


def are_in_unit_interval(numbers: np.ndarray) -> bool:
    """Return whether all numbers lie in [0, 1], within the rounding error of float32.

    Args:
        numbers: Numbers of any shape.
    """
    return bool(((numbers >= -FLOAT32_ERROR) & (numbers <= 1 + FLOAT32_ERROR)).all())


def _check_probabilities_of_one_label(numbers: np.ndarray, whole: int) -> None:
    """Check that numbers are probabilities of the second of two labels, in percent if `whole` is 100."""
    is_invalid = ~((numbers >= -FLOAT32_ERROR) & (numbers <= whole + FLOAT32_ERROR))
    if is_invalid.any():
        row = int(is_invalid.argmax())
        remedy = "" if whole == PERCENT else "; if these are percentages, give percent=True"
        raise InputError(f"X, row {row} (from 0) is {numbers[row]:g}; it must lie in [0, {whole}]{remedy}")
    if whole == PERCENT and numbers.max() <= 1 and len(numbers) >= MIN_ROWS_OF_UNIT:
        raise InputError("X is at most 1 in all rows, so it is not in percent; multiply it by 100, or omit percent")


def _reject_shares(numbers: np.ndarray) -> None:
    """Reject numbers that may be percentages or unscaled probabilities, and not logits."""
    choice = "if they are logits, give arrays='logits'"
    if numbers.ndim == 1:
        if (numbers >= 0).all():
            raise InputError(
                "X has no negative number, so as logits all rows would be decided for the second label; if they are "
                f"percentages, give percent=True; {choice}"
            )
        return
    constant = find_constant_sum(numbers)
    if constant == 100:
        raise InputError(f"X: every row sums to 100; if these are percentages, give percent=True; {choice}")
    if constant is not None:
        raise InputError(
            f"X: every row sums to {constant:.6g} without a negative number; if these are probabilities, divide each "
            f"row by its sum; {choice}"
        )


def _check_probabilities(numbers: np.ndarray, *, accepts_one_column: bool) -> None:
    """Check that numbers in [0, 1] are probabilities: rows of several numbers must sum to 1."""
    remedy = "give arrays='logits' or arrays='probabilities'"
    if numbers.ndim == 2:
        error = np.abs(numbers.sum(axis=1) - 1)
        if error.max() > min(MAX_SUM_ERROR, ROUNDING_ERROR * numbers.shape[-1]) + FLOAT32_ERROR:
            raise InputError(
                f"X, row {int(error.argmax())} (from 0): all numbers lie in [0, 1], but this row does not sum "
                f"to 1; {remedy}"
            )
    elif not accepts_one_column:
        raise InputError(
            "X may contain logits or probabilities, since all its numbers lie in [0, 1], and a map that was loaded or "
            f"fitted on a frame does not know which; {remedy} to `load`, or to the constructor before `fit`"
        )


def add_column(frame: pl.DataFrame, name: str, values: ArrayLike, argument: str) -> pl.DataFrame:
    """Add a column to a frame.

    Args:
        frame: The frame.
        name: Name of the column.
        values: Its values, shape (n,).
        argument: Name of the argument with the values, for messages.

    Returns:
        The frame with the column.

    Raises:
        InputError: The frame has such a column, or another number of rows.
    """
    if name in frame.columns:
        raise InputError(f"X has a column {name}, and {argument} is given too; give it once")
    array = unify_missing(values, argument)
    if array.shape != (len(frame),):
        is_one_hot = array.ndim == 2 and len(array) == len(frame)
        one_hot = f"; of one-hot labels {argument}.argmax(axis=1)" if is_one_hot else ""
        raise InputError(
            f"X has {len(frame):,} rows, and {argument} has the shape {array.shape}; give one value for each row"
            f"{one_hot}"
        )
    if array.dtype.kind in "mM":  # Polars does not read all units of time
        array = array.astype(str)
    return frame.with_columns(pl.Series(name, array.tolist() if array.dtype == object else array, strict=False))


def unify_missing(values: ArrayLike, argument: str = "y") -> np.ndarray:
    """Convert values to an array in which None represents every missing value.

    Args:
        values: An array, a sequence, a series or a tensor. None, NaN and the other missing values of pandas are
            missing.
        argument: Name of the argument with the values, for messages.

    Returns:
        The array; an array of objects if a value is missing. Numbers of the type Decimal are floats.

    Raises:
        InputError: The values cannot be converted to an array, or are complex.
    """
    values = detach(values)
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        values = values.tolist()  # masked values are None
    try:
        array = np.asarray(values)
        is_plain = array.dtype.kind not in "fO" and not isinstance(values, list | tuple)
        objects = array if is_plain else np.array(values, dtype=object)  # a copy
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{argument} is of the type {type(values).__name__} ({first_line(error)}); give one value for each row, "
            f"of a tensor {argument}.detach().cpu().numpy()"
        ) from None
    if array.dtype.kind == "c":
        raise InputError(f"{argument} has complex numbers; give one label for each row")
    # lists and tuples are checked whatever their type, since NumPy converts NaN among texts to the text 'nan'
    if is_plain:
        return array
    flat = [float(value) if isinstance(value, Decimal) else value for value in objects.ravel()]
    is_missing = np.array([is_missing_object(value) for value in flat], dtype=bool)
    if any(isinstance(value, Decimal) for value in objects.ravel()):
        objects = _as_objects(flat, objects.shape)
        array = np.asarray(objects.tolist()) if not is_missing.any() else objects
    if not is_missing.any():
        return array
    objects[np.reshape(is_missing, objects.shape)] = None
    return objects


def label_names(labels: ArrayLike) -> np.ndarray:
    """Convert labels to names.

    Args:
        labels: Labels of any type; whole numbers stored as floats have names without decimals.

    Returns:
        Names, of the shape of `labels`; str, or objects if labels are missing. A missing label is None.
    """
    values = unify_missing(labels)
    if values.dtype == object and None in values:
        missing = np.array([value is None for value in values.ravel()]).reshape(values.shape)
        names = np.full(values.shape, None)
        names[~missing] = label_names(values[~missing].tolist())
        return names
    if values.dtype.kind == "f":
        is_exact = np.abs(values) < 2**53
        if bool(is_exact.all() and (values == np.rint(values)).all()):
            values = values.astype(np.int64)
    return values.astype(str)


def _as_objects(values: Sequence[object], shape: tuple[int, ...]) -> np.ndarray:
    objects = np.empty(len(values), dtype=object)
    objects[:] = values
    return objects.reshape(shape)


def get_column(data: "InputData", name: str, argument: str) -> "IntoSeries":
    """Return a column of a frame.

    Args:
        data: The frame.
        name: Name of the column.
        argument: Name of the argument that names the column, for messages.

    Returns:
        A series of the library of the frame.

    Raises:
        InputError: There is no such column.
    """
    if is_frame(data):
        frame = nw.from_native(data)
        if name in frame.collect_schema().names():
            column: IntoSeries = data[name]  # type: ignore[index]
            return column
    raise InputError(f"X has no column {name}, which {argument} names")


def append_columns(data: "InputData", added: pl.DataFrame) -> "np.ndarray | IntoDataFrame":
    """Append columns to a frame.

    Args:
        data: A frame, or an array.
        added: The columns.

    Returns:
        The frame with the columns, in the same library; for an array only the columns, as a structured array.
    """
    if not is_frame(data):
        return added.to_numpy(structured=True)
    frame = nw.from_native(data)
    converted = nw.from_arrow(added, backend=frame.implementation)
    return frame.with_columns(*(converted[name] for name in added.columns)).to_native()


class RoutedRows(np.ndarray):
    """Structured array of rows of which only a few are printed; each of its fields is a plain array."""

    def __getitem__(self, key: object) -> object:  # type: ignore[override]
        """Select rows or fields."""
        selected: object = super().__getitem__(key)  # type: ignore[call-overload]
        is_field = isinstance(selected, np.ndarray) and selected.dtype.names is None
        return np.asarray(selected) if is_field else selected

    def __repr__(self) -> str:
        """Format the number of rows, and the first and last of them as a table."""
        if self.dtype.names is None or self.ndim != 1:
            return repr(np.asarray(self))
        rows = pl.DataFrame({name: self[name] for name in self.dtype.names})
        with pl.Config(tbl_rows=PRINTED_ROWS, tbl_cols=rows.width, tbl_width_chars=PRINTED_WIDTH):
            return str(rows)

    __str__ = __repr__


def to_structured_array(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Combine columns into a structured array.

    Args:
        columns: Columns by name, each of shape (n,).

    Returns:
        Shape (n,), with a field for each column.
    """
    dtypes = [(name, values.dtype) for name, values in columns.items()]
    length = len(next(iter(columns.values())))
    array = np.empty(length, dtype=dtypes)
    for name, values in columns.items():
        array[name] = values
    return array.view(RoutedRows)


def to_native_column(data: "InputData", values: pl.Series) -> "IntoSeries":
    """Convert a column to the library of a frame.

    Args:
        data: A frame.
        values: One value for each row.

    Returns:
        A series of pandas or polars, or a chunked array of Arrow.
    """
    native: Any = append_columns(data, values.to_frame())
    column: IntoSeries = nw.from_native(native, eager_only=True)[values.name].to_native()
    return column


def arrow_to_polars(rows: pa.RecordBatch | pa.Table, path: Path) -> pl.DataFrame:
    """Convert Arrow rows to a polars frame.

    Args:
        rows: The rows.
        path: Their file, for messages.

    Returns:
        The frame.

    Raises:
        InputError: A column has a type that polars does not support.
    """
    rows = _cast_wide_decimals(rows)
    _check_types(rows.schema, path)
    frame = pl.DataFrame(rows.rename_columns([str(index) for index in range(rows.num_columns)]))
    frame.columns = rows.schema.names  # set afterwards, since polars would rename a column with an empty name
    return frame


def _cast_wide_decimals(rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
    """Convert 256-bit decimals, which polars does not have, to floats."""
    for index, column in enumerate(rows.schema):
        if pa.types.is_decimal256(column.type):
            rows = rows.set_column(index, column.name, rows.column(index).cast(pa.float64()))
    return rows


def _check_types(columns: Iterable[pa.Field], path: Path) -> None:
    """Raise InputError for a column of a type that polars does not support."""
    for column in columns:
        if not is_readable(column.type):
            raise InputError(f"{path}: the column {column.name} is {column.type}; it must hold numbers, text or lists")


def _to_plain_array(column: pl.Series) -> np.ndarray:
    """Convert a column to an array whose bytes depend only on the values; texts and missing values are text."""
    if (column.dtype.is_numeric() or isinstance(column.dtype, pl.Array)) and not column.null_count():
        return column.to_numpy()
    return column.cast(pl.String).fill_null("\0").to_numpy().astype(np.str_)


def is_readable(arrow_type: pa.DataType, *, nested: bool = True) -> bool:
    """Return whether polars supports an Arrow type; polars may abort the process if it converts another type.

    Args:
        arrow_type: The type.
        nested: Whether lists and structs are allowed.

    Returns:
        Whether the type is supported.
    """
    if pa.types.is_dictionary(arrow_type):
        return is_readable(arrow_type.value_type, nested=False)
    if nested and pa.types.is_struct(arrow_type):
        return all(is_readable(member.type) for member in arrow_type)
    if nested and _is_one_of(arrow_type, LIST_TYPES):
        return is_readable(arrow_type.value_type)
    return _is_one_of(arrow_type, PLAIN_TYPES + TEXT_TYPES)


def is_text(arrow_type: pa.DataType) -> bool:
    """Return whether values of an Arrow type are texts, with offsets of any size.

    Args:
        arrow_type: The type.
    """
    return _is_one_of(arrow_type, ("string", "large_string"))


def _is_one_of(arrow_type: pa.DataType, names: Sequence[str]) -> bool:
    return any(getattr(pa.types, f"is_{name}")(arrow_type) for name in names)


def cast_for_arrow(frame: pl.DataFrame) -> pl.DataFrame:
    """Convert 128-bit integers, which Arrow does not have, to text, also within lists and structs.

    Args:
        frame: The frame.

    Returns:
        The frame with other columns unchanged.
    """
    return frame.cast({name: _arrow_compatible(dtype) for name, dtype in frame.schema.items()})


def _arrow_compatible(dtype: pl.DataType | DataTypeClass) -> pl.DataType | DataTypeClass:
    match dtype:
        case pl.Int128():
            return pl.String()
        case pl.List():
            return pl.List(_arrow_compatible(dtype.inner))
        case pl.Struct():
            return pl.Struct({member.name: _arrow_compatible(member.dtype) for member in dtype.fields})
        case _:
            return dtype
