"""Write the report of a session: the outcome of each package and the change of each survivor."""

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
        package: Stratum of the sample.
        place: File and line.
        operator: Operator that made the change.
        outcome: killed, timeout, survived or equivalent.
        reason: Test that killed the mutant, or why it counts as equivalent.
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
    lines = diff.splitlines()[2:]
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


def outcomes(database: WorkDB) -> list[Outcome]:
    """Return the result of each mutant that was run, in the order of the sample."""
    equivalent = read_equivalent()
    found = []
    for item, result in sorted(database.completed_work_items, key=lambda pair: pair[0].job_id):
        mutant = mutant_of(item)
        diff = result.diff or ""
        known = equivalent.get((mutant.path, *changed_lines(diff)))
        outcome = "timeout" if (result.output or "").startswith("time limit") else "killed"
        if not result.is_killed:
            outcome = "survived" if known is None else "equivalent"
        found.append(
            Outcome(
                package=package_of(mutant.path),
                place=f"{mutant.path}:{mutant.start[0]}",
                operator=mutant.operator,
                outcome=outcome,
                reason=known if outcome == "equivalent" and known else result.output or "",
                diff=diff,
            )
        )
    return found


def write_report(database: WorkDB, folder: Path, facts: dict[str, str | int]) -> str:
    """Write `report.md` and `report.json`.

    Args:
        database: Database of the session.
        folder: Folder of the report.
        facts: Seed, number of mutants and commit.

    Returns:
        The table of the outcomes of each package, in Markdown.
    """
    found = outcomes(database)
    table = _table(found)
    lines = ["# Mutants", "", *(f"- {name}: {value}" for name, value in facts.items()), "", table]
    for title in ("survived", "equivalent"):
        lines.extend(["", f"## {title.capitalize()}"])
        for entry in found:
            if entry.outcome == title:
                heading = f"### {entry.place} ({entry.operator})"
                lines.extend(["", heading, "", entry.reason, "", "```diff", entry.diff, "```"])
    (folder / "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    content = {**facts, "mutants": [asdict(entry) for entry in found]}
    (folder / "report.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return table


def _table(found: list[Outcome]) -> str:
    columns = ("killed", "timeout", "survived", "equivalent")
    count = Counter((entry.package, entry.outcome) for entry in found)
    packages = sorted({entry.package for entry in found})
    lines = [
        "| package | killed | timeout | survived | equivalent | killed of non-equivalent |",
        "|---|---|---|---|---|---|",
    ]
    for name in [*packages, "all"]:
        members = packages if name == "all" else [name]
        numbers = []
        for column in columns:
            numbers.append(sum(count[member, column] for member in members))
        killed = numbers[0] + numbers[1]
        total = killed + numbers[2]
        share = f"{killed / total:.0%}" if total else "none"
        lines.append(f"| {name} | {' | '.join(map(str, numbers))} | {share} |")
    return "\n".join(lines)
