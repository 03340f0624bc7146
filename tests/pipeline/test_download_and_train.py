"""Download of raw files from their declared sources, and training of base predictors."""

import hashlib
import logging
import re
import runpy
import shutil
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call
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
from tasks.datasets import DATASETS, find_dataset
from tasks.expectations.check import GateFailed
from tasks.predictors import HEADER
from tasks.provenance import stage
from tasks.records.splits import SPLITS, draw_splits
from tasks.records.store import base_folder, failed_gates_file, raw_folder, read_base, read_json
from tasks.settings.dataset_params import DatasetParams, TwinParams
from tasks.settings.params import TrainParams
from tasks.simulation import simulate
from tasks.train import PredictorChoice
from tests.project_copy import OWN_PAIRS_DATASET, ROOT, edit_params, write_own_pairs

FIRST_REVISION = "a" * 40
SECOND_REVISION = "b" * 40
TABLE = "data/test-00000-of-00001.parquet"
REPOSITORY_NAME = "mteb/scidocs-reranking"
SCIDOCS = {"source": "hub", "path": "tasks/datasets/scidocs.py", "preset": "paper"}


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.delenv("DATA_MIRROR", raising=False)


def declare_data_set(name: str = "scidocs", train_section: dict[str, Any] | None = None, **entry: object) -> None:
    """Write params.yaml with one data set, by default with one base predictor."""
    shutil.copy(ROOT / "params.yaml", "params.yaml")

    def change(params: dict[str, Any]) -> None:
        params["datasets"] = {name: entry}
        params["train"]["alternatives"] = []
        params["train"].update(train_section or {})

    edit_params(Path(), change)


def download_and_train(name: str, entry: dict[str, Any], **train_section: object) -> Path:
    declare_data_set(name, train_section, **entry)
    download.main(name)
    train.main(name)
    return base_folder(name)


TWIN = {"label_shares": [0.8, 0.2], "strength": 0.7, "log_sharpness": 0.0}


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    """Simulate a repository in the layout of SciDocs, with a file that no reader uses."""
    folder = tmp_path_factory.mktemp("repository")
    simulate("scidocs", folder, rows=3000, residual=1.0, twin=TwinParams.model_validate(TWIN), seed=0)
    (folder / "truth.parquet").unlink()
    (folder / "scidocs.py").write_text("raise SystemExit\n")
    return folder


class Hub:
    """Fake of the Hugging Face hub that records requests."""

    def __init__(self, folder: Path) -> None:
        self.commit = FIRST_REVISION
        self.folder = folder
        self.is_reachable = True
        self.exists = True
        self.is_gated = False
        self.hashes: dict[str, str] = {}  # SHA-256 of files, as the hub states them
        self.requests: list[str] = []

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        if not self.is_reachable:
            raise httpx2.ConnectError("refused")
        path = unquote(request.url.path)
        self.requests.append(path)
        api_path = f"/api/datasets/{REPOSITORY_NAME}"
        files = f"/datasets/{REPOSITORY_NAME}/resolve/{self.commit}/"
        if self.exists and path in (api_path, f"{api_path}/revision/main", f"{api_path}/revision/{self.commit}"):
            siblings = []
            for file, sha256 in self.hashes.items():
                siblings.append({"rfilename": file, "lfs": {"size": 1, "pointerSize": 1, "sha256": sha256}})
            return httpx2.Response(200, json={"id": REPOSITORY_NAME, "sha": self.commit, "siblings": siblings})
        if self.exists and path == f"{api_path}/tree/{self.commit}":
            sizes = {str(file.relative_to(self.folder)): file.stat().st_size for file in self.folder.rglob("*.*")}
            entries = [{"type": "file", "path": file, "size": size, "oid": "0" * 40} for file, size in sizes.items()]
            return httpx2.Response(200, json=entries)
        if self.exists and path.startswith(files):
            if self.is_gated:
                return httpx2.Response(401, headers={"X-Error-Code": "GatedRepo"})
            body = (self.folder / path.removeprefix(files)).read_bytes()
            tag = hashlib.sha1(body, usedforsecurity=False).hexdigest()
            return httpx2.Response(200, headers={"ETag": f'"{tag}"', "X-Repo-Commit": self.commit}, content=body)
        return httpx2.Response(404, headers={"X-Error-Code": "RepoNotFound"})


