"""Downloads of official data as a user runs them, by `dvc repro` and `flows.refresh`, under everything that happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
import yaml
from official_pages import Cut, Slow, Status
from official_server import OfficialServer
from official_sets import preset, served, write_pins

from tasks.datasets import DATASETS
from tests.faults.small_disk import FULL, on_small_disk
from tests.faults.small_project import SmallProject, wait_for
from tests.project_copy import ROOT

DOWNLOAD = ("dvc", "repro", "download@wands")


@pytest.fixture
def server(tmp_path, monkeypatch) -> Iterator[OfficialServer]:
    """Every official place; the commands of a project find them there."""
    (tmp_path / "server").mkdir()
    with OfficialServer(tmp_path / "server") as here:
        for name, value in here.environment().items():
            monkeypatch.setenv(name, value)
        yield here


def official(project: SmallProject, server: OfficialServer, *names: str) -> None:
    """Serve these sets, and let them be all that params.yaml of `project` names; from their official places."""
    path = project.folder / "params.yaml"
    params = yaml.safe_load(path.read_text())
    entries = yaml.safe_load((ROOT / "params.yaml").read_text())["datasets"]
    params["datasets"] = {}
    for name in names:
        key = next(iter(DATASETS[name].origins))
        folder = project.folder.parent / name
        folder.mkdir()
        write_pins(project.folder, served(server, name, key, folder, queries=300))
        made = preset(name, key, entries[name]["presets"], "clean")
        params["datasets"][name] = entries[name] | {"source": "official", "presets": {"clean": made}, "preset": "clean"}
    path.write_text(yaml.safe_dump(params, sort_keys=False))


def bytes_of(name: str) -> str:
    """Where the bytes of a set come from: its archive, a file of its repository, or one that has an address."""
    origin = next(iter(DATASETS[name].origins.values()))
    if origin.repository is None:
        return str((origin.archive or origin.files[-1]).url)
    return f"{origin.repository}/{origin.files[-1].path.replace('*', '00000-of-00001')}"


def whole(project: SmallProject, name: str) -> bool:
    """Does the raw folder hold the files that are served, and nothing else?"""
    raw = project.folder / "data/raw" / name
    about = json.loads((raw / "source.json").read_text())
    served_files = {path.name: path.read_bytes() for path in (project.folder.parent / name / "served").rglob("*.csv")}
    found = {path.name: path.read_bytes() for path in raw.rglob("*") if path.is_file() and path.name != "source.json"}
    return about["source"] == "official" and found == served_files


def test_a_killed_download_goes_on_where_it_was(young_project, server):
    official(young_project, server, "wands")
    server.fault(bytes_of("wands"), Slow(20_000))
    running = young_project.start(*DOWNLOAD)
    state = young_project.folder / "data/raw/.wands.partial"
    wait_for(lambda: any(path.stat().st_size > 2_000 for path in state.rglob("label.csv.partial")), "some of label.csv")
    running.kill()
    assert not (young_project.folder / "data/raw/wands").exists()
    server.requests.clear()
    young_project.run(*DOWNLOAD)
    (asked,) = server.requests
    assert int(str(asked.range).removeprefix("bytes=").removesuffix("-")) > 2_000
    assert whole(young_project, "wands")


def test_a_full_disk_in_a_download_is_named_and_the_same_command_goes_on_with_room(young_project, server):
    official(young_project, server, "wands")
    full, _ = on_small_disk(young_project, *DOWNLOAD, size="120k")
    assert FULL in full
    assert "Traceback" not in full
    assert [one for one in server.requests if one.range]
    assert whole(young_project, "wands")


@pytest.mark.faults
def test_all_six_come_from_their_places_to_the_report_and_one_that_fails_stops_no_other(project, server):
    names = list(DATASETS)
    official(project, server, *names)
    for name in names[1:]:
        server.fault(bytes_of(name), Cut(3000), Status(503, retry_after=1), Cut(5000))
    server.fault(bytes_of(names[0]), Status(404))
    printed = project.run("flows.refresh", status=1)
    assert f"{names[0]}: https://" in printed
    assert "the server answers 404" in printed
    assert "DATA_MIRROR=<folder>" in printed
    report = project.folder / "data/report"
    done = pl.read_csv(report / "main.csv").filter(pl.col("source") == "official")["dataset"].unique()
    assert set(done) == set(names[1:])
    project.run("flows.refresh")
    counts = pl.read_csv(report / "counts.csv").filter(pl.col("published").is_not_null())
    assert set(counts["dataset"]) == set(names)
    assert counts["holds"].all()
    assert {path.name for path in (project.folder / "data/base").glob("*/contract.json")} == {"contract.json"}
    assert not list((project.folder / "data/raw").rglob("*.partial*"))


def test_the_pins_of_a_copy_are_the_only_difference(young_project, server):
    official(young_project, server, "wands")
    ours = (ROOT / "tasks/datasets/wands.py").read_text().splitlines()
    theirs = (young_project.folder / "tasks/datasets/wands.py").read_text().splitlines()
    assert [line for line in theirs if line not in ours and not line.startswith("ORIGINS = ")] == []
    assert not Path(young_project.folder / "data/raw").exists()
