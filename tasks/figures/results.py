"""What the figures of one data set are drawn from."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

DRAWN_UNDER = "ts"  # where it ran: the default for one's own predictions


@dataclass(frozen=True, eq=False)
class Results:
    """The results of one data set, as its stages wrote them."""

    name: str
    shown: str  # as people read it: `wands (simulated)`
    labels: tuple[str, ...]
    scores: pl.DataFrame  # of scores.parquet
    lattices: list[Mapping[str, Any]]  # of curves.json
    metrics: pl.DataFrame
    rivals: pl.DataFrame
    simplex: pl.DataFrame  # simplex.parquet
    test_rows: int  # of which scores.parquet may hold a sample
    drawn_under: str = DRAWN_UNDER

    @cached_property
    def calibrators(self) -> list[str]:
        """Return those that were asked for: neither rivals nor alternatives."""
        return [str(name) for name in self.scores["calibrator"].unique(maintain_order=True)]

    @cached_property
    def calibrator(self) -> str:
        """Return the one under which rows are drawn."""
        return self.drawn_under if self.drawn_under in self.calibrators else self.calibrators[-1]

    @cached_property
    def seeds(self) -> list[int]:
        """Return the protocol seeds that ran."""
        return [int(seed) for seed in self.scores["seed"].unique(maintain_order=True)]

    def scored(self, seed: int) -> pl.DataFrame:
        """Return the test rows under `calibrator` and one protocol seed, with `correct`."""
        mine = (pl.col("calibrator") == self.calibrator) & (pl.col("seed") == seed)
        return self.scores.filter(mine).with_columns(correct=pl.col("label") == pl.col("decision"))

    def measured(self, metric: str, variant: str) -> pl.DataFrame:
        """Return calibrator and `value`, the mean over protocol seeds; undefined ones are left out."""
        asked_for = pl.col("calibrator").is_in(self.calibrators)
        rows = self.metrics.filter(asked_for, metric=metric, variant=variant)
        means = rows.group_by("calibrator", maintain_order=True).agg(pl.col("value").mean())
        return means.filter(pl.col("value").is_not_nan())

    @property
    def subtitle(self) -> str:
        """Return what stands above a figure: the data set, and under which calibrator it is drawn."""
        scored = self.scores["row"].n_unique()
        sample = f", {scored:,} of {self.test_rows:,} test rows" if scored < self.test_rows else ""
        return f"{self.shown}, calibrator {self.calibrator}{sample}"

    def lowest(self) -> float:
        """Return the lowest confidence that a decision of K labels can have, or has."""
        least = np.min(self.scores["confidence"].to_numpy())
        return float(min(1 / len(self.labels), np.floor(20 * least) / 20))
