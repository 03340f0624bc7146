"""Pruning: old, unused data are removed; new or used data are kept."""

import os
import time

import pytest

from flows import prune
from flows.prune import SECONDS_PER_DAY, list_old_files, list_old_results
from flows.reliability import record_use

DAYS_AGO = {"new": 1, "old": 40}


def set_age(path, days):
    """Set the modification and access times of a file to a number of days ago."""
    moment = time.time() - days * SECONDS_PER_DAY
    os.utime(path, (moment, moment))


@pytest.fixture
def state(tmp_path, monkeypatch):
    """A folder with a new and an old fit, and new and old explored results."""
    monkeypatch.chdir(tmp_path)
    for name, days in DAYS_AGO.items():
        for file in (tmp_path / "storage" / name, tmp_path / "explored" / name / "metrics.parquet"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"1234")
            set_age(file, days)
    return tmp_path


def file_names(paths):
    return [path.name for path in paths]


def test_files_not_used_since_the_limit_are_old(state):
    before = time.time() - 30 * SECONDS_PER_DAY
    assert file_names(list_old_files(state / "storage", before)) == ["old"]
    assert file_names(list_old_results(state / "explored", before)) == ["old"]
    assert list_old_files(state / "missing", before) == []
    assert list_old_results(state / "missing", before) == []


def test_a_used_fit_is_not_old_and_keeps_its_modification_time(state):
    file = state / "storage/old"
    written = file.stat().st_mtime_ns
    record_use([file, state / "storage/missing"])
    assert list_old_files(state / "storage", time.time() - 30 * SECONDS_PER_DAY) == []
    assert file.stat().st_mtime_ns == written


def test_results_with_one_new_file_are_not_old(state):
    (state / "explored/old/curves.parquet").write_bytes(b"")
    assert list_old_results(state / "explored", time.time() - 30 * SECONDS_PER_DAY) == []


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_dry_run_prints_the_message_and_removes_nothing(state, dry_run):
    message = prune._prune_paths("Stored fits", [state / "storage/old"], dry_run)
    assert message == f"Stored fits: 1 {'would be' if dry_run else 'were'} removed, 0.0 MB."
    assert (state / "storage/old").exists() == dry_run
    assert (state / "storage/new").exists()
