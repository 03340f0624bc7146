"""SQL expressions of maps, compared with the scores of the library."""

import re
from itertools import product
from math import inf, nan

import duckdb
import numpy as np
import polars as pl
import pytest
import sqlglot
from sqlglot import expressions as exp

from relmap import ReliabilityMap
from relmap.calibrators.registry import CALIBRATORS
from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.maps import sql
from relmap.maps.document import MapDocument
from relmap.maps.earlier import Corrected, Correction, LinesWithSignals, WholeVector
from relmap.maps.score import FittedMap
from relmap.maps.sql import sql_expression
from relmap.projection.labelwise import Isotonic, Lines, WithFallbacks
from relmap.projection.mrp import Curves, SharedCurve
from relmap.projection.pooled import SignalAdjusted
from tests import maps
from tests.maps import (
    make_map,
    make_predictions,
)

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


EARLIER = "earlier version.*apply.* fit "


REFUSED_IN_SQL = {  # map, column, message
    "signals": (
        map_of(SignalAdjusted(maps.make_variants()["mrp_pooled"], np.zeros(1))),
        "reliability",
        "reads signals.*apply",
    ),
    "signals of an earlier version": (
        map_of(LinesWithSignals(Lines(np.ones(3), np.zeros(3)), np.zeros((1, 3)))),
        "reliability",
        EARLIER,
    ),
    "correction": (map_of(Corrected(maps.make_variants()["mrp_pooled"], CORRECTION)), "reliability", EARLIER),
    "all logits": (map_of(WholeVector(np.eye(3), np.zeros(3))), "reliability", EARLIER),
    "no logits": (make_map(confidence_only=True), "confidence", "reads no logits"),
    "unknown projection": (map_of(UnknownModel()), "reliability", "model UnknownModel .*apply"),
    "unknown column": (make_map(), "route", "column .*'route'.* reliability, confidence"),
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
    with pytest.raises(InputError, match=f"calibrator {calibrator};.* apply,.*fit"):
        sql_expression(document, "duckdb", "confidence")


@pytest.mark.parametrize(("intercept", "largest"), [(4.0, 19.0), (-4.0, 19.0)])
def test_the_largest_absolute_logit_of_a_line_is_at_a_farthest_confidence(intercept, largest):
    assert sql._Line(slope=3.0, intercept=intercept, farthest=5.0).max_logit == largest


def test_postgres_and_postgresql_are_the_same_dialect():
    assert sql_expression(make_map(), "postgres") == sql_expression(make_map(), "postgresql")
