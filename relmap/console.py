"""How the commands of `relmap.cli` speak: words for people, JSON for programs, and how far a long one is."""

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import typer
from typer.core import TyperCommand

from relmap import errors

PANEL = "How the file is read"
ANNOTATED: Any = Annotated  # of types that are known when it runs
Said = TypeVar("Said")


def calibrator_names() -> list[str]:
    """Return the names of the calibrators, for the help and for the completion of the shell."""
    from relmap.calibrators.registry import CALIBRATORS

    return [*CALIBRATORS]


def variant_names() -> list[str]:
    """Return the names of the variants that a map can have, after `auto`."""
    from relmap.projection.variants import DEPLOYABLE_VARIANTS

    return ["auto", *DEPLOYABLE_VARIANTS]


def with_registry_names(text: str) -> str:
    """Fill in the names of calibrators and variants in the help of an option.

    Args:
        text: The help; `{calibrators}`, `{variants}` and `{automatic}` are replaced.

    Returns:
        The help as a person reads it.
    """
    if "{" not in text:
        return text
    from relmap.projection.variants import AUTO_VARIANTS

    calibrators = ", ".join(calibrator_names())
    variants = ", ".join(variant_names()[1:])
    return text.format(calibrators=calibrators, variants=variants, automatic=len(AUTO_VARIANTS))


class CommandWithNames(TyperCommand):
    """A command whose help lists names of the registries, which are imported only when that help is shown."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Fill in the names, then format the help."""
        for parameter in self.params:
            text = getattr(parameter, "help", None)
            if text is not None:
                parameter.help = with_registry_names(text)  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def with_options(value: type, name: str, *, without: tuple[str, ...] = ()) -> Callable[..., Callable[..., Any]]:
    """A command that takes an option for each field of a `value`, which it is handed as its parameter `name`.

    The types of the fields are `Annotated` with their help. A field `x_column` is the option `--x` too, where the
    command has no such parameter.
    """

    def decorate(command: Callable[..., Said]) -> Callable[..., Said]:
        asked = inspect.signature(command).parameters
        hints, options = get_type_hints(value, include_extras=True), []
        for field in fields(value):
            both = (field.name, field.name.removesuffix("_column"))
            spellings = [spelling for spelling in both if spelling not in asked]
            flags = [f"--{spelling.replace('_', '-')}" for spelling in dict.fromkeys(spellings)]
            kind, words = get_args(hints[field.name])
            annotation = ANNOTATED[kind, typer.Option(*flags, help=words, rich_help_panel=PANEL)]
            by_name = inspect.Parameter.KEYWORD_ONLY
            if field.name not in without:
                options.append(inspect.Parameter(field.name, by_name, default=field.default, annotation=annotation))

        @wraps(command)
        def typed(*arguments: Any, **given: Any) -> Said:
            named = {option.name: given.pop(option.name) for option in options if option.name in given}
            return command(*arguments, **given, **{name: value(**named)})

        own = [parameter for parameter in asked.values() if parameter.name != name]
        typed.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]
        return typed

    return decorate


@contextmanager
def progress() -> Iterator[Callable[[str, int], None]]:
    """A line on a terminal for each stage: how many rows it has done."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TaskID, TimeElapsedColumn

    columns = SpinnerColumn(), "{task.completed:,} rows {task.description}", TimeElapsedColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        stages: dict[str, TaskID] = {}

        def advance(stage: str, rows: int) -> None:
            if stage not in stages:
                stages[stage] = bar.add_task(stage, total=None)
            bar.advance(stages[stage], rows)

        yield advance


def show(content: dict[str, Any], out: Path | None) -> None:
    """JSON into a file, or to the output."""
    if out is not None:
        from relmap.io import atomic

        atomic.write_json(out, content)
    else:
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
        print("\n".join(map(errors.escape_unprintable, text.split("\n"))))


def say(lines: list[str]) -> list[str]:
    """Lines for a person, which are also returned, whatever was in the files that they speak of escaped."""
    shown = [errors.escape_unprintable(line) for line in lines]
    for line in shown:
        print(line, file=sys.stderr, flush=True)
    return shown
