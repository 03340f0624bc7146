"""Source `files`: a user's own labelled pairs, as tables of texts or as svmlight features.

The options name files and columns; the files are in `data/raw/<data set>/` under their base names. A svmlight line is
`<label> qid:<group> 1:<value> 2:<value> …`. Features are counted from 1, and omitted features are 0. Trailing spaces,
CRLF, blank lines, comments after `#` and groups that are not integers are accepted. The reader of scikit-learn is not
used, because it accepts only integers as groups, and its errors do not name the line.
"""

from functools import partial
from pathlib import Path, PurePath

import numpy as np
import polars as pl

from relmap.errors import InputError
from relmap.io.contents import report_parse_errors
from relmap.io.files import open_predictions
from tasks.datasets.base import LabelledPairs, concatenate_texts
from tasks.datasets.own import (
    FilesOptions,
    LookupTable,
    PairTables,
    build_labelled_pairs,
    encode_labels,
    map_splits,
    read_pair_columns,
)
from tasks.datasets.raw import (
    FETCH_AGAIN,
    ROW_NUMBER,
    forbid_rows,
    read_columns,
    require_columns,
    unpack,
)

LINES_PER_BATCH = 5_000  # of svmlight: each token takes about 200 bytes of memory
GROUP_PREFIX = "qid:"


def read(folder: Path, options: FilesOptions) -> LabelledPairs:
    """Read the labelled pairs of all files, in the order of the files and of their rows.

    Rows of svmlight files have `features` instead of `text`, and the identifier `<file>:<line>`.

    Args:
        folder: Folder of the raw files.
        options: Options of the data set.

    Returns:
        The labelled pairs.

    Raises:
        InputError: A row or a file is invalid; for example, a line has no label or group, or a feature that is out of
            range, given twice, or not a finite float32.
    """
    if options.features is None:
        assert options.pairs is not None
        return _read_text_pairs(folder, options.pairs, options.labels)
    frames = {}
    for split, name in options.features.parts:
        path = folder / PurePath(name).name
        frames[path] = _read_features(path, options.features.width).with_columns(
            pair=pl.format("{}:{}", pl.lit(path.name), ROW_NUMBER), split=pl.lit(split, dtype=pl.String)
        )
    columns = ("pair", "split", "group", "features", "label")
    return LabelledPairs(pl.concat(frame.select(columns) for frame in encode_labels(frames, options.labels)))


def _read_features(path: Path, width: int) -> pl.DataFrame:
    """Read ROW_NUMBER, `label` and `group` as text, and `features` of a file, plain or gzip."""
    with unpack(path) as plain, report_parse_errors(path, "a text file of svmlight lines", FETCH_AGAIN):
        lines = pl.read_lines(plain).with_row_index(ROW_NUMBER, offset=1)
    without_comments = lines.with_columns(pl.col("line").str.replace(r"#.*$", ""))
    lines = without_comments.filter(pl.col("line").str.contains(r"\S"))
    if lines.is_empty():
        raise InputError(f"{path} has no lines except comments; {FETCH_AGAIN}")
    return pl.concat(_parse_lines(path, batch, width) for batch in lines.iter_slices(LINES_PER_BATCH))


def _parse_lines(path: Path, lines: pl.DataFrame, width: int) -> pl.DataFrame:
    tokens = pl.col("tokens").list
    rows = lines.select(ROW_NUMBER, tokens=pl.col("line").str.extract_all(r"\S+")).select(
        ROW_NUMBER, label=tokens.get(0), group=tokens.get(1, null_on_oob=True), feature=tokens.slice(2)
    )
    has_group = pl.col("group").str.starts_with(GROUP_PREFIX).fill_null(False)
    forbid_rows(rows, ~has_group, path, "group", "there must be `qid:<group>`")
    features = _parse_features(path, rows, width)
    matrix = np.zeros((len(rows), width), dtype=np.float32)
    matrix[features["line"].to_numpy(), features["position"].to_numpy() - 1] = features["value"].to_numpy()
    group = pl.col("group").str.strip_prefix(GROUP_PREFIX)
    return rows.select(ROW_NUMBER, "label", group, pl.Series("features", matrix))


