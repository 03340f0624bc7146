"""SQL of a reliability map, executed in DuckDB."""

import re

import duckdb
import numpy as np
import polars as pl
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import expressions as exp

from tasks.maps.document import MapDocument
from tasks.maps.sql import DIALECTS, sql_expression
from tasks.projection.curves import Curves, SharedCurve
from tasks.projection.labelwise import Lines, WithFallbacks
from tasks.protocol.errors import BadInput
from tests.maps import document
from tests.sql_rows import AGREEMENT, WITHOUT_ANSWER, applied, documents, rows

DOCUMENTS = documents(thresholds=1000)
SMALL = [name for name in DOCUMENTS if "thresholds" not in name]


@pytest.fixture(scope="module")
def engine():
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


def answers(engine: duckdb.DuckDBPyConnection, expression: str, decision, confidence) -> np.ndarray:
    """The reliabilities, `(n,)` float64, and NaN for NULL."""
    columns = {"decision": pl.Series(decision, dtype=pl.Int64), "confidence": pl.Series(confidence, dtype=pl.Float64)}
    engine.register("predictions", pl.DataFrame(columns).to_arrow())
    found = engine.sql(f"SELECT {expression} AS reliability FROM predictions").pl()["reliability"]
    assert found.dtype == pl.Float64
    assert not found.is_nan().any()
    return found.to_numpy()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_duckdb_agrees_with_apply(engine, name):
    made = DOCUMENTS[name]
    decision, confidence = rows(made)
    found = answers(engine, sql_expression(made, "duckdb"), decision, confidence)
    np.testing.assert_allclose(found, applied(made, decision, confidence), rtol=0, atol=AGREEMENT)


@pytest.mark.parametrize("dialect", ["postgres", "bigquery", "spark"])
@pytest.mark.parametrize("name", SMALL)
def test_the_other_dialects_say_the_same(engine, name, dialect):
    made = DOCUMENTS[name]
    decision, confidence = rows(made, n=500)
    tree = sqlglot.parse_one(sql_expression(made, dialect), read=dialect)
    found = answers(engine, tree.sql(dialect="duckdb"), decision, confidence)
    np.testing.assert_allclose(found, applied(made, decision, confidence), rtol=0, atol=AGREEMENT)


@pytest.mark.parametrize("name", SMALL)
def test_no_exponential_overflows_or_vanishes_nor_does_a_quotient(engine, name):
    made = DOCUMENTS[name]
    decision, confidence = rows(made, n=500)
    tree = sqlglot.parse_one(sql_expression(made, "duckdb"), read="duckdb")
    for quotient in tree.find_all(exp.Div):
        both = (f"({one.sql('duckdb')})::DOUBLE" for one in (quotient, quotient.this))
        found, dividend = (answers(engine, one, decision, confidence) for one in both)
        assert ((found != 0) | (dividend == 0)).all()
    for power in tree.find_all(exp.Exp):
        found = answers(engine, power.sql(dialect="duckdb"), decision, confidence)
        assert ((found > 1e-307) & (found < np.inf)).all()


@pytest.mark.parametrize("name", SMALL)
def test_a_literal_is_read_as_the_double_that_was_written(engine, name):
    numbers = re.findall(r"[\d.]+e(?:-?\d+)|\d+\.\d+", sql_expression(DOCUMENTS[name], "duckdb"))
    for number in set(numbers):
        assert engine.sql(f"SELECT typeof({number}), {number}").fetchall() == [("DOUBLE", float(number))]


@pytest.mark.parametrize("name", SMALL)
def test_to_postgres_every_literal_with_a_fraction_is_made_a_double(name):
    tree = sqlglot.parse_one(sql_expression(DOCUMENTS[name], "postgres"), read="postgres")
    for number in tree.find_all(exp.Literal):
        assert number.is_int or number.parent.is_type("double")


@pytest.mark.parametrize("name", SMALL)
def test_where_there_is_no_answer_the_expression_is_null(engine, name):
    decision, confidence = zip(*WITHOUT_ANSWER, strict=True)
    found = answers(engine, sql_expression(DOCUMENTS[name], "duckdb"), decision, confidence)
    assert np.isnan(found).all()


@pytest.mark.parametrize("name", SMALL)
def test_reliability_lies_between_0_and_1_and_does_not_fall_as_the_confidence_rises(engine, name):
    made = DOCUMENTS[name]
    confidence = np.sort(rows(made)[1])
    for label in range(made.n_labels):
        found = answers(engine, sql_expression(made, "duckdb"), np.full(len(confidence), label), confidence)
        assert found.min() >= 0
        assert found.max() <= 1
        assert np.diff(found).min() >= -AGREEMENT


@st.composite
def maps(draw: st.DrawFn) -> MapDocument:
    """Curves and lines of 2 to 4 labels, flat and steep, with every fallback."""
    n_labels, n_knots = draw(st.integers(2, 4)), draw(st.integers(2, 9))
    knots = np.linspace(0, 1, n_knots)
    value = st.floats(-1000, 1000) | st.floats(-3, 3) | st.sampled_from([-1000.0, 0.0, 1000.0])
    heights = st.lists(value, min_size=n_knots, max_size=n_knots).map(sorted)
    values = np.array(draw(st.lists(heights, min_size=n_labels, max_size=n_labels)))
    fallback = tuple(draw(st.sampled_from(("none", "shared", "identity"))) for _ in range(n_labels))
    counts = np.full(n_labels, 500)
    if draw(st.booleans()):
        return document("mrp", Curves(knots, values, counts, fallback), n_labels=n_labels, names=None)
    line = st.tuples(st.floats(0, 50), st.floats(-1000, 1000) | st.floats(-3, 3))
    slopes, heights_at_0 = np.array([draw(line) for _ in range(n_labels)]).T
    shared = SharedCurve(Curves(knots, values[:1], counts[:1], ("none",)))
    own = WithFallbacks(Lines(slopes, heights_at_0), shared, fallback, counts)
    return document("label_platt", own, n_labels=n_labels, names=None)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(made=maps())
def test_any_map_agrees_with_apply(engine, made):
    decision, confidence = rows(made, n=300)
    found = answers(engine, sql_expression(made, "duckdb"), decision, confidence)
    np.testing.assert_allclose(found, applied(made, decision, confidence), rtol=0, atol=AGREEMENT)


@pytest.mark.parametrize("name", SMALL)
def test_the_text_is_the_same_for_a_map_that_was_written_and_read(name):
    made = DOCUMENTS[name]
    again = MapDocument.model_validate_json(made.model_dump_json())
    for dialect in DIALECTS:
        assert sql_expression(made, dialect) == sql_expression(again, dialect)


def test_postgres_has_two_names():
    assert sql_expression(document(), "postgres") == sql_expression(document(), "postgresql")


def test_labels_of_one_curve_share_its_text():
    few, many = (
        sql_expression(document("shared_1d", n_labels=n_labels, names=None), "duckdb") for n_labels in (2, 500)
    )
    assert len(many) - len(few) <= 3


def test_an_unknown_dialect_is_told_the_dialects():
    with pytest.raises(BadInput, match=r"'mysql'.*duckdb, postgres, postgresql, bigquery, spark"):
        sql_expression(document(), "mysql")
