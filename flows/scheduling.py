"""Order of data sets in a refresh: the longest first.

If the longest one started last, the other processes of DVC would have nothing to do while it runs.
"""

from tasks.provenance.stage import read_record
from tasks.settings.dataset_params import DatasetParams
from tasks.settings.params import Params

STAGES = ("download", "train", "reliability")
# For data sets without an earlier run. On two cores, 1,000 rows take about one second, and boosted trees three seconds.
SECONDS_PER_ROW = {"linear": 0.001, "boosted": 0.003}


def longest_first(params: Params) -> list[str]:
    """Sort data sets by their duration, the longest first.

    The duration is taken from the last finished run on this machine. Without such a run, it is estimated from the
    number of rows and the base predictor. If the number of rows is unknown, the data set comes first.

    Args:
        params: Parameters of params.yaml.

    Returns:
        Keys of data sets.
    """
    durations = {}
    for name, entry in params.datasets.items():
        last_duration = _last_duration(name)
        durations[name] = _estimated_duration(entry) if last_duration is None else last_duration
    return sorted(durations, key=lambda name: durations[name], reverse=True)


def _last_duration(dataset: str) -> float | None:
    """Return the duration of the last runs of all stages in seconds; None if one has not finished."""
    seconds = 0.0
    for stage in STAGES:
        record = read_record(f"{stage}@{dataset}")
        if record is None or record.outcome != "finished" or record.ended is None:
            return None
        seconds += (record.ended - record.started).total_seconds()
    return seconds


def _estimated_duration(entry: DatasetParams) -> float:
    if entry.rows is None:
        return float("inf")
    return entry.rows * SECONDS_PER_ROW[entry.predictor]
