"""Your own predictions in, a reliability map out: `python -m flows.rerank --help`.

What people read goes to the terminal's error stream, what programs read to its output or a file. Nothing here knows
an orchestrator, and each command imports what it alone needs: only `fit` needs torch.
"""

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

import typer

from flows.console import progress, say, show, with_options
from tasks.calibrators import CALIBRATORS
from tasks.maps.document import Source, load_map, save_map
from tasks.maps.labelled import read_to_fit, read_to_judge
from tasks.predictions.reading import AS_NAMED, Reading, listed_names
from tasks.projection.variants import AUTOMATIC, DEPLOYABLE
from tasks.protocol.errors import BadInput, printable
from tasks.protocol.params import load_params
from tasks.protocol.store import check_place
from tasks.provenance.checkout import now
from tasks.provenance.hashing import sha256_of_file

PARAMS_FILE = Path(__file__).resolve().parent.parent / "params.yaml"  # of the pipeline, whose settings are ours
LIBRARIES = ("numpy", "scipy", "torch")  # that a fit computes with
BY_DEFAULT = {"logits": "ts", "confidence_only": "uncal", "decision_only": "constant"}  # calibrators
LEAST_TARGET = 1e-5
ESTIMATE = (
    "So what follows is an estimate and no guarantee: the map was chosen and fitted on these rows. For a guarantee, "
    "give labelled rows of another file, or fit with --hold-out 0.3."
)

