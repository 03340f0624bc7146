"""Each official set from its own addresses to logits, on files of its layout that are made up here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import yaml
from official_pages import Cut, Html, LfsPointer, Status, Wrong
from official_server import OfficialServer
from official_sets import CHOICES, internet, preset, served
from project_copy import write_own_pairs

from tasks import download, train
from tasks.datasets import DATASETS
from tasks.expectations.check import GateFailed, violated
from tasks.protocol.errors import BadInput
from tasks.protocol.store import (
    base_folder,
    downloads_folder,
    failed_gates_file,
    raw_folder,
    read_base,
    read_json,
    read_pairs,
)
from tasks.provenance.hashing import sha256_of_file

ROOT = Path(__file__).resolve().parent.parent
PRESETS = yaml.safe_load((ROOT / "params.yaml").read_text())["datasets"]


@pytest.fixture
def server(tmp_path, monkeypatch) -> Iterator[OfficialServer]:
    with internet(tmp_path, monkeypatch) as here:
        yield here


@pytest.fixture
def project(tmp_path, monkeypatch, server):
    """Serve an official set and ask for it in params.yaml; returns the data set as it is pinned there."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def lay_out(name: str, key: str, chosen: str = "clean"):
        dataset = served(server, name, key, tmp_path)
        monkeypatch.setitem(DATASETS, name, dataset)
        params = yaml.safe_load((ROOT / "params.yaml").read_text())
        made = preset(name, key, params["datasets"][name]["presets"], chosen)
        params["datasets"][name] |= {"source": "official", "presets": {chosen: made}, "preset": chosen}
        (folder / "params.yaml").write_text(yaml.safe_dump(params))
        return dataset

    return lay_out


@pytest.mark.parametrize("chosen", ["clean", "paper_guess"])
@pytest.mark.parametrize(("name", "key"), CHOICES)
def test_an_official_set_comes_from_its_address_to_logits(project, server, name, key, chosen):
    dataset = project(name, key, chosen)
    origin = dataset.origins[key]
    download.main(name)
    about = read_json(raw_folder(name) / "source.json")
    assert (about["source"], about["revision"], about["licence"]) == ("official", origin.revision, origin.licence)
    assert all(any(file.fits(one["path"]) for file in origin.files) for one in about["files"])
    for one in about["files"]:
        assert sha256_of_file(raw_folder(name) / one["path"]) == one["sha256"]
    assert not downloads_folder(name).exists()
    train.main(name)
    assert read_json(base_folder(name) / "contract.json")["success"]
    facts = read_json(base_folder(name) / "base.json")
    assert {one["what"]: one["value"] for one in facts["published"]}.items() <= facts["counts"].items()
    assert min(min(classes) for classes in facts["class_counts"].values()) > 0
    if facts["split_by"] == "group":
        assert (
            read_pairs(name).group_by("group").agg(splits="split").select("splits").to_series().list.n_unique().max()
            == 1
        )
    assert len(read_base(name).test) == facts["rows"]["test"]


def address(dataset, key) -> str:
    """Where the bytes of the first file, or of the archive, come from."""
    origin = dataset.origins[key]
    if origin.repository is not None:
        return f"{origin.repository}/{sorted(one.path for one in origin.files)[0]}"
    return str((origin.archive or origin.files[0]).url)


ONE_EACH = [("wands", "github"), ("scidocs", "mteb"), ("mslr_web10k", "1")]  # plain, hub, archive


@pytest.mark.parametrize(("name", "key"), ONE_EACH)
def test_cuts_and_busy_servers_make_no_difference(project, server, name, key):
    dataset = project(name, key)
    download.main(name)
    before = read_json(raw_folder(name) / "source.json")
    server.fault(address(dataset, key), Cut(500), Status(503, times=2), Cut(700, reset=True))
    (raw_folder(name) / "source.json").unlink()
    download.main(name)
    assert read_json(raw_folder(name) / "source.json") == before


@pytest.mark.parametrize("fault", [Wrong(b"x" * 40), Html(), LfsPointer(), Status(404)], ids=repr)
@pytest.mark.parametrize(("name", "key"), ONE_EACH)
def test_what_is_not_the_official_file_leaves_what_was_there_as_it_was(project, server, name, key, fault):
    dataset = project(name, key)
    raw_folder(name).mkdir(parents=True)
    (raw_folder(name) / "of_before.csv").write_text("whole\n")
    server.fault(address(dataset, key), fault)
    with pytest.raises(BadInput, match=f"{name}: (.|\n)*DATA_MIRROR=<folder>"):
        download.main(name)
    assert [path.name for path in raw_folder(name).rglob("*")] == ["of_before.csv"]
    download.main(name)
    assert not (raw_folder(name) / "of_before.csv").exists()


