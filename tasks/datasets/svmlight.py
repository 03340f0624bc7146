"""svmlight with groups: `<label> qid:<group> 1:<v> 2:<v> …`, features counted from 1, those left out are 0.

Also understood: a space before the line's end, CRLF, blank lines, a comment after `#`, groups that are no integers.
Lines that name every feature in order (MSLR-WEB10K) are read as a table, several times faster than token by token;
a file with any other line is read token by token, and only there is told what is wrong with a line.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import polars as pl

from tasks.datasets.raw import FETCH, ROW, opened
from tasks.protocol.errors import BadInput

LINES_AT_ONCE = 20_000  # read token by token; a token takes some 100 bytes of memory
GROUP = "qid:"


def read_svmlight(path: Path, width: int) -> pl.DataFrame:
    """All lines of a file, plain or gzip: ROW (line number from 1), `label` and `group` as text, `features`.

    `features` is pl.Array(pl.Float32, width). BadInput names the line and what is wrong with it: no label, no group,
    a feature outside 1..width, given twice, or that is no finite number in float32.
    """
    source = opened(path)
    try:
        frame = _dense(source, width)
        if frame is None:
            frame = _any(path, source, width)
    except pl.exceptions.PolarsError as error:
        raise BadInput(f"{path} is not a text file of svmlight lines ({str(error)[:200]})") from None
    return frame


def _dense(source: Path | bytes, width: int) -> pl.DataFrame | None:
    """The lines as a table with one column for each feature; None unless every line names 1..width in order."""
    names = [str(place) for place in range(1, width + 1)]
    columns = ["label", "group", *names, "rest"]
    if [token.partition(":")[0] for token in _first_tokens(source)[1:]] != [GROUP[:-1], *names]:
        return None
    blank = pl.all_horizontal(pl.exclude(ROW).is_null())
    dense = pl.all_horizontal(
        pl.col("label").is_not_null(),
        pl.col("group").str.starts_with(GROUP),
        *(pl.col(name).str.starts_with(f"{name}:") for name in names),
        pl.col("rest").is_null() | (pl.col("rest") == ""),
    )
    features = pl.concat_arr(pl.col(name).str.strip_prefix(f"{name}:").cast(pl.Float32, strict=False) for name in names)
    table = pl.scan_csv(
        source,
        separator=" ",
        has_header=False,
        schema=dict.fromkeys(columns, pl.String),
        quote_char=None,
        missing_columns="insert",  # `rest`, where no line ends in a space
        row_index_name=ROW,
        row_index_offset=1,
    ).filter(~blank)
    group = pl.col("group").str.strip_prefix(GROUP)
    try:
        frame = table.select(ROW, "label", group, features=features, dense=dense.fill_null(False)).collect(
            engine="streaming"
        )
    except pl.exceptions.PolarsError:  # a line with more tokens
        return None
    if not frame["dense"].all() or not np.isfinite(frame["features"].to_numpy()).all():
        return None
    return frame.drop("dense")


def _first_tokens(source: Path | bytes) -> list[str]:
    """The tokens of the first line that has any, without its comment."""
    handle = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
    with handle:
        for line in handle:
            if tokens := line.decode("utf-8", errors="replace").partition("#")[0].split():
                return tokens
    return []


def _any(path: Path, source: Path | bytes, width: int) -> pl.DataFrame:
    """The lines token by token."""
    lines = (
        pl.read_lines(source)
        .with_row_index(ROW, offset=1)
        .with_columns(pl.col("line").str.replace(r"#.*$", "").str.replace_all("\t", " ", literal=True))
        .filter(pl.col("line").str.strip_chars() != "")
    )
    if lines.is_empty():
        raise BadInput(f"{path} holds no line but comments; {FETCH}")
    return pl.concat(_tokens(path, part, width) for part in lines.iter_slices(LINES_AT_ONCE))


def _tokens(path: Path, lines: pl.DataFrame, width: int) -> pl.DataFrame:
    """ROW, `label`, `group`, `features` of some lines."""
    tokens = pl.col("line").str.split(" ").list.eval(pl.element().filter(pl.element() != ""))
    rows = lines.select(ROW, tokens=tokens).select(
        ROW,
        label=pl.col("tokens").list.get(0),
        group=pl.col("tokens").list.get(1, null_on_oob=True),
        token=pl.col("tokens").list.slice(2),
    )
    ungrouped = rows.filter(~pl.col("group").str.starts_with(GROUP).fill_null(False))
    if not ungrouped.is_empty():
        raise BadInput(f"{path}, line {ungrouped[ROW][0]}: found {ungrouped['group'][0]!r} where `qid:<group>` must be")
    features = pl.Series("features", _features(path, rows, width))
    return rows.select(ROW, "label", pl.col("group").str.strip_prefix(GROUP), features)


def _features(path: Path, rows: pl.DataFrame, width: int) -> np.ndarray:
    """`(n, width)` float32 of `n` rows, each with its list of tokens `<place>:<value>`."""
    parts = pl.col("token").str.split_exact(":", 1).struct.rename_fields(["place", "value"]).struct.unnest()
    tokens = (
        rows.with_row_index("at")
        .select("at", ROW, "token")
        .explode("token", empty_as_null=False)
        .with_columns(parts)
        .with_columns(pl.col("place").str.to_integer(strict=False), pl.col("value").cast(pl.Float32, strict=False))
    )
    cell = pl.col("at").cast(pl.Int64) * width + pl.col("place") - 1
    wrong = {
        f"a feature must be <place>:<number>, its place in 1..{width}": ~pl.col("place").is_between(1, width),
        "its value must be a finite number": ~pl.col("value").is_finite(),
    }
    for what, where in wrong.items():
        bad = tokens.filter(where.fill_null(True))
        if not bad.is_empty():
            raise BadInput(f"{path}, line {bad[ROW][0]}: found {bad['token'][0]!r}; {what}")
    cells = tokens.select(cell).to_series().to_numpy()
    features = np.zeros((len(rows), width), dtype=np.float32)
    features.ravel()[cells] = tokens["value"].to_numpy()
    if (np.bincount(cells, minlength=features.size) > 1).any():
        bad = tokens.filter(pl.struct("at", "place").is_duplicated())
        raise BadInput(f"{path}, line {bad[ROW][0]}: feature {bad['place'][0]} is given more than once")
    return features
