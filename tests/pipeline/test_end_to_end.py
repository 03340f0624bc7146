"""The real commands on a small copy of the project: what runs, what does not, and what comes out."""

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

from flows.server import serve_api
from relmap import api
from relmap import cli as rerank
from relmap.calibrators.registry import CALIBRATORS
from relmap.decisions import decide
from tasks.records.store import read_json
from tasks.settings.params import load_params
from tasks.tables import TABLES
from tests.project_copy import (
    OWN_PAIRS,
    ROOT,
    copy_project,
    edit_params,
    processes_by_library,
    recorded_libraries,
    run,
    small,
    write_own_pairs,
)


def stages_run(printed: str) -> set[str]:
    return {line.split("'")[1] for line in printed.splitlines() if line.startswith("Running stage")}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The project with two small sets: a twin of wands, and a file of judged pairs of one's own."""
    folder = tmp_path_factory.mktemp("project")
    copy_project(folder, lambda params: small(params, rows=6000))
    write_own_pairs(folder / "mine.csv", seed=0)
    return folder


def guarded(report: Path) -> dict[str, str]:
    """The environment in which no Python can call another host; whoever tries is named in `report`."""
    libraries = recorded_libraries(report.with_name("libraries.txt"))
    return {**libraries, "GUARD_REPORT": str(report)}


@pytest.fixture(scope="module")
def first_run(project):
    """What the first `flows.refresh` printed; all its processes may talk to this machine alone."""
    return run(project, "flows.refresh", **guarded(project / "called.txt"))


