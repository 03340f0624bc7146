"""Many runs submitted to `python -m flows.serve` at nearly the same time."""

import asyncio
import base64
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from relmap.maps.map_file import save_map
from tests import maps
from tests.project_copy import copy_project, processes_by_library, shrink_params
from tests.system.browser import wait_until
from tests.system.served import RunningServer, run_server

pytestmark = pytest.mark.system

SUBMISSIONS = 50
SECONDS = 5
FEW_SUBMISSIONS = 8
PATIENCE_OF_A_CLIENT = 60  # seconds
PATIENCE_FOR_ALL_RUNS = 1200  # seconds; one run takes two to ten, and five run at a time


async def submit_all(served: RunningServer, parameters: dict[str, str], submissions: int, seconds: float) -> list[int]:
    """Submit runs of `rerank-sql`, evenly over a few seconds, and return the status of each answer."""
    deployment = served.find_deployment_id("rerank-sql")
    secret = base64.b64encode(served.secret.encode()).decode()
    headers = {"authorization": f"Basic {secret}"}
    address = f"{served.address}/api/deployments/{deployment}/create_flow_run"
    async with httpx.AsyncClient(headers=headers, timeout=PATIENCE_OF_A_CLIENT) as client:

        async def submit(number: int) -> int:
            await asyncio.sleep(number * seconds / submissions)
            answer = await client.post(address, json={"parameters": parameters})
            return answer.status_code

        return await asyncio.gather(*[submit(number) for number in range(submissions)])


def states(served: RunningServer) -> Counter[str]:
    return Counter(run["state_type"] for run in served.list_runs("rerank-sql"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    copy_project(tmp_path, shrink_params)
    save_map(maps.make_map(), tmp_path / "map.json")
    return tmp_path


def test_fifty_submissions_in_five_seconds_are_all_accepted_and_run(project):
    with run_server(project) as served:
        answers = asyncio.run(submit_all(served, {"map_file": str(project / "map.json")}, SUBMISSIONS, SECONDS))
        assert Counter(answers) == {201: SUBMISSIONS}
        began = time.monotonic()
        wait_until(lambda: states(served)["COMPLETED"] == SUBMISSIONS, timeout=PATIENCE_FOR_ALL_RUNS)
        print(f"all {SUBMISSIONS} runs had completed {time.monotonic() - began:.0f} s after the last submission")
        assert states(served) == {"COMPLETED": SUBMISSIONS}
    # the server, its runner and the process of each run import the library of the served checkout
    assert [*processes_by_library(served.libraries)] == [project / "relmap/__init__.py"]
    assert "rejected" not in (project / "data/.state/server.log").read_text()


def test_runs_that_a_killed_server_had_taken_or_not_taken_run_after_the_next_start(project):
    served = RunningServer(project)
    try:
        wait_until(lambda: served.is_running() and served.find_deployment_id("rerank-sql"))
        answers = asyncio.run(submit_all(served, {"map_file": str(project / "map.json")}, FEW_SUBMISSIONS, 1))
        assert Counter(answers) == {201: FEW_SUBMISSIONS}
        wait_until(lambda: states(served)["PENDING"])
    finally:
        served.process.kill()
        served.process.wait()
    with run_server(project) as again:
        wait_until(lambda: states(again)["COMPLETED"] + states(again)["CRASHED"] == FEW_SUBMISSIONS)
        assert states(again)["COMPLETED"]
