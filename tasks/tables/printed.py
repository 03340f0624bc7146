"""The numbers that the paper prints, as facts: `paper/*.csv` holds its tables with the digits that it gives.

A number is named by table, data set, row and column. `row` is a calibrator, a variant, a base predictor, or `average`;
the data set of an average over all six is `average` too.
"""

from pathlib import Path

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
PLACE = ("table", "dataset", "row", "column")  # where a number stands
ROWS = ("calibrator", "variant", "base")  # columns that name the row, where there is one of them


def printed() -> pl.DataFrame:
    """Every number of the paper's six tables of results by its PLACE: `value`, and half a unit of its last digit."""
    texts = {table.key: pl.read_csv(FOLDER / f"{table.key}.csv", infer_schema=False) for table in TABLES}
    return pl.concat([placed(name, table) for name, table in texts.items()])


def placed(name: str, table: pl.DataFrame) -> pl.DataFrame:
    """The filled cells of a table, the paper's or ours, by their PLACE: `value`, and `half_unit` of its last digit.

    A count such as 17/18 is a share, whose unit is one of the count.
    """
    row = next((pl.col(key) for key in ROWS if key in table.columns), pl.lit(AVERAGE))
    dataset = pl.col("dataset") if "dataset" in table.columns else pl.lit(AVERAGE)
    numbers = table.select(pl.exclude("dataset", "source", "ours", *ROWS).cast(pl.String))
    keys = table.select(dataset=pl.coalesce(row.replace_strict(BASES, default=None), dataset), row=row)
    cells = (
        pl.concat([keys, numbers], how="horizontal")
        .with_row_index("line")
        .unpivot(index=["line", "dataset", "row"], variable_name="column", value_name="text")
        .drop_nulls("text")
        .sort("line", maintain_order=True)
    )
    count, of = (pl.col("text").str.split("/").list.get(part, null_on_oob=True).cast(pl.Float64) for part in (0, 1))
    digits = pl.col("text").str.split(".").list.get(1, null_on_oob=True).str.len_chars().cast(pl.Int64).fill_null(0)
    return cells.select(
        pl.lit(name).alias("table"),
        *PLACE[1:],
        value=pl.when(of.is_null()).then(count).otherwise(count / of),
        half_unit=0.5 / pl.coalesce(of, pl.lit(10.0).pow(digits)),
    )