@pytest.fixture
def hub(tmp_path, monkeypatch, repository):
    """Replace the hub by a fake with an empty cache, and declare SciDocs, which is downloaded from it."""
    declare_data_set(**SCIDOCS)
    hub = Hub(repository)
    settings = {"HF_HUB_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": False, "HF_HUB_DISABLE_XET": True}
    for name, value in settings.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setattr(httpx2.HTTPTransport, "handle_request", lambda _, request: hub.answer(request))
    return hub


def download_and_verify() -> dict:
    """Run the download, verify the hashes of its files, and return its note."""
    download.main("scidocs")
    note = read_json(raw_folder("scidocs") / "source.json")
    for file in note["files"]:
        assert hashlib.sha256((raw_folder("scidocs") / file["path"]).read_bytes()).hexdigest() == file["sha256"]
    return note


@pytest.mark.parametrize("path", ["mine.csv", "."], ids=["file", "folder"])
def test_simulated_data_set_is_reproducible_and_removed_when_the_source_changes(path):
    declare_data_set(source="simulated", path="unused", rows=500, residual=1.0, twin=TWIN, preset="paper")
    note = download_and_verify()
    assert note["source"] == "simulated"
    assert "500 rows, residual 1.0, seed 0" in note["origin"]
    assert download_and_verify() == note

    write_own_pairs(Path("mine.csv"))
    declare_data_set(**OWN_PAIRS_DATASET | {"path": path})
    assert [file["path"] for file in download_and_verify()["files"]] == ["mine.csv"]
    assert sorted(file.name for file in raw_folder("scidocs").iterdir()) == ["mine.csv", "source.json"]


def test_hub_data_set_is_downloaded_and_trained(hub):
    note = download_and_verify()
    assert (note["source"], note["revision"], note["licence"]) == ("hub", FIRST_REVISION, "CC BY 4.0")
    assert [file["path"] for file in note["files"]] == ["README.md", TABLE]
    train.main("scidocs")
    assert read_json(base_folder("scidocs") / "contract.json")["success"]
    assert read_json(base_folder("scidocs") / "base.json")["origin"]["revision"] == FIRST_REVISION


def test_unchanged_files_are_not_downloaded_and_damaged_ones_are_restored(hub, capsys):
    note = download_and_verify()
    hub.requests.clear()
    assert download_and_verify() == note
    assert hub.requests == [f"/api/datasets/{REPOSITORY_NAME}"]
    assert ", unchanged\n" in capsys.readouterr().out

    (raw_folder("scidocs") / TABLE).write_bytes(b"damaged")
    assert download_and_verify() == note


def test_moved_revision_must_be_chosen(hub):
    download_and_verify()
    hub.commit = SECOND_REVISION
    with pytest.raises(InputError) as error:
        download.main("scidocs")
    assert re.match(f"scidocs: .*moved .*{SECOND_REVISION}, .*{FIRST_REVISION}; set .*`revision`", str(error.value))
    for revision in (FIRST_REVISION, SECOND_REVISION):
        declare_data_set(**SCIDOCS | {"revision": revision})
        assert download_and_verify()["revision"] == revision


def test_offline_download_uses_the_cache_and_keeps_existing_files(hub, monkeypatch):
    note = download_and_verify()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.requests.clear()
    assert download_and_verify() == note
    shutil.rmtree(raw_folder("scidocs"))
    assert download_and_verify() == note
    assert hub.requests == []


def test_downloaded_file_must_have_the_published_hash(hub, repository, capsys):
    hub.hashes = {TABLE: "0" * 64}
    with pytest.raises(InputError) as error:
        download.main("scidocs")
    assert re.match(f"scidocs: .*SHA-256 .*{TABLE} differs .*; delete .*download", str(error.value))
    assert not raw_folder("scidocs").exists()
    hub.hashes = {TABLE: hashlib.sha256((repository / TABLE).read_bytes()).hexdigest()}
    assert download_and_verify()["verified"] == [TABLE]
    assert re.search(r"scidocs: not verified, .*: README\.md\n", capsys.readouterr().out)


