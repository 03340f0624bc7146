"""Without a coverage or a cut the threshold of the map decides, row by row."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from relmap import ReliabilityMap
from relmap.fitting.folds import restore_fold_split
from relmap.fitting.labelled_rows import score_out_of_fold
from relmap.maps.map_file import load_map
from relmap.routing.apply import MIN_COVERAGE_ROWS, NO_THRESHOLD, apply_map, routing_rule
from tests import maps

EARLIER = sorted((Path(__file__).parents[1] / "data/maps_c857e97").glob("*.json"))


@pytest.fixture(scope="module")
def fitted():
    rows = maps.make_predictions(1200, shift=1.5)
    return ReliabilityMap(variant="mrp").fit(rows)


def test_the_threshold_is_what_70_percent_of_the_rows_reach_out_of_fold():
    rows = maps.rows_of_frame(maps.make_predictions(1200, shift=1.5))
    learned = maps.fit_map(rows)
    document = learned.document
    reliability = score_out_of_fold(document, rows, restore_fold_split(document, rows)).reliability
    reached = (reliability >= document.default_threshold).mean()
    above = reliability[reliability > document.default_threshold]
    assert reached >= 0.7 > (reliability >= above.min()).mean()
    assert document.default_threshold > 0.5
    assert f"a reliability of {document.default_threshold:.4g} or more" in " ".join(learned.describe())


def test_rows_count_by_their_weight():
    frame = maps.make_predictions(1200, shift=1.5)
    weight = np.where(np.arange(1200) % 2 == 0, 9.0, 1.0)
    rows = maps.rows_of_frame(frame.with_columns(inverse_probability=weight))
    document = maps.fit_map(rows, "mrp").document
    reliability = score_out_of_fold(document, rows, restore_fold_split(document, rows)).reliability
    reached = np.average(reliability >= document.default_threshold, weights=weight)
    assert 0.7 <= reached < 0.72


def test_a_threshold_is_never_below_one_half():
    frame = maps.make_predictions(900)
    wrong = frame.with_columns(label=(pl.col("logits").list.arg_max() + pl.int_range(pl.len()) % 3) % 3)
    assert maps.fit_map(maps.rows_of_frame(wrong), "mrp").document.default_threshold == 0.5


def test_the_route_of_a_row_does_not_depend_on_the_rows_beside_it(fitted):
    new = maps.make_predictions(60, seed=3, shift=1.5).drop("label")
    together = fitted.apply(new)["route"].to_list()
    alone = [fitted.apply(new[place : place + 1])["route"].item() for place in range(len(new))]
    assert together == alone
    assert {*together} == {"automatic", "review"}


@pytest.mark.parametrize("file", EARLIER, ids=lambda path: path.stem)
def test_an_earlier_map_has_no_threshold_uses_one_half_and_says_so(file):
    rule = routing_rule(load_map(file))
    assert (rule.thresholds == 0.5).all()
    assert rule.notes == (NO_THRESHOLD,)


@pytest.mark.parametrize(("n", "warned"), [(MIN_COVERAGE_ROWS - 1, True), (MIN_COVERAGE_ROWS, False)])
def test_a_coverage_of_few_rows_is_warned_of(fitted, tmp_path, n, warned):
    new = maps.write_frame(maps.make_predictions(n).drop("label"), tmp_path / "new.parquet")
    for asked, said in (({"coverage": "0.7"}, warned), ({}, False), ({"cut": 0.6}, False), ({"coverage": "1"}, False)):
        applied = apply_map(fitted.document_, new, tmp_path / "out.parquet", **asked)
        assert any("depends on the others" in note for note in applied.notes) == said
