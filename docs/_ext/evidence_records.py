"""Records of measured numbers, from which the evidence pages and the table of the README are rendered.

`docs/evidence/results.json` holds one record for each table or group of numbers. A record states the commit, the date
and the command that gave its numbers.
"""

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

import markdown_tables

from relmap.io.atomic import write_text

RESULTS = Path(__file__).resolve().parents[1] / "evidence/results.json"
README_TABLE = re.compile(r"(<!-- evidence: (?P<name>[\w-]+) -->\n).*?(<!-- end of evidence -->)", re.DOTALL)


@dataclass(frozen=True)
class Record:
    """Numbers that one command measured at one commit.

    Attributes:
        commit: Commit whose code was measured.
        date: Date of the measurement, as in 2026-11-26.
        command: Command that measured the numbers; a sentence if there is none.
        columns: Column names of the table; empty without a table.
        rows: Cells of the table.
        values: Single numbers by name, as they are shown in sentences.
        note: What a reader must know about this record; empty if nothing.
    """

    commit: str
    date: str
    command: str
    columns: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    note: str = ""


def read_records(path: Path = RESULTS) -> dict[str, Record]:
    """Read the records of a file, by name.

    Args:
        path: File of records.

    Returns:
        The records; none if the file does not exist.

    Raises:
        ValueError: A row of a table has another number of cells than its header.
    """
    if not path.exists():
        return {}
    records = {name: Record(**entry) for name, entry in json.loads(path.read_text(encoding="utf-8")).items()}
    for name, record in records.items():
        if any(len(row) != len(record.columns) for row in record.rows):
            raise ValueError(f"{path}: record {name}: a row does not have {len(record.columns)} cells")
    return records


def write_records(records: dict[str, Record], path: Path = RESULTS) -> None:
    """Write records to a file, one row of a table in each line."""
    entries = []
    for name, record in sorted(records.items()):
        fields = []
        for key, value in asdict(record).items():
            if key == "rows" and value:
                lines = ",\n".join(f"      {json.dumps(row, ensure_ascii=False)}" for row in value)
                fields.append(f'    "rows": [\n{lines}\n    ]')
            elif value:
                fields.append(f"    {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
        entries.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(fields) + "\n  }")
    write_text(path, "{\n" + ",\n".join(entries) + "\n}\n")


def table(record: Record) -> str:
    """Return the table of a record in Markdown."""
    return markdown_tables.table(record.columns, record.rows).rstrip("\n")


def provenance(record: Record) -> str:
    """Return the sentence that states how the numbers of a record were made, in Markdown."""
    measured = f"Measured on {record.date} at commit `{record.commit[:7]}`"
    is_sentence = record.command[0].isupper()
    sentence = f"{measured}. {record.command}." if is_sentence else f"{measured} with `{record.command}`."
    return f"{sentence} {record.note}".strip()


def value(records: dict[str, Record], reference: str) -> str:
    """Return a number by its reference, `record/name`.

    Args:
        records: Records by name.
        reference: Names of the record and of the number.

    Returns:
        The number as it is shown.

    Raises:
        KeyError: There is no such record or number.
    """
    name, _, key = reference.partition("/")
    return records[name].values[key]


def with_tables(text: str, records: dict[str, Record]) -> str:
    """Return a page in which the text between markers is replaced by the table of the named record.

    Args:
        text: Markdown with `<!-- evidence: NAME -->` and `<!-- end of evidence -->`.
        records: Records by name.

    Returns:
        The page with current tables.
    """

    def replace(match: re.Match[str]) -> str:
        record = records[match["name"]]
        return f"{match[1]}{table(record)}\n\n{provenance(record)}\n{match[3]}"

    return README_TABLE.sub(replace, text)
