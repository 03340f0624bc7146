"""Prefect flow `report`: write tables, figures and a page from the runs of all data sets."""

from contextlib import AbstractContextManager
from typing import Annotated, TypeVar, cast

import typer
from prefect import flow
from prefect.utilities.annotations import quote

from flows.engine import hold_run_lock, start_progress
from flows.server import ensure_server
from relmap.errors import InputError
from tasks.provenance.lock import hold_lock
from tasks.provenance.stage import run_command, run_stage
from tasks.records.store import REPORT, explored_folder
from tasks.report import draw_figures, load_runs, write_figures, write_page, write_paper_figures, write_table
from tasks.settings.params import load_params
from tasks.tables import TABLES

Content = TypeVar("Content")


@flow(flow_run_name="report")
def report(missing: dict[str, str] | None = None, only: list[str] | None = None) -> None:
    """Write the report from the runs of all data sets.

    Args:
        missing: Data set that failed -> reason. The report marks these data sets as missing.
        only: Data sets to include. The report is then written into a folder of its own.

    Raises:
        InputError: No data set has finished.
    """
    params = load_params()
    reasons = missing or {}
    folder = REPORT
    if only:
        params = params.model_copy(update={"datasets": {name: params.dataset(name) for name in only}})
        folder = explored_folder("-".join(["report", *params.datasets]))
    finished = [name for name in params.datasets if name not in reasons]
    if not finished:
        raise InputError("no data set has finished, so there is nothing to report; see the failures above")
    with hold_run_lock():
        advance = start_progress(
            "report", len(TABLES) + len(finished) + 1, "tables, figures and the page that are written"
        )
        runs = _hide_from_prefect(load_runs(params, list(reasons)))
        tables = {}
        for name in TABLES:
            tables[name] = write_table(name, runs, folder)
            advance()
        figures_of_datasets = []
        for name in finished:
            figures_of_datasets.append(draw_figures(name, runs))
            advance()
        dataset_figures = _hide_from_prefect(figures_of_datasets)
        write_figures(dataset_figures, folder)
        write_paper_figures(dataset_figures, folder)
        write_page(runs, tables, dataset_figures, reasons, folder)
        advance()
    if only:
        print(f"report: {(folder / 'index.html').resolve()}")


def _hide_from_prefect(value: Content) -> Content:
    """Mark an argument that holds no future: Prefect's search for futures takes seconds in large nested results."""
    return cast(Content, quote(value))


def main(
    only: Annotated[
        list[str] | None, typer.Option(help="Report only this data set, in a folder of its own; may be repeated.")
    ] = None,
) -> None:
    """Write tables, figures and the page of all data sets; with --only, outside of DVC."""
    lock_or_stage: AbstractContextManager[object] = hold_lock("explored@report") if only else run_stage("report")
    with lock_or_stage, ensure_server():
        report(only=only)


if __name__ == "__main__":
    run_command(main, "report")
