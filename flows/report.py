"""Prefect flow: the runs of all data sets become tables."""

from __future__ import annotations

from prefect import flow

from flows.alive import alive, server_needed
from tasks.protocol.errors import BadInput
from tasks.protocol.params import load_params
from tasks.provenance.stage import ended_in_words
from tasks.report import gather, write_headline, write_table
from tasks.tables import TABLES


@flow(flow_run_name="report")
def report(missing: list[str] | None = None) -> None:
    """Write `data/report/` from the runs of every data set in params.yaml; those in `missing` become marked holes."""
    params = load_params()
    there = [name for name in params.datasets if name not in (missing or [])]
    if not there:
        raise BadInput("no data set has finished, so there is nothing to report; see the failures above")
    with alive():
        runs = gather(there, missing or [], params.calibrators)
        for name in TABLES:
            write_table(name, runs)
        write_headline(runs)


def main() -> None:
    """The stage `report`."""
    with server_needed():
        report()


if __name__ == "__main__":
    ended_in_words("report", "report", main)