def test_mirror_has_the_layout_of_the_repository(hub, repository, tmp_path, monkeypatch):
    shutil.copytree(repository, tmp_path / "mirror/scidocs")
    monkeypatch.setenv("DATA_MIRROR", str(tmp_path / "mirror"))
    note = download_and_verify()

    assert (note["revision"], note["origin"]) == (None, str(tmp_path / "mirror/scidocs"))
    assert hub.requests == []

    monkeypatch.setenv("DATA_MIRROR", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"scidocs: DATA_MIRROR .*nowhere/scidocs "):
        download.main("scidocs")


HUB_FAILURES = {  # attribute of `Hub`, or "offline" for the offline mode -> its value, message
    "exists": (False, "not exist, .*private"),
    "is_gated": (True, "gated: .*`hf auth login` .*HF_TOKEN"),
    "folder": (ROOT / "tasks/datasets", f"no table .*{REPOSITORY_NAME} .*scripts"),
    "is_reachable": (False, "not be reached .*DATA_MIRROR, .*HF_HUB_OFFLINE=1"),
    "offline": (True, "not complete .*huggingface_hub, .*HF_HUB_OFFLINE"),
}


@pytest.mark.parametrize("revision", [None, FIRST_REVISION])
@pytest.mark.parametrize("attribute", HUB_FAILURES)
def test_hub_failure_is_reported_and_keeps_existing_files(hub, monkeypatch, attribute, revision):
    value, message = HUB_FAILURES[attribute]
    declare_data_set(**SCIDOCS, revision=revision)
    raw_folder("scidocs").mkdir(parents=True)
    (raw_folder("scidocs") / "existing.csv").write_text("content\n")
    if attribute == "offline":
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", value)
    else:
        setattr(hub, attribute, value)
    monkeypatch.setattr("time.sleep", lambda _: None)  # retry without waiting

    with pytest.raises(InputError, match=f"scidocs: .*{message}") as error:
        download.main("scidocs")
    assert "\n" not in str(error.value)
    assert [path.name for path in raw_folder("scidocs").rglob("*")] == ["existing.csv"]
    assert not [*raw_folder("").glob(".scidocs.*")]


@pytest.mark.parametrize("entry", [SCIDOCS | {"reader": "nowhere"}, OWN_PAIRS_DATASET | {"path": "nowhere"}])
def test_missing_reader_or_file_is_named(entry):
    declare_data_set(**entry)
    with pytest.raises(InputError, match=r"scidocs: .*nowhere"):
        download.main("scidocs")
    assert not (raw_folder("scidocs") / "source.json").exists()


def write_pairs_with_splits(*splits: str) -> dict[str, Any]:
    """Write labelled pairs whose splits are `splits` in turn, and return their entry in params.yaml."""
    write_own_pairs(Path("mine.csv"))
    frame = pl.read_csv("mine.csv")
    frame.with_columns(split=pl.Series(np.resize(splits, len(frame)))).write_csv("mine.csv")
    pairs = OWN_PAIRS_DATASET["options"]["pairs"] | {"split": "split"}
    return OWN_PAIRS_DATASET | {"split": {"by": "row"}, "options": {"labels": ["bad", "good"], "pairs": pairs}}


def test_own_file_is_checked_before_use_and_differences_are_counted():
    entry = write_pairs_with_splits(*SPLITS)
    declare_data_set("mine", **entry)
    assert download.main("mine") is None

    frame = pl.read_csv("mine.csv")
    # each version is compared with the previous one
    first_titles_changed = frame.with_columns(
        title=pl.when(pl.int_range(900) < 10).then(pl.lit("?")).otherwise("title")
    )
    last_rows_removed = frame.head(890)  # with the original titles
    reordered = last_rows_removed.reverse().with_columns(unused_column=1)
    for version, message in (
        (first_titles_changed, "10 of 900 rows differ$"),
        (last_rows_removed, "10 of 890 rows .*new, .* 20 .*removed$"),
        (reordered, "files differ, .*rows .*not$"),
    ):
        version.write_csv("mine.csv")
        assert re.search(message, str(download.main("mine")))

    frame.drop("grade").write_csv("mine.csv")
    with pytest.raises(InputError) as error:
        download.main("mine")
    assert re.match(r"mine: mine\.csv .*'grade';[^,]* query, title, split; .*options", str(error.value))

    Path("mine.csv").unlink()
    for invalid_entry, message in (
        (entry, r"mine\.csv .*not exist.* has .*params\.yaml"),
        (entry | {"reader": "csv"}, "reader 'csv'; .* files"),
    ):
        declare_data_set("mine", **invalid_entry)
        with pytest.raises(InputError, match=message):
            refresh.main()  # fails before it starts a stage


