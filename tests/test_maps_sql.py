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
from tasks.maps.sql import sql_expression
from tasks.projection.curves import Curves, SharedCurve
from tasks.projection.labelwise import Lines, WithFallbacks
from tasks.protocol.errors import BadInput
from tests.maps import document
from tests.sql_rows import AGREEMENT, documents, rows

DOCUMENTS = documents(thresholds=500)
SMALL = [name for name in DOCUMENTS if "thresholds" not in name]


@pytest.fixture(scope="module")
def engine():
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


def answers(engine: duckdb.DuckDBPyConnection, expression: str, frame: pl.DataFrame) -> np.ndarray:
    """What DuckDB makes of an expression of the columns of a frame, `(n,)` float64, and NaN for NULL."""
    engine.register("predictions", frame.to_arrow())
    answered = engine.sql(f"SELECT {expression} AS answer FROM predictions ORDER BY place").pl()["answer"]
    assert answered.dtype == pl.Float64
    assert not answered.is_nan().any()
    return answered.to_numpy()


def check_answers(engine: duckdb.DuckDBPyConnection, made: MapDocument, dialect: str, n: int) -> None:
    """The expression gives what `apply` does, a share, and NULL where there is no answer."""
    text, (frame, reliability) = sql_expression(made, dialect), rows(made, n)
    if dialect != "duckdb":
        text = sqlglot.parse_one(text, read=dialect).sql(dialect="duckdb")
    answered = answers(engine, text, frame)
    np.testing.assert_allclose(answered, reliability, rtol=0, atol=AGREEMENT)
    assert np.nanmin(answered) >= 0
    assert np.nanmax(answered) <= 1


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        *((name, "duckdb") for name in DOCUMENTS),
        *((name, dialect) for name in SMALL for dialect in ("postgres", "bigquery", "spark")),
    ],
)
def test_every_dialect_agrees_with_apply_and_is_the_same_for_a_map_that_was_written_and_read(engine, name, dialect):
    check_answers(engine, DOCUMENTS[name], dialect, n=3000 if dialect == "duckdb" else 500)
    again = MapDocument.model_validate_json(DOCUMENTS[name].model_dump_json())
    assert sql_expression(again, dialect) == sql_expression(DOCUMENTS[name], dialect)


@pytest.mark.parametrize("name", SMALL)
def test_no_exponential_overflows_or_vanishes_nor_does_a_quotient(engine, name):
    frame, _ = rows(DOCUMENTS[name], n=500, unanswered=False)
    tree = sqlglot.parse_one(sql_expression(DOCUMENTS[name], "duckdb"), read="duckdb")
    for quotient in tree.find_all(exp.Div):
        whole, dividend = (answers(engine, f"({x.sql('duckdb')})::DOUBLE", frame) for x in (quotient, quotient.this))
        assert ((whole != 0) | (dividend == 0)).all()
    for power in tree.find_all(exp.Exp):
        powers = answers(engine, power.sql(dialect="duckdb"), frame)
        assert ((powers > 1e-307) & (powers < np.inf)).all()


@pytest.mark.parametrize("name", SMALL)
def test_a_literal_is_read_as_the_double_that_was_written(engine, name):
    numbers = re.findall(r"[\d.]+e(?:-?\d+)|\d+\.\d+", sql_expression(DOCUMENTS[name], "duckdb"))
    for number in set(numbers):
        assert engine.sql(f"SELECT typeof({number}), {number}").fetchall() == [("DOUBLE", float(number))]
    for number in sqlglot.parse_one(sql_expression(DOCUMENTS[name], "postgres"), read="postgres").find_all(exp.Literal):
        assert number.is_int or number.parent.is_type("double")  # to PostgreSQL it would be a decimal


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
        return document("mrp", Curves(knots, values, counts, fallback), n_labels=n_labels)
    line = st.tuples(st.floats(0, 50), st.floats(-1000, 1000) | st.floats(-3, 3))
    slopes, heights_at_0 = np.array([draw(line) for _ in range(n_labels)]).T
    shared = SharedCurve(Curves(knots, values[:1], counts[:1], ("none",)))
    own = WithFallbacks(Lines(slopes, heights_at_0), shared, fallback, counts)
    return document("label_platt", own, n_labels=n_labels)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(made=maps())
def test_any_map_agrees_with_apply(engine, made):
    check_answers(engine, made, "duckdb", n=300)


def test_labels_of_one_curve_share_its_text():
    few, many = (sql_expression(document("shared_1d", n_labels=n_labels), "duckdb") for n_labels in (2, 500))
    assert len(many) - len(few) <= 3


def test_postgres_has_two_names_and_an_unknown_dialect_is_told_all_names():
    assert sql_expression(document(), "postgres") == sql_expression(document(), "postgresql")
    with pytest.raises(BadInput, match=r"'mysql'.*duckdb, postgres, postgresql, bigquery, spark"):
        sql_expression(document(), "mysql")
