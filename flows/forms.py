"""Forms of the commands of `relmap.cli`, as Prefect flows.

Each form has the parameters of its command. Its descriptions, choices and limits come from the help of the command. A
form checks the types of its values and creates no run if one is invalid.
"""

import hashlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

from prefect import Flow, flow
from prefect.artifacts import create_markdown_artifact
from prefect.deployments.runner import RunnerDeployment
from prefect.utilities.callables import ParameterSchema
from pydantic import Field
from typer.models import ParameterInfo

from flows.engine import hold_run_lock
from flows.notifications import HOOKS
from relmap import cli
from relmap.calibrators.registry import CALIBRATORS
from relmap.cli import fill_in_registry_names
from relmap.errors import InputError, naming, option
from relmap.io.atomic import check_output_name, check_suffix, write_json
from relmap.io.hashing import sha256_of_file
from relmap.projection.registry import DEPLOYABLE_VARIANTS
from relmap.settings import PartialShare
from tasks.records.store import DATA, STATE, read_json

# A form offers the content of the registries, which the type checker does not know.
CalibratorName: TypeAlias = Literal[tuple(CALIBRATORS)]  # type: ignore[valid-type]
VariantName: TypeAlias = Literal[DEPLOYABLE_VARIANTS]  # type: ignore[valid-type]
Dialect = Literal["duckdb", "postgres", "bigquery", "spark"]
Seed = Annotated[int, Field(ge=0)]
FIELD_TYPES: dict[str, Any] = {  # the command checks these values itself; the form can reject them earlier
    "calibrator": CalibratorName | None,
    "variant": VariantName | None,
    "dialect": Dialect,
    "confidence_level": PartialShare,
    "coverage": PartialShare | None,
    "cut": PartialShare | None,
    "target_accuracy": PartialShare | None,
}

DEFAULT_FOLDER = DATA / "served"
# Names the folder to which forms may write. Each run is a process of its own and reads this file.
FOLDER_RECORD = STATE / "served.json"
FILE_RECORDS = STATE / "served"  # a record of each file that a form wrote

SERVER_PATH_HELP = "A path on the server; a relative one starts at the project's folder."
SERVED_PATH_HELP = f"A path relative to the served folder ({DEFAULT_FOLDER}, or flows.serve --out)."
EXAMPLES = {  # examples for fields whose help has none
    "predictions": f"{DEFAULT_FOLDER}/predictions.parquet",
    "map_file": f"{DEFAULT_FOLDER}/map.json",
    "cuts": f"{DEFAULT_FOLDER}/thresholds.json",
    "unlabelled": f"{DEFAULT_FOLDER}/predictions.parquet",
    "group": "query",
    "label": "truth",
    "decision": "prediction",
}


