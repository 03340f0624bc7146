"""Prefect task: compare a reliability map in use with new labelled rows, and show a person the answer."""

from collections.abc import Mapping
from pathlib import Path

from prefect import task
from prefect.artifacts import create_markdown_artifact

from relmap.errors import InputError
from relmap.evaluation.drift import detect_drift
from relmap.fitting.labelled_rows import read_and_score_rows
from relmap.io.files import open_predictions
from relmap.maps.map_file import load_map
from tasks.records.errors import RunFailed
from tasks.settings.params import WatchedMap


@task(task_run_name="watch/{name}")
def watch(name: str, entry: WatchedMap) -> str:
    """Return in words, and show as an artifact, that the map `name` still holds.

    Raises:
        RunFailed: it no longer says how often decisions are correct; the message says where.
        InputError: the rows are those that the map was made of.
    """
    document = load_map(Path(entry.map))
    read = read_and_score_rows(document, open_predictions(Path(entry.predictions)), group=entry.group)
    if read.origin in ("held_out", "out_of_fold"):
        raise InputError(f"{entry.predictions} is what {entry.map} was made of; watch it on later labelled rows")
    rows, reliability = read.rows.take(~read.fitted), read.scored.reliability[~read.fitted]
    verdict = detect_drift(document, reliability, rows.decision, rows.correct, rows.group)
    lines = [*verdict.describe(document.shown_names), *read.notes]
    artifact = "\n".join([f"# {name}", "", *(f"- {line}" for line in lines)])
    create_markdown_artifact(key=f"map-{name.replace('_', '-')}", markdown=artifact, description=lines[0])
    if not verdict.holds:
        raise RunFailed(f"{name}: {lines[0]}")
    return lines[0]


def watched(maps: Mapping[str, WatchedMap]) -> list[str]:
    """Return what is wrong with the maps in use, a sentence each, once each is held against its labelled rows."""
    runs = {name: watch.submit(name, entry) for name, entry in maps.items()}
    wrong = []
    for name, run in runs.items():
        try:
            print(f"{name}: {run.result()}")
        except RunFailed as error:
            wrong.append(str(error))
        except (InputError, OSError) as error:
            wrong.append(f"{name} could not be held against its rows: {error}")
    return wrong
