"""Prefect deployments: `python -m flows.serve` is the one command that whoever keeps this running starts.

It serves the refresh on its schedule, single data sets and each rerank command with a form, on its own API server or
that of PREFECT_API_URL. A form refuses what its types do not allow before a run exists. A run shows what it found.
"""

import asyncio
import hashlib
import inspect
import logging
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

import typer
from prefect import Flow, flow, tags
from prefect.artifacts import create_markdown_artifact
from prefect.deployments.runner import RunnerDeployment
from prefect.runner import Runner
from prefect.runner.storage import LocalStorage
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL
from pydantic import Field

from flows import ROOT
from flows.engine import alive, mark_crashed, task_runner
from flows.logs import output_logged
from flows.notifications import HOOKS
from flows.refresh import refresh
from flows.server import SECRET, api_server, find_server, own_home
from relmap import cli as rerank
from relmap.calibrators.registry import CALIBRATORS
from relmap.errors import InputError
from relmap.hashing import sha256_of_file
from relmap.io.atomic import check_name, write_json
from relmap.projection.variants import DEPLOYABLE
from tasks.provenance.stage import command
from tasks.records.errors import RunFailed
from tasks.records.store import DATA, STATE, read_json
from tasks.settings.params import Params, load_params

# a form offers what the registries hold, which the type checker cannot know
CalibratorName: TypeAlias = Literal[tuple(CALIBRATORS)]  # type: ignore[valid-type]
VariantName: TypeAlias = Literal["auto", *DEPLOYABLE]  # type: ignore[valid-type]
Dialect = Literal["duckdb", "postgres", "bigquery", "spark"]
Seed = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(gt=0, lt=1)]
STRICTER: dict[str, Any] = {  # than the commands of rerank, which say what is wrong in a sentence
    "out": Path,
    "calibrator": CalibratorName | None,
    "variant": VariantName,
    "dialect": Dialect,
    "seed": Seed,
    "rows": Annotated[int, Field(ge=1)],
    "confidence": Share,
    "hold_out": Annotated[float, Field(ge=0, le=0.9)],
    "target": Annotated[float, Field(gt=0)] | None,
    **dict.fromkeys(("coverage", "cut", "target_accuracy"), Share | None),
}

FOLDER = DATA / "served"
LOG = STATE / "serve.log"  # what runs printed
CHOSEN = STATE / "served.json"  # runs are processes of their own, which read here what was chosen
MADE = STATE / "served"  # a record for each file that a form has made
OPEN = "Ask for no secret: every user of this machine can then start runs, which read and write as you do."


