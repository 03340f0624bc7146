"""Command line: fit reliability maps on predictions, and use the maps; see `relmap --help`.

Messages go to the error stream; JSON and SQL go to the output stream or to a file. This module imports no
orchestrator. Each command imports what it needs when it runs, so that `--help` and errors in options are fast.
"""

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast, get_args, get_type_hints

import typer
from typer.core import TyperCommand

from relmap import __version__
from relmap.errors import InputError, assignment, assignments, escape_unprintable, needs_extra, option
from relmap.io.reading import DEFAULT_READING, Reading, split_names
from relmap.maps.options import DEFAULT_FIT_OPTIONS, FitOptions, OptionText

if TYPE_CHECKING:
    from relmap.io.files import Predictions as PredictionFile

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
        field_options = _field_options(value_type, without)

        @wraps(command)
        def run(*arguments: object, **keywords: object) -> Output:
            field_values = {}
            for field_option in field_options:
                if field_option.name in keywords:
                    field_values[field_option.name] = keywords.pop(field_option.name)
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
                annotation=ANNOTATED[str | None if text.example else kinds[field.name], option],
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
Labelled = Annotated[
    Path, typer.Option(help="File of predictions with their true labels: parquet, csv, tsv, jsonl, json or xlsx.")
]
Group = Annotated[
    str | None, typer.Option(help="Column of groups, such as the query, whose rows are not independent of each other.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print all results, not only the most important ones.")]
Out = Annotated[Path | None, typer.Option(help="File for the JSON (default: print it).")]
Force = Annotated[bool, typer.Option("--force", help="Replace the files to write if they exist.")]
with_column_options = options_from_fields(Reading, "reading", without=("label", "id", "drop_unlabelled"))
with_labelled_column_options = options_from_fields(Reading, "reading")


@app.command(cls=CommandWithNames)
@with_labelled_column_options
@options_from_fields(FitOptions, "fit_options")
def fit(
    predictions: Labelled,
    out: Annotated[Path, typer.Option(help="File for the map.")],
    fit_options: FitOptions = DEFAULT_FIT_OPTIONS,
    verbose: Verbose = False,
    force: Force = False,
    reading: Reading = DEFAULT_READING,
) -> list[str]:
    """Fit a reliability map on labelled predictions, and compare it with the confidence out of fold."""
    from relmap.evaluation.assessment import describe_fit
    from relmap.io.atomic import check_new_file, check_output_path
    from relmap.io.files import open_predictions
    from relmap.maps.document import describe_map, save_map
    from relmap.maps.fit import fit_map

    check_output_path(out, predictions)
    check_new_file(out, force=force)
    file = open_predictions(predictions, reading)
    _announce_slow_fit(fit_options)
    fitted = fit_map(file, fit_options)
    document = fitted.document
    summary = describe_fit(fitted)
    save_map(document, out)
    options = assignments({"map_file": out, "predictions": "FILE", "out": "FILE"})
    next_step = (
        f"{out} is written. `relmap apply {options}` uses decisions with a reliability of "
        f"{document.default_threshold:.4g} or more."
    )
    details = [*summary.details, f"{describe_map(document)}."]
    return print_summary(summary.notes, summary.lines, details, verbose=verbose, last=[next_step])


@app.command(cls=CommandWithNames)
@with_labelled_column_options
@options_from_fields(FitOptions, "fit_options", without=("protocol",))
def report(
    predictions: Labelled,
    out: Annotated[Path, typer.Option(help="File for the page, ending in .html; the map is written next to it.")],
    fit_options: FitOptions = DEFAULT_FIT_OPTIONS,
    verbose: Verbose = False,
    reading: Reading = DEFAULT_READING,
) -> list[str]:
    """Fit a map, evaluate it out of fold, and write an HTML page with the results. The map is saved next to it."""
    from relmap.evaluation.assessment import MapAssessment, describe_fit
    from relmap.io.atomic import check_output_path, check_suffix, write_text
    from relmap.io.files import open_predictions
    from relmap.maps.document import describe_map, save_map
    from relmap.maps.fit import fit_map

    map_file = out.with_suffix(MAP_SUFFIX)
    check_output_path(out, predictions)
    check_output_path(map_file, predictions)
    check_suffix(out, ".html")
    file = open_predictions(predictions, reading)
    _announce_slow_fit(fit_options)
    fitted = fit_map(file, fit_options)
    document = fitted.document
    summary = describe_fit(fitted)
    with needs_extra("report"):
        from relmap.report.page import render_map_page

    assessment = MapAssessment.from_predictions(document, file)
    text = render_map_page(assessment, summary, map_file)
    save_map(document, map_file)
    write_text(out, text)
    details = [*summary.details, f"{describe_map(document)}."]
    written = [f"{out} and {map_file} are written: the page with the results, and the map."]
    return print_summary(summary.notes, summary.lines, details, verbose=verbose, last=written)


