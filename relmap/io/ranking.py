"""All rows of a file in the order of their reliability, exactly: in memory, or beyond what fits by an external sort."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from glob import escape
from itertools import chain
from pathlib import Path

import polars as pl
from pyarrow import parquet

from relmap.errors import needs_extra
from relmap.io.atomic import temporary_beside

IN_MEMORY = 2**23  # rows, 24 bytes each
SORT_MEMORY = "1GB"  # of DuckDB, whatever the number of rows
SCORES = {"decision": pl.Int32, "confidence": pl.Float64, "logit": pl.Float64}


@dataclass(frozen=True, eq=False)
class Ranking:
    """What a map says of all rows of a file, in their order."""

    n_rows: int
    columns: tuple[pl.LazyFrame, ...]  # side by side: decision, confidence and logit, as in SCORES, and rank

    def rows(self, first: int, count: int) -> pl.DataFrame:
        """`count` rows from row `first` on: decision, confidence, logit of the reliability, rank (int64, from 1)."""
        parts = [part.slice(first, count).collect() for part in self.columns]
        return pl.concat(parts, how="horizontal").with_columns(pl.col("rank").cast(pl.Int64))


@contextmanager
def ranked(pieces: Iterable[pl.DataFrame], beside: Path, *, in_memory: int = IN_MEMORY) -> Iterator[Ranking]:
    """Rank rows that come in pieces with the columns of SCORES: 1 is the lowest logit; ties by row order.

    Logits may be infinite, and -0.0 ties with 0.0; none is NaN. Up to `in_memory` rows are ranked in memory, more of
    them through files in a temporary folder beside the file `beside`, with the same result.
    """
    pieces, first_pieces, n_rows = iter(pieces), [pl.DataFrame(schema=SCORES)], 0
    for piece in pieces:
        first_pieces.append(piece)
        n_rows += len(piece)
        if n_rows > in_memory:
            with temporary_beside(beside, Path.mkdir, ".ranks") as folder:
                yield _ranked_on_disk(chain(first_pieces, pieces), folder)
            return
    scores = pl.concat(first_pieces)
    yield Ranking(n_rows, (scores.with_columns(rank=pl.col("logit").rank("ordinal")).lazy(),))


def _ranked_on_disk(pieces: Iterable[pl.DataFrame], folder: Path) -> Ranking:
    """The same through two sorts: the rows by logit, then the places that they have there by row."""
    with needs_extra("large"):
        import duckdb  # noqa: PLC0415 - few files are so long

    scores, by_logit, ranks = (folder / f"{name}.parquet" for name in ("scores", "by_logit", "ranks"))
    schema, n_rows = pl.DataFrame(schema=SCORES).to_arrow().schema, 0
    with parquet.ParquetWriter(scores, schema, compression="none", use_dictionary=False) as writer:
        for piece in pieces:
            writer.write_table(piece.to_arrow())
            n_rows += len(piece)
    limits = {"memory_limit": SORT_MEMORY, "threads": "2", "temp_directory": str(folder / "sort")}
    with duckdb.connect(config={**limits}) as engine:
        rows = engine.read_parquet(escape(str(scores)), file_row_number=True)
        rows.order("logit, file_row_number").project("file_row_number as row").write_parquet(str(by_logit))
        places = engine.read_parquet(escape(str(by_logit)), file_row_number=True)
        places.order("row").project("file_row_number + 1 as rank").write_parquet(str(ranks))
    by_logit.unlink()
    return Ranking(n_rows, tuple(pl.scan_parquet(path, glob=False) for path in (scores, ranks)))