def test_training_is_reproducible_and_decides_by_argmax():
    folder = download_and_train("mine", write_pairs_with_splits(*SPLITS))
    base = read_base("mine")
    pairs = pl.read_csv("mine.csv")
    assert (base.test.decision == decide(base.test.logits)).all()
    assert base.seed0_accuracy == base.test.correct.mean()
    assert base.drawn == ()

    facts = read_json(folder / "base.json")
    n_good = len(pairs.filter(split="train", grade="good"))
    assert facts["rows"] == {"train": 300, "validation": 300, "test": 300}
    assert facts["class_counts"]["train"] == [300 - n_good, n_good]
    assert (facts["source"], facts["labels"]) == ("files", ["bad", "good"])

    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert before.keys() == {"base.json", "logits.parquet", "pairs.parquet", "predictor.json", "predictor.npz"}

    train.main("mine")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("missing", SPLITS)
def test_empty_split_is_named_and_nothing_is_written(missing):
    with pytest.raises(InputError, match=f"split {missing} .*no "):
        download_and_train("mine", write_pairs_with_splits(*(split for split in SPLITS if split != missing)))
    assert not base_folder("mine").exists()


def test_alternatives_members_and_runs_are_trained():
    alternatives = ["unweighted", "multinomial", "member_1", "member_2"]
    wands = yaml.safe_load((ROOT / "params.yaml").read_text())["datasets"]["wands"]
    settings = {"members": 2, "runs": 2, "alternatives": alternatives, "alternatives_on_simulated": True}
    folder = download_and_train("wands", wands | {"rows": 1000}, **settings)
    base_logits = pl.read_parquet(folder / "logits.parquet")
    members = [f"members/run_{run}_member_{member}" for run, member in ((0, 0), (0, 1), (1, 0), (1, 1))]
    paths = sorted(folder.glob("*/*.parquet"))
    frames = {f"{path.parent.name}/{path.stem}": pl.read_parquet(path) for path in paths}

    assert [*frames] == [*members, *(f"sensitivity/{name}" for name in sorted(alternatives))]

    equal_pairs = {(name, other) for name, other in combinations(frames, 2) if frames[name].equals(frames[other])}
    assert equal_pairs == {(members[1], "sensitivity/member_1")}  # the only two with the same settings and seed
    assert frames[members[0]].equals(base_logits.select(frames[members[0]].columns))
    assert read_json(folder / HEADER)["seed"] == DATASETS["wands"].predictor_seed  # seed of the first member
    rows_of_second_run = frames[members[2]].select("split", "group", "label")
    for name, frame in frames.items():
        assert frame.schema == base_logits.schema
        rows = frame.select("split", "group", "label")
        assert rows.equals(rows_of_second_run if name.startswith("members/run_1") else base_logits.select(rows.columns))
    released = DATASETS["wands"].read_run(Path("data/raw/wands"), 1).pairs
    held_out = released.filter(pl.col("split") != "train").select("split", "group", "label")
    assert rows_of_second_run.equals(held_out)
    assert not rows_of_second_run.equals(base_logits.select(rows_of_second_run.columns))


def test_alternatives_are_not_trained_for_simulated_data_by_default():
    wands = yaml.safe_load((ROOT / "params.yaml").read_text())["datasets"]["wands"]
    folder = download_and_train("wands", wands | {"rows": 1000}, alternatives=["unweighted", "multinomial"])
    assert not (folder / "sensitivity").exists()


