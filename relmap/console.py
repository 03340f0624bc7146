"""Input and output of the commands: options that are built from dataclass fields, messages, JSON, and progress."""

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import typer
from typer.core import TyperCommand

from relmap import errors

COLUMNS_PANEL = "How the file is read"
FORMER_NAMES = {"confidence": "confidence_column"}  # names of options in earlier versions, by field
ANNOTATED: Any = Annotated  # as `Any`, because type checkers reject `Annotated` with a type known only at run time
Output = TypeVar("Output")


def calibrator_names() -> list[str]:
    """Return the keys of the calibrators, for help and shell completion."""
    from relmap.calibrators.registry import CALIBRATORS

    return [*CALIBRATORS]


def variant_names() -> list[str]:
    """Return the keys of the variants that a map can contain."""
    from relmap.projection.variants import DEPLOYABLE_VARIANTS

    return [*DEPLOYABLE_VARIANTS]


def fill_in_registry_names(text: str) -> str:
    """Fill in the names of calibrators and variants in a help text.

    Args:
        text: The help. `{calibrators}` and `{variants}` are replaced with names.

    Returns:
        The help for users.
    """
    if "{" not in text:
        return text
    return text.format(calibrators=", ".join(calibrator_names()), variants=", ".join(variant_names()))


class CommandWithNames(TyperCommand):
    """Command whose help lists names of calibrators and variants; their modules are imported when it is shown."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - their types are private to typer
        """Fill in the names, then format the help."""
        for parameter in self.params:
            text = getattr(parameter, "help", None)
            if text is not None:
                parameter.help = fill_in_registry_names(text)  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def options_from_fields(
    value_type: type, parameter: str, *, without: tuple[str, ...] = ()
) -> Callable[[Callable[..., Output]], Callable[..., Output]]:
    """Make a decorator that gives a command an option for each field of a dataclass.

    The decorated command has these options instead of `parameter`. It builds a value of the dataclass from the options,
    and passes the value to the original command.

    Args:
        value_type: The dataclass. The type of each field is `Annotated` with the help of the option.
        parameter: Parameter of the original command that receives the value.
        without: Fields without an option.

    Returns:
        The decorator.
    """

    def decorate(command: Callable[..., Output]) -> Callable[..., Output]:
        command_parameters = inspect.signature(command).parameters
        options = _field_options(value_type, without)

        @wraps(command)
        def run(*arguments: object, **keywords: object) -> Output:
            field_values = {}
            for option in options:
                if option.name in keywords:
                    field_values[option.name] = keywords.pop(option.name)
            keywords[parameter] = value_type(**field_values)
            return command(*arguments, **keywords)

        other_parameters = [other for other in command_parameters.values() if other.name != parameter]
        run.__signature__ = inspect.Signature([*other_parameters, *options])  # type: ignore[attr-defined]
        return run

    return decorate


def _field_options(value_type: type, without: tuple[str, ...]) -> list[inspect.Parameter]:
    """Build a keyword parameter for each field, annotated with its option."""
    hints = get_type_hints(value_type, include_extras=True)
    options = []
    for field in fields(value_type):
        if field.name in without:
            continue
        spellings = [field.name]
        if field.name in FORMER_NAMES:
            spellings.append(FORMER_NAMES[field.name])
        flags = [f"--{spelling.replace('_', '-')}" for spelling in spellings]
        kind, help_text = get_args(hints[field.name])
        annotation = ANNOTATED[kind, typer.Option(*flags, help=help_text, rich_help_panel=COLUMNS_PANEL)]
        options.append(
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=annotation)
        )
    return options


@contextmanager
def row_progress() -> Iterator[Callable[[str, int], None]]:
    """Show a progress line on a terminal for each stage.

    Yields:
        Function to call with the name of a stage and the number of rows that it has just processed.
    """
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TaskID, TimeElapsedColumn

    from relmap.maps.scoring import ignore_progress

    console = Console(stderr=True)
    if not console.is_terminal:  # a disabled progress line of rich 13.0 prints an empty line
        yield ignore_progress
        return
    progress = Progress(
        SpinnerColumn(),
        "{task.completed:,} rows {task.description}",
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    with progress:
        stages: dict[str, TaskID] = {}

        def advance(stage: str, rows: int) -> None:
            if stage not in stages:
                stages[stage] = progress.add_task(stage, total=None)
            progress.advance(stages[stage], rows)

        yield advance


def write_json_output(content: dict[str, Any], out: Path | None) -> None:
    """Write JSON to a file, or print it to the output stream.

    Args:
        content: The content.
        out: The file; None to print.
    """
    if out is not None:
        from relmap.io import atomic

        atomic.write_json(out, content)
        return
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    print("\n".join(errors.escape_unprintable(line) for line in text.split("\n")))


def print_summary(
    notes: Sequence[str], lines: Sequence[str], details: Sequence[str], *, verbose: bool, last: Sequence[str] = ()
) -> list[str]:
    """Print the notes on the input and the sentences of a result to the error stream.

    Args:
        notes: Sentences on how the input was read.
        lines: The sentences.
        details: Further sentences, which are printed only on request.
        verbose: Whether to print the details.
        last: Sentences that follow, such as on the files that were written.

    Returns:
        The lines as printed.
    """
    return print_lines([*notes, *lines, *(details if verbose else ()), *last])


def print_lines(lines: list[str]) -> list[str]:
    """Print messages to the error stream.

    Args:
        lines: The lines. Unprintable characters are escaped, since lines may quote file content.

    Returns:
        The lines as printed.
    """
    escaped = [errors.escape_unprintable(line) for line in lines]
    for line in escaped:
        print(line, file=sys.stderr, flush=True)
    return escaped
