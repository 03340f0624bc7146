"""Write the report of a session of Cosmic Ray: outcomes by package, and the change of each survivor."""

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml
from cosmic_ray.work_db import WorkDB

from tests.mutation.sample import mutant_of, package_of

EQUIVALENT_FILE = Path(__file__).with_name("equivalent.yaml")


@dataclass(frozen=True)
class Outcome:
    """The result of one mutant.

    Attributes:
        package: Package of the changed file; a stratum of the sample.
        place: File and line.
        operator: Operator that made the change.
        outcome: killed, timeout, survived or equivalent.
        reason: Why the mutant is equivalent; otherwise the output of the session, such as the test that failed.
        diff: The change.
    """

    package: str
    place: str
    operator: str
    outcome: str
    reason: str
    diff: str


def changed_lines(diff: str) -> tuple[str, str]:
    """Return the removed and the added lines of a diff, without indentation."""
    lines = diff.splitlines()[2:]  # without the two lines of file names
    removed = "\n".join(line[1:].strip() for line in lines if line.startswith("-"))
    added = "\n".join(line[1:].strip() for line in lines if line.startswith("+"))
    return removed, added


def read_equivalent(file: Path = EQUIVALENT_FILE) -> dict[tuple[str, str, str], str]:
    """Read the mutants that no test can distinguish from the original.

    Args:
        file: YAML file with a list of entries `file`, `before`, `after` and `reason`.

    Returns:
        The reason by file, removed lines and added lines.
    """
    entries = yaml.safe_load(file.read_text(encoding="utf-8")) or []
    return {
        (entry["file"], entry["before"].strip(), entry["after"].strip()): " ".join(entry["reason"].split())
        for entry in entries
    }


def list_outcomes(database: WorkDB) -> list[Outcome]:
    """Return the result of each mutant that was run, in the order of the sample."""
    equivalent = read_equivalent()
    outcomes = []
    for item, result in sorted(database.completed_work_items, key=lambda pair: pair[0].job_id):
        mutant = mutant_of(item)
        diff = result.diff or ""
        change = (mutant.path, *changed_lines(diff))
        reason = result.output or ""
        if result.is_killed:
            outcome = "timeout" if reason.startswith("time limit") else "killed"  # text of session.py
        elif change in equivalent:
            outcome = "equivalent"
            reason = equivalent[change]
        else:
            outcome = "survived"
        outcomes.append(
            Outcome(
                package=package_of(mutant.path),
                place=f"{mutant.path}:{mutant.start[0]}",
                operator=mutant.operator,
                outcome=outcome,
                reason=reason,
                diff=diff,
            )
        )
    return outcomes


def write_report(database: WorkDB, folder: Path, facts: dict[str, str | int]) -> str:
    """Write `report.md` and `report.json`.

    Args:
        database: Database of the session.
        folder: Folder of the report.
        facts: Seed, number of mutants and commit.

    Returns:
        The table of the outcomes of each package, in Markdown.
    """
    outcomes = list_outcomes(database)
    table = _format_table(outcomes)
    lines = ["# Mutants", "", *(f"- {name}: {value}" for name, value in facts.items()), "", table]
    for title in ("survived", "equivalent"):
        lines.extend(["", f"## {title.capitalize()}"])
        for entry in outcomes:
            if entry.outcome == title:
                heading = f"### {entry.place} ({entry.operator})"
                lines.extend(["", heading, "", entry.reason, "", "```diff", entry.diff, "```"])
    (folder / "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    content = {**facts, "mutants": [asdict(entry) for entry in outcomes]}
    (folder / "report.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return table


def _format_table(outcomes: list[Outcome]) -> str:
    """Count the outcomes of each package. A timeout counts as killed in the last column."""
    columns = ("killed", "timeout", "survived", "equivalent")
    count = Counter((entry.package, entry.outcome) for entry in outcomes)
    packages = sorted({entry.package for entry in outcomes})
    lines = [
        "| package | killed | timeout | survived | equivalent | killed of non-equivalent |",
        "|---|---|---|---|---|---|",
    ]
    for name in [*packages, "all"]:
        row_packages = packages if name == "all" else [name]
        totals = {}
        for column in columns:
            totals[column] = sum(count[package, column] for package in row_packages)
        n_killed = totals["killed"] + totals["timeout"]
        n_non_equivalent = n_killed + totals["survived"]
        share = f"{n_killed / n_non_equivalent:.0%}" if n_non_equivalent else "none"
        lines.append(f"| {name} | {' | '.join(map(str, totals.values()))} | {share} |")
    return "\n".join(lines)
