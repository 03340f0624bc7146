"""A map is applied to a file row by row, untouched, ranks and routes exact, however long; and as SQL, in DuckDB."""

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

from relmap.errors import InputError
from relmap.io.files import open_predictions, read_columns
from relmap.io.ranking import SCORES, rank_rows
from relmap.maps.document import MapDocument
from relmap.maps.reliability_map import FittedMap
from relmap.maps.sql import sql_expression
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

ADDED = ["decision", "decision_name", "confidence", "reliability", "review_rank", "route"]


@pytest.fixture
def path(tmp_path) -> Path:
    """90 predictions over 3 labels."""
    return write_frame(make_predictions(90), tmp_path / "new.parquet")


def scored(path: Path, suffix: str = ".parquet", **options) -> pl.DataFrame:
    """What apply writes; the map is that of `document`, unless another one is given."""
    out = path.with_name(f"scored{suffix}")
    apply_map(options.pop("reliability_map", make_map()), path, out, **options)
    return read_columns(open_predictions(out), open_predictions(out).schema.names)


def naive_ranks(logit: list[float]) -> list[int]:
    """1 for the lowest; ties by row order."""
    order = sorted(range(len(logit)), key=lambda row: (logit[row], row))
    return [order.index(row) + 1 for row in range(len(logit))]


def test_the_input_comes_first_and_what_the_map_says_after_it(path):
    table = scored(path)
    assert table.columns == [*make_predictions(90).columns, *ADDED]
    assert table.select(make_predictions(90).columns).equals(make_predictions(90))
    assert table.select(ADDED).dtypes == [pl.Int64, pl.String, pl.Float64, pl.Float64, pl.Int64, pl.String]
    expected = FittedMap.from_document(make_map())(rows_of_frame(make_predictions(90)))
    assert (table["confidence"].to_numpy() == expected.confidence).all()
    assert (table["reliability"].to_numpy() == expected.reliability).all()
    assert table["decision"].to_list() == [max(range(3), key=row.__getitem__) for row in make_predictions(90)["logits"]]
    assert table["decision_name"].to_list() == [LABEL_NAMES[decision] for decision in table["decision"]]
    assert table["review_rank"].to_list() == naive_ranks(expected.logit.tolist())
    once = path.with_name("scored.parquet").read_bytes()
    assert "decision_name" not in scored(path, reliability_map=make_map(names=None)).columns
    scored(path)
    assert path.with_name("scored.parquet").read_bytes() == once


@pytest.mark.parametrize("coverage", ["0.7", "0", "1", ".1", "0.2999999999999999999", "0.3", "7e-1"])
def test_automatic_rows_are_the_exact_floor_of_coverage_or_those_from_a_cut_on(coverage, path):
    assert 0.7 * 90 < 63  # in floats
    out, automatic = path.with_name("scored.parquet"), floor(Fraction(coverage) * 90)
    applied = apply_map(make_map(), path, out, coverage=coverage)
    used = pl.read_parquet(out).filter(pl.col("route") == "automatic")
    assert (applied.automatic, applied.min_reliability) == (automatic, used["reliability"].min())
    assert set(used["review_rank"]) == set(range(91 - automatic, 91))
    if applied.min_reliability is not None:
        cut = apply_map(make_map(), path, path.with_name("cut.parquet"), cut=applied.min_reliability)
        assert replace(cut, notes=()) == replace(applied, notes=())
        assert pl.read_parquet(path.with_name("cut.parquet")).equals(pl.read_parquet(out))
        assert applied.expected_accuracy == pytest.approx(used["reliability"].mean())
        assert applied.below_half == (used["reliability"] < 0.5).sum()
    sure = apply_map(make_map(), path, out, coverage=coverage, cut=0.5)
    assert (sure.automatic, sure.below_half) == (automatic - applied.below_half, 0)
    by_default = apply_map(make_map(), path, out)  # a map without a threshold of its own
    assert replace(by_default, notes=()) == replace(apply_map(make_map(), path, out, cut=0.5), notes=())
    assert any("have a reliability below 0.5" in line for line in applied.describe(LABEL_NAMES)) == bool(
        applied.below_half
    )


