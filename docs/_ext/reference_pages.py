"""Sphinx extension: write the parts of the reference that are generated from the code.

Each function returns Markdown. Types, defaults and names come from the code. Sentences about settings, columns and
keys come from `docs/reference/descriptions.yaml`; `tests/docs/test_reference.py` fails if one is missing or outdated.
"""

import ast
import inspect
import json
import tempfile
import typing
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import polars as pl
import yaml
from markdown_tables import table
from page_code import printed, working_in
from source_texts import called_name, text_of
from sphinx.application import Sphinx
from typer.main import get_command

import relmap
from relmap import cli
from relmap.calibrators.registry import CALIBRATORS
from relmap.cli import fill_in_registry_names
from relmap.io.column_layout import COMMON_COLUMN_NAMES
from relmap.metrics.registry import METRICS
from relmap.projection.registry import DEPLOYABLE_VARIANTS, VARIANTS
from relmap.simulation.predictions import simulate_predictions
from tasks.results import values
from tasks.settings.params import Params
from tasks.tables import TABLES
from tasks.tables.differences import KIND_TITLES, differences_of_kind, summarize_differences
from tasks.tables.display import parse_metric_column
from tasks.tables.runs import PAPER_CALIBRATORS, Runs

ROOT = Path(__file__).resolve().parents[2]
DESCRIPTIONS: dict[str, Any] = yaml.safe_load((ROOT / "docs/reference/descriptions.yaml").read_text(encoding="utf-8"))
SCHEMA = json.loads((ROOT / "relmap/maps/map.schema.json").read_text(encoding="utf-8"))
MEMBERS = {
    "conf": "by the confidence",
    "mrp": "by the reliability (MRP)",
    "base": "of the calibrator",
    "mrc": "of the calibrator with MRC",
    "delta": "change",
}


def code(value: object) -> str:
    """Return a value as inline code, or nothing."""
    return f"`{value}`" if value not in (None, "") else ""


# --- Python API ---


def summary_classes() -> list[type]:
    """Return the classes of this project that public methods return."""
    found: list[type] = []
    for name in public_classes():
        for method in public_methods(getattr(relmap, name)):
            kind = inspect.unwrap(method).__annotations__.get("return")
            own = isinstance(kind, type) and kind.__module__.startswith("relmap")
            if own and is_dataclass(kind) and kind not in found:
                found.append(kind)
    return found


def public_classes() -> list[str]:
    """Return the names of public classes."""
    return [name for name in relmap.__all__ if isinstance(getattr(relmap, name), type)]


def public_methods(kind: type) -> Iterator[Any]:
    """Yield the public methods that a class defines itself."""
    for name, member in vars(kind).items():
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        function = getattr(function, "fn", function)  # the method in a descriptor of scikit-learn's `available_if`
        if not name.startswith("_") and inspect.isfunction(function):
            yield function


def python_api() -> str:
    """Return the directives that document every public name."""
    lines = ["```{eval-rst}"]
    for name in relmap.__all__:
        value = getattr(relmap, name)
        if isinstance(value, type):
            members = ", ".join(method.__name__ for method in public_methods(value))
            lines += [f".. autoclass:: relmap.{name}", f"   :members: {members}" if members else "", ""]
        elif callable(value):
            lines += [f".. autofunction:: relmap.{name}", ""]
    lines += ["```", "", "`relmap.__version__` is the version as text.", "", "## Results", ""]
    lines += ["Methods return these values. They print as text, show as HTML in a notebook, and have `to_dict()`.", ""]
    lines += ["```{eval-rst}"]
    for kind in summary_classes():
        lines += [f".. autoclass:: {kind.__module__}.{kind.__qualname__}", "   :members:", "   :inherited-members:", ""]
    return "\n".join([*lines, "```", ""])


# --- Command line ---


def commands() -> dict[str, Any]:
    """Return the commands by name; those of a group have both names, such as `cascade fit`."""
    found = {}
    for name, command in get_command(cli.app).commands.items():  # type: ignore[attr-defined]
        group = getattr(command, "commands", None)
        if group is None:
            found[name] = command
            continue
        for part, command_of_group in group.items():
            found[f"{name} {part}"] = command_of_group
    return found


