"""The real commands on a small copy of the project."""

import hashlib
import json
import os
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from flows.server import find_free_port, serve_api
from relmap import cli as rerank
from relmap.calibrators.registry import CALIBRATORS
from relmap.decisions import decide
from relmap.maps import fit as map_fit
from tasks.records.durations import KINDS
from tasks.records.store import read_json
from tasks.settings.params import load_params
from tasks.tables import TABLES
from tests.maps import settings_of_library
from tests.project_copy import (
    OWN_PAIRS_DATASET,
    ROOT,
    copy_project,
    edit_params,
    processes_by_library,
    recorded_libraries,
    run_module,
    shrink_params,
    write_own_pairs,
)


def stages_run(printed: str) -> set[str]:
    return {line.split("'")[1] for line in printed.splitlines() if line.startswith("Running stage")}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Copy the project with two small data sets: simulated wands, and a file of labelled pairs."""
    folder = tmp_path_factory.mktemp("project")
    copy_project(folder, lambda params: shrink_params(params, rows=6000))
    write_own_pairs(folder / "mine.csv", seed=0)
    return folder


def guard_network(report: Path) -> dict[str, str]:
    """Return an environment in which Python cannot call other hosts; attempts are written to `report`."""
    libraries = recorded_libraries(report.with_name("libraries.txt"))
    return {**libraries, "GUARD_REPORT": str(report)}


@pytest.fixture(scope="module")
def first_run(project):
    """Run the first `flows.refresh` without network, and return its output."""
    return run_module(project, "flows.refresh", **guard_network(project / "called.txt"))


@pytest.fixture(scope="module")
def server(project, first_run):
    """Start a server of the project, which later commands find by themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_HOME", str(project / ".prefect"))
        patch.chdir(project)
        with serve_api(find_free_port()) as url:
            patch.undo()
            yield url
            patch.chdir(project)


pytestmark = pytest.mark.usefixtures("first_run", "server")


def test_first_run_executes_every_stage_without_network(project, first_run):
    datasets = ("wands", "mine")
    stages = ("download", "train", "reliability")
    assert stages_run(first_run) == {"report", *(f"{stage}@{name}" for stage in stages for name in datasets)}
    assert not (project / "called.txt").exists()


def test_every_process_imports_the_library_of_its_checkout(project, first_run):
    ((library, commands),) = processes_by_library(project / "libraries.txt").items()
    assert library == project / "relmap/__init__.py"
    modules = {command.partition("-m ")[2].partition(" ")[0] for command in commands}
    assert modules >= {"flows.refresh", "tasks.download", "tasks.train", "flows.reliability", "flows.report"}


def test_library_of_another_checkout_is_detected(tmp_path):
    report = tmp_path / "libraries.txt"
    variables = recorded_libraries(report)
    variables["PYTHONPATH"] += f"{os.pathsep}{ROOT}"
    run_module(tmp_path, "-c", "import relmap", **variables)
    assert [*processes_by_library(report)] == [ROOT / "relmap/__init__.py"]


NETWORK_CALLS = """
import asyncio, httpx, socket
from contextlib import suppress
with suppress(OSError): socket.create_connection(('192.0.2.1', 80), timeout=1)
with suppress(OSError): socket.getaddrinfo('example.org', 443)
with suppress(httpx.ConnectError): httpx.get('http://example.org')
with suppress(OSError): asyncio.run(asyncio.open_connection('192.0.2.1', 80))
"""


def test_network_guard_detects_calls_to_other_hosts(tmp_path):
    report = tmp_path / "called.txt"
    run_module(tmp_path, "-c", NETWORK_CALLS, **guard_network(report))
    called = re.findall(r"^(192\.0\.2\.1|example\.org)$", report.read_text(), re.MULTILINE)
    assert called == ["192.0.2.1", "example.org", "example.org", "192.0.2.1"]


def test_refresh_summary_lists_reasons_sources_and_report(first_run, project):
    in_one_line = first_run.replace("\n", "")
    assert all(text in in_one_line for text in ("wands (simulated)", str(project / "data/report"))), first_run
    assert re.search(r"\bran: [^:]*dvc\.lock", in_one_line), first_run
    assert not re.search("git add|dvc push|skipping|lock file", first_run)
    seconds = read_json(project / "data/.state/durations/reliability@wands.json")
    assert all(seconds["kinds"][kind] > 0 for kind in KINDS if kind != "train")
    assert "reliability@wands" in first_run.partition("Seconds of")[2]


