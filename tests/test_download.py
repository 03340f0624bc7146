"""Raw files come from where params.yaml says, whole and checked, or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import yaml
from official_sets import known
from samples.official import WRITERS

from tasks import download
from tasks.datasets import DATASETS
from tasks.protocol.errors import BadInput
from tasks.protocol.store import raw_folder, read_json
from tasks.provenance.hashing import sha256_of_file

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Change an entry of params.yaml in a project folder of its own; returns that folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATA_MIRROR", raising=False)
    params = yaml.safe_load((ROOT / "params.yaml").read_text())

    def write(**changes: object) -> Path:
        params["datasets"]["wands"].update(changes)
        (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
        return tmp_path

    return write


OPTIONS = {
    "labels": ["bad", "good"],
    "pairs": {"path": "mine.csv", "group": "q", "query": "q", "candidate": "c", "label": "y"},
}
OWN = {"reader": "files", "source": "files", "preset": None, "split": {"by": "row"}, "options": OPTIONS}


def test_a_twin_is_simulated_and_says_so(project):
    project(rows=500)
    download.main("wands")
    about = read_json(raw_folder("wands") / "source.json")
    assert about["source"] == "simulated"
    assert "500 rows, residual 1.0, seed 0" in about["origin"]
    for file in about["files"]:
        assert sha256_of_file(raw_folder("wands") / file["path"]) == file["sha256"]


def test_the_same_twin_is_the_same_bytes_again(project):
    project(rows=500)
    download.main("wands")
    before = read_json(raw_folder("wands") / "source.json")
    download.main("wands")
    assert read_json(raw_folder("wands") / "source.json") == before


def test_nothing_of_a_twin_stays_when_the_source_changes(project):
    project(rows=500)
    download.main("wands")
    folder = project(path="mine.csv", **OWN)
    pl.DataFrame({"q": ["lamp"], "c": ["red lamp"], "y": ["good"]}).write_csv(folder / "mine.csv")
    download.main("wands")
    assert sorted(path.name for path in raw_folder("wands").iterdir()) == ["mine.csv", "source.json"]


def test_files_of_ones_own_may_lie_in_a_folder(project):
    folder = project(path="own", **OWN)
    (folder / "own").mkdir()
    (folder / "own/mine.csv").write_text("q,c,y\nlamp,red lamp,good\n")
    download.main("wands")
    assert (raw_folder("wands") / "mine.csv").read_text() == "q,c,y\nlamp,red lamp,good\n"


@pytest.fixture
def official(tmp_path, monkeypatch):
    """A mirror with files in the layout of WANDS, declared with the sizes and hashes that they have."""
    folder = tmp_path / "mirror" / "wands"
    folder.mkdir(parents=True)
    WRITERS["wands"](folder)
    origin = DATASETS["wands"].origins["github"]
    # where nobody answers: what the mirror lacks cannot come from elsewhere
    files = tuple(
        known(replace(file, url=f"http://127.0.0.1:9/{file.path}"), folder / file.path) for file in origin.files
    )
    monkeypatch.setitem(DATASETS, "wands", replace(DATASETS["wands"], origins={"github": replace(origin, files=files)}))
    return folder


def test_a_mirror_is_read_where_it_holds_the_official_files(project, official, monkeypatch):
    project(source="official")
    monkeypatch.setenv("DATA_MIRROR", str(official.parent))
    download.main("wands")
    about = read_json(raw_folder("wands") / "source.json")
    assert about["licence"] == "MIT"
    assert about["revision"] == DATASETS["wands"].origin({}).revision
    assert {file["path"] for file in about["files"]} == {
        f"dataset/{name}.csv" for name in ("query", "product", "label")
    }


def spoil(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)


SPOILT = {
    "a file that is missing": (
        lambda folder: (folder / "dataset/label.csv").unlink(),
        "label.csv: 127.0.0.1 cannot be reached",
    ),
    "a file that is cut off": (lambda folder: (folder / "dataset/label.csv").write_text("id"), "it has 2 bytes, not"),
    "a file with a flipped bit": (lambda folder: spoil(folder / "dataset/label.csv"), "its SHA-256 is"),
}


@pytest.mark.parametrize(("change", "told"), SPOILT.values(), ids=SPOILT)
def test_a_mirror_that_is_not_the_official_set_is_refused(project, official, monkeypatch, change, told):
    project(source="official")
    monkeypatch.setenv("DATA_MIRROR", str(official.parent))
    change(official)
    with pytest.raises(BadInput, match="wands") as error:
        download.main("wands")
    assert told in str(error.value)
    assert not (raw_folder("wands") / "source.json").exists()


REFUSED = {
    "the hub without its reader": ({"source": "hub"}, "source `hub` and reader `hub` go together"),
    "an unknown reader": ({"reader": "wand"}, "no reader 'wand'"),
    "a file that is not there": ({"path": "nowhere.csv", **OWN}, "nowhere"),
}


@pytest.mark.parametrize(("changes", "told"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_brought_is_told(project, changes, told):
    project(**changes)
    with pytest.raises(BadInput) as error:
        download.main("wands")
    assert told in str(error.value)
    assert not (raw_folder("wands") / "source.json").exists()
