"""Prefect tasks: write the tables, figures and page of the report from the results of all data sets."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from prefect import task
from prefect.artifacts import create_link_artifact, create_table_artifact

from relmap.calibrators.registry import PAPER_FIGURE_CALIBRATOR
from relmap.io.atomic import write_atomically, write_json, write_text
from relmap.io.output import map_in_order
from relmap.report.figure import DrawnFigure, Results, pdf, svg
from tasks.figures import draw_all
from tasks.figures.overview import overview_picture
from tasks.page import page
from tasks.provenance import checkout, dvc_stages, versions
from tasks.records import store
from tasks.records.durations import measured
from tasks.records.store import REPORT, read_json, read_parquet
from tasks.results.comparison import compare_dataset, describe_change
from tasks.results.values import FAILED, display_name
from tasks.settings.params import Params
from tasks.tables import TABLES
from tasks.tables.display import format_table, render_latex
from tasks.tables.overview import compute_headline, describe_headline
from tasks.tables.runs import Runs

MAX_ARTIFACT_ROWS = 200  # of a table in the Prefect UI
PDF_PROCESSES = 2  # each PDF is rendered in a process of its own
DatasetFigures = list[tuple[Results, list[DrawnFigure]]]  # results of each data set, and its figures


@task
@measured("read")
def load_runs(params: Params, missing: list[str]) -> Runs:
    """Load the results of all data sets.

    Args:
        params: Settings.
        missing: Data sets that failed.

    Returns:
        Results in the order of params.yaml.
    """
    datasets = [name for name in params.datasets if name not in missing]

    def concatenate(name: str) -> pl.DataFrame:
        return pl.concat([read_parquet(store.runs_folder(dataset) / f"{name}.parquet") for dataset in datasets])

    return Runs(
        metrics=concatenate("metrics"),
        intervals=concatenate("intervals"),
        rivals=concatenate("rivals"),
        sensitivity=concatenate("sensitivity"),
        facts=tuple(read_json(store.base_folder(dataset) / "base.json") for dataset in datasets),
        missing=tuple(missing),
        calibrators=params.calibrators,
        calibrators_by_dataset={
            name: entry.calibrators for name, entry in params.datasets.items() if entry.calibrators
        },
    )


@task(task_run_name="{name}")
@measured("write")
def write_table(name: str, runs: Runs, folder: Path = REPORT) -> pl.DataFrame:
    """Write one table as CSV (full precision), Markdown and LaTeX (rounded), and show it in the Prefect UI.

    Args:
        name: Key of the table.
        runs: Results of all data sets.
        folder: Folder of the report.

    Returns:
        Rows of the table.
    """
    frame = TABLES[name](runs)
    formatted = format_table(TABLES[name], frame)
    write_atomically(folder / f"{name}.csv", frame.write_csv)
    write_text(folder / f"{name}.md", formatted.markdown())
    write_text(folder / f"{name}.tex", render_latex(formatted, frame.schema))
    description = f"{formatted.caption} {formatted.note}"
    if formatted.n_rows > MAX_ARTIFACT_ROWS:
        description += f" The first {MAX_ARTIFACT_ROWS} of {formatted.n_rows} rows."
    create_table_artifact(
        [dict(zip(formatted.columns, row, strict=True)) for row in formatted.texts[:MAX_ARTIFACT_ROWS]],
        key=name.replace("_", "-"),
        description=description,
    )
    return frame


@task(task_run_name="draw/{dataset}")
@measured("write")
def draw_figures(dataset: str, runs: Runs) -> tuple[Results, list[DrawnFigure]]:
    """Draw the figures of one data set.

    Args:
        dataset: Key of the data set.
        runs: Results of all data sets.

    Returns:
        Results of the data set, and the figures.
    """
    folder = store.runs_folder(dataset)
    facts = next(fact for fact in runs.facts if fact["dataset"] == dataset)
    results = Results(
        name=dataset,
        display_name=display_name(dataset, facts["source"]),
        labels=tuple(facts["labels"]),
        scores=read_parquet(folder / "scores.parquet"),
        lattices=read_json(folder / "curves.json")["lattices"],
        metrics=runs.metrics.filter(dataset=dataset),
        rivals=runs.rivals.filter(dataset=dataset),
        simplex=read_parquet(folder / "simplex.parquet"),
        test_rows=facts["rows"]["test"],
    )
    return results, mark_simulated(draw_all("data set", results), [results])


def mark_simulated(figures: Sequence[DrawnFigure], all_results: Sequence[Results]) -> list[DrawnFigure]:
    """Name the simulated data sets in the caption of each figure.

    Args:
        figures: Figures.
        all_results: Results of the data sets in the figures.

    Returns:
        The figures, with a longer caption if a data set is simulated.
    """
    simulated = [results.name for results in all_results if "simulated" in results.display_name]
    if not simulated:
        return list(figures)
    remark = f"Simulated: {', '.join(simulated)}."
    return [figure._replace(caption=f"{figure.caption} {remark}") for figure in figures]


@task
@measured("write")
def write_figures(dataset_figures: DatasetFigures, folder: Path = REPORT) -> None:
    """Write the data of each figure as CSV, for all data sets together, and the page template of `dvc plots`.

    Args:
        dataset_figures: Results and figures of each data set.
        folder: Folder of the report.
    """
    rows_by_key: dict[str, list[pl.DataFrame]] = {}
    for results, figures in dataset_figures:
        for figure in figures:
            rows = figure.rows.select(pl.lit(results.display_name).alias("dataset"), pl.all())
            rows_by_key.setdefault(figure.key, []).append(rows)
    for key, frames in rows_by_key.items():
        write_atomically(folder / f"figures/{key}.csv", pl.concat(frames).write_csv)
    write_text(folder / "figures/dvc_plots.html", page.render_dvc_plots_page())


@task
@measured("write")
def write_paper_figures(dataset_figures: DatasetFigures, folder: Path = REPORT) -> None:
    """Write the three figures of the paper from this run as SVG and PDF, and their captions.

    Args:
        dataset_figures: Results and figures of each data set.
        folder: Folder of the report.
    """
    all_results = [replace(results, preferred_calibrator=PAPER_FIGURE_CALIBRATOR) for results, _ in dataset_figures]
    figures = mark_simulated(draw_all("paper", all_results), all_results)
    figure_folder = folder / "figures"
    captions = [f"**{figure.key}** {figure.caption}\n\n" for figure in figures]
    write_text(figure_folder / "captions.md", "".join(captions))
    pdfs = map_in_order(pdf, [figure.spec for figure in figures], threads=PDF_PROCESSES)
    for figure, content in zip(figures, pdfs, strict=True):
        write_text(figure_folder / f"{figure.key}.svg", svg(figure.spec))
        write_atomically(figure_folder / f"{figure.key}.pdf", partial(Path.write_bytes, data=content))


@task
@measured("write")
def write_page(
    runs: Runs,
    tables: dict[str, pl.DataFrame],
    dataset_figures: DatasetFigures,
    reasons: dict[str, str],
    folder: Path = REPORT,
) -> None:
    """Write the page `index.html` and a link to it, and the headline as text and as numbers for `dvc metrics`.

    Args:
        runs: Results of all data sets.
        tables: Rows of each table.
        dataset_figures: Results and figures of each data set.
        reasons: Data set that failed -> reason.
        folder: Folder of the report.
    """
    headline = describe_headline(runs)
    write_json(folder / "metrics.json", compute_headline(runs))
    write_text(folder / "headline.txt", f"{headline}\n")
    names = [display_name(*row) for row in tables["overview"].select("dataset", "source").iter_rows()]
    overview = tables["overview"].with_columns(dataset=pl.Series(names, dtype=pl.String))
    overview_figures = mark_simulated(draw_all("all data sets", overview), [results for results, _ in dataset_figures])
    for figure in overview_figures:
        write_atomically(folder / f"figures/{figure.key}.csv", figure.rows.write_csv)
    write_text(folder / "figures/overview.svg", svg(overview_picture(overview)))
    text = page.render_report(
        tables,
        _dataset_sections(runs, overview, dataset_figures, reasons),
        summary=page.summarize_overview(overview, headline),
        overview_figures=overview_figures,
        simulated=[
            results.display_name
            for facts, (results, _) in zip(runs.facts, dataset_figures, strict=True)
            if facts["source"] == "simulated"
        ],
        provenance=page.describe_provenance(
            runs.facts,
            commit=checkout.describe_commit(),
            digests=dvc_stages.read_recorded_digests(),
            versions=versions.library_versions(),
        ),
    )
    path = folder / "index.html"
    write_text(path, text)
    create_link_artifact(path.resolve().as_uri(), link_text=str(path), key="report", description="the report")


def _dataset_sections(
    runs: Runs, overview: pl.DataFrame, dataset_figures: DatasetFigures, reasons: Mapping[str, str]
) -> list[page.DatasetSection]:
    """Return the section of each data set of the page, failed ones last."""
    overview_rows = {row["dataset"]: row for row in overview.to_dicts()}
    sections = []
    for facts, (results, figures) in zip(runs.facts, dataset_figures, strict=True):
        overview_row = overview_rows.get(results.display_name)  # the robustness check has none
        comparison = compare_dataset(overview_row) if overview_row else None
        sections.append(
            page.DatasetSection(
                name=results.name,
                title=results.display_name,
                gates=page.summarize_gates(_read_gate_records(results.name)),
                facts=page.describe_facts(facts, results.labels_with_few_rows),
                figures=figures,
                comparison=describe_change(comparison, facts["rows"]["test"]) if comparison else "",
                remarks=overview_row["remarks"] if overview_row else "",
                command=page.map_command(results.name, results.labels),
            )
        )
    for name in runs.missing:
        gates_file = store.failed_gates_file(name)
        gate_records = read_json(gates_file)["gates"] if gates_file.exists() else []
        sections.append(
            page.DatasetSection(
                name=name,
                title=display_name(name, FAILED),
                gates=page.summarize_gates(gate_records),
                failure=reasons.get(name, ""),
            )
        )
    return sections


def _read_gate_records(dataset: str) -> Sequence[Mapping[str, Any]]:
    """Read the records of the gates of a data set. If there is a record of the contract, it comes first."""
    contract_file = store.base_folder(dataset) / "contract.json"
    records = [read_json(contract_file)] if contract_file.exists() else []
    return [*records, *read_json(store.runs_folder(dataset) / "gates.json")["gates"]]