def option_type(option: Any) -> str:
    """Return what an option takes, in words."""
    kind = option.type_descriptor.annotation
    if option.is_flag or kind is bool:
        return "flag"
    arguments = [each for each in typing.get_args(kind) if each is not type(None)]
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(map(str, typing.get_args(kind)))
    kind = arguments[0] if arguments else kind
    return {str: "text", int: "whole number", float: "number", Path: "path"}.get(kind, getattr(kind, "__name__", ""))


def command_line() -> str:
    """Return a section for each command."""
    parts = []
    for name, command in commands().items():
        parts.append(f"## relmap {name}\n\n{command.help}\n")
        panels: dict[str, list[list[str]]] = {}
        for option in command.params:
            if option.name == "help":
                continue
            if option.required:
                shown_default = "required"
            else:
                shown_default = code("" if option.default in (None, False) else str(option.default))
            flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
            row = [flags, option_type(option), shown_default, fill_in_registry_names(option.help or "")]
            panels.setdefault(option.rich_help_panel or "", []).append(row)
        for panel, rows in panels.items():
            title = f"**{panel}**\n\n" if panel else ""
            parts.append(title + table(["option", "takes", "default", "what it does"], rows))
    return "\n".join(parts)


# --- Map ---


def schema_type(schema: Mapping[str, Any]) -> str:
    """Return the type of a value of the map in words; parts are linked."""
    text = schema_number(schema)
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        text = f"[{name}](#{name.lower()})"
    elif "const" in schema:
        text = f"`{json.dumps(schema['const'])}`"
    elif "enum" in schema:
        text = " or ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    elif "anyOf" in schema or "oneOf" in schema:
        options = schema.get("anyOf") or schema["oneOf"]
        text = " or ".join(schema_type(each) for each in options)
    elif schema.get("type") == "array":
        text = f"list of {schema_type(schema['items'])}" if "items" in schema else "list"
    elif schema.get("type") == "object":
        values = schema.get("additionalProperties")
        text = f"names with {schema_type(values)}" if isinstance(values, dict) else "object"
    return text


def schema_number(schema: Mapping[str, Any]) -> str:
    """Return the type of a single value with its limits."""
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {schema[key]}" for key, sign in signs.items() if abs(schema.get(key, 2**53)) < 2**53]
    words = {"integer": "whole number", "string": "text", "boolean": "true or false"}
    kind = words.get(schema.get("type", ""), schema.get("type", "value"))
    return f"{kind} ({', '.join(limits)})" if limits else kind


def map_schema() -> str:
    """Return the keys of a map, and each of its parts."""
    required = SCHEMA["required"]
    rows = [
        [code(key), schema_type(value), "yes" if key in required else "no", DESCRIPTIONS["map"][key]]
        for key, value in SCHEMA["properties"].items()
    ]
    parts = [table(["key", "type", "required", "meaning"], rows), "## Parts\n"]
    for name, part in SCHEMA["$defs"].items():
        text, meanings = split_attributes(part.get("description", ""))
        parts.append(f"### {name}\n\n{text}\n")
        rows = [[code(key), schema_type(value), meanings.get(key, "")] for key, value in part["properties"].items()]
        parts.append(table(["key", "type", "meaning"], rows))
    return "\n".join(parts)


def split_attributes(description: str) -> tuple[str, dict[str, str]]:
    """Return the text of a class docstring, and the meaning of each attribute in its `Attributes` section."""
    text, _, section = description.partition("\n\nAttributes:\n")
    meanings = {"kind": "Name of this part, where one of several parts is possible."}
    key = ""
    for line in section.splitlines():
        if line.startswith(" " * 8):  # continues the meaning of the attribute above
            meanings[key] += f" {line.strip()}"
        else:
            key, _, meaning = line.strip().partition(": ")
            meanings[key] = meaning
    return text, meanings


# --- Files ---


def usual_names() -> str:
    """Return the column names that errors suggest an option for."""
    rows = [
        [code("--" + field.removesuffix("_column").replace("_", "-")), ", ".join(map(code, names))]
        for field, names in COMMON_COLUMN_NAMES.items()
    ]
    return table(["option", "columns that are recognized in error messages"], rows)


