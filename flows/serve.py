"""Prefect deployments: `python -m flows.serve` is the one command that whoever keeps this running starts.

It serves the refresh on its schedule, single data sets and each rerank command with a form, on an API server of its own
or the one that PREFECT_API_URL names. A form refuses what its types do not allow before a run exists. Every run shows
what it found as an artifact.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from prefect import flow, tags
from prefect.artifacts import create_markdown_artifact
from prefect.deployments.runner import RunnerDeployment
from prefect.runner.storage import LocalStorage
from prefect.runtime import flow_run
from pydantic import Field

from flows import ROOT, own_home, rerank
from flows.alive import alive, mark_crashed
from flows.engine import task_runner
from flows.refresh import refresh
from flows.runner import run_until_ended
from flows.served import FOLDER, choose, written
from flows.server import SECRET, api_server
from tasks.protocol.errors import BadInput, RunFailed
from tasks.protocol.params import Params, load_params

CalibratorName = Literal["ts", "uncal", "diag", "spline", "hcal", "smart", "vector", "matrix"]
VariantName = Literal[
    "auto", "confidence", "shared_1d", "label_intercept", "label_platt", "mrp", "mrp_exact", "label_isotonic"
]
Dialect = Literal["duckdb", "postgres", "bigquery", "spark"]
Share = Annotated[float, Field(gt=0, lt=1)]


def named() -> str:
    """The name of a run of `reliabilities`."""
    return f"reliabilities/{'+'.join(flow_run.parameters['datasets'])}"


@flow(name="reliabilities", flow_run_name=named)
def reliabilities(
    datasets: Annotated[list[str], Field(min_length=1)],
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] | None = None,
    calibrators: Annotated[list[CalibratorName], Field(min_length=1)] | None = None,
) -> None:
    """Calibrate, project, check and measure data sets that are trained, under seeds and calibrators of your choice.

    The results go to `data/explored/`, a folder for each data set; `refresh` alone changes what DVC keeps. Where a data
    set fails, the others finish; RunFailed then holds every reason.

    Args:
        datasets: Keys of `datasets` in params.yaml, one run each.
        seeds: Protocol seeds, 0 or more; those of params.yaml if left out.
        calibrators: Names of calibrators; those of params.yaml if left out.
    """
    from flows.reliability import reliability  # noqa: PLC0415 - takes seconds, and no other run needs it

    params = load_params()
    one = reliability.with_options(task_runner=task_runner(params))
    seeds = seeds or list(params.seeds)  # said aloud, so that no run writes where DVC does
    wrong = []
    with alive():
        for name in dict.fromkeys(datasets):
            try:
                with tags(name):
                    one(name, seeds, list(calibrators) if calibrators else None)
            except (BadInput, RunFailed) as error:
                wrong.append(f"{name}: {error}")
    if wrong:
        raise RunFailed("\n  ".join(["not every data set finished:", *wrong]))


@flow(name="rerank-fit", flow_run_name="fit/{out}")
def rerank_fit(
    predictions: Path,
    out: Path,
    calibrator: CalibratorName | None = None,
    variant: VariantName = "auto",
    seed: Annotated[int, Field(ge=0)] = 1,
    group: str | None = None,
    labels: str | None = None,
    protocol: rerank.Protocol = "own",
) -> None:
    """Fit a reliability map on labelled predictions, and recommend what to deploy."""
    with alive(), written(out, ".json") as place:
        post("fit", rerank.fit(predictions, place, calibrator, variant, seed, group, labels, protocol))


@flow(name="rerank-apply", flow_run_name="apply/{out}")
def rerank_apply(
    map_file: Path, predictions: Path, out: Path, coverage: Share | None = None, cut: Share | None = None
) -> None:
    """Add decision, confidence, reliability, review_rank and route to every row; a coverage (0.7), or a cut."""
    share = None if coverage is None else str(coverage)
    with alive(), written(out, ".parquet", ".csv", ".jsonl") as place:
        post("apply", rerank.apply(map_file, predictions, place, share, cut))


@flow(name="rerank-evaluate", flow_run_name="evaluate/{predictions}")
def rerank_evaluate(map_file: Path, predictions: Path, out: Path, group: str | None = None) -> None:
    """Hold the reliability against the confidence on labelled rows: a verdict, metrics in `out`, and drift."""
    with alive(), written(out, ".json") as place:
        post("evaluate", rerank.evaluate(map_file, predictions, group, place))


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
    with alive(), written(out, ".json") as place:
        post("thresholds", rerank.thresholds(map_file, predictions, target_accuracy, share, confidence, group, place))


@flow(name="rerank-sql", flow_run_name="sql/{dialect}")
def rerank_sql(map_file: Path, dialect: Dialect = "duckdb") -> None:
    """One SQL expression of the columns decision and confidence that gives the reliability."""
    with alive():
        post("sql", ["```sql", rerank.sql(map_file, dialect), "```"])


RERANK = (rerank_fit, rerank_apply, rerank_evaluate, rerank_thresholds, rerank_sql)


def post(command: str, lines: list[str]) -> None:
    """What a command said, on the page of its run; the artifact's own page keeps what it said before."""
    create_markdown_artifact(key=f"rerank-{command}", markdown="\n".join(f"{line}  " for line in lines))


