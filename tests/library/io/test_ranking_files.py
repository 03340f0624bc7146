"""Exact ranks of rows, in memory and on disk."""

from math import inf
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relmap.io import ranking
from relmap.io.files import open_predictions
from relmap.io.ranking import SCORES, rank_rows
from relmap.maps.score import ignore_progress, score_file
from tests.maps import make_map, make_predictions, write_frame
from tests.naive import naive_ranks


@pytest.fixture
def path(tmp_path) -> Path:
    """Write 90 predictions of 3 labels."""
    return write_frame(make_predictions(90), tmp_path / "new.parquet")


def compute_ranks(logit: list[float], folder: Path, size: int, in_memory: int) -> list[int]:
    """Rank logits that arrive in batches of `size` rows."""
    frame = pl.DataFrame([(1, 0.5, value) for value in logit], schema=SCORES, orient="row")
    with rank_rows(frame.iter_slices(size), folder / "out.parquet", in_memory=in_memory) as ranking:
        assert ranking.n_rows == len(logit)
        pieces = [ranking.rows(first, size) for first in range(0, len(logit), size)]
    assert not list(folder.iterdir())
    no_rows = frame.with_columns(rank=pl.lit(0, pl.Int64)).clear()  # `pieces` is empty if there are no logits
    ranked = pl.concat([no_rows, *pieces])
    assert ranked.drop("rank").equals(frame)
    return ranked["rank"].to_list()


@pytest.mark.parametrize("in_memory", [2**23, -1])  # with -1, even a single row is sorted on the disk
@settings(deadline=None, max_examples=20)
@given(
    logit=st.lists(
        st.sampled_from([-inf, -1.0, -0.0, 0.0, 5e-324, 1.0, inf]) | st.floats(allow_nan=False), max_size=40
    ),
    size=st.integers(1, 7),
)
def test_ranks_in_memory_and_out_of_core_equal_a_stable_sort(in_memory, logit, size, tmp_path_factory):
    assert compute_ranks(logit, tmp_path_factory.mktemp("ranks"), size, in_memory=in_memory) == naive_ranks(logit)


def test_ranks_out_of_core_are_sorted_in_the_folder_within_limits(tmp_path, monkeypatch):
    original_connect = duckdb.connect
    configurations = []

    def connect(*, config: dict[str, object]) -> duckdb.DuckDBPyConnection:
        configurations.append(config)
        return original_connect(config=config)

    monkeypatch.setattr(duckdb, "connect", connect)
    compute_ranks([0.5, 0.1, 0.3], tmp_path, 1, in_memory=1)
    (configuration,) = configurations
    folder = Path(configuration.pop("temp_directory"))
    assert folder.is_relative_to(tmp_path)
    assert configuration == {"memory_limit": ranking.SORT_MEMORY, "threads": ranking.SORT_THREADS}


@pytest.mark.parametrize("in_memory", [50_000, 2**23])
def test_ranks_are_exact_over_many_row_groups(in_memory, tmp_path):
    logit = np.random.default_rng(0).integers(-50, 50, 130_000) / 7
    logit[::1000] = inf
    logit[1::1000] = -inf
    logit[2::1000] = -0.0
    ranks = np.array(compute_ranks(logit.tolist(), tmp_path, 40_001, in_memory=in_memory))
    order = np.argsort(logit, kind="stable")

    assert (ranks[order] == np.arange(1, len(logit) + 1)).all()


def test_scores_of_a_file_without_rows_have_all_columns(tmp_path):
    path = tmp_path / "empty.parquet"
    make_predictions(3).head(0).write_parquet(path)
    scores = score_file(make_map(), open_predictions(path), ignore_progress).scores
    assert dict(scores.schema) == SCORES
    assert scores.is_empty()