def test_main_table_has_every_data_set_and_mrp_lowers_the_log_loss(project):
    table = pl.read_csv(project / "data/report/main.csv")
    rows = [(*data_set, fit) for data_set in (("wands", "simulated"), ("mine", "files")) for fit in ("uncal", "ts")]
    assert table.select("dataset", "source", "calibrator").rows() == rows
    assert (table.filter(dataset="wands")["nll_correct_delta"] < 0).all()


def query_database(project: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(project / ".prefect/prefect.db")) as database:
        return database.execute(query).fetchall()


def read_artifacts(project: Path) -> dict[str, str]:
    return dict(query_database(project, "select key, description from artifact where key is not null order by created"))


@pytest.mark.parametrize("dataset", ["wands", "mine"])
def test_run_keeps_the_accuracy_passes_every_gate_and_reaches_the_optimum(project, dataset):
    logits = pl.read_parquet(project / f"data/base/{dataset}/logits.parquet").filter(split="test")
    decision = decide(np.array(logits["logits"].to_list()))
    assert (decision == logits["decision"].to_numpy()).all()

    metrics = pl.read_parquet(project / f"data/runs/{dataset}/metrics.parquet")
    assert set(metrics.filter(metric="accuracy")["value"]) == {(decision == logits["label"].to_numpy()).mean()}

    facts = read_json(project / f"data/runs/{dataset}/run.json")
    gates = read_json(project / f"data/runs/{dataset}/gates.json")
    assert facts["optimum"]["kkt_residual"] < 1e-8
    assert facts["fallbacks"] == []
    assert {gate["success"] for gate in gates["gates"]} == {True}


def test_every_task_run_is_recorded_as_completed(project):
    query = "select state_type, count(*) from {}_run group by 1"
    tasks = query_database(project, query.format("task"))
    flows = query_database(project, query.format("flow"))
    # for each set a gate before, 4 fits, a projection, a gate after, a measurement, a comparison and alternatives for
    # each seed, intervals, a writing and a showing; then what the report gathers, its tables, the
    # drawing of each set, and the writing of figures, of those for papers and of the page; and in the refresh one for
    # each set and for the report
    assert tasks == [("COMPLETED", 2 * (1 + 2 * (4 + 5) + 4) + 1 + len(TABLES) + 2 + 3 + 3)]
    assert flows == [("COMPLETED", 4)]


def test_refresh_logs_each_stage_with_reason_and_output(project):
    in_refresh = "flow_run_id = (select id from flow_run where name = 'refresh')"
    shown = {name for (name,) in query_database(project, f"select name from task_run where {in_refresh}")}
    assert shown == {"wands", "mine", "report"}

    log = [message for (message,) in query_database(project, f"select message from log where {in_refresh}")]
    assert any(re.search(r"^train@wands .*dvc\.lock$", message) for message in log)
    assert "> python -m tasks.train wands" in log


def test_the_page_names_the_digests_of_its_inputs(project):
    page = (project / "data/report/index.html").read_text()
    lock = yaml.safe_load((project / "dvc.lock").read_text())["stages"]
    digests = [output["md5"] for output in lock["report"]["deps"] if output["path"] == "data/runs"]
    assert len(digests) == 1  # DVC's record of what the report ran on
    for stage in ("train@wands", "reliability@mine"):
        assert lock[stage]["outs"][-1]["md5"] in page


def test_verify_accepts_the_outputs_of_a_run(project):
    run_module(project, "flows.verify")


def test_own_csv_reaches_the_report(project):
    assert OWN_PAIRS_DATASET["path"] == "mine.csv"

    page = (project / "data/report/index.html").read_text()
    assert re.search(r"On [01] of 1 own [^(]*\(files\)", page.partition('id="figure')[0])

    expected = ("wands (simulated)", "Simulated data.", "mine-risk_coverage", "wands-curves")
    assert all(text in page for text in expected)

    figures = {path.name for path in (project / "data/report/figures").iterdir()}
    assert {"method_overview.svg", "labelwise_curves.pdf", "simplex_paths.svg", "overview.svg", "curves.csv"} <= figures
    assert "(simulated)" in (project / "data/report/figures/labelwise_curves.svg").read_text()


