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
        mine = self.scores.filter(calibrator=self.calibrator, seed=seed)
        return mine.with_columns(correct=pl.col("label") == pl.col("decision"))

    def measured(self, variant: str, **metrics: str) -> pl.DataFrame:
        """Return calibrator and means over seeds of metrics, by the names given; the first of them is never null."""
        rows = self.metrics.filter(pl.col("calibrator").is_in(self.calibrators), variant=variant)
        means = {name: pl.col("value").filter(pl.col("metric") == metric).mean() for name, metric in metrics.items()}
        measured = rows.group_by("calibrator", maintain_order=True).agg(**means).fill_nan(None)
        return measured.drop_nulls(next(iter(metrics)))

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