@app.command(cls=CommandWithNames)
@with_column_options
def apply(
    map_file: MapFile,
    predictions: Predictions,
    out: Annotated[Path, typer.Option(help="File for the scored rows, in any format that can be read.")],
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
    reading: Reading = DEFAULT_READING,
) -> list[str]:
    """Add decision, confidence, reliability, review rank and route (automatic or review) to every row."""
    from relmap.io.atomic import check_new_file, check_output_path
    from relmap.maps.document import load_map
    from relmap.routing.apply import apply_map

    inputs = [map_file, predictions] if cuts is None else [map_file, predictions, cuts]
    check_output_path(out, *inputs)
    check_new_file(out, force=force)
    document = load_map(map_file)
    reading = reading.completed_by(document.reading)
    with row_progress() as advance:
        applied = apply_map(
            document,
            predictions,
            out,
            coverage=coverage,
            cut=cut,
            cuts=cuts,
            progress=advance,
            reading=reading,
        )
    return print_lines([*applied.describe(document.shown_names), f"{out}: {applied.rows:,} rows."])


@app.command(cls=CommandWithNames)
@options_from_fields(Reading, "reading", without=("id", "drop_unlabelled"))
def label(
    map_file: MapFile,
    predictions: Predictions,
    rows: Annotated[int, typer.Option(min=1, help="Number of rows to select.")],
    out: Annotated[Path, typer.Option(help="File for the rows to label, in any format that can be read.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random sample.")] = 1,
    force: Force = False,
    reading: Reading = DEFAULT_READING,
) -> list[str]:
    """Select rows to label next, at random with known probabilities: uncertain rows and rare labels more often."""
    from relmap.io.atomic import check_new_file, check_output_path
    from relmap.maps.document import load_map
    from relmap.routing.label import sample_rows_to_label

    check_output_path(out, map_file, predictions)
    check_new_file(out, force=force)
    document = load_map(map_file)
    reading = reading.completed_by(document.reading)
    with row_progress() as advance:
        selected = sample_rows_to_label(
            document, predictions, out, rows=rows, seed=seed, progress=advance, reading=reading
        )
    return print_lines([*selected.describe(document.shown_names), f"{out}: {rows:,} rows."])


@app.command(cls=CommandWithNames)
@with_labelled_column_options
def evaluate(
    map_file: MapFile,
    predictions: Labelled,
    group: Group = None,
    unlabelled: Annotated[
        Path | None,
        typer.Option(help="File from which the labelled rows were sampled; estimates the accuracy of this file."),
    ] = None,
    out: Out = None,
    verbose: Verbose = False,
    force: Force = False,
    fail_on_drift: Annotated[
        bool, typer.Option("--fail-on-drift", help="Exit with status 3 if the map no longer holds, for scripts.")
    ] = False,
    reading: Reading = DEFAULT_READING,
) -> list[str]:
    """Compare reliability and confidence on labelled rows, and test for drift."""
    from relmap.evaluation.agreement import PopulationSummary
    from relmap.evaluation.assessment import MapAssessment
    from relmap.io.atomic import check_new_file, check_output_path
    from relmap.io.files import open_predictions
    from relmap.maps.document import load_map

    inputs = [map_file, predictions] if unlabelled is None else [map_file, predictions, unlabelled]
    check_output_path(out, *inputs)
    check_new_file(out, force=force)
    document = load_map(map_file)
    reading = reading.completed_by(document.reading)
    assessment = MapAssessment.from_predictions(document, open_predictions(predictions, reading), group)
    population = None
    if unlabelled is not None:
        with row_progress() as advance:
            population = PopulationSummary.from_file(document, open_predictions(unlabelled, reading), advance)
    evaluation = assessment.evaluate(population)
    write_json_output({"predictions": predictions.name, "map": map_file.name} | evaluation.to_dict(), out)
    printed = print_summary(evaluation.notes, evaluation.lines, evaluation.details, verbose=verbose)
    drift = evaluation.numbers["drift"]
    if fail_on_drift and drift is not None and not drift["holds"]:
        raise typer.Exit(DRIFT_STATUS)
    return printed


