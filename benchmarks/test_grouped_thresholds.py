"""The study of thresholds with groups runs, and keeps its guarantee, on few samples."""

import sys

import pytest

from benchmarks.grouped_thresholds import COLUMNS, SIMULATIONS, main, measure, read_records


def test_the_command_writes_a_record(tmp_path, monkeypatch):
    out = tmp_path / "results.json"
    options = {"--samples": 1, "--groups": 20, "--population": 500, "--out": out}
    arguments = [str(part) for option in options.items() for part in option]
    monkeypatch.setattr(sys, "argv", ["grouped_thresholds", *arguments])
    main()
    record = read_records(out)["grouped-thresholds"]
    assert record.columns == COLUMNS
    assert [row[0] for row in record.rows] == [name for name in SIMULATIONS for _ in range(2)]
    assert record.values["samples"] == "1"


@pytest.mark.parametrize("name", ["correlated in a group", "accuracy just below the target"])
def test_every_row_finds_at_least_as_much_and_misses_no_more_than_stated(name):
    tallies = measure(name, n_groups=150, n_samples=6, n_population=5_000)
    every_row = tallies["every row"]
    assert every_row.n_found >= tallies["one row of each group"].n_found
    assert max(every_row.n_missed_by_rows, every_row.n_missed_by_groups) <= 2