def test_each_flow_run_has_table_link_and_progress(project):
    query = "select distinct f.name, a.type from artifact a join flow_run f on a.flow_run_id = f.id"
    shown = set(query_database(project, query))
    names = {name for name, _ in shown}

    assert names >= {"refresh", "report", "reliability/wands", "reliability/mine"}

    kinds = ("table", "markdown", "progress")  # a link is markdown
    assert shown >= {(name, kind) for name in names for kind in kinds}
    assert set(TABLES) < {name for (name,) in query_database(project, "select name from task_run")}
    assert {name.replace("_", "-") for name in TABLES} <= read_artifacts(project).keys()


def test_only_a_corrupted_fit_is_repeated_and_exploration_is_separate(project):
    """Run both in one process instead of two commands."""
    folder = project / "data/runs/wands"
    fits = project / "data/.state/fits"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for fit in (project / ".prefect/storage").glob("ts-1-*"):  # one of each data set
        content = fit.read_bytes()
        fit.write_bytes(content[:-40] + bytes([content[-40] ^ 1]) + content[-39:])
    report = (project / "data/report/index.html").read_bytes()
    commands = "main('wands'); main('wands', [2], ['ts'])"
    printed = run_module(
        project,
        "-c",
        f"from flows import report\nfrom flows.reliability import main\n{commands}; report.main(['mine'])",
    )

    assert re.search(r"^wands \(simulated\): Better ", printed, re.MULTILINE)
    assert set(pl.read_csv(project / "data/explored/report-mine/main.csv")["dataset"]) == {"mine"}
    assert (project / "data/report/index.html").read_bytes() == report
    assert read_json(project / "data/metrics/mine.json").keys() >= {"accuracy", "nll_correct_delta"}
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert read_json(fits / "runs/wands.json") == {"calibrators_fitted": 1, "calibrators_reused": 7}

    explored = pl.read_parquet(project / "data/explored/wands/metrics.parquet")
    assert explored["seed"].unique().to_list() == [2]
    assert read_json(fits / "explored/wands.json")["calibrators_fitted"] == 0


RUN_EVERY_CALIBRATOR_TWICE = """
from flows.reliability import main
from relmap.calibrators.registry import CALIBRATORS
for _ in range(2):
    main('wands', [2], list(CALIBRATORS))
"""


@pytest.fixture
def smart_with_settings(project):
    """Set settings of SMART, as the preset of the paper does."""
    before = (project / "params.yaml").read_text()
    edit_params(
        project, lambda params: params.update(calibrator_settings={"wands": {"smart": {"epochs": 40, "patience": 20}}})
    )
    yield
    (project / "params.yaml").write_text(before)


@pytest.mark.usefixtures("smart_with_settings")
def test_every_calibrator_is_cached_after_its_first_fit(project):
    run_module(project, "-c", RUN_EVERY_CALIBRATOR_TWICE)
    fits = read_json(project / "data/.state/fits/explored/wands.json")
    assert fits == {"calibrators_fitted": 0, "calibrators_reused": len(CALIBRATORS)}


WITHOUT_RIGHTS_OF_ROOT = """
import ctypes, os, sys
if os.geteuid() == 0:  # root writes to folders of any mode, unless it gives up the capability CAP_DAC_OVERRIDE
    PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
    if ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0) != 0:
        sys.exit("the capability could not be given up")
os.execv(sys.executable, [sys.executable, "-c", os.environ["COMMAND"]])
"""


RUN_WITH_TWO_STORES = """
import os
from prefect.settings import PREFECT_LOCAL_STORAGE_PATH, temporary_settings
from flows.reliability import main
main('wands', [2], ['ts', 'uncal'])
with temporary_settings({PREFECT_LOCAL_STORAGE_PATH: os.environ["IMPOSSIBLE_STORE"]}):
    main('wands', [2], ['ts'])
"""


