"""Command line: fit reliability maps on predictions, and use the maps; see `relmap --help`.

Messages go to the error stream; JSON and SQL go to the output stream or to a file. This module imports no
orchestrator. Each command imports what it needs when it runs, so that `--help` and errors in options are fast.
"""

import atexit
import gc
import inspect
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar, cast, get_args, get_type_hints

import typer
from typer.core import TyperCommand

from relmap import __version__
from relmap.cascade.settings import CascadeSettings
from relmap.errors import InputError, assignment, assignments, escape_unprintable, needs_extra, option
from relmap.io.column_layout import DEFAULT_READING, NO_TREC_FILES, PREDICTION_FIELDS, Reading, TrecFiles, split_names
from relmap.maps.options import (
    CONFIDENCE_LEVEL_HELP,
    DEFAULT_FIT_OPTIONS,
    GROUP_HELP,
    LABELS_HELP,
    FitOptions,
    OptionText,
)

if TYPE_CHECKING:
    from relmap.io.files import Predictions as PredictionFile
    from relmap.io.trec import Judgments
    from relmap.routing.score_thresholds import GradeThresholds, ScoreThresholds

MANY_ROWS = 1_000_000  # from this number of rows on, apply prints its speed
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
    from relmap.projection.registry import DEPLOYABLE_VARIANTS

    return [*DEPLOYABLE_VARIANTS]


# field -> function that completes the value of its option in a shell
COMPLETIONS: dict[str, Callable[[], list[str]]] = {"calibrator": calibrator_names, "variant": variant_names}


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
    value_type: type,
    parameter: str,
    *,
    without: tuple[str, ...] = (),
    complete: Callable[[dict[str, object], Mapping[str, object]], None] | None = None,
) -> Callable[[Callable[..., Output]], Callable[..., Output]]:
    """Make a decorator that gives a command an option for each field of a dataclass.

    The decorated command has these options instead of `parameter`. It builds a value of the dataclass from the options,
    and passes the value to the original command.

    Args:
        value_type: The dataclass. The type of each field is `Annotated` with the help of the option.
        parameter: Parameter of the original command that receives the value.
        without: Fields without an option.
        complete: Function that fills in fields that are not given, from the other options of the command.

    Returns:
        The decorator.
    """

    def decorate(command: Callable[..., Output]) -> Callable[..., Output]:
        command_parameters = inspect.signature(command).parameters
        field_options = _field_options(value_type, without)

        @wraps(command)
        def run(*arguments: object, **keywords: object) -> Output:
            field_values = {}
            for field_option in field_options:
                if field_option.name in keywords:
                    field_values[field_option.name] = keywords.pop(field_option.name)
            if complete is not None:
                complete(field_values, keywords)
            keywords[parameter] = value_type(**_split_lists(value_type, field_values))
            return command(*arguments, **keywords)

        parameters: list[inspect.Parameter] = []
        for name, command_parameter in command_parameters.items():
            parameters += field_options if name == parameter else [command_parameter]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def _field_texts(value_type: type) -> dict[str, OptionText]:
    """Return the text of the option of each field."""
    texts = {}
    for name, hint in get_type_hints(value_type, include_extras=True).items():
        text = get_args(hint)[1]
        texts[name] = text if isinstance(text, OptionText) else OptionText(text, panel=COLUMNS_PANEL)
    return texts


def _field_options(value_type: type, without: tuple[str, ...]) -> list[inspect.Parameter]:
    """Build a parameter for each field, annotated with its option; the option of several names is text."""
    kinds = get_type_hints(value_type)
    texts = _field_texts(value_type)
    options = []
    for field in fields(value_type):
        if field.name in without:
            continue
        text = texts[field.name]
        spellings = [field.name]
        if field.name in FORMER_NAMES:
            spellings.append(FORMER_NAMES[field.name])
        is_text = bool(text.example) or str in get_args(kinds[field.name])
        option = typer.Option(
            *[f"--{spelling.replace('_', '-')}" for spelling in spellings],
            help=text.help,
            rich_help_panel=text.panel,
            min=text.minimum,
            max=text.maximum,
            autocompletion=COMPLETIONS.get(field.name),
        )
        options.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=None if text.example else field.default,
                annotation=ANNOTATED[str | None if is_text else kinds[field.name], option],
            )
        )
    return options


def _split_lists(value_type: type, values: Mapping[str, object]) -> dict[str, object]:
    """Split the text of each option of several names; without a text, the field has its default."""
    texts = _field_texts(value_type)
    split: dict[str, object] = {}
    for name, value in values.items():
        text = texts[name]
        if not text.example:
            split[name] = value
        elif value is not None:
            split[name] = split_names(name, str(value), text.example, text.min_names)
    return split


