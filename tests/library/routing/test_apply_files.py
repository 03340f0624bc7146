"""Apply a map to files: unchanged input, exact ranks and routes, batches."""

from dataclasses import replace
from fractions import Fraction
from math import floor, nan
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from relmap import ReliabilityMap
from relmap.errors import InputError
from relmap.io.files import open_predictions, read_columns
from relmap.maps.document import MapDocument
from relmap.maps.score import FittedMap
from relmap.routing.apply import apply_map
from tests import maps
from tests.maps import (
    LABEL_NAMES,
    make_confidence_predictions,
    make_map,
    make_predictions,
    read_in_small_batches,
    rows_of_frame,
    write_frame,
)
from tests.naive import naive_ranks

SCORE_COLUMNS = ["reliability", "review_rank", "route"]


ADDED_COLUMNS = ["decision", "decision_name", "confidence", *SCORE_COLUMNS]


@pytest.fixture
def path(tmp_path) -> Path:
    """Write 90 predictions of 3 labels."""
    return write_frame(make_predictions(90), tmp_path / "new.parquet")


def apply_and_read(
    path: Path, suffix: str = ".parquet", reliability_map: MapDocument | None = None, **options: object
) -> pl.DataFrame:
    """Apply a map, by default a simulated one, and return the output."""
    out = path.with_name(f"scored{suffix}")
    apply_map(make_map() if reliability_map is None else reliability_map, path, out, **options)
    return read_columns(open_predictions(out), open_predictions(out).schema.names)


def test_apply_appends_columns_to_the_unchanged_input(path):
    table = apply_and_read(path)
    assert table.columns == [*make_predictions(90).columns, *ADDED_COLUMNS]
    assert table.select(make_predictions(90).columns).equals(make_predictions(90))
    assert table.select(ADDED_COLUMNS).dtypes == [pl.Int64, pl.String, pl.Float64, pl.Float64, pl.Int64, pl.String]

    expected = FittedMap.from_document(make_map())(rows_of_frame(make_predictions(90)))
    assert (table["confidence"].to_numpy() == expected.confidence).all()
    assert (table["reliability"].to_numpy() == expected.reliability).all()
    assert table["decision"].to_list() == [row.arg_max() for row in make_predictions(90)["logits"]]
    assert table["decision_name"].to_list() == [LABEL_NAMES[decision] for decision in table["decision"]]
    assert table["review_rank"].to_list() == naive_ranks(expected.logit.tolist())

    first_output = path.with_name("scored.parquet").read_bytes()
    without_names = apply_and_read(path, reliability_map=make_map(names=None))  # replaces the output file
    assert "decision_name" not in without_names.columns

    apply_and_read(path)
    assert path.with_name("scored.parquet").read_bytes() == first_output


@pytest.mark.parametrize("coverage", ["0.7", "0", "1", ".1", "0.2999999999999999999", "0.3", "7e-1"])
def test_coverage_and_threshold_select_the_automatic_rows_exactly(coverage, path):
    assert 0.7 * 90 < 63  # the product of floats is too small, so the number of rows is computed exactly

    out = path.with_name("scored.parquet")
    n_automatic = floor(Fraction(coverage) * 90)
    applied = apply_map(make_map(), path, out, coverage=coverage)
    automatic_rows = pl.read_parquet(out).filter(pl.col("route") == "automatic")

    assert applied.automatic == n_automatic
    assert applied.min_reliability == automatic_rows["reliability"].min()
    assert set(automatic_rows["review_rank"]) == set(range(91 - n_automatic, 91))
    if applied.min_reliability is not None:
        by_threshold = apply_map(make_map(), path, path.with_name("cut.parquet"), cut=applied.min_reliability)
        assert by_threshold.threshold == applied.min_reliability
        assert replace(by_threshold, notes=(), threshold=None) == replace(applied, notes=(), threshold=None)
        assert pl.read_parquet(path.with_name("cut.parquet")).equals(pl.read_parquet(out))
        assert applied.expected_accuracy == pytest.approx(automatic_rows["reliability"].mean())
        assert applied.below_half == (automatic_rows["reliability"] < 0.5).sum()

    description = "\n".join(applied.describe(LABEL_NAMES))
    assert ("reliability below 0.5" in description) == (applied.below_half > 0)

    by_coverage_and_threshold = apply_map(make_map(), path, out, coverage=coverage, cut=0.5)
    assert by_coverage_and_threshold.automatic == n_automatic - applied.below_half
    assert by_coverage_and_threshold.below_half == 0


def test_default_threshold_is_one_half_for_a_map_that_has_none(path):
    out = path.with_name("scored.parquet")
    by_default = apply_map(make_map(), path, out)
    by_threshold = apply_map(make_map(), path, out, cut=0.5)
    assert replace(by_default, notes=()) == replace(by_threshold, notes=())