def test_a_store_that_cannot_be_written_is_used_and_failed_writes_are_reported(project, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(project / ".prefect/storage", store, ignore=shutil.ignore_patterns("uncal-*"))
    file = tmp_path / "file"
    file.write_text("a file where the folder of fits would be")
    variables = {"PREFECT_LOCAL_STORAGE_PATH": str(store), "IMPOSSIBLE_STORE": str(file)}
    store.chmod(0o555)
    printed = run_module(project, "-c", WITHOUT_RIGHTS_OF_ROOT, COMMAND=RUN_WITH_TWO_STORES, **variables)
    store.chmod(0o755)

    assert re.search(rf"\b1 of \d+ calibrator fits .* {store}\b", printed)
    assert re.search(rf"\b(\d+) of \1 calibrator fits .* {file}\b", printed)


def test_up_to_date_project_runs_nothing_and_push_excludes_raw_files(project, tmp_path):
    """The tests before ran a stage without DVC and an exploration."""
    commands = (
        ["repro"],
        ["repro", "reliability@wands"],
        ["repro", "--downstream", "train@wands"],
        ["metrics", "show"],
    )
    remote_commands = (
        ["remote", "add", "--default", "others", str(tmp_path)],
        ["push"],
        ["remote", "remove", "others"],
    )
    run_commands = "import json, sys; from dvc.cli import main; sys.exit(any([*map(main, json.loads(sys.argv[1]))]))"

    assert stages_run(run_module(project, "-c", run_commands, json.dumps([*commands, *remote_commands]))) == set()

    def is_pushed(file: str) -> bool:
        md5 = hashlib.md5((project / file).read_bytes()).hexdigest()
        return (tmp_path / "files/md5" / md5[:2] / md5[2:]).exists()

    assert is_pushed("data/runs/wands/metrics.parquet")
    assert not is_pushed("data/raw/wands/data/test-00000-of-00001.parquet")


@pytest.fixture(scope="module")
def map_file(project, first_run) -> Path:
    """Fit a map to the predictions that the pipeline used, with the same seed."""
    base = pl.read_parquet(project / "data/base/wands/logits.parquet").drop("decision")
    for split in ("validation", "test"):
        base.filter(pl.col("split") == split).write_parquet(project / f"{split}.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(map_fit, "DEFAULTS", settings_of_library(load_params(project / "params.yaml")))
        options = {"calibrator": "ts", "variant": "mrp", "seed": 2, "protocol": "paper"}
        rerank.fit(predictions=project / "validation.parquet", out=project / "map.json", **options)
    return project / "map.json"


def test_map_of_the_same_predictions_agrees_with_the_pipeline(project, map_file):
    rerank.apply(map_file, predictions=project / "test.parquet", out=project / "scored.parquet")
    scored = pl.read_parquet(project / "scored.parquet")
    pipeline = pl.read_parquet(project / "data/runs/wands/scores.parquet").filter(calibrator="ts", seed=2)
    for column in ("decision", "confidence", "reliability"):
        np.testing.assert_allclose(scored[column], pipeline.sort("row")[column], rtol=0, atol=1e-12)


def watch_map(project: Path, predictions: str) -> None:
    """Watch a map in each refresh, and run one stage at a time."""
    entry = {"map": "map.json", "predictions": predictions, "group": "group"}
    edit_params(project, lambda params: params.update(watched={"my_map": entry}, lanes=1))


def test_changed_raw_file_reruns_only_its_data_set_and_the_report(project, map_file):
    write_own_pairs(project / "mine.csv", seed=1)
    watch_map(project, "test.parquet")
    printed = run_module(project, "flows.refresh")

    assert stages_run(printed) == {"download@mine", "train@mine", "reliability@mine", "report"}
    assert re.search(r"^download@mine ran: mine\.csv modified$", printed, re.MULTILINE)
    assert re.search(r"^mine: \d+ of 900 rows differ$", printed, re.MULTILINE)
    assert re.search(r"^3 of 7 stages ", printed, re.MULTILINE)
    assert re.search(r"^  mine\.nll_correct: \S+ → \S+$", printed, re.MULTILINE)
    assert "my_map: No change" in printed
    assert read_artifacts(project)["map-my-map"].startswith("No change ")


def test_failed_data_set_is_marked_and_the_others_finish(project):
    (project / "mine.csv").write_text("query,title,grade\nq,lamp,superb\n")
    test = pl.read_parquet(project / "test.parquet")
    test.with_columns(label=pl.col("label").reverse()).write_parquet(project / "drifted.parquet")
    watch_map(project, "drifted.parquet")
    printed = run_module(project, "flows.refresh", status=1)
    expected = ("refresh failed:", "missing data sets", "mine (failed)")

    assert all(text in printed for text in expected), printed
    assert re.search(r"\bmy_map: .*no longer holds", printed), printed
    assert re.search(r"^  download@mine: mine\.csv, row 1, .*superb", printed, re.MULTILINE)
    assert printed.count("Running stage 'download@mine'") == 1  # the same bytes would go in again
    assert "no longer holds" in read_artifacts(project)["map-my-map"]
    assert "Traceback" not in printed

    table = pl.read_csv(project / "data/report/main.csv")
    assert table["source"].to_list() == ["simulated", "simulated", "failed", "failed"]

    page = (project / "data/report/index.html").read_text()
    assert re.search(r"</strong> download@mine: .*superb", page)