@contextmanager
def row_progress() -> Iterator[Callable[[str, int], None]]:
    """Show a progress line on a terminal for each stage.

    Yields:
        Function to call with the name of a stage and the number of rows that it has just processed.
    """
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TaskID, TimeElapsedColumn

    from relmap.maps.score import ignore_progress

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
    print("\n".join(escape_unprintable(line) for line in text.split("\n")))


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
    escaped = [escape_unprintable(line) for line in lines]
    for line in escaped:
        print(line, file=sys.stderr, flush=True)
    return escaped


MAP_PANEL = "Threshold on the reliability of a map"  # groups of options in the help
SCORE_PANEL = "Threshold on a score, without a map"
MAP_SUFFIX = ".map.json"  # suffix of the map that `report` writes next to its page
DRIFT_STATUS = 3  # exit status of `evaluate --fail-on-drift` after drift
app = typer.Typer(
    help="Find out which decisions of your model can be used automatically and which need review.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


cascade_app = typer.Typer(
    help="Ask a cheap model first, a stronger one where it is unsure, and a person for the rest.",
    no_args_is_help=True,
)
app.add_typer(cascade_app, name="cascade")


def _print_version(is_requested: bool) -> None:
    if is_requested:
        print(f"relmap {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Find out which decisions of your model can be used automatically and which need review."""


MapFile = Annotated[Path, typer.Option("--map", help="Reliability map that fit or report wrote.")]
Predictions = Annotated[Path, typer.Option(help="File of predictions: parquet, csv, tsv, jsonl, json or xlsx.")]
PredictionsOrRun = Annotated[
    Path | None, typer.Option(help="File of predictions: parquet, csv, tsv, jsonl, json or xlsx; or give --run.")
]
Labelled = Annotated[
    Path | None,
    typer.Option(
        help="File of predictions with their true labels: parquet, csv, tsv, jsonl, json or xlsx; or give --run."
    ),
]
Group = Annotated[str | None, typer.Option(help=GROUP_HELP)]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print all results, not only the most important ones.")]
Out = Annotated[Path | None, typer.Option(help="File for the JSON (default: print it).")]
Force = Annotated[bool, typer.Option("--force", help="Replace the files to write if they exist.")]


def _name_score_of_run(fields_of_reading: dict[str, object], others: Mapping[str, object]) -> None:
    """Name the column of the score if a border or a positive label is given: a run has one score."""
    needs_score = any(fields_of_reading.get(name) is not None for name in ("border", "positive"))
    has_predictions = any(fields_of_reading.get(name) is not None for name in PREDICTION_FIELDS)
    if needs_score and not has_predictions and others.get("run") is not None:
        fields_of_reading["score"] = "score"


with_column_options = options_from_fields(
    Reading, "reading", without=("label", "id", "drop_unlabelled"), complete=_name_score_of_run
)
with_labelled_column_options = options_from_fields(Reading, "reading", complete=_name_score_of_run)
with_trec_options = options_from_fields(TrecFiles, "trec")
with_run_option = options_from_fields(TrecFiles, "trec", without=("qrels", "relevant_from", "unjudged"))


@app.command(cls=CommandWithNames)
@with_labelled_column_options
@with_trec_options
@options_from_fields(FitOptions, "fit_options")
def fit(
    out: Annotated[Path, typer.Option(help="File for the map.")],
    predictions: Labelled = None,
    fit_options: FitOptions = DEFAULT_FIT_OPTIONS,
    verbose: Verbose = False,
    force: Force = False,
    trec: TrecFiles = NO_TREC_FILES,
    reading: Reading = DEFAULT_READING,
) -> list[str]:
    """Fit a reliability map on labelled predictions, and compare it with the confidence out of fold."""
    from relmap.evaluation.assessment import describe_fit
    from relmap.io.atomic import check_new_file, check_output_path
    from relmap.maps.document import describe_map, save_map
    from relmap.maps.fit import fit_map

    check_output_path(out, *_input_files(predictions, trec))
    check_new_file(out, force=force)
    file = _open(predictions, trec, reading, labels=fit_options.labels)
    fit_options = replace(fit_options, group=_group_of(trec, fit_options.group))
    _announce_slow_fit(fit_options)
    fitted = fit_map(file, fit_options)
    document = fitted.document
    summary = describe_fit(fitted)
    save_map(document, out)
    rows = "predictions" if trec.run is None else "run"
    options = assignments({"map_file": out, rows: "FILE", "out": "FILE"})
    next_step = (
        f"{out} is written. `relmap apply {options}` uses decisions with a reliability of "
        f"{document.default_threshold:.4g} or more."
    )
    details = [*summary.details, f"{describe_map(document)}."]
    last = [next_step]
    if fitted.held_out is not None:
        inputs = trec.to_options() if predictions is None else {"predictions": predictions}
        command = assignments({"map_file": out, **inputs, "target_accuracy": 0.9})
        last.append(f"{fitted.held_out} are held out: `relmap thresholds {command}` uses only these rows of the file.")
    return print_summary(summary.notes, summary.lines, details, verbose=verbose, last=last)


@app.command(cls=CommandWithNames)
@with_labelled_column_options
@with_trec_options
@options_from_fields(FitOptions, "fit_options", without=("protocol",))
def report(
    out: Annotated[Path, typer.Option(help="File for the page, ending in .html; the map is written next to it.")],
    predictions: Labelled = None,
    fit_options: FitOptions = DEFAULT_FIT_OPTIONS,
    verbose: Verbose = False,
    force: Force = False,
    trec: TrecFiles = NO_TREC_FILES,
    reading: Reading = DEFAULT_READING,
) -> list[str]:
    """Fit a map, evaluate it out of fold, and write an HTML page with the results. The map is saved next to it."""
    from relmap.evaluation.assessment import MapAssessment, describe_fit
    from relmap.io.atomic import check_new_file, check_output_path, check_suffix, write_text
    from relmap.maps.document import describe_map, save_map
    from relmap.maps.fit import fit_map

    map_file = out.with_suffix(MAP_SUFFIX)
    for path in (out, map_file):
        check_output_path(path, *_input_files(predictions, trec))
    check_suffix(out, ".html")
    for path in (out, map_file):
        check_new_file(path, force=force)
    file = _open(predictions, trec, reading, labels=fit_options.labels)
    fit_options = replace(fit_options, group=_group_of(trec, fit_options.group))
    _announce_slow_fit(fit_options)
    fitted = fit_map(file, fit_options)
    document = fitted.document
    summary = describe_fit(fitted)
    with needs_extra("report"):
        from relmap.report.page import render_map_page

    read_as_fitted = replace(file, reading=file.reading.completed_by(document.reading))
    assessment = MapAssessment.from_predictions(document, read_as_fitted)
    text = render_map_page(assessment, summary, map_file, trec)
    save_map(document, map_file)
    write_text(out, text)
    details = [*summary.details, f"{describe_map(document)}."]
    written = [f"{out} and {map_file} are written: the page with the results, and the map."]
    return print_summary(summary.notes, summary.lines, details, verbose=verbose, last=written)


@app.command(cls=CommandWithNames)
@with_column_options
@with_run_option
def apply(
    map_file: MapFile,
    out: Annotated[Path, typer.Option(help="File for the scored rows, in any format that can be read.")],
    predictions: PredictionsOrRun = None,
    coverage: Annotated[
        str | None,
        typer.Option(help="Share of the rows of this file to decide automatically. Use it for files with many rows."),
    ] = None,
    cut: Annotated[
        float | None,
        typer.Option(help="Minimum reliability of automatic rows (default: the threshold of the map)."),
    ] = None,
    cuts: Annotated[
        Path | None,
        typer.Option(
            help="File that relmap thresholds wrote, with one cut or one per label; replaces --coverage and --cut."
        ),
    ] = None,
    force: Force = False,
    trec: TrecFiles = NO_TREC_FILES,
    reading: Reading = DEFAULT_READING,
) -> list[str]:
    """Add decision, confidence, reliability, review rank and route (automatic or review) to every row."""
    from relmap.io.atomic import check_new_file, check_output_path
    from relmap.maps.document import load_map
    from relmap.routing.apply import apply_map

    inputs = [map_file, *_input_files(predictions, trec)]
    check_output_path(out, *inputs if cuts is None else [*inputs, cuts])
    check_new_file(out, force=force)
    document = load_map(map_file)
    reading = reading.completed_by(document.reading)
    start = time.perf_counter()
    file = _open(predictions, trec, reading, is_labelled=False)
    with row_progress() as advance:
        applied = apply_map(
            document,
            file,
            out,
            coverage=coverage,
            cut=cut,
            cuts=cuts,
            progress=advance,
        )
    written = f"{out}: {applied.rows:,} rows"
    if applied.rows >= MANY_ROWS:
        written += f", {applied.rows / (time.perf_counter() - start):,.0f} per second"
    lines = [*applied.describe(document.shown_names), f"{written}."]
    if applied.changes:
        rows = {"predictions": predictions} if trec.run is None else {"run": trec.run}
        lines.append(f"To see what changed: `relmap watch {assignments({'map_file': map_file, **rows})}`.")
    return print_lines(lines)


@app.command(cls=CommandWithNames)
@options_from_fields(Reading, "reading", without=("id", "drop_unlabelled"), complete=_name_score_of_run)
@with_run_option
def label(
    map_file: MapFile,
    rows: Annotated[int, typer.Option(min=1, help="Number of rows to select.")],
    out: Annotated[Path, typer.Option(help="File for the rows to label, in any format that can be read.")],
    predictions: PredictionsOrRun = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random sample.")] = 1,
    force: Force = False,
    trec: TrecFiles = NO_TREC_FILES,
    reading: Reading = DEFAULT_READING,
) -> list[str]:
    """Select rows to label next, at random with known probabilities: uncertain rows and rare labels more often."""
    from relmap.io.atomic import check_new_file, check_output_path
    from relmap.maps.document import load_map
    from relmap.routing.apply import default_threshold
    from relmap.routing.label import sample_rows_to_label

    check_output_path(out, map_file, *_input_files(predictions, trec))
    check_new_file(out, force=force)
    document = load_map(map_file)
    reading = reading.completed_by(document.reading)
    file = _open(predictions, trec, reading, is_labelled=False)
    with row_progress() as advance:
        selected = sample_rows_to_label(document, file, out, rows=rows, seed=seed, progress=advance)
    threshold = default_threshold(document)
    return print_lines([*selected.describe(document.shown_names, threshold), f"{out}: {rows:,} rows."])


@app.command(cls=CommandWithNames)
@with_labelled_column_options
@with_trec_options
def evaluate(
    map_file: MapFile,
    predictions: Labelled = None,
    group: Group = None,
    unlabelled: Annotated[
        Path | None,
        typer.Option(
            help="File or run from which the labelled rows were sampled; estimates the accuracy of all its rows."
        ),
    ] = None,
    out: Out = None,
    verbose: Verbose = False,
    force: Force = False,
    fail_on_drift: Annotated[
        bool, typer.Option("--fail-on-drift", help="Exit with status 3 if the map no longer holds, for scripts.")
    ] = False,
    trec: TrecFiles = NO_TREC_FILES,
    reading: Reading = DEFAULT_READING,
) -> list[str]:
    """Compare reliability and confidence on labelled rows, and test for drift."""
    from relmap.evaluation.agreement import PopulationSummary
    from relmap.evaluation.assessment import MapAssessment
    from relmap.io.atomic import check_new_file, check_output_path
    from relmap.io.files import open_predictions
    from relmap.io.trec import is_run, open_run
    from relmap.maps.document import load_map

    inputs = [map_file, *_input_files(predictions, trec)]
    check_output_path(out, *inputs if unlabelled is None else [*inputs, unlabelled])
    check_new_file(out, force=force)
    document = load_map(map_file)
    reading = reading.completed_by(document.reading)
    file = _open(predictions, trec, reading)
    assessment = MapAssessment.from_predictions(document, file, _group_of(trec, group))
    population = None
    if unlabelled is not None:
        all_rows = open_run(unlabelled, reading) if is_run(unlabelled) else open_predictions(unlabelled, reading)
        with row_progress() as advance:
            population = PopulationSummary.from_file(document, all_rows, advance)
    evaluation = assessment.evaluate(population)
    write_json_output({"predictions": file.path.name, "map": map_file.name} | evaluation.to_dict(), out)
    printed = print_summary(evaluation.notes, evaluation.lines, evaluation.details, verbose=verbose)
    drift = evaluation.numbers["drift"]
    if fail_on_drift and drift is not None and not drift["holds"]:
        raise typer.Exit(DRIFT_STATUS)
    return printed


@app.command(cls=CommandWithNames)
@with_column_options
@with_run_option
def watch(
    map_file: MapFile,
    predictions: PredictionsOrRun = None,
    group: Group = None,
    cuts: Annotated[
        Path | None,
        typer.Option(
            help="File that relmap thresholds wrote, to count the automatic rows (default: the threshold of the map)."
        ),
    ] = None,
    out: Out = None,
    force: Force = False,
    figure: Annotated[
        Path | None, typer.Option(help="File for a chart of the shares at the fit and now, ending in .svg.")
    ] = None,
    fail_on_change: Annotated[
        bool, typer.Option("--fail-on-change", help="Exit with status 3 if the rows differ from the fit, for scripts.")
    ] = False,
    trec: TrecFiles = NO_TREC_FILES,
    reading: Reading = DEFAULT_READING,
) -> list[str]:
    """Test, without labels, whether new rows are distributed like the rows of the fit."""
    from relmap.evaluation.watch import watch_file
    from relmap.io.atomic import check_new_file, check_output_path, check_suffix, write_text
    from relmap.io.timestamps import current_timestamp
    from relmap.maps.document import load_map
    from relmap.routing.apply import routing_rule

    inputs = [map_file, *_input_files(predictions, trec)]
    for path in (out, figure):
        check_output_path(path, *inputs if cuts is None else [*inputs, cuts])
        check_new_file(path, force=force)
    if figure is not None:
        check_suffix(figure, ".svg")
    document = load_map(map_file)
    rule = None if cuts is None else routing_rule(document, cuts=cuts)
    reading = reading.completed_by(document.reading)
    file = _open(predictions, trec, reading, is_labelled=False)
    result = watch_file(document, file, _group_of(trec, group), thresholds=None if rule is None else rule.thresholds)
    if figure is not None:
        with needs_extra("report"):
            from relmap.report.watch import shares_svg

        write_text(figure, shares_svg(result, document.shown_names))
    names = document.shown_names
    origin = {"at": current_timestamp(), "predictions": file.path.name, "map": map_file.name}
    write_json_output(origin | result.as_json(names), out)
    notes_on_cuts = () if rule is None else rule.notes
    lines = print_lines([*result.notes, *notes_on_cuts, *result.describe(names)])
    if fail_on_change and result.changed:
        raise typer.Exit(DRIFT_STATUS)
    return lines


@app.command(cls=CommandWithNames)
@with_labelled_column_options
@with_trec_options
def thresholds(
    predictions: Labelled = None,
    map_file: Annotated[
        Path | None,
        typer.Option(
            "--map", help="Reliability map that fit or report wrote; omit it to use --score or --probability."
        ),
    ] = None,
    target_accuracy: Annotated[
        float | None, typer.Option(help="Accuracy that automatic rows must have.", rich_help_panel=MAP_PANEL)
    ] = None,
    coverage: Annotated[
        str | None, typer.Option(help="Share of automatic rows; replaces a target accuracy.", rich_help_panel=MAP_PANEL)
    ] = None,
    cost_error: Annotated[
        float | None,
        typer.Option(
            help="Cost of a wrong decision that is used automatically; needs --cost-review.",
            rich_help_panel=MAP_PANEL,
        ),
    ] = None,
    cost_review: Annotated[
        float | None, typer.Option(help="Cost of a review, in the unit of --cost-error.", rich_help_panel=MAP_PANEL)
    ] = None,
    cut: Annotated[
        float | None,
        typer.Option(
            help="Threshold to validate, chosen without these rows; reports the accuracy at or above it.",
            rich_help_panel=MAP_PANEL,
        ),
    ] = None,
    only_label: Annotated[
        str | None,
        typer.Option(
            help="Label whose decisions alone must have the target accuracy; needs fewer rows than a target for all. "
            "--label means the same if it is a label of the map and no column.",
            rich_help_panel=MAP_PANEL,
        ),
    ] = None,
    precision: Annotated[
        float | None, typer.Option(help="Precision to guarantee above the threshold.", rich_help_panel=SCORE_PANEL)
    ] = None,
    recall: Annotated[
        float | None, typer.Option(help="Recall to guarantee above the threshold.", rich_help_panel=SCORE_PANEL)
    ] = None,
    npv: Annotated[
        float | None,
        typer.Option(
            help="Share of true negatives to guarantee below the threshold (negative predictive value).",
            rich_help_panel=SCORE_PANEL,
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="Names of grades in ascending order, such as 0,1,2,3: thresholds at each border, for at least this "
            "grade (default without --positive: the whole numbers in the file).",
            rich_help_panel=SCORE_PANEL,
        ),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(help="File for the precision-recall curve, ending in .svg.", rich_help_panel=SCORE_PANEL),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the random split of the rows.", rich_help_panel=SCORE_PANEL)
    ] = 1,
    confidence_level: Annotated[float, typer.Option(help=CONFIDENCE_LEVEL_HELP)] = 0.95,
    group: Group = None,
    out: Out = None,
    verbose: Verbose = False,
    force: Force = False,
    trec: TrecFiles = NO_TREC_FILES,
    reading: Reading = DEFAULT_READING,
) -> list[str]:
    """Find or validate a threshold with a guarantee, on the reliability of a map or on a raw score."""
    from relmap.evaluation.assessment import MapAssessment
    from relmap.io.atomic import check_new_file, check_output_path
    from relmap.io.files import open_predictions
    from relmap.maps.document import load_map
    from relmap.routing.choose import choose_cut, find_label

    check_new_file(out, force=force)
    check_new_file(figure, force=force)
    inputs = _input_files(predictions, trec)
    group = _group_of(trec, group)
    score_targets = {"precision": precision, "recall": recall, "npv": npv}
    map_options = {
        "target_accuracy": target_accuracy,
        "coverage": coverage,
        "cost_error": cost_error,
        "cost_review": cost_review,
        "cut": cut,
        "only_label": only_label,
    }
    if map_file is None:
        alternatives = f"{option('precision')}, {option('recall')} or {option('npv')}"
        _refuse_options(map_options, f"needs a map; give {option('map_file')}, or use {alternatives} instead")
        check_output_path(out, *inputs)
        names = split_names("labels", labels, "0,1,2,3", 2)
        opened = _open_labelled(predictions, trec, reading, labels=names)
        return _score_thresholds(opened, score_targets, names, confidence_level, seed, group, figure, out)
    _refuse_score_options(score_targets, labels, figure)
    check_output_path(out, map_file, *inputs)
    document = load_map(map_file)
    is_label = only_label is None and reading.label is not None and find_label(document, reading.label) is not None
    if is_label and (predictions is None or reading.label not in open_predictions(predictions).schema.names):
        only_label = reading.label
        reading = replace(reading, label=None)
    reading = reading.completed_by(document.reading)
    file = _open(predictions, trec, reading)
    assessment = MapAssessment.from_predictions(document, file, group)
    cuts = choose_cut(
        assessment,
        target_accuracy=target_accuracy,
        coverage=coverage,
        confidence_level=confidence_level,
        cost_error=cost_error,
        cost_review=cost_review,
        cut=cut,
        only_label=only_label,
    )
    write_json_output({"predictions": file.path.name, "map": map_file.name} | cuts.to_dict(), out)
    return print_summary(cuts.notes, cuts.lines, cuts.details, verbose=verbose)


def _input_files(predictions: Path | None, trec: TrecFiles) -> list[Path]:
    """Return the files of labelled rows, which no output may replace."""
    return trec.paths if predictions is None else [predictions, *trec.paths]


class LabelledFile(NamedTuple):
    """Labelled rows, and the judgments that they were made of if they are the documents of a run."""

    file: "PredictionFile"
    judgments: "Judgments | None"


def _open(
    predictions: Path | None,
    trec: TrecFiles,
    reading: Reading,
    *,
    is_labelled: bool = True,
    labels: Sequence[str] | None = None,
) -> "PredictionFile":
    """Open a file of predictions, or read a run; for labelled rows, print how many documents of the run are judged."""
    if is_labelled:
        return _open_labelled(predictions, trec, reading, labels=labels).file
    from relmap.io.files import open_predictions
    from relmap.io.trec import open_run

    _check_one_input(predictions, trec, {"run": "RUN"})
    if predictions is not None:
        return open_predictions(predictions, reading)
    assert trec.run is not None
    return open_run(trec.run, reading)


def _open_labelled(
    predictions: Path | None, trec: TrecFiles, reading: Reading, *, labels: Sequence[str] | None = None
) -> LabelledFile:
    """Open a file of labelled predictions, or read a judged run and print how many of its documents are judged."""
    from relmap.io.files import open_predictions
    from relmap.io.trec import check_grade_order, read_judged_run

    _check_one_input(predictions, trec, {"run": "RUN", "qrels": "QRELS"})
    if predictions is not None:
        return LabelledFile(open_predictions(predictions, reading), None)
    check_grade_order(labels)
    judged = read_judged_run(trec, reading, all_grades=len(reading.borders) != 1)  # one border is for two labels
    print_lines(judged.notes)
    return LabelledFile(judged.rows, judged.judgments)


def _check_one_input(predictions: Path | None, trec: TrecFiles, run: dict[str, object]) -> None:
    """Raise InputError unless either a file or a run is given; `run` has the options of a run for the message."""
    if (predictions is None) == (trec.run is None):
        raise InputError(f"give the predictions once: {assignment('predictions', 'FILE')}, or {assignments(run)}")


def _group_of(trec: TrecFiles, group: str | None) -> str | None:
    """Return the column of groups: the given one, or the query of a run."""
    return "query" if group is None and trec.run is not None else group


def _refuse_options(options: Mapping[str, object], reason: str) -> None:
    """Raise InputError if one of the options is given; the message is the name of the option and the reason."""
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{option(name)} {reason}")


def _refuse_score_options(targets: Mapping[str, float | None], labels: str | None, figure: Path | None) -> None:
    """Raise InputError if an option of thresholds on a score is given with a map; the message names the right one."""
    on_score = f"for a threshold on a score, omit {option('map_file')}, and name the column with {option('score')}"
    if targets["precision"] is not None:
        example = assignments({"target_accuracy": targets["precision"], "only_label": "LABEL"})
        raise InputError(
            f"with a map, the precision of a label is the accuracy of its decisions: give {example} instead of "
            f"{option('precision')}; {on_score}"
        )
    _refuse_options({**targets, "labels": labels, "figure": figure}, f"is not possible with a map; {on_score}")


def _score_thresholds(
    opened: LabelledFile,
    targets: Mapping[str, float | None],
    labels: tuple[str, ...] | None,
    confidence_level: float,
    seed: int,
    group: str | None,
    figure: Path | None,
    out: Path | None,
) -> list[str]:
    """Find thresholds on a score without a map, and write the JSON and the figure."""
    from relmap.io.atomic import check_output_path, check_suffix, write_text
    from relmap.routing.score_thresholds import find_grade_thresholds, find_score_thresholds, read_score

    file = opened.file
    check_output_path(out, file.path)
    if all(target is None for target in targets.values()):
        example = assignments({"score": "COLUMN", "positive": "LABEL", "precision": 0.95})
        raise InputError(f"give {option('map_file')}, or a target for a score: {example}")
    if figure is not None:
        inputs = [file.path] if out is None else [file.path, out]
        check_output_path(figure, *inputs)
        check_suffix(figure, ".svg")
    rows = read_score(file, labels=labels, group=group)
    found: ScoreThresholds | GradeThresholds
    if rows.names is None:
        found = find_score_thresholds(
            rows.score,
            rows.grade == 1,
            groups=rows.groups,
            **targets,
            confidence_level=confidence_level,
            seed=seed,
        )
    else:
        found = find_grade_thresholds(
            rows.score,
            rows.grade,
            rows.names,
            groups=rows.groups,
            **targets,
            confidence_level=confidence_level,
            seed=seed,
        )
    figure_lines = []
    if figure is not None:
        with needs_extra("report"):
            from relmap.report.score import precision_recall_svg

        write_text(figure, precision_recall_svg(found))
        figure_lines = [f"{figure}: precision-recall curve."]
    run_content: dict[str, object] = {}
    unjudged_lines = []
    if opened.judgments is not None:
        run_content = {"run": opened.judgments.to_dict()}
        at_least = found.chosen("precision", "recall")
        unjudged_lines = opened.judgments.describe_unjudged(at_least, found.chosen("npv"))
    content = {
        "predictions": file.path.name,
        **run_content,
        "score": file.reading.score or file.reading.probability,
        "positive": file.reading.positive,
        **found.to_dict(with_curves=out is not None),  # up to 400 points, too long for a terminal
    }
    write_json_output(content, out)
    return print_lines([*rows.notes, *found.describe(), *unjudged_lines, *figure_lines])


@app.command(cls=CommandWithNames)
def sql(
    map_file: MapFile,
    dialect: Annotated[str, typer.Option(help="SQL dialect: duckdb, postgres, bigquery or spark.")] = "duckdb",
    column: Annotated[
        str,
        typer.Option(
            help="What to compute: reliability, from decision (0..K-1) and the calibrated confidence; or confidence, "
            "from decision and logits."
        ),
    ] = "reliability",
) -> str:
    """Print an SQL expression that computes the reliability, or the calibrated confidence that it reads."""
    from relmap.maps.document import load_map

    with needs_extra("sql"):
        from relmap.maps.sql import sql_expression

    expression = sql_expression(load_map(map_file), dialect, cast("Literal['reliability', 'confidence']", column))
    print(expression)
    return expression


@app.command(cls=CommandWithNames)
def demo(
    folder: Annotated[Path, typer.Option(help="Folder for the files of the demonstration.")] = Path("relmap_demo"),
) -> None:
    """Run fit, apply, thresholds, label and evaluate on simulated predictions."""
    from relmap.simulation.demo import run_demo

    run_demo(folder)


def _announce_slow_fit(options: FitOptions) -> None:
    """Print a message before a fit that takes long."""
    from relmap.calibrators.registry import CALIBRATORS

    if options.calibrator in CALIBRATORS and CALIBRATORS[options.calibrator].settings_type:
        print_lines(
            [f"Fitting the calibrator {options.calibrator}. With many labels or rows this can take some minutes."]
        )


@cascade_app.command("fit", cls=CommandWithNames)
@options_from_fields(CascadeSettings, "settings")
def cascade_fit(
    predictions: Annotated[Path, typer.Option(help="File of labelled rows with the predictions of all models.")],
    model: Annotated[
        list[str],
        typer.Option(
            help="Name and columns of a model, such as 'small decision=label_1 confidence=confidence_1'. Repeat it for "
            "each model, the cheapest first. Its fields are options of `relmap fit`: decision, confidence, "
            "confidence_words, percent, logits, probabilities, probability, score, border, positive."
        ),
    ],
    cost: Annotated[str, typer.Option(help="Cost of one row for each model and a person: small=1,large=20,person=100")],
    out: Annotated[Path, typer.Option(help="File for the cascade.")],
    settings: CascadeSettings,
    label: Annotated[str | None, typer.Option(help="Column with the true label.")] = None,
    labels: Annotated[str | None, typer.Option(help=LABELS_HELP)] = None,
    group: Group = None,
    id_column: Annotated[
        str | None,
        typer.Option(
            "--id",
            help="Columns that identify a row, such as query,passage, so that every call divides rows with the same "
            "reliability in the same way (default: id, or all columns that are neither labels nor predictions).",
        ),
    ] = None,
    drop_unlabelled: Annotated[bool, typer.Option("--drop-unlabelled", help="Omit rows without a label.")] = False,
    figure: Annotated[Path | None, typer.Option(help="File for the curve of accuracy by cost, ending in .svg.")] = None,
    numbers: Annotated[
        Path | None, typer.Option(help="File for all numbers as JSON, such as the curves of accuracy by cost.")
    ] = None,
    force: Force = False,
) -> list[str]:
    """Learn when to ask a stronger model or a person, at the least cost that reaches a target accuracy."""
    from relmap.cascade.document import save_cascade
    from relmap.cascade.fit import fit_cascade
    from relmap.cascade.models import parse_costs, parse_model, read_models
    from relmap.io.atomic import check_new_file, check_output_path, check_suffix, write_text
    from relmap.io.files import open_predictions, read_frame

    for path in (out, figure, numbers):
        check_output_path(path, predictions)
        check_new_file(path, force=force)
    if figure is not None:
        check_suffix(figure, ".svg")
    parsed = [parse_model(text) for text in model]
    id_columns = split_names("id", id_column, "query,passage")
    models = read_models(dict(parsed), label=label, id_columns=id_columns, drop_unlabelled=drop_unlabelled)
    if len(models) < len(parsed):
        raise InputError("two models have the same name; give each its own")
    rows = read_frame(open_predictions(predictions))
    names = split_names("labels", labels, "bad,fair,good", 2)
    document, summary = fit_cascade(
        rows, models, parse_costs(cost), settings, labels=names, group=group, id_columns=id_columns
    )
    if numbers is not None:
        write_json_output(summary.to_dict(), numbers)
    if figure is not None:
        with needs_extra("report"):
            from relmap.report.cascade import cost_accuracy_svg

        write_text(figure, cost_accuracy_svg(summary.numbers))
    if document is None:
        print_lines([*summary.notes, *summary.lines[1:]])
        unchanged = f" {out} is an earlier cascade and was not changed." if out.exists() else ""
        raise InputError(summary.lines[0] + unchanged)
    save_cascade(document, out)
    options = assignments({"cascade": out, "predictions": "FILE", "out": "FILE"})
    next_step = f"{out} is written. `relmap cascade apply {options}` says which rows to send to which model."
    return print_lines([*summary.notes, *summary.lines, next_step])


@cascade_app.command("apply", cls=CommandWithNames)
def cascade_apply(
    cascade: Annotated[Path, typer.Option(help="Cascade that `relmap cascade fit` wrote.")],
    predictions: Annotated[
        Path,
        typer.Option(help="File of rows with the predictions of the first model, and of others where they were asked."),
    ],
    out: Annotated[Path, typer.Option(help="File for the routed rows, in any format that can be read.")],
    force: Force = False,
) -> list[str]:
    """Say which decisions to use, and which rows to send to the next model or a person; nothing is sent anywhere."""
    from relmap.cascade.apply import apply_cascade
    from relmap.cascade.document import ADDED_COLUMNS, load_cascade
    from relmap.io.atomic import check_new_file, check_output_path
    from relmap.io.files import open_predictions, read_frame
    from relmap.io.output import check_output, write_frame_with_columns

    check_output_path(out, cascade, predictions)
    check_new_file(out, force=force)
    document = load_cascade(cascade)
    rows = read_frame(open_predictions(predictions), without=ADDED_COLUMNS)
    check_output(rows, out)
    added, routes = apply_cascade(document, rows)
    write_frame_with_columns(rows, added, out)
    return print_lines([*routes.describe(), f"{out}: {routes.rows:,} rows."])


def _skip_last_search_for_garbage() -> None:
    """Let Python end without a search for garbage, which takes a tenth of a second.

    DuckDB, which ranks large files, would report that its objects leak.
    """
    if "duckdb" not in sys.modules:
        gc.freeze()


def main() -> None:
    """Run the command line; print errors in user input without a traceback, and exit with status 1."""
    atexit.register(_skip_last_search_for_garbage)
    try:
        app(prog_name="relmap")
    except (InputError, OSError) as error:  # for example a full disk: the message names the file
        sys.exit(f"relmap: {escape_unprintable(str(error))}")


if __name__ == "__main__":
    main()