def set_served_folder(folder: Path) -> None:
    """Set the folder to which forms may write. A new folder is private to this user.

    Args:
        folder: The folder.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_json(FOLDER_RECORD, {"folder": str(folder.resolve())})


@contextmanager
def guard_output(out: Path, *endings: str) -> Iterator[Path]:
    """Check where a form may write, and record the file that it wrote.

    Forms write only to the served folder, and replace only files that forms have written. Without these checks,
    everyone who can submit a form could overwrite any file of the user who runs the server.

    Args:
        out: Path in the served folder.
        endings: Endings of file names that the command writes.

    Yields:
        The absolute path to write to.

    Raises:
        InputError: `out` is outside of the folder, has none of the `endings`, or is an existing file that was not
            written by a form or was changed since.
    """
    if not FOLDER_RECORD.exists():  # a worker on another machine than `flows.serve`
        set_served_folder(DEFAULT_FOLDER)
    folder = Path(read_json(FOLDER_RECORD)["folder"])
    check_output_name(Path(out))
    path = (folder / out).resolve()  # follows links and ..
    if not path.is_relative_to(folder) or path == folder:
        raise InputError(f"{out} is not in {folder}, the only folder to which a form may write; see flows.serve --out")
    check_suffix(path.relative_to(folder), *endings)
    record = FILE_RECORDS / f"{hashlib.sha256(str(path).encode()).hexdigest()}.json"
    if path.exists() and not _is_recorded(record, path):
        raise InputError(
            f"{path} already exists, and was not written by a form or was changed since; name another file"
        )
    # `report` also writes a map next to its page.
    map_file = path.with_suffix(cli.MAP_SUFFIX) if path.suffix == ".html" else None
    with guard_output(map_file, ".json") if map_file else nullcontext():
        yield path
    write_json(record, {"file": str(path), "sha256": sha256_of_file(path)})


def _is_recorded(record: Path, path: Path) -> bool:
    """Check whether a file is the one that a form wrote."""
    return record.exists() and read_json(record)["sha256"] == sha256_of_file(path)


def create_form(
    command: Callable[..., list[str] | str], run_name: str, *endings: str, without: tuple[str, ...] = ()
) -> Flow[..., None]:
    """Create the flow of a command.

    The page of a run shows the output of the command. The page of the artifact shows the outputs of all runs.

    Args:
        command: Function of `relmap.cli`.
        run_name: Template of the names of runs.
        endings: Endings of the file that the command writes; none if it writes no file.
        without: Parameters that the form does not offer.

    Returns:
        The flow, whose `parameters` describe each field.
    """
    key = f"rerank-{command.__name__}"

    def run(**values: Any) -> None:
        if values.get("coverage") is not None:
            values["coverage"] = str(values["coverage"])  # the command takes it as text
        with naming("form"), hold_run_lock(), _guard_if_written(values, endings) as out:
            if out is not None:
                values["out"] = out
            output = command(**values)
            text = "\n".join(output) if isinstance(output, list) else output
            # indented lines are code, which no label can end
            create_markdown_artifact(key=key, markdown="\n".join(f"    {line}" for line in text.splitlines()))

    run.__name__ = key.replace("-", "_")  # the runner looks for a global of this name in this module
    run.__qualname__ = run.__name__
    run.__doc__ = command.__doc__
    parameters = inspect.signature(command).parameters
    offered = [parameter for name, parameter in parameters.items() if name not in without]
    fields = [_form_parameter(parameter) for parameter in offered]
    fields.sort(key=lambda field: field.default is not field.empty)  # required fields first
    run.__signature__ = inspect.Signature(fields)  # type: ignore[attr-defined]
    form = flow(name=key, flow_run_name=run_name, **HOOKS)(run)
    describe_fields(form, offered, endings)
    return form


@contextmanager
def _guard_if_written(values: dict[str, Any], endings: tuple[str, ...]) -> Iterator[Path | None]:
    """Guard the output of a command that writes a file."""
    if not endings:
        yield None
        return
    with guard_output(values["out"], *endings) as path:
        yield path


def describe_fields(
    form: Flow[..., Any], parameters: Iterable[inspect.Parameter], endings: tuple[str, ...] = ()
) -> None:
    """Describe the fields of a form with the help texts of the command's options.

    Args:
        form: The flow, whose `parameters` are changed.
        parameters: Parameters of the command, with their options as annotations.
        endings: Endings of the file that the command writes.
    """
    offered = list(parameters)
    for parameter in offered:
        form.parameters.properties[parameter.name] |= _field_description(parameter, offered, endings)


@dataclass(frozen=True)
class CommandOption:
    """Type and help of a parameter of a command."""

    type: Any
    info: ParameterInfo


def _command_option(parameter: inspect.Parameter) -> CommandOption:
    value_type, info = get_args(parameter.annotation)
    return CommandOption(value_type, info)


def _form_parameter(parameter: inspect.Parameter) -> inspect.Parameter:
    """Convert a parameter of a command to a keyword parameter of a form, with the strictest possible type."""
    if parameter.name == "out":
        return parameter.replace(annotation=Path, kind=parameter.KEYWORD_ONLY, default=parameter.empty)
    annotation = FIELD_TYPES.get(parameter.name)
    if annotation is None:
        command_option = _command_option(parameter)
        annotation = command_option.type
        info = command_option.info
        if info.min is not None:
            annotation = Annotated[annotation, Field(ge=info.min, le=info.max)]
    return parameter.replace(annotation=annotation, kind=parameter.KEYWORD_ONLY)


def _field_description(
    parameter: inspect.Parameter, offered: Sequence[inspect.Parameter], endings: tuple[str, ...]
) -> dict[str, Any]:
    """Return the description and the examples of a field."""
    command_option = _command_option(parameter)
    sentences = [_with_field_names(fill_in_registry_names(str(command_option.info.help)), offered)]
    example = EXAMPLES.get(parameter.name)
    if parameter.name == "out":
        example = f"result{endings[0]}"
        sentences.append(f"{SERVED_PATH_HELP} It ends in {' or '.join(endings)}.")
    elif Path in (command_option.type, *get_args(command_option.type)):
        sentences.append(SERVER_PATH_HELP)
    if command_option.info.rich_help_panel is not None:  # Prefect's page has no headings
        sentences.insert(0, f"{command_option.info.rich_help_panel}:")
    if example is None:
        return {"description": " ".join(sentences)}
    sentences.append(f"Example: {example}")
    return {"description": " ".join(sentences), "examples": [example]}


def _with_field_names(text: str, offered: Iterable[inspect.Parameter]) -> str:
    """Replace the options in a help text by the fields of the form."""
    field_of_option = {option(parameter.name): parameter.name for parameter in offered}
    return re.sub(r"--[a-z]+(?:-[a-z]+)*", lambda match: field_of_option[match[0]], text)


def remove_null(schema: ParameterSchema) -> ParameterSchema:
    """Describe optional fields by their type only.

    Prefect's page shows an optional field as a choice between its type and "Property is type None". Without a null
    default, the page omits a field that the user has not filled in, and the flow uses its own default.

    Args:
        schema: Schema of a form; it is changed.

    Returns:
        The schema.
    """
    for field in schema.properties.values():
        types = [choice for choice in field.get("anyOf", []) if choice.get("type") != "null"]
        if len(types) == 1:
            del field["anyOf"]
            field.update(types[0])
        if field.get("default", ...) is None:
            del field["default"]
    return schema


def create_deployment(
    form: Flow[..., Any], name: str, cron: str | None = None, concurrency_limit: int | None = None
) -> RunnerDeployment:
    """Create the deployment of a flow. Its form describes optional fields by their type only.

    Args:
        form: The flow.
        name: Name of the deployment.
        cron: Schedule.
        concurrency_limit: Maximum number of simultaneous runs.

    Returns:
        The deployment.
    """
    # typed as an awaitable too, but synchronous code gets the deployment
    deployment: Any = form.to_deployment(name, cron=cron, concurrency_limit=concurrency_limit)
    # Prefect has computed the schema again from the signature, which has less information.
    deployment._parameter_openapi_schema = remove_null(form.parameters)
    return deployment


rerank_fit = create_form(cli.fit, "fit/{out}", ".json")
rerank_report = create_form(cli.report, "report/{out}", ".html")
rerank_apply = create_form(cli.apply, "apply/{out}", ".parquet", ".csv", ".jsonl")
rerank_evaluate = create_form(cli.evaluate, "evaluate/{predictions}", ".json")
rerank_label = create_form(cli.label, "label/{out}", ".csv", ".parquet", ".jsonl")
# A form writes one file to the served folder, so it does not offer the figure.
rerank_thresholds = create_form(cli.thresholds, "thresholds/{predictions}", ".json", without=("figure",))
rerank_sql = create_form(cli.sql, "sql/{dialect}")
RERANK_FLOWS = (rerank_fit, rerank_report, rerank_apply, rerank_evaluate, rerank_label, rerank_thresholds, rerank_sql)
