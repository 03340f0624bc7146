"""The study of thresholds with groups runs on few samples."""

import sys

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


def test_every_row_finds_at_least_as_much_as_one_row_of_each_group():
    tallies = measure("correlated in a group", n_groups=150, n_samples=3, n_population=2_000)
    assert tallies["every row"].n_found >= tallies["one row of each group"].n_found
    assert tallies["every row"].n_samples == 3
