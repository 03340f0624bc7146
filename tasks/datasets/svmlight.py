"""svmlight with groups: `<label> qid:<group> 1:<v> 2:<v> …`, features counted from 1, those left out are 0.

Also understood: a space before the line's end, CRLF, blank lines, a comment after `#`, groups that are no integers;
scikit-learn's reader takes no such groups, and names no line.
"""

from pathlib import Path

import numpy as np
import polars as pl

from tasks.datasets.raw import FETCH, ROW, forbid, opened
from tasks.protocol.errors import BadInput
from tasks.sources.contents import parsing

LINES_AT_ONCE = 5_000  # a token takes some 200 bytes of memory
GROUP = "qid:"


def read_svmlight(path: Path, width: int) -> pl.DataFrame:
    """All lines of a file, plain or gzip: ROW (line number from 1), `label` and `group` as text, `features`.

    `features` is pl.Array(pl.Float32, width). BadInput names the line and what is wrong with it: no label, no group,
    a feature outside 1..width, given twice, or that is no finite number in float32.
    """
    with parsing(path, "a text file of svmlight lines", FETCH):
        lines = pl.read_lines(opened(path)).with_row_index(ROW, offset=1)
    lines = lines.with_columns(pl.col("line").str.replace(r"#.*$", "")).filter(pl.col("line").str.contains(r"\S"))
    if lines.is_empty():
        raise BadInput(f"{path} holds no line but comments; {FETCH}")
    return pl.concat(_rows(path, part, width) for part in lines.iter_slices(LINES_AT_ONCE))


def _rows(path: Path, lines: pl.DataFrame, width: int) -> pl.DataFrame:
    """ROW, `label`, `group`, `features` of some lines."""
    tokens = pl.col("tokens").list
    rows = lines.select(ROW, tokens=pl.col("line").str.extract_all(r"\S+")).select(
        ROW, label=tokens.get(0), group=tokens.get(1, null_on_oob=True), feature=tokens.slice(2)
    )
    ungrouped = ~pl.col("group").str.starts_with(GROUP).fill_null(False)
    forbid(rows, ungrouped, path, "group", "there must be `qid:<group>`")
    part = pl.col("feature").str.split_exact(":", 1).struct
    features = (
        rows.select(ROW, "feature", at=pl.int_range(pl.len()))
        .explode("feature", empty_as_null=False)
        .with_columns(
            place=part.field("field_0").str.to_integer(strict=False),
            value=part.field("field_1").cast(pl.Float32, strict=False),
        )
    )
    for wrong, advice in (
        (~pl.col("place").is_between(1, width), f"it must be <place>:<number>, its place in 1..{width}"),
        (~pl.col("value").is_finite(), "its value must be a finite number"),
        ((pl.col("at") * width + pl.col("place")).is_duplicated(), "this feature is given more than once"),
    ):
        forbid(features, wrong.fill_null(True), path, "feature", advice)
    matrix = np.zeros((len(rows), width), dtype=np.float32)
    matrix[features["at"].to_numpy(), features["place"].to_numpy() - 1] = features["value"].to_numpy()
    return rows.select(ROW, "label", pl.col("group").str.strip_prefix(GROUP), pl.Series("features", matrix))