def added_columns() -> pl.DataFrame:
    """Return the columns that `apply` adds to predictions with label names."""
    commands = (
        "fit --predictions labelled.parquet --labels irrelevant,partial,exact --out map.json",
        "apply --map map.json --predictions labelled.parquet --out scored.parquet",
    )
    with tempfile.TemporaryDirectory() as folder, working_in(Path(folder)), printed():
        simulate_predictions(600, seed=1).write_parquet("labelled.parquet")
        for command in commands:
            cli.app(command.split(), standalone_mode=False)
        before = pl.read_parquet("labelled.parquet")
        scored = pl.read_parquet("scored.parquet")
    return scored.drop(before.columns)


def output_columns() -> str:
    """Return the columns that `apply` adds, with their types."""
    rows = [[code(name), str(kind), DESCRIPTIONS["apply"][name]] for name, kind in added_columns().schema.items()]
    return table(["column", "type", "meaning"], rows)


# --- Settings ---


def settings() -> dict[str, dict[str, Any]]:
    """Return every key of params.yaml, such as `dask.tls.ca_file`, with its JSON schema."""
    schema = Params.model_json_schema()
    found: dict[str, dict[str, Any]] = {}

    def model_of(value: Mapping[str, Any]) -> str | None:
        options = [value, *value.get("anyOf", [])]
        names = [each["$ref"].rpartition("/")[2] for each in options if "$ref" in each]
        return names[0] if names else None

    def walk(properties: Mapping[str, Any], prefix: str) -> None:
        for name, value in properties.items():
            key = f"{prefix}{name}"
            found[key] = dict(value)
            inner = model_of(value)
            entries = [value.get("additionalProperties"), *value.get("patternProperties", {}).values()]
            of_entries = next((model_of(entry) for entry in entries if isinstance(entry, dict)), None)
            if inner:
                walk(schema["$defs"][inner]["properties"], f"{key}.")
            elif of_entries:
                walk(schema["$defs"][of_entries]["properties"], f"{key}.<name>.")

    walk(schema["properties"], "")
    return found


def value_at(values: Any, key: str) -> object:
    """Return the value of a key in params.yaml, or None for keys of named entries and sections."""
    for name in key.split("."):
        if name == "<name>" or not isinstance(values, dict) or name not in values:
            return None
        values = values[name]
    return None if isinstance(values, dict) else values


def params() -> str:
    """Return every key of params.yaml with its type and value."""
    values = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    parts = []
    rows: list[list[str]] = []
    section = ""
    for key, schema in settings().items():
        top = key.split(".")[0]
        if top != section and rows:
            parts.append(table(["key", "type", "value in the repository", "meaning"], rows))
            rows = []
        if top != section:
            parts.append(f"## {top}\n")
            section = top
        given = value_at(values, key)
        kind = "section" if "$ref" in schema else schema_type(schema)
        if "](#" in kind:
            kind = "section"
        shown = "" if given is None else code(json.dumps(given))
        rows.append([code(key), kind, shown, DESCRIPTIONS["params"][key]])
    parts.append(table(["key", "type", "value in the repository", "meaning"], rows))
    return "\n".join(parts)


# --- Report tables, metrics, models ---


def empty_runs() -> Runs:
    """Return results without a row, of which tables keep their columns."""
    intervals: dict[str, type[pl.DataType]] = {
        **dict.fromkeys(("calibrator", "metric", "quantity"), pl.String),
        **dict.fromkeys(("value", "standard_error", "low", "high", "p"), pl.Float64),
        "groups": pl.Int64,
    }
    schemas = [values.METRICS_SCHEMA, intervals, values.RIVALS_SCHEMA, values.SENSITIVITY_SCHEMA]
    frames = [pl.DataFrame(schema={"dataset": pl.String, "source": pl.String, **schema}) for schema in schemas]
    return Runs(*frames, (), (), PAPER_CALIBRATORS, {})


def report_columns() -> dict[str, list[str]]:
    """Return the columns of each table of the report."""
    runs = empty_runs()
    return {key: each(runs).columns for key, each in TABLES.items()}


