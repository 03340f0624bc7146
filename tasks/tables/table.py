"""What a table is: how it is made of the runs, what people read around it, and where it stands on the page."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import polars as pl

from tasks.tables.runs import Runs

Place = Literal["first", "comparison", "list", "beside"]  # on the page; `beside` it are those of thousands of rows
BOLD = "Bold changes are improvements."
DEVIATION = (
    "± is the deviation over the protocol seeds, each a split of the validation rows; it is no confidence interval."
)


@dataclass(frozen=True)
class Table:
    """A table of the report."""

    key: str  # of its files
    caption: str
    note: str  # on what its numbers do not say
    digits: int  # of decimals that people see: the paper's, where it has the table
    place: Place
    make: Callable[[Runs], pl.DataFrame]

    def __call__(self, runs: Runs) -> pl.DataFrame:
        """The rows in full precision, with `source` as the last column."""
        return self.make(runs)


def table(
    key: str, caption: str, note: str = "", *, digits: int = 3, place: Place = "list"
) -> Callable[[Callable[[Runs], pl.DataFrame]], Table]:
    """Make a table of the function that is decorated."""
    return partial(Table, key, caption, note, digits, place)
