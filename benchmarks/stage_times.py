"""Record where the time of the last `make repro` went, by stage and kind of work, for `docs/evidence/benchmarks.md`.

Run `python -m benchmarks.stage_times` after `make repro`, in the same folder.
"""

from collections import defaultdict

from benchmarks.records import RESULTS, Record, last_commit, read_records, today, write_records
from tasks.provenance.dvc_stages import stage_names
from tasks.records.durations import KINDS, Duration, add_durations, read_duration


def summarize_durations(durations: dict[str, Duration]) -> list[list[str]]:
    """Add the durations of the data sets of each stage.

    Args:
        durations: Stage with its data set, such as train@wands -> its duration.

    Returns:
        A row for each stage, and their sum: stage, number of runs, seconds, and seconds of each kind of work.
    """
    durations_of_stage: dict[str, list[Duration]] = defaultdict(list)
    for name, duration in durations.items():
        durations_of_stage[name.partition("@")[0]].append(duration)
    rows = []
    for stage, runs in {**durations_of_stage, "all": [*durations.values()]}.items():
        total = add_durations(runs)
        seconds = [total.seconds, *total.kinds.values()]
        rows.append([stage, str(len(runs)), *(f"{value:.1f}" for value in seconds)])
    return rows


def main() -> None:
    """Write the record."""
    durations = {}
    for stage in stage_names():
        duration = read_duration(stage)
        if duration is not None:
            durations[stage] = duration
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