def choose(folder: Path) -> None:
    """Let forms write into `folder` from now on; a new one is for this user alone."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_json(CHOSEN, {"folder": str(folder.resolve())})


@contextmanager
def written(out: Path, *endings: str) -> Iterator[Path]:
    """The place of `out` in the folder; what stands there after the block is a form's own.

    Whoever can send a form could otherwise overwrite any file of the user who serves it: forms write new files and
    their own, in that folder alone.

    Raises InputError where `out` leads out of the folder, has none of the `endings`, or is a file that no form has
    made, or that was changed since.
    """
    if not CHOSEN.exists():  # a worker on another machine than that of `flows.serve`
        choose(FOLDER)
    folder = Path(read_json(CHOSEN)["folder"])
    check_name(Path(out))
    place = (folder / out).resolve()  # through links and ..
    if not place.is_relative_to(folder) or place == folder:
        raise InputError(
            f"{out} is not in {folder}, the only folder in which a form may write; see `flows.serve --out`"
        )
    if place.suffix not in endings:
        if place.name in endings:
            raise InputError(f"{out} is an ending without a name; give a name, such as result{place.name}")
        raise InputError(f"{out} must end in {' or '.join(endings)}")
    record = MADE / f"{hashlib.sha256(str(place).encode()).hexdigest()}.json"
    if place.exists() and not (record.exists() and read_json(record)["sha256"] == sha256_of_file(place)):
        raise InputError(f"{place} is there already, and not as a form has made it; name another file")
    with written(place.with_suffix(rerank.MAP), ".json") if place.suffix == ".html" else nullcontext():  # beside it
        yield place
    write_json(record, {"file": str(place), "sha256": sha256_of_file(place)})


@flow(
    name="reliabilities",
    flow_run_name=lambda: f"reliabilities/{'+'.join(flow_run.parameters['datasets'])}",
    **HOOKS,
)
def reliabilities(
    datasets: Annotated[list[str], Field(min_length=1)],
    seeds: Annotated[list[Seed], Field(min_length=1)] | None = None,
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
    run = reliability.with_options(task_runner=task_runner(params))
    seeds = seeds or list(params.seeds)  # said aloud, so that no run writes where DVC does
    wrong = []
    with alive():
        for name in dict.fromkeys(datasets):
            try:
                with tags(name):
                    run(name, seeds, list(calibrators) if calibrators else None)
            except (InputError, RunFailed) as error:
                wrong.append(f"{name}: {error}")
    if wrong:
        raise RunFailed("\n  ".join(["not every data set finished:", *wrong]))


def form(command: Callable[..., list[str] | str], run_name: str, *endings: str) -> Flow[..., None]:
    """The flow of a command of rerank, with its parameters and words; what it writes has one of the `endings`.

    What the command said stands on the page of its run; the artifact's own page keeps what it said before.
    """

    def run(**given: Any) -> None:
        if given.get("coverage") is not None:
            given["coverage"] = str(given["coverage"])  # the command takes it as it is typed
        with alive(), written(given["out"], *endings) if endings else nullcontext() as place:
            said = command(**(given | {"out": place} if endings else given))
            lines = said if isinstance(said, list) else ["```sql", said, "```"]
            create_markdown_artifact(key=key, markdown="\n".join(f"{line}  " for line in lines))

    key = f"rerank-{command.__name__}"
    run.__name__ = run.__qualname__ = key.replace("-", "_")  # under which the runner looks for it here
    run.__doc__ = command.__doc__
    parameters = [
        parameter.replace(
            annotation=STRICTER.get(name, parameter.annotation),
            kind=inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if name == "out" else parameter.default,
        )
        for name, parameter in inspect.signature(command).parameters.items()
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return flow(name=key, flow_run_name=run_name, **HOOKS)(run)


rerank_fit = form(rerank.fit, "fit/{out}", ".json")
rerank_report = form(rerank.report, "report/{out}", ".html")
rerank_apply = form(rerank.apply, "apply/{out}", ".parquet", ".csv", ".jsonl")
rerank_evaluate = form(rerank.evaluate, "evaluate/{predictions}", ".json")
rerank_label = form(rerank.label, "label/{out}", ".csv", ".parquet", ".jsonl")
rerank_thresholds = form(rerank.thresholds, "thresholds/{predictions}", ".json")
rerank_sql = form(rerank.sql, "sql/{dialect}")
RERANK = (rerank_fit, rerank_report, rerank_apply, rerank_evaluate, rerank_label, rerank_thresholds, rerank_sql)


def deployments(params: Params) -> list[RunnerDeployment]:
    """Everything that is served: the refresh on its schedule, and the rest on demand."""
    scheduled = refresh.to_deployment("refresh", cron=params.schedule.refresh, concurrency_limit=1)
    chosen = knowing(params.datasets).to_deployment("reliability")
    made: list[Any] = [scheduled, chosen, *(form.to_deployment(form.name) for form in RERANK)]
    return made  # awaitable by their type, but not here


def knowing(datasets: Iterable[str]) -> Flow[..., None]:
    """`reliabilities`, whose form offers these data sets alone: it cannot know them at import, when nothing is read."""
    form, asked = reliabilities.with_options(), inspect.signature(reliabilities)
    offered = Field(min_length=1, json_schema_extra={"items": {"type": "string", "enum": list(datasets)}})
    parameters = dict(asked.parameters)
    parameters["datasets"] = parameters["datasets"].replace(annotation=Annotated[list[str], offered])
    form.__signature__ = asked.replace(parameters=list(parameters.values()))  # type: ignore[attr-defined]
    return form


def hand_over(made: list[RunnerDeployment], pool: str) -> None:
    """Register the deployments for the workers of a pool, which find the code in a folder with our path."""
    find_server()
    if PREFECT_API_URL.value() is None:
        raise InputError("a work pool needs a running server; set PREFECT_API_URL to its address")
    for deployment in made:
        deployment.storage = LocalStorage(str(ROOT))
        deployment.apply(work_pool_name=pool)
    print(f"{', '.join(each.name for each in made)} now wait for a worker: `prefect worker start --pool {pool}`")


def serve(made: list[RunnerDeployment], port: int, open_to_all: bool) -> None:
    """Start what is asked for or due until a Ctrl-C or SIGTERM, with a UI in the browser."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts us in the background ignores it
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # so that either ends all we start
    with output_logged(LOG), api_server(port, open_to_all) as url:
        if lost := mark_crashed():
            print(f"runs that were left as running by a killed process, and are now marked as crashed: {lost}")
        print(f"Prefect UI: {url.removesuffix('/api')}, serving {', '.join(of.name for of in made)}; Ctrl-C ends it")
        if SECRET.exists():
            print(f"the page asks once for the secret in {SECRET.absolute()}, which nobody but you can read")
        asyncio.run(run_until_ended(made))
        logging.shutdown()  # the last words reach the server while it is there


class Serving(Runner):
    """Prefect's runner, which Ctrl-C and SIGTERM end alike: runs are cancelled with all they started, schedules paused.

    Left alone, it ends at a Ctrl-C without a word to the server, on whose page the runs go on for ever, and at a
    SIGTERM it forgets to await its own end.
    """

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        for received in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(received, self.execute_in_background, self.astop)
        return self


async def run_until_ended(made: list[RunnerDeployment]) -> None:
    """Register the deployments, and start their runs as they are asked for or due."""
    runner = Serving(query_seconds=2)  # until a run that was asked for starts
    for deployment in made:
        await runner.aadd_deployment(deployment)
    await runner.start()


def main(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Of the server, where none is running yet.")] = 4200,
    work_pool: Annotated[str | None, typer.Option(help="Leave the runs to the workers of this pool, and end.")] = None,
    out: Annotated[Path, typer.Option(help="The only folder in which the forms of rerank may write.")] = FOLDER,
    open_to_all: Annotated[bool, typer.Option("--open", help=OPEN)] = False,
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
    command(main, "serve")