@app.command(cls=CommandWithNames)
@with_labelled_column_options
def thresholds(
    predictions: Labelled,
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
    figure: Annotated[
        Path | None,
        typer.Option(help="File for the precision-recall curve, ending in .svg.", rich_help_panel=SCORE_PANEL),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the random split of the rows.", rich_help_panel=SCORE_PANEL)
    ] = 1,
    confidence_level: Annotated[
        float, typer.Option(help="Confidence level of the guarantee, over random samples of labelled rows.")
    ] = 0.95,
    group: Group = None,
    out: Out = None,
    verbose: Verbose = False,
    force: Force = False,
    reading: Reading = DEFAULT_READING,
) -> list[str]:
    """Find or validate a threshold with a guarantee, on the reliability of a map or on a raw score."""
    from relmap.evaluation.assessment import MapAssessment
    from relmap.io.atomic import check_new_file, check_output_path
    from relmap.io.files import open_predictions
    from relmap.maps.document import load_map
    from relmap.routing.choose import choose_cut

    check_new_file(out, force=force)
    check_new_file(figure, force=force)
    score_targets = {"precision": precision, "recall": recall, "npv": npv}
    map_options = {
        "target_accuracy": target_accuracy,
        "coverage": coverage,
        "cost_error": cost_error,
        "cost_review": cost_review,
        "cut": cut,
    }
    if map_file is None:
        alternatives = f"{option('precision')}, {option('recall')} or {option('npv')}"
        _refuse_options(map_options, f"needs a map; give {option('map_file')}, or use {alternatives} instead")
        return _score_thresholds(
            open_predictions(predictions, reading), score_targets, confidence_level, seed, group, figure, out
        )
    score_options = score_targets | {"figure": figure}
    score_example = f"omit {option('map_file')}, and name the column with {option('score')}"
    _refuse_options(score_options, f"is for thresholds on a score, without a map; {score_example}")
    check_output_path(out, map_file, predictions)
    document = load_map(map_file)
    reading = reading.completed_by(document.reading)
    assessment = MapAssessment.from_predictions(document, open_predictions(predictions, reading), group)
    cuts = choose_cut(
        assessment,
        target_accuracy=target_accuracy,
        coverage=coverage,
        confidence_level=confidence_level,
        cost_error=cost_error,
        cost_review=cost_review,
        cut=cut,
    )
    write_json_output({"predictions": predictions.name, "map": map_file.name} | cuts.to_dict(), out)
    return print_summary(cuts.notes, cuts.lines, cuts.details, verbose=verbose)


def _refuse_options(options: Mapping[str, object], reason: str) -> None:
    """Raise InputError if one of the options is given; the message is the name of the option and the reason."""
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{option(name)} {reason}")


def _score_thresholds(
    file: "PredictionFile",
    targets: Mapping[str, float | None],
    confidence_level: float,
    seed: int,
    group: str | None,
    figure: Path | None,
    out: Path | None,
) -> list[str]:
    """Find thresholds on a score without a map, and write the JSON and the figure."""
    from relmap.io.atomic import check_output_path, check_suffix, write_text
    from relmap.routing.score_thresholds import find_score_thresholds, read_score

    check_output_path(out, file.path)
    if all(target is None for target in targets.values()):
        example = assignments({"score": "COLUMN", "positive": "LABEL", "precision": 0.95})
        raise InputError(f"give {option('map_file')}, or a target for a score: {example}")
    if file.reading.positive is None:
        raise InputError(f"name the label that counts as positive: {assignment('positive', 'LABEL')}")
    if figure is not None:
        inputs = [file.path] if out is None else [file.path, out]
        check_output_path(figure, *inputs)
        check_suffix(figure, ".svg")
    score, positive, groups, notes = read_score(file, positive=file.reading.positive, group=group)
    found = find_score_thresholds(
        score,
        positive,
        groups=groups,
        precision=targets["precision"],
        recall=targets["recall"],
        npv=targets["npv"],
        confidence_level=confidence_level,
        seed=seed,
    )
    figure_lines = []
    if figure is not None:
        with needs_extra("report"):
            from relmap.report.score import precision_recall_svg

        write_text(figure, precision_recall_svg(found))
        figure_lines = [f"{figure}: precision-recall curve."]
    content = {
        "predictions": file.path.name,
        "score": file.reading.score or file.reading.probability,
        "positive": file.reading.positive,
        **found.to_dict(),
    }
    if out is None:
        del content["curve"]  # up to 400 points, too long for a terminal
    write_json_output(content, out)
    return print_lines([*notes, *found.describe(), *figure_lines])


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


def main() -> None:
    """Run the command line; print errors in user input without a traceback, and exit with status 1."""
    try:
        app(prog_name="relmap")
    except (InputError, OSError) as error:  # for example a full disk: the message names the file
        sys.exit(f"relmap: {escape_unprintable(str(error))}")


if __name__ == "__main__":
    main()
