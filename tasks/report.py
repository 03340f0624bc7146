"""Prefect tasks: the tables, figures and page of the report, from the runs of every data set."""

from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl
from prefect import task
from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from tasks.calibrators import DRAWN_IN_THE_PAPER
from tasks.figures import drawn_for
from tasks.figures.figure import DrawnFigure, pdf, svg
from tasks.figures.overview import picture
from tasks.figures.results import Results
from tasks.page.page import DataSet, Page, dvc_plots_page, html
from tasks.page.words import facts_in_words, gates_of, provenance_in_words, verdict_in_words
from tasks.protocol import store
from tasks.protocol.params import Params
from tasks.protocol.store import REPORT
from tasks.provenance.checkout import commit
from tasks.provenance.manifest import versions
from tasks.tables import TABLES
from tasks.tables.display import display_name, shown
from tasks.tables.headline import headline, headline_sentence
from tasks.tables.latex import latex
from tasks.tables.runs import FAILED, Runs

SHOWN_ROWS = 200  # of a table in the Prefect UI
FIGURES_FOLDER = REPORT / "figures"
Drawn = list[tuple[Results, list[DrawnFigure]]]  # the figures of each data set, and what they were drawn from


@task(cache_policy=NO_CACHE)
def gather(params: Params, missing: list[str]) -> Runs:
    """Return the results of all data sets, in their order; those in `missing` become marked holes."""
    datasets = [name for name in params.datasets if name not in missing]
    chosen = {name: entry.calibrators for name, entry in params.datasets.items() if entry.calibrators}
    frames = {
        name: pl.concat([store.read_parquet(store.runs_folder(dataset) / f"{name}.parquet") for dataset in datasets])
        for name in ("metrics", "intervals", "rivals", "sensitivity")
    }
    facts = tuple(store.read_json(store.base_folder(dataset) / "base.json") for dataset in datasets)
    return Runs(**frames, facts=facts, missing=tuple(missing), calibrators=params.calibrators, calibrators_of=chosen)


@task(task_run_name="{name}", cache_policy=NO_CACHE)
def write_table(name: str, runs: Runs) -> pl.DataFrame:
    """Write one table as CSV (full precision), Markdown and LaTeX (rounded), and show it in the Prefect UI."""
    frame = TABLES[name](runs)
    table = shown(TABLES[name], frame)
    store.write_whole(REPORT / f"{name}.csv", frame.write_csv)
    store.write_text(REPORT / f"{name}.md", table.markdown())
    store.write_text(REPORT / f"{name}.tex", latex(table, frame.schema))
    cut = f" The first {SHOWN_ROWS} of {table.rows} rows." if table.rows > SHOWN_ROWS else ""
    create_table_artifact(
        [dict(zip(table.columns, row, strict=True)) for row in table.texts[:SHOWN_ROWS]],
        key=name.replace("_", "-"),
        description=f"{table.caption} {table.note}{cut}",
    )
    return frame


@task(cache_policy=NO_CACHE)
def write_headline(runs: Runs) -> str:
    """Write the headline numbers for `dvc metrics`, and write and return the headline in words."""
    sentence = headline_sentence(runs)
    store.write_json(REPORT / "metrics.json", headline(runs))
    store.write_text(REPORT / "headline.txt", f"{sentence}\n")
    return sentence


@task(task_run_name="draw/{dataset}", cache_policy=NO_CACHE)
def draw(dataset: str, runs: Runs) -> tuple[Results, list[DrawnFigure]]:
    """Return the figures of one data set, and what they were drawn from."""
    folder, facts = store.runs_folder(dataset), next(fact for fact in runs.facts if fact["dataset"] == dataset)
    results = Results(
        name=dataset,
        shown=display_name(dataset, facts["source"]),
        labels=tuple(facts["labels"]),
        scores=store.read_parquet(folder / "scores.parquet"),
        lattices=store.read_json(folder / "curves.json")["lattices"],
        metrics=runs.metrics.filter(dataset=dataset),
        rivals=runs.rivals.filter(dataset=dataset),
        simplex=store.read_parquet(folder / "simplex.parquet"),
        test_rows=facts["rows"]["test"],
    )
    return results, drawn_for("data set", results)


