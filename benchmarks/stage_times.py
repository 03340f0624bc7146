"""Record where the time of the last `make repro` went, by stage and kind of work, for `docs/evidence/benchmarks.md`.

Run `python -m benchmarks.stage_times` after `make repro`, in the same folder.
"""

from collections import defaultdict

from benchmarks.records import RESULTS, Record, last_commit, read_records, today, write_records
from tasks.provenance.dvc_stages import stage_names
from tasks.records.durations import KINDS, Duration, read_duration


def summarize_durations(durations: dict[str, Duration]) -> list[list[str]]:
    """Add the durations of the data sets of each stage.

    Args:
        durations: Stage with its data set, such as train@wands -> its duration.

    Returns:
        A row for each stage, and their sum: stage, number of runs, seconds, and seconds of each kind of work.
    """
    seconds_of_stage: dict[str, list[list[float]]] = defaultdict(list)
    for name, duration in durations.items():
        seconds = [duration.seconds, *(duration.kinds[kind] for kind in KINDS)]
        seconds_of_stage[name.partition("@")[0]].append(seconds)
        seconds_of_stage["all"].append(seconds)
    seconds_of_stage["all"] = seconds_of_stage.pop("all")  # the last row
    rows = []
    for stage, runs in seconds_of_stage.items():
        sums = [sum(column) for column in zip(*runs, strict=True)]
        rows.append([stage, str(len(runs)), *(f"{value:.1f}" for value in sums)])
    return rows


def main() -> None:
    """Write the record."""
    durations = {stage: duration for stage in stage_names() if (duration := read_duration(stage)) is not None}
    record = Record(
        commit=last_commit("flows", "tasks", "relmap", "params.yaml"),
        date=today(),
        command="make repro, then python -m benchmarks.stage_times",
        columns=["stage", "runs", "seconds", *KINDS],
        rows=summarize_durations(durations),
    )
    write_records(read_records(RESULTS) | {"stage-times": record}, RESULTS)


if __name__ == "__main__":
    main()
