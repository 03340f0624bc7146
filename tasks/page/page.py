"""The report as one HTML file that asks for nothing: styles, script, charts and their rows stand inside it.

And numbers and records as the sentences, short facts and rows that a person reads there.
"""

import csv
import io
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import polars as pl
from markupsafe import Markup

from relmap.metrics.advice import KEEP, MIXED, UNKNOWN, USE, WORSENS
from relmap.report.figure import FEW_ROWS, MIN_FIT_ROWS, DrawnFigure
from relmap.report.html import render_page, template_environment, vega_script
from tasks.records.results import FAILED, display_name
from tasks.records.store import base_folder
from tasks.tables import TABLES
from tasks.tables.display import shown
from tasks.tables.overview import HEADS

HERE = Path(__file__).parent
ANSWERS = {  # what a group of data sets is told, and in which words
    USE: "Rerank by the reliability on",
    MIXED: "It is mixed on",
    WORSENS: "The reliability is worse, so keep your confidence on",
    KEEP: "Keep your confidence on",
    UNKNOWN: "There is too little to tell on",
}
CONCEPTS_OF_PAGE = ("fixed-decisions", "label-wise-reliability", "intervals", "simulated-and-real-data")
MOST_LISTED = 3  # data sets that are named where the same is said of all
LIBRARIES = ("python", "torch", "polars", "prefect", "dvc", "great-expectations")


class DataSet(NamedTuple):
    """One data set of the page; one that failed has no figures, and says why there are none."""

    name: str
    shown: str  # `wands (simulated)`
    gates: Sequence[Mapping[str, Any]]  # of `gates_of`
    facts: Mapping[str, str] = MappingProxyType({})  # what to know before reading on, by what it is
    figures: Sequence[DrawnFigure] = ()
    advice: str = ""
    remarks: str = ""  # on the advice
    command: str = ""  # that makes a map of its predictions
    failed: str = ""


def html(tables: Mapping[str, pl.DataFrame], data_sets: Sequence[DataSet], **parts: Any) -> str:
    """Return the page as text: `tables` by key, `data_sets`, and what a person reads before and between them.

    That is the `verdict` in words, whose first sentence is the finding, the `headline` figures of all data sets, the
    names of those `simulated`, and the `provenance` by what it is.
    """
    listed = [(table.place, shown(table, tables[key])) for key, table in TABLES.items()]
    return render_page(
        "page.html.jinja",
        **parts,
        folders=(HERE,),
        data_sets=data_sets,
        tables=listed,
        heads=HEADS,
        concepts=CONCEPTS_OF_PAGE,
    )


def dvc_plots_page() -> str:
    """Return the page in which DVC fills in `{plot_divs}`, with Vega inside; DVC's own would load it from a CDN."""
    script = Markup(vega_script())  # noqa: S704 - Vega's own
    return template_environment(HERE).get_template("dvc_plots.html.jinja").render(library=script) + "\n"


def verdict_in_words(overview: pl.DataFrame, headline: str) -> list[str]:
    """Return the finding in one sentence, the answer for each data set, and the evidence.

    Args:
        overview: The table `overview`, with `dataset` as it is displayed.
        headline: Sentences about the intervals, placed last.
    """
    finished = overview.filter(pl.col("source") != FAILED)
    answers = []
    for answer, words in ANSWERS.items():
        names = finished.filter(pl.col("advice").str.starts_with(answer))["dataset"].to_list()
        several = f"{_listed(names)} ({len(names)} of {len(finished)})" if names else ""
        if len(names) == len(finished) > MOST_LISTED:
            several = f"all {len(names)} data sets ({'+'.join(finished['source'].unique(maintain_order=True))})"
        answers += [f"{words} {several}."] if names else []
    failed = overview.filter(source=FAILED)["dataset"].unique(maintain_order=True).to_list()
    holes = [f"What is said here is said without {_listed(failed)}."] if failed else []
    return [finding(finished), *answers, *_gains(finished), *holes, headline]


