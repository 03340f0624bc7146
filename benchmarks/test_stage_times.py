"""The durations of stages are added over data sets."""

from benchmarks.stage_times import summarize_durations
from tasks.records.durations import KINDS, Duration


def test_seconds_are_added_by_stage_and_the_sum_is_last():
    kinds = dict.fromkeys(KINDS, 0.25)
    durations = {"train@a": Duration(1.0, kinds), "train@b": Duration(2.5, kinds), "report": Duration(4.0, kinds)}
    rows = [row[:4] for row in summarize_durations(durations)]
    assert rows == [["train", "2", "3.5", "0.5"], ["report", "1", "4.0", "0.2"], ["all", "3", "7.5", "0.8"]]