def test_rows_of_pooled_labels_are_counted(path):
    applied = apply_map(make_map("mrp"), path, path.with_name("out.parquet"))
    shared = apply_map(make_map("shared_1d"), path, path.with_name("out.parquet"))
    decision = rows_of_frame(make_predictions(90)).decision
    assert applied.rows == 90
    # in this map, label 0 has a curve of its own; label 1 has the shared curve, and label 2 the confidence
    assert applied.pooled_labels == {1: (decision == 1).sum(), 2: (decision == 2).sum()}
    assert shared.pooled_labels == {}


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".csv"])
@pytest.mark.parametrize("variant", ["confidence", "label_isotonic"])
def test_format_and_batch_size_do_not_change_the_result(variant, suffix, tmp_path, monkeypatch):
    folder = tmp_path / "odd [name]?*'s"
    folder.mkdir()
    path = write_frame(make_confidence_predictions(200), folder / f"new{suffix}")  # round numbers: many ties
    options = {"suffix": suffix, "reliability_map": make_map(variant, confidence_only=True)}
    added_columns = ["decision_name", "calibrated_confidence", *SCORE_COLUMNS]
    expected = apply_and_read(path, **options)
    read_in_small_batches(monkeypatch)

    assert apply_and_read(path, **options).equals(expected)
    assert apply_and_read(path, **options, in_memory=50).equals(expected)
    assert sorted(file.name for file in folder.iterdir()) == [path.name, f"scored{suffix}"]

    parquet = write_frame(make_confidence_predictions(200), tmp_path / "new.parquet")
    from_parquet = apply_and_read(parquet, reliability_map=options["reliability_map"]).select(added_columns)
    with_types_of_parquet = expected.select(added_columns).cast(dict(from_parquet.schema))
    assert with_types_of_parquet.equals(from_parquet)


@pytest.mark.parametrize(
    ("frame", "columns"),
    [
        (
            make_predictions(90).with_columns(decision=pl.lit("exact")),
            ["decision_code", "decision_name", "confidence", *SCORE_COLUMNS],
        ),
        (
            make_predictions(90).with_columns(confidence=pl.lit("high")),
            ["decision", "decision_name", "calibrated_confidence", *SCORE_COLUMNS],
        ),
        (make_confidence_predictions(90), ["decision_name", "calibrated_confidence", *SCORE_COLUMNS]),
    ],
)
def test_existing_decision_and_confidences_are_preserved(frame, columns, path):
    frame.write_parquet(path)
    table = apply_and_read(path, reliability_map=make_map(confidence_only="logits" not in frame.columns))
    assert table.columns == [*frame.columns, *columns]
    assert table.select(frame.columns).equals(frame)
    if "decision_code" in columns:  # the column `decision` of the input is the fixed decision
        assert set(table["decision_name"]) == {"exact"}
        assert set(table["decision_code"]) == {2}


NAN_IN_ROW_50 = pl.when(pl.int_range(pl.len()) == 50).then([0.0, nan, 1.0]).otherwise("logits")


INVALID_INPUTS = {  # frame, message
    "a NaN": (
        make_predictions(90).with_columns(logits=NAN_IN_ROW_50),
        r"new.parquet, row 50 .from 0.: logits 1 is nan",
    ),
    "columns of relmap": (
        make_predictions(90).with_columns(route=1, reliability=0.5),
        r"new\.parquet .*column reliability, route, .*rename .*original",
    ),
}


@pytest.mark.parametrize("in_memory", [2**23, 10])
@pytest.mark.parametrize(("frame", "message"), INVALID_INPUTS.values(), ids=INVALID_INPUTS)
def test_input_error_states_the_cause_and_the_output_is_unchanged(frame, message, in_memory, tmp_path, monkeypatch):
    read_in_small_batches(monkeypatch)
    frame.write_parquet(tmp_path / "new.parquet")
    out = tmp_path / "out.parquet"
    out.write_text("what was there")

    with pytest.raises(InputError, match=message):
        apply_map(make_map(), tmp_path / "new.parquet", out, in_memory=in_memory)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["new.parquet", out.name]
    assert out.read_text() == "what was there"


def test_signals_of_groups_do_not_depend_on_the_batches_in_which_a_file_is_read(tmp_path, monkeypatch):
    labelled = make_predictions(300, seed=5).with_columns(query=pl.int_range(pl.len()) % 60)
    new = make_predictions(100, seed=6).drop("label").with_columns(query=pl.int_range(pl.len()) % 9)
    new.write_parquet(tmp_path / "new.parquet")
    model = ReliabilityMap(signals=("group_rank", "group_gap")).fit(labelled, groups="query")
    apply_map(model.document_, tmp_path / "new.parquet", tmp_path / "at_once.parquet")
    maps.read_in_small_batches(monkeypatch)
    apply_map(model.document_, tmp_path / "new.parquet", tmp_path / "in_batches.parquet")
    at_once = pl.read_parquet(tmp_path / "at_once.parquet")
    in_batches = pl.read_parquet(tmp_path / "in_batches.parquet")
    assert at_once["reliability"].n_unique() > 50
    np.testing.assert_allclose(in_batches["reliability"], at_once["reliability"], rtol=1e-12)


def test_parquet_without_page_checksums_gives_a_note(path):
    with_checksums = path.with_name("safe.parquet")
    csv = path.with_suffix(".csv")
    make_predictions(90).write_parquet(with_checksums, use_pyarrow=True, pyarrow_options={"write_page_checksum": True})
    make_predictions(90).select(logits_0=1.0, logits_1=2.0, logits_2=3.0).write_csv(csv)
    for file, has_note in ((path, True), (with_checksums, False), (csv, False)):
        applied = apply_map(make_map(), file, path.with_name("out.parquet"))
        assert any("Not all pages" in line for line in applied.describe(LABEL_NAMES)) == has_note
