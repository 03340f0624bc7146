"""Prefect flow: the runs of all data sets become tables, figures and a page."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer
from prefect import flow

from flows.engine import alive, progress
from flows.server import server_needed
from relmap.errors import InputError
from tasks.provenance.lock import hold_lock
from tasks.provenance.stage import run_command, run_stage
from tasks.records.store import REPORT, explored_folder
from tasks.report import draw, gather, write_figures, write_page, write_paper_figures, write_table
from tasks.settings.params import load_params
from tasks.tables import TABLES


@flow(flow_run_name="report")
def report(missing: dict[str, str] | None = None, only: list[str] | None = None) -> None:
    """Write `data/report/` from the runs of every data set in params.yaml, or of `only` some, elsewhere.

    Those in `missing` become marked holes, with the reason that stands there.
    """
    params, holes, folder = load_params(), missing or {}, REPORT
    if only:
        params = params.model_copy(update={"datasets": {name: params.dataset(name) for name in only}})
        folder = explored_folder("-".join(["report", *params.datasets]))
    there = [name for name in params.datasets if name not in holes]
    if not there:
        raise InputError("no data set has finished, so there is nothing to report; see the failures above")
    with alive():
        advance = progress("report", len(TABLES) + len(there) + 1, "tables, figures and the page that are made")

        def each(names: Iterable[Any]) -> Iterator[Any]:
            for name in names:
                yield name
                advance()

        runs = gather(params, list(holes))
        tables = {name: write_table(name, runs, folder) for name in each(TABLES)}
        drawn = [draw(name, runs) for name in each(there)]
        write_figures(drawn, folder)
        write_paper_figures(drawn, folder)
        write_page(runs, tables, drawn, holes, folder)
        advance()
    if only:
        print(f"report: {(folder / 'index.html').resolve()}")


def main(
    only: Annotated[
        list[str] | None, typer.Option(help="Only this data set, into a folder of its own; may be repeated.")
    ] = None,
) -> None:
    """The stage `report`: tables, figures and the page of all data sets; of chosen ones, no stage of DVC."""
    with hold_lock("explored@report") if only else run_stage("report"), server_needed():
        report(only=only)


if __name__ == "__main__":
    run_command(main, "report")
