"""Prefect flow: the runs of all data sets become tables, figures and a page."""

from __future__ import annotations

import polars as pl
from prefect import flow

from flows.alive import alive, server_needed
from flows.progress import progress
from tasks.protocol.errors import BadInput
from tasks.protocol.params import load_params
from tasks.provenance.stage import ended_in_words
from tasks.report import draw, gather, write_figures, write_headline, write_page, write_paper_figures, write_table
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
    steps = len(TABLES) + len(there) + 3
    with alive(), progress("report", steps, "tables, figures and the page that are made") as done:
        runs = gather(params, list(holes))
        tables: dict[str, pl.DataFrame] = {}
        for name in TABLES:
            tables[name] = write_table(name, runs)
            done()
        drawn = []
        for name in there:
            drawn.append(draw(name, runs))
            done()
        write_figures(drawn)
        done()
        write_paper_figures(drawn)
        done()
        write_page(runs, tables, drawn, write_headline(runs), holes)
        done()


def main() -> None:
    """The stage `report`."""
    with server_needed():
        report()


if __name__ == "__main__":
    ended_in_words("report", "report", main)