def test_rows_that_a_label_without_its_own_curve_decides_are_counted(path):
    applied, shared = (apply_map(make_map(name), path, path.with_name("out.parquet")) for name in ("mrp", "shared_1d"))
    decided = rows_of_frame(make_predictions(90)).decision
    assert applied.rows == 90
    assert applied.pooled_labels == {1: (decided == 1).sum(), 2: (decided == 2).sum()}
    assert shared.pooled_labels == {}


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".csv"])
@pytest.mark.parametrize("variant", ["confidence", "label_isotonic"])
def test_in_every_format_in_pieces_and_out_of_core_it_is_the_same(variant, suffix, tmp_path, monkeypatch):
    folder = tmp_path / "odd [name]?*'s"
    folder.mkdir()
    path = write_frame(make_confidence_predictions(200), folder / f"new{suffix}")  # round numbers: many ties
    asked = {"suffix": suffix, "reliability_map": make_map(variant, confidence_only=True)}
    ours = [*ADDED[1:2], "calibrated_confidence", *ADDED[3:]]
    whole = scored(path, **asked)
    read_in_small_batches(monkeypatch)
    assert scored(path, **asked).equals(whole)
    assert scored(path, **asked, in_memory=50).equals(whole)
    assert sorted(file.name for file in folder.iterdir()) == [path.name, f"scored{suffix}"]
    in_parquet = scored(
        write_frame(make_confidence_predictions(200), tmp_path / "new.parquet"), **asked | {"suffix": ".parquet"}
    )
    assert whole.select(ours).cast(dict(in_parquet.select(ours).schema)).equals(in_parquet.select(ours))


@pytest.mark.parametrize(
    ("made", "columns"),
    [
        (make_predictions(90).with_columns(decision=pl.lit("exact")), ["decision_code", *ADDED[1:]]),
        (
            make_predictions(90).with_columns(confidence=pl.lit("high")),
            [*ADDED[:2], "calibrated_confidence", *ADDED[3:]],
        ),
        (make_confidence_predictions(90), ["decision_name", "calibrated_confidence", *ADDED[3:]]),
    ],
)
def test_a_decision_or_a_confidence_that_is_there_stays_beside_ours(made, columns, path):
    made.write_parquet(path)
    table = scored(path, reliability_map=make_map(confidence_only="logits" not in made.columns))
    assert table.columns == [*made.columns, *columns]
    assert table.select(made.columns).equals(made)
    if "decision_code" in columns:  # the decision that is there is the fixed one
        assert set(table["decision_name"]) == {"exact"}
        assert set(table["decision_code"]) == {2}


def ranks(logit: list[float], folder: Path, size: int, in_memory: int) -> list[int]:
    """Ranks of logits that come `size` at a time."""
    whole = pl.DataFrame([(1, 0.5, value) for value in logit], schema=SCORES, orient="row")
    with rank_rows(whole.iter_slices(size), folder / "out.parquet", in_memory=in_memory) as ranking:
        assert ranking.n_rows == len(logit)
        pieces = [ranking.rows(first, size) for first in range(0, len(logit), size)]
    assert not list(folder.iterdir())
    together = pl.concat([whole.with_columns(rank=pl.lit(0, pl.Int64)).clear(), *pieces])
    assert together.drop("rank").equals(whole)
    return together["rank"].to_list()


@pytest.mark.parametrize("in_memory", [2**23, -1])
@settings(deadline=None, max_examples=20)
@given(
    logit=st.lists(
        st.sampled_from([-inf, -1.0, -0.0, 0.0, 5e-324, 1.0, inf]) | st.floats(allow_nan=False), max_size=40
    ),
    size=st.integers(1, 7),
)
def test_ranks_in_memory_and_out_of_core_are_those_of_a_plain_sort(in_memory, logit, size, tmp_path_factory):
    assert ranks(logit, tmp_path_factory.mktemp("ranks"), size, in_memory=in_memory) == naive_ranks(logit)


def test_ranks_out_of_core_over_many_row_groups(tmp_path):
    logit = np.random.default_rng(0).integers(-50, 50, 130_000) / 7
    logit[::1000], logit[1::1000], logit[2::1000] = inf, -inf, -0.0
    order = np.argsort(logit, kind="stable")
    in_order = np.array(ranks(logit.tolist(), tmp_path, 40_001, in_memory=50_000))[order]
    assert (in_order == np.arange(1, len(logit) + 1)).all()


