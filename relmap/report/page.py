"""The page of one's own predictions: what to do first, then the figures and tables that it rests on, in one file."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from relmap.api import Answer, Judged, Recommendation
from relmap.evaluation.agreement import format_share
from relmap.io.columns import join_names
from relmap.io.reading import DEFAULT_READING, Reading
from relmap.maps.map_file import describe_map
from relmap.projection.variants import VARIANTS
from relmap.report.curves import reliability_by_label
from relmap.report.figure import DrawnFigure
from relmap.report.html import rendered, script
from relmap.report.plot import results_of
from relmap.report.ranking import errors_found, risk_coverage
from relmap.report.threshold_explorer import ThresholdExplorer
from relmap.routing.apply import default_threshold

OF_LABELS = ("label", "id", "drop_unlabelled")  # options of commands that read labels
TARGETS = (0.8, 0.9, 0.95, 0.99)  # accuracies for which a cut is looked for
CONCEPTS_OF_PAGE = ("fixed-decisions", "label-wise-reliability", "auto", "guarantees", "intervals")
Numbers = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A table as people read it."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: list[list[str]]
    concept: str = ""  # name of the concept that it uses


@dataclass(frozen=True)
class ExplorerSection:
    """The interactive part of the page.

    Attributes:
        content: JSON of the results at thresholds.
        rows: The rows that they are estimated from, in words.
        notes: What to know about the rows.
        command_before: The command that validates a threshold, up to the threshold.
        command_after: The rest of the command.
    """

    content: Markup
    rows: str
    notes: list[str]
    command_before: str
    command_after: str


def page(judged: Judged, recommended: Recommendation, map_file: Path, reading: Reading) -> str:
    """The page as text: what `recommended` a map, how it does on rows that it has not seen, and how it is applied.

    Args:
        judged: labelled rows, those of the fit or others.
        recommended: what the fit said.
        map_file: where the map is.
        reading: how the columns of the rows are understood, as those of the next ones will be.
    """
    document, evaluation = judged.document, judged.evaluation()
    cuts = {target: judged.cuts(target_accuracy=target) for target in TARGETS}
    numbers, source, verdict = evaluation.to_dict(), document.source, _sentences(evaluation)
    beware = [note for note in cuts[TARGETS[0]].notes if note not in judged.notes]
    of_groups = f" in {numbers['groups']:,} groups" if numbers["grouped"] else ""
    labels = _of_labels(numbers["labels"], numbers["agreement"]["labels"])
    tables = [
        Table("Cuts", " ".join([CUTS, *beware]), *_of_cuts(cuts), concept="guarantees"),
        Table("The most reliable rows", TOP, *_of_top(numbers["top"]), concept="intervals"),
        Table("Label by label", LABELS, *labels, concept="label-wise-reliability"),
        Table("What was chosen from", CANDIDATES, *_of_candidates(recommended.to_dict()), concept="auto"),
    ]
    return rendered(
        "map.html.jinja",
        name=source.file,
        recommended=[sentence for sentence in _sentences(recommended) if sentence not in verdict],
        verdict=verdict,
        notes=evaluation.notes,
        command=f"relmap apply --map {shlex.quote(str(map_file))} --predictions new.parquet"
        f" --out scored.parquet{_options(reading)}",
        map=map_file.name,
        explorer=_explorer_section(judged, map_file, reading),
        explorer_script=script("threshold_explorer.js"),
        concepts=CONCEPTS_OF_PAGE,
        figures=_figures(judged),
        tables=[table for table in tables if table.rows],
        facts={
            "labels": ", ".join(document.shown_names),
            "rows that are judged": f"{numbers['rows']:,}{of_groups}",
            "correct decisions": _share(numbers["accuracy"]),
            "the map": describe_map(document),
            "predictions": f"{source.file}, SHA-256 {source.sha256}",
            "fitted": source.at,
            "with": ", ".join(f"{name} {version}" for name, version in source.versions.items()),
        },
    )


CUTS = "Each is looked for by itself. The command above takes one with --cut."
TOP = "Difference: mean reliability minus the share that is correct. Positive: the map overstates these rows."
LABELS = "How often each decision is right, and how often it is said to be, on the mean; of the true ones, how many."
CANDIDATES = "Log loss of the probability of a correct decision, on rows that the fit had not seen."


def _options(reading: Reading, *, labelled: bool = False) -> str:
    """Write the options that read the columns of another file in the same way; those of labels if it is `labelled`."""
    text = ""
    for name, value in vars(reading).items():
        if value == getattr(DEFAULT_READING, name) or (name in OF_LABELS and not labelled):
            continue
        text += f" --{name.replace('_', '-')}"
        if value is not True:
            text += f" {shlex.quote(str(value))}"
    return text


def _explorer_section(judged: Judged, map_file: Path, reading: Reading) -> ExplorerSection:
    """Aggregate the rows at thresholds, and write the command that validates one of them."""
    names, decisions = judged.document.shown_names, judged.decisions
    explorer = ThresholdExplorer.of(decisions, default_threshold(judged.document))
    decided = {results.label for results in explorer.labels}
    never_decided = [name for label, name in enumerate(names) if label not in decided]
    notes = []
    if never_decided:
        notes.append(f"No decision in these rows is {join_names(never_decided)}.")
    if explorer.weighted:
        notes.append(
            "Shares, accuracies and costs count each row by its sampling weight. Rows to review are labelled rows."
        )
    grouped = f" in {decisions.n_clusters:,} groups" if judged.rows.group is not None else ""
    map_option = f"--map {shlex.quote(str(map_file))}"
    return ExplorerSection(
        content=Markup(explorer.to_json(names)),  # noqa: S704 - it has no `<`, so it cannot end the script
        rows=f"{len(judged.rows):,} labelled rows{grouped}",
        notes=notes,
        command_before=f"relmap thresholds {map_option} --predictions other_labelled.parquet --cut ",
        command_after=_options(reading, labelled=True),
    )


def _sentences(answer: Answer) -> list[str]:
    """The lines of an answer without those of its tables, which the page has as such."""
    return [line for line in answer.lines if not line.startswith(" ") and not line.endswith(":")]


def _figures(judged: Judged) -> Iterator[DrawnFigure]:
    """None where rows were drawn with unequal chances, which the figures cannot weigh."""
    if judged.rows.weight is not None:
        return
    results = results_of(judged)
    for figure in (reliability_by_label, risk_coverage, *([errors_found] if results.variant != "confidence" else [])):
        if made := figure(results):
            yield made


def _of_candidates(said: Numbers) -> tuple[tuple[str, ...], list[list[str]]]:
    def row(candidate: Numbers) -> list[str]:
        gain, low, high = (0 - candidate[name] for name in ("change", "high", "low"))
        chosen = "this one" if candidate["variant"] == said["variant"] else ""
        shown = VARIANTS[candidate["variant"]].description
        return [shown, f"{candidate['nll_correct']:.4f}", f"{gain:+z.4f}", f"{low:+z.4f} to {high:+z.4f}", chosen]

    return ("candidate", "log loss", "gain", "95% interval", "taken"), [row(each) for each in said["candidates"]]


def _of_cuts(cuts: dict[float, Any]) -> tuple[tuple[str, ...], list[list[str]]]:
    def row(target: float, overall: Numbers) -> list[str]:
        if overall["cut"] is None:
            return [f"{target:.0%}", "none", "", "", overall["why"]]
        numbers = str(overall["cut"]), f"{overall['coverage']:.1%}", f"{overall['accuracy']:.1%}"
        return [f"{target:.0%}", *numbers, f"{overall['automatic']:,} of {overall['rows']:,} labelled rows"]

    columns = "accuracy that is wanted", "least reliability", "automatic", "of them correct here", "seen on"
    return columns, [row(target, cut.numbers["overall"]) for target, cut in cuts.items()]


def _of_top(top: list[Numbers]) -> tuple[tuple[str, ...], list[list[str]]]:
    def row(found: Numbers) -> list[str]:
        interval = "" if found["low"] is None else f"{found['low']:+z.3f} to {found['high']:+z.3f}"
        means = f"{found['predicted']:.3f}", f"{found['correct']:.3f}", f"{found['gap']:+z.3f}"
        return [f"{found['share']:.0%}", f"{found['rows']:,}", *means, interval, "yes" if found["off"] else "no"]

    columns = "most reliable", "rows", "mean reliability", "correct", "difference", "95% interval", "more than chance"
    return columns, [row(found) for found in top]


def _of_labels(labels: list[Numbers], agreed: list[Numbers]) -> tuple[tuple[str, ...], list[list[str]]]:
    columns = "label", "decisions", "confidence", "reliability", "correct", "of its rows found"
    return columns, [
        [
            label["name"],
            f"{label['rows']:,}",
            *("" if label[by] is None else f"{label[by]:.1%}" for by in ("mean_confidence", "mean_reliability")),
            _share(label["correct"]),
            _share(whole["recall"]),
        ]
        for label, whole in zip(labels, agreed, strict=True)
    ]


def _share(number: Numbers) -> str:
    return "" if number["value"] is None else format_share(number)
