"""Prefect tasks: the tables, figures and page of the report, from the runs of every data set."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl
from prefect import task
from prefect.artifacts import create_link_artifact, create_table_artifact

from relmap.calibrators.registry import PAPER_FIGURE_CALIBRATOR
from relmap.io.atomic import write_atomically, write_json, write_text
from relmap.report.figure import DrawnFigure, Results, pdf, svg
from tasks.figures import drawn_for
from tasks.figures.overview import picture
from tasks.page import page
from tasks.provenance import checkout, manifest
from tasks.records import store
from tasks.records.results import FAILED, display_name
from tasks.records.store import REPORT, read_json, read_parquet
from tasks.settings.params import Params
from tasks.tables import TABLES, overview
from tasks.tables.display import latex, shown
from tasks.tables.runs import Runs

SHOWN_ROWS = 200  # of a table in the Prefect UI
Drawn = list[tuple[Results, list[DrawnFigure]]]  # the figures of each data set, and what they were drawn from


@task
def gather(params: Params, missing: list[str]) -> Runs:
    """Return the results of all data sets, in their order; those in `missing` become marked holes."""
    datasets = [name for name in params.datasets if name not in missing]
    chosen = {name: entry.calibrators for name, entry in params.datasets.items() if entry.calibrators}
    frames = {
        name: pl.concat([read_parquet(store.runs_folder(dataset) / f"{name}.parquet") for dataset in datasets])
        for name in ("metrics", "intervals", "rivals", "sensitivity")
    }
    facts = tuple(read_json(store.base_folder(dataset) / "base.json") for dataset in datasets)
    return Runs(
        **frames,
        facts=facts,
        missing=tuple(missing),
        calibrators=params.calibrators,
        calibrators_of=chosen,
        smallest_relevant_change=params.metrics.smallest_relevant_change,
    )


@task(task_run_name="{name}")
def write_table(name: str, runs: Runs, folder: Path = REPORT) -> pl.DataFrame:
    """Write one table as CSV (full precision), Markdown and LaTeX (rounded), and show it in the Prefect UI."""
    frame = TABLES[name](runs)
    table = shown(TABLES[name], frame)
    write_atomically(folder / f"{name}.csv", frame.write_csv)
    for ending, text in (("md", table.markdown()), ("tex", latex(table, frame.schema))):
        write_text(folder / f"{name}.{ending}", text)
    cut = f" The first {SHOWN_ROWS} of {table.rows} rows." if table.rows > SHOWN_ROWS else ""
    create_table_artifact(
        [dict(zip(table.columns, row, strict=True)) for row in table.texts[:SHOWN_ROWS]],
        key=name.replace("_", "-"),
        description=f"{table.caption} {table.note}{cut}",
    )
    return frame


@task(task_run_name="draw/{dataset}")
def draw(dataset: str, runs: Runs) -> tuple[Results, list[DrawnFigure]]:
    """Return the figures of one data set, and what they were drawn from."""
    folder, facts = store.runs_folder(dataset), next(fact for fact in runs.facts if fact["dataset"] == dataset)
    results = Results(
        name=dataset,
        shown=display_name(dataset, facts["source"]),
        labels=tuple(facts["labels"]),
        scores=read_parquet(folder / "scores.parquet"),
        lattices=read_json(folder / "curves.json")["lattices"],
        metrics=runs.metrics.filter(dataset=dataset),
        rivals=runs.rivals.filter(dataset=dataset),
        simplex=read_parquet(folder / "simplex.parquet"),
        test_rows=facts["rows"]["test"],
    )
    return results, drawn_for("data set", results)


@task
def write_figures(drawn: Drawn, folder: Path = REPORT) -> None:
    """Write the rows behind each figure, of all data sets together, as CSV, and what `dvc plots` shows them in."""
    every = [(results.shown, figure) for results, figures in drawn for figure in figures]
    for key in dict.fromkeys(figure.key for _, figure in every):
        mine = [(shown, figure.rows) for shown, figure in every if figure.key == key]
        named = [rows.select(pl.lit(shown).alias("dataset"), pl.all()) for shown, rows in mine]
        write_atomically(folder / f"figures/{key}.csv", pl.concat(named).write_csv)
    write_text(folder / "figures/dvc_plots.html", page.dvc_plots_page())


@task
def write_paper_figures(drawn: Drawn, folder: Path = REPORT) -> None:
    """Write the paper's three figures from our data, each as SVG and PDF, and their captions."""
    figures = drawn_for("paper", [replace(results, drawn_under=PAPER_FIGURE_CALIBRATOR) for results, _ in drawn])
    place = folder / "figures"
    write_text(place / "captions.md", "".join(f"**{figure.key}** {figure.caption}\n\n" for figure in figures))
    for figure in figures:
        write_text(place / f"{figure.key}.svg", svg(figure.spec))
        write_atomically(place / f"{figure.key}.pdf", partial(Path.write_bytes, data=pdf(figure.spec)))


@task
def write_page(
    runs: Runs, tables: dict[str, pl.DataFrame], drawn: Drawn, reasons: dict[str, str], folder: Path = REPORT
) -> None:
    """Write `index.html` and link it, and the headline, in words and in numbers for `dvc metrics`.

    `reasons` say why each data set that is missing has failed.
    """
    sentence = overview.headline_sentence(runs)
    write_json(folder / "metrics.json", overview.headline(runs))
    write_text(folder / "headline.txt", f"{sentence}\n")
    names = [display_name(*row) for row in tables["overview"].select("dataset", "source").iter_rows()]
    first = tables["overview"].with_columns(dataset=pl.Series(names, dtype=pl.String))
    headline_figures = drawn_for("all data sets", first)
    for figure in headline_figures:
        write_atomically(folder / f"figures/{figure.key}.csv", figure.rows.write_csv)
    write_text(folder / "figures/overview.svg", svg(picture(first)))
    words = {row["dataset"]: row for row in first.to_dicts()}
    data_sets, simulated = [], []
    for facts, (results, figures) in zip(runs.facts, drawn, strict=True):
        said, contract = words.get(results.shown, {}), store.base_folder(results.name) / "contract.json"
        gates = [read_json(contract)] if contract.exists() else []  # of official files
        gates += read_json(store.runs_folder(results.name) / "gates.json")["gates"]
        answers = said.get("advice") or "", said.get("remarks") or "", page.map_command(results.name, results.labels)
        described = page.facts_in_words(facts, results.labels_with_few_rows), figures, *answers
        data_sets.append(page.DataSet(results.name, results.shown, page.gates_of(gates), *described))
        simulated += [results.shown] if facts["source"] == "simulated" else []
    for name in runs.missing:
        kept = store.failed_gates_file(name)
        gates = page.gates_of(read_json(kept)["gates"] if kept.exists() else [])
        data_sets.append(page.DataSet(name, display_name(name, FAILED), gates, failed=reasons.get(name, "")))
    text = page.html(
        tables,
        data_sets,
        headline=headline_figures,
        verdict=page.verdict_in_words(first, sentence),
        simulated=simulated,
        provenance=page.provenance_in_words(
            runs.facts, commit=checkout.describe_commit(), versions=manifest.library_versions()
        ),
    )
    place = folder / "index.html"
    write_text(place, text)
    create_link_artifact(place.resolve().as_uri(), link_text=str(place), key="report", description="the report")