SPOILT = pl.when(pl.int_range(pl.len()) == 50).then([0.0, nan, 1.0]).otherwise("logits")
MISTAKES = {  # columns, options, what is said
    "a NaN": (make_predictions(90).with_columns(logits=SPOILT), {}, r"new.parquet, row 50 .from 0.: logits 1 is nan"),
    "columns of ours": (
        make_predictions(90).with_columns(route=1, reliability=0.5),
        {},
        r"new.parquet has the column reliability, route already.*drop it or rename it.*was this file scored before",
    ),
}


@pytest.mark.parametrize("in_memory", [2**23, 10])
@pytest.mark.parametrize(("made", "options", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_and_nothing_is_left_behind(made, options, message, in_memory, tmp_path, monkeypatch):
    read_in_small_batches(monkeypatch)
    made.write_parquet(tmp_path / "new.parquet")
    options = {"out": "out.parquet", "in_memory": in_memory} | options
    out = tmp_path / options.pop("out")
    out.write_text("what was there")
    with pytest.raises(InputError, match=message):
        apply_map(make_map(), tmp_path / "new.parquet", out, **options)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["new.parquet", out.name]
    assert out.read_text() == "what was there"


def test_predictions_without_checksums_are_said_to_have_none(path):
    safe, text = path.with_name("safe.parquet"), path.with_suffix(".csv")
    make_predictions(90).write_parquet(safe, use_pyarrow=True, pyarrow_options={"write_page_checksum": True})
    make_predictions(90).select(logits_0=1.0, logits_1=2.0, logits_2=3.0).write_csv(text)
    for file, warned in ((path, True), (safe, False), (text, False)):
        applied = apply_map(make_map(), file, path.with_name("out.parquet"))
        assert any("Not all pages" in line for line in applied.describe(LABEL_NAMES)) == warned


DOCUMENTS = maps.make_maps_for_sql(n_thresholds=500)
SMALL = [name for name in DOCUMENTS if "thresholds" not in name]
# sqlglot writes each LEAST of BigQuery with three copies of its arguments: here 13 million characters, for a minute
TOO_LONG = ("label_vector, corrected, K = 5", "bigquery")
OTHER_DIALECTS = [pair for pair in product(SMALL, ["postgres", "bigquery", "spark"]) if pair != TOO_LONG]
PAIRS = [*product(DOCUMENTS, ["duckdb"]), *OTHER_DIALECTS]


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


@pytest.mark.parametrize(("name", "dialect"), PAIRS)
def test_every_dialect_agrees_with_apply_and_is_the_same_for_a_map_that_was_written_and_read(engine, name, dialect):
    made = MapDocument.model_validate_json(DOCUMENTS[name].model_dump_json())
    text, n = sql_expression(made, dialect), 3000 if dialect == "duckdb" else 500
    frame, reliability = maps.make_rows_for_sql(made, n)
    assert text == sql_expression(DOCUMENTS[name], dialect)
    if dialect != "duckdb":
        text = sqlglot.parse_one(text, read=dialect).sql(dialect="duckdb")
    answered = answers(engine, text, frame)
    np.testing.assert_allclose(
        answered, reliability, rtol=0, atol=maps.SQL_TOLERANCE
    )  # and NULL where there is no answer
    assert np.nanmin(answered) >= 0
    assert np.nanmax(answered) <= 1


@pytest.mark.parametrize("name", SMALL)
def test_no_exponential_overflows_or_vanishes_nor_does_a_quotient(engine, name):
    frame, reliability = maps.make_rows_for_sql(DOCUMENTS[name], n_random=500)
    frame = frame.filter(~np.isnan(reliability))
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


def test_labels_of_one_curve_share_its_text():
    few, many = (sql_expression(make_map("shared_1d", n_labels=n_labels), "duckdb") for n_labels in (2, 500))
    assert len(many) - len(few) <= 3


def test_postgres_has_two_names():
    assert sql_expression(make_map(), "postgres") == sql_expression(make_map(), "postgresql")
