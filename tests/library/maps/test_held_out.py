"""The default threshold of a map, which routes each row if no coverage and no cut are given."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from relmap import ReliabilityMap
from relmap.maps.document import load_map
from relmap.maps.fit_rows import score_out_of_fold
from relmap.maps.folds import restore_fold_split
from relmap.routing.apply import MIN_COVERAGE_ROWS, NO_THRESHOLD, apply_map, routing_rule
from tests import maps

EARLIER_MAPS = sorted((Path(__file__).parents[2] / "data/maps_c857e97").glob("*.json"))


@pytest.fixture(scope="module")
def fitted_map():
    rows = maps.make_predictions(1200, shift=1.5)
    return ReliabilityMap(variant="mrp").fit(rows)


def test_default_threshold_covers_70_percent_of_rows_out_of_fold():
    rows = maps.rows_of_frame(maps.make_predictions(1200, shift=1.5))
    document = maps.fit_map(rows).document
    reliability = score_out_of_fold(document, rows, restore_fold_split(document, rows)).reliability
    coverage = (reliability >= document.default_threshold).mean()
    next_reliability = reliability[reliability > document.default_threshold].min()

    assert coverage >= 0.7 > (reliability >= next_reliability).mean()
    assert document.default_threshold > 0.5


def test_default_threshold_uses_row_weights():
    frame = maps.make_predictions(1200, shift=1.5)
    weight = np.where(np.arange(1200) % 2 == 0, 9.0, 1.0)
    rows = maps.rows_of_frame(frame.with_columns(inverse_probability=weight))
    document = maps.fit_map(rows, "mrp").document
    reliability = score_out_of_fold(document, rows, restore_fold_split(document, rows)).reliability
    coverage = np.average(reliability >= document.default_threshold, weights=weight)

    assert 0.7 <= coverage < 0.72


def test_default_threshold_is_at_least_one_half():
    frame = maps.make_predictions(900)
    inaccurate = frame.with_columns(label=(pl.col("logits").list.arg_max() + pl.int_range(pl.len()) % 3) % 3)
    assert maps.fit_map(maps.rows_of_frame(inaccurate), "mrp").document.default_threshold == 0.5


def test_route_of_a_row_does_not_depend_on_other_rows(fitted_map):
    new_rows = maps.make_predictions(60, seed=3, shift=1.5).drop("label")
    all_rows = fitted_map.apply(new_rows)["route"].to_list()
    row_by_row = [fitted_map.apply(new_rows[row : row + 1])["route"].item() for row in range(len(new_rows))]

    assert all_rows == row_by_row
    assert {*all_rows} == {"automatic", "review"}


@pytest.mark.parametrize("file", EARLIER_MAPS, ids=lambda path: path.stem)
def test_map_without_threshold_uses_one_half_and_notes_it(file):
    rule = routing_rule(load_map(file))
    assert (rule.thresholds == 0.5).all()
    assert rule.notes == (NO_THRESHOLD,)


@pytest.mark.parametrize(("n_rows", "warned"), [(MIN_COVERAGE_ROWS - 1, True), (MIN_COVERAGE_ROWS, False)])
def test_coverage_of_few_rows_is_warned_about(fitted_map, tmp_path, n_rows, warned):
    new_rows = maps.write_frame(maps.make_predictions(n_rows).drop("label"), tmp_path / "new.parquet")
    for options, expected in (
        ({"coverage": "0.7"}, warned),
        ({}, False),
        ({"cut": 0.6}, False),
        ({"coverage": "1"}, False),
    ):
        applied = apply_map(fitted_map.document_, new_rows, tmp_path / "out.parquet", **options)
        assert any(f"only {n_rows}:" in note for note in applied.notes) == expected
