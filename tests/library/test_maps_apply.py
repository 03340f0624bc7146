"""Apply a map to files: unchanged input, exact ranks and routes, batches, and the equivalent SQL in DuckDB."""

import re
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import floor, inf, nan
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import expressions as exp

from relmap import ReliabilityMap
from relmap.calibrators.registry import CALIBRATORS
from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.io import ranking
from relmap.io.files import open_predictions, read_columns
from relmap.io.ranking import SCORES, rank_rows
from relmap.maps import sql
from relmap.maps.document import MapDocument
from relmap.maps.earlier import Corrected, Correction, LinesWithSignals, WholeVector
from relmap.maps.score import FittedMap, ignore_progress, score_file
from relmap.maps.sql import sql_expression
from relmap.projection.labelwise import Isotonic, Lines, WithFallbacks
from relmap.projection.mrp import Curves, SharedCurve
from relmap.projection.pooled import SignalAdjusted
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


def naive_ranks(logit: list[float]) -> list[int]:
    """Rank rows from 1 for the lowest logit; ties by row order."""
    order = sorted(range(len(logit)), key=lambda row: (logit[row], row))
    return [order.index(row) + 1 for row in range(len(logit))]


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
        assert replace(by_threshold, notes=()) == replace(applied, notes=())
        assert pl.read_parquet(path.with_name("cut.parquet")).equals(pl.read_parquet(out))
        assert applied.expected_accuracy == pytest.approx(automatic_rows["reliability"].mean())
        assert applied.below_half == (automatic_rows["reliability"] < 0.5).sum()

    description = "\n".join(applied.describe(LABEL_NAMES))
    assert ("have a reliability below 0.5" in description) == (applied.below_half > 0)

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


def test_ranks_out_of_core_are_exact_over_many_row_groups(tmp_path):
    logit = np.random.default_rng(0).integers(-50, 50, 130_000) / 7
    logit[::1000] = inf
    logit[1::1000] = -inf
    logit[2::1000] = -0.0
    ranks = np.array(compute_ranks(logit.tolist(), tmp_path, 40_001, in_memory=50_000))
    order = np.argsort(logit, kind="stable")

    assert (ranks[order] == np.arange(1, len(logit) + 1)).all()