def test_saved_logits_replace_training():
    generator = np.random.default_rng(0)
    arrays = {f"{part}_logits": generator.normal(size=(2, 40, 3)).astype(np.float32) for part in ("val", "test")}
    np.savez("mine.npz", val_labels=np.arange(40) % 3, test_labels=np.arange(40) % 3, **arrays)
    entry = {"reader": "logits", "source": "files", "path": "mine.npz", "options": {"labels": ["a", "b", "c"]}}
    folder = download_and_train("mine", entry)
    base = read_base("mine")

    assert (base.test.logits == arrays["test_logits"][0]).all()
    assert (base.test.decision == decide(arrays["test_logits"][0].astype(np.float64))).all()
    assert {path.stem for path in (folder / "members").iterdir()} == {"run_0_member_0", "run_0_member_1"}
    assert pl.read_parquet(folder / "pairs.parquet").columns == ["pair", "split", "group", "label", "logits_finite"]
    assert not (folder / "predictor.json").exists()
    facts = read_json(folder / "base.json")
    assert (facts["predictor"], facts["class_weight"], facts["split_by"]) == ("saved logits", "none", "row")
    assert facts["rows"] == {"validation": 40, "test": 40}
    with pytest.raises(InputError, match=r"mine\.npz .*3 logits .* 2 labels"):
        download_and_train("mine", entry | {"options": {"labels": ["a", "b"]}})


def make_entry(**fields: object) -> DatasetParams:
    """Return an entry of params.yaml, by default of a data set of the paper from the hub."""
    return DatasetParams(**{"source": "hub", "path": "x", "preset": "paper", **fields})


def make_train_params(**fields: object) -> TrainParams:
    return TrainParams(**{"seed": 40, "members": 1, "runs": 1, "alternatives": (), **fields})


OWN_ENTRY = {"source": "files", "reader": "files", "preset": None, "split": {"by": "row"}}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (make_entry(), PredictorChoice("linear", "balanced", 10101)),
        (make_entry(predictor="boosted"), PredictorChoice("boosted", "balanced", 0)),
        (make_entry(**OWN_ENTRY), PredictorChoice("linear", "none", 40)),
        (
            make_entry(**OWN_ENTRY, predictor="boosted", class_weight="balanced"),
            PredictorChoice("boosted", "balanced", 40),
        ),
    ],
)
def test_only_presets_fix_the_class_weights_and_the_seed(entry, expected):
    """WANDS declares no seed of boosted trees, which cannot read its texts."""
    assert train.choose_predictor(DATASETS["wands"], entry, make_train_params()) == expected


def test_seeds_of_members_are_consecutive_and_those_of_runs_are_100_apart():
    choice = PredictorChoice("linear", "balanced", 7)
    seeds = {}
    for run in range(3):
        for path, member in train._member_choices(choice, make_train_params(members=2, runs=3), run).items():
            assert (member.predictor, member.class_weight) == ("linear", "balanced")
            seeds[path] = member.seed
    assert seeds == {
        "members/run_0_member_0": 7,
        "members/run_0_member_1": 8,
        "members/run_1_member_0": 107,
        "members/run_1_member_1": 108,
        "members/run_2_member_0": 207,
        "members/run_2_member_1": 208,
    }


@pytest.mark.parametrize(("members", "runs", "n_others"), [(1, 1, 0), (2, 1, 2), (1, 2, 1), (3, 3, 3)])
def test_models_of_all_members_are_trained_if_there_are_several_members_or_runs(members, runs, n_others):
    choice = PredictorChoice("linear", "balanced", 7)
    others = train._other_choices(choice, make_entry(), make_train_params(members=members, runs=runs))
    assert len(others) == n_others


def test_the_runs_of_own_data_share_their_rows():
    assert train._read_run("mine", DATASETS["wands"]._replace(read_run=None), 1) is None


def test_each_alternative_changes_one_choice():
    choice = PredictorChoice("linear", "balanced", 7)
    names = ("unweighted", "multinomial", "member_1", "member_2")
    assert train._other_choices(choice, make_entry(), make_train_params(alternatives=names)) == {
        "sensitivity/unweighted": PredictorChoice("linear", "none", 7),
        "sensitivity/multinomial": PredictorChoice("multinomial", "balanced", 7),
        "sensitivity/member_1": PredictorChoice("linear", "balanced", 8),
        "sensitivity/member_2": PredictorChoice("linear", "balanced", 9),
    }
    one_alternative = make_train_params(alternatives=("member_1",))
    assert list(train._other_choices(choice, make_entry(), one_alternative)) == ["sensitivity/member_1"]


