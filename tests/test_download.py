"""Raw files come from where params.yaml says, whole and on record, or not at all."""

import hashlib
import shutil
from pathlib import Path
from urllib.parse import unquote

import httpx2
import pytest
import yaml
from huggingface_hub import constants

from tasks import download, train
from tasks.protocol.errors import BadInput
from tasks.protocol.store import base_folder, downloads_folder, raw_folder, read_json
from tasks.simulation import simulate

FIRST, SECOND = "a" * 40, "b" * 40
ROOT = Path(__file__).resolve().parent.parent
OPTIONS = {
    "labels": ["bad", "good"],
    "pairs": {"path": "mine.csv", "group": "q", "query": "q", "candidate": "c", "label": "y"},
}
OWN = {"reader": "files", "source": "files", "path": "mine.csv", "split": {"by": "row"}, "options": OPTIONS}
TABLE = "data/test-00000-of-00001.parquet"
NAME = "mteb/scidocs-reranking"
SCIDOCS = {"source": "hub", "path": "tasks/datasets/scidocs.py", "preset": "paper"}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Write params.yaml with one data set, `scidocs`, in a project folder of its own; returns that function."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("DATA_MIRROR", raising=False)
    params = yaml.safe_load((ROOT / "params.yaml").read_text())

    def write(**entry: object) -> Path:
        params["datasets"] = {"scidocs": entry}
        params["train"]["alternatives"] = []
        (folder / "params.yaml").write_text(yaml.safe_dump(params))
        return folder

    return write


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    """A made-up repository in the layout of SciDocs, with a file that no reader wants."""
    folder = tmp_path_factory.mktemp("repository")
    simulate("scidocs", folder, rows=3000, residual=1.0, seed=0)
    (folder / "truth.parquet").unlink()
    (folder / "scidocs.py").write_text("raise SystemExit\n")
    return folder


class Hub:
    """As much of the Hugging Face hub as its library asks for; what is asked is noted."""

    def __init__(self, folder: Path) -> None:
        self.commit, self.folder = FIRST, folder
        self.reached, self.there, self.gated = True, True, False
        self.hashes: dict[str, str] = {}  # SHA-256 of files, as the hub states them
        self.requests: list[str] = []

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        """What it says to a request."""
        if not self.reached:
            raise httpx2.ConnectError("refused")
        path = unquote(request.url.path)
        self.requests.append(path)
        about, files = f"/api/datasets/{NAME}", f"/datasets/{NAME}/resolve/{self.commit}/"
        if self.there and path in (about, f"{about}/revision/main", f"{about}/revision/{self.commit}"):
            large = {"size": 1, "pointerSize": 1}
            siblings = [{"rfilename": one, "lfs": large | {"sha256": seen}} for one, seen in self.hashes.items()]
            return httpx2.Response(200, json={"id": NAME, "sha": self.commit, "siblings": siblings})
        if self.there and path == f"{about}/tree/{self.commit}":
            sizes = {str(file.relative_to(self.folder)): file.stat().st_size for file in self.folder.rglob("*.*")}
            entries = [{"type": "file", "path": one, "size": size, "oid": "0" * 40} for one, size in sizes.items()]
            return httpx2.Response(200, json=entries)
        if self.there and path.startswith(files):
            if self.gated:
                return httpx2.Response(401, headers={"X-Error-Code": "GatedRepo"})
            body = (self.folder / path.removeprefix(files)).read_bytes()
            tag = hashlib.sha1(body, usedforsecurity=False).hexdigest()
            return httpx2.Response(200, headers={"ETag": f'"{tag}"', "X-Repo-Commit": self.commit}, content=body)
        return httpx2.Response(404, headers={"X-Error-Code": "RepoNotFound"})


@pytest.fixture
def served(tmp_path, monkeypatch, repository):
    """A hub that the library asks in place of the real one, with a cache of its own."""
    hub = Hub(repository)
    settings = {"HF_HUB_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": False, "HF_HUB_DISABLE_XET": True}
    for name, value in settings.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setattr(httpx2.HTTPTransport, "handle_request", lambda _, request: hub.answer(request))
    return hub


def downloaded() -> dict:
    """What the stage notes beside the raw files, each of which has the hash that is noted."""
    download.main("scidocs")
    note = read_json(raw_folder("scidocs") / "source.json")
    for file in note["files"]:
        assert hashlib.sha256((raw_folder("scidocs") / file["path"]).read_bytes()).hexdigest() == file["sha256"]
    return note


@pytest.mark.parametrize("path", ["mine.csv", "."])
def test_a_twin_is_simulated_and_says_so_is_the_same_bytes_again_and_goes_when_the_source_changes(project, path):
    project(source="simulated", path="x", rows=500, residual=1.0, preset="paper")
    note = downloaded()
    assert note["source"] == "simulated"
    assert "500 rows, residual 1.0, seed 0" in note["origin"]
    assert downloaded() == note
    (project(**OWN | {"path": path}) / "mine.csv").write_text("q,c,y\nlamp,red lamp,good\n")
    assert [file["path"] for file in downloaded()["files"]] == ["mine.csv"]
    assert sorted(path.name for path in raw_folder("scidocs").iterdir()) == ["mine.csv", "source.json"]


