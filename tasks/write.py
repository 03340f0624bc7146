"""Prefect task: the results of one data set, written once all of them are there."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np
import polars as pl
from prefect import task
from prefect.cache_policies import NO_CACHE
from scipy.special import expit

from tasks.protocol.decisions import FixedDecisions
from tasks.protocol.results import Projected
from tasks.protocol.store import Base, runs_folder, write_json, write_whole

SCORED_ROWS = 50_000  # beyond this many test rows, scores.parquet holds a sample of them
LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn", "lightgbm", "polars", "prefect", "dvc", "great-expectations")


def scored_rows(n: int) -> np.ndarray:
    """Row numbers of the `n` test rows that scores.parquet holds: all of them, or a sample under a fixed seed."""
    if n <= SCORED_ROWS:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, SCORED_ROWS, replace=False))


def scores(projected: list[Projected], test: FixedDecisions) -> pl.DataFrame:
    """A row for each scored test row, calibrator and seed; rankings use the logits, which do not saturate."""
    kept = scored_rows(len(test))
    frames = []
    for seed in projected:
        for rows in seed.rows:
            logits = {f"logit_{name}": values[kept] for name, values in rows.reliability_logits.items()}
            frames.append(
                pl.DataFrame(
                    {
                        "row": kept,
                        "group": test.group[kept].tolist(),
                        "label": test.labels[kept],
                        "decision": rows.decision[kept],
                        "calibrator": [rows.calibrator] * len(kept),
                        "seed": [seed.seed] * len(kept),
                        "confidence": np.exp(rows.log_probabilities[kept, rows.decision[kept]]),
                        "reliability": expit(logits["logit_mrp"]),
                        **logits,
                    }
                )
            )
    return pl.concat(frames)


def curves(projected: list[Projected], labels: tuple[str, ...]) -> list[dict[str, Any]]:
    """Every fitted lattice: knots, values for each label, and the rows behind each label."""
    return [
        {
            "calibrator": rows.calibrator,
            "seed": seed.seed,
            "variant": variant,
            "knots": lattice.knots.tolist(),
            "curves": [
                {
                    "label": name,
                    "values": lattice.values[label].tolist(),
                    "rows": int(lattice.rows[label]),
                    "fallback": lattice.fallback[label],
                }
                for label, name in enumerate(labels if len(lattice.values) > 1 else ("every label",))
            ],
        }
        for seed in projected
        for rows in seed.rows
        for variant, lattice in rows.lattices.items()
    ]


@task(task_run_name="write/{dataset}", cache_policy=NO_CACHE)
def write_runs(
    dataset: str,
    base: Base,
    gates: list[dict[str, Any]],
    projected: list[Projected],
    measured: list[pl.DataFrame],
    provenance: dict[str, Any],
) -> None:
    """Write `data/runs/<dataset>/`: metrics, scores, curves and gates are the same bytes for the same inputs."""
    folder = runs_folder(dataset)
    keys = {"dataset": pl.lit(dataset), "source": pl.lit(base.source)}
    metrics = pl.concat(measured).with_columns(**keys)
    order = ["dataset", "source", "calibrator", "seed", "variant", "metric", "value"]
    write_whole(folder / "metrics.parquet", metrics.select(order).write_parquet)
    scored = scores(projected, base.test).with_columns(source=keys["source"])
    write_whole(folder / "scores.parquet", scored.write_parquet)
    named = {"dataset": dataset, "source": base.source}
    write_json(folder / "curves.json", named | {"lattices": curves(projected, base.labels)})
    write_json(
        folder / "gates.json", named | {"gates": [*gates, *(record for seed in projected for record in seed.gates)]}
    )
    write_json(
        folder / "run.json",
        named
        | {"test_rows": len(base.test), "scored_rows": len(scored_rows(len(base.test)))}
        | provenance
        | {
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "versions": {name: version(name) for name in LIBRARIES},
        },
    )