SIMULATED = {"source": "simulated", "rows": 500, "residual": 1.0, "twin": TWIN}


@pytest.mark.parametrize(
    ("entry", "also_simulated", "expected"),
    [
        (make_entry(), False, True),
        (make_entry(), True, True),
        (make_entry(**SIMULATED), False, False),
        (make_entry(**SIMULATED), True, True),
        (make_entry(predictor="boosted"), True, False),
        (make_entry(**OWN_ENTRY), True, False),
    ],
)
def test_alternatives_are_trained_for_presets_with_linear_predictors(entry, also_simulated, expected):
    settings = make_train_params(alternatives_on_simulated=also_simulated)
    assert train._has_alternatives(entry, settings) is expected


@pytest.mark.parametrize(
    ("name", "predictor", "expected"),
    [
        ("wands", "linear", {"max_features": 100_000}),
        ("wands", "multinomial", {"max_features": 100_000}),
        ("wands", "boosted", {}),
        ("alloprof_rerank", "linear", {"passes": 60}),
        ("alloprof_rerank", "multinomial", {}),
        ("alloprof_rerank", "boosted", {}),
        ("scidocs", "linear", {}),
    ],
)
def test_data_sets_declare_settings_of_linear_predictors(name, predictor, expected):
    assert train._dataset_settings(DATASETS[name], predictor) == expected


@pytest.mark.parametrize(
    ("own_settings", "expected"),
    [
        ({}, {"max_features": 100_000}),
        ({"alpha": 0.5}, {"max_features": 100_000, "alpha": 0.5}),
        ({"max_features": 9}, {"max_features": 9}),
    ],
)
def test_settings_in_params_yaml_replace_the_declared_settings_of_the_data_set(own_settings, expected, monkeypatch):
    calls = []
    monkeypatch.setattr(train, "fit_predictor", lambda *rows, **options: calls.append((rows, options)))
    pairs = {"train": "train rows", "validation": "validation rows"}
    choice = PredictorChoice("linear", "balanced", 7)
    train.fit_choice(choice, DATASETS["wands"], make_entry(settings=own_settings), pairs)
    options = {"n_labels": 3, "class_weight": "balanced", "seed": 7, "settings": expected}
    assert calls == [(("linear", "train rows", "validation rows"), options)]


def test_rows_groups_and_labels_of_each_split_are_counted_and_logged(caplog):
    caplog.set_level("INFO")
    frame = pl.DataFrame({"label": [0, 2, 2, 2], "group": ["a", "a", "b", "a"]})
    counts = train._count_rows(DATASETS["wands"], {"train": frame, "test": frame.head(1)})
    assert counts == {
        "rows": {"train": 4, "test": 1},
        "groups": {"train": 2, "test": 1},
        "class_counts": {"train": [1, 0, 3], "test": [1, 0, 0]},
    }
    expected = [  # place, counts of rows and groups, and shares of the labels
        ("wands, train", "4 rows, 2 groups", "0.2500, 0.0000, 0.7500"),
        ("wands, test", "1 rows, 1 groups", "1.0000, 0.0000, 0.0000"),
    ]
    for message, (place, n_units, shares) in zip(caplog.messages, expected, strict=True):
        assert re.fullmatch(rf"{place}: {n_units}, [a-z ]* {re.escape(shares)}", message)


@pytest.mark.parametrize(
    ("entry", "is_checked"), [(make_entry(), True), (make_entry(**SIMULATED), False), (make_entry(**OWN_ENTRY), False)]
)
def test_only_released_files_of_the_paper_are_compared_with_their_declaration(entry, is_checked, monkeypatch):
    check_contract = Mock(return_value="record")
    monkeypatch.setattr(train, "check_contract", check_contract)
    failed = failed_gates_file("wands")
    failed.parent.mkdir(parents=True)
    failed.write_text("earlier")
    record = train._check_released_files("wands", DATASETS["wands"], entry, "pairs")
    assert not failed.exists()
    assert record == ("record" if is_checked else None)
    expected_call = call("pairs", n_labels=3, coordinates={"dataset": "wands"}, repeats_pairs=False)
    assert check_contract.call_args_list == ([expected_call] if is_checked else [])


