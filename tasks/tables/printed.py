"""The numbers that the paper prints, as facts: `paper/*.csv` holds its tables with the digits that it gives.

A number is named by table, data set, row and column. `row` is a calibrator, a variant, a base predictor, or `average`;
the data set of an average over all six is `average` too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from tasks.protocol.keys import AVERAGE
from tasks.tables.ablation import ablation_table
from tasks.tables.budgeted_fallback import budgeted_fallback_table
from tasks.tables.label_spread import label_spread_table
from tasks.tables.main import main_table
from tasks.tables.robustness import BASES, robustness_table
from tasks.tables.simplex_projection import simplex_projection_table

FOLDER = Path(__file__).parent / "paper"
# The paper's tables of results, in its order.
TABLES = (
    main_table,
    budgeted_fallback_table,
    label_spread_table,
    ablation_table,
    simplex_projection_table,
    robustness_table,
)


class Place(NamedTuple):
    """Where a number stands."""

    table: str
    dataset: str
    row: str
    column: str


@dataclass(frozen=True)
class Printed:
    """A number of the paper and half a unit of its last printed digit."""

    place: Place
    value: float
    half_unit: float


def printed() -> list[Printed]:
    """Every number of the paper's six tables of results, in their order."""
    found = []
    for table in TABLES:
        texts = pl.read_csv(FOLDER / f"{table.key}.csv", infer_schema=False)
        for place, text in placed(table.key, texts).items():
            found.append(Printed(place, as_number(text), _half_unit(text)))
    return found


def placed(name: str, table: pl.DataFrame) -> dict[Place, Any]:
    """The filled cells of a table, the paper's or ours, by their place."""
    names = {"dataset", "source", "ours", "calibrator", "variant", "base"}
    found: dict[Place, Any] = {}
    for cells in table.iter_rows(named=True):
        row = next((cells[name] for name in ("calibrator", "variant", "base") if name in cells), AVERAGE)
        dataset = BASES.get(row, cells.get("dataset", AVERAGE))
        numbers = {column: value for column, value in cells.items() if column not in names and value is not None}
        found |= {Place(name, dataset, row, column): value for column, value in numbers.items()}
    return found


def as_number(cell: Any) -> float:
    """A cell as a number; a count such as 17/18 as a share."""
    if isinstance(cell, str) and "/" in cell:
        count, of = cell.split("/")
        return int(count) / int(of)
    return float(cell)


def _half_unit(text: str) -> float:
    if "/" in text:
        return 0.5 / int(text.split("/")[1])
    return 0.5 * 10.0 ** -len(text.partition(".")[2])
