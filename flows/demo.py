"""`make demo`: a reliability map from made-up predictions, by the commands that you would type on your own."""

import shlex
import subprocess
import sys
from pathlib import Path

from tasks.provenance.stage import command
from tasks.simulation.predictions import LABELS, simulate_predictions

FOLDER = Path("data/demo")
FILES = {"validation": 600, "test": 4000, "new": 4000}  # rows of each
COMMANDS = (
    f"fit --predictions {FOLDER}/validation.parquet --group query --labels {','.join(LABELS)} --out {FOLDER}/map.json",
    f"apply --map {FOLDER}/map.json --predictions {FOLDER}/new.parquet --coverage 0.7 --out {FOLDER}/scored.parquet",
    f"thresholds --map {FOLDER}/map.json --predictions {FOLDER}/test.parquet --target-accuracy 0.85"
    f" --out {FOLDER}/thresholds.json",
    f"label --map {FOLDER}/map.json --predictions {FOLDER}/new.parquet --rows 200 --out {FOLDER}/to_label.csv",
    f"evaluate --map {FOLDER}/map.json --predictions {FOLDER}/test.parquet --out {FOLDER}/evaluation.json",
)


def main() -> None:
    """Simulate predictions, then run each command of `flows.rerank` on them and show it."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for seed, (name, rows) in enumerate(FILES.items()):
        frame = simulate_predictions(rows, seed=seed)
        (frame.drop("label") if name == "new" else frame).write_parquet(FOLDER / f"{name}.parquet")
    print(f"Simulated predictions of a relevance model, three labels: {FOLDER}/ (nothing below is about real data)")
    for line in COMMANDS:
        print(f"\n$ python -m flows.rerank {line}", flush=True)
        typed = [sys.executable, "-m", "flows.rerank", *shlex.split(line)]
        ended = subprocess.run(typed, check=False, stderr=subprocess.STDOUT)  # noqa: S603 - ours
        if ended.returncode:
            sys.exit(ended.returncode)


if __name__ == "__main__":
    command(main, "demo")
