"""Your own predictions in, a reliability map out: `relmap --help`.

What people read goes to the terminal's error stream, what programs read to its output or a file. Nothing here knows
an orchestrator. Each command imports what it computes with, so that `--help` and errors in the options are fast.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relmap import __version__
from relmap.console import (
    CommandWithNames,
    calibrator_names,
    progress,
    say,
    show,
    variant_names,
    with_options,
)
from relmap.errors import InputError, escape_unprintable, needs_extra
from relmap.io.reading import DEFAULT_READING, Reading, split_names
from relmap.options import Protocol, assignment, assignments, option

if TYPE_CHECKING:
    from relmap.io.files import Predictions as PredictionFile

FITTING = "How the map is fitted"  # groups of options in the help
WITH_MAP = "Threshold on the reliability of a map"
WITHOUT_MAP = "Threshold on a score, without a map"
MAP = ".map.json"  # how the map ends that lies beside a page
app = typer.Typer(
    help="Which of your model's decisions can be used as they are, and which go to review?",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"relmap {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Which of your model's decisions can be used as they are, and which should go to review?"""


MapFile = Annotated[Path, typer.Option("--map", help="The map that fit wrote.")]
Predictions = Annotated[Path, typer.Option(help="A file of predictions: parquet, csv, tsv, jsonl, json or xlsx.")]
Labelled = Annotated[
    Path, typer.Option(help="A file of predictions with their true label: parquet, csv, tsv, jsonl, json or xlsx.")
]
Calibrator = Annotated[
    str | None,
    typer.Option(
        help="Calibrator of the confidence: {calibrators}. By default ts, without logits uncal.",
        autocompletion=calibrator_names,
        rich_help_panel=FITTING,
    ),
]
Variant = Annotated[
    str,
    typer.Option(
        help="Model of the reliability; auto recommends one of the first {automatic}: {variants}.",
        autocompletion=variant_names,
        rich_help_panel=FITTING,
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the split of the rows into folds.", rich_help_panel=FITTING)]
Labels = Annotated[str | None, typer.Option(help="Names of the labels in their order: bad,fair,good")]
AcceptLabelOrder = Annotated[
    bool,
    typer.Option(
        "--accept-label-order",
        help="Fit even if the labels in another order match the predictions clearly better.",
        rich_help_panel=FITTING,
    ),
]
Signals = Annotated[
    str | None,
    typer.Option(
        help="Columns that may tell correct from wrong decisions: length,source (group_rank, group_gap need --group).",
        rich_help_panel=FITTING,
    ),
]
HoldOut = Annotated[
    float,
    typer.Option(
        min=0,
        max=0.9,
        help="Share of the rows that the fit does not use, for evaluate and thresholds.",
        rich_help_panel=FITTING,
    ),
]
Group = Annotated[
    str | None, typer.Option(help="A column, such as the query; rows with the same value stay in one fold.")
]
Out = Annotated[Path | None, typer.Option(help="Where to write the JSON instead of printing it.")]
of_columns = with_options(Reading, "reading", without=("label", "id", "drop_unlabelled"))
of_labelled_columns = with_options(Reading, "reading")


@app.command(cls=CommandWithNames)
@of_labelled_columns
def fit(
    predictions: Labelled,
    out: Annotated[Path, typer.Option(help="Where to write the map.")],
    calibrator: Calibrator = None,
    variant: Variant = "auto",
    seed: Seed = 1,
    group: Group = None,
    labels: Labels = None,
    protocol: Annotated[
        Protocol,
        typer.Option(
            help="own, or paper: the split and the fits of the paper's tables, with their leaks.",
            rich_help_panel=FITTING,
        ),
    ] = "own",
    signals: Signals = None,
    hold_out: HoldOut = 0.0,
    target: Annotated[
        float | None,
        typer.Option(
            help="Report how many rows it takes to know the gain to this much log loss.", rich_help_panel=FITTING
        ),
    ] = None,
    accept_label_order: AcceptLabelOrder = False,
    reading: Reading = DEFAULT_READING,
) -> list[str]:
    """Fit a reliability map on labelled predictions, and recommend what to deploy."""
    from relmap.io.atomic import check_output_path
    from relmap.io.files import open_predictions
    from relmap.maps.map_file import describe_map, save_map

    check_output_path(out, predictions)
    asked = {"calibrator": calibrator, "variant": variant, "seed": seed, "group": group, "hold_out": hold_out}
    asked |= {"protocol": protocol, "target": target, "accept_label_order": accept_label_order}
    document, recommended = _fitted(open_predictions(predictions, reading), labels, signals, **asked)
    save_map(document, out)
    return say([*recommended.notes, *recommended.lines, f"{out}: {describe_map(document)}."])


@app.command(cls=CommandWithNames)
@of_labelled_columns
def report(
    predictions: Labelled,
    out: Annotated[Path, typer.Option(help="Where to write the page, an .html file; the map is written next to it.")],
    calibrator: Calibrator = None,
    variant: Variant = "auto",
    seed: Seed = 1,
    group: Group = None,
    labels: Labels = None,
    signals: Signals = None,
    hold_out: HoldOut = 0.0,
    accept_label_order: AcceptLabelOrder = False,
    reading: Reading = DEFAULT_READING,
) -> list[str]:
    """Fit a map, judge it on rows that its fit has not seen, and write one page of that, with the map beside it."""
    from relmap.api import Judged
    from relmap.io.atomic import check_output_path, check_suffix, write_text
    from relmap.io.files import open_predictions
    from relmap.maps.map_file import describe_map, save_map

    map_file = out.with_suffix(MAP)
    check_output_path(out, predictions)
    check_output_path(map_file, predictions)
    check_suffix(out, ".html")
    asked = {"calibrator": calibrator, "variant": variant, "seed": seed, "group": group, "hold_out": hold_out}
    asked |= {"accept_label_order": accept_label_order}
    document, recommended = _fitted(file := open_predictions(predictions, reading), labels, signals, **asked)
    with needs_extra("report"):
        from relmap.report.page import page

    text = page(Judged.read(document, file), recommended, map_file, reading)
    save_map(document, map_file)
    write_text(out, text)
    return say([*recommended.notes, *recommended.lines, f"{map_file}: {describe_map(document)}.", f"{out}: the page."])


@app.command(cls=CommandWithNames)
@of_columns
def apply(
    map_file: MapFile,
    predictions: Predictions,
    out: Annotated[Path, typer.Option(help="Where to write the scored rows, in any format that is read.")],
    coverage: Annotated[
        str | None, typer.Option(help="Share of the rows of this file that is automatic, for large files.")
    ] = None,
    cut: Annotated[
        float | None,
        typer.Option(help="Minimum reliability of automatic rows (default: the threshold of the map)."),
    ] = None,
    cuts: Annotated[
        Path | None,
        typer.Option(help="File of thresholds with one cut, or one for each label; instead of --coverage and --cut."),
    ] = None,
    reading: Reading = DEFAULT_READING,
) -> list[str]:
    """Add decision, confidence, reliability, review_rank and route to every row."""
    from relmap.io.atomic import check_output_path
    from relmap.maps.map_file import load_map
    from relmap.routing.apply import apply_map

    check_output_path(out, map_file, predictions, *filter(None, [cuts]))
    document = load_map(map_file)
    asked: Any = {"coverage": coverage, "cut": cut, "cuts": cuts, "reading": reading}
    with progress() as advance:
        applied = apply_map(document, predictions, out, progress=advance, **asked)
    return say([*applied.describe(document.shown_names), f"{out}: {applied.rows:,} rows."])


@app.command(cls=CommandWithNames)
@with_options(Reading, "reading", without=("id", "drop_unlabelled"))
def label(
    map_file: MapFile,
    predictions: Predictions,
    rows: Annotated[int, typer.Option(min=1, help="Number of rows to draw.")],
    out: Annotated[Path, typer.Option(help="Where to write the rows to label, in any format that is read.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random sample.")] = 1,
    reading: Reading = DEFAULT_READING,
) -> list[str]:
    """Draw the rows to label next: more where the map is unsure and where labels are rare, with known probabilities."""
    from relmap.io.atomic import check_output_path
    from relmap.maps.map_file import load_map
    from relmap.routing.label import sample_rows_to_label

    check_output_path(out, map_file, predictions)
    document = load_map(map_file)
    with progress() as advance:
        drawn = sample_rows_to_label(
            document, predictions, out, rows=rows, seed=seed, progress=advance, reading=reading
        )
    return say([*drawn.describe(document.shown_names), f"{out}: {rows:,} rows."])


@app.command(cls=CommandWithNames)
@of_labelled_columns
def evaluate(
    map_file: MapFile,
    predictions: Labelled,
    group: Group = None,
    unlabelled: Annotated[
        Path | None, typer.Option(help="The file from which the labelled rows were drawn; its accuracy is estimated.")
    ] = None,
    out: Out = None,
    reading: Reading = DEFAULT_READING,
) -> list[str]:
    """Compare reliability and confidence on labelled rows: verdict, gains of the alternatives and a drift test."""
    from relmap.api import Judged, PopulationSummary
    from relmap.io.atomic import check_output_path
    from relmap.io.files import open_predictions
    from relmap.maps.map_file import load_map

    check_output_path(out, map_file, predictions, *filter(None, [unlabelled]))
    judged, everything = (
        Judged.read(document := load_map(map_file), open_predictions(predictions, reading), group),
        None,
    )
    if unlabelled is not None:
        with progress() as advance:
            everything = PopulationSummary.from_file(document, open_predictions(unlabelled, reading), advance)
    answer = judged.evaluation(everything)
    show({"predictions": predictions.name, "map": map_file.name} | answer.to_dict(), out)
    return say([*answer.notes, *answer.lines])


@app.command(cls=CommandWithNames)
@of_labelled_columns
def thresholds(
    predictions: Labelled,
    map_file: Annotated[
        Path | None, typer.Option("--map", help="The map that fit wrote; without it, --score or --probability.")
    ] = None,
    target_accuracy: Annotated[
        float | None, typer.Option(help="Accuracy that automatic rows must have.", rich_help_panel=WITH_MAP)
    ] = None,
    coverage: Annotated[
        str | None, typer.Option(help="Or: share of the rows that is automatic.", rich_help_panel=WITH_MAP)
    ] = None,
    cost_error: Annotated[
        float | None,
        typer.Option(help="Or: cost of a wrong decision that is used; needs --cost-review.", rich_help_panel=WITH_MAP),
    ] = None,
    cost_review: Annotated[
        float | None, typer.Option(help="Cost of a review, in the unit of --cost-error.", rich_help_panel=WITH_MAP)
    ] = None,
    cut: Annotated[
        float | None,
        typer.Option(
            help="Or: a cut that was chosen without these rows, to bound the accuracy at or above it.",
            rich_help_panel=WITH_MAP,
        ),
    ] = None,
    precision: Annotated[
        float | None, typer.Option(help="Precision to guarantee above the threshold.", rich_help_panel=WITHOUT_MAP)
    ] = None,
    recall: Annotated[
        float | None, typer.Option(help="Recall to guarantee above the threshold.", rich_help_panel=WITHOUT_MAP)
    ] = None,
    npv: Annotated[
        float | None,
        typer.Option(help="Share of negatives to guarantee below the threshold.", rich_help_panel=WITHOUT_MAP),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(help="Where to draw the precision-recall curve, an .svg.", rich_help_panel=WITHOUT_MAP),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split of the rows.", rich_help_panel=WITHOUT_MAP)] = 1,
    confidence: Annotated[
        float, typer.Option(help="Confidence of the guarantee, over random samples of such labelled rows.")
    ] = 0.95,
    group: Group = None,
    out: Out = None,
    reading: Reading = DEFAULT_READING,
) -> list[str]:
    """Find or validate a threshold with a guarantee: on the reliability of a map, or without a map on a score."""
    from relmap.api import Judged
    from relmap.io.atomic import check_output_path
    from relmap.io.files import open_predictions
    from relmap.maps.map_file import load_map

    of_score = {"precision": precision, "recall": recall, "npv": npv}
    of_map = {"target_accuracy": target_accuracy, "coverage": coverage}
    of_map |= {"cost_error": cost_error, "cost_review": cost_review, "cut": cut}
    if map_file is None:
        of_scores = f"{option('precision')}, {option('recall')} or {option('npv')}"
        refuse_options(of_map, f"a map; give {option('map_file')}, or {of_scores} instead")
        return _score_thresholds(open_predictions(predictions, reading), of_score, confidence, seed, group, figure, out)
    of_score_only = of_score | {"figure": figure}
    refuse_options(of_score_only, f"no map; omit {option('map_file')}, and name the column with {option('score')}")
    check_output_path(out, map_file, predictions)
    judged = Judged.read(load_map(map_file), open_predictions(predictions, reading), group)
    asked: Any = {"target_accuracy": target_accuracy, "coverage": coverage, "confidence": confidence}
    answer = judged.cuts(**asked, cost_error=cost_error, cost_review=cost_review, cut=cut)
    show({"predictions": predictions.name, "map": map_file.name} | answer.to_dict(), out)
    return say([*answer.notes, *answer.lines])


def refuse_options(options: Mapping[str, object], needed: str) -> None:
    """Raise InputError for the first of the options that is given, with what it needs."""
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{option(name)} needs {needed}")


def _score_thresholds(
    file: "PredictionFile",
    targets: Mapping[str, float | None],
    confidence: float,
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
        raise InputError(f"give {option('map_file')}, or for a score a target: {example}")
    if file.reading.positive is None:
        raise InputError(f"name the label that counts as positive: {assignment('positive', 'LABEL')}")
    if figure is not None:
        check_output_path(figure, *[path for path in (file.path, out) if path is not None])
        check_suffix(figure, ".svg")
    score, positive, groups, notes = read_score(file, positive=file.reading.positive, group=group)
    found = find_score_thresholds(
        score,
        positive,
        groups=groups,
        precision=targets["precision"],
        recall=targets["recall"],
        npv=targets["npv"],
        confidence=confidence,
        seed=seed,
    )
    column = file.reading.score or file.reading.probability
    written = []
    if figure is not None:
        with needs_extra("report"):
            from relmap.report.score import precision_recall_svg

        write_text(figure, precision_recall_svg(found))
        written = [f"{figure}: the precision-recall curve."]
    source = {"predictions": file.path.name, "score": column, "positive": file.reading.positive}
    content = source | found.to_dict()
    if out is None:
        del content["curve"]  # up to 400 points, too long for a terminal
    show(content, out)
    return say([*notes, *found.describe(), *written])


@app.command(cls=CommandWithNames)
def sql(
    map_file: MapFile,
    dialect: Annotated[str, typer.Option(help="duckdb, postgres, bigquery or spark.")] = "duckdb",
) -> str:
    """One SQL expression of decision (0..K-1) and confidence (calibrated), or logits_i, that gives the reliability."""
    from relmap.maps.map_file import load_map

    with needs_extra("sql"):
        from relmap.maps.sql import describe_logit_columns, sql_expression

    print(expression := sql_expression(document := load_map(map_file), dialect))
    say(describe_logit_columns(document))
    return expression


@app.command(cls=CommandWithNames)
def demo(
    folder: Annotated[Path, typer.Option(help="Folder to write the files of the demonstration to.")] = Path(
        "relmap_demo"
    ),
) -> None:
    """Run fit, apply, thresholds, label and evaluate on simulated predictions."""
    from relmap.demo import run_demo

    run_demo(folder)


def _fitted(file: Any, labels: str | None, signals: str | None, **asked: Any) -> Any:
    from relmap.api import fit_map
    from relmap.calibrators.registry import CALIBRATORS

    asked["names"] = split_names("labels", labels, "bad,fair,good", 2)
    asked["signals"] = split_names("signals", signals, "length,source") or ()
    if (key := asked["calibrator"]) in CALIBRATORS and CALIBRATORS[key].settings_type:
        say([f"Fitting the calibrator {key}, which with many labels or rows may take a minute or more."])
    return fit_map(file, **asked)


def main() -> None:
    """Run the command line; errors of the user are printed without a traceback, with exit status 1."""
    try:
        app(prog_name="relmap")
    except (InputError, OSError) as error:  # for example a full disk: the message names the file
        sys.exit(f"relmap: {escape_unprintable(str(error))}")


if __name__ == "__main__":
    main()
