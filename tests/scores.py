"""Made-up scores of two calibrators, and fitted curves, for tests of figures."""

import numpy as np
import polars as pl

from relmap.report.figure import Results

LABELS = ("7", "yes", "no")
KNOTS = (0.0, 0.25, 0.5, 1.0)
VALUES = (-2.0, -1.0, 0.5, 3.0)


def make_scores(rows: dict[int, int], confidence: float = 0.8, reliability: float = 0.7) -> pl.DataFrame:
    """Make the given number of rows for each decided label; every third row is wrong."""
    decision = np.repeat(list(rows), list(rows.values()))
    n_rows = len(decision)
    label = np.where(np.arange(n_rows) % 3 == 2, (decision + 1) % 3, decision)
    return pl.DataFrame(
        {
            "row": np.arange(n_rows),
            "label": label,
            "decision": decision,
            "confidence": np.full(n_rows, confidence),
            "reliability": np.full(n_rows, reliability),
        }
    )


def make_results(scores: pl.DataFrame, seeds: tuple[int, ...] = (4,), **fields: object) -> Results:
    """Make results of two calibrators, of which the figures show `ts`; the rows of `uncal` must not appear."""
    other = scores.with_columns(calibrator=pl.lit("uncal"), confidence=pl.lit(0.99), decision=pl.lit(0, pl.Int64))
    shown = scores.with_columns(calibrator=pl.lit("ts"))
    frames = []
    for frame in (other, shown):
        frames += [frame.with_columns(seed=pl.lit(seed)) for seed in seeds]
    columns = frames[1].columns
    all_scores = pl.concat([frame.select(columns) for frame in frames])
    return Results(
        name="shop", display_name="the shop", labels=LABELS, scores=all_scores, test_rows=len(scores), **fields
    )


def make_lattice(seed: int, rows: tuple[int, ...], fallbacks: tuple[str, ...], **fields: object) -> dict[str, object]:
    """Make an entry of `lattices` in curves.json: the fitted curves of a seed. All labels have the same values."""
    curves = []
    for n_rows, fallback in zip(rows, fallbacks, strict=True):
        curves.append({"rows": n_rows, "fallback": fallback, "values": [*VALUES]})
    return {"calibrator": "ts", "variant": "mrp", "seed": seed, "knots": [*KNOTS], "curves": curves} | fields


def headings(rows: pl.DataFrame) -> list[str]:
    """Return the headings of the panels in their order."""
    return rows["panel"].unique(maintain_order=True).to_list()