app = typer.Typer(
    help="Which of your model's decisions can be used as they are, and which go to review?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Protocol = Literal["own", "paper"]
MapFile = Annotated[Path, typer.Option("--map", help="The map that fit wrote.")]
Predictions = Annotated[Path, typer.Option(help="A parquet, csv or jsonl file of predictions.")]
Labelled = Annotated[Path, typer.Option(help="A parquet, csv or jsonl file of predictions with their true label.")]
Group = Annotated[str | None, typer.Option(help="A column, such as the query, whose rows go together.")]
Out = Annotated[Path | None, typer.Option(help="Where to write the JSON, in place of the output.")]
of_columns = with_options(Reading, "reading", without=("label", "drop_unlabelled"))
of_labelled_columns = with_options(Reading, "reading")


@app.command()
@of_labelled_columns
def fit(
    predictions: Labelled,
    out: Annotated[Path, typer.Option(help="Where to write the map.")],
    calibrator: Annotated[
        str | None, typer.Option(help=f"{', '.join(CALIBRATORS)}. By default ts, without logits uncal.")
    ] = None,
    variant: Annotated[
        str, typer.Option(help=f"auto recommends one of the first {len(AUTOMATIC)} of {', '.join(DEPLOYABLE)}.")
    ] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Protocol seed, under which the rows are dealt in folds.")] = 1,
    group: Group = None,
    labels: Annotated[str | None, typer.Option(help="Names of the labels in their order: bad,fair,good")] = None,
    protocol: Annotated[
        Protocol, typer.Option(help="paper: the parts and fits of the paper's tables, its leaks among them.")
    ] = "own",
    signals: Annotated[
        str | None,
        typer.Option(help="Columns that may say how sure a decision is; group_rank, group_gap with --group."),
    ] = None,
    hold_out: Annotated[
        float, typer.Option(min=0, max=0.9, help="Share of the rows to keep aside, for evaluate and thresholds.")
    ] = 0.0,
    target: Annotated[
        float | None, typer.Option(help="Say how many rows it takes to know the gain to this much log loss.")
    ] = None,
    reading: Reading = AS_NAMED,
) -> list[str]:
    """Fit a reliability map on labelled predictions, and recommend what to deploy."""
    from tasks.maps.learn import learn_map

    check_place(out, predictions)
    names = listed_names("--labels", labels, "bad,fair,good", 2)
    asked = listed_names("--signals", signals, "length,source") or ()
    if calibrator in CALIBRATORS and CALIBRATORS[calibrator].settings:
        say([f"Fitting the calibrator {calibrator}, which with many labels or rows may take a minute or more."])
    if target is not None and not target >= LEAST_TARGET:
        raise BadInput(f"--target is {target}; give a log loss of {LEAST_TARGET} or more, such as 0.01")
    rows, n_labels, known, notes = read_to_fit(
        predictions, group=group, names=names, signals=asked, seed=seed, hold_out=hold_out, reading=reading
    )
    if protocol == "paper" and (asked or hold_out):
        raise BadInput("--protocol paper has parts of its own: leave --signals and --hold-out away")
    params = load_params(PARAMS_FILE)
    source = Source(
        file=printable(predictions.name),
        sha256=sha256_of_file(predictions),
        rows=len(rows),
        seed=seed,
        group=group,
        hold_out=hold_out,
        protocol=params.protocol if protocol == "paper" else None,
        at=now(),
        versions={name: version(name) for name in ("mrp-pipeline", *LIBRARIES)},
    )
    learned = learn_map(
        rows,
        source,
        params,
        calibrator=calibrator or BY_DEFAULT[rows.kind],
        variant=variant,
        n_labels=n_labels,
        names=names,
        signals=known,
    )
    save_map(learned.document, out)
    return say([*notes, *learned.in_words(target), f"{out}: {learned.document.described}."])


@app.command()
@of_columns
def apply(
    map_file: MapFile,
    predictions: Predictions,
    out: Annotated[Path, typer.Option(help="Where to write the scored rows: parquet, csv or jsonl.")],
    coverage: Annotated[
        str | None, typer.Option(help="Share of the rows to route as automatic; 0.7 without a cut.")
    ] = None,
    cut: Annotated[float | None, typer.Option(help="Or: automatic is what has at least this reliability.")] = None,
    reading: Reading = AS_NAMED,
) -> list[str]:
    """Add decision, confidence, reliability, review_rank and route to every row."""
    from tasks.maps.apply import apply_map

    check_place(out, map_file, predictions)
    document = load_map(map_file)
    with progress() as advance:
        applied = apply_map(document, predictions, out, coverage=coverage, cut=cut, progress=advance, reading=reading)
    return say([*applied.in_words(document.shown_names), f"{out}: {applied.rows:,} rows."])


@app.command()
@with_options(Reading, "reading", without=("drop_unlabelled",))
def label(
    map_file: MapFile,
    predictions: Predictions,
    rows: Annotated[int, typer.Option(min=1, help="How many rows to draw.")],
    out: Annotated[Path, typer.Option(help="Where to write the rows to label: csv, parquet or jsonl.")],
    seed: Annotated[int, typer.Option(min=0, help="Of the draw.")] = 1,
    reading: Reading = AS_NAMED,
) -> list[str]:
    """Draw the rows to label next: more where the map is unsure and where labels are rare, with known probabilities."""
    from tasks.maps.label import label_next

    check_place(out, map_file, predictions)
    document = load_map(map_file)
    with progress() as advance:
        drawn = label_next(document, predictions, out, rows=rows, seed=seed, progress=advance, reading=reading)
    return say([*drawn.in_words(document.shown_names), f"{out}: {rows:,} rows."])


@app.command()
@of_labelled_columns
def evaluate(
    map_file: MapFile,
    predictions: Labelled,
    group: Group = None,
    unlabelled: Annotated[
        Path | None, typer.Option(help="The file that the labelled rows were drawn from: how accurate all of it is.")
    ] = None,
    out: Out = None,
    reading: Reading = AS_NAMED,
) -> list[str]:
    """Hold the reliability against the confidence on labelled rows: a verdict, the metrics as JSON, and drift."""
    from tasks.maps.agreement import AllRows, agreement, in_words
    from tasks.maps.drift import drift
    from tasks.maps.evaluate import evaluate as evaluated
    from tasks.maps.verdict import verdict

    check_place(out, map_file, predictions, *filter(None, [unlabelled]))
    document = load_map(map_file)
    rows, scored, seen, notes = read_to_judge(document, predictions, group=group, reading=reading)
    metrics, everything = load_params(PARAMS_FILE).metrics, None
    if unlabelled is not None:
        with progress() as advance:
            everything = AllRows.read(document, unlabelled, advance, reading)
    evaluation = evaluated(document, rows, scored, metrics)
    agreed = agreement(document, rows, scored, everything, metrics.resamples)
    judged = scored.reliability, rows.decision, rows.correct, rows.group
    drifted = drift(document, *judged) if seen == "new" else None
    later = ["Whether the map still holds, later rows can tell: these are among those that it was made of."]
    lines = drifted.in_words(document.shown_names) if drifted else later
    files = {"predictions": predictions.name, "map": map_file.name}
    show(files | evaluation | {"agreement": agreed, "drift": drifted and drifted.as_json()}, out)
    return say([*notes, *verdict(evaluation, document), *lines, *in_words(agreed, len(rows))])


@app.command()
@of_labelled_columns
def thresholds(
    map_file: MapFile,
    predictions: Labelled,
    target_accuracy: Annotated[float | None, typer.Option(help="Accuracy that automatic rows must have.")] = None,
    coverage: Annotated[str | None, typer.Option(help="Or: share of the rows that is to be automatic.")] = None,
    confidence: Annotated[float, typer.Option(help="Of the guarantee, over draws of such labelled rows.")] = 0.95,
    group: Group = None,
    out: Out = None,
    reading: Reading = AS_NAMED,
) -> list[str]:
    """The cut on reliability for a target accuracy or a coverage, with a distribution-free guarantee."""
    from tasks.maps.thresholds import cut_at_coverage, find_cuts, independent_rows

    if (target_accuracy is None) == (coverage is None):
        raise BadInput("give either --target-accuracy or --coverage")
    check_place(out, map_file, predictions)
    document = load_map(map_file)
    rows, scored, seen, notes = read_to_judge(document, predictions, group=group, reading=reading)
    kept, why = independent_rows(rows, document.source.seed)
    judged, notes = (scored.reliability[kept], rows.decision[kept], rows.correct[kept]), notes + why
    guaranteed = seen != "out_of_fold"
    if not guaranteed:
        notes.append(ESTIMATE)
    if target_accuracy is not None:
        cuts = find_cuts(document, *judged, target=target_accuracy, confidence=confidence)
    else:
        cuts = cut_at_coverage(*judged, coverage=str(coverage), confidence=confidence)
    show({"predictions": predictions.name, "map": map_file.name, "guaranteed": guaranteed, **cuts.as_json()}, out)
    return say([*notes, *cuts.in_words(document.shown_names)])


@app.command()
def sql(
    map_file: MapFile,
    dialect: Annotated[str, typer.Option(help="duckdb, postgres, bigquery or spark.")] = "duckdb",
) -> str:
    """One SQL expression of the columns decision (0..K-1) and confidence (the calibrated one): the reliability."""
    from tasks.maps.sql import sql_expression

    print(expression := sql_expression(load_map(map_file), dialect))
    return expression


if __name__ == "__main__":
    try:
        app()
    except (BadInput, OSError) as error:  # a disk that is full, a folder that may not be written to: it is named
        sys.exit(f"rerank: {printable(str(error))}")