@pytest.fixture(scope="module")
def server(project, first_run):
    """A server of the project for all that comes after, which its commands find by themselves."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PREFECT_HOME", str(project / ".prefect"))
        patched.chdir(project)
        with serve_api(0) as url:
            patched.undo()
            yield url
            patched.chdir(project)


pytestmark = pytest.mark.usefixtures("first_run", "server")


def test_the_first_run_runs_every_stage_and_calls_no_other_host(project, first_run):
    datasets, stages = ("wands", "mine"), ("download", "train", "reliability")
    assert stages_run(first_run) == {"report", *(f"{stage}@{name}" for stage in stages for name in datasets)}
    assert not (project / "called.txt").exists()


def test_every_process_of_a_run_imports_the_library_of_its_own_checkout(project, first_run):
    ((library, commands),) = processes_by_library(project / "libraries.txt").items()
    assert library == project / "relmap/__init__.py"
    started = {command.partition("-m ")[2].partition(" ")[0] for command in commands}
    assert started >= {"flows.refresh", "tasks.download", "tasks.train", "flows.reliability", "flows.report"}


def test_the_library_of_another_checkout_is_seen(tmp_path):
    report = tmp_path / "libraries.txt"
    variables = recorded_libraries(report)
    variables["PYTHONPATH"] += f"{os.pathsep}{ROOT}"
    run(tmp_path, "-c", "import relmap", **variables)
    assert [*processes_by_library(report)] == [ROOT / "relmap/__init__.py"]


CALLS = """
import asyncio, httpx, socket
from contextlib import suppress
with suppress(OSError): socket.create_connection(('192.0.2.1', 80), timeout=1)
with suppress(OSError): socket.getaddrinfo('example.org', 443)
with suppress(httpx.ConnectError): httpx.get('http://example.org')
with suppress(OSError): asyncio.run(asyncio.open_connection('192.0.2.1', 80))
"""


def test_the_guard_sees_a_call_to_another_host(tmp_path):
    report = tmp_path / "called.txt"
    run(tmp_path, "-c", CALLS, **guarded(report))
    called = re.findall(r"^(192\.0\.2\.1|example\.org)$", report.read_text(), re.MULTILINE)
    assert called == ["192.0.2.1", "example.org", "example.org", "192.0.2.1"]


def test_the_last_screen_says_what_ran_what_is_simulated_and_where_the_report_is(first_run, project):
    words = ("wands (simulated)", str(project / "data/report"), "ran: it had not finished on this machine before")
    assert all(part in first_run.replace("\n", "") for part in words), first_run
    assert not re.search("git add|dvc push|skipping|lock file", first_run)


def test_the_main_table_has_a_row_for_each_set_and_calibrator_and_mrp_lowers_the_nll_of_the_twin(project):
    table = pl.read_csv(project / "data/report/main.csv")
    rows = [(*of, fit) for of in (("wands", "simulated"), ("mine", "files")) for fit in ("uncal", "ts")]
    assert table.select("dataset", "source", "calibrator").rows() == rows
    assert (table.filter(dataset="wands")["nll_correct_delta"] < 0).all()


def recorded(project: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(project / ".prefect/prefect.db")) as database:
        return database.execute(query).fetchall()


def artifacts(project: Path) -> dict[str, str]:
    return dict(recorded(project, "select key, description from artifact where key is not null order by created"))


@pytest.mark.parametrize("dataset", ["wands", "mine"])
def test_a_run_has_the_seed_0_accuracy_passed_every_gate_and_says_how_far_it_is_from_the_optimum(project, dataset):
    logits = pl.read_parquet(project / f"data/base/{dataset}/logits.parquet").filter(split="test")
    decided = decide(np.array(logits["logits"].to_list()))
    assert (decided == logits["decision"].to_numpy()).all()
    metrics = pl.read_parquet(project / f"data/runs/{dataset}/metrics.parquet")
    assert set(metrics.filter(metric="accuracy")["value"]) == {(decided == logits["label"].to_numpy()).mean()}
    about, gates = (read_json(project / f"data/runs/{dataset}/{name}.json") for name in ("run", "gates"))
    assert about["optimum"]["kkt_residual"] < 1e-8
    assert about["fallbacks"] == []
    assert {gate["success"] for gate in gates["gates"]} == {True}


def test_every_task_run_is_recorded_as_finished(project):
    query = "select state_type, count(*) from {}_run group by 1"
    tasks, flows = (recorded(project, query.format(kind)) for kind in ("task", "flow"))
    # for each set a gate before, 4 fits, a projection, a gate after, a measurement, a comparison and alternatives for
    # each seed, intervals, a writing and a showing; then what the report gathers, its tables, the
    # drawing of each set, and the writing of figures, of those for papers and of the page; and in the refresh one for
    # each stage
    stages = 2 * 3 + 1
    assert tasks == [("COMPLETED", 2 * (1 + 2 * (4 + 5) + 4) + 1 + len(TABLES) + 2 + 3 + stages)]
    assert flows == [("COMPLETED", 4)]


def test_each_stage_of_a_refresh_is_a_task_run_with_its_reason_and_output_in_the_log(project):
    in_refresh = "flow_run_id = (select id from flow_run where name = 'refresh')"
    shown = {name for (name,) in recorded(project, f"select name from task_run where {in_refresh}")}
    stages = {f"{kind}@{name}" for kind in ("download", "train", "reliability") for name in ("wands", "mine")}
    assert shown == {*stages, "report"}
    log = [message for (message,) in recorded(project, f"select message from log where {in_refresh}")]
    assert any("it had not finished on this machine before" in message for message in log)
    assert "> python -m tasks.train wands" in "\n".join(log)


def test_what_was_written_is_as_it_was_written(project):
    run(project, "flows.verify")


def test_an_own_csv_goes_from_its_entry_in_params_yaml_to_the_verdict(project):
    assert OWN_PAIRS["path"] == "mine.csv"
    page = (project / "data/report/index.html").read_text()
    assert re.search(r"On [01] of 1 own data sets? \(files\)", page.partition('id="figure')[0])
    words = ("wands (simulated)", "Simulated data.", "mine-risk_coverage", "wands-curves")
    assert all(part in page for part in words)
    made = {path.name for path in (project / "data/report/figures").iterdir()}
    assert {"method_overview.svg", "labelwise_curves.pdf", "simplex_paths.svg", "overview.svg", "curves.csv"} <= made
    assert "(simulated)" in (project / "data/report/figures/labelwise_curves.svg").read_text()


def test_each_flow_run_shows_a_table_a_link_and_how_far_it_is(project):
    query = "select distinct f.name, a.type from artifact a join flow_run f on a.flow_run_id = f.id"
    shown = set(recorded(project, query))
    names = {name for name, _ in shown}
    assert names >= {"refresh", "report", "reliability/wands", "reliability/mine"}
    kinds = ("table", "markdown", "progress")  # a link is markdown
    assert shown >= {(name, kind) for name in names for kind in kinds}
    assert set(TABLES) < {name for (name,) in recorded(project, "select name from task_run")}
    assert {name.replace("_", "-") for name in TABLES} <= artifacts(project).keys()


def test_a_stage_repeats_only_a_fit_that_rotted_to_the_same_bytes_and_a_choice_is_explored_beside_it(project):
    """Both in one process, as `python -m flows.reliability wands [--seed 2 --calibrator ts]` does each in its own."""
    folder, fits = project / "data/runs/wands", project / "data/.state/fits"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for kept in (project / ".prefect/storage").glob("ts-1-*"):  # one of each data set
        content = kept.read_bytes()
        kept.write_bytes(content[:-40] + bytes([content[-40] ^ 1]) + content[-39:])
    report, commands = (project / "data/report/index.html").read_bytes(), "main('wands'); main('wands', [2], ['ts'])"
    printed = run(
        project,
        "-c",
        f"from flows import report\nfrom flows.reliability import main\n{commands}; report.main(['mine'])",
    )
    assert re.search(r"^wands \(simulated\): Use the map: it predicts and ranks better\.$", printed, re.MULTILINE)
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
    """Give SMART settings of its own, as the preset of the paper does, while a test runs."""
    before = (project / "params.yaml").read_text()
    edit_params(
        project, lambda params: params.update(calibrator_settings={"wands": {"smart": {"epochs": 40, "patience": 20}}})
    )
    yield
    (project / "params.yaml").write_text(before)


@pytest.mark.usefixtures("smart_with_settings")
def test_every_calibrator_is_fitted_once_and_then_found_in_the_cache(project):
    run(project, "-c", RUN_EVERY_CALIBRATOR_TWICE)
    fits = read_json(project / "data/.state/fits/explored/wands.json")
    assert fits == {"calibrators_fitted": 0, "calibrators_reused": len(CALIBRATORS)}


def test_fits_that_cannot_be_stored_are_reported(project, tmp_path):
    (tmp_path / "store").write_text("a file where the folder of fits would be")
    store = {"PREFECT_LOCAL_STORAGE_PATH": str(tmp_path / "store")}
    printed = run(project, "-c", "from flows.reliability import main; main('wands', [2], ['ts'])", **store)
    assert f"calibrator fits could not be stored in {tmp_path / 'store'}" in printed


WITHOUT_RIGHTS_OF_ROOT = """
import ctypes, os, sys
if os.geteuid() == 0:  # root writes to folders of any mode, unless it gives up the capability CAP_DAC_OVERRIDE
    PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
    if ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0) != 0:
        sys.exit("the capability could not be given up")
