"""`relmap demo`: a reliability map of simulated predictions, made with the commands that a user would type."""

import shlex
import subprocess
import sys
from pathlib import Path

from relmap.errors import InputError
from relmap.simulation.predictions import LABEL_NAMES, simulate_predictions

ROWS = {"validation": 600, "test": 4000, "new": 4000}  # number of rows of each file


def demo_commands(folder: Path) -> list[list[str]]:
    """Return the commands of the demonstration, without the program's name, each as a list of words."""
    predictions = {name: str(folder / f"{name}.parquet") for name in ROWS}
    map_file = str(folder / "map.json")
    names = ",".join(LABEL_NAMES)
    scored = str(folder / "scored.parquet")
    thresholds = str(folder / "thresholds.json")
    to_label = str(folder / "to_label.csv")
    evaluation = str(folder / "evaluation.json")
    read_map = ["--map", map_file, "--predictions"]
    return [
        [
            "fit",
            "--predictions",
            predictions["validation"],
            "--group",
            "query",
            "--labels",
            names,
            "--out",
            map_file,
            "--force",
        ],
        ["apply", *read_map, predictions["new"], "--coverage", "0.7", "--out", scored, "--force"],
        ["thresholds", *read_map, predictions["test"], "--target-accuracy", "0.85", "--out", thresholds, "--force"],
        ["label", *read_map, predictions["new"], "--rows", "200", "--out", to_label, "--force"],
        ["evaluate", *read_map, predictions["test"], "--out", evaluation, "--force"],
    ]


def run_demo(folder: Path) -> None:
    """Write simulated predictions into `folder`, then run each command on them and print it.

    Args:
        folder: Folder for the files; created if it does not exist.

    Raises:
        InputError: A command failed; the command has printed the reason.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, rows) in enumerate(ROWS.items(), start=4):
        frame = simulate_predictions(rows, seed=seed)
        if name == "new":
            frame = frame.drop("label")
        frame.write_parquet(folder / f"{name}.parquet")
    print(f"Simulated predictions of a relevance model with three labels are in {folder}/. Nothing below is real data.")
    for words in demo_commands(folder):
        print(f"\n$ relmap {shlex.join(words)}", flush=True)
        command = [sys.executable, "-m", "relmap", *words]
        completed = subprocess.run(command, check=False, stderr=subprocess.STDOUT)  # noqa: S603 - own command
        if completed.returncode:
            raise InputError(f"the command `relmap {words[0]}` failed with exit status {completed.returncode}")
