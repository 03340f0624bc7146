"""The code of the README runs, and pages are laid out so that `make docs` runs theirs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from subprocess import STDOUT
from types import SimpleNamespace

import polars as pl
import pytest
import yaml

from relmap import ReliabilityMap, cli
from relmap.simulation import demo
from relmap.simulation.predictions import LABEL_NAMES, simulate_predictions
from tasks.datasets import find_dataset
from tasks.settings.dataset_params import DatasetParams
from tasks.settings.params import WatchedMap

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs/_ext"))

import reference_pages  # noqa: E402 - needs the path above
from page_code import RUN, blocks_to_run, run_page  # noqa: E402

FOLDERS = ("tutorials", "how-to", "concepts", "reference", "evidence")
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
PAGES += [page for folder in FOLDERS for page in sorted(ROOT.glob(f"docs/{folder}/*.md"))]
FENCE = re.compile(r"^( *)```([a-z]+)\n.*?^ *```$", re.DOTALL | re.MULTILINE)
FOLDER_READMES = [
    page
    for page in ROOT.glob("[!.]*/**/README.md")  # folders with a dot, such as .venv, are not part of the project
    if "site" not in page.parts
]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_the_code_of_the_readme_runs():
    """`make docs` runs the code of all other pages."""
    run_page(ROOT / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_of_code_begins_a_line_so_that_it_runs(page):
    text = page.read_text()
    assert not [match.group() for match in FENCE.finditer(text) if match[1] and match[2] in RUN]


def test_code_that_fails_fails_with_page_and_line(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```python\n1 / 0\n```\n")
    with pytest.raises(ZeroDivisionError) as error:
        run_page(page)
    assert "page.md, line 3" in error.value.__notes__[0]


def test_output_is_inserted_and_marked_code_does_not_run(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- setup\nx = 2\n-->\n```python\nprint(x + 1)\n```\n<!-- output -->\n"
        "<!-- not run: it fails -->\n```python\n1 / 0\n```\n"
    )
    text = run_page(page).text
    assert ":class: output\n\n3\n" in text
    assert "setup" not in text
    assert "1 / 0" in text


def test_every_command_of_relmap_is_run_on_a_page():
    commands = set()
    for page in PAGES:
        for language, code in blocks_to_run(page.read_text()):
            lines = code.replace("\\\n", " ").splitlines() if language == "bash" else []
            words = [shlex.split(line, comments=True) for line in lines]
            commands |= {" ".join(line[1:]) for line in words if line[:1] == ["relmap"]}
    for name in reference_pages.commands().keys() - {"demo"}:
        assert any(f"{command} ".startswith(f"{name} ") for command in commands), name  # `demo` has a test of its own


def test_every_entry_of_params_yaml_on_a_page_is_valid():
    texts = [
        block for page in PAGES for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.DOTALL | re.M)
    ]
    entries = {key: entry for text in texts for key, entry in yaml.safe_load(text).items()}
    for watched in entries.pop("watched").values():
        WatchedMap.model_validate(watched)
    for key, entry in entries.items():
        params = DatasetParams.model_validate(entry)
        find_dataset(key, params.reader, params.options)
    assert {entry.get("reader") for entry in entries.values()} == {None, "files", "hub", "logits"}


@pytest.mark.parametrize("file", ["official_small.yaml", "real_sets.yaml"])
def test_the_entries_of_other_data_sets_are_valid(file):
    for key, entry in yaml.safe_load((ROOT / "flows" / file).read_text()).items():
        params = DatasetParams.model_validate(entry)
        find_dataset(key, params.reader, params.options)


def test_readmes_are_short():
    shown = re.sub(r"<!--.*?-->", "", (ROOT / "README.md").read_text(), flags=re.DOTALL)  # without hidden code
    assert len(shown.splitlines()) <= 120
    assert not [name(page) for page in FOLDER_READMES if len(page.read_text().splitlines()) > 40]


@pytest.mark.parametrize("page", [ROOT / "README.md", *FOLDER_READMES], ids=name)
def test_the_targets_of_links_exist(page):
    places = re.findall(r"\]\(([\w./-]+)\)", page.read_text())
    assert not [place for place in places if not (page.parent / place).exists()]


def test_every_make_target_on_a_page_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {target for page in PAGES for target in re.findall(r"`make ([a-z-]+)", page.read_text())}
    assert named <= targets


def test_every_concept_of_the_report_pages_has_a_page():
    from relmap.report.concepts import CONCEPTS

    assert not [concept.page for concept in CONCEPTS.values() if not (ROOT / f"{concept.page}.md").exists()]


def test_the_script_for_cron_prints_only_after_a_change_or_an_error_and_keeps_no_earlier_results(tmp_path):
    page = (ROOT / "docs" / "tutorials" / "monitoring.md").read_text()
    (script,) = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    command = tmp_path / "relmap"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m relmap "$@"\n')
    command.chmod(0o755)
    (tmp_path / "watch.sh").write_text(script.replace("RELMAP=relmap", f"RELMAP='{command}'"))
    rows = simulate_predictions(1400, seed=1)
    ReliabilityMap(labels=LABEL_NAMES).fit(rows[:600]).save(tmp_path / "map.json")
    rows[600:1000].write_parquet(tmp_path / "same.parquet")
    rows[1000:].with_columns(pl.col("logits") * 3).write_parquet(tmp_path / "other.parquet")

    def watch(name: str) -> tuple[int, str]:
        arguments = ["sh", str(tmp_path / "watch.sh"), str(tmp_path), name]
        ended = subprocess.run(arguments, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return ended.returncode, ended.stdout

    assert watch("same.parquet") == (0, "")
    assert re.search(r"\b400 .*distributed like", (tmp_path / "watch.log").read_text())
    assert {"watch.json", "watch.svg"} <= {path.name for path in tmp_path.iterdir()}
    status, printed = watch("other.parquet")
    assert status == 3
    assert re.search(r"\b400 .*differ .*reliability", printed)
    status, printed = watch("missing.parquet")
    assert (status, "missing.parquet" in printed) == (1, True)
    assert not (tmp_path / "watch.json").exists()


def test_the_demo_runs_every_command_that_it_prints(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(words: list[str], *, stderr: int, **_: object) -> SimpleNamespace:
        assert [*words[:3], stderr] == [sys.executable, "-m", "relmap", STDOUT]  # one stream for people
        cli.app(words[3:], standalone_mode=False)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr("subprocess.run", run)
    demo.run_demo(Path("demo"))
    shown = "".join(capsys.readouterr())
    assert shown.startswith("Simulated predictions")
    assert re.findall(r"^\$ relmap (\w+)", shown, re.MULTILINE) == ["fit", "apply", "thresholds", "label", "evaluate"]
    assert Path("demo/evaluation.json").exists()
