"""Raw files come from where params.yaml says, whole or not at all; training reads them and leaves fixed decisions."""

import hashlib
import shutil
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx2
import numpy as np
import polars as pl
import pytest
import yaml
from huggingface_hub import constants

from flows import refresh
from relmap.decisions import decide
from relmap.errors import InputError
from tasks import download, train
from tasks.datasets import DATASETS
from tasks.predictors import load_predictor
from tasks.records.splits import SPLITS
from tasks.records.store import base_folder, raw_folder, read_base, read_json
from tasks.simulation import simulate
from tests.project_copy import OWN_PAIRS, ROOT, edit_params, write_own_pairs

FIRST, SECOND = "a" * 40, "b" * 40
TABLE = "data/test-00000-of-00001.parquet"
NAME = "mteb/scidocs-reranking"
SCIDOCS = {"source": "hub", "path": "tasks/datasets/scidocs.py", "preset": "paper"}


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.delenv("DATA_MIRROR", raising=False)


def declare(name: str = "scidocs", train_section: dict[str, Any] | None = None, **entry: object) -> None:
    """Write params.yaml with one data set, by default with one base predictor."""
    shutil.copy(ROOT / "params.yaml", "params.yaml")
    changes = {"alternatives": []} | (train_section or {})
    edit_params(Path(), lambda params: params.update(datasets={name: entry}, train=params["train"] | changes))


def trained(name: str, entry: dict[str, Any], **train_section: object) -> Path:
    declare(name, train_section, **entry)
    download.main(name)
    train.main(name)
    return base_folder(name)


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
        if not self.reached:
            raise httpx2.ConnectError("refused")
        path = unquote(request.url.path)
        self.requests.append(path)
        about, files = f"/api/datasets/{NAME}", f"/datasets/{NAME}/resolve/{self.commit}/"
        if self.there and path in (about, f"{about}/revision/main", f"{about}/revision/{self.commit}"):
            known = [(file, {"size": 1, "pointerSize": 1, "sha256": seen}) for file, seen in self.hashes.items()]
            siblings = [{"rfilename": file, "lfs": large} for file, large in known]
            return httpx2.Response(200, json={"id": NAME, "sha": self.commit, "siblings": siblings})
        if self.there and path == f"{about}/tree/{self.commit}":
            sizes = {str(file.relative_to(self.folder)): file.stat().st_size for file in self.folder.rglob("*.*")}
            entries = [{"type": "file", "path": file, "size": size, "oid": "0" * 40} for file, size in sizes.items()]
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
    """A hub that the library asks in place of the real one, with a cache of its own, and a declared set of it."""
    declare(**SCIDOCS)
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
def test_a_twin_is_simulated_and_says_so_is_the_same_bytes_again_and_goes_when_the_source_changes(path):
    declare(source="simulated", path="x", rows=500, residual=1.0, preset="paper")
    note = downloaded()
    assert note["source"] == "simulated"
    assert "500 rows, residual 1.0, seed 0" in note["origin"]
    assert downloaded() == note
    write_own_pairs(Path("mine.csv"))
    declare(**OWN_PAIRS | {"path": path})
    assert [file["path"] for file in downloaded()["files"]] == ["mine.csv"]
    assert sorted(path.name for path in raw_folder("scidocs").iterdir()) == ["mine.csv", "source.json"]


def test_a_set_of_the_paper_comes_from_the_hub_to_logits(served):
    note = downloaded()
    assert (note["source"], note["revision"], note["licence"]) == ("hub", FIRST, "CC BY 4.0")
    assert [file["path"] for file in note["files"]] == ["README.md", TABLE]
    train.main("scidocs")
    assert read_json(base_folder("scidocs") / "contract.json")["success"]
    assert read_json(base_folder("scidocs") / "base.json")["origin"]["revision"] == FIRST


def test_what_is_there_and_whole_is_not_downloaded_again_and_what_is_not_is(served, capsys):
    note = downloaded()
    served.requests.clear()
    assert downloaded() == note
    assert served.requests == [f"/api/datasets/{NAME}"]
    assert ", unchanged\n" in capsys.readouterr().out
    (raw_folder("scidocs") / TABLE).write_bytes(b"cut")
    assert downloaded() == note


def test_a_revision_that_moved_stops_until_somebody_says_which_is_meant(served):
    downloaded()
    served.commit = SECOND
    with pytest.raises(
        InputError, match=f"scidocs: .* has moved to revision {SECOND}.* holds {FIRST}; write .*revision"
    ):
        download.main("scidocs")
    for revision in (FIRST, SECOND):
        declare(**SCIDOCS | {"revision": revision})
        assert downloaded()["revision"] == revision


