"""Draw a random sample of mutants of the library and the pipeline, and run the tests that reach each of them.

An interrupted call continues where it ended when it is started again with the same seed and number.
"""

import argparse
import os
import subprocess
import time
from pathlib import Path

from cosmic_ray.work_db import use_db

from tests.mutation.copies import Copy, limit_threads
from tests.mutation.processes import preload
from tests.mutation.reach import record
from tests.mutation.report import write_report
from tests.mutation.sample import draw_sample, source_hash
from tests.mutation.session import forget_survivors, run_session

ROOT = Path(__file__).resolve().parents[2]


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="Seed of the sample.")
    parser.add_argument("-n", type=int, default=300, help="Number of mutants.")
    parser.add_argument("--packages", default="", help="Comma-separated packages to draw from (default: all).")
    parser.add_argument("--workers", type=int, default=2, help="Mutants that run at the same time.")
    parser.add_argument("--folder", type=Path, default=ROOT / ".mutants", help="Folder of sessions and reports.")
    parser.add_argument("--retry", action="store_true", help="Run the survivors of the session again.")
    return parser.parse_args()


def commit_of(root: Path) -> str:
    """Return the commit of the checkout, marked if files have changed since."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """Run the command."""
    arguments = parse_arguments()
    os.chdir(ROOT)
    limit_threads()
    packages = tuple(name for name in arguments.packages.split(",") if name)
    name = "-".join([f"seed{arguments.seed}", f"n{arguments.n}", *packages, source_hash(ROOT)])
    session = arguments.folder / name
    session.mkdir(parents=True, exist_ok=True)
    facts = {"seed": arguments.seed, "mutants": arguments.n, "commit": commit_of(ROOT)}
    copies = [Copy(ROOT, arguments.folder / f"worker-{number}") for number in range(arguments.workers)]
    preload()
    reached = record(ROOT, copies, arguments.folder / "reach")
    with use_db(session / "session.sqlite") as database:
        if not database.num_work_items:
            database.add_work_items(draw_sample(ROOT, arguments.seed, arguments.n, packages))
        if arguments.retry:
            forget_survivors(database)
        started = time.monotonic()
        for _ in run_session(ROOT, database, copies, reached):
            table = write_report(database, session, facts)
            minutes = (time.monotonic() - started) / 60
            print(f"{database.num_results} of {database.num_work_items} mutants, {minutes:.1f} minutes", flush=True)
        table = write_report(database, session, facts)
    print(f"{table}\n\nThe report: {session / 'report.md'}")


if __name__ == "__main__":
    main()