os.execv(sys.executable, [sys.executable, "-c", os.environ["COMMAND"]])
"""


def test_a_read_only_store_gives_its_fits_and_what_it_cannot_take_is_reported(project, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(project / ".prefect/storage", store, ignore=shutil.ignore_patterns("uncal-*"))
    variables = {"PREFECT_LOCAL_STORAGE_PATH": str(store)}
    store.chmod(0o555)
    command = "from flows.reliability import main; main('wands', [2], ['ts', 'uncal'])"
    printed = run(project, "-c", WITHOUT_RIGHTS_OF_ROOT, COMMAND=command, **variables)
    store.chmod(0o755)
    assert re.search(rf"1 of \d+ calibrator fits could not be stored in {store}", printed)
    assert read_json(project / "data/.state/fits/explored/wands.json")["calibrators_fitted"] == 1


def test_what_is_up_to_date_runs_nothing_and_a_push_takes_results_along_and_no_raw_file(project, tmp_path):
    """Also after the test before this one, which ran a stage without DVC, and another choice beside it."""
    parts = (["repro"], ["repro", "reliability@wands"], ["repro", "--downstream", "train@wands"], ["metrics", "show"])
    remote = (["remote", "add", "--default", "others", str(tmp_path)], ["push"], ["remote", "remove", "others"])
    in_one_process = "import json, sys; from dvc.cli import main; sys.exit(any([*map(main, json.loads(sys.argv[1]))]))"
    assert stages_run(run(project, "-c", in_one_process, json.dumps([*parts, *remote]))) == set()

    def pushed(file: str) -> bool:
        md5 = hashlib.md5((project / file).read_bytes()).hexdigest()
        return (tmp_path / "files/md5" / md5[:2] / md5[2:]).exists()

    assert pushed("data/runs/wands/metrics.parquet")
    assert not pushed("data/raw/wands/data/test-00000-of-00001.parquet")


@pytest.fixture(scope="module")
def map_file(project, first_run) -> Path:
    """A map of the predictions on which the pipeline calibrated and projected, under the same seed."""
    base = pl.read_parquet(project / "data/base/wands/logits.parquet").drop("decision")
    for split in ("validation", "test"):
        base.filter(pl.col("split") == split).write_parquet(project / f"{split}.parquet")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(api, "DEFAULTS", load_params(project / "params.yaml").library_settings)
        own = {"calibrator": "ts", "variant": "mrp", "seed": 2, "protocol": "paper"}
        rerank.fit(project / "validation.parquet", project / "map.json", **own)
    return project / "map.json"


def test_a_map_of_the_same_predictions_says_what_the_pipeline_says(project, map_file):
    rerank.apply(map_file, project / "test.parquet", project / "scored.parquet")
    scored = pl.read_parquet(project / "scored.parquet")
    pipeline = pl.read_parquet(project / "data/runs/wands/scores.parquet").filter(calibrator="ts", seed=2)
    for column in ("decision", "confidence", "reliability"):
        np.testing.assert_allclose(scored[column], pipeline.sort("row")[column], rtol=0, atol=1e-12)


def watch_map(project: Path, predictions: str) -> None:
    """Have each refresh look at a map, and run one DVC after the other."""
    own = {"map": "map.json", "predictions": predictions, "group": "group"}
    edit_params(project, lambda params: params.update(watched={"my_map": own}, lanes=1))


def test_changing_one_raw_file_reruns_that_set_and_the_report_alone(project, map_file):
    write_own_pairs(project / "mine.csv", seed=1)
    watch_map(project, "test.parquet")
    printed = run(project, "flows.refresh")
    assert stages_run(printed) == {"download@mine", "train@mine", "reliability@mine", "report"}
    assert re.search(r"^download@mine ran: mine\.csv: \w{8} → \w{8} \(\d+ of 900 rows differ\)$", printed, re.MULTILINE)
    assert re.search(r"^train@mine ran: data/raw/mine/mine\.csv: \w{8} → \w{8}; data/raw/mine/source", printed, re.M)
    assert "3 of 7 stages were up to date" in printed
    assert re.search(r"^  mine\.nll_correct: \S+ → \S+$", printed, re.MULTILINE)
    assert "my_map: The map still holds" in printed
    assert artifacts(project)["map-my-map"].startswith("The map still holds")


def test_a_set_that_fails_is_a_marked_hole_and_the_others_finish(project):
    (project / "mine.csv").write_text("query,title,grade\nq,lamp,superb\n")
    test = pl.read_parquet(project / "test.parquet")
    test.with_columns(label=pl.col("label").reverse()).write_parquet(project / "drifted.parquet")
    watch_map(project, "drifted.parquet")
    printed = run(project, "flows.refresh", status=1)
    words = ("refresh: the refresh failed:", "the report marks the missing data sets", "mine (failed)")
    assert all(part in printed for part in (*words, "my_map: The map no longer holds for")), printed
    assert re.search(r"^  download@mine: mine\.csv, row 1, .*superb", printed, re.MULTILINE)
    assert printed.count("Running stage 'download@mine'") == 1  # the same bytes would go in again
    assert artifacts(project)["map-my-map"].startswith("The map no longer holds")
    assert "Traceback" not in printed
    table = pl.read_csv(project / "data/report/main.csv")
    assert table["source"].to_list() == ["simulated", "simulated", "failed", "failed"]
    page = (project / "data/report/index.html").read_text()
    assert re.search(r"This data set did not finish.</strong> download@mine: .*superb", page)


def test_old_runs_are_pruned_and_the_database_shrinks(project, tmp_path_factory):
    copy = tmp_path_factory.mktemp("pruned")
    copy_project(copy, lambda params: small(params, rows=6000))
    shutil.copytree(project / ".prefect", copy / ".prefect", dirs_exist_ok=True)
    with closing(sqlite3.connect(copy / ".prefect/prefect.db")) as database:
        aged = "update flow_run set end_time = '2020-01-01 00:00:00' where name like 'reliability/%'"
        old = database.execute(aged).rowcount
        database.commit()
    before = recorded(copy, "select name, count(*) from flow_run group by 1 order by 1")
    assert f"{old} runs would be removed" in run(copy, "flows.prune", "--dry-run")
    assert recorded(copy, "select name, count(*) from flow_run group by 1 order by 1") == before
    printed = run(copy, "flows.prune")
    assert f"Prefect's database: {old} runs were removed" in printed
    assert "Stored calibrator fits: 0 were removed" in printed
    kept = recorded(copy, "select name, count(*) from flow_run group by 1 order by 1")
    assert kept == [row for row in before if not row[0].startswith("reliability/")]
    orphans = "select count(*) from log where flow_run_id is not null and flow_run_id not in (select id from flow_run)"
    assert recorded(copy, orphans) == [(0,)]
