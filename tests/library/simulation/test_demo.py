"""The demonstration and its commands."""

import io
import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from relmap import InputError
from relmap.simulation import demo
from relmap.simulation.predictions import simulate_predictions


def run_demo(folder: Path, monkeypatch: pytest.MonkeyPatch, *, failing: str | None = None) -> list[list[str]]:
    """Run the demonstration without its commands, one of which can fail; return these commands."""
    commands = []

    def run(command: list[str], **options: object) -> SimpleNamespace:
        assert options == {"check": False, "stderr": subprocess.STDOUT}
        commands.append(command)
        return SimpleNamespace(returncode=3 if failing in command else 0)

    monkeypatch.setattr(demo, "ROWS", {"validation": 20, "test": 30, "new": 40})
    monkeypatch.setattr(demo.subprocess, "run", run)
    demo.run_demo(folder)
    return commands


def test_the_demonstration_writes_its_files_and_prints_each_command(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "deep" / "my demo"
    commands = run_demo(folder, monkeypatch)
    assert commands == [[sys.executable, "-m", "relmap", *words] for words in demo.demo_commands(folder)]
    assert [words[3] for words in commands] == ["fit", "apply", "thresholds", "label", "evaluate"]
    for seed, (name, rows) in enumerate({"validation": 20, "test": 30, "new": 40}.items(), start=4):
        expected = simulate_predictions(rows, seed=seed)
        if name == "new":
            expected = expected.drop("label")
        assert pl.read_parquet(folder / f"{name}.parquet").equals(expected)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Simulated ")
    assert f" {folder}/." in lines[0]
    assert lines[1:3] == [
        "",
        f"$ relmap fit --predictions '{folder}/validation.parquet' --group query --labels irrelevant,partial,exact "
        f"--out '{folder}/map.json' --force",
    ]
    assert len(lines) == 11
    run_demo(folder, monkeypatch)  # the folder may exist


def test_each_command_of_the_demonstration_is_shown_before_it_runs(tmp_path, monkeypatch):
    shown = io.BytesIO()
    last_lines = []

    def run(*_: object, **__: object) -> SimpleNamespace:
        last_lines.append(shown.getvalue().decode().splitlines()[-1])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(demo, "ROWS", {"validation": 20, "test": 30, "new": 40})
    monkeypatch.setattr(demo.subprocess, "run", run)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="utf-8"))
    demo.run_demo(tmp_path)
    assert last_lines == [f"$ relmap {shlex.join(words)}" for words in demo.demo_commands(tmp_path)]


def test_a_failed_command_ends_the_demonstration(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"`relmap thresholds` .*status 3$"):
        run_demo(tmp_path, monkeypatch, failing="thresholds")


def test_commands_of_the_demonstration_read_files_of_known_sizes():
    read = [Path(words[words.index("--predictions") + 1]).stem for words in demo.demo_commands(Path("folder"))]
    assert read == ["validation", "new", "test", "new", "test"]
    assert demo.ROWS == {"validation": 600, "test": 4000, "new": 4000}


def test_each_command_of_the_demonstration_is_printed_before_its_output(tmp_path, monkeypatch, capfd):
    def write_output(command: list[str], **_: object) -> SimpleNamespace:
        os.write(1, f"output of {command[3]}\n".encode())
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr("relmap.simulation.demo.subprocess.run", write_output)
    demo.run_demo(tmp_path / "demo")

    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith(("$ relmap", "output of"))]
    commands = [words[0] for words in demo.demo_commands(tmp_path / "demo")]
    assert [line.split()[2] for line in lines[::2]] == commands
    assert [line.split()[2] for line in lines[1::2]] == commands
