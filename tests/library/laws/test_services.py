"""Scoring in a service: single rows, batches, and several threads."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import softmax

from relmap import InputError, ReliabilityMap
from tests.maps import make_predictions

ROOT = Path(__file__).resolve().parents[3]
ROWS = make_predictions(600)
LOGITS = np.array(ROWS["logits"].to_list())
PROBABILITIES = softmax(LOGITS, axis=1)
NAMES = np.array(["bad", "fair", "good"])
VARIANTS = ("mrp_pooled", "mrp_exact", "label_platt", "confidence")
N_THREADS = 8


@pytest.fixture(scope="module", params=VARIANTS)
def map_file(request, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("maps") / "map.json"
    labels = NAMES[ROWS["label"].to_numpy()]
    ReliabilityMap(labels=NAMES.tolist(), variant=request.param).fit(PROBABILITIES, labels).save(path)
    return path


@pytest.mark.parametrize(("kind", "numbers"), [("probabilities", PROBABILITIES), ("logits", LOGITS)])
def test_arrays_and_frames_give_the_same_scores(map_file, kind, numbers):
    repeated = numbers[np.r_[0:300, 0:300]]  # ties are ranked in the order of the rows
    frame = pl.DataFrame({kind: repeated})
    array_map = ReliabilityMap.load(map_file, arrays=kind)
    frame_map = ReliabilityMap.load(map_file)

    np.testing.assert_array_equal(array_map.reliability(repeated), frame_map.reliability(frame).to_numpy())
    np.testing.assert_array_equal(array_map.predict(repeated), frame_map.predict(frame))
    for options in ({}, {"coverage": 0.3}, {"cut": 0.8}, {"coverage": 0.5, "cut": 0.6}):
        expected = frame_map.apply(frame, **options).drop(kind)
        # an array has no other column of decisions, so its field `decision` has the names
        expected = expected.rename({"decision": "decision_code", "decision_name": "decision"})
        routed = array_map.apply(repeated, **options)
        assert routed.dtype.names == tuple(expected.columns)
        for name in expected.columns:
            np.testing.assert_array_equal(routed[name], expected[name].to_numpy(), err_msg=name)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([np.nan, 0.5, 0.5], r"X, row 1 \(from 0\): probabilities 0 .*nan"),
        ([0.5, 0.6, 0.2], r"X, row 1 \(from 0\): .*probabilities .* 1\.3\b"),
        ([0.5, 0.6, -0.1], r"X, row 1 \(from 0\): .*probabilities .*-0\.1\b"),
    ],
)
def test_invalid_array_row_is_named(map_file, row, message):
    scored = ReliabilityMap.load(map_file, arrays="probabilities")
    for method in (scored.reliability, scored.predict, scored.apply):
        with pytest.raises(InputError, match=message):
            method(np.array([[0.2, 0.3, 0.5], row]))


@pytest.mark.parametrize("method", ["reliability", "predict", "apply"])
def test_one_row_of_an_array_is_scored_without_a_frame_of_predictions(map_file, method, monkeypatch):
    """Such a frame takes several milliseconds, which is too long for a service; see the benchmark of single rows."""
    scored = ReliabilityMap.load(map_file, arrays="probabilities")

    def reject_frame(*arguments: object) -> None:
        raise AssertionError(f"a frame was made from {arguments}")

    monkeypatch.setattr(scored, "_unlabelled", reject_frame)
    assert len(getattr(scored, method)(PROBABILITIES[:1])) == 1


def test_shared_map_gives_the_same_scores_in_every_thread(map_file):
    shared = ReliabilityMap.load(map_file, arrays="probabilities")
    batches = [PROBABILITIES[start : start + size] for size in (1, 7, 90) for start in range(0, 500, 37)]
    expected = [shared.apply(batch) for batch in batches]
    with ThreadPoolExecutor(N_THREADS) as pool:
        for _ in range(5):
            for routed, sequential in zip(pool.map(shared.apply, batches), expected, strict=True):
                np.testing.assert_array_equal(routed, sequential)


FIRST_USE = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from relmap import ReliabilityMap

rows, n_threads = json.load(sys.stdin), int(sys.argv[2])
barrier = Barrier(n_threads)

def first_use(_):
    barrier.wait()  # all at once: nothing of the library has been used before
    return ReliabilityMap.load(sys.argv[1], arrays="probabilities").reliability(rows).tolist()

with ThreadPoolExecutor(n_threads) as pool:
    print(json.dumps([*pool.map(first_use, range(n_threads))]))
"""


@pytest.mark.parametrize("map_file", ["mrp_pooled"], indirect=True)  # a process takes two seconds
def test_first_use_in_a_process_is_thread_safe(map_file):
    rows = PROBABILITIES[:5].tolist()
    command = [sys.executable, "-c", FIRST_USE, str(map_file), str(N_THREADS)]
    completed = subprocess.run(command, cwd=ROOT, input=json.dumps(rows), capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    expected = ReliabilityMap.load(map_file, arrays="probabilities").reliability(rows).tolist()
    assert json.loads(completed.stdout) == [expected] * N_THREADS