def column_meaning(name: str, column: str) -> str:
    """Return the meaning of a column; an error if there is none.

    Args:
        name: Table.
        column: Its column.

    Raises:
        KeyError: Nothing describes the column.
    """
    own = DESCRIPTIONS["tables"].get(name, {})
    if column in own:
        return str(own[column])
    common = DESCRIPTIONS["columns"]
    if column in common:
        return str(common[column])
    if column.endswith("_std"):
        return f"standard deviation of `{column.removesuffix('_std')}` over the protocol seeds (n − 1)"
    if column in METRICS:
        return metric_title(column)
    metric, member = parse_metric_column(column)
    if metric is None:
        raise KeyError(f"{name}.{column}")
    return f"{metric_title(metric.key)}, {MEMBERS[member]}"


def metric_title(key: str) -> str:
    """Return the title of a metric."""
    return METRICS[key].title


def report_tables() -> str:
    """Return a section for each table of the report."""
    parts = []
    for key, columns in report_columns().items():
        each = TABLES[key]
        parts.append(f"## {key}\n\n{each.caption} {each.note}\n")
        parts.append(table(["column", "meaning"], [[code(name), column_meaning(key, name)] for name in columns]))
    return "\n".join(parts)


def metrics() -> str:
    """Return the metrics with their direction."""
    better = {1: "higher", -1: "lower", 0: "–"}
    rows = [[code(key), each.title, better[each.direction], each.summary] for key, each in METRICS.items()]
    return table(["key", "name", "better", "meaning"], rows)


def models() -> str:
    """Return calibrators and variants."""
    rows = []
    for key, calibrator in CALIBRATORS.items():
        of_confidence = "yes" if calibrator.accepts_confidence else "no"
        rows.append([code(key), calibrator.title, of_confidence, calibrator.summary])
    calibrators = table(["`--calibrator`", "name in tables", "without logits", "what it fits"], rows)
    rows = []
    for key, variant in VARIANTS.items():
        in_map = "yes" if key in DEPLOYABLE_VARIANTS else "no"
        rows.append([code(key), variant.title, in_map, variant.summary])
    variants = table(["`--variant`", "name in tables", "in a map", "what it is"], rows)
    return f"{calibrators}\n## Models of the reliability\n\n{variants}"


# --- Differences from the paper ---


def differences() -> str:
    """Return a section for each kind of difference from the paper's text and from its release."""
    parts = [f"{summarize_differences()}\n"]
    for kind, title in KIND_TITLES.items():
        parts.append(f"## {title}\n")
        for each in differences_of_kind(kind):
            rows = [["topic", each.topic]]
            sentences = {
                "text of the paper": each.text,
                "release": each.release,
                "this project": each.project or "As the release.",
                "effect": each.effect,
            }
            rows += [[name, sentence] for name, sentence in sentences.items() if sentence]
            rows.append(["code", code(each.code)])
            parts.append(f"### {each.key}\n\n{table(['', ''], rows)}")
    return "\n".join(parts)


# --- Errors ---


def error_messages() -> dict[str, list[str]]:
    """Return the messages of `InputError` in the library, by the part that raises them."""
    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / "relmap").rglob("*.py")):
        part = file.relative_to(ROOT / "relmap").parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            message = text_of(node.args[0]) if called_name(node) == "InputError" else None
            if message and any(letter.isalpha() for letter in message):
                found.setdefault(part, []).append(" ".join(message.split()))
    return found


def errors() -> str:
    """Return a list of messages for each part of the library."""
    parts = []
    for part, messages in error_messages().items():
        lines = [f"- {message}" for message in dict.fromkeys(messages)]
        text = "\n".join(lines).replace("*", "\\*").replace("<", "&lt;").replace("`", "")
        parts.append(f"## {DESCRIPTIONS['errors'].get(part, part)}\n\n{text}\n")
    return "\n".join(parts)


GENERATED = {
    "python-api": python_api,
    "command-line": command_line,
    "map": map_schema,
    "usual-names": usual_names,
    "output-columns": output_columns,
    "params": params,
    "report-tables": report_tables,
    "metrics": metrics,
    "models": models,
    "differences": differences,
    "differences-summary": summarize_differences,
    "errors": errors,
}


def write_pages(app: Sphinx) -> None:
    """Write every generated part, before pages include it."""
    folder = Path(app.srcdir) / "_generated/reference"
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in GENERATED.items():
        text = make()
        page_path = folder / f"{name}.md"
        if not page_path.exists() or page_path.read_text(encoding="utf-8") != text:
            page_path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
