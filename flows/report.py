"""Prefect flow: the runs of all data sets become tables, figures and a page."""

from collections.abc import Iterable, Iterator
from typing import Any

from prefect import flow

from flows.engine import alive, progress
from flows.server import server_needed
from tasks.protocol.errors import BadInput
from tasks.protocol.params import load_params
from tasks.provenance.stage import command, stage_run
from tasks.report import draw, gather, write_figures, write_page, write_paper_figures, write_table
from tasks.tables import TABLES


@flow(flow_run_name="report")
def report(missing: dict[str, str] | None = None) -> None:
    """Write `data/report/` from the runs of every data set in params.yaml.

    Those in `missing` become marked holes, with the reason that stands there.
    """
    params, holes = load_params(), missing or {}
    there = [name for name in params.datasets if name not in holes]
    if not there:
        raise BadInput("no data set has finished, so there is nothing to report; see the failures above")
    with alive():
        advance = progress("report", len(TABLES) + len(there) + 3, "tables, figures and the page that are made")

        def each(names: Iterable[Any]) -> Iterator[Any]:
            for name in names:
                yield name
                advance()

        runs = gather(params, list(holes))
        tables = {name: write_table(name, runs) for name in each(TABLES)}
        drawn = [draw(name, runs) for name in each(there)]
        for write in each((write_figures, write_paper_figures)):
            write(drawn)
        write_page(runs, tables, drawn, holes)
        advance()


def main() -> None:
    """The stage `report`: tables, figures and the page of all data sets."""
    with stage_run("report"), server_needed():
        report()


if __name__ == "__main__":
    command(main, "report")