def _parse_features(path: Path, rows: pl.DataFrame, width: int) -> pl.DataFrame:
    """Return one row for each feature, with its `line` from 0, its `position` from 1 and its `value`."""
    part = pl.col("feature").str.split_exact(":", 1).struct
    features = rows.select(ROW_NUMBER, "feature", line=pl.int_range(pl.len())).explode("feature", empty_as_null=False)
    features = features.with_columns(
        position=part.field("field_0").str.to_integer(strict=False),
        value=part.field("field_1").cast(pl.Float32, strict=False),
    )
    is_outside = ~pl.col("position").is_between(1, width)
    is_not_finite = ~pl.col("value").is_finite()
    is_repeated = (pl.col("line") * width + pl.col("position")).is_duplicated()
    for is_wrong, remedy in (
        (is_outside, f"it must be <position>:<number>, with a position in 1..{width}"),
        (is_not_finite, "its value must be a finite number"),
        (is_repeated, "this feature is given more than once"),
    ):
        forbid_rows(features, is_wrong.fill_null(True), path, "feature", remedy)
    return features


def check_columns(folder: Path, source: PairTables) -> None:
    """Check that tables of text pairs have the columns that the options name, without reading their rows.

    The columns of compressed files and JSON lines are checked later, when these files are read.

    Args:
        folder: Folder that contains the paths of the options.
        source: Files and columns.

    Raises:
        InputError: A column is missing. The message names the file and its columns.
    """
    columns = [source.group, *source.query, *source.candidate, source.label]
    columns += [name for name in (source.pair, source.split) if name is not None]
    for _, name in source.parts:
        _check_header(folder / name, columns)
    for lookup in source.lookups.values():
        _check_header(folder / lookup.path, [lookup.id, *lookup.text])


def _check_header(path: Path, columns: list[str]) -> None:
    if path.suffix not in (".csv", ".tsv", ".parquet"):
        return
    try:
        with unpack(path) as plain:
            names = open_predictions(plain).schema.names
    except InputError:
        return  # this is reported when the file is read
    require_columns(path, names, columns)


def _read_text_pairs(folder: Path, source: PairTables, labels: tuple[str, ...]) -> LabelledPairs:
    """Read tables of text pairs. A pair without an identifier in its table is named `<file>:<row>`."""
    texts_by_side = {}
    for side, lookup in source.lookups.items():
        texts_by_side[side] = _read_lookup_table(folder / PurePath(lookup.path).name, lookup)
    frames = {}
    for split, name in source.parts:
        path = folder / PurePath(name).name
        frame = read_pair_columns(
            partial(read_columns, path), source, path.name, source.split, lookup_sides=texts_by_side
        )
        for side, texts in texts_by_side.items():
            frame = _look_up(frame, side, texts, path, name_in_file=source.side_columns[side][0])
        if source.split:
            frames[path] = map_splits(frame, source.splits, path, name_in_file=source.split)
        else:
            frames[path] = frame.with_columns(split=pl.lit(split, dtype=pl.String))
    return build_labelled_pairs(frames, source, labels, folder)


def _read_lookup_table(path: Path, lookup: LookupTable) -> pl.DataFrame:
    """Read `id` and `text` of queries or candidates."""
    frame = read_columns(path, {lookup.id: "text or number", **dict.fromkeys(lookup.text, "text")})
    is_not_unique = pl.col(lookup.id).is_null() | pl.col(lookup.id).is_duplicated()
    forbid_rows(frame, is_not_unique, path, lookup.id, "each row needs a unique id")
    text = concatenate_texts((("", column) for column in lookup.text), " ").alias("text")
    return frame.select(pl.col(lookup.id).alias("id"), text)


def _look_up(frame: pl.DataFrame, side: str, texts: pl.DataFrame, path: Path, name_in_file: str) -> pl.DataFrame:
    """Replace the identifiers of queries or candidates by their texts."""
    is_known = pl.col(side).is_in(texts["id"].implode()).fill_null(False)
    forbid_rows(frame, ~is_known, path, side, "the lookup table has no row with this id", name_in_file=name_in_file)
    return frame.with_columns(pl.col(side).replace_strict(texts["id"], texts["text"], default=None))