NAN_IN_ROW_50 = pl.when(pl.int_range(pl.len()) == 50).then([0.0, nan, 1.0]).otherwise("logits")
INVALID_INPUTS = {  # frame, message
    "a NaN": (
        make_predictions(90).with_columns(logits=NAN_IN_ROW_50),
        r"new.parquet, row 50 .from 0.: logits 1 is nan",
    ),
    "columns of relmap": (
        make_predictions(90).with_columns(route=1, reliability=0.5),
        r"new.parquet already has the column reliability, route.*drop or rename it.*an output of apply",
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


DOCUMENTS = maps.make_maps_for_sql(n_thresholds=500)
SMALL_DOCUMENTS = [name for name in DOCUMENTS if name != "label_isotonic, many thresholds"]
OTHER_DIALECT_CASES = [*product(SMALL_DOCUMENTS, ["postgres", "bigquery", "spark"])]
DIALECT_CASES = [*product(DOCUMENTS, ["duckdb"]), *OTHER_DIALECT_CASES]


@pytest.fixture(scope="module")
def engine():
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


def evaluate_sql(engine: duckdb.DuckDBPyConnection, expression: str, frame: pl.DataFrame) -> np.ndarray:
    """Evaluate an SQL expression in DuckDB for each row of a frame.

    Returns:
        Values, shape (n,), float64; NaN where the expression is NULL. The expression itself must never give NaN.
    """
    engine.register("predictions", frame.to_arrow())
    values = engine.sql(f"SELECT {expression} AS value FROM predictions ORDER BY place").pl()["value"]
    assert values.dtype == pl.Float64
    assert not values.is_nan().any()
    return values.to_numpy()  # converts NULL to NaN


@pytest.mark.parametrize(("name", "dialect"), DIALECT_CASES)
def test_sql_of_a_restored_map_agrees_with_apply_in_every_dialect(engine, name, dialect):
    restored = MapDocument.model_validate_json(DOCUMENTS[name].model_dump_json())
    expression = sql_expression(restored, dialect)
    n = 3000 if dialect == "duckdb" else 500
    frame, reliability = maps.make_rows_for_sql(restored, n)

    assert expression == sql_expression(DOCUMENTS[name], dialect)

    if dialect != "duckdb":
        expression = sqlglot.parse_one(expression, read=dialect).sql(dialect="duckdb")
    sql_values = evaluate_sql(engine, expression, frame)
    # NaN equals NaN here: for invalid rows the expression is NULL, and the expected reliability is NaN
    np.testing.assert_allclose(sql_values, reliability, rtol=0, atol=maps.SQL_TOLERANCE)
    assert np.nanmin(sql_values) >= 0
    assert np.nanmax(sql_values) <= 1


def test_sql_omits_the_upper_limit_of_a_confidence_if_it_rounds_to_1():
    document = make_map("label_platt", confidence_only=True)  # logits are clipped at a limit with expit(limit) == 1
    assert "LEAST(" not in sql_expression(document, "duckdb")


@pytest.mark.parametrize(("largest", "has_limits"), [(700.0, False), (np.nextafter(700.0, inf), True)])
def test_sql_limits_logits_only_if_one_of_them_could_be_beyond_700(largest, has_limits):
    curves = Curves(maps.KNOTS, np.linspace(-largest, largest, len(maps.KNOTS))[None], np.array([500]), ("none",))
    expression = sql_expression(make_map("shared_1d", SharedCurve(curves)), "duckdb")
    assert ("LEAST(" in expression) == has_limits
    assert ("GREATEST(" in expression) == has_limits


@pytest.mark.parametrize("name", DOCUMENTS)
def test_sql_does_not_test_for_null_since_only_valid_rows_reach_it(name):
    """Without `ignore_nulls=True`, sqlglot writes CASE WHEN ... IS NULL around GREATEST and LEAST of DuckDB."""
    assert "IS NULL" not in sql_expression(DOCUMENTS[name], "duckdb")


@pytest.mark.parametrize("variant", ["confidence", "mrp_pooled"])
def test_sql_of_a_map_without_confidence_reads_the_decision_only(engine, variant):
    frame = maps.make_confidence_predictions(300).drop("confidence")
    model = ReliabilityMap(variant=variant).fit(frame)
    expression = sql_expression(model.document_, "duckdb")
    rows = frame.select("decision").with_row_index("place")
    assert "confidence" not in expression
    np.testing.assert_allclose(evaluate_sql(engine, expression, rows), model.reliability(rows), rtol=1e-12)


@pytest.mark.parametrize("name", SMALL_DOCUMENTS)
def test_sql_has_no_overflow_or_underflow(engine, name):
    frame, reliability = maps.make_rows_for_sql(DOCUMENTS[name], n_random=500)
    frame = frame.filter(~np.isnan(reliability))
    tree = sqlglot.parse_one(sql_expression(DOCUMENTS[name], "duckdb"), read="duckdb")
    for quotient in tree.find_all(exp.Div):
        quotients = evaluate_sql(engine, f"({quotient.sql('duckdb')})::DOUBLE", frame)
        dividends = evaluate_sql(engine, f"({quotient.this.sql('duckdb')})::DOUBLE", frame)
        assert ((quotients != 0) | (dividends == 0)).all()
    for power in tree.find_all(exp.Exp):
        powers = evaluate_sql(engine, power.sql(dialect="duckdb"), frame)
        assert ((powers > 1e-307) & (powers < np.inf)).all()


@pytest.mark.parametrize("name", SMALL_DOCUMENTS)
def test_sql_literals_are_parsed_as_the_same_doubles(engine, name):
    numbers = re.findall(r"[\d.]+e-?\d+|\d+\.\d+", sql_expression(DOCUMENTS[name], "duckdb"))
    for number in set(numbers):
        assert engine.sql(f"SELECT typeof({number}), {number}").fetchall() == [("DOUBLE", float(number))]
    tree = sqlglot.parse_one(sql_expression(DOCUMENTS[name], "postgres"), read="postgres")
    for literal in tree.find_all(exp.Literal):
        assert literal.is_int or literal.parent.is_type("double")  # without a type, PostgreSQL reads a decimal


def test_scores_of_a_file_without_rows_have_all_columns(tmp_path):
    path = tmp_path / "empty.parquet"
    make_predictions(3).head(0).write_parquet(path)
    scores = score_file(make_map(), open_predictions(path), ignore_progress).scores
    assert dict(scores.schema) == SCORES
    assert scores.is_empty()


@pytest.mark.parametrize(("values", "n_cases"), [((0.75, 0.75, 0.75), 2), ((0.75, 0.75, 0.8), 3)])
def test_sql_of_a_constant_reliability_needs_no_case_for_its_thresholds(values, n_cases):
    """Two CASE expressions are always there: one selects valid rows, and one the decision."""
    isotonic = Isotonic((np.array([0.2, 0.5, 0.9]),) * 2, (np.array(values),) * 2)
    unused_shared_curve = maps.make_variants(2)["shared_1d"]
    fitted = WithFallbacks(isotonic, unused_shared_curve, ("none", "none"), np.array([500, 500]))
    document = make_map("label_isotonic", fitted, n_labels=2)
    tree = sqlglot.parse_one(sql_expression(document, "duckdb"), read="duckdb")
    assert len(list(tree.find_all(exp.Case))) == n_cases


def test_sql_of_a_shared_curve_does_not_grow_with_the_labels():
    sql_of_2_labels = sql_expression(make_map("shared_1d", n_labels=2), "duckdb")
    sql_of_500_labels = sql_expression(make_map("shared_1d", n_labels=500), "duckdb")
    assert len(sql_of_500_labels) - len(sql_of_2_labels) <= 3  # only the number of the last label is longer


CALIBRATORS_IN_SQL = ("uncal", "ts", "vector", "matrix", "sms")


def make_extreme_logits(n_rows: int = 400) -> np.ndarray:
    """Make logits of 3 labels that are near, far, equal, huge, or -inf in effect."""
    generator = np.random.default_rng(4)
    logits = generator.normal(size=(n_rows, 3)) * 10.0 ** generator.integers(-3, 4, (n_rows, 1))
    logits[:3] = [[0.0, 0.0, 0.0], [1e5, 1e5, -1e5], [-27.6, 0.0, -27.6]]
    return logits


@pytest.mark.parametrize("calibrator", CALIBRATORS_IN_SQL)
@pytest.mark.parametrize("dialect", ["duckdb", "postgres", "bigquery", "spark"])
def test_confidence_and_then_reliability_in_sql_agree_with_the_map(engine, calibrator, dialect):
    """The reliability reads the column that the expression of the confidence computes."""
    labelled = maps.rows_of_frame(make_predictions(400, shift=2.0))
    fitted = CALIBRATORS[calibrator].fit(labelled.logits, labelled.label, seed=1)
    document = make_map("mrp_pooled", calibrator=fitted)
    logits = make_extreme_logits()
    decision = np.arange(len(logits)) % 3  # need not be the largest logit
    columns = {f"logits_{label}": column for label, column in enumerate(logits.T)}
    frame = pl.DataFrame({"decision": decision, **columns}).with_row_index("place")
    expressions = {}
    for column in sql.COLUMNS:
        expression = sql_expression(document, dialect, column)
        expressions[column] = sqlglot.parse_one(expression, read=dialect).sql("duckdb")
    confidence = evaluate_sql(engine, expressions["confidence"], frame)
    reliability = evaluate_sql(engine, expressions["reliability"], frame.with_columns(confidence=confidence))
    scored = FittedMap.from_document(document)(FixedDecisions(decision=decision, logits=logits))
    np.testing.assert_allclose(confidence, scored.confidence, rtol=0, atol=maps.SQL_TOLERANCE)
    np.testing.assert_allclose(reliability, scored.reliability, rtol=0, atol=maps.SQL_TOLERANCE)


def test_confidence_in_sql_is_null_for_rows_that_cannot_be_scored(engine):
    expression = sql_expression(make_map(), "duckdb", "confidence")
    rows = [(0, 1.0, 2.0, 3.0), (3, 1.0, 2.0, 3.0), (None, 1.0, 2.0, 3.0), (0, None, 2.0, 3.0), (0, nan, 2.0, 3.0)]
    rows += [(0, 1.0, 2.0, inf), (0, 1.0, -inf, 3.0)]
    frame = pl.DataFrame(rows, schema=["decision", "logits_0", "logits_1", "logits_2"], orient="row")
    values = evaluate_sql(engine, expression, frame.with_row_index("place"))
    assert np.isnan(values).tolist() == [False, *[True] * 6]


def map_of(fitted: object, **parts: object) -> MapDocument:
    """Make a map with another fitted projection, without checks."""
    document = make_map()
    projection = document.projection.model_copy(update={"fitted": fitted})
    return document.model_copy(update={"projection": projection, **parts})


class UnknownModel:
    """A projection that a later version may add."""


CORRECTION = Correction(np.array([-1.0, 1.0]), np.array([-2.0, 2.0]), first_slope=1.0, last_slope=1.0)
EARLIER = "written by an earlier version; use apply, or fit it again"
REFUSED_IN_SQL = {  # map, column, message
    "signals": (
        map_of(SignalAdjusted(maps.make_variants()["mrp_pooled"], np.zeros(1))),
        "reliability",
        "reads signals, which SQL does not support; use apply",
    ),
    "signals of an earlier version": (
        map_of(LinesWithSignals(Lines(np.ones(3), np.zeros(3)), np.zeros((1, 3)))),
        "reliability",
        EARLIER,
    ),
    "correction": (map_of(Corrected(maps.make_variants()["mrp_pooled"], CORRECTION)), "reliability", EARLIER),
    "all logits": (map_of(WholeVector(np.eye(3), np.zeros(3))), "reliability", EARLIER),
    "no logits": (make_map(confidence_only=True), "confidence", "reads no logits"),
    "unknown projection": (
        map_of(UnknownModel()),
        "reliability",
        "SQL does not support the model UnknownModel of this map; use apply",
    ),
    "unknown column": (make_map(), "route", "the column is 'route'; give one of reliability, confidence"),
}


@pytest.mark.parametrize(("document", "column", "message"), REFUSED_IN_SQL.values(), ids=REFUSED_IN_SQL)
def test_maps_that_sql_cannot_express_are_refused(document, column, message):
    with pytest.raises(InputError, match=message):
        sql_expression(document, "duckdb", column)


@pytest.mark.parametrize("calibrator", [name for name in CALIBRATORS if name not in CALIBRATORS_IN_SQL])
def test_calibrators_without_sql_are_refused_for_the_confidence_only(calibrator):
    labelled = maps.rows_of_frame(make_predictions(200))
    fitted = CALIBRATORS[calibrator].fit(labelled.logits, labelled.label, seed=1)
    document = make_map("mrp_exact", maps.make_variants()["mrp"], calibrator=fitted)
    document = document.model_copy(update={"calibrator": document.calibrator.model_copy(update={"name": calibrator})})
    assert sql_expression(document, "duckdb")
    with pytest.raises(InputError, match=f"SQL does not support the calibrator {calibrator}; use apply, or fit with"):
        sql_expression(document, "duckdb", "confidence")


@pytest.mark.parametrize(("intercept", "largest"), [(4.0, 19.0), (-4.0, 19.0)])
def test_the_largest_absolute_logit_of_a_line_is_at_a_farthest_confidence(intercept, largest):
    assert sql._Line(slope=3.0, intercept=intercept, farthest=5.0).max_logit == largest


def test_postgres_and_postgresql_are_the_same_dialect():
    assert sql_expression(make_map(), "postgres") == sql_expression(make_map(), "postgresql")
