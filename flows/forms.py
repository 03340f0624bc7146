"""Forms of the commands of `relmap.cli`, as Prefect flows.

Each form has the parameters of its command. Its descriptions, choices and limits are those of the command's help, so
that no text exists twice. A form refuses what its types do not allow before a run exists.
"""

import hashlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

from prefect import Flow, flow
from prefect.artifacts import create_markdown_artifact
from prefect.deployments.runner import RunnerDeployment
from prefect.utilities.callables import ParameterSchema
from pydantic import Field
from typer.models import ParameterInfo

from flows.engine import alive
from flows.notifications import HOOKS
from relmap import cli as rerank
from relmap.calibrators.registry import CALIBRATORS
from relmap.console import with_registry_names
from relmap.errors import InputError
from relmap.hashing import sha256_of_file
from relmap.io.atomic import check_output_name, check_suffix, write_json
from relmap.options import naming, option
from relmap.projection.variants import DEPLOYABLE_VARIANTS
from tasks.records.store import DATA, STATE, read_json

# a form offers what the registries hold, which the type checker cannot know
CalibratorName: TypeAlias = Literal[tuple(CALIBRATORS)]  # type: ignore[valid-type]
VariantName: TypeAlias = Literal["auto", *DEPLOYABLE_VARIANTS]  # type: ignore[valid-type]
Dialect = Literal["duckdb", "postgres", "bigquery", "spark"]
Seed = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(gt=0, lt=1)]
STRICT_TYPES: dict[str, Any] = {  # where the command checks a value itself, and a form can refuse it earlier
    "calibrator": CalibratorName | None,
    "variant": VariantName,
    "dialect": Dialect,
    "confidence": Share,
    "target": Annotated[float, Field(gt=0)] | None,
    "coverage": Share | None,
    "cut": Share | None,
    "target_accuracy": Share | None,
}

FOLDER = DATA / "served"
CHOSEN = STATE / "served.json"  # runs are processes of their own, which read here what was chosen
MADE = STATE / "served"  # a record for each file that a form has made

ON_SERVER = "A path on the server; a relative one starts at the project's folder."
IN_SERVED_FOLDER = f"A path relative to the served folder ({FOLDER}, or what flows.serve --out names)."
EXAMPLES = {  # of fields whose help has none
    "predictions": f"{FOLDER}/predictions.parquet",
    "map_file": f"{FOLDER}/map.json",
    "cuts": f"{FOLDER}/thresholds.json",
    "unlabelled": f"{FOLDER}/predictions.parquet",
    "group": "query",
    "label": "truth",
    "decision": "prediction",
}


def choose(folder: Path) -> None:
    """Let forms write into `folder` from now on; a new one is for this user alone."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_json(CHOSEN, {"folder": str(folder.resolve())})


@contextmanager
def written(out: Path, *endings: str) -> Iterator[Path]:
    """Check where a form may write, and record the file that it wrote.

    Whoever can send a form could otherwise overwrite any file of the user who serves it: forms write new files and
    their own, in that folder alone.

    Args:
        out: Path in the served folder.
        endings: Endings of file names that the command writes.

    Yields:
        The absolute path to write to.

    Raises:
        InputError: `out` leads out of the folder, has none of the `endings`, or is a file that no form has made, or
            that was changed since.
    """
    if not CHOSEN.exists():  # a worker on another machine than that of `flows.serve`
        choose(FOLDER)
    folder = Path(read_json(CHOSEN)["folder"])
    check_output_name(Path(out))
    place = (folder / out).resolve()  # through links and ..
    if not place.is_relative_to(folder) or place == folder:
        raise InputError(
            f"{out} is not in {folder}, the only folder in which a form may write; see `flows.serve --out`"
        )
    check_suffix(place.relative_to(folder), *endings)
    record = MADE / f"{hashlib.sha256(str(place).encode()).hexdigest()}.json"
    if place.exists() and not (record.exists() and read_json(record)["sha256"] == sha256_of_file(place)):
        raise InputError(f"{place} is there already, and not as a form has made it; name another file")
    # the command writes a map next to a page
    with written(place.with_suffix(rerank.MAP), ".json") if place.suffix == ".html" else nullcontext():
        yield place
    write_json(record, {"file": str(place), "sha256": sha256_of_file(place)})


def form(
    command: Callable[..., list[str] | str], run_name: str, *endings: str, without: tuple[str, ...] = ()
) -> Flow[..., None]:
    """Make the flow of a command of rerank.

    The output of the command is shown on the page of its run; the artifact's own page keeps what earlier runs showed.

    Args:
        command: Function of `relmap.cli`.
        run_name: Template of the names of runs.
        endings: Endings of the file that the command writes; none if it writes no file.
        without: Parameters that the form does not offer.

    Returns:
        The flow, whose `parameters` describe each field.
    """

    def run(**given: Any) -> None:
        if given.get("coverage") is not None:
            given["coverage"] = str(given["coverage"])  # the command takes it as it is typed
        with naming("form"), alive(), written(given["out"], *endings) if endings else nullcontext() as place:
            said = command(**(given | {"out": place} if endings else given))
            lines = said if isinstance(said, list) else ["```sql", said, "```"]
            create_markdown_artifact(key=key, markdown="\n".join(f"{line}  " for line in lines))

    key = f"rerank-{command.__name__}"
    run.__name__ = run.__qualname__ = key.replace("-", "_")  # under which the runner looks for it here
    run.__doc__ = command.__doc__
    offered = [parameter for name, parameter in inspect.signature(command).parameters.items() if name not in without]
    fields = [_field(parameter) for parameter in offered]
    fields.sort(key=lambda field: field.default is not field.empty)  # what a user has to fill comes first
    run.__signature__ = inspect.Signature(fields)  # type: ignore[attr-defined]
    made = flow(name=key, flow_run_name=run_name, **HOOKS)(run)
    explain(made, offered, endings)
    return made


def explain(served: Flow[..., Any], parameters: Iterable[inspect.Parameter], endings: tuple[str, ...] = ()) -> None:
    """Describe the fields of a form by the help of the options of a command.

    Args:
        served: The flow, whose `parameters` are changed.
        parameters: Parameters of the command, with their options as annotations.
        endings: Endings of the file that the command writes.
    """
    of_command = list(parameters)
    for parameter in of_command:
        served.parameters.properties[parameter.name] |= _explanation(parameter, of_command, endings)


def _field(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return the parameter of a form for that of a command: by keyword, with types as strict as they can be."""
    annotation = STRICT_TYPES.get(parameter.name)
    if annotation is None:
        kind, help_of = _type_and_option(parameter)
        annotation = Annotated[kind, Field(ge=help_of.min, le=help_of.max)] if help_of.min is not None else kind
    if parameter.name == "out":
        return parameter.replace(annotation=Path, kind=parameter.KEYWORD_ONLY, default=parameter.empty)
    return parameter.replace(annotation=annotation, kind=parameter.KEYWORD_ONLY)


