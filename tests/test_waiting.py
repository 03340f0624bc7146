"""A task that fails is told with its place; a server that is gone, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.engine import outcome
from flows.server import server_needed
from tasks.calibrate import SealedPickle
from tasks.expectations.check import GateFailed
from tasks.protocol.errors import BadInput, RunFailed


@dataclass(frozen=True)
class Ended:
    """A future that has ended with `made`."""

    made: Any
    task_run_id: str = "1234"

    def result(self, *, raise_on_failure: bool) -> Any:
        assert not raise_on_failure
        return self.made


def test_what_a_task_has_made_is_handed_on():
    assert outcome(Ended([1, 2]), "wands, fits, ts, seed 2") == [1, 2]


def test_a_task_that_fails_is_told_with_its_place_its_reason_and_where_its_traceback_is():
    with pytest.raises(RunFailed, match=r"^wands, fits, ts, seed 2, failed: ZeroDivisionError: by zero .*run 1234\)$"):
        outcome(Ended(ZeroDivisionError("by zero")), "wands, fits, ts, seed 2")


@pytest.mark.parametrize("own", [GateFailed("gate `x` is closed for dataset wands, seed 2"), BadInput("row 3 is bad")])
def test_what_says_its_own_place_is_told_as_it_is(own):
    with pytest.raises(type(own)) as told:
        outcome(Ended(own), "wands, projected, seed 2")
    assert told.value is own


@pytest.mark.parametrize("lost", [httpx.ConnectError("refused"), httpx.ReadTimeout("too late")])
def test_a_server_that_is_gone_is_told_in_words(lost):
    with (
        temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}),
        pytest.raises(RunFailed, match=r"no longer answers \((refused|too late)\).*run the same command again"),
        server_needed(),
    ):
        raise lost


def test_a_kept_fit_is_read_as_it_was_written_or_not_at_all():
    kept = SealedPickle().dumps({"beta": 1.5})
    assert SealedPickle().loads(kept) == {"beta": 1.5}
    for place in range(len(kept)):
        with pytest.raises(ValueError, match="not as it was written"):
            SealedPickle().loads(kept[:place] + bytes([kept[place] ^ 1]) + kept[place + 1 :])