def test_offline_the_cache_of_the_library_serves_and_what_is_there_is_kept(served, monkeypatch):
    note = downloaded()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    served.requests.clear()
    assert downloaded() == note
    shutil.rmtree(raw_folder("scidocs"))
    assert (downloaded(), served.requests) == (note, [])


def test_a_downloaded_file_must_have_the_published_hash(served, repository, capsys):
    served.hashes = {TABLE: "0" * 64}
    with pytest.raises(InputError, match=f"scidocs: the SHA-256 of {TABLE} differs .*; delete .* and download again"):
        download.main("scidocs")
    assert not raw_folder("scidocs").exists()
    served.hashes = {TABLE: hashlib.sha256((repository / TABLE).read_bytes()).hexdigest()}
    assert downloaded()["verified"] == [TABLE]
    assert "scidocs: not verified, since the hub publishes no hash: README.md\n" in capsys.readouterr().out


def test_a_mirror_is_a_folder_laid_out_like_the_repository(served, repository, tmp_path, monkeypatch):
    shutil.copytree(repository, tmp_path / "mirror/scidocs")
    monkeypatch.setenv("DATA_MIRROR", str(tmp_path / "mirror"))
    note = downloaded()
    assert (note["revision"], note["origin"]) == (None, str(tmp_path / "mirror/scidocs"))
    assert served.requests == []
    monkeypatch.setenv("DATA_MIRROR", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"scidocs: DATA_MIRROR is set, but .*nowhere/scidocs is not a folder"):
        download.main("scidocs")


FAILURES = {  # what of the hub is otherwise -> how, and what is said
    "there": (False, "does not exist, or is private"),
    "gated": (True, "is gated: accept its terms there, then run `hf auth login` or set HF_TOKEN"),
    "folder": (ROOT / "tasks/datasets", f"has no table of {NAME} .* scripts are never run"),
    "reached": (False, "cannot be reached .*DATA_MIRROR, or HF_HUB_OFFLINE=1"),
    "offline": (True, "is not complete in the cache of huggingface_hub, .*HF_HUB_OFFLINE"),
}


@pytest.mark.parametrize("revision", [None, FIRST])
@pytest.mark.parametrize("what", FAILURES)
def test_what_the_hub_does_not_give_is_one_sentence_and_leaves_what_was_there(served, monkeypatch, what, revision):
    value, message = FAILURES[what]
    declare(**SCIDOCS, revision=revision)
    raw_folder("scidocs").mkdir(parents=True)
    (raw_folder("scidocs") / "of_before.csv").write_text("whole\n")
    setattr(served, what, value)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", what == "offline")
    monkeypatch.setattr("time.sleep", lambda _: None)  # before the library asks again
    with pytest.raises(InputError, match=f"scidocs: .*{message}") as error:
        download.main("scidocs")
    assert "\n" not in str(error.value)
    assert [path.name for path in raw_folder("scidocs").rglob("*")] == ["of_before.csv"]
    assert not [*raw_folder("").glob(".scidocs.*")]


@pytest.mark.parametrize("entry", [SCIDOCS | {"reader": "nowhere"}, OWN_PAIRS | {"path": "nowhere"}])
def test_a_reader_or_a_file_that_is_not_there_is_named(entry):
    declare(**entry)
    with pytest.raises(InputError, match=r"scidocs: .*nowhere"):
        download.main("scidocs")
    assert not (raw_folder("scidocs") / "source.json").exists()


def own_pairs(*splits: str) -> dict[str, Any]:
    """Write judged pairs, one in turn of each split; returns their entry in params.yaml."""
    write_own_pairs(Path("mine.csv"))
    frame = pl.read_csv("mine.csv")
    frame.with_columns(split=pl.Series(np.resize(splits, len(frame)))).write_csv("mine.csv")
    pairs = OWN_PAIRS["options"]["pairs"] | {"split": "split"}
    return OWN_PAIRS | {"split": {"by": "row"}, "options": {"labels": ["bad", "good"], "pairs": pairs}}


def test_a_mistake_in_ones_own_file_is_found_where_it_lies_before_it_is_taken_and_what_differs_is_counted():
    entry = own_pairs(*SPLITS)
    declare("mine", **entry)
    assert download.main("mine") is None
    frame = pl.read_csv("mine.csv")
    for changed, words in (
        (
            frame.with_columns(title=pl.when(pl.int_range(900) < 10).then(pl.lit("?")).otherwise("title")),
            "10 of 900 rows",
        ),
        (frame.head(890), "10 of 890 rows are new, and 20 earlier rows were removed"),
        (frame.head(890).reverse().with_columns(more=1), "the rows read from them do not"),
    ):
        changed.write_csv("mine.csv")
        assert words in str(download.main("mine"))
    frame.drop("grade").write_csv("mine.csv")
    with pytest.raises(
        InputError, match=r"^mine: mine\.csv has no column 'grade'; it has query, title, split; correct the options"
    ):
        download.main("mine")
    Path("mine.csv").unlink()
    for wrong, words in (
        (entry, "mine.csv does not exist.* has .*params.yaml"),
        (entry | {"reader": "csv"}, "unknown reader 'csv'; .* files"),
    ):
        declare("mine", **wrong)
        with pytest.raises(InputError, match=words):
            refresh.main()  # before anything is started


