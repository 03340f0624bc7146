"""Prefect task: test whether reliability maps in use still agree with newer labelled rows, and show the results."""

import re
from collections.abc import Mapping
from pathlib import Path

from prefect import task
from prefect.artifacts import create_markdown_artifact

from relmap.errors import InputError
from relmap.evaluation.drift import detect_drift
from relmap.io.files import open_predictions
from relmap.maps.document import load_map
from relmap.maps.fit_rows import read_and_score_rows
from tasks.records.errors import RunFailed
from tasks.settings.params import WatchedMap


@task(task_run_name="watch/{name}")
def watch(name: str, entry: WatchedMap) -> str:
    """Test a map for drift on labelled rows, and show the result as an artifact.

    Args:
        name: Name of the map, for the artifact and messages.
        entry: Files of the map and of the labelled rows.

    Returns:
        One sentence that no change was found.

    Raises:
        RunFailed: The reliability no longer agrees with the accuracy; the message names the labels.
        InputError: The file has only rows that the map was fitted or tested on.
    """
    document = load_map(Path(entry.map))
    predictions = open_predictions(Path(entry.predictions))
    scored_rows = read_and_score_rows(document, predictions, group=entry.group)
    if scored_rows.origin in ("held_out", "out_of_fold"):
        raise InputError(f"{entry.map} was fitted with {entry.predictions}; name a file with newer labelled rows")
    is_new = ~scored_rows.fitted
    rows = scored_rows.rows.take(is_new)
    reliability = scored_rows.scored.reliability[is_new]
    verdict = detect_drift(document, reliability, rows.decision, rows.correct, rows.group)
    lines = [*verdict.describe(document.shown_names), *scored_rows.notes]
    bullets = [f"- {_escape_markdown(line)}" for line in lines]
    artifact = "\n".join([f"# {_escape_markdown(name)}", "", *bullets])
    create_markdown_artifact(
        key=f"map-{name.replace('_', '-')}", markdown=artifact, description=_escape_markdown(lines[0])
    )
    if not verdict.holds:
        raise RunFailed(f"{name}: {lines[0]}")
    return lines[0]


def _escape_markdown(text: str) -> str:
    """Escape a line of plain text for Markdown, since a label in it could contain HTML or a link."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text)  # ASCII punctuation


def find_outdated_maps(maps: Mapping[str, WatchedMap]) -> list[str]:
    """Test all maps in use for drift, and print the maps that still hold.

    Args:
        maps: Entry of each map, by name.

    Returns:
        One sentence for each map that no longer holds or could not be tested.
    """
    runs = {name: watch.submit(name, entry) for name, entry in maps.items()}
    failures = []
    for name, run in runs.items():
        try:
            print(f"{name}: {run.result()}")
        except RunFailed as error:
            failures.append(str(error))
        except (InputError, OSError) as error:
            failures.append(f"{name} could not be tested on its labelled rows: {error}")
    return failures
