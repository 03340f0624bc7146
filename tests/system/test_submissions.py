"""Runs of `python -m flows.serve`: many submitted at nearly the same time, and scheduled ones after a restart."""

import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.project_copy import copy_project, processes_by_library, run_module, shrink_params
from tests.system.browser import wait_until
from tests.system.served import RunningServer, run_server

pytestmark = pytest.mark.system

MANY_SUBMISSIONS = 50
FEW_SUBMISSIONS = 8
ALL_RUNS_TIMEOUT = 1200  # seconds; one run takes two to ten seconds, and Prefect's runner starts five at a time


# The run of an unknown data set ends at once with a message.
PARAMETERS = {"datasets": ["nowhere"]}
SUBMIT = """
import asyncio, sys
from prefect import get_client

async def submit_all(number, seconds):
    async with get_client() as client:
        deployment = await client.read_deployment_by_name("reliabilities/reliability")

        async def submit(index):
            await asyncio.sleep(index * seconds / number)
            await client.create_flow_run_from_deployment(deployment.id, parameters={parameters})

        await asyncio.gather(*[submit(index) for index in range(number)])

asyncio.run(submit_all(int(sys.argv[1]), float(sys.argv[2])))
"""


def submit_all(served: RunningServer, submissions: int, seconds: float) -> None:
    """Submit runs with Prefect's client, which does not try again, evenly within some seconds."""
    variables = {
        "PREFECT_API_URL": f"{served.address}/api",
        "PREFECT_API_AUTH_STRING": served.secret,
        "PREFECT_CLIENT_MAX_RETRIES": "0",
    }
    code = SUBMIT.replace("{parameters}", repr(PARAMETERS))
    run_module(served.project, "-c", code, str(submissions), str(seconds), **variables)


def count_states(served: RunningServer) -> Counter[str]:
    """Count the submitted runs by their state."""
    return Counter(run["state_type"] for run in served.list_runs("reliability"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    copy_project(tmp_path, shrink_params)
    return tmp_path


def test_fifty_submissions_in_five_seconds_are_all_accepted_and_run(project):
    with run_server(project) as served:
        submit_all(served, MANY_SUBMISSIONS, seconds=5)
        assert count_states(served).total() == MANY_SUBMISSIONS
        began = time.monotonic()
        wait_until(lambda: count_states(served)["FAILED"] == MANY_SUBMISSIONS, timeout=ALL_RUNS_TIMEOUT)
        print(f"all {MANY_SUBMISSIONS} runs had ended {time.monotonic() - began:.0f} s after the last submission")
        assert all("data set 'nowhere'" in run["state"]["message"] for run in served.list_runs("reliability"))
    # The server, its runner and the process of each run recorded in a file which library they imported
    assert [*processes_by_library(served.libraries)] == [project / "relmap/__init__.py"]


def test_all_runs_end_after_a_restart_of_a_killed_server_and_some_are_run(project):
    """Runs that were not started when the server is killed run later; those that were started may crash."""
    served = RunningServer(project)
    try:
        wait_until(lambda: served.is_running() and served.find_deployment_id("reliability"))
        submit_all(served, FEW_SUBMISSIONS, seconds=1)
        wait_until(lambda: count_states(served)["PENDING"])  # the server is about to start these runs
    finally:
        served.process.kill()
        served.process.wait()
    with run_server(project) as restarted:

        def all_have_ended() -> bool:
            states = count_states(restarted)
            return states["FAILED"] + states["CRASHED"] == FEW_SUBMISSIONS

        wait_until(all_have_ended)
        assert count_states(restarted)["FAILED"]


def test_schedules_set_in_the_ui_survive_a_restart_and_fire(project):
    """The page of a deployment sends the same requests."""
    with run_server(project) as served:
        interval = {"schedule": {"interval": 15}, "active": True, "parameters": PARAMETERS}
        served.request("POST", f"deployments/{served.find_deployment_id('reliability')}/schedules", [interval])
        (refresh,) = served.find_deployments("refresh")
        (daily,) = refresh["schedules"]
        cron = {"schedule": {"cron": "30 6 * * *", "timezone": "UTC"}}
        served.request("PATCH", f"deployments/{refresh['id']}/schedules/{daily['id']}", cron)
    with run_server(project) as restarted:
        restart = datetime.now(UTC).isoformat()

        def find_fired_runs() -> list[dict]:
            runs = restarted.list_runs("reliability", scheduled=True)
            return [run for run in runs if run["state_type"] == "FAILED" and run["start_time"] > restart]

        ended = wait_until(find_fired_runs)
        assert all("data set 'nowhere'" in run["state"]["message"] for run in ended)
        (refresh,) = restarted.find_deployments("refresh")
        assert [entry["schedule"]["cron"] for entry in refresh["schedules"]] == ["30 6 * * *"]
