"""The measurement of `apply` by rows runs with few rows."""

import sys

from benchmarks import apply_by_rows


def test_the_command_writes_a_record(tmp_path, monkeypatch):
    out = tmp_path / "results.json"
    options = ("--millions", "1", "3", "--block-rows", "200", "--folder", str(tmp_path), "--out", str(out))
    monkeypatch.setattr(sys, "argv", ["apply_by_rows", *options])
    apply_by_rows.main()
    record = apply_by_rows.read_records(out)["apply-by-rows"]
    assert record.columns == apply_by_rows.COLUMNS
    assert [row[0] for row in record.rows] == ["200", "600"]
    assert record.values["rows-last"] == "600"
    assert float(record.values["sql"]) > 0
    assert list(tmp_path.iterdir()) == [out]