def test_what_is_there_and_whole_is_not_downloaded_again(project, server, capsys):
    project("wands", "github")
    download.main("wands")
    server.requests.clear()
    capsys.readouterr()
    download.main("wands")
    assert server.requests == []
    assert "unchanged since it came" in capsys.readouterr().out


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / "dataset/label.csv").write_text("id\n"),
        lambda folder: (folder / "dataset/query.csv").unlink(),
        lambda folder: (folder / "more.csv").write_text("x\n"),
    ],
    ids=["changed", "gone", "more"],
)
def test_raw_files_that_are_no_longer_those_that_were_verified_are_downloaded_again(project, server, spoil):
    project("wands", "github")
    download.main("wands")
    before = read_json(raw_folder("wands") / "source.json")
    spoil(raw_folder("wands"))
    download.main("wands")
    assert read_json(raw_folder("wands") / "source.json") == before
    assert sorted(path.name for path in raw_folder("wands").rglob("*.csv")) == ["label.csv", "product.csv", "query.csv"]


def test_another_revision_is_another_download(project, server, monkeypatch, tmp_path):
    dataset = project("wands", "github")
    download.main("wands")
    origin = replace(dataset.origins["github"], revision="f" * 40)
    monkeypatch.setitem(DATASETS, "wands", replace(dataset, origins={"github": origin}))
    server.requests.clear()
    download.main("wands")
    assert len(server.requests) == 3
    assert read_json(raw_folder("wands") / "source.json")["revision"] == "f" * 40


def test_terms_are_shown_before_anything_is_asked_for_and_kept(project, server, capsys):
    dataset = project("mslr_web10k", "1")
    origin = dataset.origins["1"]
    server.fault(str(origin.archive.url), Status(404))
    with pytest.raises(BadInput):
        download.main("mslr_web10k")
    assert origin.terms in capsys.readouterr().out
    download.main("mslr_web10k")
    about = read_json(raw_folder("mslr_web10k") / "source.json")
    assert (about["licence"], about["terms"]) == (origin.licence, origin.terms)


def test_nothing_is_trained_on_files_that_do_not_hold_what_is_published(project, monkeypatch):
    dataset = project("wands", "github")
    origin = dataset.origins["github"]
    wrong = tuple(replace(one, value=one.value + one.verified) for one in origin.published)
    monkeypatch.setitem(DATASETS, "wands", replace(dataset, origins={"github": replace(origin, published=wrong)}))
    download.main("wands")
    with pytest.raises(GateFailed, match="`contract` is closed for dataset wands"):
        train.main("wands")
    assert not base_folder("wands").exists()
    kept = read_json(failed_gates_file("wands"))
    assert (kept["dataset"], kept["source"]) == ("wands", "official")
    found = {(row["gate"], row["dataset"]): row["found"] for row in violated(kept["gates"])}
    assert "count queries: published = " in found["contract", "wands"]
    monkeypatch.setitem(DATASETS, "wands", dataset)
    train.main("wands")
    assert not failed_gates_file("wands").exists()


def test_a_mirror_of_all_raw_folders_needs_no_internet(project, server, tmp_path, monkeypatch):
    project("wands", "github")
    download.main("wands")
    raw_folder("wands").parent.rename(tmp_path / "elsewhere")
    monkeypatch.setenv("DATA_MIRROR", str(tmp_path / "elsewhere"))
    server.requests.clear()
    download.main("wands")
    assert server.requests == []
    assert (raw_folder("wands") / "dataset/label.csv").is_file()


def test_a_set_of_ones_own_comes_from_the_hub_to_logits(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "shop"
    (folder / "data").mkdir(parents=True)
    write_own_pairs(tmp_path / "mine.csv")
    pl.read_csv(tmp_path / "mine.csv").write_parquet(folder / "data/train-00000-of-00001.parquet")
    (folder / "README.md").write_text("---\nlicense: mit\n---\nJudged pairs of a shop.\n")
    (folder / "logo.png").write_bytes(b"not a table")
    server.repository("me/shop-judgements", "0123456789abcdef0123456789abcdef01234567", folder)
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["datasets"] = yaml.safe_load(hub_example())
    Path("params.yaml").write_text(yaml.safe_dump(params))
    download.main("shop")
    about = read_json(raw_folder("shop") / "source.json")
    assert (about["source"], about["licence"]) == ("hub", "see the data set's card")
    assert [one["path"] for one in about["files"]] == ["README.md", "data/train-00000-of-00001.parquet"]
    train.main("shop")
    assert sum(read_json(base_folder("shop") / "base.json")["rows"].values()) == 900


def hub_example() -> str:
    """The example of the README, with the columns that `write_own_pairs` has."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "README.md").read_text(), flags=re.DOTALL | re.MULTILINE)
    (example,) = [block for block in blocks if "source: hub" in block]
    return example.replace("group: query_id", "group: query")