def test_decisions_are_the_argmax_of_the_saved_predictors_logits_their_rows_are_counted_and_come_again_to_the_byte():
    folder = trained("mine", own_pairs(*SPLITS))
    base = read_base("mine")
    pairs = pl.read_csv("mine.csv")
    frame = pairs.filter(split="test").select(text=pl.format("query: {}\ncandidate: {}", "query", "title"))
    assert (base.test.logits == load_predictor(folder)(frame)).all()
    assert (base.test.decision == decide(base.test.logits)).all()
    assert base.seed0_accuracy == base.test.correct.mean()
    assert base.drawn == ()
    facts, good = read_json(folder / "base.json"), len(pairs.filter(split="train", grade="good"))
    assert facts["rows"] == {"train": 300, "validation": 300, "test": 300}
    assert facts["class_counts"]["train"] == [300 - good, good]
    assert (facts["source"], facts["labels"]) == ("files", ["bad", "good"])
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert before.keys() == {"base.json", "logits.parquet", "pairs.parquet", "predictor.json", "predictor.npz"}
    train.main("mine")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("missing", SPLITS)
def test_an_empty_split_is_named_and_nothing_is_written(missing):
    with pytest.raises(InputError, match=f"the split {missing} has no pair"):
        trained("mine", own_pairs(*(split for split in SPLITS if split != missing)))
    assert not base_folder("mine").exists()


def test_other_base_predictors_are_trained_beside_the_first_for_what_a_choice_is_worth_and_for_members_and_runs():
    alternatives = ["unweighted", "multinomial", "member_1", "member_2"]
    wands = yaml.safe_load((ROOT / "params.yaml").read_text())["datasets"]["wands"]
    settings = {"members": 2, "runs": 2, "alternatives": alternatives, "alternatives_on_simulated": True}
    folder = trained("wands", wands | {"rows": 1000}, **settings)
    first = pl.read_parquet(folder / "logits.parquet")
    runs = [f"members/run_{run}_member_{member}" for run in range(2) for member in range(2)]
    paths = sorted(folder.glob("*/*.parquet"))
    frames = {f"{path.parent.name}/{path.stem}": pl.read_parquet(path) for path in paths}
    assert [*frames] == [*runs, *(f"sensitivity/{name}" for name in sorted(alternatives))]
    same = {(name, other) for name, other in combinations(frames, 2) if frames[name].equals(frames[other])}
    assert same == {(runs[1], "sensitivity/member_1")}  # every other one differs from all
    assert frames[runs[0]].equals(first.select(frames[runs[0]].columns))
    assert load_predictor(folder).header["seed"] == DATASETS["wands"].member_seed  # the first, not the last
    for frame in frames.values():
        assert frame.schema == first.schema
        assert frame.select("split", "group", "label").equals(first.select("split", "group", "label"))


def test_alternatives_are_not_trained_for_simulated_data_by_default():
    wands = yaml.safe_load((ROOT / "params.yaml").read_text())["datasets"]["wands"]
    folder = trained("wands", wands | {"rows": 1000}, alternatives=["unweighted", "multinomial"])
    assert not (folder / "sensitivity").exists()


def test_saved_logits_take_the_place_of_training():
    generator = np.random.default_rng(0)
    arrays = {f"{part}_logits": generator.normal(size=(2, 40, 3)).astype(np.float32) for part in ("val", "test")}
    np.savez("mine.npz", val_labels=np.arange(40) % 3, test_labels=np.arange(40) % 3, **arrays)
    entry = {"reader": "logits", "source": "files", "path": "mine.npz", "options": {"labels": ["a", "b", "c"]}}
    folder = trained("mine", entry)
    base = read_base("mine")
    assert (base.test.logits == arrays["test_logits"][0]).all()
    assert (base.test.decision == decide(arrays["test_logits"][0].astype(np.float64))).all()
    assert {path.stem for path in (folder / "members").iterdir()} == {"run_0_member_0", "run_0_member_1"}
    assert pl.read_parquet(folder / "pairs.parquet").columns == ["pair", "split", "group", "label", "logits_finite"]
    assert not (folder / "predictor.json").exists()
    with pytest.raises(InputError, match=r"mine\.npz has 3 logits in each row, but options name 2 labels"):
        trained("mine", entry | {"options": {"labels": ["a", "b"]}})