def finding(finished: pl.DataFrame) -> str:
    """Return the main result in one sentence: on how many data sets the reliability is better.

    Args:
        finished: The rows of the table `overview` that did not fail.
    """
    advised = finished.drop_nulls("advice")
    if advised.is_empty():
        return "No interval was computed, so nothing can be advised."
    better = advised.filter(pl.col("advice").str.starts_with(USE)).height
    sources = advised["source"].unique(maintain_order=True).to_list()
    counted = "1 data set" if len(finished) == 1 else f"{len(finished)} data sets"
    of_sources = f"{counted} ({', '.join(sources)})"
    if not better:
        return f"The reliability is not certain to be better than the confidence on any of {of_sources}."
    return f"The reliability is better than the confidence on {better} of {of_sources}."


def _gains(finished: pl.DataFrame) -> list[str]:
    """On how many sets reviews surely find more, where it helps."""
    helped = finished.filter(pl.col("advice").str.starts_with(USE)).drop_nulls("found_per_1000_mrp")
    certain = int((helped["found_per_1000_low"] > 0).sum())
    if helped.is_empty():
        return []
    return [
        f"On {certain} of these {len(helped)}, 1,000 reviews of the least reliable 30% surely find more errors than by "
        "the confidence; the table says how many. No label and no probability has changed."
    ]


def map_command(dataset: str, labels: Sequence[str]) -> str:
    """Return the command that makes a reliability map of the logits of a data set."""
    csv.writer(named := io.StringIO(), lineterminator="").writerow(labels)
    options = {"predictions": base_folder(dataset) / "logits.parquet", "group": "group", "labels": named.getvalue()}
    given = [f"--{option} {shlex.quote(str(value))}" for option, value in options.items()]
    return f"relmap fit {' '.join(given)} --out {shlex.quote(f'{dataset}.json')}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def facts_in_words(facts: Mapping[str, Any], labels_with_few_rows: Sequence[str] = ()) -> dict[str, str]:
    """Return what to know of a data set before its figures.

    Args:
        facts: Content of its base.json.
        labels_with_few_rows: Labels to mark, since their curves are fitted on few rows.
    """
    rows, groups = facts["rows"], facts["groups"]
    labels = [f"{label} ({FEW_ROWS})" if label in labels_with_few_rows else label for label in facts["labels"]]
    explained = f"; {FEW_ROWS}: fewer than {MIN_FIT_ROWS} projection-fit rows" if labels_with_few_rows else ""
    return {
        "labels": ", ".join(labels) + explained,
        "test rows": f"{rows['test']:,} in {groups['test']:,} groups",
        "validation rows": f"{rows['validation']:,} in {groups['validation']:,} groups",
        "base predictor": f"{facts['predictor']}, class weights: {facts['class_weight']}",
        "accuracy on test rows": f"{facts['accuracy']['test']:.3f}",
    }


def provenance_in_words(
    facts: Sequence[Mapping[str, Any]], *, commit: str, versions: Mapping[str, str]
) -> dict[str, str]:
    """Return where the data and the code of a report come from, by what it is."""
    sources = {}
    for fact in facts:
        origin, preset = fact.get("origin", {}), fact.get("preset")
        parts = [fact["source"], *(origin.get(part) for part in ("origin", "revision", "licence"))]
        parts.append(f"preset {preset}" if preset else "")
        sources[display_name(fact["dataset"], fact["source"])] = "; ".join(str(part) for part in parts if part)
    libraries = ", ".join(f"{name} {versions[name]}" for name in LIBRARIES if name in versions)
    return {"Commit": commit} | sources | {"With": libraries}


def gates_of(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the expectations in records of gates.json, in the order in which they were first asked.

    Each has its `gate`, its `words`, how often it was `asked`, and its `failures`: where, and what was there.
    """
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for check in (check for record in records for check in record["checks"]):
        where = ", ".join(str(value) for value in check["coordinates"].values())
        for expected in check["expectations"]:
            key = gate, words = check["gate"], expected["description"]
            row = rows.setdefault(key, {"gate": gate, "words": words, "asked": 0, "failures": []})
            row["asked"] += 1
            if not expected["success"]:
                row["failures"].append(f"{where}: {expected['found']} (allowed: {expected['allowed']})")
    return list(rows.values())
