"""Many runs submitted to `python -m flows.serve` at nearly the same time."""

import asyncio
import base64
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from relmap.maps.document import save_map
from tests import maps
from tests.project_copy import copy_project, processes_by_library, shrink_params
from tests.system.browser import wait_until
from tests.system.served import RunningServer, run_server

pytestmark = pytest.mark.system

MANY_SUBMISSIONS = 50
FEW_SUBMISSIONS = 8
REQUEST_TIMEOUT = 60  # seconds
ALL_RUNS_TIMEOUT = 1200  # seconds; one run takes two to ten seconds, and Prefect's runner starts five at a time


async def submit_all(served: RunningServer, parameters: dict[str, str], submissions: int, seconds: float) -> list[int]:
    """Submit runs of `rerank-sql`, evenly within `seconds`, and return the HTTP status of each response."""
    deployment = served.find_deployment_id("rerank-sql")
    secret = base64.b64encode(served.secret.encode()).decode()
    headers = {"authorization": f"Basic {secret}"}
    address = f"{served.address}/api/deployments/{deployment}/create_flow_run"
    async with httpx.AsyncClient(headers=headers, timeout=REQUEST_TIMEOUT) as client:

        async def submit(number: int) -> int:
            await asyncio.sleep(number * seconds / submissions)
            response = await client.post(address, json={"parameters": parameters})
            return response.status_code

        return await asyncio.gather(*[submit(number) for number in range(submissions)])


def count_states(served: RunningServer) -> Counter[str]:
    """Count the submitted runs by their state."""
    return Counter(run["state_type"] for run in served.list_runs("rerank-sql"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    copy_project(tmp_path, shrink_params)
    save_map(maps.make_map(), tmp_path / "map.json")
    return tmp_path


def test_fifty_submissions_in_five_seconds_are_all_accepted_and_run(project):
    with run_server(project) as served:
        parameters = {"map_file": str(project / "map.json")}
        statuses = asyncio.run(submit_all(served, parameters, MANY_SUBMISSIONS, seconds=5))
        assert Counter(statuses) == {201: MANY_SUBMISSIONS}
        began = time.monotonic()
        wait_until(lambda: count_states(served)["COMPLETED"] == MANY_SUBMISSIONS, timeout=ALL_RUNS_TIMEOUT)
        print(f"all {MANY_SUBMISSIONS} runs had completed {time.monotonic() - began:.0f} s after the last submission")
        assert count_states(served) == {"COMPLETED": MANY_SUBMISSIONS}
    # The server, its runner and the process of each run recorded in a file which library they imported
    assert [*processes_by_library(served.libraries)] == [project / "relmap/__init__.py"]
    # The server logs each request that it rejects
    assert "rejected" not in (project / "data/.state/server.log").read_text()


def test_all_runs_end_after_a_restart_of_a_killed_server_and_some_complete(project):
    """Runs that were not started when the server is killed complete later; those that were started may crash."""
    served = RunningServer(project)
    try:
        wait_until(lambda: served.is_running() and served.find_deployment_id("rerank-sql"))
        parameters = {"map_file": str(project / "map.json")}
        statuses = asyncio.run(submit_all(served, parameters, FEW_SUBMISSIONS, seconds=1))
        assert Counter(statuses) == {201: FEW_SUBMISSIONS}
        wait_until(lambda: count_states(served)["PENDING"])  # the server is about to start these runs
    finally:
        served.process.kill()
        served.process.wait()
    with run_server(project) as restarted:

        def all_have_ended() -> bool:
            states = count_states(restarted)
            return states["COMPLETED"] + states["CRASHED"] == FEW_SUBMISSIONS

        wait_until(all_have_ended)
        assert count_states(restarted)["COMPLETED"]