def deployments(params: Params) -> list[RunnerDeployment]:
    """Everything that is served: the refresh on its schedule, and the rest on demand."""
    made: list[Any] = [  # awaitable by its type, but not here
        refresh.to_deployment("refresh", cron=params.schedule.refresh, concurrency_limit=1),
        reliabilities.to_deployment("reliability"),
        *(one.to_deployment(one.name) for one in RERANK),
    ]
    # the flow cannot know the names, since nothing is read at import; Prefect has no public place for them
    made[1]._parameter_openapi_schema.properties["datasets"]["items"]["enum"] = list(params.datasets)
    return made


def hand_over(made: list[RunnerDeployment], pool: str) -> None:
    """Register the deployments for the workers of a pool, which find the code in a folder with our path."""
    if "PREFECT_API_URL" not in os.environ:
        raise BadInput("a work pool needs a running server; set PREFECT_API_URL to its address")
    for one in made:
        one.storage = LocalStorage(str(ROOT))
        one.apply(work_pool_name=pool)
    print(f"{', '.join(one.name for one in made)} now wait for a worker: `prefect worker start --pool {pool}`")


def serve(made: list[RunnerDeployment], port: int, open_to_all: bool) -> None:
    """Start what is asked for or due until a Ctrl-C or SIGTERM, with a UI in the browser."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts us in the background ignores it
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # so that either ends all we start
    with api_server(port, open_to_all) as url:
        if lost := mark_crashed():
            print(f"runs that were left as running by a killed process, and are now marked as crashed: {lost}")
        print(f"Prefect UI: {url.removesuffix('/api')}, serving {', '.join(one.name for one in made)}; Ctrl-C ends it")
        if SECRET.exists():
            print(f"the page asks once for the secret in {SECRET.absolute()}, which nobody but you can read")
        asyncio.run(run_until_ended(made))
        logging.shutdown()  # the last words reach the server while it is there


def main(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Of the server, where none is running yet.")] = 4200,
    work_pool: Annotated[str | None, typer.Option(help="Leave the runs to the workers of this pool, and end.")] = None,
    out: Annotated[Path, typer.Option(help="The only folder in which the forms of rerank may write.")] = FOLDER,
    open_to_all: Annotated[
        bool,
        typer.Option(
            "--open",
            help="Ask for no secret: every user of this machine can then start runs, which read and write as you do.",
        ),
    ] = False,
) -> None:
    """Serve every deployment with a form and, where it has one, on its schedule."""
    own_home()
    made = deployments(load_params())
    choose(out)
    if work_pool is None:
        serve(made, port, open_to_all)
    else:
        hand_over(made, work_pool)


if __name__ == "__main__":
    try:
        typer.run(main)
    except (BadInput, RunFailed) as error:
        sys.exit(f"serve: {error}")
