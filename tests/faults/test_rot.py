"""Bytes that change behind everybody's back: `flows.verify` names them, and its commands bring them back."""

import subprocess
from pathlib import Path

import pytest

from tests.faults.small_project import SmallProject
from tests.project_copy import environment, flip

pytestmark = pytest.mark.faults

TWIN = "wands"
KINDS = {  # folder under data/ -> files in it
    "raw": f"{TWIN}/data/test-00000-of-00001.parquet {TWIN}/source.json mine/mine.csv",
    f"base/{TWIN}": "logits.parquet pairs.parquet base.json predictor.npz predictor.json",
    f"runs/{TWIN}": "metrics.parquet scores.parquet simplex.parquet curves.json gates.json run.json",
    "report": "main.csv verdict.md ablation.tex metrics.json",
    "manifests": f"{TWIN}/train.json report.json",
}


def everything(project: SmallProject) -> dict[Path, bytes]:
    made = {kind.partition("/")[0] for kind in KINDS}
    folders = [*(project.folder / "data" / name for name in made), project.folder / ".dvc/cache/files"]
    return {file: file.read_bytes() for folder in folders for file in folder.rglob("*") if file.is_file()}


def check_named_and_brought_back(project: SmallProject, flipped: list[Path], word: str) -> None:
    """Flip a bit in each of some files: verify names them and nothing else, and tells how to get their bytes back."""
    before = everything(project)
    for file in flipped:
        flip(file, rots=word == "rotted")
    printed = project.run("flows.verify", status=1)
    assert "Traceback" not in printed
    problems, advice = printed.split("to get it back, in this order:\n")
    for file in before:
        name = file.relative_to(project.folder).as_posix()
        assert (name in problems) == (file in flipped), f"{name}\n{printed}"
    assert word in problems
    for command in (line for line in advice.splitlines() if line.startswith("  ")):
        here = {"cwd": project.folder, "env": environment(project.folder)}
        done = subprocess.run(["sh", "-c", f"{command} 2>&1"], **here, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}"
    project.run("flows.verify")
    assert everything(project) == before


BOTH = [(kind, word) for kind in KINDS if kind != "manifests" for word in ("rotted", "edited")]


@pytest.mark.parametrize(("kind", "word"), [*BOTH, ("manifests", "spoilt")])
def test_a_flipped_bit_is_named_and_its_byte_comes_back(finished_project, kind, word):
    files = [finished_project.folder / "data" / kind / name for name in KINDS[kind].split()]
    check_named_and_brought_back(finished_project, files, word)


def test_a_flipped_bit_in_the_cache_is_named_and_its_byte_comes_back(finished_project):
    objects = sorted((finished_project.folder / ".dvc/cache/files/md5").glob("??/*"))
    lists = [file for file in objects if file.suffix == ".dir"]
    files = [file for file in objects if file.suffix != ".dir"]
    check_named_and_brought_back(finished_project, [lists[0], files[0], files[-1]], "rotted")