def test_the_record_of_a_failed_contract_is_stored():
    pairs = pl.DataFrame({"pair": ["a", "b"], "label": [0, 1]})
    with pytest.raises(GateFailed) as error:
        train._check_released_files("wands", DATASETS["wands"], make_entry(), pairs)
    assert read_json(failed_gates_file("wands")) == {
        "dataset": "wands",
        "source": "hub",
        "gates": [error.value.record],
    }


def test_splits_are_drawn_if_a_row_has_none():
    options = {"labels": ["no", "yes"], "pairs": {"path": "a.csv", "group": "q", "query": "q"}}
    options["pairs"] |= {"candidate": "c", "label": "l"}
    dataset = find_dataset("mine", "files", options)
    split = {"by": "group", "validation": 0.3, "test": 0.25}
    entry = make_entry(**OWN_ENTRY | {"split": split}, seed=6)
    rows = {"group": [f"q{row // 2}" for row in range(40)], "split": [None] * 39 + ["test"]}
    frame = pl.DataFrame(rows, schema_overrides={"split": pl.String})

    drawn, names = train._draw_missing_splits(frame, dataset, entry)
    assert names == ("train", "validation", "test")
    shares = {"train": 0.45, "validation": 0.3, "test": 0.25}
    assert drawn.equals(draw_splits(frame, by="group", shares=shares, seed=6))

    # if all rows have a split, the returned names are the splits that the data set declares as drawn by its reader
    complete = frame.with_columns(split=pl.lit("test"))
    assert train._draw_missing_splits(complete, DATASETS["amazon_esci"], entry) == (complete, ("train", "validation"))


def test_the_facts_of_a_data_set_with_drawn_splits_are_written():
    write_own_pairs(Path("mine.csv"))
    split = {"by": "group", "validation": 0.25, "test": 0.125}
    entry = OWN_PAIRS_DATASET | {"split": split, "class_weight": "balanced", "seed": 6, "path": "mine.csv"}
    folder = download_and_train("mine", entry)
    facts = read_json(folder / "base.json")
    source = read_json(raw_folder("mine") / "source.json")
    base = read_base("mine")
    assert facts["origin"] == {key: source[key] for key in ("origin", "revision", "licence")}
    expected = {
        "dataset": "mine",
        "title": "mine",
        "domain": "own data",
        "task": "relevance prediction",
        "source": "files",
        "preset": None,
        "split_by": "group",
        "drawn": ["train", "validation", "test"],
        "predictor": "linear",
        "class_weight": "balanced",
        "dropped": {"without text": 0},
        "accuracy": {"validation": base.validation.correct.mean(), "test": base.test.correct.mean()},
    }
    assert {key: facts[key] for key in expected} == expected
    assert read_json(folder / HEADER)["class_weight"] == "balanced"
    pairs = pl.read_parquet(folder / "pairs.parquet")
    undrawn = pairs.with_columns(split=pl.lit(None, dtype=pl.String))
    shares = {"train": 0.625, "validation": 0.25, "test": 0.125}
    assert pairs["split"].equals(draw_splits(undrawn, by="group", shares=shares, seed=6)["split"])
    assert facts["rows"] == {split: len(pairs.filter(split=split)) for split in SPLITS}


def test_the_command_logs_messages_and_trains_the_data_set_of_the_command_line(monkeypatch):
    calls: list[object] = []
    monkeypatch.setattr(logging, "basicConfig", lambda **options: calls.append(options))
    monkeypatch.setattr(stage, "run_dataset_stage", lambda kind, work: calls.append((kind, work.__name__)))
    runpy.run_path(train.__file__)
    assert calls == []
    runpy.run_path(train.__file__, run_name="__main__")
    assert calls == [{"level": logging.INFO, "format": "%(message)s"}, ("train", "main")]


def test_saved_logits_of_one_member_are_stored_once():
    logits = np.random.default_rng(0).normal(size=(40, 2))
    labels = np.arange(40) % 2
    np.savez("mine.npz", val_logits=logits, val_labels=labels, test_logits=logits, test_labels=labels)
    entry = {"reader": "logits", "source": "files", "path": "mine.npz", "options": {"labels": ["a", "b"]}}
    assert not (download_and_train("mine", entry) / "members").exists()