@task(cache_policy=NO_CACHE)
def write_figures(drawn: Drawn) -> None:
    """Write the rows behind each figure, of all data sets together, as CSV, and what `dvc plots` shows them in."""
    rows: dict[str, list[pl.DataFrame]] = defaultdict(list)
    for results, figures in drawn:
        for figure in figures:
            rows[figure.key].append(figure.rows.select(pl.lit(results.shown).alias("dataset"), pl.all()))
    for name, frames in rows.items():
        store.write_whole(FIGURES_FOLDER / f"{name}.csv", pl.concat(frames).write_csv)
    store.write_text(FIGURES_FOLDER / "dvc_plots.html", dvc_plots_page())


@task(cache_policy=NO_CACHE)
def write_paper_figures(drawn: Drawn) -> None:
    """Write the paper's three figures from our data, each as SVG and PDF, and their captions."""
    figures = drawn_for("paper", [replace(results, drawn_under=DRAWN_IN_THE_PAPER) for results, _ in drawn])
    store.write_text(
        FIGURES_FOLDER / "captions.md", "".join(f"**{figure.key}** {figure.caption}\n\n" for figure in figures)
    )
    for figure in figures:
        store.write_text(FIGURES_FOLDER / f"{figure.key}.svg", svg(figure.spec))
        store.write_whole(FIGURES_FOLDER / f"{figure.key}.pdf", partial(Path.write_bytes, data=pdf(figure.spec)))


@task(cache_policy=NO_CACHE)
def write_page(
    runs: Runs, tables: dict[str, pl.DataFrame], drawn: Drawn, sentence: str, reasons: dict[str, str]
) -> None:
    """Write `index.html`, and link it; `reasons` say why each data set that is missing has failed."""
    names = [display_name(*row) for row in tables["overview"].select("dataset", "source").iter_rows()]
    first = tables["overview"].with_columns(dataset=pl.Series(names, dtype=pl.String))
    headline_figures = drawn_for("all data sets", first)
    for figure in headline_figures:
        store.write_whole(FIGURES_FOLDER / f"{figure.key}.csv", figure.rows.write_csv)
    store.write_text(FIGURES_FOLDER / "overview.svg", svg(picture(first)))
    advice = dict(first.select("dataset", "advice").iter_rows())
    facts = {fact["dataset"]: fact for fact in runs.facts}
    data_sets = []
    for results, figures in drawn:
        folder, answer = store.runs_folder(results.name), advice.get(results.shown) or ""
        contract = store.base_folder(results.name) / "contract.json"  # of official files
        records = [store.read_json(contract)] if contract.exists() else []
        gates = gates_of(records + store.read_json(folder / "gates.json")["gates"])
        of_base = facts_in_words(facts[results.name])
        data_sets.append(DataSet(results.name, results.shown, gates, answer, of_base, figures))
    for name in runs.missing:
        kept = store.failed_gates_file(name)
        gates = gates_of(store.read_json(kept)["gates"] if kept.exists() else [])
        data_sets.append(DataSet(name, display_name(name, FAILED), gates, failed=reasons.get(name, "")))
    page = Page(
        verdict=verdict_in_words(first, sentence),
        simulated=[results.shown for results, _ in drawn if facts[results.name]["source"] == "simulated"],
        headline=headline_figures,
        tables=tables,
        data_sets=data_sets,
        provenance=provenance_in_words(runs.facts, commit=commit(), versions=versions()),
    )
    place = REPORT / "index.html"
    store.write_text(place, html(page))
    create_link_artifact(place.resolve().as_uri(), link_text=str(place), key="report", description="the report")
