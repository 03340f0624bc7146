"""Prefect deployments: `python -m flows.serve` serves the refresh on its schedule, and each rerank command with a form.

A form refuses what its types do not allow before a run exists. Every run shows what it found as an artifact.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from prefect import flow, serve
from prefect.artifacts import create_markdown_artifact
from pydantic import Field

from flows import rerank
from flows.refresh import refresh
from tasks.protocol.params import load_params

CalibratorName = Literal["ts", "uncal", "diag", "spline", "hcal", "smart", "vector", "matrix"]
VariantName = Literal[
    "auto", "confidence", "shared_1d", "label_intercept", "label_platt", "mrp", "mrp_exact", "label_isotonic"
]
Dialect = Literal["duckdb", "postgres", "bigquery", "spark"]
Share = Annotated[float, Field(gt=0, lt=1)]


@flow(name="rerank-fit", flow_run_name="fit/{out}")
def rerank_fit(
    predictions: Path,
    out: Path,
    calibrator: CalibratorName | None = None,
    variant: VariantName = "auto",
    seed: Annotated[int, Field(ge=0)] = 1,
    group: str | None = None,
    labels: str | None = None,
) -> None:
    """Fit a reliability map on labelled predictions, and recommend what to deploy."""
    show("fit", rerank.fit(predictions, out, calibrator, variant, seed, group, labels))


@flow(name="rerank-apply", flow_run_name="apply/{out}")
def rerank_apply(
    map_file: Path, predictions: Path, out: Path, coverage: Share | None = None, cut: Share | None = None
) -> None:
    """Add decision, confidence, reliability, review_rank and route to every row; a coverage (0.7), or a cut."""
    share = None if coverage is None else str(coverage)
    show("apply", rerank.apply(map_file, predictions, out, share, cut))


@flow(name="rerank-evaluate", flow_run_name="evaluate/{predictions}")
def rerank_evaluate(map_file: Path, predictions: Path, out: Path, group: str | None = None) -> None:
    """Hold the reliability against the confidence on labelled rows: a verdict, metrics in `out`, and drift."""
    show("evaluate", rerank.evaluate(map_file, predictions, group, out))


@flow(name="rerank-thresholds", flow_run_name="thresholds/{predictions}")
def rerank_thresholds(
    map_file: Path,
    predictions: Path,
    out: Path,
    target_accuracy: Share | None = None,
    coverage: Share | None = None,
    confidence: Share = 0.95,
    group: str | None = None,
) -> None:
    """The cut on reliability for a target accuracy, or for a coverage, with its guarantee."""
    share = None if coverage is None else str(coverage)
    show("thresholds", rerank.thresholds(map_file, predictions, target_accuracy, share, confidence, group, out))


@flow(name="rerank-sql", flow_run_name="sql/{dialect}")
def rerank_sql(map_file: Path, dialect: Dialect = "duckdb") -> None:
    """One SQL expression of the columns decision and confidence that gives the reliability."""
    show("sql", ["```sql", rerank.sql(map_file, dialect), "```"])


RERANK = (rerank_fit, rerank_apply, rerank_evaluate, rerank_thresholds, rerank_sql)


def show(command: str, lines: list[str]) -> None:
    """What a command said, on the page of its run; the artifact's own page keeps what it said before."""
    create_markdown_artifact(key=f"rerank-{command}", markdown="\n".join(f"{line}  " for line in lines))


if __name__ == "__main__":
    cron = load_params().schedule.refresh
    deployments: list[Any] = [one.to_deployment(one.name) for one in RERANK]  # awaitable by its type, but not here
    serve(refresh.to_deployment("refresh", cron=cron, concurrency_limit=1), *deployments)  # type: ignore[arg-type]