def test_a_set_of_the_paper_comes_from_the_hub_to_logits(project, served):
    project(**SCIDOCS)
    note = downloaded()
    assert (note["source"], note["revision"], note["licence"]) == ("hub", FIRST, "CC BY 4.0")
    assert [file["path"] for file in note["files"]] == ["README.md", TABLE]
    train.main("scidocs")
    assert read_json(base_folder("scidocs") / "contract.json")["success"]
    assert read_json(base_folder("scidocs") / "base.json")["origin"]["revision"] == FIRST


def test_what_is_there_and_whole_is_not_downloaded_again_and_what_is_not_is(project, served, capsys):
    project(**SCIDOCS)
    note = downloaded()
    served.requests.clear()
    assert downloaded() == note
    assert served.requests == [f"/api/datasets/{NAME}"]
    assert "unchanged since it came" in capsys.readouterr().out
    (raw_folder("scidocs") / TABLE).write_bytes(b"cut")
    assert downloaded() == note


def test_a_revision_that_moved_stops_until_somebody_says_which_is_meant(project, served):
    project(**SCIDOCS)
    downloaded()
    served.commit = SECOND
    with pytest.raises(BadInput, match=f"scidocs: .* has moved to revision {SECOND}.* holds {FIRST}; write .*revision"):
        download.main("scidocs")
    for revision in (FIRST, SECOND):
        project(**SCIDOCS | {"revision": revision})
        assert downloaded()["revision"] == revision


def test_offline_the_cache_of_the_library_serves_and_what_is_there_is_kept(project, served, monkeypatch):
    project(**SCIDOCS)
    note = downloaded()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    served.requests.clear()
    assert downloaded() == note
    shutil.rmtree(raw_folder("scidocs"))
    assert (downloaded(), served.requests) == (note, [])


def test_a_file_is_held_to_the_hash_that_the_hub_states_and_one_without_is_said_to_be_unverified(
    project, served, repository, capsys
):
    project(**SCIDOCS)
    served.hashes = {TABLE: "0" * 64}
    with pytest.raises(BadInput, match=f"scidocs: .*{TABLE} is not what .* states .*; delete .* and download again"):
        download.main("scidocs")
    assert not raw_folder("scidocs").exists()
    served.hashes = {TABLE: hashlib.sha256((repository / TABLE).read_bytes()).hexdigest()}
    assert downloaded()["verified"] == [TABLE]
    assert "scidocs: unverified, since nothing is known of their content: README.md\n" in capsys.readouterr().out


def test_a_mirror_is_a_folder_laid_out_like_the_repository(project, served, repository, tmp_path, monkeypatch):
    shutil.copytree(repository, tmp_path / "mirror/scidocs")
    monkeypatch.setenv("DATA_MIRROR", str(tmp_path / "mirror"))
    project(**SCIDOCS)
    note = downloaded()
    assert (note["revision"], note["origin"]) == (None, str(tmp_path / "mirror/scidocs"))
    assert served.requests == []
    monkeypatch.setenv("DATA_MIRROR", str(tmp_path / "nowhere"))
    with pytest.raises(BadInput, match=r"scidocs: DATA_MIRROR is set, but .*nowhere/scidocs is no folder"):
        download.main("scidocs")


FAILURES = {  # what of the hub is otherwise -> how, and what is said
    "there": (False, "is not there, or is private"),
    "gated": (True, "is gated: accept its terms there, then `hf auth login` or set HF_TOKEN"),
    "folder": (ROOT / "tasks/datasets", f"holds no table of {NAME} .* a script is never run"),
    "reached": (False, "cannot be reached .*DATA_MIRROR, or HF_HUB_OFFLINE=1"),
    "offline": (True, "is not whole in the cache of huggingface_hub, .*HF_HUB_OFFLINE"),
}


@pytest.mark.parametrize("revision", [None, FIRST])
@pytest.mark.parametrize(("what", "value", "message"), [(what, *of) for what, of in FAILURES.items()])
def test_what_the_hub_does_not_give_is_one_sentence_and_leaves_what_was_there(
    project, served, monkeypatch, what, value, message, revision
):
    project(**SCIDOCS, revision=revision)
    raw_folder("scidocs").mkdir(parents=True)
    (raw_folder("scidocs") / "of_before.csv").write_text("whole\n")
    setattr(served, what, value)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", what == "offline")
    monkeypatch.setattr("time.sleep", lambda _: None)  # before the library asks again
    with pytest.raises(BadInput, match=f"scidocs: .*{message}") as error:
        download.main("scidocs")
    assert "\n" not in str(error.value)
    assert [path.name for path in raw_folder("scidocs").rglob("*")] == ["of_before.csv"]
    assert not downloads_folder("scidocs").exists()


REFUSED = {
    "a set of the paper without its preset": ({"source": "hub", "path": "x"}, "preset: paper"),
    "a reader of one's own from elsewhere": (OWN | {"source": "hub"}, "does not read the source `hub`"),
    "an unknown reader": (SCIDOCS | {"reader": "wand"}, "no reader 'wand'"),
    "a file that is not there": (OWN | {"path": "nowhere.csv"}, "nowhere"),
    "a branch for a revision": (SCIDOCS | {"revision": "main"}, "revision"),
}


@pytest.mark.parametrize(("entry", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_brought_is_named(project, entry, message):
    project(**entry)
    with pytest.raises(BadInput, match=message):
        download.main("scidocs")
    assert not (raw_folder("scidocs") / "source.json").exists()