def _type_and_option(parameter: inspect.Parameter) -> tuple[Any, ParameterInfo]:
    """Return the type of a command's parameter, and its option or argument with the help."""
    kind, help_of = get_args(parameter.annotation)
    return kind, help_of


def _explanation(
    parameter: inspect.Parameter, offered: list[inspect.Parameter], endings: tuple[str, ...]
) -> dict[str, Any]:
    """Return the description and the examples of a field, from the help of the command's option."""
    kind, help_of = _type_and_option(parameter)
    sentences = [_with_field_names(with_registry_names(str(help_of.help)), offered)]
    example = EXAMPLES.get(parameter.name)
    if parameter.name == "out":
        example = f"result{endings[0]}"
        sentences.append(f"{IN_SERVED_FOLDER} It ends in {' or '.join(endings)}.")
    elif Path in (kind, *get_args(kind)):
        sentences.append(ON_SERVER)
    if help_of.rich_help_panel is not None:  # Prefect's page has no headings: the group comes first
        sentences.insert(0, f"{help_of.rich_help_panel}:")
    if example is not None:
        sentences.append(f"Example: {example}")
    return {"description": " ".join(sentences)} | ({"examples": [example]} if example is not None else {})


def _with_field_names(text: str, offered: list[inspect.Parameter]) -> str:
    """Replace the options in a help text by the fields of the form."""
    fields = {option(parameter.name): parameter.name for parameter in offered}
    return re.sub(r"--[a-z]+(?:-[a-z]+)*", lambda found: fields[found[0]], text)


def without_null(schema: ParameterSchema) -> ParameterSchema:
    """Describe fields that may be left out by their type alone.

    Prefect's page draws an optional field as a choice between its type and "Property is type None". Without a default
    of null it leaves out a field that the user has not filled, and the flow takes its default.
    """
    for field in schema.properties.values():
        kinds = [kind for kind in field.get("anyOf", []) if kind.get("type") != "null"]
        if len(kinds) == 1:
            del field["anyOf"]
            field.update(kinds[0])
        if field.get("default", ...) is None:
            del field["default"]
    return schema


def deployed(served: Flow[..., Any], name: str, **settings: Any) -> RunnerDeployment:
    """Make the deployment of a flow, with a form that has no null."""
    made: Any = served.to_deployment(name, **settings)  # awaitable by its type, but not here
    # Prefect computes the schema again from the signature, which cannot say all that a form does
    made._parameter_openapi_schema = without_null(served.parameters)
    return made


rerank_fit = form(rerank.fit, "fit/{out}", ".json")
rerank_report = form(rerank.report, "report/{out}", ".html")
rerank_apply = form(rerank.apply, "apply/{out}", ".parquet", ".csv", ".jsonl")
rerank_evaluate = form(rerank.evaluate, "evaluate/{predictions}", ".json")
rerank_label = form(rerank.label, "label/{out}", ".csv", ".parquet", ".jsonl")
# a form writes one file, in the served folder: the figure is for the command line
rerank_thresholds = form(rerank.thresholds, "thresholds/{predictions}", ".json", without=("figure",))
rerank_sql = form(rerank.sql, "sql/{dialect}")
RERANK = (rerank_fit, rerank_report, rerank_apply, rerank_evaluate, rerank_label, rerank_thresholds, rerank_sql)
