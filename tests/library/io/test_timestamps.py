"""Timestamps of files that the library writes."""

import re
from datetime import UTC, datetime

import pytest

from relmap import InputError
from relmap.io import timestamps


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [("0", "1970-01-01T00:00:00+00:00"), ("1700000001", "2023-11-14T22:13:21+00:00"), ("99999999999", "5138-11-16")],
)
def test_the_timestamp_of_the_environment_is_used(epoch, expected, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    assert timestamps.current_timestamp().startswith(expected)


@pytest.mark.parametrize("epoch", [None, ""])
def test_the_current_time_is_used_without_a_timestamp_of_the_environment(epoch, monkeypatch):
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    if epoch is not None:
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    text = timestamps.current_timestamp()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", text)
    assert abs((datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds()) < 60


@pytest.mark.parametrize("epoch", ["-1", "1.5", "today", "100000000000", "12 "])
def test_invalid_timestamps_of_the_environment_are_rejected(epoch, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    with pytest.raises(InputError, match=rf"^SOURCE_DATE_EPOCH .*{re.escape(repr(epoch))}; .*seconds"):
        timestamps.current_timestamp()
