"""The paper's label spread: does reliability differ between decided labels at equal calibrated confidence?"""

import polars as pl

from tasks.tables.runs import KEYS, Runs, finished, table, values


@table(
    "label_spread",
    "Label-conditioned reliability spread under SMART, in percentage points, beside that of shuffled labels.",
    "Random is the 95th percentile over shuffles. Runs are counted over calibrators and protocol seeds.",
    digits=1,
)
def label_spread_table(runs: Runs) -> pl.DataFrame:
    """Return a row for each data set: the mean spread of all calibrators, in points, beside that of shuffled labels.

    `runs_above_random` counts over all calibrators and seeds, as the paper's 18 of 18 does.
    """
    return _spreads(runs, "dataset", "source")


@table(
    "label_spread_by_calibrator",
    "Label-conditioned reliability spread of each calibrator, in percentage points.",
    "Random is the 95th percentile over shuffles. Runs are counted over protocol seeds.",
    digits=1,
)
def label_spread_by_calibrator(runs: Runs) -> pl.DataFrame:
    """Return the same for each calibrator, counted over its own seeds."""
    return _spreads(runs, *KEYS)


def _spreads(runs: Runs, *by: str) -> pl.DataFrame:
    columns = {"spread": "label_spread", "random": "label_spread_null_p95"}
    runs_of_seeds = runs.rows().group_by(*KEYS, "seed", maintain_order=True)
    wide = runs_of_seeds.agg(**{name: values("confidence", metric).first() for name, metric in columns.items()})
    # An undefined spread is above nothing: NaN would compare as the largest number.
    above = ((pl.col("spread") > pl.col("random")) & pl.col("spread").is_not_nan()).fill_null(value=False)
    spread, random = (pl.col(name).mean() for name in columns)
    table = wide.group_by(*by, maintain_order=True).agg(
        label_spread_pp=100 * spread,
        random_p95_pp=100 * random,
        ratio=spread / random,
        runs_above_random=pl.format("{}/{}", above.sum(), pl.len()),
    )
    return finished(table, runs)
