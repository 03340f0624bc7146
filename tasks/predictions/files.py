"""Files of predictions, by the suffix of their name: what is missing, cut off or no data at all is refused here."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import polars as pl
import pyarrow as pa

from tasks.predictions.formats import ANEW, CsvPredictions, JsonLinesPredictions, ParquetPredictions, Predictions
from tasks.protocol.errors import BadInput
from tasks.sources.contents import check_content, parsing

FORMATS: dict[str, type[Predictions]] = {
    ".parquet": ParquetPredictions,
    ".csv": CsvPredictions,
    ".jsonl": JsonLinesPredictions,
}
PLAIN = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_decimal128,
    pa.types.is_null,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_date32,
    pa.types.is_timestamp,
)
LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def opened(path: Path) -> Predictions:
    """The file of predictions at `path`, by its suffix.

    Raises
    ------
    BadInput: no such file, no file, another suffix, empty, a Git LFS pointer, cut off or corrupt, or two columns of one
    name.
    """
    check_suffix(path)
    check_content(path, ANEW)
    predictions = FORMATS[path.suffix].of(path)
    with parsing(path, f"a whole {path.suffix[1:]} file", ANEW):  # a name may not be UTF-8
        names = predictions.schema.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadInput(f"{path} has more than one column named {', '.join(twice)}; rename all but one")
    return predictions


def check_suffix(path: Path) -> None:
    """BadInput unless `path` is named as one of the formats is."""
    if path.suffix not in FORMATS:
        raise BadInput(f"{path}: predictions are read and written as {', '.join(FORMATS)}; name the file so")


def columns_of(predictions: Predictions, columns: Sequence[str]) -> pl.DataFrame:
    """The named columns of all rows; BadInput for a column that is not there, and for a bad row."""
    path = predictions.path
    missing = [name for name in columns if name not in predictions.schema.names]
    if missing:
        raise BadInput(f"{path} has no column {', '.join(missing)}; it has {', '.join(predictions.schema.names)}")
    kept = pa.schema([predictions.schema.field(name) for name in columns])
    return as_frame(pa.Table.from_batches(predictions.batches(columns), kept), path)


def numbered(pieces: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Each piece of a file with the number of its first row, from 0."""
    first = 0
    for batch in pieces:
        yield first, batch
        first += len(batch)


def as_frame(rows: pa.RecordBatch | pa.Table, path: Path) -> pl.DataFrame:
    """The same rows for polars; BadInput names a column of `path` whose type it does not know."""
    for column in rows.schema:
        if not is_readable(column.type):
            raise BadInput(f"{path}: the column {column.name} is {column.type}; it must hold numbers, text or lists")
    frame = pl.DataFrame(rows.rename_columns([str(place) for place in range(rows.num_columns)]))
    frame.columns = rows.schema.names  # polars gives a column without a name another one
    return frame


def is_readable(kind: pa.DataType, *, nested: bool = True) -> bool:
    """Whether polars knows an Arrow type; where not it may abort rather than say so."""
    if pa.types.is_dictionary(kind):
        return is_readable(kind.value_type, nested=False)
    if nested and pa.types.is_struct(kind):
        return all(is_readable(part.type) for part in kind)
    if nested and any(holds(kind) for holds in LISTS):
        return is_readable(kind.value_type)
    return any(holds(kind) for holds in PLAIN)
