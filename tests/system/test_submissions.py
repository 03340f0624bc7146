"""Many runs submitted to `python -m flows.serve` at nearly the same time."""

import asyncio
import base64
from collections import Counter
from pathlib import Path

import httpx
import pytest

from relmap.maps.map_file import save_map
from tests import maps
from tests.project_copy import copy_project, processes_by_library, small
from tests.system.browser import eventually
from tests.system.served import Served, serving

pytestmark = pytest.mark.system

SUBMISSIONS = 50
SECONDS = 5
PATIENCE_OF_A_CLIENT = 60  # seconds
PATIENCE_FOR_ALL_RUNS = 600  # seconds; one run takes two to three, and a few run at a time


async def submit_all(served: Served, parameters: dict[str, str]) -> list[int]:
    """Submit runs of `rerank-sql`, evenly over a few seconds, and return the status of each answer."""
    deployment = served.deployment("rerank-sql")
    secret = base64.b64encode(served.secret.encode()).decode()
    headers = {"authorization": f"Basic {secret}"}
    address = f"{served.address}/api/deployments/{deployment}/create_flow_run"
    async with httpx.AsyncClient(headers=headers, timeout=PATIENCE_OF_A_CLIENT) as client:

        async def submit(number: int) -> int:
            await asyncio.sleep(number * SECONDS / SUBMISSIONS)
            answer = await client.post(address, json={"parameters": parameters})
            return answer.status_code

        return await asyncio.gather(*[submit(number) for number in range(SUBMISSIONS)])


def states(served: Served) -> Counter[str]:
    return Counter(run["state_type"] for run in served.runs("rerank-sql"))


def test_fifty_submissions_in_five_seconds_are_all_accepted_and_run(tmp_path: Path):
    copy_project(tmp_path, small)
    save_map(maps.document(), tmp_path / "map.json")
    with serving(tmp_path) as served:
        answers = asyncio.run(submit_all(served, {"map_file": str(tmp_path / "map.json")}))
        assert Counter(answers) == {201: SUBMISSIONS}
        eventually(lambda: states(served)["COMPLETED"] == SUBMISSIONS, within=PATIENCE_FOR_ALL_RUNS)
        assert states(served) == {"COMPLETED": SUBMISSIONS}
    # the server, its runner and the process of each run import the library of the served checkout
    assert [*processes_by_library(served.libraries)] == [tmp_path / "relmap/__init__.py"]
    assert "rejected" not in (tmp_path / "data/.state/server.log").read_text()
