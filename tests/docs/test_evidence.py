"""Every number of the evidence pages and of the README's table comes from `docs/evidence/results.json`."""

import datetime
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs/_ext"))

from evidence_records import (  # noqa: E402 - needs the path above
    Record,
    provenance,
    read_records,
    table,
    with_tables,
    write_records,
)

PAGES = sorted(ROOT.glob("docs/evidence/*.md"))
README = ROOT / "README.md"
RECORDS = read_records()
DIRECTIVE = re.compile(r"^```\{evidence\} (\S+)\n```$", re.MULTILINE)
ROLE = re.compile(r"\{measured\}`([^`]+)`")
UNMEASURED_NUMBERS = ("LETOR 4.0", "127.0.0.1", "steps of .05")
PYTHON_VERSION = re.compile(r"\b3\.1\d\b")
README_TABLE = re.compile(r"<!-- evidence: ([\w-]+) -->")
UNCLEAR_WORDS = re.compile(
    r"\b(beside|judged|draws?|drawn|rivals?|ours|theirs|anew|says|told|stands|kept aside)\b", re.IGNORECASE
)
MAX_WORDS = 60


def page_name(page: Path) -> str:
    return page.name


def paragraphs(text: str) -> list[str]:
    """Return paragraphs and bullets of a page, without tables, directives and code."""
    text = re.sub(r"^(```+).*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    blocks = re.split(r"\n\s*\n|\n(?=- )", text)
    return [block for block in blocks if block.strip() and not block.lstrip().startswith(("|", "#"))]


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_tables_and_numbers_of_a_page_have_a_record(page):
    text = page.read_text(encoding="utf-8")
    for record in DIRECTIVE.findall(text):
        assert RECORDS[record].rows, record
    for reference in ROLE.findall(text):
        record, key = reference.split("/")
        assert key in RECORDS[record].values, reference


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_a_page_has_no_measured_number_of_its_own(page):
    text = ROLE.sub("", DIRECTIVE.sub("", page.read_text(encoding="utf-8")))
    for allowed in UNMEASURED_NUMBERS:
        text = text.replace(allowed, "")
    text = PYTHON_VERSION.sub("", text)
    assert not re.findall(r"\d*\.\d+", text)


def test_every_record_is_shown():
    pages = "\n".join(page.read_text(encoding="utf-8") for page in [*ROOT.glob("docs/**/*.md"), README])
    as_values = {reference.split("/")[0] for reference in ROLE.findall(pages)}
    as_tables = {*DIRECTIVE.findall(pages), *README_TABLE.findall(pages)}
    assert set(RECORDS) == as_values | as_tables


def test_every_record_states_commit_date_and_command():
    for record in RECORDS.values():
        assert re.fullmatch(r"[0-9a-f]{40}", record.commit)
        assert datetime.date.fromisoformat(record.date)
        assert record.command
        assert record.rows or record.values


def test_the_table_of_the_readme_agrees_with_its_record():
    text = README.read_text(encoding="utf-8")
    assert table(RECORDS["readme"]) in text
    assert with_tables(text, RECORDS) == text


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_paragraphs_are_short_and_in_plain_english(page):
    text = page.read_text(encoding="utf-8")
    assert not [paragraph for paragraph in paragraphs(text) if len(paragraph.split()) > MAX_WORDS]
    assert not UNCLEAR_WORDS.findall(re.sub(r"`[^`]*`", "", text))


def test_records_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "results.json"
    records = {
        "a": Record(
            commit="0" * 40,
            date="2026-01-02",
            command="make a",
            columns=["x", "y"],
            rows=[["1", "−2"], ["**3**", ""]],
            values={"n": "4"},
            note="A note.",
        ),
        "b": Record(commit="1" * 40, date="2026-01-03", command="A study", values={"n": "5"}),
    }
    write_records(records, path)
    assert read_records(path) == records
    assert table(records["a"]) == "| x | y |\n| --- | --- |\n| 1 | −2 |\n| **3** |  |"
    assert re.search(r" 2026-01-02 .*`0{7}` .*`make a`\. A note\.$", provenance(records["a"]))
    assert re.search(r" 2026-01-03 .*`1{7}`\. A study\.$", provenance(records["b"]))


def test_a_row_with_a_missing_cell_is_refused(tmp_path):
    path = tmp_path / "results.json"
    incomplete = Record(commit="0" * 40, date="2026-01-02", command="make a", columns=["x", "y"], rows=[["1"]])
    write_records({"a": incomplete}, path)
    with pytest.raises(ValueError, match=r"record a:.* 2 cells"):
        read_records(path)


def run_evidence(folder: Path) -> str:
    """Measure small simulated data with `python -m benchmarks.evidence`, and return what it prints."""
    options = {
        "--out": folder / "results.json",
        "--readme": folder / "README.md",
        "--samples": "1",
        "--samples-nothing-to-learn": "2",
        "--sizes": "300",
        "--store": folder / "cases",
    }
    command = [sys.executable, "-m", "benchmarks.evidence"]
    for option, value in options.items():
        command += [option, str(value)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_command_measures_simulated_data_keeps_other_records_and_continues(tmp_path):
    out = tmp_path / "results.json"
    readme = tmp_path / "README.md"
    other = Record(commit="0" * 40, date="2026-01-02", command="make other", columns=["x"], rows=[["1"]])
    write_records({"other": other, "readme": other}, out)
    readme.write_text("before\n<!-- evidence: readme -->\nold\n<!-- end of evidence -->\nafter\n")

    first_output = run_evidence(tmp_path)
    second_output = run_evidence(tmp_path)

    assert re.search(r"^real data .*skipped \(.+\)", first_output, re.MULTILINE)
    measured_cases = re.compile(r"^(?:simulated_|nothing_to_learn).* s of processor time$", re.MULTILINE)
    assert len(measured_cases.findall(first_output)) == 5  # one line for each case
    assert not measured_cases.findall(second_output)  # the results are stored
    records = read_records(out)
    assert records["other"] == other
    assert table(other) in readme.read_text()
    check_measured_methods(records["simulated-methods"])
    check_price(records["nothing-to-learn"])


def check_measured_methods(record: Record) -> None:
    """Check the methods of the table of simulated data, and the order of their log losses."""
    assert record.command == "make evidence"
    assert record.columns == ["labelled rows", "method", "log loss", "AURC", "ECE", "top gap", "absolute top gap"]
    methods = ["temperature scaling", "`sms`", "MRP on temperature scaling", "default", "Platt", "isotonic"]
    methods += ["logistic regression", "gradient boosting", "random forest"]
    assert [row[1] for row in record.rows] == methods
    losses = {row[1]: float(row[2].strip("*")) for row in record.rows}
    assert losses["default"] < losses["temperature scaling"] < losses["isotonic"]


def check_price(record: Record) -> None:
    """Check that the price is the difference of the expected log losses, and small with many rows."""
    rows = {(row[0], row[1]): row for row in record.rows}
    assert {size for size, _ in rows} == {"100", "300", "1,000"}
    loss = float(rows["1,000", "default"][2])
    difference = loss - float(rows["1,000", "temperature scaling"][2])
    price = float(rows["1,000", "default"][3].replace("−", "-"))
    assert price == pytest.approx(difference, abs=1.1e-4)  # rounded to four and five decimals
    assert price < 0.005
