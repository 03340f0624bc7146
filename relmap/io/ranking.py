"""Rank all rows of a file by their reliability, exactly: in memory, or by an external sort for large files."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from glob import escape
from itertools import chain
from pathlib import Path

import numpy as np
import polars as pl
from pyarrow import parquet

from relmap.errors import needs_extra
from relmap.io.atomic import temporary_path

MAX_ROWS_IN_MEMORY = 2**23  # 24 bytes each
SORT_MEMORY = "1GB"  # memory limit of DuckDB, for any number of rows
SORT_THREADS = "2"
SCORES = {"decision": pl.Int32, "confidence": pl.Float64, "logit": pl.Float64}


@dataclass(frozen=True, eq=False)
class Ranking:
    """Scores and ranks of all rows of a file.

    Attributes:
        n_rows: Number of rows.
        parts: One or two frames of all rows; together they have the columns of SCORES and `rank`.
    """

    n_rows: int
    parts: tuple[pl.LazyFrame, ...]

    def rows(self, first: int, count: int) -> pl.DataFrame:
        """Read consecutive rows.

        Args:
            first: Number of the first row, from 0.
            count: Number of rows.

        Returns:
            Decision, confidence, logit of the reliability, and rank (int64, from 1).
        """
        frames = [part.slice(first, count).collect() for part in self.parts]
        return pl.concat(frames, how="horizontal")


def rank_by_logit(logit: np.ndarray) -> np.ndarray:
    """Rank rows in memory by logit: 1 is the lowest; ties are ranked by row order.

    Args:
        logit: Logit of the reliability of each row, shape (n,); may be infinite. -0.0 ties with 0.0.

    Returns:
        Ranks 1..n, shape (n,), int64.
    """
    n_rows = len(logit)
    order = np.argsort(logit)  # leaves ties in any order; a stable sort takes three times as long
    increasing = logit[order]
    tie = np.zeros(n_rows, dtype=np.int64)
    tie[1:] = np.cumsum(increasing[1:] != increasing[:-1])
    first_key = tie * n_rows
    order = np.sort(first_key + order) - first_key  # rows of a tie by their numbers
    rank = np.empty(n_rows, dtype=np.int64)
    rank[order] = np.arange(1, n_rows + 1)
    return rank


@contextmanager
def rank_rows(
    pieces: Iterable[pl.DataFrame], neighbor: Path, *, in_memory: int = MAX_ROWS_IN_MEMORY
) -> Iterator[Ranking]:
    """Rank all rows as `rank_by_logit` does.

    Args:
        pieces: All rows in pieces, with the columns of SCORES. Logits may be infinite, but not NaN; -0.0 ties with 0.0.
        neighbor: Path in whose folder the temporary files are.
        in_memory: Maximal number of rows that are ranked in memory; the result does not depend on it.

    Yields:
        The ranking, valid within the block.
    """
    remaining = iter(pieces)
    first_pieces = [pl.DataFrame(schema=SCORES)]
    n_rows = 0
    for piece in remaining:
        first_pieces.append(piece)
        n_rows += len(piece)
        if n_rows > in_memory:
            with temporary_path(neighbor, Path.mkdir, ".ranks") as folder:
                yield _rank_on_disk(chain(first_pieces, remaining), folder)
            return
    scores = pl.concat(first_pieces)
    rank = pl.Series("rank", rank_by_logit(scores["logit"].to_numpy()))
    yield Ranking(n_rows, (scores.with_columns(rank).lazy(),))


def _rank_on_disk(pieces: Iterable[pl.DataFrame], folder: Path) -> Ranking:
    """Rank rows by two sorts: sort the rows by logit, which gives the rank of each, then sort the ranks by row."""
    with needs_extra("large"):
        import duckdb  # noqa: PLC0415 - only large files need it

    scores = folder / "scores.parquet"
    by_logit = folder / "by_logit.parquet"
    ranks = folder / "ranks.parquet"
    schema = pl.DataFrame(schema=SCORES).to_arrow().schema
    n_rows = 0
    with parquet.ParquetWriter(scores, schema, compression="none", use_dictionary=False) as writer:
        for piece in pieces:
            writer.write_table(piece.to_arrow())
            n_rows += len(piece)
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": SORT_MEMORY,
        "threads": SORT_THREADS,
        "temp_directory": str(folder / "sort"),
    }
    with duckdb.connect(config=config) as engine:
        rows = engine.read_parquet(escape(str(scores)), file_row_number=True)
        rows.order("logit, file_row_number").project("file_row_number as row").write_parquet(str(by_logit))
        rows_by_logit = engine.read_parquet(escape(str(by_logit)), file_row_number=True)
        rows_by_logit.order("row").project("file_row_number + 1 as rank").write_parquet(str(ranks))
    by_logit.unlink()
    return Ranking(n_rows, (pl.scan_parquet(scores, glob=False), pl.scan_parquet(ranks, glob=False)))
